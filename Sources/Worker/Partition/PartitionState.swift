internal import Crypto
internal import Foundation

/// State of a webhook's partition that the gateway stores beside the committed position, so that another worker goes on
/// where this one was.
///
/// Its JSON has short names and arrays, because the gateway accepts at most 16 KiB.
package struct PartitionState: Sendable, Hashable {
  /// Attempts to deliver the batch behind the committed position.
  package struct Attempt: Sendable, Hashable {
    /// Position before the first record; nil if it is unknown.
    package var from: String?
    /// Position after the last record.
    package var end: String
    /// Number of records.
    package var count: Int
    /// Attempts so far.
    package var attempts: Int
    /// Time of the first attempt, in milliseconds since 1970.
    package var firstAt: Int64
    /// Time of the next attempt, in milliseconds since 1970.
    package var nextAt: Int64

    /// Create an attempt.
    package init(from: String?, end: String, count: Int, attempts: Int, firstAt: Int64, nextAt: Int64) {
      self.from = from
      self.end = end
      self.count = count
      self.attempts = attempts
      self.firstAt = firstAt
      self.nextAt = nextAt
    }
  }

  /// Change of a state by the worker that serves the partition.
  package struct Change: Sendable, Hashable {
    /// The new attempt; nil: none.
    package var attempt: Attempt?
    /// A dead letter to add.
    package var deadLetter: DeadLetter?

    /// Create a change.
    package init(attempt: Attempt?, deadLetter: DeadLetter? = nil) {
      self.attempt = attempt
      self.deadLetter = deadLetter
    }
  }

  /// Maximum number of dead letters.
  package static let deadLettersMax = 100
  /// Maximum size in bytes of the JSON: the gateway's limit.
  package static let byteCountMax = 16 * 1_024

  /// Attempts of the batch behind the committed position; nil: none has failed.
  package var attempt: Attempt?
  /// Oldest first.
  package var deadLetters: [DeadLetter] = []

  /// Create a state.
  package init(attempt: Attempt? = nil, deadLetters: [DeadLetter] = []) {
    self.attempt = attempt
    self.deadLetters = deadLetters
  }

  /// Return the state after a change. The dead letters are those of this state, as it is stored: a replay may have
  /// removed some since the worker read them.
  package func applying(_ change: Change) -> PartitionState {
    var state = PartitionState(attempt: change.attempt, deadLetters: deadLetters)
    if let letter = change.deadLetter, !state.deadLetters.contains(where: { $0.to == letter.to }) {
      state.deadLetters.append(letter)
      state.mergeOldest()
    }
    return state
  }

  /// Whether the batch of the attempt is already a dead letter, and only its position has to be committed.
  package var isAttemptDead: Bool {
    guard let attempt, let last = deadLetters.last else { return false }
    return last.to == attempt.end
  }

  /// Merge the two oldest dead letters until the state is within its limits.
  private mutating func mergeOldest() {
    while deadLetters.count > 1, deadLetters.count > Self.deadLettersMax || text.utf8.count > Self.byteCountMax {
      deadLetters.replaceSubrange(0..<2, with: [deadLetters[0].merged(with: deadLetters[1])])
    }
  }

  // MARK: JSON

  private struct Document: Codable {
    var v: Int
    var a: AttemptDocument?
    var d: [LetterDocument]
  }

  private struct AttemptDocument: Codable {
    var f: String?
    var e: String
    var n: Int
    var t: Int
    var s: Int64
    var x: Int64
  }

  private struct LetterDocument: Codable {
    var f: String?
    var t: String
    var n: Int
    var s: Int64
    var l: Int64
    var e: String
  }

  /// Parse a stored state; nothing stored is an empty state. Nil if it is of a newer version or damaged.
  package init?(_ text: String?) {
    guard let text, !text.isEmpty else { return }
    guard let document = try? JSONDecoder().decode(Document.self, from: Data(text.utf8)), document.v == 1 else {
      return nil
    }
    attempt = document.a.map {
      Attempt(from: $0.f, end: $0.e, count: max($0.n, 1), attempts: max($0.t, 0), firstAt: $0.s, nextAt: $0.x)
    }
    deadLetters = document.d.map {
      DeadLetter(from: $0.f, to: $0.t, count: $0.n, firstErrorAt: $0.s * 1_000, lastErrorAt: $0.l * 1_000, error: $0.e)
    }
  }

  /// The state as JSON.
  package var text: String {
    let document = Document(
      v: 1,
      a: attempt.map {
        AttemptDocument(f: $0.from, e: $0.end, n: $0.count, t: $0.attempts, s: $0.firstAt, x: $0.nextAt)
      },
      d: deadLetters.map {
        LetterDocument(
          f: $0.from,
          t: $0.to,
          n: $0.count,
          s: $0.firstErrorAt / 1_000,
          l: $0.lastErrorAt / 1_000,
          e: $0.error
        )
      }
    )
    let encoder = JSONEncoder()
    encoder.outputFormatting = [.sortedKeys, .withoutEscapingSlashes]
    // Numbers and texts can always be encoded.
    return (try? encoder.encode(document)).map { String(decoding: $0, as: UTF8.self) } ?? ""
  }
}

/// Range of records that could not be delivered in time.
package struct DeadLetter: Sendable, Hashable {
  /// Position before the first record; nil if it is unknown.
  package var from: String?
  /// Position after the last record.
  package var to: String
  /// Number of records that failed; merged ranges may enclose others, which were delivered.
  package var count: Int
  /// Time of the first attempt, in milliseconds since 1970, in whole seconds once it is stored.
  package var firstErrorAt: Int64
  /// Time of the last attempt, likewise.
  package var lastErrorAt: Int64
  /// Status or cause of the last failure.
  package var error: String

  /// Create a dead letter.
  package init(
    from: String?,
    to: String,
    count: Int,
    firstErrorAt: Int64,
    lastErrorAt: Int64,
    error: String
  ) {
    self.from = from
    self.to = to
    self.count = count
    self.firstErrorAt = firstErrorAt
    self.lastErrorAt = lastErrorAt
    self.error = error
  }

  /// Identifier for the command line.
  package func id(partition: String) -> String {
    String(Base64URL.text(SHA256.hash(data: Array("\(partition)\n\(from ?? "")\n\(to)".utf8))).prefix(10))
  }

  /// Return the range from the beginning of this one to the end of a later one.
  func merged(with later: DeadLetter) -> DeadLetter {
    DeadLetter(
      from: from,
      to: later.to,
      count: count + later.count,
      firstErrorAt: min(firstErrorAt, later.firstErrorAt),
      lastErrorAt: max(lastErrorAt, later.lastErrorAt),
      error: later.error
    )
  }
}
