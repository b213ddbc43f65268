/// A message and a member in their shard's short numbers: the content of a ticket (*place* in Proto/frames.md).
package struct TicketPlace: Hashable, Sendable {
  /// The channel's incarnation.
  package var channel: ChannelNumber
  /// The member's row in the channel.
  package var row: MemberOrdinal
  /// For a reply: its thread's parent message.
  package var parent: SequenceNumber?
  package var sequence: SequenceNumber
  /// ``check(cid:user:message:)`` of the names behind these numbers.
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

  /// Return the XXH64 of cid, a zero byte, user, a zero byte and message.
  package static func check(cid: RawSpan, user: RawSpan, message: RawSpan) -> UInt64 {
    let count = cid.byteCount + user.byteCount + message.byteCount + 2
    return withUnsafeTemporaryAllocation(byteCount: count, alignment: 1) { bytes in
      let base = bytes.baseAddress!
      let afterCID = cid.byteCount
      let afterUser = afterCID + 1 + user.byteCount
      copy(cid, to: base)
      base.storeBytes(of: 0, toByteOffset: afterCID, as: UInt8.self)
      copy(user, to: base + afterCID + 1)
      base.storeBytes(of: 0, toByteOffset: afterUser, as: UInt8.self)
      copy(message, to: base + afterUser + 1)
      return StableHash.hash(UnsafeRawBufferPointer(bytes).bytes)
    }
  }

  @inline(__always)
  private static func copy(_ name: RawSpan, to destination: UnsafeMutableRawPointer) {
    name.withUnsafeBytes { source in
      if let start = source.baseAddress { destination.copyMemory(from: start, byteCount: source.count) }
    }
  }
}
