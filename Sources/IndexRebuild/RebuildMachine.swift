package import ReceiptModel
package import ReceiptWire

/// A rebuild_index request to one shard (Proto/frames.md).
package struct RebuildRequest: Hashable, Sendable {
  package enum Kind: UInt8, Sendable {
    case ask = 0
    case sendAgain = 1
    case sweep = 2
  }

  package var shard: ShardID
  package var kind: Kind
  /// 0 where it only asks.
  package var epoch: UInt64

  package init(_ kind: Kind, shard: ShardID, epoch: UInt64 = 0) {
    self.shard = shard
    self.kind = kind
    self.epoch = epoch
  }
}

/// Rebuilds the index of users' channels of a whole store, one epoch above all there were: first every shard sends all
/// its memberships again, and only when all of them have, every shard drops from its indexes what was not sent (R13,
/// R14). An event goes in, an action comes out.
///
/// A shard keeps no rebuild over a restart, which ends its connections: whatever was under way when the connection was
/// lost is begun again. That does no harm where it had gone on.
package struct RebuildMachine: Sendable {
  package enum Action: Hashable, Sendable {
    /// To be sent, each once; empty: nothing is to be done but to wait.
    case send([RebuildRequest])
    case finish(RebuildSummary)
    case fail(RebuildFailure)
  }

  /// What all shards go through together.
  private enum Stage {
    /// No store was reached yet. Next: asking.
    case connecting
    /// Each is asked for its epoch. Next: sendingAgain.
    case asking
    /// Next: sweeping.
    case sendingAgain
    /// Next: over.
    case sweeping
    case over
  }

  private enum Standing {
    /// The stage's own request has to be made, or made again. Next: underWay, done.
    case due
    /// The shard is at it, and is asked how far it is. Next: done; after a lost connection due.
    case underWay
    case done
  }

  private struct Shard {
    var standing = Standing.due
    /// The request that has no answer yet.
    var inFlight: RebuildRequest.Kind?
    /// When it last answered what it was asked.
    var heardAt: Duration
    /// Why it did not, since.
    var refusal: ErrorCode?
    /// The most that it told in this stage: what it says after the end is not relied on.
    var channelsDone: UInt64 = 0
    var channels: UInt64 = 0
    var entries: UInt64 = 0
  }

  /// A shard that gives no answer for longer is given up.
  private let patience: Duration
  private var stage = Stage.connecting
  private var shards: [Shard] = []
  /// The highest that a shard had, then the one above.
  private var epoch: UInt64 = 0
  private var summary = RebuildSummary()

  package init(patience: Duration) { self.patience = patience }

  /// How many shards the store has; 0 before one was reached.
  package var shardCount: Int { shards.count }

  // MARK: - Events; `now` is the time since the rebuild began

  /// The store is reached, for the first time or again.
  package mutating func connected(shardCount: Int, now: Duration) -> Action {
    guard case .connecting = stage else {
      return shardCount == shards.count ? .send([]) : fail(.otherStore)
    }
    shards = Array(repeating: Shard(heardAt: now), count: shardCount)
    summary.shards = shardCount
    return enter(.asking, now)
  }

  /// What a shard was at may be forgotten.
  package mutating func connectionLost() {
    for index in shards.indices where shards[index].standing == .underWay { shards[index].standing = .due }
  }

  package mutating func replied(_ shard: ShardID, _ fields: RebuildFields, now: Duration) -> Action {
    let index = Int(shard.rawValue)
    guard shards.indices.contains(index), let request = shards[index].inFlight else { return .send([]) }
    shards[index].inFlight = nil
    shards[index].heardAt = now
    shards[index].refusal = nil
    switch stage {
    case .connecting, .over: return .send([])
    case .asking:
      epoch = max(epoch, fields.epoch)
      shards[index].standing = .done
    case .sendingAgain, .sweeping:
      guard fields.epoch <= epoch else { return fail(.overtaken(shard, epoch: fields.epoch)) }
      // Asked before the connection was lost: what it says is not about what is to be begun again.
      if request == .ask, shards[index].standing == .due { return .send(requests()) }
      guard fields.epoch == epoch else { return fail(.notTaken(shard)) }
      note(fields, index)
      switch fields.phase {
      case .none: shards[index].standing = .done
      case .sendingAgain, .sweeping:
        let expected = stage == .sweeping ? RebuildFields.Phase.sweeping : .sendingAgain
        guard fields.phase == expected else { return fail(.overtaken(shard, epoch: fields.epoch)) }
        shards[index].standing = .underWay
      }
    }
    return shards.allSatisfy { $0.standing == .done } ? next(now) : .send([])
  }

  /// The shard refused; it may take the same later, or never.
  package mutating func refused(_ shard: ShardID, _ code: ErrorCode, detail: String, now: Duration) -> Action
  {
    switch code {
    case .busy:
      // It is well, and at another rebuild, such as one that was interrupted, which may take its time.
      if shards.indices.contains(Int(shard.rawValue)) { shards[Int(shard.rawValue)].heardAt = now }
      unanswered(shard, code)
      return .send([])
    case .unavailable, .outcomeUnknown:
      unanswered(shard, code)
      return .send([])
    case .unknownKind, .notImplemented: return fail(.tooOld)
    default: return fail(.refused(shard, code, detail: detail))
    }
  }

  /// The request was given up, or could not be made.
  package mutating func unanswered(_ shard: ShardID, _ refusal: ErrorCode? = nil) {
    let index = Int(shard.rawValue)
    guard shards.indices.contains(index) else { return }
    shards[index].inFlight = nil
    if let refusal { shards[index].refusal = refusal }
  }

  /// Some time has passed: who is at it is asked how far, who has not begun is told again.
  package mutating func tick(now: Duration) -> Action {
    switch stage {
    case .over: return .send([])
    case .connecting: return now > patience ? fail(.unreachable(patience)) : .send([])
    case .asking, .sendingAgain, .sweeping: break
    }
    if let index = shards.firstIndex(where: { $0.standing != .done && now - $0.heardAt > patience }) {
      return fail(.silent(ShardID(UInt16(index)), shards[index].refusal, patience))
    }
    return .send(requests())
  }

  /// How far it is, as of now.
  package var progress: RebuildProgress {
    let step: RebuildProgress.Step =
      switch stage {
      case .connecting: .connecting
      case .asking: .asking
      case .sendingAgain: .sendingAgain
      case .sweeping, .over: .sweeping
      }
    return RebuildProgress(
      step: step,
      epoch: epoch,
      shardsDone: shards.count { $0.standing == .done },
      shardsBusy: shards.count { $0.refusal == .busy },
      shards: shards.count,
      channelsDone: shards.reduce(0) { $0 &+ $1.channelsDone },
      channels: shards.reduce(0) { $0 &+ $1.channels },
      entries: shards.reduce(0) { $0 &+ $1.entries }
    )
  }

  // MARK: -

  private mutating func note(_ fields: RebuildFields, _ index: Int) {
    shards[index].channelsDone = max(shards[index].channelsDone, fields.channelsDone)
    shards[index].channels = max(shards[index].channels, fields.channels)
    shards[index].entries = max(shards[index].entries, fields.entries)
  }

  /// All shards are through the stage.
  private mutating func next(_ now: Duration) -> Action {
    switch stage {
    case .connecting, .over: return .send([])
    case .asking:
      let (above, overflow) = epoch.addingReportingOverflow(1)
      guard !overflow else { return fail(.epochsUsedUp) }
      epoch = above
      summary.epoch = above
      return enter(.sendingAgain, now)
    case .sendingAgain:
      summary.channels = progress.channels
      summary.changes = progress.entries
      return enter(.sweeping, now)
    case .sweeping:
      summary.entries = progress.entries
      stage = .over
      return .finish(summary)
    }
  }

  private mutating func enter(_ stage: Stage, _ now: Duration) -> Action {
    self.stage = stage
    for index in shards.indices { shards[index] = Shard(heardAt: now) }
    return .send(requests())
  }

  private mutating func fail(_ failure: RebuildFailure) -> Action {
    stage = .over
    return .fail(failure)
  }

  /// What each shard that is not done and owes no answer is to be asked.
  private mutating func requests() -> [RebuildRequest] {
    var requests: [RebuildRequest] = []
    for index in shards.indices where shards[index].standing != .done && shards[index].inFlight == nil {
      let kind: RebuildRequest.Kind =
        switch (stage, shards[index].standing) {
        case (.sendingAgain, .due): .sendAgain
        case (.sweeping, .due): .sweep
        default: .ask
        }
      shards[index].inFlight = kind
      requests.append(
        RebuildRequest(kind, shard: ShardID(UInt16(index)), epoch: kind == .ask ? 0 : epoch)
      )
    }
    return requests
  }
}
