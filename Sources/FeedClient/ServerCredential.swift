internal import GatewayClient
internal import NIOPosix
package import Operations
internal import Synchronization

/// Source of the server token that a client of the feed sends to the gateway.
package final class ServerCredential: Sendable {
  private enum Source {
    case issuer(TokenIssuer)
    case file(String)
    case token(String)
  }

  private struct Cached {
    var token: String
    var until: ContinuousClock.Instant
  }

  /// Lifetime of an issued token, half of which it is used for.
  private static let lifetime = Duration.seconds(3_600)
  /// How long a file's token is used before the file is read again.
  private static let fileInterval = Duration.seconds(2)

  private let source: Source
  private let cached = Mutex<Cached?>(nil)

  private init(_ source: Source) { self.source = source }

  /// Issue tokens with the gateway's secret in the first line of a file.
  package static func secretFile(
    _ path: String,
    warn: (String) -> Void
  ) async throws(SettingsError) -> ServerCredential {
    ServerCredential(.issuer(try await TokenIssuer(secretFile: path, warn: warn)))
  }

  /// Send the token in the first line of a file. The file is read again when it is used, so a token may be replaced.
  package static func tokenFile(_ path: String, warn: (String) -> Void) throws(SettingsError) -> ServerCredential {
    let credential = ServerCredential(.file(path))
    _ = try read(path, warn: warn)
    return credential
  }

  /// Use one token, as long as it is valid.
  package static func token(_ token: String) -> ServerCredential { ServerCredential(.token(token)) }

  /// Return a valid token.
  package func token() async throws -> String {
    let now = ContinuousClock.now
    if let cached = cached.withLock({ $0 }), now < cached.until { return cached.token }
    let token: String
    let use: Duration
    switch source {
    case .token(let given): return given
    case .issuer(let issuer):
      token = try await issuer.server(lifetime: Self.lifetime)
      use = Self.lifetime / 2
    case .file(let path):
      token = try await NIOThreadPool.singleton.runIfActive { try Self.read(path) { _ in } }
      use = Self.fileInterval
    }
    cached.withLock { $0 = Cached(token: token, until: now + use) }
    return token
  }

  private static func read(_ path: String, warn: (String) -> Void) throws(SettingsError) -> String {
    let secret = try SecretFile.load(path, key: "token-file", warn: warn).current
    let token = String(decoding: secret, as: UTF8.self)
    guard token.utf8.allSatisfy({ $0 > 0x20 && $0 < 0x7F }) else {
      throw SettingsError(
        "token-file",
        "\(path): the first line is not a token; write one with `tidemark token --server`"
      )
    }
    return token
  }
}
