package import CommandOutput
internal import ErasureLedger
internal import Foundation
internal import NIOCore
internal import ReceiptModel
internal import ReceiptWire
internal import StoreEngine
internal import StoreRocksDB

/// Read-only check of a whole backup, or of a data directory that no store has open: the implementation of `tidemark
/// check`.
package struct StoreCheck: Sendable {
  package var directory: String

  package init(directory: String) { self.directory = directory }

  /// Result of a check.
  package struct Report: Sendable {
    package var path: String
    package var store = ""
    package var shards = 0
    package var pages = 0
    package var batches = 0
    /// Faults found, each with its location and a remedy.
    package var faults: [String] = []

    /// The report as one line of JSON.
    package var document: String {
      OrderedJSON.object([
        ("checked", .string(path)), ("store", .string(store)), ("shards", .integer(shards)),
        ("pages", .integer(pages)), ("log_batches", .integer(batches)), ("faults", .integer(faults.count)),
      ]).text
    }
  }

  /// Maximum number of faults reported.
  static let faultsMax = 20

  /// Run the check. Throws if there is nothing to check; faults are in the report.
  ///
  /// - Parameter note: receives the progress.
  package func run(note: @escaping ProgressHandler) async throws -> Report {
    guard LocalFiles.isDirectory(directory) else { throw BackupFailure("\(directory): no such directory") }
    if LocalFiles.exists(directory + "/CURRENT") {
      try Self.checkNotInUse(directory)
      var report = Report(path: directory)
      let remedy = "restore from a backup (tidemark restore), or let the store's other copy take over"
      try Self.checkData(directory, remedy: remedy, &report, note)
      Self.checkLedger(directory, &report)
      return report
    }
    let backup = try BackupDirectory.newest(at: directory)
    return try Self.check(backup: backup, note)
  }

  /// Check the erasure ledger: a store does not start with a damaged one.
  private static func checkLedger(_ data: String, _ report: inout Report) {
    let path = data + "/" + ErasureLedger.fileName
    guard LocalFiles.exists(path) else { return }
    do throws(ErasureRecords.Fault) { _ = try ErasureRecords(file: path) } catch {
      report.add("\(error)")
    }
  }

  // MARK: Backups

  static func check(backup: String, _ note: @escaping ProgressHandler) throws -> Report {
    var report = Report(path: backup)
    let remedy = "use another backup, and make a new one"
    let manifest: BackupManifest
    do throws(BackupFailure) {
      manifest = try BackupManifest.read(from: backup)
    } catch {
      report.faults.append("\(error)")
      return report
    }
    let data = backup + "/" + BackupDirectory.dataName
    for (index, file) in manifest.files.enumerated() {
      note("checksums: file \(index + 1) of \(manifest.files.count)")
      try Task.checkCancellation()
      let path = data + "/" + file.name
      guard let size = LocalFiles.size(path) else {
        report.add("\(path): is missing; \(remedy)")
        continue
      }
      guard size == file.size else {
        report.add("\(path): has \(size) bytes, \(file.size) are in the manifest; \(remedy)")
        continue
      }
      do throws(BackupFailure) {
        guard try LocalFiles.digest(path).hex != file.sha256 else { continue }
        report.add("\(path): its checksum is not the manifest's; \(remedy)")
      } catch {
        report.add("\(error); \(remedy)")
      }
    }
    let names = Set(manifest.files.map(\.name))
    for name in (try? LocalFiles.names(in: data)) ?? [] where !names.contains(name) {
      report.add("\(data)/\(name): is not in the manifest; remove it, or use another backup")
    }
    // If the files differ from the copied ones, their contents need not be read.
    guard report.faults.isEmpty else { return report }
    try checkData(data, remedy: remedy, &report, note)
    if report.faults.isEmpty, report.store != manifest.store {
      report.add("\(data): is of store \(report.store), the manifest names \(manifest.store); \(remedy)")
    }
    return report
  }

  // MARK: Data directories

  /// Throw if a process has the directory open: its concurrent writes would look like damage.
  static func checkNotInUse(_ directory: String) throws(BackupFailure) {
    let path = directory + "/LOCK"
    let descriptor = open(path, O_RDWR | O_CLOEXEC)
    guard descriptor >= 0 else {
      if errno == ENOENT { return }
      throw LocalFiles.failure(path)
    }
    defer { close(descriptor) }
    var lock = flock()
    lock.l_type = Int16(F_WRLCK)
    lock.l_whence = Int16(SEEK_SET)
    guard fcntl(descriptor, F_GETLK, &lock) == 0, lock.l_type != Int16(F_UNLCK) else { return }
    throw BackupFailure(
      "\(directory): process \(lock.l_pid) has it open; stop that store, or check a backup (tidemark backup)"
    )
  }

  static func checkData(
    _ data: String,
    remedy: String,
    visit: @escaping (Effect) -> Void = { _ in },
    _ report: inout Report,
    _ note: @escaping ProgressHandler
  ) throws {
    let reader: RocksDBReader
    do throws(StorageError) {
      reader = try RocksDBReader(data)
    } catch {
      report.add("\(error); \(remedy)")
      return
    }
    defer { reader.close() }
    report.store = reader.identity.store.hex
    report.shards = reader.identity.shardCount
    var scan = StoreScan(reader: reader, note: note)
    scan.visit = visit
    do throws(StorageError) {
      try scan.run()
    } catch {
      // A table is unreadable from here on.
      scan.faults.append("\(error)")
    }
    try Task.checkCancellation()
    (report.pages, report.batches) = (scan.pages, scan.batches)
    for fault in scan.faults { report.add("\(fault); \(remedy)") }
  }
}

extension StoreCheck.Report {
  fileprivate mutating func add(_ fault: String) {
    if faults.count < StoreCheck.faultsMax { faults.append(fault) }
  }
}

/// Reader of everything that a store would ever read, with the store's own decoders.
struct StoreScan {
  let reader: RocksDBReader
  let note: (String) -> Void
  /// Called with each effect in pages and log.
  var visit: (Effect) -> Void = { _ in }
  var pages = 0
  var batches = 0
  var faults: [String] = []

  init(reader: RocksDBReader, note: @escaping (String) -> Void) {
    self.reader = reader
    self.note = note
  }

  mutating func run() throws(StorageError) {
    let last = try scanLog()
    try scanPages(last)
    try scanFeed()
    for shard in 0..<reader.identity.shardCount {
      if isFull { return }
      note("shards: \(shard + 1) of \(reader.identity.shardCount) are recovered")
      do throws(StorageError) {
        let id = ShardID(UInt16(shard))
        try ShardRecovery.check([(shard: id, state: try reader.stored(id))], shardCount: reader.identity.shardCount)
      } catch {
        faults.append("\(error)")
      }
    }
  }

  private var isFull: Bool { faults.count >= StoreCheck.faultsMax }

  /// - Returns: each shard's last log index.
  private mutating func scanLog() throws(StorageError) -> [LogIndex] {
    var last = [LogIndex](repeating: .zero, count: reader.identity.shardCount)
    var found: [String] = []
    var count = 0
    let visit = visit
    let note = note
    try reader.scanLog { shard, index, bytes throws(StorageError) in
      guard found.count < StoreCheck.faultsMax else { return }
      let location = "shard \(shard.rawValue), log index \(index.rawValue)"
      guard Int(shard.rawValue) < last.count else { return found.append("\(location): there is no such shard") }
      let before = last[Int(shard.rawValue)]
      last[Int(shard.rawValue)] = index
      if before != .zero, index != before.next {
        found.append("\(location): follows \(before.rawValue), batches between them are missing")
      }
      count += 1
      if count % 1_024 == 0 { note("log: \(count) records") }
      do throws(WireError) {
        let batch = try LogBatch(bytes.readableBytesSpan)
        if batch.index != index { found.append("\(location): holds batch \(batch.index.rawValue)") }
        for effect in batch.effects { visit(effect) }
      } catch {
        found.append("\(location): \(error)")
      }
    }
    batches = count
    faults += found
    return last
  }

  /// Read all records of the feed; their numbers have no holes.
  private mutating func scanFeed() throws(StorageError) {
    var ends: [ShardID: UInt64] = [:]
    var found: [String] = []
    var count = 0
    let note = note
    try reader.scanFeed { shard, block throws(StorageError) in
      guard found.count < StoreCheck.faultsMax else { return }
      let location = "shard \(shard.rawValue), feed record \(block.first)"
      if let end = ends[shard], block.first != end { found.append("\(location): follows \(end - 1)") }
      count += 1
      if count % 1_024 == 0 { note("feed: \(count) blocks") }
      do throws(WireError) {
        var reader = FieldReader(block.bytes.readableBytesSpan)
        let header = try FeedBlockHeader(&reader)
        for _ in 0..<header.count { _ = try reader.feedRecord(base: header.time) }
        try reader.end()
        ends[shard] = block.first + UInt64(header.count)
      } catch {
        found.append("\(location): \(error)")
        ends[shard] = nil
      }
    }
    faults += found
  }

  private mutating func scanPages(_ last: [LogIndex]) throws(StorageError) {
    var found: [String] = []
    var count = 0
    /// Channel numbers in the directory, by shard.
    var named: [ShardID: Set<UInt64>] = [:]
    var heads: [ShardID: Set<UInt64>] = [:]
    let visit = visit
    let note = note
    try reader.scanPages { entry, bytes throws(StorageError) in
      guard found.count < StoreCheck.faultsMax else { return }
      switch entry {
      case .directory(let shard):
        guard bytes.readableBytes == 8, let number = bytes.getInteger(at: bytes.readerIndex, as: UInt64.self) else {
          return found.append("shard \(shard.rawValue): an entry of its directory is no channel number")
        }
        named[shard, default: []].insert(number)
      case .page(let key):
        let location = "shard \(key.shard.rawValue), channel \(key.channel.rawValue), page \(key.page)"
        guard Int(key.shard.rawValue) < last.count else { return found.append("\(location): there is no such shard") }
        count += 1
        if count % 1_024 == 0 { note("pages: \(count)") }
        if key.page == .head {
          heads[key.shard, default: []].insert(key.channel.rawValue)
        }
        do throws(WireError) {
          let page = try Page(bytes.readableBytesSpan)
          let end = last[Int(key.shard.rawValue)]
          if end != .zero, page.index > end {
            found.append("\(location): is ahead of the log, which ends at \(end.rawValue)")
          }
          for effect in page.effects {
            visit(effect)
            let isOfChannel = key.channel.rawValue == 0 ? effect.channel == nil : effect.channel == key.channel
            guard effect.page == key.page, isOfChannel else {
              found.append("\(location): holds an effect of another page")
              break
            }
          }
        } catch {
          found.append("\(location): \(error)")
        }
      }
    }
    for (shard, numbers) in named.sorted(by: { $0.key.rawValue < $1.key.rawValue }) {
      for number in numbers.subtracting(heads[shard] ?? []).sorted().prefix(StoreCheck.faultsMax) {
        found.append("shard \(shard.rawValue), channel \(number): has a name and no head page")
      }
    }
    pages = count
    faults += found.prefix(StoreCheck.faultsMax)
  }
}
