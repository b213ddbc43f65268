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
  package func isDeleted(_ sequence: SequenceNumber, in slot: ChannelSlot) -> Bool {
    if self[slot].messages.flags(sequence).contains(.deleted) { return true }
    return slot.isThread && isClosed(slot)
  }

  func isClosed(_ thread: ChannelSlot) -> Bool {
    self[thread.channel].isClosed(Int(thread.thread) - 1)
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
