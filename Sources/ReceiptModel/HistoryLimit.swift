/// Members under hidden history to whom an event tells of what was before their join (R6): those who joined from one
/// time through another.
///
/// A store does not know which users a gateway has streams of, and a gateway does not know how users have joined: so an
/// event carries for whom it is limited, by the times of their joining, which both know.
package struct HistoryLimit: Hashable, Sendable {
  /// What of the event is from before their join.
  @usableFromInline
  package struct Hidden: FlagSet {
    @usableFromInline package let rawValue: UInt8
    @inlinable package init(rawValue: UInt8) { self.rawValue = rawValue }
    /// All of it.
    package static let event = Hidden(rawValue: 1)
    /// The message that it names, or the read position.
    package static let position = Hidden(rawValue: 2)
    /// The delivered position.
    package static let delivered = Hidden(rawValue: 4)
    /// That the row of another member looks otherwise: what is left of it to see does not.
    package static let row = Hidden(rawValue: 8)
    package static let known: UInt8 = 15
  }

  package var from: Timestamp
  package var through: Timestamp
  package var hidden: Hidden
  /// What a hidden position shows as, where one is shown: the newest message when they joined; else zero.
  package var joined: SequenceNumber

  package init(from: Timestamp, through: Timestamp, hidden: Hidden, joined: SequenceNumber = .zero) {
    self.from = from
    self.through = through
    self.hidden = hidden
    self.joined = joined
  }
}

/// What an event tells of, as far as hidden history goes.
private struct EventSubject {
  /// The channel, or one of its threads.
  var place: ChannelSlot
  /// The message that it names, or the read position; nil: none.
  var position: SequenceNumber?
  var delivered: SequenceNumber?
  /// A hidden position is not left out, but shows as the join.
  var showsJoin = false
  /// The farthest position of a row that others may have seen; if that is hidden, so is that the row looks otherwise.
  /// Nil: it is not known.
  var farthest: SequenceNumber?
  var at: Timestamp
}

extension ShardState {
  /// Who is not to be told an event of a channel, or what of it; in falling order of their times. Empty for nearly
  /// every event: what happens is about messages that are newer than the last join.
  package func historyLimits(of event: ChannelEvent, in slot: ChannelSlot) -> [HistoryLimit] {
    guard self[slot].rows.hidingHistoryCount > 0 else { return [] }
    switch event {
    case .status(let thread, let run, let time):
      return limits(ofSender: run.sender, place(ofThread: thread, in: slot), through: run.to, at: time)
    case .receipt(let sequence, _, let time):
      return limits(ofSender: self[slot].messages.sender(sequence), slot, through: sequence, at: time)
    case .row, .messageNew, .messageDeleted, .truncated, .updated, .memberAdded, .memberRemoved:
      return subject(of: event, in: slot).map { limits($0) } ?? []
    }
  }

  /// Whether an event's row says what the newest message was when its member joined. Not where somebody is under hidden
  /// history: to each who joined later it would have to be their own join.
  package func tellsJoin(in place: ChannelSlot) -> Bool { self[place.channel].rows.hidingHistoryCount == 0 }

  private func place(ofThread parent: SequenceNumber, in slot: ChannelSlot) -> ChannelSlot? {
    parent == .zero ? slot : self[slot].threads.place(of: parent).map { slot.thread($0) }
  }

  private func subject(of event: ChannelEvent, in slot: ChannelSlot) -> EventSubject? {
    switch event {
    case .row(let row):
      guard row.tellsOthers, let place = place(ofThread: row.thread, in: slot) else { return nil }
      let shown = shownRow(place, row.row, withOwnDetails: false)
      return EventSubject(
        place: place,
        position: shown.lastReadSequence,
        delivered: shown.lastDeliveredSequence,
        showsJoin: row.showsRow,
        farthest: row.showsRow ? farthest(row, in: place) : nil,
        at: row.at
      )
    case .messageNew(let thread, let sequence, _):
      guard let place = place(ofThread: thread, in: slot) else { return nil }
      return EventSubject(
        place: place,
        position: sequence,
        at: self[place].messages.registeredAt(sequence)
      )
    case .messageDeleted(let thread, let sequence, let time):
      guard let place = place(ofThread: thread, in: slot) else { return nil }
      return EventSubject(place: place, position: sequence, at: time)
    case .truncated(let sequence, let time): return EventSubject(place: slot, position: sequence, at: time)
    case .updated(let time):
      return EventSubject(place: slot, position: self[slot].messages.newest, at: time)
    case .memberAdded(let row, let time):
      let position = self[slot].positionOfJoining(row)
      return EventSubject(
        place: slot,
        position: position == .zero ? nil : position,
        showsJoin: true,
        at: time
      )
    case .memberRemoved(_, let time): return EventSubject(place: slot, at: time)
    case .status, .receipt: return nil
    }
  }

  private func farthest(_ event: ChannelEvent.RowEvent, in place: ChannelSlot) -> SequenceNumber? {
    let hidesRead = self[place].rows.hidesRead(event.row)
    let hidesDelivered = self[place].rows.hidesDelivered(event.row)
    // What moved while it was hidden must not decide what is told (R7).
    if event.hasNewSettings, hidesRead || hidesDelivered { return nil }
    let position = Int(event.row.rawValue)
    let read = hidesRead ? 0 : self[place].rows.read[position]
    // What was delivered is told for itself.
    let isApart = event.showsDelivered || hidesDelivered
    return SequenceNumber(isApart ? read : max(read, self[place].rows.delivered[position]))
  }

  /// Rows are in join order: those from whom anything is hidden are among the last.
  private func limits(_ subject: EventSubject) -> [HistoryLimit] {
    let channel = subject.place.channel
    var limits: [HistoryLimit] = []
    /// Nobody to whom all is told joined since the last of the limits.
    var isAdjacent = false
    var row = self[channel].rows.rowCount
    while row > 0 {
      row -= 1
      let joinedAt = Timestamp(milliseconds: self[channel].rows.joinedAt[row])
      let hidden = hidden(subject, fromRow: row, joinedAt)
      if hidden.isEmpty { break }
      let member = MemberOrdinal(UInt32(row))
      guard self[channel].rows.isActive(member) else { continue }
      guard self[channel].rows.hidesHistory(member) else {
        isAdjacent = false
        continue
      }
      var limit = HistoryLimit(from: joinedAt, through: joinedAt, hidden: hidden)
      if subject.showsJoin { limit.joined = hiddenThrough(subject.place, member) }
      if isAdjacent, let last = limits.last, last.hidden == limit.hidden, last.joined == limit.joined {
        limits[limits.count - 1].from = joinedAt
      } else {
        limits.append(limit)
      }
      isAdjacent = true
    }
    return limits
  }

  /// What would be hidden from whoever joined with a row, if their history is.
  private func hidden(
    _ subject: EventSubject,
    fromRow row: Int,
    _ joinedAt: Timestamp
  ) -> HistoryLimit.Hidden {
    var hidden: HistoryLimit.Hidden = []
    if subject.at < joinedAt { hidden.insert(.event) }
    // A thread exists for them from its first reply since their join on.
    if subject.place.isThread,
      isHidden(self[subject.place].messages.newest, subject.place, fromRow: row, joinedAt)
    {
      hidden.insert(.event)
    }
    if let farthest = subject.farthest, isHidden(farthest, subject.place, fromRow: row, joinedAt) {
      hidden.insert(.row)
    }
    if let position = subject.position, isHidden(position, subject.place, fromRow: row, joinedAt) {
      hidden.insert(.position)
    }
    if let delivered = subject.delivered, isHidden(delivered, subject.place, fromRow: row, joinedAt) {
      hidden.insert(.delivered)
    }
    return hidden
  }

  /// Where nothing is before the join, no position is hidden.
  private func isHidden(
    _ position: SequenceNumber,
    _ place: ChannelSlot,
    fromRow row: Int,
    _ joinedAt: Timestamp
  ) -> Bool {
    let first = max(position, SequenceNumber(1))
    guard place.isThread else { return first.rawValue <= self[place].rows.joined[row] }
    return first <= self[place].messages.newest && self[place].messages.registeredAt(first) < joinedAt
  }

  /// Of an event that its message's sender alone is told.
  private func limits(
    ofSender sender: UserNumber,
    _ place: ChannelSlot?,
    through sequence: SequenceNumber,
    at time: Timestamp
  ) -> [HistoryLimit] {
    guard let place, let member = member(sender, in: place) else { return [] }
    let joinedAt = Timestamp(milliseconds: self[place.channel].rows.joinedAt[Int(member.rawValue)])
    guard self[place.channel].rows.hidesHistory(member),
      sequence <= hiddenThrough(place, member) || time < joinedAt
    else { return [] }
    return [HistoryLimit(from: joinedAt, through: joinedAt, hidden: .event)]
  }

  /// The row in the channel of a user of the channel, or of one of its threads.
  private func member(_ user: UserNumber, in place: ChannelSlot) -> MemberOrdinal? {
    guard user != .nobody else { return nil }
    return place.isThread
      ? withUser(place, user) { self[place.channel].row(of: $0) } : self[place].rows.row(of: user)
  }

  /// Runs of statuses, each on one side of what hidden history hides from its sender (R6).
  func cutAtJoin(_ runs: [ChannelEvent.StatusRun], _ place: ChannelSlot) -> [ChannelEvent.StatusRun] {
    guard self[place.channel].rows.hidingHistoryCount > 0 else { return runs }
    return runs.flatMap { run -> [ChannelEvent.StatusRun] in
      guard let member = member(run.sender, in: place) else { return [run] }
      let end = hiddenThrough(place, member)
      guard run.from <= end, end < run.to,
        let next = self[place].messages.first(sentBy: run.sender, after: end, through: run.to)
      else { return [run] }
      var last = end
      while self[place].messages.sender(last) != run.sender { last = SequenceNumber(last.rawValue - 1) }
      var (before, since) = (run, run)
      (before.to, since.from) = (last, next)
      return [before, since]
    }
  }
}
