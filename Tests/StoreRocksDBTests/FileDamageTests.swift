import Foundation
import ReceiptModel
import StoreEngine
import TestSupport
import Testing

@testable import StoreRocksDB

/// Wrong bytes in every kind of file of a data directory. The store either opens with all acknowledged data, or refuses
/// and names the place. Acknowledged data is never lost silently.
@Suite("Damage in any file", .computing)
struct FileDamageTests {
  private static let tableCommits: UInt64 = 30
  private static let commits: UInt64 = 60

  /// A directory as a killed process leaves it, with tables (of the first run) and a write-ahead log (of the second).
  private static func killed() throws -> TestDirectory {
    let directory = TestDirectory()
    let first = try directory.open()
    for index in 1...tableCommits { try first.commit(LoopCommit(index: index)) }
    first.close()
    // Opening writes the log's content to tables.
    let second = try directory.open()
    for index in (tableCommits + 1)...commits {
      try second.commit(LoopCommit(index: index, bytes: 40))
    }
    let copy = try directory.copy()
    second.close()
    return copy
  }

  private enum Outcome: Equatable {
    /// All acknowledged data is there.
    case whole
    /// Opening or reading fails with an error that names this directory.
    case refused
    case wrong(String)
  }

  private func outcome(_ directory: TestDirectory) throws -> Outcome {
    let engine: RocksDBEngine
    do {
      engine = try directory.open(shards: nil)
    } catch {
      return error.description.contains(directory.path) ? .refused : .wrong("names no place: \(error)")
    }
    defer { engine.close() }
    for shard in 0..<2 {
      do {
        let indices = try engine.indices(shard)
        guard indices == Array(1...Self.commits) else {
          return .wrong("shard \(shard) has \(indices.count) of \(Self.commits) batches, and no word of it")
        }
        guard try engine.recover(ShardID(UInt16(shard))).head == LoopCommit.content(shard, Self.commits, 40)
        else { return .wrong("shard \(shard)'s page is not of the last commit") }
      } catch let error as StorageError {
        return error.description.contains(directory.path) ? .refused : .wrong("names no place: \(error)")
      }
    }
    return .whole
  }

  private static func files(_ directory: TestDirectory, _ kind: String) throws -> [String] {
    try FileManager.default.contentsOfDirectory(atPath: directory.path).sorted().filter {
      kind.hasPrefix(".") ? $0.hasSuffix(kind) : $0.hasPrefix(kind)
    }
  }

  @Test("an undamaged directory opens with all data")
  func undamagedDirectoryOpensWithAllData() throws {
    #expect(try outcome(Self.killed()) == .whole)
  }

  @Test(
    "wrong bytes leave all data readable, or are refused with their place",
    arguments: [(".log", 120), ("MANIFEST-", 120), (".sst", 120), ("CURRENT", 20)]
  )
  func wrongBytesLeaveAllDataReadable(_ kind: String, _ count: Int) throws {
    // Prints the seed early: if the library aborts, nothing can be printed later.
    var random = SplitMix64(printingSeedOf: "damage in \(kind)")
    let source = try Self.killed()
    let names = try Self.files(source, kind)
    try #require(!names.isEmpty)
    var refused = 0
    for _ in 0..<count {
      let directory = try source.copy()
      let path = directory.path + "/" + names[random.below(names.count)]
      var bytes = try Data(contentsOf: URL(fileURLWithPath: path))
      guard !bytes.isEmpty else { continue }
      let place = random.below(bytes.count)
      let mask = random.below(2) == 0 ? UInt8(1 << random.below(8)) : UInt8(1 + random.below(255))
      bytes[place] ^= mask
      try bytes.write(to: URL(fileURLWithPath: path))
      let outcome = try outcome(directory)
      if outcome == .refused { refused += 1 }
      let isGood = outcome == .whole || outcome == .refused
      #expect(isGood, "\(path), byte \(place) xor \(mask), seed \(random.seed): \(outcome)")
    }
    print("damage in \(kind): \(refused) of \(count) refused, seed \(random.seed)")
    #expect(refused > 0)
  }

  /// The smallest table of a directory, and the range of its properties: they, the metaindex and the footer are at its
  /// end.
  private static func smallTable(
    _ source: TestDirectory
  ) throws -> (name: String, bytes: Data, properties: Range<Int>) {
    let tables = try files(source, ".sst").map {
      ($0, try Data(contentsOf: URL(fileURLWithPath: source.path + "/" + $0)))
    }
    let (name, bytes) = try #require(tables.min { $0.1.count < $1.1.count })
    let properties = try TableFileCheck.properties(at: source.path + "/" + name).get()
    return (name, bytes, try #require(properties))
  }

  /// RocksDB parses a table's properties before it verifies their checksum. A librocksdb with assertions aborts where a
  /// wrong bit says that the block has a hash index. If this test dies, that is the cause.
  ///
  /// The store's own check runs on every wrong bit. RocksDB, which is slow to open, runs on a sample, and on all in a
  /// long run.
  @Test("any wrong bit at a table's end leaves all data readable, or is refused with its place")
  func wrongBitAtTableEndLeavesDataReadableOrIsRefused() throws {
    let source = try Self.killed()
    let (name, bytes, properties) = try Self.smallTable(source)
    let checked = try source.copy()
    var random = SplitMix64(printingSeedOf: "the end of a table")
    var (flips, found, opened, refused) = (0, 0, 0, 0)
    for place in properties.lowerBound..<bytes.count {
      // Refusals leave only their logs behind.
      var directory = try source.copy()
      // In the properties' names and values all bits are alike; the bits after the last property differ in meaning.
      let isText = place < properties.upperBound - 64
      for bit in isText ? [0, 7] : Array(0..<8) {
        var damaged = bytes
        damaged[place] ^= UInt8(1 << bit)
        flips += 1
        try damaged.write(to: URL(fileURLWithPath: checked.path + "/" + name))
        if TableFileCheck.fault(in: checked.path) != nil { found += 1 }
        guard TestRun.isLong || random.below(20) == 0 else { continue }
        opened += 1
        let path = directory.path + "/" + name
        try damaged.write(to: URL(fileURLWithPath: path))
        switch try outcome(directory) {
        case .whole:
          // Opening it changed the directory.
          directory = try source.copy()
        case .refused: refused += 1
        case .wrong(let text):
          Issue.record("\(path), byte \(place) of \(bytes.count), bit \(bit): \(text)")
          directory = try source.copy()
        }
      }
    }
    print(
      "the end of a table: the check found \(found); of \(opened) that RocksDB was given \(refused) were refused"
    )
    #expect(found > 0 && opened > flips / 40)
    // More than one refusal for each byte of the properties; in a sample the same share, less a margin for chance.
    #expect(refused * flips > properties.count * opened * (TestRun.isLong ? 2 : 1) / 2)
    let directory = try source.copy()
    // The highest byte of the number of restart points, with the hash index bit: refused before RocksDB reads it.
    for bit in 0..<8 {
      var damaged = bytes
      damaged[properties.upperBound - 1] ^= UInt8(1 << bit)
      try damaged.write(to: URL(fileURLWithPath: directory.path + "/" + name))
      let words = TableFileCheck.fault(in: directory.path) ?? "nothing"
      #expect(words.contains("\(name), byte \(properties.upperBound - 4): "), "bit \(bit): \(words)")
    }
  }

  @Test("many wrong bytes at a table's end leave all data readable, or are refused with their place")
  func wrongBytesAtTableEndLeaveDataReadableOrAreRefused() throws {
    var random = SplitMix64(printingSeedOf: "damage over a table's end")
    let source = try Self.killed()
    let (name, bytes, properties) = try Self.smallTable(source)
    for _ in 0..<120 {
      let directory = try source.copy()
      var damaged = bytes
      let start = properties.lowerBound + random.below(bytes.count - properties.lowerBound)
      let end = min(bytes.count, start + 1 + random.below(random.below(2) == 0 ? 8 : 512))
      let isZeros = random.below(4) == 0
      for place in start..<end { damaged[place] = isZeros ? 0 : UInt8(random.below(256)) }
      try damaged.write(to: URL(fileURLWithPath: directory.path + "/" + name))
      let outcome = try outcome(directory)
      let isGood = outcome == .whole || outcome == .refused
      #expect(isGood, "\(name), bytes \(start)..<\(end), seed \(random.seed): \(outcome)")
    }
  }

  /// A table in writing when the machine failed is not in the manifest, and may have any holes.
  @Test("damage in a table outside the manifest is ignored")
  func unreferencedTableDamageIsIgnored() throws {
    let source = try Self.killed()
    let (name, bytes, properties) = try Self.smallTable(source)
    var damaged = bytes
    damaged[properties.upperBound - 1] ^= 0x80
    let strange = source.path + "/999999.sst"
    try damaged.write(to: URL(fileURLWithPath: strange))
    guard case .failure = TableFileCheck.properties(at: strange) else {
      Issue.record("\(name) should be damaged")
      return
    }
    #expect(try outcome(source) == .whole)
    #expect(!FileManager.default.fileExists(atPath: strange))
  }

  /// In a record's header a wrong bit could look like the end of the log. Flips each bit of each length and type, in
  /// the log and in the manifest.
  @Test(
    "any wrong bit in record lengths and types leaves all data readable, or is refused",
    arguments: [".log", "MANIFEST-"]
  )
  func wrongBitInRecordHeaderLeavesDataReadableOrIsRefused(_ kind: String) throws {
    var random = SplitMix64(printingSeedOf: "damage in headers of \(kind)")
    let source = try Self.killed()
    for name in try Self.files(source, kind) {
      let bytes = try Data(contentsOf: URL(fileURLWithPath: source.path + "/" + name))
      for place in Self.headerPlaces(bytes) {
        for bit in 0..<8 {
          var damaged = bytes
          damaged[place] ^= UInt8(1 << bit)
          let fault = damaged.withUnsafeBytes { LogFileCheck.fault(in: $0, checksums: true) }
          #expect(fault != nil, "\(name), byte \(place), bit \(bit): not noticed")
        }
      }
      // The same by opening the store, for some of them. Before the check existed, a quarter of these opened silently
      // with less data.
      let places = Self.headerPlaces(bytes)
      for _ in 0..<60 {
        let (place, bit) = (places[random.below(places.count)], random.below(8))
        var damaged = bytes
        damaged[place] ^= UInt8(1 << bit)
        let directory = try source.copy()
        try damaged.write(to: URL(fileURLWithPath: directory.path + "/" + name))
        let outcome = try outcome(directory)
        #expect(outcome == .refused, "\(name), byte \(place), bit \(bit), seed \(random.seed): \(outcome)")
      }
    }
  }

  /// The offsets of the lengths and types of an undamaged log's records.
  private static func headerPlaces(_ bytes: Data) -> [Int] {
    var places: [Int] = []
    var offset = 0
    while offset + 7 <= bytes.count {
      places += [offset + 4, offset + 5, offset + 6]
      offset += 7 + Int(bytes[offset + 4]) + Int(bytes[offset + 5]) << 8
    }
    return places
  }

  /// A last record truncated at any byte was never acknowledged, which is no damage. After a cut further back only the
  /// incomplete commit and the later ones are missing.
  @Test("a log truncated at any byte of its last records has the commits before the cut")
  func logTruncatedAtAnyByteHasCommitsBeforeCut() throws {
    let source = try Self.killed()
    let log = (try source.newestLog as NSString).lastPathComponent
    let bytes = try Data(contentsOf: URL(fileURLWithPath: source.path + "/" + log))
    var ends: [Int] = []
    var offset = 0
    while offset + 7 <= bytes.count {
      offset += 7 + Int(bytes[offset + 4]) + Int(bytes[offset + 5]) << 8
      ends.append(offset)
    }
    try #require(ends.last == bytes.count)
    let from = ends[ends.count - 3]
    for length in from...bytes.count {
      #expect(
        bytes[..<length].withUnsafeBytes { LogFileCheck.fault(in: $0, checksums: true) } == nil,
        "\(length) bytes"
      )
    }
    // Each commit is one record here.
    for length in stride(from: from, through: bytes.count, by: 17) {
      let directory = try source.copy()
      #expect(truncate(directory.path + "/" + log, off_t(length)) == 0)
      let engine = try directory.open(shards: nil)
      let lost = ends.count { $0 > length }
      let expected = Array(1...(Self.commits - UInt64(lost)))
      #expect(try engine.indices(0) == expected && engine.indices(1) == expected, "\(length) bytes")
      engine.close()
    }
  }

  @Test("a missing CURRENT file is refused; no new database overwrites the files")
  func missingCurrentFileIsRefused() throws {
    let directory = try Self.killed()
    try FileManager.default.removeItem(atPath: directory.path + "/CURRENT")
    let before = try FileManager.default.contentsOfDirectory(atPath: directory.path).sorted()
    #expect { _ = try directory.open() } throws: { "\($0)".contains(directory.path + "/CURRENT is missing") }
    #expect(try FileManager.default.contentsOfDirectory(atPath: directory.path).sorted() == before)
  }
}

/// A write-ahead log with a wrong end, as after a killed process or a faulty disk.
@Suite("Damaged write-ahead log")
struct DamageTests {
  private static let commits: UInt64 = 40

  /// A directory as a killed process leaves it: copied while the store has it open, with everything synced.
  private func killed() throws -> TestDirectory {
    let directory = TestDirectory()
    let engine = try directory.open()
    for index in 1...Self.commits { try engine.commit(LoopCommit(index: index)) }
    let copy = try directory.copy()
    engine.close()
    return copy
  }

  /// Check that the data is a whole prefix of the commits: the same batches in both shards, and the pages of the last
  /// commit.
  private func check(_ engine: RocksDBEngine, _ name: String) throws -> UInt64 {
    let indices = try engine.indices(0)
    #expect(try engine.indices(1) == indices, "\(name): half a commit")
    let last = indices.last ?? 0
    #expect(indices == Array(1...max(1, last)).filter { $0 <= last }, "\(name): not a prefix")
    for shard in 0..<2 where last > 0 {
      let head = try engine.recover(ShardID(UInt16(shard))).head
      #expect(head == LoopCommit.content(shard, last, 40), "\(name): the page is not of the last commit")
    }
    return last
  }

  @Test("an undamaged directory has all data")
  func undamagedDirectoryHasAllData() throws {
    let directory = try killed()
    let engine = try directory.open()
    #expect(try check(engine, "untouched") == Self.commits)
  }

  @Test("a log truncated anywhere recovers a prefix of the commits, and the store commits again")
  func logTruncatedAnywhereRecoversPrefixOfCommits() throws {
    let source = try killed()
    let size = try FileManager.default.attributesOfItem(atPath: try source.newestLog)[.size] as! Int
    var random = SplitMix64(printingSeedOf: "truncated log")
    for _ in 0..<12 {
      let directory = try source.copy()
      let length = random.below(size)
      #expect(truncate(try directory.newestLog, off_t(length)) == 0)
      let engine = try directory.open(shards: nil)
      let last = try check(engine, "\(length) of \(size) bytes")
      #expect(last <= Self.commits)
      try engine.commit(LoopCommit(index: last + 1))
      engine.close()
      #expect(try check(try directory.open(shards: nil), "again") == last + 1)
    }
  }

  /// Data after the wrong bit was acknowledged, so it must not be dropped silently.
  @Test("a wrong bit anywhere refuses the directory by name, and never recovers part of a commit")
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
