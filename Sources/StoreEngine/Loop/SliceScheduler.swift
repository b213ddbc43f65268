internal import DequeModule
internal import ReceiptModel

/// Work that is too much for one turn and runs in slices: long queries, wide requests, loads and index work. It owns
/// the turns of the shards with such work, by kind; the first has the next turn.
final class SliceScheduler: LoopPart {
  private var isSliceRequested = false
  /// Shards with sliced queries.
  private var querying: Deque<ShardEngine> = []
  /// Shards with more index work than one turn has room for.
  private var working: Deque<ShardEngine> = []
  /// Whether each shard is in `working`, by its position in the loop.
  private var isWorking: [Bool] = []
  /// Shards with postponed requests.
  private var postponing: Deque<ShardEngine> = []
  /// Whether arrived channels go before postponed requests in this slice; alternates.
  private var isArrivalsTurn = false

  /// Whether a shard has sliced queries.
  var hasQueries: Bool { !querying.isEmpty }

  /// Run one slice of pending work.
  func run() {
    isSliceRequested = false
    if hasRoomInNextCommit { runWork() }
    if let index = querying.firstIndex(where: { !$0.isBatchFull }) {
      let shard = querying.remove(at: index)
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
    for _ in working.indices where loop.budget.changes > 0 {
      guard let index = working.firstIndex(where: { !$0.isBatchFull }) else { break }
      let shard = working.remove(at: index)
      isWorking[shard.position] = false
      shard.resumeIndexWork()
      shard.scans.resume()
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
    let isWanted =
      working.contains { !$0.isBatchFull } || !postponing.isEmpty || loop.memory.hasArrived
    guard querying.contains(where: { !$0.isBatchFull }) || isWanted && hasRoomInNextCommit else { return }
    isSliceRequested = true
    loop.driver.sliceLater()
  }

  override func stop() {
    isSliceRequested = false
    querying = []
    working = []
    isWorking = []
    postponing = []
    isArrivalsTurn = false
  }

  // MARK: For the shards

  /// Register a shard that has postponed its first request.
  func queueForPostponed(_ shard: ShardEngine) {
    // Still queued if its earlier requests were cancelled.
    if !postponing.contains(where: { $0 === shard }) { postponing.append(shard) }
    requestSlice()
  }

  /// Register a shard that has suspended its first query.
  func queueForSlices(_ shard: ShardEngine) {
    if !querying.contains(where: { $0 === shard }) { querying.append(shard) }
    requestSlice()
  }

  /// Register a shard that has more index work for a later turn.
  func queueForWork(_ shard: ShardEngine) {
    while isWorking.count <= shard.position { isWorking.append(false) }
    guard !isWorking[shard.position] else { return }
    isWorking[shard.position] = true
    working.append(shard)
    requestSlice()
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
