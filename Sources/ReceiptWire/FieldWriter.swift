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
