/// The user or server that queries a channel; determines what is visible (R7, R10).
package struct ChannelViewer: Hashable, Sendable {
  /// The viewer's own row; nil: a server without a user, or a non-member.
  package let row: MemberOrdinal?
  /// Rows include members' own details.
  package let isServer: Bool
  /// The querying user; `nobody` for a server without a user.
  let user: UserNumber
  /// The member's row in the channel, even if the viewer is for one of its threads (R15).
  let channelRow: MemberOrdinal?
  /// Messages up to here do not exist for the viewer, who joined after them under hidden history (R6); zero: all exist.
  package let hiddenThrough: SequenceNumber
  /// When the member joined the channel; set only if messages are hidden from them.
  let joinedAt: Timestamp

  /// A server without a user.
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

  /// Whether the viewer sees what `counts_visible_to` hides from members: a server without a user.
  var isUnrestricted: Bool { isServer && user == .nobody }

  /// Return whether a message of the queried room exists for the viewer (R6).
  func sees(_ sequence: SequenceNumber) -> Bool { sequence > hiddenThrough }

  /// Whether rows include own details besides the viewer's own row. Other members' unread counts and epochs would
  /// reveal history from before a join under hidden history (R6).
  var seesOwnDetails: Bool { isServer && hiddenThrough == .zero }
}

/// The messages that do not exist for a member who joined under hidden history (R6). Every message named in a request
/// or a result is checked here.
extension ShardState {
  /// Return the number of a room's messages from before a member joined, if hidden history hides these from them;
  /// otherwise zero.
  ///
  /// - Parameters:
  ///   - slot: the channel, or one of its threads. A thread's replies are hidden if they were registered before the
  ///     member joined the channel.
  ///   - member: the member's row in the channel.
  @inline(__always)
  package func hiddenThrough(_ slot: ChannelSlot, _ member: MemberOrdinal) -> SequenceNumber {
    guard self[slot.channel].rows.hidesHistory(member) else { return .zero }
    guard slot.isThread else { return self[slot].rows.joined(member) }
    return self[slot].repliesBefore(self[slot.channel].rows.joinedAt(member))
  }

  /// Return a message by its id, unless it does not exist for the viewer.
  ///
  /// - Parameter hiddenThrough: from ``hiddenThrough(_:_:)``, or the viewer's.
  @inline(__always)
  package func find(_ message: RawSpan, in slot: ChannelSlot, hiddenThrough: SequenceNumber) -> SequenceNumber? {
    guard let sequence = self[slot].messages.find(message), sequence > hiddenThrough else { return nil }
    return sequence
  }

  /// Return whether a thread exists for a member. If its parent precedes their join, it exists from its first reply
  /// after the join on.
  func exists(_ thread: ChannelSlot, for member: MemberOrdinal) -> Bool {
    self[thread].parent > hiddenThrough(thread.channel, member)
      || self[thread].messages.newest > hiddenThrough(thread, member)
  }

  /// Advance the shard's time to the join time of members added now. The join time is later than every existing
  /// message, so that comparing times of joins and registrations gives their order, in threads too.
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
  /// Return the number of messages registered before a time.
  func repliesBefore(_ time: Timestamp) -> SequenceNumber {
    SequenceNumber(messages.first(registeredSince: time).rawValue - 1)
  }
}

extension ChannelState {
  /// Return whether a viewer may see the counts, lists and acknowledgements of a message (R10).
  func showsCounts(of sequence: SequenceNumber, to viewer: ChannelViewer, _ options: ChannelTypeOptions) -> Bool {
    if options.countsVisibleTo == .members || viewer.isUnrestricted { return true }
    return viewer.user != .nobody && viewer.user == messages.sender(sequence)
  }
}

extension ShardState {
  /// Return the viewer that a frame names (Proto/frames.md, *viewer*); a named user must be a member.
  ///
  /// - Parameter user: empty for none.
  package func viewer(_ user: RawSpan, isServer: Bool, in slot: ChannelSlot) throws(Refusal) -> ChannelViewer {
    if user.isEmpty { return ChannelViewer(row: nil, user: .nobody, isServer: isServer) }
    let row = try member(user, in: slot)
    let hiddenThrough = hiddenThrough(slot, row)
    return ChannelViewer(
      row: row,
      user: self[slot].rows.user(row),
      isServer: isServer,
      hiddenThrough: hiddenThrough,
      joinedAt: hiddenThrough == .zero ? .none : self[slot].rows.joinedAt(row)
    )
  }

  /// Return the viewer for a message's sender, who may be no member; a server if the system sent the message.
  ///
  /// - Parameter user: empty for the system.
  package func sender(_ user: RawSpan, in slot: ChannelSlot) -> ChannelViewer {
    if user.isEmpty { return .server }
    return ChannelViewer(row: self[slot].row(of: user), user: self[slot].users.find(user) ?? .nobody, isServer: false)
  }
}
