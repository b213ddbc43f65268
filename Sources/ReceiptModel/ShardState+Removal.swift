/// Removal (R16): truncating and deleting channels, erasing users in channels and in the settings of a shard. Repeats
/// succeed, and change nothing.
extension ShardState {
  // MARK: Channels

  /// Takes away the messages before one, or all where `message` is empty. Their ids go on marking positions, and are
  /// not used again.
  package func decideTruncate(
    _ slot: ChannelSlot,
    before message: RawSpan,
    at time: Timestamp,
    into effects: inout [Effect]
  ) throws(Refusal) {
    var through = self[slot].messages.newest
    if !message.isEmpty {
      guard let first = self[slot].messages.find(message) else { throw .messageNotFound }
      through = SequenceNumber(first.rawValue - 1)
    }
    guard through > self[slot].messages.truncatedThrough else { return }
    effects.append(.truncated(self[slot].number, through: through, at: time))
  }

  /// Deletes a channel and everything in it, a slice of its users at a time. Where one slice is not all, nobody finds
  /// the channel from the first one on. The slot is free once the effects of the last are assigned.
  ///
  /// - Parameter limit: users at most; taken from.
  /// - Returns: whether it was the last slice.
  package func decideDelete(
    channel slot: ChannelSlot,
    _ scan: inout MembershipScan,
    limit: inout Int,
    into effects: inout [Effect]
  ) -> Bool {
    let start = effects.count
    guard decideAgain(slot, &scan, isGone: true, limit: &limit, into: &effects) else {
      if !self[slot].isEnding { effects.insert(.deletionBegun(self[slot].number), at: start) }
      return false
    }
    effects.append(.channelDeleted(self[slot].number, cid: text(of: slot)))
    return true
  }

  /// Takes every trace of a user's id out of a channel, a slice at a time: they leave it, and what they did there is
  /// nobody's. Until the last slice the channel knows them, so that a repeat finishes what was left.
  ///
  /// - Parameters:
  ///   - scan: how far it has got; ``EraseScan/isKnown`` tells in the end whether the channel knew them. While it is not done, nothing may be made in the user's name there.
  ///   - limit: effects at most, near enough; taken from, also by looking at what is not theirs.
  /// - Returns: whether it was the last slice.
  package func decideErase(
    _ slot: ChannelSlot,
    member user: String,
    _ scan: inout EraseScan,
    limit: inout Int,
    at time: Timestamp,
    into effects: inout [Effect]
  ) -> Bool {
    var row: MemberOrdinal?
    var name = user
    if let number = name.withUTF8({ self[slot].users.find($0.span.bytes) }) {
      row = self[slot].rows.rows(of: number).last
    }
    guard self[slot].decideErase(user, &scan, limit: &limit, at: time, into: &effects) else { return false }
    if scan.isKnown { decideGone(slot, user, row, into: &effects) }
    return true
  }

  /// The channel knows a user no more.
  private func decideGone(
    _ slot: ChannelSlot,
    _ user: String,
    _ row: MemberOrdinal?,
    into effects: inout [Effect]
  ) {
    let joinedAt = row.map { Timestamp(milliseconds: self[slot].rows.joinedAt[Int($0.rawValue)]) }
    let membership = Membership(
      cid: String(decoding: self[slot].cid, as: UTF8.self),
      channel: self[slot].number,
      row: row,
      isMember: false,
      joinedAt: joinedAt ?? .none,
      epoch: 0
    )
    decideMembership(user, membership, isGone: true, into: &effects)
  }

  // MARK: Users

  /// Whether a user is being erased: nothing new is made in their name.
  @inline(__always)
  package func isErasing(_ user: RawSpan) -> Bool { settings.hasErasing && settings.isErasing(user) }

  /// Whether a user is being erased.
  func isErasing(_ user: String) -> Bool {
    guard settings.hasErasing else { return false }
    var user = user
    return user.withUTF8 { settings.isErasing($0.span.bytes) }
  }

  /// Whether a user may be erased in a channel: they are being erased, as far as this shard knows anything of them.
  package func mayBeErased(_ user: String) -> Bool {
    isErasing(user) || settings.find(user) == nil && settings.tombstone(of: user) == nil
  }

  func refuseErasing(_ members: [NewMember]) throws(Refusal) {
    guard settings.hasErasing else { return }
    for member in members where isErasing(member.user) { throw .userErased }
  }

  /// From here on a user is being erased: the home shard's first part of it. Whoever carries it on brings the version
  /// to all other shards.
  package func decideErasing(user: String, into effects: inout [Effect]) {
    let current = userSettings(user)
    guard !current.isErasing else { return }
    var erasing = current
    erasing.isErasing = true
    erasing.isErased = false
    erasing.isSettled = false
    erasing.version += 1
    effects.append(.userAssigned(number(of: user), erasing))
  }

  /// Takes a user's id out of the settings, unless newer ones are here: from here on no version up to this one is
  /// taken.
  package func decideErased(
    user: String,
    version: UInt64,
    at time: Timestamp,
    into effects: inout [Effect]
  ) {
    guard version > userSettings(user).version else { return }
    var name = user
    let hash = name.withUTF8 { StableHash.hash($0.span.bytes) }
    effects.append(.userErased(number(of: user), version: version, hash: hash, at: time))
  }
}
