/// Flags in one byte, with specialised `OptionSet` operations for the hot path. The standard library's set algebra is
/// not specialised across modules and goes through witness tables, and a literal creates an array. A protocol's
/// functions are inlined into other modules only if they are `@inlinable`.
@usableFromInline
package protocol FlagSet: OptionSet, Hashable, Sendable where RawValue == UInt8, Element == Self {}

extension FlagSet {
  @inlinable @inline(__always)
  package init() { self.init(rawValue: 0) }

  @inlinable @inline(__always)
  package var isEmpty: Bool { rawValue == 0 }

  /// Return whether all of `others` are set.
  @inlinable @inline(__always)
  package func contains(_ others: Self) -> Bool { rawValue & others.rawValue == others.rawValue }

  /// Return whether none of `others` is set.
  @inlinable @inline(__always)
  package func isDisjoint(with others: Self) -> Bool { rawValue & others.rawValue == 0 }

  @inlinable @inline(__always)
  package mutating func insert(_ others: Self) { self = Self(rawValue: rawValue | others.rawValue) }

  /// Return these flags with `others` set or cleared.
  @inlinable @inline(__always)
  package func setting(_ others: Self, _ isSet: Bool) -> Self {
    Self(rawValue: isSet ? rawValue | others.rawValue : rawValue & ~others.rawValue)
  }

  @inlinable @inline(__always)
  package func union(_ others: Self) -> Self { Self(rawValue: rawValue | others.rawValue) }
}
