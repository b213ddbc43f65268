internal import Foundation
package import NIOCore
internal import StoreEngine

/// When commits check the free disk space. A check is a system call, so small commits share one.
///
/// Between two checks each event loop commits less than ``bytesMax``, which is far below the reserve that a check
/// requires (``RocksDBEngine/freeBytesMin``). Space that other processes use up is noticed after ``interval``.
package struct SpaceCheckPace: Sendable {
  /// Maximum age of the last check.
  static let interval = TimeAmount.milliseconds(100)
  /// Committed bytes after which the next commit checks.
  package static let bytesMax = 4 << 20

  /// When the last check found enough space; nil if none did yet.
  private var checkedAt: NIODeadline?
  /// Bytes that were committed since.
  private var bytes = 0

  package init() {}

  /// Return whether a commit of this size must check first.
  package mutating func isDue(_ byteCount: Int, at now: NIODeadline) -> Bool {
    bytes += byteCount
    guard let checkedAt else { return true }
    return bytes >= Self.bytesMax || now - checkedAt >= Self.interval
  }

  /// Record that there is enough space before a commit of this size.
  package mutating func passed(_ byteCount: Int, at now: NIODeadline) {
    checkedAt = now
    bytes = byteCount
  }
}

/// Checks that the process can open files before RocksDB needs to. RocksDB does not handle a failure in some places: a
/// librocksdb with assertions (Debian's 7.8) aborts the process if a flush follows one that could not create its
/// write-ahead log. So no operation that opens files starts without free descriptors.
enum FreeDescriptors {
  /// Files that a flush, a compaction or a checkpoint opens at once: tables, a write-ahead log, the manifest,
  /// directories.
  static let forFiles = 24

  /// Throw if fewer descriptors are free. They are counted rather than tried: while none is free, libdispatch may end
  /// the process, because it reads its threads' files in /proc. Other code may take descriptors before they are used,
  /// but connections have a share of their own, which leaves these free.
  static func check(_ count: Int = forFiles, for directory: String) throws(StorageError) {
    var limit = rlimit()
    guard getrlimit(__rlimit_resource_t(RLIMIT_NOFILE.rawValue), &limit) == 0 else { return }
    // Descriptors above a limit that was lowered later do not count. One descriptor belongs to the listing itself.
    let taken = (try? FileManager.default.contentsOfDirectory(atPath: "/proc/self/fd"))?
      .count { Int($0).map { $0 < limit.rlim_cur } ?? false }
    let free = taken.map { max(0, Int(clamping: limit.rlim_cur) - $0 + 1) } ?? 0
    guard free < count else { return }
    throw .failed(
      "\(directory): needs to open \(count) more files, but only \(free) descriptors are free; "
        + "raise the limit of descriptors (LimitNOFILE, ulimit -n)"
    )
  }
}
