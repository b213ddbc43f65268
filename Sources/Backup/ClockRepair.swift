package import CommandOutput
internal import ErasureLedger
internal import Foundation
internal import NIOCore
internal import Operations
internal import ReceiptModel
internal import ReceiptWire
internal import StoreEngine
internal import StoreRocksDB

/// Repair of the times that a store logged while its clock was ahead: the implementation of `tidemark repair-clock`. No
/// later time than now remains in pages, log and erasure ledger. The store gets a new identity: its old event ids are
/// in the future, so no gateway and no app may resume from them.
///
/// A marker file in the directory records the repair in progress and its target time. While the file exists, no store
/// opens the directory, and a repeated repair continues with the same time.
package struct ClockRepair: Sendable {
  private let directory: String
  private let time: Int64?
  private let isDryRun: Bool

  /// - Parameters:
  ///   - time: target time in milliseconds since 1970; nil: now.
  ///   - isDryRun: whether to only count the changes.
  package init(directory: String, time: Int64?, isDryRun: Bool) {
    self.directory = directory
    self.time = time
    self.isDryRun = isDryRun
  }

  /// Result of a repair.
  package struct Summary: Sendable {
    package var directory: String
    package var time: String
    package var isDryRun: Bool
    package var store: String
    /// Previous identity; nil if nothing was changed.
    package var formerStore: String?
    /// Rows changed, or to be changed, by kind, in the order of ``TimeRepair/Kind``.
    package var changed: [(kind: String, count: Int)]

    package var changedCount: Int { changed.reduce(0) { $0 + $1.count } }

    /// The summary as one line of JSON.
    package var document: String {
      OrderedJSON.object([
        ("repaired", .string(directory)), ("time", .string(time)), ("dry_run", .boolean(isDryRun)),
        ("store", .string(store)), ("former_store", formerStore.map { .string($0) } ?? .null),
        ("changed", .object(changed.map { ($0.kind, .integer($0.count)) })),
      ]).text
    }
  }

  /// Repair the directory; it is durable when this returns. If this throws, or the process ends, after anything was
  /// written, a store refuses the directory, and the repair can be run again.
  ///
  /// - Parameter note: receives the progress.
  package func run(note: @escaping ProgressHandler) async throws -> Summary {
    guard LocalFiles.exists(directory + "/CURRENT") else {
      throw BackupFailure("\(directory): not a store's data directory (CURRENT is missing)")
    }
    guard !LocalFiles.exists(directory + "/" + RocksDBEngine.restoringName) else {
      throw BackupFailure("\(directory): a restore into it was not finished; run tidemark restore again")
    }
    try StoreCheck.checkNotInUse(directory)
    let begun = try RepairMarkerFile.read(directory)
    let limit = Timestamp(milliseconds: try limit(begun))
    // Everything is read before anything is written: a damaged directory is left unchanged.
    var counting = Rewriting(TimeRepair(limit: limit), note: note, progressVerb: "counted")
    let former = try counting.count(directory)
    let ledger = try Self.ledger(directory, limit, &counting.repair)
    var summary = Summary(
      directory: directory,
      time: Times.text(limit.milliseconds),
      isDryRun: isDryRun,
      store: former.hex,
      changed: TimeRepair.Kind.allCases.map { ($0.rawValue, counting.repair.counts[$0] ?? 0) }
    )
    guard !isDryRun, counting.repair.hasChanged || begun != nil else { return summary }
    let store = SessionID(high: .random(in: .min ... .max), low: .random(in: .min ... .max))
    try write(limit: limit, newStore: store, ledger: ledger, note: note)
    summary.store = store.hex
    summary.formerStore = former.hex
    return summary
  }

  /// Return the target time: no time may remain after it.
  private func limit(_ begun: Int64?) throws(BackupFailure) -> Int64 {
    let now = Int64(Date().timeIntervalSince1970 * 1_000)
    if let time, time > now {
      throw BackupFailure("--at \(Times.text(time)): is later than this machine's clock, \(Times.text(now))")
    }
    if let begun, let time, time != begun {
      throw BackupFailure(
        "\(directory): its repair was begun with --at \(Times.text(begun)), and must be finished with that time; "
          + "leave --at out"
      )
    }
    return begun ?? time ?? now
  }

  private func write(limit: Timestamp, newStore: SessionID, ledger: [UInt8]?, note: @escaping ProgressHandler) throws {
    // The open engine keeps stores out, and then the marker does.
    let engine = try RocksDBEngine(directory: directory, shardCount: nil, newStore: newStore, isRepair: true)
    do {
      defer { engine.close() }
      guard try !engine.isOfCluster else {
        throw BackupFailure(
          "\(directory): belongs to a node of a cluster, which would refuse it afterwards; see \"When something fails\" in "
            + "docs/operate/cluster.md"
        )
      }
      try RepairMarkerFile.write(limit.milliseconds, directory)
      var rewriting = Rewriting(TimeRepair(limit: limit), note: note, progressVerb: "repaired")
      try engine.rewrite { entry, bytes throws(StorageError) in try rewriting.repaired(entry, bytes) }
      if let ledger { try LocalFiles.writeWhole(ledger, to: directory + "/" + ErasureLedger.fileName) }
      try engine.adopt(store: newStore, [])
    }
    try RepairMarkerFile.remove(directory)
  }

  /// Return the ledger's bytes with all times clamped to the limit; nil if nothing changes or there is no ledger.
  private static func ledger(
    _ directory: String,
    _ limit: Timestamp,
    _ repair: inout TimeRepair
  ) throws(BackupFailure) -> [UInt8]? {
    let path = directory + "/" + ErasureLedger.fileName
    guard LocalFiles.exists(path) else { return nil }
    let records: ErasureRecords
    do throws(ErasureRecords.Fault) { records = try ErasureRecords(file: path) } catch {
      throw BackupFailure("\(error)")
    }
    let (clamped, changed) = records.clamped(to: limit.milliseconds)
    repair.count(.erasures, changed)
    return changed == 0 ? nil : clamped.document(through: clamped.through ?? 0)
  }
}

/// Marker file of a repair in progress. It holds the target time, in milliseconds since 1970.
private enum RepairMarkerFile {
  private static func path(_ directory: String) -> String {
    directory + "/" + RocksDBEngine.repairingName
  }

  /// Read the marker; nil if no repair is in progress.
  static func read(_ directory: String) throws(BackupFailure) -> Int64? {
    let path = path(directory)
    guard LocalFiles.exists(path) else { return nil }
    let text = FileManager.default.contents(atPath: path).map { String(decoding: $0, as: UTF8.self) }
    guard let text, let time = Int64(text) else { throw BackupFailure("\(path): cannot be read") }
    return time
  }

  static func write(_ time: Int64, _ directory: String) throws(BackupFailure) {
    try LocalFiles.writeWhole(Array(String(time).utf8), to: path(directory))
  }

  static func remove(_ directory: String) throws(BackupFailure) {
    LocalFiles.remove(path(directory))
    try LocalFiles.syncDirectory(directory)
  }
}

/// Rewriter of batches and pages: it decodes and repairs them, and encodes the changed ones.
private struct Rewriting {
  var repair: TimeRepair
  let note: (String) -> Void
  /// Verb for progress messages.
  let progressVerb: String
  private var values = 0

  init(_ repair: TimeRepair, note: @escaping (String) -> Void, progressVerb: String) {
    self.repair = repair
    self.note = note
    self.progressVerb = progressVerb
  }

  /// Count the changes without writing.
  ///
  /// - Returns: the store's identity.
  mutating func count(_ directory: String) throws(StorageError) -> SessionID {
    let reader = try RocksDBReader(directory)
    defer { reader.close() }
    try reader.scanLog { shard, _, bytes throws(StorageError) in _ = try repaired(.batch(shard), bytes) }
    try reader.scanPages { entry, bytes throws(StorageError) in
      if case .page(let key) = entry { _ = try repaired(.page(key.shard), bytes) }
    }
    return reader.identity.store
  }

  /// Return the repaired value, or nil if nothing changes.
  mutating func repaired(
    _ entry: RocksDBEngine.RewritableValue,
    _ bytes: ByteBuffer
  ) throws(StorageError) -> ByteBuffer? {
    values += 1
    if values % 1_024 == 0 { note("\(values) pages and batches \(progressVerb)") }
    do {
      return switch entry {
      case .batch: try repaired(batch: bytes)
      case .page: try repaired(page: bytes)
      }
    } catch {
      switch entry {
      case .batch(let shard): throw .corrupt("shard \(shard.rawValue), a batch of its log: \(error)")
      case .page(let shard): throw .corrupt("shard \(shard.rawValue), a page: \(error)")
      }
    }
  }

  private mutating func repaired(batch bytes: ByteBuffer) throws -> ByteBuffer? {
    let batch = try LogBatch(bytes.readableBytesSpan)
    var repaired = batch
    repaired.time = repair.repairedBatchTime(batch.time)
    repaired.sessions = batch.sessions.map { repair.repaired($0) }
    for index in repaired.effects.indices {
      repaired.effects[index] = try repair.repaired(batch.effects[index])
    }
    guard repaired != batch else { return nil }
    var effects = ByteBuffer()
    for effect in repaired.effects { effects.writeEffect(effect) }
    var buffer = ByteBuffer()
    LogBatch.write(
      index: repaired.index,
      time: repaired.time,
      sessions: repaired.sessions,
      effectCount: repaired.effects.count,
      effects: effects,
      into: &buffer
    )
    return buffer
  }

  private mutating func repaired(page bytes: ByteBuffer) throws -> ByteBuffer? {
    let page = try Page(bytes.readableBytesSpan)
    var repaired = page
    for index in repaired.effects.indices {
      repaired.effects[index] = try repair.repaired(page.effects[index])
    }
    guard repaired != page else { return nil }
    var buffer = ByteBuffer()
    repaired.write(into: &buffer)
    return buffer
  }
}
