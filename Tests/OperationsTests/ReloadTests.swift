import Foundation
import Logging
import Testing

@testable import Operations

@Suite struct FileStateTests {
  /// Every kind of change gives a file another state.
  @Test func everyKindOfFileChangeIsDetected() async throws {
    try await withTemporaryDirectory { directory in
      let manager = FileManager.default
      let path = directory + "/secret"
      func write(_ text: String, _ path: String) throws {
        try Data(text.utf8).write(to: URL(fileURLWithPath: path))
      }
      #expect(FileState(path) == nil)
      try write("one", path)
      var last = try #require(FileState(path))
      #expect(FileState(path) == last)
      func expectChange(_ how: String, _ change: () throws -> Void) throws {
        try change()
        let now = try #require(FileState(path))
        #expect(now != last, "\(how)")
        last = now
      }
      try expectChange("written to") { try write("longer", path) }
      try expectChange("replaced by one of the same length and time") {
        try write("LONGER", directory + "/new")
        let date = try manager.attributesOfItem(atPath: path)[.modificationDate] as Any
        try manager.setAttributes([.modificationDate: date], ofItemAtPath: directory + "/new")
        #expect(rename(directory + "/new", path) == 0)
      }
      try expectChange("permissions") {
        try manager.setAttributes([.posixPermissions: 0o400], ofItemAtPath: path)
      }
      // A volume as Kubernetes mounts it: the file is a link into a linked directory.
      for version in ["v1", "v2"] {
        try manager.createDirectory(atPath: "\(directory)/\(version)", withIntermediateDirectories: true)
        try write("mounted", "\(directory)/\(version)/secret")
      }
      try manager.createSymbolicLink(atPath: directory + "/data", withDestinationPath: "v1")
      try expectChange("a link in its place") {
        try manager.removeItem(atPath: path)
        try manager.createSymbolicLink(atPath: path, withDestinationPath: "data/secret")
      }
      try expectChange("a directory on the way") {
        try manager.createSymbolicLink(atPath: directory + "/next", withDestinationPath: "v2")
        #expect(rename(directory + "/next", directory + "/data") == 0)
      }
      try manager.removeItem(atPath: directory + "/data")
      #expect(FileState(path) == nil)
      #expect(FileState.of([path, directory]).keys.sorted() == [directory])
    }
  }
}

@Suite struct LogLevelTests {
  /// Loggers follow the process's level, also existing ones, unless they have their own level.
  @Test func loggersFollowTheProcessLevel() {
    let before = AdjustableLogHandler.level
    defer { AdjustableLogHandler.level = before }
    AdjustableLogHandler.level = .error
    var logger = Logger(label: "test") { AdjustableLogHandler(StreamLogHandler.standardError(label: $0)) }
    var own = logger
    own.logLevel = .trace
    #expect(logger.logLevel == .error && own.logLevel == .trace)
    AdjustableLogHandler.level = .debug
    logger[metadataKey: "peer"] = "x"
    #expect(logger.logLevel == .debug && own.logLevel == .trace && logger[metadataKey: "peer"] == "x")
    AdjustableLogHandler.level = .critical
    #expect(logger.logLevel == .critical)
  }
}
