import NIOCore
import ReceiptModel
import ReceiptWire

/// Truncating channels, erasing a user in a channel (R16; Proto/frames.md, 0x1D and 0x1F).
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

  /// Erases a user, a slice in each turn. Their name stays known until the last one, so that whoever repeats it
  /// finishes it; meanwhile nothing is made in it there.
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
    guard !command.isCovered else {
      return reply(header, departure(slot), lane) { $0.writeInteger(UInt8(1)) }
    }
    var scan = EraseScan()
    if case .erase(let known, _, _)? = progress { scan = known }
    progress = nil
    if isBeingErased(name, in: slot) {
      // By somebody else: what that leaves is this one's.
      return goesOn(command, header, reader, slot, lane, .erase(EraseScan(), user: name, isAtWork: false))
    }
    let granted = max(loop.effectsLeft, configuration.shortEffects)
    var left = granted
    let isDone = state.decideErase(
      slot,
      member: name,
      &scan,
      limit: &left,
      at: state.advance(clock: loop.clock),
      into: &effects
    )
    loop.effectsLeft -= granted - left
    guard isDone else {
      if !effects.isEmpty { carryOut(slot, session: nil) }
      return goesOn(command, header, reader, slot, lane, .erase(scan, user: name, isAtWork: true))
    }
    finish(slot, command)
    replyIndexed(header, slot, lane) { $0.writeInteger(UInt8(scan.isKnown ? 1 : 0)) }
  }

  // MARK: Erasing under way

  /// Whether a user is being erased in a channel, and a part of it is done.
  func isBeingErased(_ user: String, in slot: ChannelSlot) -> Bool {
    !slicedQueries.isEmpty && slicedQueries.contains { $0.isErasing(user, in: slot) }
  }

  /// Whether a user is being erased in a channel, and a part of it is done.
  func isBeingErased(_ user: RawSpan, in slot: ChannelSlot) -> Bool {
    guard !slicedQueries.isEmpty else { return false }
    return isBeingErased(user.withUnsafeBytes { String(decoding: $0, as: UTF8.self) }, in: slot)
  }

  /// Whether a command may be carried out in the name of this user; where not, it is refused here: their token is
  /// revoked, or they are being erased.
  @inline(__always)
  func admits(
    _ user: RawSpan,
    _ header: FrameHeader,
    _ slot: ChannelSlot,
    _ lane: ReplyLane,
    _ command: CommandPlace
  ) -> Bool {
    if isRevoked(user) {
      refuse(header, .tokenRevoked, slot, lane, command)
      return false
    }
    if !command.isCovered, isBeingErased(user, in: slot) {
      refuseErasing(header, command, lane)
      return false
    }
    return true
  }

  /// Nothing is made in the name of somebody who is being erased there, until they are.
  func refuseErasing(_ header: FrameHeader, _ command: CommandPlace, _ lane: ReplyLane) {
    noteRefused(command)
    refuse(header, .busy, retryAfterMilliseconds: 100, "the user is being erased in this channel", lane)
  }

  /// Deleting a channel that is not there, or erasing a user in it: there is nothing to do, which is no error, so that
  /// a repeat succeeds.
  func performAbsent(
    _ header: FrameHeader,
    _ reader: inout FieldReader,
    _ departure: ReplyLane.Departure,
    _ lane: ReplyLane
  ) throws(WireError) {
    let counter = try Self.counter(&reader)
    let user = header.kind == .eraseMember ? try reader.string() : RawSpan()
    try reader.end()
    let command = takeUp(counter, lane)
    if header.kind == .eraseMember, checked(user, header, lane, command) == nil { return }
    finish(nil, command)
    reply(header, departure, lane) { $0.writeInteger(UInt8(command.isCovered ? 1 : 0)) }
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
      refuse(header, .invalidField, Self.userRange, lane)
      return nil
    }
    return user.withUnsafeBytes { String(decoding: $0, as: UTF8.self) }
  }
}
