#if canImport(Glibc)
  internal import Glibc
#elseif canImport(Musl)
  internal import Musl
#endif

/// Metadata that changes when a file is written or replaced. stat(2) follows symbolic links, so a changed link on the
/// way is detected too, as in a mounted Kubernetes Secret.
struct FileState: Equatable, Sendable {
  private let device: UInt64
  private let inode: UInt64
  private let byteCount: Int64
  private let modified: [Int]
  /// Change time, which includes changes of permissions.
  private let changed: [Int]

  /// Read the state of a file; nil if it does not exist or cannot be reached.
  init?(_ path: String) {
    var information = stat()
    guard stat(path, &information) == 0 else { return nil }
    device = UInt64(information.st_dev)
    inode = UInt64(information.st_ino)
    byteCount = Int64(information.st_size)
    modified = [information.st_mtim.tv_sec, information.st_mtim.tv_nsec]
    changed = [information.st_ctim.tv_sec, information.st_ctim.tv_nsec]
  }

  /// Return the states of files, by path; missing files are left out.
  static func of(_ paths: [String]) -> [String: FileState] {
    var states: [String: FileState] = [:]
    for path in paths { states[path] = FileState(path) }
    return states
  }
}
