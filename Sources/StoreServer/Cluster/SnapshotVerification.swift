internal import StoreEngine

/// Checks a received snapshot against the shared log: the log has the snapshot's last record, or begins with the record
/// that follows it, of a level that this node supports. A pure state machine.
struct SnapshotVerification {
  enum Action: Hashable {
    /// Read one record from this position, at once or after a pause, and pass its outcome to ``handle(_:)``.
    case read(from: RecordPosition, afterPause: Bool)
    case accept
    case reject(reason: String)
  }

  private enum State {
    case readingLast
    /// The last record is trimmed; the one that follows is the log's first.
    case readingNext
  }

  /// How many times the shared log is asked for the last record.
  static let attemptsMax = 12

  /// The last record that the snapshot has.
  private let cursor: LogCursor
  private var state = State.readingLast
  private var attempts = 1

  init(of cursor: LogCursor) { self.cursor = cursor }

  /// The action to begin with.
  var first: Action { .read(from: cursor.position, afterPause: false) }

  /// - Parameter outcome: nil: the shared log has not answered in time.
  mutating func handle(_ outcome: ReadOutcome?) -> Action {
    if case .records(let records, _)? = outcome, let level = records.first?.level,
      level > ClusterLevel.supported.upperBound
    {
      return .reject(reason: "the shared log has level \(level.rawValue), which this tidemark-store does not support")
    }
    switch (state, outcome) {
    case (.readingLast, .records(let records, _)):
      guard let record = records.first, LogCursor(after: record) == cursor else {
        return .reject(reason: "its last record \(cursor.position.rawValue) is not that of the shared log")
      }
      return .accept
    case (.readingLast, .trimmed(let first)):
      guard first == cursor.position.next else {
        return .reject(reason: "it ends at record \(cursor.position.rawValue), the log begins at \(first.rawValue)")
      }
      state = .readingNext
      return .read(from: first, afterPause: false)
    case (.readingLast, .failed), (.readingLast, nil): return retry(afterPause: true)
    case (.readingNext, .records(let records, _)):
      guard let record = records.first else { return retry(afterPause: false) }
      guard record.previous == cursor.hash else {
        return .reject(reason: "record \(cursor.position.next.rawValue) of the shared log does not follow it")
      }
      return .accept
    // The log may have been trimmed further.
    case (.readingNext, .trimmed), (.readingNext, .failed), (.readingNext, nil): return retry(afterPause: false)
    }
  }

  private mutating func retry(afterPause: Bool) -> Action {
    guard attempts < Self.attemptsMax else { return .reject(reason: "the shared log does not answer") }
    attempts += 1
    state = .readingLast
    return .read(from: cursor.position, afterPause: afterPause)
  }
}
