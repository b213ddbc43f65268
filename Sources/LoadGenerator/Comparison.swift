internal import Foundation
package import LocalStack
internal import Operations

/// The bench that `make bench` runs: requests through the real gateway and store, and peers answering the same
/// generator, in turn.
package struct Comparison: Sendable {
  /// One run's figures.
  package struct Measurement: Sendable {
    package var row: BenchRow
    package var streams: Int
    package var round: Int
    package var figures: RunFigures
  }

  package var rows = BenchRow.allCases
  package var connections = 16
  /// Channels that requests go round in, at least.
  package var channels = 200
  package var streams = [1, 10, 100]
  package var rounds = 3
  /// The measured time of a run.
  package var seconds = 3.0
  /// Answers after which a run ends before its time, by streams. Mark-reads need as many messages to be there.
  package var requests: @Sendable (_ streams: Int) -> Int = {
    $0 >= 50 ? 1_000_000 : $0 >= 5 ? 500_000 : 150_000
  }
  package var logLevel = "warning"

  package init() {}

  /// A run of about a minute, to see that it works: its figures are rough.
  package static var quick: Comparison {
    var comparison = Comparison()
    comparison.rounds = 1
    comparison.seconds = 1
    comparison.requests = { $0 >= 50 ? 300_000 : $0 >= 5 ? 150_000 : 40_000 }
    return comparison
  }

  /// Runs that this makes.
  package var runCount: Int { rounds * streams.count * rows.count }

  /// Starts the servers, measures, ends the servers.
  ///
  /// - Parameters:
  ///   - directory: made for this, on disk, and removed at the end.
  ///   - note: told of each step, for the line that shows it.
  ///   - measured: told of each run.
  /// - Throws: ``LoadError`` where a mark did not move its watermark, a program is missing, a server did not start, and
  ///   so on.
  package func run(
    executables: Executables,
    directory: String,
    note: @escaping @Sendable (String) -> Void,
    measured: @escaping @Sendable (Measurement) -> Void
  ) async throws -> [Measurement] {
    try PeerProgram.check(rows)
    let files = StackFiles(directory: directory)
    try files.prepare()
    defer { files.remove() }
    let stack = LocalStack(
      plan: try .onFreePorts(usesTLS: false, logLevel: logLevel),
      files: files,
      executables: executables
    )
    let peers = Peers(directory: directory)
    let outcome: Result<[Measurement], any Error>
    do {
      if rows.contains(where: \.isOwn) {
        note("starting tidemark-store and tidemark-gateway --h2c")
        try await stack.start()
      }
      var services: [BenchRow: Peers.Service] = [:]
      for row in rows where !row.programs.isEmpty {
        note("starting \(row.programs.map(\.rawValue).joined(separator: ", "))")
        services[row] = try await peers.start(row)
      }
      let run = ComparisonRun(
        comparison: self,
        directory: directory,
        stack: stack,
        peers: peers,
        services: services,
        note: note
      )
      outcome = .success(try await run.measure(measured))
    } catch {
      outcome = .failure(error)
    }
    await peers.stop()
    await stack.stop()
    return try outcome.get()
  }
}

/// A comparison whose servers are up.
private struct ComparisonRun: Sendable {
  let comparison: Comparison
  let directory: String
  let stack: LocalStack
  let peers: Peers
  let services: [BenchRow: Peers.Service]
  let note: @Sendable (String) -> Void

  func measure(
    _ measured: @Sendable (Comparison.Measurement) -> Void
  ) async throws -> [Comparison.Measurement] {
    var measurements: [Comparison.Measurement] = []
    for round in 1...comparison.rounds {
      for streams in comparison.streams {
        for row in comparison.rows {
          let title = """
            run \(measurements.count + 1) of \(comparison.runCount), round \(round), \
            \(comparison.connections) × \(streams), \(row.title)
            """
          let figures = try await measure(row, streams, title)
          let measurement = Comparison.Measurement(row: row, streams: streams, round: round, figures: figures)
          measured(measurement)
          measurements.append(measurement)
        }
      }
    }
    return measurements
  }

  private func measure(_ row: BenchRow, _ streams: Int, _ title: String) async throws -> RunFigures {
    switch row {
    case .readQuery, .readBody, .register, .readState16, .readState100, .status, .storeFrames:
      try await own(row, streams, title)
    case .nghttpd, .nginx: try await file(row, streams, title)
    case .webdis: try await webdis(streams, title)
    case .redis: try await redis(streams, title)
    }
  }

  /// Answers before the measured ones: tables, windows and caches are warm after them.
  private func warmup(_ streams: Int) -> Int {
    min(max(2_000, comparison.connections * streams * 4), comparison.requests(streams) / 4)
  }

  private func own(_ row: BenchRow, _ streams: Int, _ title: String) async throws -> RunFigures {
    guard let form = row.form else { preconditionFailure("\(row) is not made of requests") }
    let secrets =
      row == .storeFrames
      ? try SecretFile.load(stack.files.frameSecret, key: "secret-file", warn: { _ in }) : nil
    var bench = try GatewayBench(
      endpoint: stack.plan.gateways[0].listen,
      store: secrets.map { (stack.plan.store, [$0.current]) },
      mint: try await TokenMint(secretFile: stack.files.jwtSecret),
      form: form,
      connections: comparison.connections,
      streams: streams,
      requests: comparison.requests(streams),
      warmup: warmup(streams),
      channels: comparison.channels
    )
    bench.duration = comparison.seconds
    bench.processes = [("store", try await processID(stack.storeProcess))]
    if row != .storeFrames {
      bench.processes.insert(("gateway", try await processID(stack.gatewayProcesses.first)), at: 0)
    }
    let plan = try await bench.prepare { registered, total in
      note("\(title): \(Figures.count(registered)) of \(Figures.count(total)) messages registered")
    }
    let report = try await run(plan, title)
    note("\(title): checking")
    try check(try await bench.verify(report), title)
    return report.figures
  }

  private func processID(_ process: ChildProcess?) async throws -> Int32 {
    guard let process else { throw LoadError("a service is not running") }
    return process.processID
  }

  private func file(_ row: BenchRow, _ streams: Int, _ title: String) async throws -> RunFigures {
    let service = try service(row)
    var plan = LoadPlan(
      endpoint: service.endpoint,
      connections: Array(
        repeating: .init(work: .get(path: Peers.path)),
        count: comparison.connections
      ),
      streams: streams,
      requests: comparison.requests(streams),
      warmup: warmup(streams)
    )
    plan.processes = service.processes
    plan.duration = comparison.seconds
    let report = try await run(plan, title)
    try check(report.problems, title)
    return report.figures
  }

  private func webdis(_ streams: Int, _ title: String) async throws -> RunFigures {
    let bench = WebdisBench(
      service: try service(.webdis),
      connections: comparison.connections,
      streams: streams,
      channels: comparison.channels
    )
    var plan = bench.plan(requests: comparison.requests(streams), warmup: warmup(streams))
    plan.duration = comparison.seconds
    let report = try await run(plan, title)
    note("\(title): checking")
    try check(try await bench.verify(report), title)
    try await peers.checkRedis()
    return report.figures
  }

  private func redis(_ streams: Int, _ title: String) async throws -> RunFigures {
    let service = try service(.redis)
    let benchmark = RedisBenchmark(
      endpoint: service.endpoint,
      connections: comparison.connections,
      pipeline: streams
    )
    note("\(title): finding its rate")
    let trial = try await benchmark.run(
      requests: benchmark.requests(rate: Double(comparison.requests(streams)) / 10, seconds: 1),
      server: [],
      directory: directory
    )
    let requests = benchmark.requests(rate: trial.rate, seconds: comparison.seconds)
    note("\(title): \(Figures.count(requests)) commands")
    let figures = try await benchmark.run(
      requests: requests,
      server: service.processes,
      directory: directory
    )
    try await peers.checkRedis()
    return figures
  }

  private func service(_ row: BenchRow) throws(LoadError) -> Peers.Service {
    guard let service = services[row] else { throw LoadError("\(row.title) was not started") }
    return service
  }

  private func check(_ problems: [String], _ title: String) throws(LoadError) {
    guard !problems.isEmpty else { return }
    throw LoadError("\(title): not everything was as it has to be:\n  " + problems.joined(separator: "\n  "))
  }

  private func run(_ plan: LoadPlan, _ title: String) async throws -> LoadReport {
    note("\(title): under load")
    return try await LoadGenerator.run(plan) { answers, seconds in
      note("\(title): \(Figures.count(answers)) answers in \(Figures.decimal(seconds, digits: 0)) s")
    }
  }
}
