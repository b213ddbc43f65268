/// The messages that a row counts for, as everybody may see it (R4, R7, R8): its member has read, or received, the
/// messages up to each end.
struct RowEnds: Hashable, Sendable {
  var read: UInt32
  /// Includes ``read`` (R1).
  var received: UInt32
  /// In a thread: an inclusive upper bound. Replies from before the member took part count for them up to here (R15).
  var counted: UInt32 = 0

  static let none = RowEnds(read: 0, received: 0)
}

extension ReadVector {
  func ends(_ row: MemberOrdinal, _ options: ChannelTypeOptions) -> RowEnds {
    let reached = showsRead(row, options) ? read[row] : .zero
    let readEnd = options.markUnread == .public ? markers.ownPosition(row, read: reached) : reached
    let deliveredEnd = options.deliveryEvents && !hidesDelivered(row) ? delivered[row] : .zero
    return RowEnds(
      read: readEnd.rawValue,
      // Mark-unread does not undo a delivery (R4).
      received: max(reached, deliveredEnd).rawValue,
      counted: countedThrough(row, options)
    )
  }
}

/// The messages after `after` and up to `through`.
struct StatusSpan: Hashable, Sendable {
  var after: UInt32
  var through: UInt32

  static let none = StatusSpan(after: 0, through: 0)

  /// All messages after a position.
  init(after: UInt32) { self.init(after: after, through: .max) }

  init(after: UInt32, through: UInt32) {
    self.after = after
    self.through = through
  }

  var isEmpty: Bool { through <= after }

  func contains(_ sequence: SequenceNumber) -> Bool {
    sequence.rawValue > after && sequence.rawValue <= through
  }

  /// Extend this span to cover both spans and the messages between them.
  mutating func include(_ other: StatusSpan) {
    if other.isEmpty { return }
    self = isEmpty ? other : StatusSpan(after: min(after, other.after), through: max(through, other.through))
  }
}

/// The changes in a channel, or in a thread, that affect statuses of messages.
struct StatusChanges: Sendable {
  /// Messages to report whether or not their status changed. Used when the previous status is unknown: a member left,
  /// hid or became visible again, or options changed.
  var alwaysReported = StatusSpan.none
  /// The newest message before the changes; later messages were *sent* when they were reported.
  var newestBefore = SequenceNumber.zero
  /// The previous ends of the rows that moved.
  var before: [MemberOrdinal: RowEnds] = [:]
  /// New acknowledgements (R9), by message.
  var acknowledged: [SequenceNumber: Set<MemberOrdinal>] = [:]
}

/// The messages whose status changed, as runs (R1, R19).
///
/// All messages are counted in one pass over the rows. A row counts for the messages after its join up to its end. So
/// it adds one entry at the start and one at the end of that span, in a table over the examined messages. A sum over
/// the table gives every message's counts. The previous counts are computed in the same pass, from a table of the
/// differences that the moved rows make.
extension ChannelState {
  /// Return the runs, in order of their first messages. O(rows + examined messages + their acknowledgements).
  func statusRuns(_ changes: StatusChanges, _ options: ChannelTypeOptions) -> [ChannelEvent.StatusRun] {
    guard let range = range(of: changes, options) else { return [] }
    let (now, difference) = tables(changes, over: range, options)
    var runs: [ChannelEvent.StatusRun] = []
    /// By sender: the index of their last run, while it can be extended.
    var open: [UserNumber: Int] = [:]
    var sum = Tally.zero
    var differenceSum = Tally.zero
    for raw in range {
      sum &+= now[Int(raw - range.lowerBound)]
      if !difference.isEmpty { differenceSum &+= difference[Int(raw - range.lowerBound)] }
      let sequence = SequenceNumber(raw)
      let flags = messages.flags(sequence)
      guard !flags.contains(.deleted) else { continue }
      let sender = messages.sender(sequence)
      var tally = sum
      var tallyBefore = sum &+ differenceSum
      let senderRow = rows.row(of: sender)
      if let senderRow, !rows.isUnseen(senderRow, options) {
        let ends = rows.ends(senderRow, options)
        tally &-= rows.share(senderRow, ends, of: sequence)
        tallyBefore &-= rows.share(senderRow, changes.before[senderRow] ?? ends, of: sequence)
      }
      if options.readEvents, flags.contains(.requestsAcknowledgement) {
        let new = changes.acknowledged[sequence]
        acknowledgementTable.forEachAcknowledged(sequence) { row in
          guard row != senderRow, rows.isExpected(row, sequence, options), !rows.hidesRead(row) else {
            return
          }
          let ends = rows.ends(row, options)
          tally &+= rows.acknowledgement(row, ends, of: sequence)
          guard new?.contains(row) != true else { return }
          tallyBefore &+= rows.acknowledgement(row, changes.before[row] ?? ends, of: sequence)
        }
      }
      let status = ReadVector.Counts(tally).status(options.statusRule)
      let statusBefore =
        sequence > changes.newestBefore ? .sent : ReadVector.Counts(tallyBefore).status(options.statusRule)
      let isReported = changes.alwaysReported.contains(sequence) || status != statusBefore
      if let index = open[sender], runs[index].status == status {
        if isReported { runs[index].to = sequence }
      } else if isReported {
        open[sender] = runs.count
        runs.append(ChannelEvent.StatusRun(sender: sender, from: sequence, to: sequence, status: status))
      } else {
        open[sender] = nil
      }
    }
    return runs
  }

  /// Return the range of messages to examine. It covers the messages between each row's previous and current ends, the
  /// acknowledged and the new messages, and all in between.
  private func range(of changes: StatusChanges, _ options: ChannelTypeOptions) -> ClosedRange<UInt32>? {
    let newest = messages.newest.rawValue
    var first = UInt32.max
    var last: UInt32 = 0
    func include(_ a: UInt32, _ b: UInt32) {
      guard a != b else { return }
      first = min(first, min(a, b) + 1)
      last = max(last, max(a, b))
    }
    if !changes.alwaysReported.isEmpty {
      include(min(changes.alwaysReported.after, newest), min(changes.alwaysReported.through, newest))
    }
    include(min(changes.newestBefore.rawValue, newest), newest)
    // The order does not matter: only the minimum and the maximum are used.
    for (row, then) in changes.before where rows.isActive(row) && !rows.isUnseen(row, options) {
      let now = rows.ends(row, options)
      include(then.read, now.read)
      include(then.received, now.received)
      include(then.counted, now.counted)
    }
    for sequence in changes.acknowledged.keys { include(sequence.rawValue - 1, sequence.rawValue) }
    first = max(first, messages.truncatedThrough.rawValue + 1)
    last = min(last, newest)
    return first <= last ? first...last : nil
  }

  /// Return two tables over the range, each holding differences from one message to the next. The first is of the
  /// current counts, the second of the differences between previous and current counts. The second is empty if no row
  /// has moved.
  private func tables(
    _ changes: StatusChanges,
    over range: ClosedRange<UInt32>,
    _ options: ChannelTypeOptions
  ) -> (now: [Tally], difference: [Tally]) {
    let (first, last) = (range.lowerBound, range.upperBound)
    var now = [Tally](repeating: .zero, count: range.count + 1)
    var difference = changes.before.isEmpty ? [] : [Tally](repeating: .zero, count: range.count + 1)
    /// Add a row with these ends to the messages after `start` and up to `end`, which all count for it.
    func add(
      _ row: MemberOrdinal,
      _ ends: RowEnds,
      after start: UInt32,
      through end: UInt32,
      sign: Int32,
      to table: inout [Tally]
    ) {
      let start = max(start + 1, first)
      func add(_ tally: Tally, through end: UInt32) {
        guard start <= min(end, last) else { return }
        table[Int(start - first)] &+= tally &* sign
        table[Int(min(end, last) - first) + 1] &-= tally &* sign
      }
      let hidesDelivered = rows.hidesDelivered(row)
      add(.member(hidesRead: rows.hidesRead(row), hidesDelivered: hidesDelivered), through: end)
      add(.read, through: min(ends.read, end))
      add(.received(hidesDelivered: hidesDelivered), through: min(ends.received, end))
    }
    func add(_ row: MemberOrdinal, _ ends: RowEnds, sign: Int32 = 1, to table: inout [Tally]) {
      let joined = rows.joined(row).rawValue
      if joined < last { add(row, ends, after: joined, through: last, sign: sign, to: &table) }
      guard rows.isOfThread else { return }
      let start = rows.bounds.countedAfter(row).rawValue
      let end = min(ends.counted, joined)
      if start < end { add(row, ends, after: start, through: end, sign: sign, to: &table) }
    }
    let end = rows.isOfThread ? rows.rowCount : rows.joinedBefore(SequenceNumber(last))
    for position in 0..<end {
      let row = MemberOrdinal(UInt32(position))
      guard rows.isActive(row), !rows.isUnseen(row, options) else { continue }
      let ends = rows.ends(row, options)
      add(row, ends, to: &now)
      guard !changes.before.isEmpty, let then = changes.before[row] else { continue }
      add(row, then, to: &difference)
      add(row, ends, sign: -1, to: &difference)
    }
    return (now, difference)
  }
}

/// ``ReadVector/Counts`` in one register, added with one instruction.
private typealias Tally = SIMD8<Int32>

extension Tally {
  fileprivate static let read = Tally(0, 1, 0, 0, 0, 0, 0, 0)

  fileprivate static func received(hidesDelivered: Bool) -> Tally {
    Tally(0, 0, 1, hidesDelivered ? 0 : 1, 0, 0, 0, 0)
  }

  fileprivate static func member(hidesRead: Bool, hidesDelivered: Bool) -> Tally {
    Tally(1, 0, 0, 0, hidesRead ? 1 : 0, hidesDelivered ? 1 : 0, 0, 0)
  }
}

extension ReadVector.Counts {
  fileprivate init(_ tally: Tally) {
    self.init(
      members: UInt32(tally[0]),
      read: UInt32(tally[1]),
      delivered: UInt32(tally[2]),
      hidingRead: UInt32(tally[4]),
      hidingDelivered: UInt32(tally[5]),
      deliveredNotHiding: UInt32(tally[3])
    )
  }
}

extension ReadVector {
  /// Return the share of a visible row in a message's counts, by its position; zero if the message does not count for
  /// it.
  fileprivate func share(_ row: MemberOrdinal, _ ends: RowEnds, of sequence: SequenceNumber) -> SIMD8<Int32> {
    guard counts(row, sequence, through: ends.counted) else { return .zero }
    let hidesDelivered = hidesDelivered(row)
    var share = SIMD8<Int32>.member(hidesRead: hidesRead(row), hidesDelivered: hidesDelivered)
    if ends.read >= sequence.rawValue { share &+= .read }
    if ends.received >= sequence.rawValue { share &+= .received(hidesDelivered: hidesDelivered) }
    return share
  }

  /// Return the share of an expected row with visible reads from acknowledging the message (R9), if its position does
  /// not cover it already.
  fileprivate func acknowledgement(_ row: MemberOrdinal, _ ends: RowEnds, of sequence: SequenceNumber) -> SIMD8<Int32> {
    var share = SIMD8<Int32>.zero
    if ends.read < sequence.rawValue { share &+= .read }
    if ends.received < sequence.rawValue { share &+= .received(hidesDelivered: hidesDelivered(row)) }
    return share
  }
}
