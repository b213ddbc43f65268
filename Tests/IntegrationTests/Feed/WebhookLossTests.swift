import Foundation
import Glibc
import LocalStack
import Operations
import TestPrograms
import TestSupport
import Testing

extension RealProcesses {
  /// Three workers deliver the feed to an endpoint that fails in several ways, while workers are killed, and stopped
  /// and continued: every change arrives, in the order of its channel, with one body for each webhook-id. The endpoint
  /// and the backend (`Clients/Feed/webhook_account.py`) share no code with the project. `TIDEMARK_SEED` repeats their
  /// random choices; `TIDEMARK_LOSS_SECONDS` sets the duration.
  @Suite struct WebhookLosses {
    private static let workers = 3

    @Test func everyChangeIsDeliveredInOrder() async throws {
      let seconds = TestRun.number("TIDEMARK_LOSS_SECONDS") ?? TestRun.count(10, long: 300)
      let seed = TestRun.printedSeed(of: "losses of webhooks")
      try await TestServices.with(storeFlags: ["--feed-retention", "24h,64MiB"]) { services in
        let port = try LoopbackPorts.free(1)[0].port
        let secret = Data((0..<32).map { UInt8($0) }).base64EncodedString()
        let tasks = services.directory + "/tasks.yaml"
        try """
        webhooks:
          - name: crm
            url: http://127.0.0.1:\(port)/hook
            secrets: [whsec_\(secret)]
            from: earliest
            partitions: 4
            batch: {records: 20, wait: 50ms}
            timeout: 2s
            allow_http: true
            allow_private: true
        """.write(toFile: tasks, atomically: true, encoding: .utf8)
        let specification: [String: Any] = [
          "gateway": services.h2cPort, "server": services.serverToken, "seed": seed, "seconds": seconds,
          "port": port, "secret": secret, "workers": Self.workers,
        ]
        let path = services.directory + "/webhooks.json"
        try JSONSerialization.data(withJSONObject: specification).write(to: URL(fileURLWithPath: path))
        let driver = try Companion(
          TestServices.python,
          [TestServices.client("Feed/webhook_account.py"), path],
          limit: .seconds(seconds + 400)
        )
        defer { driver.end() }
        var workers = [ChildProcess?](repeating: nil, count: Self.workers)
        var last = ""
        do {
          for await line in driver.lines {
            last = line
            let words = line.split(separator: " ").map(String.init)
            guard words.count == 3, words[0] == "worker", let number = Int(words[2]) else {
              print(line)
              continue
            }
            try await Self.perform(words[1], number, &workers, tasks, services)
            driver.send("done")
          }
        } catch {
          for worker in workers { worker?.kill() }
          throw error
        }
        for worker in workers {
          worker?.signal(SIGCONT)
          await worker?.stop()
        }
        let log = (try? String(contentsOfFile: services.directory + "/worker-0.log", encoding: .utf8)) ?? ""
        #expect(last.hasPrefix("ok "), "seed \(seed): \(last) \(driver.errors) \(log.suffix(1_000))")
        #expect(Int(last.dropFirst(3)) ?? 0 > 5 * seconds, "\(last): too few changes")
      }
    }

    /// An outage of ten minutes: other webhooks get each change meanwhile, and nothing is lost.
    /// `TIDEMARK_OUTAGE_SECONDS` sets the duration.
    @Test(.enabled(if: TestRun.isLong || TestRun.number("TIDEMARK_OUTAGE_SECONDS") != nil))
    func outageHoldsUpNobodyElse() async throws {
      let seconds = TestRun.number("TIDEMARK_OUTAGE_SECONDS") ?? 600
      try await TestServices.with(storeFlags: ["--feed-retention", "24h,64MiB"]) { services in
        let names = ["healthy", "down", "gone", "garbage", "hanging"]
        let ports = try LoopbackPorts.free(names.count + 1).map(\.port)
        let tasks = services.directory + "/tasks.yaml"
        let secret = Data((0..<32).map { UInt8($0) }).base64EncodedString()
        let webhooks = zip(names, ports).map { name, port in
          "  - {name: \(name), url: 'http://127.0.0.1:\(port)/', secrets: [whsec_\(secret)], from: earliest, "
            + "types: [message.registered], timeout: 2s, retry_for: 2h, partitions: 1, allow_http: true, "
            + "allow_private: true, batch: {records: 100, wait: 50ms}}\n"
        }
        try ("webhooks:\n" + webhooks.joined()).write(toFile: tasks, atomically: true, encoding: .utf8)
        let worker = try ChildProcess(
          name: "worker",
          executable: TestServices.binaries + "/tidemark-worker",
          arguments: [
            "--gateway", services.h2cURL, "--jwt-secret-file", services.stack.files.jwtSecret, "--config", tasks,
          ],
          logFile: services.directory + "/worker.log"
        )
        let specification: [String: Any] = [
          "gateway": services.h2cPort, "server": services.serverToken, "seconds": seconds, "pid": worker.processID,
          "ports": Dictionary(uniqueKeysWithValues: zip(names, ports)),
        ]
        let path = services.directory + "/outage.json"
        try JSONSerialization.data(withJSONObject: specification).write(to: URL(fileURLWithPath: path))
        let output = try await Command.run(
          TestServices.python,
          [TestServices.client("Feed/webhook_outage.py"), path],
          limit: .seconds(seconds + 500)
        )
        await worker.stop()
        #expect(output.status == 0 && output.out.hasPrefix("ok "), "\(output)")
        print("outage of webhooks: \(output.out)")
      }
    }

    private static func perform(
      _ what: String,
      _ number: Int,
      _ workers: inout [ChildProcess?],
      _ tasks: String,
      _ services: TestServices
    ) async throws {
      switch what {
      case "start":
        workers[number] = try ChildProcess(
          name: "worker-\(number)",
          executable: TestServices.binaries + "/tidemark-worker",
          arguments: [
            "--gateway", services.h2cURL, "--jwt-secret-file", services.stack.files.jwtSecret, "--config", tasks,
            "--name", "w\(number)",
          ],
          logFile: services.directory + "/worker-\(number).log"
        )
      case "kill":
        workers[number]?.kill()
        _ = await workers[number]?.waitForExit()
      case "stop": workers[number]?.signal(SIGSTOP)
      case "continue": workers[number]?.signal(SIGCONT)
      default: throw Unexpected(what)
      }
    }
  }
}
