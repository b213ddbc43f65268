/// Everything stored in one member's row.
package struct RowRecord: Hashable, Sendable {
  package var user: String
  /// Empty: no role.
  package var role: String
  package var hasLeft: Bool
  /// The member joined under `history: hidden`: nothing before the join counts as unread (R6).
  package var hidesHistory: Bool
  /// The newest sequence number at the time of the join: the member joined before message n if `joined < n` (R6).
  package var joined: SequenceNumber
  package var joinedAt: Timestamp
  package var read: SequenceNumber
  /// For a row that was left: when the member left.
  package var readAt: Timestamp
  package var delivered: SequenceNumber
  package var deliveredAt: Timestamp
  /// The time shown in place of ``deliveredAt`` (R20); none: ``deliveredAt`` is shown.
  package var ackedAt: Timestamp
  /// The unread marker, if set (R4).
  package var marker: SequenceNumber?
  /// When the marker was last set, moved or cleared; none: never.
  package var markedAt: Timestamp
  package var unreadEpoch: UInt32
  /// The watermark's last move was made while the user hid it (R7).
  package var readIsHidden: Bool
  package var deliveredIsHidden: Bool
  /// How often the watermark has moved, which is the number of its newest step (R17).
  package var readStepCount: UInt32
  package var deliveredStepCount: UInt32
  /// Mark-read has acknowledged the messages up to here (R9).
  package var acknowledgedThrough: SequenceNumber
  /// In a thread: the user has only marked it read. While the user hides reads, others do not see them in the thread
  /// (R7, R15).
  package var joinedByReading: Bool
  /// In a thread: the newest reply when the user joined the channel. Replies up to it never count for the user (R6).
  /// nil: the same as ``joined``.
  package var countedAfter: SequenceNumber?
  /// In a thread: replies up to this one are not unread for the user, who did not take part then. nil: the same as
  /// ``joined``.
  package var unreadAfter: SequenceNumber?
  /// The member excludes the channel from their unread totals (R14).
  package var isMuted: Bool
  /// The member has flagged the channel unread as a whole (R4).
  package var isFlaggedUnread: Bool
  /// When the flag was last set or cleared; none: never.
  package var flaggedAt: Timestamp

  package init(
    user: String,
    role: String = "",
    hasLeft: Bool = false,
    hidesHistory: Bool = false,
    joined: SequenceNumber,
    joinedAt: Timestamp,
    read: SequenceNumber = .zero,
    readAt: Timestamp = .none,
    delivered: SequenceNumber = .zero,
    deliveredAt: Timestamp = .none,
    ackedAt: Timestamp = .none,
    marker: SequenceNumber? = nil,
    markedAt: Timestamp = .none,
    unreadEpoch: UInt32 = 0,
    readIsHidden: Bool = false,
    deliveredIsHidden: Bool = false,
    readStepCount: UInt32 = 0,
    deliveredStepCount: UInt32 = 0,
    acknowledgedThrough: SequenceNumber = .zero,
    joinedByReading: Bool = false,
    countedAfter: SequenceNumber? = nil,
    unreadAfter: SequenceNumber? = nil,
    isMuted: Bool = false,
    isFlaggedUnread: Bool = false,
    flaggedAt: Timestamp = .none
  ) {
    self.user = user
    self.role = role
    self.hasLeft = hasLeft
    self.hidesHistory = hidesHistory
    self.joined = joined
    self.joinedAt = joinedAt
    self.read = read
    self.readAt = readAt
    self.delivered = delivered
    self.deliveredAt = deliveredAt
    self.ackedAt = ackedAt
    self.marker = marker
    self.markedAt = markedAt
    self.unreadEpoch = unreadEpoch
    self.readIsHidden = readIsHidden
    self.deliveredIsHidden = deliveredIsHidden
    self.readStepCount = readStepCount
    self.deliveredStepCount = deliveredStepCount
    self.acknowledgedThrough = acknowledgedThrough
    self.joinedByReading = joinedByReading
    self.countedAfter = countedAfter
    self.unreadAfter = unreadAfter
    self.isMuted = isMuted
    self.isFlaggedUnread = isFlaggedUnread
    self.flaggedAt = flaggedAt
  }
}

/// The stored data of one message; the chat backend keeps the body.
package struct MessageRecord: Hashable, Sendable {
  @usableFromInline
  package struct Flags: FlagSet {
    @usableFromInline package let rawValue: UInt8
    @inlinable package init(rawValue: UInt8) { self.rawValue = rawValue }
    /// Registered as silent: never counted as unread (R14).
    package static let silent = Flags(rawValue: 1)
    /// Deleted: not counted, has no status, still marks a position (R16).
    package static let deleted = Flags(rawValue: 2)
    /// Not counted as unread for another reason (thread replies, R15).
    package static let uncounted = Flags(rawValue: 4)
    /// Registered with an acknowledgement request (R9).
    package static let requestsAcknowledgement = Flags(rawValue: 8)
    /// An acknowledgement was requested and refused: over the daily limit.
    package static let acknowledgementOverLimit = Flags(rawValue: 16)
    /// An acknowledgement was requested and refused: the sender's role may not request one.
    package static let acknowledgementNotAllowed = Flags(rawValue: 32)
    /// Registered with `moves_position: false`: the sender's positions did not move (R5).
    package static let keepsSenderPosition = Flags(rawValue: 64)
    /// The message mentions a user (R14): see ``MessageRecord/mentions``.
    package static let mentions = Flags(rawValue: 128)

    package static let known: UInt8 = 255

    /// Whether an acknowledgement was requested at registration, granted or not (R9).
    var askedForAcknowledgement: Bool { !isDisjoint(with: .acknowledgementAsked) }
    private static let acknowledgementAsked = Flags(rawValue: 8 | 16 | 32)

    /// Whether the message counts as unread for members who have not read it (R14).
    package var isCountable: Bool { isDisjoint(with: .uncountable) }
    private static let uncountable = Flags(rawValue: 7)
  }

  package var id: String
  /// Empty: sent by the system.
  package var sender: String
  package var flags: Flags
  package var registeredAt: Timestamp
  /// The time for display (R20); none: the registration time. For a message deleted individually: the time of deletion.
  package var createdAt: Timestamp
  /// When the acknowledgement request expires (R9); none: never, or the message has no acknowledgement request.
  package var acknowledgementExpiresAt: Timestamp
  /// The users it mentions (R14); `nobody` if the message is not countable.
  package var mentions: MessageMentions {
    didSet { flags = flags.setting(.mentions, mentions != .nobody) }
  }

  package init(
    id: String,
    sender: String,
    flags: Flags,
    registeredAt: Timestamp,
    createdAt: Timestamp = .none,
    acknowledgementExpiresAt: Timestamp = .none,
    mentions: MessageMentions = .nobody
  ) {
    self.id = id
    self.sender = sender
    self.flags = flags.setting(.mentions, mentions != .nobody)
    self.mentions = mentions
    self.registeredAt = registeredAt
    self.createdAt = createdAt
    self.acknowledgementExpiresAt = acknowledgementExpiresAt
  }
}

/// One member's acknowledgement of one message (R9).
package struct Acknowledgement: Hashable, Sendable {
  package var row: MemberOrdinal
  /// None: the record was dropped; the acknowledgement itself stays.
  package var at: Timestamp
  /// The user hid their read receipts at that time (R7).
  package var isHidden: Bool
  /// At most ``noteLengthMax`` bytes of UTF-8; empty: no note.
  package var note: String

  package static let noteLengthMax = 1_024

  package init(row: MemberOrdinal, at: Timestamp, isHidden: Bool = false, note: String = "") {
    self.row = row
    self.at = at
    self.isHidden = isHidden
    self.note = note
  }
}
