import NIOCore
import ReceiptModel
import ReceiptWire
import Testing

@testable import Backup
@testable import StoreEngine

/// `tidemark check` of a stopped store's data directory: each fault is reported with its place and a remedy.
@Suite struct StoreCheckTests {
  private func faults(in directory: StoreDirectory) async throws -> [String] {
    try await StoreCheck(directory: directory.path).run { _ in }.faults
  }

  @Test func wholeDirectoryHasNoFaults() async throws {
    let directory = StoreDirectory()
    try directory.commit { group in
      for index in 1...2 as ClosedRange<UInt64> { group.addBatch(index) }
      group.addBatch(1, shard: 1)
      group.addShardHead(through: 2)
    }
    let report = try await StoreCheck(directory: directory.path).run { _ in }
    #expect(report.faults == [])
    #expect(report.store == StoreDirectory.store && report.shards == 2)
    #expect(report.batches == 3 && report.pages == 1)
  }

  @Test func missingBatchIsReported() async throws {
    let directory = StoreDirectory()
    try directory.commit { group in
      group.addBatch(1)
      group.addBatch(3)
    }
    let faults = try await faults(in: directory)
    let expected = "shard 0, log index 3: follows 1, batches between them are missing; restore from a backup"
    #expect(faults.contains { $0.hasPrefix(expected) }, "\(faults)")
  }

  @Test func unreadableBatchIsReported() async throws {
    let directory = StoreDirectory()
    try directory.commit { group in
      group.addBatch(1)
      group.batches[0].bytes = ByteBuffer(bytes: [9])
    }
    let faults = try await faults(in: directory)
    #expect(faults.first?.hasPrefix("shard 0, log index 1: ") == true, "\(faults)")
  }

  @Test func pageAheadOfLogIsReported() async throws {
    let directory = StoreDirectory()
    try directory.commit { group in
      group.addBatch(1)
      group.addShardHead(through: 2)
    }
    let faults = try await faults(in: directory)
    #expect(faults.contains { $0.contains("is ahead of the log, which ends at 1") }, "\(faults)")
  }

  @Test func channelWithoutHeadPageIsReported() async throws {
    let directory = StoreDirectory()
    try directory.commit { group in
      group.addBatch(1)
      group.addPage(5, .rows(0), cid: "messaging:a", Page(index: LogIndex(1), effects: []))
    }
    let faults = try await faults(in: directory)
    let expected = "shard 0, channel 5: has a name and no head page"
    #expect(faults.contains { $0.hasPrefix(expected) }, "\(faults)")
  }

  @Test func damagedErasureLedgerIsReported() async throws {
    let directory = StoreDirectory()
    try directory.commit { $0.addBatch(1) }
    try directory.write("hello\n", to: "erasures")
    let faults = try await faults(in: directory)
    #expect(faults.count == 1, "\(faults)")
    #expect(
      faults.first?.contains("/erasures, line 1: is damaged; use a copy of the ledger") == true,
      "\(faults)"
    )
  }

  @Test func missingDirectoryIsRefused() async throws {
    await #expect(throws: BackupFailure.self) { try await StoreCheck(directory: "/nowhere").run { _ in } }
  }
}
