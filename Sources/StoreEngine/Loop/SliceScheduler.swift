internal import DequeModule
internal import ReceiptModel

/// Work that is too much for one turn and runs in slices: long queries, wide requests, loads and index work. It owns
/// the turns of the shards with such work, by kind; the first has the next turn.
final class SliceScheduler: LoopPart {
  private var isSliceRequested = false
  /// Shards with sliced queries.
  private var querying = ShardQueue()
  /// Shards with more index work than one turn has room for.
  private var working = ShardQueue()
  /// Shards with postponed requests.
  private var postponing = ShardQueue()
  /// Whether arrived channels go before postponed requests in this slice; alternates.
  private var isArrivalsTurn = false

  /// Whether a shard has sliced queries.
  var hasQueries: Bool { !querying.isEmpty }

  /// Run one slice of pending work.
  func run() {
    isSliceRequested = false
    if hasRoomInNextCommit { runWork() }
    if let shard = querying.popFirstWithRoom() {
      shard.waiting.runSlice()
      if shard.waiting.hasSlices { querying.append(shard) }
    }
    requestSlice()
  }

  /// Whether more wide work may join the next commit.
  private var hasRoomInNextCommit: Bool {
    !loop.commits.isUnderWay || loop.commits.nextCommitBytes < loop.configuration.nextCommitBytesMax
  }

  /// Run one slice of everything but long queries.
  private func runWork() {
    loop.budget.beginSlice()
    isArrivalsTurn.toggle()
    if isArrivalsTurn { loop.memory.installLoaded() }
    performPostponed()
    if !isArrivalsTurn { loop.memory.installLoaded() }
    for _ in 0..<working.count where loop.budget.changes > 0 {
      guard let shard = working.popFirstWithRoom() else { break }
      shard.resumeIndexWork()
      shard.scans.resume()
      shard.timers.resume()
    }
  }

  /// Perform postponed requests, one from each shard in turn.
  private func performPostponed() {
    while loop.budget.entries > 0, let shard = postponing.popFirst() {
      shard.waiting.performPostponed()
      if shard.waiting.hasPostponed { postponing.append(shard) }
    }
  }

  /// Request a slice if there is pending work. Work of a shard with a full batch resumes when the batch is closed. If
  /// there is no room behind the commit, work resumes at its end.
  func requestSlice() {
    guard !isSliceRequested else { return }
    let isWanted = working.hasShardWithRoom || !postponing.isEmpty || loop.memory.hasArrived
    guard querying.hasShardWithRoom || isWanted && hasRoomInNextCommit else { return }
    isSliceRequested = true
    loop.driver.sliceLater()
  }

  override func stop() {
    isSliceRequested = false
    querying = ShardQueue()
    working = ShardQueue()
    postponing = ShardQueue()
    isArrivalsTurn = false
  }

  // MARK: For the shards

  /// Queue a shard that has postponed requests.
  func queueForPostponed(_ shard: ShardEngine) {
    postponing.append(shard)
    requestSlice()
  }

  /// Queue a shard that has sliced queries.
  func queueForSlices(_ shard: ShardEngine) {
    querying.append(shard)
    requestSlice()
  }

  /// Queue a shard that has more index work for a later turn.
  func queueForWork(_ shard: ShardEngine) {
    working.append(shard)
    requestSlice()
  }
}

/// Shards that wait for their turn, each once.
private struct ShardQueue {
  private var shards: Deque<ShardEngine> = []
  /// Whether each shard is queued, by its index in the loop.
  private var isQueued: [Bool] = []

  var isEmpty: Bool { shards.isEmpty }
  var count: Int { shards.count }

  /// Whether a shard is queued whose open batch has room for more work.
  var hasShardWithRoom: Bool { shards.contains { !$0.isBatchFull } }

  /// Append a shard, unless it is queued.
  mutating func append(_ shard: ShardEngine) {
    while isQueued.count <= shard.indexInLoop { isQueued.append(false) }
    guard !isQueued[shard.indexInLoop] else { return }
    isQueued[shard.indexInLoop] = true
    shards.append(shard)
  }

  /// Remove and return the first shard.
  mutating func popFirst() -> ShardEngine? {
    guard let shard = shards.popFirst() else { return nil }
    isQueued[shard.indexInLoop] = false
    return shard
  }

  /// Remove and return the first shard whose open batch has room for more work.
  mutating func popFirstWithRoom() -> ShardEngine? {
    guard let index = shards.firstIndex(where: { !$0.isBatchFull }) else { return nil }
    let shard = shards.remove(at: index)
    isQueued[shard.indexInLoop] = false
    return shard
  }
}

/// Work that the shards of a loop may still do: index work until the next slice, and long queries in this turn.
struct TurnBudget {
  private let configuration: StoreLoopConfiguration
  /// Index changes that may still be applied, and entries left of ``StoreLoopConfiguration/entriesPerTurn``, until the
  /// next slice. Not until the turn ends: many turns may run before a socket is read again.
  private(set) var changes: Int
  private(set) var entries: Int
  /// Rows that long queries may still scan in this turn.
  private(set) var rows: Int
  /// Effects that erasures of users may still add in this turn.
  private(set) var effects: Int

  init(_ configuration: StoreLoopConfiguration) {
    self.configuration = configuration
    changes = configuration.changesPerTurn
    entries = configuration.entriesPerTurn
    rows = configuration.sliceRows
    effects = configuration.sliceEffects
  }

  mutating func beginTurn() {
    rows = configuration.sliceRows
    effects = configuration.sliceEffects
  }

  mutating func beginSlice() {
    changes = configuration.changesPerTurn
    entries = configuration.entriesPerTurn
  }

  mutating func useChanges(_ count: Int) { changes -= count }
  mutating func useEntries(_ count: Int) { entries -= count }
  mutating func useRows(_ count: Int) { rows -= count }
  mutating func useEffects(_ count: Int) { effects -= count }

  /// Allow at least one change.
  mutating func allowChange() { changes = max(changes, 1) }

  /// Allow a short query's rows at least.
  mutating func allowShortRows() { rows = max(rows, configuration.shortRows) }
}
