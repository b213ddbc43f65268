/// Users' settings in one shard (R7), and the decisions that change them: a change is made in the user's home shard,
/// assigned to all other shards, then settled at home. Contains every user whose settings were ever set, numbered in
/// order of arrival; pages keep the numbers.
package struct UserSettingsTable: ~Copyable, Sendable {
  /// One user's settings; the id is in ``ids``. Compact, because every shard holds all of them.
  private struct Record {
    var version: UInt64
    var readShownSince: Int64
    var deliveredShownSince: Int64
    var tokensRevokedBefore: Int64
    var appliedAt: Int64
    var hidesRead: Bool
    var hidesDelivered: Bool
    var isSettled: Bool
    var isErasing: Bool
  }

  /// The remains of an erased user, so that no change still in flight resurrects them (R16).
  private struct Tombstone: Hashable, Sendable {
    var number: UInt32
    var version: UInt64
    /// The hash of the id.
    var hash: UInt64
    var at: Timestamp

    /// The user's tokens from before the second of the erasure are refused. A token issued in that second may belong to
    /// a new user with the same id.
    var tokensRevokedBefore: Timestamp { Timestamp(milliseconds: at.milliseconds / 1_000 * 1_000) }
  }

  /// An erased user's number may be reused after a day of the shard's time; no change stays in flight that long.
  static let tombstoneMilliseconds: Int64 = 86_400_000

  private var ids = UserTable()
  private var records: [Record] = []
  /// Number of users with revoked tokens.
  private var revokedCount = 0
  /// The latest changes, as user numbers; channels apply them one by one on their next access.
  private var journal: [UInt32] = []
  /// Number of changes of privacy settings so far.
  private(set) var changeCount: UInt64 = 0
  /// Tombstones by number, and numbers by the id's hash.
  private var tombstones: [UInt32: Tombstone] = [:]
  private var numbersErased: [UInt64: UInt32] = [:]
  /// The tombstone whose number becomes free first.
  private var oldestTombstone: Tombstone?
  /// Number of users being erased.
  private var erasingCount = 0

  /// Minimum number of changes kept; a channel that missed more looks up all its members.
  static let journalKeptMin = 4_096

  package init() {}

  package var isEmpty: Bool { records.isEmpty }
  package var count: Int { records.count }

  /// Size in bytes.
  package var byteCount: Int {
    ids.byteCount + heapBytes(records) + heapBytes(journal) + tombstones.capacity * 64
  }

  /// Return the number of a user who has settings.
  package func find(_ user: RawSpan) -> UInt32? { ids.find(user).map { $0.rawValue - 1 } }

  /// Return the number of a user who has settings.
  package func find(_ user: String) -> UInt32? {
    var user = user
    return user.withUTF8 { find($0.span.bytes) }
  }

  /// A user's settings; version 0 and the defaults if none were ever set. A user who was erased and has no settings
  /// since has the defaults too, with tokens from before the erasure revoked. A new user of that id inherits this
  /// revocation with their first settings.
  package subscript(user: String) -> UserSettings {
    if let number = find(user) { return self[number] }
    guard let tombstone = tombstone(of: user) else { return UserSettings(user: user) }
    return UserSettings(
      user: user,
      version: tombstone.version,
      tokensRevokedBefore: tombstone.tokensRevokedBefore,
      isErased: true
    )
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
      appliedAt: Timestamp(milliseconds: record.appliedAt)
    )
  }

  /// Return when this shard last applied or announced a change of the user's privacy settings; none: they were never
  /// set.
  func appliedAt(_ user: RawSpan) -> Timestamp {
    find(user).map { Timestamp(milliseconds: records[Int($0)].appliedAt) } ?? .none
  }

  /// Return whether every shard has this user's settings, as far as this shard knows.
  package func isSettled(_ number: UInt32) -> Bool { records[Int(number)].isSettled }

  func hides(_ number: UInt32) -> (read: Bool, delivered: Bool) {
    (records[Int(number)].hidesRead, records[Int(number)].hidesDelivered)
  }

  package func withUser<Result>(_ number: UInt32, _ body: (RawSpan) -> Result) -> Result {
    body(ids.id(UserNumber(number + 1)))
  }

  /// The times from which positions moved while hidden count (R7); none: never hidden.
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

  /// Return whether a number belonged to an erased user and was not reused since.
  package func isNameless(_ number: UInt32) -> Bool { tombstones[number] != nil }

  /// Return the tombstone of an erased user without new settings.
  private func tombstone(of user: String) -> Tombstone? {
    var user = user
    return user.withUTF8 { tombstone(of: $0.span.bytes) }
  }

  private func tombstone(of user: RawSpan) -> Tombstone? {
    guard !tombstones.isEmpty else { return nil }
    return numbersErased[StableHash.hash(user)].flatMap { tombstones[$0] }
  }

  /// Return an erased user's number that is free for reuse, if any.
  private func freeNumber(at time: Timestamp) -> UInt32? {
    guard let oldestTombstone,
      time.milliseconds - oldestTombstone.at.milliseconds >= Self.tombstoneMilliseconds
    else { return nil }
    return oldestTombstone.number
  }

  /// Return whether a user is being erased: nothing new is created in their name. Costs one comparison while no user
  /// is.
  @inline(__always)
  package func isErasing(_ user: RawSpan) -> Bool {
    erasingCount > 0 && find(user).map { records[Int($0)].isErasing } ?? false
  }

  /// Return whether a user is being erased.
  func isErasing(_ user: String) -> Bool { erasingCount > 0 && find(user).map { records[Int($0)].isErasing } ?? false }

  /// Return whether a user may be erased in a channel: they are being erased, as far as this shard knows of them.
  package func canErase(_ user: String) -> Bool {
    isErasing(user) || find(user) == nil && tombstone(of: user) == nil
  }

  /// Whether any user's tokens are revoked, or any user was erased. If not, requests skip looking up their user.
  var hasRevoked: Bool { revokedCount > 0 || !tombstones.isEmpty }

  /// Return whether a request is refused because its token was issued to this user before a revocation
  /// (Proto/frames.md, flag `issued`).
  ///
  /// - Parameter issued: in seconds since 1970; 0 if the token has no issue time, which counts as before every
  ///   revocation.
  @inline(__always)
  package func isRevoked(_ user: RawSpan, issued: UInt32) -> Bool {
    guard hasRevoked else { return false }
    let before =
      find(user).map { records[Int($0)].tokensRevokedBefore }
      ?? tombstone(of: user)?.tokensRevokedBefore.milliseconds ?? 0
    return Int64(issued) * 1_000 < before
  }

  /// Return the users whose settings changed since change number `seen`; nil if those changes are no longer kept.
  func changes(since seen: UInt64) -> ArraySlice<UInt32>? {
    let missed = changeCount - seen
    return missed <= UInt64(journal.count) ? journal.suffix(Int(missed)) : nil
  }

  // MARK: Deciding

  /// Change some of a user's settings: the home shard's part of a PUT. Positions moved while hidden count from the
  /// time when the user is visible again. Does nothing for a user who is being erased.
  package func decidePatch(
    _ user: String,
    _ patch: UserSettingsPatch,
    at time: Timestamp,
    into effects: inout [Effect]
  ) {
    let current = self[user]
    guard !current.isErasing else { return }
    var changed = current
    if let shows = patch.showsRead { changed.hidesRead = !shows }
    if let shows = patch.showsDelivered { changed.hidesDelivered = !shows }
    if let before = patch.tokensRevokedBefore { changed.tokensRevokedBefore = before }
    guard changed != current else { return }
    if current.hidesRead, !changed.hidesRead { changed.readShownSince = time }
    if current.hidesDelivered, !changed.hidesDelivered { changed.deliveredShownSince = time }
    if !changed.showsAs(current) { changed.appliedAt = time }
    changed.version += 1
    changed.isSettled = false
    changed.isErased = false
    effects.append(.shard(.userAssigned(number(of: user, at: time), changed)))
  }

  /// Apply a user's settings from their home shard, unless this shard has newer ones.
  package func decideAssign(_ settings: UserSettings, at time: Timestamp, into effects: inout [Effect]) {
    let current = self[settings.user]
    guard settings.version > current.version else { return }
    var assigned = settings
    assigned.appliedAt = assigned.showsAs(current) ? current.appliedAt : time
    assigned.isSettled = false
    assigned.isErased = false
    effects.append(.shard(.userAssigned(number(of: settings.user, at: time), assigned)))
  }

  /// Record that subscribers were notified of the user's new settings now. A client that resumes from a time between
  /// the assignment and this would have missed the events, so the change counts as applied now.
  package func decideAnnounced(_ user: String, at time: Timestamp, into effects: inout [Effect]) {
    guard let number = find(user) else { return }
    var announced = self[number]
    guard announced.appliedAt != .none, announced.appliedAt < time else { return }
    let isSettled = announced.isSettled
    announced.appliedAt = time
    announced.isSettled = false
    effects.append(.shard(.userAssigned(number, announced)))
    if isSettled { effects.append(.shard(.userSettled(number, version: announced.version))) }
  }

  /// Settle a version of a user's settings: every shard has it.
  ///
  /// - Returns: whether it is settled now. False if there is a newer version, or if the user is being erased, which
  ///   counts as settled only when the erasure is done.
  package func decideSettle(_ user: String, version: UInt64, into effects: inout [Effect]) -> Bool {
    let current = self[user]
    guard current.version == version, !current.isErasing else { return false }
    if let number = find(user), !current.isSettled {
      effects.append(.shard(.userSettled(number, version: version)))
    }
    return true
  }

  /// Mark a user as being erased: the first part of an erasure, in the home shard. The caller assigns the version
  /// to all other shards.
  package func decideBeginErasure(_ user: String, at time: Timestamp, into effects: inout [Effect]) {
    let current = self[user]
    guard !current.isErasing else { return }
    var erasing = current
    erasing.isErasing = true
    erasing.isErased = false
    erasing.isSettled = false
    erasing.version += 1
    effects.append(.shard(.userAssigned(number(of: user, at: time), erasing)))
  }

  /// Remove a user's id from the settings, unless this shard has newer ones. Later assignments with a version up to
  /// this one are ignored.
  package func decideFinishErasure(_ user: String, version: UInt64, at time: Timestamp, into effects: inout [Effect]) {
    guard version > self[user].version else { return }
    var name = user
    let hash = name.withUTF8 { StableHash.hash($0.span.bytes) }
    effects.append(.shard(.userErased(number(of: user, at: time), version: version, hash: hash, at: time)))
  }

  /// Return a user's number among those with settings; an erased user's former number. A new user gets a free number,
  /// or the next.
  private func number(of user: String, at time: Timestamp) -> UInt32 {
    find(user) ?? tombstone(of: user)?.number ?? freeNumber(at: time) ?? UInt32(count)
  }

  // MARK: Assignment

  /// Assign a user's settings. Numbers are assigned without gaps, or reused once their user was erased.
  mutating func assign(_ number: UInt32, _ settings: UserSettings) {
    if let tombstone = tombstones.removeValue(forKey: number) {
      remove(tombstone)
      ids.assign(UserNumber(number + 1), settings.user)
    }
    let known = ids.intern(settings.user)
    precondition(known.rawValue == number + 1, "users are numbered in order of arrival")
    let position = Int(number)
    let record = Record(
      version: settings.version,
      readShownSince: settings.readShownSince.milliseconds,
      deliveredShownSince: settings.deliveredShownSince.milliseconds,
      tokensRevokedBefore: settings.tokensRevokedBefore.milliseconds,
      appliedAt: settings.appliedAt.milliseconds,
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
    if journal.count >= 2 * Self.journalKeptMin { journal.removeFirst(Self.journalKeptMin) }
    journal.append(number)
    changeCount += 1
  }

  /// Mark a version as settled (every shard has it), unless there is a newer one.
  mutating func settle(_ number: UInt32, _ version: UInt64) {
    if records[Int(number)].version == version { records[Int(number)].isSettled = true }
  }

  /// Remove everything of a user but a hash of the id and the version; their number then has no user (R16).
  mutating func erase(_ number: UInt32, version: UInt64, hash: UInt64, at time: Timestamp) {
    let position = Int(number)
    let nothing = Record(
      version: version,
      readShownSince: 0,
      deliveredShownSince: 0,
      tokensRevokedBefore: 0,
      appliedAt: 0,
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
        // The journal cannot name a user whose id is gone, so each channel looks up all its members once.
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

  /// Unregister a tombstone.
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
        return [.shard(.userErased(number, version: tombstone.version, hash: tombstone.hash, at: tombstone.at))]
      }
      var record = self[number]
      // Whether it is settled is an effect of its own.
      let isSettled = record.isSettled
      record.isSettled = false
      let assigned = Effect.shard(.userAssigned(number, record))
      return isSettled ? [assigned, .shard(.userSettled(number, version: record.version))] : [assigned]
    }
  }

  #if DEBUG
    func checkInvariants() -> String? {
      for number in 0..<UInt32(count) {
        if let tombstone = tombstones[number] {
          if !ids.isErased(UserNumber(number + 1)) { return "user \(number): erased, and has an id" }
          if tombstone.number != number || records[Int(number)].version != tombstone.version {
            return "user \(number): the tombstone belongs to another user"
          }
        } else if withUser(number, { find($0) }) != number {
          return "user \(number): not found by their id"
        }
      }
      if tombstones.keys.contains(where: { $0 >= UInt32(count) }) { return "a tombstone without a number" }
      if oldestTombstone != tombstones.values.min(by: Self.precedes) {
        return "oldestTombstone is not the oldest"
      }
      let erasing = records.count { $0.isErasing }
      if erasing != erasingCount { return "\(erasing) users are being erased, \(erasingCount) are counted" }
      let revoked = records.count { $0.tokensRevokedBefore != 0 }
      if revoked != revokedCount {
        return "\(revoked) users have revoked tokens, \(revokedCount) are counted"
      }
      if UInt64(journal.count) > changeCount { return "the journal is longer than the number of changes" }
      return journal.contains { $0 >= UInt32(count) } ? "the journal has a number without a user" : nil
    }
  #endif
}

/// A user's versioned settings, which every shard has (R7). Exists only for users whose settings were ever set.
package struct UserSettings: Hashable, Sendable {
  package var user: String
  /// 0: never set, every setting has its default.
  package var version: UInt64
  package var hidesRead: Bool
  package var hidesDelivered: Bool
  /// When the user last changed from hidden to shown; positions moved while hidden count from then. None: never hidden.
  package var readShownSince: Timestamp
  package var deliveredShownSince: Timestamp
  /// Tokens issued before this time are refused; none: no token is refused.
  package var tokensRevokedBefore: Timestamp
  /// In the user's home shard: every shard has this version.
  package var isSettled: Bool
  /// The user is being erased (R16): nothing new may be created in their name.
  package var isErasing: Bool
  /// The user was erased at this version (R16) and nothing else is kept. Only in replies, never in the log.
  package var isErased: Bool
  /// When this shard applied the current privacy settings; none: they never changed. Each shard has its own.
  package var appliedAt: Timestamp

  package init(
    user: String,
    version: UInt64 = 0,
    hidesRead: Bool = false,
    hidesDelivered: Bool = false,
    readShownSince: Timestamp = .none,
    deliveredShownSince: Timestamp = .none,
    tokensRevokedBefore: Timestamp = .none,
    isSettled: Bool = false,
    isErasing: Bool = false,
    isErased: Bool = false,
    appliedAt: Timestamp = .none
  ) {
    self.user = user
    self.version = version
    self.hidesRead = hidesRead
    self.hidesDelivered = hidesDelivered
    self.readShownSince = readShownSince
    self.deliveredShownSince = deliveredShownSince
    self.tokensRevokedBefore = tokensRevokedBefore
    self.isSettled = isSettled
    self.isErasing = isErasing
    self.isErased = isErased
    self.appliedAt = appliedAt
  }
}

/// A partial update of a user's settings: nil leaves a setting unchanged.
package struct UserSettingsPatch: Hashable, Sendable {
  package var showsRead: Bool?
  package var showsDelivered: Bool?
  package var tokensRevokedBefore: Timestamp?
  package init(showsRead: Bool? = nil, showsDelivered: Bool? = nil, tokensRevokedBefore: Timestamp? = nil) {
    self.showsRead = showsRead
    self.showsDelivered = showsDelivered
    self.tokensRevokedBefore = tokensRevokedBefore
  }
}

extension UserSettings {
  /// Return whether these settings show the user to others in the same way as `other`.
  fileprivate func showsAs(_ other: UserSettings) -> Bool {
    hidesRead == other.hidesRead && hidesDelivered == other.hidesDelivered
      && readShownSince == other.readShownSince && deliveredShownSince == other.deliveredShownSince
  }
}
