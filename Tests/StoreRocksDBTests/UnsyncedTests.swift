import Foundation
import ReceiptModel
import StoreEngine
import Testing

@testable import StoreRocksDB

/// `--durability interval:MS`: the meaning of damage in a directory whose commits were not synced one by one.
@Suite("Unsynced logs")
struct UnsyncedTests {
  private static func open(_ directory: TestDirectory, _ durability: Durability) throws -> RocksDBEngine {
    var settings = RocksDBSettings()
    settings.durability = durability
    return try RocksDBEngine(
      directory: directory.path,
      shardCount: 4,
      newStore: SessionID(high: 7, low: 1),
      settings: settings
    )
  }

  /// A directory with 40 commits in its log, as a killed process leaves it.
  private static func killed() throws -> TestDirectory {
    let directory = TestDirectory()
    let engine = try open(directory, .interval(milliseconds: 60_000))
    for index in 1...40 { try engine.commit(LoopCommit(index: UInt64(index))) }
    let copy = try directory.copy()
    engine.close()
    return copy
  }

  /// Simulate a reboot of the machine since the last write.
  private static func reboot(_ directory: TestDirectory) throws {
    try "another boot".write(toFile: directory.path + "/unsynced", atomically: false, encoding: .utf8)
  }

  private static func flip(_ path: String, at share: Double) throws {
    var bytes = try Data(contentsOf: URL(fileURLWithPath: path))
    bytes[Int(Double(bytes.count) * share)] ^= 0x10
    try bytes.write(to: URL(fileURLWithPath: path))
  }

  private static func count(_ engine: RocksDBEngine) throws -> Int {
    try engine.recover(ShardID(0)).log.count
  }

  @Test("a killed process loses nothing; an orderly close removes the mark")
  func killedProcessLosesNothing() throws {
    let directory = try Self.killed()
    #expect(FileManager.default.fileExists(atPath: directory.path + "/unsynced"))
    let engine = try Self.open(directory, .interval(milliseconds: 60_000))
    #expect(try Self.count(engine) == 40)
    #expect(engine.warning == nil)
    engine.close()
    #expect(!FileManager.default.fileExists(atPath: directory.path + "/unsynced"))
  }

  @Test(
    "damage within the same boot is refused, synced or not",
    arguments: [Durability.sync, .interval(milliseconds: 9)]
  )
  func damageWithinSameBootIsRefused(durability: Durability) throws {
    let directory = try Self.killed()
    try Self.flip(try directory.newestLog, at: 0.5)
    #expect(throws: StorageError.self) { _ = try Self.open(directory, durability) }
  }

  @Test(
    "after a reboot the log ends at the damage, and a warning names it",
    arguments: [Durability.sync, .interval(milliseconds: 9)]
  )
  func logEndsAtDamageAfterReboot(durability: Durability) throws {
    let directory = try Self.killed()
    let log = try directory.newestLog
    try Self.flip(log, at: 0.5)
    try Self.reboot(directory)
    let engine = try Self.open(directory, durability)
    defer { engine.close() }
    #expect((1..<40).contains(try Self.count(engine)))
    #expect(engine.warning?.contains(log) == true, "\(engine.warning ?? "no warning")")
    let mark = try? String(contentsOfFile: directory.path + "/unsynced", encoding: .utf8)
    #expect(durability == .sync ? mark == nil : mark != "another boot")
  }

  @Test("the manifest is always synced: its damage is refused after a reboot too")
  func manifestIsAlwaysSynced() throws {
    for share in stride(from: 0.05, to: 1, by: 0.1) {
      let directory = try Self.killed()
      try Self.reboot(directory)
      let name = try String(contentsOfFile: directory.path + "/CURRENT", encoding: .utf8)
        .trimmingCharacters(in: .newlines)
      try Self.flip(directory.path + "/" + name, at: share)
      #expect(throws: StorageError.self, "\(share)") { _ = try Self.open(directory, .sync) }
    }
  }
}

extension UnsyncedWrites {
  /// Call `takeDue` outside of a macro.
  fileprivate static func takeDue(_ writes: inout UnsyncedWrites) -> Bool { writes.takeDue() }
}

/// When the storage has to be synced, in `interval` mode.
@Suite struct UnsyncedWritesTests {
  @Test("a new directory is synced once, then only after writes")
  func syncsAfterWrites() {
    var writes = UnsyncedWrites()
    #expect(UnsyncedWrites.takeDue(&writes))
    #expect(!UnsyncedWrites.takeDue(&writes))
    writes.writeBegan()
    writes.writeEnded()
    #expect(UnsyncedWrites.takeDue(&writes))
    #expect(!UnsyncedWrites.takeDue(&writes))
  }

  @Test("a write that ends after a sync began is due again")
  func syncsAgainAfterOverlappingWrite() {
    var writes = UnsyncedWrites()
    _ = writes.takeDue()
    writes.writeBegan()
    #expect(UnsyncedWrites.takeDue(&writes), "it may have been written already")
    writes.writeEnded()
    #expect(UnsyncedWrites.takeDue(&writes), "it may have been written after the sync")
    #expect(!UnsyncedWrites.takeDue(&writes))
  }

  @Test("a sync during a long write does not forget the writes that ended")
  func overlappingWritesAreCounted() {
    var writes = UnsyncedWrites()
    _ = writes.takeDue()
    writes.writeBegan()
    writes.writeBegan()
    writes.writeEnded()
    #expect(UnsyncedWrites.takeDue(&writes))
    #expect(UnsyncedWrites.takeDue(&writes), "one write is still under way")
    writes.writeEnded()
    #expect(UnsyncedWrites.takeDue(&writes))
    #expect(!UnsyncedWrites.takeDue(&writes))
  }
}
