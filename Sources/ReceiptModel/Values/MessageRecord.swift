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
