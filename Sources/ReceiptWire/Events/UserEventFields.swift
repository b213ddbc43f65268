package import NIOCore
package import ReceiptModel

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
      let gone = try reader.byte()
      guard gone <= 1 else { throw .badValue(.flags) }
      self = .membership(entry, at: time, isGone: gone == 1)
    case 2: self = .tokensRevoked(before: try reader.time())
    default: throw .badValue(.flags)
    }
  }

  package func write(into buffer: inout ByteBuffer) {
    switch self {
    case .membership(let entry, let time, let isGone):
      buffer.writeInteger(UInt8(1))
      entry.write(into: &buffer)
      buffer.writeTime(time)
      buffer.writeInteger(UInt8(isGone ? 1 : 0))
    case .tokensRevoked(let time):
      buffer.writeInteger(UInt8(2))
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
