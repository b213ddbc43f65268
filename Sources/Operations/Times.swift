internal import Foundation

/// Times as people read them.
package enum Times {
  /// RFC 3339 with milliseconds, in UTC.
  ///
  /// - Parameter milliseconds: since 1970.
  package static func text(_ milliseconds: Int64) -> String {
    Date(timeIntervalSince1970: Double(milliseconds) / 1_000)
      .formatted(.iso8601.year().month().day().time(includingFractionalSeconds: true))
      + "Z"
  }

  /// Milliseconds since 1970 of a time in RFC 3339, with or without a fraction; nil where the text is none.
  package static func milliseconds(_ text: String) -> Int64? {
    for hasFraction in [true, false] {
      let style = Date.ISO8601FormatStyle(includingFractionalSeconds: hasFraction)
      if let date = try? style.parse(text) { return Int64((date.timeIntervalSince1970 * 1_000).rounded()) }
    }
    return nil
  }
}
