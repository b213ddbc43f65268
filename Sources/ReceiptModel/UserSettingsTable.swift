/// Users' settings in one shard (R7): everybody who was ever given any, numbered in the order in which they came, which
/// pages keep.
package struct UserSettingsTable: ~Copyable, Sendable {
  /// What is kept of one user, whose id is in ``ids``. Every shard has all of them: they are kept small.
  private struct Record {
    var version: UInt64
    var readShownSince: Int64
    var deliveredShownSince: Int64
    var tokensRevokedBefore: Int64
    var takenAt: Int64
    var hidesRead: Bool
    var hidesDelivered: Bool
    var isSettled: Bool
    var isErasing: Bool
  }

  /// What is kept of an erased user, so that nothing that is still on its way brings them back (R16).
  struct Tombstone: Hashable, Sendable {
    var number: UInt32
    var version: UInt64
    /// Of the id.
    var hash: UInt64
    var at: Timestamp

    /// The user's tokens from before the second of the erasure are refused: one issued in that second may be that of
    /// somebody new with the id.
    var tokensRevokedBefore: Timestamp { Timestamp(milliseconds: at.milliseconds / 1_000 * 1_000) }
  }

  /// An erased user's number may be another's after a day of the shard's time: nothing is on its way for so long.
  static let tombstoneMilliseconds: Int64 = 86_400_000

  private var ids = UserTable()
  private var records: [Record] = []
  /// Users who have revoked tokens.
  private var revokedCount = 0
  /// The latest changes, as numbers; channels take them over one by one when they are looked at.
  private var journal: [UInt32] = []
  /// How many changes of what users hide there were.
  private(set) var changeCount: UInt64 = 0
  /// By number, and by the id's hash.
  private var tombstones: [UInt32: Tombstone] = [:]
  private var numbersErased: [UInt64: UInt32] = [:]
  /// The tombstone whose number is free first.
  private var oldestTombstone: Tombstone?
  /// Users who are being erased.
  private var erasingCount = 0

  /// Changes kept at least; a channel that has missed more looks all its members up.
  static let journalMax = 4_096

  package init() {}

  package var isEmpty: Bool { records.isEmpty }
  package var count: Int { records.count }

  /// What it occupies, in bytes.
  package var byteCount: Int {
    ids.byteCount + heapBytes(records) + heapBytes(journal) + tombstones.capacity * 64
  }

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
      isSettled: record.isSettled,
      isErasing: record.isErasing,
      takenAt: Timestamp(milliseconds: record.takenAt)
    )
  }

  /// When this shard took what a user hides and shows, or told of it last; none: they were never given any settings, or
  /// none about that.
  func takenAt(_ user: RawSpan) -> Timestamp {
    find(user).map { Timestamp(milliseconds: records[Int($0)].takenAt) } ?? .none
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

  // MARK: Erased users (R16)

  /// Whether a number was an erased user's, and is nobody's since.
  package func isNameless(_ number: UInt32) -> Bool { tombstones[number] != nil }

  /// What is kept of a user who was erased and has been given no settings since.
  func tombstone(of user: String) -> Tombstone? {
    var user = user
    return user.withUTF8 { tombstone(of: $0.span.bytes) }
  }

  private func tombstone(of user: RawSpan) -> Tombstone? {
    guard !tombstones.isEmpty else { return nil }
    return numbersErased[StableHash.hash(user)].flatMap { tombstones[$0] }
  }

  /// A number that a user may be given who has none, without making a new one.
  func freeNumber(at time: Timestamp) -> UInt32? {
    guard let oldestTombstone,
      time.milliseconds - oldestTombstone.at.milliseconds >= Self.tombstoneMilliseconds
    else { return nil }
    return oldestTombstone.number
  }

  /// Whether anybody is being erased: where nobody is, no command looks its users up.
  var hasErasing: Bool { erasingCount > 0 }

  func isErasing(_ user: RawSpan) -> Bool { find(user).map { records[Int($0)].isErasing } ?? false }

  /// Whether anybody's tokens are revoked, or anybody was erased: where nobody's are, no request looks its user up.
  var hasRevoked: Bool { revokedCount > 0 || !tombstones.isEmpty }

  /// - Parameter issued: in seconds since 1970; 0 where the token does not say, which is before every revocation.
  func isRevoked(_ user: RawSpan, issued: UInt32) -> Bool {
    let before =
      find(user).map { records[Int($0)].tokensRevokedBefore }
      ?? tombstone(of: user)?.tokensRevokedBefore.milliseconds ?? 0
    return Int64(issued) * 1_000 < before
  }

  /// The users whose settings have changed since so many changes; nil where that is too long ago to be known.
  func changes(since seen: UInt64) -> ArraySlice<UInt32>? {
    let missed = changeCount - seen
    return missed <= UInt64(journal.count) ? journal.suffix(Int(missed)) : nil
  }

  // MARK: Assignment

  /// Assigns a user's settings; numbers are given without gaps, or again when their user was erased.
  mutating func assign(_ number: UInt32, _ settings: UserSettings) {
    if let tombstone = tombstones.removeValue(forKey: number) {
      remove(tombstone)
      ids.assign(UserNumber(number + 1), settings.user)
    }
    let known = ids.intern(settings.user)
    precondition(known.rawValue == number + 1, "users are numbered in the order in which they come")
    let position = Int(number)
    let record = Record(
      version: settings.version,
      readShownSince: settings.readShownSince.milliseconds,
      deliveredShownSince: settings.deliveredShownSince.milliseconds,
      tokensRevokedBefore: settings.tokensRevokedBefore.milliseconds,
      takenAt: settings.takenAt.milliseconds,
      hidesRead: settings.hidesRead,
      hidesDelivered: settings.hidesDelivered,
      isSettled: settings.isSettled,
      isErasing: settings.isErasing
    )
    var before = (read: false, delivered: false)
    if position < records.count {
      before = hides(number)
      if records[position].tokensRevokedBefore != 0 { revokedCount -= 1 }
      if records[position].isErasing { erasingCount -= 1 }
      records[position] = record
    } else {
      records.append(record)
    }
    if record.tokensRevokedBefore != 0 { revokedCount += 1 }
    if record.isErasing { erasingCount += 1 }
    guard before != hides(number) else { return }
    if journal.count >= 2 * Self.journalMax { journal.removeFirst(Self.journalMax) }
    journal.append(number)
    changeCount += 1
  }

  /// Every shard has this version, unless there is a newer one.
  mutating func settle(_ number: UInt32, _ version: UInt64) {
    if records[Int(number)].version == version { records[Int(number)].isSettled = true }
  }

  /// Nothing of the user stays but a hash of their id and the version; their number is nobody's (R16).
  mutating func erase(_ number: UInt32, version: UInt64, hash: UInt64, at time: Timestamp) {
    let position = Int(number)
    let nothing = Record(
      version: version,
      readShownSince: 0,
      deliveredShownSince: 0,
      tokensRevokedBefore: 0,
      takenAt: 0,
      hidesRead: false,
      hidesDelivered: false,
      isSettled: true,
      isErasing: false
    )
    if position < records.count {
      let before = records[position]
      if before.tokensRevokedBefore != 0 { revokedCount -= 1 }
      if before.isErasing { erasingCount -= 1 }
      if before.hidesRead || before.hidesDelivered {
        // Channels cannot be told by a name that is gone: each looks all its members up once.
        journal.removeAll()
        changeCount += 1
      }
      records[position] = nothing
      ids.erase(UserNumber(number + 1))
      if let known = tombstones.removeValue(forKey: number) { remove(known) }
    } else {
      records.append(nothing)
      ids.appendErased()
    }
    let tombstone = Tombstone(number: number, version: version, hash: hash, at: time)
    tombstones[number] = tombstone
    numbersErased[hash] = number
    if oldestTombstone.map({ Self.precedes(tombstone, $0) }) ?? true { oldestTombstone = tombstone }
  }

  /// A tombstone has gone.
  private mutating func remove(_ tombstone: Tombstone) {
    if numbersErased[tombstone.hash] == tombstone.number { numbersErased[tombstone.hash] = nil }
    guard oldestTombstone == tombstone else { return }
    oldestTombstone = tombstones.values.min(by: Self.precedes)
  }

  private static func precedes(_ a: Tombstone, _ b: Tombstone) -> Bool {
    (a.at, a.number) < (b.at, b.number)
  }

  // MARK: Pages

  func effects(of page: UInt32) -> [Effect] {
    let first = Int(page) * Int(PageID.usersPerPage)
    let end = min(first + Int(PageID.usersPerPage), records.count)
    return (first..<max(first, end)).flatMap { position -> [Effect] in
      let number = UInt32(position)
      if let tombstone = tombstones[number] {
        return [
          .userErased(number, version: tombstone.version, hash: tombstone.hash, at: tombstone.at)
        ]
      }
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
      for number in 0..<UInt32(count) {
        if let tombstone = tombstones[number] {
          if !ids.isErased(UserNumber(number + 1)) { return "user \(number): erased, and has an id" }
          if tombstone.number != number || records[Int(number)].version != tombstone.version {
            return "user \(number): the tombstone is another's"
          }
        } else if withUser(number, { find($0) }) != number {
          return "user \(number): not found by their id"
        }
      }
      if tombstones.keys.contains(where: { $0 >= UInt32(count) }) { return "a tombstone without a number" }
      if oldestTombstone != tombstones.values.min(by: Self.precedes) { return "not the oldest tombstone" }
      let erasing = records.count { $0.isErasing }
      if erasing != erasingCount { return "\(erasing) users are being erased, \(erasingCount) are counted" }
      let revoked = records.count { $0.tokensRevokedBefore != 0 }
      if revoked != revokedCount {
        return "\(revoked) users have revoked tokens, \(revokedCount) are counted"
      }
      if UInt64(journal.count) > changeCount { return "more changes of settings are kept than there were" }
      return journal.contains { $0 >= UInt32(count) } ? "a change of settings by nobody" : nil
    }
  #endif
}
