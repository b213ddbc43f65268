internal import NIOCore
internal import ReceiptModel
internal import ReceiptWire

/// Imports (Proto/frames.md, 0x60 to 0x63). Each record of a request is decided and applied by itself, so that the next
/// one is decided on its result; all are in one batch. Nothing is told to subscribers or to the feed.
extension ShardEngine {
  /// - Parameter hold: a held channel of this name, whose hold ends with the creation.
  func importChannel(
    _ request: inout Request,
    cid: RawSpan,
    _ slot: ChannelSlot?,
    ending hold: (deletion: HeldDeletion, slot: ChannelSlot)? = nil
  ) throws(WireError) -> Outcome {
    let fields = try ImportChannelRequest(&request.fields)
    let isNew = slot == nil
    // The original was applied, and the channel was deleted since.
    if isNew, request.isDuplicate { return refused(.channelNotFound, nil) }
    if let hold { state.consumers.decideEnd(hold.deletion, into: &request.effects) }
    do {
      try state.decideImport(
        channel: Self.text(cid),
        in: slot,
        options: fields.options,
        created: fields.created,
        at: advanceTime(),
        into: &request.effects
      )
    } catch {
      return refused(error, slot)
    }
    if !request.isDuplicate {
      sessions.recordDecision(request)
      applyImported(request.effects, to: slot ?? hold?.slot, request.session)
    }
    return reply(request, replyTiming(log.last)) { $0.writeFlag(isNew) }
  }

  func importMessages(_ request: inout Request, _ slot: ChannelSlot) throws(WireError) -> Outcome {
    try importRecords(TransferredMessage.self, &request, slot) { message, effects throws(Refusal) in
      guard Self.isValid(message) else { return .invalidField }
      guard !isBeingErased(message.sender, in: slot) else { throw .userErased }
      try state.decideImport(message, in: slot, at: state.time, into: &effects)
      return nil
    }
  }

  func importAcknowledgements(_ request: inout Request, _ slot: ChannelSlot) throws(WireError) -> Outcome {
    try importRecords(TransferredAcknowledgement.self, &request, slot) { record, effects throws(Refusal) in
      guard Self.isValid(record.message, Identifier.isMessage), Self.isValid(record.user, Identifier.isUser),
        record.note.utf8.count <= Acknowledgement.noteLengthMax
      else { return .invalidField }
      try state.decideImport(record, in: slot, at: state.time, into: &effects)
      return nil
    }
  }

  func importMembers(_ request: inout Request, _ slot: ChannelSlot) throws(WireError) -> Outcome {
    var imported: ShardState.ImportedRow?
    return try importRecords(TransferredMember.self, &request, slot) { member, effects throws(Refusal) in
      imported = nil
      guard Self.isValid(member) else { return .invalidField }
      guard !isBeingErased(member.user, in: slot) else { throw .userErased }
      imported = try state.decideImport(member, in: slot, at: state.time, into: &effects)
      return nil
    } applied: { session in
      guard let imported else { return }
      // Each call may seal the tail that the one before has filled.
      for start in stride(from: 0, to: imported.steps.count, by: ShardState.importedStepsMax) {
        let end = min(start + ShardState.importedStepsMax, imported.steps.count)
        var effects: [Effect] = []
        state.decideImport(imported.steps[start..<end], of: imported.row, in: imported.slot, into: &effects)
        applyImported(effects, to: slot, session)
      }
    }
  }

  /// Import a list of records.
  ///
  /// - Parameters:
  ///   - decide: appends a record's effects, or returns the code of its refusal.
  ///   - applied: called after a record's effects are applied.
  private func importRecords<Record: TransferRecord>(
    _: Record.Type,
    _ request: inout Request,
    _ slot: ChannelSlot,
    _ decide: (Record, inout [Effect]) throws(Refusal) -> ErrorCode?,
    applied: (Int32) -> Void = { _ in }
  ) throws(WireError) -> Outcome {
    let records = try request.fields.records(Record.self)
    try request.fields.end()
    guard records.count <= WireLimits.importedMax else {
      return .refused(.invalidField, "at most \(WireLimits.importedMax) records")
    }
    loop.budget.useEntries(records.count)
    guard request.isDuplicate || !state.outbox.isFull else { return OutgoingChanges.refusedFull }
    advanceTime()
    sessions.recordDecision(request)
    var codes: [ErrorCode?] = []
    codes.reserveCapacity(records.count)
    for record in records {
      request.effects.removeAll(keepingCapacity: true)
      do throws(Refusal) {
        codes.append(try decide(record, &request.effects))
      } catch {
        codes.append(Self.code(error))
        continue
      }
      // What a duplicate would change now was changed by others since.
      guard !request.isDuplicate, !request.effects.isEmpty else { continue }
      applyImported(request.effects, to: slot, request.session)
      applied(request.session)
      refresh(slot)
    }
    return outgoing.replyWhenIndexed(request, slot) { $0.writeImportReply(codes) }
  }

  private func applyImported(_ effects: [Effect], to slot: ChannelSlot?, _ session: Int32) {
    guard !effects.isEmpty else { return }
    applyEffects(effects, to: slot, session: session, isPublished: false)
  }

  // MARK: Validation

  private static func isValid(_ message: TransferredMessage) -> Bool {
    isValid(message.id, Identifier.isMessage) && (message.sender.isEmpty || isValid(message.sender, Identifier.isUser))
      && (message.parent.isEmpty || isValid(message.parent, Identifier.isMessage))
      && message.mentions.count <= WireLimits.mentionsMax
      && message.mentions.allSatisfy { isValid($0, Identifier.isUser) }
  }

  private static func isValid(_ member: TransferredMember) -> Bool {
    isValid(member.user, Identifier.isUser) && (member.role.isEmpty || isValid(member.role, Identifier.isRole))
      && [member.thread, member.read, member.delivered, member.unreadFrom].allSatisfy {
        $0.isEmpty || isValid($0, Identifier.isMessage)
      }
      && [member.unreadEpoch, member.readMoves, member.deliveredMoves].allSatisfy { $0 <= TransferredMember.countMax }
  }
}
