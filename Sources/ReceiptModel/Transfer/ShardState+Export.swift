/// Exports a channel as the records from which an import makes it again (docs/api/import-export.md).
extension ShardState {
  /// Return a message of a channel or of a thread.
  package func exported(_ sequence: SequenceNumber, in slot: ChannelSlot) -> TransferredMessage {
    let flags = self[slot].messages.flags(sequence)
    let registered = self[slot].messages.registeredAt(sequence)
    var message = TransferredMessage(
      id: self[slot].messages.text(sequence),
      sender: self[slot].users.text(self[slot].messages.sender(sequence)),
      sequence: sequence,
      registeredAt: registered,
      expiresAt: self[slot].acknowledgementTable.expiresAt(sequence)
    )
    if slot.isThread { message.parent = self[slot.channel].messages.text(self[slot].parent) }
    message.flags = TransferredMessage.Flags().setting(.silent, flags.contains(.silent))
      .setting(.requestsAcknowledgement, flags.askedForAcknowledgement)
      .setting(.requestNotAllowed, flags.contains(.acknowledgementNotAllowed))
      .setting(.requestOverLimit, flags.contains(.acknowledgementOverLimit))
      .setting(.keepsSenderPosition, flags.contains(.keepsSenderPosition))
      .setting(.deleted, flags.contains(.deleted))
    if flags.contains(.deleted) {
      let isTruncated = sequence <= self[slot].messages.truncatedThrough
      let deleted =
        isTruncated ? self[slot].messages.deletions.truncatedAt : self[slot].messages.deletedAt(sequence)
      message.deletedAt = deleted == registered ? .none : deleted
      return message
    }
    let created = self[slot].messages.createdAt(sequence)
    if created != registered { message.createdAt = created }
    switch self[slot].messages.mentions.mentions(sequence) {
    case .nobody: break
    case .all: message.flags.insert(.mentionsAll)
    case .rows(let rows):
      for row in rows {
        let user = self[slot].users.text(self[slot].rows.user(MemberOrdinal(row)))
        if !user.isEmpty { message.mentions.append(user) }
      }
    }
    return message
  }

  /// Return a row of a channel or of a thread, of a current or of a former member; nil: its user was erased.
  ///
  /// - Parameter steps: the kept steps of its page (``exportedSteps(of:in:_:)``).
  package func exported(_ row: MemberOrdinal, in slot: ChannelSlot, _ steps: borrowing ExportedSteps)
    -> TransferredMember?
  {
    let record = self[slot].record(of: row)
    guard !record.user.isEmpty else { return nil }
    var member = TransferredMember(
      user: record.user,
      role: record.role,
      joined: record.joined,
      joinedAt: record.joinedAt,
      countedAfter: record.countedAfter,
      unreadAfter: record.unreadAfter
    )
    if slot.isThread {
      member.thread = self[slot.channel].messages.text(self[slot].parent)
      if record.joinedByReading { member.flags.insert(.joinedByReading) }
    } else {
      member.flags.insert(record.hidesHistory ? .hidesHistory : .showsHistory)
    }
    guard !record.hasLeft else {
      member.leftAt = record.readAt.or(record.joinedAt)
      return member
    }
    member.read = self[slot].messages.text(record.read)
    member.readAt = record.readAt
    member.delivered = self[slot].messages.text(record.delivered)
    member.deliveredAt = record.ackedAt.or(record.deliveredAt)
    if let marker = record.marker { member.unreadFrom = self[slot].messages.text(marker.next) }
    member.unreadEpoch = min(record.unreadEpoch, TransferredMember.countMax)
    member.readMoves = min(record.readStepCount, TransferredMember.countMax)
    member.deliveredMoves = min(record.deliveredStepCount, TransferredMember.countMax)
    member.acknowledgedThrough = record.acknowledgedThrough
    if record.isMuted { member.flags.insert(.muted) }
    if record.isFlaggedUnread { member.flags.insert(.flaggedUnread) }
    if record.readIsHidden { member.flags.insert(.readIsHidden) }
    if record.deliveredIsHidden { member.flags.insert(.deliveredIsHidden) }
    member.moves = steps.moves(.read, row, count: record.readStepCount)
    member.moves += steps.moves(.delivered, row, count: record.deliveredStepCount)
    return member
  }

  /// Return the kept steps of a row page.
  ///
  /// - Parameter read: the segments that were read for this export (``storedSegments(of:)``).
  package func exportedSteps(of rowPage: UInt32, in slot: ChannelSlot, _ read: borrowing ReadSegments) -> ExportedSteps
  {
    ExportedSteps(self[slot].steps.steps(of: rowPage, in: read))
  }

  /// Return the first range of segments that an export of the channel has yet to read from storage.
  package func storedSegments(of slot: ChannelSlot, besides read: borrowing ReadSegments) -> StepTime.SegmentRange? {
    guard !read.isFull else { return nil }
    let rowPages = (UInt32(self[slot].rows.rowCount) + PageID.rowsPerPage - 1) / PageID.rowsPerPage
    for rowPage in 0..<rowPages {
      let missing = self[slot].steps.segments(rowPage).filter {
        self[slot].steps.segment(rowPage, $0) == nil && !read.contains(rowPage, $0)
      }
      guard let first = missing.first else { continue }
      let count = missing.prefix(Self.segmentsPerRead).enumerated().prefix { $1 == first + UInt32($0) }.count
      return StepTime.SegmentRange(rowPage: rowPage, segments: first..<first + UInt32(count))
    }
    return nil
  }

  private static let segmentsPerRead = 256

  /// Return the current members' acknowledgements of a message.
  package func exportedAcknowledgements(of sequence: SequenceNumber, in slot: ChannelSlot)
    -> [TransferredAcknowledgement]
  {
    self[slot].acknowledgementTable.acknowledgements(of: sequence).compactMap { record in
      guard self[slot].rows.isActive(record.row) else { return nil }
      return TransferredAcknowledgement(
        message: self[slot].messages.text(sequence),
        user: self[slot].users.text(self[slot].rows.user(record.row)),
        at: record.at,
        note: record.note,
        isHidden: record.isHidden
      )
    }
  }

  /// Return the messages of a channel that have acknowledgements.
  package func acknowledgedMessages(in slot: ChannelSlot) -> [SequenceNumber] {
    self[slot].acknowledgementTable.acknowledged(after: .zero, through: self[slot].messages.newest)
  }

  /// Return the threads of a channel, by their parents.
  package func threadSlots(of slot: ChannelSlot) -> [ChannelSlot] {
    (0..<self[slot].threads.count).sorted { self[slot].threads[$0].parent < self[slot].threads[$1].parent }
      .map { slot.thread($0) }
  }
}

/// The kept steps of one row page, by row.
package struct ExportedSteps: Sendable {
  private var byKey: [UInt16: [Step]] = [:]

  init(_ steps: [Step]) {
    for step in steps { byKey[step.key, default: []].append(step) }
  }

  /// Return the last moves of a watermark, without a gap between them.
  ///
  /// - Parameter count: how often it has moved.
  func moves(_ kind: StepKind, _ row: MemberOrdinal, count: UInt32) -> [TransferredMember.Move] {
    var kept: [Step] = []
    var number = count
    for step in byKey[Step.key(UInt8(truncatingIfNeeded: row.rawValue), kind), default: []].reversed() {
      guard step.number == number, number > 0 else { break }
      kept.append(step)
      number -= 1
    }
    return kept.reversed().map {
      TransferredMember.Move(kind, to: $0.sequence, at: $0.shownAt, isHidden: $0.isHidden)
    }
  }
}
