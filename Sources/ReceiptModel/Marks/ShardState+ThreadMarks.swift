/// Marks in a thread (R15), decided as those in a channel are.
extension ShardState {
  /// Mark a thread read, up to a reply, or up to the newest if `message` is empty. A member of the channel without a
  /// row in the thread takes part from then on; what they have read of it counts too.
  ///
  /// - Parameter thread: from ``thread(of:in:for:)`` or ``thread(withReply:in:)``.
  package func decideRead(
    inThread thread: ChannelSlot,
    user: RawSpan,
    message: RawSpan,
    epoch: UInt32?,
    at time: Timestamp,
    into effects: inout [Effect]
  ) throws(Refusal) {
    let start = effects.count
    let member = try member(user, in: thread.channel)
    guard !isClosed(thread) else { throw .messageDeleted }
    if self[thread].row(of: user) == nil {
      let sequence = try position(message, in: thread, hiddenThrough: hiddenThrough(thread, member))
      let row = MemberOrdinal(UInt32(self[thread].rows.rowCount))
      guard row.rawValue < ReadVector.rowsMax else { throw .limitReached(.membersPerChannel) }
      var record = newRow(member, of: thread, in: thread.channel, at: time)
      record.joinedByReading = true
      let number = self[thread].number
      effects.append(.channel(number, .rowAssigned(row, record)))
      if self[thread].isTailFull(row) { effects.append(droppingSteps(thread, row)) }
      let isHidden = self[thread.channel].rows.hidesRead(member)
      effects.append(.channel(number, .readMoved(row, to: sequence, at: time, isHidden: isHidden)))
    } else {
      _ = try decideRead(thread, user: user, message: message, epoch: epoch, at: time, into: &effects)
    }
    effects.wrapInThread(self[thread].parent, from: start)
    // A read in a thread clears the channel's unread flag too (R4); the epoch is the thread's.
    if let row = self[thread].row(of: user), self[thread].isStale(epoch, row) { return }
    self[thread.channel].decideUnflag(member, epoch: nil, at: time, into: &effects)
  }

  /// Mark a thread delivered. Does nothing for a member of the channel without a row in the thread.
  package func decideDelivered(
    inThread thread: ChannelSlot,
    user: RawSpan,
    message: RawSpan,
    at time: Timestamp,
    into effects: inout [Effect]
  ) throws(Refusal) {
    let start = effects.count
    let member = try member(user, in: thread.channel)
    guard !isClosed(thread) else { throw .messageDeleted }
    guard self[thread].row(of: user) != nil else {
      _ = try position(message, in: thread, hiddenThrough: hiddenThrough(thread, member))
      return
    }
    _ = try decideDelivered(thread, user: user, message: message, at: time, into: &effects)
    effects.wrapInThread(self[thread].parent, from: start)
  }

  /// Mark a thread unread from a reply on, or as a whole if `message` is empty. A user without a row in the thread is
  /// refused.
  package func decideUnread(
    inThread thread: ChannelSlot,
    user: RawSpan,
    message: RawSpan,
    epoch: UInt32?,
    at time: Timestamp,
    into effects: inout [Effect]
  ) throws(Refusal) {
    let start = effects.count
    let member = try member(user, in: thread.channel)
    guard options(thread).markUnread != .off else { throw .markUnreadOff }
    guard !isClosed(thread) else { throw .messageDeleted }
    guard let row = self[thread].row(of: user) else { throw .notInThread }
    let hidden = hiddenThrough(thread, member)
    let sequence = message.isEmpty ? hidden.next : try position(message, in: thread, hiddenThrough: hidden)
    self[thread].decideUnread(row, from: sequence, epoch: epoch, at: time, into: &effects)
    effects.wrapInThread(self[thread].parent, from: start)
  }

  /// Check a mark under a message that has no replies yet. A permitted mark changes nothing.
  ///
  /// - Parameter isUnread: the mark is mark-unread.
  package func checkMark(
    withoutThread slot: ChannelSlot,
    user: RawSpan,
    message: RawSpan,
    isUnread: Bool
  ) throws(Refusal) {
    _ = try member(user, in: slot)
    if isUnread, options(slot).markUnread == .off { throw .markUnreadOff }
    // There is no reply that `message` could name.
    guard message.isEmpty else { throw .messageNotFound }
  }

  /// Why a successful read or delivery does not count (R15); nil: it counts, as far as the member's settings show it.
  ///
  /// - Parameter message: a reply of the thread; empty: the newest.
  package func uncounted(_ thread: ChannelSlot, user: RawSpan, message: RawSpan) -> Uncounted? {
    guard let row = self[thread].row(of: user) else { return .notInThread }
    let hidden = hiddenThrough(thread, ofRow: row)
    guard let sequence = try? position(message, in: thread, hiddenThrough: hidden) else { return nil }
    return counts(sequence, for: row, in: thread) ? nil : .registeredBefore
  }

  /// Return whether a reply counts for this row's member, regardless of privacy settings.
  func counts(_ sequence: SequenceNumber, for row: MemberOrdinal, in thread: ChannelSlot) -> Bool {
    self[thread].rows.counts(row, sequence, through: self[thread].rows.read[row].rawValue)
  }

  /// A new row of a thread. From the next reply on everything counts for the member (R15); nothing before it is unread.
  ///
  /// - Parameters:
  ///   - thread: nil: the thread begins with this row.
  ///   - member: the member's row in the channel.
  func newRow(_ member: MemberOrdinal, of thread: ChannelSlot?, in channel: ChannelSlot, at time: Timestamp)
    -> RowRecord
  {
    var record = RowRecord(
      user: self[channel].users.text(self[channel].rows.user(member)),
      joined: .zero,
      joinedAt: time
    )
    guard let thread else { return record }
    record.joined = self[thread].messages.newest
    let memberSince = self[channel].rows.joinedAt(member)
    let first = self[thread].messages.first(registeredSince: memberSince)
    if first <= record.joined { record.countedAfter = SequenceNumber(first.rawValue - 1) }
    return record
  }
}
