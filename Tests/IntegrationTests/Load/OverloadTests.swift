import Foundation
import Glibc
import LocalStack
import Operations
import TestPrograms
import TestSupport
import Testing

extension RealProcesses {
  /// More load than the store can take, and a store that is down. Callers get errors in time, memory stays bounded,
  /// no acknowledged mark is lost, and the service recovers by itself.
  @Suite struct Overload {
    /// The maximum growth of a gateway's memory while 45,000 positions wait. It holds 64 MiB of requests that may be
    /// resent (`StoreClientLimits.retainedBytesMax`), streams, and the bodies of two connections: 4 MiB each, and twice
    /// that in their buffers.
    static let gatewayGrowthMax = 128 << 20
    /// The maximum growth of a store's memory: it takes at most a window of 32,768 requests from each connection.
    static let storeGrowthMax = 128 << 20

    /// Enough for more positions than the window of 32,768 holds.
    static let floods = 450

    struct Answers: Decodable {
      var answers: [String: Int]
      var bare: Int
      var longest: Double
      var unanswered: Int
    }

    struct Refusals: Decodable {
      var refusals: [String: Int]
      var longest: Double
    }

    private func answers(_ client: Companion) async throws -> Answers {
      try JSONDecoder().decode(Answers.self, from: Data((await client.line() ?? "the client ended").utf8))
    }

    /// Without load there are no pending store requests and no open streams.
    private func expectAtRest(_ services: TestServices) async throws {
      try await eventually("no request waits in the gateway") {
        let waiting = await services.gatewayMetric("tidemark_gateway_store_requests_in_flight")
        let streams = await services.gatewayMetric("tidemark_gateway_streams")
        return waiting == 0 && streams == 0
      }
    }

    /// Run `injectFault` between the start of the load and the flood, and `removeFault` after the responses under
    /// overload. `removeFault` gets the result of `injectFault`. Then check the callers' answers, memory and recovery.
    ///
    /// - Returns: the responses to the flood.
    @discardableResult
    private func overload(
      _ name: String,
      injectFault: (TestServices) async throws -> ChildProcess?,
      removeFault: (TestServices, ChildProcess?) async throws -> Void
    ) async throws -> Answers? {
      var flood: Answers?
      try await TestServices.with { services in
        let specification = try await services.prepareLoad(
          channels: (0..<5).map { "messaging:over-\($0)" },
          messages: 2_000,
          users: 4
        )
        let marks = try Companion(
          TestServices.python,
          [TestServices.client("Load/marks_under_load.py"), "\(services.h2cPort)", specification]
        )
        let loadClient = try Companion(
          TestServices.python,
          [TestServices.client("Load/overload.py"), "\(services.h2cPort)", specification]
        )
        defer { for client in [marks, loadClient] { client.end() } }
        marks.send("check")
        let before = try #require(await marks.line())
        try #require(before.hasPrefix("ok "), "\(before)")
        let gateway = MemoryWatch(try await services.gatewayProcess)
        let store = MemoryWatch(try await services.storeProcess)
        await gateway.start()
        await store.start()

        let tracer = try await injectFault(services)
        loadClient.send("flood \(Self.floods)")
        try #require(await loadClient.line() == "sent")
        loadClient.send("probe 20")
        let probed = try await answers(loadClient)
        #expect(probed.answers["503 store_busy", default: 0] > 0, "\(name): \(probed)")
        #expect(probed.bare == 0 && probed.unanswered == 0, "\(name): \(probed)")
        // Batches without room in the window wait for it.
        let delayed = await services.gatewayMetric("tidemark_gateway_batches_delayed_total") ?? 0
        #expect(delayed > 0, "\(name)")
        try await removeFault(services, tracer)

        loadClient.send("drain")
        let flooded = try await answers(loadClient)
        #expect(flooded.bare == 0 && flooded.unanswered == 0, "\(name): \(flooded)")
        #expect(
          flooded.answers["entry store_busy", default: 0] > 0,
          "\(name): the window was not full: \(flooded)"
        )
        try await services.stack.waitUntilGatewaysAreReady()
        // Marks are acknowledged again without intervention, and no acknowledged mark is lost.
        try await eventually("marks are acknowledged again") {
          loadClient.send("probe 5")
          return (try? await answers(loadClient))?.answers["200", default: 0] ?? 0 > 0
        }
        marks.send("check")
        let after = await marks.line() ?? "the client ended"
        #expect(after.hasPrefix("ok "), "\(name): \(after)")
        let count = { (line: String) in Int(line.dropFirst(3)) ?? -1 }
        #expect(count(after) > count(before), "\(name): \(before), then \(after)")
        marks.send("hold")
        _ = await marks.line()
        try await expectAtRest(services)
        let gatewayGrowth = await gateway.stop()
        let storeGrowth = await store.stop()
        #expect(gatewayGrowth < Self.gatewayGrowthMax, "\(name): the gateway grew by \(gatewayGrowth) bytes")
        #expect(storeGrowth < Self.storeGrowthMax, "\(name): the store grew by \(storeGrowth) bytes")
        print(
          "\(name): probes \(probed.answers), slowest \(probed.longest) s; flood \(flooded.answers);",
          "gateway +\(gatewayGrowth >> 20) MiB, store +\(storeGrowth >> 20) MiB"
        )
        flood = flooded
      }
      return flood
    }

    /// A suspended store answers nothing and closes nothing.
    @Test func suspendedStoreRecoversWithoutLoss() async throws {
      let flooded = try await overload("stopped store") { services in
        try await services.storeProcess.signal(SIGSTOP)
        return nil
      } removeFault: { services, _ in
        // More requests than those of the marks: the flood's have reached the deadline of 5 s too. Batches that waited
        // for room have got it or were refused.
        try await eventually("the flood's requests to the store have timed out") {
          let timeouts = await services.gatewayMetric("tidemark_gateway_store_timeouts_total") ?? 0
          let waiting = await services.gatewayMetric("tidemark_gateway_batches_waiting")
          return timeouts >= 1_000 && waiting == 0
        }
        try await services.storeProcess.signal(SIGCONT)
      }
      // Requests in the window failed at the deadline.
      #expect(flooded?.answers["entry outcome_unknown", default: 0] ?? 0 > 0)
    }

    /// Every sync takes seven seconds: strace delays the system call. A batch waits 5 s for room, so some are refused
    /// whatever the speed of the machine.
    @Test func slowDiskRecoversWithoutLoss() async throws {
      try await overload("slow disk") { services in
        let tracer = try ChildProcess(
          name: "strace",
          executable: "/usr/bin/strace",
          arguments: [
            "-f", "-e", "trace=fdatasync,fsync", "-e", "inject=fdatasync,fsync:delay_enter=7000000", "-o",
            services.directory + "/trace", "-p", "\(try await services.storeProcess.processID)",
          ],
          logFile: services.directory + "/strace.log"
        )
        try await eventually("strace has delayed a sync") {
          let trace = (try? String(contentsOfFile: services.directory + "/trace", encoding: .utf8)) ?? ""
          return trace.contains("sync(")
        }
        return tracer
      } removeFault: { _, tracer in
        await tracer?.stop()
      }
    }

    /// 64 concurrent batches of 1,000 messages on one connection are throttled by HTTP/2's windows and by the room
    /// for requests to the store. No stream is reset, and no message is refused for lack of room.
    @Test func parallelBatchesAreThrottledNotRefused() async throws {
      struct Outcome: Decodable {
        var answers: [String: Int]
        var entries: [String: Int]
        var resets: [String: Int]
        var goaways: Int
        var bytes: Int
        var unanswered: Int
      }
      try await TestServices.with { services in
        var wholeRounds = 0
        var round = 0
        while wholeRounds == 0, round < 5 {
          round += 1
          let channels = (0..<16).map { "messaging:batches-\(round)-\($0)" }
          for cid in channels {
            try await services.expect(
              201,
              "PUT",
              "/v1/channels/\(cid)",
              token: services.serverToken,
              json: #"{"members":["alice","bob"]}"#
            )
          }
          let start = ContinuousClock.now
          let output = try await Command.run(
            TestServices.python,
            [
              TestServices.client("Load/parallel_batches.py"), "\(services.h2cPort)", services.serverToken,
              "64", "1000",
            ]
              + channels
          )
          try #require(output.status == 0, "\(output)")
          let outcome = try JSONDecoder().decode(Outcome.self, from: Data(output.out.utf8))
          #expect(outcome.answers == ["200": 64] && outcome.unanswered == 0, "\(outcome)")
          #expect(outcome.entries.values.reduce(0, +) == 64_000, "\(outcome)")
          #expect(outcome.resets.isEmpty && outcome.goaways == 0, "\(outcome)")
          // The batches exceeded one connection's buffer, and possibly the store's window.
          #expect(outcome.bytes > 5 << 20)
          // On a busy machine some requests exceed their deadline of 5 s, sent or not, and those behind them find no
          // room: such a round does not show that no message is refused.
          if outcome.entries == ["ok": 64_000] {
            wholeRounds += 1
          } else {
            #expect(ContinuousClock.now - start > .seconds(5), "\(outcome)")
          }
          try await expectAtRest(services)
          print(
            "64 batches of 1,000 messages, \(outcome.bytes >> 10) KiB: \(outcome.answers), \(outcome.entries)"
          )
        }
        #expect(wholeRounds > 0, "requests exceeded their deadline in each of \(round) rounds")
      }
    }

    /// A gateway that lost its store more than 5 s ago reports that with the reason, until the store is back.
    @Test func gatewayWithoutStoreReportsNotReady() async throws {
      try await TestServices.with { services in
        var earlyRounds = 0
        var rounds = 0
        while earlyRounds == 0, rounds < 5 {
          rounds += 1
          #expect(await services.readiness()?.status == 200)
          let killed = ContinuousClock.now
          await services.stack.killStore()
          try await eventually("the gateway has lost its store") {
            await services.gatewayMetric("tidemark_gateway_store_connections_ready") == 0
          }
          let early = await services.readiness()?.status
          // On a busy machine the 5 s may be over by now: such a round does not show that the gateway stays ready.
          if ContinuousClock.now - killed < .seconds(4) {
            earlyRounds += 1
            #expect(early == 200)
          }
          try await eventually("the gateway is not ready") { await services.readiness()?.status == 503 }
          let body = await services.readiness()?.body ?? ""
          #expect(body.contains(#""reasons":["store: no connection"]"#), "\(body)")
          let token = try await services.token("bob")
          let response = try await services.curl(
            "POST",
            "/v1/channels/messaging:x/read",
            token: token,
            arguments: ["-i"]
          )
          #expect(response.status == 503, "\(response)")
          #expect(response.body.lowercased().contains("retry-after: 1"), "\(response)")
          try await services.stack.startStore()
          try await services.stack.waitUntilGatewaysAreReady()
          #expect(await services.readiness()?.status == 200)
          #expect(
            try await services.curl("POST", "/v1/channels/messaging:x/read", token: token).status == 404
          )
        }
        #expect(earlyRounds > 0, "in none of \(rounds) rounds was /ready queried within 4 s of the loss")
      }
    }

    /// If a store is stopped or killed and is back before a command's deadline of 5 s, callers wait and see no error.
    @Test(arguments: ["stop", "kill"])
    func shortStoreRestartCostsNoRequest(_ way: String) async throws {
      try await TestServices.with { services in
        let specification = try await services.prepareLoad(
          channels: (0..<5).map { "messaging:short-\($0)" },
          messages: 2_000,
          users: 4
        )
        let client = try Companion(
          TestServices.python,
          [TestServices.client("Load/marks_under_load.py"), "\(services.h2cPort)", specification]
        )
        defer { client.end() }
        var short = 0
        var refusedBefore = 0
        for round in 1...8 where short < 4 {
          try await Task.sleep(for: .milliseconds(200))
          let left = ContinuousClock.now
          if way == "kill" { await services.stack.killStore() } else { await services.stack.stopStore() }
          try await services.stack.startStore()
          try await services.stack.waitUntilGatewaysAreReady()
          let away = ContinuousClock.now - left
          client.send("check")
          let state = await client.line() ?? "the client ended"
          #expect(state.hasPrefix("ok "), "\(way), round \(round): \(state)")
          client.send("refusals")
          let refusals = try JSONDecoder().decode(Refusals.self, from: Data((await client.line() ?? "").utf8))
          let refused = refusals.refusals.values.reduce(0, +)
          // On a busy machine a restart may take longer than the guarantee covers: such a round proves nothing.
          if away < .seconds(4) {
            short += 1
            #expect(refused == refusedBefore, "\(way), round \(round), away \(away): \(refusals)")
            print("\(way), away \(away): no error; slowest answer \(refusals.longest) s; \(state)")
          }
          refusedBefore = refused
        }
        #expect(short > 0, "no restart was shorter than 4 s")
      }
    }
  }
}
