import Foundation
import Operations
import StoreEngine
import StoreRocksDB
import Testing

@testable import Backup

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
    var repair = ClockRepair(directory: directory.path)
    repair.time = time
    repair.isDryRun = isDryRun
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
