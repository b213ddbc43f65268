/// Imports members with their joins and positions (docs/api/import-export.md).
///
/// The rows of a channel are in the order of their joins (``Roster``), and so are the lines of an import. A line is
/// known by its user and join. A known row is left as it is, but its watermarks may rise: a later dump brings later
/// positions.
extension ShardState {
  /// The row of an imported member, and the moves to append to it (``decideImport(_:of:in:into:)``).
  package struct ImportedRow {
    /// The channel's slot, or the thread's.
    package let slot: ChannelSlot
    package let row: MemberOrdinal
    package let steps: [Step]
  }

  /// Moves that one ``decideImport(_:of:in:into:)`` appends.
  package static let importedStepsMax = StepTable.tailStepsMin

  /// Import a member of the channel or of one of its threads.
  ///
  /// - Returns: nil if nothing changes.
  package func decideImport(
    _ member: TransferredMember,
    in channel: ChannelSlot,
    at time: Timestamp,
    into effects: inout [Effect]
  ) throws(Refusal) -> ImportedRow? {
    if settings.isErasing(member.user) { throw .userErased }
    var slot = channel
    if !member.thread.isEmpty {
      let parent = try importedParent(member.thread, in: channel)
      guard let index = self[channel].threads.index(of: parent) else { throw .importOrder }
      guard member.leftAt != .none || self[channel].row(of: member.user) != nil else { throw .notAMember }
      slot = channel.thread(index)
    }
    let latest = [member.joinedAt, member.leftAt, member.readAt, member.deliveredAt] + member.moves.map(\.at)
    guard latest.allSatisfy({ $0 <= time }) else { throw .timeInFuture }
    let join = try join(of: member, in: slot, channel, at: time)
    guard member.leftAt == .none || member.leftAt >= join.at else { throw .importConflict }
    let start = effects.count
    let imported: ImportedRow?
    if let row = self[slot].row(of: member.user) {
      if member.leftAt != .none {
        guard !hasLeftRow(of: member, join, in: slot) else { return nil }
        throw self[slot].rows.joined(row) > join.sequence ? .importOrder : .importConflict
      }
      // The user has left and joined again since.
      if hasLeftRow(of: member, join, in: slot) { return nil }
      guard member.joined == nil || self[slot].rows.joined(row) == join.sequence else { throw .importConflict }
      imported = try decideRise(member, of: row, in: slot, at: time, into: &effects)
    } else {
      guard !hasLeftRow(of: member, join, in: slot) else { return nil }
      imported = try decideNewRow(member, join, in: slot, at: time, into: &effects)
      if !slot.isThread, let imported {
        let membership = Membership(
          cid: text(of: slot),
          channel: self[slot].number,
          row: imported.row,
          isMember: member.leftAt == .none,
          joinedAt: join.at
        )
        decideMembership(member.user, membership, isGone: false, into: &effects)
      }
    }
    if slot.isThread { effects.wrapInThread(self[slot].parent, from: start) }
    return imported
  }

  /// Append an imported row's moves to its page's steps (R17). Assign the effects before the next call.
  ///
  /// - Parameter steps: at most ``importedStepsMax``.
  package func decideImport(
    _ steps: ArraySlice<Step>,
    of row: MemberOrdinal,
    in slot: ChannelSlot,
    into effects: inout [Effect]
  ) {
    guard !steps.isEmpty, options(slot).keptSteps > 0 else { return }
    let start = effects.count
    let rowPage = row.rawValue / PageID.rowsPerPage
    let held = self[slot].steps.tailCount(row)
    if held > 0, held + steps.count > self[slot].tailStepsMax(rowPage) {
      decideSealTail(of: row, in: slot, into: &effects)
    }
    effects.append(.channel(self[slot].number, .stepsImported(rowPage: rowPage, bytes: StepBytes.bytes(steps))))
    if slot.isThread { effects.wrapInThread(self[slot].parent, from: start) }
  }

  // MARK: Joins

  private struct Join {
    var sequence: SequenceNumber
    var at: Timestamp
  }

  /// Return when a member joined. Without a position the time decides; with neither, the member joined with the
  /// channel.
  private func join(
    of member: TransferredMember,
    in slot: ChannelSlot,
    _ channel: ChannelSlot,
    at time: Timestamp
  ) throws(Refusal) -> Join {
    var joined = SequenceNumber.zero
    if let given = member.joined {
      guard given <= self[slot].messages.newest else { throw .importConflict }
      joined = given
    } else if member.joinedAt != .none {
      joined = SequenceNumber(self[slot].messages.first(registeredSince: member.joinedAt).rawValue - 1)
    }
    guard member.joinedAt == .none else { return Join(sequence: joined, at: member.joinedAt) }
    guard joined > .zero else { return Join(sequence: joined, at: self[channel].created.or(time)) }
    // A join is later than the messages before it (R6).
    let before = self[slot].messages.registeredAt(joined).milliseconds
    return Join(sequence: joined, at: min(Timestamp(milliseconds: before + 1), time))
  }

  /// Return whether an earlier stay of the user is this one.
  private func hasLeftRow(of member: TransferredMember, _ join: Join, in slot: ChannelSlot) -> Bool {
    var name = member.user
    guard self[slot].rows.rowCount > self[slot].rows.activeCount,
      let user = name.withUTF8({ self[slot].users.find($0.span.bytes) })
    else { return false }
    return self[slot].rows.rows(of: user).contains { row in
      !self[slot].rows.isActive(row) && self[slot].rows.joined(row) == join.sequence
        && (member.joinedAt == .none || self[slot].rows.joinedAt(row) == member.joinedAt)
    }
  }

  // MARK: Rows

  private func decideNewRow(
    _ member: TransferredMember,
    _ join: Join,
    in slot: ChannelSlot,
    at time: Timestamp,
    into effects: inout [Effect]
  ) throws(Refusal) -> ImportedRow {
    let count = self[slot].rows.rowCount
    guard count < ReadVector.rowsMax else { throw .limitReached(.membersPerChannel) }
    let row = MemberOrdinal(UInt32(count))
    if count > 0, self[slot].rows.joined(MemberOrdinal(UInt32(count) - 1)) > join.sequence { throw .importOrder }
    var record = RowRecord(user: member.user, joined: join.sequence, joinedAt: join.at)
    record.hidesHistory =
      !slot.isThread
      && (member.flags.contains(.hidesHistory)
        || !member.flags.contains(.showsHistory) && options(slot).history == .hidden)
    record.joinedByReading = member.flags.contains(.joinedByReading)
    record.countedAfter = member.countedAfter.flatMap { $0 < join.sequence ? $0 : nil }
    record.unreadAfter = member.unreadAfter.flatMap { $0 < join.sequence ? $0 : nil }
    guard member.leftAt == .none else {
      record.hasLeft = true
      record.readAt = member.leftAt
      effects.append(.channel(self[slot].number, .rowAssigned(row, record)))
      decidePendingMentions(
        of: member.user,
        row,
        joined: join.sequence,
        left: member.leftAt,
        in: slot,
        into: &effects
      )
      return ImportedRow(slot: slot, row: row, steps: [])
    }
    // Under visible history a member starts with everything read (R6).
    let start = record.hidesHistory || slot.isThread ? SequenceNumber.zero : join.sequence
    record.role = member.role
    record.isMuted = member.flags.contains(.muted)
    let read = try reached(.read, member, in: slot, from: start, joinedAt: join.at, at: time)
    record.read = read.position
    record.readAt = read.at
    record.readStepCount = read.count
    record.readIsHidden = member.flags.contains(.readIsHidden)
    let delivered = try reached(.delivered, member, in: slot, from: .zero, joinedAt: join.at, at: time)
    record.delivered = delivered.position
    record.deliveredAt = delivered.at
    record.deliveredStepCount = delivered.count
    record.deliveredIsHidden = member.flags.contains(.deliveredIsHidden)
    record.unreadEpoch = member.shownEpoch
    record.marker = try marker(of: member, below: record.read, in: slot)
    record.isFlaggedUnread = member.flags.contains(.flaggedUnread) && !slot.isThread
    if record.isFlaggedUnread { record.flaggedAt = join.at }
    record.acknowledgedThrough = min(member.acknowledgedThrough, self[slot].messages.newest)
    effects.append(.channel(self[slot].number, .rowAssigned(row, record)))
    decidePendingMentions(of: member.user, row, joined: join.sequence, in: slot, into: &effects)
    return ImportedRow(slot: slot, row: row, steps: inOrder(read.steps + delivered.steps, of: row))
  }

  /// Raise the watermarks of a member who is there already. A marker and a flag follow only from a higher epoch (R4).
  private func decideRise(
    _ member: TransferredMember,
    of row: MemberOrdinal,
    in slot: ChannelSlot,
    at time: Timestamp,
    into effects: inout [Effect]
  ) throws(Refusal) -> ImportedRow? {
    let before = self[slot].record(of: row)
    var record = before
    let read = try reached(
      .read,
      member,
      in: slot,
      from: before.read,
      known: before.readStepCount,
      joinedAt: before.joinedAt,
      at: time
    )
    if read.position > before.read {
      record.read = read.position
      record.readAt = max(before.readAt, read.at)
      record.readStepCount = read.count
      record.readIsHidden = member.flags.contains(.readIsHidden)
      // A read in the old system has ended the marker of an earlier import. What the user has marked here since stays.
      if member.shownEpoch == before.unreadEpoch, before.markedAt == .none { record.marker = nil }
    }
    let delivered = try reached(
      .delivered,
      member,
      in: slot,
      from: before.delivered,
      known: before.deliveredStepCount,
      joinedAt: before.joinedAt,
      at: time
    )
    if delivered.position > before.delivered {
      record.delivered = delivered.position
      record.deliveredAt = max(before.deliveredAt, delivered.at)
      record.ackedAt = .none
      record.deliveredStepCount = delivered.count
      record.deliveredIsHidden = member.flags.contains(.deliveredIsHidden)
    }
    if member.shownEpoch > before.unreadEpoch {
      record.unreadEpoch = member.shownEpoch
      record.marker = try marker(of: member, below: record.read, in: slot)
      record.isFlaggedUnread = member.flags.contains(.flaggedUnread) && !slot.isThread
      if record.isFlaggedUnread { record.flaggedAt = max(before.flaggedAt, before.joinedAt) }
    }
    guard record != before else { return nil }
    effects.append(.channel(self[slot].number, .rowAssigned(row, record)))
    return ImportedRow(slot: slot, row: row, steps: inOrder(read.steps + delivered.steps, of: row))
  }

  private func marker(
    of member: TransferredMember,
    below read: SequenceNumber,
    in slot: ChannelSlot
  ) throws(Refusal) -> SequenceNumber? {
    guard !member.unreadFrom.isEmpty else { return nil }
    guard let first = find(message: member.unreadFrom, in: slot) else { throw .messageNotFound }
    return first <= read ? SequenceNumber(first.rawValue - 1) : nil
  }

  // MARK: Watermarks

  private struct Watermark {
    var position: SequenceNumber
    /// None: it has not moved since the join.
    var at = Timestamp.none
    /// How often it has moved.
    var count: UInt32 = 0
    var steps: [Step] = []
  }

  /// Return how far a watermark of an imported row has come. Its moves are numbered so that only a time which is known
  /// to be exact is shown as exact (R17): with an unknown number of moves, one is taken to be missing before the first.
  ///
  /// - Parameters:
  ///   - start: its position before the import.
  ///   - known: the number of its moves up to there.
  ///   - joinedAt: no move is earlier than the join.
  private func reached(
    _ kind: StepKind,
    _ member: TransferredMember,
    in slot: ChannelSlot,
    from start: SequenceNumber,
    known: UInt32 = 0,
    joinedAt: Timestamp,
    at time: Timestamp
  ) throws(Refusal) -> Watermark {
    let id = kind == .read ? member.read : member.delivered
    var position = start
    if !id.isEmpty {
      guard let named = find(message: id, in: slot) else { throw .messageNotFound }
      position = max(start, named)
    }
    guard !member.moves.contains(where: { $0.kind == kind && $0.sequence > position }) else { throw .importConflict }
    let given = kind == .read ? member.readAt : member.deliveredAt
    // A row that was left where it started has the time that it was given, if any.
    guard position > start || known == 0 && given != .none else { return Watermark(position: start) }
    let registered = position == .zero ? Timestamp.none : self[slot].messages.registeredAt(position)
    var watermark = Watermark(position: position, at: max(given.or(time), registered, joinedAt))
    var last = start
    var lastAt = joinedAt
    for move in member.moves where move.kind == kind && move.sequence > start {
      guard move.sequence > last else { throw .importConflict }
      last = move.sequence
      lastAt = max(move.at, lastAt, self[slot].messages.registeredAt(move.sequence))
      let step = Step(row: 0, kind: kind, sequence: last, time: lastAt, number: 1, isHidden: move.isHidden)
      watermark.steps.append(step)
    }
    // The move to the position itself, if it is not among those given. Without a time it is not kept.
    var unkept: UInt32 = 0
    if last < position, !watermark.steps.isEmpty {
      if given == .none {
        unkept = 1
      } else {
        watermark.at = max(watermark.at, lastAt)
        watermark.steps.append(Step(row: 0, kind: kind, sequence: position, time: watermark.at, number: 1))
      }
    }
    let total = known == 0 ? kind == .read ? member.readMoves : member.deliveredMoves : 0
    let count = UInt32(watermark.steps.count)
    guard total == 0 || total >= count + unkept else { throw .importConflict }
    watermark.count = total > 0 ? total : known + max(1, count + unkept) + 1
    for index in watermark.steps.indices {
      watermark.steps[index].number = watermark.count - count - unkept + UInt32(index) + 1
    }
    if let first = watermark.steps.first, first.number > 1 { watermark.steps[0].isAfterDropped = true }
    return watermark
  }

  /// Return steps in the order in which they were made, for a row.
  private func inOrder(_ steps: [Step], of row: MemberOrdinal) -> [Step] {
    var steps = steps
    for index in steps.indices { steps[index].row = UInt8(truncatingIfNeeded: row.rawValue) }
    return steps.sorted { ($0.time, $0.kind.rawValue, $0.number) < ($1.time, $1.kind.rawValue, $1.number) }
  }
}
