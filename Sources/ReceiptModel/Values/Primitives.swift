import Synchronization

/// Flags in an unsigned integer, with specialised `OptionSet` operations for the hot path. The standard library's set
/// algebra is not specialised across modules and goes through witness tables, and a literal creates an array. A
/// protocol's functions are inlined into other modules only if they are `@inlinable`.
@usableFromInline
package protocol FlagSet: OptionSet, Hashable, Sendable
where RawValue: FixedWidthInteger & UnsignedInteger, Element == Self {}

extension FlagSet {
  @inlinable @inline(__always) package init() { self.init(rawValue: 0) }

  @inlinable @inline(__always) package var isEmpty: Bool { rawValue == 0 }

  /// Return whether all of `others` are set.
  @inlinable @inline(__always)
  package func contains(_ others: Self) -> Bool { rawValue & others.rawValue == others.rawValue }

  /// Return whether none of `others` is set.
  @inlinable @inline(__always) package func isDisjoint(with others: Self) -> Bool { rawValue & others.rawValue == 0 }

  @inlinable @inline(__always)
  package mutating func insert(_ others: Self) { self = Self(rawValue: rawValue | others.rawValue) }

  /// Return these flags with `others` set or cleared.
  @inlinable @inline(__always) package func setting(_ others: Self, _ isSet: Bool) -> Self {
    Self(rawValue: isSet ? rawValue | others.rawValue : rawValue & ~others.rawValue)
  }

  @inlinable @inline(__always) package func union(_ others: Self) -> Self { Self(rawValue: rawValue | others.rawValue) }
}

/// The encoding of unsigned integers on the wire and on storage: 7 bits in each byte, the lowest first; bit 7 is set in
/// all bytes but the last (Proto/frames.md, "Fields").
@usableFromInline
package enum Varint {
  /// Maximum size in bytes.
  @inlinable package static var byteCountMax: Int { 10 }

  /// Pass the bytes of a value to `store`, in order. Inlined with its closure: most fields of a request are varints.
  @inlinable @inline(__always) package static func encode(_ value: UInt64, _ store: (UInt8) -> Void) {
    var rest = value
    while rest >= 0x80 {
      store(UInt8(truncatingIfNeeded: rest) | 0x80)
      rest >>= 7
    }
    store(UInt8(truncatingIfNeeded: rest))
  }

  /// Return the bytes of a value, the first one lowest, and their number; nil where they are more than eight.
  ///
  /// All groups of seven bits move at once: a time, in every row, has six.
  @inlinable @inline(__always) package static func word(_ value: UInt64) -> (bytes: UInt64, count: Int)? {
    guard value < 1 << 56 else { return nil }
    let count = max(1, (70 - value.leadingZeroBitCount) / 7)
    var groups = value & 0x0FFF_FFFF | (value & 0x00FF_FFFF_F000_0000) << 4
    groups = groups & 0x3FFF_0000_3FFF | (groups & 0x0FFF_C000_0FFF_C000) << 2
    groups = groups & 0x007F_007F_007F_007F | (groups & 0x3F80_3F80_3F80_3F80) << 1
    return (groups | 0x8080_8080_8080_8080 & ~(UInt64.max << UInt64(8 * (count - 1))), count)
  }

  /// Return the value that `word` begins with, its first byte lowest, and the number of its bytes; nil where they are
  /// more than eight, or more than the value needs.
  @inlinable @inline(__always) package static func decode(_ word: UInt64) -> (value: UInt64, byteCount: Int)? {
    let ends = ~word & 0x8080_8080_8080_8080
    guard ends != 0 else { return nil }
    let bitCount = UInt64(ends.trailingZeroBitCount + 1)
    var groups = word & 0x7F7F_7F7F_7F7F_7F7F & (.max >> (64 - bitCount))
    guard bitCount == 8 || groups >> (bitCount - 8) != 0 else { return nil }
    groups = groups & 0x007F_007F_007F_007F | (groups & 0x7F00_7F00_7F00_7F00) >> 1
    groups = groups & 0x3FFF_0000_3FFF | (groups & 0x3FFF_0000_3FFF_0000) >> 2
    groups = groups & 0x0FFF_FFFF | (groups & 0x0FFF_FFFF_0000_0000) >> 4
    return (groups, Int(bitCount / 8))
  }

  /// Store a value at `offset`, and move `offset` to its end.
  @inlinable @inline(__always)
  package static func store(_ value: UInt64, in target: UnsafeMutableRawBufferPointer, at offset: inout Int) {
    encode(value) { byte in
      target[offset] = byte
      offset += 1
    }
  }
}

/// A stored property that makes the compiler pass its struct by address.
///
/// Otherwise a large struct in a class or a table is copied, byte by byte, for each call that is not inlined. That is
/// 352 bytes of a shard and 776 of a channel, some ten times for a mark: a tenth of its cost in the store
/// (docs/contribute/benchmarks.md). An atomic has a stable address, so a struct that contains one is passed by address.
/// This atomic has no other use. Moving the struct is still a plain `memmove`.
package struct PassedByAddress: ~Copyable, Sendable {
  private let unused = Atomic<UInt8>(0)

  package init() {}
}

/// The heap size of an array that grew by doubling, in bytes: capacity and header. Computed from the count alone:
/// allocators may round up differently, and eviction must not depend on that, or a history could not be replayed.
func heapBytes<Element>(_ array: [Element]) -> Int {
  guard !array.isEmpty else { return 0 }
  let slots = 1 << (Int.bitWidth - (array.count - 1).leadingZeroBitCount)
  return slots * MemoryLayout<Element>.stride + 48
}

extension RawSpan {
  /// Return whether both spans have the same bytes.
  package func equals(_ other: RawSpan) -> Bool {
    guard byteCount == other.byteCount else { return false }
    var offset = 0
    while offset + 8 <= byteCount {
      if unsafeLoadUnaligned(fromByteOffset: offset, as: UInt64.self)
        != other.unsafeLoadUnaligned(fromByteOffset: offset, as: UInt64.self)
      {
        return false
      }
      offset += 8
    }
    while offset < byteCount {
      if unsafeLoad(fromByteOffset: offset, as: UInt8.self) != other.unsafeLoad(fromByteOffset: offset, as: UInt8.self)
      {
        return false
      }
      offset += 1
    }
    return true
  }
}
