/// Which rows are of current members, and what they hide (R6, R7): a byte of flags per row, and the counters and the
/// bit set that follow from them.
struct RowFlags: ~Copyable, Sendable {
  static let left: UInt8 = 1
  private static let hidesHistory: UInt8 = 2
  /// The user hides this kind from others (R7). Not stored in the row, but copied from the user's settings.
  static let hidesRead: UInt8 = 1 << hidesReadBit
  static let hidesDelivered: UInt8 = 1 << hidesDeliveredBit
  static let hidesReadBit: UInt32 = 2
  static let hidesDeliveredBit: UInt32 = 3
  /// The last move was made while the kind was hidden.
  private static let readMovedHidden: UInt8 = 16
  private static let deliveredMovedHidden: UInt8 = 32
  private static let joinedByReading: UInt8 = 64

  private var flags: [UInt8] = []
  /// Number of current members.
  private(set) var activeCount = 0
  /// Number of current members who cannot see the history before their join (R6).
  private(set) var hidingHistoryCount = 0
  /// Number of current members who hide each kind (R7).
  private(set) var hidingReadCount = 0
  private(set) var hidingDeliveredCount = 0
  /// A bit for each row of a current member who does not hide reads. These are the rows that an acknowledgement request
  /// waits for, if they joined before its message (R7, R9).
  private(set) var awaited: [UInt64] = []

  /// Whether a current member hides anything.
  var hidesAny: Bool { hidingReadCount > 0 || hidingDeliveredCount > 0 }

  func isActive(_ row: MemberOrdinal) -> Bool { flags[Int(row.rawValue)] & Self.left == 0 }

  func hidesHistory(_ row: MemberOrdinal) -> Bool { flags[Int(row.rawValue)] & Self.hidesHistory != 0 }

  func hidesRead(_ row: MemberOrdinal) -> Bool { flags[Int(row.rawValue)] & Self.hidesRead != 0 }

  func hidesDelivered(_ row: MemberOrdinal) -> Bool { flags[Int(row.rawValue)] & Self.hidesDelivered != 0 }

  /// Return whether the last read was made while the member hid reads, so that its time must not be shown.
  func readIsHidden(_ row: MemberOrdinal) -> Bool { flags[Int(row.rawValue)] & Self.readMovedHidden != 0 }

  /// Return whether the last delivery was made while the member hid deliveries.
  func deliveredIsHidden(_ row: MemberOrdinal) -> Bool {
    flags[Int(row.rawValue)] & Self.deliveredMovedHidden != 0
  }

  /// Return whether the member is in a thread only because they marked it read.
  func joinedByReading(_ row: MemberOrdinal) -> Bool { flags[Int(row.rawValue)] & Self.joinedByReading != 0 }

  /// Whether a current member is in the thread only because they marked it read.
  var hasMemberByReading: Bool {
    flags.contains { $0 & (Self.left | Self.joinedByReading) == Self.joinedByReading }
  }

  /// Return the first current members, at most `wanted`.
  func firstActive(_ wanted: Int) -> [MemberOrdinal] {
    var found: [MemberOrdinal] = []
    for position in flags.indices where flags[position] & Self.left == 0 {
      if found.count == wanted { break }
      found.append(MemberOrdinal(UInt32(position)))
    }
    return found
  }

  /// Return the number of rows with a flag among the first `prefix`.
  func count(_ flag: UInt8, inFirst prefix: Int) -> UInt32 {
    flags.withUnsafeBufferPointer { flags in
      var count: UInt32 = 0
      for row in 0..<prefix { count &+= flags[row] & flag == 0 ? 0 : 1 }
      return count
    }
  }

  /// Call `body` with the flags of all rows, for a pass over them.
  @inline(__always)
  func withFlags<Result>(_ body: (UnsafeBufferPointer<UInt8>) -> Result) -> Result {
    flags.withUnsafeBufferPointer(body)
  }

  // MARK: Assignment

  /// Append a row that counts as left.
  mutating func append() {
    if flags.count & 63 == 0 { awaited.append(0) }
    flags.append(Self.left)
  }

  /// Assign a row. What its user hides is assigned separately.
  mutating func assign(_ row: MemberOrdinal, _ record: RowRecord) {
    if isActive(row) { discount(row) }
    flags[Int(row.rawValue)] =
      (record.hasLeft ? Self.left : 0) | (record.hidesHistory ? Self.hidesHistory : 0)
      | (record.readIsHidden ? Self.readMovedHidden : 0) | (record.deliveredIsHidden ? Self.deliveredMovedHidden : 0)
      | (record.joinedByReading ? Self.joinedByReading : 0)
    if !record.hasLeft {
      activeCount += 1
      if record.hidesHistory { hidingHistoryCount += 1 }
    }
    recordAwaited(row)
  }

  /// Mark the row of a current member as left.
  mutating func leave(_ row: MemberOrdinal) {
    discount(row)
    let position = Int(row.rawValue)
    flags[position] = flags[position] & (Self.hidesHistory | Self.joinedByReading) | Self.left
    recordAwaited(row)
  }

  /// Set what the member's user hides from others (R7).
  mutating func hide(_ row: MemberOrdinal, read: Bool, delivered: Bool) {
    if hidesRead(row) != read { hidingReadCount += read ? 1 : -1 }
    if hidesDelivered(row) != delivered { hidingDeliveredCount += delivered ? 1 : -1 }
    set(Self.hidesRead, row, read)
    set(Self.hidesDelivered, row, delivered)
    recordAwaited(row)
  }

  /// Set whether the last read was made while the member hid reads.
  @inline(__always)
  mutating func assignReadIsHidden(_ row: MemberOrdinal, _ isHidden: Bool) {
    set(Self.readMovedHidden, row, isHidden)
  }

  /// Set whether the last delivery was made while the member hid deliveries.
  @inline(__always)
  mutating func assignDeliveredIsHidden(_ row: MemberOrdinal, _ isHidden: Bool) {
    set(Self.deliveredMovedHidden, row, isHidden)
  }

  /// Take a current member's row out of the counters.
  private mutating func discount(_ row: MemberOrdinal) {
    hide(row, read: false, delivered: false)
    activeCount -= 1
    if hidesHistory(row) { hidingHistoryCount -= 1 }
  }

  private mutating func recordAwaited(_ row: MemberOrdinal) {
    let position = Int(row.rawValue)
    let bit: UInt64 = 1 << UInt64(position & 63)
    let isAwaited = flags[position] & (Self.left | Self.hidesRead) == 0
    awaited[position >> 6] = awaited[position >> 6] & ~bit | (isAwaited ? bit : 0)
  }

  @inline(__always)
  private mutating func set(_ flag: UInt8, _ row: MemberOrdinal, _ isSet: Bool) {
    let position = Int(row.rawValue)
    // Nearly all moves leave the flags as they are: reading is cheaper than writing.
    let known = flags[position]
    let wanted = known & ~flag | (isSet ? flag : 0)
    if wanted != known { flags[position] = wanted }
  }

  /// Size in bytes.
  var byteCount: Int { heapBytes(flags) + heapBytes(awaited) }

  #if DEBUG
    /// Check the counters and the awaited bits against the flags.
    func checkInvariants(rowCount: Int) -> String? {
      if flags.count != rowCount { return "flags: not one for each row" }
      for position in flags.indices {
        let isAwaited = flags[position] & (Self.left | Self.hidesRead) == 0
        if (awaited[position >> 6] >> UInt64(position & 63) & 1 == 1) != isAwaited {
          return "row \(position): its awaited bit contradicts its flags"
        }
      }
      let active = flags.count { $0 & Self.left == 0 }
      if active != activeCount { return "\(active) rows are active, \(activeCount) are counted" }
      let hidingHistory = flags.count { $0 & (Self.left | Self.hidesHistory) == Self.hidesHistory }
      if hidingHistory != hidingHistoryCount {
        return "\(hidingHistory) rows have a hidden history, \(hidingHistoryCount) are counted"
      }
      let hidingRead = flags.count { $0 & Self.hidesRead != 0 }
      let hidingDelivered = flags.count { $0 & Self.hidesDelivered != 0 }
      return hidingRead == hidingReadCount && hidingDelivered == hidingDeliveredCount
        ? nil : "\(hidingRead) and \(hidingDelivered) rows hide reads and deliveries, but the counters differ"
    }
  #endif
}
