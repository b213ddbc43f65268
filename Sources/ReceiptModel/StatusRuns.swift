/// How far a row counts for messages, as everybody may see it (R4, R7, R8): its member has read, or received, those at
/// or below an end.
struct RowEnds: Hashable, Sendable {
  var read: UInt32
  /// Includes ``read`` (R1).
  var received: UInt32
  /// In a thread: an inclusive upper bound. Replies from before they took part count for them up to here (R15).
  var counted: UInt32 = 0

  static let none = RowEnds(read: 0, received: 0)
}

extension ReadVector {
  func ends(_ row: MemberOrdinal, _ options: ChannelTypeOptions) -> RowEnds {
    let position = Int(row.rawValue)
    let reached = showsRead(row, options) ? read[position] : 0
    let readEnd = options.markUnread == .public ? min(reached, markers[position]) : reached
    let deliveredEnd = options.deliveryEvents && !hidesDelivered(row) ? delivered[position] : 0
    return RowEnds(
      read: readEnd,
      // Marking unread takes no delivery back (R4).
      received: max(reached, deliveredEnd),
      counted: countedThrough(row, options)
    )
  }
}

/// The messages after one and through another.
struct StatusSpan: Hashable, Sendable {
  var after: UInt32
  var through: UInt32

  static let none = StatusSpan(after: 0, through: 0)

  /// All after one, however many there are.
  init(after: UInt32) { self.init(after: after, through: .max) }

  init(after: UInt32, through: UInt32) {
    self.after = after
    self.through = through
  }

  var isEmpty: Bool { through <= after }

  func contains(_ sequence: SequenceNumber) -> Bool {
    sequence.rawValue > after && sequence.rawValue <= through
  }

  /// Both, and what lies between them.
  mutating func include(_ other: StatusSpan) {
    if other.isEmpty { return }
    self = isEmpty ? other : StatusSpan(after: min(after, other.after), through: max(through, other.through))
  }
}

/// What has changed in a channel, or in a thread, as far as statuses of messages follow from it.
struct StatusChanges: Sendable {
  /// These messages are told, changed or not: where somebody has left, is hidden or shown, or options are others, what
  /// was before is not known.
  var anew = StatusSpan.none
  /// The newest message before anything changed: those after it were *sent* when they were told of.
  var newestBefore = SequenceNumber.zero
  /// Rows that have moved, each once, and where they stood.
  var before: [MemberOrdinal: RowEnds] = [:]
  /// Acknowledgements that have come (R9), by message.
  var acknowledged: [SequenceNumber: Set<MemberOrdinal>] = [:]
}

/// Which messages have another status than before, as runs (R1, R19).
///
/// All of them are counted in one pass over the rows. A row counts for the messages from the one after its join up to
/// its end, so it is an entry at the beginning and one at the end of that, in a table over the messages that are looked
/// at; a sum over the table gives every message's counts. What was before is counted in the same pass, by a table of
/// what the rows that have moved take away and add.
extension ChannelState {
  /// The runs, in the order in which they begin. O(rows + messages looked at + their acknowledgements).
  func statusRuns(_ changes: StatusChanges, _ options: ChannelTypeOptions) -> [ChannelEvent.StatusRun] {
    guard let range = range(of: changes, options) else { return [] }
    let (now, difference) = tables(changes, over: range, options)
    var runs: [ChannelEvent.StatusRun] = []
    /// By sender: where their last run is, as long as it may go on.
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
      if options.readEvents, flags.contains(.receipt) {
        let new = changes.acknowledged[sequence]
        receipts.forEachAcknowledged(sequence) { row in
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
        sequence > changes.newestBefore
        ? .sent : ReadVector.Counts(tallyBefore).status(options.statusRule)
      let isTold = changes.anew.contains(sequence) || status != statusBefore
      if let place = open[sender], runs[place].status == status {
        if isTold { runs[place].to = sequence }
      } else if isTold {
        open[sender] = runs.count
        runs.append(ChannelEvent.StatusRun(sender: sender, from: sequence, to: sequence, status: status))
      } else {
        open[sender] = nil
      }
    }
    return runs
  }

  /// The messages to look at: those between where a row stood and where it stands, the acknowledged and the new ones,
  /// and what lies between them.
  private func range(of changes: StatusChanges, _ options: ChannelTypeOptions) -> ClosedRange<UInt32>? {
    let newest = messages.newest.rawValue
    var first = UInt32.max
    var last: UInt32 = 0
    func include(_ a: UInt32, _ b: UInt32) {
      guard a != b else { return }
      first = min(first, min(a, b) + 1)
      last = max(last, max(a, b))
    }
    if !changes.anew.isEmpty { include(min(changes.anew.after, newest), min(changes.anew.through, newest)) }
    include(min(changes.newestBefore.rawValue, newest), newest)
    // In any order: only the least and the greatest come out of it.
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

  /// What is added, at each message of the range, to what held for the one before it: to the counts as they are, and to
  /// how those before differ from them; the latter empty where no row has moved.
  private func tables(
    _ changes: StatusChanges,
    over range: ClosedRange<UInt32>,
    _ options: ChannelTypeOptions
  ) -> (now: [Tally], difference: [Tally]) {
    let (first, last) = (range.lowerBound, range.upperBound)
    var now = [Tally](repeating: .zero, count: range.count + 1)
    var difference = changes.before.isEmpty ? [] : [Tally](repeating: .zero, count: range.count + 1)
    /// What a row with these ends adds to the messages after `start` and through `end`, which all count for it.
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
      let joined = rows.joined[Int(row.rawValue)]
      if joined < last { add(row, ends, after: joined, through: last, sign: sign, to: &table) }
      guard rows.isOfThread else { return }
      let start = rows.countedAfter[Int(row.rawValue)]
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

/// ``ReadVector/Counts`` in one register, to be added at once.
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
  /// What a row that is seen adds to a message's counts by its position; nothing where the message does not count for
  /// it.
  fileprivate func share(_ row: MemberOrdinal, _ ends: RowEnds, of sequence: SequenceNumber) -> SIMD8<Int32> {
    guard counts(row, sequence, through: ends.counted) else { return .zero }
    let hidesDelivered = hidesDelivered(row)
    var share = SIMD8<Int32>.member(hidesRead: hidesRead(row), hidesDelivered: hidesDelivered)
    if ends.read >= sequence.rawValue { share &+= .read }
    if ends.received >= sequence.rawValue { share &+= .received(hidesDelivered: hidesDelivered) }
    return share
  }

  /// What an expected row that shows what it reads adds by having acknowledged the message (R9), where its position
  /// does not say so already.
  fileprivate func acknowledgement(_ row: MemberOrdinal, _ ends: RowEnds, of sequence: SequenceNumber)
    -> SIMD8<Int32>
  {
    var share = SIMD8<Int32>.zero
    if ends.read < sequence.rawValue { share &+= .read }
    if ends.received < sequence.rawValue { share &+= .received(hidesDelivered: hidesDelivered(row)) }
    return share
  }
}
