/// An effect on one channel, or on one of its threads. A user's channel index is stored like a channel.
package enum ChannelEffect: Hashable, Sendable {
  indirect case channelAssigned(cid: String, created: Timestamp, own: OptionPatch)
  indirect case rowAssigned(MemberOrdinal, RowRecord)
  /// The channel's own options changed at this time, by a `channelAssigned` before this effect.
  case optionsChanged(at: Timestamp)
  case rowLeft(MemberOrdinal, at: Timestamp)
  case roleAssigned(MemberOrdinal, role: String)
  /// `isHidden`: the user hid their read receipts when the watermark moved, so others never see the time (R7).
  case readMoved(MemberOrdinal, to: SequenceNumber, at: Timestamp, isHidden: Bool = false)
  case deliveredMoved(MemberOrdinal, to: SequenceNumber, at: Timestamp, isHidden: Bool = false)
  /// A delivery acknowledged some time after it happened (R20). `at` is when the shard applied it; changes since a time
  /// are selected by it. `ackedAt`, the time of the push ack, is earlier and is the time that is shown.
  case deliveredByPushAck(MemberOrdinal, to: SequenceNumber, at: Timestamp, ackedAt: Timestamp, isHidden: Bool = false)
  case markerAssigned(MemberOrdinal, marker: SequenceNumber?, epoch: UInt32, at: Timestamp = .none)
  /// The member excludes the channel from their unread totals, or includes it again (R14).
  case muteAssigned(MemberOrdinal, isMuted: Bool)
  /// The member flags the channel unread as a whole, or clears the flag (R4).
  case unreadFlagAssigned(MemberOrdinal, isSet: Bool, epoch: UInt32, at: Timestamp)
  indirect case messageAssigned(SequenceNumber, MessageRecord)
  case messageDeleted(SequenceNumber, at: Timestamp)
  /// A member's acknowledgement of a message (R9).
  indirect case acknowledged(SequenceNumber, Acknowledgement)
  /// Drops the time and note of an acknowledgement to make room for newer ones; the acknowledgement itself stays (R9).
  case acknowledgementForgotten(SequenceNumber, MemberOrdinal)
  /// Mark-read has acknowledged the messages up to here (R9, `read_acks_receipts`).
  case acknowledgedThrough(MemberOrdinal, to: SequenceNumber)
  /// A sealed segment of the steps of a 256-row page (R17).
  indirect case stepsSealed(rowPage: UInt32, segment: UInt32, bytes: [UInt8])
  /// The tail of a row page's steps became its next segment; `end` is the time of its last step.
  case stepTailCut(rowPage: UInt32, end: Timestamp)
  /// Drops the segments before `first`. If `first` lies after the tail, drops the tail's steps too.
  case stepsTrimmed(rowPage: UInt32, first: UInt32)
  /// Only in pages: a row page's step state.
  indirect case stepTailAssigned(rowPage: UInt32, StepTailRecord)
  /// Only in pages: the number of countable messages in each segment.
  indirect case messageCountsAssigned(newest: SequenceNumber, [UInt32])
  /// Only in pages: further facts about some segments, in rising order.
  indirect case segmentFlagsAssigned([SegmentFlags])

  // Threads (R15)
  /// An effect on a thread. Like a channel, a thread has rows and messages; its key is its parent message.
  indirect case inThread(SequenceNumber, ChannelEffect)

  // Removal (R16)
  /// The messages up to `through` are gone.
  case truncated(through: SequenceNumber, at: Timestamp)
  /// The channel is being deleted and can no longer be found. Later batches queue the membership changes of its users,
  /// and then delete it.
  case deletionBegun
  /// The channel and everything in it are deleted; its number is never reused.
  indirect case channelDeleted(cid: String)
  /// The row of an erased user: marked as left, with no user.
  case rowErased(MemberOrdinal, at: Timestamp)
  /// The message of an erased sender: its sender is emptied.
  case senderErased(SequenceNumber)

  // Imports
  /// The users that a message mentions by name: their rows, and the hashes of those who have no row yet, both rising.
  indirect case mentionsAssigned(SequenceNumber, rows: [UInt32], pending: [UInt64])
  /// Appends an imported row's moves to the steps of its page.
  indirect case stepsImported(rowPage: UInt32, bytes: [UInt8])

  // The index of a user's channels (R13, R14)
  /// An entry of a user's index, which is stored like a channel, under the user's id.
  indirect case membershipAssigned(position: UInt32, Membership)
  case membershipRemoved(position: UInt32)
}

extension ChannelEffect {
  // MARK: Traits

  /// The yes-or-no properties of an effect.
  package struct Traits: FlagSet {
    package let rawValue: UInt16

    @inlinable @inline(__always) package init(rawValue: UInt16) { self.rawValue = rawValue }

    /// Assigning the effect may change its channel's size in memory. Steps are excluded: they count themselves.
    package static let takesRoom = Traits(rawValue: 1)
    /// The effect moves a member's watermark.
    package static let movesWatermark = Traits(rawValue: 2)
    /// The effect changes how many messages are countable, and therefore the channel's head page too.
    package static let changesMessageCounts = Traits(rawValue: 4)
    /// A thread can have the effect: it concerns a row or a message.
    package static let threadable = Traits(rawValue: 8)
    /// The effect may be an event for viewers of the channel (``PendingChannelEvents``).
    package static let hasEvent = Traits(rawValue: 16)
    /// The effect may be a record of the feed (R21).
    package static let isInFeed = Traits(rawValue: 32)
    /// The effect assigns a row or a message to a user, or takes it from them: who takes part in a thread may change.
    package static let changesParticipants = Traits(rawValue: 64)
    /// The effect changes more than its page: other pages, or other parts of the shard.
    package static let changesOtherParts = Traits(rawValue: 128)
    /// What storage has of the effect is valid only under conditions, beyond the presence of its target.
    package static let hasConditions = Traits(rawValue: 256)
  }

  /// The traits say which parts of the model and the engine handle the effect. Each of these has a `default` case, with
  /// an assertion that the effect does not have its trait.
  package var traits: Traits {
    switch self {
    case .channelAssigned: .hasEvent.union(.isInFeed).union(.changesOtherParts)
    case .optionsChanged, .messageCountsAssigned, .segmentFlagsAssigned: Traits()
    case .rowAssigned:
      .takesRoom.union(.threadable).union(.hasEvent).union(.isInFeed).union(.changesParticipants).union(.hasConditions)
    case .rowLeft: .threadable.union(.hasEvent).union(.isInFeed).union(.changesParticipants)
    case .rowErased: .takesRoom.union(.threadable).union(.hasEvent).union(.isInFeed).union(.changesParticipants)
    case .roleAssigned: .takesRoom
    case .readMoved, .deliveredMoved:
      .movesWatermark.union(.threadable).union(.hasEvent).union(.isInFeed).union(.hasConditions)
    // The time of a push ack adds a column.
    case .deliveredByPushAck:
      .takesRoom.union(.movesWatermark).union(.threadable).union(.hasEvent).union(.isInFeed).union(.hasConditions)
    // A marker makes the channel keep its user's own messages after it.
    case .markerAssigned: .takesRoom.union(.threadable).union(.hasEvent).union(.isInFeed).union(.hasConditions)
    case .muteAssigned: .takesRoom.union(.hasEvent)
    case .unreadFlagAssigned: .takesRoom.union(.hasEvent).union(.isInFeed)
    case .messageAssigned:
      .takesRoom.union(.changesMessageCounts).union(.threadable).union(.hasEvent).union(.isInFeed).union(.hasConditions)
    case .messageDeleted:
      .takesRoom.union(.changesMessageCounts).union(.threadable).union(.hasEvent).union(.isInFeed)
        .union(.changesOtherParts)
    case .mentionsAssigned: .takesRoom.union(.changesMessageCounts).union(.threadable).union(.hasConditions)
    case .senderErased: .takesRoom.union(.threadable).union(.changesParticipants)
    case .acknowledged: .takesRoom.union(.hasEvent).union(.isInFeed).union(.hasConditions)
    case .acknowledgementForgotten: .takesRoom.union(.hasConditions)
    case .acknowledgedThrough, .stepsSealed: .hasConditions
    case .stepTailCut, .stepsTrimmed: .threadable.union(.changesOtherParts).union(.hasConditions)
    case .stepTailAssigned, .stepsImported: .threadable.union(.hasConditions)
    case .truncated: .takesRoom.union(.hasEvent).union(.isInFeed).union(.changesOtherParts).union(.hasConditions)
    case .deletionBegun: .isInFeed.union(.changesOtherParts)
    case .channelDeleted: .takesRoom.union(.isInFeed).union(.changesOtherParts).union(.hasConditions)
    case .inThread: .takesRoom.union(.hasConditions)
    case .membershipAssigned: .takesRoom.union(.hasConditions)
    case .membershipRemoved: .takesRoom
    }
  }

  /// The ids that the effect stores; nil: none.
  var ids: StoredIDs? {
    switch self {
    case .channelAssigned(let cid, _, _): StoredIDs(name: cid)
    case .rowAssigned(_, let record): StoredIDs(user: record.user)
    case .messageAssigned(_, let record): StoredIDs(user: record.sender, message: record.id)
    case .membershipAssigned(_, let membership): StoredIDs(channel: membership.cid)
    case .inThread(_, let effect): effect.ids
    case .optionsChanged, .rowLeft, .roleAssigned, .readMoved, .deliveredMoved, .deliveredByPushAck,
      .markerAssigned, .muteAssigned, .unreadFlagAssigned, .messageDeleted, .acknowledged,
      .acknowledgementForgotten, .acknowledgedThrough, .stepsSealed, .stepTailCut, .stepsTrimmed,
      .stepTailAssigned, .messageCountsAssigned, .segmentFlagsAssigned, .truncated, .deletionBegun,
      .channelDeleted,
      .rowErased, .senderErased, .mentionsAssigned, .stepsImported, .membershipRemoved:
      nil
    }
  }

  // MARK: Addressing

  /// What an effect assigns in a channel or a thread. The target determines the page. It must exist when
  /// the effect is assigned, unless the effect creates it.
  package enum Target: Hashable, Sendable {
    case head
    case row(MemberOrdinal)
    /// The step state of a row page.
    case stepState(rowPage: UInt32)
    case stepSegment(rowPage: UInt32, UInt32)
    case message(SequenceNumber)
    /// A message's acknowledgements.
    case acknowledgement(SequenceNumber)
    /// A position in a user's index.
    case membership(UInt32)
  }

  package var target: Target {
    switch self {
    case .channelAssigned, .optionsChanged, .truncated, .deletionBegun, .channelDeleted,
      .messageCountsAssigned, .segmentFlagsAssigned:
      .head
    case .rowAssigned(let row, _), .rowLeft(let row, _), .roleAssigned(let row, _),
      .readMoved(let row, _, _, _), .deliveredMoved(let row, _, _, _), .deliveredByPushAck(let row, _, _, _, _),
      .markerAssigned(let row, _, _, _), .muteAssigned(let row, _), .unreadFlagAssigned(let row, _, _, _),
      .acknowledgedThrough(let row, _), .rowErased(let row, _):
      .row(row)
    case .stepTailCut(let rowPage, _), .stepsTrimmed(let rowPage, _), .stepTailAssigned(let rowPage, _),
      .stepsImported(let rowPage, _):
      .stepState(rowPage: rowPage)
    case .stepsSealed(let rowPage, let segment, _): .stepSegment(rowPage: rowPage, segment)
    case .messageAssigned(let sequence, _), .messageDeleted(let sequence, _), .senderErased(let sequence),
      .mentionsAssigned(let sequence, _, _):
      .message(sequence)
    case .acknowledged(let sequence, _), .acknowledgementForgotten(let sequence, _): .acknowledgement(sequence)
    case .membershipAssigned(let position, _), .membershipRemoved(let position): .membership(position)
    case .inThread(_, let effect): effect.target
    }
  }

  /// The messages that the effect removes together with their acknowledgements (R16): those after `after`, up to and
  /// including `through`. Nil: none. An effect on a thread has none, because replies have no acknowledgements.
  package var removedMessages: (after: SequenceNumber, through: SequenceNumber)? {
    switch self {
    case .messageDeleted(let sequence, _): (SequenceNumber(sequence.rawValue - 1), sequence)
    case .truncated(let through, _): (.zero, through)
    case .channelAssigned, .rowAssigned, .optionsChanged, .rowLeft, .roleAssigned, .readMoved, .deliveredMoved,
      .deliveredByPushAck, .markerAssigned, .muteAssigned, .unreadFlagAssigned, .messageAssigned, .acknowledged,
      .acknowledgementForgotten, .acknowledgedThrough, .stepsSealed, .stepTailCut, .stepsTrimmed,
      .stepTailAssigned, .messageCountsAssigned, .segmentFlagsAssigned, .inThread, .deletionBegun,
      .channelDeleted, .rowErased, .senderErased, .mentionsAssigned, .stepsImported, .membershipAssigned,
      .membershipRemoved:
      nil
    }
  }

  /// The page this effect is addressed to.
  package var page: PageID {
    if case .inThread(let parent, let effect) = self { return effect.page.inThread(parent) }
    switch target {
    case .head: return .head
    case .row(let row): return .rows(row.rawValue / PageID.rowsPerPage)
    case .stepState(let rowPage): return .rows(rowPage)
    case .stepSegment(let rowPage, let segment): return .steps(rowPage, segment)
    case .message(let sequence): return .segment((sequence.rawValue - 1) / PageID.messagesPerSegment)
    case .acknowledgement(let sequence): return .acknowledgements(sequence)
    case .membership(let position): return .memberships(position / PageID.membershipsPerPage)
    }
  }

  // MARK: Times

  /// Return the effect with its times clamped, and the category that a repair counts it in; nil if it has no times.
  func clamped(by repair: TimeRepair) throws(TimeRepair.Damage) -> (ChannelEffect, TimeRepair.Kind?) {
    switch self {
    case .channelAssigned(let cid, let created, let own):
      return (.channelAssigned(cid: cid, created: repair.clamped(created), own: own), .channels)
    case .optionsChanged(let at):
      return (.optionsChanged(at: repair.clamped(at)), .channels)
    case .truncated(let through, let at):
      return (.truncated(through: through, at: repair.clamped(at)), .channels)
    case .rowAssigned(let row, let record):
      return (.rowAssigned(row, repair.clamped(record)), .members)
    case .rowLeft(let row, let at):
      return (.rowLeft(row, at: repair.clamped(at)), .members)
    case .rowErased(let row, let at):
      return (.rowErased(row, at: repair.clamped(at)), .members)
    case .readMoved(let row, let to, let at, let isHidden):
      return (.readMoved(row, to: to, at: repair.clamped(at), isHidden: isHidden), .positions)
    case .deliveredMoved(let row, let to, let at, let isHidden):
      return (.deliveredMoved(row, to: to, at: repair.clamped(at), isHidden: isHidden), .positions)
    case .deliveredByPushAck(let row, let to, let at, let acked, let isHidden):
      // Keep the time of the push ack only if it is before the move's own time.
      guard at <= repair.limit || acked < repair.limit else {
        return (.deliveredMoved(row, to: to, at: repair.limit, isHidden: isHidden), .positions)
      }
      return (.deliveredByPushAck(row, to: to, at: repair.clamped(at), ackedAt: acked, isHidden: isHidden), .positions)
    case .markerAssigned(let row, let marker, let epoch, let at):
      return (.markerAssigned(row, marker: marker, epoch: epoch, at: repair.clamped(at)), .positions)
    case .unreadFlagAssigned(let row, let isSet, let epoch, let at):
      return (.unreadFlagAssigned(row, isSet: isSet, epoch: epoch, at: repair.clamped(at)), .positions)
    case .stepsSealed(let rowPage, let segment, let bytes):
      let steps = try repair.clamped(steps: bytes)
      return (.stepsSealed(rowPage: rowPage, segment: segment, bytes: steps), .steps)
    case .stepsImported(let rowPage, let bytes):
      return (.stepsImported(rowPage: rowPage, bytes: try repair.clamped(steps: bytes)), .steps)
    case .stepTailCut(let rowPage, let end): return (.stepTailCut(rowPage: rowPage, end: repair.clamped(end)), .steps)
    case .stepTailAssigned(let rowPage, var record):
      record.ends = record.ends.map { repair.clamped($0) }
      record.tail = try repair.clamped(steps: record.tail)
      return (.stepTailAssigned(rowPage: rowPage, record), .steps)
    case .messageAssigned(let sequence, let record):
      return (.messageAssigned(sequence, repair.clamped(record)), .messages)
    case .messageDeleted(let sequence, let at): return (.messageDeleted(sequence, at: repair.clamped(at)), .messages)
    case .acknowledged(let sequence, var record):
      record.at = repair.clamped(record.at)
      return (.acknowledged(sequence, record), .acknowledgements)
    case .membershipAssigned(let position, let membership):
      return (.membershipAssigned(position: position, repair.clamped(membership)), .memberships)
    case .inThread(let parent, let effect):
      let (repaired, kind) = try effect.clamped(by: repair)
      return (.inThread(parent, repaired), kind)
    case .roleAssigned, .muteAssigned, .acknowledgementForgotten, .acknowledgedThrough, .stepsTrimmed,
      .deletionBegun, .channelDeleted, .senderErased, .messageCountsAssigned, .segmentFlagsAssigned,
      .mentionsAssigned, .membershipRemoved:
      return (self, nil)
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
