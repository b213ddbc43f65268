/// A time of a dump, in microseconds since 1970, of the years 1970 to 9999.
///
/// Lines have milliseconds. The order of messages, and positions that are only times, are decided with what is finer.
package struct DumpTime: Hashable, Sendable {
  /// 9999-12-31T23:59:59.999999Z.
  private static let microsecondsMax: Int64 = 253_402_300_799_999_999

  package let microseconds: Int64

  /// - Returns: nil outside of the years 1970 to 9999.
  package init?(microseconds: Int64) {
    guard (0...Self.microsecondsMax).contains(microseconds) else { return nil }
    self.microseconds = microseconds
  }

  /// - Returns: nil outside of the years 1970 to 9999.
  package init?(milliseconds: Int64) {
    let (microseconds, overflow) = milliseconds.multipliedReportingOverflow(by: 1_000)
    guard !overflow else { return nil }
    self.init(microseconds: microseconds)
  }

  /// Parse RFC 3339: `2026-02-28T23:59:59[.fraction](Z|±hh:mm)`. Digits beyond microseconds are cut off; a leap second
  /// (`:60`) is the next second.
  ///
  /// - Returns: nil for a malformed text, and outside of the years 1970 to 9999.
  package init?(rfc3339 text: String) {
    var reader = TimeReader(text: Array(text.utf8))
    guard let year = reader.number(digits: 4), reader.consume("-"),
      let month = reader.number(digits: 2), (1...12).contains(month), reader.consume("-"),
      let day = reader.number(digits: 2), (1...Self.days(ofMonth: month, year: year)).contains(day),
      reader.consume("T") || reader.consume("t") || reader.consume(" "),
      let hour = reader.number(digits: 2), hour < 24, reader.consume(":"),
      let minute = reader.number(digits: 2), minute < 60, reader.consume(":"),
      let second = reader.number(digits: 2), second <= 60,
      let fraction = reader.microseconds(), let offsetMinutes = reader.offsetMinutes(), reader.isAtEnd
    else { return nil }
    let days = Self.daysSince1970(year: year, month: month, day: day)
    let minutes = (days * 24 + hour) * 60 + minute - offsetMinutes
    self.init(microseconds: (minutes * 60 + second) * 1_000_000 + fraction)
  }

  /// RFC 3339 with milliseconds, as lines have it.
  package var text: String {
    let milliseconds = microseconds / 1_000
    let (days, rest) = milliseconds.quotientAndRemainder(dividingBy: 86_400_000)
    let date = Self.date(daysSince1970: days)
    let day = [(date.year, 4), (date.month, 2), (date.day, 2)].map(Self.padded).joined(separator: "-")
    let time = [rest / 3_600_000, rest / 60_000 % 60, rest / 1_000 % 60].map { Self.padded($0, 2) }
    return "\(day)T\(time.joined(separator: ":")).\(Self.padded(rest % 1_000, 3))Z"
  }

  private static func padded(_ value: Int64, _ width: Int) -> String {
    let digits = String(value)
    return String(repeating: "0", count: max(width - digits.count, 0)) + digits
  }

  private static func days(ofMonth month: Int64, year: Int64) -> Int64 {
    switch month {
    case 2: year % 4 == 0 && (year % 100 != 0 || year % 400 == 0) ? 29 : 28
    case 4, 6, 9, 11: 30
    default: 31
    }
  }

  /// Years begin in March, so that the leap day is the last of its year.
  private static func daysSince1970(year: Int64, month: Int64, day: Int64) -> Int64 {
    let marchYear = month > 2 ? year : year - 1
    let dayOfYear = (153 * ((month + 9) % 12) + 2) / 5 + day - 1
    return marchYear * 365 + marchYear / 4 - marchYear / 100 + marchYear / 400 + dayOfYear - 719_468
  }

  private static func date(daysSince1970: Int64) -> (year: Int64, month: Int64, day: Int64) {
    let days = daysSince1970 + 719_468
    let era = days / 146_097
    let dayOfEra = days % 146_097
    let yearOfEra = (dayOfEra - dayOfEra / 1_460 + dayOfEra / 36_524 - dayOfEra / 146_096) / 365
    let dayOfYear = dayOfEra - (365 * yearOfEra + yearOfEra / 4 - yearOfEra / 100)
    let monthIndex = (5 * dayOfYear + 2) / 153
    let month = monthIndex < 10 ? monthIndex + 3 : monthIndex - 9
    return (yearOfEra + era * 400 + (month <= 2 ? 1 : 0), month, dayOfYear - (153 * monthIndex + 2) / 5 + 1)
  }
}

extension DumpTime: Comparable {
  package static func < (left: Self, right: Self) -> Bool { left.microseconds < right.microseconds }
}

extension DumpTime: Codable {
  package init(from decoder: any Decoder) throws {
    let container = try decoder.singleValueContainer()
    guard let time = Self(microseconds: try container.decode(Int64.self)) else {
      throw DecodingError.dataCorruptedError(in: container, debugDescription: "a time outside of 1970 to 9999")
    }
    self = time
  }

  package func encode(to encoder: any Encoder) throws {
    var container = encoder.singleValueContainer()
    try container.encode(microseconds)
  }
}

private struct TimeReader {
  let text: [UInt8]
  private var at = 0

  init(text: [UInt8]) { self.text = text }

  var isAtEnd: Bool { at == text.count }

  mutating func consume(_ character: Unicode.Scalar) -> Bool {
    guard at < text.count, text[at] == UInt8(ascii: character) else { return false }
    at += 1
    return true
  }

  mutating func number(digits: Int) -> Int64? {
    var value: Int64 = 0
    for _ in 0..<digits {
      guard at < text.count, (UInt8(ascii: "0")...UInt8(ascii: "9")).contains(text[at]) else { return nil }
      value = value * 10 + Int64(text[at] - UInt8(ascii: "0"))
      at += 1
    }
    return value
  }

  /// Return the microseconds of a fraction; 0 without one, nil if its point has no digit after it.
  mutating func microseconds() -> Int64? {
    guard consume(".") else { return 0 }
    var value: Int64 = 0
    var digits = 0
    while let digit = number(digits: 1) {
      if digits < 6 { value = value * 10 + digit }
      digits += 1
    }
    guard digits > 0 else { return nil }
    for _ in min(digits, 6)..<6 { value *= 10 }
    return value
  }

  mutating func offsetMinutes() -> Int64? {
    if consume("Z") || consume("z") { return 0 }
    let sign: Int64 = consume("+") ? 1 : -1
    guard sign == 1 || consume("-") else { return nil }
    guard let hours = number(digits: 2), hours < 24, consume(":"), let minutes = number(digits: 2), minutes < 60 else {
      return nil
    }
    return sign * (hours * 60 + minutes)
  }
}
