/// One incarnation of a channel in memory: its read vector and its messages. The whole state follows from the assigned
/// effects.
///
/// Not copyable, like all tables of a shard: reading a channel in place is free, while a copy would cost each mark a
/// reference count for each column.
package struct ChannelState: ~Copyable, Sendable {
  package let number: ChannelNumber
  /// The bytes of `type:id`.
  package let cid: [UInt8]
  package private(set) var created: Timestamp
  /// Options set on the channel itself; the others come from its type.
  package private(set) var ownOptions: OptionPatch
  /// The index of its type's record in the shard; ``noType`` for a user's channel index, which has no type.
  let type: Int
  /// For a thread: its parent message (R15); zero for a channel.
  package let parent: SequenceNumber
  /// Members and senders.
  var users = UserTable()
  /// The settings change count that the rows reflect (``ShardState/refresh(_:)``).
  var settingsSeen: UInt64 = 0
  package internal(set) var rows = ReadVector()
  package internal(set) var messages = MessageTable()
  package internal(set) var acknowledgementTable = AcknowledgementTable()
  package internal(set) var steps = StepTable()
  package internal(set) var threads = ThreadTable()
  /// When its own options last changed; none: never since creation.
  package private(set) var optionsChangedAt = Timestamp.none
  /// The channel is being deleted (R16) and can no longer be found.
  package internal(set) var isBeingDeleted = false
  /// For a user's index: the user's channels.
  package internal(set) var memberships = MembershipTable()
  private let passing = PassedByAddress()

  init(
    number: ChannelNumber,
    cid: [UInt8],
    created: Timestamp,
    ownOptions: OptionPatch,
    type: Int,
    parent: SequenceNumber = .zero
  ) {
    self.number = number
    self.cid = cid
    self.created = created
    self.ownOptions = ownOptions
    self.type = type
    self.parent = parent
    rows = ReadVector(isOfThread: parent != .zero)
  }

  /// Return the content of a free slot.
  static func vacant() -> ChannelState {
    ChannelState(number: vacantNumber, cid: [], created: .none, ownOptions: OptionPatch(), type: 0)
  }

  /// No channel has the number 0.
  static let vacantNumber = ChannelNumber(0)

  static let noType = -1

  /// Whether this is a user's channel index (R13, R14), kept under the user's ``IndexName``. An index uses no other
  /// column of a channel.
  package var isIndex: Bool { type == Self.noType }

  /// Call `body` with the id of the index's user.
  package func withIndexOwner<Result>(_ body: (RawSpan) -> Result) -> Result {
    body(cid.span.bytes.extracting(droppingFirst: IndexName.userOffset(cid)))
  }

  /// The channel's approximate size in memory, in bytes; accurate enough to enforce a budget.
  package var byteCount: Int { MemoryLayout<ChannelState>.stride + heapByteCount }

  /// The same without the struct itself. A thread shares its cid with the channel.
  var heapByteCount: Int {
    (isThread ? 0 : heapBytes(cid)) + users.byteCount + rows.byteCount + messages.byteCount
      + acknowledgementTable.byteCount + steps.byteCount + threads.byteCount + memberships.byteCount
  }

  /// Return the row of a current member. Inlined, because every mark calls it.
  @inline(__always)
  package func row(of user: RawSpan) -> MemberOrdinal? { users.find(user).flatMap { rows.row(of: $0) } }

  /// Return the row of a current member.
  func row(of user: String) -> MemberOrdinal? {
    var user = user
    return user.withUTF8 { row(of: $0.span.bytes) }
  }

  /// Set what a user hides from others, if the user is a member (R7).
  mutating func hide(_ user: RawSpan, read: Bool, delivered: Bool) {
    guard let row = row(of: user) else { return }
    rows.hide(row, read: read, delivered: delivered)
  }

  func hasCID(_ other: RawSpan) -> Bool { cid.span.bytes.isEqual(to: other) }

  mutating func assignHead(created: Timestamp, ownOptions: OptionPatch) {
    self.created = created
    self.ownOptions = ownOptions
  }

  // MARK: Row views

  /// Return the member's own row: own positions and unread count, regardless of what others may see (R2, R4, R8, R18).
  ///
  /// - Parameter hiddenThrough: messages up to here are hidden from the member (R6).
  func ownRow(_ row: MemberOrdinal, hiddenThrough: SequenceNumber = .zero) -> ShownRow {
    let own = rows.ownPosition(row)
    let read = rows.read[row]
    let delivered = rows.delivered[row]
    let readTime = self.readTime(row)
    var shown = ShownRow(
      row: row,
      joined: rows.joined(row),
      lastRead: readTime,
      lastReadSequence: own,
      lastDelivered: delivered >= read ? rows.deliveredShownAt(row) : readTime,
      lastDeliveredSequence: max(delivered, read),
      own: ownDetails(row, isOwn: true)
    )
    shown.idsHiddenThrough = hiddenThrough
    return shown
  }

  /// Return a row as other members see it (R3, R4, R7, R8). It has the watermarks, or the own position where
  /// `mark_unread` is `public`, of the kinds that the channel and the member show. The shown delivered position is at
  /// least the read watermark, if that may be shown. A hidden kind shows the position at the join. A thread member whom
  /// others cannot see has an empty row.
  ///
  /// - Parameter settings: the shard's, as copied into the rows.
  func shownRow(
    _ row: MemberOrdinal,
    options: ChannelTypeOptions,
    settings: borrowing UserSettingsTable,
    withOwnDetails: Bool
  ) -> ShownRow {
    if rows.isUnseen(row, options) { return .unseen(row, own: withOwnDetails ? ownDetails(row) : nil) }
    var since = UserSettingsTable.ShownSince()
    if rows.readIsHidden(row) || rows.deliveredIsHidden(row) {
      since = settings.shownSince(users.id(rows.user(row)))
    }
    let joined = rows.joinedAt(row)
    var read = positionOfJoining(row)
    var reached = read
    var readTime = joined
    if rows.showsRead(row, options) {
      reached = rows.read[row]
      read = options.markUnread == .public ? rows.ownPosition(row) : reached
      readTime = rows.readIsHidden(row) ? since.read.or(joined) : self.readTime(row)
    }
    var delivered = SequenceNumber.zero
    var deliveredTime = Timestamp.none
    if rows.showsDelivered(row, options) {
      delivered = rows.delivered[row]
      deliveredTime =
        rows.deliveredIsHidden(row)
        ? since.delivered.or(joined) : rows.deliveredShownAt(row)
    }
    if delivered < reached { deliveredTime = readTime }
    return ShownRow(
      row: row,
      joined: rows.joined(row),
      lastRead: readTime,
      lastReadSequence: read,
      lastDelivered: max(delivered, reached) == .zero ? .none : deliveredTime,
      lastDeliveredSequence: max(delivered, reached),
      own: withOwnDetails ? ownDetails(row) : nil
    )
  }

  /// Return a member's position at the join (R6); in a thread always before the first reply.
  package func positionOfJoining(_ row: MemberOrdinal) -> SequenceNumber {
    isThread || rows.hidesHistory(row) ? .zero : rows.joined(row)
  }

  private func readTime(_ row: MemberOrdinal) -> Timestamp {
    rows.read.time(row).or(rows.joinedAt(row))
  }

  /// - Parameter isOwn: the viewer is the member, not a server that looks at others' rows.
  private func ownDetails(_ row: MemberOrdinal, isOwn: Bool = false) -> ShownRow.OwnDetails {
    let floor = unreadFloor(row)
    let unread = unreadMessages(row, after: floor)
    let first = unread == 0 ? nil : messages.firstCountable(after: floor, notSentBy: rows.user(row))
    return ShownRow.OwnDetails(
      unreadMessages: unread,
      firstUnread: first ?? .zero,
      unreadEpoch: rows.epoch(row),
      isOwn: isOwn,
      isFlaggedUnread: isOwn && rows.isFlaggedUnread(row),
      unreadMentions: isOwn ? unreadMentions(row, after: floor) : 0
    )
  }

  /// Return the number of messages that the member has not read (R14).
  func unreadMessages(_ row: MemberOrdinal) -> UInt32 { unreadMessages(row, after: unreadFloor(row)) }

  /// Return the number of unread messages that mention the member, including replies in the channel's threads (R14).
  func unreadMentions(_ row: MemberOrdinal) -> UInt32 { unreadMentions(row, after: unreadFloor(row)) }

  @inline(__always)
  private func unreadMentions(_ row: MemberOrdinal, after floor: SequenceNumber) -> UInt32 {
    let own = messages.hasMentions ? mentionsInMessages(row, after: floor) : 0
    return threads.isEmpty ? own : own + unreadMentionsInThreads(row)
  }

  private func mentionsInMessages(_ row: MemberOrdinal, after floor: SequenceNumber) -> UInt32 {
    messages.mentions(
      of: row,
      rows.user(row),
      joined: isThread ? rows.bounds.unreadAfter(row) : rows.joined(row),
      after: floor
    )
  }

  @inline(__always)
  private func unreadMessages(_ row: MemberOrdinal, after floor: SequenceNumber) -> UInt32 {
    let unread = messages.countable(through: messages.newest) - messages.countable(through: floor)
    guard unread > 0, messages.tracksOwn else { return unread }
    return unread - messages.countable(after: floor, sentBy: rows.user(row))
  }

  /// Return the position up to which messages do not count as unread for this member (R6, R15). In a thread, an unread
  /// marker overrides this, even before the reply from which the member takes part.
  private func unreadFloor(_ row: MemberOrdinal) -> SequenceNumber {
    let own = rows.ownPosition(row)
    if isThread {
      let floor = rows.bounds.unreadAfter(row)
      return rows.marker(row) == nil ? max(own, floor) : own
    }
    return rows.hidesHistory(row) ? max(own, rows.joined(row)) : own
  }

  /// Return the rows of the members that a message mentions.
  func resolve(_ mentions: NewMessage.Mentions, sender: String) -> MessageMentions {
    switch mentions {
    case .nobody: return .nobody
    case .all: return .all
    case .users(let users):
      let rows = Set(users.filter { !$0.isExactly(sender) }.compactMap { row(of: $0)?.rawValue })
      return rows.isEmpty ? .nobody : .rows(rows.sorted())
    }
  }

  // MARK: Moving a row

  /// Decide mark-read for one row (R2).
  func decideRead(
    _ row: MemberOrdinal,
    to sequence: SequenceNumber,
    epoch: UInt32?,
    at time: Timestamp,
    into effects: inout [Effect]
  ) {
    let read = max(rows.read[row], sequence)
    if read > rows.read[row] {
      effects.append(.channel(number, .readMoved(row, to: read, at: time, isHidden: rows.hidesRead(row))))
    }
    decideUnflag(row, epoch: epoch, at: time, into: &effects)
    guard let marker = rows.marker(row), !isStale(epoch, row) else { return }
    let moved = max(marker, sequence)
    // The marker is cleared once it reaches the watermark.
    let left = moved >= read ? nil : moved
    if left != marker {
      effects.append(
        .channel(number, .markerAssigned(row, marker: left, epoch: rows.epoch(row), at: time))
      )
    }
  }

  /// Decide mark-unread for one row (R4); do nothing if the message is above the watermark already.
  func decideUnread(
    _ row: MemberOrdinal,
    from sequence: SequenceNumber,
    epoch: UInt32?,
    at time: Timestamp,
    into effects: inout [Effect]
  ) {
    let marker = SequenceNumber(sequence.rawValue - 1)
    guard sequence <= rows.read[row], rows.marker(row) != marker, !isStale(epoch, row) else {
      return
    }
    let epoch = rows.markers.raisedEpoch(row)
    effects.append(.channel(number, .markerAssigned(row, marker: marker, epoch: epoch, at: time)))
  }

  /// Flag the channel unread as a whole (R4); do nothing if the flag is set already.
  func decideFlagUnread(
    _ row: MemberOrdinal,
    epoch: UInt32?,
    at time: Timestamp,
    into effects: inout [Effect]
  ) {
    guard !rows.isFlaggedUnread(row), !isStale(epoch, row) else { return }
    let epoch = rows.markers.raisedEpoch(row)
    effects.append(.channel(number, .unreadFlagAssigned(row, isSet: true, epoch: epoch, at: time)))
  }

  /// Clear the unread flag, as any read or send in the channel or one of its threads does, even one that moves nothing
  /// (R4).
  func decideUnflag(
    _ row: MemberOrdinal,
    epoch: UInt32?,
    at time: Timestamp,
    into effects: inout [Effect]
  ) {
    guard rows.isFlaggedUnread(row), !isStale(epoch, row) else { return }
    effects.append(.channel(number, .unreadFlagAssigned(row, isSet: false, epoch: rows.epoch(row), at: time)))
  }

  /// Return whether a read or unread carries an older epoch than the row's: its device has not seen the latest choice
  /// (R4).
  func isStale(_ epoch: UInt32?, _ row: MemberOrdinal) -> Bool { rows.markers.isStale(epoch, row) }

  // MARK: Read state

  /// Return rows newest first, below `cursor`. On the first page (no cursor) the viewer's own row comes first and is
  /// not repeated (R12). It is the only row if others are not shown (R10).
  ///
  /// - Returns: the rows, and the cursor of the next page if there is one.
  func readState(
    _ viewer: ChannelViewer,
    limit: Int,
    cursor: UInt32?,
    options: ChannelTypeOptions,
    settings: borrowing UserSettingsTable
  ) -> (rows: [ShownRow], next: UInt32?) {
    var shown: [ShownRow] = []
    let showsOthers = options.countsVisibleTo == .members || viewer.isUnrestricted
    shown.reserveCapacity(showsOthers ? min(limit, rows.activeCount) : 1)
    if cursor == nil, let own = viewer.row {
      shown.append(ownRow(own, hiddenThrough: viewer.hiddenThrough))
    }
    guard showsOthers else { return (shown, nil) }
    var below = min(cursor.map(Int.init) ?? rows.rowCount, rows.rowCount)
    while below > 0 {
      let row = MemberOrdinal(UInt32(below - 1))
      if rows.isActive(row), row != viewer.row {
        if shown.count == limit { return (shown, UInt32(below)) }
        shown.append(othersRow(row, to: viewer, options: options, settings: settings))
      }
      below -= 1
    }
    return (shown, nil)
  }

  /// Return another member's row as a viewer sees it (R4, R6, R7, R8).
  func othersRow(
    _ row: MemberOrdinal,
    to viewer: ChannelViewer,
    options: ChannelTypeOptions,
    settings: borrowing UserSettingsTable
  ) -> ShownRow {
    let shown = shownRow(row, options: options, settings: settings, withOwnDetails: viewer.seesOwnDetails)
    return viewer.hiddenThrough == .zero
      ? shown : shown.seen(since: viewer.hiddenThrough, at: viewer.joinedAt)
  }

  // MARK: Assignment

  /// Assign an effect addressed to one of this channel's pages.
  mutating func assign(_ effect: ChannelEffect) {
    switch effect {
    case .channelAssigned(_, let created, let own):
      assignHead(created: created, ownOptions: own)
    case .rowAssigned(let row, let record):
      let user = users.intern(record.user)
      users.retain(user)
      if Int(row.rawValue) < rows.rowCount { users.release(rows.user(row)) }
      rows.assign(row, record, user: user)
      if let marker = record.marker { messages.trackOwn(rows.user(row), after: marker) }
    case .optionsChanged(let time):
      optionsChangedAt = time
    case .rowLeft(let row, let time):
      rows.leave(row, at: time)
    case .roleAssigned(let row, let role):
      rows.assignRole(row, role)
    case .readMoved(let row, let sequence, let time, let isHidden):
      rows.moveRead(row, to: sequence, at: time, isHidden: isHidden)
      steps.append(
        .read,
        row,
        sequence,
        at: time,
        isHidden: isHidden,
        number: rows.read.stepCount(row)
      )
    case .deliveredMoved(let row, let sequence, let time, let isHidden):
      rows.moveDelivered(row, to: sequence, at: time, isHidden: isHidden)
      steps.append(
        .delivered,
        row,
        sequence,
        at: time,
        isHidden: isHidden,
        number: rows.delivered.stepCount(row)
      )
    case .deliveredAcked(let row, let sequence, let time, let acked, let isHidden):
      rows.moveDelivered(row, to: sequence, at: time, isHidden: isHidden)
      rows.assignAcked(row, at: acked)
      steps.append(
        .delivered,
        row,
        sequence,
        at: time,
        acked: acked,
        isHidden: isHidden,
        number: rows.delivered.stepCount(row)
      )
    case .markerAssigned(let row, let marker, let epoch, let time):
      rows.assignMarker(row, marker, epoch: epoch, at: time)
      if let marker { messages.trackOwn(rows.user(row), after: marker) }
    case .muteAssigned(let row, let isMuted):
      rows.assignMuted(row, isMuted)
    case .unreadFlagAssigned(let row, let isSet, let epoch, let time):
      rows.assignFlag(row, isSet: isSet, epoch: epoch, at: time)
    case .messageAssigned(let sequence, let record):
      assignMessage(sequence, record)
      if record.flags.contains(.requestsAcknowledgement) {
        assignAcknowledgementRequest(of: sequence, expiresAt: record.acknowledgementExpiresAt)
      }
    case .messageDeleted(let sequence, let time):
      delete(sequence, at: time)
    case .acknowledged(let sequence, let acknowledgement):
      if !isGone(sequence) { acknowledgementTable.assign(sequence, acknowledgement) }
    case .acknowledgementForgotten(let sequence, let row):
      acknowledgementTable.forget(sequence, row)
    case .acknowledgedThrough(let row, let sequence):
      rows.acknowledge(row, through: sequence)
    case .stepsSealed(let rowPage, let segment, let bytes):
      steps.seal(rowPage, segment, bytes)
    case .stepTailCut(let rowPage, let end):
      steps.sealTail(rowPage, end: end)
    case .stepsTrimmed(let rowPage, let first):
      steps.trim(rowPage, before: first)
    case .stepTailAssigned(let rowPage, let record):
      steps.assign(rowPage, record)
    case .inThread(let parent, let effect):
      assign(effect, inThread: parent)
    case .truncated(let sequence, let time):
      truncate(through: sequence, at: time)
    case .deletionBegun:
      isBeingDeleted = true
    case .rowErased(let row, let time):
      eraseRow(row, at: time)
    case .senderErased(let sequence):
      eraseSender(sequence)
    case .membershipAssigned(let position, let membership):
      memberships.assign(position, membership)
    case .membershipRemoved(let position):
      memberships.remove(position)
    case .messageCountsAssigned, .segmentFlagsAssigned:
      // Only for readers of the head page alone; in memory the messages determine both.
      break
    case .channelDeleted:
      preconditionFailure("the shard removes the channel")
    }
  }

  // MARK: Pages

  /// Return the effects that reproduce a page's current state; empty for an empty page.
  func effects(of page: PageID) -> [Effect] {
    switch page {
    case .head:
      let cid = String(decoding: cid, as: UTF8.self)
      var effects = [Effect.channel(number, .channelAssigned(cid: cid, created: created, own: ownOptions))]
      if optionsChangedAt != .none { effects.append(.channel(number, .optionsChanged(at: optionsChangedAt))) }
      if messages.truncatedThrough > .zero {
        effects.append(
          .channel(number, .truncated(through: messages.truncatedThrough, at: messages.deletions.truncatedAt))
        )
      }
      if isBeingDeleted { effects.append(.channel(number, .deletionBegun)) }
      if messages.newest > .zero {
        let counts = messages.countablePerSegment
        effects.append(.channel(number, .messageCountsAssigned(newest: messages.newest, counts)))
        let flags = messages.segmentFlags
        if !flags.isEmpty { effects.append(.channel(number, .segmentFlagsAssigned(flags))) }
      }
      return effects
    case .rows(let page):
      let first = Int(page * PageID.rowsPerPage)
      let end = min(first + Int(PageID.rowsPerPage), rows.rowCount)
      var effects: [Effect] = []
      for position in first..<max(first, end) {
        let row = MemberOrdinal(UInt32(position))
        effects.append(.channel(number, .rowAssigned(row, record(of: row))))
      }
      if let record = steps.record(of: page) {
        effects.append(.channel(number, .stepTailAssigned(rowPage: page, record)))
      }
      return effects
    case .segment(let page):
      guard Int(page) < messages.segmentCount else { return [] }
      let first = page * PageID.messagesPerSegment + 1
      let last = min(first + PageID.messagesPerSegment - 1, messages.newest.rawValue)
      var effects: [Effect] = []
      for raw in first...last {
        let sequence = SequenceNumber(raw)
        effects.append(.channel(number, .messageAssigned(sequence, record(of: sequence))))
      }
      return effects
    case .acknowledgements(let sequence):
      return acknowledgementTable.acknowledgements(of: sequence).map {
        .channel(number, .acknowledged(sequence, $0))
      }
    case .steps(let rowPage, let segment):
      guard let bytes = steps.segment(rowPage, segment) else { return [] }
      return [.channel(number, .stepsSealed(rowPage: rowPage, segment: segment, bytes: bytes))]
    case .threadRows(let parent, let page):
      return effects(of: .rows(page), inThread: parent)
    case .threadSegment(let parent, let segment):
      return effects(of: .segment(segment), inThread: parent)
    case .memberships(let page):
      return memberships.effects(of: page, number: number)
    default: preconditionFailure("page \(page) belongs to the shard")
    }
  }

  func record(of row: MemberOrdinal) -> RowRecord {
    return RowRecord(
      user: users.text(rows.user(row)),
      role: rows.role(row) ?? "",
      hasLeft: !rows.isActive(row),
      hidesHistory: rows.hidesHistory(row),
      joined: rows.joined(row),
      joinedAt: rows.joinedAt(row),
      read: rows.read[row],
      readAt: rows.read.time(row),
      delivered: rows.delivered[row],
      deliveredAt: rows.delivered.time(row),
      ackedAt: rows.ackedAt(row),
      marker: rows.marker(row),
      markedAt: rows.markedAt(row),
      unreadEpoch: rows.epoch(row),
      readIsHidden: rows.readIsHidden(row),
      deliveredIsHidden: rows.deliveredIsHidden(row),
      readStepCount: rows.read.stepCount(row),
      deliveredStepCount: rows.delivered.stepCount(row),
      acknowledgedThrough: rows.acknowledgedThrough(row),
      joinedByReading: rows.joinedByReading(row),
      // Kept for a row that was left too, because its counts start there.
      countedAfter: isThread ? unlessJoined(rows.bounds.countedAfter(row), row) : nil,
      unreadAfter: isThread && rows.isActive(row) ? unlessJoined(rows.bounds.unreadAfter(row), row) : nil,
      isMuted: rows.isMuted(row),
      isFlaggedUnread: rows.isFlaggedUnread(row),
      flaggedAt: rows.flaggedAt(row)
    )
  }

  /// Return a thread's bound for a row; nil: it is the position of the join.
  private func unlessJoined(_ bound: SequenceNumber, _ row: MemberOrdinal) -> SequenceNumber? {
    bound == rows.joined(row) ? nil : bound
  }

  private func record(of sequence: SequenceNumber) -> MessageRecord {
    let registered = messages.registeredAt(sequence)
    let created = messages.createdAt(sequence)
    return MessageRecord(
      id: messages.text(sequence),
      sender: users.text(messages.sender(sequence)),
      flags: messages.flags(sequence),
      registeredAt: registered,
      createdAt: created == registered ? .none : created,
      acknowledgementExpiresAt: acknowledgementTable.expiresAt(sequence),
      mentions: messages.mentions.mentions(sequence)
    )
  }
}
