import NIOCore
import TestSupport
import Testing

@testable import StoreEtcd

@Suite struct ProtobufTests {
  private static func bytes(_ write: (inout ByteBuffer) -> Void) -> [UInt8] {
    var buffer = ByteBuffer()
    write(&buffer)
    return Array(buffer.readableBytesView)
  }

  /// A value, its varint.
  @Test(
    arguments: [
      (0, "00"), (1, "01"), (127, "7f"), (128, "8001"), (300, "ac02"), (1 << 32, "8080808010"),
      (UInt64.max, "ffffffffffffffffff01"),
    ] as [(UInt64, String)]
  )
  func varintsAreWrittenAndRead(value: UInt64, hex: String) throws {
    let bytes = Self.bytes { $0.writeProtobuf(1, value) }
    #expect(Hex.text(bytes) == "08" + hex)
    var reader = ProtobufReader(bytes.span)
    let field = try #require(try reader.next())
    #expect(try reader.integer(field) == value)
    #expect(try reader.next() == nil)
  }

  @Test func fieldsOfEachKindAreEncoded() {
    #expect(Hex.text(Self.bytes { $0.writeProtobuf(16, 5) }) == "800105")
    #expect(Hex.text(Self.bytes { $0.writeProtobuf(2, [7, 8]) }) == "12020708")
    #expect(Hex.text(Self.bytes { $0.writeProtobuf(2, ByteBuffer(bytes: [7, 8])) }) == "12020708")
    #expect(Hex.text(Self.bytes { $0.writeProtobuf(9, true) }) == "4801")
    #expect(Self.bytes { $0.writeProtobuf(9, false) }.isEmpty)
    #expect(Hex.text(Self.bytes { $0.writeProtobuf(3) { _ in } }) == "1a00")
  }

  /// The length of a nested message takes one to three bytes, and the content moves behind it.
  @Test(arguments: [0, 1, 120, 124, 125, 126, 127, 128, 200, 16_000, 16_379, 16_380, 16_384, 70_000])
  func nestedMessagesAreWrittenAndRead(contentBytes: Int) throws {
    let content = (0..<contentBytes).map { UInt8(truncatingIfNeeded: $0 &* 31) }
    let bytes = Self.bytes { buffer in
      buffer.writeProtobuf(1, 42)
      buffer.writeProtobuf(2) { buffer in
        buffer.writeProtobuf(3) { $0.writeProtobuf(4, content) }
        buffer.writeProtobuf(5, 6)
      }
      buffer.writeProtobuf(7, 8)
    }
    var outer = ProtobufReader(bytes.span)
    try outer.skip(try #require(try outer.next()))
    let middleField = try #require(try outer.next())
    #expect(middleField.number == 2)
    var middle = ProtobufReader(try outer.content(middleField))
    let innerField = try #require(try middle.next())
    var inner = ProtobufReader(try middle.content(innerField))
    let contentField = try #require(try inner.next())
    #expect(try inner.copy(contentField) == content)
    #expect(try inner.next() == nil)
    let last = try #require(try middle.next())
    #expect(try middle.integer(last) == 6)
    #expect(try middle.next() == nil)
    let end = try #require(try outer.next())
    #expect(try outer.integer(end) == 8)
    #expect(try outer.next() == nil)
  }

  /// Bytes of a message, and why they are refused.
  @Test(
    arguments: [
      ("08", .truncated), ("80", .truncated), ("0880", .truncated), ("1205aabb", .truncated),
      ("12ffffffffffffffffff01", .truncated), ("0d010203", .truncated), ("0901020304050607", .truncated),
      ("08ffffffffffffffffff02", .badVarint), ("0880808080808080808080", .badVarint), ("00", .badFieldNumber),
      ("8080808010", .badFieldNumber), ("0b", .badWireType(3)), ("0c", .badWireType(4)),
      ("0f", .badWireType(7)),
    ] as [(String, EtcdWireError)]
  )
  func malformedFieldsAreRefused(hex: String, error: EtcdWireError) throws {
    let bytes = try #require(Hex.bytes(hex))
    #expect(throws: error) {
      var reader = ProtobufReader(bytes.span)
      while let field = try reader.next() { try reader.skip(field) }
    }
  }

  @Test func wireTypesAreChecked() {
    #expect(throws: EtcdWireError.unexpectedWireType(field: 1)) {
      let bytes: [UInt8] = [0x08, 0x01]
      var reader = ProtobufReader(bytes.span)
      let field = try #require(try reader.next())
      _ = try reader.content(field)
    }
    #expect(throws: EtcdWireError.unexpectedWireType(field: 2)) {
      let bytes: [UInt8] = [0x12, 0x00]
      var reader = ProtobufReader(bytes.span)
      let field = try #require(try reader.next())
      _ = try reader.integer(field)
    }
  }

  @Test func unknownFieldsOfEveryTypeAreSkipped() throws {
    let bytes = try #require(
      Hex.bytes("f80101" + "fa0103aabbcc" + "f9010102030405060708" + "fd0101020304" + "0807")
    )
    var reader = ProtobufReader(bytes.span)
    for _ in 0..<4 { try reader.skip(try #require(try reader.next())) }
    let field = try #require(try reader.next())
    #expect(try reader.integer(field) == 7)
  }
}

/// Hexadecimal text of test vectors.
enum Hex {
  static func text(_ bytes: some Sequence<UInt8>) -> String {
    bytes.map { byte in
      let digits = String(byte, radix: 16)
      return digits.count == 1 ? "0" + digits : digits
    }.joined()
  }

  static func bytes(_ text: String) -> [UInt8]? {
    var bytes: [UInt8] = []
    var rest = text[...]
    while !rest.isEmpty {
      guard let byte = UInt8(rest.prefix(2), radix: 16) else { return nil }
      bytes.append(byte)
      rest = rest.dropFirst(2)
    }
    return bytes
  }
}
