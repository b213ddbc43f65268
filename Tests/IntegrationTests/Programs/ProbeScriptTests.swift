import Foundation
import LocalStack
import Operations
import TestPrograms
import TestSupport
import Testing

extension RealProcesses {
  /// Every script of Proto/scripts against the real services, run by the real `tidemark probe run`.
  @Suite struct ProbeScripts {
    /// Scripts for a store without a secret.
    private static let secretless = ["handshake.probe"]
    /// A script that expects the store to end.
    private static let draining = "draining.probe"

    @Test func storeScriptsPass() async throws {
      let names = try Self.scripts("").filter { !Self.secretless.contains($0) && $0 != Self.draining }
      #expect(names.count >= 6)
      try await TestServices.with(storeFlags: ["--feed-retention", "1h"]) { services in
        for name in names {
          let arguments = ["--secret-file", services.stack.files.frameSecret]
          try await Self.play(name, port: services.stack.plan.store.port, arguments)
        }
      }
    }

    @Test func storeScriptsWithoutSecretPass() async throws {
      let directory = NSTemporaryDirectory() + "tidemark-test-\(UUID().uuidString)"
      try FileManager.default.createDirectory(atPath: directory, withIntermediateDirectories: true)
      defer { try? FileManager.default.removeItem(atPath: directory) }
      let ports = try LoopbackPorts.free(2)
      let store = try ChildProcess(
        name: "tidemark-store",
        executable: TestServices.binaries + "/tidemark-store",
        arguments: ["--data", directory + "/data", "--listen", "\(ports[0])", "--admin", "\(ports[1])"],
        logFile: directory + "/store.log"
      )
      do {
        let check = ["--health-check", "http://\(ports[1])/ready"]
        try await eventually("the store is ready") {
          try #require(store.isRunning, "the store does not start")
          return try await Command.run(TestServices.binaries + "/tidemark-store", check).status == 0
        }
        for name in Self.secretless { try await Self.play(name, port: ports[0].port) }

        // The probe is connected once its ping is answered; then the store is stopped.
        let probe = try Companion(
          TestServices.binaries + "/tidemark",
          ["probe", "run", "127.0.0.1:\(ports[0].port)", Self.folder + Self.draining]
        )
        var lines: [String] = []
        while let line = await probe.line() {
          lines.append(line)
          if line.hasPrefix("← pong") { store.signal(SIGTERM) }
        }
        #expect(lines.last == "← drain", "\(lines)")
        let status = try await within("the end of the probe") { await probe.waitForExit() }
        #expect(status == .exited(code: 0), "\(lines)")
      } catch {
        await store.stop()
        throw error
      }
      await store.stop()
    }

    @Test func gatewayScriptsPass() async throws {
      let names = try Self.scripts("http2/")
      try await TestServices.with { services in
        let tokens = [
          "SERVER": services.serverToken, "ALICE": try await services.token("alice"),
          "BOB": try await services.token("bob"),
        ]
        var count = 0
        for name in names {
          count += try await Self.play("http2/" + name, port: services.h2cPort, environment: tokens)
        }
        // The pair must pass at least this many cases, whatever happens to the folder.
        #expect(count >= 150, "\(count) cases were played")
        for name in names {
          let port = services.stack.plan.gateways[0].listen.port
          try await Self.play(
            "http2/" + name,
            port: port,
            ["--ca", services.certificate],
            environment: tokens
          )
        }
      }
    }

    /// The control: a failed expectation is reported, and the exit code shows it.
    @Test func failedExpectationsAreReported() async throws {
      try await TestServices.with { services in
        let rows: [(script: String, says: [String])] = [
          (
            "case wrong status\nopen\nsend request stream=1\nexpect headers stream=1 :status=200",
            [
              "line 5: expect headers stream=1 :status=200 (case wrong status)",
              "    :status: expected 200, received 404", "0 of 1 cases held",
            ]
          ),
          (
            "open\nsend ping payload=00\nexpect goaway code=NO_ERROR",
            ["    code: expected NO_ERROR, received FRAME_SIZE_ERROR"]
          ),
          ("open\nsend window_update increment=0\nalive", ["    expected ping, received goaway"]),
          (
            "open\nexpect headers stream=1 within 50ms",
            ["    expected headers stream=1, nothing came in time"]
          ),
          (
            "open\nexpect close within 50ms", ["    expected the end of the connection, nothing came in time"]
          ),
          (
            "open\nsend request authorization=$NO_SUCH_VARIABLE",
            ["probe: line 3: $NO_SUCH_VARIABLE has no value"]
          ),
        ]
        for (script, says) in rows {
          let path = services.directory + "/wrong.probe"
          try "protocol http2\n\(script)\n".write(toFile: path, atomically: true, encoding: .utf8)
          let output = try await Self.run(path, port: services.h2cPort)
          #expect(output.status == 1, "\(script): \(output)")
          for line in says { #expect((output.out + output.error).contains(line), "\(script): \(output)") }
        }
        // The probe rejects an untrusted TLS certificate unless told to accept it; a plain port does not speak TLS.
        let preface = Self.folder + "http2/preface.probe"
        let tls = services.stack.plan.gateways[0].listen.port
        let untrusted = try await Self.run(preface, port: tls, ["--tls"])
        #expect(untrusted.status == 1 && untrusted.error.contains("no connection to"), "\(untrusted)")
        #expect(try await Self.run(preface, port: tls, ["--insecure"]).status == 0)
        #expect(try await Self.run(preface, port: services.h2cPort, ["--insecure"]).status == 1)
        // A command line mistake has another exit code.
        #expect(
          try await Self.run(preface, port: tls, ["--insecure", "--ca", services.certificate]).status == 64
        )
      }
    }

    @Test func framesFromCommandLineAreSent() async throws {
      try await TestServices.with { services in
        let token = try await services.token("bob")
        let output = try await Command.run(
          TestServices.binaries + "/tidemark",
          [
            "probe", "send", "127.0.0.1:\(services.h2cPort)", "--http2", "--set", "TOKEN=\(token)",
            "request :path=/v1/channels/messaging:none/read-state authorization=\"Bearer $TOKEN\"",
          ]
        )
        #expect(output.status == 0, "\(output)")
        #expect(output.out.contains("← headers stream=1 :status=404"), "\(output)")
        // The transcript hides the secrets that would give a reader bob's rights.
        #expect(
          !output.out.contains(token) && output.out.contains("authorization=\"Bearer ...\""),
          "\(output)"
        )
        let broken = try await Command.run(
          TestServices.binaries + "/tidemark",
          ["probe", "send", "127.0.0.1:\(services.h2cPort)", "--http2", "rst_stream stream=1 code=CANCEL"]
        )
        #expect(broken.status == 1 && broken.out.contains("code=PROTOCOL_ERROR"), "\(broken)")
      }
    }

    // MARK: -

    private static let folder = TestServices.packageRoot + "/Proto/scripts/"

    private static func scripts(_ under: String) throws -> [String] {
      let names = try FileManager.default.contentsOfDirectory(atPath: folder + under)
      return names.filter { $0.hasSuffix(".probe") }.sorted()
    }

    private static func run(
      _ path: String,
      port: Int,
      _ arguments: [String] = [],
      environment: [String: String] = [:]
    ) async throws -> Command.Output {
      try await Command.run(
        TestServices.binaries + "/tidemark",
        ["probe", "run", "127.0.0.1:\(port)", path, "--timeout", "20s"] + arguments,
        environment: environment
      )
    }

    /// Run a script, which has to pass; return its number of cases.
    @discardableResult
    private static func play(
      _ name: String,
      port: Int,
      _ arguments: [String] = [],
      environment: [String: String] = [:]
    ) async throws -> Int {
      let output = try await run(folder + name, port: port, arguments, environment: environment)
      if output.status != 0 {
        // The end of a transcript lists the failures; the whole transcript may be long.
        Issue.record("\(name) \(arguments): \(output.error)\(failures(output.out))")
      }
      let last = output.out.split(separator: "\n").last { $0.hasSuffix(" cases held") } ?? ""
      return Int(last.split(separator: " ").first ?? "") ?? 0
    }

    /// The lines around each reported failure.
    private static func failures(_ transcript: String) -> String {
      let lines = transcript.split(separator: "\n", omittingEmptySubsequences: false)
      let marks = lines.indices.filter { lines[$0].hasPrefix("line ") }
      return marks.map { mark in
        "\n…\n" + lines[max(0, mark - 12)..<min(lines.count, mark + 8)].joined(separator: "\n")
      }.joined()
    }
  }
}
