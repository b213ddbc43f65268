import GatewayClient
import HTTP2Session
import LocalStack
import NIOCore
import Operations
import TestPrograms
import TestSupport
import Testing

@testable import LoadGenerator

/// Answers a path of digits with that number as the status.
final class StatusServer: HTTP2ServerDelegate {
  private(set) var requestCount = 0

  func http2RequestReceived(_ stream: HTTP2StreamHandle, on connection: HTTP2ServerConnection<StatusServer>) {
    requestCount += 1
    let path = connection.withRequest(stream) { request in
      request.path.withUnsafeBytes { String(decoding: $0, as: UTF8.self) }
    }
    connection.respond(stream, status: Int(path?.dropFirst() ?? "") ?? 500) {
      $0.writeString("hello world\n")
    }
  }
}

@Suite struct LoadGeneratorTests {
  private func plan(_ endpoint: Endpoint, path: String, connections: Int = 3, requests: Int) -> LoadPlan {
    LoadPlan(
      endpoint: endpoint,
      connections: Array(repeating: .init(work: .get(path: path)), count: connections),
      streams: 7,
      requests: requests,
      warmup: 100
    )
  }

  @Test(arguments: [1, 2])
  func runMakesThePlannedRequests(loops: Int) async throws {
    try await withServer({ StatusServer() }) { endpoint, server in
      var plan = plan(endpoint, path: "/200", requests: 5_000)
      plan.loops = loops
      plan.processes = [("none", Int32.max)]
      let report = try await LoadGenerator.run(plan)
      #expect(report.requests == 5_000)
      #expect(report.statuses == [200: 5_100])
      #expect(report.problems == [])
      #expect(report.rate > 0 && report.seconds > 0)
      #expect(report.latencies.p50 > 0 && report.latencies.p50 <= report.latencies.p99)
      #expect(report.latencies.p999 <= report.latencies.max * 1.01)
      // A missing process has no CPU time, so only the generator is listed.
      #expect(report.cpu.map(\.process) == ["generator"])
      let count = try await server.eventLoop.submit { server.value.requestCount }.get()
      #expect(count == 5_100)
    }
  }

  @Test func unsuccessfulAnswersAreCounted() async throws {
    try await withServer({ StatusServer() }) { endpoint, _ in
      let report = try await LoadGenerator.run(plan(endpoint, path: "/404", requests: 50))
      #expect(report.statuses == [404: 150])
      #expect(report.problems == ["150 answers with status 404"])
    }
  }

  @Test func runEndsAfterItsDuration() async throws {
    try await withServer({ StatusServer() }) { endpoint, _ in
      var plan = plan(endpoint, path: "/200", requests: LoadPlan.requestsMax)
      plan.duration = 0.3
      let report = try await LoadGenerator.run(plan)
      #expect(report.problems == [])
      #expect(report.requests > 0 && report.requests < LoadPlan.requestsMax)
    }
  }

  @Test(arguments: [1, 2])
  func pacedRunMakesThePlannedRequests(loops: Int) async throws {
    try await withServer({ StatusServer() }) { endpoint, _ in
      var plan = plan(endpoint, path: "/200", requests: 500)
      plan.loops = loops
      plan.rate = 3_000
      let report = try await LoadGenerator.run(plan)
      #expect(report.requests == 500)
      #expect(report.statuses == [200: 600])
      #expect(report.problems == [])
    }
  }

  @Test func pacedRunWithFewerConnectionsThanLoopsKeepsItsRate() async throws {
    try await withServer({ StatusServer() }) { endpoint, _ in
      var plan = plan(endpoint, path: "/200", connections: 2, requests: 400)
      plan.loops = 4
      plan.rate = 400
      // Two of the four loops have no connection, and take no share of the rate.
      #expect(plan.ratePerLoop == 200)
      let report = try await LoadGenerator.run(plan)
      #expect(report.requests == 400)
      #expect(report.problems == [])
    }
  }

  @Test func pacedRunEndsAfterItsDuration() async throws {
    try await withServer({ StatusServer() }) { endpoint, _ in
      var plan = plan(endpoint, path: "/200", requests: LoadPlan.requestsMax)
      plan.rate = 500
      plan.duration = 0.3
      let report = try await LoadGenerator.run(plan)
      #expect(report.problems == [])
      #expect(report.requests > 0)
    }
  }

  @Test func pacedRunEndsWithItsWalks() async throws {
    try await withServer({ FakeGateway() }) { endpoint, _ in
      let bench = try await bench(endpoint, .query, streams: 4)
      var plan = try await bench.prepare()
      plan.rate = 100_000
      plan.requests = LoadPlan.requestsMax
      let report = try await LoadGenerator.run(plan)
      #expect(
        report.requests + plan.warmup == plan.connections.count * bench.channelCount * bench.messageCount
      )
      #expect(
        report.problems == ["\(report.requests) of \(LoadPlan.requestsMax) requests were answered"]
      )
    }
  }

  @Test func refusedConnectionIsReported() async throws {
    let endpoint = try LoopbackPorts.free(1)[0]
    await #expect(throws: LoadError("\(endpoint): no connection: Connection refused")) {
      _ = try await LoadGenerator.run(plan(endpoint, path: "/", requests: 1))
    }
  }

  @Test func runCanBeCancelled() async throws {
    try await withServer({ StatusServer() }) { endpoint, server in
      let plan = plan(endpoint, path: "/200", requests: LoadPlan.requestsMax)
      let task = Task { try await LoadGenerator.run(plan) }
      try await eventually("the run makes requests") {
        try await server.eventLoop.submit { server.value.requestCount }.get() > 0
      }
      task.cancel()
      let result = try await within("the run's end") { await task.result }
      #expect(throws: CancellationError.self) { _ = try result.get() }
    }
  }

  @Test(arguments: [RequestForm.query, .body], [1, 4])
  func everyMarkMovesItsWatermark(form: RequestForm, streams: Int) async throws {
    let run = try await run(form, streams: streams)
    #expect(run.problems == [])
    #expect(run.report.requests == 700)
    #expect(run.report.walks.count == 3)
    #expect(run.marks == 750)
    #expect(run.repeats == 0)
  }

  @Test func refusedMarkIsReported() async throws {
    let run = try await run(.query, streams: 4, .refusesMark(300))
    #expect(run.problems == ["1 answers with status 503"])
  }

  @Test func lostConnectionIsReported() async throws {
    let run = try await run(.query, streams: 4, .dropsConnection(300))
    #expect(run.problems.contains("1 connections lost"))
  }

  /// Every mark is answered 200, so only a watermark could show the lost one, and a later mark in the channel covers
  /// it.
  @Test func coveredLostMarkIsNotDetected() async throws {
    let run = try await run(.query, streams: 4, .forgetsMark(300))
    #expect(run.report.problems.isEmpty)
  }

  @Test func lostLastMarkIsDetected() async throws {
    let run = try await run(.query, streams: 1, .forgetsMark(745))
    #expect(run.problems.count == 1)
    #expect(run.problems.first?.contains("last_read_seq") == true)
  }

  @Test(arguments: [1, 4])
  func everyRegisteredMessageIsNew(streams: Int) async throws {
    let run = try await run(.register, streams: streams)
    #expect(run.problems == [])
    #expect(run.report.statuses == [201: 750])
    #expect(run.registrations == 750)
  }

  @Test func unregisteredMessageIsDetected() async throws {
    let run = try await run(.register, streams: 2, .forgetsMessage(400))
    #expect(run.problems.count { $0.contains("messages, expected") } == 1)
  }

  @Test func existingMessageIsNoRegistration() async throws {
    let run = try await run(.register, streams: 1, .knowsEveryMessage)
    #expect(run.problems.contains("750 answers with status 200"))
  }

  @Test(arguments: [RequestForm.readState(memberCount: 5), .status])
  func queryAnswersAreVerified(form: RequestForm) async throws {
    let run = try await run(form, streams: 4)
    #expect(run.problems == [])
    #expect(run.report.statuses == [200: 750])
    // Of some 250 responses, a connection keeps the 1st, 2nd, 4th and so on, to the 128th.
    for samples in run.report.samples { #expect((1...ResponseSampler.countMax).contains(samples.count)) }
    #expect(run.report.samples.reduce(0) { $0 + $1.count } >= 8)
  }

  @Test(arguments: [
    (RequestForm.readState(memberCount: 5), FakeGateway.Fault.losesMember), (.status, .miscounts),
  ]) func wrongQueryAnswerIsDetected(form: RequestForm, fault: FakeGateway.Fault) async throws {
    let run = try await run(form, streams: 4, fault)
    #expect(run.report.problems == [])
    #expect(run.problems.count >= 8)
  }

  @Test func missingStoreIsReported() async throws {
    let endpoint = try LoopbackPorts.free(1)[0]
    let names = BenchNames(prefix: "run")
    let walk = RequestWalk(names: names, form: .frame, connection: 0, channelCount: 1, messageCount: 1, streams: 1)
    var plan = LoadPlan(endpoint: endpoint, connections: [.init(work: .walk(walk))], streams: 1, requests: 1)
    plan.wireProtocol = .frames(secrets: [])
    plan.handshakeTimeout = 0.2
    let failing = plan
    await #expect(throws: LoadError("\(endpoint): no store was ready within 0.2 s; does it share the secret?")) {
      _ = try await LoadGenerator.run(failing)
    }
  }

  private struct Run {
    var report: LoadReport
    /// Problems that the check after the run found.
    var problems: [String]
    /// Requests that reached the gateway.
    var marks: Int
    var repeats: Int
    var registrations: Int
  }

  /// Run a bench against a fake gateway, and check it.
  private func run(_ form: RequestForm, streams: Int, _ fault: FakeGateway.Fault = .none) async throws -> Run {
    try await withServer({ FakeGateway(fault: fault) }) { endpoint, gateway in
      let bench = try await bench(endpoint, form, streams: streams)
      let report = try await LoadGenerator.run(try await bench.prepare())
      let problems = try await bench.verify(report)
      return try await gateway.eventLoop.submit {
        let gateway = gateway.value
        return Run(
          report: report,
          problems: problems,
          marks: gateway.markCount,
          repeats: gateway.repeatCount,
          registrations: gateway.registrationCount
        )
      }.get()
    }
  }

  private func bench(_ endpoint: Endpoint, _ form: RequestForm, streams: Int) async throws -> GatewayBench {
    let tokenIssuer = await TokenIssuer(secret: Array(repeating: 7, count: 32))
    return try GatewayBench(
      endpoint: endpoint,
      tokenIssuer: tokenIssuer,
      form: form,
      connections: 3,
      streams: streams,
      requests: 700,
      warmup: 50,
      channels: 10
    )
  }
}
