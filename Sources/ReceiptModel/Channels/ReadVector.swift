/// One channel's watermarks, a row per member, in join order, as a structure of arrays (docs/architecture.md). Counting
/// who has read message n is one pass over integers.
///
/// Row numbers are never reused. The row of a member who left stays, with all positions at 0, so that counts do not
/// include it.
package struct ReadVector: ~Copyable, Sendable {
  /// Maximum number of rows, including those of members who left.
  package static let rowsMax = 1 << 24
  /// In ``markers``: no marker is set. The maximum makes the own position `min(read, marker)` without a branch.
  static let noMarker = UInt32.max

  private(set) var users: [UInt32] = []
  /// Never falls from row to row, so "joined before message n" is a prefix.
  private(set) var joined: [UInt32] = []
  private(set) var read: [UInt32] = []
  private(set) var delivered: [UInt32] = []
  private(set) var markers: [UInt32] = []
  private(set) var epochs: [UInt32] = []
  private(set) var flags: [UInt8] = []
  private(set) var joinedAt: [Int64] = []
  /// For a row that was left: when the member left.
  private(set) var readAt: [Int64] = []
  private(set) var deliveredAt: [Int64] = []
  /// When the marker was last set, moved or cleared. Only as long as the highest row that ever had one; most channels
  /// have none.
  private var markedAt: [Int64] = []
  /// The shown time of a row's last delivered move, if that was acknowledged with a time (R20). Valid only while its
  /// number equals ``deliveredSteps``, so that a move without such a time need not touch it. Only as long as the
  /// highest row that ever had one.
  private var acked: [AckedMove] = []
  /// How often each watermark has moved, and how far mark-read has acknowledged receipts.
  private(set) var readSteps: [UInt32] = []
  private(set) var deliveredSteps: [UInt32] = []
  private(set) var acknowledgedThrough: [UInt32] = []
  /// In a thread: an exclusive lower bound. Replies with a number at or below it are never counted for the member, who
  /// joined the channel after them (R6). Empty in a channel.
  private(set) var countedAfter: [UInt32] = []
  /// In a thread: an exclusive lower bound. Replies with a number at or below it are not unread for the member, unless
  /// they marked them so. Empty in a channel.
  private(set) var unreadAfter: [UInt32] = []
  /// In a thread, a message from before a member took part counts once the member has read it (R15); in a channel never
  /// (R6).
  let isOfThread: Bool
  /// Number of current members who hide each kind (R7).
  private(set) var hiddenReadCount = 0
  private(set) var hiddenDeliveredCount = 0
  /// Number of current members who cannot see the history before their join (R6).
  package private(set) var hidingHistoryCount = 0
  /// Rows whose members exclude the channel from their unread totals (R14).
  private var mutedRows: Set<UInt32> = []
  /// Rows that were ever flagged unread as a whole (R4).
  private var unreadFlags: [UInt32: UnreadFlag] = [:]
  /// Only rows with a role.
  private(set) var roles: [UInt32: String] = [:]
  /// By user number: 1 + the row of a current member, 0 for others.
  private(set) var rowOf: [UInt32] = []
  /// Number of current members.
  package private(set) var activeCount = 0
  /// A bit for each row of a current member who does not hide reads. These are the rows that a receipt waits for, if
  /// they joined before its message (R7, R9).
  private(set) var awaited: [UInt64] = []

  private struct UnreadFlag: Sendable {
    var isSet: Bool
    /// When the flag was last set or cleared.
    var at: Timestamp
  }

  private struct AckedMove: Sendable {
    var number: UInt32 = 0
    var at: Int64 = 0
  }

  static let flagLeft: UInt8 = 1
  private static let flagHidesHistory: UInt8 = 2
  /// The user hides this kind from others (R7). Not stored in the row, but copied from the user's settings.
  static let flagHidesRead: UInt8 = 1 << hidesReadBit
  static let flagHidesDelivered: UInt8 = 1 << hidesDeliveredBit
  static let hidesReadBit: UInt32 = 2
  static let hidesDeliveredBit: UInt32 = 3
  /// The last move was made while the kind was hidden.
  private static let flagReadMovedHidden: UInt8 = 16
  private static let flagDeliveredMovedHidden: UInt8 = 32
  private static let flagJoinedByReading: UInt8 = 64

  package init(isOfThread: Bool = false) { self.isOfThread = isOfThread }

  /// Number of rows, including those of members who left.
  package var rowCount: Int { users.count }

  package func isActive(_ row: MemberOrdinal) -> Bool { flags[Int(row.rawValue)] & Self.flagLeft == 0 }

  func hidesHistory(_ row: MemberOrdinal) -> Bool { flags[Int(row.rawValue)] & Self.flagHidesHistory != 0 }

  /// Whether the member hides their read positions from others (R7).
  package func hidesRead(_ row: MemberOrdinal) -> Bool { flags[Int(row.rawValue)] & Self.flagHidesRead != 0 }
  package func hidesDelivered(_ row: MemberOrdinal) -> Bool {
    flags[Int(row.rawValue)] & Self.flagHidesDelivered != 0
  }

  /// Whether the last move was made while the member hid it, so that its time must not be shown.
  func readIsHidden(_ row: MemberOrdinal) -> Bool {
    flags[Int(row.rawValue)] & Self.flagReadMovedHidden != 0
  }
  func deliveredIsHidden(_ row: MemberOrdinal) -> Bool {
    flags[Int(row.rawValue)] & Self.flagDeliveredMovedHidden != 0
  }

  /// Whether the member is in this thread only because they marked it read.
  func joinedByReading(_ row: MemberOrdinal) -> Bool {
    flags[Int(row.rawValue)] & Self.flagJoinedByReading != 0
  }

  /// Whether others may see what the member reads: both the member (R7) and the channel (R8) allow it.
  func showsRead(_ row: MemberOrdinal, _ options: ChannelTypeOptions) -> Bool {
    options.readEvents && !hidesRead(row)
  }

  /// Whether others do not see that the member is in this thread: they have only read in it, and that is hidden.
  func isUnseen(_ row: MemberOrdinal, _ options: ChannelTypeOptions) -> Bool {
    joinedByReading(row) && !showsRead(row, options)
  }

  /// Whether others see the member's delivered position (R7, R8). In a thread only from the first reply that counts for
  /// the member: a delivery without taking part never counts (R15).
  func showsDelivered(_ row: MemberOrdinal, _ options: ChannelTypeOptions) -> Bool {
    let position = Int(row.rawValue)
    return options.deliveryEvents && !hidesDelivered(row)
      && (!isOfThread || delivered[position] > joined[position])
  }

  func user(_ row: MemberOrdinal) -> UserNumber { UserNumber(users[Int(row.rawValue)]) }

  /// The row of a current member.
  package func row(of user: UserNumber) -> MemberOrdinal? {
    let number = Int(user.rawValue)
    guard number < rowOf.count, rowOf[number] > 0 else { return nil }
    return MemberOrdinal(rowOf[number] - 1)
  }

  /// In a thread: the position up to which the member has visibly read (R7, R8). Zero in a channel.
  func countedThrough(_ row: MemberOrdinal, _ options: ChannelTypeOptions) -> UInt32 {
    isOfThread && showsRead(row, options) ? read[Int(row.rawValue)] : 0
  }

  /// The message after which other members' statuses can depend on this row.
  func firstCounted(_ row: MemberOrdinal) -> UInt32 {
    isOfThread ? countedAfter[Int(row.rawValue)] : joined[Int(row.rawValue)]
  }

  /// Whether exactly `count` members are in this thread, none of them by reading only.
  func isComplete(_ count: Int) -> Bool {
    activeCount == count
      && !flags.contains { $0 & (Self.flagLeft | Self.flagJoinedByReading) == Self.flagJoinedByReading }
  }

  /// The first current members, at most `wanted`.
  func firstMembers(_ wanted: Int) -> [MemberOrdinal] {
    var found: [MemberOrdinal] = []
    for position in flags.indices where flags[position] & Self.flagLeft == 0 {
      if found.count == wanted { break }
      found.append(MemberOrdinal(UInt32(position)))
    }
    return found
  }

  /// The own position: where the member's own unread count starts (docs/architecture.md).
  package func ownPosition(_ row: MemberOrdinal) -> SequenceNumber {
    let position = Int(row.rawValue)
    return SequenceNumber(min(read[position], markers[position]))
  }

  func marker(_ row: MemberOrdinal) -> SequenceNumber? {
    let marker = markers[Int(row.rawValue)]
    return marker == Self.noMarker ? nil : SequenceNumber(marker)
  }

  /// When the marker was last set, moved or cleared; none: never.
  func markedAt(_ row: MemberOrdinal) -> Timestamp {
    let position = Int(row.rawValue)
    return position < markedAt.count ? Timestamp(milliseconds: markedAt[position]) : .none
  }

  /// Whether the member excludes the channel from their unread totals (R14).
  package func isMuted(_ row: MemberOrdinal) -> Bool { mutedRows.contains(row.rawValue) }

  /// Whether the member has flagged the channel unread as a whole (R4). Every mark asks this; most channels have no
  /// flags.
  @inline(__always)
  package func isFlaggedUnread(_ row: MemberOrdinal) -> Bool {
    !unreadFlags.isEmpty && unreadFlags[row.rawValue]?.isSet ?? false
  }

  /// When the flag was last set or cleared; none: never.
  func flaggedAt(_ row: MemberOrdinal) -> Timestamp { unreadFlags[row.rawValue]?.at ?? .none }

  /// The shown time of the last delivered move (R20): the acknowledged time, if there is one.
  func deliveredShownAt(_ row: MemberOrdinal) -> Timestamp {
    ackedAt(row).or(Timestamp(milliseconds: deliveredAt[Int(row.rawValue)]))
  }

  /// The acknowledged time of the last delivered move; none: its own time is shown.
  func ackedAt(_ row: MemberOrdinal) -> Timestamp {
    let position = Int(row.rawValue)
    guard position < acked.count, acked[position].number == deliveredSteps[position] else { return .none }
    return Timestamp(milliseconds: acked[position].at)
  }

  /// When a left row's member left or was erased.
  func leftAt(_ row: MemberOrdinal) -> Timestamp { Timestamp(milliseconds: readAt[Int(row.rawValue)]) }

  // MARK: Assignment

  /// Assigns a whole row. Rows may be assigned in any order; unassigned rows count as left.
  mutating func assign(_ row: MemberOrdinal, _ record: RowRecord, user: UserNumber) {
    let position = Int(row.rawValue)
    while users.count <= position { appendVacant() }
    if isActive(row) {
      hide(row, read: false, delivered: false)
      activeCount -= 1
      if hidesHistory(row) { hidingHistoryCount -= 1 }
      forget(row)
    }
    users[position] = user.rawValue
    joined[position] = record.joined.rawValue
    joinedAt[position] = record.joinedAt.milliseconds
    flags[position] =
      (record.hasLeft ? Self.flagLeft : 0) | (record.hidesHistory ? Self.flagHidesHistory : 0)
      | (record.readIsHidden ? Self.flagReadMovedHidden : 0)
      | (record.deliveredIsHidden ? Self.flagDeliveredMovedHidden : 0)
      | (record.joinedByReading ? Self.flagJoinedByReading : 0)
    read[position] = record.read.rawValue
    readAt[position] = record.readAt.milliseconds
    delivered[position] = record.delivered.rawValue
    deliveredAt[position] = record.deliveredAt.milliseconds
    markers[position] = record.marker?.rawValue ?? Self.noMarker
    epochs[position] = record.unreadEpoch
    noteMarked(position, at: record.markedAt)
    readSteps[position] = record.readSteps
    deliveredSteps[position] = record.deliveredSteps
    noteAcked(position, at: record.ackedAt)
    acknowledgedThrough[position] = record.acknowledgedThrough.rawValue
    if isOfThread {
      countedAfter[position] = (record.countedAfter ?? record.joined).rawValue
      unreadAfter[position] = (record.unreadAfter ?? record.joined).rawValue
    }
    roles[row.rawValue] = record.role.isEmpty ? nil : record.role
    assignMuted(row, record.isMuted)
    noteFlag(row, isSet: record.isFlaggedUnread, at: record.flaggedAt)
    if !record.hasLeft {
      activeCount += 1
      if record.hidesHistory { hidingHistoryCount += 1 }
      remember(row, user)
    }
    noteAwaited(position)
  }

  mutating func leave(_ row: MemberOrdinal, at time: Timestamp) {
    let position = Int(row.rawValue)
    guard flags[position] & Self.flagLeft == 0 else { return }
    hide(row, read: false, delivered: false)
    if hidesHistory(row) { hidingHistoryCount -= 1 }
    forget(row)
    flags[position] = flags[position] & (Self.flagHidesHistory | Self.flagJoinedByReading) | Self.flagLeft
    activeCount -= 1
    read[position] = 0
    readAt[position] = time.milliseconds
    delivered[position] = 0
    deliveredAt[position] = 0
    markers[position] = Self.noMarker
    noteMarked(position, at: .none)
    epochs[position] = 0
    readSteps[position] = 0
    deliveredSteps[position] = 0
    acknowledgedThrough[position] = 0
    roles[row.rawValue] = nil
    assignMuted(row, false)
    unreadFlags[row.rawValue] = nil
    noteAwaited(position)
  }

  /// Marks a row as left and clears its user (R16).
  mutating func erase(_ row: MemberOrdinal, at time: Timestamp) {
    leave(row, at: time)
    readAt[Int(row.rawValue)] = time.milliseconds
    users[Int(row.rawValue)] = UserNumber.nobody.rawValue
  }

  mutating func moveRead(
    _ row: MemberOrdinal,
    to sequence: SequenceNumber,
    at time: Timestamp,
    isHidden: Bool
  ) {
    let position = Int(row.rawValue)
    read[position] = sequence.rawValue
    readAt[position] = time.milliseconds
    readSteps[position] &+= 1
    setFlag(position, Self.flagReadMovedHidden, isHidden)
  }

  mutating func moveDelivered(
    _ row: MemberOrdinal,
    to sequence: SequenceNumber,
    at time: Timestamp,
    isHidden: Bool
  ) {
    let position = Int(row.rawValue)
    delivered[position] = sequence.rawValue
    deliveredAt[position] = time.milliseconds
    deliveredSteps[position] &+= 1
    setFlag(position, Self.flagDeliveredMovedHidden, isHidden)
  }

  /// Sets the shown time of the last delivered move (R20).
  mutating func assignAcked(_ row: MemberOrdinal, at time: Timestamp) {
    noteAcked(Int(row.rawValue), at: time)
  }

  private mutating func noteAcked(_ position: Int, at time: Timestamp) {
    if position >= acked.count {
      if time == .none { return }
      acked.append(contentsOf: repeatElement(AckedMove(), count: position + 1 - acked.count))
    }
    acked[position] = AckedMove(number: deliveredSteps[position], at: time.milliseconds)
  }

  mutating func acknowledge(_ row: MemberOrdinal, through sequence: SequenceNumber) {
    acknowledgedThrough[Int(row.rawValue)] = sequence.rawValue
  }

  /// Sets what the member's user hides from others (R7).
  mutating func hide(_ row: MemberOrdinal, read: Bool, delivered: Bool) {
    let position = Int(row.rawValue)
    if hidesRead(row) != read { hiddenReadCount += read ? 1 : -1 }
    if hidesDelivered(row) != delivered { hiddenDeliveredCount += delivered ? 1 : -1 }
    setFlag(position, Self.flagHidesRead, read)
    setFlag(position, Self.flagHidesDelivered, delivered)
    noteAwaited(position)
  }

  private mutating func noteAwaited(_ position: Int) {
    let bit: UInt64 = 1 << UInt64(position & 63)
    let isAwaited = flags[position] & (Self.flagLeft | Self.flagHidesRead) == 0
    awaited[position >> 6] = awaited[position >> 6] & ~bit | (isAwaited ? bit : 0)
  }

  private mutating func setFlag(_ position: Int, _ flag: UInt8, _ isSet: Bool) {
    flags[position] = flags[position] & ~flag | (isSet ? flag : 0)
  }

  mutating func assignMarker(
    _ row: MemberOrdinal,
    _ marker: SequenceNumber?,
    epoch: UInt32,
    at time: Timestamp
  ) {
    markers[Int(row.rawValue)] = marker?.rawValue ?? Self.noMarker
    epochs[Int(row.rawValue)] = epoch
    noteMarked(Int(row.rawValue), at: time)
  }

  mutating func assignMuted(_ row: MemberOrdinal, _ isMuted: Bool) {
    if isMuted { mutedRows.insert(row.rawValue) } else { mutedRows.remove(row.rawValue) }
  }

  mutating func assignFlag(_ row: MemberOrdinal, isSet: Bool, epoch: UInt32, at time: Timestamp) {
    epochs[Int(row.rawValue)] = epoch
    noteFlag(row, isSet: isSet, at: time)
  }

  private mutating func noteFlag(_ row: MemberOrdinal, isSet: Bool, at time: Timestamp) {
    unreadFlags[row.rawValue] = time == .none ? nil : UnreadFlag(isSet: isSet, at: time)
  }

  private mutating func noteMarked(_ position: Int, at time: Timestamp) {
    if position >= markedAt.count {
      if time == .none { return }
      markedAt.append(contentsOf: repeatElement(0, count: position + 1 - markedAt.count))
    }
    markedAt[position] = time.milliseconds
  }

  mutating func assignRole(_ row: MemberOrdinal, _ role: String) {
    roles[row.rawValue] = role.isEmpty ? nil : role
  }

  // MARK: Details

  private mutating func appendVacant() {
    if users.count & 63 == 0 { awaited.append(0) }
    users.append(0)
    // Keeps the column rising while rows are assigned out of order.
    joined.append(joined.last ?? 0)
    read.append(0)
    delivered.append(0)
    markers.append(Self.noMarker)
    epochs.append(0)
    flags.append(Self.flagLeft)
    joinedAt.append(0)
    readAt.append(0)
    deliveredAt.append(0)
    readSteps.append(0)
    deliveredSteps.append(0)
    acknowledgedThrough.append(0)
    guard isOfThread else { return }
    countedAfter.append(0)
    unreadAfter.append(0)
  }

  private mutating func remember(_ row: MemberOrdinal, _ user: UserNumber) {
    let number = Int(user.rawValue)
    if rowOf.count <= number {
      rowOf.append(contentsOf: repeatElement(0, count: number + 1 - rowOf.count))
    }
    // The highest row is the member's, whatever the order in which pages are read: lower rows were left.
    rowOf[number] = max(rowOf[number], row.rawValue + 1)
  }

  private mutating func forget(_ row: MemberOrdinal) {
    let number = Int(users[Int(row.rawValue)])
    if number < rowOf.count, rowOf[number] == row.rawValue + 1 { rowOf[number] = 0 }
  }

  /// Size in bytes.
  var byteCount: Int {
    let narrow =
      heapBytes(users) + heapBytes(joined) + heapBytes(read) + heapBytes(delivered) + heapBytes(markers)
      + heapBytes(epochs) + heapBytes(rowOf) + heapBytes(readSteps) + heapBytes(deliveredSteps)
      + heapBytes(acknowledgedThrough) + heapBytes(countedAfter) + heapBytes(unreadAfter)
    let wide =
      heapBytes(awaited) + heapBytes(joinedAt) + heapBytes(readAt) + heapBytes(deliveredAt)
      + heapBytes(markedAt) + heapBytes(acked)
    // A dictionary entry is its key, a string and their share of empty slots.
    return narrow + wide + heapBytes(flags) + roles.capacity * 64
      + mutedRows.capacity * 8 + unreadFlags.capacity * 32
  }
}
