package import CommandOutput
internal import Foundation
package import LinkSecurity
internal import NIOCore
package import Operations
internal import ReceiptModel
internal import ReceiptWire
internal import StoreRocksDB

/// Online copy of a store: the implementation of `tidemark backup`.
package struct StoreBackup: Sendable {
  private let store: Endpoint
  private let secrets: [[UInt8]]
  private let tls: LinkTLS?
  private let target: String

  /// Maximum number of reads in flight.
  private static let readsAhead = 4
  /// Long, because RocksDB first flushes its memtables.
  private static let beginTimeout = TimeAmount.minutes(10)

  /// - Parameters:
  ///   - secrets: the shared secret, then the one it replaces; empty: the store need not prove a secret.
  ///   - tls: nil: without TLS.
  ///   - target: directory of backups.
  package init(store: Endpoint, secrets: [[UInt8]], tls: LinkTLS? = nil, target: String) {
    self.store = store
    self.secrets = secrets
    self.tls = tls
    self.target = target
  }

  /// Result of a backup.
  package struct Summary: Sendable {
    package var path: String
    package var manifest: BackupManifest
    package var bytesSent: UInt64
    package var filesKept: Int

    /// The summary as one line of JSON.
    package var document: String {
      OrderedJSON.object([
        ("backup", .string(path)), ("store", .string(manifest.store)), ("time", .string(manifest.time)),
        ("files", .integer(manifest.files.count)), ("bytes", .integer(Int(manifest.byteCount))),
        ("files_kept", .integer(filesKept)), ("bytes_sent", .integer(Int(bytesSent))),
      ]).text
    }
  }

  /// Make a backup; it is complete, verified and durable when this returns.
  ///
  /// - Parameter note: receives the progress.
  package func run(note: @escaping ProgressHandler) async throws -> Summary {
    let directory = try BackupDirectory(target)
    note("connecting to \(store)")
    let connection = try await StoreConnection.open(store, secrets: secrets, tls: tls)
    return try await withCleanup {
      try await run(directory, connection, note)
    } cleanUp: {
      // Closing the connection makes the store remove its checkpoint.
      await connection.close()
    }
  }

  private func run(
    _ directory: BackupDirectory,
    _ connection: StoreConnection,
    _ note: @escaping ProgressHandler
  ) async throws -> Summary {
    note("the store makes a checkpoint")
    let reply = try await connection.request(.backupBegin, timeout: Self.beginTimeout)
    let contents = try BackupContents(reply.readableBytesSpan)
    try checkStore(contents, directory)
    let bases = try directory.begin()
    let data = directory.new + "/" + BackupDirectory.dataName
    var copy = Copy(connection: connection, data: data, bases: bases, contents: contents, note: note)
    do {
      try copy.checkSpace()
      for index in contents.files.indices { try await copy.copyFile(index) }
    } catch let failure as BackupFailure where failure.isOutOfSpace {
      LocalFiles.remove(directory.new)
      throw failure
    }
    _ = try await connection.request(.backupEnd)
    let manifest = try verify(copy.files, in: data, contents, note: note)
    return Summary(
      path: try directory.complete(manifest),
      manifest: manifest,
      bytesSent: copy.bytesSent,
      filesKept: copy.filesKept
    )
  }

  /// Refuse a directory with backups of another store: its newest backup would be ambiguous.
  private func checkStore(_ contents: BackupContents, _ directory: BackupDirectory) throws {
    guard let newest = try BackupDirectory.backups(in: directory.path).last else { return }
    let other = try BackupManifest.read(from: newest).store
    guard other == contents.store.hex else {
      throw BackupFailure(
        """
        \(target): holds backups of another store (\(other), this one is \(contents.store.hex)): give each \
        store a directory of its own; a restored store is another one
        """
      )
    }
  }

  /// Read the written files back, and open the copy as a store would.
  private func verify(
    _ files: [BackupManifest.File],
    in data: String,
    _ contents: BackupContents,
    note: (String) -> Void
  ) throws -> BackupManifest {
    for (index, file) in files.enumerated() {
      note("verifying: file \(index + 1) of \(files.count)")
      let path = data + "/" + file.name
      guard LocalFiles.size(path) == file.size, try LocalFiles.digest(path).hex == file.sha256 else {
        throw BackupFailure("\(path): reads back differently: the disk under \(target) is faulty")
      }
    }
    note("verifying: the copy is opened")
    let reader = try RocksDBReader(data)
    defer { reader.close() }
    let indexes = try reader.lastIndexes()
    guard reader.identity.store == contents.store, indexes.count == contents.indexes.count else {
      throw BackupFailure("\(data): the copy has the identity of a different store")
    }
    for (shard, pair) in zip(indexes, contents.indexes).enumerated() where pair.0 < pair.1 {
      throw BackupFailure(
        """
        \(data): shard \(shard) of the copy ends at log index \(pair.0.rawValue), before \(pair.1.rawValue), \
        which was durable before
        """
      )
    }
    return BackupManifest(
      format: BackupManifest.formatVersion,
      store: contents.store.hex,
      time: Times.text(contents.time.milliseconds),
      timeMilliseconds: contents.time.milliseconds,
      logIndexes: indexes.map(\.rawValue),
      files: files
    )
  }

  /// Copy in progress, file by file.
  private struct Copy {
    let connection: StoreConnection
    let data: String
    let bases: [String]
    let contents: BackupContents
    let note: ProgressHandler
    var files: [BackupManifest.File] = []
    var bytesSent: UInt64 = 0
    var bytesDone: UInt64 = 0
    var filesKept = 0

    /// Throw if the disk lacks room for the bytes to transfer, instead of filling it in vain.
    func checkSpace() throws(BackupFailure) {
      let needed = contents.files.reduce(UInt64(0)) { sum, file in
        let isKept =
          file.name.hasSuffix(".sst")
          && bases.contains { LocalFiles.size("\($0)/\(BackupDirectory.dataName)/\(file.name)") == file.size }
        return isKept ? sum : sum + file.size
      }
      guard let free = LocalFiles.freeBytes(data), free < needed else { return }
      throw LocalFiles.failure("\(data): \(needed >> 20) MiB are to be copied, \(free >> 20) MiB are free", ENOSPC)
    }

    mutating func copyFile(_ index: Int) async throws {
      let file = contents.files[index]
      guard BackupManifest.File.isPlain(file.name) else {
        throw BackupFailure("the store names \"\(file.name)\", which is no file of a store")
      }
      let path = data + "/" + file.name
      var digest = try await keep(index, file, at: path)
      if digest == nil { digest = try await fetch(index, file, to: path) }
      files.append(BackupManifest.File(name: file.name, size: file.size, sha256: digest!.hex))
      bytesDone += file.size
    }

    private func noteProgress(_ file: BackupContents.File, _ done: UInt64) {
      let total = contents.files.reduce(0) { $0 + $1.size }
      note(
        """
        copying: \(files.count) of \(contents.files.count) files, \((bytesDone + done) >> 20) of \
        \(total >> 20) MiB, \(bytesSent >> 20) MiB sent; \(file.name)
        """
      )
    }

    /// Reuse a table of an earlier copy if it has the same bytes as the store's.
    ///
    /// - Returns: its SHA-256; nil if there is none with that name and size, or the bytes differ.
    private mutating func keep(_ index: Int, _ file: BackupContents.File, at path: String) async throws -> [UInt8]? {
      guard file.name.hasSuffix(".sst"), file.size > 0 else { return nil }
      for base in bases {
        let other = base + "/" + BackupDirectory.dataName + "/" + file.name
        guard LocalFiles.size(other) == file.size, try await isSame(index, file, as: other) else { continue }
        try LocalFiles.link(other, to: path)
        filesKept += 1
        return try LocalFiles.digest(path)
      }
      return nil
    }

    private func isSame(_ index: Int, _ file: BackupContents.File, as other: String) async throws -> Bool {
      var at: UInt64 = 0
      while at < file.size {
        noteProgress(file, at)
        let part = BackupPart(file: UInt32(index), offset: at, count: min(BackupLimits.digestBytesMax, file.size - at))
        let theirs = try await connection.request(.backupDigest) { part.write(into: &$0) }
        // Files that cannot be read here are fetched again.
        guard let own = try? LocalFiles.digest(other, at: part.offset, count: part.count),
          theirs.readableBytesView.elementsEqual(own)
        else { return false }
        at += part.count
      }
      return true
    }

    private mutating func fetch(_ index: Int, _ file: BackupContents.File, to path: String) async throws -> [UInt8] {
      let sink = try FileSink(path)
      let chunk = BackupLimits.chunkBytesMax
      let count = Int((file.size + chunk - 1) / chunk)
      var reads: [Task<ByteBuffer, any Error>] = []
      defer { for read in reads { read.cancel() } }
      var requested = 0
      for number in 0..<count {
        while requested < count, requested < number + StoreBackup.readsAhead {
          let offset = UInt64(requested) * chunk
          let part = BackupPart(file: UInt32(index), offset: offset, count: min(chunk, file.size - offset))
          let connection = connection
          reads.append(Task { try await connection.request(.backupRead) { part.write(into: &$0) } })
          requested += 1
        }
        noteProgress(file, UInt64(number) * chunk)
        try Task.checkCancellation()
        var reply = try await reads.removeFirst().value
        let size = min(chunk, file.size - UInt64(number) * chunk)
        guard let theirs = reply.readBytes(length: BackupLimits.digestByteCount),
          reply.readableBytes == Int(size), Self.digest(reply) == theirs
        else {
          throw BackupFailure("\(file.name): a chunk was corrupted in transit; retry")
        }
        bytesSent += size
        try reply.withUnsafeReadableBytes { try sink.write($0) }
      }
      try sink.sync()
      return sink.digest
    }

    private static func digest(_ bytes: ByteBuffer) -> [UInt8] {
      bytes.withUnsafeReadableBytes { LocalFiles.digest($0) }
    }
  }
}

extension SessionID {
  /// The store's identity in hexadecimal, as it is displayed.
  var hex: String { String(format: "%016lx%016lx", high, low) }
}
