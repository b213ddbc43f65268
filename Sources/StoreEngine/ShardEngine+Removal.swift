import NIOCore
import ReceiptModel
import ReceiptWire

/// Truncating and deleting channels, erasing a user in a channel (R16; Proto/frames.md, 0x1D to 0x1F).
extension ShardEngine {
  func truncateChannel(
    _ header: FrameHeader,
    _ reader: inout FieldReader,
    _ slot: ChannelSlot,
    _ lane: ReplyLane
  ) throws(WireError) {
    let counter = try Self.counter(&reader)
    let message = try reader.string()
    try reader.end()
    let command = takeUp(counter, lane)
    do throws(Refusal) {
      try state.decideTruncate(
        slot,
        before: message,
        at: state.advance(clock: loop.clock),
        into: &effects
      )
    } catch {
      return refuse(header, error, slot, lane, command)
    }
    finish(slot, command)
    reply(header, departure(slot), lane) { $0.writeChannel(slot, in: state) }
  }

  /// The channel leaves memory at once; the answer leaves when that is durable. One that was carried out before is answered as it was, whatever has the name by now.
  func deleteChannel(
    _ header: FrameHeader,
    _ reader: inout FieldReader,
    _ slot: ChannelSlot,
    _ lane: ReplyLane
  ) throws(WireError) {
    let counter = try Self.counter(&reader)
    try reader.end()
    let command = takeUp(counter, lane)
    guard !command.isCovered else {
      return reply(header, departure(slot), lane) { $0.writeInteger(UInt8(1)) }
    }
    _ = state.advance(clock: loop.clock)
    state.decideDelete(channel: slot, into: &effects)
    finish(slot, command)
    replyIndexed(header, gatheringIndex, lane) { $0.writeInteger(UInt8(1)) }
  }

  func eraseMember(
    _ header: FrameHeader,
    _ reader: inout FieldReader,
    _ slot: ChannelSlot,
    _ lane: ReplyLane
  ) throws(WireError) {
    let counter = try Self.counter(&reader)
    let user = try reader.string()
    try reader.end()
    let command = takeUp(counter, lane)
    guard let name = checked(user, header, lane, command) else { return }
    guard state.mayBeErased(name) else {
      // They are somebody new by now: this one comes late, from a gateway that was slower than another.
      finish(slot, command)
      return reply(header, departure(slot), lane) { $0.writeInteger(UInt8(0)) }
    }
    let wasKnown = state.decideErase(
      slot,
      member: name,
      at: state.advance(clock: loop.clock),
      into: &effects
    )
    finish(slot, command)
    replyIndexed(header, slot, lane) { $0.writeInteger(UInt8(wasKnown || command.isCovered ? 1 : 0)) }
  }

  /// Deleting a channel that is not there, or erasing a user in it: there is nothing to do, which is no error, so that a repeat succeeds.
  func performAbsent(
    _ header: FrameHeader,
    _ reader: inout FieldReader,
    cid: RawSpan,
    _ lane: ReplyLane
  ) throws(WireError) {
    let counter = try Self.counter(&reader)
    let user = header.kind == .eraseMember ? try reader.string() : RawSpan()
    try reader.end()
    let command = takeUp(counter, lane)
    if header.kind == .eraseMember, checked(user, header, lane, command) == nil { return }
    finish(nil, command)
    reply(header, departure(absent: cid), lane) { $0.writeInteger(UInt8(command.isCovered ? 1 : 0)) }
  }

  /// A user's name; refuses the request where it is none.
  private func checked(
    _ user: RawSpan,
    _ header: FrameHeader,
    _ lane: ReplyLane,
    _ command: CommandPlace
  ) -> String? {
    guard Identifier.isUser(user) else {
      noteRefused(command)
      refuse(header, .invalidField, "user: 1 to 128 of A-Z a-z 0-9 @ _ . -", lane)
      return nil
    }
    return user.withUnsafeBytes { String(decoding: $0, as: UTF8.self) }
  }
}
