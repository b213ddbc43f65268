/// One channel's watermarks, a row per member, in join order, as a structure of arrays (DESIGN.md section 3): counting who
/// has read message n is one pass over integers.
///
/// Row numbers are never reused. The row of a member who left keeps its place with all positions at 0, so that no count sees it.
package struct ReadVector: ~Copyable, Sendable {
  /// At most this many rows, those who left included.
  package static let rowsMax = 1 << 24
  /// In ``markers``: no marker is set, so that the own position is `min(read, marker)` without a branch.
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
  private(set) var readAt: [Int64] = []
  private(set) var deliveredAt: [Int64] = []
  /// Only rows that were given a role.
  private(set) var roles: [UInt32: String] = [:]
  /// By user number: 1 + the row of a member who is there, 0 for others.
  private(set) var rowOf: [UInt32] = []
  /// Members now.
  package private(set) var activeCount = 0

  private static let flagLeft: UInt8 = 1
  private static let flagHidesHistory: UInt8 = 2

  package init() {}

  /// Rows, those who left included.
  package var rowCount: Int { users.count }

  package func isActive(_ row: MemberOrdinal) -> Bool { flags[Int(row.rawValue)] & Self.flagLeft == 0 }

  func hidesHistory(_ row: MemberOrdinal) -> Bool { flags[Int(row.rawValue)] & Self.flagHidesHistory != 0 }

  func user(_ row: MemberOrdinal) -> UserNumber { UserNumber(users[Int(row.rawValue)]) }

  /// The row of a user who is a member now.
  package func row(of user: UserNumber) -> MemberOrdinal? {
    let number = Int(user.rawValue)
    guard number < rowOf.count, rowOf[number] > 0 else { return nil }
    return MemberOrdinal(rowOf[number] - 1)
  }

  /// The own position: where the member's own unread count starts (DESIGN.md section 1).
  package func ownPosition(_ row: MemberOrdinal) -> SequenceNumber {
    let position = Int(row.rawValue)
    return SequenceNumber(min(read[position], markers[position]))
  }

  func marker(_ row: MemberOrdinal) -> SequenceNumber? {
    let marker = markers[Int(row.rawValue)]
    return marker == Self.noMarker ? nil : SequenceNumber(marker)
  }

  // MARK: Assignment

  /// Assigns a whole row. Rows may be assigned in any order; those not assigned yet count as left.
  mutating func assign(_ row: MemberOrdinal, _ record: RowRecord, user: UserNumber) {
    let position = Int(row.rawValue)
    while users.count <= position { appendVacant() }
    if isActive(row) {
      activeCount -= 1
      forget(row)
    }
    users[position] = user.rawValue
    joined[position] = record.joined.rawValue
    joinedAt[position] = record.joinedAt.milliseconds
    flags[position] =
      (record.hasLeft ? Self.flagLeft : 0) | (record.hidesHistory ? Self.flagHidesHistory : 0)
    read[position] = record.read.rawValue
    readAt[position] = record.readAt.milliseconds
    delivered[position] = record.delivered.rawValue
    deliveredAt[position] = record.deliveredAt.milliseconds
    markers[position] = record.marker?.rawValue ?? Self.noMarker
    epochs[position] = record.unreadEpoch
    roles[row.rawValue] = record.role.isEmpty ? nil : record.role
    if !record.hasLeft {
      activeCount += 1
      remember(row, user)
    }
  }

  mutating func leave(_ row: MemberOrdinal) {
    let position = Int(row.rawValue)
    guard flags[position] & Self.flagLeft == 0 else { return }
    forget(row)
    flags[position] |= Self.flagLeft
    activeCount -= 1
    read[position] = 0
    readAt[position] = 0
    delivered[position] = 0
    deliveredAt[position] = 0
    markers[position] = Self.noMarker
    epochs[position] = 0
    roles[row.rawValue] = nil
  }

  mutating func moveRead(_ row: MemberOrdinal, to sequence: SequenceNumber, at time: Timestamp) {
    read[Int(row.rawValue)] = sequence.rawValue
    readAt[Int(row.rawValue)] = time.milliseconds
  }

  mutating func moveDelivered(_ row: MemberOrdinal, to sequence: SequenceNumber, at time: Timestamp) {
    delivered[Int(row.rawValue)] = sequence.rawValue
    deliveredAt[Int(row.rawValue)] = time.milliseconds
  }

  mutating func assignMarker(_ row: MemberOrdinal, _ marker: SequenceNumber?, epoch: UInt32) {
    markers[Int(row.rawValue)] = marker?.rawValue ?? Self.noMarker
    epochs[Int(row.rawValue)] = epoch
  }

  mutating func assignRole(_ row: MemberOrdinal, _ role: String) {
    roles[row.rawValue] = role.isEmpty ? nil : role
  }

  // MARK: Counting

  /// Who has message `sequence`, among the members who had joined before it and are still there (R6).
  struct Counts: Hashable {
    var members: UInt32 = 0
    var read: UInt32 = 0
    var delivered: UInt32 = 0
  }

  /// One pass over the rows that had joined before `sequence`.
  ///
  /// - Parameters:
  ///   - showsOwnPosition: read positions show as own positions (R4 `public`).
  ///   - excluding: the sender's row, never counted (R1).
  func counts(
    _ sequence: SequenceNumber,
    options: ChannelTypeOptions,
    excluding sender: MemberOrdinal?
  ) -> Counts {
    let prefix = joinedBefore(sequence)
    let n = sequence.rawValue
    var result = Counts()
    let showsOwn = options.markUnread == .public
    // Rows that left have all positions at 0 and n is at least 1, so only `members` has to look at the flags.
    result.members =
      activeCount == rowCount ? UInt32(prefix) : Self.countZero(flags, prefix, mask: Self.flagLeft)
    read.withUnsafeBufferPointer { read in
      delivered.withUnsafeBufferPointer { delivered in
        markers.withUnsafeBufferPointer { markers in
          var readers: UInt32 = 0
          var receivers: UInt32 = 0
          switch (options.readEvents, options.deliveryEvents) {
          case (true, let deliveryEvents):
            for row in 0..<prefix {
              let shown = showsOwn ? min(read[row], markers[row]) : read[row]
              let hasRead: UInt32 = shown >= n ? 1 : 0
              let hasReceived: UInt32 = deliveryEvents && delivered[row] >= n ? 1 : 0
              readers &+= hasRead
              receivers &+= hasRead | hasReceived
            }
          case (false, true):
            for row in 0..<prefix { receivers &+= delivered[row] >= n ? 1 : 0 }
          case (false, false):
            break
          }
          result.read = readers
          result.delivered = receivers
        }
      }
    }
    if let sender, Int(sender.rawValue) < prefix, isActive(sender) {
      let position = Int(sender.rawValue)
      let shown = showsOwn ? min(read[position], markers[position]) : read[position]
      let hasRead = options.readEvents && shown >= n
      result.members -= 1
      if hasRead { result.read -= 1 }
      if hasRead || (options.deliveryEvents && delivered[position] >= n) { result.delivered -= 1 }
    }
    return result
  }

  /// How many rows joined before message `sequence`.
  private func joinedBefore(_ sequence: SequenceNumber) -> Int {
    var low = 0
    var high = joined.count
    while low < high {
      let middle = (low + high) / 2
      if joined[middle] < sequence.rawValue { low = middle + 1 } else { high = middle }
    }
    return low
  }

  private static func countZero(_ column: [UInt8], _ prefix: Int, mask: UInt8) -> UInt32 {
    column.withUnsafeBufferPointer { column in
      var zero: UInt32 = 0
      for row in 0..<prefix { zero &+= column[row] & mask == 0 ? 1 : 0 }
      return zero
    }
  }

  // MARK: Details

  private mutating func appendVacant() {
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
  }

  private mutating func remember(_ row: MemberOrdinal, _ user: UserNumber) {
    let number = Int(user.rawValue)
    if rowOf.count <= number {
      rowOf.append(contentsOf: repeatElement(0, count: number + 1 - rowOf.count))
    }
    // The latest row is the member's, in whatever order pages are read: an older one was left.
    rowOf[number] = max(rowOf[number], row.rawValue + 1)
  }

  private mutating func forget(_ row: MemberOrdinal) {
    let number = Int(users[Int(row.rawValue)])
    if number < rowOf.count, rowOf[number] == row.rawValue + 1 { rowOf[number] = 0 }
  }

  /// What it occupies, in bytes.
  var byteCount: Int {
    let narrow =
      heapBytes(users) + heapBytes(joined) + heapBytes(read) + heapBytes(delivered) + heapBytes(markers)
      + heapBytes(epochs) + heapBytes(rowOf)
    let wide = heapBytes(joinedAt) + heapBytes(readAt) + heapBytes(deliveredAt)
    // A dictionary's entry is its key, a string and their share of empty room.
    return narrow + wide + heapBytes(flags) + roles.capacity * 64
  }
}
