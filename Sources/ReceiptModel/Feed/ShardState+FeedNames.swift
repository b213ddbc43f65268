/// Names and privacy of records, as they are when a record is sent (R7, R8, R21).
extension ShardState {
  /// Where a record's names are found.
  package struct FeedNames {
    /// The slot of the channel or thread; nil for a user's record.
    package var slot: ChannelSlot?
    /// The member; nil: none, or erased.
    package var row: MemberOrdinal?
    /// The sender of a run of messages.
    package var sender: UserNumber?
    /// The message; zero: none, or one that is gone.
    package var message = SequenceNumber.zero
    /// Number of the user's settings.
    package var user: UInt32?
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
    guard let slot, let target = targetSlot(ofThread: record.thread, in: slot), !self[slot].isBeingDeleted else {
      return nil
    }
    refresh(target)
    var names = FeedNames(slot: target)
    let isRegistered = record.sequence != .zero && record.sequence <= self[target].messages.newest
    // A message that a truncation has removed has no id any more.
    if isRegistered, record.sequence > self[target].messages.truncatedThrough { names.message = record.sequence }
    if record.kind == .status {
      names.sender = record.member.map { UserNumber($0) }
      return names
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

  /// Return whether others may see this kind of a row's moves. A member who left is not asked any more.
  private func isShown(_ move: Move, _ row: MemberOrdinal, _ slot: ChannelSlot) -> Bool {
    self[slot].rows.shows(move, row, options(slot))
  }

  /// Call `body` with the user id of a record's member; empty: none.
  package func withUser<Result>(_ names: FeedNames, _ body: (RawSpan) -> Result) -> Result {
    if let user = names.user { return settings.withUser(user, body) }
    if let slot = names.slot {
      if let row = names.row { return withUser(slot, row, body) }
      if let sender = names.sender { return withUser(slot, sender, body) }
    }
    return body(RawSpan())
  }

  /// Return which kinds of receipts a user shows.
  package func shows(_ user: UInt32) -> (read: Bool, delivered: Bool) {
    let hides = settings.hides(user)
    return (!hides.read, !hides.delivered)
  }
}
