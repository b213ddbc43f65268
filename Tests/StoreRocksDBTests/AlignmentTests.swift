import NIOCore
import ReceiptModel
import ReceiptWire
import StoreEngine
import Testing

@testable import StoreRocksDB

/// A node's directory becomes a single store's, as by a restore and by `--leave-cluster`.
@Suite("Alignment of a directory")
struct AlignmentTests {
  @Test("groups of different moments are aligned with the new identity, while their logs have batches")
  func directoryIsAlignedWithItsIdentity() throws {
    let directory = TestDirectory()
    let harness = try ErasureHarness(directory)
    // Both logs have batches, and one shard a newer version of a type.
    for shard in (0..<UInt16(ErasureHarness.shardCount)).map(ShardID.init) {
      harness.send(.assignChannelType, "team", shard: shard) { Self.write(version: 3 + UInt64(shard.rawValue), &$0) }
    }
    harness.turn()
    #expect(harness.faults == [])
    let node = SessionID(high: 1, low: 2)
    let store = SessionID(high: 3, low: 4)
    let position = GroupCursor(group: GroupID(0), cursor: LogCursor.start)
    try harness.engine.adopt(store: node, [position])
    #expect(try harness.engine.isOfCluster)
    #expect(try harness.engine.makeSingleStore(store) == ShardAlignment.Report(changes: 0, settings: 1))
    try harness.restart()
    #expect(try harness.engine.identity.store == store && !harness.engine.isOfCluster)
    let (batches, again) = try ShardAlignment.plan(for: harness.engine, shardCount: ErasureHarness.shardCount)
    #expect(batches.isEmpty && again == ShardAlignment.Report())
    #expect(harness.faults == [])
    harness.engine.close()
  }

  private static func write(version: UInt64, _ payload: inout ByteBuffer) {
    payload.writeVarint(version)
    payload.writeOptions(ChannelTypeOptions())
  }
}
