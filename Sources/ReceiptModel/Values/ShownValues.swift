/// The reason a command or a query was refused; nothing was changed. The wire's codes 30 to 44 (Proto/frames.md,
/// "Errors").
package enum Refusal: Error, Hashable, Sendable {
  case channelNotFound
  case notAMember
  /// The member of the channel has no row in the thread (R15).
  case notInThread
  case messageNotFound
  case messageDeleted
  /// The id is registered with another sender, parent or flag.
  case messageConflict
  case markUnreadOff
  case limitReached(StaticLimit)
  /// The user's token was issued before their tokens were revoked.
  case tokenRevoked
  /// Order by time in a channel of more than ``ChannelState/timeOrderMembersMax`` members (R11).
  case orderNotAvailable
  /// `counts_visible_to` is `sender`, and the viewer is not the sender (R10).
  case countsNotVisible
  /// The message was registered without an acknowledgement request (R9).
  case acknowledgementNotRequested
  /// A sender cannot acknowledge their own message (R9).
  case ownMessage
  /// The acknowledgement request has expired (R9).
  case acknowledgementExpired
  /// The member joined after the message was registered (R6).
  case notExpected
  /// The cursor was not issued by any page.
  case invalidCursor
  /// The user is being erased: nothing new is created in their name (R16).
  case userErased
  /// A reply was named as the parent of a thread (R15).
  case nestedReply
  /// The names behind a ticket's numbers differ from those that the ticket was issued for.
  case checkMismatch
  /// An imported line contradicts what is there: another join, another sequence number, or more moves than it counts.
  case importConflict
  /// An imported message's sequence number is not the next one.
  case importGap
  /// An imported line comes before one that it needs, or after one that it has to precede.
  case importOrder
  /// An imported time is later than the shard's.
  case timeInFuture

  /// The limits that a caller can reach.
  package enum StaticLimit: String, Sendable {
    case membersPerChannel = "members of a channel: at most 16777216 rows, including members who left"
    case channelTypes = "channel types of a store: at most 1024"
    case threadsPerChannel = "threads of a channel: at most 65536"
    case timersPerShard = "pending reminders and expiries of a shard: at most 4194304"
    case messagesPerChannel = "messages of a channel: their ids take at most 4 GiB in total"
  }
}

/// A message's status (R1), in rising order.
package enum MessageStatus: UInt8, Comparable, Sendable {
  case sent = 0
  case delivered = 1
  case read = 2
  package static func < (a: Self, b: Self) -> Bool { a.rawValue < b.rawValue }
}

/// The state of a message's acknowledgement request (R9).
package enum AcknowledgementStatus: UInt8, Sendable {
  /// Registered without an acknowledgement request.
  case none = 0
  /// Not every recipient has acknowledged it yet.
  case processing = 1
  case done = 2
  case expired = 3
}

/// Why a message that requested acknowledgement was registered without one (R9).
package enum AcknowledgementRequestRefusal: UInt8, Sendable {
  case none = 0
  /// `receipt_limit_reached`
  case limitReached = 1
  /// `receipt_not_allowed`
  case notAllowed = 2
}

/// A list of the members of one message (R11).
package enum MemberList: UInt8, Sendable, CaseIterable {
  case readers = 0
  /// Members who have had it delivered but have not read it.
  case delivered = 1
  /// Members who have not read it.
  case unread = 2
  /// Members who have acknowledged it, for a message with an acknowledgement request (R9).
  case acknowledged = 3
  /// Members who have not acknowledged it.
  case unacknowledged = 4
}

/// The order of a list (R11).
package enum ListOrder: UInt8, Sendable, CaseIterable {
  /// Join order; the cursor is a row number.
  case joined = 0
  /// Time, then user id.
  case time = 1
  /// Time, then user id, both descending.
  case timeDescending = 2
}

/// One member in a list (R11).
package struct ListEntry: Hashable, Sendable {
  package var row: MemberOrdinal
  /// When the member read it, had it delivered, or acknowledged it; none in the lists of members who have not.
  package var at: Timestamp
  package var isExact: Bool
  /// The note of a visible acknowledgement; empty: no note.
  package var note: String
  /// The time that the list is sorted by.
  var sortTime: Timestamp

  package init(row: MemberOrdinal, at: Timestamp = .none, isExact: Bool = true, note: String = "") {
    self.init(row: row, at: at, isExact: isExact, note: note, sortTime: nil)
  }

  init(row: MemberOrdinal, at: Timestamp, isExact: Bool, note: String = "", sortTime: Timestamp?) {
    self.row = row
    self.at = at
    self.isExact = isExact
    self.note = note
    self.sortTime = sortTime ?? at
  }
}

/// One member's status for one message, as a viewer sees it.
package struct MemberStatus: Hashable, Sendable {
  package var status: MessageStatus
  /// None if the member has not read it.
  package var readAt: Timestamp
  /// None if it was not delivered to the member.
  package var deliveredAt: Timestamp
  /// Whether ``readAt`` is exact (R17); true if there is no such time.
  package var readIsExact: Bool
  /// Whether ``deliveredAt`` is exact (R17); true if there is no such time.
  package var deliveredIsExact: Bool
  /// None if the member has not acknowledged it (R9).
  package var acknowledgedAt: Timestamp

  package init(
    status: MessageStatus,
    readAt: Timestamp,
    deliveredAt: Timestamp,
    readIsExact: Bool,
    deliveredIsExact: Bool,
    acknowledgedAt: Timestamp = .none
  ) {
    self.status = status
    self.readAt = readAt
    self.deliveredAt = deliveredAt
    self.readIsExact = readIsExact
    self.deliveredIsExact = deliveredIsExact
    self.acknowledgedAt = acknowledgedAt
  }
}

/// The counts of one message (R1, R10).
package struct ShownStatus: Hashable, Sendable {
  package var sequence: SequenceNumber
  package var status: MessageStatus
  package var acknowledgement: AcknowledgementStatus
  package var readCount: UInt32
  /// Includes readers (R1).
  package var deliveredCount: UInt32
  package var memberCount: UInt32
  package var readEvents: Bool
  package var deliveryEvents: Bool
  package var createdAt: Timestamp
  /// Members who have acknowledged it, for a message with an acknowledgement request (R9); nil: it has no
  /// acknowledgement request.
  package var acknowledgedCount: UInt32?
  /// For a reply that was asked for and is not counted yet: 1 + its thread's index (R15).
  var thread: UInt32 = 0
  /// `memberCount − readCount`, always (R1).
  package var unreadCount: UInt32 { memberCount - readCount }

  package init(
    sequence: SequenceNumber,
    status: MessageStatus,
    acknowledgement: AcknowledgementStatus = .none,
    readCount: UInt32,
    deliveredCount: UInt32,
    memberCount: UInt32,
    readEvents: Bool,
    deliveryEvents: Bool,
    createdAt: Timestamp,
    acknowledgedCount: UInt32? = nil
  ) {
    self.sequence = sequence
    self.status = status
    self.acknowledgement = acknowledgement
    self.readCount = readCount
    self.deliveredCount = deliveredCount
    self.memberCount = memberCount
    self.readEvents = readEvents
    self.deliveryEvents = deliveryEvents
    self.createdAt = createdAt
    self.acknowledgedCount = acknowledgedCount
  }
}

/// A member's unread counts in one channel (R14).
package struct UnreadCounts: Hashable, Sendable {
  package var messages: UInt32
  /// Threads with unread replies.
  package var threads: UInt32
  /// Unread messages and replies that mention the member.
  package var mentions: UInt32
  /// The channel is flagged unread as a whole (R4).
  package var isFlagged: Bool
  /// The member excludes the channel from their unread totals.
  package var isMuted: Bool

  package init(
    messages: UInt32 = 0,
    threads: UInt32 = 0,
    mentions: UInt32 = 0,
    isFlagged: Bool = false,
    isMuted: Bool = false
  ) {
    self.messages = messages
    self.threads = threads
    self.mentions = mentions
    self.isFlagged = isFlagged
    self.isMuted = isMuted
  }
}

/// A read-state row as a viewer sees it, in numbers; names are looked up when it is encoded (R12, R18).
package struct ShownRow: Hashable, Sendable {
  package var row: MemberOrdinal
  /// The newest message at the time of the member's join.
  package var joined: SequenceNumber
  /// Positions up to here are shown without a message id, because the viewer does not know those messages (R6).
  package var idsHiddenThrough = SequenceNumber.zero
  /// The time of the last move, or of the join if nothing has moved.
  package var lastRead: Timestamp
  package var lastReadSequence: SequenceNumber
  /// None if nothing was delivered.
  package var lastDelivered: Timestamp
  package var lastDeliveredSequence: SequenceNumber
  /// Only in the own row and for servers.
  package var own: OwnDetails?

  package struct OwnDetails: Hashable, Sendable {
    package var unreadMessages: UInt32
    /// Zero: no unread message.
    package var firstUnread: SequenceNumber
    package var unreadEpoch: UInt32
    /// The row is the viewer's own; the fields below are for the viewer only.
    package var isOwn: Bool
    /// The channel is flagged unread as a whole (R4).
    package var isFlaggedUnread: Bool
    /// Unread messages and replies that mention the member (R14).
    package var unreadMentions: UInt32

    package init(
      unreadMessages: UInt32,
      firstUnread: SequenceNumber,
      unreadEpoch: UInt32,
      isOwn: Bool = false,
      isFlaggedUnread: Bool = false,
      unreadMentions: UInt32 = 0
    ) {
      self.unreadMessages = unreadMessages
      self.firstUnread = firstUnread
      self.unreadEpoch = unreadEpoch
      self.isOwn = isOwn
      self.isFlaggedUnread = isFlaggedUnread
      self.unreadMentions = unreadMentions
    }
  }

  package init(
    row: MemberOrdinal,
    joined: SequenceNumber = .zero,
    lastRead: Timestamp,
    lastReadSequence: SequenceNumber,
    lastDelivered: Timestamp,
    lastDeliveredSequence: SequenceNumber,
    own: OwnDetails?
  ) {
    self.row = row
    self.joined = joined
    self.lastRead = lastRead
    self.lastReadSequence = lastReadSequence
    self.lastDelivered = lastDelivered
    self.lastDeliveredSequence = lastDeliveredSequence
    self.own = own
  }

  /// Return the row of a thread member whom others do not see (R7, R15).
  static func unseen(_ row: MemberOrdinal, own: OwnDetails?) -> ShownRow {
    ShownRow(
      row: row,
      joined: .zero,
      lastRead: .none,
      lastReadSequence: .zero,
      lastDelivered: .none,
      lastDeliveredSequence: .zero,
      own: own
    )
  }

  /// Return the message whose id names a position; zero: none.
  package func named(_ position: SequenceNumber) -> SequenceNumber {
    position > idsHiddenThrough ? position : .zero
  }

  /// Return the row as seen by a member who joined under hidden history. Positions at or below that member's join show
  /// as the join (R6).
  ///
  /// - Parameters:
  ///   - join: the newest message hidden from that member; not zero.
  ///   - time: when that member joined.
  func seen(since join: SequenceNumber, at time: Timestamp) -> ShownRow {
    var seen = self
    seen.joined = max(joined, join)
    seen.idsHiddenThrough = join
    if lastReadSequence <= join { (seen.lastReadSequence, seen.lastRead) = (join, time) }
    if lastDeliveredSequence <= join { (seen.lastDeliveredSequence, seen.lastDelivered) = (join, time) }
    return seen
  }
}
