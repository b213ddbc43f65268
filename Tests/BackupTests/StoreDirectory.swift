import Foundation
import NIOCore
import ReceiptModel
import ReceiptWire
import StoreRocksDB

@testable import StoreEngine

/// The data directory of a stopped store with two shards, for one test; deleted at its end.
final class StoreDirectory: Sendable {
  static let identity = SessionID(high: 7, low: 1)
  /// The identity in hexadecimal.
  static let store = "00000000000000070000000000000001"

  let path = NSTemporaryDirectory() + "tidemark-store-\(UUID().uuidString)"

  deinit { try? FileManager.default.removeItem(atPath: path) }

  /// Open the directory as a store does, commit what `fill` adds, and close it.
  func commit(_ fill: (inout LoopCommit) -> Void) throws {
    let engine = try RocksDBEngine(directory: path, shardCount: 2, newStore: Self.identity)
    defer { engine.close() }
    var commit = LoopCommit()
    fill(&commit)
    try engine.commit(commit)
  }

  /// Write a file beside RocksDB's.
  func write(_ text: String, to name: String) throws { try write(Array(text.utf8), to: name) }

  func write(_ bytes: [UInt8], to name: String) throws {
    try Data(bytes).write(to: URL(fileURLWithPath: path + "/" + name))
  }

  func contains(_ name: String) -> Bool { FileManager.default.fileExists(atPath: path + "/" + name) }

  /// Return the times of all log batches, by shard and index, in milliseconds since 1970.
  func batchTimes() throws -> [Int64] {
    let reader = try RocksDBReader(path)
    defer { reader.close() }
    var times: [Int64] = []
    try reader.scanLog { _, index, bytes throws(StorageError) in
      guard let batch = try? LogBatch(bytes.readableBytesSpan) else {
        throw StorageError.corrupt("log index \(index.rawValue)")
      }
      times.append(batch.time.milliseconds)
    }
    return times
  }
}

extension LoopCommit {
  /// Add a log batch without effects.
  mutating func addBatch(_ index: UInt64, shard: UInt16 = 0, time: Int64 = 1_000) {
    var bytes = ByteBuffer()
    LogBatch.write(
      index: LogIndex(index),
      time: Timestamp(milliseconds: time),
      sessions: [],
      effectCount: 0,
      effects: ByteBuffer(),
      into: &bytes
    )
    batches.append(Batch(shard: ShardID(shard), index: LogIndex(index), bytes: bytes))
  }

  /// Add the head page of shard 0, which includes the log up to `index`.
  mutating func addShardHead(through index: UInt64, time: Int64 = 1_000) {
    let counters = ShardEffect.countersAssigned(nextChannel: ChannelNumber(1), time: Timestamp(milliseconds: time))
    addPage(0, .shardHead, Page(index: LogIndex(index), effects: [.shard(counters)]))
  }

  /// Add a page of shard 0.
  mutating func addPage(_ channel: UInt64, _ page: PageID, cid: String? = nil, _ content: Page) {
    var bytes = ByteBuffer()
    content.write(into: &bytes)
    let key = PageKey(shard: ShardID(0), channel: ChannelNumber(channel), page: page)
    pages.append(PageWrite(key: key, cid: cid.map { Array($0.utf8) }, bytes: bytes))
  }
}
