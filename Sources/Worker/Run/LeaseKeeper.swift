/// State machine of a worker's share of a consumer's partitions. The store shares them among the live workers; a worker
/// serves those of its last answer, and none once that answer is older than its lifetime.
package struct LeaseKeeper: Sendable {
  /// Lifetime of an answer in seconds.
  package static let ttlSeconds = 8
  /// Time between calls in milliseconds.
  package static let intervalMilliseconds: Int64 = 2_000

  /// What the caller is to do.
  package enum Action: Sendable, Hashable {
    case start(String)
    /// Finish the request in flight, then report ``LeaseKeeper/ended(_:)``.
    case stop(String)
    /// Cancel everything at once: another worker may have the partition.
    case cancel(String)
  }

  /// running → stopping; running or stopping → cancelled. A partition that has ended has no stage.
  private enum Stage { case running, stopping, cancelled }

  private var stages: [String: Stage] = [:]
  /// When the last successful call was sent, in milliseconds of a monotonic clock.
  private var confirmedAt: Int64?

  /// Create a keeper that holds nothing.
  package init() {}

  /// Partitions of the next call: those served, and those that are still ending.
  package var held: [String] { stages.keys.sorted() }

  /// Handle an answer.
  ///
  /// - Parameter sentAt: when the call was sent: the lifetime begins no later.
  package mutating func answered(_ partitions: [String], sentAt: Int64) -> [Action] {
    confirmedAt = max(confirmedAt ?? sentAt, sentAt)
    var actions: [Action] = []
    let granted = Set(partitions)
    for partition in held where stages[partition] == .running && !granted.contains(partition) {
      stages[partition] = .stopping
      actions.append(.stop(partition))
    }
    for partition in partitions where stages[partition] == nil {
      stages[partition] = .running
      actions.append(.start(partition))
    }
    return actions
  }

  /// Handle a partition that is no longer served. A later answer starts it again if it is still this worker's.
  package mutating func ended(_ partition: String) { stages[partition] = nil }

  /// Handle the passing of time.
  package mutating func tick(now: Int64) -> [Action] {
    guard let confirmedAt, now - confirmedAt >= Int64(Self.ttlSeconds) * 1_000 else { return [] }
    var actions: [Action] = []
    for partition in held where stages[partition] != .cancelled {
      stages[partition] = .cancelled
      actions.append(.cancel(partition))
    }
    return actions
  }

  /// Stop everything, because the worker leaves.
  package mutating func stopAll() -> [Action] {
    var actions: [Action] = []
    for partition in held where stages[partition] == .running {
      stages[partition] = .stopping
      actions.append(.stop(partition))
    }
    return actions
  }
}
