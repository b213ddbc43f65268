/// Names requests in answers and logs: the caller's `x-request-id` where it is a sane one, else one of ours,
/// which is unique among all gateways with high probability and short enough to be read out.
struct RequestIDs {
  /// A longer one is not taken over.
  static let byteCountMax = 64

  private let prefix: String
  private var counter: UInt64 = 0

  /// `random` tells this event loop's ids from those of every other loop and process.
  init(random: UInt64) {
    prefix = String(random, radix: 36)
  }

  /// The caller's id, if it is 1 to 64 printable ASCII characters, else a new one.
  mutating func id(given: RawSpan) -> String {
    if let id = Self.accepted(given) { return id }
    counter += 1
    return prefix + "-" + String(counter, radix: 36)
  }

  static func accepted(_ given: RawSpan) -> String? {
    guard (1...byteCountMax).contains(given.byteCount) else { return nil }
    return given.withUnsafeBytes { bytes in
      guard bytes.allSatisfy({ $0 > 0x20 && $0 < 0x7F }) else { return nil }
      return String(decoding: bytes, as: UTF8.self)
    }
  }
}
