import Foundation
import Operations
import Testing

@testable import Backup

/// A backup's manifest, and the manifests that are rejected.
@Suite struct BackupManifestTests {
  private let manifest = BackupManifest(
    format: 1,
    store: "00000000000000010000000000000002",
    time: "2026-11-23T05:13:38.000Z",
    timeMilliseconds: 1_763_874_818_000,
    logIndexes: [7, 0],
    files: [BackupManifest.File(name: "000012.sst", size: 3, sha256: String(repeating: "ab", count: 32))]
  )

  private func inDirectory(_ body: (String) throws -> Void) throws {
    let directory = NSTemporaryDirectory() + "tidemark-manifest-\(UUID().uuidString)"
    try FileManager.default.createDirectory(atPath: directory, withIntermediateDirectories: true)
    defer { try? FileManager.default.removeItem(atPath: directory) }
    try body(directory)
  }

  private func change(_ directory: String, _ text: String, to other: String) throws {
    let path = directory + "/manifest.json"
    let before = try String(contentsOfFile: path, encoding: .utf8)
    #expect(before.contains(text))
    try before.replacingOccurrences(of: text, with: other).write(toFile: path, atomically: true, encoding: .utf8)
  }

  @Test func manifestRoundTrips() throws {
    try inDirectory { directory in
      try manifest.write(to: directory)
      #expect(try BackupManifest.read(from: directory) == manifest)
      #expect(try FileManager.default.contentsOfDirectory(atPath: directory) == ["manifest.json"])
    }
  }

  @Test(arguments: [
    ("000012", "000013"), ("\"size\" : 3", "\"size\" : 4"), ("abab", "abac"), ("    \"format\" : 1,\n", ""),
  ]) func changedManifestIsRejected(_ text: String, _ other: String) throws {
    try inDirectory { directory in
      try manifest.write(to: directory)
      try change(directory, text, to: other)
      let failure = #expect(throws: BackupFailure.self) { try BackupManifest.read(from: directory) }
      #expect(failure?.description.contains("is corrupt") == true)
    }
  }

  @Test(arguments: ["", ".", "..", "../x", "a/b", "/x", "a\0b", "Zoë"])
  func fileNamesOutsideDirectoryAreRejected(_ name: String) throws {
    try inDirectory { directory in
      var manifest = manifest
      manifest.files[0].name = name
      try manifest.write(to: directory)
      let failure = #expect(throws: BackupFailure.self) { try BackupManifest.read(from: directory) }
      #expect(failure?.description.contains("which is no file of a store") == true)
    }
  }

  @Test func otherFormatIsRejectedByName() throws {
    try inDirectory { directory in
      try manifest.write(to: directory)
      try change(directory, "\"format\" : 1", to: "\"format\" : 2")
      let failure = #expect(throws: BackupFailure.self) { try BackupManifest.read(from: directory) }
      #expect(failure?.description.contains("has format 2") == true)
    }
  }

  @Test func timesAreWrittenInUTC() {
    #expect(Times.text(1_763_874_818_042) == "2025-11-23T05:13:38.042Z")
    #expect(Times.text(0) == "1970-01-01T00:00:00.000Z")
  }
}

/// Results are printed as JSON, with any characters in their paths.
@Suite struct BackupDocumentTests {
  @Test func pathsWithQuotesAreEscaped() throws {
    let path = #"/srv/a "copy"\of"# + "\n"
    let document = StoreCheck.Report(path: path).document
    let object = try JSONSerialization.jsonObject(with: Data(document.utf8)) as? [String: Any]
    #expect(object?["checked"] as? String == path)
    #expect(!document.contains(#"\/"#))
  }
}

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
