/// A resolved, absolute assignment to one page (docs/architecture.md). The shard decides a command into effects,
/// then assigns them to its memory, its log and its pages. Replay therefore decides nothing. Large payloads are
/// indirect: the effect of a mark is a few words, copied without touching a reference count. Encodings:
/// Proto/frames.md, "The log and the pages".
package enum Effect: Hashable, Sendable {
  indirect case channelAssigned(ChannelNumber, cid: String, created: Timestamp, own: OptionPatch)
  indirect case rowAssigned(ChannelNumber, MemberOrdinal, RowRecord)
  /// The channel's own options changed at this time, by a `channelAssigned` before this effect.
  case optionsChanged(ChannelNumber, at: Timestamp)
  case rowLeft(ChannelNumber, MemberOrdinal, at: Timestamp)
  case roleAssigned(ChannelNumber, MemberOrdinal, role: String)
  /// `isHidden`: the user hid their read receipts when the watermark moved, so others never see the time (R7).
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
  /// A delivery acknowledged some time after it happened (R20). `at` is when the shard applied it; changes since a time
  /// are selected by it. `acked` is earlier and is the time that is shown.
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
  /// The member excludes the channel from their unread totals, or includes it again (R14).
  case muteAssigned(ChannelNumber, MemberOrdinal, isMuted: Bool)
  /// The member flags the channel unread as a whole, or clears the flag (R4).
  case unreadFlagAssigned(ChannelNumber, MemberOrdinal, isSet: Bool, epoch: UInt32, at: Timestamp)
  indirect case messageAssigned(ChannelNumber, SequenceNumber, MessageRecord)
  case messageDeleted(ChannelNumber, SequenceNumber, at: Timestamp)
  /// A member's acknowledgement of a message's receipt (R9).
  indirect case acknowledged(ChannelNumber, SequenceNumber, Acknowledgement)
  /// Drops the time and note of an acknowledgement to make room for newer ones; the acknowledgement itself stays (R9).
  case acknowledgementForgotten(ChannelNumber, SequenceNumber, MemberOrdinal)
  /// Mark-read has acknowledged the receipts up to here (R9, `read_acks_receipts`).
  case acknowledgedThrough(ChannelNumber, MemberOrdinal, to: SequenceNumber)
  /// A sealed segment of the steps of a 256-row page (R17).
  indirect case stepsSealed(ChannelNumber, rowPage: UInt32, segment: UInt32, bytes: [UInt8])
  /// The tail of a row page's steps became its next segment; `end` is the time of its last step.
  case stepTailCut(ChannelNumber, rowPage: UInt32, end: Timestamp)
  /// Drops the segments before `first`. If `first` lies after the tail, drops the tail's steps too.
  case stepsTrimmed(ChannelNumber, rowPage: UInt32, first: UInt32)
  /// Only in pages: a row page's step state.
  indirect case stepTailAssigned(ChannelNumber, rowPage: UInt32, StepTailRecord)
  indirect case channelTypeAssigned(ChannelTypeRecord)
  /// In the type's home shard: every shard now has this version of the channel type.
  case typeSettled(name: String, version: UInt64)
  /// A user's settings; the number is the user's place among this shard's users with settings.
  indirect case userAssigned(UInt32, UserSettings)
  /// In the user's home shard: every shard now has this version of the user's settings.
  case userSettled(UInt32, version: UInt64)
  case countersAssigned(nextChannel: ChannelNumber, time: Timestamp)
  /// A webhook was accepted: its key's XXH64 is remembered up to and including this time.
  case webhookNoted(UInt64, until: Timestamp)
  /// A token is revoked, or its revocation is lifted.
  indirect case tokenRevoked(TokenRevocation)
  indirect case sessionAssigned(SessionRecord)
  /// This shard holds ids that builds from before 2027 reject. Those builds do not know this effect, and so refuse to
  /// open the directory.
  case idsWidened

  // Threads (R15)
  /// An effect on a thread. Like a channel, a thread has rows and messages; its key is its parent message.
  indirect case inThread(SequenceNumber, Effect)

  // Removal (R16)
  /// The messages up to `through` are gone.
  case truncated(ChannelNumber, through: SequenceNumber, at: Timestamp)
  /// The channel is being deleted and can no longer be found. Later batches queue the membership changes of its users,
  /// and then delete it.
  case deletionBegun(ChannelNumber)
  /// The channel and everything in it are deleted; its number is never reused.
  indirect case channelDeleted(ChannelNumber, cid: String)
  /// The row of an erased user: marked as left, with no user.
  case rowErased(ChannelNumber, MemberOrdinal, at: Timestamp)
  /// The message of an erased sender: its sender is emptied.
  case senderErased(ChannelNumber, SequenceNumber)
  /// An erased user's settings. Only a hash of the id and the version remain, to recognise changes that are still in
  /// flight.
  case userErased(UInt32, version: UInt64, hash: UInt64, at: Timestamp)
  /// Only in pages: the number of countable messages in each segment.
  indirect case messageCountsAssigned(ChannelNumber, newest: SequenceNumber, [UInt32])
  /// Only in pages: further facts about some segments, in rising order.
  indirect case segmentsNoted(ChannelNumber, [SegmentNote])

  // The index of users' channels (R13, R14)
  /// An entry of a user's index. The index is stored like a channel, under the user's id.
  indirect case membershipAssigned(ChannelNumber, place: UInt32, Membership)
  case membershipRemoved(ChannelNumber, place: UInt32)
  /// A membership change to deliver to its user's home shard; numbered from 1 without gaps.
  indirect case membershipQueued(UInt64, MembershipChange)
  /// The shard `to` has applied the changes addressed to it up to this number.
  case membershipsSent(to: ShardID, through: UInt64)
  /// The index includes the changes from the shard `from` up to this number.
  case membershipsTaken(from: ShardID, through: UInt64)
  /// Changes queued from here on carry this epoch: the index is being rebuilt.
  case indexEpochAssigned(UInt64)

  /// The channel that this effect belongs to; nil for the shard's own pages.
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

  /// Whether assigning this effect may change its channel's size in memory. Steps are excluded: they count themselves.
  var takesRoom: Bool {
    switch self {
    // A marker makes the channel keep its user's own messages after it; an acknowledged time adds a column.
    case .rowAssigned, .roleAssigned, .markerAssigned, .muteAssigned, .unreadFlagAssigned, .deliveredAcked,
      .messageAssigned, .acknowledged,
      .acknowledgementForgotten, .inThread, .truncated, .messageDeleted, .rowErased, .senderErased,
      .channelDeleted, .membershipAssigned, .membershipRemoved:
      true
    default: false
    }
  }

  /// Whether this effect moves a member's watermark.
  package var movesWatermark: Bool {
    switch self {
    case .readMoved, .deliveredMoved, .deliveredAcked: true
    default: false
    }
  }

  /// Whether this effect changes how many messages are countable, and therefore the channel's head page too.
  package var changesMessageCounts: Bool {
    switch self {
    case .messageAssigned, .messageDeleted: true
    default: false
    }
  }

  /// Whether this effect brings an id into the shard that builds from before 2027 reject.
  package var bringsWideIDs: Bool {
    switch self {
    case .channelAssigned(_, let cid, _, _):
      if IndexName.isIndex(Array(cid.utf8)) {
        !Self.all(cid, Identifier.isLegacyUser)
      } else {
        !Self.all(cid, Identifier.isLegacyCID)
      }
    case .rowAssigned(_, _, let record): !Self.all(record.user, Identifier.isLegacyUser)
    case .messageAssigned(_, _, let record):
      !Self.all(record.id, Identifier.isLegacyMessage) || !Self.all(record.sender, Identifier.isLegacyUser)
    case .userAssigned(_, let settings): !Self.all(settings.user, Identifier.isLegacyUser)
    case .membershipQueued(_, let change):
      !Self.all(change.user, Identifier.isLegacyUser)
        || !Self.all(change.membership.cid, Identifier.isLegacyCID)
    case .membershipAssigned(_, _, let membership): !Self.all(membership.cid, Identifier.isLegacyCID)
    case .inThread(_, let effect): effect.bringsWideIDs
    default: false
    }
  }

  /// Whether an id is empty (no user) or satisfies the predicate.
  private static func all(_ id: String, _ isInRange: (RawSpan) -> Bool) -> Bool {
    var id = id
    return id.isEmpty || id.withUTF8 { isInRange($0.span.bytes) }
  }

  /// Whether a thread can have this effect: it concerns a row or a message.
  package var isThreadable: Bool {
    switch self {
    case .rowAssigned, .rowLeft, .readMoved, .deliveredMoved, .deliveredAcked, .markerAssigned,
      .messageAssigned, .messageDeleted, .rowErased, .senderErased, .stepTailCut, .stepsTrimmed,
      .stepTailAssigned:
      true
    case .channelAssigned, .optionsChanged, .roleAssigned, .muteAssigned, .unreadFlagAssigned, .acknowledged,
      .acknowledgementForgotten, .acknowledgedThrough, .stepsSealed, .channelTypeAssigned, .typeSettled,
      .userAssigned, .userSettled, .countersAssigned, .webhookNoted, .tokenRevoked, .sessionAssigned,
      .idsWidened, .inThread, .truncated, .deletionBegun, .channelDeleted, .userErased,
      .messageCountsAssigned, .segmentsNoted, .membershipAssigned, .membershipRemoved, .membershipQueued,
      .membershipsSent, .membershipsTaken, .indexEpochAssigned:
      false
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

/// A page's name within its channel, or within its shard for the last seven cases: the unit of a checkpoint.
package enum PageID: Hashable, Sendable {
  case head
  case rows(UInt32)
  case segment(UInt32)
  /// A message's acknowledgements.
  case receipts(SequenceNumber)
  /// A segment of the steps of a row page: row page, segment. Not loaded with its channel, only on demand.
  case steps(UInt32, UInt32)
  /// Rows of a thread: parent message, page.
  case threadRows(SequenceNumber, UInt32)
  /// Messages of a thread: parent message, segment.
  case threadSegment(SequenceNumber, UInt32)
  /// Entries of a user's channel index.
  case memberships(UInt32)
  case types
  case users(UInt32)
  case shardHead
  /// Pending membership changes.
  case outbox(UInt32)
  /// Progress of the membership changes that were sent and received.
  case index
  /// Remembered webhooks.
  case webhooks(UInt32)
  /// Revoked tokens.
  case tokens

  /// Member rows in one page.
  package static let rowsPerPage: UInt32 = 256
  /// Messages in one segment.
  package static let messagesPerSegment: UInt32 = 256
  /// Users with settings in one page.
  package static let usersPerPage: UInt32 = 256
  /// Channels of a user in one page.
  package static let membershipsPerPage: UInt32 = 256
  /// Number of outbox pages, used as a ring, and the number of changes in each.
  package static let outboxPages: UInt64 = 1_024
  package static let changesPerOutboxPage: UInt64 = 256

  /// Number of pages that remembered webhooks are spread over, by the highest bits of their keys' hashes.
  package static let webhookPages: UInt32 = 256

  /// The page of a webhook key.
  package static func webhookPage(of key: UInt64) -> UInt32 { UInt32(key >> 56) }

  /// The outbox page that stores a pending change.
  package static func outboxPage(of number: UInt64) -> UInt32 {
    UInt32(number / changesPerOutboxPage % outboxPages)
  }

  /// The thread's counterpart of this channel page. Threads have only row and message pages.
  package func inThread(_ parent: SequenceNumber) -> PageID {
    switch self {
    case .rows(let number): .threadRows(parent, number)
    case .segment(let number): .threadSegment(parent, number)
    default: preconditionFailure("a thread has no such page")
    }
  }
}

/// A user's membership in one channel, as stored in the user's index. An ended membership stays while the channel still
/// knows the user's name.
package struct Membership: Hashable, Sendable {
  package var cid: String
  /// The channel's incarnation.
  package var channel: ChannelNumber
  /// The user's last row in the channel; nil: never a member, only a sender.
  package var row: MemberOrdinal?
  package var isMember: Bool
  package var joinedAt: Timestamp
  /// The epoch of the change that assigned this entry. After a rebuild, entries with an older epoch are wrong.
  package var epoch: UInt64
  /// When the user ceased to be a member of a deleted channel of this name, by the channel shard's time: at its
  /// deletion, or earlier by leaving. None: no such channel, or the time is no longer kept.
  package var deletedAt: Timestamp
  /// A tombstone: no channel of this name knows the user any more. It is no membership, and is kept to replay the
  /// removal to clients that were away.
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

  /// The tombstone that replaces this entry once no channel of its name knows the user.
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

/// A membership change that a channel's shard sends to a user's home shard.
package struct MembershipChange: Hashable, Sendable {
  package var user: String
  /// The entry that the index must hold.
  package var membership: Membership
  /// The channel no longer knows the user. Either the channel was deleted, and `membership` says when the user's
  /// membership ended, or the user was erased there.
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

/// A row page's step state: its sealed segments, and the steps since the last of them.
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

/// A user's versioned settings, replicated to every shard (R7). Exists only for users whose settings were ever set.
package struct UserSettings: Hashable, Sendable {
  package var user: String
  /// 0: never set, every setting has its default.
  package var version: UInt64
  package var hidesRead: Bool
  package var hidesDelivered: Bool
  /// When the user last changed from hidden to shown; positions moved while hidden count from then. None: never hidden.
  package var readShownSince: Timestamp
  package var deliveredShownSince: Timestamp
  /// Tokens issued before this time are refused; none: no token is refused.
  package var tokensRevokedBefore: Timestamp
  /// In the user's home shard: every shard has this version.
  package var isSettled: Bool
  /// The user is being erased (R16): nothing new may be created in their name.
  package var isErasing: Bool
  /// The user was erased at this version (R16) and nothing else is kept. Only in replies, never in the log.
  package var isErased: Bool
  /// When this shard applied the current privacy settings; none: they never changed. Not replicated.
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

/// A partial update of a user's settings: nil leaves a setting unchanged.
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
  package var readSteps: UInt32
  package var deliveredSteps: UInt32
  /// Mark-read has acknowledged the receipts up to here (R9).
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
    /// Registered with a receipt (R9).
    package static let receipt = Flags(rawValue: 8)
    /// A receipt was requested and refused: over the daily limit.
    package static let receiptOverLimit = Flags(rawValue: 16)
    /// A receipt was requested and refused: the sender's role may not request one.
    package static let receiptNotAllowed = Flags(rawValue: 32)
    /// Registered with `moves_position: false`: the sender's positions did not move (R5).
    package static let keepsSenderPosition = Flags(rawValue: 64)
    /// The message mentions somebody (R14): see ``MessageRecord/mentions``.
    package static let mentions = Flags(rawValue: 128)

    package static let known: UInt8 = 255

    /// Whether a receipt was requested at registration, granted or not (R9).
    var asksForReceipt: Bool { !isDisjoint(with: .receiptAsked) }
    private static let receiptAsked = Flags(rawValue: 8 | 16 | 32)

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
  /// When the receipt expires (R9); none: never, or the message has no receipt.
  package var receiptExpiresAt: Timestamp
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

/// A shard's record of a gateway session, so that a resent command is applied exactly once (docs/architecture.md).
package struct SessionRecord: Hashable, Sendable {
  package var session: SessionID
  /// The highest counter whose command the shard has begun.
  package var highest: UInt64
  /// Open counters at or below `highest`, in rising order. Their commands wait for a channel to load, or were refused;
  /// sent again, they are decided.
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

  /// Whether the command with this counter was already decided. Inlined, so that each command reads the record in place
  /// instead of copying it.
  @inline(__always)
  package func covers(_ counter: UInt64) -> Bool { counter <= highest && !waiting.contains(counter) }
}
