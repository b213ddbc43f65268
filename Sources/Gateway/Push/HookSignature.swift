internal import Crypto
internal import Foundation

/// Check of a webhook's signature and timestamp: Standard Webhooks, <https://www.standardwebhooks.com>, with a shared
/// secret. The signed bytes are the id, a dot, the time in seconds, a dot, and the raw body.
package struct HookSignature: Sendable {
  /// Maximum difference between a webhook's time and the gateway's clock, either way, in seconds.
  package static let toleranceSeconds: Int64 = 300
  /// Maximum length of a webhook's id in characters.
  package static let idCharactersMax = 128
  /// Allowed size of a secret in bytes, per the specification.
  package static let secretBytes = 24...64

  /// Why a webhook is refused.
  package enum Refusal: Error, Equatable {
    /// A header is missing or malformed.
    case header(HeaderName)
    /// No signature matches any of the secrets.
    case signature
    /// Its time is too far in the past or future.
    case time

    package enum HeaderName: String, Sendable {
      case id = "webhook-id"
      case timestamp = "webhook-timestamp"
      case signature = "webhook-signature"
    }
  }

  private let keys: [SymmetricKey]

  /// - Parameter secrets: at least one; each is accepted.
  package init(secrets: [[UInt8]]) {
    precondition(!secrets.isEmpty, "a hook needs a secret")
    keys = secrets.map { SymmetricKey(data: $0) }
  }

  /// Decode a secret in the senders' notation, `whsec_` and base64; nil where it is malformed.
  package static func secret(_ text: String) -> [UInt8]? {
    let prefix = "whsec_"
    guard text.hasPrefix(prefix), let data = Data(base64Encoded: String(text.dropFirst(prefix.count))),
      secretBytes.contains(data.count)
    else { return nil }
    return Array(data)
  }

  /// Verify the signature, then the time.
  ///
  /// - Parameter now: in milliseconds since 1970.
  /// - Returns: the webhook's time, in seconds since 1970.
  package func check(
    id: RawSpan,
    timestamp: RawSpan,
    signatures: RawSpan,
    body: RawSpan,
    now: Int64
  ) throws(Refusal) -> Int64 {
    guard Self.isID(id) else { throw .header(.id) }
    guard timestamp.byteCount <= 12, let seconds = timestamp.decimal.flatMap({ Int64(exactly: $0) }) else {
      throw .header(.timestamp)
    }
    guard !signatures.isEmpty else { throw .header(.signature) }
    guard
      keys.contains(where: {
        Self.isSigned(by: $0, id: id, timestamp: timestamp, body: body, signatures: signatures)
      })
    else {
      throw .signature
    }
    guard abs(seconds - now / 1_000) <= Self.toleranceSeconds else { throw .time }
    return seconds
  }

  /// Return whether the id is printable ASCII without spaces.
  private static func isID(_ id: RawSpan) -> Bool {
    guard (1...idCharactersMax).contains(id.byteCount) else { return false }
    return id.withUnsafeBytes { bytes in bytes.allSatisfy { $0 > 0x20 && $0 < 0x7F } }
  }

  private static func isSigned(
    by key: SymmetricKey,
    id: RawSpan,
    timestamp: RawSpan,
    body: RawSpan,
    signatures: RawSpan
  ) -> Bool {
    var code = HMAC<SHA256>(key: key)
    let dot = [UInt8(ascii: ".")]
    id.withUnsafeBytes { code.update(data: $0) }
    code.update(data: dot)
    timestamp.withUnsafeBytes { code.update(data: $0) }
    code.update(data: dot)
    body.withUnsafeBytes { code.update(data: $0) }
    let wanted = code.finalize()
    var isEqual = false
    var start = 0
    while start < signatures.byteCount {
      let end = signatures.firstOffset(of: UInt8(ascii: " "), from: start) ?? signatures.byteCount
      // The comparison of codes takes constant time.
      if let given = Self.decode(signatures.extracting(start..<end)), wanted == given { isEqual = true }
      start = end + 1
    }
    return isEqual
  }

  /// Decode a signature, `v1,` and base64 in its canonical form; nil where it is malformed.
  private static func decode(_ signature: RawSpan) -> Data? {
    let text = signature.withUnsafeBytes { String(decoding: $0, as: UTF8.self) }
    guard text.hasPrefix("v1,"), let code = Data(base64Encoded: String(text.dropFirst(3))),
      "v1,\(code.base64EncodedString())".utf8.elementsEqual(text.utf8)
    else { return nil }
    return code
  }
}
