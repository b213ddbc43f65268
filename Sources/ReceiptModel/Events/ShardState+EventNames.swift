/// Look-ups for encoding events: names and marks of users and messages, in the channel or thread of the slot.
extension ShardState {
  /// Call `body` with a user's id, as bytes; empty for nobody.
  package func withUser<Result>(_ slot: ChannelSlot, _ user: UserNumber, _ body: (RawSpan) -> Result)
    -> Result
  {
    body(self[slot].users.id(user))
  }

  /// Call `body` with the id of a message's sender, as bytes; empty for nobody.
  package func withSender<Result>(
    _ slot: ChannelSlot,
    of sequence: SequenceNumber,
    _ body: (RawSpan) -> Result
  ) -> Result {
    body(self[slot].users.id(self[slot].messages.sender(sequence)))
  }

  /// Return a member's role; empty: none.
  package func role(_ slot: ChannelSlot, _ row: MemberOrdinal) -> String {
    self[slot].rows.role(row) ?? ""
  }

  /// Return a member's position at the join (R6): the newest message of that time, or zero under hidden history.
  package func positionOfJoining(_ slot: ChannelSlot, _ row: MemberOrdinal) -> SequenceNumber {
    self[slot].positionOfJoining(row)
  }

  /// Return the newest message at a member's join.
  package func joined(_ slot: ChannelSlot, _ row: MemberOrdinal) -> SequenceNumber {
    self[slot].rows.joined(row)
  }

  /// Return a message's flags.
  package func flags(_ slot: ChannelSlot, of sequence: SequenceNumber) -> MessageRecord.Flags {
    self[slot].messages.flags(sequence)
  }

  /// Return the newest message; zero: no message.
  package func newest(_ slot: ChannelSlot) -> SequenceNumber { self[slot].messages.newest }

  /// Return when a message was created, for display (R20).
  package func createdAt(_ slot: ChannelSlot, of sequence: SequenceNumber) -> Timestamp {
    self[slot].messages.createdAt(sequence)
  }

  /// Return the note of a row's acknowledgement; empty: no note, or no longer kept (R9).
  package func note(_ slot: ChannelSlot, of sequence: SequenceNumber, by row: MemberOrdinal) -> String {
    self[slot].acknowledgementTable.record(sequence, row)?.note ?? ""
  }

  /// Return when a row acknowledged a message; none: not acknowledged, or the time is not kept (R9).
  package func acknowledgedAt(_ slot: ChannelSlot, _ sequence: SequenceNumber, by row: MemberOrdinal)
    -> Timestamp
  {
    self[slot].acknowledgementTable.record(sequence, row)?.at ?? .none
  }

  /// Return the thread under a message; the channel itself for zero. Nil if there is no such thread. Creating an event
  /// of a row or a status has applied the users' settings to its thread; this does not.
  package func thread(under parent: SequenceNumber, in slot: ChannelSlot) -> ChannelSlot? {
    if parent == .zero { return slot }
    return self[slot].threads.index(of: parent).map { slot.thread($0) }
  }
}
