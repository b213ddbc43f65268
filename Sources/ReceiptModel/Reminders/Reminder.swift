/// A rule of a channel type or a message: recipients who fall short some time after the registration are named in the
/// feed (R22).
package struct ReminderRule: Hashable, Sendable {
  /// Seconds from the registration until the reminder is due, 1 to ``afterMax``.
  package var after: UInt32
  package var condition: ReminderCondition
  /// Number of members that are named, 1 to ``membersMaxMax``. The reminder says when there are more.
  package var membersMax: UInt32

  /// 366 days: a mistake must not fill the shard with timers that are never due.
  package static let afterMax: UInt32 = 31_622_400
  /// Number of rules of a channel type or a message.
  package static let countMax = 4
  package static let membersMaxDefault: UInt32 = 1_000
  package static let membersMaxMax: UInt32 = 100_000

  package init(after: UInt32, _ condition: ReminderCondition, membersMax: UInt32 = Self.membersMaxDefault) {
    self.after = after
    self.condition = condition
    self.membersMax = membersMax
  }
}

/// How a recipient falls short of a message (R22). The raw values are stored.
package enum ReminderCondition: UInt8, CaseIterable, Sendable {
  /// Neither delivered nor read.
  case undelivered = 0
  case unread = 1
  /// Not acknowledged, although the message requests it (R9).
  case unacknowledged = 2

  /// The value of `when` in the API.
  package var name: StaticString {
    switch self {
    case .undelivered: "undelivered"
    case .unread: "unread"
    case .unacknowledged: "unacknowledged"
    }
  }
}

/// A pending event of one message at a time of its shard (R20): a reminder (R22), or the expiry of its acknowledgement
/// request (R9).
package struct MessageTimer: Hashable, Sendable {
  package var channel: ChannelNumber
  /// The parent message of the thread; zero: the message is in the channel itself.
  package var thread: SequenceNumber
  package var message: SequenceNumber
  package var dueAt: Timestamp
  /// Seconds from the registration of the message to ``dueAt``.
  package var after: UInt32
  package var purpose: Purpose

  package enum Purpose: Hashable, Sendable {
    case reminder(ReminderCondition, membersMax: UInt32)
    /// Its acknowledgement request expires.
    case expiry
  }

  package init(
    channel: ChannelNumber,
    thread: SequenceNumber = .zero,
    message: SequenceNumber,
    dueAt: Timestamp,
    after: UInt32,
    _ purpose: Purpose
  ) {
    self.channel = channel
    self.thread = thread
    self.message = message
    self.dueAt = dueAt
    self.after = after
    self.purpose = purpose
  }
}
