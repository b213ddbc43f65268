internal import ReceiptModel

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
    trimming = []
    waiting = []
    current = []
  }
}
