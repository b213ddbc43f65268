import Foundation
import Testing

@testable import Backup

/// The lock of a directory of backups.
@Suite struct FileLockTests {
  private func inDirectory(_ body: (String) throws -> Void) throws {
    let directory = NSTemporaryDirectory() + "tidemark-lock-\(UUID().uuidString)"
    try FileManager.default.createDirectory(atPath: directory, withIntermediateDirectories: true)
    defer { try? FileManager.default.removeItem(atPath: directory) }
    try body(directory)
  }

  @Test func secondLockIsRefusedUntilTheFirstIsFreed() throws {
    try inDirectory { directory in
      var first: BackupDirectory? = try BackupDirectory(directory)
      #expect(throws: BackupFailure.self) { try BackupDirectory(directory) }
      #expect(first?.path == directory)
      first = nil
      _ = try BackupDirectory(directory)
    }
  }

  /// A second `close` could close a descriptor that another thread has opened meanwhile. Here `locked` opens one: if
  /// `init` had closed its own descriptor before, the new one would have the same number, and `deinit` would close it.
  @Test func refusedLockClosesNoOtherDescriptor() throws {
    try inDirectory { directory in
      let path = directory + "/.lock"
      let first = try FileLock(path) { _ in BackupFailure("locked") }
      var opened: Int32 = -1
      #expect(throws: BackupFailure.self) {
        try FileLock(path) { _ in
          opened = open("/dev/null", O_RDONLY | O_CLOEXEC)
          return BackupFailure("locked")
        }
      }
      #expect(fcntl(opened, F_GETFD) >= 0, "descriptor \(opened) was closed")
      close(opened)
      withExtendedLifetime(first) {}
    }
  }
}
