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
  indirect case segmentsNoted(ChannelNumber, [SegmentFlags])

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
    case .channelAssigned, .optionsChanged, .rowLeft, .readMoved, .deliveredMoved, .acknowledgedThrough,
      .stepsSealed, .stepTailCut, .stepsTrimmed, .stepTailAssigned, .deletionBegun, .messageCountsAssigned,
      .segmentsNoted, .channelTypeAssigned, .typeSettled, .userAssigned, .userSettled, .userErased,
      .countersAssigned,
      .sessionAssigned, .membershipQueued, .membershipsSent, .membershipsTaken, .indexEpochAssigned,
      .webhookNoted,
      .tokenRevoked, .idsWidened:
      false
    }
  }

  /// Whether this effect moves a member's watermark.
  package var movesWatermark: Bool {
    switch self {
    case .readMoved, .deliveredMoved, .deliveredAcked: true
    case .channelAssigned, .optionsChanged, .rowAssigned, .rowLeft, .roleAssigned, .markerAssigned,
      .muteAssigned,
      .unreadFlagAssigned, .messageAssigned, .messageDeleted, .acknowledged, .acknowledgementForgotten,
      .acknowledgedThrough, .stepsSealed, .stepTailCut, .stepsTrimmed, .stepTailAssigned, .inThread,
      .truncated,
      .deletionBegun, .channelDeleted, .rowErased, .senderErased, .messageCountsAssigned, .segmentsNoted,
      .membershipAssigned, .membershipRemoved, .channelTypeAssigned, .typeSettled, .userAssigned,
      .userSettled, .userErased, .countersAssigned,
      .sessionAssigned, .membershipQueued, .membershipsSent, .membershipsTaken, .indexEpochAssigned,
      .webhookNoted,
      .tokenRevoked, .idsWidened:
      false
    }
  }

  /// Whether this effect changes how many messages are countable, and therefore the channel's head page too.
  package var changesMessageCounts: Bool {
    switch self {
    case .messageAssigned, .messageDeleted: true
    case .channelAssigned, .optionsChanged, .rowAssigned, .rowLeft, .roleAssigned, .readMoved,
      .deliveredMoved,
      .deliveredAcked, .markerAssigned, .muteAssigned, .unreadFlagAssigned, .acknowledged,
      .acknowledgementForgotten, .acknowledgedThrough, .stepsSealed, .stepTailCut, .stepsTrimmed,
      .stepTailAssigned, .inThread, .truncated, .deletionBegun, .channelDeleted, .rowErased, .senderErased,
      .messageCountsAssigned, .segmentsNoted, .membershipAssigned, .membershipRemoved, .channelTypeAssigned,
      .typeSettled, .userAssigned, .userSettled, .userErased, .countersAssigned,
      .sessionAssigned, .membershipQueued, .membershipsSent, .membershipsTaken, .indexEpochAssigned,
      .webhookNoted,
      .tokenRevoked, .idsWidened:
      false
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
    case .optionsChanged, .rowLeft, .roleAssigned, .readMoved, .deliveredMoved, .deliveredAcked,
      .markerAssigned,
      .muteAssigned, .unreadFlagAssigned, .messageDeleted, .acknowledged, .acknowledgementForgotten,
      .acknowledgedThrough, .stepsSealed, .stepTailCut, .stepsTrimmed, .stepTailAssigned, .truncated,
      .deletionBegun,
      .channelDeleted, .rowErased, .senderErased, .messageCountsAssigned, .segmentsNoted, .membershipRemoved,
      .channelTypeAssigned, .typeSettled, .userSettled, .userErased, .countersAssigned, .sessionAssigned,
      .membershipsSent, .membershipsTaken, .indexEpochAssigned, .webhookNoted, .tokenRevoked, .idsWidened:
      false
    }
  }

  /// Whether an id is empty (no user) or satisfies the predicate.
  private static func all(_ id: String, _ isInRange: (RawSpan) -> Bool) -> Bool {
    var id = id
    return id.isEmpty || id.withUTF8 { isInRange($0.span.bytes) }
  }

  /// The id of the user that this effect stores; empty: none. A user's index is stored like a channel, under the user's
  /// id, so a channel gives its cid.
  package var user: String {
    switch self {
    case .channelAssigned(_, let cid, _, _): cid
    case .rowAssigned(_, _, let record): record.user
    case .messageAssigned(_, _, let record): record.sender
    case .userAssigned(_, let settings): settings.user
    case .membershipQueued(_, let change): change.user
    case .inThread(_, let effect): effect.user
    case .optionsChanged, .rowLeft, .roleAssigned, .readMoved, .deliveredMoved, .deliveredAcked,
      .markerAssigned,
      .muteAssigned, .unreadFlagAssigned, .messageDeleted, .acknowledged, .acknowledgementForgotten,
      .acknowledgedThrough, .stepsSealed, .stepTailCut, .stepsTrimmed, .stepTailAssigned, .truncated,
      .deletionBegun, .channelDeleted, .rowErased, .senderErased, .messageCountsAssigned, .segmentsNoted,
      .membershipAssigned, .membershipRemoved, .channelTypeAssigned, .typeSettled, .userSettled, .userErased,
      .countersAssigned, .sessionAssigned, .membershipsSent, .membershipsTaken, .indexEpochAssigned,
      .webhookNoted, .tokenRevoked, .idsWidened:
      ""
    }
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
