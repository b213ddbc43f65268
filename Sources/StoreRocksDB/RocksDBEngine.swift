internal import CRocksDB
internal import Foundation
internal import NIOConcurrencyHelpers
internal import NIOCore
package import ReceiptModel
internal import ReceiptWire
package import StoreEngine

/// The embedded engine: log and pages of all shards in one RocksDB, in a column family each
/// (docs/contribute/architecture.md).
///
/// A commit is one synced write batch. Its log batches, pages and log trims become durable together or not at all. The
/// write-ahead log keeps the order of commits. So pages are never ahead of the log, nor is a log trim ahead of the
/// pages that allow it.
///
/// `@unchecked Sendable`: RocksDB's handles may be used from any thread, and they never change between `init` and
/// `close`. A write batch is one commit's at a time (``CommitState/takeBatch()``). The owner calls `close` when no
/// other call is in flight.
package final class RocksDBEngine: StorageEngine, @unchecked Sendable {
  /// Identity of the directory, fixed at its creation.
  package struct Identity: Hashable, Sendable {
    package var shardCount: Int
    package var store: SessionID
  }

  package let identity: Identity
  let directory: String
  let settings: RocksDBSettings
  /// nil after ``close()``.
  private var handles: Handles?
  private let commits = NIOLockedValueBox(CommitState())
  /// Warning for the operator about how the directory was opened; nil if there is none.
  package let warning: String?
  /// Allows one purge at a time; the next one finds most of its work done.
  let purging = NIOLock()
  let compactsTables: Bool
  let foundDamage = NIOLockedValueBox(false)
  let snapshots = NIOLockedValueBox(OpenSnapshots())

  /// What RocksDB has allocated for the open directory.
  private struct Handles {
    let families: RocksDBFamilies
    let write: RocksDBWriteOptions
    let read = RocksDBReadOptions()
  }

  // For calls of RocksDB while the directory is open.
  var families: RocksDBFamilies { handles!.families }
  var database: OpaquePointer { handles!.families.database.pointer }
  var meta: OpaquePointer { handles!.families.meta.pointer }
  var log: OpaquePointer { handles!.families.log.pointer }
  var pages: OpaquePointer { handles!.families.pages.pointer }
  var feed: OpaquePointer? { handles!.families.feed?.pointer }
  /// All of them.
  var openFamilies: [OpaquePointer] { [log, pages, meta] + (feed.map { [$0] } ?? []) }

  /// Whether a background compaction has met a damaged table. RocksDB then accepts no more writes, and after a reopen
  /// it would fail again at once. Undamaged data can be served only with compaction off.
  package var hasFoundDamage: Bool { foundDamage.withLockedValue { $0 } }

  /// Open a data directory; create it if it does not exist.
  ///
  /// - Parameters:
  ///   - shardCount: number of shards at creation; later nil or the same number.
  ///   - newStore: identity for a directory that is created now.
  ///   - compactsTables: false after a compaction has met damage, see ``hasFoundDamage``.
  ///   - isRepair: whether to open a directory with an unfinished repair, to finish it.
  package init(
    directory: String,
    shardCount: Int?,
    newStore: SessionID,
    settings: RocksDBSettings = RocksDBSettings(),
    compactsTables: Bool = true,
    isRepair: Bool = false
  ) throws(StorageError) {
    self.directory = directory
    self.settings = settings
    self.compactsTables = compactsTables
    let isUnsynced = try Self.checkBeforeOpening(directory, isRepair: isRepair)
    warning =
      isUnsynced
      ? LogFileCheck.fault(in: directory, checksums: true).map {
        "the machine failed while commits were synced at intervals; the log ends at \($0)"
      } : nil
    let families = try Self.open(
      directory,
      toleratesHoles: isUnsynced,
      pageCacheBytes: settings.cacheBytes,
      hasFeed: settings.hasFeed || RocksDBFamilies.hasFeed(directory),
      compactsTables: compactsTables
    )
    if settings.durability != .sync { try UnsyncedMark.write(to: directory) }
    let handles = Handles(families: families, write: RocksDBWriteOptions(isSynced: settings.durability == .sync))
    let identity = try Self.identity(
      directory: directory,
      asked: shardCount,
      newStore: newStore,
      in: families,
      handles.read
    )
    self.handles = handles
    self.identity = identity
    try removeUnfinishedSnapshots()
    if compactsTables { triggerOldCompaction() }
    try presyncLog()
    if settings.durability == .sync { UnsyncedMark.remove(from: directory) }
  }

  /// Create a data directory if it does not exist, and check its files before RocksDB reads them.
  ///
  /// - Returns: whether the write-ahead log may have lost blocks in a machine failure.
  private static func checkBeforeOpening(_ directory: String, isRepair: Bool) throws(StorageError) -> Bool {
    do {
      try FileManager.default.createDirectory(atPath: directory, withIntermediateDirectories: true)
    } catch {
      throw .unusable("--data \(directory): cannot be created (\(error.localizedDescription))")
    }
    guard !FileManager.default.fileExists(atPath: directory + "/" + restoringName) else {
      throw .unusable("--data \(directory): a restore into it was not finished; run tidemark restore again")
    }
    guard isRepair || !FileManager.default.fileExists(atPath: directory + "/" + repairingName) else {
      throw .unusable("--data \(directory): a repair of its times was not finished; run tidemark repair-clock again")
    }
    // RocksDB keeps every table open. The checks below would take a file that cannot be opened for a missing one.
    let files = (try? FileManager.default.contentsOfDirectory(atPath: directory)) ?? []
    try FreeDescriptors.check(files.count { $0.hasSuffix(".sst") } + FreeDescriptors.forFiles, for: directory)
    RocksDBCheckpoint.removeLeftovers(in: directory)
    RocksDBSnapshotReceiver.removeLeftovers(in: directory)
    let isUnsynced = UnsyncedMark.mayHaveHoles(in: directory)
    if let fault = LogFileCheck.fault(in: directory, checksums: isUnsynced, logs: !isUnsynced) {
      throw .corrupt("--data \(directory): \(fault)")
    }
    if let fault = TableFileCheck.fault(in: directory) { throw .corrupt("--data \(directory): \(fault)") }
    return isUnsynced
  }

  private static func open(
    _ directory: String,
    toleratesHoles: Bool,
    pageCacheBytes: Int,
    hasFeed: Bool,
    compactsTables: Bool
  ) throws(StorageError) -> RocksDBFamilies {
    let options = RocksDBOptions.ofFamilies(
      toleratesHoles: toleratesHoles,
      pageCacheBytes: pageCacheBytes,
      hasFeed: hasFeed
    )
    if !compactsTables {
      for family in options { rocksdb_options_set_disable_auto_compactions(family.pointer, 1) }
    }
    do throws(RocksDBFamilies.OpenFailure) {
      return try RocksDBFamilies(directory: directory, options: options)
    } catch {
      if error.isLocked {
        throw .unusable(
          "--data \(directory): another tidemark-store has this directory open; stop it, or name another directory"
        )
      }
      if error.isDamage {
        // For tables RocksDB's error names the file; for logs it does not.
        let location = LogFileCheck.fault(in: directory, checksums: true).map { "; \($0)" } ?? ""
        throw .corrupt("--data \(directory): \(error.text)\(location)")
      }
      throw .unusable("--data \(directory): cannot be opened (\(error.text))")
    }
  }

  deinit { close() }

  /// Close the database. Requires that no call is in flight.
  package func close() {
    guard handles != nil else { return }
    closeSnapshots()
    if settings.durability != .sync, (try? sync()) != nil { UnsyncedMark.remove(from: directory) }
    handles = nil
  }

  // MARK: StorageEngine

  package func commit(_ commit: LoopCommit) throws(StorageError) {
    do throws(StorageError) { try write(commit) } catch {
      // A later position must not be stored without these batches.
      commits.withLockedValue { $0.failed() }
      throw error
    }
  }

  private func write(_ commit: LoopCommit) throws(StorageError) {
    try begin(commit)
    let (log, pages) = (log, pages)
    let reused = commits.withLockedValue { $0.takeBatch() }
    defer { giveBack(reused) }
    let batch = reused.pointer
    for item in commit.batches {
      put(batch, log, StorageKey.log(item.shard, item.index), item.bytes)
    }
    if let feed {
      for item in commit.feedBlocks {
        put(batch, feed, StorageKey.feed(item.shard, item.block.first), item.block.bytes)
      }
    }
    for drop in commit.drops { try add(drop, to: batch) }
    for page in commit.pages {
      put(batch, pages, StorageKey.page(page.key), page.bytes)
      if let cid = page.cid {
        put(batch, pages, StorageKey.directory(page.key.shard, cid), ByteBuffer(integer: page.key.channel.rawValue))
      }
    }
    // Trims of one log or row page do not overlap. Of ranges that all begin at the log's start, RocksDB keeps each pair
    // when it flushes them: a thousand such trims of 16 shards took 1.1 GiB and stopped all commits for seconds.
    for trim in commit.logTrims {
      deleteRange(
        batch,
        from: StorageKey.log(trim.shard, trim.after.next),
        to: StorageKey.log(trim.shard, trim.through.next),
        in: log
      )
    }
    for trim in commit.stepTrims {
      deleteRange(
        batch,
        from: StorageKey.page(trim.shard, trim.channel, .steps(trim.rowPage, trim.segments.lowerBound)),
        to: StorageKey.page(trim.shard, trim.channel, .steps(trim.rowPage, trim.segments.upperBound)),
        in: pages
      )
    }
    if let position = commit.position {
      put(batch, meta, StorageKey.position(position.group), position.cursor.stored())
    }
    try write(batch, logBytes: commit.logBytes)
  }

  /// Keep a commit's write batch for a later commit, unless it is large. Clear it, whether or not the commit succeeded.
  private func giveBack(_ batch: RocksDBWriteBatch) {
    guard batch.byteCount <= RocksDBWriteBatch.keptBytesMax else { return }
    batch.clear()
    commits.withLockedValue { $0.giveBack(batch) }
  }

  /// Throw if an earlier write has failed, or if the disk has too little space; see ``SpaceCheckPace``.
  private func begin(_ commit: LoopCommit) throws(StorageError) {
    let now = NIODeadline.now()
    let byteCount = commit.logBytes + commit.pages.reduce(0) { $0 + $1.bytes.readableBytes }
    switch commits.withLockedValue({ $0.begin(byteCount, at: now) }) {
    case .ready: return
    case .needsSpaceCheck:
      try Self.checkSpace(directory)
      commits.withLockedValue { $0.passedSpaceCheck(byteCount, at: now) }
    case .failed: throw mustBeReopened
    }
  }

  private func write(_ batch: OpaquePointer?, logBytes: Int) throws(StorageError) {
    var failure: UnsafeMutablePointer<CChar>?
    commits.withLockedValue { $0.writeBegan() }
    rocksdb_write(database, handles!.write.pointer, batch, &failure)
    let logged = failure == nil ? logBytes : nil
    let needsPresync = commits.withLockedValue { $0.writeEnded(logged) }
    guard let text = Self.consumeError(&failure) else {
      if needsPresync { try presyncLog() }
      return
    }
    guard text.hasPrefix("Corruption") else { throw recordFailure(text) }
    foundDamage.withLockedValue { $0 = true }
    throw .corrupt("\(directory): \(text); compaction is off until the store is restarted; restore from a backup")
  }

  package func sync() throws(StorageError) {
    guard commits.withLockedValue({ $0.takeSyncDue() }) else { return }
    var failure: UnsafeMutablePointer<CChar>?
    rocksdb_flush_wal(database, 1, &failure)
    if let text = Self.consumeError(&failure) { throw recordFailure(text) }
  }

  /// Throw after a failed operation: RocksDB must be reopened before further use. An operation after a failure may hit
  /// an assertion (``FreeDescriptors``).
  func checkUsable() throws(StorageError) {
    guard !commits.withLockedValue(\.hasFailed) else { throw mustBeReopened }
  }

  private var mustBeReopened: StorageError {
    .failed("\(directory): an earlier write or flush failed; it must be reopened")
  }

  /// Record that a write or a flush has failed.
  func recordFailure(_ text: String) -> StorageError {
    commits.withLockedValue { $0.failed() }
    return .failed("\(directory): \(text)")
  }

  /// Let the current write-ahead log be closed safely if it fails later. Closing it flushes it. A librocksdb with
  /// assertions (Debian's 7.8) aborts the process if an operation follows a failed one, except in a log that this call
  /// synced once. Logs change every 64 MiB or so. A failure soon after a change still aborts, which does no harm to
  /// stored data: all of it is synced.
  ///
  /// A failure counts as that of a commit: after a failed fsync(2) the next one may succeed, although earlier data was
  /// not written.
  private func presyncLog() throws(StorageError) {
    var failure: UnsafeMutablePointer<CChar>?
    rocksdb_flush_wal(database, 1, &failure)
    if let text = Self.consumeError(&failure) { throw recordFailure(text) }
  }

  package func read(_ shard: ShardID, _ channel: ChannelReference) throws(StorageError) -> StoredChannel? {
    guard let number = try number(shard, channel) else { return nil }
    if case .head = channel {
      let head = try get(pages, StorageKey.page(shard, number, .head))
      return head.map { StoredChannel(number: number, pages: [(.head, $0)]) }
    }
    var found: [(page: PageID, bytes: ByteBuffer)] = []
    try scan(
      pages,
      from: StorageKey.pages(shard, number),
      // Steps are read on demand.
      to: StorageKey.page(shard, number, .steps(0, 0))
    ) {
      key,
      value throws(StorageError) in
      found.append((try page(of: key, shard, number), value))
    }
    return found.isEmpty ? nil : StoredChannel(number: number, pages: found)
  }

  package func readPages(
    _ shard: ShardID,
    _ channel: ChannelReference,
    _ selection: PageSelection
  ) throws(StorageError) -> StoredChannel? {
    guard let number = try number(shard, channel) else { return nil }
    var found: [(page: PageID, bytes: ByteBuffer)] = []
    switch selection {
    case .pages(let asked):
      for page in asked {
        if let bytes = try get(pages, StorageKey.page(shard, number, page)) { found.append((page, bytes)) }
      }
    case .threads(let pagesMax):
      try scan(
        pages,
        from: StorageKey.page(shard, number, sortKey: PageID.threadSortKeys.lowerBound),
        to: StorageKey.page(shard, number, sortKey: PageID.threadSortKeys.upperBound),
        countMax: pagesMax
      ) {
        key,
        value throws(StorageError) in
        found.append((try page(of: key, shard, number), value))
      }
    }
    return StoredChannel(number: number, pages: found)
  }

  /// Return the number of a channel; nil if there is none of that name.
  private func number(_ shard: ShardID, _ channel: ChannelReference) throws(StorageError) -> ChannelNumber? {
    switch channel {
    case .number(let known), .head(let known): return known
    case .cid(let cid):
      guard let value = try get(pages, StorageKey.directory(shard, cid)) else { return nil }
      guard let raw = value.getInteger(at: 0, as: UInt64.self), value.readableBytes == 8, raw < .max else {
        throw .corrupt("\(directory): a directory entry of shard \(shard.rawValue) is not a channel number")
      }
      return ChannelNumber(raw)
    }
  }

  package func readSteps(
    _ shard: ShardID,
    _ channel: ChannelNumber,
    rowPage: UInt32,
    segments: Range<UInt32>
  ) throws(StorageError) -> [StoredSegment] {
    func key(_ segment: UInt32) -> StorageKey {
      StorageKey.page(shard, channel, .steps(rowPage, segment))
    }
    var found: [StoredSegment] = []
    // An iterator costs as much as some ten look-ups.
    if segments.count <= 8 {
      for segment in segments {
        guard let bytes = try get(pages, key(segment)) else { continue }
        found.append(StoredSegment(rowPage: rowPage, segment: segment, bytes: bytes))
      }
      return found
    }
    try scan(pages, from: key(segments.lowerBound), to: key(segments.upperBound)) {
      key,
      value throws(StorageError) in
      guard case .steps(rowPage, let segment) = try page(of: key, shard, channel) else {
        throw damagedKey(shard, channel)
      }
      found.append(StoredSegment(rowPage: rowPage, segment: segment, bytes: value))
    }
    return found
  }

  /// The log's memtable is a vector, which each iterator copies and sorts.
  package func prepareRecovery() throws(StorageError) { try flush(log) }

  package func recover(_ shard: ShardID) throws(StorageError) -> StoredShard {
    try handles!.families.readShard(shard, directory: directory)
  }

  package func position(of group: GroupID) throws(StorageError) -> LogCursor {
    guard let bytes = try get(meta, StorageKey.position(group)) else { return .start }
    do throws(WireError) {
      return try LogCursor(stored: bytes.readableBytesSpan)
    } catch {
      throw .corrupt("\(directory): the position of group \(group.rawValue) in the shared log: \(error)")
    }
  }

  // MARK: Details

  /// Directory inside a data directory while a restore is in progress.
  package static let restoringName = ".restoring"
  /// File in a data directory while its times are being repaired.
  package static let repairingName = ".repairing-clock"

  /// Minimum free disk space for writes. RocksDB's background work needs space too. If there is none, even for its
  /// information log, a librocksdb with assertions (Debian's) aborts the process.
  package static let freeBytesMin = 256 << 20

  /// Throw if the disk has less than `bytesMin` available.
  static func checkSpace(_ directory: String, bytesMin: Int = freeBytesMin) throws(StorageError) {
    var state = statvfs()
    guard statvfs(directory, &state) == 0 else {
      throw .failed("\(directory): its free space is unknown: \(String(cString: strerror(errno)))")
    }
    let free = UInt64(state.f_bavail) * UInt64(state.f_frsize)
    guard free >= UInt64(bytesMin) else {
      throw .failed("\(directory): \(free >> 20) MiB of space are free, \(bytesMin >> 20) MiB are needed")
    }
  }

  func put(_ batch: OpaquePointer?, _ family: OpaquePointer, _ key: StorageKey, _ value: ByteBuffer) {
    key.withBytes { key in
      value.withUnsafeReadableBytes { value in
        rocksdb_writebatch_put_cf(
          batch,
          family,
          key.base,
          key.count,
          value.baseAddress?.assumingMemoryBound(to: CChar.self),
          value.count
        )
      }
    }
  }

  /// Delete the keys from `first` up to but not including `end`.
  func deleteRange(_ batch: OpaquePointer?, from first: StorageKey, to end: StorageKey, in family: OpaquePointer) {
    first.withBytes { first in
      end.withBytes { end in
        rocksdb_writebatch_delete_range_cf(batch, family, first.base, first.count, end.base, end.count)
      }
    }
  }

  func get(_ family: OpaquePointer, _ key: StorageKey) throws(StorageError) -> ByteBuffer? {
    var failure: UnsafeMutablePointer<CChar>?
    let pinned = key.withBytes {
      rocksdb_get_pinned_cf(database, handles!.read.pointer, family, $0.base, $0.count, &failure)
    }
    defer { if let pinned { rocksdb_pinnableslice_destroy(pinned) } }
    if let text = Self.consumeError(&failure) { throw Self.error(text, directory) }
    guard let pinned else { return nil }
    var count = 0
    guard let bytes = rocksdb_pinnableslice_value(pinned, &count) else { return nil }
    return ByteBuffer(bytes: UnsafeRawBufferPointer(start: bytes, count: count))
  }

  /// Return the page that a key of a channel names.
  private func page(of key: ByteBuffer, _ shard: ShardID, _ channel: ChannelNumber) throws(StorageError) -> PageID {
    guard let page = StorageKey.parsePage(key)?.page else { throw damagedKey(shard, channel) }
    return page
  }

  private func damagedKey(_ shard: ShardID, _ channel: ChannelNumber) -> StorageError {
    .corrupt("\(directory): a page key of shard \(shard.rawValue), channel \(channel.rawValue)")
  }

  func scan(
    _ family: OpaquePointer,
    from first: StorageKey? = nil,
    to end: StorageKey? = nil,
    countMax: Int = .max,
    _ body: (ByteBuffer, ByteBuffer) throws(StorageError) -> Void
  ) throws(StorageError) {
    try handles!.families.scan(family, from: first, to: end, countMax: countMax, directory: directory, body)
  }

  static func error(_ text: String, _ directory: String) -> StorageError {
    text.hasPrefix("Corruption") ? .corrupt("\(directory): \(text)") : .failed("\(directory): \(text)")
  }

  /// Return and free an error text that RocksDB has allocated; nil if there is none.
  static func consumeError(_ failure: inout UnsafeMutablePointer<CChar>?) -> String? {
    guard let text = failure else { return nil }
    failure = nil
    defer { rocksdb_free(text) }
    return String(cString: text)
  }
}
