internal import Crypto
internal import Foundation

/// File operations for backups: every error names the file and the system's reason.
enum LocalFiles {
  /// Bytes that are read or hashed at once.
  static let pieceBytes = 1 << 20

  static func failure(_ path: String, _ code: Int32 = errno) -> BackupFailure {
    let isFull = code == ENOSPC || code == EDQUOT
    let help = isFull ? "; free disk space and retry; earlier backups are unchanged" : ""
    return BackupFailure("\(path): \(String(cString: strerror(code)))\(help)", isOutOfSpace: isFull)
  }

  /// Return the free space of the disk under a path; nil if unknown.
  static func freeBytes(_ path: String) -> UInt64? {
    let attributes = try? FileManager.default.attributesOfFileSystem(forPath: path)
    return (attributes?[.systemFreeSize] as? NSNumber)?.uint64Value
  }

  static func exists(_ path: String) -> Bool { FileManager.default.fileExists(atPath: path) }

  static func isDirectory(_ path: String) -> Bool {
    var isDirectory: ObjCBool = false
    return FileManager.default.fileExists(atPath: path, isDirectory: &isDirectory) && isDirectory.boolValue
  }

  /// Return the names in a directory, sorted.
  static func names(in directory: String) throws(BackupFailure) -> [String] {
    do {
      return try FileManager.default.contentsOfDirectory(atPath: directory).sorted()
    } catch {
      throw BackupFailure("\(directory): cannot be read (\(error.localizedDescription))")
    }
  }

  /// Return a regular file's size; nil if there is none.
  static func size(_ path: String) -> UInt64? {
    guard let attributes = try? FileManager.default.attributesOfItem(atPath: path),
      attributes[.type] as? FileAttributeType == .typeRegular
    else { return nil }
    return (attributes[.size] as? NSNumber)?.uint64Value
  }

  static func makeDirectory(_ path: String) throws(BackupFailure) {
    do {
      try FileManager.default.createDirectory(
        atPath: path,
        withIntermediateDirectories: true,
        attributes: [.posixPermissions: 0o700]
      )
    } catch {
      throw BackupFailure("\(path): cannot be created (\(error.localizedDescription))")
    }
  }

  static func remove(_ path: String) { try? FileManager.default.removeItem(atPath: path) }

  static func rename(_ path: String, to other: String) throws(BackupFailure) {
    guard Glibc.rename(path, other) == 0 else { throw failure(other) }
  }

  /// Make creations, renames and removals in a directory durable.
  static func syncDirectory(_ path: String) throws(BackupFailure) {
    let descriptor = open(path, O_RDONLY | O_CLOEXEC)
    guard descriptor >= 0 else { throw failure(path) }
    defer { close(descriptor) }
    guard fsync(descriptor) == 0 else { throw failure(path) }
  }

  /// Call `body` with the bytes of a part of a file, piece by piece.
  static func read(
    _ path: String,
    at offset: UInt64 = 0,
    count: UInt64? = nil,
    _ body: (UnsafeRawBufferPointer) throws(BackupFailure) -> Void
  ) throws(BackupFailure) {
    let descriptor = open(path, O_RDONLY | O_CLOEXEC)
    guard descriptor >= 0 else { throw failure(path) }
    defer { close(descriptor) }
    let room = UnsafeMutableRawBufferPointer.allocate(byteCount: pieceBytes, alignment: 16)
    defer { room.deallocate() }
    var at = offset
    let end = count.map { offset + $0 } ?? .max
    while at < end {
      let taken = pread(descriptor, room.baseAddress, Int(min(UInt64(pieceBytes), end - at)), off_t(at))
      if taken < 0, errno == EINTR { continue }
      guard taken >= 0 else { throw failure(path) }
      if taken == 0 {
        guard count == nil else { throw BackupFailure("\(path): ends at byte \(at), before byte \(end)") }
        return
      }
      try body(UnsafeRawBufferPointer(rebasing: room.prefix(taken)))
      at += UInt64(taken)
    }
  }

  /// Return the SHA-256 of a part of a file, or of all of it without a count.
  static func digest(_ path: String, at offset: UInt64 = 0, count: UInt64? = nil) throws(BackupFailure) -> [UInt8] {
    var hash = SHA256()
    try read(path, at: offset, count: count) { hash.update(bufferPointer: $0) }
    return Array(hash.finalize())
  }

  static func digest(_ bytes: UnsafeRawBufferPointer) -> [UInt8] {
    var hash = SHA256()
    hash.update(bufferPointer: bytes)
    return Array(hash.finalize())
  }

  /// Write a small file atomically, durable before this returns.
  static func writeWhole(_ bytes: [UInt8], to path: String) throws(BackupFailure) {
    let temporary = path + ".tmp"
    let file = try FileSink(temporary)
    try file.write(bytes)
    try file.sync()
    try rename(temporary, to: path)
    try syncDirectory((path as NSString).deletingLastPathComponent)
  }

  /// Copy a file, durable before this returns, and return its SHA-256.
  @discardableResult
  static func copy(_ path: String, to other: String) throws(BackupFailure) -> [UInt8] {
    let sink = try FileSink(other)
    try read(path) { piece throws(BackupFailure) in try sink.write(piece) }
    try sink.sync()
    return sink.digest
  }

  /// Create a hard link, or copy the file if the file system does not support it.
  static func link(_ path: String, to other: String) throws(BackupFailure) {
    if Glibc.link(path, other) == 0 { return }
    switch errno {
    case EXDEV, EPERM, EMLINK, ENOTSUP, ENOSYS: try copy(path, to: other)
    default: throw failure(other)
    }
  }
}

/// New file that is written sequentially.
final class FileSink {
  private let path: String
  private let descriptor: Int32
  private var hash = SHA256()

  init(_ path: String) throws(BackupFailure) {
    self.path = path
    descriptor = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0o600)
    guard descriptor >= 0 else { throw LocalFiles.failure(path) }
  }

  /// This runs after a failed `init` too, because all properties are set by then.
  deinit {
    if descriptor >= 0 { close(descriptor) }
  }

  func write(_ bytes: UnsafeRawBufferPointer) throws(BackupFailure) {
    hash.update(bufferPointer: bytes)
    var rest = bytes[...]
    while !rest.isEmpty {
      let part = UnsafeRawBufferPointer(rebasing: rest)
      let written = Glibc.write(descriptor, part.baseAddress, part.count)
      if written < 0, errno == EINTR { continue }
      guard written > 0 else { throw LocalFiles.failure(path) }
      rest = rest.dropFirst(written)
    }
  }

  func write(_ bytes: [UInt8]) throws(BackupFailure) {
    let result = bytes.withUnsafeBytes { bytes in
      Result<Void, BackupFailure> { () throws(BackupFailure) in try write(bytes) }
    }
    try result.get()
  }

  /// Sync the file and drop its pages from the page cache, so that the next reader reads the disk.
  func sync() throws(BackupFailure) {
    guard fsync(descriptor) == 0 else { throw LocalFiles.failure(path) }
    posix_fadvise(descriptor, 0, 0, Int32(POSIX_FADV_DONTNEED))
  }

  /// SHA-256 of the bytes written.
  var digest: [UInt8] { Array(hash.finalize()) }
}

extension Array<UInt8> {
  /// The bytes in hexadecimal.
  var hex: String { map { ($0 < 16 ? "0" : "") + String($0, radix: 16) }.joined() }
}

/// Reason why a backup, a check or a restore failed, in one line with a remedy.
package struct BackupFailure: Error, Hashable, Sendable, CustomStringConvertible {
  package let description: String

  /// Whether the disk is full.
  package let isOutOfSpace: Bool

  package init(_ description: String, isOutOfSpace: Bool = false) {
    self.description = description
    self.isOutOfSpace = isOutOfSpace
  }
}
