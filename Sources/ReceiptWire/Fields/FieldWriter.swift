package import NIOCore
package import ReceiptModel

/// Writers of the fields that ``FieldReader`` reads (Proto/frames.md, "Fields").
extension ByteBuffer {
  package mutating func writeVarint(_ value: UInt64) {
    writeWithUnsafeMutableBytes(minimumWritableBytes: Varint.byteCountMax) { target in
      if value < 0x80 {
        target.storeBytes(of: UInt8(truncatingIfNeeded: value), as: UInt8.self)
        return 1
      }
      var count = 0
      Varint.store(value, in: target, at: &count)
      return count
    }
  }

  /// Write one byte. A sixth of the instructions of `writeInteger`, which copies through a general path.
  @inline(__always)
  package mutating func writeByte(_ value: UInt8) {
    writeWithUnsafeMutableBytes(minimumWritableBytes: 1) { target in
      target.storeBytes(of: value, as: UInt8.self)
      return 1
    }
  }

  /// Overwrite an integer that was written before, in network order.
  @inline(__always)
  package mutating func overwrite<Value: FixedWidthInteger>(_ value: Value, at index: Int) {
    let offset = index - readerIndex
    withUnsafeMutableReadableBytes { $0.storeBytes(of: value.bigEndian, toByteOffset: offset, as: Value.self) }
  }

  /// Write flags as a varint.
  mutating func writeFlags(_ flags: some FlagSet) { writeVarint(UInt64(flags.rawValue)) }

  /// Write a byte that is 0 or 1.
  package mutating func writeFlag(_ value: Bool) { writeByte(value ? 1 : 0) }

  package mutating func writeVarint(_ value: UInt32) { writeVarint(UInt64(value)) }
  package mutating func writeVarint(_ value: Int) { writeVarint(UInt64(value)) }

  /// Write an optional value: 0 for none, otherwise value + 1.
  package mutating func writeOptional(_ value: UInt64?) { writeVarint(value.map { $0 + 1 } ?? 0) }

  package mutating func writeSequence(_ value: SequenceNumber) { writeVarint(UInt64(value.rawValue)) }

  package mutating func writeTime(_ value: Timestamp) {
    writeVarint(UInt64(bitPattern: max(0, value.milliseconds)))
  }

  /// Write a length-prefixed string.
  package mutating func writeField(_ bytes: RawSpan) {
    writeVarint(UInt64(bytes.byteCount))
    writeRaw(bytes)
  }

  package mutating func writeField(_ text: String) {
    var text = text
    text.withUTF8 { bytes in
      writeVarint(UInt64(bytes.count))
      writeBytes(UnsafeRawBufferPointer(bytes))
    }
  }

  /// Write a length-prefixed string; nil: an empty one.
  package mutating func writeFieldOrEmpty(_ bytes: RawSpan?) {
    if let bytes { writeField(bytes) } else { writeEmptyField() }
  }

  /// Write an empty string.
  package mutating func writeEmptyField() { writeByte(0) }

  /// Write bytes without a length prefix.
  package mutating func writeRaw(_ bytes: RawSpan) {
    bytes.withUnsafeBytes { source in
      _ = writeBytes(source)
    }
  }

  package mutating func writeSessionID(_ session: SessionID) {
    writeInteger(session.high)
    writeInteger(session.low)
  }
}

extension ByteBuffer {
  /// Write fields with at most `byteCountMax` bytes in total, where a varint counts as 10.
  @inline(__always)
  package mutating func writeFields(byteCountMax: Int, _ body: (inout FieldCursor) -> Void) {
    writeWithUnsafeMutableBytes(minimumWritableBytes: byteCountMax) { target in
      var cursor = FieldCursor(target.baseAddress!, byteCountMax: byteCountMax)
      body(&cursor)
      return cursor.offset
    }
  }
}

/// A writer of consecutive fields into memory reserved for all of them, so that frequent frames take one check of the
/// buffer instead of one for each field. A field that does not fit traps before it is written.
package struct FieldCursor: ~Copyable {
  private let base: UnsafeMutableRawPointer
  var offset = 0

  /// Bytes that may be written.
  private let byteCountMax: Int

  init(_ base: UnsafeMutableRawPointer, byteCountMax: Int) {
    self.base = base
    self.byteCountMax = byteCountMax
  }

  /// Trap unless `count` more bytes fit.
  @inline(__always)
  private func require(_ count: Int) {
    precondition(offset + count <= byteCountMax, "fields exceed the reserved bytes")
  }

  @inline(__always)
  private mutating func store(_ value: UInt8) {
    base.storeBytes(of: value, toByteOffset: offset, as: UInt8.self)
    offset += 1
  }

  @inline(__always)
  package mutating func byte(_ value: UInt8) {
    require(1)
    store(value)
  }

  /// - Parameter value: `byteCountMax` must count the longest varint, 10 bytes, for each.
  @inline(__always)
  package mutating func varint(_ value: UInt64) {
    require(Varint.byteCountMax)
    if value < 0x80 { store(UInt8(truncatingIfNeeded: value)) } else { longVarint(value) }
  }

  // Not inlined: the code of a mark just exceeds a processor's first instruction cache.
  @inline(never)
  private mutating func longVarint(_ value: UInt64) {
    guard let (bytes, count) = Varint.word(value) else { return Varint.encode(value) { store($0) } }
    // All eight are within what `varint` required.
    base.storeBytes(of: bytes.littleEndian, toByteOffset: offset, as: UInt64.self)
    offset += count
  }

  /// Store an optional value: 0 for none, otherwise value + 1.
  @inline(__always)
  package mutating func optional(_ value: UInt64?) { varint(value.map { $0 + 1 } ?? 0) }

  @inline(never)
  package mutating func time(_ value: Timestamp) { varint(UInt64(max(0, value.milliseconds))) }

  @inline(never)
  package mutating func string(_ bytes: RawSpan) {
    varint(UInt64(bytes.byteCount))
    bytes.withUnsafeBytes { source in
      guard let start = source.baseAddress else { return }
      require(source.count)
      (base + offset).copyMemory(from: start, byteCount: source.count)
    }
    offset += bytes.byteCount
  }

  package mutating func string(_ text: String) {
    var text = text
    text.withUTF8 { string($0.span.bytes) }
  }
}
