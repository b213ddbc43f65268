/// Replies in threads (R15): registering one decides who participates in the thread; deleting one (R16).
extension ShardState {
  /// Register a reply (R15). The first reply creates the thread. The mentioned members of the channel take part in the
  /// thread from this reply on.
  ///
  /// - Returns: the registration, with the reply's number in its thread.
  func decideReply(
    _ slot: ChannelSlot,
    _ message: borrowing NewMessage,
    at time: Timestamp,
    into effects: inout [Effect]
  ) throws(Refusal) -> Registration {
    if let known = self[slot].messages.find(message.id) {
      guard !self[slot].messages.flags(known).contains(.deleted) else { throw .messageDeleted }
      throw .messageConflict
    }
    if let known = try knownReply(message.id, in: slot) {
      guard self[slot].messages.find(message.parent) == self[known.thread].parent else { throw .messageConflict }
      try checkRepeat(of: known.sequence, in: known.thread, message)
      return .known(known.sequence)
    }
    if settings.isErasing(message.sender) { throw .userErased }
    let parent = try self.parent(message.parent, in: slot)
    var record = message.record(at: time)
    if message.requestsAcknowledgement { record.flags.insert(.acknowledgementNotAllowed) }
    let start = effects.count
    let thread = self[slot].threads.index(of: parent).map { slot.thread($0) }
    if let thread {
      guard self[thread].messages.hasRoom else { throw .limitReached(.messagesPerChannel) }
    } else {
      guard self[slot].threads.hasRoom else { throw .limitReached(.threadsPerChannel) }
    }
    let member = self[slot].row(of: message.sender)
    let sequence = try decideReply(
      slot,
      thread,
      to: parent,
      record,
      sender: member,
      mentions: message.mentions,
      into: &effects
    )
    effects.wrapInThread(parent, from: start)
    try decideTimers(of: sequence, record, rules: message.reminders, in: slot, thread: parent, into: &effects)
    if let member, message.movesPosition {
      self[slot].decideUnflag(member, epoch: nil, at: time, into: &effects)
    }
    decideSender(message.sender, in: thread ?? slot, into: &effects)
    return .created(sequence)
  }

  /// Append the effects of a reply: first the rows of users who take part from it on, then the reply, then its
  /// sender's positions.
  ///
  /// - Parameters:
  ///   - thread: nil: this is the thread's first reply.
  ///   - sender: the sender's row in the channel; nil: not a member.
  ///   - mentions: mentioned members of the channel take part in the thread from this reply on.
  private func decideReply(
    _ channel: ChannelSlot,
    _ thread: ChannelSlot?,
    to parent: SequenceNumber,
    _ record: MessageRecord,
    sender: MemberOrdinal?,
    mentions: NewMessage.Mentions,
    into effects: inout [Effect]
  ) throws(Refusal) -> SequenceNumber {
    var record = record
    let mentioned = mentionedMembers(mentions, in: channel, sender: record.sender)
    var mentionedRows: [UInt32] = []
    let number = self[channel].number
    let sequence = (thread.map { self[$0].messages.newest } ?? .zero).next
    let participants = newParticipants(channel, thread, to: parent, sender: sender, mentioned: mentioned)
    var next = thread.map { self[$0].rows.rowCount } ?? 0
    guard next + participants.count <= ReadVector.rowsMax else { throw .limitReached(.membersPerChannel) }
    var senderRow = MemberOrdinal(0)
    for member in participants {
      let row = decideParticipation(member, in: thread, of: channel, &next, at: record.registeredAt, into: &effects)
      if member == sender { senderRow = row }
      if mentioned.contains(member) { mentionedRows.append(row.rawValue) }
    }
    if record.flags.isCountable {
      if mentions == .all { record.mentions = .all }
      if !mentionedRows.isEmpty { record.mentions = .rows(mentionedRows.sorted()) }
    }
    effects.append(.channel(number, .messageAssigned(sequence, record)))
    guard let sender, !record.flags.contains(.keepsSenderPosition) else { return sequence }
    if let thread {
      if Int(senderRow.rawValue) < self[thread].rows.rowCount {
        decideSealTail(thread, senderRow, .read, to: sequence, into: &effects)
      } else if self[thread].isTailFull(senderRow) {
        effects.append(droppingSteps(thread, senderRow))
      }
    }
    decideSent(channel, thread: thread, senderRow, of: sender, sequence, at: record.registeredAt, into: &effects)
    return sequence
  }

  /// The members who take part in a thread from a reply on (R15), by their rows in the channel, each once. These are:
  /// the parent's sender with the first reply, both members of a two-member channel, the reply's sender, and the
  /// members mentioned by name.
  private func newParticipants(
    _ channel: ChannelSlot,
    _ thread: ChannelSlot?,
    to parent: SequenceNumber,
    sender: MemberOrdinal?,
    mentioned: [MemberOrdinal]
  ) -> [MemberOrdinal] {
    var participants: [MemberOrdinal] = []
    func add(_ member: MemberOrdinal?) {
      if let member, !participants.contains(member) { participants.append(member) }
    }
    if thread == nil { add(self[channel].rows.row(of: self[channel].messages.sender(parent))) }
    if self[channel].rows.activeCount == 2, !(thread.map { self[$0].rows.isComplete(2) } ?? false) {
      for member in self[channel].rows.firstMembers(2) { add(member) }
    }
    add(sender)
    for member in mentioned { add(member) }
    return participants
  }

  /// The members that a reply mentions by name, by their rows in the channel, each once, without its sender. A mention
  /// of all names no member.
  private func mentionedMembers(
    _ mentions: NewMessage.Mentions,
    in channel: ChannelSlot,
    sender: String
  ) -> [MemberOrdinal] {
    guard case .users(let users) = mentions else { return [] }
    var members: [MemberOrdinal] = []
    for user in users where !user.isExactly(sender) && !settings.isErasing(user) {
      if let member = self[channel].row(of: user), !members.contains(member) { members.append(member) }
    }
    return members
  }

  /// Make a member take part in a thread, visible to all.
  ///
  /// - Parameters:
  ///   - thread: nil: the thread begins with this row.
  ///   - next: the number of the next new row; raised if a row is created.
  /// - Returns: the member's row in the thread.
  private func decideParticipation(
    _ member: MemberOrdinal,
    in thread: ChannelSlot?,
    of channel: ChannelSlot,
    _ next: inout Int,
    at time: Timestamp,
    into effects: inout [Effect]
  ) -> MemberOrdinal {
    let number = self[channel].number
    let known = thread.flatMap { thread in
      withUser(channel, member) { self[thread].row(of: $0) }
    }
    var record: RowRecord
    if let known, let thread {
      guard self[thread].rows.joinedByReading(known) else { return known }
      record = self[thread].record(of: known)
      record.joinedByReading = false
      guard !self[channel].rows.showsRead(member, options(channel)) else {
        // The member has read visibly, so others have already seen them in the thread.
        effects.append(.channel(number, .rowAssigned(known, record)))
        return known
      }
      // Others have not seen the member in the thread. They take part from here on, and keep their read position.
      let newRecord = newRow(member, of: thread, in: channel, at: time)
      (record.joined, record.joinedAt, record.countedAfter) = (
        newRecord.joined, newRecord.joinedAt, newRecord.countedAfter
      )
      let unreadAfter = self[thread].rows.bounds.unreadAfter(known)
      record.unreadAfter = unreadAfter < record.joined ? unreadAfter : nil
      effects.append(.channel(number, .rowLeft(known, at: time)))
    } else {
      record = newRow(member, of: thread, in: channel, at: time)
    }
    let row = MemberOrdinal(UInt32(next))
    next += 1
    effects.append(.channel(number, .rowAssigned(row, record)))
    return row
  }

  /// Move the sender's row in a thread to the reply just sent (R5).
  ///
  /// - Parameters:
  ///   - thread: nil: the thread begins with the reply.
  ///   - row: the sender's row in the thread; may be new.
  ///   - member: the sender's row in the channel; what they hide there, they hide in its threads.
  private func decideSent(
    _ channel: ChannelSlot,
    thread: ChannelSlot?,
    _ row: MemberOrdinal,
    of member: MemberOrdinal,
    _ sequence: SequenceNumber,
    at time: Timestamp,
    into effects: inout [Effect]
  ) {
    let number = self[channel].number
    let hidesRead = self[channel].rows.hidesRead(member)
    let hidesDelivered = self[channel].rows.hidesDelivered(member)
    effects.append(.channel(number, .readMoved(row, to: sequence, at: time, isHidden: hidesRead)))
    effects.append(.channel(number, .deliveredMoved(row, to: sequence, at: time, isHidden: hidesDelivered)))
    // A new row takes over the marker of its predecessor.
    guard let thread, let known = withUser(channel, member, { self[thread].row(of: $0) }),
      self[thread].rows.marker(known) != nil
    else { return }
    let epoch = self[thread].rows.epoch(known)
    effects.append(.channel(number, .markerAssigned(row, marker: nil, epoch: epoch, at: time)))
  }

  /// Return the effect that drops a thread's full tail of steps; a thread's steps are never sealed.
  func droppingSteps(_ slot: ChannelSlot, _ row: MemberOrdinal) -> Effect {
    let rowPage = row.rawValue / PageID.rowsPerPage
    let next = self[slot].steps.segments(rowPage).upperBound
    return .channel(self[slot].number, .stepsTrimmed(rowPage: rowPage, first: next + 1))
  }

  /// A known reply, by its id; refused if the reply or its parent was deleted.
  func knownReply(
    _ id: RawSpan,
    in slot: ChannelSlot
  ) throws(Refusal) -> (thread: ChannelSlot, sequence: SequenceNumber)? {
    guard let index = self[slot].threads.index(ofReply: id),
      let sequence = self[slot].threads[index].messages.find(id)
    else { return nil }
    guard !isDeleted(sequence, in: slot.thread(index)) else { throw .messageDeleted }
    return (slot.thread(index), sequence)
  }

  /// Delete a reply (R16); nil if there is no such reply. In a closed thread the reply counts as deleted already.
  func decideDelete(
    reply id: RawSpan,
    in slot: ChannelSlot,
    at time: Timestamp,
    into effects: inout [Effect]
  ) -> SequenceNumber? {
    guard let index = self[slot].threads.index(ofReply: id),
      let sequence = self[slot].threads[index].messages.find(id)
    else { return nil }
    guard !isDeleted(sequence, in: slot.thread(index)) else { return sequence }
    let start = effects.count
    effects.append(.channel(self[slot].number, .messageDeleted(sequence, at: time)))
    effects.wrapInThread(self[slot].threads[index].parent, from: start)
    return sequence
  }
}
