import Foundation
import StoreEngine

/// Whether the process can open files. RocksDB goes wrong in places where it cannot: a librocksdb with assertions
/// (Debian's 7.8) aborts the process where a flush follows one that could not begin its write-ahead log. So nothing
/// that opens files is begun where none can be opened.
enum FreeDescriptors {
  /// What a flush, a merge or a checkpoint opens at once: tables, a write-ahead log, the manifest, folders.
  static let forFiles = 24

  /// Throws where fewer descriptors are free. They are counted rather than tried: while none is free, the process may
  /// be ended by libdispatch, which looks at its threads' files in /proc. Between this and their use others may take
  /// some: connections have a share of their own, which leaves these free.
  static func check(_ count: Int = forFiles, for directory: String) throws(StorageError) {
    var limit = rlimit()
    guard getrlimit(__rlimit_resource_t(RLIMIT_NOFILE.rawValue), &limit) == 0 else { return }
    // Descriptors beyond the limit, which was lowered then, are in nobody's way. One is the list's own.
    let taken = (try? FileManager.default.contentsOfDirectory(atPath: "/proc/self/fd"))?
      .count { Int($0).map { $0 < limit.rlim_cur } ?? false }
    let free = taken.map { max(0, Int(clamping: limit.rlim_cur) - $0 + 1) } ?? 0
    guard free < count else { return }
    throw .failed(
      "\(directory): \(count) more files have to be opened, \(free) can be; raise the limit of descriptors (LimitNOFILE, ulimit -n)"
    )
  }
}
