/// Users' settings (R7), and the settlement of settings and channel types: a change is made in the home shard,
/// assigned to all other shards, then settled at home.
extension ShardState {
  /// Return a user's settings; version 0 and the defaults if none were ever set. A user who was erased and has no
  /// settings since has the defaults too, with tokens from before the erasure revoked. A new user of that id inherits
  /// this revocation with their first settings.
  package func userSettings(_ user: String) -> UserSettings {
    if let number = settings.find(user) { return settings[number] }
    guard let tombstone = settings.tombstone(of: user) else { return UserSettings(user: user) }
    return UserSettings(
      user: user,
      version: tombstone.version,
      tokensRevokedBefore: tombstone.tokensRevokedBefore,
      isErased: true
    )
  }

  /// Change some of a user's settings: the home shard's part of a PUT. Positions moved while hidden count from the
  /// time when the user is visible again. Does nothing for a user who is being erased (``isErasing(_:)``).
  package func decidePatch(
    user: String,
    _ patch: UserSettingsPatch,
    at time: Timestamp,
    into effects: inout [Effect]
  ) {
    let current = userSettings(user)
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
    effects.append(.shard(.userAssigned(number(of: user), changed)))
  }

  /// Apply a user's settings from their home shard, unless this shard has newer ones.
  package func decideAssign(user settings: UserSettings, into effects: inout [Effect]) {
    guard settings.version > userSettings(settings.user).version else { return }
    var assigned = settings
    let current = userSettings(settings.user)
    assigned.appliedAt = assigned.showsAs(current) ? current.appliedAt : time
    assigned.isSettled = false
    assigned.isErased = false
    effects.append(.shard(.userAssigned(number(of: settings.user), assigned)))
  }

  /// Record that subscribers were notified of the user's new settings now. A client that resumes from a time between
  /// the assignment and this would have missed the events, so the change counts as applied now.
  package func decideAnnounced(user: String, into effects: inout [Effect]) {
    guard let number = settings.find(user) else { return }
    var announced = settings[number]
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
  package func decideSettle(user: String, version: UInt64, into effects: inout [Effect]) -> Bool {
    let current = userSettings(user)
    guard current.version == version, !current.isErasing else { return false }
    if let number = settings.find(user), !current.isSettled {
      effects.append(.shard(.userSettled(number, version: version)))
    }
    return true
  }

  /// Settle a version of a channel type: every shard has it.
  ///
  /// - Returns: whether it is settled now; false if there is a newer version.
  package func decideSettle(type name: String, version: UInt64, into effects: inout [Effect]) -> Bool {
    let current = channelType(name)
    guard current.version == version else { return false }
    if version > 0, !current.isSettled {
      effects.append(.shard(.typeSettled(name: name, version: version)))
    }
    return true
  }

  /// Return whether a request is refused because its token was issued to this user before a revocation
  /// (Proto/frames.md, flag `issued`).
  ///
  /// - Parameter issued: seconds since 1970.
  @inline(__always)
  package func isRevoked(_ user: RawSpan, issued: UInt32) -> Bool {
    settings.hasRevoked && settings.isRevoked(user, issued: issued)
  }

  /// Return a user's number among those with settings; an erased user's former number. A new user gets a free number,
  /// or the next.
  func number(of user: String) -> UInt32 {
    settings.find(user) ?? settings.tombstone(of: user)?.number ?? settings.freeNumber(at: time)
      ?? UInt32(settings.count)
  }
}

extension UserSettings {
  /// Return whether these settings show the user to others in the same way as `other`.
  fileprivate func showsAs(_ other: UserSettings) -> Bool {
    hidesRead == other.hidesRead && hidesDelivered == other.hidesDelivered
      && readShownSince == other.readShownSince && deliveredShownSince == other.deliveredShownSince
  }
}
