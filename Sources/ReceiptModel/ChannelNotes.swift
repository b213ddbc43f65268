/// What has happened in one channel that is watched since its watchers were told last. States are kept once, however
/// often they change: memory is bounded by rows and new messages, not by marks.
package struct ChannelNotes: Sendable {
  /// The time of the oldest thing that was noted.
  package private(set) var oldest = Timestamp.none
  /// That of the newest that others than its member's own devices may know of (R4, R7, R8); none: nothing was.
  private(set) var newestShown = Timestamp.none

  /// Each with its place in the order of what happened.
  private(set) var happened: [(order: Int, event: ChannelEvent)] = []
  private(set) var rows: [RowNote] = []
  private(set) var receipts: [ReceiptNote] = []
  private(set) var statuses: [StatusNote] = []
  /// The options in force before one changed that has all rows look otherwise; nil: none did.
  private(set) var optionsBefore: ChannelTypeOptions?

  /// The receipts that were done before somebody left; nil: nobody did.
  private(set) var doneBefore: Set<SequenceNumber>?
  /// All receipts that anybody has acknowledged are told: nobody knows which were done.
  private(set) var areReceiptsAnew = false

  /// From thread and row to the place in ``rows``; likewise the others.
  private var rowPlaces: [UInt64: Int] = [:]
  private var statusPlaces: [SequenceNumber: Int] = [:]
  private var receiptPlaces: [UInt64: Int] = [:]
  private var count = 0
  /// The row whose positions are moved by the message that was noted last: nothing else was noted since.
  private var sendingKey: UInt64?

  /// A row that has changed; what it is now is looked at when it is told.
  struct RowNote: Sendable {
    var thread: SequenceNumber
    var row: MemberOrdinal
    /// Its last change that its member's own devices are told of, and the last that others may know of: when somebody
    /// has read who hides it, nobody else is told by the time or the place of anything else (R7).
    var own: Moment?
    var shown: Moment?
    var isRead = false
    var isUnread = false
    /// The own devices have to be told of the row itself: its epoch is in no message.
    var hasNewEpoch = false
    /// The delivered watermark has moved.
    var isDelivered = false
    /// Others are told, whatever it was before: it was hidden, or is shown again.
    var isShownAnew = false
    /// As others saw it before; nil: it was not there.
    var before: RowAnswer?
  }

  /// When something happened, and its place in the order of what did.
  struct Moment: Sendable {
    var order: Int
    var at: Timestamp
  }

  /// Who may know of a change of a row.
  struct Audience: OptionSet, Sendable {
    let rawValue: UInt8
    static let own = Audience(rawValue: 1)
    static let others = Audience(rawValue: 2)
  }

  /// That a row has acknowledged a message.
  struct ReceiptNote: Sendable {
    var sequence: SequenceNumber
    /// nil: several, of whom none is named.
    var row: MemberOrdinal?
    var order = 0
    var at = Timestamp.none
  }

  /// What the statuses in the channel, or in a thread, may have changed by.
  struct StatusNote: Sendable {
    var thread: SequenceNumber
    var changes = StatusChanges()
  }

  /// So many acknowledgements are told one by one, then one for each message.
  static let acknowledgementsMax = 1_024

  package init() {}

  package var isEmpty: Bool { oldest == .none }

  /// What is noted follows from something that happened before: until it is told, nothing since then is told
  /// completely.
  package mutating func hasBeenDue(since time: Timestamp) {
    if !isEmpty { oldest = min(oldest, time) }
  }

  /// Takes out what is told at once in channels of any size: messages, members, options and removal. Rows, receipts and
  /// statuses stay; they are told by the state as it is then, so in any order with these.
  ///
  /// - Returns: nil where there is none of it.
  package mutating func takeHappened() -> ChannelNotes? {
    guard !happened.isEmpty else { return nil }
    var taken = ChannelNotes()
    taken.oldest = oldest
    taken.newestShown = newestShown
    swap(&taken.happened, &happened)
    return taken
  }

  // MARK: Noting

  mutating func add(_ event: ChannelEvent, at time: Timestamp) {
    sendingKey = nil
    happened.append((next(time), event))
  }

  /// - Parameters:
  ///   - audience: who is told of the change.
  ///   - before: the row as others see it before the change; asked only the first time.
  mutating func touch(
    _ row: MemberOrdinal,
    inThread thread: SequenceNumber,
    at time: Timestamp,
    for audience: Audience,
    before: () -> RowAnswer?,
    _ change: (inout RowNote) -> Void
  ) {
    let key = Self.key(row, thread)
    sendingKey = nil
    let place: Int
    if let known = rowPlaces[key] {
      place = known
    } else {
      place = rows.count
      rowPlaces[key] = place
      rows.append(RowNote(thread: thread, row: row, before: before()))
    }
    let moment = Moment(order: next(time, isShown: audience.contains(.others)), at: time)
    if audience.contains(.own) { rows[place].own = moment }
    if audience.contains(.others) { rows[place].shown = moment }
    change(&rows[place])
  }

  /// The message that was noted last, where it is this one.
  func isNewest(_ sequence: SequenceNumber, inThread thread: SequenceNumber) -> Bool {
    guard case .messageNew(thread, sequence, _)? = happened.last?.event else { return false }
    return true
  }

  /// Whether the message that was noted last is moving this row's positions.
  func isSending(_ row: MemberOrdinal, inThread thread: SequenceNumber) -> Bool {
    sendingKey == Self.key(row, thread)
  }

  /// The message that was noted last moves positions of its sender: it stands for them, and for what was noted of them
  /// before (R5). What the row's own devices have to be told of a mark-unread stays, as its epoch is in no message.
  mutating func send(
    _ row: MemberOrdinal,
    inThread thread: SequenceNumber,
    to sequence: SequenceNumber,
    at time: Timestamp,
    _ moves: ChannelEvent.SenderMoves
  ) {
    guard case .messageNew(_, _, let known)? = happened.last?.event else { return }
    happened[happened.count - 1].event = .messageNew(
      thread: thread,
      sequence,
      moves: known.union(moves)
    )
    let key = Self.key(row, thread)
    sendingKey = key
    guard let place = rowPlaces[key] else { return }
    // Whatever else is told of the row follows from what the message says.
    let isShown = !moves.isDisjoint(with: [.readShown, .deliveredShown])
    if isShown { rows[place].shown = Moment(order: next(time), at: time) }
    if moves.contains(.read) {
      // A row that is new in a thread brings an epoch that the own devices may not know.
      let staysOwn = rows[place].hasNewEpoch || rows[place].isUnread || rows[place].before == nil
      rows[place].hasNewEpoch = staysOwn
      rows[place].isRead = staysOwn && (rows[place].isRead || rows[place].isUnread)
      rows[place].isUnread = false
      if !staysOwn { rows[place].own = nil }
    }
    if moves.contains(.readShown) {
      rows[place].isDelivered = false
      rows[place].before = RowAnswer(
        row: row,
        lastRead: time,
        lastReadSequence: sequence,
        lastDelivered: time,
        lastDeliveredSequence: sequence,
        own: nil
      )
    } else if moves.contains(.deliveredShown) {
      rows[place].isDelivered = false
      // A row that is new in a thread has read nothing.
      let before = rows[place].before
      rows[place].before = RowAnswer(
        row: row,
        lastRead: before?.lastRead ?? time,
        lastReadSequence: before?.lastReadSequence ?? .zero,
        lastDelivered: time,
        lastDeliveredSequence: sequence,
        own: nil
      )
    }
  }

  /// - Parameter newest: the newest message, before the change.
  mutating func changeStatuses(
    inThread thread: SequenceNumber,
    newest: SequenceNumber,
    at time: Timestamp,
    _ change: (inout StatusChanges) -> Void
  ) {
    _ = next(time)
    let place: Int
    if let known = statusPlaces[thread] {
      place = known
    } else {
      place = statuses.count
      statusPlaces[thread] = place
      statuses.append(StatusNote(thread: thread))
      statuses[place].changes.newestBefore = newest
    }
    change(&statuses[place].changes)
  }

  mutating func acknowledge(_ sequence: SequenceNumber, _ row: MemberOrdinal, at time: Timestamp) {
    let order = next(time)
    var row: MemberOrdinal? = row
    if receipts.count >= Self.acknowledgementsMax { row = nil }
    let key = UInt64(sequence.rawValue) << 32 | (row.map { UInt64($0.rawValue) + 1 } ?? 0)
    if let known = receiptPlaces[key] {
      (receipts[known].order, receipts[known].at) = (order, time)
    } else {
      receiptPlaces[key] = receipts.count
      receipts.append(ReceiptNote(sequence: sequence, row: row, order: order, at: time))
    }
  }

  /// The time of a message's receipt is over, and it is not done.
  mutating func expire(_ sequence: SequenceNumber, at time: Timestamp) {
    receipts.append(ReceiptNote(sequence: sequence, row: nil, order: next(time), at: time))
  }

  /// Somebody leaves, and no receipt waits for them any more.
  ///
  /// - Parameter done: the receipts that are done before that; asked only the first time.
  mutating func leave(done: () -> Set<SequenceNumber>) {
    if doneBefore == nil { doneBefore = done() }
  }

  /// Somebody is waited for who was not, or the other way round.
  mutating func tellReceiptsAnew() { areReceiptsAnew = true }

  /// All rows look otherwise, or may.
  mutating func expose(before options: ChannelTypeOptions) {
    if optionsBefore == nil { optionsBefore = options }
  }

  func hasNoted(_ row: MemberOrdinal, inThread thread: SequenceNumber) -> Bool {
    note(of: row, inThread: thread) != nil
  }

  func note(of row: MemberOrdinal, inThread thread: SequenceNumber) -> RowNote? {
    rowPlaces[Self.key(row, thread)].map { rows[$0] }
  }

  private static func key(_ row: MemberOrdinal, _ thread: SequenceNumber) -> UInt64 {
    UInt64(thread.rawValue) << 32 | UInt64(row.rawValue)
  }

  private mutating func next(_ time: Timestamp, isShown: Bool = true) -> Int {
    // What expired did so before it is noted, perhaps before what was noted last.
    oldest = oldest == .none ? time : min(oldest, time)
    if isShown { newestShown = max(newestShown, time) }
    count += 1
    return count
  }
}

extension ChannelTypeOptions {
  /// Whether rows may look otherwise to others than with these options (R4, R8).
  func showsOtherwise(_ other: ChannelTypeOptions) -> Bool {
    readEvents != other.readEvents || deliveryEvents != other.deliveryEvents
      || (markUnread == .public) != (other.markUnread == .public)
  }
}
