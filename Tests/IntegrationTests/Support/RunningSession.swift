import Foundation
import LocalStack
import TestPrograms
import TestSupport
import Testing

/// `tidemark run` in a directory of its own, until `body` of ``with(_:_:)`` ends.
struct RunningSession {
  let directory: String

  /// Start a session, run `body`, and stop the session, also if it fails.
  ///
  /// - Parameter flags: further flags of `tidemark run`.
  static func with(_ flags: [String] = [], _ body: (RunningSession) async throws -> Void) async throws {
    let directory = NSTemporaryDirectory() + "tidemark-test-\(UUID().uuidString)"
    try FileManager.default.createDirectory(atPath: directory, withIntermediateDirectories: true)
    defer { try? FileManager.default.removeItem(atPath: directory) }
    let process = try ChildProcess(
      name: "run",
      executable: TestServices.binaries + "/tidemark",
      arguments: ["run", "--free-ports", "--directory", directory + "/run"] + flags,
      logFile: directory + "/run.log"
    )
    let session = RunningSession(directory: directory)
    do {
      try await eventually("the session is up") {
        guard process.isRunning else { throw Unexpected("the session ended: \(try session.log())") }
        return try session.log().contains("Ctrl-C stops it")
      }
      try await body(session)
    } catch {
      print(try session.log())
      await process.stop(grace: .seconds(30))
      throw error
    }
    #expect(await process.stop(grace: .seconds(30)) == .exited(code: 0))
  }

  /// What the session has printed.
  func log() throws -> String { try String(contentsOfFile: directory + "/run.log", encoding: .utf8) }

  func file(_ name: String) -> String { "\(directory)/run/\(name)" }

  /// The text of a file of the session.
  func text(_ name: String) throws -> String { try String(contentsOfFile: file(name), encoding: .utf8) }
}

/// For scripts that play in Chromium.
extension RunningSession {
  private static let chromium = "/usr/lib/chromium/chromium-headless-shell"

  /// Address of the demo page, with its code.
  var page: String {
    get throws { String(try #require(try log().firstMatch(of: /demo page +(https:\S+)/)?.1)) }
  }

  /// Address of the gateway.
  var gateway: String {
    get throws { String(try page.prefix { $0 != "#" }.dropLast("/demo".count)) }
  }

  /// Play a script to its end: with Chromium, an address, the certificate, and further arguments.
  func play(_ script: String, at address: String, _ arguments: [String] = []) async throws {
    let home = directory + "/home"
    try FileManager.default.createDirectory(atPath: home, withIntermediateDirectories: true)
    let output = try await Command.run(
      PythonTools.directory + "/python",
      [TestServices.client(script), Self.chromium, address, file("tls-cert.pem"), home] + arguments
    )
    #expect(output.status == 0 && output.out.hasPrefix("ok: "), "\(output)")
  }
}
