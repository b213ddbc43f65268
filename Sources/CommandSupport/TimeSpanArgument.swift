internal import ArgumentParser
internal import Operations

/// Time span as an option value: `500ms`, `90s`, `15m`, `1h`, `7d`; a number alone is in seconds.
package struct TimeSpanArgument: ExpressibleByArgument, CustomStringConvertible, Sendable {
  /// Ten years in seconds: a larger value is a mistake.
  package static let daysMax = 3650.0 * 86_400

  package let milliseconds: Int64

  package init(seconds: Double) { milliseconds = Int64((seconds * 1_000).rounded()) }

  package init?(argument: String) {
    guard let milliseconds = TimeSpan.milliseconds(argument) else { return nil }
    self.milliseconds = milliseconds
  }

  package var seconds: Double { Double(milliseconds) / 1_000 }

  package var description: String { TimeSpan.text(milliseconds: milliseconds) }

  package var defaultValueDescription: String { description }

  /// - Throws: if the time span is outside of `range`, in seconds.
  package func validate(_ flag: String, in range: ClosedRange<Double>) throws {
    guard range.contains(seconds) else {
      let (least, most) = (Self(seconds: range.lowerBound), Self(seconds: range.upperBound))
      throw ValidationError("\(flag) \(self): give \(least) to \(most)")
    }
  }
}
