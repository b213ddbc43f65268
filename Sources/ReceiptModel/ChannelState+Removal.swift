/// What removal does to a channel, and in the same way to each of its threads (R16).
extension ChannelState {
  /// Whether a message is there no more: it was deleted, or stood before where the channel was truncated. One that is not assigned yet is not.
  func isGone(_ sequence: SequenceNumber) -> Bool {
    sequence <= messages.truncatedThrough
      || sequence <= messages.newest && messages.flags(sequence).contains(.deleted)
  }

  // MARK: Assignment

  /// A message is gone, and with it who has acknowledged it. It still marks a position, and counts for the day's limit of receipts.
  mutating func delete(_ sequence: SequenceNumber) {
    messages.delete(sequence)
    receipts.clear(sequence)
  }

  /// The messages up to here are gone. The head page says so, and comes before the segments: what is assigned later is gone too.
  mutating func truncate(through sequence: SequenceNumber, at time: Timestamp) {
    guard sequence > messages.truncatedThrough else { return }
    for message in receipts.acknowledged(after: messages.truncatedThrough, through: sequence) {
      receipts.clear(message)
    }
    messages.truncate(through: sequence)
    truncatedAt = time
  }

  /// A message keeps the sender that it was assigned with first.
  mutating func assignMessage(_ sequence: SequenceNumber, _ record: MessageRecord) {
    guard sequence > messages.newest else {
      return messages.assign(sequence, record, sender: messages.sender(sequence))
    }
    let sender = users.intern(record.sender)
    users.retain(sender)
    messages.assign(sequence, record, sender: sender)
  }

  /// A message that was registered with a receipt is assigned. Its page of acknowledgements may have been read before, and be from before it was deleted.
  mutating func assignReceipt(of sequence: SequenceNumber, expiresAt: Timestamp) {
    receipts.insert(sequence, expiresAt: expiresAt)
    if isGone(sequence) { receipts.clear(sequence) }
  }

  /// The row is left, and nobody's. Where it is the last that bears its user's id, that leaves memory.
  mutating func eraseRow(_ row: MemberOrdinal) {
    let user = rows.user(row)
    rows.erase(row)
    users.release(user)
  }

  /// The message is nobody's, likewise.
  mutating func eraseSender(_ sequence: SequenceNumber) {
    let user = messages.sender(sequence)
    messages.eraseSender(sequence)
    users.release(user)
  }

  // MARK: Deciding

  /// Erases a user here and in all threads: the rows they have had, the messages they have sent, times and notes of what they have acknowledged. One pass over
  /// rows, messages and receipts.
  ///
  /// - Returns: whether they were known.
  func decideErase(_ user: String, at time: Timestamp, into effects: inout [Effect]) -> Bool {
    var isKnown = decideEraseHere(user, at: time, into: &effects)
    for place in 0..<threads.count {
      let start = effects.count
      guard threads[place].decideEraseHere(user, at: time, into: &effects) else { continue }
      effects.putInThread(threads[place].parent, from: start)
      isKnown = true
    }
    return isKnown
  }

  private func decideEraseHere(_ user: String, at time: Timestamp, into effects: inout [Effect]) -> Bool {
    var user = user
    guard let known = user.withUTF8({ users.find($0.span.bytes) }) else { return false }
    let rows = self.rows.rows(of: known)
    for place in receipts.places(after: .zero, through: messages.newest) {
      let sequence = receipts.sequence(at: place)
      for row in rows {
        guard let record = receipts.record(sequence, row), record.at != .none else { continue }
        effects.append(.acknowledgementForgotten(number, sequence, row))
      }
    }
    for sequence in messages.sequences(sentBy: known) { effects.append(.senderErased(number, sequence)) }
    for row in rows { effects.append(.rowErased(number, row, at: time)) }
    return true
  }

  /// Everybody whose id is here or in a thread, each once, with the last row they have had here; nil: they have only sent messages.
  func forEachUser(_ body: (String, MemberOrdinal?) -> Void) {
    forEachUserHere(body)
    var further: Set<String> = []
    for place in 0..<threads.count {
      threads[place].forEachUserHere { user, _ in
        var name = user
        let isKnown = name.withUTF8 { users.find($0.span.bytes) } != nil
        if !isKnown, further.insert(user).inserted { body(user, nil) }
      }
    }
  }

  private func forEachUserHere(_ body: (String, MemberOrdinal?) -> Void) {
    var lastRow = [UInt32](repeating: 0, count: users.count + 1)
    for position in 0..<rows.rowCount { lastRow[Int(rows.users[position])] = UInt32(position) + 1 }
    for number in 1..<max(1, UInt32(users.count) + 1) where !users.isErased(UserNumber(number)) {
      let row = lastRow[Int(number)]
      body(users.text(UserNumber(number)), row == 0 ? nil : MemberOrdinal(row - 1))
    }
  }

  /// The receipts' pages that an effect empties beside the page that it is addressed to.
  package func receiptsEmptied(by effect: Effect) -> [SequenceNumber] {
    switch effect {
    case .messageDeleted(_, let sequence, _):
      receipts.acknowledged(after: SequenceNumber(sequence.rawValue - 1), through: sequence)
    case .truncated(_, let sequence, _):
      receipts.acknowledged(after: messages.truncatedThrough, through: sequence)
    default: []
    }
  }
}

extension ReadVector {
  /// All rows that a user has had, rising: one pass.
  func rows(of user: UserNumber) -> [MemberOrdinal] {
    users.indices.filter { users[$0] == user.rawValue }.map { MemberOrdinal(UInt32($0)) }
  }
}

#if DEBUG
  extension ChannelState {
    /// What was removed has left nothing behind.
    func checkRemoved() -> String? {
      var references = [Int](repeating: 0, count: users.count + 1)
      for user in rows.users { references[Int(user)] += 1 }
      for number in 0..<messages.newest.rawValue {
        references[Int(messages.sender(SequenceNumber(number + 1)).rawValue)] += 1
      }
      for number in 1..<max(1, UInt32(users.count) + 1) {
        let user = UserNumber(number)
        if users.referenceCount(user) != references[Int(number)] {
          return "user \(number): referred to \(references[Int(number)]) times, not as often as counted"
        }
        if users.isErased(user) != (references[Int(number)] == 0) {
          return "user \(number): the id stays without a reference, or is gone with one"
        }
      }
      for number in 0..<messages.newest.rawValue {
        let sequence = SequenceNumber(number + 1)
        if sequence <= messages.truncatedThrough, !messages.flags(sequence).contains(.deleted) {
          return "message \(number + 1): truncated, and not deleted"
        }
        if isGone(sequence), !receipts.acknowledged(after: SequenceNumber(number), through: sequence).isEmpty
        {
          return "message \(number + 1): gone, and acknowledged"
        }
      }
      return nil
    }
  }
#endif
