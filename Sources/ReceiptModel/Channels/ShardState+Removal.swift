/// Removal (R16): truncates and deletes channels, and erases users in channels. Repeats succeed and change nothing.
extension ShardState {
  // MARK: Channels

  /// Delete a channel and everything in it, one slice of its users at a time. If one slice is not enough, the channel
  /// can no longer be found from the first slice on. The slot is free once the last slice's effects are assigned.
  ///
  /// - Parameter limit: maximum number of users; reduced by those processed.
  /// - Returns: whether this was the last slice.
  package func decideDelete(
    channel slot: ChannelSlot,
    _ scan: inout MembershipScan,
    limit: inout Int,
    into effects: inout [Effect]
  ) -> Bool {
    let start = effects.count
    guard decideRequeueMemberships(slot, &scan, isGone: true, limit: &limit, into: &effects) else {
      if !self[slot].isBeingDeleted { effects.insert(.channel(self[slot].number, .deletionBegun), at: start) }
      return false
    }
    effects.append(.channel(self[slot].number, .channelDeleted(cid: text(of: slot))))
    return true
  }

  /// Remove every trace of a user's id from a channel, one slice at a time. The user leaves it, and their rows and
  /// messages lose their user. Until the last slice the channel knows the user, so that a repeat finishes an
  /// interrupted erasure.
  ///
  /// - Parameters:
  ///   - scan: the progress; at the end ``EraseScan/isKnown`` says whether the channel knew the user. Until the scan is
  ///     done, nothing may be created in the user's name in the channel.
  ///   - limit: approximate maximum number of effects; reduced by the work done, which includes other users' data.
  /// - Returns: whether this was the last slice.
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
    if scan.isKnown {
      let membership = membership(row, in: slot, text(of: slot), isMember: false)
      decideMembership(user, membership, isGone: true, into: &effects)
    }
    return true
  }

  func refuseErasing(_ members: [NewMember]) throws(Refusal) {
    for member in members where settings.isErasing(member.user) { throw .userErased }
  }
}
