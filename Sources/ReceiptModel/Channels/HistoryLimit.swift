/// The members under hidden history from whom an event is hidden in whole or in part (R6), as a range of join times.
///
/// A store does not know which users have streams at a gateway, and a gateway does not know how users joined. So an
/// event carries join times, which both know, to say for which members it is limited.
package struct HistoryLimit: Hashable, Sendable {
  /// The parts of the event that predate the members' join.
  @usableFromInline
  package struct Hidden: FlagSet {
    @usableFromInline package let rawValue: UInt8
    @inlinable package init(rawValue: UInt8) { self.rawValue = rawValue }
    /// The whole event.
    package static let event = Hidden(rawValue: 1)
    /// The message that the event names, or the read position.
    package static let position = Hidden(rawValue: 2)
    /// The delivered position.
    package static let delivered = Hidden(rawValue: 4)
    /// The change of another member's row; the visible rest of the row did not change.
    package static let row = Hidden(rawValue: 8)
    package static let known: UInt8 = 15
  }

  package var from: Timestamp
  package var through: Timestamp
  package var hidden: Hidden
  /// The position shown instead of a hidden one: the newest message at their join. Zero if none is shown.
  package var joined: SequenceNumber

  package init(from: Timestamp, through: Timestamp, hidden: Hidden, joined: SequenceNumber = .zero) {
    self.from = from
    self.through = through
    self.hidden = hidden
    self.joined = joined
  }
}

/// The parts of an event that hidden history may hide.
private struct EventSubject {
  /// The channel, or one of its threads.
  var slot: ChannelSlot
  /// The message that the event names, or the read position; nil: neither.
  var position: SequenceNumber?
  var delivered: SequenceNumber?
  /// A hidden position is replaced by the join instead of omitted.
  var showsJoin = false
  /// The highest position of a row that others may have seen. If it is hidden, the change of the row is hidden too.
  /// Nil: unknown.
  var farthest: SequenceNumber?
  var at: Timestamp
}

extension ShardState {
  /// Return the limits of a channel's event, in falling order of join times. Empty for nearly every event: most concern
  /// messages newer than the last join.
  package func historyLimits(of event: ChannelEvent, in slot: ChannelSlot) -> [HistoryLimit] {
    guard self[slot].rows.hidingHistoryCount > 0 else { return [] }
    switch event {
    case .status(let thread, let run, let time):
      return limits(ofSender: run.sender, targetSlot(ofThread: thread, in: slot), through: run.to, at: time)
    case .acknowledgement(let sequence, _, let time):
      return limits(ofSender: self[slot].messages.sender(sequence), slot, through: sequence, at: time)
    case .row, .messageNew, .messageDeleted, .truncated, .updated, .memberAdded, .memberRemoved:
      return subject(of: event, in: slot).map { limits($0) } ?? []
    }
  }

  /// Return whether a row event includes the newest message at the member's join. Not if any member is under hidden
  /// history: each who joined later would have to see their own join there.
  package func includesJoin(in slot: ChannelSlot) -> Bool {
    self[slot.channel].rows.hidingHistoryCount == 0
  }

  private func subject(of event: ChannelEvent, in slot: ChannelSlot) -> EventSubject? {
    switch event {
    case .row(let row):
      guard row.isForOthers, let targetSlot = targetSlot(ofThread: row.thread, in: slot) else { return nil }
      let shown = shownRow(targetSlot, row.row, withOwnDetails: false)
      return EventSubject(
        slot: targetSlot,
        position: shown.lastReadSequence,
        delivered: shown.lastDeliveredSequence,
        showsJoin: row.showsRow,
        farthest: row.showsRow ? farthest(row, in: targetSlot) : nil,
        at: row.at
      )
    case .messageNew(let thread, let sequence, _):
      guard let targetSlot = targetSlot(ofThread: thread, in: slot) else { return nil }
      return EventSubject(slot: targetSlot, position: sequence, at: self[targetSlot].messages.registeredAt(sequence))
    case .messageDeleted(let thread, let sequence, let time):
      guard let targetSlot = targetSlot(ofThread: thread, in: slot) else { return nil }
      return EventSubject(slot: targetSlot, position: sequence, at: time)
    case .truncated(let sequence, let time): return EventSubject(slot: slot, position: sequence, at: time)
    case .updated(let time): return EventSubject(slot: slot, position: self[slot].messages.newest, at: time)
    case .memberAdded(let row, let time):
      let position = self[slot].positionOfJoining(row)
      return EventSubject(slot: slot, position: position == .zero ? nil : position, showsJoin: true, at: time)
    case .memberRemoved(_, let time): return EventSubject(slot: slot, at: time)
    case .status, .acknowledgement: return nil
    }
  }

  private func farthest(_ event: ChannelEvent.RowEvent, in slot: ChannelSlot) -> SequenceNumber? {
    let hidesRead = self[slot].rows.hidesRead(event.row)
    let hidesDelivered = self[slot].rows.hidesDelivered(event.row)
    // Moves made while hidden must not influence what is reported (R7).
    if event.hasNewSettings, hidesRead || hidesDelivered { return nil }
    let read = hidesRead ? .zero : self[slot].rows.read[event.row]
    // Deliveries are reported separately.
    let isApart = event.showsDelivered || hidesDelivered
    return isApart ? read : max(read, self[slot].rows.delivered[event.row])
  }

  /// Compute the limits. Rows are in join order, so the members with hidden parts are among the last rows.
  private func limits(_ subject: EventSubject) -> [HistoryLimit] {
    let channel = subject.slot.channel
    var limits: [HistoryLimit] = []
    /// No member without a limit joined since the last of the limits.
    var isAdjacent = false
    var row = self[channel].rows.rowCount
    while row > 0 {
      row -= 1
      let member = MemberOrdinal(UInt32(row))
      let joinedAt = self[channel].rows.joinedAt(member)
      let hidden = hidden(subject, fromRow: member, joinedAt)
      if hidden.isEmpty { break }
      guard self[channel].rows.isActive(member) else { continue }
      guard self[channel].rows.hidesHistory(member) else {
        isAdjacent = false
        continue
      }
      var limit = HistoryLimit(from: joinedAt, through: joinedAt, hidden: hidden)
      if subject.showsJoin { limit.joined = hiddenThrough(subject.slot, member) }
      if isAdjacent, let last = limits.last, last.hidden == limit.hidden, last.joined == limit.joined {
        limits[limits.count - 1].from = joinedAt
      } else {
        limits.append(limit)
      }
      isAdjacent = true
    }
    return limits
  }

  /// Return the parts hidden from a member with this row, if the member is under hidden history.
  private func hidden(
    _ subject: EventSubject,
    fromRow row: MemberOrdinal,
    _ joinedAt: Timestamp
  ) -> HistoryLimit.Hidden {
    var hidden: HistoryLimit.Hidden = []
    if subject.at < joinedAt { hidden.insert(.event) }
    // A thread exists for the member from its first reply after the join on.
    if subject.slot.isThread, isHidden(self[subject.slot].messages.newest, subject.slot, fromRow: row, joinedAt) {
      hidden.insert(.event)
    }
    if let farthest = subject.farthest, isHidden(farthest, subject.slot, fromRow: row, joinedAt) {
      hidden.insert(.row)
    }
    if let position = subject.position, isHidden(position, subject.slot, fromRow: row, joinedAt) {
      hidden.insert(.position)
    }
    if let delivered = subject.delivered, isHidden(delivered, subject.slot, fromRow: row, joinedAt) {
      hidden.insert(.delivered)
    }
    return hidden
  }

  /// Return whether a position is hidden from the row's member. If nothing precedes the join, no position is hidden.
  private func isHidden(
    _ position: SequenceNumber,
    _ slot: ChannelSlot,
    fromRow row: MemberOrdinal,
    _ joinedAt: Timestamp
  ) -> Bool {
    let first = max(position, SequenceNumber(1))
    guard slot.isThread else { return first <= self[slot].rows.joined(row) }
    return first <= self[slot].messages.newest && self[slot].messages.registeredAt(first) < joinedAt
  }

  /// Return the limits of an event that only its message's sender receives.
  private func limits(
    ofSender sender: UserNumber,
    _ slot: ChannelSlot?,
    through sequence: SequenceNumber,
    at time: Timestamp
  ) -> [HistoryLimit] {
    guard let slot, let member = member(sender, in: slot) else { return [] }
    let joinedAt = self[slot.channel].rows.joinedAt(member)
    guard self[slot.channel].rows.hidesHistory(member), sequence <= hiddenThrough(slot, member) || time < joinedAt
    else { return [] }
    return [HistoryLimit(from: joinedAt, through: joinedAt, hidden: .event)]
  }

  /// Return the channel row of a user of the channel or of one of its threads.
  private func member(_ user: UserNumber, in slot: ChannelSlot) -> MemberOrdinal? {
    guard user != .nobody else { return nil }
    return slot.isThread ? withUser(slot, user) { self[slot.channel].row(of: $0) } : self[slot].rows.row(of: user)
  }

  /// Split status runs at the position up to which hidden history hides messages from their sender (R6).
  func cutAtJoin(_ runs: [ChannelEvent.StatusRun], _ slot: ChannelSlot) -> [ChannelEvent.StatusRun] {
    guard self[slot.channel].rows.hidingHistoryCount > 0 else { return runs }
    return runs.flatMap { run -> [ChannelEvent.StatusRun] in
      guard let member = member(run.sender, in: slot) else { return [run] }
      let end = hiddenThrough(slot, member)
      guard run.from <= end, end < run.to,
        let next = self[slot].messages.first(sentBy: run.sender, after: end, through: run.to)
      else { return [run] }
      var last = end
      while self[slot].messages.sender(last) != run.sender { last = SequenceNumber(last.rawValue - 1) }
      var (before, since) = (run, run)
      (before.to, since.from) = (last, next)
      return [before, since]
    }
  }
}
