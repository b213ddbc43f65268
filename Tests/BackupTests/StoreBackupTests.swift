import Foundation
import NIOCore
import Operations
import ReceiptModel
import ReceiptWire
import Testing
import TestSupport

@testable import Backup
@testable import StoreEngine

/// `tidemark backup` of a fake store: the transfer of its files, and the repetition of an interrupted transfer.
@Suite struct StoreBackupTests {
  /// A table that the store's RocksDB does not know. It sorts before the files that are no tables.
  private static let table = "000099.sst"
  /// Its content: three chunks, of which no two are equal.
  private static let tableBytes: [UInt8] = (0..<(1 << 20) + 5_000).map { (index: UInt32) in
    UInt8(truncatingIfNeeded: (index &* 2_654_435_761) >> 13)
  }
  private static let lost = "the connection to the store was lost; run this again"

  /// A fake store, and a directory for backups of it.
  private struct Fixture: Sendable {
    let store: FakeBackupStore
    let target: String

    var byteCount: UInt64 { store.files.reduce(0) { $0 + UInt64($1.bytes.count) } }

    func backUp() async throws -> StoreBackup.Summary {
      let backup = StoreBackup(store: store.endpoint, secrets: [], target: target)
      return try await within("a backup") { try await backup.run { _ in } }
    }

    /// Return the names in the directory of backups.
    func names() throws -> [String] { try FileManager.default.contentsOfDirectory(atPath: target).sorted() }

    /// Expect a backup with the store's files, and no leftovers of the transfer.
    func expectCopy(_ summary: StoreBackup.Summary) throws {
      #expect(try BackupManifest.read(from: summary.path) == summary.manifest)
      #expect(summary.manifest.store == StoreDirectory.store && summary.manifest.logIndexes == [2, 0])
      #expect(summary.manifest.timeMilliseconds == FakeBackupStore.time.milliseconds)
      #expect(summary.manifest.files.map(\.name) == store.files.map(\.name))
      for file in store.files {
        let copied = try Data(contentsOf: URL(fileURLWithPath: "\(summary.path)/data/\(file.name)"))
        #expect(copied.elementsEqual(file.bytes), "\(file.name)")
      }
      #expect(try names().filter { $0.hasPrefix(".") } == [".lock"])
    }
  }

  private func withFixture(_ body: (Fixture) async throws -> Void) async throws {
    let directory = StoreDirectory()
    try directory.commit { group in
      for index in 1...2 as ClosedRange<UInt64> { group.addBatch(index) }
      group.addShardHead(through: 2)
    }
    try directory.write(Self.tableBytes, to: Self.table)
    let fixture = Fixture(
      store: try await FakeBackupStore.start(serving: directory),
      target: NSTemporaryDirectory() + "tidemark-backups-\(UUID().uuidString)"
    )
    defer { try? FileManager.default.removeItem(atPath: fixture.target) }
    do { try await body(fixture) } catch {
      try await fixture.store.stop()
      throw error
    }
    try await fixture.store.stop()
  }

  /// The next backup links the unchanged table.
  @Test(arguments: [nil, FakeBackupStore.Fault.dripFed])
  func backupHasTheStoresFiles(_ fault: FakeBackupStore.Fault?) async throws {
    try await withFixture { fixture in
      fixture.store.fault = fault
      let first = try await fixture.backUp()
      try fixture.expectCopy(first)
      #expect(first.filesKept == 0 && first.bytesSent == fixture.byteCount)
      let second = try await fixture.backUp()
      try fixture.expectCopy(second)
      #expect(second.filesKept == 1)
      #expect(second.bytesSent == fixture.byteCount - UInt64(Self.tableBytes.count))
      #expect(try fixture.names().count == 3)
    }
  }

  /// The next backup links the table if it was transferred as a whole.
  @Test(arguments: [
    (FakeBackupStore.Fault.wrongDigest(table), "\(table): a chunk was corrupted in transit; retry", 0),
    (.shortChunk(table), "\(table): a chunk was corrupted in transit; retry", 0),
    (.closedAtRead(table), lost, 0),
    (.wrongDigest("CURRENT"), "CURRENT: a chunk was corrupted in transit; retry", 1),
    (.closedAtRead("CURRENT"), lost, 1),
    (.closedAtEnd, lost, 1),
  ])
  func interruptedBackupIsRepeated(_ fault: FakeBackupStore.Fault, _ failure: String, _ filesKept: Int) async throws {
    try await withFixture { fixture in
      fixture.store.fault = fault
      await #expect(throws: BackupFailure(failure)) { try await fixture.backUp() }
      #expect(try fixture.names() == [".lock", ".new"])
      fixture.store.fault = nil
      let summary = try await fixture.backUp()
      try fixture.expectCopy(summary)
      #expect(summary.filesKept == filesKept)
      #expect(summary.bytesSent == fixture.byteCount - UInt64(filesKept * Self.tableBytes.count))
    }
  }

  @Test func tableWithOtherBytesIsFetchedAgain() async throws {
    try await withFixture { fixture in
      fixture.store.fault = .closedAtEnd
      await #expect(throws: BackupFailure(Self.lost)) { try await fixture.backUp() }
      var bytes = Self.tableBytes
      bytes[bytes.count - 1] ^= 1
      try Data(bytes).write(to: URL(fileURLWithPath: "\(fixture.target)/.new/data/\(Self.table)"))
      fixture.store.fault = nil
      let summary = try await fixture.backUp()
      try fixture.expectCopy(summary)
      #expect(summary.filesKept == 0 && summary.bytesSent == fixture.byteCount)
    }
  }
}

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
    #expect(faults.first?.contains("/erasures, line 1: is damaged; use a copy of the ledger") == true, "\(faults)")
  }

  @Test func missingDirectoryIsRefused() async throws {
    await #expect(throws: BackupFailure.self) { try await StoreCheck(directory: "/nowhere").run { _ in } }
  }
}
