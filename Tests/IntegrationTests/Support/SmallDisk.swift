import Foundation
import TestPrograms
import Testing

/// A file system of its own with little space, in memory. Needs root.
struct SmallDisk: Sendable {
  private static let bytes = 768 << 20

  private let directory: String
  private var filler: String { directory + "/filler" }

  /// - Parameter directory: where it is mounted. It is made.
  init(at directory: String) async throws {
    self.directory = directory
    try FileManager.default.createDirectory(atPath: directory, withIntermediateDirectories: true)
    let mounted = try await Command.run("mount", ["-t", "tmpfs", "-o", "size=\(Self.bytes)", "tmpfs", directory])
    try #require(mounted.status == 0, "\(mounted)")
  }

  /// Take all space that is left.
  func fill() async throws {
    let output = try await Command.run("dd", ["if=/dev/zero", "of=\(filler)", "bs=1M", "status=none"])
    try #require(output.error.contains("No space left"), "\(output)")
  }

  func free() throws { try FileManager.default.removeItem(atPath: filler) }

  func unmount() async { _ = try? await Command.run("umount", [directory]) }
}
