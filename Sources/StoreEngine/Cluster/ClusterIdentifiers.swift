/// A fixed range of shards, numbered from 0: the unit of commit, ownership and failure in a cluster
/// (docs/operate/cluster.md).
package struct GroupID: Hashable, Comparable, Sendable, BitwiseCopyable {
  package var rawValue: UInt8
  package init(_ rawValue: UInt8) { self.rawValue = rawValue }
  package static func < (a: Self, b: Self) -> Bool { a.rawValue < b.rawValue }
  /// Maximum number of groups. A group is a byte in the keys of the shared log, and has an event loop on every node.
  package static let countMax = 64
}

/// A store process of a cluster, numbered from 1.
package struct NodeID: Hashable, Comparable, Sendable, BitwiseCopyable {
  package var rawValue: UInt16
  package init(_ rawValue: UInt16) { self.rawValue = rawValue }
  /// No node: the owner of a group that nobody has claimed yet.
  package static let none = NodeID(0)
  package static let numberMax = 999
  package static func < (a: Self, b: Self) -> Bool { a.rawValue < b.rawValue }
}

/// A record's position in its group's log, from 1 without gaps; 0 is "before the log".
package struct RecordPosition: Hashable, Comparable, Sendable, BitwiseCopyable {
  package var rawValue: UInt64
  package init(_ rawValue: UInt64) { self.rawValue = rawValue }
  /// Before the first record.
  package static let zero = RecordPosition(0)
  package static func < (a: Self, b: Self) -> Bool { a.rawValue < b.rawValue }
  /// The position after this one.
  package var next: RecordPosition { RecordPosition(rawValue + 1) }
}

/// The number of a claim. Each claim raises it by one, and all records of its owner carry it; 0 is "never claimed".
package struct OwnerEpoch: Hashable, Comparable, Sendable, BitwiseCopyable {
  package var rawValue: UInt64
  package init(_ rawValue: UInt64) { self.rawValue = rawValue }
  /// Before the first claim.
  package static let zero = OwnerEpoch(0)
  package static func < (a: Self, b: Self) -> Bool { a.rawValue < b.rawValue }
  /// The epoch after this one.
  package var next: OwnerEpoch { OwnerEpoch(rawValue + 1) }
}

/// The number of a record key: the position of the last record before it was made. So the numbers of a group rise, and
/// no two keys have the same one; 0 is "no key".
package struct RecordKeyNumber: Hashable, Comparable, Sendable, BitwiseCopyable {
  package var rawValue: UInt64
  package init(_ rawValue: UInt64) { self.rawValue = rawValue }
  /// No key.
  package static let none = RecordKeyNumber(0)
  package static func < (a: Self, b: Self) -> Bool { a.rawValue < b.rawValue }
}

/// A reading of one node's own monotonic clock: the time since the machine's boot, sleep included (`CLOCK_BOOTTIME`).
///
/// Readings of two nodes are never compared, so the clocks need not agree.
package struct BootTime: Hashable, Comparable, Sendable, BitwiseCopyable {
  package var nanoseconds: Int64
  package init(nanoseconds: Int64) { self.nanoseconds = nanoseconds }
  /// Later than every reading: the deadline of a machine that waits for no time.
  package static let never = BootTime(nanoseconds: .max)
  package static func < (a: Self, b: Self) -> Bool { a.nanoseconds < b.nanoseconds }
  /// Return the time so many milliseconds later. Requires a reading, not ``never``.
  package func adding(milliseconds: Int64) -> BootTime {
    BootTime(nanoseconds: nanoseconds + milliseconds * 1_000_000)
  }
}
