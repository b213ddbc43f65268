internal import Crypto
package import Foundation
internal import SwiftASN1
internal import X509

/// Self-signed certificate for this machine's own names. Clients trust it by being given the certificate itself.
package enum SelfSignedCertificate {
  /// Validity period in seconds.
  package static let lifetime: TimeInterval = 365 * 24 * 3600

  /// Create certificate and key of `localhost`, 127.0.0.1 and ::1, as PEM.
  package static func make(now: Date) throws -> (certificate: String, key: String) {
    let key = P256.Signing.PrivateKey()
    let name = try DistinguishedName { CommonName("localhost") }
    let names: [GeneralName] = [
      .dnsName("localhost"),
      .ipAddress(ASN1OctetString(contentBytes: [127, 0, 0, 1])),
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
