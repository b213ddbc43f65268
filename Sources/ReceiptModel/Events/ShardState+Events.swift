/// Events (docs/architecture.md): an effect on a subscribed channel is recorded before it is assigned, and turned into
/// events when its batch is closed.
extension ShardState {
  // MARK: Recording changes

  /// Record an effect on a channel. Call this before the effect is assigned: a row's position before the effect
  /// decides which messages' statuses may change.
  ///
  /// - Parameter time: the command's time.
  package func record(
    _ effect: ChannelEffect,
    in slot: ChannelSlot,
    at time: Timestamp,
    _ pending: inout PendingChannelEvents
  ) {
    guard case .inThread(let parent, let effect) = effect else {
      return record(effect, in: slot, thread: .zero, at: time, &pending)
    }
    // A thread's first reply creates it, so the thread may not exist yet.
    let thread = self[slot].threads.index(of: parent).map { slot.thread($0) }
    record(effect, in: thread, thread: parent, at: time, &pending)
  }

  private func record(
    _ effect: ChannelEffect,
    in slot: ChannelSlot?,
    thread: SequenceNumber,
    at time: Timestamp,
    _ pending: inout PendingChannelEvents
  ) {
    let newest = slot.map { self[$0].messages.newest } ?? .zero
    switch effect {
    case .readMoved(let row, let sequence, _, _)
    where isSend(to: sequence, of: row, in: slot, thread: thread, pending):
      recordSend(.read, row, to: sequence, in: slot, thread: thread, at: time, &pending)
    case .deliveredMoved(let row, let sequence, _, _)
    where isSend(to: sequence, of: row, in: slot, thread: thread, pending):
      recordSend(.delivered, row, to: sequence, in: slot, thread: thread, at: time, &pending)
    case .markerAssigned(let row, nil, _, _) where pending.isSending(row, inThread: thread):
      // Sending cleared the marker; the message event implies that.
      guard let slot, self[slot].rows.shows(.marker, row, options(slot)) else { return }
      recordStatuses(row, in: slot, thread: thread, at: time, &pending)
    case .readMoved(let row, _, _, _):
      recordMove(.read, row, in: slot, thread: thread, at: time, &pending) { $0.isRead = true }
    case .deliveredMoved(let row, _, _, _), .deliveredAcked(let row, _, _, _, _):
      recordMove(.delivered, row, in: slot, thread: thread, at: time, &pending) { $0.isDelivered = true }
    case .markerAssigned(let row, let marker, let epoch, _):
      // Mark-unread raises the epoch. Once the epoch has reached its maximum, the marker's direction decides: mark-read
      // never sets or lowers a marker.
      var isUnread = true
      if let slot {
        let known = self[slot].rows.marker(row)
        let isLower = marker.map { marker in known.map { marker < $0 } ?? true } ?? false
        isUnread = epoch != self[slot].rows.epoch(row) || isLower
      }
      recordMove(.marker, row, in: slot, thread: thread, at: time, &pending) {
        if isUnread { $0.isUnread = true } else { $0.isRead = true }
      }
    case .muteAssigned(let row, _):
      // Muting changes the totals on the user's own devices.
      let options = pending.optionsBefore
      pending.recordChange(
        row,
        inThread: thread,
        at: time,
        for: .own,
        before: { shownBefore(row, in: slot, options) },
        { $0.isRead = true }
      )
    case .unreadFlagAssigned(let row, false, _, _) where pending.isSending(row, inThread: thread):
      // Sending cleared the flag; the message event implies that.
      break
    case .unreadFlagAssigned(let row, let isSet, _, _):
      // The flag is visible to its user only (R4).
      let options = pending.optionsBefore
      pending.recordChange(
        row,
        inThread: thread,
        at: time,
        for: .own,
        before: { shownBefore(row, in: slot, options) },
        { if isSet { $0.isUnread = true } else { $0.isRead = true } }
      )
    case .rowAssigned(let row, let record):
      // A user who had only read the thread and now takes part keeps their row.
      if let slot, Int(row.rawValue) < self[slot].rows.rowCount, self[slot].rows.isActive(row) { return }
      if thread == .zero { pending.add(.memberAdded(row, at: time), at: time) }
      let hides = settings.find(record.user).map { settings.hides($0).read } ?? false
      let isUnseen = record.joinedByReading && (hides || !(slot.map { options($0).readEvents } ?? true))
      // Others get no event for a thread's row before it moves.
      pending.recordChange(
        row,
        inThread: thread,
        at: time,
        for: isUnseen ? .own : [.own, .others],
        before: { nil }
      ) { _ in }
      // A new row in a thread may have read earlier replies, which did not count for it before. Their statuses may
      // change.
      guard thread != .zero, !isUnseen else { return }
      pending.changeStatuses(inThread: thread, newest: newest, at: time) { $0.before[row] = RowEnds.none }
    case .rowLeft(let row, let time), .rowErased(let row, let time):
      // A thread member whom others did not see leaves without an event.
      guard let slot, self[slot].rows.isActive(row), !self[slot].rows.isUnseen(row, options(slot)) else {
        return
      }
      if thread == .zero {
        let user = self[slot].users.text(self[slot].rows.user(row))
        pending.add(.memberRemoved(user: user, at: time), at: time)
        pending.leave {
          Set(
            self[slot].acknowledgedMessages(settings).filter { self[slot].acknowledgementProgress($0).isDone }
          )
        }
      }
      let start = self[slot].rows.firstCounted(row)
      pending.changeStatuses(inThread: thread, newest: newest, at: time) {
        $0.alwaysReported.include(StatusSpan(after: start))
      }
    case .messageAssigned(let sequence, _):
      pending.add(.messageNew(thread: thread, sequence, moves: ChannelEvent.SenderMoves()), at: time)
      pending.changeStatuses(inThread: thread, newest: newest, at: time) { _ in }
    case .messageDeleted(let sequence, let time):
      pending.add(.messageDeleted(thread: thread, sequence, at: time), at: time)
    case .truncated(let sequence, let time):
      pending.add(.truncated(through: sequence, at: time), at: time)
    case .acknowledged(let sequence, let acknowledgement):
      // An acknowledgement made while hidden changes nothing for others (R7).
      guard let slot, !acknowledgement.isHidden, !self[slot].rows.hidesRead(acknowledgement.row) else {
        return
      }
      pending.acknowledge(sequence, acknowledgement.row, at: time)
      pending.changeStatuses(inThread: thread, newest: newest, at: time) {
        $0.acknowledged[sequence, default: []].insert(acknowledgement.row)
      }
    case .channelAssigned(_, _, let own):
      guard let slot, own != self[slot].ownOptions else { return }
      let now = types.options(self[slot].type).applying(own)
      recordOptionsChange(from: options(slot), to: now, in: slot, at: time, &pending)
    // Nothing that a viewer of the channel sees. The deletion of a channel is an event of its own.
    case .optionsChanged, .roleAssigned, .acknowledgementForgotten, .acknowledgedThrough, .stepsSealed,
      .stepTailCut, .stepsTrimmed, .stepTailAssigned, .messageCountsAssigned, .segmentFlagsAssigned, .inThread,
      .deletionBegun, .channelDeleted, .senderErased, .membershipAssigned, .membershipRemoved:
      break
    }
  }

  /// The part of a row that moves.
  fileprivate enum Move { case read, delivered, marker }

  private func recordMove(
    _ move: Move,
    _ row: MemberOrdinal,
    in slot: ChannelSlot?,
    thread: SequenceNumber,
    at time: Timestamp,
    _ pending: inout PendingChannelEvents,
    _ change: (inout PendingChannelEvents.PendingRowChange) -> Void
  ) {
    guard let slot, Int(row.rawValue) < self[slot].rows.rowCount else {
      // The row is assigned by an earlier effect of the same command, which is recorded already.
      let isShown = pending.change(of: row, inThread: thread)?.shown != nil
      return pending.recordChange(
        row,
        inThread: thread,
        at: time,
        for: isShown ? [.own, .others] : .own,
        before: { nil },
        change
      )
    }
    let now = options(slot)
    let isShown = self[slot].rows.shows(move, row, now)
    // Own devices get no event for a delivery.
    if move == .delivered, !isShown { return }
    var audience: PendingChannelEvents.Audience = move == .delivered ? [] : .own
    if isShown { audience.insert(.others) }
    let options = pending.optionsBefore
    pending.recordChange(
      row,
      inThread: thread,
      at: time,
      for: audience,
      before: { shownBefore(row, in: slot, options) },
      change
    )
    // A move that others cannot see changes no status.
    if isShown { recordStatuses(row, in: slot, thread: thread, at: time, &pending) }
  }

  /// Return a row as others saw it before the change that is being recorded.
  ///
  /// - Parameter options: the options before, if they changed.
  private func shownBefore(
    _ row: MemberOrdinal,
    in slot: ChannelSlot?,
    _ options: ChannelTypeOptions?
  ) -> ShownRow? {
    guard let slot, Int(row.rawValue) < self[slot].rows.rowCount else { return nil }
    let options = options ?? self.options(slot)
    return self[slot].shownRow(row, options: options, settings: settings, withOwnDetails: false)
  }

  /// Record the messages whose statuses a row's move may change.
  private func recordStatuses(
    _ row: MemberOrdinal,
    in slot: ChannelSlot,
    thread: SequenceNumber,
    at time: Timestamp,
    _ pending: inout PendingChannelEvents
  ) {
    pending.changeStatuses(inThread: thread, newest: self[slot].messages.newest, at: time) {
      if $0.before[row] == nil { $0.before[row] = self[slot].rows.ends(row, options(slot)) }
    }
  }

  /// Return whether a row's move comes from its member sending the message that was recorded last (R5).
  private func isSend(
    to sequence: SequenceNumber,
    of row: MemberOrdinal,
    in slot: ChannelSlot?,
    thread: SequenceNumber,
    _ pending: PendingChannelEvents
  ) -> Bool {
    guard let slot, pending.isNewest(sequence, inThread: thread) else { return false }
    return self[slot].isSender(row, of: sequence)
  }

  /// Record a move of the sender's row that a message made.
  private func recordSend(
    _ move: Move,
    _ row: MemberOrdinal,
    to sequence: SequenceNumber,
    in slot: ChannelSlot?,
    thread: SequenceNumber,
    at time: Timestamp,
    _ pending: inout PendingChannelEvents
  ) {
    guard let slot else { return }
    let isShown = self[slot].rows.shows(move, row, options(slot))
    var moves: ChannelEvent.SenderMoves = move == .read ? .read : .delivered
    if isShown { moves.insert(move == .read ? .readShown : .deliveredShown) }
    pending.send(row, inThread: thread, to: sequence, at: time, moves)
    if isShown { recordStatuses(row, in: slot, thread: thread, at: time, &pending) }
  }

  /// Record a change of the options of the channel's type. Call this after the change is assigned.
  package func recordOptionsChange(
    in slot: ChannelSlot,
    at time: Timestamp,
    _ pending: inout PendingChannelEvents
  ) {
    let before = types.optionsBefore(self[slot].type).applying(self[slot].ownOptions)
    recordOptionsChange(from: before, to: options(slot), in: slot, at: time, &pending)
  }

  private func recordOptionsChange(
    from before: ChannelTypeOptions,
    to now: ChannelTypeOptions,
    in slot: ChannelSlot,
    at time: Timestamp,
    _ pending: inout PendingChannelEvents
  ) {
    pending.add(.updated(at: time), at: time)
    if now.showsRowsDifferently(before) { pending.expose(before: before) }
    guard now.showsRowsDifferently(before) || now.statusRule != before.statusRule else { return }
    pending.changeStatuses(inThread: .zero, newest: self[slot].messages.newest, at: time) {
      $0.alwaysReported.include(StatusSpan(after: 0))
    }
    for index in 0..<self[slot].threads.count {
      let thread = self[slot].threads[index].parent
      let newest = self[slot].threads[index].messages.newest
      pending.changeStatuses(inThread: thread, newest: newest, at: time) {
        $0.alwaysReported.include(StatusSpan(after: 0))
      }
    }
  }

  /// Record that a change of a user's settings changed what others see of the user's row, in the channel and its
  /// threads (R7). Call this after the change is assigned.
  package mutating func recordSettingsChange(
    of user: RawSpan,
    in slot: ChannelSlot,
    at time: Timestamp,
    _ pending: inout PendingChannelEvents
  ) {
    refresh(slot)
    recordSettingsChange(of: user, in: slot, thread: .zero, at: time, &pending)
    if self[slot].row(of: user) != nil { pending.reportAllAcknowledgements() }
    guard !self[slot].threads.isEmpty else { return }
    for index in self[slot].threads.indices(of: user) {
      let thread = slot.thread(index)
      // A thread member whom others could not see before and cannot see now changed for no one.
      let wasSeen = isSeen(user, in: thread)
      refresh(thread)
      guard wasSeen || isSeen(user, in: thread) else { continue }
      recordSettingsChange(of: user, in: thread, thread: self[thread].parent, at: time, &pending)
    }
  }

  private func isSeen(_ user: RawSpan, in thread: ChannelSlot) -> Bool {
    guard let row = self[thread].row(of: user) else { return false }
    return !self[thread].rows.isUnseen(row, options(thread))
  }

  private func recordSettingsChange(
    of user: RawSpan,
    in slot: ChannelSlot,
    thread: SequenceNumber,
    at time: Timestamp,
    _ pending: inout PendingChannelEvents
  ) {
    guard let row = self[slot].row(of: user) else { return }
    pending.recordChange(row, inThread: thread, at: time, for: .others, before: { nil }) { $0.isShownAnew = true }
    let start = self[slot].rows.firstCounted(row)
    pending.changeStatuses(inThread: thread, newest: self[slot].messages.newest, at: time) {
      $0.alwaysReported.include(StatusSpan(after: start))
    }
  }

  // MARK: Creating events

  /// Return the events for the recorded changes, in the order in which they happened, computed from the current state.
  /// A row's event stands at its last change; status events follow all events that caused them. Applies members'
  /// settings to the threads concerned, as the caller has done for the channel.
  package mutating func events(_ pending: PendingChannelEvents, in slot: ChannelSlot) -> [ChannelEvent] {
    if pending.isEmpty { return [] }
    refresh(slot)
    var ordered = pending.happened
    for change in pending.rows {
      guard let targetSlot = targetSlot(ofThread: change.thread, in: slot) else { continue }
      refresh(targetSlot)
      append(change, in: targetSlot, to: &ordered)
    }
    for change in pending.acknowledgementChanges where !self[slot].isGone(change.sequence) {
      let row = change.row.flatMap { self[slot].isSeenAcknowledging($0) ? $0 : nil }
      ordered.append((change.order, .receipt(change.sequence, by: row, at: change.at)))
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
      guard let targetSlot = targetSlot(ofThread: change.thread, in: slot) else { continue }
      refresh(targetSlot)
      let runs = cutAtJoin(self[targetSlot].statusRuns(change.changes, options(targetSlot)), targetSlot)
      for run in runs { events.append(.status(thread: change.thread, run, at: pending.newestShown)) }
    }
    return events
  }

  /// Return the slot of the channel or of one of its threads; nil if the thread does not exist or its parent is
  /// deleted.
  private func targetSlot(ofThread parent: SequenceNumber, in slot: ChannelSlot) -> ChannelSlot? {
    if parent == .zero { return slot }
    guard let index = self[slot].threads.index(of: parent), !self[slot].isClosed(index) else { return nil }
    return slot.thread(index)
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
      event.show(
        shown,
        before: change.before ?? self[slot].joinedRow(change.row),
        isDelivered: change.isDelivered
      )
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
      guard
        pending.reportsAllAcknowledgements || self[slot].acknowledgementProgress(sequence).isDone != wasDone
      else {
        continue
      }
      events.append(.receipt(sequence, by: nil, at: pending.newestShown))
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
        events.append(
          .row(ChannelEvent.RowEvent(thread: thread, row: row, showsRow: true, at: pending.newestShown))
        )
      }
    }
  }
}

extension ChannelEvent.RowEvent {
  /// Set the flags that describe how the row visible to others changed.
  fileprivate mutating func show(_ now: ShownRow, before: ShownRow, isDelivered: Bool) {
    if now.lastReadSequence < before.lastReadSequence
      || now.lastDeliveredSequence < before.lastDeliveredSequence
    {
      showsRow = true
    }
    let isReadOther =
      now.lastReadSequence != before.lastReadSequence || now.lastRead != before.lastRead
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

extension ReadVector {
  /// Return whether others may see a row's move (R4, R7, R8).
  fileprivate func shows(_ move: ShardState.Move, _ row: MemberOrdinal, _ options: ChannelTypeOptions) -> Bool {
    if isUnseen(row, options) { return false }
    switch move {
    case .read: return showsRead(row, options)
    case .delivered: return options.deliveryEvents && !hidesDelivered(row)
    case .marker: return options.markUnread == .public && showsRead(row, options)
    }
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
