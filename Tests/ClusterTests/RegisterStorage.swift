import StoreEngine
import TestSupport

/// A client's command: it sets a register. Its counter makes a resent command a duplicate.
struct Write: Hashable {
  static let registerCount = 4

  var client: UInt16
  var counter: UInt32
  var register: UInt8

  private static let byteCount = 7

  static func encode(_ writes: [Write]) -> [UInt8] {
    var bytes: [UInt8] = []
    for write in writes {
      for shift in [8, 0] { bytes.append(UInt8(truncatingIfNeeded: write.client >> shift)) }
      for shift in [24, 16, 8, 0] { bytes.append(UInt8(truncatingIfNeeded: write.counter >> shift)) }
      bytes.append(write.register)
    }
    return bytes
  }

  static func decode(_ bytes: [UInt8]) -> [Write] {
    var writes: [Write] = []
    for at in stride(from: 0, to: bytes.count, by: byteCount) {
      var write = Write(client: 0, counter: 0, register: bytes[at + 6])
      for byte in bytes[at..<at + 2] { write.client = write.client << 8 | UInt16(byte) }
      for byte in bytes[at + 2..<at + 6] { write.counter = write.counter << 8 | UInt32(byte) }
      writes.append(write)
    }
    return writes
  }
}

/// The state of a group's shards, as far as the simulation needs one: registers and sessions.
struct RegisterShard {
  /// The write that each register shows.
  private(set) var registers = [Write?](repeating: nil, count: Write.registerCount)
  /// The highest counter applied of each client.
  private var counters: [UInt16: UInt32] = [:]

  func isApplied(_ write: Write) -> Bool { counters[write.client, default: 0] >= write.counter }

  mutating func apply(_ record: GroupRecord) {
    guard record.kind == .batches else { return }
    for write in Write.decode(record.payload) {
      registers[Int(write.register)] = write
      counters[write.client] = write.counter
    }
  }
}

/// A member's storage of a ``RegisterGroup``: a prefix of the group's records.
final class RegisterStorage: SimulatedStorage {
  private(set) var records: [GroupRecord] = []
  private var syncedCount = 0

  var cursor: LogCursor { records.last.map(LogCursor.init(after:)) ?? .start }
  var position: RecordPosition { RecordPosition(UInt64(records.count)) }
  var synced: RecordPosition { RecordPosition(UInt64(syncedCount)) }

  func append(_ record: GroupRecord) { records.append(record) }
  /// Replace everything, durably.
  func install(_ records: [GroupRecord]) {
    self.records = records
    sync()
  }

  func removeAll() { install([]) }

  func sync() { syncedCount = records.count }
  func crash(_ random: inout SplitMix64) {
    records.removeLast(random.below(records.count - syncedCount + 1))
  }

  func shard() -> RegisterShard { records.reduce(into: RegisterShard()) { $0.apply($1) } }

  func makeGroup(_ id: GroupID, _ process: SimulatedProcess) -> any SimulatedGroup {
    RegisterGroup(id: id, storage: self, process: process)
  }

  func check(_ oracle: ClusterOracle, _ node: NodeID, _ group: GroupID) {
    oracle.check(node, group, stored: records)
  }
}
