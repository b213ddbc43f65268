/// Creates channels, and changes their options and members (R6).
extension ShardState {
  /// A member in a command that adds members.
  package struct NewMember: Hashable, Sendable {
    package var user: String
    /// Empty: none given; an existing member keeps their role.
    package var role: String
    package init(user: String, role: String = "") {
      self.user = user
      self.role = role
    }
  }

  /// Create a channel. The caller ensures that the shard has no channel of that name.
  package func decideCreate(
    cid: String,
    options: OptionPatch,
    members: [NewMember],
    at time: Timestamp,
    into effects: inout [Effect]
  ) throws(Refusal) {
    try refuseErasing(members)
    let start = effects.count
    let inForce = types.record(String(cid.prefix { $0 != ":" })).options.applying(options)
    effects.append(.shard(.countersAssigned(nextChannel: ChannelNumber(nextChannel.rawValue + 1), time: time)))
    effects.append(.channel(nextChannel, .channelAssigned(cid: cid, created: time, own: options)))
    try decideJoin(
      nextChannel,
      cid: cid,
      members,
      channel: .vacant(),
      newest: .zero,
      history: inForce.history,
      at: time,
      undoingTo: start,
      into: &effects
    )
  }

  /// Merge options into a channel's own and add members; never remove or reset any.
  package func decideUpdate(
    _ slot: ChannelSlot,
    options: OptionPatch,
    members: [NewMember],
    at time: Timestamp,
    into effects: inout [Effect]
  ) throws(Refusal) {
    try refuseErasing(members)
    let start = effects.count
    let number = self[slot].number
    let merged = self[slot].ownOptions.merging(options)
    if merged != self[slot].ownOptions {
      let cid = String(decoding: self[slot].cid, as: UTF8.self)
      effects.append(.channel(number, .channelAssigned(cid: cid, created: self[slot].created, own: merged)))
      effects.append(.channel(number, .optionsChanged(at: time)))
    }
    let history = types.options(self[slot].type).applying(merged).history
    try decideJoin(
      number,
      cid: text(of: slot),
      members,
      channel: self[slot],
      newest: self[slot].messages.newest,
      history: history,
      at: time,
      undoingTo: start,
      into: &effects
    )
  }

  /// Add and remove members. A user in both lists is removed first and joins again, with a new row (R6).
  package func decideMembers(
    _ slot: ChannelSlot,
    add: [NewMember],
    remove: [String],
    at time: Timestamp,
    into effects: inout [Effect]
  ) throws(Refusal) {
    try refuseErasing(add)
    let start = effects.count
    let number = self[slot].number
    var removed: Set<ExactText> = []
    let cid = text(of: slot)
    for user in remove where removed.insert(ExactText(user)).inserted {
      guard let row = self[slot].row(of: user) else { continue }
      effects.append(.channel(number, .rowLeft(row, at: time)))
      self[slot].decideLeaveThreads(row, at: time, into: &effects)
      // The user's index keeps the channel.
      let membership = membership(row, in: slot, cid, isMember: false)
      decideMembership(user, membership, isGone: false, into: &effects)
    }
    try decideJoin(
      number,
      cid: cid,
      add,
      channel: self[slot],
      leaving: removed,
      newest: self[slot].messages.newest,
      history: options(slot).history,
      at: time,
      undoingTo: start,
      into: &effects
    )
  }

  /// Update one member's role and mute setting in a channel.
  ///
  /// - Parameters:
  ///   - role: empty: unchanged.
  ///   - isMuted: nil: unchanged.
  ///   - joins: whether a non-member is added; otherwise they are refused.
  /// - Returns: the member's row, and whether they joined by this command.
  package func decideMember(
    _ slot: ChannelSlot,
    user: String,
    role: String,
    isMuted: Bool?,
    joins: Bool,
    at time: Timestamp,
    into effects: inout [Effect]
  ) throws(Refusal) -> (row: MemberOrdinal, isNew: Bool) {
    let known = self[slot].row(of: user)
    if known == nil, !joins { throw .notAMember }
    let member = NewMember(user: user, role: role)
    try decideMembers(slot, add: [member], remove: [], at: time, into: &effects)
    let row = known ?? MemberOrdinal(UInt32(self[slot].rows.rowCount))
    let wasMuted = known.map { self[slot].rows.isMuted($0) } ?? false
    if let isMuted, isMuted != wasMuted {
      effects.append(.channel(self[slot].number, .muteAssigned(row, isMuted: isMuted)))
    }
    return (row, known == nil)
  }

  /// - Parameter start: the number of effects before this command.
  private func decideJoin(
    _ number: ChannelNumber,
    cid: String,
    _ members: [NewMember],
    channel: borrowing ChannelState,
    leaving: Set<ExactText> = [],
    newest: SequenceNumber,
    history: HistoryOption,
    at time: Timestamp,
    undoingTo start: Int,
    into effects: inout [Effect]
  ) throws(Refusal) {
    var next = UInt32(channel.rows.rowCount)
    var joining: [ExactText: MemberOrdinal] = [:]
    /// Roles as this command leaves them, because a user may be listed twice.
    var roles: [UInt32: String] = [:]
    for member in members {
      let name = ExactText(member.user)
      let current = joining[name] ?? (leaving.contains(name) ? nil : channel.row(of: member.user))
      if let current {
        let role = roles[current.rawValue] ?? channel.rows.role(current) ?? ""
        if !member.role.isEmpty, role != member.role {
          roles[current.rawValue] = member.role
          effects.append(.channel(number, .roleAssigned(current, role: member.role)))
        }
        continue
      }
      guard next < ReadVector.rowsMax else {
        // The command is refused as a whole, including its leaves and options: the effects decided so far are dropped.
        effects.removeSubrange(start...)
        throw .limitReached(.membersPerChannel)
      }
      let record = RowRecord(
        user: member.user,
        role: member.role,
        hidesHistory: history == .hidden,
        joined: newest,
        joinedAt: time,
        read: history == .visible ? newest : .zero
      )
      effects.append(.channel(number, .rowAssigned(MemberOrdinal(next), record)))
      let membership = Membership(cid: cid, channel: number, row: MemberOrdinal(next), isMember: true, joinedAt: time)
      decideMembership(member.user, membership, isGone: false, into: &effects)
      joining[name] = MemberOrdinal(next)
      roles[next] = member.role
      next += 1
    }
  }
}

/// Removal (R16): deletes channels, and erases users in channels. Repeats succeed and change nothing.
extension ShardState {
  /// Delete a channel and everything in it, one slice of its users at a time. If one slice is not enough, the channel
  /// can no longer be found from the first slice on. The slot is free once the last slice's effects are assigned.
  ///
  /// - Parameters:
  ///   - limit: maximum number of users; reduced by those processed.
  ///   - namesNeededBefore: the channel is held after its last slice (``HeldDeletion``); nil: it is removed.
  /// - Returns: whether this was the last slice.
  package func decideDelete(
    channel slot: ChannelSlot,
    _ scan: inout MembershipScan,
    limit: inout Int,
    namesNeededBefore: UInt64? = nil,
    into effects: inout [Effect]
  ) -> Bool {
    let start = effects.count
    guard decideRequeueMemberships(slot, &scan, isGone: true, limit: &limit, into: &effects) else {
      if !self[slot].isBeingDeleted { effects.insert(.channel(self[slot].number, .deletionBegun), at: start) }
      return false
    }
    let (number, cid) = (self[slot].number, text(of: slot))
    guard let namesNeededBefore else {
      effects.append(.channel(number, .channelDeleted(cid: cid)))
      return true
    }
    if !self[slot].isBeingDeleted { effects.insert(.channel(number, .deletionBegun), at: start) }
    let held = HeldDeletion(channel: number, cid: cid, namesNeededBefore: namesNeededBefore)
    effects.append(.shard(.consumer(.deletionHeld(held))))
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
