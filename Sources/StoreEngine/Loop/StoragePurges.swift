internal import ReceiptModel

/// Purges of the storage, one at a time for all shards that wait for one.
final class StoragePurges: LoopPart {
  /// Shards whose log must be cut for a purge.
  private var cutting: [ShardEngine] = []
  /// Shards that wait for the storage's purge.
  private var waiting: [ShardEngine] = []
  /// Shards that the current purge serves.
  private var current: [ShardEngine] = []

  /// Whether the log of a shard must be cut for a purge.
  var needsCut: Bool { !cutting.isEmpty }

  /// Begin a purge for a shard: its log must be cut, and then the storage purged.
  func begin(_ shard: ShardEngine) {
    cutting.append(shard)
    advance()
  }

  /// Advance the shards whose log is cut far enough. Only while no commit is in flight, because its cuts are not made
  /// yet.
  func advance() {
    guard !loop.commits.isUnderWay, !cutting.isEmpty else { return }
    for shard in cutting where shard.purges.isLogCut {
      shard.purges.storageBegan()
      waiting.append(shard)
    }
    cutting.removeAll { $0.purges.isLogCut }
  }

  /// Start one purge of the storage for all shards that wait for it, unless one is running.
  func start() {
    guard !waiting.isEmpty, current.isEmpty else { return }
    swap(&waiting, &current)
    loop.driver.purge()
  }

  /// End the purge of the storage. Shards with a pending round begin it.
  func ended(_ result: Result<Void, StorageError>) {
    var isDone = true
    if case .failure(let error) = result {
      isDone = false
      loop.driver.report(error)
    }
    for shard in current { shard.purges.ended(isDone: isDone) }
    current.removeAll(keepingCapacity: true)
  }

  override func stop() {
    cutting = []
    waiting = []
    current = []
  }
}
