import Foundation
import Testing

@testable import ErasureLedger

/// The erasure ledger: it reads back what it wrote, distinguishes torn lines from damaged ones, and contains no user
/// id.
@Suite struct ErasureLedgerTests {
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

  private func append(_ text: String, to path: String) throws {
    let file = try FileHandle(forWritingTo: URL(fileURLWithPath: path))
    try file.seekToEnd()
    try file.write(contentsOf: Data(text.utf8))
    try file.close()
  }

  @Test func ledgerContainsOnlyErasedUsers() throws {
    try inDirectory { directory in
      let ledger = try open(directory)
      try ledger.record(Array("alice".utf8), at: 10)
      try ledger.record(Array("bob".utf8), at: 20)
      try ledger.setComplete(through: 30)
      for name in ["/outside", "/data/erasures"] {
        let read = try records(directory + name)
        #expect(read.records.map(\.time) == [10, 20])
        #expect(read.through == (name == "/outside" ? 30 : 0))
        let search = ErasureRecords.Search(read, since: 15)
        #expect(search.contains("bob") && !search.contains("alice") && !search.contains("bo"))
        #expect(ErasureRecords.Search(read, since: 0).contains("alice"))
        #expect(ErasureRecords.Search(read, since: 21).isEmpty)
        let text = try String(contentsOfFile: directory + name, encoding: .utf8)
        #expect(!text.contains("alice") && !text.contains("bob"))
      }
    }
  }

  /// Each store has a key of its own: the same user has another hash in another store.
  @Test func keysDifferBetweenStores() throws {
    var hashes: Set<[UInt8]> = []
    for _ in 0..<2 {
      try inDirectory { directory in
        try open(directory).record(Array("alice".utf8), at: 10)
        hashes.formUnion(try records(directory + "/outside").records.map(\.hash))
      }
    }
    #expect(hashes.count == 2)
  }

  @Test func ledgerRecoversFromTornLine() throws {
    try inDirectory { directory in
      try open(directory).record(Array("alice".utf8), at: 10)
      for name in ["/outside", "/data/erasures"] { try append("erased 20 abab", to: directory + name) }
      let again = try open(directory)
      try again.record(Array("bob".utf8), at: 30)
      for name in ["/outside", "/data/erasures"] {
        #expect(try records(directory + name).records.map(\.time) == [10, 30])
      }
    }
  }

  @Test func damagedLineIsRejected() throws {
    try inDirectory { directory in
      try open(directory).record(Array("alice".utf8), at: 10)
      let path = directory + "/outside"
      let text = try String(contentsOfFile: path, encoding: .utf8)
      try text.replacingOccurrences(of: "erased 10", with: "erased 11").write(
        toFile: path,
        atomically: true,
        encoding: .utf8
      )
      let fault = #expect(throws: ErasureRecords.Fault.self) { try open(directory) }
      #expect(fault?.description.contains("line 4: is damaged") == true, "\(fault?.description ?? "")")
    }
    #expect(throws: ErasureRecords.Fault.self) { try ErasureRecords(Array("hello\n".utf8), name: "x") }
    // A line that is overwritten in place may be torn; the records are whole.
    let torn = ErasureRecords.header + "through 00000\n"
    #expect(try ErasureRecords(Array(torn.utf8), name: "x").through == nil)
  }

  /// A truncated copy must not pass for a complete one.
  @Test func truncatedFileIsRejected() throws {
    try inDirectory { directory in
      let ledger = try open(directory)
      for user in ["alice", "bob"] { try ledger.record(Array(user.utf8), at: 10) }
      try ledger.setComplete(through: 20)
      let whole = try Data(contentsOf: URL(fileURLWithPath: directory + "/outside"))
      #expect(try ErasureRecords(Array(whole), name: "x").through == 20)
      for cut in [10, whole.count / 3] {
        let fault = #expect(throws: ErasureRecords.Fault.self) {
          try ErasureRecords(Array(whole.dropLast(cut)), name: "x")
        }
        #expect(fault?.description.contains("is truncated") == true, "\(fault?.description ?? "")")
      }
    }
  }

  @Test func otherStoresLedgerIsRejected() throws {
    try inDirectory { one in
      try inDirectory { other in
        try open(one).record(Array("alice".utf8), at: 10)
        try open(other).record(Array("alice".utf8), at: 10)
        let (a, b) = try (records(one + "/outside"), records(other + "/outside"))
        #expect(!a.isOfSameStore(as: b))
        #expect(try a.isOfSameStore(as: records(one + "/data/erasures")))
        #expect(a.isOfSameStore(as: ErasureRecords()))
      }
    }
  }

  /// The second line of the first version had no count: such a file is rewritten when it is opened.
  @Test func firstVersionFileIsMigrated() throws {
    try inDirectory { directory in
      try open(directory).record(Array("alice".utf8), at: 10)
      let path = directory + "/outside"
      let lines = try String(contentsOfFile: path, encoding: .utf8).split(separator: "\n").dropFirst(2)
      let first = "tidemark-erasures 1 3bb0f58f\nthrough 0000000000000007 d79745c0\n"
      try (first + lines.joined(separator: "\n") + "\n").write(
        toFile: path,
        atomically: true,
        encoding: .utf8
      )
      let known = try records(path)
      #expect(known.records.count == 1 && known.through == 7)
      try open(directory).record(Array("bob".utf8), at: 20)
      let text = try String(contentsOfFile: path, encoding: .utf8)
      #expect(text.hasPrefix("tidemark-erasures 2 "))
      #expect(try records(path).records.count == 2)
    }
  }

  /// The outside file gets the records that it lacks. If it has more, the data directory is too old for it.
  @Test func innerAndOuterFilesAreReconciled() throws {
    try inDirectory { directory in
      let alone = try open(directory, outside: false)
      #expect(!alone.hasExternalFile)
      try alone.record(Array("alice".utf8), at: 10)
      try open(directory).record(Array("bob".utf8), at: 20)
      #expect(try records(directory + "/outside").records == records(directory + "/data/erasures").records)
      try FileManager.default.removeItem(atPath: directory + "/data/erasures")
      let fault = #expect(throws: ErasureRecords.Fault.self) { try open(directory) }
      #expect(fault?.description.contains("has 2 erasures that") == true)
    }
  }

  @Test func removedFileIsNotRecreated() throws {
    try inDirectory { directory in
      let ledger = try open(directory)
      try ledger.record(Array("alice".utf8), at: 10)
      try FileManager.default.moveItem(atPath: directory + "/outside", toPath: directory + "/moved")
      #expect(throws: ErasureRecords.Fault.self) { try ledger.record(Array("bob".utf8), at: 20) }
      #expect(try records(directory + "/data/erasures").records.count == 1)
      try Data().write(to: URL(fileURLWithPath: directory + "/outside"))
      #expect(throws: ErasureRecords.Fault.self) { try ledger.record(Array("bob".utf8), at: 20) }
      try FileManager.default.removeItem(atPath: directory + "/outside")
      try FileManager.default.moveItem(atPath: directory + "/moved", toPath: directory + "/outside")
      try ledger.record(Array("bob".utf8), at: 20)
      #expect(try records(directory + "/outside").records.map(\.time) == [10, 20])
    }
  }

  @Test func unionKeepsTheKeyOfEachRecord() throws {
    var parts: [ErasureRecords] = []
    for (user, time) in [("alice", Int64(10)), ("bob", 20)] {
      try inDirectory { directory in
        let ledger = try open(directory, now: time)
        try ledger.record(Array(user.utf8), at: time)
        parts.append(try records(directory + "/outside"))
      }
    }
    let union = parts[0].union(parts[1]).union(parts[0])
    #expect(union.records.count == 2 && union.through == 20)
    let read = try ErasureRecords(union.document(through: 40), name: "union")
    #expect(read.records == union.records && read.through == 40)
    let search = ErasureRecords.Search(read, since: 0)
    #expect(search.contains("alice") && search.contains("bob") && !search.contains("carol"))
  }
}
