import NIOCore
import ReceiptModel
import ReceiptWire

/// Receipts: acknowledging, and answers that say that a receipt has expired (R9, R20).
extension ShardEngine {
  /// Messages that are acknowledged with one request.
  private static let acknowledgedMax = 100

  // MARK: Acknowledging

  /// One command, whatever of its messages can be acknowledged: its effects stand in one batch.
  func acknowledge(
    _ header: FrameHeader,
    _ reader: inout FieldReader,
    _ slot: ChannelSlot,
    _ lane: ReplyLane
  ) throws(WireError) {
    let counter = try Self.counter(&reader)
    let user = try reader.string()
    let noteBytes = try reader.string()
    let count = try reader.count()
    // Read to the end before any of it is carried out, then once more.
    var messages = reader
    for _ in 0..<count { _ = try reader.string() }
    try reader.end()
    let command = takeUp(counter, lane)
    guard (1...Self.acknowledgedMax).contains(count) else {
      noteRefused(command)
      return refuse(header, .invalidField, "messages: 1 to \(Self.acknowledgedMax)", lane)
    }
    guard noteBytes.byteCount <= Acknowledgement.noteLengthMax, let note = Self.utf8(noteBytes) else {
      noteRefused(command)
      return refuse(
        header,
        .invalidField,
        "note: at most \(Acknowledgement.noteLengthMax) bytes of UTF-8",
        lane
      )
    }
    guard admits(user, header, slot, lane, command) else { return }
    let row: MemberOrdinal
    do { row = try state.member(user, in: slot) } catch {
      return refuse(header, error, slot, lane, command)
    }
    let time = state.advance(clock: loop.clock)
    if !command.isCovered { sessions.decided(command.counter, at: command.session) }
    var codes: [UInt16] = []
    codes.reserveCapacity(count)
    var expiry = Timestamp.none
    for _ in 0..<count {
      let message = try messages.string()
      effects.removeAll(keepingCapacity: true)
      do throws(Refusal) {
        try state.decideAcknowledge(slot, row, message: message, note: note, at: time, into: &effects)
        codes.append(0)
      } catch {
        codes.append(Self.code(error).rawValue)
        if error == .receiptExpired { expiry = max(expiry, state.receiptExpiry(slot, message: message)) }
      }
      guard !effects.isEmpty else { continue }
      guard !command.isCovered else {
        // It was taken up before this message could be acknowledged, and is not applied again: what came of it for this
        // one, nobody knows any more.
        return refuseApplied(header, lane)
      }
      carryOut(slot, session: command.session)
    }
    let departure = departure(lastEffect(slot), sayingExpiredAt: expiry, lane)
    reply(header, departure, lane) { buffer in
      buffer.writeVarint(codes.count)
      for code in codes { buffer.writeVarint(UInt64(code)) }
    }
  }

  private static func utf8(_ bytes: RawSpan) -> String? {
    bytes.withUnsafeBytes { String(validating: $0, as: UTF8.self) }
  }

  // MARK: Expiry

  /// When the answer to a query for statuses may leave; logs that time has come as far as any `expired` in it says.
  func departure(
    _ slot: ChannelSlot,
    saying answers: [Result<StatusAnswer, Refusal>],
    _ lane: ReplyLane
  ) -> ReplyLane.Departure {
    var expiry = Timestamp.none
    for case .success(let status) in answers where status.receipt == .expired {
      expiry = max(expiry, state[slot].receipts.expiresAt(status.sequence))
    }
    return departure(lastEffect(slot), sayingExpiredAt: expiry, lane)
  }

  /// When an answer may leave that says that something expired then: not before a batch of that time or later is
  /// durable, so that a shard which starts again with an earlier clock cannot take it back (R20). Where no batch is of
  /// that time yet, one is begun.
  ///
  /// - Parameters:
  ///   - last: the last effect that the answer tells of.
  ///   - expiry: none where nothing has expired.
  func departure(
    _ last: LogIndex,
    sayingExpiredAt expiry: Timestamp,
    _ lane: ReplyLane
  ) -> ReplyLane.Departure {
    let departure = departure(last)
    guard expiry > durableTime else { return departure }
    guard expiry > closedTime else { return departure == .withGathering ? .withGathering : .withInFlight }
    // A batch that gathers is closed with the shard's time, which has come this far.
    if !isGathering { logTimeNow(session: sessionPosition(lane)) }
    return .withGathering
  }
}
