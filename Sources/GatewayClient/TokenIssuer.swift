internal import Foundation
internal import JWTKit
package import Operations

/// Issuer of tokens that a gateway with the same secret accepts (HS256).
package struct TokenIssuer: Sendable {
  /// Minimum length of the secret (RFC 7518 section 3.2).
  package static let secretByteCountMin = 32

  private let keys = JWTKeyCollection()

  /// Create an issuer with that secret.
  package init(secret: [UInt8]) async {
    await keys.add(hmac: HMACKey(from: secret), digestAlgorithm: .sha256)
  }

  /// Create an issuer with the secret in the first line of a file.
  package init(secretFile: String, warn: (String) -> Void = { _ in }) async throws(SettingsError) {
    let secrets = try SecretFile.load(
      secretFile,
      key: "jwt-secret-file",
      byteCountMin: Self.secretByteCountMin,
      warn: warn
    )
    await self.init(secret: secrets.current)
  }

  /// Issue a token for a user.
  ///
  /// - Parameter tokenID: its `jti`; nil: none.
  package func user(_ id: String, lifetime: Duration, id tokenID: String? = nil) async throws -> String {
    try await sign(user: id, server: nil, lifetime, tokenID)
  }

  /// Issue a token for a chat backend, which has all permissions.
  ///
  /// - Parameter tokenID: its `jti`; nil: none.
  package func server(lifetime: Duration, id tokenID: String? = nil) async throws -> String {
    try await sign(user: nil, server: true, lifetime, tokenID)
  }

  /// Create a new token id.
  package static func randomID() -> String { UUID().uuidString.lowercased() }

  private func sign(user: String?, server: Bool?, _ lifetime: Duration, _ tokenID: String?) async throws -> String {
    let now = Int64(Date().timeIntervalSince1970)
    let end = now + lifetime.components.seconds
    let claims = Claims(user_id: user, server: server, iat: now, exp: end, jti: tokenID)
    return try await keys.sign(claims)
  }
}

/// Times are whole seconds to keep tokens short: a token is sent with every request.
private struct Claims: JWTPayload {
  // The names are those of the claims.
  // swift-format-ignore: AlwaysUseLowerCamelCase
  var user_id: String?
  var server: Bool?
  var iat: Int64
  var exp: Int64
  var jti: String?

  /// Verify nothing: these claims are only created here.
  func verify(using algorithm: some JWTAlgorithm) throws {}
}
