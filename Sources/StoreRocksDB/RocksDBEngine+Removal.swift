internal import CRocksDB
internal import Foundation
internal import NIOConcurrencyHelpers
package import NIOCore
package import ReceiptModel
package import StoreEngine

/// Drops of deleted channels, and removal of deleted data from RocksDB's own files (R16).
extension RocksDBEngine {
  // MARK: Drops

  /// Delete all keys of a channel, and its directory entry unless that names another channel, which was created since.
  /// No other commit writes that entry meanwhile: a shard's commits run one after the other.
  func add(_ drop: LoopCommit.Drop, to batch: OpaquePointer?) throws(StorageError) {
    deleteRange(
      batch,
      from: StorageKey.pages(drop.shard, drop.channel),
      to: StorageKey.pages(drop.shard, ChannelNumber(drop.channel.rawValue + 1)),
      in: pages
    )
    let entry = StorageKey.directory(drop.shard, drop.cid)
    guard let named = try get(pages, entry)?.getInteger(at: 0, as: UInt64.self),
      named == drop.channel.rawValue
    else { return }
    entry.withBytes { rocksdb_writebatch_delete_cf(batch, pages, $0.base, $0.count) }
  }

  // MARK: Purge

  /// Flush all memtables, so that no earlier write-ahead file is needed any more, and compact the tables of
  /// the log and of the record keys, in which deleted values are only marked as deleted. Returns when those files
  /// are gone.
  package func purge() throws(StorageError) {
    purging.lock()
    defer { purging.unlock() }
    try Self.checkSpace(directory)
    // RocksDB keeps what an open snapshot sees, in all tables.
    guard !snapshots.withLockedValue(\.areOpen) else {
      throw .failed("\(directory): another node receives a snapshot, which keeps what a purge removes")
    }
    guard compactsTables, !hasFoundDamage else {
      throw .failed("\(directory): compaction is off because a table is damaged")
    }
    let before = try writeAheadFiles()
    // A file is released when every family has flushed its part of it. Each flush begins a new file, so writes made
    // meanwhile are in none of these.
    for family in openFamilies { try flush(family) }
    // A log that is trimmed often has few tables.
    try FreeDescriptors.check(for: directory)
    let faults = backgroundFaults
    merge(log)
    try FreeDescriptors.check(for: directory)
    merge(meta)
    // The call reports no result.
    guard backgroundFaults == faults else {
      throw recordFailure("the tables of the log or of the record keys cannot be compacted")
    }
    // RocksDB deletes the files right after the flush, on its own thread.
    for _ in 0..<1_000 {
      if before.isDisjoint(with: try writeAheadFiles()) { return }
      usleep(10_000)
    }
    throw .failed("\(directory): write-ahead files from before the purge still exist")
  }

  /// Number of failed flushes and compactions since the directory was opened.
  private var backgroundFaults: String {
    guard let text = rocksdb_property_value(database, "rocksdb.background-errors") else { return "" }
    defer { rocksdb_free(text) }
    return String(cString: text)
  }

  /// Return the names of the write-ahead files that are not empty.
  private func writeAheadFiles() throws(StorageError) -> Set<String> {
    let names: [String]
    do { names = try FileManager.default.contentsOfDirectory(atPath: directory) } catch {
      throw .failed("\(directory): cannot be read (\(error.localizedDescription))")
    }
    return Set(
      names.filter { name in
        guard name.hasSuffix(".log") else { return false }
        var state = stat()
        return stat(directory + "/" + name, &state) == 0 && state.st_size > 0
      }
    )
  }

  func flush(_ family: OpaquePointer) throws(StorageError) {
    try checkUsable()
    try FreeDescriptors.check(for: directory)
    let options = rocksdb_flushoptions_create()
    defer { rocksdb_flushoptions_destroy(options) }
    rocksdb_flushoptions_set_wait(options, 1)
    var failure: UnsafeMutablePointer<CChar>?
    rocksdb_flush_cf(database, options, family, &failure)
    if let text = Self.consumeError(&failure) { throw recordFailure(text) }
  }

  /// Trigger background compaction of page tables that are older than ``RocksDBSettings/oldValuesSecondsMax``, on
  /// whatever level: overwritten values are removed.
  ///
  /// A purge does not compact the pages of one user: compacting one channel's keys rewrites whole tables, and for many
  /// channels more than the whole store (docs/operate/operations.md). RocksDB looks for old tables only after it has
  /// written a table, which an idle store does not do; setting the option triggers the search.
  package func compactOld() {
    guard compactsTables, !hasFoundDamage else { return }
    compactIntoOneTable()
    triggerOldCompaction()
  }

  /// Merge the store's tables into one, once in its life while it has few: RocksDB compacts old tables into the level
  /// below, and not at all if there is none.
  private func compactIntoOneTable() {
    for level in 1..<7 {
      guard let text = rocksdb_property_value_cf(database, pages, "rocksdb.num-files-at-level\(level)") else { return }
      defer { rocksdb_free(text) }
      guard String(cString: text) == "0" else { return }
    }
    merge(pages)
  }

  /// Set the age at which tables count as old, which makes RocksDB search for them.
  func triggerOldCompaction() {
    let (name, value) = (strdup("ttl"), strdup("\(settings.oldValuesSecondsMax)"))
    defer {
      free(name)
      free(value)
    }
    var failure: UnsafeMutablePointer<CChar>?
    rocksdb_set_options_cf(database, pages, 1, [UnsafePointer(name)], [UnsafePointer(value)], &failure)
    // A failure is harmless; the next call may succeed.
    _ = Self.consumeError(&failure)
  }

  /// Compact all tables of a family, including the lowest level.
  private func merge(_ family: OpaquePointer) {
    // After a failed compaction RocksDB accepts no more writes, so skip it: what it would have removed does no harm.
    guard (try? FreeDescriptors.check(for: directory)) != nil else { return }
    let options = rocksdb_compactoptions_create()
    defer { rocksdb_compactoptions_destroy(options) }
    rocksdb_compactoptions_set_exclusive_manual_compaction(options, 0)
    // Forced (3: tables that this call itself has written are not compacted again).
    rocksdb_compactoptions_set_bottommost_level_compaction(options, 3)
    rocksdb_compact_range_cf_opt(database, family, options, nil, 0, nil, 0)
  }
}

/// In-place rewriting of values in an open directory, for repairs of a store that is not serving.
extension RocksDBEngine {
  /// A value that can be rewritten.
  package enum RewritableValue: Sendable {
    /// A batch of the log.
    case batch(ShardID)
    case page(ShardID)
  }

  /// Bytes per write batch.
  private static let rewriteBytes = 1 << 20

  /// Call `body` with each batch of the log and each page, and replace the value by its result. Durable before this
  /// returns. If it throws, some values are rewritten and others are not.
  package func rewrite(_ body: (RewritableValue, ByteBuffer) throws(StorageError) -> ByteBuffer?) throws(StorageError) {
    try rewrite(log, body) { StorageKey.parseLog($0).map { .batch($0.shard) } }
    try rewrite(pages, body) { StorageKey.parsePage($0).map { .page($0.shard) } }
  }

  private func rewrite(
    _ family: OpaquePointer,
    _ body: (RewritableValue, ByteBuffer) throws(StorageError) -> ByteBuffer?,
    entry: (_ key: ByteBuffer) -> RewritableValue?
  ) throws(StorageError) {
    let batch = rocksdb_writebatch_create()
    let write = RocksDBWriteOptions(isSynced: true)
    defer {
      rocksdb_writebatch_destroy(batch)
      withExtendedLifetime(write) {}
    }
    var byteCount = 0
    func flush() throws(StorageError) {
      guard byteCount > 0 else { return }
      try Self.checkSpace(directory)
      var failure: UnsafeMutablePointer<CChar>?
      rocksdb_write(database, write.pointer, batch, &failure)
      if let text = Self.consumeError(&failure) { throw Self.error(text, directory) }
      rocksdb_writebatch_clear(batch)
      byteCount = 0
    }
    // A scan reads the state at its start, whatever is written meanwhile.
    try scan(family) { key, value throws(StorageError) in
      guard let entry = entry(key), let changed = try body(entry, value) else { return }
      put(batch, family, StorageKey(key), changed)
      byteCount += key.readableBytes + changed.readableBytes
      if byteCount >= Self.rewriteBytes { try flush() }
    }
    try flush()
  }
}
