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
/// (docs/benchmarks.md). An atomic has a stable address, so a struct that contains one is passed by address. This
/// atomic has no other use. Moving the struct is still a plain `memmove`.
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
  package func isEqual(to other: RawSpan) -> Bool {
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
