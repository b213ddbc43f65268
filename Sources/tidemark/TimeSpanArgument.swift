import ArgumentParser
import Operations

/// A time span as an option takes it: `500ms`, `90s`, `15m`, `1h`, `7d`; a number alone is in seconds.
struct TimeSpanArgument: ExpressibleByArgument, CustomStringConvertible, Sendable {
  /// Ten years in seconds: more is a mistake.
  static let daysMax = 3650.0 * 86_400

  let milliseconds: Int64

  init(seconds: Double) { milliseconds = Int64((seconds * 1_000).rounded()) }

  init?(argument: String) {
    guard let milliseconds = TimeSpan.milliseconds(argument) else { return nil }
    self.milliseconds = milliseconds
  }

  var seconds: Double { Double(milliseconds) / 1_000 }

  var description: String { TimeSpan.text(milliseconds: milliseconds) }

  var defaultValueDescription: String { description }

  /// - Throws: where it is outside of `range`, in seconds.
  func validate(_ flag: String, in range: ClosedRange<Double>) throws {
    guard range.contains(seconds) else {
      let (least, most) = (Self(seconds: range.lowerBound), Self(seconds: range.upperBound))
      throw ValidationError("\(flag) \(self): give \(least) to \(most)")
    }
  }
}
