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
      .formatted(.iso8601.year().month().day().time(includingFractionalSeconds: true))
      + "Z"
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
