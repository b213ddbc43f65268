import NIOCore
import ReceiptModel
import ReceiptWire

/// Mark-unread from a time on (Proto/frames.md, mark_unread_since; R4).
extension ShardEngine {
  func markUnreadSince(
    _ header: FrameHeader,
    _ reader: inout FieldReader,
    _ slot: ChannelSlot,
    _ lane: ReplyLane
  ) throws(WireError) {
    let counter = try Self.counter(&reader)
    let user = try reader.string()
    let since = try reader.time()
    let epoch = try reader.optional32()
    let parent = try Self.thread(header, &reader)
    try reader.end()
    let command = takeUp(counter, lane)
    guard admits(user, header, slot, lane, command) else { return }
    _ = state.advance(clock: loop.clock)
    var place = slot
    do throws(Refusal) {
      let member = try state.member(user, in: slot)
      if !parent.isEmpty {
        guard let thread = try state.thread(of: parent, in: slot, for: member) else {
          let none = parent.extracting(first: 0)
          try state.checkMark(withoutThread: slot, user: user, message: none, isUnread: true)
          finish(slot, command)
          return reply(header, departure(slot), lane) { buffer in
            buffer.writeEmptyRow(user: user, joinedAt: state.joinedAt(user, in: slot))
            buffer.writeInteger(ShardState.Uncounted.noReplies.rawValue)
          }
        }
        place = thread
      }
      try state.decideUnread(place, user: user, since: since, epoch: epoch, into: &effects)
    } catch {
      return refuse(header, error, slot, lane, command)
    }
    // The messages that it goes over are looked at one by one.
    loop.entriesLeft -= Int(state[place].messages.newest.rawValue) / Self.messagesPerEntry
    finish(slot, command)
    let row = state[place].row(of: user)
    reply(header, departure(slot), lane) { buffer in
      guard let row else { return buffer.writeEmptyRow(user: user, joinedAt: state.joinedAt(user, in: slot)) }
      buffer.writeRow(state.ownRow(place, row), place, in: state)
    }
  }

  /// Messages whose times are compared per unit of the loop's budget, which is one channel's unread count.
  private static let messagesPerEntry = 1_024
}
