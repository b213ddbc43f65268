internal import HTTP2Session
internal import NIOCore
internal import ReceiptModel

/// Writing of JSON directly into a buffer's spare capacity.
///
/// The caller reserves capacity for the whole response, or for one row of it, with `ByteBuffer.writeWithOutputRawSpan`
/// and the bounds below. Writing past it traps; it never corrupts memory. Text that is not known to be ASCII must be
/// UTF-8.
extension OutputRawSpan {
  /// Return the maximum size of a string of `byteCount` bytes: every byte as `\u00XX`, and the quotes.
  package static func jsonStringByteMax(_ byteCount: Int) -> Int { 6 * byteCount + 2 }
  /// Maximum size of an integer.
  package static var decimalByteMax: Int { 20 }
  /// Size of a time with its quotes.
  package static var timestampByteCount: Int { 26 }

  /// Append a literal unescaped. Inlined, so that the length is a constant and the copy is a few moves.
  @_lifetime(self: copy self)
  @inline(__always)
  package mutating func literal(_ text: StaticString) {
    copy(from: UnsafeRawPointer(text.utf8Start), byteCount: text.utf8CodeUnitCount)
  }

  /// Append bytes unescaped.
  @_lifetime(self: copy self)
  package mutating func bytes(_ bytes: RawSpan) {
    bytes.withUnsafeBytes { source in
      if let start = source.baseAddress { copy(from: start, byteCount: source.count) }
    }
  }

  /// Append a string in quotes, with only the escapes that RFC 8259 section 7 requires.
  @_lifetime(self: copy self)
  package mutating func jsonString(_ text: RawSpan) {
    text.withUnsafeBytes { source in
      guard Self.isClean(source) else {
        append(UInt8(ascii: "\""))
        for byte in source { escaped(byte) }
        append(UInt8(ascii: "\""))
        return
      }
      withUnsafeMutableBytes { room, count in
        precondition(source.count + 2 <= room.count - count, "no room for a string")
        let start = room.baseAddress! + count
        start.storeBytes(of: UInt8(ascii: "\""), as: UInt8.self)
        if let first = source.baseAddress { (start + 1).copyMemory(from: first, byteCount: source.count) }
        start.storeBytes(of: UInt8(ascii: "\""), toByteOffset: source.count + 1, as: UInt8.self)
        count += source.count + 2
      }
    }
  }

  /// Append an integer in decimal.
  @_lifetime(self: copy self)
  package mutating func decimal(_ value: Int64) {
    if value < 0 { append(UInt8(ascii: "-")) }
    decimal(value.magnitude)
  }

  /// Append an integer in decimal.
  @_lifetime(self: copy self)
  package mutating func decimal(_ value: UInt64) {
    if value < 10 { return append(UInt8(ascii: "0") &+ UInt8(truncatingIfNeeded: value)) }
    var digitCount = 1
    var bound: UInt64 = 10
    while value >= bound {
      digitCount += 1
      let (next, overflow) = bound.multipliedReportingOverflow(by: 10)
      if overflow { break }
      bound = next
    }
    withUnsafeMutableBytes { room, count in
      precondition(digitCount <= room.count - count, "no room for a number")
      var rest = value
      var at = count + digitCount
      while at > count {
        at -= 1
        let (quotient, remainder) = rest.quotientAndRemainder(dividingBy: 10)
        room[at] = UInt8(ascii: "0") &+ UInt8(truncatingIfNeeded: remainder)
        rest = quotient
      }
      count += digitCount
    }
  }

  /// Append a boolean.
  @_lifetime(self: copy self)
  package mutating func bool(_ value: Bool) {
    if value { literal("true") } else { literal("false") }
  }

  /// Append a time in quotes: RFC 3339, UTC, milliseconds, as in `"2026-02-28T23:59:59.999Z"`.
  ///
  /// `milliseconds` counts from 1970 and is clamped to the years 1970 to 9999, the range of the format.
  @_lifetime(self: copy self)
  package mutating func timestamp(milliseconds: Int64) {
    let time = CivilTime(milliseconds: milliseconds)
    withUnsafeMutableBytes { room, count in
      precondition(Self.timestampByteCount <= room.count - count, "no room for a time")
      let text = room.baseAddress! + count
      // The characters that all times share; the digits replace the zeros.
      let form: StaticString = "\"0000-00-00T00:00:00.000Z\""
      text.copyMemory(from: UnsafeRawPointer(form.utf8Start), byteCount: Self.timestampByteCount)
      Self.storeTwoDigits(time.date.year / 100, at: text + 1)
      Self.storeTwoDigits(time.date.year % 100, at: text + 3)
      Self.storeTwoDigits(time.date.month, at: text + 6)
      Self.storeTwoDigits(time.date.day, at: text + 9)
      Self.storeTwoDigits(time.hour, at: text + 12)
      Self.storeTwoDigits(time.minute, at: text + 15)
      Self.storeTwoDigits(time.second, at: text + 18)
      Self.storeTwoDigits(time.millisecond / 10, at: text + 21)
      text.storeBytes(
        of: UInt8(ascii: "0") &+ UInt8(truncatingIfNeeded: time.millisecond % 10),
        toByteOffset: 23,
        as: UInt8.self
      )
      count += Self.timestampByteCount
    }
  }

  /// Store a number below 100 as two digits, in one write.
  @inline(__always)
  private static func storeTwoDigits(_ value: UInt32, at text: UnsafeMutableRawPointer) {
    let tens = value / 10
    let digits = 0x3030 &+ tens &+ (value &- tens &* 10) << 8
    text.storeBytes(of: UInt16(truncatingIfNeeded: digits).littleEndian, as: UInt16.self)
  }

  /// Return whether no byte must be escaped: none is below 0x20, a quotation mark or a backslash. Works on eight bytes
  /// at a time; the last eight may overlap those before.
  private static func isClean(_ bytes: UnsafeRawBufferPointer) -> Bool {
    guard bytes.count >= 8 else {
      for byte in bytes where byte < 0x20 || byte == 0x22 || byte == 0x5C { return false }
      return true
    }
    var found: UInt64 = 0
    var at = 0
    while at + 8 < bytes.count {
      found |= escapedBytes(bytes.loadUnaligned(fromByteOffset: at, as: UInt64.self))
      at += 8
    }
    return found | escapedBytes(bytes.loadUnaligned(fromByteOffset: bytes.count - 8, as: UInt64.self)) == 0
  }

  /// Return non-zero where a byte of `word` must be escaped. A byte is below n where subtracting n borrows into its
  /// high bit, and equal to n where XOR with n leaves less than one.
  @inline(__always)
  private static func escapedBytes(_ word: UInt64) -> UInt64 {
    bytesBelow(0x20, word) | bytesBelow(1, word ^ repeated(0x22)) | bytesBelow(1, word ^ repeated(0x5C))
  }

  @inline(__always)
  private static func repeated(_ byte: UInt64) -> UInt64 { byte &* 0x0101_0101_0101_0101 }

  /// Return non-zero where a byte of `word` is below `bound`, which is at most 0x80. A borrow can also set the bit of
  /// the byte after one below the bound, but never without such a byte.
  @inline(__always)
  private static func bytesBelow(_ bound: UInt64, _ word: UInt64) -> UInt64 {
    (word &- repeated(bound)) & ~word & repeated(0x80)
  }

  @_lifetime(self: copy self)
  private mutating func escaped(_ byte: UInt8) {
    switch byte {
    case UInt8(ascii: "\""): literal("\\\"")
    case UInt8(ascii: "\\"): literal("\\\\")
    case 0x08: literal("\\b")
    case 0x09: literal("\\t")
    case 0x0A: literal("\\n")
    case 0x0C: literal("\\f")
    case 0x0D: literal("\\r")
    case 0..<0x20:
      literal("\\u00")
      append(byte < 0x10 ? UInt8(ascii: "0") : UInt8(ascii: "1"))
      let low = byte & 0x0F
      append(low < 10 ? UInt8(ascii: "0") + low : UInt8(ascii: "a") + low - 10)
    default: append(byte)
    }
  }

  @_lifetime(self: copy self)
  @inline(__always)
  private mutating func copy(from start: UnsafeRawPointer, byteCount: Int) {
    withUnsafeMutableBytes { room, count in
      precondition(byteCount <= room.count - count, "no room for the text")
      if byteCount > 0 {
        (room.baseAddress! + count).copyMemory(from: start, byteCount: byteCount)
        count += byteCount
      }
    }
  }
}

extension ByteBuffer {
  /// Write a JSON string with its quotes.
  mutating func writeJSONString(_ text: RawSpan) {
    writeWithOutputRawSpan(minimumWritableBytes: OutputRawSpan.jsonStringByteMax(text.byteCount)) {
      $0.jsonString(text)
    }
  }

  /// Write a JSON string with its quotes.
  mutating func writeJSONString(_ text: String) {
    var text = text
    text.withUTF8 { writeJSONString(RawSpan(_unsafeBytes: UnsafeRawBufferPointer($0))) }
  }

  /// Write a time in quotes.
  mutating func writeTimestamp(_ time: Timestamp) {
    writeWithOutputRawSpan(minimumWritableBytes: OutputRawSpan.timestampByteCount) {
      $0.timestamp(milliseconds: time.milliseconds)
    }
  }
}
