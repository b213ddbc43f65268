import Foundation
import Testing

@testable import Backup
@testable import ErasureLedger

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
