package import NIOCore
package import ReceiptModel

/// The same fields, written (Proto/frames.md, "Fields").
extension ByteBuffer {
  package mutating func writeVarint(_ value: UInt64) {
    if value < 0x80 {
      writeInteger(UInt8(truncatingIfNeeded: value))
      return
    }
    writeWithUnsafeMutableBytes(minimumWritableBytes: 10) { target in
      var rest = value
      var count = 0
      while rest >= 0x80 {
        target[count] = UInt8(truncatingIfNeeded: rest) | 0x80
        rest >>= 7
        count += 1
      }
      target[count] = UInt8(truncatingIfNeeded: rest)
      return count + 1
    }
  }

  package mutating func writeVarint(_ value: UInt32) { writeVarint(UInt64(value)) }
  package mutating func writeVarint(_ value: Int) { writeVarint(UInt64(value)) }

  /// None is 0, a value is written as value + 1.
  package mutating func writeOptional(_ value: UInt64?) { writeVarint(value.map { $0 + 1 } ?? 0) }

  package mutating func writeSequence(_ value: SequenceNumber) { writeVarint(UInt64(value.rawValue)) }

  package mutating func writeTime(_ value: Timestamp) {
    writeVarint(UInt64(bitPattern: max(0, value.milliseconds)))
  }

  /// A length-prefixed string.
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

  /// An empty string.
  package mutating func writeEmptyField() { writeInteger(UInt8(0)) }

  /// Bytes with no length before them.
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

/// Writes fields one after the other into memory that was reserved for all of them: what is written most often takes
/// one bounds check, not one a field.
package struct FieldCursor: ~Copyable {
  private let base: UnsafeMutableRawPointer
  fileprivate var offset = 0

  fileprivate init(_ base: UnsafeMutableRawPointer) { self.base = base }

  @inline(__always)
  package mutating func byte(_ value: UInt8) {
    base.storeBytes(of: value, toByteOffset: offset, as: UInt8.self)
    offset += 1
  }

  @inline(__always)
  package mutating func varint(_ value: UInt64) {
    var rest = value
    while rest >= 0x80 {
      byte(UInt8(truncatingIfNeeded: rest) | 0x80)
      rest >>= 7
    }
    byte(UInt8(truncatingIfNeeded: rest))
  }

  @inline(__always)
  package mutating func time(_ value: Timestamp) { varint(UInt64(max(0, value.milliseconds))) }

  @inline(__always)
  package mutating func string(_ bytes: RawSpan) {
    varint(UInt64(bytes.byteCount))
    bytes.withUnsafeBytes { source in
      guard let start = source.baseAddress else { return }
      (base + offset).copyMemory(from: start, byteCount: source.count)
    }
    offset += bytes.byteCount
  }
}

extension ByteBuffer {
  /// Writes fields that have at most `byteCountMax` bytes together.
  @inline(__always)
  package mutating func writeFields(byteCountMax: Int, _ body: (inout FieldCursor) -> Void) {
    writeWithUnsafeMutableBytes(minimumWritableBytes: byteCountMax) { target in
      var cursor = FieldCursor(target.baseAddress!)
      body(&cursor)
      precondition(cursor.offset <= byteCountMax, "more fields than were reserved for")
      return cursor.offset
    }
  }
}
