import DequeModule
import ReceiptModel

/// The shards that have a part in a commit, and what is between two of them.
struct CommitTurns {
  var isUnderWay = false
  var gathering: [ShardEngine] = []
  var inFlight: [ShardEngine] = []
  /// Those with segments of steps in the commit that is under way, and those with some to be deleted.
  var withSegments: [ShardEngine] = []
  var trimming: [ShardEngine] = []
  /// Those with deleted channels whose pages are to be dropped, or are being dropped.
  var dropping: [ShardEngine] = []
  /// Those whose log has to be cut for a purge, those that wait for the storage to purge itself, and those for which it
  /// does.
  var purging: [ShardEngine] = []
  var purgeable: [ShardEngine] = []
  var purged: [ShardEngine] = []
  /// The shard whose due pages come first.
  var pagePosition = 0

  /// What gathered is under way; the next gathers behind it.
  mutating func begin() {
    swap(&gathering, &inFlight)
    isUnderWay = true
  }

  /// The storage purges itself for those that wait for it.
  mutating func beginPurge() { swap(&purgeable, &purged) }
}

/// Group commit: one append in flight, the next one gathering behind it; and what a purge of the storage waits for.
extension StoreLoop {
  func startCommit(isTick: Bool = false) {
    guard !commits.isUnderWay else { return }
    var group = CommitGroup()
    // Cuts first: pages that leave with this group are not on storage yet.
    for shard in shards {
      if let cut = shard.takeCut(batchesMin: isTick ? 1 : configuration.cutBatchesMin) {
        group.cuts.append(cut)
      }
    }
    for shard in commits.dropping { shard.takeDrops(into: &group) }
    for shard in commits.trimming { shard.takeTrims(into: &group) }
    commits.trimming.removeAll { !$0.hasTrims }
    for shard in commits.gathering { group.batches.append(shard.closeBatch()) }
    gatheredBytes = 0
    var budget = configuration.checkpointSliceBytes
    // Each time another shard's pages come first.
    commits.pagePosition = (commits.pagePosition + 1) % max(1, shards.count)
    for offset in shards.indices where budget > 0 {
      budget -= shards[(commits.pagePosition + offset) % shards.count].addDuePages(to: &group, budget: budget)
    }
    guard !group.isEmpty else { return }
    commits.begin()
    swap(&gatheringLanes, &inFlightLanes)
    for lane in inFlightLanes { lane.gatheringLeaves() }
    counters.commits += 1
    counters.batches += UInt64(group.batches.count)
    counters.pagesWritten += UInt64(group.pages.count)
    driver.commit(group)
  }

  /// The commit that was asked for is durable, or has failed.
  package func committed(_ result: Result<Void, StorageError>) {
    guard !isHalted else { return }
    precondition(commits.isUnderWay, "no commit was asked for")
    commits.isUnderWay = false
    if case .failure(let error) = result {
      halt(error)
      return
    }
    for shard in commits.inFlight { shard.committed() }
    for shard in commits.withSegments { shard.segmentsWritten() }
    commits.withSegments.removeAll(keepingCapacity: true)
    commits.inFlight.removeAll(keepingCapacity: true)
    for shard in commits.dropping { shard.dropsCommitted() }
    commits.dropping.removeAll { $0.deletions.isEmpty }
    advancePurges()
    swap(&inFlightLanes, &deliveringLanes)
    deliver { $0.deliverInFlight() }
    guard !isHalted else { return }
    keepToBudget()
    // Without requests too: while pages are due, one slice of them follows the other.
    startCommit()
    startPurge()
    askForSlice()
    post()
  }

  /// What waits is dropped, never answered: whether the append is on storage is not known (DESIGN.md section 3).
  private func halt(_ error: StorageError) {
    stop()
    driver.halted(error)
  }

  /// Storage has failed outside a commit: what was acknowledged may not be durable, and what is in memory may be ahead
  /// of it.
  package func fail(_ error: StorageError) {
    guard !isHalted else { return }
    halt(error)
  }

  /// Takes and answers nothing from here on, and asks nothing of the driver; what waits is dropped. For a storage that
  /// is to be closed.
  package func stop() {
    isHalted = true
    for lane in nowLanes + inFlightLanes + gatheringLanes + Array(lanes.values) { lane.isClosed = true }
    lanes = [:]
    loads = LoadQueue()
    nowLanes = []
    inFlightLanes = []
    gatheringLanes = []
    commits = CommitTurns()
    for shard in turns.slicing { shard.slicedQueries = [] }
    for shard in turns.postponing { shard.postponed = [] }
    turns = SliceTurns()
    deliveries = []
    acknowledgements = []
    for shard in shards {
      shard.outgoing.held = []
      shard.erasures.removeAll()
      shard.endings = []
    }
  }

  // MARK: For the shards

  func writesSegments(_ shard: ShardEngine) { commits.withSegments.append(shard) }

  func trims(_ shard: ShardEngine) { commits.trimming.append(shard) }

  func drops(_ shard: ShardEngine) { commits.dropping.append(shard) }

  func gathers(_ shard: ShardEngine) { commits.gathering.append(shard) }

  // MARK: Purge

  /// A shard's log has to be cut, and the storage to purge itself.
  func purges(_ shard: ShardEngine) {
    commits.purging.append(shard)
    advancePurges()
  }

  /// Those whose log is cut far enough wait for the storage. Only while no commit is under way: the cuts in it are not
  /// made yet.
  private func advancePurges() {
    guard !commits.isUnderWay, !commits.purging.isEmpty else { return }
    for shard in commits.purging where shard.isCutForPurge {
      shard.purgeIsStoring()
      commits.purgeable.append(shard)
    }
    commits.purging.removeAll { $0.isCutForPurge }
  }

  /// One purge of the storage is for all shards that wait for it.
  func startPurge() {
    guard !commits.purgeable.isEmpty, commits.purged.isEmpty else { return }
    commits.beginPurge()
    driver.purge()
  }

  /// The storage has purged itself, or could not. Shards with a round to come begin it.
  package func purged(_ result: Result<Void, StorageError>) {
    guard !isHalted else { return }
    var isDone = true
    if case .failure(let error) = result {
      isDone = false
      driver.reports(error)
    }
    for shard in commits.purged { shard.purgeEnded(isDone: isDone) }
    commits.purged.removeAll(keepingCapacity: true)
    endTurn()
  }
}
