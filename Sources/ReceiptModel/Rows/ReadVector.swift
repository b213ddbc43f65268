/// One channel's watermarks, a row per member, in join order, as a structure of arrays
/// (docs/contribute/architecture.md). Counting who has read message n is one pass over integers.
///
/// Row numbers are never reused. The row of a member who left stays, with all positions at 0, so that counts do not
/// include it.
package struct ReadVector: ~Copyable, Sendable {
  /// Maximum number of rows, including those of members who left.
  package static let rowsMax = 1 << 24

  private(set) var roster = Roster()
  private(set) var flags = RowFlags()
  private(set) var read = WatermarkColumn()
  private(set) var delivered = WatermarkColumn()
  private var ackedTimes = AckedTimes()
  private(set) var markers = UnreadMarkers()
  private(set) var bounds: ThreadBounds
  /// How far mark-read has acknowledged the messages.
  private var acknowledged: [UInt32] = []

  package init(isOfThread: Bool = false) { bounds = ThreadBounds(isOfThread: isOfThread) }

  /// Whether these are the rows of a thread.
  var isOfThread: Bool { bounds.isOfThread }

  /// Number of rows, including those of members who left.
  package var rowCount: Int { roster.rowCount }

  /// Number of current members.
  package var activeCount: Int { flags.activeCount }

  /// Number of current members who cannot see the history before their join (R6).
  package var hidingHistoryCount: Int { flags.hidingHistoryCount }

  package func isActive(_ row: MemberOrdinal) -> Bool { flags.isActive(row) }

  func hidesHistory(_ row: MemberOrdinal) -> Bool { flags.hidesHistory(row) }

  /// Return whether the member hides their read positions from others (R7).
  package func hidesRead(_ row: MemberOrdinal) -> Bool { flags.hidesRead(row) }

  /// Return whether the member hides their delivered positions from others (R7).
  package func hidesDelivered(_ row: MemberOrdinal) -> Bool { flags.hidesDelivered(row) }

  /// Return whether the last move was made while the member hid it, so that its time must not be shown.
  func readIsHidden(_ row: MemberOrdinal) -> Bool { flags.readIsHidden(row) }
  func deliveredIsHidden(_ row: MemberOrdinal) -> Bool { flags.deliveredIsHidden(row) }

  /// Return whether the member is in this thread only because they marked it read.
  func joinedByReading(_ row: MemberOrdinal) -> Bool { flags.joinedByReading(row) }

  /// Return whether others may see what the member reads: both the member (R7) and the channel (R8) allow it.
  func showsRead(_ row: MemberOrdinal, _ options: ChannelTypeOptions) -> Bool {
    options.readEvents && !hidesRead(row)
  }

  /// Return whether others do not see that the member is in this thread: they have only read in it, and that is hidden.
  func isUnseen(_ row: MemberOrdinal, _ options: ChannelTypeOptions) -> Bool {
    joinedByReading(row) && !showsRead(row, options)
  }

  /// Return whether others see the member's delivered position (R7, R8). In a thread only from the first reply that
  /// counts for the member: a delivery without taking part never counts (R15).
  func showsDelivered(_ row: MemberOrdinal, _ options: ChannelTypeOptions) -> Bool {
    options.deliveryEvents && !hidesDelivered(row) && (!isOfThread || delivered[row] > joined(row))
  }

  /// Return whether a reminder may name the member: never somebody whom others do not see, or who hides what the
  /// condition asks for (R7, R22), and nobody if the channel does not show it (R8).
  func mayBeNamed(_ row: MemberOrdinal, _ condition: ReminderCondition, _ options: ChannelTypeOptions) -> Bool {
    guard isActive(row), !isUnseen(row, options) else { return false }
    return switch condition {
    case .undelivered: options.deliveryEvents && !hidesDelivered(row)
    case .unread: showsRead(row, options)
    case .unacknowledged: !hidesRead(row)
    }
  }

  func user(_ row: MemberOrdinal) -> UserNumber { roster.user(row) }

  /// Return the row of a current member.
  @inline(__always)
  package func row(of user: UserNumber) -> MemberOrdinal? { roster.row(of: user) }

  /// Return all rows that a user has had, rising: one pass.
  func rows(of user: UserNumber) -> [MemberOrdinal] { roster.rows(of: user) }

  /// Return the newest message when the member joined.
  @inline(__always)
  package func joined(_ row: MemberOrdinal) -> SequenceNumber { roster.joined(row) }

  @inline(__always)
  package func joinedAt(_ row: MemberOrdinal) -> Timestamp { roster.joinedAt(row) }

  /// Return the member's role; nil: none.
  package func role(_ row: MemberOrdinal) -> String? { roster.role(row) }

  /// Return the number of rows that joined before message `sequence`.
  func joinedBefore(_ sequence: SequenceNumber) -> Int { roster.joinedBefore(sequence) }

  /// Return, in a thread, the position up to which the member has visibly read (R7, R8). Zero in a channel.
  func countedThrough(_ row: MemberOrdinal, _ options: ChannelTypeOptions) -> UInt32 {
    isOfThread && showsRead(row, options) ? read[row].rawValue : 0
  }

  /// Return the message after which other members' statuses can depend on this row.
  func countedAfter(_ row: MemberOrdinal) -> UInt32 {
    isOfThread ? bounds.countedAfter(row).rawValue : joined(row).rawValue
  }

  /// Return whether exactly `count` members are in this thread, none of them by reading only.
  func isComplete(_ count: Int) -> Bool { activeCount == count && !flags.hasMemberByReading }

  /// Return the first current members, at most `wanted`.
  func firstMembers(_ wanted: Int) -> [MemberOrdinal] { flags.firstActive(wanted) }

  /// Return the own position: where the member's own unread count starts (R4).
  @inline(__always)
  package func ownPosition(_ row: MemberOrdinal) -> SequenceNumber {
    markers.ownPosition(row, read: read[row])
  }

  func marker(_ row: MemberOrdinal) -> SequenceNumber? { markers.marker(row) }

  /// Return when the marker was last set, moved or cleared; none: never.
  func markedAt(_ row: MemberOrdinal) -> Timestamp { markers.markedAt(row) }

  /// Return the row's unread epoch (R4).
  func epoch(_ row: MemberOrdinal) -> UInt32 { markers.epoch(row) }

  /// Return whether the member excludes the channel from their unread totals (R14).
  package func isMuted(_ row: MemberOrdinal) -> Bool { roster.isMuted(row) }

  /// Return whether the member has flagged the channel unread as a whole (R4).
  @inline(__always)
  package func isFlaggedUnread(_ row: MemberOrdinal) -> Bool { markers.isFlagged(row) }

  /// Return when the flag was last set or cleared; none: never.
  func flaggedAt(_ row: MemberOrdinal) -> Timestamp { markers.flaggedAt(row) }

  /// Return the shown time of the last delivered move (R20): the time of the push ack, if there is one.
  func deliveredShownAt(_ row: MemberOrdinal) -> Timestamp { ackedAt(row).or(delivered.time(row)) }

  /// Return the time of the push ack of the last delivered move; none: its own time is shown.
  func ackedAt(_ row: MemberOrdinal) -> Timestamp {
    ackedTimes.time(row, stepCount: delivered.stepCount(row))
  }

  /// Return when a left row's member left or was erased.
  func leftAt(_ row: MemberOrdinal) -> Timestamp { read.time(row) }

  /// Return how far mark-read has acknowledged the messages.
  func acknowledgedThrough(_ row: MemberOrdinal) -> SequenceNumber {
    SequenceNumber(acknowledged[Int(row.rawValue)])
  }

  // MARK: Assignment

  /// Assign a whole row. Rows may be assigned in any order; unassigned rows count as left.
  mutating func assign(_ row: MemberOrdinal, _ record: RowRecord, user: UserNumber) {
    while rowCount <= Int(row.rawValue) { appendVacant() }
    roster.assign(row, record, user: user)
    flags.assign(row, record)
    read.assign(row, to: record.read, at: record.readAt, stepCount: record.readStepCount)
    delivered.assign(row, to: record.delivered, at: record.deliveredAt, stepCount: record.deliveredStepCount)
    ackedTimes.assign(row, stepCount: record.deliveredStepCount, at: record.ackedAt)
    markers.assign(row, record.marker, epoch: record.unreadEpoch, at: record.markedAt)
    markers.assignFlag(row, isSet: record.isFlaggedUnread, epoch: record.unreadEpoch, at: record.flaggedAt)
    bounds.assign(row, record)
    acknowledge(row, through: record.acknowledgedThrough)
  }

  mutating func leave(_ row: MemberOrdinal, at time: Timestamp) {
    guard isActive(row) else { return }
    roster.leave(row)
    flags.leave(row)
    read.clear(row, at: time)
    delivered.clear(row, at: .none)
    markers.clear(row)
    acknowledge(row, through: .zero)
  }

  /// Mark a row as left and clear its user (R16).
  mutating func erase(_ row: MemberOrdinal, at time: Timestamp) {
    leave(row, at: time)
    read.clear(row, at: time)
    roster.eraseUser(row)
  }

  mutating func moveRead(_ row: MemberOrdinal, to sequence: SequenceNumber, at time: Timestamp, isHidden: Bool) {
    read.move(row, to: sequence, at: time)
    flags.assignReadIsHidden(row, isHidden)
  }

  mutating func moveDelivered(_ row: MemberOrdinal, to sequence: SequenceNumber, at time: Timestamp, isHidden: Bool) {
    delivered.move(row, to: sequence, at: time)
    flags.assignDeliveredIsHidden(row, isHidden)
  }

  /// Set the shown time of the last delivered move (R20).
  mutating func assignAcked(_ row: MemberOrdinal, at time: Timestamp) {
    ackedTimes.assign(row, stepCount: delivered.stepCount(row), at: time)
  }

  mutating func acknowledge(_ row: MemberOrdinal, through sequence: SequenceNumber) {
    acknowledged[Int(row.rawValue)] = sequence.rawValue
  }

  /// Set what the member's user hides from others (R7).
  mutating func hide(_ row: MemberOrdinal, read: Bool, delivered: Bool) {
    flags.hide(row, read: read, delivered: delivered)
  }

  mutating func assignMarker(_ row: MemberOrdinal, _ marker: SequenceNumber?, epoch: UInt32, at time: Timestamp) {
    markers.assign(row, marker, epoch: epoch, at: time)
  }

  mutating func assignMuted(_ row: MemberOrdinal, _ isMuted: Bool) { roster.assignMuted(row, isMuted) }

  mutating func assignFlag(_ row: MemberOrdinal, isSet: Bool, epoch: UInt32, at time: Timestamp) {
    markers.assignFlag(row, isSet: isSet, epoch: epoch, at: time)
  }

  mutating func assignRole(_ row: MemberOrdinal, _ role: String) { roster.assignRole(row, role) }

  private mutating func appendVacant() {
    roster.append()
    flags.append()
    read.append()
    delivered.append()
    markers.append()
    bounds.append()
    acknowledged.append(0)
  }

  /// Size in bytes.
  var byteCount: Int {
    roster.byteCount + flags.byteCount + read.byteCount + delivered.byteCount + ackedTimes.byteCount
      + markers.byteCount + bounds.byteCount + heapBytes(acknowledged)
  }
}

#if DEBUG
  extension ReadVector {
    /// Check that all columns have a value for each row, and what each part derives from its columns.
    func checkColumns() -> String? {
      if acknowledged.count != rowCount { return "acknowledged positions: not one for each row" }
      return roster.checkInvariants(activeCount: activeCount) ?? flags.checkInvariants(rowCount: rowCount)
        ?? read.checkColumns(rowCount: rowCount) ?? delivered.checkColumns(rowCount: rowCount)
        ?? markers.checkColumns(rowCount: rowCount) ?? bounds.checkColumns(rowCount: rowCount)
    }
  }
#endif

/// The shown times of rows' last delivered moves, of those that were acknowledged with a time (R20). Only as long as
/// the highest row that ever had one.
struct AckedTimes: ~Copyable, Sendable {
  /// A time is valid only for the move with this number, so that a move without such a time need not look it up.
  private struct Move: Sendable {
    var number: UInt32 = 0
    var at: Int64 = 0
  }

  private var moves: [Move] = []

  /// Return the time of the push ack of a row's last delivered move; none: its own time is shown.
  ///
  /// - Parameter stepCount: the number of that move.
  func time(_ row: MemberOrdinal, stepCount: UInt32) -> Timestamp {
    let position = Int(row.rawValue)
    guard position < moves.count, moves[position].number == stepCount else { return .none }
    return Timestamp(milliseconds: moves[position].at)
  }

  mutating func assign(_ row: MemberOrdinal, stepCount: UInt32, at time: Timestamp) {
    let position = Int(row.rawValue)
    if position >= moves.count {
      if time == .none { return }
      moves.append(contentsOf: repeatElement(Move(), count: position + 1 - moves.count))
    }
    moves[position] = Move(number: stepCount, at: time.milliseconds)
  }

  /// Size in bytes.
  var byteCount: Int { heapBytes(moves) }
}
