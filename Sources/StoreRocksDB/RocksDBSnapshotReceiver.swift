internal import CRocksDB
internal import Foundation
internal import NIOConcurrencyHelpers
internal import NIOCore
internal import ReceiptModel
internal import ReceiptWire
package import StoreEngine

/// A snapshot of another node, staged in a file of the data directory.
final class RocksDBSnapshotReceiver: GroupSnapshotReceiver {
  private let group: GroupShards
  private let engine: RocksDBEngine
  private let path: String
  private let file: NIOLockedValueBox<FileHandle>

  /// Bytes of one write to RocksDB, and of one read of the file.
  private static let partBytes = 1 << 20

  /// Free space below which nothing is staged or installed, so that commits still have theirs.
  private static let freeBytesMin = 4 * RocksDBEngine.freeBytesMin

  /// Maximum length of a key or a value.
  private static let fieldBytesMax: UInt64 = 64 << 20

  private static let prefix = "snapshot-"

  /// Remove the files of a process that ended while it received snapshots.
  static func removeLeftovers(in data: String) {
    let files = (try? FileManager.default.contentsOfDirectory(atPath: data)) ?? []
    for file in files where file.hasPrefix(prefix) { try? FileManager.default.removeItem(atPath: data + "/" + file) }
  }

  init(_ group: GroupShards, _ engine: RocksDBEngine) throws(StorageError) {
    self.group = group
    self.engine = engine
    // A name of its own: an earlier receiver may still remove its file.
    path = engine.directory + "/" + Self.prefix + "\(group.group.rawValue)-\(UInt32.random(in: .min ... .max))"
    guard FileManager.default.createFile(atPath: path, contents: nil, attributes: [.posixPermissions: 0o600]),
      let file = FileHandle(forUpdatingAtPath: path)
    else { throw .failed("\(path): cannot be created (\(String(cString: strerror(errno))))") }
    self.file = NIOLockedValueBox(file)
  }

  func append(_ bytes: ByteBuffer) throws(StorageError) {
    try checkSpace()
    do {
      try file.withLockedValue { try $0.write(contentsOf: Data(bytes.readableBytesView)) }
    } catch {
      throw .failed("\(path): \(error.localizedDescription)")
    }
  }

  private func checkSpace() throws(StorageError) {
    try RocksDBEngine.checkSpace(engine.directory, bytesMin: Self.freeBytesMin)
  }

  func install(_ cursor: LogCursor, checking check: SnapshotCheck) throws(StorageError) {
    try checkSpace()
    // The data of before ends with the mark, and what replaces it begins to count without it.
    try engine.write(isSynced: true) { batch in
      engine.wipe(group, in: batch)
      var shards = ByteBuffer()
      shards.writeInteger(group.shards.lowerBound)
      shards.writeInteger(group.shards.upperBound)
      engine.put(batch, engine.meta, .joining(group.group), shards)
    }
    do throws(StorageError) {
      try writeEntries()
      try check(try storedShards())
    } catch {
      // A part of a snapshot must not be read. If this write fails too, the next start removes it.
      try? engine.removeUnfinished(group)
      throw error
    }
    try engine.write(isSynced: true) { batch in
      engine.put(batch, engine.meta, .position(group.group), cursor.stored())
      StorageKey.joining(group.group).withBytes {
        rocksdb_writebatch_delete_cf(batch, engine.meta, $0.base, $0.count)
      }
    }
  }

  private func storedShards() throws(StorageError) -> [(shard: ShardID, state: StoredShard)] {
    try engine.prepareRecovery()
    var stored: [(shard: ShardID, state: StoredShard)] = []
    for shard in group.shards { stored.append((shard: ShardID(shard), state: try engine.recover(ShardID(shard)))) }
    return stored
  }

  /// Write what is staged.
  private func writeEntries() throws(StorageError) {
    do {
      try file.withLockedValue { try $0.seek(toOffset: 0) }
    } catch {
      throw .failed("\(path): \(error.localizedDescription)")
    }
    var buffer = ByteBuffer()
    while try readMore(into: &buffer) {
      try checkSpace()
      var fault: StorageError?
      try engine.write(isSynced: false) { batch in
        do throws(StorageError) {
          while let entry = try entry(from: &buffer) { engine.put(batch, entry.family, entry.key, entry.value) }
        } catch {
          fault = error
          rocksdb_writebatch_clear(batch)
        }
      }
      if let fault { throw fault }
    }
    guard buffer.readableBytes == 0 else { throw .corrupt("\(path): ends within an entry") }
  }

  /// Add the file's next bytes; false at its end.
  private func readMore(into buffer: inout ByteBuffer) throws(StorageError) -> Bool {
    let data: Data?
    do { data = try file.withLockedValue { try $0.read(upToCount: Self.partBytes) } } catch {
      throw .failed("\(path): \(error.localizedDescription)")
    }
    guard let data, !data.isEmpty else { return false }
    buffer.discardReadBytes()
    buffer.writeBytes(data)
    return true
  }

  /// Take a complete entry from the bytes; nil: more are needed. A key of another group's shards is refused.
  private func entry(
    from buffer: inout ByteBuffer
  ) throws(StorageError) -> (family: OpaquePointer, key: StorageKey, value: ByteBuffer)? {
    let start = buffer
    guard let kind: UInt8 = buffer.readInteger(), let key = try field(from: &buffer),
      let value = try field(from: &buffer)
    else {
      buffer = start
      return nil
    }
    let shard: ShardID?
    let family: OpaquePointer
    switch kind {
    case SnapshotEntry.log:
      shard = StorageKey.parseLog(key)?.shard
      family = engine.log
    case SnapshotEntry.page:
      shard = StorageKey.parsePage(key)?.shard ?? StorageKey.parseDirectory(key)
      family = engine.pages
    default:
      shard = nil
      family = engine.log
    }
    guard let shard, group.shards.contains(shard.rawValue) else {
      throw .corrupt("\(path): an entry is not of group \(group.group.rawValue)")
    }
    return (family, StorageKey(key), value)
  }

  /// Take a field with its length before it; nil: it is not complete.
  private func field(from buffer: inout ByteBuffer) throws(StorageError) -> ByteBuffer? {
    var length: UInt64 = 0
    var shift: UInt64 = 0
    while true {
      guard let byte: UInt8 = buffer.readInteger() else { return nil }
      // Waiting for the rest would read the whole file into memory.
      guard shift < 63 else { throw .corrupt("\(path): the length of a field") }
      length |= UInt64(byte & 0x7F) << shift
      if byte < 0x80 { break }
      shift += 7
    }
    guard length <= Self.fieldBytesMax else { throw .corrupt("\(path): a field of \(length) bytes") }
    return length <= UInt64(buffer.readableBytes) ? buffer.readSlice(length: Int(length)) : nil
  }

  func remove() {
    file.withLockedValue { try? $0.close() }
    try? FileManager.default.removeItem(atPath: path)
  }
}

extension RocksDBEngine {
  package func receiveSnapshot(of group: GroupShards) throws(StorageError) -> any GroupSnapshotReceiver {
    try RocksDBSnapshotReceiver(group, self)
  }

  /// Write what `body` puts into a batch.
  func write(isSynced: Bool, _ body: (OpaquePointer?) -> Void) throws(StorageError) {
    try checkUsable()
    let batch = rocksdb_writebatch_create()
    let options = RocksDBWriteOptions(isSynced: isSynced)
    defer {
      rocksdb_writebatch_destroy(batch)
      withExtendedLifetime(options) {}
    }
    body(batch)
    var failure: UnsafeMutablePointer<CChar>?
    rocksdb_write(database, options.pointer, batch, &failure)
    if let text = Self.consumeError(&failure) { throw recordFailure(text) }
  }

  /// Delete a group's data and its position.
  fileprivate func wipe(_ group: GroupShards, in batch: OpaquePointer?) {
    let (first, end) = (ShardID(group.shards.lowerBound), ShardID(group.shards.upperBound))
    deleteRange(batch, from: .log(first, .zero), to: .log(end, .zero), in: log)
    deleteRange(batch, from: .pages(first), to: .pages(end), in: pages)
    deleteRange(batch, from: .directories(first), to: .directories(end), in: pages)
    StorageKey.position(group.group).withBytes { rocksdb_writebatch_delete_cf(batch, meta, $0.base, $0.count) }
  }

  /// Delete a group whose installation has not ended, and its mark.
  fileprivate func removeUnfinished(_ group: GroupShards) throws(StorageError) {
    try write(isSynced: true) { batch in
      wipe(group, in: batch)
      StorageKey.joining(group.group).withBytes { rocksdb_writebatch_delete_cf(batch, meta, $0.base, $0.count) }
    }
  }

  package func remove(_ group: GroupShards) throws(StorageError) {
    try write(isSynced: true) { batch in
      wipe(group, in: batch)
      deleteRecordKeys(of: group.group, in: batch)
    }
  }

  /// Delete the groups of a process that ended while it installed snapshots.
  func removeUnfinishedSnapshots() throws(StorageError) {
    var unfinished: [GroupShards] = []
    try scan(meta, from: .joiningFirst, to: .joiningEnd) { key, value throws(StorageError) in
      var value = value
      guard let group = key.getInteger(at: key.writerIndex - 1, as: UInt8.self), value.readableBytes == 4,
        let first = value.readInteger(as: UInt16.self), let end = value.readInteger(as: UInt16.self), first < end
      else { throw .corrupt("\(directory): the mark of a group that is being replaced") }
      unfinished.append(GroupShards(group: GroupID(group), shards: first..<end))
    }
    for group in unfinished { try removeUnfinished(group) }
  }
}
