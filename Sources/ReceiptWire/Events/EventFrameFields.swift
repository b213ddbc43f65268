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
    isLost = try reader.flag()
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
    buffer.writeFlag(isLost)
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
    isComplete = try reader.flag()
    channels = []
    for _ in 0..<(try reader.count(elementBytesMin: ChannelEventsFields.byteCountMin)) {
      channels.append(try ChannelEventsFields(&reader))
    }
    try reader.end()
  }

  package func write(into buffer: inout ByteBuffer) {
    Self.write(through: through, isComplete: isComplete, channelCount: channels.count, into: &buffer)
    for channel in channels { channel.write(into: &buffer) }
  }

  /// Write the fields up to the channels, which must follow.
  package static func write(through: Timestamp, isComplete: Bool, channelCount: Int, into buffer: inout ByteBuffer) {
    buffer.writeTime(through)
    buffer.writeFlag(isComplete)
    buffer.writeVarint(channelCount)
  }
}

/// One event of a user, from the user's home shard.
package enum UserEventFields: Hashable, Sendable {
  /// The current entry of the user's channel index for one channel.
  case membership(ChannelEntryFields, at: Timestamp, isGone: Bool)
  /// The user's tokens issued before this time are refused from now on.
  case tokensRevoked(before: Timestamp)

  package static let byteCountMin = 2

  package init(_ reader: inout FieldReader) throws(WireError) {
    switch try reader.byte() {
    case 1:
      let entry = try ChannelEntryFields(&reader)
      let time = try reader.time()
      self = .membership(entry, at: time, isGone: try reader.flag())
    case 2: self = .tokensRevoked(before: try reader.time())
    default: throw .badValue(.flags)
    }
  }

  package func write(into buffer: inout ByteBuffer) {
    switch self {
    case .membership(let entry, let time, let isGone):
      buffer.writeByte(1)
      entry.write(into: &buffer)
      buffer.writeTime(time)
      buffer.writeFlag(isGone)
    case .tokensRevoked(let time):
      buffer.writeByte(2)
      buffer.writeTime(time)
    }
  }
}

/// The events of one user.
package struct UserEventsFields: Hashable, Sendable {
  package var user: String
  package var events: [UserEventFields]

  package init(user: String, _ events: [UserEventFields]) {
    self.user = user
    self.events = events
  }

  init(_ reader: inout FieldReader) throws(WireError) {
    user = try reader.text()
    let count = try reader.count(elementBytesMin: UserEventFields.byteCountMin)
    events = []
    for _ in 0..<count { events.append(try UserEventFields(&reader)) }
  }

  func write(into buffer: inout ByteBuffer) {
    buffer.writeField(user)
    buffer.writeVarint(events.count)
    for event in events { event.write(into: &buffer) }
  }
}
