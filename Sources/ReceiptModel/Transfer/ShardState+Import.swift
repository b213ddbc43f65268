/// Imports channels, messages and acknowledgements with their original times (docs/api/import-export.md). Importing
/// moves no position, and what is there already is not changed, so the same lines again change nothing.
///
/// Assign the effects of each record before deciding the next one.
extension ShardState {
  /// Create a channel with its original time, or merge options into an existing one.
  ///
  /// - Parameters:
  ///   - slot: nil: there is no such channel.
  ///   - created: none: now.
  package func decideImport(
    channel cid: String,
    in slot: ChannelSlot?,
    options: OptionPatch,
    created: Timestamp,
    at time: Timestamp,
    into effects: inout [Effect]
  ) throws(Refusal) {
    if let slot { return try decideUpdate(slot, options: options, members: [], at: time, into: &effects) }
    guard created <= time else { throw .timeInFuture }
    effects.append(.shard(.countersAssigned(nextChannel: ChannelNumber(nextChannel.rawValue + 1), time: time)))
    effects.append(.channel(nextChannel, .channelAssigned(cid: cid, created: created.or(time), own: options)))
  }

  /// Import a message or a reply. A registration time before that of the message before it counts as equal to that one;
  /// the time for display stays as given (R20).
  package func decideImport(
    _ message: TransferredMessage,
    in slot: ChannelSlot,
    at time: Timestamp,
    into effects: inout [Effect]
  ) throws(Refusal) {
    if let known = try knownMessage(message, in: slot) {
      return try decideKnown(message, known.sequence, in: known.slot, at: time, into: &effects)
    }
    if settings.isErasing(message.sender) { throw .userErased }
    guard message.registeredAt <= time, message.deletedAt <= time else { throw .timeInFuture }
    var parent = SequenceNumber.zero
    var target: ChannelSlot? = slot
    if !message.parent.isEmpty {
      parent = try importedParent(message.parent, in: slot)
      target = self[slot].threads.index(of: parent).map { slot.thread($0) }
      guard target != nil || self[slot].threads.hasRoom else { throw .limitReached(.threadsPerChannel) }
    }
    let newest = target.map { self[$0].messages.newest } ?? .zero
    guard target.map({ self[$0].messages.hasRoom }) ?? true else { throw .limitReached(.messagesPerChannel) }
    if message.sequence != .zero, message.sequence != newest.next {
      throw message.sequence > newest ? .importGap : .importConflict
    }
    var record = record(of: message, after: target.map { self[$0].messages.newestRegisteredAt } ?? .none, at: time)
    if record.flags.contains(.requestsAcknowledgement) {
      if parent != .zero {
        record.flags = record.flags.setting(.requestsAcknowledgement, false).union(.acknowledgementNotAllowed)
      } else if let lifetime = options(slot).receiptTTL, record.acknowledgementExpiresAt == .none {
        let expiry = record.registeredAt.milliseconds + Int64(lifetime) * 1_000
        record.acknowledgementExpiresAt = Timestamp(milliseconds: expiry)
      }
    }
    let start = effects.count
    let number = self[slot].number
    effects.append(.channel(number, .messageAssigned(newest.next, record)))
    if record.flags.isCountable, let effect = mentions(of: message, newest.next, in: target) {
      effects.append(.channel(number, effect))
    }
    if parent != .zero { effects.wrapInThread(parent, from: start) }
    var sender = message.sender
    sender.withUTF8 { decideSender($0.span.bytes, in: target ?? slot, into: &effects) }
  }

  private func record(of message: TransferredMessage, after last: Timestamp, at time: Timestamp) -> MessageRecord {
    let given = message.registeredAt.or(time)
    let registered = max(given, last)
    let isDeleted = message.flags.contains(.deleted)
    var flags = MessageRecord.Flags().setting(.silent, message.flags.contains(.silent)).setting(.deleted, isDeleted)
      .setting(.keepsSenderPosition, message.flags.contains(.keepsSenderPosition))
    if message.flags.contains(.requestsAcknowledgement) {
      if message.flags.contains(.requestNotAllowed) {
        flags.insert(.acknowledgementNotAllowed)
      } else {
        flags.insert(message.flags.contains(.requestOverLimit) ? .acknowledgementOverLimit : .requestsAcknowledgement)
      }
    }
    // Of a deleted message the column has the time of the deletion.
    let shown = isDeleted ? message.deletedAt : message.createdAt.or(given)
    return MessageRecord(
      id: message.id,
      sender: message.sender,
      flags: flags,
      registeredAt: registered,
      createdAt: shown == registered ? .none : shown,
      acknowledgementExpiresAt: message.expiresAt,
      mentions: message.flags.contains(.mentionsAll) && flags.isCountable ? .all : .nobody
    )
  }

  /// Return the message with the id of an imported one, also a deleted one.
  private func knownMessage(
    _ message: TransferredMessage,
    in slot: ChannelSlot
  ) throws(Refusal) -> (slot: ChannelSlot, sequence: SequenceNumber)? {
    if let sequence = find(message: message.id, in: slot) {
      guard message.parent.isEmpty else { throw .messageConflict }
      return (slot, sequence)
    }
    var id = message.id
    guard let index = id.withUTF8({ self[slot].threads.index(ofReply: $0.span.bytes) }),
      let sequence = find(message: message.id, in: slot.thread(index))
    else { return nil }
    guard find(message: message.parent, in: slot) == self[slot].threads[index].parent else { throw .messageConflict }
    return (slot.thread(index), sequence)
  }

  /// Compare an imported message with the known one of its id. Only its deletion is made up for.
  private func decideKnown(
    _ message: TransferredMessage,
    _ sequence: SequenceNumber,
    in slot: ChannelSlot,
    at time: Timestamp,
    into effects: inout [Effect]
  ) throws(Refusal) {
    guard message.sequence == .zero || message.sequence == sequence else { throw .importConflict }
    let flags = self[slot].messages.flags(sequence)
    let sender = self[slot].users.text(self[slot].messages.sender(sequence))
    guard sender.isExactly(message.sender), flags.contains(.silent) == message.flags.contains(.silent),
      flags.askedForAcknowledgement == message.flags.contains(.requestsAcknowledgement)
    else { throw .messageConflict }
    guard message.flags.contains(.deleted), !flags.contains(.deleted) else { return }
    guard message.deletedAt <= time else { throw .timeInFuture }
    let start = effects.count
    effects.append(.channel(self[slot].number, .messageDeleted(sequence, at: message.deletedAt.or(time))))
    if slot.isThread { effects.wrapInThread(self[slot].parent, from: start) }
  }

  /// Return the parent of an imported reply, which may be deleted.
  func importedParent(_ id: String, in slot: ChannelSlot) throws(Refusal) -> SequenceNumber {
    if let sequence = find(message: id, in: slot) { return sequence }
    var id = id
    let isReply = id.withUTF8 { self[slot].threads.index(ofReply: $0.span.bytes) != nil }
    throw isReply ? .nestedReply : .messageNotFound
  }

  func find(message id: String, in slot: ChannelSlot) -> SequenceNumber? {
    var id = id
    return id.withUTF8 { self[slot].messages.find($0.span.bytes) }
  }

  // MARK: Mentions

  /// Return the effect that assigns the mentions by name of an imported message. Rows come after messages in an import,
  /// so a user without a row is kept as a hash until their row comes.
  ///
  /// - Parameter slot: nil: the thread begins with this reply.
  private func mentions(
    of message: TransferredMessage,
    _ sequence: SequenceNumber,
    in slot: ChannelSlot?
  ) -> ChannelEffect? {
    var rows: Set<UInt32> = []
    var pending: Set<UInt64> = []
    for user in message.mentions where !user.isExactly(message.sender) {
      if let slot, let row = self[slot].row(of: user) {
        if self[slot].rows.joined(row) < sequence { rows.insert(row.rawValue) }
      } else {
        var user = user
        pending.insert(user.withUTF8 { StableHash.hash($0.span.bytes) })
      }
    }
    guard !rows.isEmpty || !pending.isEmpty else { return nil }
    return .mentionsAssigned(sequence, rows: rows.sorted(), pending: pending.sorted())
  }

  /// Append the effects that give an imported row the mentions that wait for its user: of messages since the join.
  ///
  /// - Parameter left: when the member left; none: a current member.
  func decidePendingMentions(
    of user: String,
    _ row: MemberOrdinal,
    joined: SequenceNumber,
    left: Timestamp = .none,
    in slot: ChannelSlot,
    into effects: inout [Effect]
  ) {
    var user = user
    let hash = user.withUTF8 { StableHash.hash($0.span.bytes) }
    for sequence in self[slot].messages.mentions.pending(hash) where sequence > joined {
      guard left == .none || self[slot].messages.registeredAt(sequence) <= left else { continue }
      var rows: [UInt32] = []
      if case .rows(let known) = self[slot].messages.mentions.mentions(sequence) { rows = known }
      // A new row's number is higher than all others.
      rows.append(row.rawValue)
      let pending = self[slot].messages.mentions.pendingUsers(of: sequence).filter { $0 != hash }
      effects.append(.channel(self[slot].number, .mentionsAssigned(sequence, rows: rows, pending: pending)))
    }
  }

  // MARK: Acknowledgements

  /// Import a current member's acknowledgement.
  package func decideImport(
    _ acknowledgement: TransferredAcknowledgement,
    in slot: ChannelSlot,
    at time: Timestamp,
    into effects: inout [Effect]
  ) throws(Refusal) {
    guard acknowledgement.at <= time else { throw .timeInFuture }
    guard let row = self[slot].row(of: acknowledgement.user) else { throw .notAMember }
    guard let sequence = find(message: acknowledgement.message, in: slot) else { throw .messageNotFound }
    let messages = self[slot].messages.flags(sequence)
    guard !messages.contains(.deleted) else { throw .messageDeleted }
    guard self[slot].acknowledgementTable.isRequested(sequence) else { throw .acknowledgementNotRequested }
    guard self[slot].messages.sender(sequence) != self[slot].rows.user(row) else { throw .ownMessage }
    guard self[slot].rows.joined(row) < sequence else { throw .notExpected }
    guard !self[slot].acknowledgementTable.hasAcknowledged(sequence, row) else { return }
    let keptMax = options(slot).receiptMembersMax.map { Int($0) }
    // Beyond the limit only the acknowledgement itself is kept.
    let kept = self[slot].acknowledgementTable.keptCount(sequence, isHidden: false)
    let keeps = acknowledgement.isHidden || keptMax.map { kept < $0 } ?? true
    let at = acknowledgement.at == .none ? .none : max(acknowledgement.at, self[slot].messages.registeredAt(sequence))
    let record = Acknowledgement(
      row: row,
      at: keeps ? at : .none,
      isHidden: acknowledgement.isHidden,
      note: keeps ? acknowledgement.note : ""
    )
    effects.append(.channel(self[slot].number, .acknowledged(sequence, record)))
  }
}
