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

  /// A server on nobody's behalf.
  package static let server = ChannelViewer(row: nil, user: .nobody, isServer: true)

  /// - Parameter channelRow: nil: the same as `row`.
  init(row: MemberOrdinal?, user: UserNumber, isServer: Bool, channelRow: MemberOrdinal? = nil) {
    self.row = row
    self.channelRow = channelRow ?? row
    self.user = user
    self.isServer = isServer
  }

  /// A server that asks on nobody's behalf sees what `counts_visible_to` keeps from members.
  var seesAll: Bool { isServer && user == .nobody }
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
    return ChannelViewer(row: row, user: self[slot].rows.user(row), isServer: isServer)
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
