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

  /// Return a page of a channel's members in join order. Rosters are not history (R6).
  ///
  /// - Parameters:
  ///   - limit: entries in the page, 1 to 100.
  ///   - cursor: the first row to examine.
  package func roster(_ slot: ChannelSlot, limit: Int, cursor: UInt32?) -> (
    rows: [MemberOrdinal], next: UInt32?
  ) {
    var rows: [MemberOrdinal] = []
    var next = Int(cursor ?? 0)
    let end = self[slot].rows.rowCount
    var scanBudget = Self.rosterScanLimit
    while next < end, rows.count < limit, scanBudget > 0 {
      let row = MemberOrdinal(UInt32(next))
      if self[slot].rows.isActive(row) { rows.append(row) }
      next += 1
      scanBudget -= 1
    }
    while next < end, scanBudget > 0, !self[slot].rows.isActive(MemberOrdinal(UInt32(next))) {
      next += 1
      scanBudget -= 1
    }
    return (rows, next < end ? UInt32(next) : nil)
  }

  /// Return when a member joined.
  package func joinedAt(_ slot: ChannelSlot, _ row: MemberOrdinal) -> Timestamp {
    self[slot].rows.joinedAt(row)
  }

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
