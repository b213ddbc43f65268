internal import CRocksDB
internal import NIOCore
internal import ReceiptModel
internal import StoreEngine

/// Reads of many keys, for a store that serves and for one that is only read.
extension RocksDBFamilies {
  /// Call `body` with the keys of a family from `first` up to but not including `end`, and their values, in key order.
  ///
  /// - Parameters:
  ///   - first: nil begins with the first key.
  ///   - end: nil ends with the last key.
  ///   - directory: the path that errors name.
  ///   - fillsCache: whether blocks that are read are kept in the cache.
  func scan(
    _ family: OpaquePointer,
    from first: StorageKey? = nil,
    to end: StorageKey? = nil,
    countMax: Int = .max,
    directory: String,
    fillsCache: Bool = true,
    _ body: (ByteBuffer, ByteBuffer) throws(StorageError) -> Void
  ) throws(StorageError) {
    let options = RocksDBReadOptions(fillsCache: fillsCache)
    // The iterator uses the bound, so the buffer must stay in place until the iterator is gone.
    let bound = UnsafeMutableBufferPointer<CChar>.allocate(capacity: end?.count ?? 0)
    defer { bound.deallocate() }
    if let end {
      end.withBytes { _ = bound.initialize(from: UnsafeBufferPointer(start: $0.base, count: $0.count)) }
      rocksdb_readoptions_set_iterate_upper_bound(options.pointer, bound.baseAddress, bound.count)
    }
    let iterator = rocksdb_create_iterator_cf(database.pointer, options.pointer, family)
    defer {
      rocksdb_iter_destroy(iterator)
      withExtendedLifetime(options) {}
    }
    if let first {
      first.withBytes { rocksdb_iter_seek(iterator, $0.base, $0.count) }
    } else {
      rocksdb_iter_seek_to_first(iterator)
    }
    var count = 0
    while count < countMax, rocksdb_iter_valid(iterator) != 0 {
      count += 1
      var keyCount = 0
      var valueCount = 0
      guard let key = rocksdb_iter_key(iterator, &keyCount),
        let value = rocksdb_iter_value(iterator, &valueCount)
      else { break }
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

  /// Read a shard's own pages and its log.
  func readShard(
    _ shard: ShardID,
    directory: String,
    fillsCache: Bool = true
  ) throws(StorageError) -> StoredShard {
    var own: [(page: PageID, bytes: ByteBuffer)] = []
    // No channel has the number 0: the shard's own pages are stored under it.
    try scan(
      pages.pointer,
      from: .pages(shard, ChannelNumber(0)),
      to: .pages(shard, ChannelNumber(1)),
      directory: directory,
      fillsCache: fillsCache
    ) { key, value throws(StorageError) in
      guard let page = StorageKey.parsePage(key)?.page, page.isOfShard else {
        throw .corrupt("\(directory): a page key of shard \(shard.rawValue)'s own")
      }
      own.append((page, value))
    }
    var batches: [(index: LogIndex, bytes: ByteBuffer)] = []
    try scan(
      log.pointer,
      from: .log(shard, .zero),
      to: .logEnd(shard),
      directory: directory,
      fillsCache: fillsCache
    ) { key, value throws(StorageError) in
      guard let (_, index) = StorageKey.parseLog(key) else {
        throw .corrupt("\(directory): a log key of shard \(shard.rawValue)")
      }
      batches.append((index, value))
    }
    return StoredShard(pages: own, log: batches)
  }
}
