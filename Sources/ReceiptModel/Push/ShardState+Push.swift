/// Acknowledgements of push notifications: a member's device, or the push sender, reports that a message has arrived
/// (R3, R20).
extension ShardState {
  /// The message and the member of an acknowledgement.
  package struct PushTarget: Hashable, Sendable {
    /// The channel's slot, or a thread's if the message is a reply.
    package var place: ChannelSlot
    package var sequence: SequenceNumber
    /// The member's row in the channel.
    package var member: MemberOrdinal
  }

  // MARK: Look-up

  /// Finds the target by names; a reply's id determines its thread.
  package mutating func pushTarget(
    _ slot: ChannelSlot,
    user: RawSpan,
    message: RawSpan
  ) throws(Refusal) -> PushTarget {
    let member = try member(user, in: slot)
    let place = place(of: message, in: slot)
    guard let sequence = find(message, in: place, hiddenThrough: hiddenThrough(place, member)) else {
      throw .messageNotFound
    }
    return PushTarget(place: place, sequence: sequence, member: member)
  }

  /// Finds the target by a ticket's numbers; the slot is that of the ticket's channel.
  package mutating func pushTarget(
    _ slot: ChannelSlot,
    _ ticket: TicketPlace
  ) throws(Refusal) -> PushTarget {
    guard Int(ticket.row.rawValue) < self[slot].rows.rowCount, self[slot].rows.isActive(ticket.row) else {
      throw .notAMember
    }
    var place = slot
    if let parent = ticket.parent {
      guard let thread = self[slot].threads.place(of: parent) else { throw .messageNotFound }
      place = slot.thread(thread)
      refresh(place)
    }
    guard ticket.sequence > hiddenThrough(place, ticket.row),
      ticket.sequence <= self[place].messages.newest
    else {
      throw .messageNotFound
    }
    let target = PushTarget(place: place, sequence: ticket.sequence, member: ticket.row)
    guard check(of: target) == ticket.check else { throw .checkMismatch }
    return target
  }

  /// The numbers for a ticket. Refused for a deleted message, though a ticket issued before still marks its position
  /// (R16).
  package func ticketPlace(_ target: PushTarget) throws(Refusal) -> TicketPlace {
    guard !isDeleted(target.sequence, in: target.place) else { throw .messageDeleted }
    return TicketPlace(
      channel: self[target.place].number,
      row: target.member,
      parent: target.place.isThread ? self[target.place].parent : nil,
      sequence: target.sequence,
      check: check(of: target)
    )
  }

  private func check(of target: PushTarget) -> UInt64 {
    let channel = target.place.channel
    return withUser(channel, target.member) { user in
      withMessage(target.place, target.sequence) { message in
        TicketPlace.check(cid: self[channel].cid.span.bytes, user: user, message: message)
      }
    }
  }

  // MARK: Acknowledgement

  /// Marks messages delivered up to one that may have arrived some time ago (R3, R20). Does nothing for a member
  /// without a row in the reply's thread (R15).
  ///
  /// - Parameter acked: the caller's time of arrival; none: now. Clamped: see ``shownTime(_:_:_:_:at:)``.
  package func decidePush(
    _ target: PushTarget,
    acked: Timestamp,
    at time: Timestamp,
    into effects: inout [Effect]
  ) throws(Refusal) {
    let place = target.place
    if place.isThread, isClosed(place) { throw .messageDeleted }
    guard let row = row(of: target), target.sequence > self[place].rows.delivered[row]
    else { return }
    let start = effects.count
    let number = self[place].number
    let isHidden = self[place].rows.hidesDelivered(row)
    let shown = shownTime(acked, place, row, target.sequence, at: time)
    decideCloseSegment(place, row, .delivered, to: target.sequence, into: &effects)
    effects.append(
      shown == time
        ? .channel(number, .deliveredMoved(row, to: target.sequence, at: time, isHidden: isHidden))
        : .channel(
          number,
          .deliveredAcked(row, to: target.sequence, at: time, acked: shown, isHidden: isHidden)
        )
    )
    if place.isThread { effects.wrapInThread(self[place].parent, from: start) }
  }

  /// The shown time of an acknowledged move (R20). It is clamped to be not before the message's registration, nor
  /// before the row's last step that others may have seen. Nor is it before the user became visible again: a delivery
  /// made while hidden has no time to show (R7). It is not after now.
  private func shownTime(
    _ acked: Timestamp,
    _ place: ChannelSlot,
    _ row: MemberOrdinal,
    _ sequence: SequenceNumber,
    at now: Timestamp
  ) -> Timestamp {
    guard acked != .none else { return now }
    let since = settings.shownSince(self[place].users.id(self[place].rows.user(row))).delivered
    let registered = self[place].messages.registeredAt(sequence)
    let earliest = max(self[place].rows.deliveredShownAt(row), since, registered)
    return min(max(acked, earliest), now)
  }

  /// The row that an acknowledgement moves; nil: the member is not in the thread.
  private func row(of target: PushTarget) -> MemberOrdinal? {
    guard target.place.isThread else { return target.member }
    return withUser(target.place.channel, target.member) { self[target.place].row(of: $0) }
  }

  // MARK: Reply

  /// Why an acknowledgement does not count (R15); nil: it counts.
  package func uncounted(_ target: PushTarget) -> Uncounted? {
    guard target.place.isThread else {
      return uncounted(MarkedPlace(row: target.member, sequence: target.sequence), in: target.place)
    }
    guard let row = row(of: target) else { return .notInThread }
    return counts(target.sequence, for: row, in: target.place) ? nil : .registeredBefore
  }

  /// The shown time at which the member's delivered watermark reached its position; none: it never moved.
  package func deliveredAt(_ target: PushTarget) -> Timestamp {
    row(of: target).map { self[target.place].rows.deliveredShownAt($0) } ?? .none
  }

  /// When the message was registered.
  package func sentAt(_ target: PushTarget) -> Timestamp {
    self[target.place].messages.registeredAt(target.sequence)
  }

  // MARK: Webhooks

  /// Whether a webhook was accepted before and is still remembered.
  ///
  /// - Parameter key: the XXH64 of its key.
  package func knowsWebhook(_ key: UInt64, at time: Timestamp) -> Bool {
    webhooks.until(key).map { $0 >= time } ?? false
  }

  /// Remembers a webhook, for at most an hour; does nothing if `until` is past. The caller ensures that the webhook is
  /// unknown and that there is room.
  package func decideRememberWebhook(
    webhook key: UInt64,
    until: Timestamp,
    at time: Timestamp,
    into effects: inout [Effect]
  ) {
    let latest = Timestamp(milliseconds: time.milliseconds + WebhookTable.lifetimeMax)
    guard until >= time else { return }
    effects.append(.shard(.webhookNoted(key, until: min(until, latest))))
  }
}
