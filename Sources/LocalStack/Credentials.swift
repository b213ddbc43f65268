internal import Crypto
package import Foundation
internal import JWTKit
package import Operations
internal import SwiftASN1
internal import X509

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

/// Self-signed certificate for this machine's own names. Clients trust it by being given the certificate itself.
package enum SelfSignedCertificate {
  /// Validity period in seconds.
  package static let lifetime: TimeInterval = 365 * 24 * 3600

  /// Create certificate and key of `localhost`, 127.0.0.1 and ::1, as PEM.
  package static func make(now: Date) throws -> (certificate: String, key: String) {
    let key = P256.Signing.PrivateKey()
    let name = try DistinguishedName { CommonName("localhost") }
    let names: [GeneralName] = [
      .dnsName("localhost"), .ipAddress(ASN1OctetString(contentBytes: [127, 0, 0, 1])),
      .ipAddress(ASN1OctetString(contentBytes: [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1])),
    ]
    let certificate = try Certificate(
      version: .v3,
      serialNumber: Certificate.SerialNumber(),
      publicKey: Certificate.PublicKey(key.publicKey),
      // An hour ago, because the clock of a client in a virtual machine may be slightly behind.
      notValidBefore: now.addingTimeInterval(-3600),
      notValidAfter: now.addingTimeInterval(lifetime),
      issuer: name,
      subject: name,
      signatureAlgorithm: .ecdsaWithSHA256,
      extensions: Certificate.Extensions {
        Critical(BasicConstraints.notCertificateAuthority)
        Critical(KeyUsage(digitalSignature: true))
        try ExtendedKeyUsage([.serverAuth])
        SubjectAlternativeNames(names)
      },
      issuerPrivateKey: Certificate.PrivateKey(key)
    )
    // Each ends with a line feed, so that both can be concatenated into one file for HAProxy.
    return (try certificate.serializeAsPEM().pemString + "\n", key.pemRepresentation + "\n")
  }

  /// Return whether a PEM text holds a certificate that is valid now and for one more day.
  package static func isValid(_ pem: String, now: Date) -> Bool {
    guard let certificate = try? Certificate(pemEncoded: pem) else { return false }
    return certificate.notValidBefore <= now && certificate.notValidAfter > now.addingTimeInterval(24 * 3600)
  }
}
