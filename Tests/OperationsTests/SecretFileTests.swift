import Foundation
import Testing

@testable import Operations

@Suite struct SecretFileTests {
  private func parse(_ text: String, byteCountMin: Int = 1) throws -> Secrets {
    try SecretFile.parse(Array(text.utf8), path: "p", key: "secret-file", byteCountMin: byteCountMin)
  }

  @Test(arguments: [
    ("one", "one", nil), ("one\n", "one", nil), ("one\r\ntwo\r\n", "one", "two"), ("one\ntwo", "one", "two"),
    ("one\n\n", "one", nil), (" spaced \n", " spaced ", nil),
  ])
  func secretsAreReadFromLines(_ text: String, _ current: String, _ previous: String?) throws {
    let secrets = try parse(text)
    #expect(secrets == Secrets(current: Array(current.utf8), previous: previous.map { Array($0.utf8) }))
  }

  @Test(arguments: [
    ("", "the first line is empty"), ("\n", "the first line is empty"),
    ("\ntwo\n", "the first line is empty"),
    ("a\nb\nc\n", "more than two lines"),
  ])
  func invalidSecretFileIsRefused(_ text: String, _ part: String) {
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
