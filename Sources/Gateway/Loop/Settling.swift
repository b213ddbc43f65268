internal import ReceiptModel

/// Finishes what a gateway has begun and not lived to finish: values that their home shard holds and that may
/// not have reached all others (SharedValue).
///
/// It goes in rounds. A round asks every shard what is unsettled there; what the round before it had found too,
/// in the same version, is nobody's any more: it is assigned to the other shards and settled. What is new may
/// belong to a PUT under way, and is left to it for one round. Should both do it, that is harmless: a shard
/// takes only a higher version.
///
/// Every request that it asks for is answered to it exactly once, whatever comes of it, and so each round ends.
struct Settling {
  /// Asks under way at once.
  static let asksMax = 16
  /// Values carried to the shards at once.
  static let spreadsMax = 8
  /// Values that a round takes up; the others wait for the next one.
  static let valuesMax = 1_024

  /// What has to be sent.
  enum Step: Equatable {
    /// list_unsettled to this shard; its answer is ``found(_:in:)`` or ``askFailed()``.
    case ask(ShardID)
    /// This value to every shard but its home; each answer is ``assigned(_:isDone:)``.
    case assign(Int, SharedValue, shardCount: Int)
    /// announce_row of all channels of the user, whose rows others see otherwise now (R7); its end is
    /// ``announced(_:isDone:)``.
    case announce(Int, SharedValue, shardCount: Int)
    /// settle at the value's home; its answer is ``settled(_:isDone:)``.
    case settle(Int, SharedValue, shardCount: Int)
    /// The user is being erased: all of ``Erasure`` that is left; its end is ``settled(_:isDone:)``.
    case erase(Int, UserSettings, shardCount: Int)
  }

  /// In place of the shards that are waited for: only one answer, of its home or of the announcement, is still to come.
  private static let settling = -1

  /// A value on its way to the shards.
  private struct Spread {
    var value: SharedValue
    /// Shards that have not answered, or ``Settling/settling``.
    var waiting: Int
    var hasFailed = false
    /// The user's channels have told, or there is nothing to tell.
    var isAnnounced = false
  }

  private struct Round {
    let shardCount: Int
    var nextShard = 0
    var asksInFlight = 0
    var found: Set<SharedValue.Identity> = []
    /// Found before too, not taken up yet; the next one last.
    var due: [SharedValue] = []
    var spreads: [Int: Spread] = [:]
    var nextSpread = 0

    var isAsking: Bool { nextShard < shardCount || asksInFlight > 0 }
  }

  private enum State {
    /// Between two rounds. Becomes `busy`.
    case idle
    /// In a round. Becomes `idle` when it has nothing left to wait for.
    case busy(Round)
  }

  private var state = State.idle
  /// What the last round found.
  private var seen: Set<SharedValue.Identity> = []
  /// Values brought to every shard.
  private(set) var settledCount: UInt64 = 0

  /// Whether a round is under way.
  var isBusy: Bool {
    switch state {
    case .idle: false
    case .busy: true
    }
  }

  /// It is time for a round; one that is under way is left to end.
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

  /// What a shard holds unsettled. A value that is not at home there is not its to tell of.
  mutating func found(_ values: [SharedValue], in shard: ShardID) -> [Step] {
    let seen = seen
    return answered { round in
      round.asksInFlight -= 1
      for value in values where value.home(shardCount: round.shardCount) == shard {
        guard round.found.count < Self.valuesMax else { break }
        round.found.insert(value.identity)
        if seen.contains(value.identity) { round.due.append(value) }
      }
    }
  }

  /// A shard did not say.
  mutating func askFailed() -> [Step] {
    answered { $0.asksInFlight -= 1 }
  }

  /// One shard has the value, or does not.
  mutating func assigned(_ spread: Int, isDone: Bool) -> [Step] {
    answered { round in
      round.spreads[spread]?.waiting -= 1
      if !isDone { round.spreads[spread]?.hasFailed = true }
    }
  }

  /// The user's channels have told how their rows are seen now, or could not.
  mutating func announced(_ spread: Int, isDone: Bool) -> [Step] {
    answered { round in
      round.spreads[spread]?.waiting = 0
      round.spreads[spread]?.isAnnounced = true
      if !isDone { round.spreads[spread]?.hasFailed = true }
    }
  }

  /// The home shard was told, or could not be: the next round will find out.
  mutating func settled(_ spread: Int, isDone: Bool) -> [Step] {
    if isDone { settledCount += 1 }
    return answered { $0.spreads[spread] = nil }
  }

  /// No more requests are taken for now: what was not begun is left to the next round.
  mutating func storeIsBusy() {
    guard case .busy(var round) = state else { return }
    round.nextShard = round.shardCount
    round.due = []
    state = .busy(round)
  }

  private mutating func answered(_ note: (inout Round) -> Void) -> [Step] {
    guard case .busy(var round) = state else {
      preconditionFailure("an answer to nothing that was asked")
    }
    note(&round)
    return advance(round)
  }

  /// Begins what may be begun; ends the round where there is nothing left.
  private mutating func advance(_ current: Round) -> [Step] {
    var round = current
    var steps: [Step] = []
    while round.nextShard < round.shardCount, round.asksInFlight < Self.asksMax {
      steps.append(.ask(ShardID(UInt16(round.nextShard))))
      round.nextShard += 1
      round.asksInFlight += 1
    }
    for (index, spread) in round.spreads.sorted(by: { $0.key < $1.key }) where spread.waiting == 0 {
      if spread.hasFailed {
        round.spreads[index] = nil
      } else if spread.value.isUser, !spread.isAnnounced {
        round.spreads[index]?.waiting = Self.settling
        steps.append(.announce(index, spread.value, shardCount: round.shardCount))
      } else {
        round.spreads[index]?.waiting = Self.settling
        steps.append(.settle(index, spread.value, shardCount: round.shardCount))
      }
    }
    while round.spreads.count < Self.spreadsMax, let value = round.due.popLast() {
      let index = round.nextSpread
      round.nextSpread += 1
      if case .user(let settings) = value, settings.isErasing {
        round.spreads[index] = Spread(value: value, waiting: Self.settling)
        steps.append(.erase(index, settings, shardCount: round.shardCount))
      } else if round.shardCount == 1, value.isUser {
        round.spreads[index] = Spread(value: value, waiting: Self.settling)
        steps.append(.announce(index, value, shardCount: 1))
      } else if round.shardCount == 1 {
        round.spreads[index] = Spread(value: value, waiting: Self.settling)
        steps.append(.settle(index, value, shardCount: 1))
      } else {
        round.spreads[index] = Spread(value: value, waiting: round.shardCount - 1)
        steps.append(.assign(index, value, shardCount: round.shardCount))
      }
    }
    if round.isAsking || !round.spreads.isEmpty {
      state = .busy(round)
    } else {
      seen = round.found
      state = .idle
    }
    return steps
  }
}
