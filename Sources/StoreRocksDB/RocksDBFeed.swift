internal import CRocksDB
internal import NIOCore
internal import ReceiptModel
internal import ReceiptWire
package import StoreEngine

// The feed's column family (R21): a value for each batch that has records.

extension RocksDBEngine {
  package func readFeed(_ request: FeedReadRequest) throws(StorageError) -> [StoredFeedBlock] {
    try families.readFeed(request, directory: directory)
  }

  package func trimFeed(_ request: FeedTrimRequest) throws(StorageError) -> FeedExtent {
    guard let feed else { return FeedExtent() }
    try checkUsable()
    let blocks = FeedBlocks(request.shard, families, directory)
    let extent = try families.feedExtent(of: request.shard, directory: directory)
    guard let last = try blocks.last() else { return extent }
    var kept = extent.first
    func excess() throws(StorageError) -> UInt64 {
      guard let most = request.bytesMax else { return 0 }
      let byteCount = try blocks.byteCount(from: kept)
      return byteCount > most ? byteCount - most : 0
    }
    var remaining = try excess()
    // In steps: the blocks of a minute of load are many megabytes.
    steps: while kept < last.first {
      for block in try families.readFeed(
        FeedReadRequest(shard: request.shard, number: kept, bytesMax: 1 << 20),
        directory: directory
      ) {
        let header = try blocks.header(block)
        // Tables are compressed: what was removed takes less in them.
        if remaining == 0, kept > extent.first { remaining = try excess() }
        guard block.first < last.first, header.time < request.before || remaining > 0 else { break steps }
        remaining -= min(remaining, UInt64(block.bytes.readableBytes))
        kept = block.first + UInt64(header.count)
      }
    }
    guard kept > extent.first else { return extent }
    let batch = rocksdb_writebatch_create()
    defer { rocksdb_writebatch_destroy(batch) }
    deleteRange(
      batch,
      from: StorageKey.feed(request.shard, extent.first),
      to: StorageKey.feed(request.shard, kept),
      in: feed
    )
    // Unsynced: after a crash the next trim removes the same blocks.
    let options = RocksDBWriteOptions(isSynced: false)
    var failure: UnsafeMutablePointer<CChar>?
    withExtendedLifetime(options) { rocksdb_write(database, options.pointer, batch, &failure) }
    if let text = Self.consumeError(&failure) { throw Self.error(text, self.directory) }
    return try families.feedExtent(of: request.shard, directory: directory)
  }
}

extension RocksDBFamilies {
  func readFeed(_ request: FeedReadRequest, directory: String) throws(StorageError) -> [StoredFeedBlock] {
    guard feed != nil else { return [] }
    let blocks = FeedBlocks(request.shard, self, directory)
    return try blocks.read(from: request.number, bytesMax: request.bytesMax)
  }

  func feedExtent(of shard: ShardID, directory: String) throws(StorageError) -> FeedExtent {
    guard feed != nil else { return FeedExtent() }
    let blocks = FeedBlocks(shard, self, directory)
    guard let first = try blocks.read(from: 0, bytesMax: 1).first, let last = try blocks.last() else {
      return FeedExtent()
    }
    return FeedExtent(
      first: first.first,
      firstTime: try blocks.header(first).time,
      end: last.first + UInt64(try blocks.header(last).count)
    )
  }
}

/// The blocks of one shard.
private struct FeedBlocks {
  let shard: ShardID
  let families: RocksDBFamilies
  let directory: String

  init(_ shard: ShardID, _ families: RocksDBFamilies, _ directory: String) {
    self.shard = shard
    self.families = families
    self.directory = directory
  }

  private var family: OpaquePointer { families.feed!.pointer }

  func header(_ block: StoredFeedBlock) throws(StorageError) -> FeedBlockHeader {
    do throws(WireError) {
      var reader = FieldReader(block.bytes.readableBytesSpan)
      return try FeedBlockHeader(&reader)
    } catch {
      throw .corrupt("\(directory): feed of shard \(shard.rawValue), record \(block.first): \(error)")
    }
  }

  /// Read blocks in order, from the one that holds a record, or from the next one.
  func read(from number: UInt64, bytesMax: Int) throws(StorageError) -> [StoredFeedBlock] {
    let iterator = FeedIterator(families, family, shard)
    // The block that holds a record begins at the last key at or before its number.
    if number == 0 { iterator.seek(to: 0) } else { iterator.seek(atOrBefore: number) }
    if !iterator.isValid { iterator.seek(to: number) }
    var found: [StoredFeedBlock] = []
    var byteCount = 0
    while byteCount < bytesMax, iterator.isValid, let (key, value) = iterator.entry {
      guard let (keyShard, first) = StorageKey.parseFeed(key), keyShard == shard else {
        throw .corrupt("\(directory): a key of the feed of shard \(shard.rawValue)")
      }
      let block = StoredFeedBlock(first: first, bytes: value)
      if first + UInt64(try header(block).count) > number {
        found.append(block)
        byteCount += value.readableBytes
      }
      iterator.next()
    }
    if let text = iterator.error { throw RocksDBEngine.error(text, directory) }
    return found
  }

  func last() throws(StorageError) -> StoredFeedBlock? {
    let iterator = FeedIterator(families, family, shard)
    iterator.seek(atOrBefore: .max)
    guard iterator.isValid, let (key, value) = iterator.entry else {
      if let text = iterator.error { throw RocksDBEngine.error(text, directory) }
      return nil
    }
    guard let (keyShard, first) = StorageKey.parseFeed(key), keyShard == shard else {
      throw .corrupt("\(directory): a key of the feed of shard \(shard.rawValue)")
    }
    return StoredFeedBlock(first: first, bytes: value)
  }

  /// Size of the blocks in tables from a record on, as far as RocksDB knows it; those in memory are not counted. Blocks
  /// before it are removed, but are in the tables until the next compaction.
  func byteCount(from number: UInt64) throws(StorageError) -> UInt64 {
    var size: UInt64 = 0
    var failure: UnsafeMutablePointer<CChar>?
    StorageKey.feed(shard, number).withBytes { first in
      StorageKey.feed(shard, .max).withBytes { end in
        var starts: UnsafePointer<CChar>? = first.base
        var ends: UnsafePointer<CChar>? = end.base
        var startCount = first.count
        var endCount = end.count
        rocksdb_approximate_sizes_cf(
          families.database.pointer,
          family,
          1,
          &starts,
          &startCount,
          &ends,
          &endCount,
          &size,
          &failure
        )
      }
    }
    if let text = RocksDBEngine.consumeError(&failure) { throw RocksDBEngine.error(text, directory) }
    return size
  }
}

/// An iterator over the blocks of one shard. It owns RocksDB's iterator, and the bounds that it points to.
private final class FeedIterator {
  private let options = RocksDBReadOptions(fillsCache: false)
  private let shard: ShardID
  private let lower: UnsafeMutableBufferPointer<CChar>
  private let upper: UnsafeMutableBufferPointer<CChar>
  private let pointer: OpaquePointer?

  init(_ families: RocksDBFamilies, _ family: OpaquePointer, _ shard: ShardID) {
    self.shard = shard
    lower = Self.copy(StorageKey.feed(shard, 0))
    upper = Self.copy(StorageKey.logEnd(shard))
    rocksdb_readoptions_set_iterate_lower_bound(options.pointer, lower.baseAddress, lower.count)
    rocksdb_readoptions_set_iterate_upper_bound(options.pointer, upper.baseAddress, upper.count)
    pointer = rocksdb_create_iterator_cf(families.database.pointer, options.pointer, family)
  }

  deinit {
    rocksdb_iter_destroy(pointer)
    lower.deallocate()
    upper.deallocate()
  }

  private static func copy(_ key: StorageKey) -> UnsafeMutableBufferPointer<CChar> {
    let bytes = UnsafeMutableBufferPointer<CChar>.allocate(capacity: key.count)
    key.withBytes { _ = bytes.initialize(from: UnsafeBufferPointer(start: $0.base, count: $0.count)) }
    return bytes
  }

  func seek(to number: UInt64) {
    StorageKey.feed(shard, number).withBytes { rocksdb_iter_seek(pointer, $0.base, $0.count) }
  }

  func seek(atOrBefore number: UInt64) {
    StorageKey.feed(shard, number).withBytes { rocksdb_iter_seek_for_prev(pointer, $0.base, $0.count) }
  }

  func next() { rocksdb_iter_next(pointer) }

  var isValid: Bool { rocksdb_iter_valid(pointer) != 0 }

  /// The current key and value; requires ``isValid``.
  var entry: (key: ByteBuffer, value: ByteBuffer)? {
    var keyCount = 0
    var valueCount = 0
    guard let key = rocksdb_iter_key(pointer, &keyCount), let value = rocksdb_iter_value(pointer, &valueCount) else {
      return nil
    }
    return (
      ByteBuffer(bytes: UnsafeRawBufferPointer(start: key, count: keyCount)),
      ByteBuffer(bytes: UnsafeRawBufferPointer(start: value, count: valueCount))
    )
  }

  var error: String? {
    var failure: UnsafeMutablePointer<CChar>?
    rocksdb_iter_get_error(pointer, &failure)
    return RocksDBEngine.consumeError(&failure)
  }
}
