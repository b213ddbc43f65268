internal import Crypto
internal import Foundation

/// Whether a webhook is its sender's, and of now: Standard Webhooks, <https://www.standardwebhooks.com>, by a shared
/// secret. What is signed is the id, a dot, the time in seconds, a dot, and the body as it stands.
package struct HookSignature: Sendable {
  /// How far a webhook's time may be from ours, either way, in seconds.
  package static let toleranceSeconds: Int64 = 300
  /// Characters of a webhook's id at most.
  package static let idCharactersMax = 128
  /// Bytes of a secret, as the specification has them.
  package static let secretBytes = 24...64

  /// Why a webhook is not taken.
  package enum Refusal: Error, Equatable {
    /// A header is missing, or not of its form.
    case header(StaticHeader)
    /// None of the signatures is by one of the secrets.
    case signature
    /// It was sent too long ago, or is to be sent yet.
    case time

    package enum StaticHeader: String, Sendable {
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

  /// A secret as senders show it, `whsec_` and base64; nil where it is none.
  package static func secret(_ text: String) -> [UInt8]? {
    let prefix = "whsec_"
    guard text.hasPrefix(prefix), let data = Data(base64Encoded: String(text.dropFirst(prefix.count))),
      secretBytes.contains(data.count)
    else { return nil }
    return Array(data)
  }

  /// Checks the signature, then the time.
  ///
  /// - Parameter now: in milliseconds since 1970.
  /// - Returns: when it was sent, in seconds since 1970.
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
    guard keys.contains(where: { Self.isSigned($0, id, timestamp, body, signatures) }) else {
      throw .signature
    }
    guard abs(seconds - now / 1_000) <= Self.toleranceSeconds else { throw .time }
    return seconds
  }

  /// Printable ASCII without space.
  private static func isID(_ id: RawSpan) -> Bool {
    guard (1...idCharactersMax).contains(id.byteCount) else { return false }
    return id.withUnsafeBytes { bytes in bytes.allSatisfy { $0 > 0x20 && $0 < 0x7F } }
  }

  private static func isSigned(
    _ key: SymmetricKey,
    _ id: RawSpan,
    _ timestamp: RawSpan,
    _ body: RawSpan,
    _ signatures: RawSpan
  ) -> Bool {
    var code = HMAC<SHA256>(key: key)
    let dot = [UInt8(ascii: ".")]
    id.withUnsafeBytes { code.update(data: $0) }
    code.update(data: dot)
    timestamp.withUnsafeBytes { code.update(data: $0) }
    code.update(data: dot)
    body.withUnsafeBytes { code.update(data: $0) }
    let wanted = Array("v1,\(Data(code.finalize()).base64EncodedString())".utf8)
    var isEqual = false
    var start = 0
    while start < signatures.byteCount {
      let end = signatures.firstOffset(of: UInt8(ascii: " "), from: start) ?? signatures.byteCount
      if Self.areEqual(signatures.extracting(start..<end), wanted.span.bytes) { isEqual = true }
      start = end + 1
    }
    return isEqual
  }

  /// Takes the same time wherever the bytes differ.
  private static func areEqual(_ a: RawSpan, _ b: RawSpan) -> Bool {
    guard a.byteCount == b.byteCount else { return false }
    var difference: UInt8 = 0
    for at in 0..<a.byteCount {
      difference |=
        a.unsafeLoad(fromByteOffset: at, as: UInt8.self) ^ b.unsafeLoad(fromByteOffset: at, as: UInt8.self)
    }
    return difference == 0
  }
}
