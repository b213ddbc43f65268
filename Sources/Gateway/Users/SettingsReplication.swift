internal import ReceiptModel

/// Completion of replications that a gateway began and did not finish: values that their home shard holds and that may
/// not have reached all other shards (``SharedValue``).
///
/// It works in rounds. A round lists the unsettled values of every shard. A value that the previous round also found,
/// in the same version, has lost its gateway: it is assigned to the other shards and settled. A new value may belong to
/// a PUT in progress, and is left alone for one round. Doing both is harmless: a shard accepts only a higher version.
///
/// Every request gets exactly one answer, success or failure, so each round ends.
struct SettingsReplication {
  /// list_unsettled requests in flight at once.
  static let listsInFlightMax = 16
  /// Values replicated at once.
  static let replicationsMax = 8
  /// Values that a round handles; others wait for the next round.
  static let valuesMax = 1_024

  /// A request to send.
  enum Step: Equatable {
    /// Send list_unsettled to this shard; its answer is ``found(_:in:)`` or ``listFailed()``.
    case listUnsettled(ShardID)
    /// Assign this value to every shard but its home; each answer is ``assigned(_:isDone:)``.
    case assign(Int, SharedValue, shardCount: Int)
    /// Send announce_row for all channels of the user, whose rows others now see differently (R7); its end is
    /// ``announced(_:isDone:)``.
    case announce(Int, SharedValue, shardCount: Int)
    /// Send settle to the value's home shard; its answer is ``settled(_:isDone:)``.
    case settle(Int, SharedValue, shardCount: Int)
    /// The user is being erased: run the rest of ``Erasure``; its end is ``settled(_:isDone:)``.
    case erase(Int, UserSettings, shardCount: Int)
  }

  /// Value of ``ReplicatedValue/waiting`` when only one answer is pending: of the home shard or of the announcement.
  private static let oneAnswer = -1

  /// A value being replicated.
  private struct ReplicatedValue {
    var value: SharedValue
    /// Shards that have not answered, or ``SettingsReplication/oneAnswer``.
    var waiting: Int
    var hasFailed = false
    /// Whether the user's channels have announced the change, or there is nothing to announce.
    var isAnnounced = false
  }

  private struct Round {
    let shardCount: Int
    var nextShard = 0
    var listsInFlight = 0
    var found: Set<SharedValue.Identity> = []
    /// Values that the previous round found too and that are not started yet; the next one is last.
    var due: [SharedValue] = []
    var replications: [Int: ReplicatedValue] = [:]
    var nextReplication = 0

    var isListing: Bool { nextShard < shardCount || listsInFlight > 0 }
  }

  private enum State {
    /// Between two rounds. Becomes `busy`.
    case idle
    /// In a round. Becomes `idle` when nothing is pending.
    case busy(Round)
  }

  private var state = State.idle
  /// The values that the last round found.
  private var seen: Set<SharedValue.Identity> = []
  /// Values replicated to every shard.
  private(set) var settledCount: UInt64 = 0

  /// Whether a round is in progress.
  var isBusy: Bool {
    switch state {
    case .idle: false
    case .busy: true
    }
  }

  /// Start a round, unless one is in progress.
  ///
  /// - Parameter shardCount: 0 where the store is not known yet.
  mutating func roundIsDue(shardCount: Int) -> [Step] {
    switch state {
    case .busy: return []
    case .idle:
      guard shardCount > 0 else { return [] }
      return advance(Round(shardCount: shardCount))
    }
  }

  /// Handle the unsettled values of a shard. Values with another home shard are ignored.
  mutating func found(_ values: [SharedValue], in shard: ShardID) -> [Step] {
    let seen = seen
    return answered { round in
      round.listsInFlight -= 1
      for value in values where value.home(shardCount: round.shardCount) == shard {
        guard round.found.count < Self.valuesMax else { break }
        round.found.insert(value.identity)
        if seen.contains(value.identity) { round.due.append(value) }
      }
    }
  }

  /// Handle a failed list_unsettled.
  mutating func listFailed() -> [Step] {
    answered { $0.listsInFlight -= 1 }
  }

  /// Handle a shard's answer to an assignment.
  mutating func assigned(_ replication: Int, isDone: Bool) -> [Step] {
    answered { round in
      round.replications[replication]?.waiting -= 1
      if !isDone { round.replications[replication]?.hasFailed = true }
    }
  }

  /// Handle the end of an announcement.
  mutating func announced(_ replication: Int, isDone: Bool) -> [Step] {
    answered { round in
      round.replications[replication]?.waiting = 0
      round.replications[replication]?.isAnnounced = true
      if !isDone { round.replications[replication]?.hasFailed = true }
    }
  }

  /// Handle the home shard's answer. After a failure the next round tries again.
  mutating func settled(_ replication: Int, isDone: Bool) -> [Step] {
    if isDone { settledCount += 1 }
    return answered { $0.replications[replication] = nil }
  }

  /// End the round early because the store's window is full; the rest is left to the next round.
  mutating func storeIsBusy() {
    guard case .busy(var round) = state else { return }
    round.nextShard = round.shardCount
    round.due = []
    state = .busy(round)
  }

  private mutating func answered(_ update: (inout Round) -> Void) -> [Step] {
    guard case .busy(var round) = state else {
      preconditionFailure("a reply without a request")
    }
    update(&round)
    return advance(round)
  }

  /// Start whatever the limits allow; ends the round if nothing is left.
  private mutating func advance(_ current: Round) -> [Step] {
    var round = current
    var steps: [Step] = []
    while round.nextShard < round.shardCount, round.listsInFlight < Self.listsInFlightMax {
      steps.append(.listUnsettled(ShardID(UInt16(round.nextShard))))
      round.nextShard += 1
      round.listsInFlight += 1
    }
    for (index, replication) in round.replications.sorted(by: { $0.key < $1.key })
    where replication.waiting == 0 {
      if replication.hasFailed {
        round.replications[index] = nil
      } else if replication.value.isUser, !replication.isAnnounced {
        round.replications[index]?.waiting = Self.oneAnswer
        steps.append(.announce(index, replication.value, shardCount: round.shardCount))
      } else {
        round.replications[index]?.waiting = Self.oneAnswer
        steps.append(.settle(index, replication.value, shardCount: round.shardCount))
      }
    }
    while round.replications.count < Self.replicationsMax, let value = round.due.popLast() {
      let index = round.nextReplication
      round.nextReplication += 1
      if case .user(let settings) = value, settings.isErasing {
        round.replications[index] = ReplicatedValue(value: value, waiting: Self.oneAnswer)
        steps.append(.erase(index, settings, shardCount: round.shardCount))
      } else if round.shardCount == 1, value.isUser {
        round.replications[index] = ReplicatedValue(value: value, waiting: Self.oneAnswer)
        steps.append(.announce(index, value, shardCount: 1))
      } else if round.shardCount == 1 {
        round.replications[index] = ReplicatedValue(value: value, waiting: Self.oneAnswer)
        steps.append(.settle(index, value, shardCount: 1))
      } else {
        round.replications[index] = ReplicatedValue(value: value, waiting: round.shardCount - 1)
        steps.append(.assign(index, value, shardCount: round.shardCount))
      }
    }
    if round.isListing || !round.replications.isEmpty {
      state = .busy(round)
    } else {
      seen = round.found
      state = .idle
    }
    return steps
  }
}
