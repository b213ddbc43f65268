public import Foundation

/// A channel: `type:id`.
public typealias CID = String

/// A channel, or the thread of one of its messages.
public struct Place: Hashable, Sendable {
  /// The channel.
  public var cid: CID
  /// Id of the thread's parent; nil: the channel itself.
  public var thread: String?

  /// Name a channel, or a thread of it.
  public init(cid: CID, thread: String? = nil) {
    self.cid = cid
    self.thread = thread
  }
}

/// A member's place. Positions are sequence numbers. The counts are in the own row only.
public struct Row: Hashable, Sendable, Decodable {
  /// Number of the newest message when the member joined.
  public var joinedSeq: Int
  /// When the member read last.
  public var lastRead: Date?
  /// Id of the message up to which the member has read.
  public var lastReadMessageID: String?
  /// Number of that message; 0: none.
  public var lastReadSeq: Int
  /// When a message was delivered last.
  public var lastDeliveredAt: Date?
  /// Id of the message up to which messages are delivered.
  public var lastDeliveredMessageID: String?
  /// Number of that message; 0: none.
  public var lastDeliveredSeq: Int
  /// Number of unread messages.
  public var unreadMessages: Int?
  /// Number of unread messages that mention the user.
  public var unreadMentions: Int?
  /// Id of the first unread message.
  public var firstUnreadMessageID: String?
  /// Number that rises with each mark-unread of the place.
  public var unreadEpoch: Int?
  /// Whether the user has marked the place unread since they read it last.
  public var markedUnread: Bool?

  private enum CodingKeys: String, CodingKey {
    case joinedSeq = "joined_seq"
    case lastRead = "last_read"
    case lastReadMessageID = "last_read_message_id"
    case lastReadSeq = "last_read_seq"
    case lastDeliveredAt = "last_delivered_at"
    case lastDeliveredMessageID = "last_delivered_message_id"
    case lastDeliveredSeq = "last_delivered_seq"
    case unreadMessages = "unread_messages"
    case unreadMentions = "unread_mentions"
    case firstUnreadMessageID = "first_unread_message_id"
    case unreadEpoch = "unread_epoch"
    case markedUnread = "marked_unread"
  }

  init(joinedSeq: Int, lastReadSeq: Int = 0, lastDeliveredSeq: Int = 0) {
    self.joinedSeq = joinedSeq
    self.lastReadSeq = lastReadSeq
    self.lastDeliveredSeq = lastDeliveredSeq
  }

  /// Read a row of the API. Positions that it leaves out are 0.
  public init(from decoder: any Decoder) throws {
    let fields = try decoder.container(keyedBy: CodingKeys.self)
    joinedSeq = try fields.decodeIfPresent(Int.self, forKey: .joinedSeq) ?? 0
    lastRead = try fields.decodeIfPresent(Date.self, forKey: .lastRead)
    lastReadMessageID = try fields.decodeIfPresent(String.self, forKey: .lastReadMessageID)
    lastReadSeq = try fields.decodeIfPresent(Int.self, forKey: .lastReadSeq) ?? 0
    lastDeliveredAt = try fields.decodeIfPresent(Date.self, forKey: .lastDeliveredAt)
    lastDeliveredMessageID = try fields.decodeIfPresent(String.self, forKey: .lastDeliveredMessageID)
    lastDeliveredSeq = try fields.decodeIfPresent(Int.self, forKey: .lastDeliveredSeq) ?? 0
    unreadMessages = try fields.decodeIfPresent(Int.self, forKey: .unreadMessages)
    unreadMentions = try fields.decodeIfPresent(Int.self, forKey: .unreadMentions)
    firstUnreadMessageID = try fields.decodeIfPresent(String.self, forKey: .firstUnreadMessageID)
    unreadEpoch = try fields.decodeIfPresent(Int.self, forKey: .unreadEpoch)
    markedUnread = try fields.decodeIfPresent(Bool.self, forKey: .markedUnread)
  }

  /// Whether the member has read the message of a number.
  func hasRead(_ seq: Int) -> Bool { lastReadSeq >= seq }

  /// Whether the message of a number is delivered to the member, or read.
  func hasDelivered(_ seq: Int) -> Bool { hasRead(seq) || lastDeliveredSeq >= seq }
}

/// Counts over all channels of the user.
public struct Totals: Hashable, Sendable, Decodable {
  /// Unread messages.
  public var totalUnreadCount: Int
  /// Channels with unread messages.
  public var unreadChannels: Int
  /// Threads with unread messages.
  public var unreadThreads: Int
  /// Unread messages that mention the user.
  public var unreadMentions: Int

  private enum CodingKeys: String, CodingKey {
    case totalUnreadCount = "total_unread_count"
    case unreadChannels = "unread_channels"
    case unreadThreads = "unread_threads"
    case unreadMentions = "unread_mentions"
  }

  /// Read the totals of the API. Counts that it leaves out are 0.
  public init(from decoder: any Decoder) throws {
    let fields = try decoder.container(keyedBy: CodingKeys.self)
    totalUnreadCount = try fields.decodeIfPresent(Int.self, forKey: .totalUnreadCount) ?? 0
    unreadChannels = try fields.decodeIfPresent(Int.self, forKey: .unreadChannels) ?? 0
    unreadThreads = try fields.decodeIfPresent(Int.self, forKey: .unreadThreads) ?? 0
    unreadMentions = try fields.decodeIfPresent(Int.self, forKey: .unreadMentions) ?? 0
  }
}

/// A message of a channel, or of the thread of another one.
public struct Message: Hashable, Sendable {
  /// Where the message stands.
  public var place: Place
  /// The message's id.
  public var id: String?
  /// Its number; nil while the backend has not registered it.
  public var seq: Int?
  /// The sender's id.
  public var user: String?
  /// Whether sending has failed.
  public var hasFailed: Bool

  /// Describe a message, for questions about it. `thread` is the id of the thread's parent; nil: the message is in no
  /// thread.
  public init(
    cid: CID,
    thread: String? = nil,
    id: String? = nil,
    seq: Int? = nil,
    user: String? = nil,
    hasFailed: Bool = false
  ) {
    place = Place(cid: cid, thread: thread)
    self.id = id
    self.seq = seq
    self.user = user
    self.hasFailed = hasFailed
  }
}

/// A message that the backend has registered.
public struct RegisteredMessage: Hashable, Sendable {
  /// The message's id.
  public var id: String
  /// Its number, from 1.
  public var seq: Int
  /// The sender's id; nil: it has none.
  public var user: String?
  /// Whether it counts as unread for nobody.
  public var isSilent: Bool

  /// Describe a message that is on the screen.
  public init(id: String, seq: Int, user: String?, isSilent: Bool = false) {
    self.id = id
    self.seq = seq
    self.user = user
    self.isSilent = isSilent
  }
}

/// What is shown beside an own message.
public enum DeliveryStatus: String, Hashable, Sendable {
  /// The backend has not registered it.
  case pending
  /// It is registered.
  case sent
  /// It is delivered, by the channel's rule.
  case delivered
  /// It is read, by the channel's rule.
  case read
  /// Sending has failed.
  case failed
}

/// Kinds of marks.
public enum MarkKind: String, Hashable, Sendable, Codable {
  /// A place is read up to a message.
  case read
  /// A message is delivered.
  case delivered
  /// A place is unread from a message on.
  case unread
  /// All channels are read.
  case readAll
  /// Messages are acknowledged.
  case acknowledge
}

/// A mark that the server has refused for good, or that could not be stored. It is dropped.
public struct Refusal: Hashable, Sendable {
  /// The mark's kind.
  public var kind: MarkKind
  /// Its channel; nil: all.
  public var cid: CID?
  /// Its thread.
  public var thread: String?
  /// Its message.
  public var messageID: String?
  /// Messages of an acknowledgement.
  public var messageIDs: [String]?
  /// The time of a mark-unread.
  public var timestamp: Date?
  /// The reason.
  public var error: TidemarkError

  /// Code of the reason, such as `channel_not_found`.
  public var code: String { error.code }
}

/// What an automatic read is asked for: the newest message on the screen.
public struct Shown: Hashable, Sendable {
  /// Where the message stands.
  public var place: Place
  /// Its id.
  public var messageID: String

  /// Name the newest message on the screen.
  public init(cid: CID, thread: String? = nil, messageID: String) {
    place = Place(cid: cid, thread: thread)
    self.messageID = messageID
  }
}

/// Which kinds of receipts a place shows, by its channel's options (R8).
public struct ReceiptsShown: Hashable, Sendable {
  /// Whether reads are shown.
  public var read: Bool
  /// Whether deliveries are shown.
  public var delivered: Bool
}

/// What was unread when a place was opened.
public struct UnreadWhenOpened: Hashable, Sendable {
  /// Id of the first unread message; nil: none.
  public var messageID: String?
  /// Number of unread messages.
  public var count: Int?
  /// The place's epoch at that moment.
  var epoch: Int?
}

/// An own message that asks for a receipt: who acknowledged it, or that its time is over.
public struct ReceiptChange: Hashable, Sendable, Decodable {
  /// State of a message that asks for a receipt.
  public enum Status: String, Hashable, Sendable, Decodable {
    /// Some have not acknowledged it.
    case processing
    /// All have acknowledged it.
    case done
    /// Its time is over.
    case expired
  }

  /// The message's channel.
  public var cid: CID
  /// The message.
  public var messageID: String
  /// Its state.
  public var receiptStatus: Status
  /// Number of members who have acknowledged it.
  public var acknowledgedCount: Int?
  /// Number of members who have read it.
  public var readCount: Int?
  /// Number of members who have not read it.
  public var unreadCount: Int?
  /// Who has caused the change; nil: not one member.
  public var user: String?
  /// When they acknowledged it.
  public var acknowledgedAt: Date?
  /// What they wrote.
  public var note: String?

  private enum CodingKeys: String, CodingKey {
    case cid, user, note
    case messageID = "message_id"
    case receiptStatus = "receipt_status"
    case acknowledgedCount = "acknowledged_count"
    case readCount = "read_count"
    case unreadCount = "unread_count"
    case acknowledgedAt = "acknowledged_at"
  }

  /// Read an event `message.receipt`.
  public init(from decoder: any Decoder) throws {
    let fields = try decoder.container(keyedBy: CodingKeys.self)
    cid = try fields.decode(CID.self, forKey: .cid)
    messageID = try fields.decode(String.self, forKey: .messageID)
    receiptStatus = try fields.decode(Status.self, forKey: .receiptStatus)
    acknowledgedCount = try fields.decodeIfPresent(Int.self, forKey: .acknowledgedCount)
    readCount = try fields.decodeIfPresent(Int.self, forKey: .readCount)
    unreadCount = try fields.decodeIfPresent(Int.self, forKey: .unreadCount)
    user = try fields.decodeIfPresent(Event.User.self, forKey: .user)?.id
    acknowledgedAt = try fields.decodeIfPresent(Date.self, forKey: .acknowledgedAt)
    note = try fields.decodeIfPresent(String.self, forKey: .note)
  }
}

/// Lists of a message's members.
public enum MemberList: String, Hashable, Sendable {
  /// Who has read it.
  case readers
  /// Who has it delivered, and has not read it.
  case delivered
  /// Who has not read it.
  case unread
  /// Who has acknowledged it.
  case acknowledged
  /// Who has not acknowledged it.
  case unacknowledged
}

/// Orders of a list of members.
public enum MemberOrder: String, Hashable, Sendable {
  /// By joining.
  case joined
  /// By time, the oldest first.
  case time
  /// By time, the newest first.
  case timeDescending = "time_desc"
}

/// A member in a list of a message. Which times there are depends on the list.
public struct ListedMember: Hashable, Sendable, Decodable {
  /// The member's id.
  public var user: String
  /// When they read it.
  public var readAt: Date?
  /// When it was delivered.
  public var deliveredAt: Date?
  /// When they acknowledged it.
  public var acknowledgedAt: Date?
  /// Whether the time is exact.
  public var isExact: Bool?
  /// What they wrote.
  public var note: String?

  private enum CodingKeys: String, CodingKey {
    case user, note
    case readAt = "read_at"
    case deliveredAt = "delivered_at"
    case acknowledgedAt = "acknowledged_at"
    case isExact = "exact"
  }

  /// Read a member of a list.
  public init(from decoder: any Decoder) throws {
    let fields = try decoder.container(keyedBy: CodingKeys.self)
    user = try fields.decode(Event.User.self, forKey: .user).id
    readAt = try fields.decodeIfPresent(Date.self, forKey: .readAt)
    deliveredAt = try fields.decodeIfPresent(Date.self, forKey: .deliveredAt)
    acknowledgedAt = try fields.decodeIfPresent(Date.self, forKey: .acknowledgedAt)
    isExact = try fields.decodeIfPresent(Bool.self, forKey: .isExact)
    note = try fields.decodeIfPresent(String.self, forKey: .note)
  }
}

/// A page of a list.
public struct MemberPage: Hashable, Sendable, Decodable {
  /// The members.
  public var members: [ListedMember]
  /// Number of members of the whole list; on the first page.
  public var total: Int?
  /// Cursor of the next page; nil: this is the last one.
  public var next: String?
}
