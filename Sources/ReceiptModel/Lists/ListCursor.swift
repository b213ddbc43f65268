/// The cursor of a list page (R11). It contains only a position, so it stays valid across restarts and changes.
package enum ListCursor: Hashable, Sendable {
  /// Join order in a channel: the next row to examine.
  case row(UInt32)
  /// Join order in a thread: after the row with which this user joined at this time. A row number would reveal how many
  /// have joined unseen (R7).
  case joined(Timestamp, user: [UInt8])
  /// Order of time: strictly after this entry.
  case entry(Timestamp, user: [UInt8])
  /// Descending order of time: strictly after this entry in that order.
  case earlier(Timestamp, user: [UInt8])

  /// Parse a cursor.
  ///
  /// `j` and the row number; or `k` in a thread, `t` in order of time and `d` in descending order, then the time in
  /// milliseconds, `-` and the user's id. An id with characters other than `A-Z a-z 0-9 @ _ . -` is written in
  /// hexadecimal after the letter in upper case, so that a cursor needs no escaping in a query. Numbers have no leading
  /// zeros: each position has exactly one cursor.
  ///
  /// - Throws: ``Refusal/invalidCursor`` if no page of this order can have issued it.
  package init(_ text: RawSpan, order: ListOrder, isThread: Bool) throws(Refusal) {
    guard text.byteCount > 1 else { throw .invalidCursor }
    let first = text.unsafeLoad(fromByteOffset: 0, as: UInt8.self)
    switch order {
    case .joined where isThread:
      let (time, user) = try Self.entry(text, UInt8(ascii: "k"))
      self = .joined(time, user: user)
    case .joined:
      guard first == UInt8(ascii: "j"), let (row, end) = Self.decimal(text, from: 1), end == text.byteCount,
        let row = UInt32(exactly: row)
      else { throw .invalidCursor }
      self = .row(row)
    case .time:
      let (time, user) = try Self.entry(text, UInt8(ascii: "t"))
      self = .entry(time, user: user)
    case .timeDescending:
      let (time, user) = try Self.entry(text, UInt8(ascii: "d"))
      self = .earlier(time, user: user)
    }
  }

  /// Parse a letter, a time, `-` and a user's id.
  private static func entry(_ text: RawSpan, _ letter: UInt8) throws(Refusal) -> (Timestamp, user: [UInt8]) {
    let first = text.unsafeLoad(fromByteOffset: 0, as: UInt8.self)
    let isHexadecimal = first == letter & ~0x20
    guard first == letter || isHexadecimal, let (time, end) = decimal(text, from: 1), end < text.byteCount,
      text.unsafeLoad(fromByteOffset: end, as: UInt8.self) == UInt8(ascii: "-")
    else { throw .invalidCursor }
    let user = text.extracting((end + 1)..<text.byteCount)
    if isHexadecimal {
      guard let bytes = bytes(hexadecimal: user), Identifier.isUser(bytes.span.bytes),
        !Identifier.isLegacyUser(bytes.span.bytes)
      else { throw .invalidCursor }
      return (Timestamp(milliseconds: time), bytes)
    }
    guard Identifier.isLegacyUser(user) else { throw .invalidCursor }
    return (Timestamp(milliseconds: time), user.withUnsafeBytes { Array($0) })
  }

  /// Decode two lower-case digits a byte.
  private static func bytes(hexadecimal text: RawSpan) -> [UInt8]? {
    guard text.byteCount.isMultiple(of: 2) else { return nil }
    var bytes: [UInt8] = []
    for offset in 0..<text.byteCount {
      let digit: UInt8
      switch text.unsafeLoad(fromByteOffset: offset, as: UInt8.self) {
      case let byte where (UInt8(ascii: "0")...UInt8(ascii: "9")).contains(byte):
        digit = byte - UInt8(ascii: "0")
      case let byte where (UInt8(ascii: "a")...UInt8(ascii: "f")).contains(byte):
        digit = byte - UInt8(ascii: "a") + 10
      default: return nil
      }
      if offset.isMultiple(of: 2) { bytes.append(digit << 4) } else { bytes[bytes.count - 1] |= digit }
    }
    return bytes
  }

  private static func text(_ letter: Character, _ time: Timestamp, _ user: [UInt8]) -> String {
    if Identifier.isLegacyUser(user.span.bytes) {
      return "\(letter)\(time.milliseconds)-\(String(decoding: user, as: UTF8.self))"
    }
    let digits = user.map { byte in (byte < 16 ? "0" : "") + String(byte, radix: 16) }.joined()
    return "\(letter.uppercased())\(time.milliseconds)-\(digits)"
  }

  package var text: String {
    switch self {
    case .row(let row): "j\(row)"
    case .joined(let time, let user): Self.text("k", time, user)
    case .entry(let time, let user): Self.text("t", time, user)
    case .earlier(let time, let user): Self.text("d", time, user)
    }
  }

  /// Parse a decimal number; return it and the offset of its end.
  private static func decimal(_ text: RawSpan, from start: Int) -> (Int64, end: Int)? {
    var value: Int64 = 0
    var offset = start
    while offset < text.byteCount {
      let byte = text.unsafeLoad(fromByteOffset: offset, as: UInt8.self)
      guard (UInt8(ascii: "0")...UInt8(ascii: "9")).contains(byte) else { break }
      if value == 0, offset > start { return nil }
      let (product, isOver) = value.multipliedReportingOverflow(by: 10)
      let (sum, isOverToo) = product.addingReportingOverflow(Int64(byte - UInt8(ascii: "0")))
      guard !isOver, !isOverToo else { return nil }
      value = sum
      offset += 1
    }
    return offset > start ? (value, offset) : nil
  }
}
