import Foundation
import NIOCore
import ReceiptModel
import ReceiptWire
import StoreRocksDB

@testable import StoreEngine

/// A temporary directory for one test, deleted at its end.
final class TestDirectory {
  let path: String

  init() {
    path = NSTemporaryDirectory() + "tidemark-rocksdb-\(UUID().uuidString)"
  }

  deinit { try? FileManager.default.removeItem(atPath: path) }

  func open(
    shards: Int? = 4,
    store: UInt64 = 1,
    settings: RocksDBSettings = RocksDBSettings()
  ) throws(StorageError) -> RocksDBEngine {
    try RocksDBEngine(
      directory: path,
      shardCount: shards,
      newStore: SessionID(high: 7, low: store),
      settings: settings
    )
  }

  /// The names of the files that contain one of these texts, byte for byte.
  ///
  /// A file that an open engine removes after the listing counts as empty.
  func files(with texts: [String], where isWanted: (String) -> Bool = { _ in true }) throws -> [String] {
    try FileManager.default.contentsOfDirectory(atPath: path).sorted().filter { name in
      guard isWanted(name), let bytes = FileManager.default.contents(atPath: path + "/" + name) else {
        return false
      }
      return texts.contains { bytes.range(of: Data($0.utf8)) != nil }
    }
  }

  /// The current write-ahead log.
  var newestLog: String {
    get throws {
      let files = try FileManager.default.contentsOfDirectory(atPath: path)
        .filter { $0.hasSuffix(".log") }
        .sorted { Int($0.dropLast(4)) ?? 0 < Int($1.dropLast(4)) ?? 0 }
      return path + "/" + files.last!
    }
  }

  func copy() throws -> TestDirectory {
    let other = TestDirectory()
    try FileManager.default.copyItem(atPath: path, toPath: other.path)
    return other
  }
}

extension LoopCommit {
  /// Batches with these indices for shards 0 to `shards`−1, each of this size, and a page with the same content.
  init(index: UInt64, shards: Int = 2, bytes: Int = 40) {
    self.init()
    for shard in 0..<shards {
      let id = ShardID(UInt16(shard))
      batches.append(Batch(shard: id, index: LogIndex(index), bytes: Self.content(shard, index, bytes)))
      pages.append(
        PageWrite(
          key: PageKey(shard: id, channel: ChannelNumber(0), page: .shardHead),
          cid: nil,
          bytes: Self.content(shard, index, bytes)
        )
      )
    }
  }

  static func content(_ shard: Int, _ index: UInt64, _ bytes: Int) -> ByteBuffer {
    var buffer = ByteBuffer()
    buffer.writeInteger(UInt64(shard))
    buffer.writeInteger(index)
    buffer.writeRepeatingByte(UInt8(truncatingIfNeeded: index &* 167), count: bytes - buffer.readableBytes)
    return buffer
  }
}

extension RocksDBEngine {
  /// The log indices of a shard, with their contents checked.
  func indices(_ shard: Int, bytes: Int = 40) throws -> [UInt64] {
    try recover(ShardID(UInt16(shard))).log.map { index, content in
      guard content == LoopCommit.content(shard, index.rawValue, bytes) else {
        throw StorageError.corrupt("log index \(index.rawValue) of shard \(shard) is not what was written")
      }
      return index.rawValue
    }
  }
}
