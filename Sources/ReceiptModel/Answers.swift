/// Why a command or a query was refused; nothing was changed. The wire's codes 30 to 36 (Proto/frames.md, "Errors").
package enum Refusal: Error, Hashable, Sendable {
  case channelNotFound
  case notAMember
  case messageNotFound
  case messageDeleted
  case markUnreadOff
  case limitReached(StaticLimit)

  /// The limits that a caller can meet.
  package enum StaticLimit: String, Sendable {
    case membersPerChannel = "members of a channel: at most 16777216 rows, those who left included"
    case channelTypes = "channel types of a store: at most 1024"
    case messagesPerChannel = "messages of a channel: their ids have at most 4 GiB together"
  }
}

/// A message's status (R1), in rising order.
package enum MessageStatus: UInt8, Comparable, Sendable {
  case sent = 0
  case delivered = 1
  case read = 2
  package static func < (a: Self, b: Self) -> Bool { a.rawValue < b.rawValue }
}

/// The counts of one message (R1, R10).
package struct StatusAnswer: Hashable, Sendable {
  package var sequence: SequenceNumber
  package var status: MessageStatus
  package var readCount: UInt32
  /// Includes readers (R1).
  package var deliveredCount: UInt32
  package var memberCount: UInt32
  package var readEvents: Bool
  package var deliveryEvents: Bool
  package var createdAt: Timestamp
  /// `memberCount − readCount`, always (R1).
  package var unreadCount: UInt32 { memberCount - readCount }

  package init(
    sequence: SequenceNumber,
    status: MessageStatus,
    readCount: UInt32,
    deliveredCount: UInt32,
    memberCount: UInt32,
    readEvents: Bool,
    deliveryEvents: Bool,
    createdAt: Timestamp
  ) {
    self.sequence = sequence
    self.status = status
    self.readCount = readCount
    self.deliveredCount = deliveredCount
    self.memberCount = memberCount
    self.readEvents = readEvents
    self.deliveryEvents = deliveryEvents
    self.createdAt = createdAt
  }
}

/// A read-state row as a viewer sees it, in numbers: what names them is looked up when it is written out (R12, R18).
package struct RowAnswer: Hashable, Sendable {
  package var row: MemberOrdinal
  /// The time of the last move, or of the join where nothing has moved.
  package var lastRead: Timestamp
  package var lastReadSequence: SequenceNumber
  /// None where nothing was delivered.
  package var lastDelivered: Timestamp
  package var lastDeliveredSequence: SequenceNumber
  /// Only in the own row and for servers.
  package var own: OwnDetails?

  package struct OwnDetails: Hashable, Sendable {
    package var unreadMessages: UInt32
    /// Zero: there is none.
    package var firstUnread: SequenceNumber
    package var unreadEpoch: UInt32
    package init(unreadMessages: UInt32, firstUnread: SequenceNumber, unreadEpoch: UInt32) {
      self.unreadMessages = unreadMessages
      self.firstUnread = firstUnread
      self.unreadEpoch = unreadEpoch
    }
  }

  package init(
    row: MemberOrdinal,
    lastRead: Timestamp,
    lastReadSequence: SequenceNumber,
    lastDelivered: Timestamp,
    lastDeliveredSequence: SequenceNumber,
    own: OwnDetails?
  ) {
    self.row = row
    self.lastRead = lastRead
    self.lastReadSequence = lastReadSequence
    self.lastDelivered = lastDelivered
    self.lastDeliveredSequence = lastDeliveredSequence
    self.own = own
  }
}
