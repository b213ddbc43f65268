/// Why a command or a query was refused; nothing was changed. The wire's codes 30 to 36 (Proto/frames.md, "Errors").
public enum Refusal: Error, Hashable, Sendable {
  case channelNotFound
  case notAMember
  case messageNotFound
  case messageDeleted
  case markUnreadOff
  case limitReached(StaticLimit)

  /// The limits that a caller can meet.
  public enum StaticLimit: String, Sendable {
    case membersPerChannel = "members of a channel: at most 16777216 rows, those who left included"
    case messagesPerChannel = "messages of a channel: at most 4294967294"
  }
}

/// A message's status (R1), in rising order.
public enum MessageStatus: UInt8, Comparable, Sendable {
  case sent = 0
  case delivered = 1
  case read = 2
  public static func < (a: Self, b: Self) -> Bool { a.rawValue < b.rawValue }
}

/// The counts of one message (R1, R10).
public struct StatusAnswer: Hashable, Sendable {
  public var sequence: SequenceNumber
  public var status: MessageStatus
  public var readCount: UInt32
  /// Includes readers (R1).
  public var deliveredCount: UInt32
  public var memberCount: UInt32
  public var readEvents: Bool
  public var deliveryEvents: Bool
  public var createdAt: Timestamp
  /// `memberCount − readCount`, always (R1).
  public var unreadCount: UInt32 { memberCount - readCount }

  public init(
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
public struct RowAnswer: Hashable, Sendable {
  public var row: MemberOrdinal
  /// The time of the last move, or of the join where nothing has moved.
  public var lastRead: Timestamp
  public var lastReadSequence: SequenceNumber
  /// None where nothing was delivered.
  public var lastDelivered: Timestamp
  public var lastDeliveredSequence: SequenceNumber
  /// Only in the own row and for servers.
  public var own: OwnDetails?

  public struct OwnDetails: Hashable, Sendable {
    public var unreadMessages: UInt32
    /// Zero: there is none.
    public var firstUnread: SequenceNumber
    public var unreadEpoch: UInt32
    public init(unreadMessages: UInt32, firstUnread: SequenceNumber, unreadEpoch: UInt32) {
      self.unreadMessages = unreadMessages
      self.firstUnread = firstUnread
      self.unreadEpoch = unreadEpoch
    }
  }

  public init(
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
