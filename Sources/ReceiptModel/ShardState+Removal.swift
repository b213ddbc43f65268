/// Removal (R16): truncating and deleting channels, erasing users in channels and in the settings of a shard. Repeats succeed, and change nothing.
extension ShardState {
  // MARK: Channels

  /// Takes away the messages before one, or all where `message` is empty. Their ids go on marking positions, and are not used again.
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

  /// Deletes a channel and everything in it. The slot is free once the last of the effects is assigned.
  package func decideDelete(channel slot: ChannelSlot, into effects: inout [Effect]) {
    var known: [(user: String, row: MemberOrdinal?)] = []
    self[slot].forEachUser { known.append(($0, $1)) }
    for (user, row) in known { decideGone(slot, user, row, into: &effects) }
    let cid = String(decoding: self[slot].cid, as: UTF8.self)
    effects.append(.channelDeleted(self[slot].number, cid: cid))
  }

  /// Takes every trace of a user's id out of a channel: they leave it, and what they did there is nobody's.
  ///
  /// - Returns: whether the channel knew them.
  package func decideErase(
    _ slot: ChannelSlot,
    member user: String,
    at time: Timestamp,
    into effects: inout [Effect]
  ) -> Bool {
    var row: MemberOrdinal?
    var name = user
    if let number = name.withUTF8({ self[slot].users.find($0.span.bytes) }) {
      row = self[slot].rows.rows(of: number).last
    }
    guard self[slot].decideErase(user, at: time, into: &effects) else { return false }
    decideGone(slot, user, row, into: &effects)
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

  /// From here on a user is being erased: the home shard's first part of it. Whoever carries it on brings the version to all other shards.
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

  /// Takes a user's id out of the settings, unless newer ones are here: from here on no version up to this one is taken.
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

extension Effect {
  /// Whether it takes a name away that may not be found any more once the log is purged (R16).
  package var isErasure: Bool {
    switch self {
    case .rowErased, .senderErased, .userErased, .channelDeleted: true
    case .membershipQueued(_, let change): change.isGone
    case .inThread(_, let effect): effect.isErasure
    default: false
    }
  }
}
