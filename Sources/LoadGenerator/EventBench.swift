internal import Foundation
internal import Histogram
package import LocalStack
internal import NIOCore
internal import NIOPosix
internal import Operations

/// Live events through the real processes: how long from a mark to its event at another client, what an idle stream
/// takes, how long until ten thousand viewers have one event, and what events add to a mark. Every answer and every
/// event is compared with what it has to be.
package struct EventBench: Sendable {
  package enum Part: String, Sendable, CaseIterable, Codable {
    case latency
    /// Idle streams, then one event to all of them.
    case streams
    case cost
  }

  package var parts = Set(Part.allCases)
  package var rounds = 3
  /// Seconds of each row of latencies.
  package var seconds = 5.0
  /// Marks a second beside them.
  package var rate = 10_000.0
  package var streams = 10_000
  /// Connections that the streams are dealt out to.
  package var connections = 100
  /// Small channels that each stream's user is in, beside the one that all are in.
  package var channelsEach = 3
  /// Whether memory is looked at once more after a heartbeat to each stream, some 15 s later.
  package var awaitsHeartbeat = true
  /// Events that go to all streams.
  package var events = 20
  /// Marks of each row of costs.
  package var marks = 200_000

  package init() {}

  /// Runs it all, with the data of each round in a new directory that is removed at its end.
  ///
  /// - Parameter note: told how far it is.
  package func run(
    executables: Executables,
    directory: String,
    note: @escaping @Sendable (String) -> Void
  ) async throws -> EventReport {
    var report = EventReport(rounds: rounds, rate: rate)
    for round in 1...rounds {
      let say: @Sendable (String) -> Void = { [rounds] in note("round \(round) of \(rounds): \($0)") }
      if parts.contains(.streams) {
        // What is set up goes through another gateway: memory that it needed, and has again, would not be seen to grow.
        let (idle, fanOut) = try await onStack(executables, "\(directory)-\(round)-streams", gateways: 2) {
          try await measureStreams($0, say)
        }
        report.idle.append(idle)
        report.fanOuts.append(fanOut)
      }
      guard parts.contains(.latency) || parts.contains(.cost) else { continue }
      try await onStack(executables, "\(directory)-\(round)-marks") { rig in
        if parts.contains(.latency) { report.latencies += try await measureLatencies(rig, say) }
        if parts.contains(.cost) { report.costs += try await measureCosts(rig, say) }
      }
    }
    return report
  }

  /// The services of one part, of which the last gateway is looked at; and the loops on which it listens: one for what
  /// is timed, one for what is only checked.
  struct Rig: Sendable {
    let gateway: StackPlan.Gateway
    let world: EventWorld
    let timed: any EventLoop
    let checked: any EventLoop
    let processes: [(name: String, processID: Int32)]

    var endpoint: Endpoint { gateway.listen }
    var gatewayID: Int32 { processes[0].processID }

    /// One of the gateway's metrics.
    func gatewayMetric(_ name: String) async throws -> Double {
      let answer = await HealthCheck.get("http://\(gateway.admin)/metrics")
      guard let value = answer.flatMap({ ProcessFigures.metric(name, in: $0.body) }) else {
        throw LoadError("the gateway does not tell \(name)")
      }
      return value
    }
  }

  private func onStack<Outcome: Sendable>(
    _ executables: Executables,
    _ directory: String,
    gateways: Int = 1,
    _ body: (Rig) async throws -> Outcome
  ) async throws -> Outcome {
    try await BenchStack.run(executables: executables, directory: directory, gateways: gateways) {
      stack,
      files in
      guard let gateway = await stack.gatewayProcesses.last, let store = await stack.storeProcess else {
        throw LoadError("the services were not started")
      }
      let group = MultiThreadedEventLoopGroup(numberOfThreads: 2)
      let world = try await EventWorld(stack: stack, files: files)
      let rig = Rig(
        gateway: stack.plan.gateways[gateways - 1],
        world: world,
        timed: group.next(),
        checked: group.next(),
        processes: [("gateway", gateway.processID), ("store", store.processID)]
      )
      let outcome: Result<Outcome, any Error>
      do {
        outcome = .success(try await body(rig))
        let resets = try await rig.gatewayMetric("tidemark_gateway_event_resets_total")
        guard resets == 0 else { throw LoadError("the gateway told \(Int(resets)) streams to ask anew") }
      } catch {
        await world.close()
        try? await group.shutdownGracefully()
        throw error
      }
      await world.close()
      try? await group.shutdownGracefully()
      return try outcome.get()
    }
  }

  // MARK: Latency

  private static let loadConnections = 16
  /// With a member for each connection: fewer rows than events that may wait for a slow client, so that it is never
  /// told to ask anew.
  private static let loadChannels = 50

  private func measureLatencies(_ rig: Rig, _ note: @escaping @Sendable (String) -> Void) async throws
    -> [EventReport.Latency]
  {
    note("registering the messages to mark")
    let count = EventLatency.marksMax(seconds: seconds)
    for load in EventReport.Load.allCases {
      try await rig.world.makePair(Self.cid(load), messagePrefix: Self.prefix(load), count: count)
    }
    let request = EventStreamRequest(token: try await rig.world.token(EventWorld.sender))
    let streams = try await EventStreams.open([request], at: rig.endpoint, connections: 1, on: rig.timed)
    var rows: [EventReport.Latency] = []
    do {
      for load in EventReport.Load.allCases {
        rows.append(try await measureLatency(load, rig, streams, note))
      }
    } catch {
      await streams.close()
      throw error
    }
    await streams.close()
    return rows
  }

  private static func cid(_ load: EventReport.Load) -> String { "messaging:beside-\(load.rawValue)" }
  private static func prefix(_ load: EventReport.Load) -> String { "\(load.rawValue)-" }

  private func measureLatency(
    _ load: EventReport.Load,
    _ rig: Rig,
    _ streams: EventStreams,
    _ note: @escaping @Sendable (String) -> Void
  ) async throws -> EventReport.Latency {
    let latency = EventLatency(
      cid: Self.cid(load),
      messagePrefix: Self.prefix(load),
      messageCount: EventLatency.marksMax(seconds: seconds),
      sender: EventWorld.sender,
      reader: EventWorld.reader,
      readerToken: try await rig.world.token(EventWorld.reader),
      seconds: seconds
    )
    let measure: @Sendable () async throws -> EventLatency.Outcome = {
      note("timing marks and their events, \(load.title)")
      return try await latency.run(streams, at: rig.endpoint, on: rig.timed)
    }
    if load == .none { return EventReport.Latency(load, try await measure(), loadRate: nil) }
    // The load is there before the first mark and until after the last.
    let loadSeconds = seconds + 2 * Self.loadMargin
    var bench = try await gatewayBench(
      rig,
      streams: Self.loadChannels,
      requests: Int(rate * loadSeconds * 1.2)
    )
    bench.duration = loadSeconds
    let (outcome, loadReport, _) = try await underLoad(bench, rate, rig, isWatched: load == .watched, note) {
      try await Task.sleep(for: .seconds(Self.loadMargin))
      return try await measure()
    }
    return EventReport.Latency(load, outcome, loadRate: loadReport.rate)
  }

  private static let loadMargin = 0.5

  private func gatewayBench(_ rig: Rig, streams: Int, requests: Int, warmup: Int = 0)
    async throws -> GatewayBench
  {
    var bench = try GatewayBench(
      endpoint: rig.endpoint,
      mint: rig.world.mint,
      form: .query,
      connections: Self.loadConnections,
      streams: streams,
      requests: requests,
      warmup: warmup,
      channels: Self.loadChannels
    )
    bench.processes = rig.processes
    return bench
  }

  /// Does `body` while marks are made, and checks all of them.
  ///
  /// - Parameters:
  ///   - rate: marks a second; nil: as quickly as they are answered.
  ///   - isWatched: one stream watches all of their channels.
  /// - Returns: what came of `body`, what was measured of the marks, and how many events that stream had.
  private func underLoad<Outcome: Sendable>(
    _ bench: GatewayBench,
    _ rate: Double?,
    _ rig: Rig,
    isWatched: Bool,
    _ note: @escaping @Sendable (String) -> Void,
    _ body: @escaping @Sendable () async throws -> Outcome
  ) async throws -> (Outcome, LoadReport, Int) {
    note("registering the messages that others mark")
    var plan = try await bench.prepare()
    plan.rate = rate
    let watch = isWatched ? try await LoadWatch(bench, rig) : nil
    do {
      async let load = LoadGenerator.run(plan)
      let outcome = try await body()
      let report = try await load
      let events = try await watch?.finish(report) ?? 0
      note("checking the marks")
      if let problem = try await bench.verify(report).first { throw LoadError(problem) }
      await watch?.close()
      return (outcome, report, events)
    } catch {
      await watch?.close()
      throw error
    }
  }

  // MARK: Cost

  private func measureCosts(_ rig: Rig, _ note: @escaping @Sendable (String) -> Void) async throws
    -> [EventReport.Cost]
  {
    try await rig.world.put(Self.elsewhere, [EventWorld.sender])
    var rows: [EventReport.Cost] = []
    for watched in EventReport.Watched.allCases {
      note("counting CPU time of marks, \(watched.title)")
      let warmup = Self.loadConnections * Self.costStreams * 10
      let bench = try await gatewayBench(
        rig,
        streams: Self.costStreams,
        requests: marks,
        warmup: warmup
      )
      var other: EventStreams?
      if watched == .others {
        let request = EventStreamRequest(
          path: "/v1/events?channels=\(Self.elsewhere)",
          token: rig.world.server
        )
        other = try await EventStreams.open([request], at: rig.endpoint, connections: 1, on: rig.checked)
      }
      let (_, report, events) = try await underLoad(bench, nil, rig, isWatched: watched == .these, note) {}
      await other?.close()
      rows.append(EventReport.Cost(watched, report, events: events))
    }
    return rows
  }

  private static let elsewhere = "messaging:elsewhere"
  private static let costStreams = 10
}

/// A member's stream, and so one that watches all channels of a bench's marks.
private struct LoadWatch: Sendable {
  private static let limit = TimeAmount.seconds(20)

  private let streams: EventStreams
  private let listening: EventListening<EventPositions, EventPositions.Outcome>

  init(_ bench: GatewayBench, _ rig: EventBench.Rig) async throws {
    let request = EventStreamRequest(token: try await rig.world.token(bench.names.user(0)))
    streams = try await EventStreams.open([request], at: rig.endpoint, connections: 1, on: rig.checked)
    let (names, members, channels) = (bench.names, bench.memberCount, bench.channelCount)
    listening = try await streams.listen { promise in
      EventPositions(names, members: members, channels: channels, promise, eventLoop: rig.checked)
    }
  }

  /// Waits until the stream has been told of all marks.
  ///
  /// - Returns: the events that it had.
  func finish(_ report: LoadReport) async throws -> Int {
    let acknowledged = report.walks.map { $0?.acknowledged.map { Int($0) } ?? [] }
    let sink = listening.sink
    sink.eventLoop.execute { sink.value.expect(acknowledged, within: Self.limit) }
    return try await listening.outcome().count
  }

  func close() async { await streams.close() }
}
