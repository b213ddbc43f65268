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

  func hasCID(_ other: RawSpan) -> Bool { cid.span.bytes.equals(other) }

  mutating func assignHead(created: Timestamp, ownOptions: OptionPatch) {
    self.created = created
    self.ownOptions = ownOptions
  }

  // MARK: Assignment

  /// Assign an effect addressed to one of this channel's pages.
  mutating func assign(_ effect: ChannelEffect) {
    switch effect {
    case .channelAssigned(_, let created, let own): assignHead(created: created, ownOptions: own)
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
      steps.append(.read, row, sequence, at: time, isHidden: isHidden, number: rows.read.stepCount(row))
    case .deliveredMoved(let row, let sequence, let time, let isHidden):
      rows.moveDelivered(row, to: sequence, at: time, isHidden: isHidden)
      steps.append(.delivered, row, sequence, at: time, isHidden: isHidden, number: rows.delivered.stepCount(row))
    case .deliveredByPushAck(let row, let sequence, let time, let acked, let isHidden):
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
    case .muteAssigned(let row, let isMuted): rows.assignMuted(row, isMuted)
    case .unreadFlagAssigned(let row, let isSet, let epoch, let time):
      rows.assignFlag(row, isSet: isSet, epoch: epoch, at: time)
    case .messageAssigned(let sequence, let record):
      assignMessage(sequence, record)
      if record.flags.contains(.requestsAcknowledgement) {
        assignAcknowledgementRequest(of: sequence, expiresAt: record.acknowledgementExpiresAt)
      }
    case .messageDeleted(let sequence, let time): delete(sequence, at: time)
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
    case .stepsImported(let rowPage, let bytes):
      steps.append(rowPage, bytes)
    case .mentionsAssigned(let sequence, let rows, let pending):
      messages.assignMentions(sequence, rows: rows, pending: pending)
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
    case .channelDeleted: preconditionFailure("the shard removes the channel")
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
        if let mentions = messages.pendingMentions(of: sequence) { effects.append(.channel(number, mentions)) }
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
