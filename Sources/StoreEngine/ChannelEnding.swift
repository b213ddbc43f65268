import DequeModule
import NIOCore
import ReceiptModel
import ReceiptWire

/// A channel with more users than one turn has room for, on its way to its deletion: each turn queues for some of them
/// that the channel knows them no more. Nobody finds it meanwhile. Its name is free again when it is deleted; until
/// then the log is kept from where it began, so that a start goes on with it.
struct ChannelEnding {
  /// Whoever asked for it.
  struct Asker {
    var header: FrameHeader
    var lane: ReplyLane
  }

  let slot: ChannelSlot
  /// The batch that says so.
  let index: LogIndex
  /// The last change of a membership before its own.
  let before: UInt64
  var scan = ShardState.MembershipScan()
  /// Answered in the end.
  var askers: [Asker] = []
}

extension ShardEngine {
  /// Askers of one deletion at most: one that comes again does so on another connection.
  private static let askersMax = 64

  // MARK: Beginning

  /// The channel leaves memory at once, or, where it has many users, with the last of them; the answer leaves when that
  /// is durable. One that was carried out before is answered as it was, whatever has the name by now.
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
    guard !state.outbox.isFull else { return refuseFull(header, command, lane) }
    _ = state.advance(clock: loop.clock)
    let before = outgoing.before
    let index = gatheringIndex
    var scan = ShardState.MembershipScan()
    let isDone = decideEnding(slot, &scan)
    // From here on its counter is covered: sent again, it is answered when the deletion that it began has come to its
    // end.
    finish(slot, command)
    guard !isDone else {
      return replyIndexed(header, index, lane) { $0.writeInteger(UInt8(1)) }
    }
    let asker = ChannelEnding.Asker(header: header, lane: lane)
    endings.append(ChannelEnding(slot: slot, index: index, before: before, scan: scan, askers: [asker]))
    refuseSliced(slot)
    loop.works(self)
  }

  /// A channel that is being deleted was read in.
  ///
  /// - Parameter index: where the log says so.
  func resumeEnding(_ slot: ChannelSlot, at index: LogIndex) {
    endings.append(ChannelEnding(slot: slot, index: index, before: state.outbox.last))
    loop.works(self)
  }

  /// Decides one slice, as large as this turn and the outbox have room for.
  private func decideEnding(_ slot: ChannelSlot, _ scan: inout ShardState.MembershipScan) -> Bool {
    let granted = min(loop.changesLeft, configuration.changesPendingMax - state.outbox.count)
    var left = max(0, granted)
    let isDone = state.decideDelete(channel: slot, &scan, limit: &left, into: &effects)
    loop.changesLeft -= max(0, granted) - max(0, left)
    return isDone
  }

  // MARK: Going on

  /// One slice of each deletion that is under way, while this turn has room. Where half of what may be on its way is,
  /// it goes on when some of that was taken: the rest is for those who join now.
  func goOnEnding() {
    for _ in 0..<endings.count {
      guard loop.changesLeft > 0, !isBatchFull else { return loop.works(self) }
      guard state.outbox.count < configuration.changesPendingMax, var ending = endings.popFirst() else {
        return
      }
      effects.removeAll(keepingCapacity: true)
      let index = gatheringIndex
      let isDone = decideEnding(ending.slot, &ending.scan)
      if !effects.isEmpty { carryOut(ending.slot, session: nil) }
      guard isDone else {
        endings.append(ending)
        continue
      }
      outgoing.before = ending.before
      for asker in ending.askers where !asker.lane.isClosed {
        replyIndexed(asker.header, index, asker.lane) { $0.writeInteger(UInt8(1)) }
      }
    }
    if !endings.isEmpty { loop.works(self) }
  }

  // MARK: Requests

  /// A request about a channel that is being deleted: it is not there for anybody, and the name is not free yet.
  func performEnding(
    _ header: FrameHeader,
    _ reader: inout FieldReader,
    _ slot: ChannelSlot,
    _ lane: ReplyLane
  ) throws(WireError) {
    switch header.kind {
    case .deleteChannel:
      var again = reader
      let counter = try Self.counter(&again)
      try again.end()
      guard takeUp(counter, lane).isCovered, let place = endings.firstIndex(where: { $0.slot == slot }) else {
        return try performAbsent(header, &reader, departure(slot), lane)
      }
      endings[place].askers.removeAll(where: \.lane.isClosed)
      guard endings[place].askers.count < Self.askersMax else { return refuseEnding(header, lane) }
      endings[place].askers.append(ChannelEnding.Asker(header: header, lane: lane))
    case .eraseMember:
      try performAbsent(header, &reader, departure(slot), lane)
    case .putChannel:
      noteRefused(takeUp(try Self.counter(&reader), lane))
      refuseEnding(header, lane)
    default:
      try refuseAbsent(header, &reader, lane, departure(slot))
    }
  }

  private func refuseEnding(_ header: FrameHeader, _ lane: ReplyLane) {
    refuse(header, .busy, retryAfterMilliseconds: 100, "a channel of this name is being deleted", lane)
  }
}
