package import CommandOutput
internal import ErasureLedger
internal import Foundation
package import LocalStack
internal import Operations
internal import ReceiptModel
internal import StoreEngine
internal import StoreRocksDB

/// Restore of a data directory from a backup: the implementation of `tidemark restore`. The restored store gets a new
/// identity: event ids, tickets and sessions of the copied store are not valid for it.
package struct StoreRestore: Sendable {
  private let source: String
  private let target: String
  private let ledger: String?
  private let executables: Executables

  /// - Parameters:
  ///   - source: a backup, or a directory of backups, from which the newest is used.
  ///   - target: the data directory to create.
  ///   - ledger: an erasure ledger kept outside of the data directory; nil: use only the backup's own.
  ///   - executables: programs that run to erase the users in the ledger.
  package init(source: String, target: String, ledger: String?, executables: Executables) {
    self.source = source
    self.target = target
    self.ledger = ledger
    self.executables = executables
  }

  /// Result of a restore.
  package struct Summary: Sendable {
    package var backup: String
    package var manifest: BackupManifest
    package var store: String
    package var report: StoreCheck.Report
    /// Number of users who were erased after the backup was made, and were erased again.
    package var erased: Int
    /// Erasures answered after this time are unknown here. RFC 3339.
    package var erasuresThrough: String
    /// Whether the index of users' channels has all of them. If not, it has to be rebuilt.
    package var isIndexComplete: Bool

    /// The summary as one line of JSON.
    package var document: String {
      OrderedJSON.object([
        ("restored", .string(report.path)), ("backup", .string(backup)), ("time", .string(manifest.time)),
        ("store", .string(store)), ("former_store", .string(manifest.store)),
        ("shards", .integer(report.shards)), ("pages", .integer(report.pages)),
        ("log_batches", .integer(report.batches)), ("erased_again", .integer(erased)),
        ("erasures_complete_through", .string(erasuresThrough)), ("index_complete", .boolean(isIndexComplete)),
      ]).text
    }
  }

  /// Restore the directory; it is complete and durable when this returns. If this throws, or the process ends, a store
  /// refuses the directory, and the restore can be run again.
  ///
  /// - Parameter note: receives the progress.
  package func run(note: @escaping ProgressHandler) async throws -> Summary {
    let backup = try BackupDirectory.newest(at: source)
    let manifest = try BackupManifest.read(from: backup)
    let (from, to) = (
      URL(fileURLWithPath: source).standardizedFileURL, URL(fileURLWithPath: target).standardizedFileURL
    )
    guard !(to.path + "/").hasPrefix(from.path + "/") else {
      throw BackupFailure("\(target): is within \(source), where the backups are; give another directory")
    }
    try prepare()
    let work = target + "/" + RocksDBEngine.restoringName
    let data = work + "/data"
    try copy(backup, manifest, to: data, note)
    note("the copy becomes a store of its own")
    let (store, alignment) = try Self.assignIdentity(data)
    if alignment.needsIndexRebuild {
      note("the groups of the backup are of different moments: run tidemark rebuild-index once the store serves")
    }
    let replay = try ErasureReplay(data: data, outside: ledger)
    let since = manifest.timeMilliseconds - ErasureReplay.marginMilliseconds
    let search = ErasureSearch(ErasureRecords.Search(replay.records, since: since))
    var report = StoreCheck.Report(path: target)
    try StoreCheck.checkData(data, remedy: "use another backup", visit: search.visit, &report, note)
    if let fault = report.faults.first { throw BackupFailure(fault) }
    let through = max(manifest.timeMilliseconds, replay.records.through ?? 0)
    try replay.write(to: data, through: through)
    if !search.found.isEmpty {
      try await ErasureReplay.erase(search.found.sorted(), in: work, executables, note)
    }
    try Self.move(data, to: target)
    LocalFiles.remove(work)
    try LocalFiles.syncDirectory(target)
    return Summary(
      backup: backup,
      manifest: manifest,
      store: store.hex,
      report: report,
      erased: search.found.count,
      erasuresThrough: Times.text(through),
      isIndexComplete: !alignment.needsIndexRebuild
    )
  }

  /// Refuse a directory that is not empty, unless it holds an unfinished restore.
  private func prepare() throws(BackupFailure) {
    let work = target + "/" + RocksDBEngine.restoringName
    if LocalFiles.exists(target) {
      let names = try LocalFiles.names(in: target).filter { $0 != "lost+found" }
      guard names.isEmpty || LocalFiles.exists(work) else {
        throw BackupFailure("\(target): is not empty; give an empty directory, or a new one")
      }
      // A restore starts in an empty directory, and no store opens it before the end, so all its files are the
      // restore's.
      for name in names where name != RocksDBEngine.restoringName { LocalFiles.remove("\(target)/\(name)") }
    }
    LocalFiles.remove(work)
    try LocalFiles.makeDirectory(work + "/data")
    try LocalFiles.syncDirectory(target)
  }

  private func copy(_ backup: String, _ manifest: BackupManifest, to work: String, _ note: ProgressHandler) throws {
    var done: UInt64 = 0
    for (index, file) in manifest.files.enumerated() {
      try Task.checkCancellation()
      note("copying: \(index) of \(manifest.files.count) files, \(done >> 20) of \(manifest.byteCount >> 20) MiB")
      let path = "\(backup)/\(BackupDirectory.dataName)/\(file.name)"
      guard LocalFiles.exists(path) else { throw BackupFailure("\(path): is missing; use another backup") }
      guard try LocalFiles.copy(path, to: "\(work)/\(file.name)").hex == file.sha256 else {
        throw BackupFailure("\(path): its checksum is not the manifest's; use another backup")
      }
      done += file.size
    }
  }

  private static func assignIdentity(_ directory: String) throws -> (store: SessionID, ShardAlignment.Report) {
    let store = SessionID(high: .random(in: .min ... .max), low: .random(in: .min ... .max))
    let engine = try RocksDBEngine(directory: directory, shardCount: nil, newStore: store)
    defer { engine.close() }
    return (store, try engine.makeSingleStore(store))
  }

  /// Move the files, CURRENT last: without it a store refuses the files of a database.
  private static func move(_ work: String, to target: String) throws(BackupFailure) {
    let names = try LocalFiles.names(in: work)
    for name in names where name != "CURRENT" {
      try LocalFiles.rename("\(work)/\(name)", to: "\(target)/\(name)")
    }
    try LocalFiles.syncDirectory(target)
    try LocalFiles.rename("\(work)/CURRENT", to: "\(target)/CURRENT")
    try LocalFiles.syncDirectory(target)
  }
}
