/// Whom a message mentions, as it was when it was registered (R14): by rows, so that nothing of a user's id is kept
/// with it.
package enum MessageMentions: Hashable, Sendable {
  case nobody
  /// Every member of the channel who had joined by then, or whoever took part in the thread.
  case all
  /// Rising.
  case rows([UInt32])
}

/// Which messages mention which rows: the messages of one channel, or of one thread, that count as unread. Silent and
/// deleted messages are not among them.
struct MentionTable: ~Copyable, Sendable {
  /// By row number: the sequence numbers of the messages that mention it, in rising order.
  private var byRow: [UInt32: [UInt32]] = [:]
  /// The sequence numbers of the messages that mention all, in rising order.
  private var toAll: [UInt32] = []
  /// By sequence number: the rows that the message mentions, in rising order.
  private var rowsOf: [UInt32: [UInt32]] = [:]
  /// Elements of the arrays in ``byRow`` and ``rowsOf`` together.
  private var entryCount = 0

  /// Whether no message mentions anybody.
  var isEmpty: Bool { rowsOf.isEmpty && toAll.isEmpty }

  /// What it occupies, in bytes.
  var byteCount: Int {
    // A dictionary's entry is its key, an array with its head, and their share of empty room.
    heapBytes(toAll) + (byRow.capacity + rowsOf.capacity) * 64 + entryCount * MemoryLayout<UInt32>.stride
  }

  /// Whom a message mentions; nobody where it was deleted, or counts for nobody.
  func mentions(_ sequence: SequenceNumber) -> MessageMentions {
    if let rows = rowsOf[sequence.rawValue] { return .rows(rows) }
    let place = toAll.countThrough(sequence.rawValue - 1)
    return place < toAll.count && toAll[place] == sequence.rawValue ? .all : .nobody
  }

  /// Messages with a number above `floor` that mention a row by itself.
  func count(of row: MemberOrdinal, after floor: SequenceNumber) -> UInt32 {
    guard let sequences = byRow[row.rawValue] else { return 0 }
    return UInt32(sequences.count - sequences.countThrough(floor.rawValue))
  }

  /// Messages with a number above `floor` that mention all.
  func countToAll(after floor: SequenceNumber) -> UInt32 {
    UInt32(toAll.count - toAll.countThrough(floor.rawValue))
  }

  /// The same of those that pass a test.
  func countToAll(after floor: SequenceNumber, where passes: (SequenceNumber) -> Bool) -> UInt32 {
    UInt32(toAll[toAll.countThrough(floor.rawValue)...].count { passes(SequenceNumber($0)) })
  }

  // MARK: Assignment

  /// A message that counts as unread is assigned; one that is known stays as it is.
  mutating func insert(_ sequence: SequenceNumber, _ mentions: MessageMentions) {
    guard self.mentions(sequence) == .nobody else { return }
    switch mentions {
    case .nobody: break
    case .all: toAll.insert(sequence.rawValue, at: toAll.countThrough(sequence.rawValue))
    case .rows(let rows):
      rowsOf[sequence.rawValue] = rows
      for row in rows {
        let place = byRow[row]?.countThrough(sequence.rawValue) ?? 0
        byRow[row, default: []].insert(sequence.rawValue, at: place)
      }
      entryCount += 2 * rows.count
    }
  }

  /// A message is gone.
  mutating func remove(_ sequence: SequenceNumber) {
    switch mentions(sequence) {
    case .nobody: break
    case .all: toAll.remove(at: toAll.countThrough(sequence.rawValue) - 1)
    case .rows(let rows):
      rowsOf[sequence.rawValue] = nil
      for row in rows {
        guard let place = byRow[row]?.countThrough(sequence.rawValue) else { continue }
        byRow[row]?.remove(at: place - 1)
        if byRow[row]?.isEmpty == true { byRow[row] = nil }
      }
      entryCount -= 2 * rows.count
    }
  }

  /// The messages up to here are gone.
  mutating func remove(through sequence: SequenceNumber) {
    guard !isEmpty else { return }
    toAll.removeFirst(toAll.countThrough(sequence.rawValue))
    let gone = rowsOf.keys.filter { $0 <= sequence.rawValue }
    for number in gone { remove(SequenceNumber(number)) }
  }
}

extension [UInt32] {
  /// In a rising array: how many are at or below a number.
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
