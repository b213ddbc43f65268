/// What has changed since a time, for who has missed the events (DESIGN.md section 3): rows, messages and options keep
/// the time at which they changed last.
extension ShardState {
  /// What has changed in a channel at or after a time, as events: the channel's own first, statuses behind what they
  /// follow from. What has not changed since may be among it. One pass over the rows, and one over the messages whose
  /// statuses may have changed, which are those that rows have moved over as far as the steps in memory say it, and all
  /// of a row whose earlier position nobody knows.
  ///
  /// - Parameters:
  ///   - limit: of events.
  ///   - statusesMax: of messages whose statuses may have changed, in the channel and its threads.
  ///   - left: what it looked at is taken from this: rows, messages, receipts and threads.
  /// - Returns: nil: more than `limit` or `statusesMax`, or a row was erased, whom nobody can be told of any more
  ///   (R16).
  package mutating func events(
    in slot: ChannelSlot,
    since: Timestamp,
    limit: Int,
    statusesMax: Int,
    left: inout Int
  ) -> [ChannelEvent]? {
    refresh(slot)
    var events = ChangedSince(time: since, limit: limit, statusesMax: statusesMax)
    defer { left -= events.looked }
    guard append(slot, to: &events) else { return nil }
    events.looked += self[slot].threads.count
    for place in 0..<self[slot].threads.count where !self[slot].isClosed(place) {
      refresh(slot.thread(place))
      guard append(slot.thread(place), to: &events) else { return nil }
    }
    return events.all
  }

  /// Whether a channel was made at or after a time: whatever had its name before, or was missing then, is not what it
  /// is now.
  package func isNew(_ slot: ChannelSlot, since time: Timestamp) -> Bool {
    self[slot].created >= time
  }

  /// What has changed since a time, as it is gathered.
  private struct ChangedSince {
    let time: Timestamp
    let limit: Int
    /// How many more messages may be looked at for their statuses.
    var statusesMax: Int
    /// Rows, messages, receipts and threads that were looked at.
    var looked = 0
    /// What has changed in the channel, or the thread, that is looked at.
    var here: [(at: Timestamp, event: ChannelEvent)] = []
    /// The time of the newest event that is visible to somebody other than its member.
    var newestShown = Timestamp.none
    /// Messages whose statuses may have changed.
    var spans: [StatusSpan] = []
    /// Somebody has left, or hides, or shows again: receipts may be done or not.
    var changesReceipts = false
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

    /// In the order of time; what happened at the same time as it was found.
    mutating func endRoom() {
      all += here.enumerated().sorted { ($0.element.at, $0.offset) < ($1.element.at, $1.offset) }
        .map(\.element.event)
      here = []
      newestShown = .none
      (spans, changesReceipts) = ([], false)
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

    /// The messages whose statuses are to be counted, in few pieces: each takes a pass over the rows.
    ///
    /// - Parameter between: messages truncated through, and the newest one.
    /// - Returns: nil: too many.
    mutating func takeSpans(between: StatusSpan, rows: Int) -> [StatusSpan]? {
      var taken: [StatusSpan] = []
      for span in spans.sorted(by: { $0.after < $1.after }) {
        let cut = StatusSpan(
          after: max(span.after, between.after),
          through: min(span.through, between.through)
        )
        if cut.isEmpty { continue }
        if let last = taken.last, Int(cut.after) <= Int(last.through) + Int(PageID.messagesPerSegment) {
          taken[taken.count - 1].include(cut)
        } else {
          taken.append(cut)
        }
      }
      let messages = taken.reduce(0) { $0 + Int($1.through - $1.after) }
      let passes = max(0, taken.count - 1) * rows
      looked += messages + passes
      statusesMax -= messages + passes
      return statusesMax >= 0 ? taken : nil
    }
  }

  /// The channel, or one of its threads.
  ///
  /// - Returns: whether all could be told.
  private func append(_ place: ChannelSlot, to events: inout ChangedSince) -> Bool {
    let thread = self[place].parent
    var optionsChangedAt = max(
      types[self[place].type].takenAt,
      self[place.channel].optionsChangedAt
    )
    if events.isPast(optionsChangedAt) { optionsChangedAt = .none }
    // One that is new to whoever asks begins with how it is.
    if !place.isThread, isNew(place, since: events.time), self[place].created != optionsChangedAt {
      events.add(.updated(at: self[place].created), at: self[place].created)
    }
    if optionsChangedAt != .none {
      events.changeStatuses(after: 0)
      if !place.isThread { events.add(.updated(at: optionsChangedAt), at: optionsChangedAt) }
    }
    if !place.isThread, !events.isPast(self[place].truncatedAt) {
      let through = self[place].messages.truncatedThrough
      events.add(
        .truncated(through: through, at: self[place].truncatedAt),
        at: self[place].truncatedAt
      )
    }
    appendMessages(place, to: &events)
    guard appendRows(place, optionsChangedAt, to: &events), !events.isFull else { return false }
    if !place.isThread { appendReceipts(place, to: &events) }
    guard !events.isFull,
      let spans = events.takeSpans(
        between: StatusSpan(
          after: self[place].messages.truncatedThrough.rawValue,
          through: self[place].messages.newest.rawValue
        ),
        rows: self[place].rows.rowCount
      )
    else { return false }
    let last = max(events.newestShown, events.time)
    events.endRoom()
    for span in spans {
      let changes = StatusChanges(anew: span, newestBefore: self[place].messages.newest)
      for run in cutAtJoin(self[place].statusRuns(changes, options(place)), place) {
        events.all.append(.status(thread: thread, run, at: last))
      }
    }
    return !events.isFull
  }

  /// Messages registered since, and those deleted since.
  private func appendMessages(_ place: ChannelSlot, to events: inout ChangedSince) {
    let thread = self[place].parent
    let truncated = self[place].messages.truncatedThrough
    let first = self[place].messages.first(registeredSince: events.time)
    let hasDeleted = !events.isPast(self[place].messages.deletedLast)
    var sequence = hasDeleted ? truncated.next : max(first, truncated.next)
    while sequence <= self[place].messages.newest, !events.isFull {
      events.looked += 1
      if sequence < first,
        let end = self[place].messages.endOfSegment(sequence, withoutDeletionSince: events.time)
      {
        sequence = min(first, end.next)
        continue
      }
      let isDeleted = self[place].messages.flags(sequence).contains(.deleted)
      let deletedAt = self[place].messages.deletedAt(sequence)
      if isDeleted, deletedAt >= events.time {
        events.add(.messageDeleted(thread: thread, sequence, at: deletedAt), at: deletedAt)
      } else if !isDeleted, sequence >= first {
        let registeredAt = self[place].messages.registeredAt(sequence)
        let sender = self[place].rows.row(of: self[place].messages.sender(sequence))
        let moves = sender.map { sent($0, sequence, in: place) } ?? ChannelEvent.SenderMoves()
        events.add(.messageNew(thread: thread, sequence, moves: moves), at: registeredAt)
      }
      sequence = sequence.next
    }
  }

  /// Where a message has left its sender's positions, as far as they are still there.
  private func sent(_ row: MemberOrdinal, _ sequence: SequenceNumber, in place: ChannelSlot)
    -> ChannelEvent.SenderMoves
  {
    var moves = ChannelEvent.SenderMoves()
    guard self[place].isSender(row, of: sequence) else { return moves }
    let options = options(place)
    let isSeen = !self[place].rows.isUnseen(row, options)
    if self[place].rows.read[Int(row.rawValue)] == sequence.rawValue {
      moves.insert(.read)
      let isHidden = self[place].rows.hidesRead(row) || self[place].rows.readIsHidden(row)
      if isSeen, options.readEvents, !isHidden { moves.insert(.readShown) }
    }
    if self[place].rows.delivered[Int(row.rawValue)] == sequence.rawValue {
      moves.insert(.delivered)
      let isHidden = self[place].rows.hidesDelivered(row) || self[place].rows.deliveredIsHidden(row)
      if isSeen, options.deliveryEvents, !isHidden { moves.insert(.deliveredShown) }
    }
    return moves
  }

  /// What of a row's last moves the message says already that moved one of its watermarks, and is told with them.
  ///
  /// - Parameter sequence: where the watermark is.
  private func sent(
    _ row: MemberOrdinal,
    at sequence: SequenceNumber,
    in place: ChannelSlot,
    since: Timestamp
  )
    -> ChannelEvent.SenderMoves
  {
    guard sequence > self[place].messages.truncatedThrough, self[place].isSender(row, of: sequence),
      !self[place].messages.flags(sequence).contains(.deleted),
      self[place].messages.registeredAt(sequence) >= since,
      // Behind it they would be told to join; a thread does not tell that.
      place.isThread
        || self[place].rows.joinedAt[Int(row.rawValue)]
          < self[place].messages.registeredAt(sequence).milliseconds
    else { return ChannelEvent.SenderMoves() }
    return sent(row, sequence, in: place)
  }

  /// Rows that came, went or moved, or look otherwise.
  ///
  /// - Parameter optionsChangedAt: none: not since.
  private func appendRows(
    _ place: ChannelSlot,
    _ optionsChangedAt: Timestamp,
    to events: inout ChangedSince
  ) -> Bool {
    events.looked += self[place].rows.rowCount
    var reached = Reached()
    for position in 0..<self[place].rows.rowCount {
      let row = MemberOrdinal(UInt32(position))
      guard self[place].rows.isActive(row) else {
        let leftAt = self[place].rows.leftAt(row)
        if events.isPast(leftAt) || wasTakenOver(row, in: place) { continue }
        events.changeStatuses(after: self[place].rows.firstCounted(row))
        events.changesReceipts = true
        if place.isThread { continue }
        let user = self[place].rows.user(row)
        if user == .nobody { return false }
        events.add(.memberRemoved(user: self[place].users.text(user), at: leftAt), at: leftAt)
        continue
      }
      let joinedAt = Timestamp(milliseconds: self[place].rows.joinedAt[position])
      if !place.isThread, !events.isPast(joinedAt) {
        events.add(.memberAdded(row, at: joinedAt), at: joinedAt)
      }
      appendChanged(place, row, optionsChangedAt, &reached, to: &events)
      if events.isFull { return false }
    }
    return true
  }

  /// Whether a row was left for another, with which its member takes part in the thread for all to see: nobody saw the
  /// one that was left (R7).
  private func wasTakenOver(_ row: MemberOrdinal, in thread: ChannelSlot) -> Bool {
    guard self[thread].rows.joinedByReading(row), self[thread].rows.user(row) != .nobody,
      let taken = self[thread].rows.row(of: self[thread].rows.user(row))
    else { return false }
    return Timestamp(milliseconds: self[thread].rows.joinedAt[Int(taken.rawValue)])
      == self[thread].rows.leftAt(row)
  }

  /// How far the rows of one page had got before the time that is asked for.
  private struct Reached {
    private var rowPage: UInt32?
    private var positions: [UInt32] = []

    /// - Returns: a position that the row's watermark had reached then; it may have been farther.
    mutating func position(
      _ kind: StepKind,
      _ row: MemberOrdinal,
      _ steps: borrowing StepTable,
      before time: Timestamp
    )
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

  /// What of a row changed since: for its member's own devices with the time of that, and for others with the time of
  /// what they may know of (R4, R7).
  private func appendChanged(
    _ place: ChannelSlot,
    _ row: MemberOrdinal,
    _ optionsChangedAt: Timestamp,
    _ reached: inout Reached,
    to events: inout ChangedSince
  ) {
    let position = Int(row.rawValue)
    let joinedAt = Timestamp(milliseconds: self[place].rows.joinedAt[position])
    var readAt = Timestamp(milliseconds: self[place].rows.readAt[position])
    // Who joins a thread by marking it read has read it then.
    if place.isThread, readAt == .none, self[place].rows.read[position] > 0 { readAt = joinedAt }
    let deliveredAt = Timestamp(milliseconds: self[place].rows.deliveredAt[position])
    let markedAt = self[place].rows.markedAt(row)
    let takenAt = settings.isEmpty ? .none : withUser(place, row) { settings.takenAt($0) }
    let flaggedAt = self[place].rows.flaggedAt(row)
    let (isRead, isMarked) = (!events.isPast(readAt), !events.isPast(markedAt))
    let isFlagged = !events.isPast(flaggedAt)
    let isDelivered = !events.isPast(deliveredAt)
    let isShownAnew = !events.isPast(takenAt) || optionsChangedAt != .none
    // A row that is new in a thread brings an epoch that the own devices may not know.
    let isNewRow = place.isThread && !events.isPast(joinedAt)
    guard isRead || isMarked || isFlagged || isDelivered || isShownAnew || isNewRow else { return }
    /// Each watermark by itself: what a hidden read has moved on must not change what is told of deliveries (R7).
    func said(of watermark: UInt32, _ isMoved: Bool) -> ChannelEvent.SenderMoves {
      isMoved
        ? sent(row, at: SequenceNumber(watermark), in: place, since: events.time) : ChannelEvent.SenderMoves()
    }
    let saidOfRead = said(of: self[place].rows.read[position], isRead)
    let saidOfDelivered = said(of: self[place].rows.delivered[position], isDelivered)
    if !events.isPast(takenAt) { events.changesReceipts = true }
    let staysUnread = self[place].rows.marker(row) != nil || self[place].rows.isFlaggedUnread(row)
    let own = ChannelEvent.RowEvent(
      thread: self[place].parent,
      row: row,
      // What was done to the marker is not known any more: one that is set is told as set, one that is gone as read.
      // The flag likewise.
      isRead: isRead && (isNewRow || !saidOfRead.contains(.read)) || (isMarked || isFlagged) && !staysUnread,
      isUnread: (isMarked || isFlagged) && staysUnread,
      at: max(isRead ? readAt : .none, isMarked ? markedAt : .none, isFlagged ? flaggedAt : .none)
    )
    var shown = ChannelEvent.RowEvent(thread: self[place].parent, row: row, at: .none)
    // Where the first message is that can count for them.
    let start = self[place].rows.firstCounted(row)
    if self[place].rows.isUnseen(row, options(place)) {
      // They may have been seen here before they hid, but not where they came after that.
      let neverShown = self[place].rows.readSteps[position] == 1 && self[place].rows.readIsHidden(row)
      if !events.isPast(takenAt), joinedAt < takenAt || joinedAt == takenAt && !neverShown {
        events.changeStatuses(after: start)
      }
    } else {
      let options = options(place)
      let showsRead = self[place].rows.showsRead(row, options)
      let showsMarker = isMarked && showsRead && options.markUnread == .public
      // What reading has taken away shows as that reading, whether or not it moved the watermark too.
      let showsUnread = showsMarker && self[place].rows.marker(row) != nil
      let showsReadOn = showsMarker && !showsUnread
      let movedRead = isRead && showsRead
      let movedDelivered = isDelivered && self[place].rows.showsDelivered(row, options)
      shown.showsRead = (movedRead || showsReadOn) && !saidOfRead.contains(.readShown)
      // A read that a marker hides from others is still a delivery (R4).
      let isHeldDown = options.markUnread == .public && self[place].rows.marker(row) != nil
      // What was delivered below what was read shows as read.
      let isBelowRead = showsRead && self[place].rows.delivered[position] < self[place].rows.read[position]
      let tellsDelivered = movedDelivered && !isBelowRead && !saidOfDelivered.contains(.deliveredShown)
      shown.showsDelivered = tellsDelivered || shown.showsRead && isHeldDown
      // Who stands nowhere in a thread may have stood somewhere in it before they left, or hid.
      let isAtStart = isNewRow && !movedRead && !movedDelivered
      shown.showsRow = isShownAnew || showsUnread || isAtStart
      shown.hasNewSettings = !events.isPast(takenAt)
      let times = [
        shown.showsRead ? readAt : .none, tellsDelivered ? deliveredAt : .none,
        showsUnread || showsReadOn && shown.showsRead ? markedAt : .none, takenAt, optionsChangedAt,
        isAtStart ? joinedAt : .none,
      ]
      shown.at = times.filter { !events.isPast($0) }.max() ?? .none
      if isShownAnew { events.changeStatuses(after: start) }
      if movedRead {
        let from = reached.position(.read, row, self[place].steps, before: events.time)
        events.changeStatuses(after: max(start, from), through: self[place].rows.read[position])
      }
      if movedDelivered {
        let from = reached.position(.delivered, row, self[place].steps, before: events.time)
        events.changeStatuses(after: max(start, from), through: self[place].rows.delivered[position])
      }
      // Where the marker was before nobody knows.
      if showsMarker { events.changeStatuses(after: start, through: self[place].rows.read[position]) }
    }
    for event in ChannelEvent.RowEvent.events(own: own, shown: shown) {
      events.add(.row(event), at: event.at, isShown: event.tellsOthers)
    }
  }

  /// So many members are named who have acknowledged a message since; of more it is told once how it stands.
  private static let namedMax = 100

  /// Receipts that were acknowledged since, or may be done or not since somebody left or hides, and those that have
  /// expired since.
  private func appendReceipts(_ place: ChannelSlot, to events: inout ChangedSince) {
    for sequence in self[place].receiptsAcknowledged(settings) {
      if events.isFull { return }
      events.looked += 1
      let changedAt = self[place].receipts.lastShown(sequence)
      guard events.changesReceipts || changedAt == .unknown || !events.isPast(changedAt) else {
        continue
      }
      events.changeStatuses(after: sequence.rawValue - 1, through: sequence.rawValue)
      // Where nobody may know when, it is not told before its message.
      let earliest = max(events.time, self[place].messages.registeredAt(sequence))
      let at = changedAt == .unknown || events.isPast(changedAt) ? earliest : changedAt
      let made = self[place].acknowledgements(of: sequence, since: events.time)
      if made.isEmpty || made.count > Self.namedMax {
        events.add(.receipt(sequence, by: nil, at: at), at: at)
      } else {
        for one in made { events.add(.receipt(sequence, by: one.row, at: one.at), at: one.at) }
      }
    }
    guard events.time <= time else { return }
    for sequence in self[place].expired(in: events.time...time) {
      if events.isFull { return }
      let at = self[place].receipts.expiresAt(sequence)
      events.add(.receipt(sequence, by: nil, at: at), at: at)
    }
  }
}

extension ChannelState {
  /// The acknowledgements of a message that were made at or after a time, as far as everybody may know them (R7), in
  /// the order in which they were made.
  fileprivate func acknowledgements(of sequence: SequenceNumber, since time: Timestamp) -> [Acknowledgement] {
    receipts.acknowledgements(of: sequence).filter {
      $0.at >= time && $0.at != .none && !$0.isHidden && isSeenAcknowledging($0.row)
    }
  }
}
