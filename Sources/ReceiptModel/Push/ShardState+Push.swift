/// Acknowledgements of push notifications: a member's device, or the push sender, reports that a message has arrived
/// (R3, R20).
extension ShardState {
  /// The message and the member of an acknowledgement.
  package struct PushTarget: Hashable, Sendable {
    /// The channel's slot, or a thread's if the message is a reply.
    package var slot: ChannelSlot
    package var sequence: SequenceNumber
    /// The member's row in the channel.
    package var member: MemberOrdinal
  }

  // MARK: Look-up

  /// Find the target by names; a reply's id determines its thread.
  ///
  /// - Parameter targetSlot: from ``targetSlot(of:in:)``.
  package func pushTarget(_ targetSlot: ChannelSlot, user: RawSpan, message: RawSpan) throws(Refusal) -> PushTarget {
    let member = try member(user, in: targetSlot.channel)
    guard let sequence = find(message, in: targetSlot, hiddenThrough: hiddenThrough(targetSlot, member)) else {
      throw .messageNotFound
    }
    return PushTarget(slot: targetSlot, sequence: sequence, member: member)
  }

  /// Find the target by a ticket's numbers; the slot is that of the ticket's channel. Call ``refresh(_:)`` with the
  /// target's slot before a decision.
  package func pushTarget(_ slot: ChannelSlot, _ ticket: TicketPlace) throws(Refusal) -> PushTarget {
    guard Int(ticket.row.rawValue) < self[slot].rows.rowCount, self[slot].rows.isActive(ticket.row) else {
      throw .notAMember
    }
    var targetSlot = slot
    if let parent = ticket.parent {
      guard let index = self[slot].threads.index(of: parent) else { throw .messageNotFound }
      targetSlot = slot.thread(index)
    }
    guard ticket.sequence > hiddenThrough(targetSlot, ticket.row), ticket.sequence <= self[targetSlot].messages.newest
    else {
      throw .messageNotFound
    }
    let target = PushTarget(slot: targetSlot, sequence: ticket.sequence, member: ticket.row)
    guard check(of: target) == ticket.check else { throw .checkMismatch }
    return target
  }

  /// Return the numbers for a ticket. Refused for a deleted message, though a ticket issued before still marks its
  /// position (R16).
  package func ticketPlace(_ target: PushTarget) throws(Refusal) -> TicketPlace {
    guard !isDeleted(target.sequence, in: target.slot) else { throw .messageDeleted }
    return TicketPlace(
      channel: self[target.slot].number,
      row: target.member,
      parent: target.slot.isThread ? self[target.slot].parent : nil,
      sequence: target.sequence,
      check: check(of: target)
    )
  }

  private func check(of target: PushTarget) -> UInt64 {
    let channel = target.slot.channel
    return withUser(channel, target.member) { user in
      withMessage(target.slot, target.sequence) { message in
        TicketPlace.check(cid: self[channel].cid.span.bytes, user: user, message: message)
      }
    }
  }

  // MARK: Acknowledgement

  /// Mark messages delivered up to one that may have arrived some time ago (R3, R20). Does nothing for a member
  /// without a row in the reply's thread (R15).
  ///
  /// - Parameter acked: the caller's time of arrival; none: now. Clamped: see ``shownTime(acked:_:_:_:at:)``.
  package func decidePush(
    _ target: PushTarget,
    acked: Timestamp,
    at time: Timestamp,
    into effects: inout [Effect]
  ) throws(Refusal) {
    let slot = target.slot
    if slot.isThread, isClosed(slot) { throw .messageDeleted }
    guard let row = row(of: target), target.sequence > self[slot].rows.delivered[row] else { return }
    let start = effects.count
    let number = self[slot].number
    let isHidden = self[slot].rows.hidesDelivered(row)
    let shown = shownTime(acked: acked, slot, row, target.sequence, at: time)
    decideSealTail(slot, row, .delivered, to: target.sequence, into: &effects)
    effects.append(
      shown == time
        ? .channel(number, .deliveredMoved(row, to: target.sequence, at: time, isHidden: isHidden))
        : .channel(number, .deliveredByPushAck(row, to: target.sequence, at: time, ackedAt: shown, isHidden: isHidden))
    )
    if slot.isThread { effects.wrapInThread(self[slot].parent, from: start) }
  }

  /// Return the shown time of an acknowledged move (R20). It is clamped to be not before the message's registration,
  /// nor before the row's last step that others may have seen. Nor is it before the user became visible again: a
  /// delivery made while hidden has no time to show (R7). It is not after now.
  private func shownTime(
    acked: Timestamp,
    _ slot: ChannelSlot,
    _ row: MemberOrdinal,
    _ sequence: SequenceNumber,
    at now: Timestamp
  ) -> Timestamp {
    guard acked != .none else { return now }
    let since = settings.shownSince(self[slot].users.id(self[slot].rows.user(row))).delivered
    let registered = self[slot].messages.registeredAt(sequence)
    let earliest = max(self[slot].rows.deliveredShownAt(row), since, registered)
    return min(max(acked, earliest), now)
  }

  /// Return the row that an acknowledgement moves; nil: the member is not in the thread.
  private func row(of target: PushTarget) -> MemberOrdinal? {
    guard target.slot.isThread else { return target.member }
    return withUser(target.slot.channel, target.member) { self[target.slot].row(of: $0) }
  }

  // MARK: Reply

  /// Return why an acknowledgement does not count (R15); nil: it counts.
  package func uncounted(_ target: PushTarget) -> Uncounted? {
    guard target.slot.isThread else {
      return uncounted(MarkResult(row: target.member, sequence: target.sequence), in: target.slot)
    }
    guard let row = row(of: target) else { return .notInThread }
    return counts(target.sequence, for: row, in: target.slot) ? nil : .registeredBefore
  }

  /// Return the shown time at which the member's delivered watermark reached its position; none: it never moved.
  package func deliveredAt(_ target: PushTarget) -> Timestamp {
    row(of: target).map { self[target.slot].rows.deliveredShownAt($0) } ?? .none
  }

  /// Return when the message was registered.
  package func sentAt(_ target: PushTarget) -> Timestamp {
    self[target.slot].messages.registeredAt(target.sequence)
  }
}

/// A message and a member in their shard's short numbers: the content of a ticket (*place* in Proto/frames.md).
package struct TicketPlace: Hashable, Sendable {
  /// The channel's incarnation.
  package var channel: ChannelNumber
  /// The member's row in the channel.
  package var row: MemberOrdinal
  /// For a reply: its thread's parent message.
  package var parent: SequenceNumber?
  package var sequence: SequenceNumber
  /// ``check(cid:user:message:)`` of the names behind these numbers.
  package var check: UInt64

  package init(
    channel: ChannelNumber,
    row: MemberOrdinal,
    parent: SequenceNumber?,
    sequence: SequenceNumber,
    check: UInt64
  ) {
    self.channel = channel
    self.row = row
    self.parent = parent
    self.sequence = sequence
    self.check = check
  }

  /// Return the XXH64 of cid, a zero byte, user, a zero byte and message.
  package static func check(cid: RawSpan, user: RawSpan, message: RawSpan) -> UInt64 {
    let count = cid.byteCount + user.byteCount + message.byteCount + 2
    return withUnsafeTemporaryAllocation(byteCount: count, alignment: 1) { bytes in
      let base = bytes.baseAddress!
      let afterCID = cid.byteCount
      let afterUser = afterCID + 1 + user.byteCount
      copy(cid, to: base)
      base.storeBytes(of: 0, toByteOffset: afterCID, as: UInt8.self)
      copy(user, to: base + afterCID + 1)
      base.storeBytes(of: 0, toByteOffset: afterUser, as: UInt8.self)
      copy(message, to: base + afterUser + 1)
      return StableHash.hash(UnsafeRawBufferPointer(bytes).bytes)
    }
  }

  @inline(__always)
  private static func copy(_ name: RawSpan, to destination: UnsafeMutableRawPointer) {
    name.withUnsafeBytes { source in
      if let start = source.baseAddress { destination.copyMemory(from: start, byteCount: source.count) }
    }
  }
}
