internal import NIOCore
internal import ReceiptModel
internal import ReceiptWire

/// Messages of a channel: registered, listed, deleted and truncated, and their statuses.
extension ShardEngine {
  func register(_ request: inout Request, _ slot: ChannelSlot) throws(WireError) -> Outcome {
    let fields = try RegisterMessageRequest(&request.fields)
    let parent = try Self.thread(&request)
    try request.fields.end()
    if let refusal = Self.refusal(of: fields) { return refusal }
    if !request.isDuplicate, let refusal = refusal(toRegister: fields, slot) { return refusal }
    let (id, sender) = (fields.message, fields.sender)
    let registration: ShardState.Registration
    do throws(Refusal) {
      let message = NewMessage(
        id: id,
        sender: sender,
        parent: parent,
        created: fields.created,
        isSilent: fields.isSilent,
        requestsAcknowledgement: fields.requestsAcknowledgement,
        movesPosition: fields.movesPosition,
        mentions: fields.mentions,
        reminders: fields.reminders
      )
      registration = try state.decideRegister(slot, message, at: advanceTime(), into: &request.effects)
    } catch {
      // The original was applied, or refused so long ago that the session forgot it. The sender may have been erased
      // since.
      if request.isDuplicate, error == .messageConflict { return .unknownOutcome }
      return refused(error, slot)
    }
    applyCommand(slot, request)
    var isNew = false
    if case .created = registration { isNew = true }
    guard !isNew || !request.isDuplicate else { return .unknownOutcome }
    let targetSlot = self.targetSlot(of: id, in: slot)
    // Nobody but its sender can have read or received a new message.
    let status =
      isNew
      ? .sent : state.status(targetSlot, registration.sequence, viewer: state.sender(sender, in: targetSlot)).status
    return outgoing.replyWhenIndexed(request, slot) {
      RegistrationReply(
        isNew: isNew,
        sequence: registration.sequence,
        status: status,
        acknowledgementRequestRefusal: state.acknowledgementRequestRefusal(targetSlot, registration.sequence)
      )
      .write(into: &$0)
    }
  }

  /// Refuse a message with an invalid field; nil if all are valid.
  private static func refusal(of fields: borrowing RegisterMessageRequest) -> Outcome? {
    guard Identifier.isMessage(fields.message) else {
      return .refused(.invalidField, "\(Identifier.messageRange)")
    }
    guard fields.sender.isEmpty || Identifier.isUser(fields.sender) else {
      return .refused(.invalidField, "\(Identifier.userRange)")
    }
    guard RegisterMessageRequest.areFlags(fields.flags) else {
      let range = """
        flags: 1 (silent), 2 (receipt), 4 (moves no position), 8 (mentions all) or 16 (mentions follow), 32 (reminders \
        follow)
        """
      return .refused(.notImplemented, range)
    }
    guard case .users(let users) = fields.mentions else { return nil }
    guard (1...WireLimits.mentionsMax).contains(users.count), users.allSatisfy({ isValid($0, Identifier.isUser) })
    else {
      return .refused(.invalidField, "mentions: 1 to \(WireLimits.mentionsMax) users")
    }
    return nil
  }

  /// Refuse a message that names a user who is being erased, or whose sender is new while the outbox is full; nil if
  /// it may be registered.
  private func refusal(toRegister fields: borrowing RegisterMessageRequest, _ slot: ChannelSlot) -> Outcome? {
    if case .users(let users) = fields.mentions, waiting.hasSlices,
      users.contains(where: { isBeingErased($0, in: slot) })
    {
      return Self.refusedErasing
    }
    if state.outbox.isFull, state.isNew(fields.sender, in: slot) { return OutgoingChanges.refusedFull }
    return isBeingErased(fields.sender, in: slot) ? Self.refusedErasing : nil
  }

  func deleteMessage(_ request: inout Request, _ slot: ChannelSlot) throws(WireError) -> Outcome {
    let id = try MessageRequest(&request.fields).message
    let sequence: SequenceNumber
    do {
      sequence = try state.decideDelete(slot, id: id, at: advanceTime(), into: &request.effects)
    } catch {
      return refused(error, slot)
    }
    applyCommand(slot, request)
    return reply(request, replyTiming(slot)) {
      DeleteMessageReply(sequence: sequence).write(into: &$0)
    }
  }

  func truncateChannel(_ request: inout Request, _ slot: ChannelSlot) throws(WireError) -> Outcome {
    let message = try MessageRequest(&request.fields).message
    do throws(Refusal) {
      let time = advanceTime()
      try state[slot].decideTruncate(before: message, at: time, into: &request.effects)
    } catch {
      return refused(error, slot)
    }
    applyCommand(slot, request)
    return reply(request, replyTiming(slot)) { $0.writeChannel(slot, in: state) }
  }

  func listMessages(_ request: inout Request, _ slot: ChannelSlot) throws(WireError) -> Outcome {
    let fields = try ListMessagesRequest(&request.fields)
    guard Self.pageRange.contains(fields.limit) else { return Self.refusedLimit }
    let page = state.listedMessages(slot, limit: Int(fields.limit), cursor: fields.cursor)
    return reply(request, replyTiming(slot)) { buffer in
      buffer.writeVarint(page.messages.count)
      for entry in page.messages {
        let flags = state[entry.slot].messages.flags(entry.sequence)
        var shown = MessageEntryFields.Flags()
        if flags.contains(.silent) { shown.insert(.silent) }
        if flags.contains(.requestsAcknowledgement) { shown.insert(.requestsAcknowledgement) }
        state.withMessage(entry.slot, entry.sequence) { message in
          state.withMessage(slot, entry.parent) { parent in
            state.withSender(entry.slot, of: entry.sequence) { sender in
              MessageEntryFields.write(
                entry.sequence,
                message: message,
                parent: parent,
                sender: sender,
                createdAt: state[entry.slot].messages.createdAt(entry.sequence),
                flags: shown,
                into: &buffer
              )
            }
          }
        }
      }
      buffer.writeMessageListCursor(page.next)
    }
  }

  func statuses(_ request: inout Request, _ slot: ChannelSlot) throws(WireError) -> Outcome {
    let fields = try StatusesRequest(&request.fields)
    guard fields.viewer.isValid else { return Self.refusedViewer }
    guard (1...WireLimits.entriesMax).contains(fields.messages.count) else {
      return .refused(.invalidField, "messages: 1 to \(WireLimits.entriesMax)")
    }
    guard !isRevoked(fields.viewer.user, request) else { return refused(.tokenRevoked, slot) }
    var results: [Result<ShownStatus, Refusal>] = []
    results.reserveCapacity(fields.messages.count)
    do {
      let viewer = try state.viewer(fields.viewer.user, isServer: fields.viewer.isServer, in: slot)
      fields.messages.forEach {
        let targetSlot = targetSlot(of: $0, in: slot)
        results.append(state.askedStatus(targetSlot, message: $0, viewer: viewer))
      }
      advanceTime()
      if let outcome = fillStatuses(request, slot, viewer, &results) { return outcome }
    } catch {
      return refused(error, slot)
    }
    return reply(request, replyTiming(slot, saying: results, request.lane)) { buffer in
      buffer.writeVarint(results.count)
      for result in results {
        switch result {
        case .success(let status): buffer.writeStatusResult(status)
        case .failure(let refusal): buffer.writeStatusResult(refused: Self.code(refusal))
        }
      }
    }
  }

  /// Count the messages of a statuses query, all in one pass. Each message with an acknowledgement request takes
  /// another pass over its acknowledgements, and each reply one over its thread.
  ///
  /// - Returns: nil when all are counted; otherwise the query waits for its next slice.
  private func fillStatuses(
    _ request: borrowing Request,
    _ slot: ChannelSlot,
    _ viewer: ChannelViewer,
    _ results: inout [Result<ShownStatus, Refusal>]
  ) -> Outcome? {
    var done = 0
    if case .statuses(let known, let count)? = request.attempt?.progress {
      // A message that was deleted meanwhile has no status any more.
      for index in 0..<count {
        if case .success = results[index] { results[index] = known[index] }
      }
      done = count
    }
    let granted = max(loop.budget.rows, configuration.shortRows)
    let rows = state[slot].rows.rowCount
    var remaining = granted - rows
    var end = done
    while end < results.count {
      if case .success(let asked) = results[end] {
        let own = state.rowsCounted(slot, for: asked)
        // Each slice completes at least one message.
        if remaining < own, end > done { break }
        remaining -= own
      }
      end += 1
    }
    loop.budget.useRows(granted - remaining)
    var part = Array(results[done..<end])
    state.statuses(slot, viewer: viewer, &part)
    results.replaceSubrange(done..<end, with: part)
    guard end < results.count else { return nil }
    return waiting.add(request, for: .slice(slot), progress: .statuses(results, count: end))
  }
}
