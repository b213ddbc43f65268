// The lines of an import and of an export that belong to one channel (docs/api/import-export.md). Ids are text:
// positions name messages, and rows name users, so a record means the same in another store.

/// A message or a reply.
package struct TransferredMessage: Hashable, Sendable {
  package struct Flags: FlagSet {
    package let rawValue: UInt8
    package init(rawValue: UInt8) { self.rawValue = rawValue }
    package static let silent = Flags(rawValue: 1)
    /// Registered with an acknowledgement request, granted or not (R9).
    package static let requestsAcknowledgement = Flags(rawValue: 2)
    package static let deleted = Flags(rawValue: 4)
    /// Registered with `moves_position: false` (R5).
    package static let keepsSenderPosition = Flags(rawValue: 8)
    package static let mentionsAll = Flags(rawValue: 16)
    /// The acknowledgement request was refused: the sender's role may not request one.
    package static let requestNotAllowed = Flags(rawValue: 32)
    /// The acknowledgement request was refused: over the daily limit.
    package static let requestOverLimit = Flags(rawValue: 64)
    package static let all = Flags(rawValue: 127)
  }

  package var id: String
  /// Empty: sent by the system.
  package var sender: String
  /// For a reply: the message that it replies to. Empty: no reply.
  package var parent: String
  /// In the channel, or in the thread; zero: the next one.
  package var sequence: SequenceNumber
  /// None: when it is imported.
  package var registeredAt: Timestamp
  /// The time for display (R20); none: ``registeredAt``.
  package var createdAt: Timestamp
  /// When the acknowledgement request expires; none: by the channel's `receipt_ttl`.
  package var expiresAt: Timestamp
  /// None: not deleted, or unknown.
  package var deletedAt: Timestamp
  package var flags: Flags
  /// Users that are mentioned by name (R14).
  package var mentions: [String]

  package init(
    id: String,
    sender: String = "",
    parent: String = "",
    sequence: SequenceNumber = .zero,
    registeredAt: Timestamp = .none,
    createdAt: Timestamp = .none,
    expiresAt: Timestamp = .none,
    deletedAt: Timestamp = .none,
    flags: Flags = Flags(),
    mentions: [String] = []
  ) {
    self.id = id
    self.sender = sender
    self.parent = parent
    self.sequence = sequence
    self.registeredAt = registeredAt
    self.createdAt = createdAt
    self.expiresAt = expiresAt
    self.deletedAt = deletedAt
    self.flags = flags
    self.mentions = mentions
  }
}

/// One stay of a user in a channel or in a thread, with its positions.
package struct TransferredMember: Hashable, Sendable {
  package struct Flags: FlagSet {
    package let rawValue: UInt8
    package init(rawValue: UInt8) { self.rawValue = rawValue }
    package static let muted = Flags(rawValue: 1)
    /// Flagged unread as a whole (R4).
    package static let flaggedUnread = Flags(rawValue: 2)
    /// Joined under `history: hidden` (R6). Neither this nor ``showsHistory``: the channel's option decides.
    package static let hidesHistory = Flags(rawValue: 4)
    package static let showsHistory = Flags(rawValue: 8)
    /// The watermark's last move was made while the user hid it (R7).
    package static let readIsHidden = Flags(rawValue: 16)
    package static let deliveredIsHidden = Flags(rawValue: 32)
    /// In the thread only by marking it read (R15).
    package static let joinedByReading = Flags(rawValue: 64)
    package static let all = Flags(rawValue: 127)
  }

  /// A move of one watermark (R17).
  package struct Move: Hashable, Sendable {
    package var kind: StepKind
    package var isHidden: Bool
    package var sequence: SequenceNumber
    /// The time that is shown.
    package var at: Timestamp

    package init(_ kind: StepKind, to sequence: SequenceNumber, at time: Timestamp, isHidden: Bool = false) {
      self.kind = kind
      self.sequence = sequence
      self.at = time
      self.isHidden = isHidden
    }
  }

  /// Maximum of ``unreadEpoch``, ``readMoves`` and ``deliveredMoves``: what follows an import must not overflow.
  package static let countMax: UInt32 = 1 << 31

  package var user: String
  /// Empty: no role.
  package var role: String
  /// The thread's parent message; empty: a member of the channel.
  package var thread: String
  /// The newest message when the member joined; nil: by ``joinedAt``.
  package var joined: SequenceNumber?
  package var joinedAt: Timestamp
  /// None: a current member.
  package var leftAt: Timestamp
  /// The watermarks' messages; empty: as at the join.
  package var read: String
  package var readAt: Timestamp
  package var delivered: String
  package var deliveredAt: Timestamp
  /// The first message that is marked unread (R4); empty: none.
  package var unreadFrom: String
  package var unreadEpoch: UInt32
  /// How often each watermark has moved; 0: unknown.
  package var readMoves: UInt32
  package var deliveredMoves: UInt32
  /// Mark-read has acknowledged the messages up to here (R9).
  package var acknowledgedThrough: SequenceNumber
  /// In a thread: ``RowRecord/countedAfter`` and ``RowRecord/unreadAfter``.
  package var countedAfter: SequenceNumber?
  package var unreadAfter: SequenceNumber?
  package var flags: Flags
  /// The last moves of both watermarks, each in order.
  package var moves: [Move]

  package init(
    user: String,
    role: String = "",
    thread: String = "",
    joined: SequenceNumber? = nil,
    joinedAt: Timestamp = .none,
    leftAt: Timestamp = .none,
    read: String = "",
    readAt: Timestamp = .none,
    delivered: String = "",
    deliveredAt: Timestamp = .none,
    unreadFrom: String = "",
    unreadEpoch: UInt32 = 0,
    readMoves: UInt32 = 0,
    deliveredMoves: UInt32 = 0,
    acknowledgedThrough: SequenceNumber = .zero,
    countedAfter: SequenceNumber? = nil,
    unreadAfter: SequenceNumber? = nil,
    flags: Flags = Flags(),
    moves: [Move] = []
  ) {
    self.user = user
    self.role = role
    self.thread = thread
    self.joined = joined
    self.joinedAt = joinedAt
    self.leftAt = leftAt
    self.read = read
    self.readAt = readAt
    self.delivered = delivered
    self.deliveredAt = deliveredAt
    self.unreadFrom = unreadFrom
    self.unreadEpoch = unreadEpoch
    self.readMoves = readMoves
    self.deliveredMoves = deliveredMoves
    self.acknowledgedThrough = acknowledgedThrough
    self.countedAfter = countedAfter
    self.unreadAfter = unreadAfter
    self.flags = flags
    self.moves = moves
  }
}

extension TransferredMember {
  /// The epoch that the row gets: a marker or a flag has at least 1 (R4).
  var shownEpoch: UInt32 {
    max(unreadEpoch, !unreadFrom.isEmpty || flags.contains(.flaggedUnread) ? 1 : 0)
  }
}

/// A current member's acknowledgement of a message (R9).
package struct TransferredAcknowledgement: Hashable, Sendable {
  package var message: String
  package var user: String
  /// None: the time is not kept.
  package var at: Timestamp
  /// At most ``Acknowledgement/noteLengthMax`` bytes; empty: no note.
  package var note: String
  /// Made while the user hid their reads (R7).
  package var isHidden: Bool

  package init(message: String, user: String, at: Timestamp, note: String = "", isHidden: Bool = false) {
    self.message = message
    self.user = user
    self.at = at
    self.note = note
    self.isHidden = isHidden
  }
}
