#if canImport(Glibc)
  internal import Glibc
#elseif canImport(Musl)
  internal import Musl
#endif

/// What tells that a file was written to or replaced by another, also where a symbolic link on the way to it leads
/// elsewhere, as in a mounted Kubernetes Secret: stat(2) follows it.
struct FileState: Equatable, Sendable {
  private let device: UInt64
  private let inode: UInt64
  private let byteCount: Int64
  private let modified: [Int]
  /// Also of its permissions.
  private let changed: [Int]

  /// Nil where there is no such file, or it cannot be reached.
  init?(_ path: String) {
    var information = stat()
    guard stat(path, &information) == 0 else { return nil }
    device = UInt64(information.st_dev)
    inode = UInt64(information.st_ino)
    byteCount = Int64(information.st_size)
    modified = [information.st_mtim.tv_sec, information.st_mtim.tv_nsec]
    changed = [information.st_ctim.tv_sec, information.st_ctim.tv_nsec]
  }

  /// The states of files, by path; a path without a file has none.
  static func of(_ paths: [String]) -> [String: FileState] {
    var states: [String: FileState] = [:]
    for path in paths { states[path] = FileState(path) }
    return states
  }
}
