/// Whose the rows are: the user of each row, when they joined, their role, and whether they muted the channel.
///
/// Rows are in join order, and their numbers are never reused: a member who joins again gets a new row.
struct Roster: ~Copyable, Sendable {
  private var users: [UInt32] = []
  /// Never falls from row to row, so "joined before message n" is a prefix.
  private var joined: [UInt32] = []
  private var joinedAt: [Int64] = []
  /// By user number: 1 + the row of a current member, 0 for others.
  private var rowOf: [UInt32] = []
  /// Only rows with a role.
  private var roles: [UInt32: String] = [:]
  /// Rows whose members exclude the channel from their unread totals (R14).
  private var mutedRows: Set<UInt32> = []

  /// Number of rows, including those of members who left.
  var rowCount: Int { users.count }

  func user(_ row: MemberOrdinal) -> UserNumber { UserNumber(users[Int(row.rawValue)]) }

  /// Return the newest message when the member joined.
  @inline(__always)
  func joined(_ row: MemberOrdinal) -> SequenceNumber { SequenceNumber(joined[Int(row.rawValue)]) }

  @inline(__always)
  func joinedAt(_ row: MemberOrdinal) -> Timestamp { Timestamp(milliseconds: joinedAt[Int(row.rawValue)]) }

  /// Return the member's role; nil: none.
  func role(_ row: MemberOrdinal) -> String? { roles[row.rawValue] }

  /// Return whether the member excludes the channel from their unread totals (R14).
  func isMuted(_ row: MemberOrdinal) -> Bool { mutedRows.contains(row.rawValue) }

  /// Return the row of a current member.
  @inline(__always)
  func row(of user: UserNumber) -> MemberOrdinal? {
    let number = Int(user.rawValue)
    guard number < rowOf.count, rowOf[number] > 0 else { return nil }
    return MemberOrdinal(rowOf[number] - 1)
  }

  /// Return all rows that a user has had, rising: one pass.
  func rows(of user: UserNumber) -> [MemberOrdinal] {
    users.indices.filter { users[$0] == user.rawValue }.map { MemberOrdinal(UInt32($0)) }
  }

  /// Return the number of rows that joined before message `sequence`.
  func joinedBefore(_ sequence: SequenceNumber) -> Int {
    var low = 0
    var high = joined.count
    while low < high {
      let middle = (low + high) / 2
      if joined[middle] < sequence.rawValue { low = middle + 1 } else { high = middle }
    }
    return low
  }

  // MARK: Assignment

  /// Append a row without a user.
  mutating func append() {
    users.append(0)
    // Keeps the column rising while rows are assigned out of order.
    joined.append(joined.last ?? 0)
    joinedAt.append(0)
  }

  mutating func assign(_ row: MemberOrdinal, _ record: RowRecord, user: UserNumber) {
    let position = Int(row.rawValue)
    forget(row)
    users[position] = user.rawValue
    joined[position] = record.joined.rawValue
    joinedAt[position] = record.joinedAt.milliseconds
    assignRole(row, record.role)
    assignMuted(row, record.isMuted)
    if !record.hasLeft { remember(row, user) }
  }

  mutating func assignRole(_ row: MemberOrdinal, _ role: String) {
    roles[row.rawValue] = role.isEmpty ? nil : role
  }

  mutating func assignMuted(_ row: MemberOrdinal, _ isMuted: Bool) {
    if isMuted { mutedRows.insert(row.rawValue) } else { mutedRows.remove(row.rawValue) }
  }

  /// End the membership of a row; its user and join stay.
  mutating func leave(_ row: MemberOrdinal) {
    forget(row)
    assignRole(row, "")
    assignMuted(row, false)
  }

  /// Clear the user of a row that was left (R16).
  mutating func eraseUser(_ row: MemberOrdinal) { users[Int(row.rawValue)] = UserNumber.nobody.rawValue }

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
    // A dictionary entry is its key, a string and their share of empty slots.
    heapBytes(users) + heapBytes(joined) + heapBytes(joinedAt) + heapBytes(rowOf) + roles.capacity * 64
      + mutedRows.capacity * 8
  }

  #if DEBUG
    /// Check the columns, and that as many rows are found by their users as there are members.
    func checkInvariants(activeCount: Int) -> String? {
      if joined.count != users.count || joinedAt.count != users.count {
        return "roster: columns of different lengths"
      }
      let found = rowOf.count { $0 > 0 }
      if found != activeCount { return "\(activeCount) rows are active, \(found) are found by their users" }
      return roles.keys.contains { $0 >= UInt32(users.count) } ? "a role without a row" : nil
    }

    /// Check the position of one row in the join order.
    func checkOrder(_ row: MemberOrdinal) -> String? {
      let position = Int(row.rawValue)
      return position > 0 && joined[position - 1] > joined[position]
        ? "row \(position): joined before the row before it" : nil
    }
  #endif
}
