/// A resolved, absolute assignment, addressed to one page (DESIGN.md sections 1 and 3). Commands are decided into
/// effects; the shard's memory, its log and its pages are all made by assigning them, so replay decides nothing. The
/// large ones are indirect: an effect of a mark is a few words, copied without touching a reference count. Encodings:
/// Proto/frames.md, "The log and the pages".
package enum Effect: Hashable, Sendable {
  indirect case channelAssigned(ChannelNumber, cid: String, created: Timestamp, own: OptionPatch)
  indirect case rowAssigned(ChannelNumber, MemberOrdinal, RowRecord)
  /// The channel's own options were changed then, by a channelAssigned before this.
  case optionsChanged(ChannelNumber, at: Timestamp)
  case rowLeft(ChannelNumber, MemberOrdinal, at: Timestamp)
  case roleAssigned(ChannelNumber, MemberOrdinal, role: String)
  /// `isHidden`: the user hid their read receipts when it moved; the time is not shown to others (R7).
  case readMoved(
    ChannelNumber,
    MemberOrdinal,
    to: SequenceNumber,
    at: Timestamp,
    isHidden: Bool = false
  )
  case deliveredMoved(
    ChannelNumber,
    MemberOrdinal,
    to: SequenceNumber,
    at: Timestamp,
    isHidden: Bool = false
  )
  /// The same where it was acknowledged when it had happened for a while (R20): `at` is when the shard took it up, by
  /// which it is decided what has changed since a time; `acked`, which is before that, is what is shown.
  case deliveredAcked(
    ChannelNumber,
    MemberOrdinal,
    to: SequenceNumber,
    at: Timestamp,
    acked: Timestamp,
    isHidden: Bool = false
  )
  case markerAssigned(
    ChannelNumber,
    MemberOrdinal,
    marker: SequenceNumber?,
    epoch: UInt32,
    at: Timestamp = .none
  )
  /// The member keeps the channel out of their totals, or does not any more (R14).
  case muteAssigned(ChannelNumber, MemberOrdinal, isMuted: Bool)
  /// The member flags the channel unread as a whole, or the flag goes (R4).
  case unreadFlagAssigned(ChannelNumber, MemberOrdinal, isSet: Bool, epoch: UInt32, at: Timestamp)
  indirect case messageAssigned(ChannelNumber, SequenceNumber, MessageRecord)
  case messageDeleted(ChannelNumber, SequenceNumber, at: Timestamp)
  /// A member's acknowledgement of a message's receipt (R9).
  indirect case acknowledged(ChannelNumber, SequenceNumber, Acknowledgement)
  /// The time and note of an acknowledgement give way to newer ones; that it was acknowledged stays (R9).
  case acknowledgementForgotten(ChannelNumber, SequenceNumber, MemberOrdinal)
  /// Mark-read has acknowledged what could be acknowledged up to here (R9, `read_acks_receipts`).
  case acknowledgedThrough(ChannelNumber, MemberOrdinal, to: SequenceNumber)
  /// A segment of the steps of 256 rows (R17).
  indirect case stepsSealed(ChannelNumber, rowPage: UInt32, segment: UInt32, bytes: [UInt8])
  /// The tail of a row page's steps became its next segment; `end` is its last time.
  case stepTailCut(ChannelNumber, rowPage: UInt32, end: Timestamp)
  /// The segments before `first` are needed no more; where that is behind the tail, its steps neither.
  case stepsTrimmed(ChannelNumber, rowPage: UInt32, first: UInt32)
  /// Only in pages: what a row page says of its steps.
  indirect case stepTailAssigned(ChannelNumber, rowPage: UInt32, StepTailRecord)
  indirect case channelTypeAssigned(ChannelTypeRecord)
  /// Every shard has this version of a channel type; in its home shard.
  case typeSettled(name: String, version: UInt64)
  /// A user's settings; the number is their place among this shard's users with settings.
  indirect case userAssigned(UInt32, UserSettings)
  /// Every shard has this version of a user's settings; in their home shard.
  case userSettled(UInt32, version: UInt64)
  case countersAssigned(nextChannel: ChannelNumber, time: Timestamp)
  /// A webhook was taken: the XXH64 of its key is remembered up to and including this time.
  case webhookNoted(UInt64, until: Timestamp)
  /// A token is revoked, or is not any more.
  indirect case tokenRevoked(TokenRevocation)
  indirect case sessionAssigned(SessionRecord)
  /// Ids that builds of before 2027 do not take are in this shard. Those builds refuse the directory by this effect,
  /// which they do not know.
  case idsWidened

  // Threads (R15)
  /// An effect on a thread, which has rows and messages as a channel has, under its parent message.
  indirect case inThread(SequenceNumber, Effect)

  // Removal (R16)
  /// The messages up to here are gone.
  case truncated(ChannelNumber, through: SequenceNumber, at: Timestamp)
  /// The channel is being deleted: nobody finds it from here on. Its users are told of in batches that follow, and then
  /// it is deleted.
  case deletionBegun(ChannelNumber)
  /// The channel and everything in it is gone; its number is not used again.
  indirect case channelDeleted(ChannelNumber, cid: String)
  /// A row of an erased user: left, and nobody's.
  case rowErased(ChannelNumber, MemberOrdinal, at: Timestamp)
  /// A message of an erased sender: nobody's.
  case senderErased(ChannelNumber, SequenceNumber)
  /// An erased user's settings: only a hash of the id and the version are kept, for what is still on its way.
  case userErased(UInt32, version: UInt64, hash: UInt64, at: Timestamp)
  /// Only in pages: how many messages of each segment count as unread.
  indirect case messageCountsAssigned(ChannelNumber, newest: SequenceNumber, [UInt32])
  /// Only in pages: what else is to be known of some segments, rising.
  indirect case segmentsNoted(ChannelNumber, [SegmentNote])

  // The index of users' channels (R13, R14)
  /// An entry of a user's index, which is kept as a channel is, under the user's id.
  indirect case membershipAssigned(ChannelNumber, place: UInt32, Membership)
  case membershipRemoved(ChannelNumber, place: UInt32)
  /// A change of a membership has to be brought to its user's home shard; numbered from 1 without gaps.
  indirect case membershipQueued(UInt64, MembershipChange)
  /// A shard has taken the changes for it up to this number.
  case membershipsSent(to: ShardID, through: UInt64)
  /// Changes from a shard up to this number are in the index.
  case membershipsTaken(from: ShardID, through: UInt64)
  /// Changes that are queued from here on carry this epoch: the index is being rebuilt.
  case indexEpochAssigned(UInt64)

  /// The channel this effect is about; nil for the shard's own pages.
  package var channel: ChannelNumber? {
    switch self {
    case .channelAssigned(let number, _, _, _), .rowAssigned(let number, _, _), .rowLeft(let number, _, _),
      .roleAssigned(let number, _, _), .readMoved(let number, _, _, _, _),
      .deliveredMoved(let number, _, _, _, _), .deliveredAcked(let number, _, _, _, _, _),
      .markerAssigned(let number, _, _, _, _), .muteAssigned(let number, _, _),
      .unreadFlagAssigned(let number, _, _, _, _),
      .optionsChanged(let number, _), .messageAssigned(let number, _, _),
      .messageDeleted(let number, _, _),
      .acknowledged(let number, _, _), .acknowledgementForgotten(let number, _, _),
      .acknowledgedThrough(let number, _, _), .stepsSealed(let number, _, _, _),
      .stepTailCut(let number, _, _), .stepsTrimmed(let number, _, _), .stepTailAssigned(let number, _, _),
      .truncated(let number, _, _), .deletionBegun(let number), .channelDeleted(let number, _),
      .rowErased(let number, _, _),
      .senderErased(let number, _), .messageCountsAssigned(let number, _, _), .segmentsNoted(let number, _),
      .membershipAssigned(let number, _, _), .membershipRemoved(let number, _):
      number
    case .inThread(_, let effect):
      effect.channel
    case .channelTypeAssigned, .typeSettled, .userAssigned, .userSettled, .userErased, .countersAssigned,
      .sessionAssigned, .membershipQueued, .membershipsSent, .membershipsTaken, .indexEpochAssigned,
      .webhookNoted, .tokenRevoked, .idsWidened:
      nil
    }
  }

  /// Whether assigning it may make its channel larger or smaller in memory, steps aside: those count themselves.
  var takesRoom: Bool {
    switch self {
    // A marker has the channel keep its user's own messages behind it, an acknowledged time its column.
    case .rowAssigned, .roleAssigned, .markerAssigned, .muteAssigned, .unreadFlagAssigned, .deliveredAcked,
      .messageAssigned, .acknowledged,
      .acknowledgementForgotten, .inThread, .truncated, .messageDeleted, .rowErased, .senderErased,
      .channelDeleted, .membershipAssigned, .membershipRemoved:
      true
    default: false
    }
  }

  /// Whether it moves a member's watermark.
  package var movesWatermark: Bool {
    switch self {
    case .readMoved, .deliveredMoved, .deliveredAcked: true
    default: false
    }
  }

  /// Whether it changes how many messages count as unread: its channel's head page says so too.
  package var changesMessageCounts: Bool {
    switch self {
    case .messageAssigned, .messageDeleted: true
    default: false
    }
  }

  /// Whether it brings an id into the shard that builds of before 2027 do not take.
  package var bringsWideIDs: Bool {
    switch self {
    case .channelAssigned(_, let cid, _, _):
      if IndexName.isIndex(Array(cid.utf8)) {
        !Self.all(cid, Identifier.isNarrowUser)
      } else {
        !Self.all(cid, Identifier.isNarrowCID)
      }
    case .rowAssigned(_, _, let record): !Self.all(record.user, Identifier.isNarrowUser)
    case .messageAssigned(_, _, let record):
      !Self.all(record.id, Identifier.isNarrowMessage) || !Self.all(record.sender, Identifier.isNarrowUser)
    case .userAssigned(_, let settings): !Self.all(settings.user, Identifier.isNarrowUser)
    case .membershipQueued(_, let change):
      !Self.all(change.user, Identifier.isNarrowUser)
        || !Self.all(change.membership.cid, Identifier.isNarrowCID)
    case .membershipAssigned(_, _, let membership): !Self.all(membership.cid, Identifier.isNarrowCID)
    case .inThread(_, let effect): effect.bringsWideIDs
    default: false
    }
  }

  /// Whether an id is empty, which is nobody's, or of a range.
  private static func all(_ id: String, _ isInRange: (RawSpan) -> Bool) -> Bool {
    var id = id
    return id.isEmpty || id.withUTF8 { isInRange($0.span.bytes) }
  }

  /// Whether a thread can have it: it is about a row or a message.
  package var isThreadable: Bool {
    switch self {
    case .rowAssigned, .rowLeft, .readMoved, .deliveredMoved, .deliveredAcked, .markerAssigned,
      .messageAssigned, .messageDeleted, .rowErased, .senderErased, .stepTailCut, .stepsTrimmed,
      .stepTailAssigned:
      true
    default: false
    }
  }

  /// The page this effect is addressed to.
  package var page: PageID {
    switch self {
    case .channelAssigned, .optionsChanged, .truncated, .deletionBegun, .channelDeleted,
      .messageCountsAssigned, .segmentsNoted:
      .head
    case .rowAssigned(_, let row, _), .rowLeft(_, let row, _), .roleAssigned(_, let row, _),
      .readMoved(_, let row, _, _, _), .deliveredMoved(_, let row, _, _, _),
      .deliveredAcked(_, let row, _, _, _, _),
      .markerAssigned(_, let row, _, _, _), .muteAssigned(_, let row, _),
      .unreadFlagAssigned(_, let row, _, _, _), .acknowledgedThrough(_, let row, _),
      .rowErased(_, let row, _):
      .rows(row.rawValue / PageID.rowsPerPage)
    case .stepTailCut(_, let rowPage, _), .stepsTrimmed(_, let rowPage, _),
      .stepTailAssigned(_, let rowPage, _):
      .rows(rowPage)
    case .stepsSealed(_, let rowPage, let segment, _): .steps(rowPage, segment)
    case .messageAssigned(_, let sequence, _), .messageDeleted(_, let sequence, _),
      .senderErased(_, let sequence):
      .segment((sequence.rawValue - 1) / PageID.messagesPerSegment)
    case .acknowledged(_, let sequence, _), .acknowledgementForgotten(_, let sequence, _):
      .receipts(sequence)
    case .channelTypeAssigned, .typeSettled: .types
    case .userAssigned(let number, _), .userSettled(let number, _), .userErased(let number, _, _, _):
      .users(number / PageID.usersPerPage)
    case .countersAssigned, .sessionAssigned, .idsWidened: .shardHead
    case .webhookNoted(let key, _): .webhooks(PageID.webhookPage(of: key))
    case .tokenRevoked: .tokens
    case .inThread(let parent, let effect): effect.page.inThread(parent)
    case .membershipAssigned(_, let place, _), .membershipRemoved(_, let place):
      .memberships(place / PageID.membershipsPerPage)
    case .membershipQueued(let number, _): .outbox(PageID.outboxPage(of: number))
    case .membershipsSent, .membershipsTaken, .indexEpochAssigned: .index
    }
  }
}

/// A page's name within its channel, or within its shard for the last seven: the unit of a checkpoint.
package enum PageID: Hashable, Sendable {
  case head
  case rows(UInt32)
  case segment(UInt32)
  /// A message's acknowledgements.
  case receipts(SequenceNumber)
  /// A segment of the steps of a row page: row page, segment. Not read with its channel, only when it is asked for.
  case steps(UInt32, UInt32)
  /// Rows of a thread: its parent message, the page.
  case threadRows(SequenceNumber, UInt32)
  /// Messages of a thread: its parent message, the segment.
  case threadSegment(SequenceNumber, UInt32)
  /// Entries of a user's index of channels.
  case memberships(UInt32)
  case types
  case users(UInt32)
  case shardHead
  /// Changes of memberships that are on their way.
  case outbox(UInt32)
  /// How far changes of memberships are sent and taken.
  case index
  /// Webhooks that are remembered.
  case webhooks(UInt32)
  /// Tokens that are revoked.
  case tokens

  /// Member rows in one page.
  package static let rowsPerPage: UInt32 = 256
  /// Messages in one segment.
  package static let messagesPerSegment: UInt32 = 256
  /// Users with settings in one page.
  package static let usersPerPage: UInt32 = 256
  /// Channels of a user in one page.
  package static let membershipsPerPage: UInt32 = 256
  /// Pages that the outbox goes round in, and changes in one of them before the next is begun.
  package static let outboxPages: UInt64 = 1_024
  package static let changesPerOutboxPage: UInt64 = 256

  /// Pages that remembered webhooks are spread over, by the highest bits of their keys' hashes.
  package static let webhookPages: UInt32 = 256

  /// The page that keeps a webhook.
  package static func webhookPage(of key: UInt64) -> UInt32 { UInt32(key >> 56) }

  /// The outbox page that keeps a change while it is on its way.
  package static func outboxPage(of number: UInt64) -> UInt32 {
    UInt32(number / changesPerOutboxPage % outboxPages)
  }

  /// The page of a thread that is to it what this one is to a channel: a thread has rows and messages, and no others.
  package func inThread(_ parent: SequenceNumber) -> PageID {
    switch self {
    case .rows(let number): .threadRows(parent, number)
    case .segment(let number): .threadSegment(parent, number)
    default: preconditionFailure("a thread has no such page")
    }
  }
}

/// A user's membership in one channel, as their index has it: also one that has ended, as long as the channel knows
/// their name.
package struct Membership: Hashable, Sendable {
  package var cid: String
  /// The channel's incarnation.
  package var channel: ChannelNumber
  /// Their last row there; nil: they never were a member, but a sender.
  package var row: MemberOrdinal?
  package var isMember: Bool
  package var joinedAt: Timestamp
  /// Of the change that said so; after a rebuild, entries with an older one are wrong.
  package var epoch: UInt64
  /// When they ceased to be a member of a channel of this name that was deleted: with it, or before it, by leaving; by
  /// the channel's shard. None: none was, or that is not kept any more.
  package var deletedAt: Timestamp
  /// No channel of this name knows them since: a tombstone, which is no membership and is kept to be told to whoever
  /// was away.
  package var isGone: Bool

  package init(
    cid: String,
    channel: ChannelNumber,
    row: MemberOrdinal?,
    isMember: Bool,
    joinedAt: Timestamp,
    epoch: UInt64,
    deletedAt: Timestamp = .none,
    isGone: Bool = false
  ) {
    self.cid = cid
    self.channel = channel
    self.row = row
    self.isMember = isMember
    self.joinedAt = joinedAt
    self.epoch = epoch
    self.deletedAt = deletedAt
    self.isGone = isGone
  }

  /// What is left of it once no channel of its name knows the user.
  func tombstone(at time: Timestamp) -> Membership {
    Membership(
      cid: cid,
      channel: channel,
      row: nil,
      isMember: false,
      joinedAt: .none,
      epoch: epoch,
      deletedAt: time,
      isGone: true
    )
  }
}

/// What a channel's shard tells a user's home shard.
package struct MembershipChange: Hashable, Sendable {
  package var user: String
  /// What the index is to have of it.
  package var membership: Membership
  /// The channel knows the user no more: it was deleted, and then `membership` says when for them, or they were erased
  /// there.
  package var isGone: Bool

  package init(user: String, _ membership: Membership, isGone: Bool = false) {
    self.user = user
    self.membership = membership
    self.isGone = isGone
  }
}

/// One member's acknowledgement of one message (R9).
package struct Acknowledgement: Hashable, Sendable {
  package var row: MemberOrdinal
  /// None: the record gave way; that it was acknowledged stays.
  package var at: Timestamp
  /// The user hid their read receipts then (R7).
  package var isHidden: Bool
  /// At most ``noteLengthMax`` bytes of UTF-8; empty: none.
  package var note: String

  package static let noteLengthMax = 1_024

  package init(row: MemberOrdinal, at: Timestamp, isHidden: Bool = false, note: String = "") {
    self.row = row
    self.at = at
    self.isHidden = isHidden
    self.note = note
  }
}

/// What a row page says of its members' steps: which segments there are, and the steps since the last of them.
package struct StepTailRecord: Hashable, Sendable {
  /// The number of the oldest segment kept.
  package var first: UInt32
  /// The last time in each segment, from ``first`` on.
  package var ends: [Timestamp]
  package var tail: [UInt8]

  package init(first: UInt32 = 0, ends: [Timestamp] = [], tail: [UInt8] = []) {
    self.first = first
    self.ends = ends
    self.tail = tail
  }
}

/// A user's settings, versioned; every shard has them (R7). Only users who were ever given any.
package struct UserSettings: Hashable, Sendable {
  package var user: String
  /// 0: never set, everything has its default.
  package var version: UInt64
  package var hidesRead: Bool
  package var hidesDelivered: Bool
  /// When they last went from hidden to shown: positions moved while hidden count from then. None: they never hid.
  package var readShownSince: Timestamp
  package var deliveredShownSince: Timestamp
  /// Tokens issued before are refused; none: no token is.
  package var tokensRevokedBefore: Timestamp
  /// In the user's home shard: every shard has this version.
  package var isSettled: Bool
  /// The user is being erased (R16): nothing new may be made in their name.
  package var isErasing: Bool
  /// The user was erased at this version (R16): nothing is kept but that. Only in answers, never in what is logged.
  package var isErased: Bool
  /// When this shard took what they hide and show as it is now; none: as it ever was. No other shard is told.
  package var takenAt: Timestamp

  package init(
    user: String,
    version: UInt64 = 0,
    hidesRead: Bool = false,
    hidesDelivered: Bool = false,
    readShownSince: Timestamp = .none,
    deliveredShownSince: Timestamp = .none,
    tokensRevokedBefore: Timestamp = .none,
    isSettled: Bool = false,
    isErasing: Bool = false,
    isErased: Bool = false,
    takenAt: Timestamp = .none
  ) {
    self.user = user
    self.version = version
    self.hidesRead = hidesRead
    self.hidesDelivered = hidesDelivered
    self.readShownSince = readShownSince
    self.deliveredShownSince = deliveredShownSince
    self.tokensRevokedBefore = tokensRevokedBefore
    self.isSettled = isSettled
    self.isErasing = isErasing
    self.isErased = isErased
    self.takenAt = takenAt
  }
}

/// Some of a user's settings: nil leaves what is there.
package struct UserSettingsPatch: Hashable, Sendable {
  package var showsRead: Bool?
  package var showsDelivered: Bool?
  package var tokensRevokedBefore: Timestamp?
  package init(showsRead: Bool? = nil, showsDelivered: Bool? = nil, tokensRevokedBefore: Timestamp? = nil) {
    self.showsRead = showsRead
    self.showsDelivered = showsDelivered
    self.tokensRevokedBefore = tokensRevokedBefore
  }
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
  /// Of a row that was left: when it was.
  package var readAt: Timestamp
  package var delivered: SequenceNumber
  package var deliveredAt: Timestamp
  /// What is shown in place of ``deliveredAt`` (R20); none: that itself.
  package var ackedAt: Timestamp
  /// The unread marker, where one is set (R4).
  package var marker: SequenceNumber?
  /// When the marker was set, moved or taken away last; none: there never was one.
  package var markedAt: Timestamp
  package var unreadEpoch: UInt32
  /// The last move of the watermark was made while the user hid it (R7).
  package var readIsHidden: Bool
  package var deliveredIsHidden: Bool
  /// How often the watermark has moved: the number of its newest step (R17).
  package var readSteps: UInt32
  package var deliveredSteps: UInt32
  /// Mark-read has acknowledged receipts up to here (R9).
  package var acknowledgedThrough: SequenceNumber
  /// Of a thread: they have only marked it read. While they hide that they read, others do not see that they are in it
  /// (R7, R15).
  package var joinedByReading: Bool
  /// Of a thread: they joined the channel when this was the newest reply, so replies up to it are never counted for
  /// them (R6); nil: the same as ``joined``.
  package var countedAfter: SequenceNumber?
  /// Of a thread: replies up to this one are not unread for them, as they did not take part then; nil: the same as
  /// ``joined``.
  package var unreadAfter: SequenceNumber?
  /// The member keeps the channel out of their totals (R14).
  package var isMuted: Bool
  /// The member has flagged the channel unread as a whole (R4).
  package var isFlaggedUnread: Bool
  /// When the flag was set or taken away last; none: it never was.
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
    readSteps: UInt32 = 0,
    deliveredSteps: UInt32 = 0,
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
    self.readSteps = readSteps
    self.deliveredSteps = deliveredSteps
    self.acknowledgedThrough = acknowledgedThrough
    self.joinedByReading = joinedByReading
    self.countedAfter = countedAfter
    self.unreadAfter = unreadAfter
    self.isMuted = isMuted
    self.isFlaggedUnread = isFlaggedUnread
    self.flaggedAt = flaggedAt
  }
}

/// What is kept of one message; its body is the chat backend's.
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
    /// Registered with a receipt (R9).
    package static let receipt = Flags(rawValue: 8)
    /// A receipt was asked for and refused: over the daily limit.
    package static let receiptOverLimit = Flags(rawValue: 16)
    /// A receipt was asked for and refused: the sender's role.
    package static let receiptNotAllowed = Flags(rawValue: 32)
    /// Registered with `moves_position: false`: its sender's positions stayed where they were (R5).
    package static let leavesPosition = Flags(rawValue: 64)
    /// It mentions somebody (R14): ``MessageRecord/mentions`` says whom.
    package static let mentions = Flags(rawValue: 128)

    package static let known: UInt8 = 255

    /// Whether it was registered asking for a receipt, granted or not (R9).
    var asksForReceipt: Bool { !isDisjoint(with: .receiptAsked) }
    private static let receiptAsked = Flags(rawValue: 8 | 16 | 32)

    /// Whether the message counts as unread for those who have not read it (R14).
    package var isCountable: Bool { isDisjoint(with: .uncountable) }
    private static let uncountable = Flags(rawValue: 7)
  }

  package var id: String
  /// Empty: sent by the system.
  package var sender: String
  package var flags: Flags
  package var registeredAt: Timestamp
  /// For display (R20); none: the time of registration. Of a message that was deleted by itself, when it was.
  package var createdAt: Timestamp
  /// When its receipt expires (R9); none: never, or it has none.
  package var receiptExpiresAt: Timestamp
  /// Whom it mentions (R14); nobody, where it counts as unread for nobody.
  package var mentions: MessageMentions {
    didSet { flags = flags.setting(.mentions, mentions != .nobody) }
  }

  package init(
    id: String,
    sender: String,
    flags: Flags,
    registeredAt: Timestamp,
    createdAt: Timestamp = .none,
    receiptExpiresAt: Timestamp = .none,
    mentions: MessageMentions = .nobody
  ) {
    self.id = id
    self.sender = sender
    self.flags = flags.setting(.mentions, mentions != .nobody)
    self.mentions = mentions
    self.registeredAt = registeredAt
    self.createdAt = createdAt
    self.receiptExpiresAt = receiptExpiresAt
  }
}

/// What a shard remembers of a gateway's session, so that a resend is applied exactly once (DESIGN.md section 3).
package struct SessionRecord: Hashable, Sendable {
  package var session: SessionID
  /// The highest counter taken up.
  package var highest: UInt64
  /// Counters at or below `highest` that are open, rising: their commands wait for a channel to load, or were refused.
  /// Sent again, they are decided.
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

  /// Whether the command with this counter was decided already. Inlined, so that a record is looked at where it stands,
  /// and not copied, for every command.
  @inline(__always)
  package func covers(_ counter: UInt64) -> Bool { counter <= highest && !waiting.contains(counter) }
}
