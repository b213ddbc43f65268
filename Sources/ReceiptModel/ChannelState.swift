/// One incarnation of a channel in memory: its read vector and its messages. Everything here follows from the effects that were
/// assigned to it.
///
/// Not copyable, like all tables of a shard: looking at a channel in place costs nothing, a copy would be a reference count for each of its columns, for
/// every mark.
package struct ChannelState: ~Copyable, Sendable {
  package let number: ChannelNumber
  /// `type:id`, its bytes.
  package let cid: [UInt8]
  package private(set) var created: Timestamp
  /// What was set on the channel itself; the rest comes from its type.
  package private(set) var ownOptions: OptionPatch
  /// Where its type's record stands in the shard.
  let type: Int
  /// Members and senders.
  private(set) var users = UserTable()
  package internal(set) var rows = ReadVector()
  package internal(set) var messages = MessageTable()

  init(number: ChannelNumber, cid: [UInt8], created: Timestamp, ownOptions: OptionPatch, type: Int) {
    self.number = number
    self.cid = cid
    self.created = created
    self.ownOptions = ownOptions
    self.type = type
  }

  /// What stands in a slot that is free.
  static func vacant() -> ChannelState {
    ChannelState(number: vacantNumber, cid: [], created: .none, ownOptions: OptionPatch(), type: 0)
  }

  /// No channel has the number 0.
  static let vacantNumber = ChannelNumber(0)

  /// What the channel occupies in memory, in bytes, near enough to hold a budget by.
  package var byteCount: Int {
    MemoryLayout<ChannelState>.stride + heapBytes(cid) + users.byteCount + rows.byteCount + messages.byteCount
  }

  /// The row of a user who is a member now.
  package func row(of user: RawSpan) -> MemberOrdinal? { users.find(user).flatMap { rows.row(of: $0) } }

  /// The row of a user who is a member now.
  func row(of user: String) -> MemberOrdinal? {
    var user = user
    return user.withUTF8 { row(of: $0.span.bytes) }
  }

  func hasCID(_ other: RawSpan) -> Bool { cid.span.bytes.isEqual(to: other) }

  mutating func assignHead(created: Timestamp, ownOptions: OptionPatch) {
    self.created = created
    self.ownOptions = ownOptions
  }

  // MARK: A row as it is seen

  /// The member's own row: own positions and unread count, whatever others may see (R2, R4, R8, R18).
  func ownRow(_ row: MemberOrdinal) -> RowAnswer {
    let position = Int(row.rawValue)
    let own = rows.ownPosition(row)
    let read = SequenceNumber(rows.read[position])
    let delivered = SequenceNumber(rows.delivered[position])
    let readTime = self.readTime(position)
    return RowAnswer(
      row: row,
      lastRead: readTime,
      lastReadSequence: own,
      lastDelivered: delivered >= read ? Timestamp(milliseconds: rows.deliveredAt[position]) : readTime,
      lastDeliveredSequence: max(delivered, read),
      own: ownDetails(row)
    )
  }

  /// The row as everybody else sees it: watermarks, or own positions where `mark_unread` is `public`, of the kinds that the
  /// channel shows (R3, R4, R8).
  func shownRow(_ row: MemberOrdinal, options: ChannelTypeOptions, withOwnDetails: Bool) -> RowAnswer {
    let position = Int(row.rawValue)
    var read = SequenceNumber.zero
    if options.readEvents {
      read = options.markUnread == .public ? rows.ownPosition(row) : SequenceNumber(rows.read[position])
    }
    let delivered = options.deliveryEvents ? SequenceNumber(rows.delivered[position]) : .zero
    let readTime =
      options.readEvents ? self.readTime(position) : Timestamp(milliseconds: rows.joinedAt[position])
    let deliveredTime = delivered >= read ? Timestamp(milliseconds: rows.deliveredAt[position]) : readTime
    return RowAnswer(
      row: row,
      lastRead: readTime,
      lastReadSequence: read,
      lastDelivered: max(delivered, read) == .zero ? .none : deliveredTime,
      lastDeliveredSequence: max(delivered, read),
      own: withOwnDetails ? ownDetails(row) : nil
    )
  }

  private func readTime(_ position: Int) -> Timestamp {
    Timestamp(milliseconds: rows.readAt[position] == 0 ? rows.joinedAt[position] : rows.readAt[position])
  }

  private func ownDetails(_ row: MemberOrdinal) -> RowAnswer.OwnDetails {
    let position = Int(row.rawValue)
    let floor = unreadFloor(row)
    let user = rows.user(row)
    var unread = messages.countable(through: messages.newest) - messages.countable(through: floor)
    if unread > 0, rows.marker(row) != nil { unread -= messages.countable(after: floor, sentBy: user) }
    let first = unread == 0 ? nil : messages.firstCountable(after: floor, notSentBy: user)
    return RowAnswer.OwnDetails(
      unreadMessages: unread,
      firstUnread: first ?? .zero,
      unreadEpoch: rows.epochs[position]
    )
  }

  /// Messages up to here do not count as unread for this member (R6).
  private func unreadFloor(_ row: MemberOrdinal) -> SequenceNumber {
    let own = rows.ownPosition(row)
    return rows.hidesHistory(row) ? max(own, SequenceNumber(rows.joined[Int(row.rawValue)])) : own
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
      effects.append(.readMoved(number, row, to: SequenceNumber(read), at: time))
    }
    let marker = rows.markers[position]
    guard marker != ReadVector.noMarker, !isStale(epoch, row) else { return }
    let moved = max(marker, sequence.rawValue)
    // Gone once it reaches the watermark.
    let left = moved >= read ? nil : SequenceNumber(moved)
    if left?.rawValue != marker {
      effects.append(.markerAssigned(number, row, marker: left, epoch: rows.epochs[position]))
    }
  }

  /// Mark-unread's part for one row (R4): nothing if the message is above the watermark already.
  func decideUnread(
    _ row: MemberOrdinal,
    from sequence: SequenceNumber,
    epoch: UInt32?,
    into effects: inout [Effect]
  ) {
    let position = Int(row.rawValue)
    let marker = SequenceNumber(sequence.rawValue - 1)
    guard sequence.rawValue <= rows.read[position], rows.marker(row) != marker, !isStale(epoch, row) else {
      return
    }
    // Four billion changes by one member: from there on a stale device is not told from a current one.
    let epoch = rows.epochs[position] == .max ? .max : rows.epochs[position] + 1
    effects.append(.markerAssigned(number, row, marker: marker, epoch: epoch))
  }

  /// A read or unread with an older epoch than the row's comes from a device that has not seen the latest choice (R4).
  private func isStale(_ epoch: UInt32?, _ row: MemberOrdinal) -> Bool {
    epoch.map { $0 < rows.epochs[Int(row.rawValue)] } ?? false
  }

  // MARK: Statuses

  /// A message's status and counts (R1); it is not deleted.
  func status(_ sequence: SequenceNumber, options: ChannelTypeOptions) -> StatusAnswer {
    let sender = messages.sender(sequence)
    let senderRow = sender == .nobody ? nil : rows.row(of: sender)
    let counts = rows.counts(sequence, options: options, excluding: senderRow)
    return StatusAnswer(
      sequence: sequence,
      status: counts.read > 0 ? .read : counts.delivered > 0 ? .delivered : .sent,
      readCount: counts.read,
      deliveredCount: counts.delivered,
      memberCount: counts.members,
      readEvents: options.readEvents,
      deliveryEvents: options.deliveryEvents,
      createdAt: messages.createdAt(sequence)
    )
  }

  // MARK: Read state

  /// Rows newest first, below `cursor`; on the first page (no cursor) the viewer's own row comes first, and is not repeated (R12).
  ///
  /// - Returns: the rows, and the cursor of the next page where there is one.
  func readState(
    viewer: MemberOrdinal?,
    isServer: Bool,
    limit: Int,
    cursor: UInt32?,
    options: ChannelTypeOptions
  ) -> (rows: [RowAnswer], next: UInt32?) {
    var answers: [RowAnswer] = []
    answers.reserveCapacity(min(limit, rows.activeCount))
    if cursor == nil, let viewer { answers.append(ownRow(viewer)) }
    var below = min(cursor.map(Int.init) ?? rows.rowCount, rows.rowCount)
    while below > 0 {
      let row = MemberOrdinal(UInt32(below - 1))
      if rows.isActive(row), row != viewer {
        if answers.count == limit { return (answers, UInt32(below)) }
        answers.append(shownRow(row, options: options, withOwnDetails: isServer))
      }
      below -= 1
    }
    return (answers, nil)
  }

  // MARK: Assignment

  /// Assigns an effect that is addressed to one of this channel's pages.
  mutating func assign(_ effect: Effect) {
    switch effect {
    case .channelAssigned(_, _, let created, let own):
      assignHead(created: created, ownOptions: own)
    case .rowAssigned(_, let row, let record):
      rows.assign(row, record, user: users.intern(record.user))
    case .rowLeft(_, let row, _):
      rows.leave(row)
    case .roleAssigned(_, let row, let role):
      rows.assignRole(row, role)
    case .readMoved(_, let row, let sequence, let time):
      rows.moveRead(row, to: sequence, at: time)
    case .deliveredMoved(_, let row, let sequence, let time):
      rows.moveDelivered(row, to: sequence, at: time)
    case .markerAssigned(_, let row, let marker, let epoch):
      rows.assignMarker(row, marker, epoch: epoch)
    case .messageAssigned(_, let sequence, let record):
      messages.assign(sequence, record, sender: users.intern(record.sender))
    case .messageDeleted(_, let sequence, _):
      messages.delete(sequence)
    case .channelTypeAssigned, .countersAssigned, .sessionAssigned:
      preconditionFailure("addressed to the shard, not to a channel")
    }
  }

  // MARK: Pages

  /// The effects that make a page as it is now; empty where there is nothing on it.
  func effects(of page: PageID) -> [Effect] {
    switch page {
    case .head:
      let cid = String(decoding: cid, as: UTF8.self)
      return [.channelAssigned(number, cid: cid, created: created, own: ownOptions)]
    case .rows(let page):
      let first = Int(page * PageID.rowsPerPage)
      let end = min(first + Int(PageID.rowsPerPage), rows.rowCount)
      var effects: [Effect] = []
      for position in first..<max(first, end) {
        let row = MemberOrdinal(UInt32(position))
        effects.append(.rowAssigned(number, row, record(of: row)))
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
    case .types, .shardHead:
      preconditionFailure("pages of the shard")
    }
  }

  private func record(of row: MemberOrdinal) -> RowRecord {
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
      marker: rows.marker(row),
      unreadEpoch: rows.epochs[position]
    )
  }

  private func record(of sequence: SequenceNumber) -> MessageRecord {
    let registered = messages.registeredAt(sequence)
    let created = messages.createdAt(sequence)
    return MessageRecord(
      id: messages.text(sequence),
      sender: users.text(messages.sender(sequence)),
      flags: messages.flags(sequence),
      registeredAt: registered,
      createdAt: created == registered ? .none : created
    )
  }
}
