/// The changes in one subscribed channel since its subscribers were last notified. Each row, status and acknowledgement
/// is recorded once, however often it changes, so rows and new messages bound the memory, not marks.
package struct PendingChannelEvents: Sendable {
  /// The time of the oldest recorded change.
  package private(set) var oldest = Timestamp.none
  /// The time of the newest recorded change that others besides its member's own devices may see (R4, R7, R8); none: no
  /// such change.
  private(set) var newestShown = Timestamp.none

  /// Events with their position in the order of changes.
  private(set) var happened: [(order: Int, event: ChannelEvent)] = []
  /// Changed rows, by thread and row.
  private var changedRows = KeyedList<UInt64, PendingRowChange>()
  /// Changed acknowledgements, by message and row.
  private var changedAcknowledgements = KeyedList<UInt64, PendingAcknowledgementChange>()
  /// Changed statuses, by thread.
  private var changedStatuses = KeyedList<SequenceNumber, PendingStatusChange>()
  /// The options before a change of options that makes all rows look different; nil: no such change.
  private(set) var optionsBefore: ChannelTypeOptions?

  /// The acknowledgement requests that were done before a member left; nil: no member left.
  private(set) var doneBefore: Set<SequenceNumber>?
  /// Report all acknowledged messages, because it is not known which were done.
  private(set) var reportsAllAcknowledgements = false

  private var count = 0
  /// The row whose positions the last recorded message moves; nil if anything else was recorded since.
  private var sendingKey: UInt64?

  /// A changed row; its current state is read when the event is created.
  struct PendingRowChange: Sendable {
    var thread: SequenceNumber
    var row: MemberOrdinal
    /// The last change to report to the member's own devices, and the last that others may see. Kept apart, so that the
    /// time or order of other events never reveals a hidden read (R7).
    var own: Moment?
    var shown: Moment?
    var isRead = false
    var isUnread = false
    /// The own devices need the row itself, because no message carries its epoch.
    var hasNewEpoch = false
    /// The delivered watermark moved.
    var isDelivered = false
    /// Report to others whatever the row was before: it was hidden, or is visible again.
    var isShownAnew = false
    /// The row as others saw it before; nil: it did not exist.
    var before: ShownRow?
  }

  /// The time of a change, and its position in the order of changes.
  struct Moment: Sendable {
    var order: Int
    var at: Timestamp
  }

  /// The recipients of a row's change.
  struct Audience: OptionSet, Sendable {
    let rawValue: UInt8
    static let own = Audience(rawValue: 1)
    static let others = Audience(rawValue: 2)
  }

  /// An acknowledgement of a message by a row.
  struct PendingAcknowledgementChange: Sendable {
    var sequence: SequenceNumber
    /// nil: several rows, none of which is named.
    var row: MemberOrdinal?
    var order = 0
    var at = Timestamp.none
  }

  /// The changes that may affect statuses in the channel or in a thread.
  struct PendingStatusChange: Sendable {
    var thread: SequenceNumber
    var changes = StatusChanges()

    init(thread: SequenceNumber, newestBefore: SequenceNumber) {
      self.thread = thread
      changes.newestBefore = newestBefore
    }
  }

  /// Acknowledgements reported one by one; beyond that, one event for each message.
  static let acknowledgementsMax = 1_024

  package init() {}

  package var isEmpty: Bool { oldest == .none }

  var rows: [PendingRowChange] { changedRows.elements }
  var acknowledgementChanges: [PendingAcknowledgementChange] { changedAcknowledgements.elements }
  var statuses: [PendingStatusChange] { changedStatuses.elements }

  /// Extend the pending period back to `time`, because the recorded changes follow from an earlier event. Until they
  /// are reported, the shard is not complete from then on.
  package mutating func extendPendingPeriod(since time: Timestamp) {
    if !isEmpty { oldest = min(oldest, time) }
  }

  /// Remove and return the changes that are reported at once in channels of any size: messages, members, options and
  /// removals. Rows, acknowledgements and statuses stay. They are reported from the state at that later time, so their
  /// order relative to these does not matter.
  ///
  /// - Returns: nil if there are none.
  package mutating func takeImmediateEvents() -> PendingChannelEvents? {
    guard !happened.isEmpty else { return nil }
    var taken = PendingChannelEvents()
    taken.oldest = oldest
    taken.newestShown = newestShown
    swap(&taken.happened, &happened)
    return taken
  }

  // MARK: Recording

  mutating func add(_ event: ChannelEvent, at time: Timestamp) {
    sendingKey = nil
    happened.append((next(time), event))
  }

  /// Record a change of a row.
  ///
  /// - Parameters:
  ///   - audience: the recipients of the change.
  ///   - before: the row as others see it before the change; called only the first time.
  mutating func recordChange(
    _ row: MemberOrdinal,
    inThread thread: SequenceNumber,
    at time: Timestamp,
    for audience: Audience,
    before: () -> ShownRow?,
    _ change: (inout PendingRowChange) -> Void
  ) {
    sendingKey = nil
    let moment = Moment(order: next(time, isShown: audience.contains(.others)), at: time)
    changedRows.update(
      Self.key(row, thread),
      default: { PendingRowChange(thread: thread, row: row, before: before()) }
    ) {
      if audience.contains(.own) { $0.own = moment }
      if audience.contains(.others) { $0.shown = moment }
      change(&$0)
    }
  }

  /// Return whether the last recorded change is the registration of this message.
  func isNewest(_ sequence: SequenceNumber, inThread thread: SequenceNumber) -> Bool {
    guard case .messageNew(thread, sequence, _)? = happened.last?.event else { return false }
    return true
  }

  /// Return whether the last recorded message moves this row's positions.
  func isSending(_ row: MemberOrdinal, inThread thread: SequenceNumber) -> Bool {
    sendingKey == Self.key(row, thread)
  }

  /// Record that the last recorded message moves its sender's positions. The message's event then covers these moves
  /// and the earlier recorded ones (R5). A mark-unread to report to the row's own devices stays recorded, because no
  /// message carries its epoch.
  mutating func send(
    _ row: MemberOrdinal,
    inThread thread: SequenceNumber,
    to sequence: SequenceNumber,
    at time: Timestamp,
    _ moves: ChannelEvent.SenderMoves
  ) {
    guard case .messageNew(_, _, let known)? = happened.last?.event else { return }
    happened[happened.count - 1].event = .messageNew(thread: thread, sequence, moves: known.union(moves))
    let key = Self.key(row, thread)
    sendingKey = key
    // Any other change of the row follows from the message's event.
    let isShown = !moves.isDisjoint(with: [.readShown, .deliveredShown])
    let shown = isShown && changedRows[key] != nil ? Moment(order: next(time), at: time) : nil
    changedRows.updateExisting(key) { change in
      if let shown { change.shown = shown }
      if moves.contains(.read) {
        // A new row in a thread has an epoch that the own devices may not know.
        let staysOwn = change.hasNewEpoch || change.isUnread || change.before == nil
        change.hasNewEpoch = staysOwn
        change.isRead = staysOwn && (change.isRead || change.isUnread)
        change.isUnread = false
        if !staysOwn { change.own = nil }
      }
      guard isShown else { return }
      change.isDelivered = false
      // If the read watermark stays: a new row in a thread has read nothing.
      let readsOn = moves.contains(.readShown)
      let before = change.before
      change.before = ShownRow(
        row: row,
        lastRead: readsOn ? time : before?.lastRead ?? time,
        lastReadSequence: readsOn ? sequence : before?.lastReadSequence ?? .zero,
        lastDelivered: time,
        lastDeliveredSequence: sequence,
        own: nil
      )
    }
  }

  /// - Parameter newest: the newest message before the change.
  mutating func changeStatuses(
    inThread thread: SequenceNumber,
    newest: SequenceNumber,
    at time: Timestamp,
    _ change: (inout StatusChanges) -> Void
  ) {
    _ = next(time)
    changedStatuses.update(thread, default: { PendingStatusChange(thread: thread, newestBefore: newest) }) {
      change(&$0.changes)
    }
  }

  mutating func acknowledge(_ sequence: SequenceNumber, _ row: MemberOrdinal, at time: Timestamp) {
    let order = next(time)
    var row: MemberOrdinal? = row
    if changedAcknowledgements.count >= Self.acknowledgementsMax { row = nil }
    let key = UInt64(sequence.rawValue) << 32 | (row.map { UInt64($0.rawValue) + 1 } ?? 0)
    changedAcknowledgements.update(key, default: { PendingAcknowledgementChange(sequence: sequence, row: row) }) {
      ($0.order, $0.at) = (order, time)
    }
  }

  /// Record that a message's acknowledgement request has expired without being done.
  mutating func expire(_ sequence: SequenceNumber, at time: Timestamp) {
    changedAcknowledgements.append(
      PendingAcknowledgementChange(sequence: sequence, row: nil, order: next(time), at: time)
    )
  }

  /// Record that a member leaves, so that no acknowledgement request waits for them any more.
  ///
  /// - Parameter done: the acknowledgement requests that are done before that; called only the first time.
  mutating func leave(done: () -> Set<SequenceNumber>) {
    if doneBefore == nil { doneBefore = done() }
  }

  /// Record that the set of members that acknowledgement requests wait for has changed.
  mutating func reportAllAcknowledgements() { reportsAllAcknowledgements = true }

  /// Record that all rows look different, or may.
  mutating func expose(before options: ChannelTypeOptions) {
    if optionsBefore == nil { optionsBefore = options }
  }

  /// Return the recorded change of a row; nil: it has not changed.
  func change(of row: MemberOrdinal, inThread thread: SequenceNumber) -> PendingRowChange? {
    changedRows[Self.key(row, thread)]
  }

  private static func key(_ row: MemberOrdinal, _ thread: SequenceNumber) -> UInt64 {
    UInt64(thread.rawValue) << 32 | UInt64(row.rawValue)
  }

  private mutating func next(_ time: Timestamp, isShown: Bool = true) -> Int {
    // An expiry is recorded late, so it may precede the last recorded change.
    oldest = oldest == .none ? time : min(oldest, time)
    if isShown { newestShown = max(newestShown, time) }
    count += 1
    return count
  }
}

extension ChannelTypeOptions {
  /// Return whether rows may look different to others than under `other` (R4, R8).
  func showsRowsDifferently(_ other: ChannelTypeOptions) -> Bool {
    readEvents != other.readEvents || deliveryEvents != other.deliveryEvents
      || (markUnread == .public) != (other.markUnread == .public)
  }
}

/// A list in the order of arrival, whose elements are found by key.
struct KeyedList<Key: Hashable & Sendable, Element: Sendable>: Sendable {
  private(set) var elements: [Element] = []
  private var indexes: [Key: Int] = [:]

  var count: Int { elements.count }

  /// The element with this key; nil: there is none.
  subscript(key: Key) -> Element? { indexes[key].map { elements[$0] } }

  /// Change the element with this key in place; append `new` first if there is none.
  @inline(__always)
  mutating func update(_ key: Key, default new: () -> Element, _ change: (inout Element) -> Void) {
    let index: Int
    if let known = indexes[key] {
      index = known
    } else {
      index = elements.count
      indexes[key] = index
      elements.append(new())
    }
    change(&elements[index])
  }

  /// Change the element with this key in place, if there is one.
  mutating func updateExisting(_ key: Key, _ change: (inout Element) -> Void) {
    guard let index = indexes[key] else { return }
    change(&elements[index])
  }

  /// Append an element that is never looked up.
  mutating func append(_ element: Element) { elements.append(element) }
}
