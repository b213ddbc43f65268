import NIOCore
import ReceiptModel
import StoreRocksDB
import Testing

@testable import StoreEngine

@Suite("RocksDB engine: some pages of a channel")
struct PageReadTests {
  private func write(_ channel: UInt64, _ page: PageID, cid: String? = nil) -> LoopCommit.PageWrite {
    LoopCommit.PageWrite(
      key: PageKey(shard: ShardID(1), channel: ChannelNumber(channel), page: page),
      cid: cid.map { Array($0.utf8) },
      bytes: ByteBuffer(string: "\(channel) \(page)")
    )
  }

  private func words(_ channel: StoredChannel?) -> [String]? {
    channel.map { $0.pages.map { "\(String(buffer: $0.bytes))" } }
  }

  @Test("existing pages are read by name or number, those of threads by range")
  func existingPagesAreReadByNameOrNumber() throws {
    let directory = TestDirectory()
    var engine = try directory.open()
    let second = SequenceNumber(2)
    let last = SequenceNumber(.max)
    var commit = LoopCommit(index: 1)
    commit.pages = [
      write(5, .head, cid: "team:five"), write(5, .rows(0)), write(5, .rows(7)), write(5, .segment(0)),
      write(5, .acknowledgements(second)), write(5, .memberships(0)), write(5, .steps(0, 0)),
      write(5, .threadRows(second, 0)), write(5, .threadRows(second, 1)), write(5, .threadSegment(second, 0)),
      write(5, .threadRows(last, 0)), write(5, .threadSegment(last, 0)),
      write(4, .threadRows(last, 0)), write(6, .threadRows(second, 0)), write(6, .head, cid: "team:six"),
    ]
    try engine.commit(commit)
    let five = ChannelReference.number(ChannelNumber(5))
    for isReopened in [false, true] {
      if isReopened {
        engine.close()
        engine = try directory.open()
      }
      let named = try engine.readPages(
        ShardID(1),
        .cid(Array("team:five".utf8)),
        .pages([.rows(7), .head, .rows(8), .rows(.max)])
      )
      #expect(named?.number == ChannelNumber(5))
      #expect(words(named) == ["5 \(PageID.rows(7))", "5 \(PageID.head)"])
      #expect(named?.pages.map(\.page) == [.rows(7), .head])
      #expect(words(try engine.readPages(ShardID(1), .cid(Array("team:six!".utf8)), .pages([.head]))) == nil)
      #expect(words(try engine.readPages(ShardID(0), .cid(Array("team:five".utf8)), .pages([.head]))) == nil)
      #expect(try engine.readPages(ShardID(1), .number(ChannelNumber(9)), .pages([.head]))?.pages.count == 0)
      let threads = try engine.readPages(ShardID(1), five, .threads(pagesMax: 10))
      #expect(
        threads?.pages.map(\.page) == [
          .threadRows(second, 0), .threadRows(second, 1), .threadSegment(second, 0), .threadRows(last, 0),
          .threadSegment(last, 0),
        ]
      )
      #expect(words(threads)?.allSatisfy { $0.hasPrefix("5 ") } == true)
      #expect(try engine.readPages(ShardID(1), five, .threads(pagesMax: 3))?.pages.count == 3)
      let none = ChannelReference.number(ChannelNumber(7))
      #expect(try engine.readPages(ShardID(1), none, .threads(pagesMax: 3))?.pages.count == 0)
    }
  }
}

@Suite("RocksDB engine: segments of steps")
struct StepSegmentTests {
  private func segment(_ channel: UInt64, _ rowPage: UInt32, _ segment: UInt32) -> LoopCommit.PageWrite {
    LoopCommit.PageWrite(
      key: PageKey(shard: ShardID(1), channel: ChannelNumber(channel), page: .steps(rowPage, segment)),
      cid: nil,
      bytes: ByteBuffer(string: "\(channel) \(rowPage) \(segment)")
    )
  }

  private func read(
    _ engine: RocksDBEngine,
    _ channel: UInt64,
    _ rowPage: UInt32,
    _ segments: Range<UInt32> = 0..<UInt32.max
  ) throws -> [String] {
    try engine.readSteps(ShardID(1), ChannelNumber(channel), rowPage: rowPage, segments: segments)
      .map { "\($0.rowPage) \($0.segment): \(String(buffer: $0.bytes))" }
  }

  @Test("segments are read by range, not with their channel, and deleted up to a number")
  func segmentsAreReadByRange() throws {
    let directory = TestDirectory()
    var engine = try directory.open()
    var commit = LoopCommit(index: 1)
    commit.pages.append(
      LoopCommit.PageWrite(
        key: PageKey(shard: ShardID(1), channel: ChannelNumber(5), page: .head),
        cid: Array("team:five".utf8),
        bytes: ByteBuffer(string: "head")
      )
    )
    for number in [0, 1, 2, 255, 256, 70_000] as [UInt32] { commit.pages.append(segment(5, 7, number)) }
    commit.pages += [segment(5, 6, 1), segment(5, 8, 0), segment(6, 7, 1), segment(5, 65_535, 3)]
    try engine.commit(commit)
    #expect(try read(engine, 5, 7, 1..<256) == ["7 1: 5 7 1", "7 2: 5 7 2", "7 255: 5 7 255"])
    #expect(try read(engine, 5, 7).count == 6)
    #expect(try read(engine, 5, 65_535) == ["65535 3: 5 65535 3"])
    #expect(try read(engine, 5, 9) == [])
    #expect(try engine.read(ShardID(1), .number(ChannelNumber(5)))?.pages.map(\.page) == [.head])
    var trim = LoopCommit()
    trim.stepTrims = [
      LoopCommit.StepTrim(shard: ShardID(1), channel: ChannelNumber(5), rowPage: 7, segments: 0..<256)
    ]
    #expect(!trim.isEmpty)
    try engine.commit(trim)
    for isReopened in [false, true] {
      if isReopened {
        engine.close()
        engine = try directory.open()
      }
      #expect(try read(engine, 5, 7) == ["7 256: 5 7 256", "7 70000: 5 7 70000"])
      #expect(try read(engine, 5, 6) == ["6 1: 5 6 1"])
      #expect(try read(engine, 5, 8) == ["8 0: 5 8 0"])
      #expect(try read(engine, 6, 7) == ["7 1: 6 7 1"])
      #expect(try engine.read(ShardID(1), .number(ChannelNumber(5)))?.pages.map(\.page) == [.head])
    }
  }
}
