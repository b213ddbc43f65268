internal import ReceiptModel
internal import ReceiptWire

/// The purge rounds of a shard, with the requests for them.
final class ShardPurges: ShardPart {
  private var rounds = PurgeRoundMachine()

  /// Answer which round the client must wait for, or that it has ended.
  func perform(_ request: inout Request) throws(WireError) -> Outcome {
    let round = try request.fields.varint()
    try request.fields.end()
    let awaited = rounds.awaitedRound(after: round)
    beginIfDue()
    resume()
    return shard.reply(request, .now) { $0.writeVarint(awaited) }
  }

  /// Begin another round if a request waits for it.
  private func beginIfDue() {
    guard rounds.isDue else { return }
    rounds.begin(through: shard.state.outbox.last)
  }

  /// Start writing pages and trimming the log, once the outbox keeps no change from before the round began.
  func resume() {
    guard case .sending(let through) = rounds.stage, shard.outgoing.areConfirmed(through: through) else {
      return
    }
    shard.outgoing.logConfirmed()
    guard !shard.state.outbox.keepsChanges(through: through) else { return }
    rounds.beginTrimming(through: shard.log.last)
    shard.loop.purges.begin(shard)
  }

  /// Begin to write pages and trim the log up to the last batch that is followed.
  func beginFollowed() {
    rounds.beginTrimming(followed: shard.log.followed)
    shard.loop.purges.begin(shard)
  }

  var isUnderWay: Bool { rounds.isUnderWay }

  /// Return whether a page that has been dirty since `since` must be written for the current round.
  func isPageDue(_ since: LogIndex) -> Bool { rounds.isPageDue(since) }

  /// Whether the storage may be purged for this shard. Requires that no commit is in flight.
  var isLogTrimmed: Bool { rounds.isLogTrimmed(shard.log.trimmed) }

  /// Record that the storage is being purged for this shard.
  func storageBegan() { rounds.beginStoring() }

  /// Handle the end of the storage's purge, or its failure.
  func ended(isDone: Bool) {
    rounds.stored(isDone: isDone)
    beginIfDue()
    resume()
  }
}

/// Purges of the storage, one at a time for all shards that wait for one.
final class StoragePurgeQueue: LoopPart {
  /// Shards whose log must be trimmed for a purge.
  private var trimming: [ShardEngine] = []
  /// Shards that wait for the storage's purge.
  private var waiting: [ShardEngine] = []
  /// Shards that the current purge serves.
  private var current: [ShardEngine] = []

  /// Whether the log of a shard must be trimmed for a purge.
  var needsLogTrim: Bool { !trimming.isEmpty }

  /// Begin a purge for a shard: its log must be trimmed, and then the storage purged.
  func begin(_ shard: ShardEngine) {
    trimming.append(shard)
    advance()
  }

  /// Advance the shards whose log is trimmed far enough. Only while no commit is in flight, because its log trims are
  /// not made yet.
  func advance() {
    guard !loop.commits.isUnderWay, !trimming.isEmpty else { return }
    for shard in trimming where shard.purges.isLogTrimmed {
      shard.purges.storageBegan()
      waiting.append(shard)
    }
    trimming.removeAll { $0.purges.isLogTrimmed }
  }

  /// Start one purge of the storage for all shards that wait for it, unless one is running.
  func start() {
    guard !waiting.isEmpty, current.isEmpty else { return }
    // A follower's purge is one for all shards.
    guard !loop.isFollowing || trimming.isEmpty else { return }
    swap(&waiting, &current)
    loop.driver.purge()
  }

  /// End the purge of the storage. Shards with a pending round begin it.
  func ended(_ result: Result<Void, StorageError>) {
    var isDone = true
    if case .failure(let error) = result {
      isDone = false
      loop.driver.reportError(error)
    }
    for shard in current { shard.purges.ended(isDone: isDone) }
    current.removeAll(keepingCapacity: true)
  }

  override func stop() {
    trimming = []
    waiting = []
    current = []
  }
}

/// Purge rounds, in which a shard removes what it has logged (R16; Proto/frames.md, 0x2B). Rounds run one at a time and
/// are numbered from 1 since the start. Any number of requests may wait for the same round. A pure state machine.
struct PurgeRoundMachine: Equatable {
  enum Stage: Equatable {
    case none
    /// Waits until changes up to this one are delivered, because they name users. Becomes `trimming`.
    case sending(through: UInt64)
    /// Waits until pages are written and the log is trimmed up to this batch. Becomes `storing`.
    case trimming(through: LogIndex)
    /// The log is trimmed, and the storage is purging. Becomes `none`.
    case storing
  }

  private(set) var stage = Stage.none
  /// Whether another node has asked for the current round. It ends for this node alone, so no request waits for it.
  private var isFollowed = false
  /// Completed rounds. A failed round does not count.
  private(set) var ended: UInt64 = 0
  /// A request waits for the next round.
  private var isRequested = false

  var isUnderWay: Bool { stage != .none }

  /// Whether a round must begin.
  var isDue: Bool { stage == .none && isRequested }

  /// Return whether a page that has been dirty since `since` must be written for the current round.
  func isPageDue(_ since: LogIndex) -> Bool {
    if case .trimming(let through) = stage { return since <= through }
    return false
  }

  /// Return whether a log that is trimmed through `trimmed` is trimmed as far as the current round needs.
  func isLogTrimmed(_ trimmed: LogIndex) -> Bool {
    switch stage {
    case .trimming(let through): trimmed >= through
    case .storing: true
    case .none, .sending: false
    }
  }

  /// Return the round to wait for: the first round that begins after the initial request, whatever is in progress.
  ///
  /// A round number from before the last restart is treated as a current one where possible. That errs on the safe
  /// side: every round since the start covers everything that was durable at the start. A number that is too high is
  /// lowered, because the wait would be too long.
  ///
  /// - Parameter round: the round that an earlier answer named; 0 in the initial request.
  /// - Returns: 0 if that round has ended.
  mutating func awaitedRound(after round: UInt64) -> UInt64 {
    if round > 0, round <= ended { return 0 }
    let next = ended + (isUnderWay ? 2 : 1)
    let awaited = round == 0 ? next : min(round, next)
    if awaited == next { isRequested = true }
    return awaited
  }

  /// - Parameter last: number of the last membership change in the outbox.
  mutating func begin(through last: UInt64) {
    assert(isDue)
    isRequested = false
    stage = .sending(through: last)
  }

  mutating func beginTrimming(through index: LogIndex) {
    if case .sending = stage { stage = .trimming(through: index) }
  }

  /// Begin a round that another node has asked for. Requires that none is under way.
  mutating func beginTrimming(followed index: LogIndex) {
    assert(stage == .none)
    stage = .trimming(through: index)
    isFollowed = true
  }

  mutating func beginStoring() {
    if case .trimming = stage { stage = .storing }
  }

  /// - Parameter isDone: false if the storage failed. Waiting clients ask again, which begins the round again.
  mutating func stored(isDone: Bool) {
    guard case .storing = stage else { return }
    stage = .none
    if isDone, !isFollowed { ended += 1 }
    isFollowed = false
  }
}
