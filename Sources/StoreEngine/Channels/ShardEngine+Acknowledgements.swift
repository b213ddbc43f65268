internal import NIOCore
internal import ReceiptModel
internal import ReceiptWire

/// Acknowledgements, and replies that reveal an expired request (R9, R20).
extension ShardEngine {

  // MARK: Acknowledging

  /// Acknowledge those of the messages that can be. The request is one command: all its effects are in one batch.
  func acknowledge(_ request: inout Request, _ slot: ChannelSlot) throws(WireError) -> Outcome {
    let fields = try AcknowledgeRequest(&request.fields)
    let (user, noteBytes, count) = (fields.user, fields.note, fields.messages.count)
    guard (1...WireLimits.entriesMax).contains(count) else {
      return .refused(.invalidField, "messages: 1 to \(WireLimits.entriesMax)")
    }
    guard noteBytes.byteCount <= Acknowledgement.noteLengthMax, let note = Self.utf8(noteBytes) else {
      return .refused(.invalidField, "note: at most \(Acknowledgement.noteLengthMax) bytes of UTF-8")
    }
    if let refusal = refusal(of: user, request, slot) { return refusal }
    let row: MemberOrdinal
    do { row = try state.member(user, in: slot) } catch {
      return refused(error, slot)
    }
    let time = advanceTime()
    sessions.recordDecision(request)
    var codes: [ErrorCode?] = []
    codes.reserveCapacity(count)
    var expiry = Timestamp.none
    var messages = fields.messages
    while let message = messages.next() {
      request.effects.removeAll(keepingCapacity: true)
      do throws(Refusal) {
        try state.decideAcknowledge(slot, row, message: message, note: note, at: time, into: &request.effects)
        codes.append(nil)
      } catch {
        codes.append(Self.code(error))
        if error == .acknowledgementExpired {
          expiry = max(expiry, state[slot].acknowledgementExpiry(of: message))
        }
      }
      guard !request.effects.isEmpty else { continue }
      guard !request.isDuplicate else {
        // The original ran before this message could be acknowledged, and is not applied again. Its outcome for this
        // message is no longer known.
        return .unknownOutcome
      }
      applyEffects(request.effects, to: slot, session: request.session)
    }
    let replyTiming = replyTiming(lastEffect(slot), revealingExpiryAt: expiry, request.lane)
    return reply(request, replyTiming) { AcknowledgeReply(codes: codes).write(into: &$0) }
  }

  private static func utf8(_ bytes: RawSpan) -> String? {
    bytes.withUnsafeBytes { String(validating: $0, as: UTF8.self) }
  }

  // MARK: Expiry

  /// Return the earliest timing of a reply to a statuses query. Logs the time if an `expired` in the reply needs it.
  func replyTiming(
    _ slot: ChannelSlot,
    saying results: [Result<ShownStatus, Refusal>],
    _ lane: ReplyLane
  ) -> ReplyLane.Timing {
    var expiry = Timestamp.none
    for case .success(let status) in results where status.acknowledgement == .expired {
      expiry = max(expiry, state[slot].acknowledgementTable.expiresAt(status.sequence))
    }
    return replyTiming(lastEffect(slot), revealingExpiryAt: expiry, lane)
  }

  /// Return the earliest timing of a reply that reveals an expiry at `expiry`: when a batch of that time or later is
  /// durable. Otherwise a restart with an earlier clock could take the expiry back (R20). Begins a batch if none has
  /// that time yet.
  ///
  /// - Parameters:
  ///   - last: last effect that the reply reveals.
  ///   - expiry: latest expiry in the reply; none if nothing has expired.
  func replyTiming(_ last: LogIndex, revealingExpiryAt expiry: Timestamp, _ lane: ReplyLane) -> ReplyLane.Timing {
    let replyTiming = replyTiming(last)
    guard expiry > log.durableTime else { return replyTiming }
    guard expiry > log.closedTime else {
      return replyTiming == .afterNextCommit ? .afterNextCommit : .afterCurrentCommit
    }
    // An open batch closes with the shard's time, which has reached the expiry.
    if !log.hasOpenBatch { logTimeNow(session: sessions.index(of: lane)) }
    return .afterNextCommit
  }
}
