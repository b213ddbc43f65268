/// Request ids for answers and logs: the caller's `x-request-id` where it is acceptable, else a new one. New ids are
/// short enough to read out, and unique among all gateways with high probability.
struct RequestIDs {
  /// Maximum length of a caller's id in bytes.
  static let byteCountMax = 64

  private let prefix: String
  private var counter: UInt64 = 0

  /// - Parameter random: distinguishes this event loop's ids from those of other loops and processes.
  init(random: UInt64) {
    prefix = String(random, radix: 36)
  }

  /// Return the caller's id, if it is 1 to 64 printable ASCII characters, else a new one.
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
