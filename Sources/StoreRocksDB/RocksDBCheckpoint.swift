internal import CRocksDB
internal import Foundation
internal import NIOCore
package import StoreEngine

/// A RocksDB checkpoint in `checkpoint/` of the data directory: hard links to tables, which are immutable, and copies
/// of files that are still written to. It uses disk space only for those copies, and for tables that RocksDB compacts
/// away while the checkpoint exists.
final class RocksDBCheckpoint: StorageCheckpoint {
  let files: [CheckpointFile]
  private let directory: String

  /// Free space below which reads fail, so that a checkpoint ends before the disk is too full for commits.
  private static let freeBytesMin = RocksDBEngine.freeBytesMin + (64 << 20)

  private static func path(_ data: String) -> String { data + "/checkpoint" }

  /// Remove leftovers of a process that ended during a backup. RocksDB builds a checkpoint under the second name, and
  /// renames it when it is complete.
  static func removeLeftovers(in data: String) {
    for path in [path(data), path(data) + ".tmp"] { try? FileManager.default.removeItem(atPath: path) }
  }

  /// Make the checkpoint of an open database whose memtables are flushed.
  ///
  /// - Parameter name: a file of the data directory to copy too, if it exists. It is append-only, and covers what is in
  ///   the database.
  init(of database: OpaquePointer, in data: String, withFile name: String) throws(StorageError) {
    Self.removeLeftovers(in: data)
    directory = Self.path(data)
    var failure: UnsafeMutablePointer<CChar>?
    let maker = rocksdb_checkpoint_object_create(database, &failure)
    if let text = RocksDBEngine.consumeError(&failure) { throw .failed("\(data): \(text)") }
    // Without a flush of its own, which could stall writes: the remaining write-ahead log is copied.
    rocksdb_checkpoint_create(maker, directory, .max, &failure)
    rocksdb_checkpoint_object_destroy(maker)
    if let text = RocksDBEngine.consumeError(&failure) {
      Self.removeLeftovers(in: data)
      throw .failed("\(data): the checkpoint cannot be created: \(text)")
    }
    do {
      if FileManager.default.fileExists(atPath: "\(data)/\(name)") {
        try FileManager.default.copyItem(atPath: "\(data)/\(name)", toPath: "\(directory)/\(name)")
      }
      files = try FileManager.default.contentsOfDirectory(atPath: directory).sorted().map { name in
        var state = stat()
        guard stat(Self.path(data) + "/" + name, &state) == 0 else {
          throw StorageError.failed("\(name): \(String(cString: strerror(errno)))")
        }
        return CheckpointFile(name: name, size: UInt64(state.st_size))
      }
    } catch {
      Self.removeLeftovers(in: data)
      throw .failed("\(data): the checkpoint cannot be read: \(error)")
    }
  }

  func read(_ file: Int, at offset: UInt64, count: Int) throws(StorageError) -> ByteBuffer {
    // The checkpoint keeps tables that were compacted away since. That must not use up the space for commits.
    try RocksDBEngine.checkSpace(directory, bytesMin: Self.freeBytesMin)
    let path = directory + "/" + files[file].name
    let descriptor = open(path, O_RDONLY | O_CLOEXEC)
    guard descriptor >= 0 else { throw .failed("\(path): \(String(cString: strerror(errno)))") }
    defer { close(descriptor) }
    var buffer = ByteBuffer()
    buffer.reserveCapacity(count)
    var fault: Int32 = 0
    while buffer.readableBytes < count, fault == 0 {
      let at = off_t(offset) + off_t(buffer.readableBytes)
      let rest = count - buffer.readableBytes
      let taken = buffer.writeWithUnsafeMutableBytes(minimumWritableBytes: rest) { target in
        let taken = pread(descriptor, target.baseAddress, rest, at)
        if taken < 0, errno != EINTR { fault = errno }
        return max(0, taken)
      }
      if taken == 0, fault == 0 { throw .failed("\(path): ends before byte \(offset + UInt64(count))") }
    }
    guard fault == 0 else { throw .failed("\(path): \(String(cString: strerror(fault)))") }
    return buffer
  }

  func remove() { try? FileManager.default.removeItem(atPath: directory) }
}

extension RocksDBEngine {
  package func makeCheckpoint() throws(StorageError) -> any StorageCheckpoint {
    try Self.checkSpace(directory)
    // Flush memtables to tables, which later backups find unchanged. These flushes wait rather than stall writes.
    for family in openFamilies { try flush(family) }
    try FreeDescriptors.check(for: directory)
    return try RocksDBCheckpoint(of: database, in: directory, withFile: "erasures")
  }
}
