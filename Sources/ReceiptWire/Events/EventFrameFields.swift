package import NIOCore
package import ReceiptModel

/// The payload of an events frame, which a shard pushes to a gateway (Proto/frames.md, "Events").
package struct EventsFields: Hashable, Sendable {
  /// Events are complete up to this time: this frame and earlier ones contain everything in this connection's
  /// subscriptions in the shard.
  package var through: Timestamp
  /// Events were dropped because the connection was too slow: nothing after the preceding `through` is complete.
  package var isLost: Bool
  package var channels: [ChannelEventsFields]
  package var users: [UserEventsFields]

  package init(
    through: Timestamp,
    isLost: Bool = false,
    channels: [ChannelEventsFields] = [],
    users: [UserEventsFields] = []
  ) {
    self.through = through
    self.isLost = isLost
    self.channels = channels
    self.users = users
  }

  package init(_ payload: RawSpan) throws(WireError) {
    var reader = FieldReader(payload)
    through = try reader.time()
    let lost = try reader.byte()
    guard lost <= 1 else { throw .badValue(.flags) }
    isLost = lost == 1
    channels = []
    users = []
    for _ in 0..<(try reader.count(elementBytesMin: ChannelEventsFields.byteCountMin)) {
      channels.append(try ChannelEventsFields(&reader))
    }
    for _ in 0..<(try reader.count(elementBytesMin: 2)) { users.append(try UserEventsFields(&reader)) }
    try reader.end()
  }

  package func write(into buffer: inout ByteBuffer) {
    buffer.writeTime(through)
    buffer.writeInteger(UInt8(isLost ? 1 : 0))
    buffer.writeVarint(channels.count)
    for channel in channels { channel.write(into: &buffer) }
    buffer.writeVarint(users.count)
    for user in users { user.write(into: &buffer) }
  }
}

/// The reply to a subscription: the current time, and the changes since the requested time.
package struct SubscribedFields: Hashable, Sendable {
  /// The shard's `through` at the time of the reply; later changes follow in events frames.
  package var through: Timestamp
  /// Whether `channels` contains all changes; false if there were too many, or the time is too far back.
  package var isComplete: Bool
  package var channels: [ChannelEventsFields]

  package init(through: Timestamp, isComplete: Bool = true, channels: [ChannelEventsFields] = []) {
    self.through = through
    self.isComplete = isComplete
    self.channels = channels
  }

  package init(_ payload: RawSpan) throws(WireError) {
    var reader = FieldReader(payload)
    through = try reader.time()
    let complete = try reader.byte()
    guard complete <= 1 else { throw .badValue(.flags) }
    isComplete = complete == 1
    channels = []
    for _ in 0..<(try reader.count(elementBytesMin: ChannelEventsFields.byteCountMin)) {
      channels.append(try ChannelEventsFields(&reader))
    }
    try reader.end()
  }

  package func write(into buffer: inout ByteBuffer) {
    buffer.writeTime(through)
    buffer.writeInteger(UInt8(isComplete ? 1 : 0))
    buffer.writeVarint(channels.count)
    for channel in channels { channel.write(into: &buffer) }
  }
}
