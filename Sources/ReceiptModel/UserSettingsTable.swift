/// Users' settings in one shard (R7): everybody who was ever given any, numbered in the order in which they came, which pages keep.
package struct UserSettingsTable: ~Copyable, Sendable {
  /// What is kept of one user, whose id is in ``ids``. Every shard has all of them: they are kept small.
  private struct Record {
    var version: UInt64
    var readShownSince: Int64
    var deliveredShownSince: Int64
    var tokensRevokedBefore: Int64
    var hidesRead: Bool
    var hidesDelivered: Bool
    var isSettled: Bool
  }

  private var ids = UserTable()
  private var records: [Record] = []
  /// Users who have revoked tokens.
  private var revokedCount = 0
  /// The latest changes, as numbers; channels take them over one by one when they are looked at.
  private var journal: [UInt32] = []
  /// How many changes of what users hide there were.
  private(set) var changeCount: UInt64 = 0

  /// Changes kept at least; a channel that has missed more looks all its members up.
  static let journalMax = 4_096

  package init() {}

  package var isEmpty: Bool { records.isEmpty }
  package var count: Int { records.count }

  /// What it occupies, in bytes.
  package var byteCount: Int { ids.byteCount + heapBytes(records) + heapBytes(journal) }

  /// The number of a user who has settings.
  package func find(_ user: RawSpan) -> UInt32? { ids.find(user).map { $0.rawValue - 1 } }

  /// The number of a user who has settings.
  package func find(_ user: String) -> UInt32? {
    var user = user
    return user.withUTF8 { find($0.span.bytes) }
  }

  package subscript(number: UInt32) -> UserSettings {
    let record = records[Int(number)]
    return UserSettings(
      user: ids.text(UserNumber(number + 1)),
      version: record.version,
      hidesRead: record.hidesRead,
      hidesDelivered: record.hidesDelivered,
      readShownSince: Timestamp(milliseconds: record.readShownSince),
      deliveredShownSince: Timestamp(milliseconds: record.deliveredShownSince),
      tokensRevokedBefore: Timestamp(milliseconds: record.tokensRevokedBefore),
      isSettled: record.isSettled
    )
  }

  /// Whether every shard has this user's settings, as far as is known here.
  package func isSettled(_ number: UInt32) -> Bool { records[Int(number)].isSettled }

  func hides(_ number: UInt32) -> (read: Bool, delivered: Bool) {
    (records[Int(number)].hidesRead, records[Int(number)].hidesDelivered)
  }

  package func withUser<Result>(_ number: UInt32, _ body: (RawSpan) -> Result) -> Result {
    body(ids.id(UserNumber(number + 1)))
  }

  /// Since when positions that a user moved while hidden count (R7); none: they never hid.
  package struct ShownSince: Hashable, Sendable {
    package var read = Timestamp.none
    package var delivered = Timestamp.none
  }

  package func shownSince(_ user: RawSpan) -> ShownSince {
    guard let number = find(user) else { return ShownSince() }
    let record = records[Int(number)]
    return ShownSince(
      read: Timestamp(milliseconds: record.readShownSince),
      delivered: Timestamp(milliseconds: record.deliveredShownSince)
    )
  }

  /// Whether anybody's tokens are revoked: where nobody's are, no request looks its user up.
  var hasRevoked: Bool { revokedCount > 0 }

  /// - Parameter issued: in seconds since 1970; 0 where the token does not say, which is before every revocation.
  func isRevoked(_ user: RawSpan, issued: UInt32) -> Bool {
    guard let number = find(user) else { return false }
    return Int64(issued) * 1_000 < records[Int(number)].tokensRevokedBefore
  }

  /// The users whose settings have changed since so many changes; nil where that is too long ago to be known.
  func changes(since seen: UInt64) -> ArraySlice<UInt32>? {
    let missed = changeCount - seen
    return missed <= UInt64(journal.count) ? journal.suffix(Int(missed)) : nil
  }

  // MARK: Assignment

  /// Assigns a user's settings; numbers are given without gaps.
  mutating func assign(_ number: UInt32, _ settings: UserSettings) {
    let known = ids.intern(settings.user)
    precondition(known.rawValue == number + 1, "users are numbered in the order in which they come")
    let position = Int(number)
    let record = Record(
      version: settings.version,
      readShownSince: settings.readShownSince.milliseconds,
      deliveredShownSince: settings.deliveredShownSince.milliseconds,
      tokensRevokedBefore: settings.tokensRevokedBefore.milliseconds,
      hidesRead: settings.hidesRead,
      hidesDelivered: settings.hidesDelivered,
      isSettled: settings.isSettled
    )
    var before = (read: false, delivered: false)
    if position < records.count {
      before = hides(number)
      if records[position].tokensRevokedBefore != 0 { revokedCount -= 1 }
      records[position] = record
    } else {
      records.append(record)
    }
    if record.tokensRevokedBefore != 0 { revokedCount += 1 }
    guard before != hides(number) else { return }
    if journal.count >= 2 * Self.journalMax { journal.removeFirst(Self.journalMax) }
    journal.append(number)
    changeCount += 1
  }

  /// Every shard has this version, unless there is a newer one.
  mutating func settle(_ number: UInt32, _ version: UInt64) {
    if records[Int(number)].version == version { records[Int(number)].isSettled = true }
  }

  // MARK: Pages

  func effects(of page: UInt32) -> [Effect] {
    let first = Int(page) * Int(PageID.usersPerPage)
    let end = min(first + Int(PageID.usersPerPage), records.count)
    return (first..<max(first, end)).flatMap { position -> [Effect] in
      let number = UInt32(position)
      var record = self[number]
      // That it is settled is an effect of its own.
      let isSettled = record.isSettled
      record.isSettled = false
      let assigned = Effect.userAssigned(number, record)
      return isSettled ? [assigned, .userSettled(number, version: record.version)] : [assigned]
    }
  }

  #if DEBUG
    func checkInvariants() -> String? {
      for number in 0..<UInt32(count) where withUser(number, { find($0) }) != number {
        return "user \(number): not found by their id"
      }
      let revoked = records.count { $0.tokensRevokedBefore != 0 }
      if revoked != revokedCount {
        return "\(revoked) users have revoked tokens, \(revokedCount) are counted"
      }
      if UInt64(journal.count) > changeCount { return "more changes of settings are kept than there were" }
      return journal.contains { $0 >= UInt32(count) } ? "a change of settings by nobody" : nil
    }
  #endif
}
