import Foundation
import ReceiptModel
import StoreEngine
import StoreRocksDB
import TestSupport
import Testing

/// A write-ahead log with a wrong end, as after a killed process or a faulty disk.
@Suite("Damaged write-ahead log")
struct DamageTests {
  private static let groups: UInt64 = 40

  /// A directory as a killed process leaves it: copied while the store has it open, with everything synced.
  private func killed() throws -> TestDirectory {
    let directory = TestDirectory()
    let engine = try directory.open()
    for index in 1...Self.groups { try engine.commit(CommitGroup(index: index)) }
    let copy = try directory.copy()
    engine.close()
    return copy
  }

  /// Check that the data is a whole prefix of the groups: the same batches in both shards, and the last group's pages.
  private func check(_ engine: RocksDBEngine, _ name: String) throws -> UInt64 {
    let indices = try engine.indices(0)
    #expect(try engine.indices(1) == indices, "\(name): half a group")
    let last = indices.last ?? 0
    #expect(indices == Array(1...max(1, last)).filter { $0 <= last }, "\(name): not a prefix")
    for shard in 0..<2 where last > 0 {
      let head = try engine.recover(ShardID(UInt16(shard))).head
      #expect(head == CommitGroup.content(shard, last, 40), "\(name): the page is not of the last group")
    }
    return last
  }

  @Test("an undamaged directory has all data")
  func killedProcess() throws {
    let directory = try killed()
    let engine = try directory.open()
    #expect(try check(engine, "untouched") == Self.groups)
  }

  @Test("a log truncated anywhere recovers a prefix of the groups, and commits continue from there")
  func logTruncatedAnywhereRecoversPrefixOfGroups() throws {
    let source = try killed()
    let size = try FileManager.default.attributesOfItem(atPath: try source.newestLog)[.size] as! Int
    var random = SplitMix64(printingSeedOf: "truncated log")
    for _ in 0..<12 {
      let directory = try source.copy()
      let length = random.below(size)
      #expect(truncate(try directory.newestLog, off_t(length)) == 0)
      let engine = try directory.open(shards: nil)
      let last = try check(engine, "\(length) of \(size) bytes")
      #expect(last <= Self.groups)
      try engine.commit(CommitGroup(index: last + 1))
      engine.close()
      #expect(try check(try directory.open(shards: nil), "again") == last + 1)
    }
  }

  /// Data after the wrong bit was acknowledged, so it must not be dropped silently.
  @Test("a wrong bit anywhere refuses the directory by name, and never recovers part of a group")
  func wrongBitAnywhereRefusesDirectoryByName() throws {
    let source = try killed()
    let original = try Data(contentsOf: URL(fileURLWithPath: try source.newestLog))
    var random = SplitMix64(printingSeedOf: "wrong bits in a log")
    var refused = 0
    for _ in 0..<24 {
      let directory = try source.copy()
      var bytes = original
      let place = random.below(bytes.count)
      bytes[place] ^= UInt8(1 << random.below(8))
      try bytes.write(to: URL(fileURLWithPath: try directory.newestLog))
      do {
        let engine = try directory.open(shards: nil)
        _ = try check(engine, "byte \(place)")
        engine.close()
      } catch let error as StorageError {
        #expect(error.description.contains(directory.path), "byte \(place): \(error)")
        refused += 1
      }
    }
    #expect(refused == 24, "\(refused) of 24 were refused")
  }
}
