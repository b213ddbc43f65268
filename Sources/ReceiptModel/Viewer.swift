/// Who asks about a channel: what they may see depends on it (R7, R10).
package struct ChannelViewer: Hashable, Sendable {
  /// The member whose own row this is; nil: a server on nobody's behalf, or nobody who is a member.
  package let row: MemberOrdinal?
  /// Rows carry the members' own details.
  package let isServer: Bool
  /// The user who asks; nobody for a server on nobody's behalf.
  let user: UserNumber
  /// The member's row in the channel, also where this is about one of its threads (R15).
  let channelRow: MemberOrdinal?
  /// Messages up to here do not exist for the viewer, who joined after them under hidden history (R6); zero: all of
  /// them do.
  package let hiddenThrough: SequenceNumber
  /// When the member joined the channel; only where anything is hidden from them.
  let joinedAt: Timestamp

  /// A server on nobody's behalf.
  package static let server = ChannelViewer(row: nil, user: .nobody, isServer: true)

  /// - Parameter channelRow: nil: the same as `row`.
  init(
    row: MemberOrdinal?,
    user: UserNumber,
    isServer: Bool,
    channelRow: MemberOrdinal? = nil,
    hiddenThrough: SequenceNumber = .zero,
    joinedAt: Timestamp = .none
  ) {
    self.row = row
    self.channelRow = channelRow ?? row
    self.user = user
    self.isServer = isServer
    self.hiddenThrough = hiddenThrough
    self.joinedAt = joinedAt
  }

  /// A server that asks on nobody's behalf sees what `counts_visible_to` keeps from members.
  var seesAll: Bool { isServer && user == .nobody }

  /// Whether a message of the room that the viewer asks about exists for them (R6).
  func sees(_ sequence: SequenceNumber) -> Bool { sequence > hiddenThrough }

  /// Whether rows carry own details beside the viewer's own. Others' unread counts and epochs reach back before a join
  /// under hidden history (R6).
  var seesOwnDetails: Bool { isServer && hiddenThrough == .zero }
}

/// What does not exist for a member who joined under hidden history (R6). Every message that a request names, or that
/// an answer names, passes here.
extension ShardState {
  /// How many of a room's messages are from before a member joined, where hidden history hides those from them; zero
  /// where all exist for them.
  ///
  /// - Parameters:
  ///   - slot: the channel, or one of its threads: of its replies those are hidden that were registered before the member joined the channel.
  ///   - member: their row in the channel.
  @inline(__always)
  package func hiddenThrough(_ slot: ChannelSlot, _ member: MemberOrdinal) -> SequenceNumber {
    guard self[slot.channel].rows.hidesHistory(member) else { return .zero }
    guard slot.isThread else { return SequenceNumber(self[slot].rows.joined[Int(member.rawValue)]) }
    return self[slot].repliesBefore(
      Timestamp(milliseconds: self[slot.channel].rows.joinedAt[Int(member.rawValue)])
    )
  }

  /// A message by its id, unless it does not exist for whoever asks.
  ///
  /// - Parameter hiddenThrough: from ``hiddenThrough(_:_:)``, or of the viewer.
  @inline(__always)
  package func find(
    _ message: RawSpan,
    in slot: ChannelSlot,
    hiddenThrough: SequenceNumber
  ) -> SequenceNumber? {
    guard let sequence = self[slot].messages.find(message), sequence > hiddenThrough else { return nil }
    return sequence
  }

  /// Whether a thread exists for a member: where its parent is from before their join, from its first reply since then
  /// on.
  func exists(_ thread: ChannelSlot, for member: MemberOrdinal) -> Bool {
    self[thread].parent > hiddenThrough(thread.channel, member)
      || self[thread].messages.newest > hiddenThrough(thread, member)
  }

  /// The time at which members join who are added now, which is the shard's from here on. No message that is there is
  /// of that time or a later one, so that the times of joining and registering say which came first, in threads too.
  ///
  /// - Parameter slot: nil: the channel is new.
  package mutating func advance(clock: Timestamp, forMembersOf slot: ChannelSlot?) -> Timestamp {
    var time = advance(clock: clock)
    guard let slot else { return time }
    let newest = max(self[slot].messages.newestRegisteredAt, self[slot].threads.newestReplyAt)
    if newest >= time { time = advance(clock: Timestamp(milliseconds: newest.milliseconds + 1)) }
    return time
  }
}

extension ChannelState {
  /// How many messages were registered before a time.
  func repliesBefore(_ time: Timestamp) -> SequenceNumber {
    SequenceNumber(messages.first(registeredSince: time).rawValue - 1)
  }
}

extension ChannelState {
  /// Whether a viewer is told the counts, lists and acknowledgements of a message (R10).
  func showsCounts(
    of sequence: SequenceNumber,
    to viewer: ChannelViewer,
    _ options: ChannelTypeOptions
  ) -> Bool {
    if options.countsVisibleTo == .members || viewer.seesAll { return true }
    return viewer.user != .nobody && viewer.user == messages.sender(sequence)
  }
}

extension ShardState {
  /// Who asks, as a frame names them (Proto/frames.md, *viewer*): a user who is named has to be a member.
  ///
  /// - Parameter user: empty for none.
  package func viewer(_ user: RawSpan, isServer: Bool, in slot: ChannelSlot) throws(Refusal) -> ChannelViewer
  {
    if user.isEmpty { return ChannelViewer(row: nil, user: .nobody, isServer: isServer) }
    let row = try member(user, in: slot)
    let hiddenThrough = hiddenThrough(slot, row)
    return ChannelViewer(
      row: row,
      user: self[slot].rows.user(row),
      isServer: isServer,
      hiddenThrough: hiddenThrough,
      joinedAt: hiddenThrough == .zero
        ? .none : Timestamp(milliseconds: self[slot].rows.joinedAt[Int(row.rawValue)])
    )
  }

  /// A message's sender, who may be no member, asking about it; a server where the system sent it.
  ///
  /// - Parameter user: empty for the system.
  package func sender(_ user: RawSpan, in slot: ChannelSlot) -> ChannelViewer {
    if user.isEmpty { return .server }
    return ChannelViewer(
      row: self[slot].row(of: user),
      user: self[slot].users.find(user) ?? .nobody,
      isServer: false
    )
  }
}
