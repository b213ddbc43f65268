internal import NIOCore
internal import ReceiptModel
internal import ReceiptWire

/// Channels and their members: created, changed, listed and erased (Proto/frames.md, 0x1D to 0x1F and 0x44; R16).
extension ShardEngine {
  /// Create or update a channel.
  ///
  /// - Parameter hold: a held channel of this name, whose hold ends with the creation.
  func putChannel(
    _ request: inout Request,
    cid: RawSpan,
    _ slot: ChannelSlot?,
    ending hold: (deletion: HeldDeletion, slot: ChannelSlot)? = nil
  ) throws(WireError) -> Outcome {
    let fields = try PutChannelRequest(&request.fields)
    let (patch, members) = (fields.patch, fields.members)
    loop.budget.useEntries(members.count)
    if let invalid = Self.invalid(members) {
      return .refused(.invalidField, invalid)
    }
    guard request.isDuplicate || members.isEmpty || !state.outbox.isFull else {
      return OutgoingChanges.refusedFull
    }
    guard request.isDuplicate || !areErased(members, in: slot) else {
      return Self.refusedErasing
    }
    let time = advanceTime(forMembersOf: members.isEmpty || request.isDuplicate ? nil : slot)
    var slot = slot
    let isNew = slot == nil
    do throws(Refusal) {
      if let slot {
        try state.decideUpdate(slot, options: patch, members: members, at: time, into: &request.effects)
      } else if request.isDuplicate {
        // The original was applied, and the channel was deleted since.
        throw Refusal.channelNotFound
      } else {
        if let hold { state.consumers.decideEnd(hold.deletion, into: &request.effects) }
        let cid = cid.withUnsafeBytes { String(decoding: $0, as: UTF8.self) }
        try state.decideCreate(cid: cid, options: patch, members: members, at: time, into: &request.effects)
      }
    } catch {
      return refused(error, slot)
    }
    slot = applyCommand(slot ?? hold?.slot, request)
    guard let slot else { preconditionFailure("a created channel has a slot") }
    return outgoing.replyWhenIndexed(request, slot) { buffer in
      buffer.writePutChannelReply(isNew: isNew) { $0.writeChannel(slot, in: state) }
    }
  }

  func changeMembers(_ request: inout Request, _ slot: ChannelSlot) throws(WireError) -> Outcome {
    let fields = try ChangeMembersRequest(&request.fields)
    let (add, remove) = (fields.add, fields.remove)
    loop.budget.useEntries(add.count + remove.count)
    if let invalid = Self.invalid(add) {
      return .refused(.invalidField, invalid)
    }
    guard request.isDuplicate || !state.outbox.isFull else {
      return OutgoingChanges.refusedFull
    }
    guard request.isDuplicate || !areErased(add, in: slot) else {
      return Self.refusedErasing
    }
    do {
      try state.decideMembers(
        slot,
        add: add,
        remove: remove,
        at: advanceTime(forMembersOf: add.isEmpty || request.isDuplicate ? nil : slot),
        into: &request.effects
      )
    } catch {
      return refused(error, slot)
    }
    applyCommand(slot, request)
    return outgoing.replyWhenIndexed(request, slot) { $0.writeChannel(slot, in: state) }
  }

  /// Set one member's role, and whether they mute the channel (it then counts in none of their totals).
  func setMember(_ request: inout Request, _ slot: ChannelSlot) throws(WireError) -> Outcome {
    let fields = try SetMemberRequest(&request.fields)
    let (member, flags) = (fields.member, fields.flags)
    let joins = flags & SetMemberRequest.joins != 0
    var user = member.user
    if let refusal = user.withUTF8({ refusal(of: $0.span.bytes, request, slot) }) { return refusal }
    guard flags <= 7, flags & SetMemberRequest.muteGiven != 0 || flags & SetMemberRequest.isMuted == 0 else {
      return .refused(.invalidField, "flags: 1 (mute given), 2 (mute, with 1), 4 (joins) and their sums")
    }
    if let invalid = Self.invalid([member]) {
      return .refused(.invalidField, invalid)
    }
    guard request.isDuplicate || !state.outbox.isFull else {
      return OutgoingChanges.refusedFull
    }
    guard request.isDuplicate || !areErased([member], in: slot) else {
      return Self.refusedErasing
    }
    let decided: (row: MemberOrdinal, isNew: Bool)
    do throws(Refusal) {
      decided = try state.decideMember(
        slot,
        user: member.user,
        role: member.role,
        isMuted: flags & SetMemberRequest.muteGiven == 0 ? nil : flags & SetMemberRequest.isMuted != 0,
        joins: joins,
        at: advanceTime(forMembersOf: !joins || request.isDuplicate ? nil : slot),
        into: &request.effects
      )
    } catch {
      return refused(error, slot)
    }
    // The member has left since: there is nothing to answer from.
    guard !request.isDuplicate || !decided.isNew else { return .unknownOutcome }
    applyCommand(slot, request)
    return outgoing.replyWhenIndexed(request, slot) {
      SetMemberReply(
        hasJoined: decided.isNew,
        role: state[slot].rows.role(decided.row) ?? "",
        joinedAt: state[slot].rows.joinedAt(decided.row),
        isMuted: state[slot].rows.isMuted(decided.row)
      )
      .write(into: &$0)
    }
  }

  /// Return whether one of the members is being erased in this channel.
  private func areErased(_ members: [ShardState.NewMember], in slot: ChannelSlot?) -> Bool {
    guard let slot, waiting.hasSlices else { return false }
    return members.contains { isBeingErased($0.user, in: slot) }
  }

  private static func invalid(_ members: [ShardState.NewMember]) -> String? {
    for member in members {
      if !isValid(member.user, Identifier.isUser) { return "\(Identifier.userRange)" }
      if !member.role.isEmpty, !isValid(member.role, Identifier.isRole) {
        return "\(Identifier.roleRange)"
      }
    }
    return nil
  }

  static func isValid(_ text: String, _ check: (RawSpan) -> Bool) -> Bool {
    var text = text
    return text.withUTF8 { check($0.span.bytes) }
  }

  func listRoster(_ request: inout Request, _ slot: ChannelSlot) throws(WireError) -> Outcome {
    let fields = try RowPageRequest(&request.fields)
    guard fields.viewer.isValid else { return Self.refusedViewer }
    guard Self.pageRange.contains(fields.limit) else { return Self.refusedLimit }
    guard !isRevoked(fields.viewer.user, request) else { return refused(.tokenRevoked, slot) }
    let viewer: ChannelViewer
    do throws(Refusal) {
      viewer = try state.viewer(fields.viewer.user, isServer: fields.viewer.isServer, in: slot)
    } catch {
      return refused(error, slot)
    }
    let page = state[slot].roster(limit: Int(fields.limit), cursor: fields.cursor)
    return reply(request, replyTiming(slot)) { buffer in
      buffer.writeVarint(page.rows.count)
      for row in page.rows {
        // Muting is private (R14), also from a server that queries as a user (R6).
        let showsMuted = fields.viewer.isServer && fields.viewer.user.isEmpty || row == viewer.row
        state.withUser(slot, row) { user in
          RosterEntryFields.write(
            user: user,
            role: state[slot].rows.role(row) ?? "",
            joinedAt: state[slot].rows.joinedAt(row),
            isMuted: showsMuted && state[slot].rows.isMuted(row),
            into: &buffer
          )
        }
      }
      buffer.writeOptional(page.next.map(UInt64.init))
    }
  }

  /// Erase a user, a slice in each turn. The name stays until the last slice, so that a repeated request can finish
  /// the erasure. Meanwhile commands in this user's name are refused in the channel.
  func eraseMember(_ request: inout Request, _ slot: ChannelSlot) throws(WireError) -> Outcome {
    let user = try request.fields.string()
    try request.fields.end()
    guard Identifier.isUser(user) else { return .refused(.invalidField, "\(Identifier.userRange)") }
    let name = Self.text(user)
    guard state.settings.canErase(name) else {
      // The name belongs to a new user by now: this command is late, from a slower gateway.
      applyCommand(slot, request)
      return reply(request, replyTiming(slot)) { $0.writeFlag(false) }
    }
    guard !request.isDuplicate else {
      return reply(request, replyTiming(slot)) { $0.writeFlag(true) }
    }
    var scan = EraseScan()
    if case .erase(let known, _, _)? = request.attempt?.progress { scan = known }
    if isBeingErased(name, in: slot) {
      // Another command is erasing this user. This one erases what that one leaves.
      let progress = RequestAttempt.Progress.erase(EraseScan(), user: name, hasAppliedEffects: false)
      return waiting.add(request, for: .slice(slot), progress: progress)
    }
    let granted = max(loop.budget.effects, configuration.shortEffects)
    var remaining = granted
    let isDone = state.decideErase(
      slot,
      member: name,
      &scan,
      limit: &remaining,
      at: advanceTime(),
      into: &request.effects
    )
    loop.budget.useEffects(granted - remaining)
    guard isDone else {
      if !request.effects.isEmpty { applyEffects(request.effects, to: slot) }
      let progress = RequestAttempt.Progress.erase(scan, user: name, hasAppliedEffects: true)
      return waiting.add(request, for: .slice(slot), progress: progress)
    }
    applyCommand(slot, request)
    return outgoing.replyWhenIndexed(request, slot) { $0.writeFlag(scan.isKnown) }
  }

  /// Return whether an erasure of this user in this channel has begun to apply effects.
  func isBeingErased(_ user: String, in slot: ChannelSlot) -> Bool {
    waiting.hasSlices && waiting.isErasing(user, in: slot)
  }

  /// Return whether an erasure of this user in this channel has begun to apply effects.
  func isBeingErased(_ user: RawSpan, in slot: ChannelSlot) -> Bool {
    guard waiting.hasSlices else { return false }
    return waiting.isErasing(Self.text(user), in: slot)
  }

  /// Refuse a command in a user's name if their token is revoked or they are being erased; nil if it is admitted.
  @inline(__always)
  func refusal(of user: RawSpan, _ request: borrowing Request, _ slot: ChannelSlot) -> Outcome? {
    if isRevoked(user, request) { return refused(.tokenRevoked, slot) }
    if !request.isDuplicate, isBeingErased(user, in: slot) { return Self.refusedErasing }
    return nil
  }

  /// Refuses a command in the name of a user who is being erased in the channel.
  static var refusedErasing: Outcome {
    .refused(.busy, retryAfterMilliseconds: 100, "the user is being erased in this channel")
  }

  /// Delete a channel that does not exist, or erase a user in it. Nothing is to be done, and that is no error: a
  /// repeat must succeed.
  func succeedAbsent(_ request: inout Request, _ replyTiming: ReplyLane.Timing) throws(WireError) -> Outcome {
    if request.kind == .eraseMember {
      let user = try request.fields.string()
      try request.fields.end()
      guard Identifier.isUser(user) else { return .refused(.invalidField, "\(Identifier.userRange)") }
    } else {
      try request.fields.end()
    }
    applyCommand(nil, request)
    return reply(request, replyTiming) { $0.writeFlag(request.isDuplicate) }
  }
}
