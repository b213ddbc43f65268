/// A resolved, absolute assignment, addressed to one page (DESIGN.md sections 1 and 3). Commands are decided into effects;
/// the shard's memory, its log and its pages are all made by assigning them, so replay decides nothing. The large ones are
/// indirect: an effect of a mark is a few words, copied without touching a reference count.
/// Encodings: Proto/frames.md, "The log and the pages".
package enum Effect: Hashable, Sendable {
  indirect case channelAssigned(ChannelNumber, cid: String, created: Timestamp, own: OptionPatch)
  indirect case rowAssigned(ChannelNumber, MemberOrdinal, RowRecord)
  case rowLeft(ChannelNumber, MemberOrdinal, at: Timestamp)
  case roleAssigned(ChannelNumber, MemberOrdinal, role: String)
  case readMoved(ChannelNumber, MemberOrdinal, to: SequenceNumber, at: Timestamp)
  case deliveredMoved(ChannelNumber, MemberOrdinal, to: SequenceNumber, at: Timestamp)
  case markerAssigned(ChannelNumber, MemberOrdinal, marker: SequenceNumber?, epoch: UInt32)
  indirect case messageAssigned(ChannelNumber, SequenceNumber, MessageRecord)
  case messageDeleted(ChannelNumber, SequenceNumber, at: Timestamp)
  indirect case channelTypeAssigned(ChannelTypeRecord)
  case countersAssigned(nextChannel: ChannelNumber, time: Timestamp)
  indirect case sessionAssigned(SessionRecord)

  /// The channel this effect is about; nil for the shard's own pages.
  package var channel: ChannelNumber? {
    switch self {
    case .channelAssigned(let number, _, _, _), .rowAssigned(let number, _, _), .rowLeft(let number, _, _),
      .roleAssigned(let number, _, _), .readMoved(let number, _, _, _), .deliveredMoved(let number, _, _, _),
      .markerAssigned(let number, _, _, _), .messageAssigned(let number, _, _),
      .messageDeleted(let number, _, _):
      number
    case .channelTypeAssigned, .countersAssigned, .sessionAssigned:
      nil
    }
  }

  /// Whether assigning it may make its channel larger in memory.
  var takesRoom: Bool {
    switch self {
    case .rowAssigned, .roleAssigned, .messageAssigned: true
    default: false
    }
  }

  /// The page this effect is addressed to.
  package var page: PageID {
    switch self {
    case .channelAssigned: .head
    case .rowAssigned(_, let row, _), .rowLeft(_, let row, _), .roleAssigned(_, let row, _),
      .readMoved(_, let row, _, _), .deliveredMoved(_, let row, _, _), .markerAssigned(_, let row, _, _):
      .rows(row.rawValue / PageID.rowsPerPage)
    case .messageAssigned(_, let sequence, _), .messageDeleted(_, let sequence, _):
      .segment((sequence.rawValue - 1) / PageID.messagesPerSegment)
    case .channelTypeAssigned: .types
    case .countersAssigned, .sessionAssigned: .shardHead
    }
  }
}

/// A page's name within its channel, or within its shard for the last two: the unit of a checkpoint.
package enum PageID: Hashable, Sendable {
  case head
  case rows(UInt32)
  case segment(UInt32)
  case types
  case shardHead

  /// Member rows in one page.
  package static let rowsPerPage: UInt32 = 256
  /// Messages in one segment.
  package static let messagesPerSegment: UInt32 = 256
}

/// Everything that one member's row says.
package struct RowRecord: Hashable, Sendable {
  package var user: String
  /// Empty: no role was given.
  package var role: String
  package var hasLeft: Bool
  /// Joined where the option `history` was `hidden`: nothing before the join counts as unread (R6).
  package var hidesHistory: Bool
  /// The newest sequence number when they joined: they joined before message n if `joined < n` (R6).
  package var joined: SequenceNumber
  package var joinedAt: Timestamp
  package var read: SequenceNumber
  package var readAt: Timestamp
  package var delivered: SequenceNumber
  package var deliveredAt: Timestamp
  /// The unread marker, where one is set (R4).
  package var marker: SequenceNumber?
  package var unreadEpoch: UInt32

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
    marker: SequenceNumber? = nil,
    unreadEpoch: UInt32 = 0
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
    self.marker = marker
    self.unreadEpoch = unreadEpoch
  }
}

/// What is kept of one message; its body is the chat backend's.
package struct MessageRecord: Hashable, Sendable {
  package struct Flags: OptionSet, Hashable, Sendable {
    package let rawValue: UInt8
    package init(rawValue: UInt8) { self.rawValue = rawValue }
    /// Registered as silent: never counted as unread (R14).
    package static let silent = Flags(rawValue: 1)
    /// Deleted: not counted, has no status, still marks a position (R16).
    package static let deleted = Flags(rawValue: 2)
    /// Not counted as unread for another reason (thread replies, R15).
    package static let uncounted = Flags(rawValue: 4)
  }

  package var id: String
  /// Empty: sent by the system.
  package var sender: String
  package var flags: Flags
  package var registeredAt: Timestamp
  /// For display (R20); none: the time of registration.
  package var createdAt: Timestamp

  package init(
    id: String,
    sender: String,
    flags: Flags,
    registeredAt: Timestamp,
    createdAt: Timestamp = .none
  ) {
    self.id = id
    self.sender = sender
    self.flags = flags
    self.registeredAt = registeredAt
    self.createdAt = createdAt
  }
}

/// What a shard remembers of a gateway's session, so that a resend is applied exactly once (DESIGN.md section 3).
package struct SessionRecord: Hashable, Sendable {
  package var session: SessionID
  /// The highest counter taken up.
  package var highest: UInt64
  /// Counters at or below `highest` that are open, rising: their commands wait for a channel to load, or were refused. Sent again, they are
  /// decided.
  package var waiting: [UInt64]
  package var lastWritten: Timestamp

  package init(
    session: SessionID,
    highest: UInt64 = 0,
    waiting: [UInt64] = [],
    lastWritten: Timestamp = .none
  ) {
    self.session = session
    self.highest = highest
    self.waiting = waiting
    self.lastWritten = lastWritten
  }

  /// Whether the command with this counter was decided already.
  package func covers(_ counter: UInt64) -> Bool { counter <= highest && !waiting.contains(counter) }
}
