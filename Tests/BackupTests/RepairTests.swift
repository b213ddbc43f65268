import Foundation
import NIOCore
import Operations
import ReceiptWire
import StoreEngine
import StoreRocksDB
import Testing

@testable import Backup
@testable import ErasureLedger

/// `tidemark repair-clock`: no time after the target remains, and a killed repair is finished with its own target.
@Suite struct ClockRepairTests {
  /// The target, and a later time, in milliseconds since 1970.
  private static let target: Int64 = 1_000_000
  private static let late: Int64 = 2_000_000

  /// A directory with one batch from before the target, and one batch and a page from after it.
  private func directoryAhead() throws -> StoreDirectory {
    let directory = StoreDirectory()
    try directory.commit { group in
      group.addBatch(1, time: 900_000)
      group.addBatch(2, time: Self.late)
      group.addShardHead(through: 2, time: Self.late)
    }
    return directory
  }

  private func repair(
    _ directory: StoreDirectory,
    to time: Int64?,
    isDryRun: Bool = false
  ) async throws -> ClockRepair.Summary {
    let repair = ClockRepair(directory: directory.path, time: time, isDryRun: isDryRun)
    return try await repair.run { _ in }
  }

  @Test func laterTimesBecomeTheTargetAndTheStoreGetsANewIdentity() async throws {
    let directory = try directoryAhead()
    let summary = try await repair(directory, to: Self.target)
    #expect(summary.formerStore == StoreDirectory.store && summary.store != StoreDirectory.store)
    #expect(summary.changedCount == 2, "\(summary.changed)")
    #expect(try directory.batchTimes() == [900_000, Self.target])
    #expect(!directory.contains(RocksDBEngine.repairingName))
    // A second repair finds nothing.
    let again = try await repair(directory, to: Self.target)
    #expect(again.changedCount == 0 && again.formerStore == nil && again.store == summary.store)
  }

  @Test func dryRunCountsAndChangesNothing() async throws {
    let directory = try directoryAhead()
    let summary = try await repair(directory, to: Self.target, isDryRun: true)
    #expect(summary.changedCount == 2, "\(summary.changed)")
    #expect(summary.formerStore == nil && summary.store == StoreDirectory.store)
    #expect(try directory.batchTimes() == [900_000, Self.late])
  }

  @Test func timesBeforeTheTargetAreKept() async throws {
    let directory = try directoryAhead()
    let summary = try await repair(directory, to: Self.late)
    #expect(summary.changedCount == 0 && summary.formerStore == nil)
    #expect(try directory.batchTimes() == [900_000, Self.late])
  }

  /// While the marker of a repair exists, no store opens the directory, and no other target is accepted.
  @Test func begunRepairIsFinishedWithItsOwnTarget() async throws {
    let directory = try directoryAhead()
    try directory.write("\(Self.target)", to: RocksDBEngine.repairingName)
    #expect(throws: StorageError.self) { try directory.commit { $0.addBatch(3) } }
    await #expect(throws: BackupFailure.self) { _ = try await repair(directory, to: Self.target + 1) }
    let summary = try await repair(directory, to: nil)
    #expect(summary.time == Times.text(Self.target))
    #expect(try directory.batchTimes() == [900_000, Self.target])
    #expect(!directory.contains(RocksDBEngine.repairingName))
  }

  @Test func targetInTheFutureIsRefused() async throws {
    let directory = try directoryAhead()
    let tomorrow = Int64(Date().timeIntervalSince1970 * 1_000) + 86_400_000
    await #expect(throws: BackupFailure.self) { _ = try await repair(directory, to: tomorrow) }
    #expect(try directory.batchTimes() == [900_000, Self.late])
  }
}

/// The erasures that a restore applies again: from a backup's own ledger, and from the one outside of it.
@Suite struct ErasureReplayTests {
  private func inDirectory(_ body: (String) throws -> Void) throws {
    let directory = NSTemporaryDirectory() + "tidemark-ledger-\(UUID().uuidString)"
    try FileManager.default.createDirectory(atPath: directory + "/data", withIntermediateDirectories: true)
    defer { try? FileManager.default.removeItem(atPath: directory) }
    try body(directory)
  }

  private func records(_ path: String) throws -> ErasureRecords {
    try ErasureRecords(Array(try #require(FileManager.default.contents(atPath: path))), name: path)
  }

  private func open(_ directory: String, outside: Bool = true, now: Int64 = 1) throws -> ErasureLedger {
    let ledger = try ErasureLedger(data: directory + "/data", outside: outside ? directory + "/outside" : nil)
    try ledger.setComplete(through: now)
    return ledger
  }

  /// A backup from before the store's first erasure has a ledger that contains only a key.
  @Test func backupWithoutErasuresAcceptsOnlyOwnLedger() throws {
    try inDirectory { one in
      try inDirectory { other in
        let ledger = try open(one)
        try open(other).record(Array("alice".utf8), at: 10)
        let backup = one + "/backup"
        try FileManager.default.createDirectory(atPath: backup, withIntermediateDirectories: true)
        try FileManager.default.copyItem(atPath: one + "/data/erasures", toPath: backup + "/erasures")
        try ledger.record(Array("alice".utf8), at: 10)
        #expect(throws: BackupFailure.self) { try ErasureReplay(data: backup, outside: other + "/outside") }
        let replay = try ErasureReplay(data: backup, outside: one + "/outside")
        #expect(replay.records.records.count == 1)
        // Copies that were truncated before the key.
        let whole = try #require(FileManager.default.contents(atPath: one + "/outside"))
        for count in [0, 27, 60, 70] {
          try whole.prefix(count).write(to: URL(fileURLWithPath: one + "/cut"))
          #expect(throws: BackupFailure.self, "\(count)") {
            try ErasureReplay(data: backup, outside: one + "/cut")
          }
        }
        // A store restored from it continues with the same key.
        let none = try ErasureReplay(data: backup, outside: nil)
        try none.write(to: backup, through: 20)
        #expect(try records(backup + "/erasures").isOfSameStore(as: records(one + "/outside")))
        #expect(throws: BackupFailure.self) { try ErasureReplay(data: backup, outside: other + "/outside") }
      }
    }
  }
}

/// Requests of a backup to a store whose connection breaks.
@Suite struct StoreConnectionTests {
  /// The store resets the connection between the making of a request and its write, so that the write itself fails.
  @Test func requestFailsWhenItsWriteFails() async throws {
    let store = try await FakeBackupStore.start()
    let connection = try await StoreConnection.open(store.endpoint, secrets: [], tls: nil)
    await #expect(throws: BackupFailure("the connection to the store was lost; run this again")) {
      // The closure runs on the connection's event loop, before the write.
      _ = try await connection.request(.backupBegin, timeout: .seconds(30)) { _ in store.reset() }
    }
    await connection.close()
    try await store.stop()
  }
}
