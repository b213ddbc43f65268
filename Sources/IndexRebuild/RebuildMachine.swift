package import ReceiptModel
package import ReceiptWire

/// `rebuild_index` request to one shard (Proto/frames.md).
package struct RebuildRequest: Hashable, Sendable {
  package enum Kind: UInt8, Sendable {
    case ask = 0
    case resend = 1
    case sweep = 2
  }

  package var shard: ShardID
  package var kind: Kind
  /// 0 for requests that only ask.
  package var epoch: UInt64

  package init(_ kind: Kind, shard: ShardID, epoch: UInt64 = 0) {
    self.shard = shard
    self.kind = kind
    self.epoch = epoch
  }
}

/// State machine that rebuilds the index of users' channels of a whole store, one epoch above all existing ones. First
/// every shard sends all its memberships again. When all are done, every shard drops the index entries that were not
/// sent (R13, R14). Events go in, actions come out.
///
/// A shard forgets a rebuild at a restart, which also ends its connections. Steps in progress when the connection was
/// lost are therefore started again, which does no harm if the shard has continued.
package struct RebuildMachine: Sendable {
  package enum Action: Hashable, Sendable {
    /// Requests to send, each once; empty: just wait.
    case send([RebuildRequest])
    case finish(RebuildSummary)
    case fail(RebuildFailure)
  }

  /// Stage of the rebuild, common to all shards.
  private enum Stage {
    /// No store has been reached yet. Next: asking.
    case connecting
    /// Each shard is asked for its epoch. Next: resending.
    case asking
    /// Next: sweeping.
    case resending
    /// Next: over.
    case sweeping
    case over
  }

  private enum Standing {
    /// The stage's request must be sent, or sent again. Next: inProgress, done.
    case due
    /// The shard works on it, and is asked for its progress. Next: done; after a lost connection due.
    case inProgress
    case done
  }

  private struct Shard {
    var progress = Standing.due
    /// The request that is unanswered.
    var inFlight: RebuildRequest.Kind?
    /// Time of the shard's last reply.
    var lastReplyAt: Duration
    /// Error of the last attempt since then.
    var refusal: ErrorCode?
    /// Highest progress reported in this stage: reports after its end are not reliable.
    var channelsDone: UInt64 = 0
    var channels: UInt64 = 0
    var entries: UInt64 = 0
  }

  /// Timeout for an unresponsive shard.
  private let responseTimeout: Duration
  private var stage = Stage.connecting
  private var shards: [Shard] = []
  /// Highest epoch of any shard; from resending on, the epoch above that.
  private var epoch: UInt64 = 0
  private var summary = RebuildSummary()

  package init(responseTimeout: Duration) { self.responseTimeout = responseTimeout }

  /// Number of shards of the store; 0 before the first connection.
  package var shardCount: Int { shards.count }

  // MARK: - Events; `now` is the time since the rebuild began

  /// Handle a new connection to the store, the first or a later one.
  package mutating func connected(shardCount: Int, now: Duration) -> Action {
    guard case .connecting = stage else {
      return shardCount == shards.count ? .send([]) : fail(.otherStore)
    }
    shards = Array(repeating: Shard(lastReplyAt: now), count: shardCount)
    summary.shards = shardCount
    return enter(.asking, now)
  }

  /// Handle a lost connection: shards may have lost their progress.
  package mutating func connectionLost() {
    for index in shards.indices where shards[index].progress == .inProgress { shards[index].progress = .due }
  }

  package mutating func replied(_ shard: ShardID, _ fields: RebuildIndexReply, now: Duration) -> Action {
    let index = Int(shard.rawValue)
    guard shards.indices.contains(index), let request = shards[index].inFlight else { return .send([]) }
    shards[index].inFlight = nil
    shards[index].lastReplyAt = now
    shards[index].refusal = nil
    switch stage {
    case .connecting, .over: return .send([])
    case .asking:
      epoch = max(epoch, fields.epoch)
      shards[index].progress = .done
    case .resending, .sweeping:
      guard fields.epoch <= epoch else { return fail(.superseded(shard, epoch: fields.epoch)) }
      // This reply is from before the connection was lost, and does not describe the stage to be started again.
      if request == .ask, shards[index].progress == .due { return .send(requests()) }
      guard fields.epoch == epoch else { return fail(.epochNotAdopted(shard)) }
      record(fields, index)
      switch fields.phase {
      case .none: shards[index].progress = .done
      case .resending, .sweeping:
        let expected = stage == .sweeping ? RebuildIndexReply.Phase.sweeping : .resending
        guard fields.phase == expected else { return fail(.superseded(shard, epoch: fields.epoch)) }
        shards[index].progress = .inProgress
      }
    }
    return shards.allSatisfy { $0.progress == .done } ? next(now) : .send([])
  }

  /// Handle an error from a shard, which may be temporary or final.
  package mutating func refused(_ shard: ShardID, _ code: ErrorCode, detail: String, now: Duration) -> Action {
    switch code {
    case .busy:
      // The shard is healthy but busy with another rebuild, such as an interrupted one, which may take long.
      if shards.indices.contains(Int(shard.rawValue)) { shards[Int(shard.rawValue)].lastReplyAt = now }
      requestFailed(shard, code)
      return .send([])
    case .unavailable, .outcomeUnknown:
      requestFailed(shard, code)
      return .send([])
    case .unknownKind, .notImplemented: return fail(.unsupportedByStore)
    default: return fail(.refused(shard, code, detail: detail))
    }
  }

  /// Record that a request was dropped, or could not be sent.
  package mutating func requestFailed(_ shard: ShardID, _ refusal: ErrorCode? = nil) {
    let index = Int(shard.rawValue)
    guard shards.indices.contains(index) else { return }
    shards[index].inFlight = nil
    if let refusal { shards[index].refusal = refusal }
  }

  /// Advance the time: ask busy shards for progress, and send the stage's request again where it is due.
  package mutating func tick(now: Duration) -> Action {
    switch stage {
    case .over: return .send([])
    case .connecting: return now > responseTimeout ? fail(.unreachable(responseTimeout)) : .send([])
    case .asking, .resending, .sweeping: break
    }
    if let index = shards.firstIndex(where: { $0.progress != .done && now - $0.lastReplyAt > responseTimeout }) {
      return fail(.silent(ShardID(UInt16(index)), shards[index].refusal, responseTimeout))
    }
    return .send(requests())
  }

  /// Current progress.
  package var progress: RebuildProgress {
    let shown: RebuildProgress.Stage =
      switch stage {
      case .connecting: .connecting
      case .asking: .asking
      case .resending: .resending
      case .sweeping, .over: .sweeping
      }
    return RebuildProgress(
      stage: shown,
      epoch: epoch,
      shardsDone: shards.count { $0.progress == .done },
      shardsBusy: shards.count { $0.refusal == .busy },
      shards: shards.count,
      channelsDone: shards.reduce(0) { $0 &+ $1.channelsDone },
      channels: shards.reduce(0) { $0 &+ $1.channels },
      entries: shards.reduce(0) { $0 &+ $1.entries }
    )
  }

  // MARK: -

  private mutating func record(_ fields: RebuildIndexReply, _ index: Int) {
    shards[index].channelsDone = max(shards[index].channelsDone, fields.channelsDone)
    shards[index].channels = max(shards[index].channels, fields.channels)
    shards[index].entries = max(shards[index].entries, fields.entries)
  }

  /// Move to the next stage after all shards have finished this one.
  private mutating func next(_ now: Duration) -> Action {
    switch stage {
    case .connecting, .over: return .send([])
    case .asking:
      let (above, overflow) = epoch.addingReportingOverflow(1)
      guard !overflow else { return fail(.epochsExhausted) }
      epoch = above
      summary.epoch = above
      return enter(.resending, now)
    case .resending:
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
    for index in shards.indices { shards[index] = Shard(lastReplyAt: now) }
    return .send(requests())
  }

  private mutating func fail(_ failure: RebuildFailure) -> Action {
    stage = .over
    return .fail(failure)
  }

  /// Return the next request for each shard that is neither done nor waiting for a reply.
  private mutating func requests() -> [RebuildRequest] {
    var requests: [RebuildRequest] = []
    for index in shards.indices where shards[index].progress != .done && shards[index].inFlight == nil {
      let kind: RebuildRequest.Kind =
        switch (stage, shards[index].progress) {
        case (.resending, .due): .resend
        case (.sweeping, .due): .sweep
        default: .ask
        }
      shards[index].inFlight = kind
      requests.append(RebuildRequest(kind, shard: ShardID(UInt16(index)), epoch: kind == .ask ? 0 : epoch))
    }
    return requests
  }
}
