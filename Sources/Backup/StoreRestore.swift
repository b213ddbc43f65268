internal import Foundation
internal import ReceiptModel
internal import StoreEngine
internal import StoreRocksDB

/// Makes a data directory from a backup: what `tidemark restore` does. The store that it holds is a new one: event ids, tickets and sessions of the store that was
/// copied are not its own.
package struct StoreRestore: Sendable {
  /// A backup, or a directory of backups, of which the newest is taken.
  package var source: String
  /// The data directory to make.
  package var target: String

  package init(source: String, target: String) {
    self.source = source
    self.target = target
  }

  /// What a restore came to.
  package struct Summary: Sendable {
    package var backup: String
    package var manifest: BackupManifest
    package var store: String
    package var report: StoreCheck.Report

    /// One line of JSON.
    package var document: String {
      #"{"restored":"\#(report.path)","backup":"\#(backup)","time":"\#(manifest.time)","store":"\#(store)","#
        + #""former_store":"\#(manifest.store)","shards":\#(report.shards),"channels":\#(report.channels)}"#
    }
  }

  /// Returns when the directory is whole and durable. Where it throws, or the process is ended, a store refuses the directory, and the restore can be run again.
  ///
  /// - Parameter note: told how far it is.
  package func run(note: @escaping @Sendable (String) -> Void) async throws -> Summary {
    let backup = try BackupDirectory.newest(at: source)
    let manifest = try BackupManifest.read(from: backup)
    try prepare()
    let work = target + "/" + RocksDBEngine.restoringName
    try copy(backup, manifest, to: work, note)
    note("the copy becomes a store of its own")
    let store = try Self.assignIdentity(work)
    var report = StoreCheck.Report(path: target)
    try StoreCheck.checkData(work, remedy: "use another backup", &report, note)
    if let fault = report.faults.first { throw BackupFailure(fault) }
    try Self.move(work, to: target)
    return Summary(backup: backup, manifest: manifest, store: store.hex, report: report)
  }

  /// Refuses a directory with anything in it but a restore that was not finished.
  private func prepare() throws(BackupFailure) {
    let work = target + "/" + RocksDBEngine.restoringName
    if LocalFiles.exists(target) {
      let names = try LocalFiles.names(in: target).filter { $0 != "lost+found" }
      guard names.isEmpty || LocalFiles.exists(work) else {
        throw BackupFailure("\(target): is not empty; give an empty directory, or a new one")
      }
      // A restore begins in an empty directory, and no store opens it before the end: all of it is the restore's.
      for name in names where name != RocksDBEngine.restoringName { LocalFiles.remove("\(target)/\(name)") }
    }
    LocalFiles.remove(work)
    try LocalFiles.makeDirectory(work)
    try LocalFiles.syncDirectory(target)
  }

  private func copy(
    _ backup: String,
    _ manifest: BackupManifest,
    to work: String,
    _ note: @Sendable (String) -> Void
  ) throws {
    var done: UInt64 = 0
    for (place, file) in manifest.files.enumerated() {
      try Task.checkCancellation()
      note(
        "copying: \(place) of \(manifest.files.count) files, \(done >> 20) of \(manifest.byteCount >> 20) MiB"
      )
      let path = "\(backup)/\(BackupDirectory.dataName)/\(file.name)"
      guard try LocalFiles.copy(path, to: "\(work)/\(file.name)").hex == file.sha256 else {
        throw BackupFailure("\(path): its checksum is not the manifest's; use another backup")
      }
      done += file.size
    }
  }

  private static func assignIdentity(_ directory: String) throws -> SessionID {
    let store = SessionID(high: .random(in: .min ... .max), low: .random(in: .min ... .max))
    let engine = try RocksDBEngine(directory: directory, shardCount: nil, newStore: store)
    defer { engine.close() }
    try engine.assignIdentity(store)
    return store
  }

  /// CURRENT comes last: without it a store refuses the files of a database.
  private static func move(_ work: String, to target: String) throws(BackupFailure) {
    let names = try LocalFiles.names(in: work)
    for name in names where name != "CURRENT" {
      try LocalFiles.rename("\(work)/\(name)", to: "\(target)/\(name)")
    }
    try LocalFiles.syncDirectory(target)
    try LocalFiles.rename("\(work)/CURRENT", to: "\(target)/CURRENT")
    LocalFiles.remove(work)
    try LocalFiles.syncDirectory(target)
  }
}
