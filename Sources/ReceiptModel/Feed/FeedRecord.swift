/// A change that the change feed tells (R21). It holds numbers: names and privacy are resolved when it is sent.
package struct FeedRecord: Hashable, Sendable {
  package var kind: FeedRecordKind
  /// Zero: the change is about no channel.
  package var channel = ChannelNumber(0)
  /// The thread's parent message; zero: the channel itself.
  package var thread = SequenceNumber.zero
  /// The member's row; of ``FeedRecordKind/userUpdated``, the number of the user's settings.
  package var member: UInt32?
  package var sequence = SequenceNumber.zero
  /// When it happened, by the shard's time (R20).
  package var at: Timestamp
  /// Meaning by kind: see ``FeedRecordKind``.
  package var first: UInt64 = 0
  package var second: UInt64 = 0
  package var text = ""
  package var detail = ""
  /// Rows of the members who fall short, of ``FeedRecordKind/reminderDue``: 1 to ``membersMax``.
  package var members: [UInt32] = []

  /// Number of members in one record; a reminder about more takes several.
  package static let membersMax = 100

  package init(_ kind: FeedRecordKind, at: Timestamp) {
    self.kind = kind
    self.at = at
  }
}

extension FeedRecord {
  /// What a reminder asks for, and which part of its members a record has.
  package struct Reminder: Hashable, Sendable {
    package var condition: ReminderCondition
    /// 1 to ``partCount``.
    package var part: Int
    package var partCount: Int
    /// More members fall short than the rule names.
    package var isTruncated: Bool

    init(_ condition: ReminderCondition, part: Int, partCount: Int, isTruncated: Bool) {
      self.condition = condition
      self.part = part
      self.partCount = partCount
      self.isTruncated = isTruncated
    }

    /// Read the values of a record; nil: a later version wrote them.
    package init?(first: UInt64, second: UInt64) {
      guard let condition = ReminderCondition(rawValue: UInt8(truncatingIfNeeded: second & 3)) else { return nil }
      self.condition = condition
      part = Int(first & 0xFFFF_FFFF)
      partCount = Int(first >> 32)
      isTruncated = second & 4 != 0
    }
  }

  var reminder: Reminder? {
    get { Reminder(first: first, second: second) }
    set {
      guard let newValue else { return }
      first = UInt64(newValue.partCount) << 32 | UInt64(newValue.part)
      second = UInt64(newValue.condition.rawValue) | (newValue.isTruncated ? 4 : 0)
    }
  }
}

/// The types of records (R21). The raw values are stored in the feed and sent to gateways.
package enum FeedRecordKind: UInt8, CaseIterable, Sendable {
  /// `first`: ``ChannelEvent/SenderMoves``, the sender's positions that the message moved (R5).
  case messageRegistered = 0
  case messageDeleted = 1
  case read = 2
  /// `first`: time of the push ack in milliseconds, if it differs; `text`: provider; `detail`: device.
  case delivered = 3
  /// `sequence`: the position before the first unread message; `first`: unread epoch; `second` 1: the channel was
  /// flagged unread as a whole.
  case markedUnread = 4
  case acknowledged = 5
  case receiptDone = 6
  case receiptExpired = 7
  /// `sequence`: last message of the run, whose sender sent all of them; `first`: first message of the run; `second`:
  /// ``MessageStatus``.
  case status = 8
  case memberAdded = 9
  case memberRemoved = 10
  case channelCreated = 11
  case channelUpdated = 12
  /// `text`: the cid, because the channel is gone.
  case channelDeleted = 13
  /// `sequence`: the last message that is gone.
  case channelTruncated = 14
  /// The row as others see it fell, hid or is shown again.
  case rowChanged = 15
  case userUpdated = 16
  /// `text`: the user's id. No other record names an erased user.
  case userErased = 17
  /// Changes were not told: the feed was off. `first`: from when on, in milliseconds.
  case gap = 18
  /// `first` and `second`: ``FeedRecord/Reminder``.
  case reminderDue = 19

  /// The name in records and filters (docs/api/feed.md).
  package var name: StaticString {
    switch self {
    case .messageRegistered: "message.registered"
    case .messageDeleted: "message.deleted"
    case .read: "read"
    case .delivered: "delivered"
    case .markedUnread: "marked_unread"
    case .acknowledged: "acknowledged"
    case .receiptDone: "receipt.done"
    case .receiptExpired: "receipt.expired"
    case .status: "status"
    case .memberAdded: "member.added"
    case .memberRemoved: "member.removed"
    case .channelCreated: "channel.created"
    case .channelUpdated: "channel.updated"
    case .channelDeleted: "channel.deleted"
    case .channelTruncated: "channel.truncated"
    case .rowChanged: "row.changed"
    case .userUpdated: "user.updated"
    case .userErased: "user.erased"
    case .gap: "gap"
    case .reminderDue: "reminder.due"
    }
  }

  /// Whether the record's user is the message's sender.
  package var namesSender: Bool {
    switch self {
    case .messageRegistered, .messageDeleted, .receiptDone, .receiptExpired, .status: true
    default: false
    }
  }

  /// Whether the record is about no channel, so that a filter by channel type does not apply.
  package var isAboutNoChannel: Bool { self == .userUpdated || self == .userErased || self == .gap }

  package init?(name: String) {
    // Every consumer gets gaps.
    guard let kind = Self.allCases.first(where: { $0.name.description == name && $0 != .gap }) else { return nil }
    self = kind
  }
}

/// A set of types of records; empty: all.
package struct FeedRecordKinds: Hashable, Sendable {
  package var rawValue: UInt32

  package init(rawValue: UInt32) { self.rawValue = rawValue }

  package static let all = FeedRecordKinds(rawValue: 0)
  package static let countMax = known.nonzeroBitCount
  /// The types that a filter may name.
  package static let known =
    FeedRecordKind.allCases.filter { $0 != .gap }
    .reduce(0) { $0 | 1 << UInt32($1.rawValue) } as UInt32

  package mutating func insert(_ kind: FeedRecordKind) { rawValue |= 1 << UInt32(kind.rawValue) }

  package func contains(_ kind: FeedRecordKind) -> Bool {
    rawValue == 0 || kind == .gap || rawValue & 1 << UInt32(kind.rawValue) != 0
  }
}

/// A part of the shards, whose records one stream reads: those whose number has the remainder `index` by `count`.
package struct FeedPartition: Hashable, Sendable {
  package var index: UInt16
  /// At least 1.
  package var count: UInt16

  package init(index: UInt16, count: UInt16) {
    self.index = index
    self.count = count
  }

  package func contains(_ shard: ShardID) -> Bool { shard.rawValue % count == index }

  /// Whether there is such a partition of a store with this many shards.
  package func isValid(shardCount: Int) -> Bool { count >= 1 && index < count && Int(count) <= shardCount }
}
