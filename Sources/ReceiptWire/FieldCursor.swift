package import ReceiptModel

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
    Varint.encode(value) { store($0) }
  }

  @inline(__always)
  package mutating func time(_ value: Timestamp) { varint(UInt64(max(0, value.milliseconds))) }

  @inline(__always)
  package mutating func string(_ bytes: RawSpan) {
    varint(UInt64(bytes.byteCount))
    bytes.withUnsafeBytes { source in
      guard let start = source.baseAddress else { return }
      require(source.count)
      (base + offset).copyMemory(from: start, byteCount: source.count)
    }
    offset += bytes.byteCount
  }
}
