internal import BasicContainers

/// A channel's messages with receipts, in rising order, and the acknowledgements of each (R9).
///
/// No counter says whether a receipt is done. Instead two bit sets are compared, the awaited rows
/// (``RowFlags/awaited``) and the acknowledged rows. The comparison takes 64 members at a time and stops at the first
/// one missing. A member who leaves, hides or becomes visible again therefore costs one bit, not a look at every
/// receipt of the channel. An acknowledgement costs one bit too, and nothing can drift from the rows.
package struct ReceiptTable: ~Copyable, Sendable {
  /// The messages' sequence numbers, rising.
  private var sequences: [UInt32] = []
  /// One for each sequence number.
  private var receipts = UniqueArray<Receipt>()
  /// Heap bytes of the receipts, without their slots.
  private var receiptBytes = 0

  package init() {}

  /// Whether the channel has no message with a receipt.
  package var isEmpty: Bool { sequences.isEmpty }
  /// Number of messages with receipts.
  package var count: Int { sequences.count }

  /// Size in bytes.
  var byteCount: Int {
    heapBytes(sequences) + receipts.capacity * MemoryLayout<Receipt>.stride + receiptBytes
  }

  // MARK: Looking up

  /// The indices of the messages with receipts after `start` and up to `end`.
  func indices(after start: SequenceNumber, through end: SequenceNumber) -> Range<Int> {
    let first = index(after: start)
    return first..<max(first, index(after: end))
  }

  /// The message at an index.
  func sequence(at index: Int) -> SequenceNumber { SequenceNumber(sequences[index]) }

  /// When the message's receipt expires; none: never, or it has no receipt.
  package func expiresAt(_ sequence: SequenceNumber) -> Timestamp {
    index(of: sequence).map { receipts[$0].expiresAt } ?? .none
  }

  /// Whether the message was registered with a receipt.
  func isRequested(_ sequence: SequenceNumber) -> Bool {
    index(of: sequence).map { receipts[$0].isRequested } ?? false
  }

  /// Whether this row has acknowledged the message, visibly or hidden; also if the record was dropped.
  func hasAcknowledged(_ sequence: SequenceNumber, _ row: MemberOrdinal) -> Bool {
    index(of: sequence).map { receipts[$0].hasAcknowledged(row) } ?? false
  }

  /// Call `body` with each row that has acknowledged the message, including rows that were left.
  func forEachAcknowledged(_ sequence: SequenceNumber, _ body: (MemberOrdinal) -> Void) {
    if let index = index(of: sequence) { receipts[index].forEachAcknowledged(body) }
  }

  /// All of a message's acknowledgements, as stored in its page: first those whose record was dropped, then the others
  /// in order of acknowledgement.
  func acknowledgements(of sequence: SequenceNumber) -> [Acknowledgement] {
    index(of: sequence).map { receipts[$0].acknowledgements } ?? []
  }

  /// The row's acknowledgement of the message, without time and note if its record was dropped; nil if it has not
  /// acknowledged the message.
  func record(_ sequence: SequenceNumber, _ row: MemberOrdinal) -> Acknowledgement? {
    index(of: sequence).flatMap { receipts[$0].record(row) }
  }

  /// Number of the message's kept records, either those made while hidden or the visible ones.
  func keptCount(_ sequence: SequenceNumber, isHidden: Bool) -> Int {
    guard let index = index(of: sequence) else { return 0 }
    return isHidden ? receipts[index].hiddenCount : receipts[index].visibleCount
  }

  /// The rows of the message's `wanted` oldest kept records (or all), either those made while hidden or the visible
  /// ones.
  func oldest(_ wanted: Int, of sequence: SequenceNumber, isHidden: Bool) -> [MemberOrdinal] {
    index(of: sequence).map { receipts[$0].oldest(wanted, isHidden: isHidden) } ?? []
  }

  /// The time of the last visible acknowledgement of the message; unknown if a record was dropped, none if there is
  /// none.
  func lastShown(_ sequence: SequenceNumber) -> Timestamp {
    index(of: sequence).map { receipts[$0].lastShown } ?? .none
  }

  /// The messages whose receipts expire in a range of times, in rising order.
  func expiring(in times: ClosedRange<Timestamp>) -> [SequenceNumber] {
    sequences.indices.filter { isExpiring($0) && times.contains(receipts[$0].expiresAt) }
      .map { sequence(at: $0) }
  }

  /// When the next receipt after a time expires; none: no receipt does.
  func nextExpiry(after time: Timestamp) -> Timestamp {
    var next = Timestamp.none
    for index in sequences.indices where isExpiring(index) && receipts[index].expiresAt > time {
      next = next == .none ? receipts[index].expiresAt : min(next, receipts[index].expiresAt)
    }
    return next
  }

  private func isExpiring(_ index: Int) -> Bool {
    receipts[index].isRequested && receipts[index].expiresAt != .none
  }

  private func index(of sequence: SequenceNumber) -> Int? {
    let index = index(after: sequence) - 1
    return index >= 0 && sequences[index] == sequence.rawValue ? index : nil
  }

  /// The index of the first message after `sequence`.
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

  /// The progress of a receipt among the awaited rows.
  struct Progress: Hashable {
    /// At least one row is awaited, and all awaited rows have acknowledged.
    var isDone: Bool
    /// Words of 64 rows that were examined.
    var wordsVisited: Int
  }

  /// Whether all awaited rows have acknowledged the message.
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
    guard let index = index(of: sequence), receipts[index].count > 0 else {
      return Progress(isDone: false, wordsVisited: 0)
    }
    let senderRow = sender.map { Int($0.rawValue) } ?? -1
    var isAwaited = false
    let words = (rowCount + 63) / 64
    for word in 0..<words {
      var bits = awaited[word]
      if word == words - 1 { bits &= UInt64.max >> UInt64(words * 64 - rowCount) }
      if senderRow >> 6 == word { bits &= ~(1 << UInt64(senderRow & 63)) }
      let have = word < receipts[index].acknowledged.count ? receipts[index].acknowledged[word] : 0
      if bits & ~have != 0 { return Progress(isDone: false, wordsVisited: word + 1) }
      if bits != 0 { isAwaited = true }
    }
    return Progress(isDone: isAwaited, wordsVisited: words)
  }

  // MARK: Assignment

  mutating func insert(_ sequence: SequenceNumber, expiresAt: Timestamp) {
    let index = makeIndex(of: sequence)
    receipts[index].isRequested = true
    receipts[index].expiresAt = expiresAt
  }

  mutating func assign(_ sequence: SequenceNumber, _ acknowledgement: Acknowledgement) {
    let index = makeIndex(of: sequence)
    receiptBytes -= receipts[index].heapByteCount
    receipts[index].assign(acknowledgement)
    receiptBytes += receipts[index].heapByteCount
  }

  mutating func forget(_ sequence: SequenceNumber, _ row: MemberOrdinal) {
    guard let index = index(of: sequence) else { return }
    receiptBytes -= receipts[index].heapByteCount
    receipts[index].forget(row)
    receiptBytes += receipts[index].heapByteCount
  }

  /// Remove all acknowledgements of a message (R16); the receipt request stays.
  mutating func clear(_ sequence: SequenceNumber) {
    guard let index = index(of: sequence), receipts[index].count > 0 else { return }
    receiptBytes -= receipts[index].heapByteCount
    receipts[index].clear()
    receiptBytes += receipts[index].heapByteCount
  }

  /// The acknowledged messages after `start` and up to `end`.
  func acknowledged(after start: SequenceNumber, through end: SequenceNumber) -> [SequenceNumber] {
    indices(after: start, through: end).filter { receipts[$0].count > 0 }.map { sequence(at: $0) }
  }

  /// The index of a message, inserted if missing. Messages come in rising order, but a page of acknowledgements may
  /// load before its message.
  private mutating func makeIndex(of sequence: SequenceNumber) -> Int {
    if let known = index(of: sequence) { return known }
    let index = index(after: sequence)
    sequences.insert(sequence.rawValue, at: index)
    if index == receipts.count {
      receipts.append(Receipt())
    } else {
      receipts.insert(Receipt(), at: index)
    }
    return index
  }
}

#if DEBUG
  extension ReceiptTable {
    /// Compare everything with a recount.
    func checkInvariants() -> String? {
      if sequences.count != receipts.count { return "receipts of different lengths" }
      var bytes = 0
      for index in sequences.indices {
        if index > 0, sequences[index - 1] >= sequences[index] { return "receipts are not in order" }
        if let fault = receipts[index].checkInvariants() { return "receipt of \(sequences[index]): \(fault)" }
        bytes += receipts[index].heapByteCount
      }
      return bytes == receiptBytes ? nil : "receipts occupy \(bytes) bytes, \(receiptBytes) are counted"
    }
  }
#endif
