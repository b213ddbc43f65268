/// One incarnation of a channel in memory: its read vector and its messages. Everything here follows from the effects
/// that were assigned to it.
///
/// Not copyable, like all tables of a shard: looking at a channel in place costs nothing, a copy would be a reference
/// count for each of its columns, for every mark.
package struct ChannelState: ~Copyable, Sendable {
  package let number: ChannelNumber
  /// `type:id`, its bytes.
  package let cid: [UInt8]
  package private(set) var created: Timestamp
  /// What was set on the channel itself; the rest comes from its type.
  package private(set) var ownOptions: OptionPatch
  /// Where its type's record stands in the shard; ``noType`` for a user's index of channels, which is of none.
  let type: Int
  /// The message under which this is a thread (R15); zero for a channel.
  package let parent: SequenceNumber
  /// Members and senders.
  var users = UserTable()
  /// Which changes of users' settings the rows show (``ShardState/refresh(_:)``).
  var settingsSeen: UInt64 = 0
  package internal(set) var rows = ReadVector()
  package internal(set) var messages = MessageTable()
  package internal(set) var receipts = ReceiptTable()
  package internal(set) var steps = StepTable()
  package internal(set) var threads = ThreadTable()
  /// When its own options were changed last; none: never since it was created.
  package private(set) var optionsChangedAt = Timestamp.none
  /// When messages were last truncated (R16); none: never.
  package internal(set) var truncatedAt = Timestamp.none
  /// It is being deleted (R16): nobody finds it any more.
  package internal(set) var isEnding = false
  /// Where it is a user's index: their channels.
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

  /// What stands in a slot that is free.
  static func vacant() -> ChannelState {
    ChannelState(number: vacantNumber, cid: [], created: .none, ownOptions: OptionPatch(), type: 0)
  }

  /// No channel has the number 0.
  static let vacantNumber = ChannelNumber(0)

  static let noType = -1

  /// Whether it is a user's index of channels (R13, R14), kept under their ``IndexName``; it has nothing else that a
  /// channel has.
  package var isIndex: Bool { type == Self.noType }

  /// The user whose index it is.
  package func withIndexOwner<Result>(_ body: (RawSpan) -> Result) -> Result {
    body(cid.span.bytes.extracting(droppingFirst: IndexName.userOffset(cid)))
  }

  /// What the channel occupies in memory, in bytes, near enough to hold a budget by.
  package var byteCount: Int { MemoryLayout<ChannelState>.stride + heapByteCount }

  /// The same without its own place. A thread has its cid from the channel.
  var heapByteCount: Int {
    (isThread ? 0 : heapBytes(cid)) + users.byteCount + rows.byteCount + messages.byteCount
      + receipts.byteCount + steps.byteCount + threads.byteCount + memberships.byteCount
  }

  /// The row of a user who is a member now. Inlined: a function of its own is given a copy of the whole struct, for
  /// every mark.
  @inline(__always)
  package func row(of user: RawSpan) -> MemberOrdinal? { users.find(user).flatMap { rows.row(of: $0) } }

  /// The row of a user who is a member now.
  func row(of user: String) -> MemberOrdinal? {
    var user = user
    return user.withUTF8 { row(of: $0.span.bytes) }
  }

  /// Notes what a user hides from others, where they are a member (R7).
  mutating func hide(_ user: RawSpan, read: Bool, delivered: Bool) {
    guard let row = row(of: user) else { return }
    rows.hide(row, read: read, delivered: delivered)
  }

  func hasCID(_ other: RawSpan) -> Bool { cid.span.bytes.isEqual(to: other) }

  mutating func assignHead(created: Timestamp, ownOptions: OptionPatch) {
    self.created = created
    self.ownOptions = ownOptions
  }

  // MARK: A row as it is seen

  /// The member's own row: own positions and unread count, whatever others may see (R2, R4, R8, R18).
  ///
  /// - Parameter hiddenThrough: messages up to here are hidden from the member (R6).
  func ownRow(_ row: MemberOrdinal, hiddenThrough: SequenceNumber = .zero) -> RowAnswer {
    let position = Int(row.rawValue)
    let own = rows.ownPosition(row)
    let read = SequenceNumber(rows.read[position])
    let delivered = SequenceNumber(rows.delivered[position])
    let readTime = self.readTime(position)
    var answer = RowAnswer(
      row: row,
      joined: SequenceNumber(rows.joined[position]),
      lastRead: readTime,
      lastReadSequence: own,
      lastDelivered: delivered >= read ? rows.deliveredShownAt(row) : readTime,
      lastDeliveredSequence: max(delivered, read),
      own: ownDetails(row, isOwn: true)
    )
    answer.unnamedThrough = hiddenThrough
    return answer
  }

  /// The row as everybody else sees it: watermarks, or own positions where `mark_unread` is `public`, of the kinds that
  /// the channel and the member show (R3, R4, R7, R8). What was delivered is at least the read watermark, where that
  /// may be shown. A kind that either hides stands where joining put it. Of who is in a thread unseen there is nothing.
  ///
  /// - Parameter settings: the shard's, as taken over by the rows.
  func shownRow(
    _ row: MemberOrdinal,
    options: ChannelTypeOptions,
    settings: borrowing UserSettingsTable,
    withOwnDetails: Bool
  ) -> RowAnswer {
    if rows.isUnseen(row, options) { return .unseen(row, own: withOwnDetails ? ownDetails(row) : nil) }
    let position = Int(row.rawValue)
    var since = UserSettingsTable.ShownSince()
    if rows.readIsHidden(row) || rows.deliveredIsHidden(row) {
      since = settings.shownSince(users.id(rows.user(row)))
    }
    let joined = Timestamp(milliseconds: rows.joinedAt[position])
    var read = positionOfJoining(row)
    var reached = read
    var readTime = joined
    if rows.showsRead(row, options) {
      reached = SequenceNumber(rows.read[position])
      read = options.markUnread == .public ? rows.ownPosition(row) : reached
      readTime = rows.readIsHidden(row) ? since.read.or(joined) : self.readTime(position)
    }
    var delivered = SequenceNumber.zero
    var deliveredTime = Timestamp.none
    if rows.showsDelivered(row, options) {
      delivered = SequenceNumber(rows.delivered[position])
      deliveredTime =
        rows.deliveredIsHidden(row)
        ? since.delivered.or(joined) : rows.deliveredShownAt(row)
    }
    if delivered < reached { deliveredTime = readTime }
    return RowAnswer(
      row: row,
      joined: SequenceNumber(rows.joined[position]),
      lastRead: readTime,
      lastReadSequence: read,
      lastDelivered: max(delivered, reached) == .zero ? .none : deliveredTime,
      lastDeliveredSequence: max(delivered, reached),
      own: withOwnDetails ? ownDetails(row) : nil
    )
  }

  /// Where joining has put a member (R6): in a thread before its first reply, whoever joins it.
  func positionOfJoining(_ row: MemberOrdinal) -> SequenceNumber {
    isThread || rows.hidesHistory(row) ? .zero : SequenceNumber(rows.joined[Int(row.rawValue)])
  }

  private func readTime(_ position: Int) -> Timestamp {
    Timestamp(milliseconds: rows.readAt[position] == 0 ? rows.joinedAt[position] : rows.readAt[position])
  }

  /// - Parameter isOwn: for the member's own eyes, not a server's who looks at others' rows.
  private func ownDetails(_ row: MemberOrdinal, isOwn: Bool = false) -> RowAnswer.OwnDetails {
    let position = Int(row.rawValue)
    let floor = unreadFloor(row)
    let unread = unreadMessages(row, after: floor)
    let first = unread == 0 ? nil : messages.firstCountable(after: floor, notSentBy: rows.user(row))
    return RowAnswer.OwnDetails(
      unreadMessages: unread,
      firstUnread: first ?? .zero,
      unreadEpoch: rows.epochs[position],
      isOwn: isOwn,
      isFlaggedUnread: isOwn && rows.isFlaggedUnread(row),
      unreadMentions: isOwn ? unreadMentions(row, after: floor) : 0
    )
  }

  /// How many messages the member has not read (R14).
  func unreadMessages(_ row: MemberOrdinal) -> UInt32 { unreadMessages(row, after: unreadFloor(row)) }

  /// How many messages mention the member that they have not read, those of the channel's threads among them (R14).
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
      joined: SequenceNumber(isThread ? rows.unreadAfter[Int(row.rawValue)] : rows.joined[Int(row.rawValue)]),
      after: floor
    )
  }

  @inline(__always)
  private func unreadMessages(_ row: MemberOrdinal, after floor: SequenceNumber) -> UInt32 {
    let unread = messages.countable(through: messages.newest) - messages.countable(through: floor)
    guard unread > 0, messages.tracksOwn else { return unread }
    return unread - messages.countable(after: floor, sentBy: rows.user(row))
  }

  /// Messages up to here do not count as unread for this member (R6, R15): what they marked unread themselves in a
  /// thread does, though they took part later.
  private func unreadFloor(_ row: MemberOrdinal) -> SequenceNumber {
    let own = rows.ownPosition(row)
    if isThread {
      let floor = SequenceNumber(rows.unreadAfter[Int(row.rawValue)])
      return rows.marker(row) == nil ? max(own, floor) : own
    }
    return rows.hidesHistory(row) ? max(own, SequenceNumber(rows.joined[Int(row.rawValue)])) : own
  }

  /// The rows of those whom a message mentions, as far as they are members.
  func resolve(_ mentions: ShardState.NewMentions, sender: String) -> MessageMentions {
    switch mentions {
    case .nobody: return .nobody
    case .all: return .all
    case .users(let users):
      let rows = Set(users.filter { !$0.isExactly(sender) }.compactMap { row(of: $0)?.rawValue })
      return rows.isEmpty ? .nobody : .rows(rows.sorted())
    }
  }

  // MARK: Moving a row

  /// Mark-read's part for one row (R2).
  func decideRead(
    _ row: MemberOrdinal,
    to sequence: SequenceNumber,
    epoch: UInt32?,
    at time: Timestamp,
    into effects: inout [Effect]
  ) {
    let position = Int(row.rawValue)
    let read = max(rows.read[position], sequence.rawValue)
    if read > rows.read[position] {
      let isHidden = rows.hidesRead(row)
      effects.append(.readMoved(number, row, to: SequenceNumber(read), at: time, isHidden: isHidden))
    }
    decideUnflag(row, epoch: epoch, at: time, into: &effects)
    let marker = rows.markers[position]
    guard marker != ReadVector.noMarker, !isStale(epoch, row) else { return }
    let moved = max(marker, sequence.rawValue)
    // Gone once it reaches the watermark.
    let left = moved >= read ? nil : SequenceNumber(moved)
    if left?.rawValue != marker {
      effects.append(
        .markerAssigned(number, row, marker: left, epoch: rows.epochs[position], at: time)
      )
    }
  }

  /// Mark-unread's part for one row (R4): nothing if the message is above the watermark already.
  func decideUnread(
    _ row: MemberOrdinal,
    from sequence: SequenceNumber,
    epoch: UInt32?,
    at time: Timestamp,
    into effects: inout [Effect]
  ) {
    let position = Int(row.rawValue)
    let marker = SequenceNumber(sequence.rawValue - 1)
    guard sequence.rawValue <= rows.read[position], rows.marker(row) != marker, !isStale(epoch, row) else {
      return
    }
    // Four billion changes by one member: from there on a stale device is not told from a current one.
    let epoch = rows.epochs[position] == .max ? .max : rows.epochs[position] + 1
    effects.append(.markerAssigned(number, row, marker: marker, epoch: epoch, at: time))
  }

  /// Flags the channel unread as a whole (R4); nothing where it is already.
  func decideFlagUnread(
    _ row: MemberOrdinal,
    epoch: UInt32?,
    at time: Timestamp,
    into effects: inout [Effect]
  ) {
    guard !rows.isFlaggedUnread(row), !isStale(epoch, row) else { return }
    let known = rows.epochs[Int(row.rawValue)]
    let raised = known == .max ? .max : known + 1
    effects.append(.unreadFlagAssigned(number, row, isSet: true, epoch: raised, at: time))
  }

  /// The flag goes with a read or a send, in the channel or one of its threads, also with one that moves nothing (R4).
  func decideUnflag(
    _ row: MemberOrdinal,
    epoch: UInt32?,
    at time: Timestamp,
    into effects: inout [Effect]
  ) {
    guard rows.isFlaggedUnread(row), !isStale(epoch, row) else { return }
    let known = rows.epochs[Int(row.rawValue)]
    effects.append(.unreadFlagAssigned(number, row, isSet: false, epoch: known, at: time))
  }

  /// A read or unread with an older epoch than the row's comes from a device that has not seen the latest choice (R4).
  func isStale(_ epoch: UInt32?, _ row: MemberOrdinal) -> Bool {
    epoch.map { $0 < rows.epochs[Int(row.rawValue)] } ?? false
  }

  // MARK: Read state

  /// Rows newest first, below `cursor`; on the first page (no cursor) the viewer's own row comes first, and is not
  /// repeated (R12). It is the only one where others are not shown (R10).
  ///
  /// - Returns: the rows, and the cursor of the next page where there is one.
  func readState(
    _ viewer: ChannelViewer,
    limit: Int,
    cursor: UInt32?,
    options: ChannelTypeOptions,
    settings: borrowing UserSettingsTable
  ) -> (rows: [RowAnswer], next: UInt32?) {
    var answers: [RowAnswer] = []
    let showsOthers = options.countsVisibleTo == .members || viewer.seesAll
    answers.reserveCapacity(showsOthers ? min(limit, rows.activeCount) : 1)
    if cursor == nil, let own = viewer.row {
      answers.append(ownRow(own, hiddenThrough: viewer.hiddenThrough))
    }
    guard showsOthers else { return (answers, nil) }
    var below = min(cursor.map(Int.init) ?? rows.rowCount, rows.rowCount)
    while below > 0 {
      let row = MemberOrdinal(UInt32(below - 1))
      if rows.isActive(row), row != viewer.row {
        if answers.count == limit { return (answers, UInt32(below)) }
        answers.append(othersRow(row, to: viewer, options: options, settings: settings))
      }
      below -= 1
    }
    return (answers, nil)
  }

  /// Another member's row as a viewer sees it (R4, R6, R7, R8).
  func othersRow(
    _ row: MemberOrdinal,
    to viewer: ChannelViewer,
    options: ChannelTypeOptions,
    settings: borrowing UserSettingsTable
  ) -> RowAnswer {
    let shown = shownRow(row, options: options, settings: settings, withOwnDetails: viewer.seesOwnDetails)
    return viewer.hiddenThrough == .zero
      ? shown : shown.seen(since: viewer.hiddenThrough, at: viewer.joinedAt)
  }

  // MARK: Assignment

  /// Assigns an effect that is addressed to one of this channel's pages.
  mutating func assign(_ effect: Effect) {
    switch effect {
    case .channelAssigned(_, _, let created, let own):
      assignHead(created: created, ownOptions: own)
    case .rowAssigned(_, let row, let record):
      let user = users.intern(record.user)
      users.retain(user)
      if Int(row.rawValue) < rows.rowCount { users.release(rows.user(row)) }
      rows.assign(row, record, user: user)
      if let marker = record.marker { messages.trackOwn(rows.user(row), after: marker) }
    case .optionsChanged(_, let time):
      optionsChangedAt = time
    case .rowLeft(_, let row, let time):
      rows.leave(row, at: time)
    case .roleAssigned(_, let row, let role):
      rows.assignRole(row, role)
    case .readMoved(_, let row, let sequence, let time, let isHidden):
      rows.moveRead(row, to: sequence, at: time, isHidden: isHidden)
      steps.append(
        .read,
        row,
        sequence,
        at: time,
        isHidden: isHidden,
        number: rows.readSteps[Int(row.rawValue)]
      )
    case .deliveredMoved(_, let row, let sequence, let time, let isHidden):
      rows.moveDelivered(row, to: sequence, at: time, isHidden: isHidden)
      steps.append(
        .delivered,
        row,
        sequence,
        at: time,
        isHidden: isHidden,
        number: rows.deliveredSteps[Int(row.rawValue)]
      )
    case .deliveredAcked(_, let row, let sequence, let time, let acked, let isHidden):
      rows.moveDelivered(row, to: sequence, at: time, isHidden: isHidden)
      rows.assignAcked(row, at: acked)
      steps.append(
        .delivered,
        row,
        sequence,
        at: time,
        acked: acked,
        isHidden: isHidden,
        number: rows.deliveredSteps[Int(row.rawValue)]
      )
    case .markerAssigned(_, let row, let marker, let epoch, let time):
      rows.assignMarker(row, marker, epoch: epoch, at: time)
      if let marker { messages.trackOwn(rows.user(row), after: marker) }
    case .muteAssigned(_, let row, let isMuted):
      rows.assignMuted(row, isMuted)
    case .unreadFlagAssigned(_, let row, let isSet, let epoch, let time):
      rows.assignFlag(row, isSet: isSet, epoch: epoch, at: time)
    case .messageAssigned(_, let sequence, let record):
      assignMessage(sequence, record)
      if record.flags.contains(.receipt) {
        assignReceipt(of: sequence, expiresAt: record.receiptExpiresAt)
      }
    case .messageDeleted(_, let sequence, let time):
      delete(sequence, at: time)
    case .acknowledged(_, let sequence, let acknowledgement):
      if !isGone(sequence) { receipts.assign(sequence, acknowledgement) }
    case .acknowledgementForgotten(_, let sequence, let row):
      receipts.forget(sequence, row)
    case .acknowledgedThrough(_, let row, let sequence):
      rows.acknowledge(row, through: sequence)
    case .stepsSealed(_, let rowPage, let segment, let bytes):
      steps.seal(rowPage, segment, bytes)
    case .stepTailCut(_, let rowPage, let end):
      steps.cutTail(rowPage, end: end)
    case .stepsTrimmed(_, let rowPage, let first):
      steps.trim(rowPage, before: first)
    case .stepTailAssigned(_, let rowPage, let record):
      steps.assign(rowPage, record)
    case .inThread(let parent, let effect):
      assign(effect, inThread: parent)
    case .truncated(_, let sequence, let time):
      truncate(through: sequence, at: time)
    case .deletionBegun:
      isEnding = true
    case .rowErased(_, let row, let time):
      eraseRow(row, at: time)
    case .senderErased(_, let sequence):
      eraseSender(sequence)
    case .membershipAssigned(_, let place, let membership):
      memberships.assign(place, membership)
    case .membershipRemoved(_, let place):
      memberships.remove(place)
    case .messageCountsAssigned, .segmentsNoted:
      // For those who look at the head page alone; here they follow from the messages.
      break
    case .channelDeleted:
      preconditionFailure("not built yet")
    case .channelTypeAssigned, .typeSettled, .userAssigned, .userSettled, .userErased, .countersAssigned,
      .sessionAssigned, .membershipQueued, .membershipsSent, .membershipsTaken, .indexEpochAssigned,
      .webhookNoted, .tokenRevoked, .idsWidened:
      preconditionFailure("addressed to the shard, not to a channel")
    }
  }

  // MARK: Pages

  /// The effects that make a page as it is now; empty where there is nothing on it.
  func effects(of page: PageID) -> [Effect] {
    switch page {
    case .head:
      let cid = String(decoding: cid, as: UTF8.self)
      var effects = [Effect.channelAssigned(number, cid: cid, created: created, own: ownOptions)]
      if optionsChangedAt != .none { effects.append(.optionsChanged(number, at: optionsChangedAt)) }
      if messages.truncatedThrough > .zero {
        effects.append(.truncated(number, through: messages.truncatedThrough, at: truncatedAt))
      }
      if isEnding { effects.append(.deletionBegun(number)) }
      if messages.newest > .zero {
        let counts = messages.countablePerSegment
        effects.append(.messageCountsAssigned(number, newest: messages.newest, counts))
        let notes = messages.segmentNotes
        if !notes.isEmpty { effects.append(.segmentsNoted(number, notes)) }
      }
      return effects
    case .rows(let page):
      let first = Int(page * PageID.rowsPerPage)
      let end = min(first + Int(PageID.rowsPerPage), rows.rowCount)
      var effects: [Effect] = []
      for position in first..<max(first, end) {
        let row = MemberOrdinal(UInt32(position))
        effects.append(.rowAssigned(number, row, record(of: row)))
      }
      if let record = steps.record(of: page) {
        effects.append(.stepTailAssigned(number, rowPage: page, record))
      }
      return effects
    case .segment(let page):
      guard Int(page) < messages.segmentCount else { return [] }
      let first = page * PageID.messagesPerSegment + 1
      let last = min(first + PageID.messagesPerSegment - 1, messages.newest.rawValue)
      var effects: [Effect] = []
      for raw in first...last {
        let sequence = SequenceNumber(raw)
        effects.append(.messageAssigned(number, sequence, record(of: sequence)))
      }
      return effects
    case .receipts(let sequence):
      return receipts.acknowledgements(of: sequence).map { .acknowledged(number, sequence, $0) }
    case .steps(let rowPage, let segment):
      guard let bytes = steps.segment(rowPage, segment) else { return [] }
      return [.stepsSealed(number, rowPage: rowPage, segment: segment, bytes: bytes)]
    case .threadRows(let parent, let page):
      return effects(of: .rows(page), inThread: parent)
    case .threadSegment(let parent, let segment):
      return effects(of: .segment(segment), inThread: parent)
    case .memberships(let page):
      return memberships.effects(of: page, number: number)
    case .types, .users, .shardHead, .outbox, .index, .webhooks, .tokens:
      preconditionFailure("pages of the shard")
    }
  }

  func record(of row: MemberOrdinal) -> RowRecord {
    let position = Int(row.rawValue)
    return RowRecord(
      user: users.text(rows.user(row)),
      role: rows.roles[row.rawValue] ?? "",
      hasLeft: !rows.isActive(row),
      hidesHistory: rows.hidesHistory(row),
      joined: SequenceNumber(rows.joined[position]),
      joinedAt: Timestamp(milliseconds: rows.joinedAt[position]),
      read: SequenceNumber(rows.read[position]),
      readAt: Timestamp(milliseconds: rows.readAt[position]),
      delivered: SequenceNumber(rows.delivered[position]),
      deliveredAt: Timestamp(milliseconds: rows.deliveredAt[position]),
      ackedAt: rows.ackedAt(row),
      marker: rows.marker(row),
      markedAt: rows.markedAt(row),
      unreadEpoch: rows.epochs[position],
      readIsHidden: rows.readIsHidden(row),
      deliveredIsHidden: rows.deliveredIsHidden(row),
      readSteps: rows.readSteps[position],
      deliveredSteps: rows.deliveredSteps[position],
      acknowledgedThrough: SequenceNumber(rows.acknowledgedThrough[position]),
      joinedByReading: rows.joinedByReading(row),
      // Of a row that was left too: what follows from that begins there.
      countedAfter: thread(rows.countedAfter, row),
      unreadAfter: rows.isActive(row) ? thread(rows.unreadAfter, row) : nil,
      isMuted: rows.isMuted(row),
      isFlaggedUnread: rows.isFlaggedUnread(row),
      flaggedAt: rows.flaggedAt(row)
    )
  }

  /// What a column of a thread says of a row; nil: the same as the column of joining, or there is no such column.
  private func thread(_ column: [UInt32], _ row: MemberOrdinal) -> SequenceNumber? {
    guard isThread else { return nil }
    let position = Int(row.rawValue)
    return column[position] == rows.joined[position] ? nil : SequenceNumber(column[position])
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
      receiptExpiresAt: receipts.expiresAt(sequence),
      mentions: messages.mentions.mentions(sequence)
    )
  }
}
