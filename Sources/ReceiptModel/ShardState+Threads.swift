/// Threads (R15): a thread is a channel within its channel, and a slot that names one leads to its rows and messages. What is decided about a thread is
/// decided as in a channel, then wrapped (`putInThread`).
extension ShardState {
  // MARK: Slots

  /// The thread under a message, by the message's id; its rows have taken over their users' settings. Nil where there is no reply yet.
  package mutating func thread(of parent: RawSpan, in slot: ChannelSlot) throws(Refusal) -> ChannelSlot? {
    let sequence = try self.parent(parent, in: slot)
    guard let place = self[slot].threads.place(of: sequence) else { return nil }
    let thread = slot.thread(place)
    refresh(thread)
    return thread
  }

  /// The thread that a reply is in, by the reply's id. Nil where there is no such reply.
  package mutating func thread(withReply id: RawSpan, in slot: ChannelSlot) -> ChannelSlot? {
    guard let place = self[slot].threads.place(ofReply: id) else { return nil }
    let thread = slot.thread(place)
    refresh(thread)
    return thread
  }

  /// Where a message is: the channel's slot, or that of a thread where it is a reply. The channel's where there is no such message.
  package mutating func place(of message: RawSpan, in slot: ChannelSlot) -> ChannelSlot {
    if self[slot].threads.isEmpty || self[slot].messages.find(message) != nil { return slot }
    return thread(withReply: message, in: slot) ?? slot
  }

  /// A message that can have a thread: of the channel itself, and not deleted.
  private func parent(_ id: RawSpan, in slot: ChannelSlot) throws(Refusal) -> SequenceNumber {
    guard let sequence = self[slot].messages.find(id) else {
      throw self[slot].threads.place(ofReply: id) == nil ? .messageNotFound : .nestedReply
    }
    guard !self[slot].messages.flags(sequence).contains(.deleted) else { throw .messageDeleted }
    return sequence
  }

  /// Whether a message has no status any more: it was deleted, or the parent of its thread was.
  func isDeleted(_ sequence: SequenceNumber, in slot: ChannelSlot) -> Bool {
    if self[slot].messages.flags(sequence).contains(.deleted) { return true }
    return slot.isThread && isClosed(slot)
  }

  func isClosed(_ thread: ChannelSlot) -> Bool {
    self[thread.channel].isClosed(Int(thread.thread) - 1)
  }

  // MARK: Positions

  /// Mark-read in a thread, to a reply, or to the newest where `message` is empty. A member of the channel who has no row in the thread joins it, read up to
  /// the newest.
  ///
  /// - Parameter thread: from ``thread(of:in:)`` or ``thread(withReply:in:)``.
  package func decideRead(
    inThread thread: ChannelSlot,
    user: RawSpan,
    message: RawSpan,
    epoch: UInt32?,
    at time: Timestamp,
    into effects: inout [Effect]
  ) throws(Refusal) {
    let start = effects.count
    _ = try member(user, in: thread.channel)
    guard !isClosed(thread) else { throw .messageDeleted }
    if self[thread].row(of: user) == nil {
      _ = try position(message, in: thread)
      effects.append(try joining(thread, user: Self.text(user), byReading: true, at: time))
    } else {
      _ = try decideRead(thread, user: user, message: message, epoch: epoch, at: time, into: &effects)
    }
    effects.putInThread(self[thread].parent, from: start)
  }

  /// Mark-delivered in a thread. A member of the channel who has no row in the thread changes nothing.
  package func decideDelivered(
    inThread thread: ChannelSlot,
    user: RawSpan,
    message: RawSpan,
    at time: Timestamp,
    into effects: inout [Effect]
  ) throws(Refusal) {
    let start = effects.count
    _ = try member(user, in: thread.channel)
    guard !isClosed(thread) else { throw .messageDeleted }
    guard self[thread].row(of: user) != nil else {
      _ = try position(message, in: thread)
      return
    }
    _ = try decideDelivered(thread, user: user, message: message, at: time, into: &effects)
    effects.putInThread(self[thread].parent, from: start)
  }

  /// Mark-unread in a thread from a reply on, or of the whole thread where `message` is empty. Who has no row in it has nothing there to be unread.
  package func decideUnread(
    inThread thread: ChannelSlot,
    user: RawSpan,
    message: RawSpan,
    epoch: UInt32?,
    into effects: inout [Effect]
  ) throws(Refusal) {
    let start = effects.count
    _ = try member(user, in: thread.channel)
    guard options(thread).markUnread != .off else { throw .markUnreadOff }
    guard !isClosed(thread) else { throw .messageDeleted }
    guard let row = self[thread].row(of: user) else { throw .notInThread }
    let sequence = message.isEmpty ? SequenceNumber(1) : try position(message, in: thread)
    self[thread].decideUnread(row, from: sequence, epoch: epoch, at: time, into: &effects)
    effects.putInThread(self[thread].parent, from: start)
  }

  /// A mark under a message that has no replies yet: it changes nothing, if it may be made at all.
  ///
  /// - Parameter isUnread: it is mark-unread.
  package func checkMark(
    withoutThread slot: ChannelSlot,
    user: RawSpan,
    message: RawSpan,
    isUnread: Bool
  ) throws(Refusal) {
    _ = try member(user, in: slot)
    if isUnread, options(slot).markUnread == .off { throw .markUnreadOff }
    // There is no reply that it could name.
    guard message.isEmpty else { throw .messageNotFound }
  }

  /// A new row of a thread, read up to its newest reply (R6).
  ///
  /// - Parameters:
  ///   - added: rows that this command has added to the thread so far.
  ///   - byReading: they have marked it read; whoever replies is in it for all to see.
  ///   - known: the row that gives way to the new one, and whose unread marker goes over to it; nil: there is none, or
  ///     replying clears it.
  private func joining(
    _ thread: ChannelSlot,
    after added: Int = 0,
    user: String,
    byReading: Bool,
    keeping known: MemberOrdinal? = nil,
    at time: Timestamp
  ) throws(Refusal) -> Effect {
    let next = self[thread].rows.rowCount + added
    guard next < ReadVector.rowsMax else { throw .limitReached(.membersPerChannel) }
    let newest = self[thread].messages.newest
    var record = RowRecord(
      user: user,
      joined: newest,
      joinedAt: time,
      read: newest,
      joinedByReading: byReading
    )
    if let known { keepPositions(of: known, in: thread, in: &record) }
    return .rowAssigned(self[thread].number, MemberOrdinal(UInt32(next)), record)
  }

  /// Carries the unread position of a row that gives way over to the new one, as an unread marker (R5).
  private func keepPositions(of known: MemberOrdinal, in thread: ChannelSlot, in record: inout RowRecord) {
    let own = self[thread].rows.ownPosition(known)
    let epoch = self[thread].rows.epochs[Int(known.rawValue)]
    record.unreadEpoch = epoch
    guard own < record.read else { return }
    // A marker always has an epoch; one that is set here is a choice that a device has not seen yet (R4).
    if self[thread].rows.marker(known) == nil { record.unreadEpoch = max(epoch, epoch &+ 1) }
    record.marker = own
    record.markedAt = record.joinedAt
  }

  // MARK: Replies

  /// Registers a reply. With the first one the thread begins: the parent's sender is in it from its start, whoever replies from their first reply on, as far as
  /// they are members of the channel. An id that the channel or one of its threads knows changes nothing.
  ///
  /// - Parameters:
  ///   - wantsReceipt: it asks for a receipt, which no reply gets.
  ///   - movesPosition: false: the sender is in the thread, and their positions stay as they are (R5).
  ///   - mentions: members of the channel whom it names are in the thread from this reply on.
  /// - Returns: with the reply's number in its thread.
  package func decideReply(
    _ slot: ChannelSlot,
    to parent: RawSpan,
    id: RawSpan,
    sender: RawSpan,
    created: Timestamp,
    isSilent: Bool,
    wantsReceipt: Bool = false,
    movesPosition: Bool = true,
    mentions: NewMentions = .nobody,
    at time: Timestamp,
    into effects: inout [Effect]
  ) throws(Refusal) -> Registration {
    if let known = self[slot].messages.find(id) {
      guard !self[slot].messages.flags(known).contains(.deleted) else { throw .messageDeleted }
      return .known(known)
    }
    if let known = try knownReply(id, in: slot) { return .known(known) }
    if isErasing(sender) { throw .userErased }
    let parent = try self.parent(parent, in: slot)
    var record = MessageRecord(
      id: Self.text(id),
      sender: Self.text(sender),
      flags: isSilent ? .silent : [],
      registeredAt: time,
      createdAt: created
    )
    if wantsReceipt { record.flags.insert(.receiptNotAllowed) }
    if !movesPosition { record.flags.insert(.leavesPosition) }
    let start = effects.count
    let sequence: SequenceNumber
    let thread = self[slot].threads.place(of: parent).map { slot.thread($0) }
    if let thread {
      let mentioned = try decideMentioned(mentions, in: thread, &record, sender: sender, into: &effects)
      sequence = try decideFurther(thread, record, sender: sender, after: mentioned, into: &effects)
    } else {
      guard self[slot].threads.hasRoom else { throw .limitReached(.threadsPerChannel) }
      sequence = decideFirst(slot, parent, record, sender: sender, mentions: mentions, into: &effects)
    }
    effects.putInThread(parent, from: start)
    decideSender(sender, in: thread ?? slot, into: &effects)
    return .created(sequence)
  }

  /// Resolves whom a reply that is not a thread's first mentions. Members of the channel who are not in the thread are in it from this
  /// reply on.
  ///
  /// - Returns: how many rows are added for them.
  private func decideMentioned(
    _ mentions: NewMentions,
    in thread: ChannelSlot,
    _ record: inout MessageRecord,
    sender: RawSpan,
    into effects: inout [Effect]
  ) throws(Refusal) -> Int {
    guard case .users(let users) = mentions else {
      if mentions == .all, record.flags.isCountable { record.mentions = .all }
      return 0
    }
    guard self[thread].messages.hasRoom else { throw .limitReached(.messagesPerChannel) }
    var rows: Set<UInt32> = []
    var added: Set<String> = []
    for user in users
    where user != record.sender && self[thread.channel].row(of: user) != nil && !isErasing(user) {
      if let row = self[thread].row(of: user) {
        rows.insert(row.rawValue)
      } else if added.insert(user).inserted {
        let next = UInt32(self[thread].rows.rowCount + added.count - 1)
        guard next < ReadVector.rowsMax else { throw .limitReached(.membersPerChannel) }
        let newest = self[thread].messages.newest
        let joined = RowRecord(user: user, joined: newest, joinedAt: record.registeredAt, read: newest)
        effects.append(.rowAssigned(self[thread].number, MemberOrdinal(next), joined))
        rows.insert(next)
      }
    }
    if !rows.isEmpty, record.flags.isCountable { record.mentions = .rows(rows.sorted()) }
    return added.count
  }

  /// A reply that is not a thread's first.
  ///
  /// - Parameter added: rows that this command has added to the thread so far.
  private func decideFurther(
    _ thread: ChannelSlot,
    _ record: MessageRecord,
    sender: RawSpan,
    after added: Int,
    into effects: inout [Effect]
  ) throws(Refusal) -> SequenceNumber {
    guard self[thread].messages.hasRoom else { throw .limitReached(.messagesPerChannel) }
    let number = self[thread].number
    let sequence = self[thread].messages.newest.next
    guard let member = self[thread.channel].row(of: sender) else {
      effects.append(.messageAssigned(number, sequence, record))
      return sequence
    }
    let known = self[thread].row(of: sender)
    let movesPosition = !record.flags.contains(.leavesPosition)
    if let row = known, !self[thread].rows.joinedByReading(row) {
      effects.append(.messageAssigned(number, sequence, record))
      guard movesPosition else { return sequence }
      decideSeal(thread, row, .read, to: sequence, into: &effects)
      decideSent(thread, row, of: member, sequence, at: record.registeredAt, into: &effects)
    } else {
      let row = MemberOrdinal(UInt32(self[thread].rows.rowCount + added))
      let joining = try joining(
        thread,
        after: added,
        user: record.sender,
        byReading: false,
        keeping: movesPosition ? nil : known,
        at: record.registeredAt
      )
      // Who has only read it so far is in it anew, for all to see.
      if let known { effects.append(.rowLeft(number, known, at: record.registeredAt)) }
      effects.append(joining)
      effects.append(.messageAssigned(number, sequence, record))
      guard movesPosition else { return sequence }
      if self[thread].isTailFull(row) { effects.append(droppingSteps(thread, row)) }
      decideSent(thread, row, of: member, sequence, at: record.registeredAt, into: &effects)
    }
    return sequence
  }

  /// A thread's first reply.
  private func decideFirst(
    _ slot: ChannelSlot,
    _ parent: SequenceNumber,
    _ record: MessageRecord,
    sender: RawSpan,
    mentions: NewMentions,
    into effects: inout [Effect]
  ) -> SequenceNumber {
    var record = record
    let number = self[slot].number
    let sequence = SequenceNumber(1)
    let author = self[slot].rows.row(of: self[slot].messages.sender(parent))
    let replier = self[slot].row(of: sender)
    var row = MemberOrdinal(0)
    if let author {
      let user = self[slot].users.text(self[slot].rows.user(author))
      let joined = RowRecord(user: user, joined: .zero, joinedAt: record.registeredAt)
      effects.append(.rowAssigned(number, row, joined))
    }
    if let replier, replier != author {
      if author != nil { row = MemberOrdinal(1) }
      let joined = RowRecord(user: record.sender, joined: .zero, joinedAt: record.registeredAt)
      effects.append(.rowAssigned(number, row, joined))
    }
    decideFirstMentioned(mentions, slot, &record, &effects)
    effects.append(.messageAssigned(number, sequence, record))
    if let replier, !record.flags.contains(.leavesPosition) {
      decideSent(slot, row, of: replier, sequence, at: record.registeredAt, into: &effects)
    }
    return sequence
  }

  /// Resolves whom a thread's first reply mentions. The effects so far are those of the thread's first rows.
  private func decideFirstMentioned(
    _ mentions: NewMentions,
    _ slot: ChannelSlot,
    _ record: inout MessageRecord,
    _ effects: inout [Effect]
  ) {
    guard case .users(let users) = mentions else {
      if mentions == .all, record.flags.isCountable { record.mentions = .all }
      return
    }
    var rowOf: [String: UInt32] = [:]
    for effect in effects {
      if case .rowAssigned(_, let row, let joined) = effect { rowOf[joined.user] = row.rawValue }
    }
    var rows: Set<UInt32> = []
    for user in users
    where user != record.sender && self[slot].row(of: user) != nil && !isErasing(user) {
      if rowOf[user] == nil {
        let next = UInt32(rowOf.count)
        rowOf[user] = next
        let joined = RowRecord(user: user, joined: .zero, joinedAt: record.registeredAt)
        effects.append(.rowAssigned(self[slot].number, MemberOrdinal(next), joined))
      }
      rows.insert(rowOf[user]!)
    }
    if !rows.isEmpty, record.flags.isCountable { record.mentions = .rows(rows.sorted()) }
  }

  /// Sending's part for the sender's row in a thread (R5).
  ///
  /// - Parameters:
  ///   - thread: the thread, or its channel where it is not there yet.
  ///   - row: in the thread; it may be new.
  ///   - member: their row in the channel: what they hide there, they hide in its threads.
  private func decideSent(
    _ thread: ChannelSlot,
    _ row: MemberOrdinal,
    of member: MemberOrdinal,
    _ sequence: SequenceNumber,
    at time: Timestamp,
    into effects: inout [Effect]
  ) {
    let channel = thread.channel
    let number = self[channel].number
    let hidesRead = self[channel].rows.hidesRead(member)
    let hidesDelivered = self[channel].rows.hidesDelivered(member)
    effects.append(.readMoved(number, row, to: sequence, at: time, isHidden: hidesRead))
    effects.append(.deliveredMoved(number, row, to: sequence, at: time, isHidden: hidesDelivered))
    guard thread.isThread, Int(row.rawValue) < self[thread].rows.rowCount else { return }
    if self[thread].rows.marker(row) != nil {
      let epoch = self[thread].rows.epochs[Int(row.rawValue)]
      effects.append(.markerAssigned(number, row, marker: nil, epoch: epoch, at: time))
    }
  }

  /// A thread's steps are never sealed: a tail that is full is dropped.
  func droppingSteps(_ slot: ChannelSlot, _ row: MemberOrdinal) -> Effect {
    let rowPage = row.rawValue / PageID.rowsPerPage
    let next = self[slot].steps.segments(rowPage).upperBound
    return .stepsTrimmed(self[slot].number, rowPage: rowPage, first: next + 1)
  }

  /// A reply that is known, by its id; refused where it was deleted, by itself or with its parent.
  func knownReply(_ id: RawSpan, in slot: ChannelSlot) throws(Refusal) -> SequenceNumber? {
    guard let place = self[slot].threads.place(ofReply: id),
      let sequence = self[slot].threads[place].messages.find(id)
    else { return nil }
    guard !isDeleted(sequence, in: slot.thread(place)) else { throw .messageDeleted }
    return sequence
  }

  /// Deletes a reply (R16); nil where there is no such reply. In a thread that is closed it is deleted already.
  func decideDelete(
    reply id: RawSpan,
    in slot: ChannelSlot,
    at time: Timestamp,
    into effects: inout [Effect]
  ) -> SequenceNumber? {
    guard let place = self[slot].threads.place(ofReply: id),
      let sequence = self[slot].threads[place].messages.find(id)
    else { return nil }
    guard !isDeleted(sequence, in: slot.thread(place)) else { return sequence }
    let start = effects.count
    effects.append(.messageDeleted(self[slot].number, sequence, at: time))
    effects.putInThread(self[slot].threads[place].parent, from: start)
    return sequence
  }

  // MARK: Queries

  /// Who asks about a channel, as who asks about one of its threads; the channel's own stays what it is.
  ///
  /// - Parameter viewer: from ``viewer(_:isServer:in:)`` with the channel's slot.
  package func viewer(_ viewer: ChannelViewer, in slot: ChannelSlot) -> ChannelViewer {
    guard slot.isThread, viewer.user != .nobody else { return viewer }
    return self[slot.channel].viewer(viewer, inThread: Int(slot.thread) - 1)
  }

  /// What a user has of a reply who has no row in its thread: nothing, and nothing is expected of them.
  func refusalOfStranger(
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

  /// Rows that counting one of several messages looks at for it alone; 0 where they are counted together.
  package func rowsCounted(_ slot: ChannelSlot, for asked: StatusAnswer) -> Int {
    if asked.thread > 0 { return max(1, self[slot].threads[Int(asked.thread) - 1].rows.rowCount) }
    return hasReceipt(slot, asked.sequence) ? self[slot].rows.rowCount : 0
  }

  /// What a member has unread: messages of the channel, and threads with unread replies (R14).
  package func unread(_ slot: ChannelSlot, _ row: MemberOrdinal) -> UnreadCounts {
    UnreadCounts(
      messages: self[slot].unreadMessages(row),
      threads: self[slot].unreadThreads(row),
      mentions: self[slot].unreadMentions(row),
      isFlagged: self[slot].rows.isFlaggedUnread(row),
      isMuted: self[slot].rows.isMuted(row)
    )
  }

  /// Messages that the member of a thread's row has not read in its channel.
  package func unreadMessagesOfChannel(_ thread: ChannelSlot, _ row: MemberOrdinal) -> UInt32 {
    let channel = thread.channel
    guard let member = withUser(thread, row, { self[channel].row(of: $0) }) else { return 0 }
    return self[channel].unreadMessages(member)
  }

  /// What a user has unread, who is a member now.
  package func unread(_ slot: ChannelSlot, _ user: RawSpan) throws(Refusal) -> UnreadCounts {
    unread(slot, try member(user, in: slot))
  }
}

extension [Effect] {
  /// The one place where effects that were decided on a thread become effects on its channel.
  ///
  /// - Parameter start: how many effects there were before.
  mutating func putInThread(_ parent: SequenceNumber, from start: Int) {
    for place in start..<count { self[place] = .inThread(parent, self[place]) }
  }
}

#if DEBUG
  extension ShardState {
    /// What the rows of a channel's threads hide is what their users hide, as in the channel (R7).
    func checkThreads(_ slot: ChannelSlot) -> String? {
      for place in 0..<self[slot].threads.count {
        if let fault = checkHidden(slot.thread(place)) {
          return "thread of \(self[slot].threads[place].parent.rawValue): \(fault)"
        }
      }
      return self[slot].checkThreads()
    }
  }
#endif
