import Foundation
import ReceiptModel
import StoreEngine
import TestSupport
import Testing

@testable import StoreRocksDB

/// Wrong bytes in every kind of file of a data directory: the store opens with everything that was acknowledged, or
/// says that it cannot and names the place. Nothing that was acknowledged may be missing without a word.
@Suite("Damage anywhere", .computing)
struct DamageEverywhereTests {
  private static let tableGroups: UInt64 = 30
  private static let groups: UInt64 = 60

  /// A directory as a killed process leaves it, with tables (of a first life) and a write-ahead log (of the second).
  private static func killed() throws -> TestDirectory {
    let directory = TestDirectory()
    let first = try directory.open()
    for index in 1...tableGroups { try first.commit(CommitGroup(index: index)) }
    first.close()
    // What the log holds at the opening is written to tables.
    let second = try directory.open()
    for index in (tableGroups + 1)...groups {
      try second.commit(CommitGroup(index: index, bytes: 40))
    }
    let copy = try directory.copy()
    second.close()
    return copy
  }

  private enum Outcome: Equatable {
    /// Everything that was acknowledged is there.
    case whole
    /// It cannot be opened, or not be read, and the words name this directory.
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
        guard indices == Array(1...Self.groups) else {
          return .wrong("shard \(shard) has \(indices.count) of \(Self.groups) batches, and no word of it")
        }
        guard try engine.recover(ShardID(UInt16(shard))).head == CommitGroup.content(shard, Self.groups, 40)
        else { return .wrong("shard \(shard)'s page is not of the last group") }
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

  @Test("untouched, it is whole")
  func untouched() throws {
    #expect(try outcome(Self.killed()) == .whole)
  }

  @Test(
    "wrong bytes: whole, or a refusal that names the place",
    arguments: [(".log", 120), ("MANIFEST-", 120), (".sst", 120), ("CURRENT", 20)]
  )
  func flipped(_ kind: String, _ count: Int) throws {
    var random = DamageRandom()
    let source = try Self.killed()
    let names = try Self.files(source, kind)
    try #require(!names.isEmpty)
    var refused = 0
    // Before it is needed: an abort of the library would leave no word of it.
    print("damage in \(kind): seed \(random.seed)")
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

  /// The smallest table of a directory, and where its properties are: they, the metaindex and the footer are the end of
  /// it.
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

  /// RocksDB goes through a table's properties before it verifies their checksum, and a librocksdb with assertions
  /// aborts where a wrong bit tells it that the block has a hash index. If this dies, that is how.
  ///
  /// The store's own check sees every wrong bit. RocksDB, which is slow to open, sees a sample of them, and all of them
  /// in a long run.
  @Test("the end of a table, bit by bit: whole, or a refusal that names the place")
  func tableEnds() throws {
    let source = try Self.killed()
    let (name, bytes, properties) = try Self.smallTable(source)
    let checked = try source.copy()
    var random = DamageRandom()
    print("the end of a table: seed \(random.seed)")
    var (flips, found, opened, refused) = (0, 0, 0, 0)
    for place in properties.lowerBound..<bytes.count {
      // Refusals leave nothing behind but their logs.
      var directory = try source.copy()
      // In the properties' names and values one bit is like another; from the last of them on they have meanings of
      // their own.
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
          // What was opened is no longer as the killed process left it.
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
    // More than one for each byte of the properties; in a sample as large a part, less what chance may take.
    #expect(refused * flips > properties.count * opened * (TestRun.isLong ? 2 : 1) / 2)
    let directory = try source.copy()
    // The highest byte of the count of restart points, with the bit of the hash index: before RocksDB.
    for bit in 0..<8 {
      var damaged = bytes
      damaged[properties.upperBound - 1] ^= UInt8(1 << bit)
      try damaged.write(to: URL(fileURLWithPath: directory.path + "/" + name))
      let words = TableFileCheck.fault(in: directory.path) ?? "nothing"
      #expect(words.contains("\(name), byte \(properties.upperBound - 4): "), "bit \(bit): \(words)")
    }
  }

  @Test("many wrong bytes at a table's end: the same")
  func tableEndsOverwritten() throws {
    var random = DamageRandom()
    let source = try Self.killed()
    let (name, bytes, properties) = try Self.smallTable(source)
    print("damage over a table's end: seed \(random.seed)")
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

  /// A table that was being written when the machine failed is not in the manifest, and may have any holes.
  @Test("a damaged table that the database does not have is no damage")
  func tableOfNobody() throws {
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

  /// The headers are where a wrong bit could pass for the end of the log: each bit of each length and type, in the log
  /// and in the manifest.
  @Test("every bit of the records' lengths and types", arguments: [".log", "MANIFEST-"])
  func headers(_ kind: String) throws {
    var random = DamageRandom()
    let source = try Self.killed()
    print("damage in headers of \(kind): seed \(random.seed)")
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
      // The same by opening, for some of them: a quarter of these were opened without a word, and with less, before
      // they were looked for.
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

  /// Lengths and types of the records of a log without damage.
  private static func headerPlaces(_ bytes: Data) -> [Int] {
    var places: [Int] = []
    var offset = 0
    while offset + 7 <= bytes.count {
      places += [offset + 4, offset + 5, offset + 6]
      offset += 7 + Int(bytes[offset + 4]) + Int(bytes[offset + 5]) << 8
    }
    return places
  }

  /// The last record cut off at each byte was never acknowledged: that is no damage. Cut off before it, what was is
  /// missing, and only the group that is incomplete and those behind it.
  @Test("the log cut short at every byte of its last records: the groups before the cut")
  func torn() throws {
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
    // Each group is one record here.
    for length in stride(from: from, through: bytes.count, by: 17) {
      let directory = try source.copy()
      #expect(truncate(directory.path + "/" + log, off_t(length)) == 0)
      let engine = try directory.open(shards: nil)
      let lost = ends.count { $0 > length }
      let expected = Array(1...(Self.groups - UInt64(lost)))
      #expect(try engine.indices(0) == expected && engine.indices(1) == expected, "\(length) bytes")
      engine.close()
    }
  }

  @Test("without CURRENT no new database is made over the old one's files")
  func withoutCurrent() throws {
    let directory = try Self.killed()
    try FileManager.default.removeItem(atPath: directory.path + "/CURRENT")
    let before = try FileManager.default.contentsOfDirectory(atPath: directory.path).sorted()
    #expect { _ = try directory.open() } throws: { "\($0)".contains(directory.path + "/CURRENT is missing") }
    #expect(try FileManager.default.contentsOfDirectory(atPath: directory.path).sorted() == before)
  }
}

/// Numbers from a seed that is printed, and played again with TIDEMARK_SEED.
struct DamageRandom {
  let seed: UInt64
  private var state: UInt64

  init() {
    seed =
      ProcessInfo.processInfo.environment["TIDEMARK_SEED"].flatMap { UInt64($0) }
      ?? .random(in: 1...1_000_000)
    state = seed
  }

  mutating func below(_ limit: Int) -> Int {
    state = state &* 6_364_136_223_846_793_005 &+ 1_442_695_040_888_963_407
    return Int(state >> 33) % limit
  }
}
