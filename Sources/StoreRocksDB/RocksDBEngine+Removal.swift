internal import CRocksDB
import Foundation
import NIOConcurrencyHelpers
import NIOCore
import ReceiptModel
package import StoreEngine

/// Deleted channels, and what is left of removed things in RocksDB's own files (R16).
extension RocksDBEngine {
  // MARK: Drops

  /// Deletes all keys of a channel, and its directory entry unless that names another channel: one that was created
  /// since. Nobody else writes that entry meanwhile, a shard's commits come one after the other.
  func add(_ drop: CommitGroup.Drop, to batch: OpaquePointer?) throws(StorageError) {
    let first = StorageKey.pages(drop.shard, drop.channel)
    let end = StorageKey.pages(drop.shard, ChannelNumber(drop.channel.rawValue + 1))
    first.withBytes { first in
      end.withBytes { end in
        rocksdb_writebatch_delete_range_cf(batch, pages, first.base, first.count, end.base, end.count)
      }
    }
    let entry = StorageKey.directory(drop.shard, drop.cid)
    guard let named = try get(pages, entry)?.getInteger(at: 0, as: UInt64.self),
      named == drop.channel.rawValue
    else { return }
    entry.withBytes { rocksdb_writebatch_delete_cf(batch, pages, $0.base, $0.count) }
  }

  // MARK: Purge

  /// Flushes everything that is in memory, so that no write-ahead file of before is needed any more, and merges the
  /// log's tables, in which what was cut is only marked as deleted. Returns when those files are gone.
  package func purge() throws(StorageError) {
    purging.lock()
    defer { purging.unlock() }
    try Self.checkSpace(directory)
    guard mergesTables, !hasMetDamage else {
      throw .failed("\(directory): tables are not merged while one of them is damaged")
    }
    let before = try writeAheadFiles()
    // A file is let go when every family has flushed what it has in it. Each flush begins a new one, so what is written
    // meanwhile is in none of these.
    for family in [log, pages, meta] { try flush(family) }
    // A log that is cut often has few tables.
    try FreeDescriptors.check(for: directory)
    let faults = backgroundFaults
    merge(log)
    // The call says nothing of how it went.
    guard backgroundFaults == faults else { throw broken("tables of the log cannot be merged") }
    // RocksDB deletes them right after the flush has returned, on a thread of its own.
    for _ in 0..<1_000 {
      if before.isDisjoint(with: try writeAheadFiles()) { return }
      usleep(10_000)
    }
    throw .failed("\(directory): write-ahead files of before the purge are still there")
  }

  /// How often a flush or a merge has failed since the directory was opened.
  private var backgroundFaults: String {
    guard let text = rocksdb_property_value(database, "rocksdb.background-errors") else { return "" }
    defer { rocksdb_free(text) }
    return String(cString: text)
  }

  /// The names of those with something in them.
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
    if let text = Self.take(&failure) { throw broken(text) }
  }

  /// Has RocksDB look for tables of pages that are older than ``RocksDBSettings/oldValuesSecondsMax``, and merge them
  /// down, in the background: what they write over goes, whatever level it is on.
  ///
  /// A purge does not merge the pages of one user: a merge of one channel's keys rewrites whole tables, for many
  /// channels more than the whole store is (docs/operations.md). RocksDB looks by itself only when it has written a
  /// table, which a quiet store does not; setting the option has it look.
  package func mergeOld() {
    guard mergesTables, !hasMetDamage else { return }
    mergeFirst()
    lookForOld()
  }

  /// RocksDB merges old tables into the level below, and does not where there is none: once in a store's life, while it
  /// has a few tables, they are made one.
  private func mergeFirst() {
    for level in 1..<7 {
      guard let text = rocksdb_property_value_cf(database, pages, "rocksdb.num-files-at-level\(level)")
      else { return }
      defer { rocksdb_free(text) }
      guard String(cString: text) == "0" else { return }
    }
    merge(pages)
  }

  /// Sets the age at which tables are old; that has RocksDB look for them.
  func lookForOld() {
    let (name, value) = (strdup("ttl"), strdup("\(settings.oldValuesSecondsMax)"))
    defer {
      free(name)
      free(value)
    }
    var failure: UnsafeMutablePointer<CChar>?
    rocksdb_set_options_cf(database, pages, 1, [UnsafePointer(name)], [UnsafePointer(value)], &failure)
    // Nothing depends on it now; the next time may do.
    _ = Self.take(&failure)
  }

  /// All tables of a family, the lowest level too.
  private func merge(_ family: OpaquePointer) {
    // A merge that fails has RocksDB take no more writes; what it would have taken away is not needed.
    guard (try? FreeDescriptors.check(for: directory)) != nil else { return }
    let options = rocksdb_compactoptions_create()
    defer { rocksdb_compactoptions_destroy(options) }
    rocksdb_compactoptions_set_exclusive_manual_compaction(options, 0)
    // Forced (3: what this call has written itself is not written again).
    rocksdb_compactoptions_set_bottommost_level_compaction(options, 3)
    rocksdb_compact_range_cf_opt(database, family, options, nil, 0, nil, 0)
  }
}
