/// Threads (R15): a thread is a channel within its channel, and a slot that names a thread leads to its rows and
/// messages. Decisions about a thread are made as for a channel, then wrapped (`wrapInThread`).
extension ShardState {
  // MARK: Slots

  /// The thread under a message, by the message's id, with its users' settings applied to its rows. Nil if the message
  /// has no reply yet.
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
  private func checkParent(_ parent: RawSpan, in slot: ChannelSlot, for member: MemberOrdinal) throws(Refusal) {
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

  /// Return the thread that contains a reply, for a member of the channel. Nil if there is no such reply, or if it does
  /// not exist for the member (R6).
  package mutating func thread(withReply id: RawSpan, in slot: ChannelSlot, for user: RawSpan) -> ChannelSlot? {
    guard let thread = thread(withReply: id, in: slot) else { return nil }
    guard let member = self[slot].row(of: user) else { return thread }
    return find(id, in: thread, hiddenThrough: hiddenThrough(thread, member)) == nil ? nil : thread
  }

  /// The slot that contains a message: a thread's slot if the message is a reply, otherwise the channel's, also if the
  /// message is unknown.
  package mutating func targetSlot(of message: RawSpan, in slot: ChannelSlot) -> ChannelSlot {
    if self[slot].threads.isEmpty || self[slot].messages.find(message) != nil { return slot }
    return thread(withReply: message, in: slot) ?? slot
  }

  /// Return the message that a thread can hang under: a message of the channel itself, not deleted.
  func parent(_ id: RawSpan, in slot: ChannelSlot) throws(Refusal) -> SequenceNumber {
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

  // MARK: Queries

  /// A page of a thread's read state (R12): the rows of visible thread members, newest first. The first page begins
  /// with the viewer's own row.
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
    return self[thread].threadRows(viewer, limit: limit, below: below, options: options(thread), settings: settings)
  }

  /// Convert a channel's viewer into a viewer of the slot's thread; a channel's slot returns it unchanged.
  ///
  /// - Parameter viewer: from ``viewer(_:isServer:in:)`` with the channel's slot.
  package func viewer(_ viewer: ChannelViewer, in slot: ChannelSlot) -> ChannelViewer {
    guard slot.isThread, viewer.user != .nobody else { return viewer }
    return self[slot.channel].viewer(viewer, inThread: Int(slot.thread) - 1)
  }

  /// The refusal for a user without a row in a reply's thread: nothing is expected of them.
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

  /// Rows that must be examined to count one of several messages separately; 0 if the messages are counted together.
  package func rowsCounted(_ slot: ChannelSlot, for asked: ShownStatus) -> Int {
    if asked.thread > 0 { return max(1, self[slot].threads[Int(asked.thread) - 1].rows.rowCount) }
    return self[slot].messages.flags(asked.sequence).contains(.requestsAcknowledgement) ? self[slot].rows.rowCount : 0
  }

  /// Messages that the member of a thread's row has not read in its channel.
  package func unreadMessagesOfChannel(_ thread: ChannelSlot, _ row: MemberOrdinal) -> UInt32 {
    let channel = thread.channel
    guard let member = withUser(thread, row, { self[channel].row(of: $0) }) else { return 0 }
    return self[channel].unreadMessages(member)
  }

  /// Return the unread counts of a current member in the channel and its threads (R14).
  package func unread(_ slot: ChannelSlot, _ user: RawSpan) throws(Refusal) -> UnreadCounts {
    let row = try member(user, in: slot)
    return UnreadCounts(
      messages: self[slot].unreadMessages(row),
      threads: self[slot].unreadThreads(row),
      mentions: self[slot].unreadMentions(row),
      isFlagged: self[slot].rows.isFlaggedUnread(row),
      isMuted: self[slot].rows.isMuted(row)
    )
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
