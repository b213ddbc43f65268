/// Acknowledgements: permission to request them, and making them (R9).
extension ShardState {
  // MARK: Requesting acknowledgement

  /// The flags and expiry with which a message that requests acknowledgement is registered.
  struct AcknowledgementGrant: Hashable {
    var flags: MessageRecord.Flags
    /// None: never.
    var expiresAt: Timestamp
  }

  /// Decide whether a message that is being registered gets the acknowledgement that it requests.
  func acknowledgementGrant(_ slot: ChannelSlot, sender: RawSpan, at time: Timestamp) -> AcknowledgementGrant {
    let options = self.options(slot)
    if let roles = options.receiptRequestRoles {
      let role = self[slot].row(of: sender).flatMap { self[slot].rows.role($0) }
      guard let role, roles.contains(role) else {
        return AcknowledgementGrant(flags: .acknowledgementNotAllowed, expiresAt: .none)
      }
    }
    if let limit = options.receiptDailyLimit, self[slot].acknowledgementRequestsOfDay(time) >= Int(limit) {
      return AcknowledgementGrant(flags: .acknowledgementOverLimit, expiresAt: .none)
    }
    let lifetime = options.receiptTTL.map { Int64($0) * 1_000 }
    let expiry = lifetime.map { Timestamp(milliseconds: time.milliseconds + $0) }
    return AcknowledgementGrant(flags: .requestsAcknowledgement, expiresAt: expiry ?? .none)
  }

  /// Return why a message that requested acknowledgement was registered without one; the same for every repeat of its
  /// registration.
  package func acknowledgementRequestRefusal(_ slot: ChannelSlot, _ sequence: SequenceNumber)
    -> AcknowledgementRequestRefusal
  {
    let flags = self[slot].messages.flags(sequence)
    if flags.contains(.acknowledgementNotAllowed) { return .notAllowed }
    return flags.contains(.acknowledgementOverLimit) ? .limitReached : .none
  }

  // MARK: Acknowledging

  /// Acknowledge one message. Assign the effects of each acknowledgement before deciding the next: a batch may contain
  /// a message twice.
  ///
  /// A message that the member has acknowledged before, or that was registered before they joined, is not refused and
  /// changes nothing.
  ///
  /// - Parameter note: at most ``Acknowledgement/noteLengthMax`` bytes; empty: none.
  package func decideAcknowledge(
    _ slot: ChannelSlot,
    _ row: MemberOrdinal,
    message: RawSpan,
    note: String,
    at time: Timestamp,
    into effects: inout [Effect]
  ) throws(Refusal) {
    guard let sequence = find(message, in: slot, hiddenThrough: hiddenThrough(slot, row)) else {
      if let index = self[slot].threads.index(ofReply: message) {
        let thread = slot.thread(index)
        guard find(message, in: thread, hiddenThrough: hiddenThrough(thread, row)) != nil else {
          throw .messageNotFound
        }
      }
      // No reply has an acknowledgement request (R15).
      throw try knownReply(message, in: slot) == nil ? .messageNotFound : .acknowledgementNotRequested
    }
    if let refusal = self[slot].refusesAcknowledgement(of: sequence, by: row, at: time) { throw refusal }
    guard !self[slot].acknowledgementTable.hasAcknowledged(sequence, row) else { return }
    let keptMax = options(slot).receiptMembersMax.map { Int($0) }
    self[slot].acknowledge(sequence, row, note: note, keptMax: keptMax, at: time, into: &effects)
  }

  /// Acknowledge messages for a mark-read (`read_acks_receipts`): every message up to `sequence` that could be
  /// acknowledged individually. These are not examined again.
  func decideReadAcknowledges(
    _ slot: ChannelSlot,
    _ row: MemberOrdinal,
    through sequence: SequenceNumber,
    at time: Timestamp,
    into effects: inout [Effect]
  ) {
    guard !self[slot].acknowledgementTable.isEmpty else { return }
    let through = self[slot].rows.acknowledgedThrough(row)
    guard sequence > through,
      !self[slot].acknowledgementTable.indices(after: through, through: sequence).isEmpty
    else { return }
    let options = self.options(slot)
    switch options.readAcksReceipts {
    case .never: return
    case .direct where self[slot].rows.activeCount != 2: return
    case .direct, .always: break
    }
    // Messages registered before the member joined do not wait for them.
    let joined = self[slot].rows.joined(row)
    let keptMax = options.receiptMembersMax.map { Int($0) }
    for index in self[slot].acknowledgementTable.indices(after: max(through, joined), through: sequence) {
      let message = self[slot].acknowledgementTable.sequence(at: index)
      guard self[slot].refusesAcknowledgement(of: message, by: row, at: time) == nil,
        !self[slot].acknowledgementTable.hasAcknowledged(message, row)
      else { continue }
      self[slot].acknowledge(message, row, note: "", keptMax: keptMax, at: time, into: &effects)
    }
    effects.append(.channel(self[slot].number, .acknowledgedThrough(row, to: sequence)))
  }
}

extension ChannelState {
  private static let millisecondsPerDay: Int64 = 86_400_000

  /// Return the number of messages with acknowledgement requests that were registered in the UTC day of `time`,
  /// including deleted ones.
  fileprivate func acknowledgementRequestsOfDay(_ time: Timestamp) -> Int {
    let start = time.milliseconds - time.milliseconds % Self.millisecondsPerDay
    // A shard's time never goes back, so acknowledgement requests are in order of registration.
    var low = 0
    var high = acknowledgementTable.count
    while low < high {
      let middle = (low + high) / 2
      let registered = messages.registeredAt(acknowledgementTable.sequence(at: middle)).milliseconds
      if registered < start { low = middle + 1 } else { high = middle }
    }
    return acknowledgementTable.count - low
  }

  /// Return the first reason why a member must not acknowledge a message.
  fileprivate func refusesAcknowledgement(
    of sequence: SequenceNumber,
    by row: MemberOrdinal,
    at time: Timestamp
  ) -> Refusal? {
    if messages.flags(sequence).contains(.deleted) { return .messageDeleted }
    if !acknowledgementTable.isRequested(sequence) { return .acknowledgementNotRequested }
    if messages.sender(sequence) == rows.user(row) { return .ownMessage }
    if acknowledgementTable.hasAcknowledged(sequence, row) { return nil }
    if rows.joined(row) >= sequence { return .notExpected }
    return isExpired(sequence, at: time) ? .acknowledgementExpired : nil
  }

  /// Record an acknowledgement. Beyond `keptMax`, drops the oldest records of visible acknowledgements.
  ///
  /// An acknowledgement made while hidden drops no record and is not dropped. Its effect on another record would reveal
  /// it: to that record's member by their own time, even if they hide too, or to everybody once they are visible again
  /// (R7). Its time must also stay known as hidden, because the oldest kept record says nothing about it.
  fileprivate func acknowledge(
    _ sequence: SequenceNumber,
    _ row: MemberOrdinal,
    note: String,
    keptMax: Int?,
    at time: Timestamp,
    into effects: inout [Effect]
  ) {
    let isHidden = rows.hidesRead(row)
    // If no records are kept, do not log this one's time and note.
    let keepsNone = keptMax == 0
    let record = Acknowledgement(
      row: row,
      at: keepsNone && !isHidden ? .none : time,
      isHidden: isHidden,
      note: keepsNone ? "" : note
    )
    effects.append(.channel(number, .acknowledged(sequence, record)))
    guard let keptMax, !isHidden else { return }
    let kept = acknowledgementTable.keptCount(sequence, isHidden: false) + (keepsNone ? 0 : 1)
    guard kept > keptMax else { return }
    for oldest in acknowledgementTable.oldest(kept - keptMax, of: sequence, isHidden: false) {
      effects.append(.channel(number, .acknowledgementForgotten(sequence, oldest)))
    }
  }
}

/// Expiring acknowledgement requests (R9). The shard's time (R20) expires an acknowledgement request, not an effect. A
/// channel's subscribers are notified once that time has come.
extension ChannelState {
  /// Record the acknowledgement requests of the channel that have expired between two times without being done.
  /// Requires that users' settings are applied.
  ///
  /// - Parameters:
  ///   - after: acknowledgement requests that expired up to then were recorded before.
  ///   - end: at most the shard's time.
  /// - Returns: whether there are any.
  package func recordExpiries(after: Timestamp, through end: Timestamp, _ pending: inout PendingChannelEvents) -> Bool {
    guard after < end, !acknowledgementTable.isEmpty else { return false }
    let expired = expired(in: Timestamp(milliseconds: after.milliseconds + 1)...end)
    for sequence in expired { pending.expire(sequence, at: acknowledgementTable.expiresAt(sequence)) }
    return !expired.isEmpty
  }

  /// Return when the channel's next acknowledgement request after a time expires; none: no acknowledgement request
  /// does.
  package func nextExpiry(after time: Timestamp) -> Timestamp {
    acknowledgementTable.isEmpty ? .none : acknowledgementTable.nextExpiry(after: time)
  }

  /// Return when the channel's last acknowledgement request that has expired by a time expired; none: none has.
  package func lastExpiry(through time: Timestamp) -> Timestamp {
    guard time > .none else { return .none }
    let expired = acknowledgementTable.expiring(in: Timestamp(milliseconds: 1)...time)
    return expired.map { acknowledgementTable.expiresAt($0) }.max() ?? .none
  }

  /// Return when a message's acknowledgement request expires; none: never, or there is no such message.
  package func acknowledgementExpiry(of message: RawSpan) -> Timestamp {
    messages.find(message).map { acknowledgementTable.expiresAt($0) } ?? .none
  }

  /// Return the messages whose acknowledgement requests expire in a range of times and are not done.
  func expired(in times: ClosedRange<Timestamp>) -> [SequenceNumber] {
    acknowledgementTable.expiring(in: times).filter { !isGone($0) && !acknowledgementProgress($0).isDone }
  }

  // MARK: Status

  /// Return the status of an acknowledgement request. It is `done` once every recipient who does not hide reads has
  /// acknowledged it, of whom there must be at least one; otherwise `expired` or `processing`.
  ///
  /// - Parameter time: the shard's.
  package func acknowledgementStatus(_ sequence: SequenceNumber, at time: Timestamp) -> AcknowledgementStatus {
    guard acknowledgementTable.isRequested(sequence) else { return .none }
    return acknowledgementProgress(sequence).isDone ? .done : unacknowledgedStatus(sequence, at: time)
  }

  /// Return the status for viewers who may not see who has acknowledged the message (R10).
  func unacknowledgedStatus(_ sequence: SequenceNumber, at time: Timestamp) -> AcknowledgementStatus {
    guard acknowledgementTable.isRequested(sequence) else { return .none }
    return isExpired(sequence, at: time) ? .expired : .processing
  }

  /// Return whether a message's acknowledgement request has expired. False for a message without an acknowledgement
  /// request, or with one that never expires.
  func isExpired(_ sequence: SequenceNumber, at time: Timestamp) -> Bool {
    let expiry = acknowledgementTable.expiresAt(sequence)
    return expiry != .none && time >= expiry
  }

  /// Compare the rows that joined before the message, 64 at a time, up to the first that has not acknowledged it.
  func acknowledgementProgress(_ sequence: SequenceNumber) -> AcknowledgementTable.Progress {
    acknowledgementTable.progress(
      sequence,
      awaited: rows.flags.awaited,
      rowCount: rows.joinedBefore(sequence),
      excluding: rows.row(of: messages.sender(sequence))
    )
  }
}
