internal import CRocksDB
internal import Foundation
package import NIOCore
package import ReceiptModel
internal import ReceiptWire
package import StoreEngine

/// A data directory, or a copy of one, opened read-only. Every block that is read is verified by its checksum.
///
/// `@unchecked Sendable`: RocksDB's handles may be used from any thread, and the pointers never change before
/// ``close()``.
package final class RocksDBReader: @unchecked Sendable {
  package let identity: RocksDBEngine.Identity
  private let directory: String
  /// nil after ``close()``.
  private var openFamilies: RocksDBFamilies?

  private var families: RocksDBFamilies {
    guard let openFamilies else { preconditionFailure("the reader is closed") }
    return openFamilies
  }

  /// Throw if logs or tables are damaged, or the directory contains no store.
  package init(_ directory: String) throws(StorageError) {
    self.directory = directory
    guard FileManager.default.fileExists(atPath: directory + "/CURRENT") else {
      throw .unusable("\(directory): contains no store (CURRENT is missing)")
    }
    let isUnsynced = UnsyncedMark.mayHaveHoles(in: directory)
    if let fault = LogFileCheck.fault(in: directory, checksums: true, logs: !isUnsynced) {
      throw .corrupt("\(directory): \(fault)")
    }
    if let fault = TableFileCheck.fault(in: directory) { throw .corrupt("\(directory): \(fault)") }
    let families = try Self.open(directory, toleratesHoles: isUnsynced)
    guard let identity = try RocksDBEngine.storedIdentity(directory, in: families, RocksDBReadOptions()) else {
      throw .corrupt("\(directory): its identity is missing")
    }
    self.identity = identity
    openFamilies = families
  }

  private static func open(_ directory: String, toleratesHoles: Bool) throws(StorageError) -> RocksDBFamilies {
    let options = RocksDBOptions.ofFamilies(
      toleratesHoles: toleratesHoles,
      pageCacheBytes: 8 << 20,
      hasFeed: RocksDBFamilies.hasFeed(directory)
    )
    for family in options {
      rocksdb_options_set_create_if_missing(family.pointer, 0)
      rocksdb_options_set_create_missing_column_families(family.pointer, 0)
    }
    do throws(RocksDBFamilies.OpenFailure) {
      return try RocksDBFamilies(directory: directory, options: options, isReadOnly: true)
    } catch {
      if error.isDamage { throw .corrupt("\(directory): \(error.text)") }
      throw .unusable("\(directory): cannot be opened (\(error.text))")
    }
  }

  package func close() { openFamilies = nil }

  /// An entry of the pages' column family.
  package enum Entry: Hashable, Sendable {
    case page(PageKey)
    /// From a name to a channel's number.
    case directory(ShardID)
  }

  /// Call `body` with each log batch, by shard, in rising order of index.
  package func scanLog(_ body: (ShardID, LogIndex, ByteBuffer) throws(StorageError) -> Void) throws(StorageError) {
    try scan(families.log.pointer) { key, value throws(StorageError) in
      guard let (shard, index) = StorageKey.parseLog(key) else {
        throw .corrupt("\(directory): a key of \(key.readableBytes) bytes in the log")
      }
      try body(shard, index, value)
    }
  }

  /// Call `body` with each page and each directory entry in key order: first the directory entries, then pages by
  /// shard and channel.
  package func scanPages(_ body: (Entry, ByteBuffer) throws(StorageError) -> Void) throws(StorageError) {
    try scan(families.pages.pointer) { key, value throws(StorageError) in
      if let page = StorageKey.parsePage(key) {
        try body(.page(page), value)
      } else if let shard = StorageKey.parseDirectory(key) {
        try body(.directory(shard), value)
      } else {
        throw .corrupt("\(directory): a damaged key of \(key.readableBytes) bytes among the pages")
      }
    }
  }

  /// Call `body` with each block of the feed, by shard, in rising order of number.
  package func scanFeed(_ body: (ShardID, StoredFeedBlock) throws(StorageError) -> Void) throws(StorageError) {
    guard let feed = families.feed else { return }
    try scan(feed.pointer) { key, value throws(StorageError) in
      guard let (shard, number) = StorageKey.parseFeed(key) else {
        throw .corrupt("\(directory): a key of \(key.readableBytes) bytes in the feed")
      }
      try body(shard, StoredFeedBlock(first: number, bytes: value))
    }
  }

  private func scan(
    _ family: OpaquePointer,
    from first: StorageKey? = nil,
    to end: StorageKey? = nil,
    _ body: (ByteBuffer, ByteBuffer) throws(StorageError) -> Void
  ) throws(StorageError) {
    try families.scan(family, from: first, to: end, directory: directory, fillsCache: false, body)
  }
}

extension RocksDBReader {
  /// Return the stored state that a shard would start from.
  package func stored(_ shard: ShardID) throws(StorageError) -> StoredShard {
    try families.readShard(shard, directory: directory, fillsCache: false)
  }

  /// Return, per shard, the last log index in the directory: that of the last batch, or of the shard's own pages if the
  /// log is trimmed up to them.
  package func lastIndexes() throws(StorageError) -> [LogIndex] {
    var last = [LogIndex](repeating: .zero, count: identity.shardCount)
    func record(_ shard: ShardID, _ index: LogIndex) throws(StorageError) {
      guard Int(shard.rawValue) < last.count else {
        throw .corrupt("\(directory): shard \(shard.rawValue), of \(last.count)")
      }
      last[Int(shard.rawValue)] = max(last[Int(shard.rawValue)], index)
    }
    try scanLog { shard, index, _ throws(StorageError) in try record(shard, index) }
    for shard in last.indices {
      let id = ShardID(UInt16(shard))
      let first = StorageKey.pages(id, ChannelNumber(0))
      let end = StorageKey.pages(id, ChannelNumber(1))
      try scan(families.pages.pointer, from: first, to: end) { _, value throws(StorageError) in
        let index: LogIndex
        do throws(WireError) {
          index = try PageScan(value.readableBytesSpan).index
        } catch {
          throw .corrupt("\(directory): a page of shard \(shard): \(error)")
        }
        try record(id, index)
      }
    }
    return last
  }
}
