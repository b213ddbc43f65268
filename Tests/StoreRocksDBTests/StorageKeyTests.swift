import NIOCore
import ReceiptModel
import StoreEngine
import Testing

@testable import StoreRocksDB

/// Keys are a stored format.
@Suite struct StorageKeyTests {
  private static let shard = ShardID(0x0102)
  private static let shardBytes: [UInt8] = [1, 2]
  private static let numberBytes: [UInt8] = [0, 0, 0, 0, 0, 0, 3, 4]
  private static let cid = Array("team:a-channel-with-a-long-name".utf8)

  private func bytes(_ key: StorageKey) -> [UInt8] {
    let bytes = key.withBytes { key in (0..<key.count).map { UInt8(truncatingIfNeeded: key.base[$0]) } }
    #expect(bytes.count == key.count)
    return bytes
  }

  @Test("keys of the log and of the feed are a shard and a number, big-endian")
  func logKeysAreShardAndNumber() {
    #expect(bytes(.log(Self.shard, LogIndex(0x0304))) == Self.shardBytes + Self.numberBytes)
    #expect(bytes(.logEnd(Self.shard)) == Self.shardBytes + [UInt8](repeating: 0xFF, count: 8) + [0])
    #expect(bytes(.feed(Self.shard, 0x0304)) == Self.shardBytes + Self.numberBytes)
  }

  @Test("a page's key is P, shard, channel and page; a channel's first key lacks the page")
  func pageKeysAreShardChannelAndPage() {
    let prefix = [UInt8(ascii: "P")] + Self.shardBytes + Self.numberBytes
    let channel = ChannelNumber(0x0304)
    #expect(bytes(.pages(Self.shard, channel)) == prefix)
    #expect(bytes(.page(Self.shard, channel, .rows(5))) == prefix + [0, 0, 0, 1, 0, 0, 0, 5])
  }

  @Test("a directory entry is D, shard and cid, of any length; a user's index has two hashes instead of the id")
  func directoryKeysAreShardAndCID() {
    let prefix = [UInt8(ascii: "D")] + Self.shardBytes
    for cid in [Self.cid, Array("a:b".utf8)] {
      #expect(bytes(.directory(Self.shard, cid)) == prefix + cid)
    }
    #expect(bytes(.directories(Self.shard)) == prefix)
    let index = bytes(.directory(Self.shard, Array("alice".utf8)))
    #expect(Array(index.prefix(4)) == prefix + [0])
    #expect(index.count == 20)
  }

  @Test("keys of a group are a word and its number; a record key has another number")
  func groupKeysAreWordAndNumber() {
    #expect(bytes(.position(GroupID(7))) == Array("group/".utf8) + [7])
    #expect(bytes(.joining(GroupID(7))) == Array("joining/".utf8) + [7])
    #expect(bytes(.recordKey(GroupID(7), RecordKeyNumber(0x0304))) == Array("key/".utf8) + [7] + Self.numberBytes)
    #expect(bytes(.recordKeyEnd) == Array("key0".utf8))
  }

  @Test("a key that was read keeps its bytes")
  func keysThatWereReadKeepTheirBytes() {
    for read in [[], [9], Self.cid] as [[UInt8]] { #expect(bytes(StorageKey(ByteBuffer(bytes: read))) == read) }
  }
}
