import ReceiptModel
import StoreEngine
import StoreTestSupport
import TestSupport

/// A member's storage of a ``StoreGroup``. Commits are unsynced until ``sync()``: a crash loses the last ones.
final class StoreStorage: SimulatedStorage {
  private let registers: StoreRegisters
  private(set) var data: StoredData
  private(set) var cursor = LogCursor.start
  /// The synced content, and the commits since.
  private var syncedData: StoredData
  private var syncedCursor = LogCursor.start
  private var unsynced: [LoopCommit] = []
  private(set) var keys: [RecordKey] = []

  init(_ registers: StoreRegisters) {
    self.registers = registers
    data = registers.initialData
    syncedData = data
  }

  var position: RecordPosition { cursor.position }
  var synced: RecordPosition { syncedCursor.position }

  func commit(_ commit: LoopCommit) {
    data.apply(commit)
    if let position = commit.position { cursor = position.cursor }
    unsynced.append(commit)
  }

  /// Replace everything, durably.
  func install(_ data: StoredData, _ cursor: LogCursor) {
    self.data = data
    self.cursor = cursor
    sync()
  }

  func removeAll() {
    keys = []
    install(registers.initialData, .start)
  }

  /// Replace the record keys, durably, with everything before them.
  func replaceKeys(_ keys: [RecordKey]) {
    self.keys = keys
    sync()
  }

  func sync() {
    syncedData = data
    syncedCursor = cursor
    unsynced = []
  }

  func crash(_ random: inout SplitMix64) {
    let kept = unsynced.prefix(random.below(unsynced.count + 1))
    data = syncedData
    cursor = syncedCursor
    unsynced = []
    for write in kept { commit(write) }
  }

  func makeGroup(_ id: GroupID, _ process: SimulatedProcess) -> any SimulatedGroup {
    StoreGroup(id: id, storage: self, registers: registers, process: process)
  }

  func check(_ oracle: ClusterOracle, _ node: NodeID, _ group: GroupID) {
    oracle.check(node, group, registers: registers.stored(data, group))
  }
}
