internal import ReceiptModel

/// Completion of settlements that a gateway began and did not finish: values that their home shard holds and that may
/// not have reached all other shards (``SharedValue``).
///
/// It works in rounds. A round lists the unsettled values of every shard. A value that the previous round also
/// found, in the same version, has lost its gateway: it is assigned to the other shards and settled. A new
/// value may belong to a PUT in progress, and is left alone for one round. Doing both is harmless: a shard accepts only
/// a higher version.
///
/// Every request gets exactly one reply, success or failure, so each round ends.
struct SettlementRounds {
  /// list_unsettled requests in flight at once.
  static let listsInFlightMax = 16
  /// Settlements in progress at once.
  static let settlementsMax = 8
  /// Values that a round handles; others wait for the next round.
  static let valuesMax = 1_024

  /// A request for the handler to send.
  enum Action: Equatable {
    /// Send list_unsettled to this shard; its reply is ``found(_:in:)`` or ``listFailed()``.
    case listUnsettled(ShardID)
    /// Assign this value to every shard but its home; each reply is ``assigned(_:isDone:)``.
    case assign(Int, SharedValue, shardCount: Int)
    /// Send announce_row for all channels of the user, whose rows others now see differently (R7); its end is
    /// ``announced(_:isDone:)``.
    case announce(Int, SharedValue, shardCount: Int)
    /// Send settle to the value's home shard; its reply is ``settled(_:isDone:)``.
    case settle(Int, SharedValue, shardCount: Int)
    /// The user is being erased: run the rest of ``ErasureMachine``; its end is ``erased(_:isDone:)``.
    case erase(Int, UserSettings, shardCount: Int)
  }

  /// Work on a value that the previous round found too.
  private enum Work {
    case settlement(ValueSettlement)
    /// ``ErasureMachine``, which has a machine of its own.
    case erasure
  }

  private struct Round {
    let shardCount: Int
    var nextShard = 0
    var listsInFlight = 0
    var found: Set<SharedValue.Identity> = []
    /// Values that the previous round found too and that are not started yet; the next one is last.
    var due: [SharedValue] = []
    var works: [Int: Work] = [:]
    var nextWork = 0

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
  /// Values settled.
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
  mutating func roundIsDue(shardCount: Int) -> [Action] {
    switch state {
    case .busy: return []
    case .idle:
      guard shardCount > 0 else { return [] }
      return advance(Round(shardCount: shardCount))
    }
  }

  /// Handle the unsettled values of a shard. Values with another home shard are ignored.
  mutating func found(_ values: [SharedValue], in shard: ShardID) -> [Action] {
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
  mutating func listFailed() -> [Action] {
    answered { $0.listsInFlight -= 1 }
  }

  /// Handle a shard's answer to an assignment.
  mutating func assigned(_ index: Int, isDone: Bool) -> [Action] {
    advance(index) { $0.assigned(isDone: isDone) }
  }

  /// Handle the end of an announcement.
  mutating func announced(_ index: Int, isDone: Bool) -> [Action] {
    advance(index) { $0.announced(isDone: isDone) }
  }

  /// Handle the home shard's answer. After a failure the next round tries again.
  mutating func settled(_ index: Int, isDone: Bool) -> [Action] {
    advance(index) { $0.settled(isDone: isDone) }
  }

  /// Handle the end of an erasure. After a failure the next round tries again.
  mutating func erased(_ index: Int, isDone: Bool) -> [Action] {
    if isDone { settledCount += 1 }
    return answered { $0.works[index] = nil }
  }

  /// End the round early because the store's window is full; the rest is left to the next round.
  mutating func storeIsBusy() {
    guard case .busy(var round) = state else { return }
    round.nextShard = round.shardCount
    round.due = []
    state = .busy(round)
  }

  private mutating func answered(_ update: (inout Round) -> Void) -> [Action] {
    guard case .busy(var round) = state else {
      preconditionFailure("a reply without a request")
    }
    update(&round)
    return advance(round)
  }

  /// Continue the work on a value.
  private mutating func advance(
    _ index: Int,
    _ update: (inout ValueSettlement) -> ValueSettlement.Action?
  ) -> [Action] {
    guard case .busy(var round) = state, case .settlement(var settlement)? = round.works[index] else {
      preconditionFailure("a reply without a request")
    }
    let next = update(&settlement)
    round.works[index] = .settlement(settlement)
    let actions = next.map { self.actions($0, index, settlement, in: &round) } ?? []
    return actions + advance(round)
  }

  /// Return the actions of a round for the next action of a value's settlement.
  private mutating func actions(
    _ next: ValueSettlement.Action,
    _ index: Int,
    _ settlement: ValueSettlement,
    in round: inout Round
  ) -> [Action] {
    switch next {
    case .assign: return [.assign(index, settlement.value, shardCount: round.shardCount)]
    case .announce: return [.announce(index, settlement.value, shardCount: round.shardCount)]
    case .settle: return [.settle(index, settlement.value, shardCount: round.shardCount)]
    case .end(let outcome):
      if outcome == .settled { settledCount += 1 }
      round.works[index] = nil
      return []
    }
  }

  /// Start whatever the limits allow; ends the round if nothing is left.
  private mutating func advance(_ current: Round) -> [Action] {
    var round = current
    var actions: [Action] = []
    while round.nextShard < round.shardCount, round.listsInFlight < Self.listsInFlightMax {
      actions.append(.listUnsettled(ShardID(UInt16(round.nextShard))))
      round.nextShard += 1
      round.listsInFlight += 1
    }
    while round.works.count < Self.settlementsMax, let value = round.due.popLast() {
      let index = round.nextWork
      round.nextWork += 1
      if case .user(let settings) = value, settings.isErasing {
        round.works[index] = .erasure
        actions.append(.erase(index, settings, shardCount: round.shardCount))
      } else {
        var settlement = ValueSettlement(value, shardCount: round.shardCount, isAnnounced: true)
        let next = settlement.start()
        round.works[index] = .settlement(settlement)
        actions += self.actions(next, index, settlement, in: &round)
      }
    }
    if round.isListing || !round.works.isEmpty {
      state = .busy(round)
    } else {
      seen = round.found
      state = .idle
    }
    return actions
  }
}
