internal import NIOCore
internal import ReceiptModel
internal import ReceiptWire

/// Marks: read, delivered and unread, in channels and in threads (Proto/frames.md, flag `thread`; R4, R15).
extension ShardEngine {
  /// Perform mark-read, mark-unread and mark-delivered, in a channel or in one of its threads.
  func mark(_ request: inout Request, _ slot: ChannelSlot) throws(WireError) -> Outcome {
    let fields = try MarkRequest(&request.fields, hasEpoch: request.kind != .markDelivered)
    let (user, message) = (fields.user, fields.message)
    let parent = try Self.thread(&request)
    try request.fields.end()
    if let refusal = refusal(of: user, request, slot) { return refusal }
    guard parent.isEmpty else { return mark(&request, slot, under: parent, fields) }
    let marked: ShardState.MarkResult
    do throws(Refusal) {
      let time = advanceTime()
      switch request.kind {
      case .markRead:
        marked = try state.decideRead(
          slot,
          user: user,
          message: message,
          epoch: fields.epoch,
          at: time,
          into: &request.effects
        )
      case .markDelivered:
        marked = try state.decideDelivered(slot, user: user, message: message, at: time, into: &request.effects)
      default:
        marked = ShardState.MarkResult(
          row: message.isEmpty
            ? try state.decideFlagUnread(slot, user: user, epoch: fields.epoch, into: &request.effects)
            : try state.decideUnread(slot, user: user, message: message, epoch: fields.epoch, into: &request.effects)
        )
      }
    } catch {
      // A reply's id alone identifies its thread.
      if error == .messageNotFound, let thread = self.thread(withReply: message, in: slot, for: user) {
        return mark(&request, slot, in: thread, fields)
      }
      return refused(error, slot)
    }
    // If this duplicate names its message and still moves a watermark, the original was not applied. Without a message
    // the newest may differ by now; a marker may have been set again.
    guard !request.isDuplicate || message.isEmpty || !request.effects.contains(where: \.movesWatermark) else {
      return .unknownOutcome
    }
    applyCommand(slot, request)
    return reply(request, replyTiming(slot)) { buffer in
      buffer.writeMarkReply(state.uncounted(marked, in: slot)) {
        $0.writeRow(state.ownRow(slot, marked.row), slot, in: state)
      }
    }
  }

  /// Read the parent of the request's thread, which follows the kind's fields; empty if the request is about no
  /// thread.
  @inline(__always)
  @_lifetime(copy request)
  @_lifetime(request: copy request)
  static func thread(_ request: inout Request) throws(WireError) -> RawSpan {
    guard request.header.flags.contains(.thread) else { return try request.fields.raw(0) }
    let parent = try request.fields.string()
    guard !parent.isEmpty else { throw .badValue(.text) }
    return parent
  }

  /// Mark in the thread under a message.
  private func mark(
    _ request: inout Request,
    _ slot: ChannelSlot,
    under parent: RawSpan,
    _ fields: borrowing MarkRequest
  ) -> Outcome {
    do throws(Refusal) {
      let member = try state.member(fields.user, in: slot)
      if let thread = try self.thread(of: parent, in: slot, for: member) {
        return mark(&request, slot, in: thread, fields)
      }
      try state.checkMark(
        withoutThread: slot,
        user: fields.user,
        message: fields.message,
        isUnread: request.kind == .markUnread
      )
    } catch {
      return refused(error, slot)
    }
    return replyWithoutThread(request, slot, user: fields.user)
  }

  /// Answer a mark in a thread that does not exist yet, because the message has no reply: it changes nothing.
  private func replyWithoutThread(_ request: borrowing Request, _ slot: ChannelSlot, user: RawSpan) -> Outcome {
    applyCommand(slot, request)
    return reply(request, replyTiming(slot)) { buffer in
      buffer.writeMarkReply(.noReplies) {
        $0.writeEmptyRow(user: user, joinedAt: state.joinedAt(user, in: slot))
      }
    }
  }

  /// Mark in a thread.
  private func mark(
    _ request: inout Request,
    _ slot: ChannelSlot,
    in thread: ChannelSlot,
    _ fields: borrowing MarkRequest
  ) -> Outcome {
    let (user, message) = (fields.user, fields.message)
    do throws(Refusal) {
      let time = advanceTime()
      switch request.kind {
      case .markRead:
        try state.decideRead(
          inThread: thread,
          user: user,
          message: message,
          epoch: fields.epoch,
          at: time,
          into: &request.effects
        )
      case .markDelivered:
        try state.decideDelivered(inThread: thread, user: user, message: message, at: time, into: &request.effects)
      default:
        try state.decideUnread(
          inThread: thread,
          user: user,
          message: message,
          epoch: fields.epoch,
          into: &request.effects
        )
      }
    } catch {
      return refused(error, slot)
    }
    applyCommand(slot, request)
    // Look the row up again: a duplicate's original may have added the member, who may have left since.
    let row = state[thread].row(of: user)
    let uncounted = request.kind == .markUnread ? nil : state.uncounted(thread, user: user, message: message)
    return reply(request, replyTiming(slot)) { buffer in
      buffer.writeMarkReply(uncounted) {
        guard let row else { return $0.writeEmptyRow(user: user, joinedAt: state.joinedAt(user, in: slot)) }
        $0.writeRow(state.ownRow(thread, row), thread, in: state)
      }
    }
  }

  func markUnreadSince(_ request: inout Request, _ slot: ChannelSlot) throws(WireError) -> Outcome {
    let fields = try MarkUnreadSinceRequest(&request.fields)
    let user = fields.user
    let parent = try Self.thread(&request)
    try request.fields.end()
    if let refusal = refusal(of: user, request, slot) { return refusal }
    advanceTime()
    var targetSlot = slot
    do throws(Refusal) {
      let member = try state.member(user, in: slot)
      if !parent.isEmpty {
        guard let thread = try self.thread(of: parent, in: slot, for: member) else {
          let none = parent.extracting(first: 0)
          try state.checkMark(withoutThread: slot, user: user, message: none, isUnread: true)
          return replyWithoutThread(request, slot, user: user)
        }
        targetSlot = thread
      }
      try state.decideUnread(targetSlot, user: user, since: fields.since, epoch: fields.epoch, into: &request.effects)
    } catch {
      return refused(error, slot)
    }
    // The messages in question are scanned one by one.
    loop.budget.useEntries(Int(state[targetSlot].messages.newest.rawValue) / Self.messagesPerEntry)
    applyCommand(slot, request)
    let row = state[targetSlot].row(of: user)
    return reply(request, replyTiming(slot)) { buffer in
      buffer.writeMarkReply(nil) {
        guard let row else { return $0.writeEmptyRow(user: user, joinedAt: state.joinedAt(user, in: slot)) }
        $0.writeRow(state.ownRow(targetSlot, row), targetSlot, in: state)
      }
    }
  }

  /// Messages whose times are compared per unit of the loop's budget; a unit is one channel's unread count.
  private static let messagesPerEntry = 1_024
}

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
        if error == .receiptExpired {
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
    if !log.hasOpenBatch { logTimeNow(session: sessions.position(of: lane)) }
    return .afterNextCommit
  }
}
