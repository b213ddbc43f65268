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
  fileprivate let directory: String
  /// nil after ``close()``.
  private var handles: Handles?

  /// What RocksDB has allocated for the open directory.
  private struct Handles {
    let families: RocksDBFamilies
    let read = RocksDBReadOptions(fillsCache: false)
  }

  fileprivate var log: OpaquePointer { handles!.families.log.pointer }
  fileprivate var pages: OpaquePointer { handles!.families.pages.pointer }

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
    let handles = Handles(families: families)
    guard let identity = try RocksDBEngine.storedIdentity(directory, in: families, handles.read) else {
      throw .corrupt("\(directory): its identity is missing")
    }
    self.identity = identity
    self.handles = handles
  }

  private static func open(_ directory: String, toleratesHoles: Bool) throws(StorageError) -> RocksDBFamilies
  {
    let options = RocksDBOptions.ofFamilies(toleratesHoles: toleratesHoles, pageCacheBytes: 8 << 20)
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

  package func close() { handles = nil }

  /// An entry of the pages' column family.
  package enum Entry: Hashable, Sendable {
    case page(PageKey)
    /// From a name to a channel's number.
    case directory(ShardID)
  }

  /// Call `body` with each log batch, by shard, in rising order of index.
  package func scanLog(
    _ body: (ShardID, LogIndex, ByteBuffer) throws(StorageError) -> Void
  ) throws(StorageError) {
    try scan(log) { key, value throws(StorageError) in
      guard key.readableBytes == 10, let shard = key.getInteger(at: key.readerIndex, as: UInt16.self),
        let index = key.getInteger(at: key.readerIndex + 2, as: UInt64.self)
      else { throw .corrupt("\(directory): a key of \(key.readableBytes) bytes in the log") }
      try body(ShardID(shard), LogIndex(index), value)
    }
  }

  /// Call `body` with each page and each directory entry in key order: first the directory entries, then pages by
  /// shard and channel.
  package func scanPages(_ body: (Entry, ByteBuffer) throws(StorageError) -> Void) throws(StorageError) {
    try scan(pages) { key, value throws(StorageError) in
      let start = key.readerIndex
      guard key.readableBytes >= 4, let kind = key.getInteger(at: start, as: UInt8.self),
        let shard = key.getInteger(at: start + 1, as: UInt16.self).map({ ShardID($0) })
      else { throw .corrupt("\(directory): a key of \(key.readableBytes) bytes among the pages") }
      switch kind {
      case UInt8(ascii: "D"): try body(.directory(shard), value)
      case UInt8(ascii: "P"):
        guard key.readableBytes == 19, let channel = key.getInteger(at: start + 3, as: UInt64.self),
          let page = key.getInteger(at: start + 11, as: UInt64.self).flatMap({ PageID(sortKey: $0) })
        else { throw .corrupt("\(directory): a page key of shard \(shard.rawValue)") }
        try body(.page(PageKey(shard: shard, channel: ChannelNumber(channel), page: page)), value)
      default: throw .corrupt("\(directory): a key of kind \(kind) among the pages")
      }
    }
  }

  fileprivate func scan(
    _ family: OpaquePointer,
    from first: StorageKey? = nil,
    to end: StorageKey? = nil,
    _ body: (ByteBuffer, ByteBuffer) throws(StorageError) -> Void
  ) throws(StorageError) {
    guard let handles else { preconditionFailure("the reader is closed") }
    let iterator = rocksdb_create_iterator_cf(handles.families.database.pointer, handles.read.pointer, family)
    defer { rocksdb_iter_destroy(iterator) }
    if let first {
      first.withBytes { rocksdb_iter_seek(iterator, $0.base, $0.count) }
    } else {
      rocksdb_iter_seek_to_first(iterator)
    }
    while rocksdb_iter_valid(iterator) != 0 {
      var keyCount = 0
      var valueCount = 0
      guard let key = rocksdb_iter_key(iterator, &keyCount),
        let value = rocksdb_iter_value(iterator, &valueCount)
      else { break }
      if let end, !end.sortsAfter(UnsafeRawBufferPointer(start: key, count: keyCount)) { break }
      try body(
        ByteBuffer(bytes: UnsafeRawBufferPointer(start: key, count: keyCount)),
        ByteBuffer(bytes: UnsafeRawBufferPointer(start: value, count: valueCount))
      )
      rocksdb_iter_next(iterator)
    }
    var failure: UnsafeMutablePointer<CChar>?
    rocksdb_iter_get_error(iterator, &failure)
    if let text = RocksDBEngine.consumeError(&failure) { throw RocksDBEngine.error(text, directory) }
  }
}

extension RocksDBReader {
  /// Stored state that a shard would start from.
  package func stored(_ shard: ShardID) throws(StorageError) -> StoredShard {
    var pages: [(page: PageID, bytes: ByteBuffer)] = []
    let (first, end) = (StorageKey.pages(shard, ChannelNumber(0)), StorageKey.pages(shard, ChannelNumber(1)))
    try scan(self.pages, from: first, to: end) { key, value throws(StorageError) in
      let raw = key.getInteger(at: key.writerIndex - 8, as: UInt64.self)
      guard let page = raw.flatMap({ PageID(sortKey: $0) }), page.isOfShard else {
        throw .corrupt("\(directory): a page key of shard \(shard.rawValue)'s own")
      }
      pages.append((page, value))
    }
    var log: [(index: LogIndex, bytes: ByteBuffer)] = []
    try scan(self.log, from: .log(shard, .zero), to: .logEnd(shard)) { key, value throws(StorageError) in
      guard let index = key.getInteger(at: key.readerIndex + 2, as: UInt64.self) else {
        throw .corrupt("\(directory): a log key of shard \(shard.rawValue)")
      }
      log.append((LogIndex(index), value))
    }
    return StoredShard(pages: pages, log: log)
  }

  /// Per shard, the last log index in the directory: that of the last batch, or of the shard's own pages if the log is
  /// cut up to them.
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
      try scan(pages, from: first, to: end) { _, value throws(StorageError) in
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
