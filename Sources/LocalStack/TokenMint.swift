internal import Foundation
internal import JWTKit
package import Operations

/// Makes tokens that a gateway with the same secret accepts (HS256).
package struct TokenMint: Sendable {
  /// A shorter secret is refused (RFC 7518 section 3.2).
  package static let secretByteCountMin = 32

  private let keys = JWTKeyCollection()

  /// A mint over that secret.
  package init(secret: [UInt8]) async {
    await keys.add(hmac: HMACKey(from: secret), digestAlgorithm: .sha256)
  }

  /// A mint over the secret in the first line of a file.
  package init(secretFile: String, warn: (String) -> Void = { _ in }) async throws(SettingsError) {
    let secrets = try SecretFile.load(
      secretFile,
      key: "jwt-secret-file",
      byteCountMin: Self.secretByteCountMin,
      warn: warn
    )
    await self.init(secret: secrets.current)
  }

  /// A token for a user.
  ///
  /// - Parameter tokenID: its `jti`; nil: it has none.
  package func user(_ id: String, lifetime: Duration, id tokenID: String? = nil) async throws -> String {
    try await sign(user: id, server: nil, lifetime, tokenID)
  }

  /// A token for a chat backend, which may do everything.
  ///
  /// - Parameter tokenID: its `jti`; nil: it has none.
  package func server(lifetime: Duration, id tokenID: String? = nil) async throws -> String {
    try await sign(user: nil, server: true, lifetime, tokenID)
  }

  /// A new id for a token.
  package static func randomID() -> String { UUID().uuidString.lowercased() }

  private func sign(
    user: String?,
    server: Bool?,
    _ lifetime: Duration,
    _ tokenID: String?
  ) async throws -> String {
    let now = Int64(Date().timeIntervalSince1970)
    let end = now + lifetime.components.seconds
    let claims = Claims(user_id: user, server: server, iat: now, exp: end, jti: tokenID)
    return try await keys.sign(claims)
  }
}

/// Whole seconds, so that tokens are short: a token travels with every request.
private struct Claims: JWTPayload {
  // The names are the claims' own.
  // swift-format-ignore: AlwaysUseLowerCamelCase
  var user_id: String?
  var server: Bool?
  var iat: Int64
  var exp: Int64
  var jti: String?

  /// Nothing to check: these claims are only ever made here.
  func verify(using algorithm: some JWTAlgorithm) throws {}
}
