import NIOCore
import ReceiptModel
import ReceiptWire
import StoreRocksDB
import TestSupport
import Testing

@testable import StoreEngine

@Suite("RocksDB engine: the feed")
struct FeedStorageTests {
  private static var settings: RocksDBSettings {
    var settings = RocksDBSettings()
    settings.hasFeed = true
    return settings
  }

  /// A block of records at a time; all are of channel 1.
  private static func block(_ first: UInt64, count: Int, at time: Int64) -> StoredFeedBlock {
    var bytes = ByteBuffer()
    let time = Timestamp(milliseconds: time)
    FeedBlockHeader(time: time, count: count).write(into: &bytes)
    var record = FeedRecord(.read, at: time)
    record.channel = ChannelNumber(1)
    var random = SplitMix64(seed: first)
    for _ in 0..<count {
      // What compression does not shorten.
      record.detail = String(random.next(), radix: 16)
      bytes.writeFeedRecord(record, base: time)
    }
    return StoredFeedBlock(first: first, bytes: bytes)
  }

  private static func commit(_ blocks: [StoredFeedBlock], to engine: RocksDBEngine, index: UInt64) throws {
    var commit = LoopCommit(index: index)
    commit.feedBlocks = blocks.map { LoopCommit.FeedBlock(shard: ShardID(1), block: $0) }
    try engine.commit(commit)
  }

  private static func read(_ engine: RocksDBEngine, _ shard: UInt16 = 1, from number: UInt64, bytesMax: Int = 1 << 20)
    throws -> [UInt64]
  {
    try engine.readFeed(FeedReadRequest(shard: ShardID(shard), number: number, bytesMax: bytesMax)).map(\.first)
  }

  @Test("blocks are read from the one that holds a record, also after a restart without the feed")
  func blocksAreReadFromTheRecord() throws {
    let directory = TestDirectory()
    var engine = try directory.open(settings: Self.settings)
    #expect(try engine.recover(ShardID(1)).feed == FeedExtent())
    try Self.commit([Self.block(1, count: 3, at: 10)], to: engine, index: 1)
    try Self.commit([Self.block(4, count: 1, at: 20), Self.block(5, count: 5, at: 30)], to: engine, index: 2)
    for isReopened in [false, true] {
      if isReopened {
        engine.close()
        // A directory that has had a feed keeps it.
        engine = try directory.open()
      }
      for (number, firsts) in [(0, [1, 4, 5]), (1, [1, 4, 5]), (3, [1, 4, 5]), (4, [4, 5]), (9, [5]), (10, [])]
        as [(UInt64, [UInt64])]
      {
        #expect(try Self.read(engine, from: number) == firsts, "from \(number)")
      }
      #expect(try Self.read(engine, from: 1, bytesMax: 1) == [1])
      #expect(try Self.read(engine, 0, from: 1) == [])
      #expect(try Self.read(engine, 2, from: 1) == [])
      let extent = FeedExtent(first: 1, firstTime: Timestamp(milliseconds: 10), end: 10)
      #expect(try engine.recover(ShardID(1)).feed == extent)
    }
  }

  @Test("a trim removes old blocks, and never the last one")
  func trimRemovesOldBlocks() throws {
    let directory = TestDirectory()
    let engine = try directory.open(settings: Self.settings)
    try Self.commit((0..<10).map { Self.block(1 + $0, count: 1, at: Int64($0)) }, to: engine, index: 1)
    func trim(before time: Int64) throws -> FeedExtent {
      try engine.trimFeed(
        FeedTrimRequest(shard: ShardID(1), before: Timestamp(milliseconds: time), bytesMax: nil)
      )
    }
    #expect(try trim(before: 0) == FeedExtent(first: 1, firstTime: .none, end: 11))
    #expect(try trim(before: 4) == FeedExtent(first: 5, firstTime: Timestamp(milliseconds: 4), end: 11))
    #expect(try Self.read(engine, from: 1) == [5, 6, 7, 8, 9, 10])
    #expect(try trim(before: 100) == FeedExtent(first: 10, firstTime: Timestamp(milliseconds: 9), end: 11))
    #expect(try Self.read(engine, from: 1) == [10])
    #expect(try engine.recover(ShardID(1)).feed.end == 11)
  }

  @Test("a trim by size removes the oldest blocks until the rest is smaller")
  func trimBySizeRemovesOldestBlocks() throws {
    let directory = TestDirectory()
    let engine = try directory.open(settings: Self.settings)
    for number in 0..<8 {
      try Self.commit(
        [Self.block(1 + UInt64(number) * 10_000, count: 10_000, at: Int64(number))],
        to: engine,
        index: UInt64(number) + 1
      )
    }
    // RocksDB knows the sizes of tables only.
    try engine.purge()
    let rest = try engine.trimFeed(FeedTrimRequest(shard: ShardID(1), before: .none, bytesMax: 500_000))
    #expect(rest.first > 10_000 && rest.first <= 70_001 && rest.end == 80_001, "\(rest)")
    // What is removed counts no more, although it is in the tables until they are compacted.
    let again = try engine.trimFeed(FeedTrimRequest(shard: ShardID(1), before: .none, bytesMax: 500_000))
    #expect(again == rest)
  }

  @Test("a purge leaves no write-ahead file behind, although the feed is written to")
  func purgeReleasesWriteAheadFiles() throws {
    let directory = TestDirectory()
    let engine = try directory.open(settings: Self.settings)
    try Self.commit([Self.block(1, count: 3, at: 10)], to: engine, index: 1)
    try engine.purge()
    #expect(try Self.read(engine, from: 1) == [1])
  }
}
