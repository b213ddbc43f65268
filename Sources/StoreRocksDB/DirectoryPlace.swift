import Foundation

/// Which directory a path led to when the store opened it. RocksDB goes on writing to files that have no name any more,
/// and makes new ones at the path, whatever is there: what is acknowledged then is lost.
struct DirectoryPlace: Hashable, Sendable {
  private struct File: Hashable, Sendable {
    var device: dev_t
    var number: ino_t

    /// nil: there is none.
    init?(_ path: String) {
      var state = stat()
      guard stat(path, &state) == 0 else { return nil }
      device = state.st_dev
      number = state.st_ino
    }
  }

  private let path: String
  private let directory: File?
  /// RocksDB makes it once and never removes it.
  private let lock: File?

  /// The place of an open directory.
  init(_ path: String) {
    self.path = path
    directory = File(path)
    lock = File(path + "/LOCK")
  }

  /// Why the path does not lead there any more; nil: it does.
  var fault: String? {
    guard let found = File(path) else { return "\(path): the data directory was removed while it was served" }
    guard found == directory else {
      return "\(path): is another directory than the one that was opened: it was replaced while it was served"
    }
    guard let found = File(path + "/LOCK"), found == lock, File(path + "/CURRENT") != nil else {
      return "\(path): its files were removed or replaced while they were served"
    }
    return nil
  }
}
