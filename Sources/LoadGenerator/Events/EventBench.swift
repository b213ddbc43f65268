internal import ArgumentParser
internal import CommandOutput
internal import CommandSupport
internal import HTTP2Session
internal import LocalStack
internal import NIOCore
internal import NIOPosix
internal import Operations

/// Command `tidemark bench events`. Every response and every event is compared with the expected one.
struct EventBench: Benchmark {
  static let name = "events"
  static let abstract =
    "Measures live events: from a mark to its event, idle streams, one event to many, what events add to a mark."
  static let discussion = """
    Starts the tidemark-store and tidemark-gateway --h2c beside this program, or those in --programs, with data in \
    new directories under ./.tidemark. Parts: latency times one mark after the other, until its answer and until its \
    event reaches another client, first alone and then with --rate background marks a second. The part streams opens \
    --streams idle streams, measures the gateway's resident memory before, after, and after a heartbeat, then \
    registers messages, each of which is an event for all streams. The part cost measures the CPU time of --marks \
    marks without streams, with a stream on another channel, and with a member's stream on all of their channels. \
    Prints the medians of the rounds. Checks every answer and every event, and exits with 1 if one is wrong or \
    missing.
    """

  enum Phase: String, CaseIterable, ExpressibleByArgument { case latency, streams, cost }

  @Option(
    name: .customLong("parts"),
    parsing: .upToNextOption,
    help: ArgumentHelp("What to measure: latency, streams, cost.", valueName: "parts")
  )
  var phases = [CommaList(Phase.allCases)]
  @Option(help: "Number of rounds.")
  var rounds = 3
  @Option(help: ArgumentHelp("Measured time of each row of latencies.", valueName: "time"))
  var seconds = TimeSpanArgument(seconds: 5)
  @Option(help: "Untimed background marks per second.")
  var rate = 10_000
  @Option(help: "Idle streams, each with its own user.")
  var streams = 10_000
  @Option(help: "Connections that share the streams, at most 1000 streams each.")
  var connections = 100
  @Option(help: "Small channels of each of those users; one more channel contains all of them.")
  var channels = 3
  @Option(help: "Events sent to all streams, one after the other.")
  var events = 20
  @Option(help: "Marks whose CPU time is counted.")
  var marks = 200_000
  @OptionGroup var options: BenchOptions
  /// Whether memory is measured again after a heartbeat on each stream, about 15 s later.
  @Flag(inversion: .prefixedNo, help: .hidden)
  var awaitsHeartbeat = true

  func validate() throws {
    try validateRanges([
      ("rounds", rounds, 1...100), ("rate", rate, 1...1_000_000), ("streams", streams, 1...50_000),
      ("connections", connections, 1...10_000), ("channels", channels, 0...100),
      ("events", events, 1...10_000), ("marks", marks, 1_000...10_000_000),
    ])
    try seconds.validate("--seconds", in: 0.001...600)
    guard connections <= streams, streams <= connections * 1_000 else {
      throw ValidationError("--connections: give each at least one of the streams, and at most 1000")
    }
  }

  func text(_ report: EventReport) -> String { report.markdown }

  func measure(_ run: BenchRun) async throws -> EventReport {
    var report = EventReport(rounds: rounds, rate: Double(rate))
    let phases: [Phase] = phases.joined()
    for round in 1...rounds {
      let run = run.prefixed("round \(round) of \(rounds)")
      if phases.contains(.streams) {
        // The set-up uses the first gateway: memory that it frees could hide growth of the measured one.
        let (idle, fanOut) = try await withEnvironment(run, "-\(round)-streams", gateways: 2) {
          try await measureStreams($0)
        }
        report.idle.append(idle)
        report.fanOuts.append(fanOut)
      }
      guard phases.contains(.latency) || phases.contains(.cost) else { continue }
      try await withEnvironment(run, "-\(round)-marks") { environment in
        if phases.contains(.latency) { report.latencies += try await measureLatencies(environment) }
        if phases.contains(.cost) { report.costs += try await measureCosts(environment) }
      }
    }
    return report
  }

  /// Services of one phase, the last gateway of which is measured, and event loops for the event streams.
  struct Environment: Sendable {
    let services: BenchServices
    let gateway: StackPlan.Gateway
    let dataset: EventDataset
    /// Loop of the streams whose events are timed.
    let timed: any EventLoop
    /// Loop of the streams whose events are only checked.
    let checked: any EventLoop
    let processes: ServiceProcesses

    var endpoint: Endpoint { gateway.listen }

    /// Resident memory of the gateway.
    var gatewayBytes: Int {
      get throws(LoadError) {
        guard let bytes = ProcessFigures.residentBytes(of: processes.gateway) else {
          throw LoadError("the gateway has exited")
        }
        return bytes
      }
    }

    func openStream(_ request: EventStreamRequest, on eventLoop: any EventLoop) async throws -> EventLoadStreams {
      try await EventLoadStreams.open([request], at: endpoint, connections: 1, on: eventLoop)
    }

    func gatewayMetric(_ name: String) async throws -> Double {
      guard let value = await LocalStack.metric(name, at: gateway.admin) else {
        throw LoadError("the gateway has no metric \(name)")
      }
      return value
    }
  }

  private func withEnvironment<Outcome: Sendable>(
    _ run: BenchRun,
    _ suffix: String,
    gateways: Int = 1,
    _ body: (Environment) async throws -> Outcome
  ) async throws -> Outcome {
    try await run.withServices(suffix: suffix, gateways: gateways) { services in
      let group = MultiThreadedEventLoopGroup(numberOfThreads: 2)
      let environment = Environment(
        services: services,
        gateway: services.stack.plan.gateways[gateways - 1],
        dataset: EventDataset(services: services),
        timed: group.next(),
        checked: group.next(),
        processes: try await services.stack.measuredProcesses()
      )
      return try await withCleanup {
        let outcome = try await body(environment)
        let resets = try await environment.gatewayMetric("tidemark_gateway_event_resets_total")
        guard resets == 0 else { throw LoadError("the gateway has reset \(Int(resets)) streams") }
        return outcome
      } cleanUp: {
        try? await group.shutdownGracefully()
      }
    }
  }

  // MARK: Latency

  private static let loadConnections = 16
  /// With a member per connection these are fewer rows than the gateway queues for a slow client, so that it never
  /// resets the stream.
  private static let loadChannels = 50
  /// Time in seconds that the load runs before the first and after the last timed mark.
  private static let loadMargin = 0.5

  private func measureLatencies(_ environment: Environment) async throws -> [EventReport.Latency] {
    environment.services.note("registering the messages to mark")
    let count = EventLatency.marksMax(seconds: seconds.seconds)
    for load in EventReport.Load.allCases {
      try await environment.dataset.makePair(Self.cid(load), messagePrefix: Self.prefix(load), count: count)
    }
    let request = EventStreamRequest(token: try await environment.services.token(EventDataset.sender))
    let streams = try await environment.openStream(request, on: environment.timed)
    return try await withCleanup {
      var rows: [EventReport.Latency] = []
      for load in EventReport.Load.allCases {
        rows.append(try await measureLatency(beside: load, environment, streams))
      }
      return rows
    } cleanUp: {
      await streams.close()
    }
  }

  private static func cid(_ load: EventReport.Load) -> String { "messaging:beside-\(load.rawValue)" }
  private static func prefix(_ load: EventReport.Load) -> String { "\(load.rawValue)-" }

  private func measureLatency(
    beside load: EventReport.Load,
    _ environment: Environment,
    _ streams: EventLoadStreams
  ) async throws -> EventReport.Latency {
    let seconds = seconds.seconds
    let latency = EventLatency(
      cid: Self.cid(load),
      messagePrefix: Self.prefix(load),
      messageCount: EventLatency.marksMax(seconds: seconds),
      sender: EventDataset.sender,
      reader: EventDataset.reader,
      readerToken: try await environment.services.token(EventDataset.reader),
      seconds: seconds
    )
    let measure: @Sendable () async throws -> EventLatency.Outcome = {
      environment.services.note("timing marks and their events, \(load.title)")
      return try await latency.run(streams, at: environment.endpoint, on: environment.timed)
    }
    if load == .none { return EventReport.Latency(load, try await measure(), loadRate: nil) }
    let pace = (rate: Double(rate), seconds: seconds + 2 * Self.loadMargin)
    let requests = Int(pace.rate * pace.seconds * 1.2)
    let (outcome, loadReport, _) = try await underLoad(
      of: try gatewayBench(environment, streams: Self.loadChannels, requests: requests),
      pace: pace,
      environment,
      isWatched: load == .watched
    ) {
      try await Task.sleep(for: .seconds(Self.loadMargin))
      return try await measure()
    }
    return EventReport.Latency(load, outcome, loadRate: loadReport.rate)
  }

  private func gatewayBench(_ environment: Environment, streams: Int, requests: Int, warmup: Int = 0) throws
    -> GatewayBench
  {
    try GatewayBench(
      endpoint: environment.endpoint,
      tokenIssuer: environment.services.tokenIssuer,
      form: .query,
      connections: Self.loadConnections,
      streams: streams,
      requests: requests,
      warmup: warmup,
      channels: Self.loadChannels
    )
  }

  /// Run `body` while marks are made, and check all marks.
  ///
  /// - Parameters:
  ///   - pace: marks per second, and their duration; nil: as fast as they are answered.
  ///   - isWatched: whether one stream watches all of their channels.
  /// - Returns: the outcome of `body`, the report of the marks, and the number of events of that stream.
  private func underLoad<Outcome: Sendable>(
    of bench: GatewayBench,
    pace: (rate: Double, seconds: Double)?,
    _ environment: Environment,
    isWatched: Bool,
    _ body: @escaping @Sendable () async throws -> Outcome
  ) async throws -> (Outcome, LoadReport, Int) {
    environment.services.note("registering the messages of the load")
    var plan = try await bench.prepare()
    plan.rate = pace?.rate
    plan.duration = pace?.seconds
    plan.processes = environment.processes.named
    let watch = isWatched ? try await LoadWatch(bench, environment) : nil
    return try await withCleanup { [plan] in
      async let load = LoadGenerator.run(plan)
      let outcome = try await body()
      let report = try await load
      let events = try await watch?.finish(report) ?? 0
      environment.services.note("checking the marks")
      if let problem = try await bench.verify(report).first { throw LoadError(problem) }
      return (outcome, report, events)
    } cleanUp: {
      await watch?.close()
    }
  }

  // MARK: Cost

  private static let otherChannel = "messaging:elsewhere"
  private static let costStreams = 10

  private func measureCosts(_ environment: Environment) async throws -> [EventReport.Cost] {
    try await environment.services.client.putChannel(Self.otherChannel, members: [EventDataset.sender])
    var rows: [EventReport.Cost] = []
    for watched in EventReport.Watched.allCases {
      environment.services.note("counting CPU time of marks, \(watched.title)")
      let bench = try gatewayBench(
        environment,
        streams: Self.costStreams,
        requests: marks,
        warmup: Self.loadConnections * Self.costStreams * 10
      )
      var other: EventLoadStreams?
      if watched == .otherChannel {
        let request = EventStreamRequest(
          path: "/v1/events?channels=\(Self.otherChannel)",
          token: environment.services.client.token
        )
        other = try await environment.openStream(request, on: environment.checked)
      }
      let (_, report, events) = try await underLoad(
        of: bench,
        pace: nil,
        environment,
        isWatched: watched == .markedChannels
      ) {}
      await other?.close()
      rows.append(EventReport.Cost(watched, report, events: events))
    }
    return rows
  }
}

/// Stream of a member that watches all channels of a bench's marks.
private struct LoadWatch: Sendable {
  private static let timeout = TimeAmount.seconds(20)

  private let streams: EventLoadStreams
  private let capture: EventCapture<EventPositions, EventPositions.Outcome>

  init(_ bench: GatewayBench, _ environment: EventBench.Environment) async throws {
    let request = EventStreamRequest(token: try await environment.services.token(bench.names.user(0)))
    streams = try await environment.openStream(request, on: environment.checked)
    let (names, members, channels) = (bench.names, bench.memberCount, bench.channelCount)
    capture = try await streams.listen { promise in
      EventPositions(names, members: members, channels: channels, promise, eventLoop: environment.checked)
    }
  }

  /// Wait until the stream has received the events of all marks.
  ///
  /// - Returns: the number of its events.
  func finish(_ report: LoadReport) async throws -> Int {
    let acknowledged = report.walks.map { $0?.acknowledged.map { Int($0) } ?? [] }
    let sink = capture.sink
    sink.eventLoop.execute { sink.value.expect(acknowledged, within: Self.timeout) }
    return try await capture.outcome().count
  }

  func close() async { await streams.close() }
}

/// Channels, members and messages of an ``EventBench``, set up through the first gateway.
struct EventDataset: Sendable {
  static let sender = "alice"
  static let reader = "bob"
  /// Channel of all viewers.
  static let everybody = "messaging:everybody"
  private static let inFlight = 128
  /// Viewers of each small channel.
  private static let groupSize = 10

  let services: BenchServices

  private var client: BenchClient { services.client }

  static func viewer(_ number: Int) -> String { "viewer-\(number)" }

  /// Create viewers, ten to each small channel and all in one large channel.
  ///
  /// - Parameter channelsEach: small channels of each viewer.
  func makeViewers(_ count: Int, channelsEach: Int) async throws {
    let groups = (count + Self.groupSize - 1) / Self.groupSize
    let channels = groups * channelsEach
    try await inParallel(channels, atOnce: Self.inFlight, progress: (services.note, "channels made")) { channel in
      let first = channel / channelsEach * Self.groupSize
      let members = (first..<min(first + Self.groupSize, count)).map(Self.viewer)
      try await client.putChannel("messaging:group-\(channel)", members: members)
    }
    try await client.putChannel(Self.everybody, members: (0..<count).map(Self.viewer))
  }

  /// Create the channel of sender and reader for a latency measurement, with messages of the sender.
  func makePair(_ cid: String, messagePrefix: String, count: Int) async throws {
    try await client.putChannel(cid, members: [Self.sender, Self.reader])
    try await client.register(1..<count + 1, sender: Self.sender) { (cid, "\(messagePrefix)\($0)") }
  }

  /// Register one message without a sender.
  func register(_ message: String, in cid: String) async throws {
    try await client.expect(.post, "/v1/channels/\(cid)/messages", #"{"id":"\#(message)"}"#)
  }
}
