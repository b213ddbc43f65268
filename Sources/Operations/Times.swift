internal import Foundation

#if canImport(Glibc)
  internal import Glibc
#elseif canImport(Musl)
  internal import Musl
#endif

/// Times for people to read.
package enum Times {
  /// Wall clock time, in milliseconds since 1970.
  package static var now: Int64 {
    var time = timespec()
    clock_gettime(CLOCK_REALTIME, &time)
    return Int64(time.tv_sec) * 1_000 + Int64(time.tv_nsec) / 1_000_000
  }

  /// Format a time as RFC 3339 with milliseconds, in UTC.
  ///
  /// - Parameter milliseconds: since 1970.
  package static func text(_ milliseconds: Int64) -> String {
    Date(timeIntervalSince1970: Double(milliseconds) / 1_000)
      .formatted(.iso8601.year().month().day().time(includingFractionalSeconds: true)) + "Z"
  }

  /// Parse an RFC 3339 time, with or without a fraction, to milliseconds since 1970; nil if the text is invalid.
  package static func milliseconds(_ text: String) -> Int64? {
    for hasFraction in [true, false] {
      let style = Date.ISO8601FormatStyle(includingFractionalSeconds: hasFraction)
      if let date = try? style.parse(text) { return Int64((date.timeIntervalSince1970 * 1_000).rounded()) }
    }
    return nil
  }
}

/// Time span in the notation of all flags: `500ms`, `90s`, `15m`, `1h`, `7d`, with an optional decimal fraction
/// (`0.5s`). A number alone is in seconds.
package enum TimeSpan {
  private static let units: [(suffix: String, milliseconds: Double)] = [
    // Listed first, because other suffixes match its end.
    ("ms", 1), ("s", 1_000), ("m", 60_000), ("h", 3_600_000), ("d", 86_400_000),
  ]

  /// - Parameter unitless: milliseconds per unit of a number without a unit.
  /// - Returns: milliseconds, or nil if the text is not a time span.
  package static func milliseconds(_ text: String, unitless: Double = 1_000) -> Int64? {
    let unit = units.first { text.hasSuffix($0.suffix) }
    let number = text.dropLast(unit?.suffix.utf8.count ?? 0)
    guard let first = number.utf8.first, let last = number.utf8.last, isDigit(first), isDigit(last),
      number.utf8.allSatisfy({ isDigit($0) || $0 == UInt8(ascii: ".") }), let value = Double(number)
    else { return nil }
    return Int64(exactly: (value * (unit?.milliseconds ?? unitless)).rounded())
  }

  /// Format a time span in the largest unit that makes it a whole number.
  package static func text(milliseconds: Int64) -> String {
    guard milliseconds != 0,
      let unit = units.last(where: { milliseconds % Int64($0.milliseconds) == 0 })
    else { return "0s" }
    return "\(milliseconds / Int64(unit.milliseconds))\(unit.suffix)"
  }

  private static func isDigit(_ byte: UInt8) -> Bool {
    (UInt8(ascii: "0")...UInt8(ascii: "9")).contains(byte)
  }
}
