/// Lists of one message's members, and the status of chosen members (R11).
extension ShardState {
  /// The parameters of a list query.
  package struct ListQuery: Hashable, Sendable {
    package var list: MemberList
    package var order: ListOrder
    /// Number of entries in a page, 1 to 100.
    package var limit: Int

    package init(_ list: MemberList, _ order: ListOrder, limit: Int) {
      self.list = list
      self.order = order
      self.limit = limit
    }
  }

  /// Begin a page of a list; ``advance(_:slot:viewer:budget:)`` fills it.
  ///
  /// - Parameters:
  ///   - cursor: empty for the first page.
  ///   - times: the shard's time, and the step segments read for this page.
  package func beginList(
    _ slot: ChannelSlot,
    viewer: ChannelViewer,
    message: RawSpan,
    _ query: ListQuery,
    cursor: RawSpan,
    times: MemberTimes
  ) throws(Refusal) -> MemberListScan {
    let sequence = try shownMessage(message, in: slot, viewer)
    try checkList(slot, of: sequence, for: viewer, order: query.order)
    if query.list == .acknowledged || query.list == .unacknowledged {
      guard self[slot].acknowledgementTable.isRequested(sequence) else { throw .acknowledgementNotRequested }
    }
    var scan = MemberListScan(
      message: sequence,
      list: query.list,
      order: query.order,
      limit: query.limit,
      cursor: cursor.isEmpty ? nil : try ListCursor(cursor, order: query.order, isThread: slot.isThread),
      times: times
    )
    scan.historyStart = viewer.joinedAt
    if case .joined(let time, let user) = scan.cursor {
      scan.row = self[slot].row(behind: user.span.bytes, joinedAt: time, from: viewer.joinedAt)
    }
    return scan
  }

  /// Continue a page. Throws if the list must not be shown any more, which may have changed since the last slice.
  ///
  /// - Parameter budget: the number of rows that may be examined; reduced by those examined.
  /// - Returns: whether the page is complete.
  package func advance(
    _ scan: inout MemberListScan,
    _ slot: ChannelSlot,
    viewer: ChannelViewer,
    budget: inout Int
  ) throws(Refusal) -> Bool {
    // The viewer may have left and joined again.
    guard viewer.sees(scan.message) else { throw .messageNotFound }
    guard !isDeleted(scan.message, in: slot) else { throw .messageDeleted }
    try checkList(slot, of: scan.message, for: viewer, order: scan.order)
    return self[slot].advance(&scan, budget: &budget, options(slot), settings: settings)
  }

  /// Return the number of entries in a list, as the viewer's status counts them.
  package func total(
    _ list: MemberList,
    _ slot: ChannelSlot,
    _ sequence: SequenceNumber,
    viewer: ChannelViewer
  ) -> UInt32 {
    let status = status(slot, sequence, viewer: viewer)
    switch list {
    case .readers: return status.readCount
    case .delivered: return status.deliveredCount - status.readCount
    case .unread: return status.unreadCount
    case .acknowledged: return status.acknowledgedCount ?? 0
    case .unacknowledged: return status.memberCount - (status.acknowledgedCount ?? 0)
    }
  }

  private func checkList(
    _ slot: ChannelSlot,
    of sequence: SequenceNumber,
    for viewer: ChannelViewer,
    order: ListOrder
  ) throws(Refusal) {
    guard self[slot].showsCounts(of: sequence, to: viewer, options(slot)) else { throw .countsNotVisible }
    guard order == .joined || self[slot].rows.activeCount <= ChannelState.timeOrderMembersMax else {
      throw .orderNotAvailable
    }
  }

  /// Return one user's status for a message, as the viewer sees it. Viewers see their own entry regardless of their
  /// privacy settings.
  package func memberStatus(
    _ slot: ChannelSlot,
    viewer: ChannelViewer,
    _ sequence: SequenceNumber,
    user: RawSpan,
    times: inout MemberTimes
  ) throws(Refusal) -> MemberStatus {
    guard let row = self[slot].row(of: user) else {
      guard slot.isThread else { throw .notAMember }
      throw try nonParticipantRefusal(slot, viewer: viewer, sequence, user: user)
    }
    let isOwn = row == viewer.row
    let options = options(slot)
    guard isOwn || self[slot].showsCounts(of: sequence, to: viewer, options) else { throw .countsNotVisible }
    // Members see their own reads, even hidden ones.
    let end = isOwn ? self[slot].rows.read[row].rawValue : self[slot].rows.countedThrough(row, options)
    guard self[slot].rows.counts(row, sequence, through: end), isOwn || !self[slot].rows.isUnseen(row, options) else {
      throw .notExpected
    }
    return self[slot].memberStatus(
      row,
      sequence,
      isOwn ? .own(options) : .others(options),
      settings: settings,
      times: &times
    )
  }
}

/// The cursor of a page of a channel's messages: at a message, or at a reply in the thread under it.
package struct MessageListCursor: Hashable, Sendable {
  /// This message and those before it are not listed yet.
  package var message: SequenceNumber
  /// The replies to it up to this one are not listed yet; nil: all of them.
  package var reply: SequenceNumber?

  package init(message: SequenceNumber, reply: SequenceNumber? = nil) {
    self.message = message
    self.reply = reply
  }
}

/// The members of a channel and its registered messages, for backends to reconcile with.
extension ShardState {
  /// Scan limit of one page, in rows or messages. A page that reaches it, because most are of former members or
  /// deleted, has fewer entries than requested, and a next page.
  package static let rosterScanLimit = 8_192

  /// A registered message that is not deleted.
  package struct ListedMessage: Hashable, Sendable {
    /// The channel, or for a reply the thread.
    package var slot: ChannelSlot
    package var sequence: SequenceNumber
    /// For a reply, its parent message.
    package var parent: SequenceNumber
  }

  /// Return a page of a channel's messages, newest first. The replies to a message precede it, newest first too.
  ///
  /// - Parameters:
  ///   - limit: entries in the page, 1 to 100.
  ///   - cursor: the start of the page; nil: the newest message.
  package func listedMessages(
    _ slot: ChannelSlot,
    limit: Int,
    cursor: MessageListCursor?
  ) -> (messages: [ListedMessage], next: MessageListCursor?) {
    var messages: [ListedMessage] = []
    var scanBudget = Self.rosterScanLimit
    var message = min(cursor?.message ?? self[slot].messages.newest, self[slot].messages.newest)
    var reply = cursor?.reply
    while message > self[slot].messages.truncatedThrough {
      let isDeleted = self[slot].messages.flags(message).contains(.deleted)
      if !isDeleted, let index = self[slot].threads.index(of: message) {
        let thread = slot.thread(index)
        var next = min(reply ?? self[thread].messages.newest, self[thread].messages.newest)
        while next > .zero {
          guard messages.count < limit, scanBudget > 0 else {
            return (messages, MessageListCursor(message: message, reply: next))
          }
          scanBudget -= 1
          if !self[thread].messages.flags(next).contains(.deleted) {
            messages.append(ListedMessage(slot: thread, sequence: next, parent: message))
          }
          next = SequenceNumber(next.rawValue - 1)
        }
      }
      guard messages.count < limit, scanBudget > 0 else {
        return (messages, MessageListCursor(message: message, reply: .zero))
      }
      scanBudget -= 1
      if !isDeleted { messages.append(ListedMessage(slot: slot, sequence: message, parent: .zero)) }
      message = SequenceNumber(message.rawValue - 1)
      reply = nil
    }
    return (messages, nil)
  }
}
