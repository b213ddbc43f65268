/// A shard's record of a gateway session, so that a resent command is applied exactly once (docs/architecture.md).
package struct SessionRecord: Hashable, Sendable {
  package var session: SessionID
  /// The highest counter whose command the shard has begun.
  package var highest: UInt64
  /// Open counters at or below `highest`, in rising order. Their commands wait for a channel to load, or were refused;
  /// sent again, they are decided.
  package var waiting: [UInt64]
  package var lastWritten: Timestamp

  package init(
    session: SessionID,
    highest: UInt64 = 0,
    waiting: [UInt64] = [],
    lastWritten: Timestamp = .none
  ) {
    self.session = session
    self.highest = highest
    self.waiting = waiting
    self.lastWritten = lastWritten
  }

  /// Return whether the command with this counter was already decided. Inlined, so that each command reads the record
  /// in place instead of copying it.
  @inline(__always)
  package func covers(_ counter: UInt64) -> Bool { counter <= highest && !waiting.contains(counter) }
}
