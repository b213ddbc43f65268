/// The countable messages that users sent themselves after a position, for users who set an unread marker or sent
/// without moving their position (R5). Their own rows need them repeatedly.
struct OwnMessageTable: ~Copyable, Sendable {
  /// By user number.
  private var byUser: [UInt32: OwnMessages] = [:]
  /// Heap bytes of the table; they only grow while the channel is loaded.
  private(set) var byteCount = 0

  /// Whether no user's messages are tracked.
  var isEmpty: Bool { byUser.isEmpty }

  /// Return the number of a user's messages after `sequence`.
  func count(of user: UserNumber, after sequence: SequenceNumber) -> UInt32 {
    guard let own = byUser[user.rawValue] else { return 0 }
    return UInt32(own.sequences.count - own.index(after: sequence))
  }

  /// Return the end of the run of countable messages after `sequence` that are all this user's: its last message, or
  /// `sequence` itself if the run is empty.
  ///
  /// - Parameter countable: number of countable messages through a position.
  func endOfRun(of user: UserNumber, after sequence: SequenceNumber, countable: (SequenceNumber) -> UInt32)
    -> SequenceNumber
  {
    byUser[user.rawValue].map { $0.endOfRun(after: sequence, countable: countable) } ?? sequence
  }

  // MARK: Assignment

  /// Return the positions of messages, from 0, to examine before a user's messages after `start` can be tracked; nil:
  /// they are tracked. Each message is examined once per user while the channel is loaded.
  func untracked(_ user: UserNumber, after start: SequenceNumber, through newest: SequenceNumber) -> Range<Int>? {
    let known = byUser[user.rawValue]?.after
    if let known, known <= start { return nil }
    let end = min(known ?? newest, newest)
    return Int(start.rawValue)..<max(Int(start.rawValue), Int(end.rawValue))
  }

  /// Track a user's messages after `start`.
  ///
  /// - Parameter sequences: those in the range that ``untracked(_:after:through:)`` returned, rising.
  mutating func track(_ user: UserNumber, after start: SequenceNumber, _ sequences: [UInt32]) {
    let known = byUser[user.rawValue]
    byteCount += sequences.count * MemoryLayout<UInt32>.stride + (known == nil ? OwnMessages.overheadBytes : 0)
    byUser[user.rawValue] = OwnMessages(after: start, sequences: sequences + (known?.sequences ?? []))
  }

  /// Add or remove a message that became countable, or is no longer, if its sender's messages are tracked.
  mutating func assign(_ sequence: SequenceNumber, sender: UserNumber, isCountable: Bool) {
    let found = byUser[sender.rawValue].flatMap { known in
      known.after < sequence ? known.index(after: SequenceNumber(sequence.rawValue - 1)) : nil
    }
    guard let index = found else { return }
    if isCountable {
      byUser[sender.rawValue]!.sequences.insert(sequence.rawValue, at: index)
      byteCount += MemoryLayout<UInt32>.stride
    } else {
      byUser[sender.rawValue]!.sequences.remove(at: index)
    }
  }

  /// Remove all messages up to `sequence`.
  mutating func remove(through sequence: SequenceNumber) {
    for user in byUser.keys {
      byUser[user]!.sequences.removeFirst(byUser[user]!.index(after: sequence))
    }
  }
}

/// The countable messages that one user sent after a position, in rising order.
private struct OwnMessages: Sendable {
  /// The dictionary entry and the array's header.
  static let overheadBytes = 96

  var after: SequenceNumber
  var sequences: [UInt32]

  /// Return the number of messages at or below `sequence`.
  func index(after sequence: SequenceNumber) -> Int {
    var low = 0
    var high = sequences.count
    while low < high {
      let middle = (low + high) / 2
      if sequences[middle] <= sequence.rawValue { low = middle + 1 } else { high = middle }
    }
    return low
  }

  /// Return the end of the run of countable messages after `sequence` that are all this user's: its last message, or
  /// `sequence` itself if the run is empty.
  ///
  /// - Parameter countable: number of countable messages through a position.
  func endOfRun(after sequence: SequenceNumber, countable: (SequenceNumber) -> UInt32) -> SequenceNumber {
    let first = index(after: sequence)
    let before = Int(countable(sequence))
    // Within the run, the number of countable messages equals the number of own ones.
    var low = first
    var high = sequences.count
    while low < high {
      let middle = (low + high) / 2
      let through = Int(countable(SequenceNumber(sequences[middle]))) - before
      if through == middle - first + 1 { low = middle + 1 } else { high = middle }
    }
    return low == first ? sequence : SequenceNumber(sequences[low - 1])
  }
}
