/// The encoding of unsigned integers on the wire and on storage: 7 bits in each byte, the lowest first; bit 7 is set in
/// all bytes but the last (Proto/frames.md, "Fields").
@usableFromInline
package enum Varint {
  /// Maximum size in bytes.
  package static let byteCountMax = 10

  /// Pass the bytes of a value to `store`, in order. Inlined with its closure: most fields of a request are varints.
  @inlinable @inline(__always)
  package static func encode(_ value: UInt64, _ store: (UInt8) -> Void) {
    var rest = value
    while rest >= 0x80 {
      store(UInt8(truncatingIfNeeded: rest) | 0x80)
      rest >>= 7
    }
    store(UInt8(truncatingIfNeeded: rest))
  }
}
