package import NIOCore
package import ReceiptModel

/// Membership changes in transit from a channel's shard to their users' home shard. Between nodes they are a frame
/// (Proto/frames.md, "Between nodes"), whose header names the home shard. The sender repeats them until they are
/// confirmed.
package struct MembershipDelivery: Hashable, Sendable {
  package var from: ShardID
  package var to: ShardID
  /// Number of the preceding change for this shard; 0 if there was none.
  package var after: UInt64
  /// In rising order; durable in the sending shard.
  package var changes: [Outbox.QueuedChange]

  package init(from: ShardID, to: ShardID, after: UInt64, changes: [Outbox.QueuedChange]) {
    self.from = from
    self.to = to
    self.after = after
    self.changes = changes
  }

  /// Read the fields of a frame.
  package init(to shard: ShardID, _ payload: RawSpan) throws(WireError) {
    var reader = FieldReader(payload)
    to = shard
    from = try reader.shardID()
    after = try reader.varint()
    changes = []
    var last = after
    for _ in 0..<(try reader.count(elementBytesMin: 3)) {
      let queued = try reader.queuedChange(refusedAs: .change)
      guard queued.number > last, queued.number <= Outbox.numberMax else { throw .badValue(.change) }
      changes.append(queued)
      last = queued.number
    }
    try reader.end()
  }

  package func write(into buffer: inout ByteBuffer) {
    buffer.writeFrame(FrameHeader(.deliverChanges, shard: to)) { buffer in
      buffer.writeVarint(UInt32(from.rawValue))
      buffer.writeVarint(after)
      buffer.writeVarint(changes.count)
      for queued in changes { buffer.writeQueuedChange(queued.number, queued.change) }
    }
  }
}

/// Confirmation that changes are durable in the index.
package struct MembershipConfirmation: Hashable, Sendable {
  /// The shard that sent the changes.
  package var to: ShardID
  /// The shard that applied the changes.
  package var from: ShardID
  /// Number of the last confirmed change.
  package var through: UInt64

  package init(to: ShardID, from: ShardID, through: UInt64) {
    self.to = to
    self.from = from
    self.through = through
  }

  /// Read the fields of a frame.
  package init(to shard: ShardID, _ payload: RawSpan) throws(WireError) {
    var reader = FieldReader(payload)
    to = shard
    from = try reader.shardID()
    through = try reader.varint()
    guard through <= Outbox.numberMax else { throw .badValue(.change) }
    try reader.end()
  }

  package func write(into buffer: inout ByteBuffer) {
    buffer.writeFrame(FrameHeader(.confirmChanges, shard: to)) { buffer in
      buffer.writeVarint(UInt32(from.rawValue))
      buffer.writeVarint(through)
    }
  }
}
