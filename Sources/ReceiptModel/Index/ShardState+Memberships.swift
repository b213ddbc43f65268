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
  package func decideMembership(
    _ user: String,
    _ membership: Membership,
    isGone: Bool,
    into effects: inout [Effect]
  ) {
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
    decideMembership(Self.text(sender), senderOnly(slot), isGone: false, into: &effects)
  }

  /// Return the index entry for a channel in which the user has only sent messages.
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

  /// Return whether a channel, without its threads, does not know this user: the user has no row in it and sent none of
  /// its messages.
  package func isNew(_ user: RawSpan, in slot: ChannelSlot) -> Bool {
    !user.isEmpty && self[slot].users.find(user) == nil
  }

  /// Queue the change for a member who left; their index keeps the channel.
  func decideMembershipLeft(
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
      joinedAt: self[slot].rows.joinedAt(row),
      epoch: 0
    )
    decideMembership(user, membership, isGone: false, into: &effects)
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
    let number = self[slot].number
    let known = self[slot].memberships.position(of: change.membership.cid)
    let start = effects.count
    if change.isGone {
      guard let known else { return }
      decideApplyMembershipRemoval(change, slot, known, at: time, into: &effects)
    } else {
      guard let position = known ?? self[slot].memberships.nextPosition else { return }
      var membership = change.membership
      // The deletion of an earlier channel of this name is reported with this entry.
      membership.deletedAt = known.map { deletion($0, of: slot, keptAt: time) } ?? .none
      guard self[slot].memberships[position] != membership else { return }
      effects.append(.channel(number, .membershipAssigned(position: position, membership)))
    }
    decideForget(slot, behind: start, at: time, into: &effects)
  }

  /// Apply the change that a channel no longer knows the user. If it was deleted, and the user was a member of it or
  /// of an earlier channel of its name, the deletion is kept. It is not kept for a user who is being erased (R16).
  private func decideApplyMembershipRemoval(
    _ change: MembershipChange,
    _ slot: ChannelSlot,
    _ position: UInt32,
    at time: Timestamp,
    into effects: inout [Effect]
  ) {
    guard let known = self[slot].memberships[position], !known.isGone else { return }
    var deletedAt = change.membership.deletedAt
    if Self.isForgotten(deletedAt, at: time) { deletedAt = .none }
    deletedAt = max(deletedAt, deletion(position, of: slot, keptAt: time))
    let isErased = isErasing(change.user)
    guard isErased || deletedAt == .none else {
      effects.append(
        .channel(self[slot].number, .membershipAssigned(position: position, known.tombstone(at: deletedAt)))
      )
      return
    }
    effects.append(.channel(self[slot].number, .membershipRemoved(position: position)))
    let isLast = self[slot].memberships.knownCount == 1
    if isErased && isLast { effects.append(.channel(self[slot].number, .channelDeleted(cid: change.user))) }
  }

  /// Return the deletion kept with an entry; none: there is none, or it has expired.
  private func deletion(_ position: UInt32, of slot: ChannelSlot, keptAt time: Timestamp) -> Timestamp {
    let at = self[slot].memberships.deletedAt(position)
    return Self.isForgotten(at, at: time) ? .none : at
  }

  /// Return whether a deletion is too old to be reported.
  private static func isForgotten(_ deletion: Timestamp, at time: Timestamp) -> Bool {
    time.milliseconds - deletion.milliseconds > MembershipTable.deletionsKeptMilliseconds
  }

  /// Maximum number of deletions that one change drops; more than a change can add.
  private static let forgottenPerChange = 2

  /// Drop the oldest deletions of an index, if they have expired or there are too many. Drops the index itself if it
  /// becomes empty, because it would keep the name of an erased user.
  ///
  /// - Parameter start: where the change's effects begin.
  private func decideForget(
    _ slot: ChannelSlot,
    behind start: Int,
    at time: Timestamp,
    into effects: inout [Effect]
  ) {
    var left = self[slot].memberships.count
    var changed: UInt32?
    var room = MembershipTable.deletionsMax - self[slot].memberships.deletions.count
    for effect in effects[start...] {
      switch effect {
      case .channel(_, .membershipAssigned(let position, let membership)):
        changed = position
        if self[slot].memberships.position(of: membership.cid) == nil { left += 1 }
        let isCounted =
          position < self[slot].memberships.positionCount
          && self[slot].memberships.deletedAt(position) != .none
        if membership.deletedAt != .none, !isCounted { room -= 1 }
      case .channel(_, .membershipRemoved(let position)):
        changed = position
        left -= 1
      default: return
      }
    }
    for deletion in self[slot].memberships.deletions.prefix(Self.forgottenPerChange)
    where deletion.position != changed && (room < 0 || Self.isForgotten(deletion.at, at: time)) {
      guard var entry = self[slot].memberships[deletion.position] else { continue }
      room += 1
      if entry.isGone {
        left -= 1
        effects.append(.channel(self[slot].number, .membershipRemoved(position: deletion.position)))
      } else {
        entry.deletedAt = .none
        effects.append(.channel(self[slot].number, .membershipAssigned(position: deletion.position, entry)))
      }
    }
    if left == 0 { effects.append(.channel(self[slot].number, .channelDeleted(cid: text(of: slot)))) }
  }

  /// Drop the index of a user who is being erased, if it contains nothing but deletions: the erasure looks for
  /// channels that know the user, and finds none.
  package func decideDropErasedIndex(_ slot: ChannelSlot, into effects: inout [Effect]) {
    guard self[slot].memberships.knownCount == 0, self[slot].withIndexOwner({ isErasing($0) }) else { return }
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
      var membership = Membership(
        cid: cid,
        channel: self[slot].number,
        row: row,
        isMember: !isGone && (row.map { self[slot].rows.isActive($0) } ?? false),
        joinedAt: row.map { self[slot].rows.joinedAt($0) } ?? .none,
        epoch: 0
      )
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
        decideMembership(user, senderOnly(slot), isGone: isGone, into: &effects)
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

  /// Remove the index entries that a rebuild has not confirmed, and expired tombstones. Other tombstones stay: no
  /// channel confirms them.
  ///
  /// - Parameters:
  ///   - position: the first position to examine; advanced.
  ///   - limit: maximum number of positions to examine.
  /// - Returns: whether all positions were examined.
  package func decideRemoveUnconfirmed(
    _ slot: ChannelSlot,
    from position: inout UInt32,
    epoch: UInt64,
    limit: Int,
    into effects: inout [Effect]
  ) -> Bool {
    let end = self[slot].memberships.positionCount
    var left = limit
    while position < end, left > 0 {
      let isWrong =
        self[slot].memberships.isKnown(position)
        ? self[slot].memberships.epoch(position) < epoch
        : self[slot].memberships.isOccupied(position) && deletion(position, of: slot, keptAt: time) == .none
      if isWrong {
        effects.append(.channel(self[slot].number, .membershipRemoved(position: position)))
      }
      position += 1
      left -= 1
    }
    return position >= end
  }

  // MARK: Pages

  /// Return the effects that reproduce a page of the outbox.
  package func outboxEffects(_ page: UInt32) -> [Effect] { outbox.effects(of: page) }

  /// The effects that reproduce the page of the progress of sent and received changes.
  package var indexEffects: [Effect] { outbox.indexEffects }
}
