import NIOCore
import ReceiptModel
import ReceiptWire
import TestSupport
import Testing

/// The primitives at the limits of their ranges.
struct FieldTests {
  static let numbers: [(value: UInt64, hex: String)] = [
    (0, "00"), (1, "01"), (127, "7f"), (128, "8001"), (129, "8101"), (16_383, "ff7f"), (16_384, "808001"),
    (UInt64(UInt32.max), "ffffffff0f"), (1 << 32, "8080808010"), (1 << 63, "80808080808080808001"),
    (.max, "ffffffffffffffffff01"),
  ]

  @Test func numbersRoundTrip() throws {
    for (value, hex) in Self.numbers {
      var buffer = ByteBuffer()
      buffer.writeVarint(value)
      #expect(Array(buffer.readableBytesView).hex == hex)
      let bytes = [UInt8](hex: hex)
      var reader = FieldReader(bytes.span.bytes)
      #expect(try reader.varint() == value)
      try reader.end()
    }
  }

  static let badNumbers: [(name: String, hex: String, error: WireError)] = [
    ("nothing", "", .truncated),
    ("no last group", "80", .truncated),
    ("no last group of nine", "ffffffffffffffffff", .truncated),
    ("0 in two bytes", "8000", .badVarint),
    ("127 in two bytes", "ff00", .badVarint),
    ("0 in ten bytes", "80808080808080808000", .badVarint),
    ("2^64", "80808080808080808002", .badVarint),
    ("eleven bytes", "8080808080808080808001", .badVarint),
    ("all ones", "ffffffffffffffffffffff", .badVarint),
  ]

  @Test func badNumbersAreRefused() {
    for (name, hex, error) in Self.badNumbers {
      // With more bytes after it, a number is read as one word.
      for (after, following) in [("", ""), (" and more", "0102030405060708")] {
        if error == .truncated, !following.isEmpty { continue }
        let bytes = [UInt8](hex: hex + following)
        #expect(throws: error, "\(name)\(after)") {
          var reader = FieldReader(bytes.span.bytes)
          _ = try reader.varint()
        }
      }
    }
  }

  /// Many fields written into reserved bytes, where numbers are written and read as words.
  @Test func randomNumbersFollowEachOther() throws {
    var generator = SplitMix64(printingSeedOf: "varints after each other")
    let numbers = (0..<10_000).map { _ in generator.next() >> generator.below(64) }
    var buffer = ByteBuffer()
    buffer.writeFields(byteCountMax: numbers.count * 10) { fields in
      for number in numbers { fields.varint(number) }
    }
    var single = ByteBuffer()
    for number in numbers { single.writeVarint(number) }
    #expect(buffer == single)
    var reader = FieldReader(buffer.readableBytesSpan)
    for number in numbers {
      let read = try reader.varint()
      #expect(read == number)
    }
    try reader.end()
  }

  @Test func randomNumbersRoundTrip() throws {
    var generator = SplitMix64(printingSeedOf: "varints")
    for _ in 0..<10_000 {
      let value = generator.next() >> generator.below(64)
      var buffer = ByteBuffer()
      buffer.writeVarint(value)
      var reader = FieldReader(buffer.readableBytesSpan)
      let read = try reader.varint()
      #expect(read == value)
      #expect(buffer.readableBytes == max(1, (64 - value.leadingZeroBitCount + 6) / 7))
    }
  }

  @Test func narrowNumbersAreRangeChecked() {
    let tooMuch = [UInt8](hex: "8080808010")
    #expect(throws: WireError.badVarint) {
      var reader = FieldReader(tooMuch.span.bytes)
      _ = try reader.varint32()
    }
    #expect(throws: WireError.badVarint) {
      var reader = FieldReader(tooMuch.span.bytes)
      _ = try reader.sequence()
    }
    // One more than 32 bits can hold, plus one for the present value.
    let optional = [UInt8](hex: "8180808010")
    #expect(throws: WireError.badVarint) {
      var reader = FieldReader(optional.span.bytes)
      _ = try reader.optional32()
    }
    let time = [UInt8](hex: "80808080808080808001")
    #expect(throws: WireError.badVarint) {
      var reader = FieldReader(time.span.bytes)
      _ = try reader.time()
    }
  }

  /// A list that announces more entries than its bytes can hold reserves no memory.
  @Test func countsAreCheckedAgainstRemainingBytes() throws {
    let bytes = [UInt8](hex: "03000000")
    var reader = FieldReader(bytes.span.bytes)
    #expect(try reader.count() == 3)
    #expect(throws: WireError.badValue(.count)) {
      var reader = FieldReader(bytes.span.bytes)
      _ = try reader.count(elementBytesMin: 2)
    }
  }

  @Test func errorDetailsAreTruncated() throws {
    var buffer = ByteBuffer()
    buffer.writeError(.busy, detail: String(repeating: "x", count: 300))
    let frame = Array(buffer.readableBytesView)
    let error = try ErrorFrame(frame.span.bytes.extracting(FrameHeader.byteCount..<frame.count))
    #expect(error.detail.utf8.count == 256)
  }

  /// A detail is cut before the character that does not fit.
  @Test(arguments: [0, 1, 2, 3]) func errorDetailsEndAtCharacters(ahead: Int) throws {
    var buffer = ByteBuffer()
    buffer.writeError(
      .busy,
      detail: String(repeating: "x", count: ahead) + String(repeating: "€", count: 100)
    )
    let frame = Array(buffer.readableBytesView)
    let error = try ErrorFrame(frame.span.bytes.extracting(FrameHeader.byteCount..<frame.count))
    let whole = (256 - ahead) / 3
    #expect(error.detail == String(repeating: "x", count: ahead) + String(repeating: "€", count: whole))
  }

  /// Fields written through a cursor equal fields written one by one.
  @Test func cursorWritesTheSameFields() {
    var generator = SplitMix64(printingSeedOf: "fields through a cursor")
    for _ in 0..<2000 {
      let number = generator.next() >> generator.below(64)
      let time = Timestamp(milliseconds: Int64(generator.next() >> 20))
      let bytes = (0..<generator.number(in: 0...200)).map { UInt8(truncatingIfNeeded: $0) }
      var singly = ByteBuffer()
      singly.writeVarint(number)
      singly.writeField(bytes.span.bytes)
      singly.writeTime(time)
      singly.writeInteger(UInt8(7))
      var together = ByteBuffer()
      together.writeFields(byteCountMax: 10 + 10 + bytes.count + 10 + 1) { fields in
        fields.varint(number)
        fields.string(bytes.span.bytes)
        fields.time(time)
        fields.byte(7)
      }
      #expect(singly == together)
    }
  }
}
