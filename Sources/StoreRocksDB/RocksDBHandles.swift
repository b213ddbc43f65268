internal import CRocksDB
internal import Foundation
internal import NIOCore
internal import ReceiptModel
internal import StoreEngine

/// Options of one column family; those of the first one are also the database's.
final class RocksDBOptions {
  let pointer: OpaquePointer

  /// RocksDB's log level *warn*; its C interface has no name for it.
  private static let warnLevel: Int32 = 2

  init(writeBufferBytes: Int, toleratesHoles: Bool = false, pageCacheBytes: Int? = nil) {
    pointer = rocksdb_options_create()
    rocksdb_options_set_create_if_missing(pointer, 1)
    rocksdb_options_set_create_missing_column_families(pointer, 1)
    rocksdb_options_set_write_buffer_size(pointer, writeBufferBytes)
    // An incomplete record at the end of the log was never acknowledged and is dropped. Any other damage stops the
    // start: the records after it were acknowledged, and point-in-time recovery would silently drop them. It is for a
    // log that was not synced when the machine failed: its blocks may have reached the disk in any order.
    let recovery = toleratesHoles ? rocksdb_point_in_time_recovery : rocksdb_tolerate_corrupted_tail_records_recovery
    rocksdb_options_set_wal_recovery_mode(pointer, Int32(recovery))
    rocksdb_options_set_max_total_wal_size(pointer, 512 << 20)
    rocksdb_options_set_info_log_level(pointer, Self.warnLevel)
    rocksdb_options_set_keep_log_file_num(pointer, 2)
    rocksdb_options_set_stats_dump_period_sec(pointer, 0)
    rocksdb_options_set_max_background_jobs(pointer, 2)
    // Event loops commit one after the other; and two writers could not use the log's vector anyway.
    rocksdb_options_set_allow_concurrent_memtable_write(pointer, 0)
    if let pageCacheBytes {
      let table = rocksdb_block_based_options_create()
      rocksdb_block_based_options_set_filter_policy(table, rocksdb_filterpolicy_create_bloom_full(10))
      let cache = rocksdb_cache_create_lru(pageCacheBytes)
      rocksdb_block_based_options_set_block_cache(table, cache)
      rocksdb_cache_destroy(cache)
      rocksdb_options_set_block_based_table_factory(pointer, table)
      rocksdb_block_based_options_destroy(table)
    }
  }

  deinit { rocksdb_options_destroy(pointer) }

  /// Return the options of the column families of a store, in the order of ``RocksDBFamilies/names``.
  ///
  /// - Parameters:
  ///   - toleratesHoles: whether the write-ahead log may have lost blocks in a machine failure.
  ///   - pageCacheBytes: size of the cache for blocks of pages.
  ///   - hasFeed: whether there is a column family for the feed.
  static func ofFamilies(toleratesHoles: Bool, pageCacheBytes: Int, hasFeed: Bool) -> [RocksDBOptions] {
    // The log is written once, read at start and trimmed: with a large buffer most of it is deleted before it reaches a
    // table.
    let log = RocksDBOptions(writeBufferBytes: 128 << 20)
    // Written in rising order and read only at start, so a vector is enough.
    rocksdb_options_set_memtable_vector_rep(log.pointer)
    let families = [
      RocksDBOptions(writeBufferBytes: 64 << 20, toleratesHoles: toleratesHoles), log,
      RocksDBOptions(writeBufferBytes: 64 << 20, pageCacheBytes: pageCacheBytes),
    ]
    return hasFeed ? families + [RocksDBOptions(writeBufferBytes: 64 << 20)] : families
  }
}

/// Options of writes.
final class RocksDBWriteOptions {
  let pointer: OpaquePointer

  init(isSynced: Bool) {
    pointer = rocksdb_writeoptions_create()
    rocksdb_writeoptions_set_sync(pointer, isSynced ? 1 : 0)
  }

  deinit { rocksdb_writeoptions_destroy(pointer) }
}

/// Options of reads.
final class RocksDBReadOptions {
  let pointer: OpaquePointer

  /// - Parameter fillsCache: whether blocks that are read are kept in the cache.
  init(fillsCache: Bool = true) {
    pointer = rocksdb_readoptions_create()
    if !fillsCache { rocksdb_readoptions_set_fill_cache(pointer, 0) }
  }

  deinit { rocksdb_readoptions_destroy(pointer) }
}

/// A write batch of commits. Clearing it keeps its memory.
final class RocksDBWriteBatch {
  /// Size up to which a batch is used again: that of a commit with a slice of pages, and more than that of most logs.
  static let keptBytesMax = 1 << 20

  let pointer: OpaquePointer

  init() { pointer = rocksdb_writebatch_create() }

  deinit { rocksdb_writebatch_destroy(pointer) }

  var byteCount: Int {
    var count = 0
    _ = rocksdb_writebatch_data(pointer, &count)
    return count
  }

  func clear() { rocksdb_writebatch_clear(pointer) }
}

/// An open database. It is closed when it and all its column families have been released.
final class RocksDBDatabase {
  let pointer: OpaquePointer
  private let options: RocksDBOptions

  /// - Parameter options: released after the database is closed.
  init(owned pointer: OpaquePointer, options: RocksDBOptions) {
    self.pointer = pointer
    self.options = options
  }

  deinit { rocksdb_close(pointer) }
}

/// A column family of an open database. It keeps the database open: RocksDB aborts if a family outlives it.
final class RocksDBFamily {
  let pointer: OpaquePointer
  private let database: RocksDBDatabase

  init(owned pointer: OpaquePointer, of database: RocksDBDatabase) {
    self.pointer = pointer
    self.database = database
  }

  deinit { rocksdb_column_family_handle_destroy(pointer) }
}

/// A store's open database with its column families.
struct RocksDBFamilies {
  /// RocksDB's text of why a database cannot be opened.
  struct OpenFailure: Error {
    let text: String

    var isDamage: Bool { text.hasPrefix("Corruption") }
    /// Whether another process has the directory open.
    var isLocked: Bool { text.contains("LOCK") }
  }

  static let names = ["default", "log", "pages"]
  /// The family of the feed (R21), in directories of stores that had one.
  static let feedName = "feed"

  let database: RocksDBDatabase
  let meta: RocksDBFamily
  let log: RocksDBFamily
  let pages: RocksDBFamily
  /// nil: the store never had a feed.
  let feed: RocksDBFamily?

  /// Return whether a directory has a column family for the feed. False for a directory without a database.
  static func hasFeed(_ directory: String) -> Bool {
    let options = RocksDBOptions(writeBufferBytes: 1 << 20)
    var count = 0
    var failure: UnsafeMutablePointer<CChar>?
    let list = rocksdb_list_column_families(options.pointer, directory, &count, &failure)
    guard RocksDBEngine.consumeError(&failure) == nil, let list else { return false }
    defer { rocksdb_list_column_families_destroy(list, count) }
    return (0..<count).contains { list[$0].map { String(cString: $0) } == feedName }
  }

  /// Open a data directory.
  ///
  /// - Parameter options: of the column families, in the order of ``names``, and then of the feed if it has a family.
  init(directory: String, options: [RocksDBOptions], isReadOnly: Bool = false) throws(OpenFailure) {
    let hasFeed = options.count > Self.names.count
    let allNames = hasFeed ? Self.names + [Self.feedName] : Self.names
    var handles = [OpaquePointer?](repeating: nil, count: allNames.count)
    var failure: UnsafeMutablePointer<CChar>?
    let names = allNames.map { strdup($0) }
    defer { for name in names { free(name) } }
    let namePointers = names.map { UnsafePointer($0) }
    let opened = withExtendedLifetime(options) {
      let count = Int32(names.count)
      let optionPointers = options.map { Optional($0.pointer) }
      return isReadOnly
        ? rocksdb_open_for_read_only_column_families(
          options[0].pointer,
          directory,
          count,
          namePointers,
          optionPointers,
          &handles,
          0,
          &failure
        )
        : rocksdb_open_column_families(
          options[0].pointer,
          directory,
          count,
          namePointers,
          optionPointers,
          &handles,
          &failure
        )
    }
    guard let opened, let meta = handles[0], let log = handles[1], let pages = handles[2] else {
      throw OpenFailure(text: RocksDBEngine.consumeError(&failure) ?? "unknown error")
    }
    let database = RocksDBDatabase(owned: opened, options: options[0])
    self.database = database
    self.meta = RocksDBFamily(owned: meta, of: database)
    self.log = RocksDBFamily(owned: log, of: database)
    self.pages = RocksDBFamily(owned: pages, of: database)
    feed = hasFeed ? handles[Self.names.count].map { RocksDBFamily(owned: $0, of: database) } : nil
  }
}

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
      guard let key = rocksdb_iter_key(iterator, &keyCount), let value = rocksdb_iter_value(iterator, &valueCount)
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
  func readShard(_ shard: ShardID, directory: String, fillsCache: Bool = true) throws(StorageError) -> StoredShard {
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
    return StoredShard(
      pages: own,
      log: batches,
      feed: try feedExtent(of: shard, directory: directory)
    )
  }
}
