import Foundation
import Logging
import Testing

@testable import Operations

@Suite struct SettingsTests {
  private static let keys: Set<String> = [
    "config", "listen", "store", "loops", "h2c", "memory", "cors-origin", "jwt-secret-file",
  ]

  private func settings(
    flags: [String: String] = [:],
    restrictions: Set<String> = [],
    environment: [String: String] = [:],
    file: String? = nil,
    name: String = "c.yaml"
  ) async throws -> Settings {
    try await withTemporaryDirectory { directory in
      var flags = flags
      if let file {
        let path = directory + "/" + name
        try file.write(toFile: path, atomically: true, encoding: .utf8)
        flags["config"] = path
      }
      return try await Settings(flags: flags, keys: Self.keys, restrictions: restrictions, environment: environment)
    }
  }

  private func problem(_ body: () async throws -> Void) async -> String {
    do {
      try await body()
      return "no error"
    } catch {
      return "\(error)"
    }
  }

  @Test func differencesAreNamed() async throws {
    let first = try await settings(file: "loops: 1\nstore: [a:1, b:2]\nlisten: 127.0.0.1:1\n")
    let second = try await settings(file: "loops: 2\nstore: [a:1]\nlisten: 127.0.0.1:1\nmemory: 1G\n")
    #expect(second.differences(from: first, among: Self.keys.subtracting(["config"])) == ["loops", "memory", "store"])
    #expect(second.differences(from: first, among: ["listen", "memory"]) == ["memory"])
    let flags = try await settings(flags: ["loops": "1"], file: "loops: 2\n")
    #expect(flags.differences(from: first, among: ["loops"]).isEmpty)
    #expect(second.files(["listen", "h2c"]) == ["127.0.0.1:1"])
  }

  @Test func flagsOverrideEnvironmentOverridesFile() async throws {
    let file = "loops: 1\nlisten: 127.0.0.1:1\nstore: 127.0.0.1:2\n"
    let environment = ["TIDEMARK_LOOPS": "2", "TIDEMARK_LISTEN": "127.0.0.1:3", "LOOPS": "9"]
    let all = try await settings(flags: ["loops": "3"], environment: environment, file: file)
    #expect(try all.integer("loops", in: 1...8) == 3)
    #expect(try all.endpoint("listen")?.port == 3)
    #expect(try all.endpoints("store").map(\.port) == [2])
    #expect(try all.string("memory") == nil)
  }

  @Test func hyphenatedKeysAreEquivalent() async throws {
    let fromEnvironment = try await settings(environment: ["TIDEMARK_JWT_SECRET_FILE": "e"])
    #expect(try fromEnvironment.string("jwt-secret-file") == "e")
    let fromFile = try await settings(file: "jwt-secret-file: f\n")
    #expect(try fromFile.string("jwt-secret-file") == "f")
    let fromJSON = try await settings(file: #"{"jwt-secret-file": "j", "h2c": true, "loops": 4}"#, name: "c.json")
    #expect(try fromJSON.string("jwt-secret-file") == "j")
    #expect(try fromJSON.flag("h2c"))
    #expect(try fromJSON.integer("loops", in: 1...8) == 4)
  }

  @Test func listsAreReadFromCommasOrFileLists() async throws {
    let flags = try await settings(flags: ["store": "a:1, b:2,"])
    #expect(try flags.endpoints("store").map(\.description) == ["a:1", "b:2"])
    let block = try await settings(file: "store:\n  - a:1\n  - b:2\ncors-origin:\n- https://x\n")
    #expect(try block.endpoints("store").map(\.description) == ["a:1", "b:2"])
    #expect(try block.list("cors-origin") == ["https://x"])
    let json = try await settings(file: #"{"store": ["a:1", "b:2"]}"#)
    #expect(try json.list("store") == ["a:1", "b:2"])
    let none = try await settings()
    #expect(try none.list("store").isEmpty)
  }

  @Test func emptyValuesCountAsUnset() async throws {
    let all = try await settings(flags: ["listen": ""], environment: ["TIDEMARK_LISTEN": ""], file: "listen: a:1\n")
    #expect(try all.string("listen") == "a:1")
  }

  /// An unset variable in a script must not lift a restriction.
  @Test(arguments: [
    (["cors-origin": ""], [:], ""), (["cors-origin": "https://x,"], [:], ""), ([:], ["TIDEMARK_CORS_ORIGIN": ""], ""),
    ([:], ["TIDEMARK_CORS_ORIGIN": ","], ""), ([:], [:], "cors-origin: \"\"\n"),
    ([:], [:], "cors-origin:\n  - https://x\n  - \"\"\n"),
  ])
  func restrictionsMayNotBeEmpty(
    _ flags: [String: String],
    _ environment: [String: String],
    _ file: String
  ) async throws {
    do {
      _ = try await settings(
        flags: flags,
        restrictions: ["cors-origin"],
        environment: environment,
        file: file.isEmpty ? nil : file
      )
      Issue.record("accepted")
    } catch let error as SettingsError {
      #expect("\(error)".contains("--cors-origin is empty"), "\(error)")
    }
  }

  @Test(arguments: [
    ("16", 16), ("1K", 1024), ("512M", 512 << 20), ("4GiB", 4 << 30), ("2tb", 2 << 40), ("7B", 7),
  ]) func sizeIsParsed(_ text: String, _ value: Int) async throws {
    let all = try await settings(flags: ["memory": text])
    #expect(try all.byteCount("memory", in: 0...Int.max) == value)
  }

  @Test(arguments: [
    ("loops", "nine", "--loops \"nine\": give a whole number from 1 to 8"),
    ("loops", "9", "--loops \"9\": give a whole number from 1 to 8"),
    ("h2c", "maybe", "--h2c \"maybe\": give true or false"),
    ("listen", "here", "--listen \"here\": give HOST:PORT, as in 127.0.0.1:8443 or [::1]:8443, port 0 to 65535"),
    ("memory", "lots", "--memory \"lots\": give a size such as 512M or 4G, from 1 to 2048 bytes"),
    ("memory", "4K", "--memory \"4K\": give a size such as 512M or 4G, from 1 to 2048 bytes"),
    (
      "memory", "99999999999G",
      "--memory \"99999999999G\": give a size such as 512M or 4G, from 1 to 2048 bytes"
    ),
  ])
  func invalidValuesAreNamed(_ key: String, _ value: String, _ line: String) async throws {
    for source in 0..<3 {
      let variable = "TIDEMARK_" + key.uppercased().replacingOccurrences(of: "-", with: "_")
      let all =
        switch source {
        case 0: try await settings(flags: [key: value])
        case 1: try await settings(environment: [variable: value])
        default: try await settings(file: "\(key): \(value)\n")
        }
      let found = await problem {
        _ = try all.integer("loops", in: 1...8)
        _ = try all.flag("h2c")
        _ = try all.endpoint("listen")
        _ = try all.byteCount("memory", in: 1...2048)
      }
      #expect(found == line)
    }
  }

  @Test func misspeltVariablesAreNamed() async throws {
    let found = await problem {
      _ = try await settings(environment: ["TIDEMARK_LITSEN": "a:1", "TIDEMARK_STORE": "b:1"])
    }
    #expect(found.hasPrefix("TIDEMARK_LITSEN is not a setting of this process; known are "))
    #expect(found.contains("TIDEMARK_CONFIG, TIDEMARK_CORS_ORIGIN, ") && !found.contains("\n"))
    // Empty variables and foreign variables are not settings.
    let others = try await settings(environment: [
      "TIDEMARK_LITSEN": "", "LITSEN": "a:1", "TIDEMARK_JWT_SECRET_FILE": "f",
    ])
    #expect(try others.string("jwt-secret-file") == "f")
  }

  @Test(arguments: [
    ("liten: a:1\n", "unknown key \"liten\""),
    (#"{"listen": "a:1", "stor": "b:1"}"#, "unknown key \"stor\""),
    ("listen: a:1\nlisten: b:1\n", "\"listen\" is set twice"),
    ("just text\n", "the file is not `key: value` lines or a JSON object"),
    ("{\"listen\": ", "not readable as YAML or JSON"),
    ("listen: [a\n", "not readable as YAML or JSON"),
    ("'liten': 1\n", "unknown key \"liten\""),
  ]) func invalidFilesAreNamed(_ file: String, _ part: String) async throws {
    let found = await problem { _ = try await settings(file: file) }
    #expect(found.hasPrefix("--config ") && found.contains(part), "\(found)")
    #expect(!found.contains("\n"))
  }

  /// The last setting of a file can be commented out.
  @Test(arguments: ["", "# listen: a:1\n", "---\n", "{}\n"])
  func filesWithoutSettingsAreAccepted(_ file: String) async throws {
    #expect(try await settings(file: file).string("listen") == nil)
  }

  @Test func missingFilesAreNamed() async throws {
    let found = await problem { _ = try await settings(flags: ["config": "/nonexistent/c.yaml"]) }
    #expect(found == "--config /nonexistent/c.yaml: the file cannot be read (No such file or directory)")
  }

  @Test func listForASingleValueIsRefused() async throws {
    let all = try await settings(file: "listen: [a:1, b:1]\n")
    #expect(await problem { _ = try all.endpoint("listen") } == "--listen takes one value, not a list")
    let nested = try await settings(file: "store:\n  host: a\n")
    #expect(try nested.list("store").isEmpty)
  }

  @Test func missingValueErrorNamesTheSetting() async throws {
    let all = try await settings()
    let found = await problem { _ = try all.requiredString("store", for: "give the store's HOST:PORT") }
    #expect(found == "--store is missing: give the store's HOST:PORT")
  }

  @Test func commentsAndDocumentMarksAreIgnored() throws {
    let keys = try ConfigFile.keys(ofYAML: "---\n# a: b\nlisten: a:1 # c\n\n  # deep\n\"store\" : x\r\nloops:\n  - 1\n")
    #expect(keys == ["listen", "store", "loops"])
  }
}

func withTemporaryDirectory<Result>(_ body: (String) async throws -> Result) async throws -> Result {
  let directory = FileManager.default.temporaryDirectory.path + "/tidemark-\(UInt64.random(in: 0...UInt64.max))"
  try FileManager.default.createDirectory(atPath: directory, withIntermediateDirectories: true)
  defer { try? FileManager.default.removeItem(atPath: directory) }
  return try await body(directory)
}

@Suite struct SecretFileTests {
  private func parse(_ text: String, byteCountMin: Int = 1) throws -> Secrets {
    try SecretFile.parse(Array(text.utf8), path: "p", key: "secret-file", byteCountMin: byteCountMin)
  }

  @Test(arguments: [
    ("one", "one", nil), ("one\n", "one", nil), ("one\r\ntwo\r\n", "one", "two"), ("one\ntwo", "one", "two"),
    ("one\n\n", "one", nil), (" spaced \n", " spaced ", nil),
  ]) func secretsAreReadFromLines(_ text: String, _ current: String, _ previous: String?) throws {
    let secrets = try parse(text)
    #expect(secrets == Secrets(current: Array(current.utf8), previous: previous.map { Array($0.utf8) }))
  }

  @Test(arguments: [
    ("", "the first line is empty"), ("\n", "the first line is empty"),
    ("\ntwo\n", "the first line is empty"),
    ("a\nb\nc\n", "more than two lines"),
  ]) func invalidSecretFileIsRefused(_ text: String, _ part: String) {
    let error = #expect(throws: SettingsError.self) { try parse(text) }
    #expect(error?.description.hasPrefix("--secret-file p: ") == true)
    #expect(error?.description.contains(part) == true)
  }

  @Test func shortSecretsAreRefusedOnEitherLine() {
    let long = String(repeating: "x", count: 32)
    #expect(throws: Never.self) { try parse(long, byteCountMin: 32) }
    #expect(throws: SettingsError.self) { try parse(String(long.dropLast()), byteCountMin: 32) }
    #expect(throws: SettingsError.self) { try parse("\(long)\nshort", byteCountMin: 32) }
  }

  @Test func worldReadableFileIsWarnedAbout() async throws {
    try await withTemporaryDirectory { directory in
      let path = directory + "/secret"
      try "s3cret\n".write(toFile: path, atomically: true, encoding: .utf8)
      for (mode, warningCount) in [(0o600, 0), (0o640, 0), (0o644, 1)] {
        try FileManager.default.setAttributes([.posixPermissions: mode], ofItemAtPath: path)
        var warnings: [String] = []
        let secrets = try SecretFile.load(path, key: "secret-file") { warnings.append($0) }
        #expect(secrets.current == Array("s3cret".utf8))
        #expect(warnings.count == warningCount)
      }
    }
    let reason = "/nonexistent: the file cannot be read (No such file or directory)"
    #expect(throws: SettingsError("secret-file", reason)) {
      try SecretFile.load("/nonexistent", key: "secret-file") { _ in }
    }
  }
}

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
