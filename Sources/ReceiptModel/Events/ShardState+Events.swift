/// Creation of events for the changes recorded in a batch.
extension ShardState {
  /// Return the events for the recorded changes, in the order in which they happened, computed from the current state.
  /// A row's event stands at its last change; status events follow all events that caused them. Applies users'
  /// settings to the channel and the threads concerned.
  package mutating func events(_ pending: PendingChannelEvents, in slot: ChannelSlot) -> [ChannelEvent] {
    if pending.isEmpty { return [] }
    refresh(slot)
    var ordered = pending.happened
    for change in pending.rows {
      guard let targetSlot = openTargetSlot(ofThread: change.thread, in: slot) else { continue }
      refresh(targetSlot)
      append(change, in: targetSlot, to: &ordered)
    }
    for change in pending.acknowledgementChanges where !self[slot].isGone(change.sequence) {
      let row = change.row.flatMap { self[slot].isSeenAcknowledging($0) ? $0 : nil }
      ordered.append((change.order, .acknowledgement(change.sequence, by: row, at: change.at)))
    }
    ordered.sort { $0.order < $1.order }
    var events: [ChannelEvent] = []
    for (_, event) in ordered {
      // Added and removed again: only the removal is reported.
      if case .memberAdded(let row, _) = event, !self[slot].rows.isActive(row) { continue }
      events.append(event)
    }
    appendAcknowledgements(slot, pending, to: &events)
    if let before = pending.optionsBefore { appendExposed(slot, before, pending, to: &events) }
    for change in pending.statuses {
      guard let targetSlot = openTargetSlot(ofThread: change.thread, in: slot) else { continue }
      refresh(targetSlot)
      let runs = cutAtJoin(self[targetSlot].statusRuns(change.changes, options(targetSlot)), targetSlot)
      for run in runs { events.append(.status(thread: change.thread, run, at: pending.newestShown)) }
    }
    return events
  }

  /// Return the slot of the channel or of one of its threads, unless the thread's parent is deleted.
  private func openTargetSlot(ofThread parent: SequenceNumber, in slot: ChannelSlot) -> ChannelSlot? {
    guard let targetSlot = targetSlot(ofThread: parent, in: slot) else { return nil }
    return targetSlot.isThread && isClosed(targetSlot) ? nil : targetSlot
  }

  /// Append the events for a row.
  private func append(
    _ change: PendingChannelEvents.PendingRowChange,
    in slot: ChannelSlot,
    to ordered: inout [(order: Int, event: ChannelEvent)]
  ) {
    guard Int(change.row.rawValue) < self[slot].rows.rowCount, self[slot].rows.isActive(change.row) else {
      return
    }
    // A change that others see for a reason other than a visible move takes effect now.
    let latest = PendingChannelEvents.Moment(order: .max, at: time)
    let (own, others) = (change.own ?? latest, change.shown ?? latest)
    let ownEvent = ChannelEvent.RowEvent(
      thread: change.thread,
      row: change.row,
      isRead: change.isRead,
      isUnread: change.isUnread,
      at: own.at
    )
    var event = ChannelEvent.RowEvent(
      thread: change.thread,
      row: change.row,
      showsRow: change.isShownAnew,
      at: others.at
    )
    event.hasNewSettings = change.isShownAnew
    // Others get no event for an unseen thread member, except to retract what they saw before.
    if !change.isShownAnew, !self[slot].rows.isUnseen(change.row, options(slot)) {
      let shown = shownRow(slot, change.row, withOwnDetails: false)
      event.show(shown, before: change.before ?? self[slot].joinedRow(change.row), isDelivered: change.isDelivered)
      // A new thread member who shows no reads has the position of the join, having read nothing (R7, R8).
      if event.showsRead, !self[slot].rows.shows(.read, change.row, options(slot)) {
        (event.showsRead, event.showsRow) = (false, true)
      }
    }
    for event in ChannelEvent.RowEvent.events(own: ownEvent, shown: event) {
      let isBoth = event.isForOthers && (event.isRead || event.isUnread)
      let order = isBoth ? max(own.order, others.order) : event.isForOthers ? others.order : own.order
      ordered.append((order, .row(event)))
    }
  }

  /// Append the acknowledgement requests that changed because a member left, hid or became visible again.
  private func appendAcknowledgements(
    _ slot: ChannelSlot,
    _ pending: PendingChannelEvents,
    to events: inout [ChannelEvent]
  ) {
    guard pending.reportsAllAcknowledgements || pending.doneBefore != nil else { return }
    for sequence in self[slot].acknowledgedMessages(settings) {
      let wasDone = pending.doneBefore?.contains(sequence) ?? false
      guard pending.reportsAllAcknowledgements || self[slot].acknowledgementProgress(sequence).isDone != wasDone
      else {
        continue
      }
      events.append(.acknowledgement(sequence, by: nil, at: pending.newestShown))
    }
  }

  /// Append rows that look different than under the previous options and have no event for another reason.
  private mutating func appendExposed(
    _ slot: ChannelSlot,
    _ before: ChannelTypeOptions,
    _ pending: PendingChannelEvents,
    to events: inout [ChannelEvent]
  ) {
    var targetSlots = [slot]
    for index in 0..<self[slot].threads.count where !self[slot].isClosed(index) {
      targetSlots.append(slot.thread(index))
    }
    for targetSlot in targetSlots {
      refresh(targetSlot)
      let thread = self[targetSlot].parent
      for position in 0..<self[targetSlot].rows.rowCount {
        let row = MemberOrdinal(UInt32(position))
        guard self[targetSlot].rows.isActive(row), pending.change(of: row, inThread: thread) == nil else {
          continue
        }
        let then = self[targetSlot].shownRow(row, options: before, settings: settings, withOwnDetails: false)
        let now = shownRow(targetSlot, row, withOwnDetails: false)
        guard then != now else { continue }
        events.append(.row(ChannelEvent.RowEvent(thread: thread, row: row, showsRow: true, at: pending.newestShown)))
      }
    }
  }
}

extension ChannelEvent.RowEvent {
  /// Set the flags that describe how the row visible to others changed.
  fileprivate mutating func show(_ now: ShownRow, before: ShownRow, isDelivered: Bool) {
    if now.lastReadSequence < before.lastReadSequence || now.lastDeliveredSequence < before.lastDeliveredSequence {
      showsRow = true
    }
    let isReadOther = now.lastReadSequence != before.lastReadSequence || now.lastRead != before.lastRead
    let isDeliveredOther =
      now.lastDeliveredSequence != before.lastDeliveredSequence || now.lastDelivered != before.lastDelivered
    if now.lastReadSequence >= before.lastReadSequence, isReadOther { showsRead = true }
    // Reading implies delivery, so the read flag covers the delivered move, unless a marker lowers the shown read
    // position (R4).
    guard isDeliveredOther, now.lastDeliveredSequence >= before.lastDeliveredSequence else { return }
    let isHeldDown = now.lastReadSequence < now.lastDeliveredSequence
    if isDelivered || !showsRead || isHeldDown { showsDelivered = true }
  }
}

extension ChannelState {
  /// Return whether a row's member sent a message in a way that moved the row to it (R5).
  func isSender(_ row: MemberOrdinal, of sequence: SequenceNumber) -> Bool {
    let position = Int(row.rawValue)
    return position < rows.rowCount && rows.isActive(row) && rows.user(row) == messages.sender(sequence)
      && rows.user(row) != .nobody && rows.joined(row) < sequence
      && !messages.flags(sequence).contains(.keepsSenderPosition)
  }

  /// Return whether others may see that the row acknowledged a message (R7).
  func isSeenAcknowledging(_ row: MemberOrdinal) -> Bool { rows.isActive(row) && !rows.hidesRead(row) }

  /// Return the acknowledged messages that others may see, or could see at some time (R7).
  func acknowledgedMessages(_ settings: borrowing UserSettingsTable) -> [SequenceNumber] {
    if acknowledgementTable.isEmpty { return [] }
    return acknowledgementTable.acknowledged(after: .zero, through: messages.newest).filter { sequence in
      var isKnown = false
      acknowledgementTable.forEachAcknowledged(sequence) { row in
        // Acknowledged while hidden, but visible at some time since.
        isKnown =
          isKnown || acknowledgementTable.record(sequence, row)?.isHidden == false
          || settings.shownSince(users.id(rows.user(row))).read != .none
      }
      return isKnown
    }
  }

  /// Return a row as others see it right after the join.
  fileprivate func joinedRow(_ row: MemberOrdinal) -> ShownRow {
    let joinedAt = rows.joinedAt(row)
    let read = positionOfJoining(row)
    return ShownRow(
      row: row,
      joined: rows.joined(row),
      lastRead: joinedAt,
      lastReadSequence: read,
      lastDelivered: read == .zero ? .none : joinedAt,
      lastDeliveredSequence: read,
      own: nil
    )
  }
}
