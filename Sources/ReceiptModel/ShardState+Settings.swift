/// Users' settings (R7), and what is settled of them and of channel types: changed in a home shard, then assigned to
/// all others, then settled at home.
extension ShardState {
  /// What a user has set; version 0 and the defaults for one who has set nothing. For one who was erased and has set
  /// nothing since the defaults too, but that tokens from before the erasure are revoked: whoever has the id anew takes
  /// that over with the first thing that they set.
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

  /// Changes some of a user's settings: the home shard's part of a PUT. Positions that were moved while hidden count
  /// from the time of showing again. Of a user who is being erased nothing is changed (``isErasing(_:)``).
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
    if !changed.showsAs(current) { changed.takenAt = time }
    changed.version += 1
    changed.isSettled = false
    changed.isErased = false
    effects.append(.userAssigned(number(of: user), changed))
  }

  /// Takes over a user's settings from their home shard, unless newer ones are here.
  package func decideAssign(user settings: UserSettings, into effects: inout [Effect]) {
    guard settings.version > userSettings(settings.user).version else { return }
    var assigned = settings
    let current = userSettings(settings.user)
    assigned.takenAt = assigned.showsAs(current) ? current.takenAt : time
    assigned.isSettled = false
    assigned.isErased = false
    effects.append(.userAssigned(number(of: settings.user), assigned))
  }

  /// Those who watch the user's rows are told now how others see them. Whoever asks for what has changed since a time
  /// between this and the assignment has missed that, so it counts as taken over now.
  package func decideAnnounced(user: String, into effects: inout [Effect]) {
    guard let number = settings.find(user) else { return }
    var announced = settings[number]
    guard announced.takenAt != .none, announced.takenAt < time else { return }
    let isSettled = announced.isSettled
    announced.takenAt = time
    announced.isSettled = false
    effects.append(.userAssigned(number, announced))
    if isSettled { effects.append(.userSettled(number, version: announced.version)) }
  }

  /// Every shard has this version of a user's settings.
  ///
  /// - Returns: whether it is settled now; not where there is a newer version, nor where the user is being erased: that
  ///   is settled once they are.
  package func decideSettle(user: String, version: UInt64, into effects: inout [Effect]) -> Bool {
    let current = userSettings(user)
    guard current.version == version, !current.isErasing else { return false }
    if let number = settings.find(user), !current.isSettled {
      effects.append(.userSettled(number, version: version))
    }
    return true
  }

  /// Every shard has this version of a channel type.
  ///
  /// - Returns: whether it is settled now; not where there is a newer version.
  package func decideSettle(type name: String, version: UInt64, into effects: inout [Effect]) -> Bool {
    let current = channelType(name)
    guard current.version == version else { return false }
    if version > 0, !current.isSettled { effects.append(.typeSettled(name: name, version: version)) }
    return true
  }

  /// Whether a request is refused whose token this user was given then (Proto/frames.md, flag `issued`).
  ///
  /// - Parameter issued: seconds since 1970.
  @inline(__always)
  package func isRevoked(_ user: RawSpan, issued: UInt32) -> Bool {
    settings.hasRevoked && settings.isRevoked(user, issued: issued)
  }

  /// A user's number among those with settings, their former one where they were erased. For somebody who has none yet
  /// one that is free again, or the next.
  func number(of user: String) -> UInt32 {
    settings.find(user) ?? settings.tombstone(of: user)?.number ?? settings.freeNumber(at: time)
      ?? UInt32(settings.count)
  }
}

extension UserSettings {
  /// Whether others see the user as with these settings.
  fileprivate func showsAs(_ other: UserSettings) -> Bool {
    hidesRead == other.hidesRead && hidesDelivered == other.hidesDelivered
      && readShownSince == other.readShownSince && deliveredShownSince == other.deliveredShownSince
  }
}
