internal import Foundation
internal import Operations
internal import ReceiptModel

/// Directory that `tidemark backup` writes to: one folder per backup, named by its time, each complete on its own.
///
/// ```
/// TO/20261123T051338.042Z/manifest.json
/// TO/20261123T051338.042Z/data/…          a data directory; unchanged tables are hard links to the backup before
/// TO/.new/                            a copy in progress
/// TO/.torn/                           an interrupted copy: the next one reuses its tables and removes it
/// TO/.lock
/// ```
struct BackupDirectory {
  let path: String
  /// Held as long as this object lives.
  private let lock: FileLock

  static let dataName = "data"

  var new: String { path + "/.new" }
  private var torn: String { path + "/.torn" }

  /// Create the directory if it does not exist, and take its lock.
  init(_ path: String) throws(BackupFailure) {
    self.path = path
    try LocalFiles.makeDirectory(path)
    let names = try LocalFiles.names(in: path)
    if names.contains("CURRENT") || names.contains(BackupManifest.fileName) {
      throw BackupFailure(
        "\(path): is a data directory or a single backup; give a directory that holds backups, or a new one"
      )
    }
    lock = try FileLock(path + "/.lock") { _ in
      BackupFailure("\(path): another tidemark backup writes there; wait for it, or give another directory")
    }
  }

  /// Return the folders with a manifest, oldest first.
  static func backups(in path: String) throws(BackupFailure) -> [String] {
    try LocalFiles.names(in: path).filter { name in
      !name.hasPrefix(".") && LocalFiles.exists("\(path)/\(name)/\(BackupManifest.fileName)")
    }.map { "\(path)/\($0)" }
  }

  /// Return the backup at a path: the path itself, or the newest backup in it.
  static func newest(at path: String) throws(BackupFailure) -> String {
    if LocalFiles.exists(path + "/" + BackupManifest.fileName) { return path }
    guard LocalFiles.isDirectory(path) else { throw BackupFailure("\(path): no such directory") }
    guard let newest = try backups(in: path).last else {
      throw BackupFailure(
        "\(path): no complete backup there (no \(BackupManifest.fileName)); name a backup, or the directory of them"
      )
    }
    return newest
  }

  /// Begin a new copy.
  ///
  /// - Returns: the folders with tables of earlier copies.
  func begin() throws(BackupFailure) -> [String] {
    if LocalFiles.isDirectory(new) {
      LocalFiles.remove(torn)
      try LocalFiles.rename(new, to: torn)
    }
    try LocalFiles.makeDirectory(new + "/" + Self.dataName)
    let newest = try Self.backups(in: path).last
    return (newest.map { [$0] } ?? []) + (LocalFiles.isDirectory(torn) ? [torn] : [])
  }

  /// Turn the new copy into a backup of that time, durable before this returns.
  func complete(_ manifest: BackupManifest) throws(BackupFailure) -> String {
    let stem = path + "/" + Self.name(manifest.timeMilliseconds)
    var target = stem
    var number = 1
    while LocalFiles.exists(target) {
      number += 1
      target = stem + "-\(number)"
    }
    try LocalFiles.syncDirectory(new + "/" + Self.dataName)
    try manifest.write(to: new)
    try LocalFiles.rename(new, to: target)
    try LocalFiles.syncDirectory(path)
    LocalFiles.remove(torn)
    return target
  }

  private static func name(_ milliseconds: Int64) -> String {
    Times.text(milliseconds).filter { $0 != "-" && $0 != ":" }
  }
}

/// Lock file that is held until this object is freed or the process ends.
final class FileLock: Sendable {
  private let descriptor: Int32

  /// - Parameter locked: creates the error if another process holds the lock.
  init(_ path: String, locked: (Int32) -> BackupFailure) throws(BackupFailure) {
    descriptor = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0o600)
    guard descriptor >= 0 else { throw LocalFiles.failure(path) }
    guard flock(descriptor, LOCK_EX | LOCK_NB) == 0 else {
      let code = errno
      throw code == EWOULDBLOCK ? locked(code) : LocalFiles.failure(path, code)
    }
  }

  /// This runs after a failed `init` too, because all properties are set by then.
  deinit {
    if descriptor >= 0 { close(descriptor) }
  }
}
