package import Crypto
internal import Foundation

/// Message encryption for Web Push (RFC 8291) with the content coding aes128gcm (RFC 8188), in one record.
package enum WebPushEncryption {
  /// Largest plaintext: 4,096 bytes of body less header, delimiter and authentication tag (RFC 8291 section 4).
  package static let plaintextByteCountMax = recordSize - headerByteCount - 1 - tagByteCount
  /// The `rs` field. All services accept bodies of this size.
  private static let recordSize = 4_096
  private static let saltByteCount = 16
  private static let pointByteCount = 65
  private static let tagByteCount = 16
  /// Salt, record size, length of the key id, key id (RFC 8188 section 2.1).
  private static let headerByteCount = saltByteCount + 4 + 1 + pointByteCount
  /// Delimiter of the last record (RFC 8188 section 2).
  private static let lastRecordDelimiter: UInt8 = 2

  /// Encrypt a message for a subscription.
  ///
  /// - Parameters:
  ///   - plaintext: at most ``plaintextByteCountMax`` bytes.
  ///   - key: a new key for each message.
  ///   - salt: 16 random bytes.
  /// - Throws: `CryptoKitError` if the subscription's key is not a point of P-256.
  package static func encrypt(
    _ plaintext: [UInt8],
    for subscription: WebPushSubscription,
    key: P256.KeyAgreement.PrivateKey = .init(),
    salt: [UInt8] = randomSalt()
  ) throws -> [UInt8] {
    precondition(plaintext.count <= plaintextByteCountMax && salt.count == saltByteCount)
    let receiver = try P256.KeyAgreement.PublicKey(x963Representation: subscription.publicKey)
    let keys = Keys(
      secret: try key.sharedSecretFromKeyAgreement(with: receiver),
      authentication: subscription.secret,
      receiver: receiver,
      sender: key.publicKey,
      salt: salt
    )
    let sealed = try AES.GCM.seal(plaintext + [lastRecordDelimiter], using: keys.content, nonce: keys.nonce())
    var body = salt
    withUnsafeBytes(of: UInt32(recordSize).bigEndian) { body += $0 }
    body.append(UInt8(pointByteCount))
    body += key.publicKey.x963Representation
    body += sealed.ciphertext
    body += sealed.tag
    return body
  }

  /// Error of a body that is not an encrypted message.
  package struct MalformedBody: Error {}

  /// Decrypt a body with the keys of a user agent, as the sandbox does.
  package static func decrypt(
    _ body: [UInt8],
    key: P256.KeyAgreement.PrivateKey,
    secret: [UInt8]
  ) throws -> [UInt8] {
    guard body.count > headerByteCount + tagByteCount, body[20] == UInt8(pointByteCount) else { throw MalformedBody() }
    let salt = Array(body[..<saltByteCount])
    let sender = try P256.KeyAgreement.PublicKey(x963Representation: body[21..<headerByteCount])
    let keys = Keys(
      secret: try key.sharedSecretFromKeyAgreement(with: sender),
      authentication: secret,
      receiver: key.publicKey,
      sender: sender,
      salt: salt
    )
    let sealed = body[headerByteCount...]
    let box = try AES.GCM.SealedBox(
      nonce: keys.nonce(),
      ciphertext: sealed.dropLast(tagByteCount),
      tag: sealed.suffix(tagByteCount)
    )
    let record = try Array(AES.GCM.open(box, using: keys.content))
    // Zeros after the delimiter are padding.
    guard let end = record.lastIndex(where: { $0 != 0 }), record[end] == lastRecordDelimiter else {
      throw MalformedBody()
    }
    return Array(record[..<end])
  }

  /// Return a new salt.
  package static func randomSalt() -> [UInt8] {
    SymmetricKey(size: .bits128).withUnsafeBytes { Array($0) }
  }

  /// Keys of one message (RFC 8291 section 3.4).
  private struct Keys {
    let content: SymmetricKey
    private let nonceBytes: [UInt8]

    init(
      secret: SharedSecret,
      authentication: [UInt8],
      receiver: P256.KeyAgreement.PublicKey,
      sender: P256.KeyAgreement.PublicKey,
      salt: [UInt8]
    ) {
      let information = Data("WebPush: info\0".utf8) + receiver.x963Representation + sender.x963Representation
      let input = secret.hkdfDerivedSymmetricKey(
        using: SHA256.self,
        salt: authentication,
        sharedInfo: information,
        outputByteCount: 32
      )
      func derive(_ label: String, _ byteCount: Int) -> SymmetricKey {
        HKDF<SHA256>.deriveKey(
          inputKeyMaterial: input,
          salt: salt,
          info: Array("Content-Encoding: \(label)\0".utf8),
          outputByteCount: byteCount
        )
      }
      content = derive("aes128gcm", 16)
      nonceBytes = derive("nonce", 12).withUnsafeBytes { Array($0) }
    }

    /// Nonce of the first record, whose sequence number is 0 (RFC 8188 section 2.3).
    func nonce() throws -> AES.GCM.Nonce { try AES.GCM.Nonce(data: nonceBytes) }
  }
}
