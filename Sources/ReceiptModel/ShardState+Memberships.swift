/// The index of users' channels (R13, R14): what a channel's shard queues for the home shards of its users, and what
/// those make of it.
extension ShardState {
  // MARK: In the shard of the channel

  /// Queues a change of what a user's index has of a channel: to be called by everything that has a channel know a
  /// user, know them otherwise, or know them no more.
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

  /// Whether a channel, its threads aside, does not know this user: they are in no row of it, and sent none of its
  /// messages.
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

  /// Takes a change that was queued for a user of this shard into their index. The caller has made sure that a user
  /// without a slot has no index.
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
        .channelAssigned(nextChannel, cid: IndexName.text(of: change.user), created: time, own: OptionPatch())
      )
      effects.append(.membershipAssigned(nextChannel, place: 0, change.membership))
      return
    }
    let number = self[slot].number
    let known = self[slot].memberships.place(of: change.membership.cid)
    let start = effects.count
    if change.isGone {
      guard let known else { return }
      decideTakeGone(change, slot, known, at: time, into: &effects)
    } else {
      guard let place = known ?? self[slot].memberships.nextPlace else { return }
      var membership = change.membership
      // What had the name before is told of with it.
      membership.deletedAt = known.map { deletion($0, of: slot, keptAt: time) } ?? .none
      guard self[slot].memberships[place] != membership else { return }
      effects.append(.membershipAssigned(number, place: place, membership))
    }
    decideForget(slot, behind: start, at: time, into: &effects)
  }

  /// A channel knows the user no more. Where it was deleted, and they were a member of it or of one that had the name
  /// before, that is kept, but not of somebody who is being erased (R16).
  private func decideTakeGone(
    _ change: MembershipChange,
    _ slot: ChannelSlot,
    _ place: UInt32,
    at time: Timestamp,
    into effects: inout [Effect]
  ) {
    guard let known = self[slot].memberships[place], !known.isGone else { return }
    var deletedAt = change.membership.deletedAt
    if Self.isForgotten(deletedAt, at: time) { deletedAt = .none }
    deletedAt = max(deletedAt, deletion(place, of: slot, keptAt: time))
    let isErased = isErasing(change.user)
    guard isErased || deletedAt == .none else {
      effects.append(.membershipAssigned(self[slot].number, place: place, known.tombstone(at: deletedAt)))
      return
    }
    effects.append(.membershipRemoved(self[slot].number, place: place))
    let isLast = self[slot].memberships.knownCount == 1
    if isErased && isLast { effects.append(.channelDeleted(self[slot].number, cid: change.user)) }
  }

  /// The deletion that is kept with an entry; none: there is none, or not for much longer.
  private func deletion(_ place: UInt32, of slot: ChannelSlot, keptAt time: Timestamp) -> Timestamp {
    let at = self[slot].memberships.deletedAt(place)
    return Self.isForgotten(at, at: time) ? .none : at
  }

  /// Whether a deletion is so long ago that nobody is told of it any more.
  private static func isForgotten(_ deletion: Timestamp, at time: Timestamp) -> Bool {
    time.milliseconds - deletion.milliseconds > MembershipTable.deletionsKeptMilliseconds
  }

  /// Deletions that are let go of with one change at most: more than it can add.
  private static let forgottenPerChange = 2

  /// Lets go of the oldest deletions that an index keeps, where they are told no more or where there are too many, and
  /// of the index itself where nothing is left in it: it would keep the name of somebody who was erased.
  ///
  /// - Parameter start: the effects from here on are the change's.
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
      case .membershipAssigned(_, let place, let membership):
        changed = place
        if self[slot].memberships.place(of: membership.cid) == nil { left += 1 }
        let isCounted =
          place < self[slot].memberships.placeCount
          && self[slot].memberships.deletedAt(place) != .none
        if membership.deletedAt != .none, !isCounted { room -= 1 }
      case .membershipRemoved(_, let place):
        changed = place
        left -= 1
      default: return
      }
    }
    for deletion in self[slot].memberships.deletions.prefix(Self.forgottenPerChange)
    where deletion.place != changed && (room < 0 || Self.isForgotten(deletion.at, at: time)) {
      guard var entry = self[slot].memberships[deletion.place] else { continue }
      room += 1
      if entry.isGone {
        left -= 1
        effects.append(.membershipRemoved(self[slot].number, place: deletion.place))
      } else {
        entry.deletedAt = .none
        effects.append(.membershipAssigned(self[slot].number, place: deletion.place, entry))
      }
    }
    if left == 0 { effects.append(.channelDeleted(self[slot].number, cid: text(of: slot))) }
  }

  /// Lets go of the index of a user who is being erased, where nothing but what was deleted is in it: their erasure
  /// looks for channels that know them, and finds none.
  package func decideForgetErased(_ slot: ChannelSlot, into effects: inout [Effect]) {
    guard self[slot].memberships.knownCount == 0, self[slot].withIndexOwner({ isErasing($0) }) else { return }
    effects.append(.channelDeleted(self[slot].number, cid: text(of: slot)))
  }

  // MARK: All users of a channel

  /// How far the users of a channel have been gone through, to queue something for each.
  package struct MembershipScan: Sendable {
    /// The last row of each user by number, and one more; 0: none. Rows up to `rows` were looked at.
    var lastRows: [UInt32] = []
    var rows = 0
    /// Users up to here are done, and then threads.
    var users = 0
    var threads = 0
    /// Users of the thread that comes next, up to here.
    var threadUsers = 0

    package init() {}
  }

  /// Users that are looked at in place of one change.
  private static let looksPerChange = 16

  /// Queues what the indexes are to have of a channel, for some of its users.
  ///
  /// - Parameters:
  ///   - isGone: the channel is being deleted, and knows none of them any more.
  ///   - limit: changes to be queued at most; what is used of it is taken from it, also by looking at users for whom nothing is queued.
  /// - Returns: whether all users are done.
  package func decideAgain(
    _ slot: ChannelSlot,
    _ scan: inout MembershipScan,
    isGone: Bool = false,
    limit: inout Int,
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
    var looks = max(0, limit) * Self.looksPerChange
    defer { limit = looks / Self.looksPerChange }
    while scan.users < userCount {
      guard looks > 0 else { return false }
      scan.users += 1
      looks -= 1
      let user = self[slot].users.text(UserNumber(UInt32(scan.users)))
      // Somebody who was erased here.
      if user.isEmpty { continue }
      let last = scan.lastRows[scan.users]
      let row = last == 0 ? nil : MemberOrdinal(last - 1)
      var membership = Membership(
        cid: cid,
        channel: self[slot].number,
        row: row,
        isMember: !isGone && (row.map { self[slot].rows.isActive($0) } ?? false),
        joinedAt: row.map { Timestamp(milliseconds: self[slot].rows.joinedAt[Int($0.rawValue)]) } ?? .none,
        epoch: 0
      )
      if isGone, let row { membership.deletedAt = ceased(row, slot) }
      decideMembership(user, membership, isGone: isGone, into: &effects)
      looks -= Self.looksPerChange - 1
    }
    // Those who have only replied in threads; who has in several is queued for each.
    while scan.threads < self[slot].threads.count {
      while scan.threadUsers < self[slot].threads[scan.threads].users.count {
        guard looks > 0 else { return false }
        scan.threadUsers += 1
        looks -= 1
        var user = self[slot].threads[scan.threads].users.text(UserNumber(UInt32(scan.threadUsers)))
        guard !user.isEmpty, user.withUTF8({ isNew($0.span.bytes, in: slot) }) else { continue }
        decideMembership(user, senderOnly(slot), isGone: isGone, into: &effects)
        looks -= Self.looksPerChange - 1
      }
      guard looks > 0 else { return false }
      looks -= 1
      scan.threads += 1
      scan.threadUsers = 0
    }
    return true
  }

  /// When the member of a row ceases to be one, with a channel that is being deleted, or has before. What was told of
  /// the channel up to then said otherwise.
  private func ceased(_ row: MemberOrdinal, _ slot: ChannelSlot) -> Timestamp {
    self[slot].rows.isActive(row) ? time : self[slot].rows.leftAt(row)
  }

  // MARK: Rebuilding

  /// Removes entries of an index that a rebuild has not confirmed, and tombstones that are kept no longer; the others
  /// no channel confirms.
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
      let isWrong =
        self[slot].memberships.isKnown(place)
        ? self[slot].memberships.epoch(place) < epoch
        : self[slot].memberships.isTaken(place) && deletion(place, of: slot, keptAt: time) == .none
      if isWrong {
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
