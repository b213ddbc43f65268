/// The index of users' channels (R13, R14): what a channel's shard queues for the home shards of its users, and what those make of it.
extension ShardState {
  // MARK: In the shard of the channel

  /// Queues a change of what a user's index has of a channel: to be called by everything that has a channel know a user, know them otherwise, or know them no more.
  ///
  /// - Parameters:
  ///   - membership: what the index is to have; its epoch is the shard's.
  ///   - isGone: the channel knows the user no more.
  package func decideMembership(
    _ user: String,
    _ membership: Membership,
    isGone: Bool,
    into effects: inout [Effect]
  ) {
    var membership = membership
    membership.epoch = outbox.epoch
    let change = MembershipChange(user: user, membership, isGone: isGone)
    effects.append(.membershipQueued(nextChange(behind: effects), change))
  }

  /// The number of the next change, behind those that were decided and are not assigned yet.
  private func nextChange(behind effects: [Effect]) -> UInt64 {
    var position = effects.count
    while position > 0 {
      position -= 1
      if case .membershipQueued(let number, _) = effects[position] { return max(number, outbox.last) + 1 }
    }
    return outbox.last + 1
  }

  /// A sender whom the channel has not seen yet comes into their index, though they are no member.
  ///
  /// - Parameter slot: of the channel, or of the thread that they reply in.
  func decideSender(_ sender: RawSpan, in slot: ChannelSlot, into effects: inout [Effect]) {
    guard isNew(sender, in: slot.channel), !slot.isThread || isNew(sender, in: slot) else { return }
    decideMembership(Self.text(sender), senderOnly(slot), isGone: false, into: &effects)
  }

  /// What an index has of a channel whose user has only sent messages there.
  private func senderOnly(_ slot: ChannelSlot) -> Membership {
    Membership(
      cid: text(of: slot),
      channel: self[slot].number,
      row: nil,
      isMember: false,
      joinedAt: .none,
      epoch: 0
    )
  }

  /// Whether a channel, its threads aside, does not know this user: they are in no row of it, and sent none of its messages.
  package func isNew(_ user: RawSpan, in slot: ChannelSlot) -> Bool {
    !user.isEmpty && self[slot].users.find(user) == nil
  }

  /// A member has left: their index keeps the channel.
  func decideLeft(
    _ user: String,
    _ row: MemberOrdinal,
    of slot: ChannelSlot,
    _ cid: String,
    into effects: inout [Effect]
  ) {
    let membership = Membership(
      cid: cid,
      channel: self[slot].number,
      row: row,
      isMember: false,
      joinedAt: Timestamp(milliseconds: self[slot].rows.joinedAt[Int(row.rawValue)]),
      epoch: 0
    )
    decideMembership(user, membership, isGone: false, into: &effects)
  }

  func text(of slot: ChannelSlot) -> String { String(decoding: self[slot].cid, as: UTF8.self) }

  // MARK: In the home shard of the user

  /// Takes a change that was queued for a user of this shard into their index. The caller has made sure that a user without a slot has no index.
  package func decideTake(
    _ change: MembershipChange,
    _ slot: ChannelSlot?,
    at time: Timestamp,
    into effects: inout [Effect]
  ) {
    guard let slot else {
      guard !change.isGone else { return }
      effects.append(.countersAssigned(nextChannel: ChannelNumber(nextChannel.rawValue + 1), time: time))
      effects.append(
        .channelAssigned(nextChannel, cid: change.user, created: time, own: OptionPatch())
      )
      effects.append(.membershipAssigned(nextChannel, place: 0, change.membership))
      return
    }
    let number = self[slot].number
    let known = self[slot].memberships.place(of: change.membership.cid)
    if change.isGone {
      guard let known else { return }
      effects.append(.membershipRemoved(number, place: known))
      // An index of nothing would keep the name of somebody who was erased.
      if self[slot].memberships.count == 1 { effects.append(.channelDeleted(number, cid: change.user)) }
      return
    }
    guard let place = known ?? self[slot].memberships.nextPlace,
      self[slot].memberships[place] != change.membership
    else { return }
    effects.append(.membershipAssigned(number, place: place, change.membership))
  }

  // MARK: Rebuilding

  /// How far a channel's users have been queued again.
  package struct MembershipScan: Sendable {
    /// The last row of each user by number, and one more; 0: none. Rows up to `rows` were looked at.
    var lastRows: [UInt32] = []
    var rows = 0
    /// Users up to here are done, and then threads.
    var users = 0
    var threads = 0

    package init() {}
  }

  /// Queues what the indexes are to have of a channel, for some of its users.
  ///
  /// - Parameter limit: changes to be queued at most, but for the last thread's.
  /// - Returns: whether all users are done.
  package func decideAgain(
    _ slot: ChannelSlot,
    _ scan: inout MembershipScan,
    limit: Int,
    into effects: inout [Effect]
  ) -> Bool {
    // Rows that came since the last slice count too: a user's last row is named, also where they have left it.
    let userCount = self[slot].users.count
    while scan.lastRows.count <= userCount { scan.lastRows.append(0) }
    while scan.rows < self[slot].rows.rowCount {
      scan.lastRows[Int(self[slot].rows.users[scan.rows])] = UInt32(scan.rows) + 1
      scan.rows += 1
    }
    let cid = text(of: slot)
    var left = limit
    while scan.users < userCount, left > 0 {
      scan.users += 1
      let user = self[slot].users.text(UserNumber(UInt32(scan.users)))
      // Somebody who was erased here.
      if user.isEmpty { continue }
      let last = scan.lastRows[scan.users]
      let row = last == 0 ? nil : MemberOrdinal(last - 1)
      let membership = Membership(
        cid: cid,
        channel: self[slot].number,
        row: row,
        isMember: row.map { self[slot].rows.isActive($0) } ?? false,
        joinedAt: row.map { Timestamp(milliseconds: self[slot].rows.joinedAt[Int($0.rawValue)]) } ?? .none,
        epoch: 0
      )
      decideMembership(user, membership, isGone: false, into: &effects)
      left -= 1
    }
    // Those who have only replied in threads.
    while scan.threads < self[slot].threads.count, left > 0 {
      self[slot].threads[scan.threads].forEachUser { user, _ in
        var name = user
        guard name.withUTF8({ isNew($0.span.bytes, in: slot) }) else { return }
        decideMembership(user, senderOnly(slot), isGone: false, into: &effects)
        left -= 1
      }
      scan.threads += 1
    }
    return scan.users == userCount && scan.threads == self[slot].threads.count
  }

  /// Removes entries of an index that a rebuild has not confirmed.
  ///
  /// - Parameters:
  ///   - place: the first place to look at; moved on.
  ///   - limit: places to look at at most.
  /// - Returns: whether all were looked at.
  package func decideSweep(
    _ slot: ChannelSlot,
    from place: inout UInt32,
    epoch: UInt64,
    limit: Int,
    into effects: inout [Effect]
  ) -> Bool {
    let end = self[slot].memberships.placeCount
    var left = limit
    while place < end, left > 0 {
      if self[slot].memberships.isTaken(place), self[slot].memberships.epoch(place) < epoch {
        effects.append(.membershipRemoved(self[slot].number, place: place))
      }
      place += 1
      left -= 1
    }
    return place >= end
  }

  // MARK: Pages

  /// The effects that make a page of the outbox.
  package func outboxEffects(_ page: UInt32) -> [Effect] { outbox.effects(of: page) }

  /// The effects that make the page of how far changes are sent and taken.
  package var indexEffects: [Effect] { outbox.indexEffects }
}
