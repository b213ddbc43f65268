/// Names and privacy of records, as they are when a record is sent (R7, R8, R21).
extension ShardState {
  /// Where a record's names are found.
  package struct FeedNames {
    /// The slot of the channel or thread; nil for a user's record.
    package var slot: ChannelSlot?
    /// The member; nil: none, or erased.
    package var row: MemberOrdinal?
    /// The status of a run of messages that others may see now (R7).
    package var status = MessageStatus.sent
    /// The message; zero: none, or one that is gone.
    package var message = SequenceNumber.zero
    /// Number of the user's settings.
    package var user: UInt32?
    /// The sender's moves that others may see, of ``FeedRecordKind/messageRegistered``.
    package var moves = ChannelEvent.SenderMoves()
    /// The members whom a reminder still may name, of ``FeedRecordKind/reminderDue``.
    package var members: [MemberOrdinal] = []
    /// The row as others see it, of ``FeedRecordKind/rowChanged``.
    package var shown: ShownRow?
  }

  /// Return where a record's names are found; nil: the record is not told any more.
  ///
  /// - Parameter slot: the record's channel, whose settings are applied; nil for a user's record.
  package mutating func feedNames(of record: FeedRecord, in slot: ChannelSlot?) -> FeedNames? {
    if record.kind == .userUpdated {
      guard let number = record.member, Int(number) < settings.count, !settings.isNameless(number) else { return nil }
      return FeedNames(user: number)
    }
    if record.kind == .userErased || record.kind == .channelDeleted || record.kind == .gap { return FeedNames() }
    guard let slot, let target = targetSlot(ofThread: record.thread, in: slot) else { return nil }
    refresh(target)
    var names = FeedNames(slot: target)
    let isRegistered = record.sequence != .zero && record.sequence <= self[target].messages.newest
    // A message that a truncation has removed has no id any more.
    if isRegistered, record.sequence > self[target].messages.truncatedThrough { names.message = record.sequence }
    if record.kind == .messageRegistered { names.moves = shownMoves(of: record, in: target) }
    if record.kind == .status {
      names.status = shownStatus(of: record, in: target)
      return names
    }
    if record.kind == .reminderDue {
      // Deletion cancels it.
      guard !self[slot].isBeingDeleted, !isGone(record.sequence, thread: record.thread, in: slot) else { return nil }
      names.members = namedMembers(of: record, in: target)
      // Of several parts each is told, even if nobody is left to name.
      return names.members.isEmpty && record.reminder?.partCount == 1 ? nil : names
    }
    guard let member = record.member else { return names }
    let row = MemberOrdinal(member)
    guard Int(member) < self[target].rows.rowCount else { return nil }
    if self[target].rows.user(row) != .nobody { names.row = row }
    switch record.kind {
    case .read: return names.row != nil && isShown(.read, row, target) ? names : nil
    case .delivered: return names.row != nil && isShown(.delivered, row, target) ? names : nil
    case .acknowledged: return names.row != nil && !self[target].rows.hidesRead(row) ? names : nil
    case .rowChanged:
      guard names.row != nil, self[target].rows.isActive(row) else { return nil }
      names.shown = shownRow(target, row, withOwnDetails: false)
      return names
    case .memberRemoved: return names
    default: return names.row != nil ? names : nil
    }
  }

  /// Return the members of a reminder who are still there and do not hide what it asks for (R7, R22).
  private func namedMembers(of record: FeedRecord, in slot: ChannelSlot) -> [MemberOrdinal] {
    let condition = record.reminder?.condition ?? .unread
    let options = options(slot)
    return record.members.map(MemberOrdinal.init).filter { row in
      Int(row.rawValue) < self[slot].rows.rowCount && self[slot].rows.mayBeNamed(row, condition, options)
    }
  }

  /// Return the status of a run, or a lower one if a member has hidden since what made it so.
  private func shownStatus(of record: FeedRecord, in slot: ChannelSlot) -> MessageStatus {
    let told = MessageStatus(rawValue: UInt8(truncatingIfNeeded: record.second)) ?? .sent
    // Without settings nobody hides.
    guard told > .sent, !settings.isEmpty, record.sequence > self[slot].messages.truncatedThrough,
      record.sequence <= self[slot].messages.newest, !self[slot].isGone(record.sequence)
    else { return told }
    return min(told, status(slot, record.sequence).status)
  }

  /// Return which of a message's moves of its sender others may see now.
  private func shownMoves(of record: FeedRecord, in slot: ChannelSlot) -> ChannelEvent.SenderMoves {
    let moved = ChannelEvent.SenderMoves(rawValue: UInt8(truncatingIfNeeded: record.first))
    guard !moved.isEmpty, record.sequence <= self[slot].messages.newest,
      let row = withSender(slot, of: record.sequence, { self[slot].row(of: $0) })
    else { return ChannelEvent.SenderMoves() }
    var shown = ChannelEvent.SenderMoves()
    if moved.contains(.read), isShown(.read, row, slot) { shown.insert(.read) }
    if moved.contains(.delivered), isShown(.delivered, row, slot) { shown.insert(.delivered) }
    return shown
  }

  /// Return whether others may see this kind of a row's moves. A member who left is not asked any more.
  private func isShown(_ move: Move, _ row: MemberOrdinal, _ slot: ChannelSlot) -> Bool {
    self[slot].rows.shows(move, row, options(slot))
  }

  /// Call `body` with the user id of a record's member; empty: none.
  package func withUser<Result>(_ names: FeedNames, _ body: (RawSpan) -> Result) -> Result {
    if let user = names.user { return settings.withUser(user, body) }
    if let slot = names.slot, let row = names.row { return withUser(slot, row, body) }
    return body(RawSpan())
  }

  /// Return which kinds of receipts a user shows.
  package func shows(_ user: UInt32) -> (read: Bool, delivered: Bool) {
    let hides = settings.hides(user)
    return (!hides.read, !hides.delivered)
  }
}
