/// The changes since a time, for clients that missed events (docs/contribute/architecture.md). Rows, messages and
/// options keep the time of their last change.
extension ShardState {
  /// Return the changes in a channel at or after a time, as events: the channel's own first, status events after the
  /// events that caused them. May include unchanged things.
  ///
  /// Costs one pass over the rows, and one over the messages whose statuses may have changed. Those are the messages
  /// that rows moved over according to the steps in memory, and all messages of a row whose earlier position is
  /// unknown.
  ///
  /// - Parameters:
  ///   - limit: maximum number of events.
  ///   - statusesMax: maximum number of messages whose statuses may have changed, in the channel and its threads.
  ///   - remaining: the budget of rows, messages, acknowledgement requests and threads to examine; reduced by the
  ///     number examined.
  /// - Returns: nil if `limit` or `statusesMax` is exceeded, or if a row was erased, whose user can no longer be named
  ///   (R16).
  package mutating func events(
    in slot: ChannelSlot,
    since: Timestamp,
    limit: Int,
    statusesMax: Int,
    remaining: inout Int
  ) -> [ChannelEvent]? {
    refresh(slot)
    var events = ChangedSince(time: since, limit: limit, statusesMax: statusesMax)
    defer { remaining -= events.examined }
    guard append(slot, to: &events) else { return nil }
    events.examined += self[slot].threads.count
    for index in 0..<self[slot].threads.count where !self[slot].isClosed(index) {
      refresh(slot.thread(index))
      guard append(slot.thread(index), to: &events) else { return nil }
    }
    return events.all
  }

  /// Return whether a channel was created at or after a time. A channel that had its name before, or a missing one, is
  /// not the same channel.
  package func isNew(_ slot: ChannelSlot, since time: Timestamp) -> Bool {
    self[slot].created >= time
  }

  /// The changes since a time, while they are collected.
  private struct ChangedSince {
    let time: Timestamp
    let limit: Int
    /// How many more messages may be examined for their statuses.
    var statusesMax: Int
    /// The number of rows, messages, acknowledgement requests and threads examined.
    var examined = 0
    /// The changes in the current channel or thread.
    var here: [(at: Timestamp, event: ChannelEvent)] = []
    /// The time of the newest event that others besides its member may see.
    var newestShown = Timestamp.none
    /// The messages whose statuses may have changed.
    var spans: [StatusSpan] = []
    /// A member left or changed their privacy settings, so acknowledgement requests may have become done, or not done.
    var changesAcknowledgements = false
    var all: [ChannelEvent] = []

    init(time: Timestamp, limit: Int, statusesMax: Int) {
      self.time = time
      self.limit = limit
      self.statusesMax = statusesMax
    }

    var isFull: Bool { all.count + here.count > limit }

    func isPast(_ time: Timestamp) -> Bool { time == .none || time < self.time }

    mutating func add(_ event: ChannelEvent, at time: Timestamp, isShown: Bool = true) {
      here.append((time, event))
      if isShown { newestShown = max(newestShown, time) }
    }

    /// Append the events of the current channel or thread in order of time; events of the same time stay in the order
    /// found.
    mutating func flushCurrent() {
      all += here.enumerated().sorted { ($0.element.at, $0.offset) < ($1.element.at, $1.offset) }
        .map(\.element.event)
      here = []
      newestShown = .none
      (spans, changesAcknowledgements) = ([], false)
    }

    mutating func changeStatuses(after: UInt32, through: UInt32 = .max) {
      let span = StatusSpan(after: after, through: through)
      if span.isEmpty { return }
      if let last = spans.last, last.after <= through, after <= last.through {
        spans[spans.count - 1].include(span)
      } else {
        spans.append(span)
      }
    }

    /// Return the messages whose statuses must be counted, in few spans: each span takes a pass over the rows.
    ///
    /// - Parameter between: from the truncation point to the newest message.
    /// - Returns: nil if there are too many.
    mutating func takeSpans(between: StatusSpan, rows: Int) -> [StatusSpan]? {
      var taken: [StatusSpan] = []
      for span in spans.sorted(by: { $0.after < $1.after }) {
        let cut = StatusSpan(after: max(span.after, between.after), through: min(span.through, between.through))
        if cut.isEmpty { continue }
        if let last = taken.last, Int(cut.after) <= Int(last.through) + Int(PageID.messagesPerSegment) {
          taken[taken.count - 1].include(cut)
        } else {
          taken.append(cut)
        }
      }
      let messages = taken.reduce(0) { $0 + Int($1.through - $1.after) }
      let passes = max(0, taken.count - 1) * rows
      examined += messages + passes
      statusesMax -= messages + passes
      return statusesMax >= 0 ? taken : nil
    }
  }

  /// Append the changes of the channel, or of one of its threads.
  ///
  /// - Returns: false if the changes are incomplete.
  private func append(_ slot: ChannelSlot, to events: inout ChangedSince) -> Bool {
    let thread = self[slot].parent
    var optionsChangedAt = max(types[self[slot].type].appliedAt, self[slot.channel].optionsChangedAt)
    if events.isPast(optionsChangedAt) { optionsChangedAt = .none }
    // For a client, a new channel begins with an event about its state.
    if !slot.isThread, isNew(slot, since: events.time), self[slot].created != optionsChangedAt {
      events.add(.updated(at: self[slot].created), at: self[slot].created)
    }
    if optionsChangedAt != .none {
      events.changeStatuses(after: 0)
      if !slot.isThread { events.add(.updated(at: optionsChangedAt), at: optionsChangedAt) }
    }
    if !slot.isThread, !events.isPast(self[slot].messages.deletions.truncatedAt) {
      let through = self[slot].messages.truncatedThrough
      events.add(
        .truncated(through: through, at: self[slot].messages.deletions.truncatedAt),
        at: self[slot].messages.deletions.truncatedAt
      )
    }
    appendMessages(slot, to: &events)
    guard appendRows(slot, optionsChangedAt, to: &events), !events.isFull else { return false }
    if !slot.isThread { appendAcknowledgements(slot, to: &events) }
    guard !events.isFull,
      let spans = events.takeSpans(
        between: StatusSpan(
          after: self[slot].messages.truncatedThrough.rawValue,
          through: self[slot].messages.newest.rawValue
        ),
        rows: self[slot].rows.rowCount
      )
    else { return false }
    let last = max(events.newestShown, events.time)
    events.flushCurrent()
    for span in spans {
      let changes = StatusChanges(alwaysReported: span, newestBefore: self[slot].messages.newest)
      for run in cutAtJoin(self[slot].statusRuns(changes, options(slot)), slot) {
        events.all.append(.status(thread: thread, run, at: last))
      }
    }
    return !events.isFull
  }

  /// Append messages registered or deleted since then.
  private func appendMessages(_ slot: ChannelSlot, to events: inout ChangedSince) {
    let thread = self[slot].parent
    let truncated = self[slot].messages.truncatedThrough
    let first = self[slot].messages.first(registeredSince: events.time)
    let hasDeleted = !events.isPast(self[slot].messages.deletions.last)
    var sequence = hasDeleted ? truncated.next : max(first, truncated.next)
    while sequence <= self[slot].messages.newest, !events.isFull {
      events.examined += 1
      if sequence < first,
        let end = self[slot].messages.deletions.endOfSegment(sequence, withoutDeletionSince: events.time)
      {
        sequence = min(first, end.next)
        continue
      }
      let isDeleted = self[slot].messages.flags(sequence).contains(.deleted)
      let deletedAt = self[slot].messages.deletedAt(sequence)
      if isDeleted, deletedAt >= events.time {
        events.add(.messageDeleted(thread: thread, sequence, at: deletedAt), at: deletedAt)
      } else if !isDeleted, sequence >= first {
        let registeredAt = self[slot].messages.registeredAt(sequence)
        let sender = self[slot].rows.row(of: self[slot].messages.sender(sequence))
        let moves = sender.map { sent($0, sequence, in: slot) } ?? ChannelEvent.SenderMoves()
        events.add(.messageNew(thread: thread, sequence, moves: moves), at: registeredAt)
      }
      sequence = sequence.next
    }
  }

  /// Return the sender's positions that a message moved and that are still at the message.
  private func sent(_ row: MemberOrdinal, _ sequence: SequenceNumber, in slot: ChannelSlot) -> ChannelEvent.SenderMoves
  {
    var moves = ChannelEvent.SenderMoves()
    guard self[slot].isSender(row, of: sequence) else { return moves }
    let options = options(slot)
    let isSeen = !self[slot].rows.isUnseen(row, options)
    if self[slot].rows.read[row] == sequence {
      moves.insert(.read)
      let isHidden = self[slot].rows.hidesRead(row) || self[slot].rows.readIsHidden(row)
      if isSeen, options.readEvents, !isHidden { moves.insert(.readShown) }
    }
    if self[slot].rows.delivered[row] == sequence {
      moves.insert(.delivered)
      let isHidden = self[slot].rows.hidesDelivered(row) || self[slot].rows.deliveredIsHidden(row)
      if isSeen, options.deliveryEvents, !isHidden { moves.insert(.deliveredShown) }
    }
    return moves
  }

  /// Return the row's moves that a message event already reports, if the message moved one of the row's watermarks and
  /// is itself reported.
  ///
  /// - Parameter sequence: the watermark's current position.
  private func sent(_ row: MemberOrdinal, at sequence: SequenceNumber, in slot: ChannelSlot, since: Timestamp)
    -> ChannelEvent.SenderMoves
  {
    guard sequence > self[slot].messages.truncatedThrough, self[slot].isSender(row, of: sequence),
      !self[slot].messages.flags(sequence).contains(.deleted), self[slot].messages.registeredAt(sequence) >= since,
      // A message from before the join would be reported before `memberAdded`. A thread has no such event.
      slot.isThread || self[slot].rows.joinedAt(row) < self[slot].messages.registeredAt(sequence)
    else { return ChannelEvent.SenderMoves() }
    return sent(row, sequence, in: slot)
  }

  /// Append rows that joined, left, moved or look different.
  ///
  /// - Parameter optionsChangedAt: none: not since.
  private func appendRows(_ slot: ChannelSlot, _ optionsChangedAt: Timestamp, to events: inout ChangedSince) -> Bool {
    events.examined += self[slot].rows.rowCount
    var reached = Reached()
    for position in 0..<self[slot].rows.rowCount {
      let row = MemberOrdinal(UInt32(position))
      guard self[slot].rows.isActive(row) else {
        let leftAt = self[slot].rows.leftAt(row)
        if events.isPast(leftAt) || wasTakenOver(row, in: slot) { continue }
        events.changeStatuses(after: self[slot].rows.countedAfter(row))
        events.changesAcknowledgements = true
        if slot.isThread { continue }
        let user = self[slot].rows.user(row)
        if user == .nobody { return false }
        events.add(.memberRemoved(user: self[slot].users.text(user), at: leftAt), at: leftAt)
        continue
      }
      let joinedAt = self[slot].rows.joinedAt(row)
      if !slot.isThread, !events.isPast(joinedAt) {
        events.add(.memberAdded(row, at: joinedAt), at: joinedAt)
      }
      appendChanged(slot, row, optionsChangedAt: optionsChangedAt, &reached, to: &events)
      if events.isFull { return false }
    }
    return true
  }

  /// Return whether a row was left because its member got a new row, with which they visibly take part in the thread.
  /// Nobody saw the old row (R7).
  private func wasTakenOver(_ row: MemberOrdinal, in thread: ChannelSlot) -> Bool {
    guard self[thread].rows.joinedByReading(row), self[thread].rows.user(row) != .nobody,
      let taken = self[thread].rows.row(of: self[thread].rows.user(row))
    else { return false }
    return self[thread].rows.joinedAt(taken) == self[thread].rows.leftAt(row)
  }

  /// The positions that the rows of one page had reached before the given time.
  private struct Reached {
    private var rowPage: UInt32?
    private var positions: [UInt32] = []

    /// - Returns: a lower bound of the watermark's position at that time.
    mutating func position(_ kind: StepKind, _ row: MemberOrdinal, _ steps: borrowing StepTable, before time: Timestamp)
      -> UInt32
    {
      let page = row.rawValue / PageID.rowsPerPage
      if page != rowPage {
        rowPage = page
        positions = steps.reached(page, before: time)
      }
      return positions[Int(Step.key(UInt8(truncatingIfNeeded: row.rawValue), kind))]
    }
  }

  /// The parts of a row that have changed since a time: when each last changed; none: not since.
  private struct RowChanges {
    var read: Timestamp
    var delivered: Timestamp
    var marker: Timestamp
    var flag: Timestamp
    /// The member's privacy settings.
    var settings: Timestamp
    /// The options of the channel or its type.
    var options: Timestamp
    /// The row is new in a thread, and has an epoch that the own devices may not know.
    var newRow: Timestamp

    var isEmpty: Bool {
      max(read, delivered, marker) == .none && max(flag, settings) == .none && max(options, newRow) == .none
    }

    /// Whether others may see the row differently, whether or not it moved.
    var isShownAnew: Bool { settings != .none || options != .none }
  }

  private func changes(
    of row: MemberOrdinal,
    in slot: ChannelSlot,
    optionsChangedAt: Timestamp,
    since events: ChangedSince
  ) -> RowChanges {
    let joinedAt = self[slot].rows.joinedAt(row)
    var readAt = self[slot].rows.read.time(row)
    // A user who joins a thread by marking it read has read it at that time.
    if slot.isThread, readAt == .none, self[slot].rows.read[row] > .zero { readAt = joinedAt }
    let appliedAt = settings.isEmpty ? .none : withUser(slot, row) { settings.appliedAt($0) }
    func unlessPast(_ time: Timestamp) -> Timestamp { events.isPast(time) ? .none : time }
    return RowChanges(
      read: unlessPast(readAt),
      delivered: unlessPast(self[slot].rows.delivered.time(row)),
      marker: unlessPast(self[slot].rows.markedAt(row)),
      flag: unlessPast(self[slot].rows.flaggedAt(row)),
      settings: unlessPast(appliedAt),
      options: optionsChangedAt,
      newRow: slot.isThread ? unlessPast(joinedAt) : .none
    )
  }

  /// Append a row's changes: for its member's own devices with the time of the change, and for others with the time of
  /// the part that they may see (R4, R7).
  private func appendChanged(
    _ slot: ChannelSlot,
    _ row: MemberOrdinal,
    optionsChangedAt: Timestamp,
    _ reached: inout Reached,
    to events: inout ChangedSince
  ) {
    let changes = changes(of: row, in: slot, optionsChangedAt: optionsChangedAt, since: events)
    if changes.isEmpty { return }
    // Each watermark has its own, so that a hidden read does not influence what is reported of deliveries (R7).
    var (readMoves, deliveredMoves) = (ChannelEvent.SenderMoves(), ChannelEvent.SenderMoves())
    if changes.read != .none { readMoves = sent(row, at: self[slot].rows.read[row], in: slot, since: events.time) }
    if changes.delivered != .none {
      deliveredMoves = sent(row, at: self[slot].rows.delivered[row], in: slot, since: events.time)
    }
    if changes.settings != .none { events.changesAcknowledgements = true }
    let staysUnread = self[slot].rows.marker(row) != nil || self[slot].rows.isFlaggedUnread(row)
    let isMarked = changes.marker != .none || changes.flag != .none
    let own = ChannelEvent.RowEvent(
      thread: self[slot].parent,
      row: row,
      // The kind of marker change is not stored: a marker that is set is reported as unread, a cleared one as read. The
      // same holds for the flag.
      isRead: changes.read != .none && (changes.newRow != .none || !readMoves.contains(.read))
        || isMarked && !staysUnread,
      isUnread: isMarked && staysUnread,
      at: max(changes.read, changes.marker, changes.flag)
    )
    var shown = ChannelEvent.RowEvent(thread: self[slot].parent, row: row, at: .none)
    if self[slot].rows.isUnseen(row, options(slot)) {
      // Others may have seen the member here before the member hid, but not if the member joined after that.
      let joinedAt = self[slot].rows.joinedAt(row)
      let neverShown = self[slot].rows.read.stepCount(row) == 1 && self[slot].rows.readIsHidden(row)
      if changes.settings != .none, joinedAt < changes.settings || joinedAt == changes.settings && !neverShown {
        events.changeStatuses(after: self[slot].rows.countedAfter(row))
      }
    } else {
      describe(changes, readMoves, deliveredMoves, in: slot, &shown)
      changeStatuses(row, changes, in: slot, &reached, &events)
    }
    for event in ChannelEvent.RowEvent.events(own: own, shown: shown) {
      events.add(.row(event), at: event.at, isShown: event.isForOthers)
    }
  }

  /// Set how a row that others see has changed for them, and when.
  ///
  /// - Parameters:
  ///   - readMoves: the moves of the read watermark that a message event reports.
  ///   - deliveredMoves: those of the delivered watermark.
  private func describe(
    _ changes: RowChanges,
    _ readMoves: ChannelEvent.SenderMoves,
    _ deliveredMoves: ChannelEvent.SenderMoves,
    in slot: ChannelSlot,
    _ shown: inout ChannelEvent.RowEvent
  ) {
    let (row, options) = (shown.row, options(slot))
    let hasMarker = self[slot].rows.marker(row) != nil
    let showsRead = self[slot].rows.showsRead(row, options)
    let showsMarker = changes.marker != .none && showsRead && options.markUnread == .public
    // A marker cleared by a read is reported as that read, whether or not the read also moved the watermark.
    let (showsUnread, showsCleared) = (showsMarker && hasMarker, showsMarker && !hasMarker)
    let movedRead = changes.read != .none && showsRead
    let movedDelivered = changes.delivered != .none && self[slot].rows.showsDelivered(row, options)
    shown.showsRead = (movedRead || showsCleared) && !readMoves.contains(.readShown)
    // A read that a marker hides from others still counts as a delivery (R4).
    let isHeldDown = options.markUnread == .public && hasMarker
    // A delivery below the read position shows as read.
    let isBelowRead = showsRead && self[slot].rows.delivered[row] < self[slot].rows.read[row]
    let reportsDelivered = movedDelivered && !isBelowRead && !deliveredMoves.contains(.deliveredShown)
    shown.showsDelivered = reportsDelivered || shown.showsRead && isHeldDown
    // A row at the start of a thread may have had a position before its member left or hid.
    let isAtStart = changes.newRow != .none && !movedRead && !movedDelivered
    shown.showsRow = changes.isShownAnew || showsUnread || isAtStart
    shown.hasNewSettings = changes.settings != .none
    shown.at = max(
      max(shown.showsRead ? changes.read : .none, reportsDelivered ? changes.delivered : .none),
      max(showsUnread || showsCleared && shown.showsRead ? changes.marker : .none, changes.settings),
      max(changes.options, isAtStart ? changes.newRow : .none)
    )
  }

  /// Record the messages whose statuses a row that others see may have changed.
  private func changeStatuses(
    _ row: MemberOrdinal,
    _ changes: RowChanges,
    in slot: ChannelSlot,
    _ reached: inout Reached,
    _ events: inout ChangedSince
  ) {
    let options = options(slot)
    // The first message that can count for the row comes after this.
    let start = self[slot].rows.countedAfter(row)
    let (read, delivered) = (self[slot].rows.read[row].rawValue, self[slot].rows.delivered[row].rawValue)
    let showsRead = self[slot].rows.showsRead(row, options)
    if changes.isShownAnew { events.changeStatuses(after: start) }
    if changes.read != .none, showsRead {
      let from = reached.position(.read, row, self[slot].steps, before: events.time)
      events.changeStatuses(after: max(start, from), through: read)
    }
    if changes.delivered != .none, self[slot].rows.showsDelivered(row, options) {
      let from = reached.position(.delivered, row, self[slot].steps, before: events.time)
      events.changeStatuses(after: max(start, from), through: delivered)
    }
    // The marker's previous position is unknown.
    if changes.marker != .none, showsRead, options.markUnread == .public {
      events.changeStatuses(after: start, through: read)
    }
  }

  /// Up to this many members who acknowledged a message since are named; beyond that, one event reports the
  /// acknowledgement request's state.
  private static let namedMax = 100

  /// Append acknowledgement requests that were acknowledged or expired since, or that may have changed state because a
  /// member left or hid.
  private func appendAcknowledgements(_ slot: ChannelSlot, to events: inout ChangedSince) {
    for sequence in self[slot].acknowledgedMessages(settings) {
      if events.isFull { return }
      events.examined += 1
      let changedAt = self[slot].acknowledgementTable.lastShown(sequence)
      guard events.changesAcknowledgements || changedAt == .unknown || !events.isPast(changedAt) else {
        continue
      }
      events.changeStatuses(after: sequence.rawValue - 1, through: sequence.rawValue)
      // If the time must not be shown, use a time that is not before the message.
      let earliest = max(events.time, self[slot].messages.registeredAt(sequence))
      let at = changedAt == .unknown || events.isPast(changedAt) ? earliest : changedAt
      let made = self[slot].acknowledgements(of: sequence, since: events.time)
      if made.isEmpty || made.count > Self.namedMax {
        events.add(.acknowledgement(sequence, by: nil, at: at), at: at)
      } else {
        for one in made { events.add(.acknowledgement(sequence, by: one.row, at: one.at), at: one.at) }
      }
    }
    guard events.time <= time else { return }
    for sequence in self[slot].expired(in: events.time...time) {
      if events.isFull { return }
      let at = self[slot].acknowledgementTable.expiresAt(sequence)
      events.add(.acknowledgement(sequence, by: nil, at: at), at: at)
    }
  }
}

extension ChannelState {
  /// Return the acknowledgements of a message made at or after a time that others may see (R7), in order of time.
  fileprivate func acknowledgements(of sequence: SequenceNumber, since time: Timestamp) -> [Acknowledgement] {
    acknowledgementTable.acknowledgements(of: sequence).filter {
      $0.at >= time && $0.at != .none && !$0.isHidden && isSeenAcknowledging($0.row)
    }
  }
}
