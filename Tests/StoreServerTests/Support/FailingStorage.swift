import ReceiptModel
import StoreEngine
import StoreTestSupport
import Synchronization

/// Storage in memory that fails or blocks on request. It is also the source that a server opens it from: reopened, it
/// has everything that was committed.
///
/// It stores no channels: these tests send requests that need none.
final class FailingStorage: StorageEngine, ReopenableStorage {
  private struct State {
    var data = StoredData()
    var positions: [GroupID: LogCursor] = [:]
    var keys: [GroupID: [RecordKey]] = [:]
    var purges = 0
    var failure: StorageError?
    var openFailure: StorageError?
    var locationFault: String?
    var beforeCommit: @Sendable () -> Void = {}
    var snapshot: (any GroupSnapshot)?
    var syncs = 0
    var opens = 0
    var recoveries: [ShardID: Int] = [:]
    var removals: [GroupID] = []
  }

  let shardCount: Int
  let store = SessionID(high: 9, low: 9)
  private let state = Mutex(State())

  init(shardCount: Int = 2) { self.shardCount = shardCount }

  /// Error of every later commit and sync; nil: they succeed.
  var failure: StorageError? {
    get { state.withLock { $0.failure } }
    set { state.withLock { $0.failure = newValue } }
  }

  /// Error of every later attempt to open the storage; nil: it opens.
  var openFailure: StorageError? {
    get { state.withLock { $0.openFailure } }
    set { state.withLock { $0.openFailure = newValue } }
  }

  var locationFault: String? {
    get { state.withLock { $0.locationFault } }
    set { state.withLock { $0.locationFault = newValue } }
  }

  /// Called at the start of each commit, on its thread; may block it.
  var beforeCommit: @Sendable () -> Void {
    get { state.withLock { $0.beforeCommit } }
    set { state.withLock { $0.beforeCommit = newValue } }
  }

  /// What each group's snapshot is; nil: none can be made.
  var snapshot: (any GroupSnapshot)? {
    get { state.withLock { $0.snapshot } }
    set { state.withLock { $0.snapshot = newValue } }
  }

  /// Syncs so far, failed ones included.
  var syncs: Int { state.withLock { $0.syncs } }

  /// Attempts to open the storage so far.
  var opens: Int { state.withLock { $0.opens } }

  /// Purges so far.
  var purges: Int { state.withLock { $0.purges } }

  /// How many times a shard was read back so far.
  func recoveries(of shard: UInt16) -> Int { state.withLock { $0.recoveries[ShardID(shard)] ?? 0 } }

  /// Groups whose data was removed, in order.
  var removals: [GroupID] { state.withLock { $0.removals } }

  // MARK: ReopenableStorage

  func open() throws(StorageError) -> any StorageEngine {
    let failure = state.withLock { state in
      state.opens += 1
      return state.openFailure
    }
    if let failure { throw failure }
    return self
  }

  func close(_ storage: any StorageEngine) {}

  // MARK: StorageEngine

  /// The keys stay, as if another node gave them again.
  func remove(_ group: GroupShards) throws(StorageError) {
    state.withLock { state in
      state.removals.append(group.group)
      state.positions[group.group] = nil
      for shard in group.shards { state.data.removeAll(of: ShardID(shard)) }
    }
  }

  func commit(_ commit: LoopCommit) throws(StorageError) {
    beforeCommit()
    if let failure { throw failure }
    state.withLock { state in
      state.data.apply(commit)
      if let position = commit.position { state.positions[position.group] = position.cursor }
    }
  }

  func sync() throws(StorageError) {
    state.withLock { $0.syncs += 1 }
    if let failure { throw failure }
  }

  func read(_ shard: ShardID, _ channel: ChannelReference) throws(StorageError) -> StoredChannel? { nil }

  func readPages(
    _ shard: ShardID,
    _ channel: ChannelReference,
    _ selection: PageSelection
  ) throws(StorageError) -> StoredChannel? { nil }

  func readSteps(
    _ shard: ShardID,
    _ channel: ChannelNumber,
    rowPage: UInt32,
    segments: Range<UInt32>
  ) throws(StorageError) -> [StoredSegment] { [] }

  func purge() throws(StorageError) { state.withLock { $0.purges += 1 } }

  func recordKeys(of group: GroupID) throws(StorageError) -> [RecordKey] { state.withLock { $0.keys[group] ?? [] } }

  func replaceRecordKeys(_ keys: [RecordKey], of group: GroupID) throws(StorageError) {
    if let failure { throw failure }
    state.withLock { $0.keys[group] = keys }
  }

  func makeSnapshot(of group: GroupShards) throws(StorageError) -> any GroupSnapshot {
    guard let snapshot else { throw .unusable("no snapshot can be made") }
    return snapshot
  }

  func recover(_ shard: ShardID) throws(StorageError) -> StoredShard {
    state.withLock { state in
      state.recoveries[shard, default: 0] += 1
      return state.data.recover(shard)
    }
  }

  func position(of group: GroupID) throws(StorageError) -> LogCursor {
    state.withLock { $0.positions[group] ?? .start }
  }
}
