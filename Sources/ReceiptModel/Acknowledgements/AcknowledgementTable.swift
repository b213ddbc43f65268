internal import BasicContainers

/// A channel's messages with acknowledgement requests, in rising order, and the acknowledgements of each (R9).
///
/// No counter says whether a request is done. Instead two bit sets are compared, the awaited rows
/// (``RowFlags/awaited``) and the acknowledged rows. The comparison takes 64 members at a time and stops at the first
/// one missing. A member who leaves, hides or becomes visible again therefore costs one bit, not a look at every
/// acknowledgement request of the channel. An acknowledgement costs one bit too, and nothing can drift from the rows.
package struct AcknowledgementTable: ~Copyable, Sendable {
  /// The messages' sequence numbers, rising.
  private var sequences: [UInt32] = []
  /// One for each sequence number.
  private var entries = UniqueArray<MessageAcknowledgements>()
  /// Heap bytes of the acknowledgement requests, without their slots.
  private var entryBytes = 0

  package init() {}

  /// Whether the channel has no message with an acknowledgement request.
  package var isEmpty: Bool { sequences.isEmpty }
  /// Number of messages with acknowledgement requests.
  package var count: Int { sequences.count }

  /// Size in bytes.
  var byteCount: Int {
    heapBytes(sequences) + entries.capacity * MemoryLayout<MessageAcknowledgements>.stride + entryBytes
  }

  // MARK: Looking up

  /// Return the indices of the messages with acknowledgement requests after `start` and up to `end`.
  func indices(after start: SequenceNumber, through end: SequenceNumber) -> Range<Int> {
    let first = index(after: start)
    return first..<max(first, index(after: end))
  }

  /// Return the message at an index.
  func sequence(at index: Int) -> SequenceNumber { SequenceNumber(sequences[index]) }

  /// Return when the message's acknowledgement request expires; none: never, or it has no acknowledgement request.
  package func expiresAt(_ sequence: SequenceNumber) -> Timestamp {
    index(of: sequence).map { entries[$0].expiresAt } ?? .none
  }

  /// Return whether the message was registered with an acknowledgement request.
  func isRequested(_ sequence: SequenceNumber) -> Bool {
    index(of: sequence).map { entries[$0].isRequested } ?? false
  }

  /// Return whether this row has acknowledged the message, visibly or hidden; also if the record was dropped.
  func hasAcknowledged(_ sequence: SequenceNumber, _ row: MemberOrdinal) -> Bool {
    index(of: sequence).map { entries[$0].hasAcknowledged(row) } ?? false
  }

  /// Call `body` with each row that has acknowledged the message, including rows that were left.
  func forEachAcknowledged(_ sequence: SequenceNumber, _ body: (MemberOrdinal) -> Void) {
    if let index = index(of: sequence) { entries[index].forEachAcknowledged(body) }
  }

  /// Return all of a message's acknowledgements, as stored in its page: first those whose record was dropped, then the
  /// others in order of acknowledgement.
  func acknowledgements(of sequence: SequenceNumber) -> [Acknowledgement] {
    index(of: sequence).map { entries[$0].acknowledgements } ?? []
  }

  /// Return the row's acknowledgement of the message, without time and note if its record was dropped; nil if it has
  /// not acknowledged the message.
  package func record(_ sequence: SequenceNumber, _ row: MemberOrdinal) -> Acknowledgement? {
    index(of: sequence).flatMap { entries[$0].record(row) }
  }

  /// Return the number of the message's kept records, either those made while hidden or the visible ones.
  func keptCount(_ sequence: SequenceNumber, isHidden: Bool) -> Int {
    guard let index = index(of: sequence) else { return 0 }
    return isHidden ? entries[index].hiddenCount : entries[index].visibleCount
  }

  /// Return the rows of the message's `wanted` oldest kept records (or all), either those made while hidden or the
  /// visible ones.
  func oldest(_ wanted: Int, of sequence: SequenceNumber, isHidden: Bool) -> [MemberOrdinal] {
    index(of: sequence).map { entries[$0].oldest(wanted, isHidden: isHidden) } ?? []
  }

  /// Return the time of the last visible acknowledgement of the message; unknown if a record was dropped, none if there
  /// is none.
  func lastShown(_ sequence: SequenceNumber) -> Timestamp {
    index(of: sequence).map { entries[$0].lastShown } ?? .none
  }

  /// Return the messages whose acknowledgement requests expire in a range of times, in rising order.
  func expiring(in times: ClosedRange<Timestamp>) -> [SequenceNumber] {
    sequences.indices.filter { isExpiring($0) && times.contains(entries[$0].expiresAt) }
      .map { sequence(at: $0) }
  }

  /// Return when the next acknowledgement request after a time expires; none: no acknowledgement request does.
  func nextExpiry(after time: Timestamp) -> Timestamp {
    var next = Timestamp.none
    for index in sequences.indices where isExpiring(index) && entries[index].expiresAt > time {
      next = next == .none ? entries[index].expiresAt : min(next, entries[index].expiresAt)
    }
    return next
  }

  private func isExpiring(_ index: Int) -> Bool {
    entries[index].isRequested && entries[index].expiresAt != .none
  }

  private func index(of sequence: SequenceNumber) -> Int? {
    let index = index(after: sequence) - 1
    return index >= 0 && sequences[index] == sequence.rawValue ? index : nil
  }

  /// Return the index of the first message after `sequence`.
  private func index(after sequence: SequenceNumber) -> Int {
    var low = 0
    var high = sequences.count
    while low < high {
      let middle = (low + high) / 2
      if sequences[middle] <= sequence.rawValue { low = middle + 1 } else { high = middle }
    }
    return low
  }

  // MARK: Completion

  /// The progress of an acknowledgement request among the awaited rows.
  struct Progress: Hashable {
    /// At least one row is awaited, and all awaited rows have acknowledged.
    var isDone: Bool
    /// Words of 64 rows that were examined.
    var wordsVisited: Int
  }

  /// Return whether all awaited rows have acknowledged the message.
  ///
  /// - Parameters:
  ///   - awaited: a bit for each awaited row.
  ///   - rowCount: number of rows, from the first on, that joined before the message.
  ///   - sender: the sender's row, which is not awaited.
  func progress(
    _ sequence: SequenceNumber,
    awaited: [UInt64],
    rowCount: Int,
    excluding sender: MemberOrdinal?
  ) -> Progress {
    guard let index = index(of: sequence), entries[index].count > 0 else {
      return Progress(isDone: false, wordsVisited: 0)
    }
    let senderRow = sender.map { Int($0.rawValue) } ?? -1
    var isAwaited = false
    let words = (rowCount + 63) / 64
    for word in 0..<words {
      var bits = awaited[word]
      if word == words - 1 { bits &= UInt64.max >> UInt64(words * 64 - rowCount) }
      if senderRow >> 6 == word { bits &= ~(1 << UInt64(senderRow & 63)) }
      let have = word < entries[index].acknowledged.count ? entries[index].acknowledged[word] : 0
      if bits & ~have != 0 { return Progress(isDone: false, wordsVisited: word + 1) }
      if bits != 0 { isAwaited = true }
    }
    return Progress(isDone: isAwaited, wordsVisited: words)
  }

  // MARK: Assignment

  mutating func insert(_ sequence: SequenceNumber, expiresAt: Timestamp) {
    let index = makeIndex(of: sequence)
    entries[index].isRequested = true
    entries[index].expiresAt = expiresAt
  }

  mutating func assign(_ sequence: SequenceNumber, _ acknowledgement: Acknowledgement) {
    let index = makeIndex(of: sequence)
    entryBytes -= entries[index].heapByteCount
    entries[index].assign(acknowledgement)
    entryBytes += entries[index].heapByteCount
  }

  mutating func forget(_ sequence: SequenceNumber, _ row: MemberOrdinal) {
    guard let index = index(of: sequence) else { return }
    entryBytes -= entries[index].heapByteCount
    entries[index].forget(row)
    entryBytes += entries[index].heapByteCount
  }

  /// Remove all acknowledgements of a message (R16); the request stays.
  mutating func clear(_ sequence: SequenceNumber) {
    guard let index = index(of: sequence), entries[index].count > 0 else { return }
    entryBytes -= entries[index].heapByteCount
    entries[index].clear()
    entryBytes += entries[index].heapByteCount
  }

  /// Return the acknowledged messages after `start` and up to `end`.
  func acknowledged(after start: SequenceNumber, through end: SequenceNumber) -> [SequenceNumber] {
    indices(after: start, through: end).filter { entries[$0].count > 0 }.map { sequence(at: $0) }
  }

  /// Return the index of a message, inserted if missing. Messages come in rising order, but a page of acknowledgements
  /// may load before its message.
  private mutating func makeIndex(of sequence: SequenceNumber) -> Int {
    if let known = index(of: sequence) { return known }
    let index = index(after: sequence)
    sequences.insert(sequence.rawValue, at: index)
    if index == entries.count {
      entries.append(MessageAcknowledgements())
    } else {
      entries.insert(MessageAcknowledgements(), at: index)
    }
    return index
  }
}

#if DEBUG
  extension AcknowledgementTable {
    /// Compare everything with a recount.
    func checkInvariants() -> String? {
      if sequences.count != entries.count { return "acknowledgements of different lengths" }
      var bytes = 0
      for index in sequences.indices {
        if index > 0, sequences[index - 1] >= sequences[index] { return "acknowledgements are not in order" }
        if let fault = entries[index].checkInvariants() { return "acknowledgements of \(sequences[index]): \(fault)" }
        bytes += entries[index].heapByteCount
      }
      return bytes == entryBytes ? nil : "acknowledgements occupy \(bytes) bytes, \(entryBytes) are counted"
    }
  }
#endif
