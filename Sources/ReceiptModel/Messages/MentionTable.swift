/// The mentions of a message as of its registration (R14). Stored as rows, so that no user id is kept with the message.
package enum MessageMentions: Hashable, Sendable {
  case nobody
  /// Every member of the channel who had joined by then, or everyone who took part in the thread.
  case all
  /// Row numbers, rising.
  case rows([UInt32])
}

/// The mentions in one channel or one thread. Covers only messages that count as unread, so no silent or deleted ones.
struct MentionTable: ~Copyable, Sendable {
  /// By row number: the sequence numbers of the messages that mention the row, rising.
  private var byRow: [UInt32: [UInt32]] = [:]
  /// The sequence numbers of the messages that mention all, rising.
  private var toAll: [UInt32] = []
  /// By sequence number: the rows that the message mentions, rising.
  private var rowsOf: [UInt32: [UInt32]] = [:]
  /// By sequence number: the hashes of the users that an imported message mentions and that have no row yet, rising.
  private var pendingOf: [UInt32: [UInt64]] = [:]
  /// By hash: the sequence numbers of those messages, rising.
  private var byPending: [UInt64: [UInt32]] = [:]
  /// Total number of elements in the arrays of ``byRow`` and ``rowsOf``.
  private var entryCount = 0

  /// Whether no message mentions anybody.
  var isEmpty: Bool { rowsOf.isEmpty && toAll.isEmpty }

  /// Size in bytes.
  var byteCount: Int {
    // A dictionary entry is its key, an array with its header, and their share of empty slots.
    heapBytes(toAll) + (byRow.capacity + rowsOf.capacity) * 64 + entryCount * MemoryLayout<UInt32>.stride
      + (pendingOf.capacity + byPending.capacity) * 80
  }

  /// Return the messages that mention a user who has no row yet, rising.
  func pending(_ hash: UInt64) -> [SequenceNumber] {
    byPending.isEmpty ? [] : byPending[hash, default: []].map { SequenceNumber($0) }
  }

  /// Return the hashes of the users that a message mentions and that have no row yet, rising.
  func pendingUsers(of sequence: SequenceNumber) -> [UInt64] {
    pendingOf.isEmpty ? [] : pendingOf[sequence.rawValue, default: []]
  }

  /// Return the mentions of a message; `nobody` if it was deleted or is not countable.
  func mentions(_ sequence: SequenceNumber) -> MessageMentions {
    if let rows = rowsOf[sequence.rawValue] { return .rows(rows) }
    let index = toAll.countThrough(sequence.rawValue - 1)
    return index < toAll.count && toAll[index] == sequence.rawValue ? .all : .nobody
  }

  /// Return the number of messages above `floor` that mention a row individually.
  func count(of row: MemberOrdinal, after floor: SequenceNumber) -> UInt32 {
    guard let sequences = byRow[row.rawValue] else { return 0 }
    return UInt32(sequences.count - sequences.countThrough(floor.rawValue))
  }

  /// Return the number of messages above `floor` that mention all.
  func countToAll(after floor: SequenceNumber) -> UInt32 {
    UInt32(toAll.count - toAll.countThrough(floor.rawValue))
  }

  /// Return the number of messages above `floor` that mention all and satisfy a predicate.
  func countToAll(after floor: SequenceNumber, where passes: (SequenceNumber) -> Bool) -> UInt32 {
    UInt32(toAll[toAll.countThrough(floor.rawValue)...].count { passes(SequenceNumber($0)) })
  }

  // MARK: Assignment

  /// Add the mentions of a countable message; do nothing if they are known.
  mutating func insert(_ sequence: SequenceNumber, _ mentions: MessageMentions) {
    guard self.mentions(sequence) == .nobody else { return }
    switch mentions {
    case .nobody: break
    case .all: toAll.insert(sequence.rawValue, at: toAll.countThrough(sequence.rawValue))
    case .rows(let rows):
      rowsOf[sequence.rawValue] = rows
      for row in rows {
        let index = byRow[row]?.countThrough(sequence.rawValue) ?? 0
        byRow[row, default: []].insert(sequence.rawValue, at: index)
      }
      entryCount += 2 * rows.count
    }
  }

  /// Assign the mentions by name of a countable message.
  mutating func assign(_ sequence: SequenceNumber, rows: [UInt32], pending: [UInt64]) {
    if rows.isEmpty { removePending(sequence) } else { remove(sequence) }
    if !rows.isEmpty { insert(sequence, .rows(rows)) }
    guard !pending.isEmpty else { return }
    pendingOf[sequence.rawValue] = pending
    for hash in pending {
      let index = byPending[hash]?.countThrough(sequence.rawValue) ?? 0
      byPending[hash, default: []].insert(sequence.rawValue, at: index)
    }
  }

  private mutating func removePending(_ sequence: SequenceNumber) {
    guard !pendingOf.isEmpty, let pending = pendingOf.removeValue(forKey: sequence.rawValue) else { return }
    for hash in pending {
      byPending[hash]?.removeAll { $0 == sequence.rawValue }
      if byPending[hash]?.isEmpty == true { byPending[hash] = nil }
    }
  }

  /// Remove a message.
  mutating func remove(_ sequence: SequenceNumber) {
    removePending(sequence)
    switch mentions(sequence) {
    case .nobody: break
    case .all: toAll.remove(at: toAll.countThrough(sequence.rawValue) - 1)
    case .rows(let rows):
      rowsOf[sequence.rawValue] = nil
      for row in rows {
        guard let index = byRow[row]?.countThrough(sequence.rawValue) else { continue }
        byRow[row]?.remove(at: index - 1)
        if byRow[row]?.isEmpty == true { byRow[row] = nil }
      }
      entryCount -= 2 * rows.count
    }
  }

  /// Remove the messages up to `sequence`.
  mutating func remove(through sequence: SequenceNumber) {
    guard !isEmpty || !pendingOf.isEmpty else { return }
    toAll.removeFirst(toAll.countThrough(sequence.rawValue))
    let gone = rowsOf.keys.filter { $0 <= sequence.rawValue } + pendingOf.keys.filter { $0 <= sequence.rawValue }
    for number in gone { remove(SequenceNumber(number)) }
  }
}

extension [UInt32] {
  /// Return, in a rising array, the number of elements at or below `number`.
  fileprivate func countThrough(_ number: UInt32) -> Int {
    var low = 0
    var high = count
    while low < high {
      let middle = (low + high) / 2
      if self[middle] <= number { low = middle + 1 } else { high = middle }
    }
    return low
  }
}
