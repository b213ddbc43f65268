import Foundation
import LocalStack
import Synchronization
import TestPrograms
import TestSupport
import Testing

/// `tidemark run` in a directory of its own, until `body` of ``with(_:_:)`` ends.
final class RunningSession: Sendable {
  let directory: String
  private let flags: [String]
  private let process: Mutex<ChildProcess>

  private init(directory: String, flags: [String]) throws {
    self.directory = directory
    self.flags = flags
    process = Mutex(try Self.start(directory, flags))
  }

  private static func start(_ directory: String, _ flags: [String]) throws -> ChildProcess {
    try ChildProcess(
      name: "run",
      executable: TestServices.binaries + "/tidemark",
      arguments: ["run", "--free-ports", "--directory", directory + "/run"] + flags,
      logFile: directory + "/run.log"
    )
  }

  /// Start a session, run `body`, and stop the session, also if it fails.
  ///
  /// - Parameter flags: further flags of `tidemark run`.
  static func with(_ flags: [String] = [], _ body: (RunningSession) async throws -> Void) async throws {
    let directory = NSTemporaryDirectory() + "tidemark-test-\(UUID().uuidString)"
    try FileManager.default.createDirectory(atPath: directory, withIntermediateDirectories: true)
    defer { try? FileManager.default.removeItem(atPath: directory) }
    let session = try RunningSession(directory: directory, flags: flags)
    do {
      try await session.waitUntilUp()
      try await body(session)
    } catch {
      print(try session.log())
      await session.stop()
      throw error
    }
    #expect(await session.stop(), "the session was stopped and failed")
  }

  /// Stop the session, and start it again in the same directory.
  func restart() async throws {
    #expect(await stop(), "the session was stopped and failed")
    let next = try Self.start(directory, flags)
    process.withLock { $0 = next }
    try await waitUntilUp()
  }

  private func waitUntilUp() async throws {
    try await eventually("the session is up") {
      guard process.withLock({ $0.isRunning }) else { throw Unexpected("the session ended: \(try log())") }
      return try log().contains("Ctrl-C stops it")
    }
  }

  @discardableResult
  private func stop() async -> Bool { await process.withLock { $0 }.stop(grace: .seconds(30)) == .exited(code: 0) }

  /// What the session has printed since its last start.
  func log() throws -> String {
    let log = try Data(contentsOf: URL(fileURLWithPath: directory + "/run.log"))
    return String(decoding: log.dropFirst(process.withLock { $0.logOffset }), as: UTF8.self)
  }

  /// Address of the gateway without TLS.
  var h2c: String {
    get throws { String(try #require(try log().firstMatch(of: /h2c +(http:\S+)/)?.1)) }
  }

  func file(_ name: String) -> String { "\(directory)/run/\(name)" }

  /// The text of a file of the session.
  func text(_ name: String) throws -> String { try String(contentsOfFile: file(name), encoding: .utf8) }
}

/// For scripts that play in Chromium.
extension RunningSession {
  static let chromium = "/usr/lib/chromium/chromium-headless-shell"

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
