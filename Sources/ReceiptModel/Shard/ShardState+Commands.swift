/// The commands. Each command is decided against memory: it is refused, or it appends its effects; nothing changes
/// here. The caller assigns the effects and logs them. A command that appends no effect changes nothing, and has
/// succeeded.
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

  // MARK: Positions

  /// Why a successful mark counts for no message.
  package enum Uncounted: UInt8, Sendable, CaseIterable {
    /// The member does not take part in the thread.
    case notInThread = 1
    /// The message has no replies.
    case noReplies = 2
    /// The member joined the channel after the message, or joined the thread after it and has not read it.
    case registeredBefore = 3
  }

  /// The result of a mark in a channel.
  package struct MarkResult {
    package let row: MemberOrdinal
    /// The target position of a read or a delivery, even if the watermark had reached it already; zero: no position.
    package let sequence: SequenceNumber

    package init(row: MemberOrdinal, sequence: SequenceNumber = .zero) {
      self.row = row
      self.sequence = sequence
    }
  }

  /// Return why a successful read or delivery in a channel does not count: the message precedes the member's join (R6).
  /// Nil: it counts, as far as the member's privacy settings show it.
  package func uncounted(_ marked: MarkResult, in slot: ChannelSlot) -> Uncounted? {
    let joined = self[slot].rows.joined(marked.row)
    return marked.sequence == .zero || marked.sequence > joined ? nil : .registeredBefore
  }

  /// Mark a channel read up to a message, or up to the newest if `message` is empty (R2).
  ///
  /// - Parameter epoch: the unread epoch that the caller knows; an older one leaves the marker unchanged (R4).
  /// - Returns: the member's row and the target position.
  package func decideRead(
    _ slot: ChannelSlot,
    user: RawSpan,
    message: RawSpan,
    epoch: UInt32?,
    at time: Timestamp,
    into effects: inout [Effect]
  ) throws(Refusal) -> MarkResult {
    let row = try member(user, in: slot)
    let sequence = try position(message, in: slot, hiddenThrough: hiddenThrough(slot, ofRow: row))
    decideSealTail(slot, row, .read, to: sequence, into: &effects)
    self[slot].decideRead(row, to: sequence, epoch: epoch, at: time, into: &effects)
    decideReadAcknowledges(slot, row, through: sequence, at: time, into: &effects)
    return MarkResult(row: row, sequence: sequence)
  }

  /// Mark messages delivered up to `message`, or up to the newest if it is empty (R3).
  package func decideDelivered(
    _ slot: ChannelSlot,
    user: RawSpan,
    message: RawSpan,
    at time: Timestamp,
    into effects: inout [Effect]
  ) throws(Refusal) -> MarkResult {
    let row = try member(user, in: slot)
    let sequence = try position(message, in: slot, hiddenThrough: hiddenThrough(slot, ofRow: row))
    if sequence > self[slot].rows.delivered[row] {
      let isHidden = self[slot].rows.hidesDelivered(row)
      decideSealTail(slot, row, .delivered, to: sequence, into: &effects)
      effects.append(
        .channel(self[slot].number, .deliveredMoved(row, to: sequence, at: time, isHidden: isHidden))
      )
    }
    return MarkResult(row: row, sequence: sequence)
  }

  /// Mark a channel unread from a message on (R4).
  package func decideUnread(
    _ slot: ChannelSlot,
    user: RawSpan,
    message: RawSpan,
    epoch: UInt32?,
    into effects: inout [Effect]
  ) throws(Refusal) -> MemberOrdinal {
    let row = try member(user, in: slot)
    guard options(slot).markUnread != .off else { throw .markUnreadOff }
    guard let sequence = find(message, in: slot, hiddenThrough: hiddenThrough(slot, row)) else {
      throw .messageNotFound
    }
    self[slot].decideUnread(row, from: sequence, epoch: epoch, at: time, into: &effects)
    return row
  }

  /// Mark a channel or thread unread from the first visible message created at or after `since`. Does nothing if there
  /// is none (R4).
  ///
  /// - Parameter slot: the channel, or one of its threads.
  package func decideUnread(
    _ slot: ChannelSlot,
    user: RawSpan,
    since: Timestamp,
    epoch: UInt32?,
    into effects: inout [Effect]
  ) throws(Refusal) {
    let start = effects.count
    let member = try member(user, in: slot.channel)
    guard options(slot).markUnread != .off else { throw .markUnreadOff }
    if slot.isThread, isClosed(slot) { throw .messageDeleted }
    guard let row = self[slot].row(of: user) else { throw .notInThread }
    // Messages from before the join do not exist for the member (R6).
    let hidden = hiddenThrough(slot, member)
    guard let first = self[slot].messages.first(createdSince: since, after: hidden) else {
      return
    }
    self[slot].decideUnread(row, from: first, epoch: epoch, at: time, into: &effects)
    if slot.isThread { effects.wrapInThread(self[slot].parent, from: start) }
  }

  /// Flag a channel unread as a whole for one of its members (R4).
  package func decideFlagUnread(
    _ slot: ChannelSlot,
    user: RawSpan,
    epoch: UInt32?,
    into effects: inout [Effect]
  ) throws(Refusal) -> MemberOrdinal {
    let row = try member(user, in: slot)
    guard options(slot).markUnread != .off else { throw .markUnreadOff }
    self[slot].decideFlagUnread(row, epoch: epoch, at: time, into: &effects)
    return row
  }

  /// Return the row of a current member.
  package func member(_ user: RawSpan, in slot: ChannelSlot) throws(Refusal) -> MemberOrdinal {
    guard let row = self[slot].row(of: user) else { throw .notAMember }
    return row
  }

  /// Return the position that a mark names. Zero if the mark means the newest message and none exists for the member.
  func position(
    _ message: RawSpan,
    in slot: ChannelSlot,
    hiddenThrough: SequenceNumber
  ) throws(Refusal) -> SequenceNumber {
    if message.isEmpty {
      let newest = self[slot].messages.newest
      return newest > hiddenThrough ? newest : .zero
    }
    guard let sequence = find(message, in: slot, hiddenThrough: hiddenThrough) else { throw .messageNotFound }
    return sequence
  }

  // MARK: Messages

  /// The users that a message being registered mentions (R14).
  package enum NewMentions: Hashable, Sendable {
    case nobody
    case all
    /// Only those who are members at registration count, and never the sender.
    case users([String])
  }

  /// The result of registering a message.
  package enum Registration: Hashable, Sendable {
    case created(SequenceNumber)
    case known(SequenceNumber)

    package var sequence: SequenceNumber {
      switch self {
      case .created(let sequence), .known(let sequence): sequence
      }
    }
  }

  /// Register a message. If the sender is a member, marks it read and delivered for them (R5). Repeating it with the
  /// same id and fields changes nothing.
  ///
  /// - Parameters:
  ///   - sender: empty for the system.
  ///   - requestsAcknowledgement: requests acknowledgement; ``receiptRefusal(_:_:)`` says whether it was granted (R9).
  ///   - movesPosition: if false, the sender's positions and marker stay unchanged (R5).
  package func decideRegister(
    _ slot: ChannelSlot,
    id: RawSpan,
    sender: RawSpan,
    created: Timestamp,
    isSilent: Bool,
    requestsAcknowledgement: Bool = false,
    movesPosition: Bool = true,
    mentions: NewMentions = .nobody,
    at time: Timestamp,
    into effects: inout [Effect]
  ) throws(Refusal) -> Registration {
    if let known = self[slot].messages.find(id) {
      guard !self[slot].messages.flags(known).contains(.deleted) else { throw .messageDeleted }
      try checkRepeat(
        of: known,
        in: slot,
        sender: sender,
        isSilent: isSilent,
        requestsAcknowledgement: requestsAcknowledgement,
        movesPosition: movesPosition
      )
      return .known(known)
    }
    if try knownReply(id, in: slot) != nil { throw .messageConflict }
    guard self[slot].messages.hasRoom else { throw .limitReached(.messagesPerChannel) }
    if isErasing(sender) { throw .userErased }
    let number = self[slot].number
    let sequence = self[slot].messages.newest.next
    var record = MessageRecord(
      id: Self.text(id),
      sender: Self.text(sender),
      flags: isSilent ? .silent : [],
      registeredAt: time,
      createdAt: created
    )
    if !movesPosition { record.flags.insert(.keepsSenderPosition) }
    if requestsAcknowledgement {
      let grant = acknowledgementGrant(slot, sender: sender, at: time)
      record.flags.formUnion(grant.flags)
      record.acknowledgementExpiresAt = grant.expiresAt
    }
    if mentions != .nobody, record.flags.isCountable {
      record.mentions = self[slot].resolve(mentions, sender: record.sender)
    }
    effects.append(.channel(number, .messageAssigned(sequence, record)))
    if !sender.isEmpty, let row = self[slot].row(of: sender) {
      guard movesPosition else { return .created(sequence) }
      let (hidesRead, hidesDelivered) = (self[slot].rows.hidesRead(row), self[slot].rows.hidesDelivered(row))
      decideSealTail(slot, row, .read, to: sequence, into: &effects)
      effects.append(.channel(number, .readMoved(row, to: sequence, at: time, isHidden: hidesRead)))
      effects.append(.channel(number, .deliveredMoved(row, to: sequence, at: time, isHidden: hidesDelivered)))
      if self[slot].rows.marker(row) != nil {
        let epoch = self[slot].rows.epoch(row)
        effects.append(.channel(number, .markerAssigned(row, marker: nil, epoch: epoch, at: time)))
      }
      self[slot].decideUnflag(row, epoch: nil, at: time, into: &effects)
    } else {
      decideSender(sender, in: slot, into: &effects)
    }
    return .created(sequence)
  }

  /// Refuse a repeated registration whose fields differ from the first: the caller means another message.
  ///
  /// - Parameters:
  ///   - slot: the channel's, or that of the reply's thread.
  ///   - requestsAcknowledgement: compared with what was requested, granted or not.
  func checkRepeat(
    of known: SequenceNumber,
    in slot: ChannelSlot,
    sender: RawSpan,
    isSilent: Bool,
    requestsAcknowledgement: Bool,
    movesPosition: Bool
  ) throws(Refusal) {
    let flags = self[slot].messages.flags(known)
    guard flags.contains(.silent) == isSilent, flags.askedForAcknowledgement == requestsAcknowledgement,
      flags.contains(.keepsSenderPosition) != movesPosition,
      withSender(slot, of: known, { $0.isEqual(to: sender) })
    else { throw .messageConflict }
  }

  /// Delete a message: it no longer counts and has no status, but still marks a position (R16).
  package func decideDelete(
    _ slot: ChannelSlot,
    id: RawSpan,
    at time: Timestamp,
    into effects: inout [Effect]
  ) throws(Refusal) -> SequenceNumber {
    guard let sequence = self[slot].messages.find(id) else {
      if let reply = decideDelete(reply: id, in: slot, at: time, into: &effects) { return reply }
      throw .messageNotFound
    }
    if !self[slot].messages.flags(sequence).contains(.deleted) {
      effects.append(.channel(self[slot].number, .messageDeleted(sequence, at: time)))
    }
    return sequence
  }

  // MARK: Channels and members

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
    let inForce = channelType(String(cid.prefix { $0 != ":" })).options.applying(options)
    effects.append(
      .shard(.countersAssigned(nextChannel: ChannelNumber(nextChannel.rawValue + 1), time: time))
    )
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
      decideMembershipLeft(user, row, of: slot, cid, into: &effects)
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
      let current =
        joining[name] ?? (leaving.contains(name) ? nil : channel.row(of: member.user))
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
      let membership = Membership(
        cid: cid,
        channel: number,
        row: MemberOrdinal(next),
        isMember: true,
        joinedAt: time,
        epoch: 0
      )
      decideMembership(member.user, membership, isGone: false, into: &effects)
      joining[name] = MemberOrdinal(next)
      roles[next] = member.role
      next += 1
    }
  }

  // MARK: Channel types

  /// Merge options into a channel type's: the home shard's part of a PUT.
  package func decidePatch(type name: String, _ patch: OptionPatch, into effects: inout [Effect]) {
    let current = channelType(name)
    let options = current.options.applying(patch)
    guard options != current.options || current.version == 0 else { return }
    effects.append(
      .shard(
        .channelTypeAssigned(
          ChannelTypeRecord(name: name, version: current.version + 1, options: options, appliedAt: time)
        )
      )
    )
  }

  /// Apply a channel type's value from its home shard, unless this shard has a newer one.
  package func decideAssign(type record: ChannelTypeRecord, into effects: inout [Effect]) {
    guard record.version > channelType(record.name).version else { return }
    var applied = record
    applied.appliedAt = time
    effects.append(.shard(.channelTypeAssigned(applied)))
  }

  static func text(_ bytes: RawSpan) -> String {
    bytes.withUnsafeBytes { String(decoding: $0, as: UTF8.self) }
  }
}
