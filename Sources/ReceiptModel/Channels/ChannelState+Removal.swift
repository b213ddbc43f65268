/// Removal in a channel, and in the same way in each of its threads (R16).
extension ChannelState {
  /// Return whether a message is gone: deleted or truncated. False for a message that is not assigned yet.
  func isGone(_ sequence: SequenceNumber) -> Bool {
    sequence <= messages.truncatedThrough || sequence <= messages.newest && messages.flags(sequence).contains(.deleted)
  }

  // MARK: Assignment

  /// Delete a message and its acknowledgements. The message still marks a position and counts towards the day's limit
  /// of acknowledgement requests.
  mutating func delete(_ sequence: SequenceNumber, at time: Timestamp) {
    messages.delete(sequence, at: time)
    acknowledgementTable.clear(sequence)
  }

  /// Truncate the messages up to `sequence`. The head page says so and loads before the segments, so messages assigned
  /// later are gone too.
  mutating func truncate(through sequence: SequenceNumber, at time: Timestamp) {
    guard sequence > messages.truncatedThrough else { return }
    for message in acknowledgementTable.acknowledged(after: messages.truncatedThrough, through: sequence) {
      acknowledgementTable.clear(message)
    }
    messages.truncate(through: sequence, at: time)
  }

  /// Assign a message; it keeps the sender of its first assignment.
  mutating func assignMessage(_ sequence: SequenceNumber, _ record: MessageRecord) {
    guard sequence > messages.newest else {
      return messages.assign(sequence, record, sender: messages.sender(sequence))
    }
    let sender = users.intern(record.sender)
    users.retain(sender)
    messages.assign(sequence, record, sender: sender)
  }

  /// Assign a message's acknowledgement request. Its page of acknowledgements may have loaded before, and may predate
  /// the message's deletion.
  mutating func assignAcknowledgementRequest(of sequence: SequenceNumber, expiresAt: Timestamp) {
    acknowledgementTable.insert(sequence, expiresAt: expiresAt)
    if isGone(sequence) { acknowledgementTable.clear(sequence) }
  }

  /// Mark the row as left and clear its user. If it was the last reference to the user's id, the id leaves memory.
  mutating func eraseRow(_ row: MemberOrdinal, at time: Timestamp) {
    let user = rows.user(row)
    rows.erase(row, at: time)
    users.release(user)
  }

  /// Clear a message's sender, likewise.
  mutating func eraseSender(_ sequence: SequenceNumber) {
    let user = messages.sender(sequence)
    messages.eraseSender(sequence)
    users.release(user)
  }

  // MARK: Deciding

  /// Remove the messages before `message`, or all if it is empty. Their ids still mark positions and are never reused.
  package func decideTruncate(
    before message: RawSpan,
    at time: Timestamp,
    into effects: inout [Effect]
  ) throws(Refusal) {
    var through = messages.newest
    if !message.isEmpty {
      guard let first = messages.find(message) else { throw .messageNotFound }
      through = SequenceNumber(first.rawValue - 1)
    }
    guard through > messages.truncatedThrough else { return }
    effects.append(.channel(number, .truncated(through: through, at: time)))
  }

  /// Erase a user in the channel and all its threads: times and notes of their acknowledgements, the sender of their
  /// messages, and their rows; the channel's rows come last.
  ///
  /// - Returns: whether the erasure is complete.
  func decideErase(
    _ user: String,
    _ scan: inout EraseScan,
    limit: inout Int,
    at time: Timestamp,
    into effects: inout [Effect]
  ) -> Bool {
    var name = user
    var scanBudget = max(0, limit) * EraseScan.scansPerEffect
    defer { limit = scanBudget / EraseScan.scansPerEffect }
    let known = name.withUTF8 { users.find($0.span.bytes) }
    if let known {
      guard decideForget(known, &scan.own, &scanBudget, into: &effects),
        decideEraseMessages(of: known, &scan.own, &scan.held, &scanBudget, into: &effects)
      else { return false }
    }
    while scan.threads < threads.count {
      guard scanBudget > 0 else { return false }
      scanBudget -= 1
      if let known = name.withUTF8({ threads[scan.threads].users.find($0.span.bytes) }) {
        let start = effects.count
        let hadNone = scan.held == nil
        let isDone =
          threads[scan.threads].decideEraseMessages(of: known, &scan.inThread, &scan.held, &scanBudget, into: &effects)
          && threads[scan.threads].decideEraseRows(
            of: known,
            &scan.inThread,
            &scan.held,
            &scanBudget,
            at: time,
            into: &effects
          )
        let parent = threads[scan.threads].parent
        effects.wrapInThread(parent, from: start)
        if hadNone { scan.held = scan.held.map { .inThread(parent, $0) } }
        guard isDone else { return false }
      }
      scan.threads += 1
      scan.inThread = EraseScan.Part()
    }
    if let known {
      guard decideEraseRows(of: known, &scan.own, &scan.held, &scanBudget, at: time, into: &effects) else {
        return false
      }
    }
    if let held = scan.held { effects.append(.channel(number, held)) }
    return true
  }

  private func decideForget(
    _ user: UserNumber,
    _ part: inout EraseScan.Part,
    _ scanBudget: inout Int,
    into effects: inout [Effect]
  ) -> Bool {
    let rows = self.rows.rows(of: user)
    for index in acknowledgementTable.indices(after: part.acknowledgements, through: messages.newest) {
      guard scanBudget > 0 else { return false }
      let sequence = acknowledgementTable.sequence(at: index)
      for row in rows {
        scanBudget -= 1
        guard let record = acknowledgementTable.record(sequence, row), record.at != .none else { continue }
        effects.append(.channel(number, .acknowledgementForgotten(sequence, row)))
        scanBudget -= EraseScan.scansPerEffect
      }
      scanBudget -= 1
      part.acknowledgements = sequence
    }
    return true
  }

  private func decideEraseMessages(
    of user: UserNumber,
    _ part: inout EraseScan.Part,
    _ held: inout ChannelEffect?,
    _ scanBudget: inout Int,
    into effects: inout [Effect]
  ) -> Bool {
    while part.messages < messages.newest {
      guard scanBudget > 0 else { return false }
      let start = part.messages.rawValue
      let end = SequenceNumber(UInt32(min(Int(messages.newest.rawValue), Int(start) + scanBudget)))
      let found = messages.first(sentBy: user, after: part.messages, through: end)
      part.messages = found ?? end
      scanBudget -= Int(part.messages.rawValue - start)
      guard let found else { continue }
      hold(.senderErased(found), &held, into: &effects)
      scanBudget -= EraseScan.scansPerEffect
    }
    return true
  }

  private func decideEraseRows(
    of user: UserNumber,
    _ part: inout EraseScan.Part,
    _ held: inout ChannelEffect?,
    _ scanBudget: inout Int,
    at time: Timestamp,
    into effects: inout [Effect]
  ) -> Bool {
    for row in rows.rows(of: user) where row.rawValue >= part.rows {
      guard scanBudget > 0 else { return false }
      hold(.rowErased(row, at: time), &held, into: &effects)
      scanBudget -= EraseScan.scansPerEffect
      part.rows = row.rawValue + 1
    }
    return true
  }

  /// Hold back the first of the effects that would remove the last reference to the user: until the end they stay
  /// known.
  private func hold(_ effect: ChannelEffect, _ held: inout ChannelEffect?, into effects: inout [Effect]) {
    if held == nil { held = effect } else { effects.append(.channel(number, effect)) }
  }

  /// Return the pages of acknowledgements that an effect empties besides the page that it is addressed to.
  package func acknowledgementPagesEmptied(by effect: ChannelEffect) -> [SequenceNumber] {
    let truncated = messages.truncatedThrough
    guard let removed = effect.removedMessages, removed.through > truncated else { return [] }
    return acknowledgementTable.acknowledged(after: max(removed.after, truncated), through: removed.through)
  }
}

#if DEBUG
  extension ChannelState {
    /// Check that removals left nothing behind.
    func checkRemoved() -> String? {
      var references = [Int](repeating: 0, count: users.count + 1)
      for row in 0..<UInt32(rows.rowCount) { references[Int(rows.user(MemberOrdinal(row)).rawValue)] += 1 }
      for number in 0..<messages.newest.rawValue {
        references[Int(messages.sender(SequenceNumber(number + 1)).rawValue)] += 1
      }
      for number in 1..<max(1, UInt32(users.count) + 1) {
        let user = UserNumber(number)
        if users.referenceCount(user) != references[Int(number)] {
          return "user \(number): \(references[Int(number)]) references, which differs from the reference count"
        }
        if users.isErased(user) != (references[Int(number)] == 0) {
          return "user \(number): the id is kept without a reference, or missing with one"
        }
      }
      for number in 0..<messages.newest.rawValue {
        let sequence = SequenceNumber(number + 1)
        if sequence <= messages.truncatedThrough, !messages.flags(sequence).contains(.deleted) {
          return "message \(number + 1): truncated, but not deleted"
        }
        if isGone(sequence),
          !acknowledgementTable.acknowledged(after: SequenceNumber(number), through: sequence).isEmpty
        {
          return "message \(number + 1): deleted, but acknowledged"
        }
      }
      return nil
    }
  }
#endif

/// The progress of erasing a user in a channel and its threads (R16).
package struct EraseScan: Sendable {
  /// The progress in the channel, or in one of its threads.
  struct Part: Sendable {
    /// Acknowledgements and messages up to here are done, and rows before this one.
    var acknowledgements = SequenceNumber.zero
    var messages = SequenceNumber.zero
    var rows: UInt32 = 0
  }

  /// Number of messages, acknowledgement requests and threads examined that cost as much as one effect.
  static let scansPerEffect = 16

  var own = Part()
  /// Threads before this index are done; `inThread` is the progress in that one.
  var threads = 0
  var inThread = Part()
  /// The held-back effect that removes the last reference to the user.
  var held: ChannelEffect?

  package init() {}

  /// Whether the channel knew the user.
  package var isKnown: Bool { held != nil }
}
