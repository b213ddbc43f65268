package import ReceiptModel

/// Reads a payload's fields in order (Proto/frames.md, "Fields"). Every length is checked against the available bytes,
/// so an announced length alone reserves no memory. Functions used by every request are inlined.
@usableFromInline
package struct FieldReader: ~Escapable {
  @usableFromInline let bytes: RawSpan
  /// Number of bytes read.
  @usableFromInline package var offset: Int

  @inlinable
  @_lifetime(copy bytes)
  package init(_ bytes: RawSpan) {
    self.bytes = bytes
    self.offset = 0
  }

  /// The whole payload, including the bytes already read.
  package var whole: RawSpan {
    @_lifetime(copy self) get { bytes }
  }

  /// Number of bytes not read yet.
  @inlinable
  package var remaining: Int { bytes.byteCount - offset }

  @inlinable @inline(__always) @_lifetime(self: copy self)
  package mutating func byte() throws(WireError) -> UInt8 {
    guard offset < bytes.byteCount else { throw .truncated }
    defer { offset += 1 }
    return bytes.unsafeLoad(fromByteOffset: offset, as: UInt8.self)
  }

  @inlinable @inline(__always) @_lifetime(self: copy self)
  package mutating func varint() throws(WireError) -> UInt64 {
    let first = try byte()
    return first < 0x80 ? UInt64(first) : try varint(after: first)
  }

  /// Read the rest of a varint of more than one byte, whose first byte is read.
  @usableFromInline
  @_lifetime(self: copy self)
  package mutating func varint(after first: UInt8) throws(WireError) -> UInt64 {
    if remaining >= 7 {
      let word = bytes.unsafeLoadUnaligned(fromByteOffset: offset - 1, as: UInt64.self)
      if let (value, byteCount) = Varint.decode(UInt64(littleEndian: word)) {
        offset += byteCount - 1
        return value
      }
    }
    var value = UInt64(first & 0x7F)
    var shift: UInt64 = 7
    while true {
      let next = try byte()
      if next < 0x80 {
        // The last group may not be zero (shortest form only), nor reach beyond 64 bits.
        guard next != 0, shift < 63 || next == 1 else { throw .badVarint }
        return value | UInt64(next) << shift
      }
      value |= UInt64(next & 0x7F) << shift
      shift += 7
      guard shift <= 63 else { throw .badVarint }
    }
  }

  /// Read a byte that is 0 or 1.
  @_lifetime(self: copy self)
  package mutating func flag() throws(WireError) -> Bool {
    let flag = try byte()
    guard flag <= 1 else { throw .badValue(.flags) }
    return flag == 1
  }

  /// Read a varint of flags, of which only `known` may be set.
  @_lifetime(self: copy self)
  mutating func flags<Flags: FlagSet>(known: Flags) throws(WireError) -> Flags where Flags.RawValue == UInt8 {
    guard let rawValue = UInt8(exactly: try varint()), rawValue & ~known.rawValue == 0 else {
      throw .badValue(.flags)
    }
    return Flags(rawValue: rawValue)
  }

  /// Read a byte of flags, of which only `known` may be set.
  @_lifetime(self: copy self)
  mutating func byteOfFlags<Flags: FlagSet>(known: Flags) throws(WireError) -> Flags where Flags.RawValue == UInt8 {
    let rawValue = try byte()
    guard rawValue & ~known.rawValue == 0 else { throw .badValue(.flags) }
    return Flags(rawValue: rawValue)
  }

  @_lifetime(self: copy self)
  package mutating func varint32() throws(WireError) -> UInt32 {
    guard let value = UInt32(exactly: try varint()) else { throw .badVarint }
    return value
  }

  /// Read an optional value: 0 for none, otherwise value + 1.
  @_lifetime(self: copy self)
  package mutating func optional() throws(WireError) -> UInt64? {
    let value = try varint()
    return value == 0 ? nil : value - 1
  }

  @usableFromInline
  @_lifetime(self: copy self)
  package mutating func optional32() throws(WireError) -> UInt32? {
    let value = try varint()
    if value == 0 { return nil }
    guard let value = UInt32(exactly: value - 1) else { throw .badVarint }
    return value
  }

  @_lifetime(self: copy self)
  package mutating func sequence() throws(WireError) -> SequenceNumber { SequenceNumber(try varint32()) }

  @_lifetime(self: copy self)
  package mutating func time() throws(WireError) -> Timestamp {
    guard let value = Int64(exactly: try varint()) else { throw .badVarint }
    return Timestamp(milliseconds: value)
  }

  /// Read a length-prefixed string, as its bytes in the payload.
  @inlinable @inline(__always) @_lifetime(copy self)
  @_lifetime(self: copy self)
  package mutating func string() throws(WireError) -> RawSpan {
    let length = try varint()
    guard length <= UInt64(remaining) else { throw .truncated }
    return try raw(Int(length))
  }

  /// Read `count` raw bytes.
  @inlinable @inline(__always) @_lifetime(copy self)
  @_lifetime(self: copy self)
  package mutating func raw(_ count: Int) throws(WireError) -> RawSpan {
    guard count <= remaining else { throw .truncated }
    let span = bytes.extracting(offset..<(offset + count))
    offset += count
    return span
  }

  /// Read a list's count. Each element takes at least `elementBytesMin` bytes, so an impossible count is refused before
  /// memory is reserved for it.
  @_lifetime(self: copy self)
  package mutating func count(elementBytesMin: Int = 1) throws(WireError) -> Int {
    let value = try varint()
    guard value <= UInt64(remaining / elementBytesMin) else { throw .badValue(.count) }
    return Int(value)
  }

  /// Read a string copied out of the payload; bytes that are not UTF-8 are refused.
  @_lifetime(self: copy self)
  package mutating func text() throws(WireError) -> String {
    try Self.text(try string())
  }

  /// Return a copy of a string that was read in place; bytes that are not UTF-8 are refused.
  static func text(_ string: RawSpan) throws(WireError) -> String {
    if string.isEmpty { return "" }
    let text = string.withUnsafeBytes { String(validating: $0, as: UTF8.self) }
    guard let text else { throw .badValue(.text) }
    return text
  }

  @_lifetime(self: copy self)
  package mutating func sessionID() throws(WireError) -> SessionID {
    SessionID(high: try fixed64(), low: try fixed64())
  }

  /// Read an integer of 8 bytes in network order: a hash, a position, the number in a ping.
  @_lifetime(self: copy self)
  package mutating func fixed64() throws(WireError) -> UInt64 {
    let span = try raw(8)
    return UInt64(bigEndian: span.unsafeLoadUnaligned(fromByteOffset: 0, as: UInt64.self))
  }

  /// Check that the payload ends here.
  @inlinable @inline(__always) package func end() throws(WireError) {
    guard offset == bytes.byteCount else { throw .trailingBytes }
  }
}

/// The reason why bytes do not parse. All of these end the connection: the two ends no longer agree on the stream's
/// content (Proto/frames.md, "Frame").
@usableFromInline
package enum WireError: Error, Hashable, Sendable {
  /// The payload ends before its last field.
  case truncated
  /// Bytes are left after the last field.
  case trailingBytes
  /// A variable-length integer is longer than 10 bytes, above its field's range, or not in its shortest form.
  case badVarint
  /// A count or a value that its field does not allow, with the field's name.
  case badValue(StaticField)
  /// The frame's length field is below 8.
  case lengthTooSmall
  /// The frame's length field is above the limit.
  case lengthTooLarge(UInt32)
  case unknownKind(UInt8)
  case badFlags(UInt8)

  /// A field's name in Proto/frames.md.
  @usableFromInline
  package enum StaticField: String, Sendable {
    case magic, session, nonce, option, optionValue = "option value", status, count, effect, format, text,
      flags, ping, node, shards, address, change, counter, parent, reason, code, phase, key
  }
}
