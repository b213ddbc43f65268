package import NIOCore
package import ReceiptModel

/// Membership changes on their way to another shard, whose owner is another node (Proto/frames.md, "Between nodes").
///
/// The header names the shard that they are for. The sender repeats them until they are confirmed.
package struct DeliveredChanges: Hashable, Sendable {
  /// The shard that sends the changes.
  package var from: ShardID
  /// Number of the preceding change for this shard; 0 if there was none.
  package var after: UInt64
  /// In rising order.
  package var changes: [Outbox.QueuedChange]

  package init(from: ShardID, after: UInt64, changes: [Outbox.QueuedChange]) {
    self.from = from
    self.after = after
    self.changes = changes
  }

  package init(_ payload: RawSpan) throws(WireError) {
    var reader = FieldReader(payload)
    from = try reader.shardID()
    after = try reader.varint()
    changes = []
    var last = after
    for _ in 0..<(try reader.count(elementBytesMin: 3)) {
      let number = try reader.varint()
      let user = try reader.text()
      let gone = try reader.byte()
      guard number > last, number <= Outbox.numberMax, gone <= 1 else { throw .badValue(.change) }
      let change = MembershipChange(user: user, try reader.membership(), isGone: gone == 1)
      changes.append(Outbox.QueuedChange(number: number, change: change))
      last = number
    }
    try reader.end()
  }

  package func write(to shard: ShardID, into buffer: inout ByteBuffer) {
    buffer.writeFrame(FrameHeader(.deliverChanges, shard: shard)) { buffer in
      buffer.writeVarint(UInt32(from.rawValue))
      buffer.writeVarint(after)
      buffer.writeVarint(changes.count)
      for queued in changes {
        buffer.writeVarint(queued.number)
        buffer.writeField(queued.change.user)
        buffer.writeInteger(UInt8(queued.change.isGone ? 1 : 0))
        buffer.writeMembership(queued.change.membership)
      }
    }
  }
}

/// Confirmation that changes are durable in another shard. The header names the shard that sent the changes.
package struct ConfirmedChanges: Hashable, Sendable {
  /// The shard that applied the changes.
  package var from: ShardID
  /// Number of the last confirmed change.
  package var through: UInt64

  package init(from: ShardID, through: UInt64) {
    self.from = from
    self.through = through
  }

  package init(_ payload: RawSpan) throws(WireError) {
    var reader = FieldReader(payload)
    from = try reader.shardID()
    through = try reader.varint()
    guard through <= Outbox.numberMax else { throw .badValue(.change) }
    try reader.end()
  }

  package func write(to shard: ShardID, into buffer: inout ByteBuffer) {
    buffer.writeFrame(FrameHeader(.confirmChanges, shard: shard)) { buffer in
      buffer.writeVarint(UInt32(from.rawValue))
      buffer.writeVarint(through)
    }
  }
}
