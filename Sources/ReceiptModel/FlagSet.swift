/// Flags in one byte. What they are asked on every request is said here once more: the standard library's own set
/// algebra is not specialised where another module uses it, and goes through witness tables; a literal makes an array.
/// Functions of a protocol are only taken over into other modules where they are `@inlinable`.
@usableFromInline
package protocol FlagSet: OptionSet, Hashable, Sendable where RawValue == UInt8, Element == Self {}

extension FlagSet {
  @inlinable @inline(__always)
  package init() { self.init(rawValue: 0) }

  @inlinable @inline(__always)
  package var isEmpty: Bool { rawValue == 0 }

  /// Whether all of `others` are set.
  @inlinable @inline(__always)
  package func contains(_ others: Self) -> Bool { rawValue & others.rawValue == others.rawValue }

  /// Whether none of `others` is set.
  @inlinable @inline(__always)
  package func isDisjoint(with others: Self) -> Bool { rawValue & others.rawValue == 0 }

  @inlinable @inline(__always)
  package mutating func insert(_ others: Self) { self = Self(rawValue: rawValue | others.rawValue) }

  /// The same with some of them set, or not.
  @inlinable @inline(__always)
  package func setting(_ others: Self, _ isSet: Bool) -> Self {
    Self(rawValue: isSet ? rawValue | others.rawValue : rawValue & ~others.rawValue)
  }

  @inlinable @inline(__always)
  package func union(_ others: Self) -> Self { Self(rawValue: rawValue | others.rawValue) }
}
