import NIOCore
import ReceiptModel
import StoreRocksDB
import Testing

@testable import StoreEngine

@Suite("RocksDB engine: segments of steps")
struct StepSegmentTests {
  private func segment(_ channel: UInt64, _ rowPage: UInt32, _ segment: UInt32) -> CommitGroup.PageWrite {
    CommitGroup.PageWrite(
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
  func roundTrip() throws {
    let directory = TestDirectory()
    var engine = try directory.open()
    var group = CommitGroup(index: 1)
    group.pages.append(
      CommitGroup.PageWrite(
        key: PageKey(shard: ShardID(1), channel: ChannelNumber(5), page: .head),
        cid: Array("team:five".utf8),
        bytes: ByteBuffer(string: "head")
      )
    )
    for number in [0, 1, 2, 255, 256, 70_000] as [UInt32] { group.pages.append(segment(5, 7, number)) }
    group.pages += [segment(5, 6, 1), segment(5, 8, 0), segment(6, 7, 1), segment(5, 65_535, 3)]
    try engine.commit(group)
    #expect(try read(engine, 5, 7, 1..<256) == ["7 1: 5 7 1", "7 2: 5 7 2", "7 255: 5 7 255"])
    #expect(try read(engine, 5, 7).count == 6)
    #expect(try read(engine, 5, 65_535) == ["65535 3: 5 65535 3"])
    #expect(try read(engine, 5, 9) == [])
    #expect(try engine.read(ShardID(1), .number(ChannelNumber(5)))?.pages.map(\.page) == [.head])
    var trim = CommitGroup()
    trim.stepTrims = [
      CommitGroup.StepTrim(shard: ShardID(1), channel: ChannelNumber(5), rowPage: 7, before: 256)
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
