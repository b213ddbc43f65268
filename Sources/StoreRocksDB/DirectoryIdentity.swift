internal import Foundation

/// Identity of the directory behind a path when the store opened it. If the directory is replaced, RocksDB keeps
/// writing to its unlinked files, and creates new ones at the path: everything acknowledged then is lost.
struct DirectoryIdentity: Hashable, Sendable {
  private struct File: Hashable, Sendable {
    var device: dev_t
    var number: ino_t

    /// nil if there is no such file.
    init?(_ path: String) {
      var state = stat()
      guard stat(path, &state) == 0 else { return nil }
      device = state.st_dev
      number = state.st_ino
    }
  }

  private let path: String
  private let directory: File?
  /// RocksDB's lock file, which it creates once and never removes.
  private let lock: File?

  /// Record the identity of an open directory.
  init(_ path: String) {
    self.path = path
    directory = File(path)
    lock = File(path + "/LOCK")
  }

  /// Why the path no longer leads to the directory; nil if it still does.
  var fault: String? {
    guard let found = File(path) else {
      return "\(path): the data directory was removed while the store was running"
    }
    guard found == directory else {
      return "\(path): is not the directory that was opened: it was replaced while the store was running"
    }
    guard let found = File(path + "/LOCK"), found == lock, File(path + "/CURRENT") != nil else {
      return "\(path): its files were removed or replaced while the store was running"
    }
    return nil
  }
}
