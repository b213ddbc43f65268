/// The index of users' channels (R13, R14): the changes that a channel's shard queues for its users' home shards, and
/// their application there.
extension ShardState {
  // MARK: In the channel's shard

  /// Queue a change of a user's index entry for a channel. Every command must call this when its channel gains a user,
  /// loses one, or changes a membership.
  ///
  /// - Parameters:
  ///   - membership: the new index entry; its epoch is replaced by the shard's.
  ///   - isGone: the channel no longer knows the user.
  package func decideMembership(_ user: String, _ membership: Membership, isGone: Bool, into effects: inout [Effect]) {
    var membership = membership
    membership.epoch = outbox.epoch
    let change = MembershipChange(user: user, membership, isGone: isGone)
    effects.append(.shard(.membershipQueued(nextChange(behind: effects), change)))
  }

  /// Return the number of the next change, after those already decided but not yet assigned.
  private func nextChange(behind effects: [Effect]) -> UInt64 {
    var position = effects.count
    while position > 0 {
      position -= 1
      if case .shard(.membershipQueued(let number, _)) = effects[position] {
        return max(number, outbox.last) + 1
      }
    }
    return outbox.last + 1
  }

  /// Queue an index entry for a sender who is new to the channel, although they are not a member.
  ///
  /// - Parameter slot: the channel's, or that of the thread of their reply.
  func decideSender(_ sender: RawSpan, in slot: ChannelSlot, into effects: inout [Effect]) {
    guard isNew(sender, in: slot.channel), !slot.isThread || isNew(sender, in: slot) else { return }
    let membership = membership(nil, in: slot, text(of: slot), isMember: false)
    decideMembership(Self.text(sender), membership, isGone: false, into: &effects)
  }

  /// Return the index entry for a channel.
  ///
  /// - Parameters:
  ///   - row: the user's last row; nil: the user has only sent messages.
  ///   - cid: the channel's.
  func membership(_ row: MemberOrdinal?, in slot: ChannelSlot, _ cid: String, isMember: Bool) -> Membership {
    Membership(
      cid: cid,
      channel: self[slot].number,
      row: row,
      isMember: isMember,
      joinedAt: row.map { self[slot].rows.joinedAt($0) } ?? .none
    )
  }

  /// Return whether a channel, without its threads, does not know this user: the user has no row in it and sent none of
  /// its messages.
  package func isNew(_ user: RawSpan, in slot: ChannelSlot) -> Bool {
    !user.isEmpty && self[slot].users.find(user) == nil
  }

  func text(of slot: ChannelSlot) -> String { String(decoding: self[slot].cid, as: UTF8.self) }

  // MARK: In the user's home shard

  /// Apply a queued change to the index of a user of this shard. The caller ensures that a user without a slot has no
  /// index.
  package func decideApplyMembership(
    _ change: MembershipChange,
    _ slot: ChannelSlot?,
    at time: Timestamp,
    into effects: inout [Effect]
  ) {
    guard let slot else {
      guard !change.isGone else { return }
      effects.append(
        .shard(.countersAssigned(nextChannel: ChannelNumber(nextChannel.rawValue + 1), time: time))
      )
      effects.append(
        .channel(
          nextChannel,
          .channelAssigned(cid: IndexName.text(of: change.user), created: time, own: OptionPatch())
        )
      )
      effects.append(.channel(nextChannel, .membershipAssigned(position: 0, change.membership)))
      return
    }
    self[slot].memberships.decideApply(
      change,
      isErased: change.isGone && settings.isErasing(change.user),
      at: time,
      self[slot].number,
      self[slot].cid,
      into: &effects
    )
  }

  /// Drop the index of a user who is being erased, if it contains nothing but deletions: the erasure looks for
  /// channels that know the user, and finds none.
  package func decideDropErasedIndex(_ slot: ChannelSlot, into effects: inout [Effect]) {
    guard self[slot].memberships.knownCount == 0, self[slot].withIndexOwner({ settings.isErasing($0) }) else { return }
    effects.append(.channel(self[slot].number, .channelDeleted(cid: text(of: slot))))
  }

  // MARK: All users of a channel

  /// The progress of a scan over a channel's users that queues a change for each.
  package struct MembershipScan: Sendable {
    /// 1 + the last row of each user, by user number; 0: none. Covers the rows up to `rows`.
    var lastRows: [UInt32] = []
    var rows = 0
    /// Users up to here are done; threads follow.
    var users = 0
    var threads = 0
    /// Users up to here are done in the next thread.
    var threadUsers = 0

    package init() {}
  }

  /// Number of users examined that cost as much as one change.
  private static let scansPerChange = 16

  /// Queue the index entries of a channel for some of its users.
  ///
  /// - Parameters:
  ///   - isGone: the channel is being deleted, and no longer knows any of them.
  ///   - limit: maximum number of changes to queue; reduced by the work done, which includes users for whom nothing is
  ///     queued.
  /// - Returns: whether all users are done.
  package func decideRequeueMemberships(
    _ slot: ChannelSlot,
    _ scan: inout MembershipScan,
    isGone: Bool = false,
    limit: inout Int,
    into effects: inout [Effect]
  ) -> Bool {
    // Include rows added since the last slice: the entry names a user's last row, even if they left it.
    let userCount = self[slot].users.count
    while scan.lastRows.count <= userCount { scan.lastRows.append(0) }
    while scan.rows < self[slot].rows.rowCount {
      let row = MemberOrdinal(UInt32(scan.rows))
      scan.lastRows[Int(self[slot].rows.user(row).rawValue)] = UInt32(scan.rows) + 1
      scan.rows += 1
    }
    let cid = text(of: slot)
    var scanBudget = max(0, limit) * Self.scansPerChange
    defer { limit = scanBudget / Self.scansPerChange }
    while scan.users < userCount {
      guard scanBudget > 0 else { return false }
      scan.users += 1
      scanBudget -= 1
      let user = self[slot].users.text(UserNumber(UInt32(scan.users)))
      // A user who was erased here.
      if user.isEmpty { continue }
      let last = scan.lastRows[scan.users]
      let row = last == 0 ? nil : MemberOrdinal(last - 1)
      let isMember = !isGone && (row.map { self[slot].rows.isActive($0) } ?? false)
      var membership = membership(row, in: slot, cid, isMember: isMember)
      if isGone, let row { membership.deletedAt = ceased(row, slot) }
      decideMembership(user, membership, isGone: isGone, into: &effects)
      scanBudget -= Self.scansPerChange - 1
    }
    // Users who have only replied in threads; a user of several threads is queued for each.
    while scan.threads < self[slot].threads.count {
      while scan.threadUsers < self[slot].threads[scan.threads].users.count {
        guard scanBudget > 0 else { return false }
        scan.threadUsers += 1
        scanBudget -= 1
        var user = self[slot].threads[scan.threads].users.text(UserNumber(UInt32(scan.threadUsers)))
        guard !user.isEmpty, user.withUTF8({ isNew($0.span.bytes, in: slot) }) else { continue }
        let membership = membership(nil, in: slot, cid, isMember: false)
        decideMembership(user, membership, isGone: isGone, into: &effects)
        scanBudget -= Self.scansPerChange - 1
      }
      guard scanBudget > 0 else { return false }
      scanBudget -= 1
      scan.threads += 1
      scan.threadUsers = 0
    }
    return true
  }

  /// Return when a row's member ceases to be one: with the deletion of the channel, or earlier by leaving. Earlier
  /// reports about the channel said otherwise.
  private func ceased(_ row: MemberOrdinal, _ slot: ChannelSlot) -> Timestamp {
    self[slot].rows.isActive(row) ? time : self[slot].rows.leftAt(row)
  }

  // MARK: Rebuilding

  /// Remove the entries of a user's index that a rebuild has not confirmed
  /// (``MembershipTable/decideRemoveUnconfirmed(from:epoch:limit:at:_:into:)``).
  package func decideRemoveUnconfirmed(
    _ slot: ChannelSlot,
    from position: inout UInt32,
    epoch: UInt64,
    limit: Int,
    into effects: inout [Effect]
  ) -> Bool {
    self[slot].memberships.decideRemoveUnconfirmed(
      from: &position,
      epoch: epoch,
      limit: limit,
      at: time,
      self[slot].number,
      into: &effects
    )
  }
}
