import Foundation
import StoreEngine

/// Whether the process can open files. RocksDB goes wrong in places where it cannot: a librocksdb with assertions
/// (Debian's 7.8) aborts the process where a flush follows one that could not begin its write-ahead log. So nothing
/// that opens files is begun where none can be opened.
enum FreeDescriptors {
  /// What a flush, a merge or a checkpoint opens at once: tables, a write-ahead log, the manifest, folders.
  static let forFiles = 24

  /// Throws where fewer descriptors are free. Between this and their use others may take some: connections have a share
  /// of their own, which leaves these free.
  static func check(_ count: Int = forFiles, for directory: String) throws(StorageError) {
    var opened: [Int32] = []
    defer { for descriptor in opened { close(descriptor) } }
    for _ in 0..<count {
      let descriptor = open("/dev/null", O_RDONLY | O_CLOEXEC)
      guard descriptor >= 0 else {
        let reason = String(cString: strerror(errno))
        throw .failed(
          "\(directory): \(count) more files have to be opened, \(opened.count) can be (\(reason)); raise the limit of descriptors (LimitNOFILE, ulimit -n)"
        )
      }
      opened.append(descriptor)
    }
  }
}
