import NIOCore
import ReceiptModel
import StoreRocksDB
import Testing

@testable import StoreEngine

@Suite("RocksDB engine: some pages of a channel")
struct PageReadTests {
  private func write(_ channel: UInt64, _ page: PageID, cid: String? = nil) -> CommitGroup.PageWrite {
    CommitGroup.PageWrite(
      key: PageKey(shard: ShardID(1), channel: ChannelNumber(channel), page: page),
      cid: cid.map { Array($0.utf8) },
      bytes: ByteBuffer(string: "\(channel) \(page)")
    )
  }

  private func words(_ channel: StoredChannel?) -> [String]? {
    channel.map { $0.pages.map { "\(String(buffer: $0.bytes))" } }
  }

  @Test("existing pages are read by name or number, those of threads by range")
  func roundTrip() throws {
    let directory = TestDirectory()
    var engine = try directory.open()
    let second = SequenceNumber(2)
    let last = SequenceNumber(.max)
    var group = CommitGroup(index: 1)
    group.pages = [
      write(5, .head, cid: "team:five"), write(5, .rows(0)), write(5, .rows(7)), write(5, .segment(0)),
      write(5, .acknowledgements(second)), write(5, .memberships(0)), write(5, .steps(0, 0)),
      write(5, .threadRows(second, 0)), write(5, .threadRows(second, 1)), write(5, .threadSegment(second, 0)),
      write(5, .threadRows(last, 0)), write(5, .threadSegment(last, 0)),
      write(4, .threadRows(last, 0)), write(6, .threadRows(second, 0)), write(6, .head, cid: "team:six"),
    ]
    try engine.commit(group)
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
