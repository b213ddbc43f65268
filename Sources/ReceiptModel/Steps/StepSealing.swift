/// Sealing tails and trimming segments (R17).
extension ShardState {
  /// Seal the tail of the row's page into a segment if this move would exceed the tail's maximum. Call this before the
  /// move's effect is appended. A position that does not move seals nothing.
  @inline(__always)
  func decideSealTail(
    _ slot: ChannelSlot,
    _ row: MemberOrdinal,
    _ kind: StepKind,
    to sequence: SequenceNumber,
    into effects: inout [Effect]
  ) {
    if self[slot].steps.tailCount(row) >= StepTable.tailStepsMin {
      decideSealFullTail(slot, row, kind, to: sequence, into: &effects)
    }
  }

  private func decideSealFullTail(
    _ slot: ChannelSlot,
    _ row: MemberOrdinal,
    _ kind: StepKind,
    to sequence: SequenceNumber,
    into effects: inout [Effect]
  ) {
    let rowPage = row.rawValue / PageID.rowsPerPage
    let watermark =
      kind == .read ? self[slot].rows.read[row] : self[slot].rows.delivered[row]
    guard sequence > watermark, self[slot].steps.tailCount(row) >= self[slot].tailStepsMax(rowPage)
    else { return }
    decideSealTail(of: row, in: slot, into: &effects)
  }

  /// Seal the tail of a row's page, which has steps.
  func decideSealTail(of row: MemberOrdinal, in slot: ChannelSlot, into effects: inout [Effect]) {
    let rowPage = row.rawValue / PageID.rowsPerPage
    let number = self[slot].number
    let next = self[slot].steps.segments(rowPage).upperBound
    // Nothing of the tail or the segments is kept; a thread never seals its steps (R15).
    guard !slot.isThread, options(slot).keptSteps > 0 else {
      effects.append(droppingSteps(slot, row))
      return
    }
    let tail = self[slot].steps.tail(rowPage)
    effects.append(.channel(number, .stepsSealed(rowPage: rowPage, segment: next, bytes: tail.bytes)))
    effects.append(.channel(number, .stepTailCut(rowPage: rowPage, end: tail.end)))
  }

  /// Return whether a row page has about twice the segments that its kept steps need, so that rewriting them pays off.
  package func needsTrim(_ slot: ChannelSlot, _ rowPage: UInt32) -> Bool {
    let count = self[slot].steps.segments(rowPage).count
    guard count > 2 else { return false }
    let needed = self[slot].segmentsNeeded(rowPage, kept: options(slot).keptSteps)
    return count > 2 * needed + 2
  }

  /// Rewrite a row page's segments as fewer ones, without the steps that are no longer kept. The new segments are
  /// numbered at the end of the same range, so that segments sealed meanwhile follow them.
  ///
  /// - Parameters:
  ///   - range: begins with the oldest live segment.
  ///   - segments: their bytes, one for each of `range`.
  /// - Returns: false if a segment is damaged; nothing is appended then.
  package func decideTrim(
    _ slot: ChannelSlot,
    _ rowPage: UInt32,
    _ range: Range<UInt32>,
    _ segments: [[UInt8]],
    into effects: inout [Effect]
  ) -> Bool {
    let kept = options(slot).keptSteps
    guard let merged = self[slot].merged(rowPage, segments, kept: kept) else { return false }
    // Merging gains nothing, or would need more segments than it replaces.
    guard merged.count < segments.count else { return true }
    let number = self[slot].number
    let first = range.upperBound - UInt32(merged.count)
    for (offset, bytes) in merged.enumerated() {
      effects.append(.channel(number, .stepsSealed(rowPage: rowPage, segment: first + UInt32(offset), bytes: bytes)))
    }
    effects.append(.channel(number, .stepsTrimmed(rowPage: rowPage, first: first)))
    return true
  }
}

extension ChannelState {
  /// Return when the row's watermark first reached a message that it has reached by a move (R17).
  ///
  /// - Parameters:
  ///   - kept: the option `kept_steps`.
  ///   - seesHidden: the viewer is the user.
  ///   - read: the segments read for this query so far.
  package func stepTime(
    _ kind: StepKind,
    _ row: MemberOrdinal,
    reaching sequence: SequenceNumber,
    kept: UInt16,
    seesHidden: Bool = false,
    in read: borrowing ReadSegments
  ) -> StepTime {
    let isRead = kind == .read
    let last = isRead ? rows.read.time(row) : rows.deliveredShownAt(row)
    let isHidden = isRead ? rows.readIsHidden(row) : rows.deliveredIsHidden(row)
    // Without kept steps the last move answers, and it may be hidden.
    if kept == 0, isHidden, !seesHidden { return .hidden(last) }
    return steps.time(
      kind,
      row,
      reaching: sequence,
      count: isRead ? rows.read.stepCount(row) : rows.delivered.stepCount(row),
      last: last,
      since: messages.registeredAt(sequence),
      kept: kept,
      isOfThread: isThread,
      seesHidden: seesHidden,
      in: read
    )
  }

  /// Return whether the tail of a row's page has its maximum number of steps.
  func isTailFull(_ row: MemberOrdinal) -> Bool {
    steps.tailCount(row) >= tailStepsMax(row.rawValue / PageID.rowsPerPage)
  }

  /// Return the maximum number of steps in a row page's tail: one for each row, within bounds.
  func tailStepsMax(_ rowPage: UInt32) -> Int {
    let count = rows.rowCount - Int(rowPage * PageID.rowsPerPage)
    return min(max(count, StepTable.tailStepsMin), StepTable.tailStepsMax)
  }

  /// Return the highest step number that is dropped; later steps are kept. One step more is kept than the option
  /// says: its position shows whether the step after it was the first to reach a message.
  private func dropped(_ row: MemberOrdinal, _ kind: StepKind, kept: UInt16) -> UInt32 {
    let count = kind == .read ? rows.read.stepCount(row) : rows.delivered.stepCount(row)
    return count > UInt32(kept) + 1 ? count - UInt32(kept) - 1 : 0
  }

  private func rowsOfPage(_ rowPage: UInt32) -> Range<Int> {
    let first = min(Int(rowPage * PageID.rowsPerPage), rows.rowCount)
    return first..<min(first + Int(PageID.rowsPerPage), rows.rowCount)
  }

  /// Return the number of segments, of the size that a tail makes, that hold all kept steps of a row page.
  func segmentsNeeded(_ rowPage: UInt32, kept: UInt16) -> Int {
    guard kept > 0 else { return 0 }
    var steps = 0
    for position in rowsOfPage(rowPage) {
      let row = MemberOrdinal(UInt32(position))
      steps += Int(rows.read.stepCount(row) - dropped(row, .read, kept: kept))
      steps += Int(rows.delivered.stepCount(row) - dropped(row, .delivered, kept: kept))
    }
    let each = tailStepsMax(rowPage)
    return (steps + each - 1) / each
  }

  /// See ``ShardState/decideTrim(_:_:_:_:into:)``.
  func merged(_ rowPage: UInt32, _ segments: [[UInt8]], kept: UInt16) -> [[UInt8]]? {
    // By watermark: steps up to this number are dropped; for left and missing rows, all steps.
    var droppedThrough = [UInt32](repeating: .max, count: 512)
    if kept > 0 {
      for position in rowsOfPage(rowPage) {
        let row = MemberOrdinal(UInt32(position))
        guard rows.isActive(row) else { continue }
        for kind in [StepKind.read, .delivered] {
          let key = Step.key(UInt8(truncatingIfNeeded: position), kind)
          droppedThrough[Int(key)] = dropped(row, kind, kept: kept)
        }
      }
    }
    return StepBytes.merge(segments) { $0.number > droppedThrough[Int($0.key)] }
  }
}

extension StepTailRecord {
  /// Whether this can be a row page's step state: damaged pages are refused on loading.
  package var isWhole: Bool {
    ends.count < Int(StepTable.segmentsMax) && first < StepTable.segmentsMax
      && zip(ends, ends.dropFirst()).allSatisfy { $0 <= $1 } && StepBytes.areWhole(tail)
  }
}
