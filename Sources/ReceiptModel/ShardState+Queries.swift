/// The queries. They change nothing; their answers are numbers, whose names are looked up when they are written out.
extension ShardState {
  /// A member's own row (R2, R4, R18).
  package func ownRow(_ slot: ChannelSlot, _ row: MemberOrdinal) -> RowAnswer { self[slot].ownRow(row) }

  /// A page of a channel's read state (R12).
  ///
  /// - Parameters:
  ///   - viewer: whose own row leads the first page; they have to be a member. Empty for none.
  ///   - isServer: every row carries the member's own details.
  ///   - limit: rows in the page, 1 to 100.
  ///   - cursor: only rows below this number.
  package func readState(
    _ slot: ChannelSlot,
    viewer: RawSpan,
    isServer: Bool,
    limit: Int,
    cursor: UInt32?
  ) throws(Refusal) -> (rows: [RowAnswer], next: UInt32?) {
    let own = viewer.isEmpty ? nil : try member(viewer, in: slot)
    return self[slot].readState(
      viewer: own,
      isServer: isServer,
      limit: limit,
      cursor: cursor,
      options: options(slot)
    )
  }

  /// One message's status and counts (R1, R10).
  package func status(_ slot: ChannelSlot, message: RawSpan) throws(Refusal) -> StatusAnswer {
    guard let sequence = self[slot].messages.find(message) else { throw .messageNotFound }
    guard !self[slot].messages.flags(sequence).contains(.deleted) else { throw .messageDeleted }
    return self[slot].status(sequence, options: options(slot))
  }

  /// The status of a message that is there and not deleted.
  package func status(_ slot: ChannelSlot, _ sequence: SequenceNumber) -> StatusAnswer {
    self[slot].status(sequence, options: options(slot))
  }
}
