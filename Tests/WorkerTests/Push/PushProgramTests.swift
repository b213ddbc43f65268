import Foundation
import Glibc
import Operations
import TestPrograms
import TestSupport
import Testing

@testable import PushSandbox
@testable import Worker

/// The command `push` without a gateway: what it does with its input, its output and signals.
@Suite(.processLanes) struct PushProgramTests {
  private static let program =
    (ProcessInfo.processInfo.environment["TIDEMARK_BIN"] ?? packageRoot.path + "/.build/debug") + "/tidemark-worker"

  private static let job =
    #"{"id":"j","cid":"messaging:a","message_id":"m","users":[{"user_id":"bob","devices":["#
    + #"{"provider":"ios","token":"aa"},{"provider":"android","token":"bb"}]}]}"#

  /// Run a body with the arguments of a worker whose gateway does not answer.
  private static func with(retryFor: String, _ body: ([String]) async throws -> Void) async throws {
    let folder = NSTemporaryDirectory() + "tidemark-push-program-\(UUID().uuidString)"
    defer { try? FileManager.default.removeItem(atPath: folder) }
    let files = SandboxFiles(directory: folder)
    _ = try SandboxKeys.loadOrCreate(files)
    try files.writeTasks(port: 1, more: "  retry_for: \(retryFor)")
    let secret = folder + "/secret"
    try "0123456789abcdef0123456789abcdef\n".write(toFile: secret, atomically: true, encoding: .utf8)
    try await body([
      "push", "--config", files.tasks, "--gateway", "http://127.0.0.1:1", "--jwt-secret-file", secret,
      "--log-level", "critical",
    ])
  }

  @Test func jobsWithoutAnAnswerOfTheGatewayFail() async throws {
    try await Self.with(retryFor: "1s") { arguments in
      let input = "\n  \n\(Self.job)\n" + String(repeating: "x", count: PushJob.lineByteCountMax + 1) + "\n{}"
      let output = try await Command.run(Self.program, arguments, input: input, limit: .seconds(100))
      #expect(output.status == 0, "\(output)")
      let lines = output.out.split(separator: "\n").compactMap { JSONValue(parsing: $0.utf8) }
      let devices = lines.filter { $0["user_id"] != nil }
      #expect(devices.compactMap { $0["token"]?.string }.sorted() == ["aa", "bb"])
      for device in devices {
        #expect(device["line"] == .integer(3) && device["id"] == .string("j") && device["attempts"] == .integer(0))
        #expect(device["result"] == .string("failed") && device["code"] == .string("gateway_unavailable"))
      }
      let ends = lines.filter { $0["done"] == .boolean(true) }
      let codes = ends.reduce(into: [:]) { $0[$1["line"]?.integer] = $1["code"]?.string ?? "" }
      #expect(codes == [3: "", 4: "line_too_long", 5: "invalid_field"], "\(output.out)")
    }
  }

  @Test func interruptedWorkerAnswersItsJobs() async throws {
    try await Self.with(retryFor: "1h") { arguments in
      let folder = (arguments[2] as NSString).deletingLastPathComponent
      let command = ([Self.program] + arguments).map { "'\($0)'" }.joined(separator: " ")
      // The answer to the second line shows that the first was read.
      let script = """
        cd '\(folder)'
        mkfifo jobs
        \(command) <jobs >results &
        exec 3>jobs
        printf '%s\\nno job\\n' '\(Self.job)' >&3
        until grep -q invalid_json results; do sleep 0.05; done
        kill -TERM $!
        wait $!
        echo "exit $?"
        cat results
        """
      let output = try await Command.run("bash", ["-c", script], limit: .seconds(100))
      let lines = output.out.split(separator: "\n")
      #expect(lines.first == "exit 0" && lines.count == 5, "\(output)")
      #expect(lines.count { $0.contains(#""code":"stopped""#) && $0.contains(#""result":"failed""#) } == 2)
      #expect(lines.last?.contains(#""done":true"#) == true)
    }
  }

  @Test func settingsAreChecked() async throws {
    try await Self.with(retryFor: "1s") { arguments in
      let check = try await Command.run(Self.program, ["--check", "--config", arguments[2]], limit: .seconds(100))
      #expect(check.status == 0 && check.out == "\(arguments[2]): ok, push with 3 providers\n", "\(check)")
      let run = try await Command.run(Self.program, Array(arguments.dropFirst()), limit: .seconds(100))
      #expect(run.status == 78 && run.error.contains("has no webhooks"), "\(run)")
    }
  }

  /// The worker must not send pushes whose results nobody reads.
  @Test func closedOutputEndsTheWorker() async throws {
    try await Self.with(retryFor: "1s") { arguments in
      let command = ([Self.program] + arguments).map { "'\($0)'" }.joined(separator: " ")
      let script = "yes '{}' | head -100000 | { \(command); echo $? >&2; } | head -1"
      let output = try await Command.run("bash", ["-c", script], limit: .seconds(100))
      #expect(output.error.hasSuffix("1\n") && output.error.contains("the results cannot be written"), "\(output)")
    }
  }
}
