internal import Crypto
package import Foundation
internal import SwiftASN1
internal import X509

/// Certificates for this machine's own names. Clients trust a self-signed one by being given the certificate itself.
package enum LoopbackCertificate {
  /// Validity period of a self-signed certificate in seconds.
  package static let lifetime: TimeInterval = 365 * 24 * 3600

  /// Create a self-signed certificate and its key, as PEM.
  package static func makeSelfSigned(now: Date) throws -> (certificate: String, key: String) {
    let key = P256.Signing.PrivateKey()
    let name = try DistinguishedName { CommonName("localhost") }
    return try make(key, now: now, lifetime: lifetime, issuer: name, issuerKey: key)
  }

  /// Create a CA, and a certificate that it has signed, both valid for the same time, as PEM.
  ///
  /// - Parameter lifetime: in seconds.
  package static func makeWithAuthority(
    named name: String,
    now: Date,
    lifetime: TimeInterval
  ) throws -> (authority: String, certificate: String, key: String) {
    let authorityKey = P256.Signing.PrivateKey()
    let authorityName = try DistinguishedName { CommonName(name) }
    let authority = try Certificate(
      version: .v3,
      serialNumber: Certificate.SerialNumber(),
      publicKey: Certificate.PublicKey(authorityKey.publicKey),
      notValidBefore: now.addingTimeInterval(-3600),
      notValidAfter: now.addingTimeInterval(lifetime),
      issuer: authorityName,
      subject: authorityName,
      signatureAlgorithm: .ecdsaWithSHA256,
      extensions: Certificate.Extensions {
        Critical(BasicConstraints.isCertificateAuthority(maxPathLength: 0))
        Critical(KeyUsage(keyCertSign: true))
      },
      issuerPrivateKey: Certificate.PrivateKey(authorityKey)
    )
    let (certificate, key) = try make(
      P256.Signing.PrivateKey(),
      now: now,
      lifetime: lifetime,
      issuer: authorityName,
      issuerKey: authorityKey
    )
    return (try authority.serializeAsPEM().pemString + "\n", certificate, key)
  }

  /// Create a certificate of `localhost`, 127.0.0.1 and ::1, as PEM with its key.
  private static func make(
    _ key: P256.Signing.PrivateKey,
    now: Date,
    lifetime: TimeInterval,
    issuer: DistinguishedName,
    issuerKey: P256.Signing.PrivateKey
  ) throws -> (certificate: String, key: String) {
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
      issuer: issuer,
      subject: try DistinguishedName { CommonName("localhost") },
      signatureAlgorithm: .ecdsaWithSHA256,
      extensions: Certificate.Extensions {
        Critical(BasicConstraints.notCertificateAuthority)
        Critical(KeyUsage(digitalSignature: true))
        try ExtendedKeyUsage([.serverAuth])
        SubjectAlternativeNames(names)
      },
      issuerPrivateKey: Certificate.PrivateKey(issuerKey)
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
