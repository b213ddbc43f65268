internal import BasicContainers

/// A channel's messages with receipts, in rising order, and who has acknowledged them (R9).
///
/// Whether a receipt is done is not counted anywhere: it is asked of two rows of bits, who is waited for
/// (``ReadVector/awaited``) and who has acknowledged, 64 members at a time, up to the first who is missing. So a member
/// who leaves, hides or shows again costs one bit and not a look at every receipt of the channel, an acknowledgement
/// costs one bit too, and nothing can drift from what the rows say.
package struct ReceiptTable: ~Copyable, Sendable {
  /// The messages' sequence numbers, rising.
  private var sequences: [UInt32] = []
  /// One for each.
  private var receipts = UniqueArray<Receipt>()
  /// What the receipts occupy beside their places, in bytes.
  private var receiptBytes = 0

  package init() {}

  /// Whether the channel has no message with a receipt.
  package var isEmpty: Bool { sequences.isEmpty }
  /// Messages with receipts.
  package var count: Int { sequences.count }

  /// What it occupies, in bytes.
  var byteCount: Int {
    heapBytes(sequences) + receipts.capacity * MemoryLayout<Receipt>.stride + receiptBytes
  }

  // MARK: Looking up

  /// The places of the messages with receipts from the one after `start` up to `end`.
  func places(after start: SequenceNumber, through end: SequenceNumber) -> Range<Int> {
    let first = place(after: start)
    return first..<max(first, place(after: end))
  }

  /// The message at a place.
  func sequence(at place: Int) -> SequenceNumber { SequenceNumber(sequences[place]) }

  /// When the message's receipt expires; none: never, or it has none.
  package func expiresAt(_ sequence: SequenceNumber) -> Timestamp {
    place(of: sequence).map { receipts[$0].expiresAt } ?? .none
  }

  /// Whether the message was registered with a receipt.
  func isRequested(_ sequence: SequenceNumber) -> Bool {
    place(of: sequence).map { receipts[$0].isRequested } ?? false
  }

  /// Whether this row has acknowledged the message, shown or hidden; also where its record gave way.
  func hasAcknowledged(_ sequence: SequenceNumber, _ row: MemberOrdinal) -> Bool {
    place(of: sequence).map { receipts[$0].hasAcknowledged(row) } ?? false
  }

  /// Rows that have acknowledged the message, those that left included, each once.
  func forEachAcknowledged(_ sequence: SequenceNumber, _ body: (MemberOrdinal) -> Void) {
    if let place = place(of: sequence) { receipts[place].forEachAcknowledged(body) }
  }

  /// All of a message's acknowledgements, as its page has them: first those whose records gave way, then the others in
  /// the order in which they were made.
  func acknowledgements(of sequence: SequenceNumber) -> [Acknowledgement] {
    place(of: sequence).map { receipts[$0].acknowledgements } ?? []
  }

  /// The row's acknowledgement of the message, without time and note where its record gave way; nil where it has not
  /// acknowledged it.
  func record(_ sequence: SequenceNumber, _ row: MemberOrdinal) -> Acknowledgement? {
    place(of: sequence).flatMap { receipts[$0].record(row) }
  }

  /// How many records of the message are kept, of those made while hidden or of the others.
  func keptCount(_ sequence: SequenceNumber, isHidden: Bool) -> Int {
    guard let place = place(of: sequence) else { return 0 }
    return isHidden ? receipts[place].hiddenCount : receipts[place].visibleCount
  }

  /// The rows of the message's oldest kept records, of those made while hidden or of the others; `wanted` of them, or
  /// all.
  func oldest(_ wanted: Int, of sequence: SequenceNumber, isHidden: Bool) -> [MemberOrdinal] {
    place(of: sequence).map { receipts[$0].oldest(wanted, isHidden: isHidden) } ?? []
  }

  /// When somebody who did not hide it acknowledged the message last; unknown where a record gave way, none where
  /// nobody did.
  func lastShown(_ sequence: SequenceNumber) -> Timestamp {
    place(of: sequence).map { receipts[$0].lastShown } ?? .none
  }

  /// The messages whose receipts expire in a range of times, in their order.
  func expiring(in times: ClosedRange<Timestamp>) -> [SequenceNumber] {
    sequences.indices.filter { isExpiring($0) && times.contains(receipts[$0].expiresAt) }
      .map { sequence(at: $0) }
  }

  /// When the next receipt after a time expires; none: none does.
  func nextExpiry(after time: Timestamp) -> Timestamp {
    var next = Timestamp.none
    for place in sequences.indices where isExpiring(place) && receipts[place].expiresAt > time {
      next = next == .none ? receipts[place].expiresAt : min(next, receipts[place].expiresAt)
    }
    return next
  }

  private func isExpiring(_ place: Int) -> Bool {
    receipts[place].isRequested && receipts[place].expiresAt != .none
  }

  private func place(of sequence: SequenceNumber) -> Int? {
    let place = place(after: sequence) - 1
    return place >= 0 && sequences[place] == sequence.rawValue ? place : nil
  }

  /// The place of the first message after `sequence`.
  private func place(after sequence: SequenceNumber) -> Int {
    var low = 0
    var high = sequences.count
    while low < high {
      let middle = (low + high) / 2
      if sequences[middle] <= sequence.rawValue { low = middle + 1 } else { high = middle }
    }
    return low
  }

  // MARK: Done

  /// Where a receipt stands to those who are waited for.
  struct Progress: Hashable {
    /// Somebody is waited for, and everybody has acknowledged.
    var isDone: Bool
    /// Words of 64 rows that were looked at.
    var wordsVisited: Int
  }

  /// Whether everybody who is waited for has acknowledged the message.
  ///
  /// - Parameters:
  ///   - awaited: a bit for each row that is waited for.
  ///   - rowCount: how many rows, from the first on, had joined before the message.
  ///   - sender: the sender's row, which is not waited for.
  func progress(
    _ sequence: SequenceNumber,
    awaited: [UInt64],
    rowCount: Int,
    excluding sender: MemberOrdinal?
  ) -> Progress {
    guard let place = place(of: sequence), receipts[place].count > 0 else {
      return Progress(isDone: false, wordsVisited: 0)
    }
    let senderRow = sender.map { Int($0.rawValue) } ?? -1
    var isAwaited = false
    let words = (rowCount + 63) / 64
    for word in 0..<words {
      var bits = awaited[word]
      if word == words - 1 { bits &= UInt64.max >> UInt64(words * 64 - rowCount) }
      if senderRow >> 6 == word { bits &= ~(1 << UInt64(senderRow & 63)) }
      let have = word < receipts[place].acknowledged.count ? receipts[place].acknowledged[word] : 0
      if bits & ~have != 0 { return Progress(isDone: false, wordsVisited: word + 1) }
      if bits != 0 { isAwaited = true }
    }
    return Progress(isDone: isAwaited, wordsVisited: words)
  }

  // MARK: Assignment

  mutating func insert(_ sequence: SequenceNumber, expiresAt: Timestamp) {
    let place = makePlace(sequence)
    receipts[place].isRequested = true
    receipts[place].expiresAt = expiresAt
  }

  mutating func assign(_ sequence: SequenceNumber, _ acknowledgement: Acknowledgement) {
    let place = makePlace(sequence)
    receiptBytes -= receipts[place].heapByteCount
    receipts[place].assign(acknowledgement)
    receiptBytes += receipts[place].heapByteCount
  }

  mutating func forget(_ sequence: SequenceNumber, _ row: MemberOrdinal) {
    guard let place = place(of: sequence) else { return }
    receiptBytes -= receipts[place].heapByteCount
    receipts[place].forget(row)
    receiptBytes += receipts[place].heapByteCount
  }

  /// All acknowledgements of a message leave (R16); that it asked for a receipt stays.
  mutating func clear(_ sequence: SequenceNumber) {
    guard let place = place(of: sequence), receipts[place].count > 0 else { return }
    receiptBytes -= receipts[place].heapByteCount
    receipts[place].clear()
    receiptBytes += receipts[place].heapByteCount
  }

  /// The messages after `start` up to `end` that somebody has acknowledged.
  func acknowledged(after start: SequenceNumber, through end: SequenceNumber) -> [SequenceNumber] {
    places(after: start, through: end).filter { receipts[$0].count > 0 }.map { sequence(at: $0) }
  }

  /// Messages come in rising order; a page of acknowledgements that is read before its message makes the place for it.
  private mutating func makePlace(_ sequence: SequenceNumber) -> Int {
    if let known = place(of: sequence) { return known }
    let place = place(after: sequence)
    sequences.insert(sequence.rawValue, at: place)
    if place == receipts.count {
      receipts.append(Receipt())
    } else {
      receipts.insert(Receipt(), at: place)
    }
    return place
  }
}

#if DEBUG
  extension ReceiptTable {
    /// All of it, against a recount.
    func checkInvariants() -> String? {
      if sequences.count != receipts.count { return "receipts of different lengths" }
      var bytes = 0
      for place in sequences.indices {
        if place > 0, sequences[place - 1] >= sequences[place] { return "receipts are not in order" }
        if let fault = receipts[place].checkInvariants() { return "receipt of \(sequences[place]): \(fault)" }
        bytes += receipts[place].heapByteCount
      }
      return bytes == receiptBytes ? nil : "receipts occupy \(bytes) bytes, \(receiptBytes) are counted"
    }
  }
#endif
