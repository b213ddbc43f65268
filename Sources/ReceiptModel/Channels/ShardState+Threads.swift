/// Threads (R15): a thread is a channel within its channel, and a slot that names a thread leads to its rows and
/// messages. Decisions about a thread are made as for a channel, then wrapped (`wrapInThread`).
extension ShardState {
  // MARK: Slots

  /// Return the thread under a message, by the message's id, with its users' settings applied to its rows. Nil if the
  /// message has no reply yet.
  ///
  /// - Parameter member: a row in the channel. A thread that does not exist for this member is refused like an unknown
  ///   one (R6). Nil: a server without a user, for which every thread exists.
  package mutating func thread(
    of parent: RawSpan,
    in slot: ChannelSlot,
    for member: MemberOrdinal?
  ) throws(Refusal) -> ChannelSlot? {
    if let member { try checkParent(parent, in: slot, for: member) }
    let sequence = try self.parent(parent, in: slot)
    guard let index = self[slot].threads.index(of: sequence) else { return nil }
    let thread = slot.thread(index)
    refresh(thread)
    return thread
  }

  /// Refuse a parent message that does not exist for a member, deleted or not.
  private func checkParent(
    _ parent: RawSpan,
    in slot: ChannelSlot,
    for member: MemberOrdinal
  ) throws(Refusal) {
    let hidden = hiddenThrough(slot, member)
    guard hidden > .zero else { return }
    if let sequence = self[slot].messages.find(parent) {
      if sequence > hidden { return }
      guard let index = self[slot].threads.index(of: sequence), exists(slot.thread(index), for: member)
      else { throw .messageNotFound }
    } else if let index = self[slot].threads.index(ofReply: parent) {
      let thread = slot.thread(index)
      guard find(parent, in: thread, hiddenThrough: hiddenThrough(thread, member)) != nil else {
        throw .messageNotFound
      }
    }
  }

  /// Return the thread that contains a reply, by the reply's id. Nil if there is no such reply.
  package mutating func thread(withReply id: RawSpan, in slot: ChannelSlot) -> ChannelSlot? {
    guard let index = self[slot].threads.index(ofReply: id) else { return nil }
    let thread = slot.thread(index)
    refresh(thread)
    return thread
  }

  /// Return the same, for a member. Also nil if the reply does not exist for the member (R6).
  package mutating func thread(withReply id: RawSpan, in slot: ChannelSlot, for user: RawSpan) -> ChannelSlot?
  {
    guard let thread = thread(withReply: id, in: slot) else { return nil }
    guard let member = self[slot].row(of: user) else { return thread }
    return find(id, in: thread, hiddenThrough: hiddenThrough(thread, member)) == nil ? nil : thread
  }

  /// Return the slot that contains a message: a thread's slot if the message is a reply, otherwise the channel's, also
  /// if the message is unknown.
  package mutating func targetSlot(of message: RawSpan, in slot: ChannelSlot) -> ChannelSlot {
    if self[slot].threads.isEmpty || self[slot].messages.find(message) != nil { return slot }
    return thread(withReply: message, in: slot) ?? slot
  }

  /// Return the message that a thread can hang under: a message of the channel itself, not deleted.
  private func parent(_ id: RawSpan, in slot: ChannelSlot) throws(Refusal) -> SequenceNumber {
    guard let sequence = self[slot].messages.find(id) else {
      throw self[slot].threads.index(ofReply: id) == nil ? .messageNotFound : .nestedReply
    }
    guard !self[slot].messages.flags(sequence).contains(.deleted) else { throw .messageDeleted }
    return sequence
  }

  /// Return whether a message has no status any more: the message or its thread's parent was deleted.
  func isDeleted(_ sequence: SequenceNumber, in slot: ChannelSlot) -> Bool {
    if self[slot].messages.flags(sequence).contains(.deleted) { return true }
    return slot.isThread && isClosed(slot)
  }

  func isClosed(_ thread: ChannelSlot) -> Bool {
    self[thread.channel].isClosed(Int(thread.thread) - 1)
  }

  // MARK: Positions

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

  /// Return why a successful read or delivery does not count (R15); nil: it counts, as far as the member's settings
  /// show it.
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

  /// Return a new row of a thread. From the next reply on everything counts for the member (R15); nothing before it is
  /// unread.
  ///
  /// - Parameters:
  ///   - thread: nil: the thread begins with this row.
  ///   - member: the member's row in the channel.
  private func newRow(
    _ member: MemberOrdinal,
    of thread: ChannelSlot?,
    in channel: ChannelSlot,
    at time: Timestamp
  )
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

  // MARK: Replies

  /// Register a reply (R15). The first reply creates the thread. Does nothing if the channel or one of its threads
  /// knows the id.
  ///
  /// - Parameters:
  ///   - requestsAcknowledgement: an acknowledgement is requested; replies never get one.
  ///   - movesPosition: if false, the sender joins the thread, but their positions stay unchanged (R5).
  ///   - mentions: mentioned members of the channel take part in the thread from this reply on.
  /// - Returns: the registration, with the reply's number in its thread.
  package func decideReply(
    _ slot: ChannelSlot,
    to parent: RawSpan,
    id: RawSpan,
    sender: RawSpan,
    created: Timestamp,
    isSilent: Bool,
    requestsAcknowledgement: Bool = false,
    movesPosition: Bool = true,
    mentions: NewMentions = .nobody,
    at time: Timestamp,
    into effects: inout [Effect]
  ) throws(Refusal) -> Registration {
    if let known = self[slot].messages.find(id) {
      guard !self[slot].messages.flags(known).contains(.deleted) else { throw .messageDeleted }
      throw .messageConflict
    }
    if let known = try knownReply(id, in: slot) {
      let parentOfKnown = self[known.thread].parent
      guard withMessage(slot, parentOfKnown, { $0.isEqual(to: parent) }) else { throw .messageConflict }
      try checkRepeat(
        of: known.sequence,
        in: known.thread,
        sender: sender,
        isSilent: isSilent,
        requestsAcknowledgement: requestsAcknowledgement,
        movesPosition: movesPosition
      )
      return .known(known.sequence)
    }
    if isErasing(sender) { throw .userErased }
    let parent = try self.parent(parent, in: slot)
    var record = MessageRecord(
      id: Self.text(id),
      sender: Self.text(sender),
      flags: isSilent ? .silent : [],
      registeredAt: time,
      createdAt: created
    )
    if requestsAcknowledgement { record.flags.insert(.acknowledgementNotAllowed) }
    if !movesPosition { record.flags.insert(.keepsSenderPosition) }
    let start = effects.count
    let thread = self[slot].threads.index(of: parent).map { slot.thread($0) }
    if let thread {
      guard self[thread].messages.hasRoom else { throw .limitReached(.messagesPerChannel) }
    } else {
      guard self[slot].threads.hasRoom else { throw .limitReached(.threadsPerChannel) }
    }
    let member = self[slot].row(of: sender)
    let sequence = try decideReply(
      slot,
      thread,
      to: parent,
      record,
      sender: member,
      mentions: mentions,
      into: &effects
    )
    effects.wrapInThread(parent, from: start)
    if let member, movesPosition { self[slot].decideUnflag(member, epoch: nil, at: time, into: &effects) }
    decideSender(sender, in: thread ?? slot, into: &effects)
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
    mentions: NewMentions,
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
      let row = decideParticipation(
        member,
        in: thread,
        of: channel,
        &next,
        at: record.registeredAt,
        into: &effects
      )
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
    decideSent(
      channel,
      thread: thread,
      senderRow,
      of: sender,
      sequence,
      at: record.registeredAt,
      into: &effects
    )
    return sequence
  }

  /// Return the members who take part in a thread from a reply on (R15), by their rows in the channel, each once. These
  /// are: the parent's sender with the first reply, both members of a two-member channel, the reply's sender, and the
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

  /// Return the members that a reply mentions by name, by their rows in the channel, each once, without its sender. A
  /// mention of all names nobody.
  private func mentionedMembers(
    _ mentions: NewMentions,
    in channel: ChannelSlot,
    sender: String
  ) -> [MemberOrdinal] {
    guard case .users(let users) = mentions else { return [] }
    var members: [MemberOrdinal] = []
    for user in users where !user.isExactly(sender) && !isErasing(user) {
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

  /// Return a known reply, by its id; refused if the reply or its parent was deleted.
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

  // MARK: Queries

  /// Return a page of a thread's read state (R12): the rows of visible thread members, newest first. The first page
  /// begins with the viewer's own row.
  ///
  /// - Parameters:
  ///   - viewer: the viewer in the thread.
  ///   - limit: rows in the page, 1 to 100.
  ///   - cursor: empty for the first page.
  package func readState(
    ofThread thread: ChannelSlot,
    viewer: ChannelViewer,
    limit: Int,
    cursor: RawSpan
  ) throws(Refusal) -> (rows: [ShownRow], next: ListCursor?) {
    var below: Int?
    if !cursor.isEmpty {
      guard case .joined(let time, let user) = try ListCursor(cursor, order: .joined, isThread: true) else {
        throw .invalidCursor
      }
      below = self[thread].index(before: user.span.bytes, joinedAt: time, from: viewer.joinedAt)
    }
    return self[thread].threadRows(
      viewer,
      limit: limit,
      below: below,
      options: options(thread),
      settings: settings
    )
  }

  /// Convert a channel's viewer into a viewer of the slot's thread; a channel's slot returns it unchanged.
  ///
  /// - Parameter viewer: from ``viewer(_:isServer:in:)`` with the channel's slot.
  package func viewer(_ viewer: ChannelViewer, in slot: ChannelSlot) -> ChannelViewer {
    guard slot.isThread, viewer.user != .nobody else { return viewer }
    return self[slot.channel].viewer(viewer, inThread: Int(slot.thread) - 1)
  }

  /// Return the refusal for a user without a row in a reply's thread: nothing is expected of them.
  func nonParticipantRefusal(
    _ thread: ChannelSlot,
    viewer: ChannelViewer,
    _ sequence: SequenceNumber,
    user: RawSpan
  ) throws(Refusal) -> Refusal {
    let row = try member(user, in: thread.channel)
    let isOwn = row == viewer.channelRow
    return isOwn || self[thread].showsCounts(of: sequence, to: viewer, options(thread))
      ? .notExpected : .countsNotVisible
  }

  /// Return the number of rows that must be examined to count one of several messages separately; 0 if the messages are
  /// counted together.
  package func rowsCounted(_ slot: ChannelSlot, for asked: ShownStatus) -> Int {
    if asked.thread > 0 { return max(1, self[slot].threads[Int(asked.thread) - 1].rows.rowCount) }
    return hasAcknowledgementRequest(slot, asked.sequence) ? self[slot].rows.rowCount : 0
  }

  /// Return a member's unread messages of the channel and its threads with unread replies (R14).
  package func unread(_ slot: ChannelSlot, _ row: MemberOrdinal) -> UnreadCounts {
    UnreadCounts(
      messages: self[slot].unreadMessages(row),
      threads: self[slot].unreadThreads(row),
      mentions: self[slot].unreadMentions(row),
      isFlagged: self[slot].rows.isFlaggedUnread(row),
      isMuted: self[slot].rows.isMuted(row)
    )
  }

  /// Return the number of messages that the member of a thread's row has not read in its channel.
  package func unreadMessagesOfChannel(_ thread: ChannelSlot, _ row: MemberOrdinal) -> UInt32 {
    let channel = thread.channel
    guard let member = withUser(thread, row, { self[channel].row(of: $0) }) else { return 0 }
    return self[channel].unreadMessages(member)
  }

  /// Return the unread counts of a current member.
  package func unread(_ slot: ChannelSlot, _ user: RawSpan) throws(Refusal) -> UnreadCounts {
    unread(slot, try member(user, in: slot))
  }
}

extension [Effect] {
  /// Wrap effects decided on a thread into effects on its channel; the only function that does so.
  ///
  /// - Parameter start: the number of effects before them.
  mutating func wrapInThread(_ parent: SequenceNumber, from start: Int) {
    for index in start..<count {
      // A log with any other effect in a thread is refused when it is read again.
      guard case .channel(let number, let effect) = self[index], effect.traits.contains(.threadable) else {
        preconditionFailure("an effect that a thread cannot have")
      }
      self[index] = .channel(number, .inThread(parent, effect))
    }
  }
}

#if DEBUG
  extension ShardState {
    /// Check that the rows of a channel's threads hide what their users hide, as in the channel (R7).
    func checkThreads(_ slot: ChannelSlot) -> String? {
      for index in 0..<self[slot].threads.count {
        if let fault = checkHidden(slot.thread(index)) {
          return "thread of \(self[slot].threads[index].parent.rawValue): \(fault)"
        }
      }
      return self[slot].checkThreads()
    }
  }
#endif
