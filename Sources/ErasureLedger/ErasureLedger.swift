internal import Foundation
internal import NIOConcurrencyHelpers

/// Ledger of a store's erasures (R16): a file in its data directory, and a second one outside if `--erasure-ledger`
/// names it. Every call blocks.
package final class ErasureLedger: Sendable {
  /// File name in a data directory and in backups.
  package static let fileName = "erasures"

  package typealias Fault = ErasureRecords.Fault

  private struct State {
    var inside: ErasureLedgerFile
    var outside: ErasureLedgerFile?
    var key: [UInt8]
  }

  private let state: NIOLockedValueBox<State>

  /// Open both files and create missing ones. Erasures that only the inside file has are copied to the outside one.
  /// Call ``setComplete(through:)`` next, when the time is known.
  package init(data: String, outside path: String?) throws(Fault) {
    var inside = try ErasureLedgerFile(data + "/" + Self.fileName)
    var outside: ErasureLedgerFile?
    if let path {
      var file = try ErasureLedgerFile(path)
      let unknown = inside.records.newRecords(from: file.records).count
      guard unknown == 0 else {
        throw Fault(
          """
          --erasure-ledger \(path): has \(unknown) erasures that \(data) does not know, which is older: \
          restore it with tidemark restore --erasure-ledger \(path)
          """
        )
      }
      try file.append(file.records.newRecords(from: inside.records))
      outside = file
    }
    let key = inside.records.key ?? (0..<ErasureRecords.keyByteCount).map { _ in UInt8.random(in: .min ... .max) }
    try inside.setKey(key)
    try outside?.setKey(key)
    // Write it once now to find out whether the file is writable.
    let through = outside?.records.through ?? 0
    try outside?.setThrough(through)
    state = NIOLockedValueBox(State(inside: inside, outside: outside, key: key))
  }

  /// Record that a user is to be erased; durable in all files before this returns.
  package func record(_ user: [UInt8], at time: Int64) throws(Fault) {
    try update { state throws(Fault) in
      let hash = ErasureRecords.hash(user, key: state.key)
      let record = ErasureRecords.Record(key: state.key, time: time, hash: hash)
      // Write outside first: a record in the data directory alone would be lost with it.
      try state.outside?.append([record])
      try state.inside.append([record])
    }
  }

  /// Record in the outside file that it has every erasure answered up to `time`.
  package func setComplete(through time: Int64) throws(Fault) {
    try update { state throws(Fault) in try state.outside?.setThrough(time) }
  }

  /// Whether there is a file outside the data directory.
  package var hasExternalFile: Bool { state.withLockedValue { $0.outside != nil } }

  private func update(_ body: (inout State) throws(Fault) -> Void) throws(Fault) {
    let result: Result<Void, Fault> = state.withLockedValue { state in
      do throws(Fault) {
        try body(&state)
        return .success(())
      } catch {
        return .failure(error)
      }
    }
    try result.get()
  }
}

/// One file of a ledger. It is append-only except for the second line.
struct ErasureLedgerFile {
  private let path: String
  private(set) var records: ErasureRecords
  /// Number of erasures written.
  private var count: Int
  private var key: [UInt8]?
  private var size: Int

  init(_ path: String) throws(ErasureRecords.Fault) {
    self.path = path
    records = ErasureRecords()
    count = 0
    size = 0
    if FileManager.default.fileExists(atPath: path) {
      records = try ErasureRecords(file: path)
      size = records.intactByteCount
      count = records.records.count
      key = records.key
      if records.isFirstVersion { try rewrite() }
    }
    if size == 0 {
      try write(ErasureRecords.header + ErasureRecords.throughLine(0, count: 0), at: 0)
      try syncFolder()
    }
  }

  mutating func append(_ added: [ErasureRecords.Record]) throws(ErasureRecords.Fault) {
    guard !added.isEmpty else { return }
    var key = key
    try write(ErasureRecords.lines(added, after: &key), at: size)
    count += added.count
    self.key = key
  }

  /// Rewrite a file of the first version in place, in the current version.
  private mutating func rewrite() throws(ErasureRecords.Fault) {
    let bytes = records.document(through: records.through ?? 0)
    do { try Data(bytes).write(to: URL(fileURLWithPath: path), options: .atomic) } catch {
      throw ErasureRecords.Fault("\(path): cannot be rewritten (\(error.localizedDescription))")
    }
    size = bytes.count
    key = records.key ?? records.records.last?.key
    try syncFolder()
  }

  /// Set the key of the records that follow.
  mutating func setKey(_ key: [UInt8]) throws(ErasureRecords.Fault) {
    guard self.key != key else { return }
    try write(ErasureRecords.keyLine(key), at: size)
    self.key = key
  }

  mutating func setThrough(_ time: Int64) throws(ErasureRecords.Fault) {
    try write(ErasureRecords.throughLine(time, count: count), at: ErasureRecords.header.utf8.count)
  }

  /// Write and sync. After a failure nothing counts as written: the next line overwrites it.
  private mutating func write(_ text: String, at offset: Int) throws(ErasureRecords.Fault) {
    let descriptor = open(path, O_WRONLY | O_CLOEXEC | (size == 0 ? O_CREAT : 0), 0o600)
    guard descriptor >= 0 else { throw failure }
    defer { close(descriptor) }
    var state = stat()
    guard fstat(descriptor, &state) == 0 else { throw failure }
    guard state.st_size >= size else {
      throw ErasureRecords.Fault(
        "\(path): has \(state.st_size) bytes, \(size) were written: put it back, or start again"
      )
    }
    var bytes = Array(text.utf8)[...]
    var at = offset
    // A torn line follows the complete lines; cut it off.
    if offset >= size, ftruncate(descriptor, off_t(size)) != 0 { throw failure }
    while !bytes.isEmpty {
      let count = bytes.withUnsafeBytes { pwrite(descriptor, $0.baseAddress, $0.count, off_t(at)) }
      if count < 0, errno == EINTR { continue }
      guard count > 0 else { throw failure }
      bytes = bytes.dropFirst(count)
      at += count
    }
    guard fsync(descriptor) == 0 else { throw failure }
    size = max(size, at)
  }

  private func syncFolder() throws(ErasureRecords.Fault) {
    let folder = (path as NSString).deletingLastPathComponent
    let descriptor = open(folder.isEmpty ? "." : folder, O_RDONLY | O_CLOEXEC)
    guard descriptor >= 0 else { throw failure }
    defer { close(descriptor) }
    guard fsync(descriptor) == 0 else { throw failure }
  }

  private var failure: ErasureRecords.Fault {
    ErasureRecords.Fault("\(path): cannot be written (\(String(cString: strerror(errno))))")
  }
}
