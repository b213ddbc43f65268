/// Reminders, and the expiry of acknowledgement requests as a record of the feed (R9, R22).
extension ShardState {
  /// Add the timers of a message that is being registered.
  ///
  /// - Parameters:
  ///   - rules: the message's own; nil: those of its channel, unless the message is silent.
  ///   - thread: parent message of a reply; zero: no reply.
  func decideTimers(
    of sequence: SequenceNumber,
    _ record: MessageRecord,
    rules: [ReminderRule]?,
    in slot: ChannelSlot,
    thread: SequenceNumber = .zero,
    into effects: inout [Effect]
  ) throws(Refusal) {
    let expiry = record.acknowledgementExpiresAt
    let applied = rules ?? (record.flags.contains(.silent) ? nil : options(slot).reminders) ?? []
    guard expiry != .none || !applied.isEmpty else { return }
    var timer = MessageTimer(
      channel: self[slot].number,
      thread: thread,
      message: sequence,
      dueAt: expiry,
      after: UInt32(clamping: (expiry.milliseconds - record.registeredAt.milliseconds) / 1_000),
      .expiry
    )
    var added = expiry == .none ? [] : [timer]
    for rule in applied {
      // Nobody is asked to acknowledge other messages.
      if rule.condition == .unacknowledged, !record.flags.contains(.requestsAcknowledgement) { continue }
      timer.dueAt = Timestamp(milliseconds: record.registeredAt.milliseconds + Int64(rule.after) * 1_000)
      timer.after = rule.after
      timer.purpose = .reminder(rule.condition, membersMax: rule.membersMax)
      added.append(timer)
    }
    guard !added.isEmpty else { return }
    guard timers.hasRoom else {
      // A message that asks for reminders itself is refused; others are registered without.
      if rules?.isEmpty == false { throw .limitReached(.timersPerShard) }
      return
    }
    timers.decideAdd(added, into: &effects)
  }

  /// Return whether a message was deleted or truncated, or its thread's parent was.
  func isGone(_ sequence: SequenceNumber, thread: SequenceNumber, in slot: ChannelSlot) -> Bool {
    guard let target = targetSlot(ofThread: thread, in: slot), sequence <= self[target].messages.newest else {
      return true
    }
    return self[target].isGone(sequence) || thread != .zero && self[slot].isGone(thread)
  }

  /// Return the records that a timer tells when it is due: none if the message is gone, or if nobody falls short.
  ///
  /// - Parameters:
  ///   - slot: the channel's, with users' settings applied.
  ///   - examined: raised by the number of rows that were examined.
  package mutating func dueRecords(
    of timer: MessageTimer,
    in slot: ChannelSlot,
    examined: inout Int
  ) -> [FeedRecord] {
    guard !self[slot].isBeingDeleted, let target = targetSlot(ofThread: timer.thread, in: slot) else { return [] }
    refresh(target)
    guard !isGone(timer.message, thread: timer.thread, in: slot) else { return [] }
    var record = FeedRecord(.receiptExpired, on: timer.channel, at: time)
    record.thread = timer.thread
    record.sequence = timer.message
    guard case .reminder(let condition, let membersMax) = timer.purpose else {
      examined += self[target].rows.rowCount
      return self[target].acknowledgementStatus(timer.message, at: time) == .expired ? [record] : []
    }
    record.kind = .reminderDue
    let limit = Int(membersMax)
    var members = self[target].membersWho(fallShort: condition, of: timer.message, options(target), limit: limit + 1)
    examined += members.examined
    let isTruncated = members.rows.count > limit
    if isTruncated { members.rows.removeLast() }
    let partCount = (members.rows.count + FeedRecord.membersMax - 1) / FeedRecord.membersMax
    return (0..<partCount).map { part in
      let range = part * FeedRecord.membersMax..<min((part + 1) * FeedRecord.membersMax, members.rows.count)
      record.members = members.rows[range].map(\.rawValue)
      record.reminder = FeedRecord.Reminder(condition, part: part + 1, partCount: partCount, isTruncated: isTruncated)
      return record
    }
  }
}

extension ChannelState {
  /// Return the members who fall short of a message, as others see them, in join order.
  ///
  /// - Returns: the members, and how many rows were examined.
  fileprivate func membersWho(
    fallShort condition: ReminderCondition,
    of sequence: SequenceNumber,
    _ options: ChannelTypeOptions,
    limit: Int
  ) -> (rows: [MemberOrdinal], examined: Int) {
    if condition == .unacknowledged, !acknowledgementTable.isRequested(sequence) { return ([], 0) }
    var found: [MemberOrdinal] = []
    let others = Viewpoint.others(options)
    // In a thread a member who has read a message counts for it whenever they joined.
    let end = isThread ? rows.rowCount : rows.joinedBefore(sequence)
    for position in 0..<end {
      let row = MemberOrdinal(UInt32(position))
      guard falls(row, short: condition, of: sequence, others) else { continue }
      found.append(row)
      if found.count == limit { return (found, position + 1) }
    }
    return (found, end)
  }

  private func falls(
    _ row: MemberOrdinal,
    short condition: ReminderCondition,
    of sequence: SequenceNumber,
    _ others: Viewpoint
  ) -> Bool {
    guard rows.mayBeNamed(row, condition, others.options), isExpected(row, sequence, others.options) else {
      return false
    }
    return switch condition {
    case .undelivered: !shownDelivered(row, sequence, others) && !hasRead(row, sequence, others)
    case .unread: !hasRead(row, sequence, others)
    case .unacknowledged: !hasAcknowledged(row, sequence)
    }
  }
}
