/// Which messages count as unread for members who have not read them: a bit per message, and for each segment the
/// number of such messages before it, so that a count looks at one segment only.
struct CountableMessages: ~Copyable, Sendable {
  /// A segment's bits fill four words.
  private static let wordsPerSegment = Int(PageID.messagesPerSegment) / 64

  private var words: [UInt64] = []
  /// For each segment, the number of countable messages in the segments before it.
  private var before: [UInt32] = []

  /// Number of segments begun.
  var segmentCount: Int { before.count }

  /// Return whether the message at a position, from 0, is countable.
  @inline(__always)
  func contains(_ position: Int) -> Bool { words[position >> 6] >> UInt64(position & 63) & 1 == 1 }

  /// Return the number of countable messages among 1 through `sequence`.
  func count(through sequence: SequenceNumber) -> UInt32 {
    guard sequence > .zero else { return 0 }
    let position = Int(sequence.rawValue) - 1
    let segment = position / Int(PageID.messagesPerSegment)
    var total = Int(before[segment])
    let last = position >> 6
    for word in (segment * Self.wordsPerSegment)..<last { total += words[word].nonzeroBitCount }
    // The word that contains the message itself, up to its bit.
    total += (words[last] << UInt64(63 - position & 63)).nonzeroBitCount
    return UInt32(total)
  }

  /// Return the number of countable messages in each segment.
  ///
  /// - Parameter newest: the newest message.
  func countPerSegment(through newest: SequenceNumber) -> [UInt32] {
    guard newest > .zero else { return [] }
    let ends = before.dropFirst() + [count(through: newest)]
    return zip(ends, before).map { $0 - $1 }
  }

  /// Return the first countable position from `start` on that satisfies a condition.
  @inline(__always)
  func first(from start: Int, where isWanted: (Int) -> Bool) -> Int? {
    guard start >> 6 < words.count else { return nil }
    for word in (start >> 6)..<words.count {
      var bits = words[word]
      if word == start >> 6 { bits &= UInt64.max << UInt64(start & 63) }
      while bits != 0 {
        let position = word << 6 + bits.trailingZeroBitCount
        if isWanted(position) { return position }
        bits &= bits - 1
      }
    }
    return nil
  }

  // MARK: Assignment

  /// Add the message after `newest`, which is not countable yet.
  mutating func append(after newest: SequenceNumber) {
    guard newest.rawValue % PageID.messagesPerSegment == 0 else { return }
    before.append(count(through: newest))
    words.append(contentsOf: repeatElement(0, count: Self.wordsPerSegment))
  }

  /// Make a message countable or not; the caller ensures that this is a change.
  mutating func toggle(_ position: Int) {
    words[position >> 6] ^= 1 << UInt64(position & 63)
    let isCountable = contains(position)
    let segment = position / Int(PageID.messagesPerSegment)
    for later in (segment + 1)..<max(segment + 1, segmentCount) {
      if isCountable { before[later] += 1 } else { before[later] -= 1 }
    }
  }

  /// Make the messages at these positions uncountable: one pass over all segments.
  mutating func remove(_ positions: Range<Int>) {
    for position in positions { words[position >> 6] &= ~(1 << UInt64(position & 63)) }
    var total: UInt32 = 0
    for segment in 0..<segmentCount {
      before[segment] = total
      for word in (segment * Self.wordsPerSegment)..<((segment + 1) * Self.wordsPerSegment) {
        total += UInt32(words[word].nonzeroBitCount)
      }
    }
  }

  /// Size in bytes.
  var byteCount: Int { heapBytes(words) + heapBytes(before) }

  #if DEBUG
    /// Check the segments and their prefix counts against the bits.
    func checkInvariants(newest: SequenceNumber) -> String? {
      if segmentCount != (Int(newest.rawValue) + 255) / 256 || words.count != segmentCount * Self.wordsPerSegment {
        return "wrong number of segments"
      }
      var total: UInt32 = 0
      for position in 0..<newest.rawValue {
        if contains(Int(position)) { total += 1 }
        if count(through: SequenceNumber(position + 1)) != total {
          return "message \(position + 1): not \(total) countable up to here"
        }
      }
      return nil
    }
  #endif
}
