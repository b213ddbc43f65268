import Foundation
import LocalStack
import Operations
import TestPrograms
import TestSupport
import Testing

extension RealProcesses {
  /// Clients build a picture from events alone; in the end it must equal the responses of the queries. Failures of
  /// clients, gateways and the store may lose no event. The clients (`Clients/Durability/loss.py`) and their pictures
  /// (`Clients/Durability/event_picture.py`) share no code with the project. `TIDEMARK_SEED` repeats their random
  /// choices. `TIDEMARK_LOSS_SECONDS` sets the shortest duration; `make loss-test` runs five minutes. A run lasts until
  /// it has reached its counts, and fails if it does not reach them within ``extraSeconds`` more.
  @Suite struct Losses {
    static let seconds = TestRun.number("TIDEMARK_LOSS_SECONDS") ?? TestRun.count(10, long: 300)

    /// A run ends only after it has reached these counts, so that it cannot pass on quiet streams.
    static func leastCounts(_ seconds: Int) -> [String: Int] {
      ["events": 5_000, "resumes": 100, "gateways ended": 2, "slow readers": 10].mapValues { $0 * seconds / 60 }
    }

    /// How much longer than ``seconds`` a run may take to reach ``leastCounts``.
    static let extraSeconds = 600

    @Test func eventsMatchQueries() async throws {
      try await Self.run("disturbed", seconds: Self.seconds) { tally in
        for (what, least) in Self.leastCounts(Self.seconds) {
          #expect(tally[what, default: 0] >= least, "\(what): \(tally)")
        }
      }
    }

    /// The same over a cluster whose owners are killed, sometimes with a gateway: other nodes take their shards over.
    @Test(.needs(EtcdProcesses.isInstalled, "needs Debian's etcd-server"))
    func eventsMatchQueriesWhileOwnersEnd() async throws {
      // At least one owner ends.
      try await Self.run("disturbed", seconds: max(10, Self.seconds / 2), nodes: 3) { tally in
        #expect(tally["stores ended", default: 0] >= 1, "\(tally)")
      }
    }

    /// The control: each client ignores one kind of event, and for each kind some client's picture is wrong.
    @Test func droppedEventsAreDetected() async throws {
      try await Self.run("control", seconds: 0) { _ in }
    }

    private static func run(
      _ way: String,
      seconds: Int,
      nodes: Int = 1,
      _ check: ([String: Int]) throws -> Void
    ) async throws {
      let seed = TestRun.printedSeed(of: "losses, \(way)")
      print("losses, \(way): TIDEMARK_LOSS_SECONDS=\(seconds)")
      var least = leastCounts(seconds)
      if nodes > 1 { least["stores ended"] = max(1, seconds / 30) }
      try await TestServices.with(nodes: nodes) { services in
        var tokens: [String: String] = [:]
        for number in 0..<70 { tokens["user-\(number)"] = try await services.token("user-\(number)") }
        let specification: [String: Any] = [
          "gateways": services.stack.plan.gateways.map(\.listen.port),
          "admins": services.stack.plan.gateways.map(\.admin.port), "seed": seed, "seconds": seconds,
          "way": way, "ends": nodes > 1 ? ["store", "both", "gateway"] : ["store", "gateway", "gateway"],
          "server": services.serverToken, "users": tokens, "certificates": [services.certificate, ""],
          "least_counts": least, "extra_seconds": Self.extraSeconds,
        ]
        let path = services.directory + "/loss.json"
        try JSONSerialization.data(withJSONObject: specification).write(to: URL(fileURLWithPath: path))
        let driver = try Companion(
          TestServices.python,
          [TestServices.client("Durability/loss.py"), path],
          limit: .seconds(seconds + Self.extraSeconds + 900)
        )
        defer { driver.end() }
        var last = ""
        var tally: [String: Int] = [:]
        var ended = 0
        for await line in driver.lines {
          last = line
          if try await performRequest(line, services.stack, endedNode: &ended) {
            driver.send("done")
          } else {
            print(line)
            if line.hasPrefix("tally ") {
              tally = try JSONDecoder().decode([String: Int].self, from: Data(line.dropFirst(6).utf8))
            }
          }
        }
        #expect(last.hasPrefix("ok "), "seed \(seed): \(last) \(driver.errors)")
        try check(tally)
        try await expectAllRun(services.stack)
      }
    }

    /// Perform a request of the driver; return false where the line is only output.
    ///
    /// - Parameter endedNode: the node of a cluster that was killed for the store.
    static func performRequest(
      _ line: String,
      _ stack: LocalStack,
      endedNode: inout Int
    ) async throws -> Bool {
      let words = line.split(separator: " ").map(String.init)
      switch (words.first, words.dropFirst().first) {
      case ("kill", "store"):
        try await expectAllRun(stack)
        guard let cluster = stack.plan.cluster else {
          await stack.killStore()
          break
        }
        var owned: [Double] = []
        for node in cluster.nodes {
          owned.append(try await Scrape.value("tidemark_store_owned_groups", of: node.admin))
        }
        endedNode = owned.indices.max { owned[$0] < owned[$1] } ?? 0
        await stack.killNode(endedNode)
      case ("start", "store"):
        if stack.plan.cluster == nil { try await stack.startStore() } else { try await stack.startNode(endedNode) }
      case ("kill", "gateway"):
        try await expectAllRun(stack)
        await stack.killGateway(Int(words[2])!)
      case ("stop", "gateway"):
        try await expectAllRun(stack)
        await stack.stopGateway(Int(words[2])!)
      case ("start", "gateway"): try await stack.startGateway(Int(words[2])!)
      default: return false
      }
      return true
    }

    /// Every process still runs that this test did not stop.
    private static func expectAllRun(_ stack: LocalStack) async throws {
      let store = await stack.storeProcess.map { [$0] } ?? []
      for process in store + (await stack.gatewayProcesses) where !process.isRunning {
        let log = (try? String(contentsOfFile: stack.files.log(of: process.name), encoding: .utf8)) ?? ""
        let status = try await within("the end of \(process.name)") { await process.waitForExit() }
        throw Unexpected("\(process.name) \(status): \(log.suffix(2_000))")
      }
    }
  }
}
