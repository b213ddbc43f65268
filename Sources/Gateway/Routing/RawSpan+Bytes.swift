#if canImport(Glibc)
  internal import Glibc
#elseif canImport(Musl)
  internal import Musl
#endif

extension RawSpan {
  func contains(_ byte: UInt8) -> Bool { firstOffset(of: byte, from: 0) != nil }

  /// Return the offset of the first `byte` at or after `start`.
  func firstOffset(of byte: UInt8, from start: Int) -> Int? {
    guard start < byteCount else { return nil }
    return withUnsafeBytes { bytes in
      let base = bytes.baseAddress.unsafelyUnwrapped
      guard let found = memchr(base + start, Int32(byte), bytes.count - start) else { return nil }
      return UnsafeRawPointer(found) - base
    }
  }

  /// Return whether the bytes equal `text`.
  @inline(__always)
  func equals(_ text: StaticString) -> Bool {
    equals(UnsafeRawBufferPointer(start: text.utf8Start, count: text.utf8CodeUnitCount))
  }

  /// Return whether the bytes equal `other`.
  @inline(__always)
  func equals(_ other: UnsafeRawBufferPointer) -> Bool {
    guard byteCount == other.count, let theirs = other.baseAddress else { return byteCount == other.count }
    return withUnsafeBytes { memcmp($0.baseAddress ?? theirs, theirs, $0.count) == 0 }
  }

  /// Return whether both spans have the same bytes. In this module it takes precedence over the function of the model,
  /// which compares ids: tokens are long enough for `memcmp`.
  func equals(_ other: RawSpan) -> Bool { other.withUnsafeBytes { equals($0) } }

  /// A copy of the bytes.
  var bytes: [UInt8] { withUnsafeBytes { Array($0) } }
}
