import Foundation
import Glibc
import LocalStack
import Operations

/// The real programs on free loopback ports, with fresh data in a directory of its own, for one test.
struct Pair: Sendable {
  let stack: LocalStack
  let directory: String
  let serverToken: String
  let mint: TokenMint

  /// Base URL of the first gateway: TLS, by ALPN.
  var tlsURL: String { "https://localhost:\(stack.plan.gateways[0].listen.port)" }
  /// Base URL of the second gateway: h2c, by prior knowledge.
  var h2cURL: String { "http://127.0.0.1:\(h2cPort)" }
  var h2cPort: Int { stack.plan.gateways[1].listen.port }
  var certificate: String { stack.files.certificate }

  func token(_ user: String) async throws -> String {
    try await mint.user(user, lifetime: .seconds(3600))
  }

  /// Starts a store, a TLS gateway and an h2c gateway, runs `body`, and ends them whatever comes.
  ///
  /// - Parameters:
  ///   - storeFlags: further flags of the store.
  ///   - gatewayFlags: further flags of both gateways.
  static func with(
    storeFlags: [String] = [],
    gatewayFlags: [String] = [],
    _ body: (Pair) async throws -> Void
  ) async throws {
    let directory = NSTemporaryDirectory() + "tidemark-test-\(UUID().uuidString)"
    try FileManager.default.createDirectory(atPath: directory, withIntermediateDirectories: true)
    defer { try? FileManager.default.removeItem(atPath: directory) }
    let ports = try LoopbackPorts.free(6)
    var plan = StackPlan(
      store: ports[0],
      storeAdmin: ports[1],
      gateways: [
        StackPlan.Gateway(name: "gateway-tls", listen: ports[2], admin: ports[3], usesTLS: true),
        StackPlan.Gateway(name: "gateway-h2c", listen: ports[4], admin: ports[5], usesTLS: false),
      ]
    )
    plan.storeFlags = storeFlags
    for index in plan.gateways.indices { plan.gateways[index].flags = gatewayFlags }
    let stack = LocalStack(
      plan: plan,
      files: StackFiles(directory: directory),
      executables: try Executables(directory: binaries)
    )
    do {
      try await stack.start()
      let mint = try await TokenMint(secretFile: stack.files.jwtSecret)
      let server = try await mint.server(lifetime: .seconds(3600))
      try await body(Pair(stack: stack, directory: directory, serverToken: server, mint: mint))
    } catch {
      await stack.stop()
      throw error
    }
    await stack.stop()
  }

  /// Where the programs were built: TIDEMARK_BIN, or the folder that this test's own package builds into.
  static var binaries: String {
    ProcessInfo.processInfo.environment["TIDEMARK_BIN"] ?? packageRoot + "/.build/debug"
  }

  static let packageRoot = URL(fileURLWithPath: #filePath).deletingLastPathComponent()
    .deletingLastPathComponent()
    .deletingLastPathComponent().path

  static func client(_ name: String) -> String { packageRoot + "/Tests/IntegrationTests/Clients/" + name }

  /// Debian's own interpreter: the foreign HTTP/2 libraries are installed for it.
  static let python = "/usr/bin/python3"

  // MARK: curl

  /// One request with curl over h2c; returns the status and the body.
  func curl(
    _ method: String,
    _ path: String,
    token: String? = nil,
    json: String? = nil,
    arguments: [String] = []
  ) async throws -> (status: Int, body: String) {
    var line = [
      "-sS", "--max-time", "20", "--http2-prior-knowledge", "-X", method, "-w", "\n%{http_code}",
      h2cURL + path,
    ]
    if let token { line += ["-H", "authorization: Bearer \(token)"] }
    if let json { line += ["-H", "content-type: application/json", "--data-binary", json] }
    let output = try await Command.run("curl", line + arguments)
    let lines = output.out.split(separator: "\n", omittingEmptySubsequences: false)
    return (Int(lines.last ?? "") ?? 0, lines.dropLast().joined(separator: "\n"))
  }

  /// The same, which has to answer `status`; returns the JSON object.
  @discardableResult
  func expect(
    _ status: Int,
    _ method: String,
    _ path: String,
    token: String? = nil,
    json: String? = nil,
    arguments: [String] = []
  ) async throws -> [String: Any] {
    let answer = try await curl(method, path, token: token, json: json, arguments: arguments)
    guard answer.status == status else {
      throw Unexpected("\(method) \(path): \(answer.status), not \(status): \(answer.body)")
    }
    return (try? JSONSerialization.jsonObject(with: Data(answer.body.utf8)) as? [String: Any]) ?? [:]
  }

  /// Makes a channel of alice and bob with a message of alice's.
  func makeChannel(_ cid: String, message: String) async throws {
    let path = "/v1/channels/\(cid)"
    try await expect(201, "PUT", path, token: serverToken, json: #"{"members":["alice","bob"]}"#)
    let json = #"{"id":"\#(message)","user_id":"alice"}"#
    try await expect(201, "POST", path + "/messages", token: serverToken, json: json)
  }
}

/// Something answered differently than it should have.
struct Unexpected: Error, CustomStringConvertible {
  let description: String
  init(_ description: String) { self.description = description }
}

/// A foreign program, run to its end.
enum Command {
  struct Output: Sendable {
    var status: Int32
    var out: String
    var error: String
  }

  /// - Parameter environment: added to this process's own.
  static func run(
    _ program: String,
    _ arguments: [String],
    directory: String? = nil,
    environment: [String: String] = [:]
  ) async throws -> Output {
    let process = Process()
    process.executableURL = URL(fileURLWithPath: program.hasPrefix("/") ? program : "/usr/bin/env")
    process.arguments = program.hasPrefix("/") ? arguments : [program] + arguments
    if let directory { process.currentDirectoryURL = URL(fileURLWithPath: directory) }
    // Our own settings are what a test says they are.
    process.environment = ProcessInfo.processInfo.environment.filter { !$0.key.hasPrefix("TIDEMARK_") }
      .merging(environment) { $1 }
    // Files rather than pipes: nothing has to be read while it runs, and nothing can fill up.
    let base = NSTemporaryDirectory() + "tidemark-command-\(UUID().uuidString)"
    defer { for end in [".out", ".err"] { try? FileManager.default.removeItem(atPath: base + end) } }
    for end in [".out", ".err"] { _ = FileManager.default.createFile(atPath: base + end, contents: nil) }
    process.standardOutput = FileHandle(forWritingAtPath: base + ".out")
    process.standardError = FileHandle(forWritingAtPath: base + ".err")
    process.standardInput = FileHandle.nullDevice
    try await withCheckedThrowingContinuation { (done: CheckedContinuation<Void, any Error>) in
      process.terminationHandler = { _ in done.resume() }
      do { try process.run() } catch { done.resume(throwing: error) }
    }
    return Output(
      status: process.terminationStatus,
      out: (try? String(contentsOfFile: base + ".out", encoding: .utf8)) ?? "",
      error: (try? String(contentsOfFile: base + ".err", encoding: .utf8)) ?? ""
    )
  }
}

/// A foreign program that runs beside the test and is talked to line by line, by one task at a time.
final class Companion: @unchecked Sendable {
  private let process = Process()
  private let input = Pipe()
  private let output = Pipe()
  private let watchdog: DispatchWorkItem
  private var buffered = Data()

  /// - Parameter limit: it is ended after so long, so that nobody waits for ever for a line of it.
  init(_ program: String, _ arguments: [String], limit: DispatchTimeInterval = .seconds(600)) throws {
    process.executableURL = URL(fileURLWithPath: program)
    process.arguments = arguments
    process.standardInput = input
    process.standardOutput = output
    let process = process
    watchdog = DispatchWorkItem { if process.isRunning { kill(process.processIdentifier, SIGKILL) } }
    try process.run()
    // On a thread of its own: those of Swift's pool may all be waiting for lines.
    DispatchQueue.global().asyncAfter(deadline: .now() + limit, execute: watchdog)
  }

  func send(_ line: String) { input.fileHandleForWriting.write(Data((line + "\n").utf8)) }

  /// The next line; nil when the program has ended.
  func line() -> String? {
    while true {
      if let end = buffered.firstIndex(of: UInt8(ascii: "\n")) {
        defer { buffered = Data(buffered[buffered.index(after: end)...]) }
        return String(decoding: buffered[..<end], as: UTF8.self)
      }
      let more = output.fileHandleForReading.availableData
      if more.isEmpty { return nil }
      buffered.append(more)
    }
  }

  /// The next line, waited for on a thread of its own: tests that compute go on meanwhile.
  func nextLine() async -> String? {
    await withCheckedContinuation { line in
      DispatchQueue.global().async { line.resume(returning: self.line()) }
    }
  }

  /// How it ended by itself, which it has to be about to do.
  func waitForExit() -> Int32 {
    process.waitUntilExit()
    watchdog.cancel()
    return process.terminationStatus
  }

  func end() {
    watchdog.cancel()
    if process.isRunning { kill(process.processIdentifier, SIGKILL) }
    process.waitUntilExit()
  }
}
