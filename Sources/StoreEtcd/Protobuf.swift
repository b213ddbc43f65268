internal import NIOCore

// The wire format of protocol buffers (protobuf.dev, "Encoding"), as far as etcd's messages need it.

/// Wire types of fields. Groups, which proto3 does not have, are refused.
enum ProtobufWireType: UInt8 {
  case varint = 0
  case fixed64 = 1
  case bytes = 2
  case fixed32 = 5
}

extension ByteBuffer {
  /// Write a varint field, also if the value is zero.
  mutating func writeProtobuf(_ field: Int, _ value: UInt64) {
    writeProtobufTag(field, .varint)
    writeProtobufVarint(value)
  }

  /// Write a bool field. Proto3 leaves out `false`.
  mutating func writeProtobuf(_ field: Int, _ value: Bool) {
    if value { writeProtobuf(field, 1) }
  }

  /// Write a field of bytes.
  mutating func writeProtobuf(_ field: Int, _ bytes: [UInt8]) {
    writeProtobufTag(field, .bytes)
    writeProtobufVarint(UInt64(bytes.count))
    writeBytes(bytes)
  }

  /// Write a field of bytes.
  mutating func writeProtobuf(_ field: Int, _ bytes: ByteBuffer) {
    writeProtobufTag(field, .bytes)
    writeProtobufVarint(UInt64(bytes.readableBytes))
    writeImmutableBuffer(bytes)
  }

  /// Write a message field, whose content `body` writes.
  ///
  /// One byte is reserved for the length. The content of a longer message is moved, which is cheaper than computing the
  /// lengths of nested messages beforehand.
  mutating func writeProtobuf(_ field: Int, message body: (inout ByteBuffer) -> Void) {
    writeProtobufTag(field, .bytes)
    let lengthIndex = writerIndex
    writeInteger(UInt8(0))
    let start = writerIndex
    body(&self)
    let count = writerIndex - start
    if count >= 0x80 {
      var length = ByteBuffer()
      length.writeProtobufVarint(UInt64(count))
      let moved = length.readableBytes - 1
      writeRepeatingByte(0, count: moved)
      do {
        try copyBytes(at: start, to: start + moved, length: count)
      } catch {
        preconditionFailure("a range of the buffer's own is not in the buffer: \(error)")
      }
      setBuffer(length, at: lengthIndex)
    } else {
      setInteger(UInt8(count), at: lengthIndex)
    }
  }

  private mutating func writeProtobufTag(_ field: Int, _ type: ProtobufWireType) {
    writeProtobufVarint(UInt64(field) << 3 | UInt64(type.rawValue))
  }

  private mutating func writeProtobufVarint(_ value: UInt64) {
    var rest = value
    while rest >= 0x80 {
      writeInteger(UInt8(truncatingIfNeeded: rest) | 0x80)
      rest >>= 7
    }
    writeInteger(UInt8(truncatingIfNeeded: rest))
  }
}

/// Reads a message's fields in the order in which they come. Every length is checked against the bytes that are there,
/// so an announced length alone reserves no memory.
///
/// After ``next()`` the caller reads the field's value or skips it.
struct ProtobufReader: ~Escapable {
  /// The number and the type of a field.
  struct Field {
    var number: Int
    var type: ProtobufWireType
  }

  /// Limit on the elements of a list. An empty element takes two bytes on the wire and much more in memory.
  static let elementsMax = 1 << 16

  private let bytes: Span<UInt8>
  private var offset = 0

  @_lifetime(copy bytes)
  init(_ bytes: Span<UInt8>) { self.bytes = bytes }

  /// Return the next field; nil at the message's end.
  @_lifetime(self: copy self)
  mutating func next() throws(EtcdWireError) -> Field? {
    guard offset < bytes.count else { return nil }
    let tag = try varint()
    guard tag >> 3 >= 1, tag >> 3 < 1 << 29 else { throw .badFieldNumber }
    guard let type = ProtobufWireType(rawValue: UInt8(tag & 7)) else { throw .badWireType(UInt8(tag & 7)) }
    return Field(number: Int(tag >> 3), type: type)
  }

  /// Return the value of a varint field.
  @_lifetime(self: copy self)
  mutating func integer(_ field: Field) throws(EtcdWireError) -> UInt64 {
    guard field.type == .varint else { throw .unexpectedWireType(field: field.number) }
    return try varint()
  }

  /// Return the value of a field of bytes, or of a message.
  @_lifetime(copy self)
  @_lifetime(self: copy self)
  mutating func content(_ field: Field) throws(EtcdWireError) -> Span<UInt8> {
    guard field.type == .bytes else { throw .unexpectedWireType(field: field.number) }
    let count = try varint()
    guard count <= UInt64(bytes.count - offset) else { throw .truncated }
    let content = bytes.extracting(offset..<offset + Int(count))
    offset += Int(count)
    return content
  }

  /// Return a copy of a field's bytes.
  @_lifetime(self: copy self)
  mutating func copy(_ field: Field) throws(EtcdWireError) -> [UInt8] {
    let content = try content(field)
    return content.withUnsafeBufferPointer { Array($0) }
  }

  /// Skip a field's value.
  @_lifetime(self: copy self)
  mutating func skip(_ field: Field) throws(EtcdWireError) {
    switch field.type {
    case .varint: _ = try varint()
    case .bytes: _ = try content(field)
    case .fixed64: try skip(byteCount: 8)
    case .fixed32: try skip(byteCount: 4)
    }
  }

  @_lifetime(self: copy self)
  private mutating func skip(byteCount: Int) throws(EtcdWireError) {
    guard byteCount <= bytes.count - offset else { throw .truncated }
    offset += byteCount
  }

  @_lifetime(self: copy self)
  private mutating func varint() throws(EtcdWireError) -> UInt64 {
    var value: UInt64 = 0
    var shift: UInt64 = 0
    while true {
      guard offset < bytes.count else { throw .truncated }
      let byte = bytes[offset]
      offset += 1
      // The tenth byte has the last bit.
      guard shift < 63 || byte <= 1 else { throw .badVarint }
      value |= UInt64(byte & 0x7F) << shift
      guard byte >= 0x80 else { return value }
      shift += 7
    }
  }
}
