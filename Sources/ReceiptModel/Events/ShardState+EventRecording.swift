/// Recording of changes for events (docs/contribute/architecture.md): an effect on a subscribed channel is recorded
/// before it is assigned, and turned into events when its batch is closed.
extension ShardState {
  /// The place and time of a recorded change.
  private struct EventContext {
    /// The slot of the channel or thread; nil: a thread that its first reply is about to create.
    var slot: ChannelSlot?
    /// The thread's parent message; zero: the channel itself.
    var thread: SequenceNumber
    /// The command's time.
    var time: Timestamp
  }

  private func context(_ slot: ChannelSlot, at time: Timestamp) -> EventContext {
    EventContext(slot: slot, thread: self[slot].parent, time: time)
  }

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
      return record(effect, EventContext(slot: slot, thread: .zero, time: time), &pending)
    }
    let thread = self[slot].threads.index(of: parent).map { slot.thread($0) }
    record(effect, EventContext(slot: thread, thread: parent, time: time), &pending)
  }

  private func record(_ effect: ChannelEffect, _ context: EventContext, _ pending: inout PendingChannelEvents) {
    let (thread, time) = (context.thread, context.time)
    switch effect {
    case .readMoved(let row, let sequence, _, _) where isSend(to: sequence, of: row, context, pending):
      recordSend(.read, row, to: sequence, context, &pending)
    case .deliveredMoved(let row, let sequence, _, _) where isSend(to: sequence, of: row, context, pending):
      recordSend(.delivered, row, to: sequence, context, &pending)
    case .markerAssigned(let row, nil, _, _) where pending.isSending(row, inThread: thread):
      // Sending cleared the marker; the message event implies that.
      guard let slot = context.slot, self[slot].rows.shows(.marker, row, options(slot)) else { return }
      recordStatuses(of: row, context, &pending)
    case .readMoved(let row, _, _, _): recordMove(.read, row, context, &pending) { $0.isRead = true }
    case .deliveredMoved(let row, _, _, _), .deliveredByPushAck(let row, _, _, _, _):
      recordMove(.delivered, row, context, &pending) { $0.isDelivered = true }
    case .markerAssigned(let row, let marker, let epoch, _):
      let isUnread = isMarkUnread(row, marker, epoch: epoch, context)
      recordMove(.marker, row, context, &pending) {
        if isUnread { $0.isUnread = true } else { $0.isRead = true }
      }
    case .muteAssigned(let row, _):
      // Muting changes the totals on the user's own devices.
      recordRowChange(row, for: .own, context, &pending) { $0.isRead = true }
    case .unreadFlagAssigned(let row, false, _, _) where pending.isSending(row, inThread: thread):
      // Sending cleared the flag; the message event implies that.
      break
    case .unreadFlagAssigned(let row, let isSet, _, _):
      // The flag is visible to its user only (R4).
      recordRowChange(row, for: .own, context, &pending) { if isSet { $0.isUnread = true } else { $0.isRead = true } }
    case .rowAssigned(let row, let record):
      recordRow(row, record, context, &pending)
    case .rowLeft(let row, let time), .rowErased(let row, let time):
      recordLeave(row, at: time, context, &pending)
    case .messageAssigned(let sequence, _):
      pending.add(.messageNew(thread: thread, sequence, moves: ChannelEvent.SenderMoves()), at: time)
      recordStatuses(context, &pending) { _ in }
    case .messageDeleted(let sequence, let time):
      pending.add(.messageDeleted(thread: thread, sequence, at: time), at: time)
    case .truncated(let sequence, let time): pending.add(.truncated(through: sequence, at: time), at: time)
    case .acknowledged(let sequence, let acknowledgement):
      // An acknowledgement made while hidden changes nothing for others (R7).
      guard let slot = context.slot, !acknowledgement.isHidden, !self[slot].rows.hidesRead(acknowledgement.row)
      else { return }
      pending.acknowledge(sequence, acknowledgement.row, at: time)
      recordStatuses(context, &pending) {
        $0.acknowledged[sequence, default: []].insert(acknowledgement.row)
      }
    case .channelAssigned(_, _, let own):
      guard let slot = context.slot, own != self[slot].ownOptions else { return }
      let now = types.options(self[slot].type).applying(own)
      recordOptionsChange(from: options(slot), to: now, in: slot, at: time, &pending)
    // The deletion of a channel is an event of its own.
    default: assert(!effect.traits.contains(.hasEvent))
    }
  }

  // MARK: Recording moves

  /// The part of a row that moves.
  enum Move { case read, delivered, marker }

  private func recordMove(
    _ move: Move,
    _ row: MemberOrdinal,
    _ context: EventContext,
    _ pending: inout PendingChannelEvents,
    _ change: (inout PendingChannelEvents.PendingRowChange) -> Void
  ) {
    guard let slot = context.slot, Int(row.rawValue) < self[slot].rows.rowCount else {
      // The row is assigned by an earlier effect of the same command, which is recorded already.
      let isShown = pending.change(of: row, inThread: context.thread)?.shown != nil
      return recordRowChange(row, for: isShown ? [.own, .others] : .own, context, &pending, change)
    }
    let isShown = self[slot].rows.shows(move, row, options(slot))
    // Own devices get no event for a delivery.
    if move == .delivered, !isShown { return }
    var audience: PendingChannelEvents.Audience = move == .delivered ? [] : .own
    if isShown { audience.insert(.others) }
    recordRowChange(row, for: audience, context, &pending, change)
    // A move that others cannot see changes no status.
    if isShown { recordStatuses(of: row, context, &pending) }
  }

  private func recordRowChange(
    _ row: MemberOrdinal,
    for audience: PendingChannelEvents.Audience,
    _ context: EventContext,
    _ pending: inout PendingChannelEvents,
    _ change: (inout PendingChannelEvents.PendingRowChange) -> Void
  ) {
    let optionsBefore = pending.optionsBefore
    pending.recordChange(
      row,
      inThread: context.thread,
      at: context.time,
      for: audience,
      before: { shownBefore(row, in: context.slot, optionsBefore) },
      change
    )
  }

  /// Return a row as others saw it before the change that is being recorded; nil: it did not exist.
  ///
  /// - Parameter options: the options before, if they changed.
  private func shownBefore(_ row: MemberOrdinal, in slot: ChannelSlot?, _ options: ChannelTypeOptions?) -> ShownRow? {
    guard let slot, Int(row.rawValue) < self[slot].rows.rowCount else { return nil }
    let options = options ?? self.options(slot)
    return self[slot].shownRow(row, options: options, settings: settings, withOwnDetails: false)
  }

  /// Record the messages whose statuses a row's move may change.
  private func recordStatuses(of row: MemberOrdinal, _ context: EventContext, _ pending: inout PendingChannelEvents) {
    guard let slot = context.slot else { return }
    recordStatuses(context, &pending) {
      if $0.before[row] == nil { $0.before[row] = self[slot].rows.ends(row, options(slot)) }
    }
  }

  /// Record which statuses may change.
  private func recordStatuses(
    _ context: EventContext,
    _ pending: inout PendingChannelEvents,
    _ change: (inout StatusChanges) -> Void
  ) {
    let newest = context.slot.map { self[$0].messages.newest } ?? .zero
    pending.changeStatuses(inThread: context.thread, newest: newest, at: context.time, change)
  }

  /// Return whether a marker that is assigned comes from mark-unread, not from mark-read.
  private func isMarkUnread(
    _ row: MemberOrdinal,
    _ marker: SequenceNumber?,
    epoch: UInt32,
    _ context: EventContext
  ) -> Bool {
    guard let slot = context.slot else { return true }
    return self[slot].rows.isMarkUnread(row, marker, epoch: epoch)
  }

  /// Return whether a row's move comes from its member sending the message that was recorded last (R5).
  private func isSend(
    to sequence: SequenceNumber,
    of row: MemberOrdinal,
    _ context: EventContext,
    _ pending: PendingChannelEvents
  ) -> Bool {
    guard let slot = context.slot, pending.isNewest(sequence, inThread: context.thread) else { return false }
    return self[slot].isSender(row, of: sequence)
  }

  /// Record a move of the sender's row that a message made.
  private func recordSend(
    _ move: Move,
    _ row: MemberOrdinal,
    to sequence: SequenceNumber,
    _ context: EventContext,
    _ pending: inout PendingChannelEvents
  ) {
    guard let slot = context.slot else { return }
    let isShown = self[slot].rows.shows(move, row, options(slot))
    var moves: ChannelEvent.SenderMoves = move == .read ? .read : .delivered
    if isShown { moves.insert(move == .read ? .readShown : .deliveredShown) }
    pending.send(row, inThread: context.thread, to: sequence, at: context.time, moves)
    if isShown { recordStatuses(of: row, context, &pending) }
  }

  // MARK: Recording rows, options and settings

  /// Record that a user joins the channel or takes part in the thread.
  private func recordRow(
    _ row: MemberOrdinal,
    _ record: RowRecord,
    _ context: EventContext,
    _ pending: inout PendingChannelEvents
  ) {
    let (slot, isThread) = (context.slot, context.thread != .zero)
    // A user who had only read the thread and now takes part keeps their row.
    if let slot, Int(row.rawValue) < self[slot].rows.rowCount, self[slot].rows.isActive(row) { return }
    if !isThread { pending.add(.memberAdded(row, at: context.time), at: context.time) }
    let hides = settings.find(record.user).map { settings.hides($0).read } ?? false
    let isUnseen = record.joinedByReading && (hides || !(slot.map { options($0).readEvents } ?? true))
    // Others get no event for a thread's row before it moves.
    pending.recordChange(
      row,
      inThread: context.thread,
      at: context.time,
      for: isUnseen ? .own : [.own, .others],
      before: { nil }
    ) { _ in }
    // A new row in a thread may have read earlier replies, which did not count for it before. Their statuses may
    // change.
    if isThread, !isUnseen { recordStatuses(context, &pending) { $0.before[row] = RowEnds.none } }
  }

  /// Record that a member leaves the channel or thread, or is erased.
  private func recordLeave(
    _ row: MemberOrdinal,
    at time: Timestamp,
    _ context: EventContext,
    _ pending: inout PendingChannelEvents
  ) {
    // A thread member whom others did not see leaves without an event.
    guard let slot = context.slot, self[slot].rows.isActive(row), !self[slot].rows.isUnseen(row, options(slot))
    else { return }
    if context.thread == .zero {
      let user = self[slot].users.text(self[slot].rows.user(row))
      pending.add(.memberRemoved(user: user, at: time), at: time)
      pending.leave {
        Set(self[slot].acknowledgedMessages(settings).filter { self[slot].acknowledgementProgress($0).isDone })
      }
    }
    recordStatuses(self.context(slot, at: time), after: self[slot].rows.countedAfter(row), &pending)
  }

  /// Record that statuses are to be reported, whether they change or not.
  ///
  /// - Parameter start: only those of messages after this.
  private func recordStatuses(_ context: EventContext, after start: UInt32, _ pending: inout PendingChannelEvents) {
    recordStatuses(context, &pending) { $0.alwaysReported.include(StatusSpan(after: start)) }
  }

  /// Record a change of the options of the channel's type. Call this after the change is assigned.
  package func recordOptionsChange(in slot: ChannelSlot, at time: Timestamp, _ pending: inout PendingChannelEvents) {
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
    recordStatuses(context(slot, at: time), after: 0, &pending)
    for index in 0..<self[slot].threads.count {
      recordStatuses(context(slot.thread(index), at: time), after: 0, &pending)
    }
  }

  /// Apply a change of a user's settings to the channel and its threads, and return where it changed what others see of
  /// the user's row (R7). Call this after the change is assigned, once.
  package mutating func applySettingsChange(of user: RawSpan, in slot: ChannelSlot) -> [ChannelSlot] {
    refresh(slot)
    var changed = self[slot].row(of: user) == nil ? [] : [slot]
    guard !self[slot].threads.isEmpty else { return changed }
    for index in self[slot].threads.indices(of: user) {
      let thread = slot.thread(index)
      // A thread member whom others could not see before and cannot see now changed for no one.
      let wasSeen = isSeen(user, in: thread)
      refresh(thread)
      if wasSeen || isSeen(user, in: thread) { changed.append(thread) }
    }
    return changed
  }

  /// Record what ``applySettingsChange(of:in:)`` has returned.
  package func recordSettingsChange(
    of user: RawSpan,
    in changed: [ChannelSlot],
    at time: Timestamp,
    _ pending: inout PendingChannelEvents
  ) {
    for slot in changed {
      recordSettingsChange(ofRowOf: user, in: slot, at: time, &pending)
      if !slot.isThread { pending.reportAllAcknowledgements() }
    }
  }

  private func isSeen(_ user: RawSpan, in thread: ChannelSlot) -> Bool {
    guard let row = self[thread].row(of: user) else { return false }
    return !self[thread].rows.isUnseen(row, options(thread))
  }

  private func recordSettingsChange(
    ofRowOf user: RawSpan,
    in slot: ChannelSlot,
    at time: Timestamp,
    _ pending: inout PendingChannelEvents
  ) {
    guard let row = self[slot].row(of: user) else { return }
    let context = context(slot, at: time)
    pending.recordChange(row, inThread: context.thread, at: time, for: .others, before: { nil }) {
      $0.isShownAnew = true
    }
    recordStatuses(context, after: self[slot].rows.countedAfter(row), &pending)
  }
}

extension ReadVector {
  /// Return whether a marker that is assigned comes from mark-unread, not from mark-read. Mark-unread raises the epoch.
  /// Once the epoch has reached its maximum, the marker's direction decides: mark-read never sets or lowers a marker.
  func isMarkUnread(_ row: MemberOrdinal, _ marker: SequenceNumber?, epoch: UInt32) -> Bool {
    if epoch != self.epoch(row) { return true }
    guard let marker else { return false }
    return self.marker(row).map { marker < $0 } ?? true
  }

  /// Return whether others may see a row's move (R4, R7, R8).
  func shows(_ move: ShardState.Move, _ row: MemberOrdinal, _ options: ChannelTypeOptions) -> Bool {
    if isUnseen(row, options) { return false }
    switch move {
    case .read: return showsRead(row, options)
    case .delivered: return options.deliveryEvents && !hidesDelivered(row)
    case .marker: return options.markUnread == .public && showsRead(row, options)
    }
  }
}
