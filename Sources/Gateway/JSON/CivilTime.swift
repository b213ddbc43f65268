package import HTTP2Session

/// Date and time of day in UTC, without Foundation, with conversions to and from milliseconds.
package struct CivilTime: Equatable, Sendable {
  package var date: CivilDate
  package var hour: UInt32
  package var minute: UInt32
  package var second: UInt32
  package var millisecond: UInt32

  /// 9999-12-31T23:59:59.999Z.
  package static let millisecondsMax: Int64 = 253_402_300_799_999

  /// Convert `milliseconds` since 1970-01-01T00:00:00Z, clamped to the years 1970 to 9999.
  package init(milliseconds: Int64) {
    let held = UInt64(Swift.min(Swift.max(milliseconds, 0), Self.millisecondsMax))
    // Values are below 2^32 from here on, where a division by a constant is one multiplication.
    let days = UInt32(truncatingIfNeeded: held / 86_400_000)
    let millisecondOfDay = UInt32(truncatingIfNeeded: held % 86_400_000)
    let secondOfDay = millisecondOfDay / 1_000
    self.millisecond = millisecondOfDay % 1_000
    self.hour = secondOfDay / 3_600
    self.minute = secondOfDay / 60 % 60
    self.second = secondOfDay % 60
    self.date = CivilDate(daysSince1970: days)
  }

  /// Milliseconds from 1970-01-01T00:00:00Z.
  package var milliseconds: Int64 {
    let minutes = (date.daysSince1970 * 24 + Int(hour)) * 60 + Int(minute)
    return Int64(minutes * 60 + Int(second)) * 1_000 + Int64(millisecond)
  }

  /// Parse RFC 3339: `2026-02-28T23:59:59[.fraction](Z|±hh:mm)`, years 1970 to 9999. Digits of the fraction beyond
  /// milliseconds are cut off; a leap second (`:60`) is the next second.
  ///
  /// - Returns: milliseconds since 1970; nil where the text is malformed.
  package static func milliseconds(parsing text: RawSpan) -> Int64? {
    var reader = TimeReader(text: text)
    guard let year = reader.number(digits: 4), year >= 1970, reader.consume("-"),
      let month = reader.number(digits: 2), (1...12).contains(month), reader.consume("-"),
      let day = reader.number(digits: 2), day >= 1, day <= daysIn(month: month, year: year),
      reader.consume("T") || reader.consume("t") || reader.consume(" "),
      let hour = reader.number(digits: 2), hour < 24, reader.consume(":"),
      let minute = reader.number(digits: 2), minute < 60, reader.consume(":"),
      let second = reader.number(digits: 2), second <= 60,
      let millisecond = reader.fraction(), let offsetMinutes = reader.offset(), reader.isAtEnd
    else { return nil }
    var time = CivilTime(milliseconds: 0)
    time.date = CivilDate(year: year, month: month, day: day)
    time.hour = hour
    time.minute = minute
    time.second = second
    time.millisecond = millisecond
    let milliseconds = time.milliseconds - Int64(offsetMinutes) * 60_000
    return (0...millisecondsMax).contains(milliseconds) ? milliseconds : nil
  }

  private static func daysIn(month: UInt32, year: UInt32) -> UInt32 {
    switch month {
    case 2: year % 4 == 0 && (year % 100 != 0 || year % 400 == 0) ? 29 : 28
    case 4, 6, 9, 11: 30
    default: 31
    }
  }
}

private struct TimeReader: ~Escapable {
  private let text: RawSpan
  private var at = 0

  @_lifetime(copy text)
  init(text: RawSpan) { self.text = text }

  var isAtEnd: Bool { at == text.byteCount }

  private var byte: UInt8? { at < text.byteCount ? text.unsafeLoad(fromByteOffset: at, as: UInt8.self) : nil }

  @_lifetime(self: copy self)
  mutating func consume(_ character: Unicode.Scalar) -> Bool {
    guard byte == UInt8(ascii: character) else { return false }
    at += 1
    return true
  }

  @_lifetime(self: copy self)
  mutating func number(digits: Int) -> UInt32? {
    var value: UInt32 = 0
    for _ in 0..<digits {
      guard let byte, byte >= UInt8(ascii: "0"), byte <= UInt8(ascii: "9") else { return nil }
      value = value * 10 + UInt32(byte - UInt8(ascii: "0"))
      at += 1
    }
    return value
  }

  /// Return the milliseconds of `.123456`; 0 where there is no fraction, nil where a point has no digit after it.
  @_lifetime(self: copy self)
  mutating func fraction() -> UInt32? {
    guard consume(".") else { return 0 }
    var value: UInt32 = 0
    var digits = 0
    while let digit = number(digits: 1) {
      if digits < 3 { value = value * 10 + digit }
      digits += 1
    }
    guard digits > 0 else { return nil }
    for _ in digits..<Swift.max(3, digits) { value *= 10 }
    return value
  }

  /// Return the minutes ahead of UTC.
  @_lifetime(self: copy self)
  mutating func offset() -> Int? {
    if consume("Z") || consume("z") { return 0 }
    let isBehind = consume("-")
    guard isBehind || consume("+"), let hours = number(digits: 2), hours < 24, consume(":"),
      let minutes = number(digits: 2), minutes < 60
    else { return nil }
    return (isBehind ? -1 : 1) * Int(hours * 60 + minutes)
  }
}
