/// A message and a member in the short numbers of their shard: what a ticket is made of (*place* of Proto/frames.md).
package struct TicketPlace: Hashable, Sendable {
  /// The channel's incarnation.
  package var channel: ChannelNumber
  /// The member's, in the channel.
  package var row: MemberOrdinal
  /// Of a reply: its thread's parent message.
  package var parent: SequenceNumber?
  package var sequence: SequenceNumber
  /// ``check(cid:user:message:)`` of the names that these numbers stand for.
  package var check: UInt64

  package init(
    channel: ChannelNumber,
    row: MemberOrdinal,
    parent: SequenceNumber?,
    sequence: SequenceNumber,
    check: UInt64
  ) {
    self.channel = channel
    self.row = row
    self.parent = parent
    self.sequence = sequence
    self.check = check
  }

  /// XXH64 over cid, a zero byte, user, a zero byte and message.
  package static func check(cid: RawSpan, user: RawSpan, message: RawSpan) -> UInt64 {
    let count = cid.byteCount + user.byteCount + message.byteCount + 2
    return withUnsafeTemporaryAllocation(of: UInt8.self, capacity: count) { bytes in
      bytes.initialize(repeating: 0)
      var offset = 0
      func put(_ name: RawSpan) {
        name.withUnsafeBytes { source in
          for (place, byte) in source.enumerated() { bytes[offset + place] = byte }
        }
        offset += name.byteCount + 1
      }
      put(cid)
      put(user)
      put(message)
      return StableHash.hash(UnsafeBufferPointer(bytes).span.bytes)
    }
  }
}
