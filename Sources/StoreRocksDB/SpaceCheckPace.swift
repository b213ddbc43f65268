package import NIOCore

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
