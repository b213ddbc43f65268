import Foundation
import Glibc
import LocalStack
import Operations
import TestPrograms
import TestSupport
import Testing

extension RealProcesses {
  /// `tidemark-worker push` with the real store and gateways, and the sandbox's providers.
  @Suite struct PushWorkers {
    private static let program = TestServices.binaries + "/tidemark-worker"

    /// Run a sandbox whose devices post tickets to the gateway with TLS.
    private static func withSandbox(
      _ services: TestServices,
      _ body: (_ url: String, _ directory: String) async throws -> Void
    ) async throws {
      let directory = services.directory + "/sandbox"
      let port = try LoopbackPorts.free(1)[0].port
      let sandbox = try ChildProcess(
        name: "sandbox",
        executable: program,
        arguments: [
          "sandbox", "--listen", "127.0.0.1:\(port)", "--directory", directory, "--gateway", services.tlsURL,
          "--gateway-ca", services.certificate,
        ],
        logFile: services.directory + "/sandbox.log"
      )
      let result: Result<Void, any Error>
      do {
        try await eventually("the sandbox listens") {
          let log = try? String(contentsOfFile: services.directory + "/sandbox.log", encoding: .utf8)
          return log?.contains("tidemark-worker sandbox on https://localhost:\(port)") == true
        }
        result = .success(try await body("https://localhost:\(port)", directory))
      } catch {
        result = .failure(error)
      }
      await sandbox.stop()
      try result.get()
    }

    private static func flags(_ services: TestServices, _ tasks: String) -> [String] {
      ["push", "--gateway", services.h2cURL, "--jwt-secret-file", services.stack.files.jwtSecret, "--config", tasks]
    }

    private static func addDevice(_ url: String, _ directory: String, _ body: String) async throws -> [String: Any] {
      let arguments = ["-sS", "--cacert", directory + "/ca.pem", "--data-binary", body, url + "/sandbox/devices"]
      let output = try await Command.run("curl", arguments)
      guard let answer = try JSONSerialization.jsonObject(with: Data(output.out.utf8)) as? [String: Any] else {
        throw Unexpected("\(output)")
      }
      return answer
    }

    private static func lines(_ text: String) throws -> [[String: Any]] {
      try text.split(separator: "\n").map { line in
        guard let object = try JSONSerialization.jsonObject(with: Data(line.utf8)) as? [String: Any] else {
          throw Unexpected(String(line))
        }
        return object
      }
    }

    /// With `report: accepted` the worker marks the message delivered, although no device posts a ticket.
    @Test func acceptedPushesAreReported() async throws {
      try await TestServices.with(storeFlags: ["--feed-retention", "24h,64MiB"]) { services in
        try await Self.withSandbox(services) { url, directory in
          try await services.makeChannel("messaging:push", message: "m1")
          let device = try await Self.addDevice(url, directory, #"{"kind":"apns","posts_tickets":false}"#)
          let token = try #require(device["token"] as? String)
          let tasks = directory + "/accepted.yaml"
          try String(contentsOfFile: directory + "/tasks.yaml", encoding: .utf8)
            .replacing("push:\n", with: "push:\n  report: accepted\n")
            .write(toFile: tasks, atomically: true, encoding: .utf8)
          let devices = #"[{"provider":"ios","token":"\#(token)"},{"provider":"none","token":"x"}]"#
          let job = """
            {"id":"j","cid":"messaging:push","message_id":"m1","title":"alice","body":"hello","users":[\
            {"user_id":"bob","devices":\(devices)},{"user_id":"alice","devices":\(devices)},\
            {"user_id":"mallory","devices":\(devices)}]}
            """
          let input = job + "\nno job\n" + job.replacing("m1", with: "unknown")
          let output = try await Command.run(
            Self.program,
            Self.flags(services, tasks),
            input: input,
            limit: .seconds(100)
          )
          #expect(output.status == 0, "\(output)")
          let answers = try Self.lines(output.out)
          func results(_ line: Int, _ user: String) -> Set<String> {
            Set(
              answers.filter { $0["line"] as? Int == line && $0["user_id"] as? String == user }
                .map { "\($0["provider"] ?? "") \($0["result"] ?? "") \($0["code"] ?? "")" }
            )
          }
          #expect(results(1, "bob") == ["ios accepted ", "none rejected unknown_provider"])
          #expect(results(1, "alice") == ["ios skipped read", "none skipped read"])
          #expect(results(1, "mallory") == ["ios skipped member_not_found", "none skipped member_not_found"])
          #expect(results(3, "bob") == ["ios skipped message_not_found", "none skipped message_not_found"])
          let ends = answers.filter { $0["done"] != nil }
          #expect(Set(ends.compactMap { $0["line"] as? Int }) == [1, 2, 3] && ends.count == 3)
          #expect(ends.contains { $0["line"] as? Int == 2 && $0["code"] as? String == "invalid_json" })
          let path = "/v1/channels/messaging:push/messages/m1/status"
          #expect(
            try await services.expect(200, "GET", path, token: services.serverToken)["status"] as? String == "delivered"
          )
          // Bob has the message now: the same job sends nothing.
          let again = try await Command.run(Self.program, Self.flags(services, tasks), input: job, limit: .seconds(100))
          #expect(again.out.contains(#""code":"delivered""#) && !again.out.contains("accepted"), "\(again)")
        }
      }
    }

    /// Random jobs, with providers that fail in every way and a worker that is killed. The account
    /// (`Clients/Push/push_jobs.py`) shares no code with the project. `TIDEMARK_SEED` repeats its choices.
    ///
    /// - Parameter usesQueue: whether the jobs go through the gateway's queue, and two workers share them.
    @Test(arguments: [false, true])
    func everybodyWhoLacksAMessageIsSentIt(usesQueue: Bool) async throws {
      let seconds = TestRun.number("TIDEMARK_LOSS_SECONDS") ?? TestRun.count(10, long: 300)
      let seed = TestRun.printedSeed(of: "push jobs")
      try await TestServices.with(storeFlags: ["--feed-retention", "24h,64MiB"]) { services in
        try await Self.withSandbox(services) { url, directory in
          // Few requests at once: debug builds of both sides answer them within the short timeout.
          let tasks = directory + "/random.yaml"
          try String(contentsOfFile: directory + "/tasks.yaml", encoding: .utf8)
            .replacing("push:\n", with: "push:\n  retry_for: 10s\n  requests: 10\n")
            .replacing("allow_private: true", with: "allow_private: true, timeout: 1s, pause: 1s")
            .write(toFile: tasks, atomically: true, encoding: .utf8)
          let specification: [String: Any] = [
            "gateway": services.h2cURL, "server": services.serverToken, "seed": seed, "seconds": seconds,
            "sandbox": url, "sandbox_ca": directory + "/ca.pem", "queue": usesQueue,
            "worker": [Self.program] + Self.flags(services, tasks) + ["--log-level", "critical"],
          ]
          let path = services.directory + "/jobs.json"
          try JSONSerialization.data(withJSONObject: specification).write(to: URL(fileURLWithPath: path))
          let output = try await Command.run(
            TestServices.python,
            [TestServices.client("Push/push_jobs.py"), path],
            limit: .seconds(seconds + 400)
          )
          let last = output.out.split(separator: "\n").last.map(String.init) ?? ""
          #expect(output.status == 0 && last.hasPrefix("ok "), "\(last) \(output.error.suffix(2_000))")
          print("push jobs: \(last)")
        }
      }
    }
  }
}
