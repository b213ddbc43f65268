internal import ArgumentParser
internal import CommandOutput
internal import CommandSupport
internal import Foundation
internal import LocalStack
internal import Operations

/// Command `tidemark bench compare`, which `make bench` runs: load on the real gateway and store and on other servers,
/// in turn.
struct Comparison: Benchmark {
  static let name = "compare"
  static let abstract = "Requests through the real gateway and store beside other servers, in turn."
  static let discussion = """
    Starts the tidemark-store and tidemark-gateway --h2c beside this program, or those in --programs, and the \
    third-party programs that the rows need, from Debian's packages. All use free loopback ports, with data in a new \
    directory under ./.tidemark. Prints medians, ratios and CPU time per request as Markdown tables.
    Tidemark's rows: read-query, read-body, register, read-state-16, read-state-100, status, and store-frames (the \
    store alone, without HTTP). Other rows: nghttpd (a static file; package nghttp2-server), nghttpx-nginx (the same \
    behind a proxy; nghttp2-proxy, nginx), nghttpx-webdis (HSET with appendfsync always; nghttp2-proxy, webdis, \
    redis-server, redis-tools), redis-benchmark (the same, pipelined; redis-server, redis-tools).
    """

  @Flag(help: "Run one short round, as a test with rough figures.")
  var quick = false
  @Option(help: "Rounds, in turn; the medians are printed. Default 3.")
  var rounds: Int?
  @Option(parsing: .upToNextOption, help: "Rows; see above. Default: all.")
  var rows: [CommaList<BenchRow>] = []
  @Option(help: "Connections.")
  var connections = 16
  @Option(parsing: .upToNextOption, help: "Streams on each connection; without HTTP, requests pipelined.")
  var streams = [CommaList([1, 10, 100])]
  @Option(help: ArgumentHelp("The measured time of each run. Default 3s.", valueName: "time"))
  var seconds: TimeSpanArgument?
  @Option(
    help: """
      Answers after which a run ends before its time. Default 150000, 500000 and 1000000 for 1, 10 and 100 streams.
      """
  )
  var requests: Int?
  @Option(help: .hidden)
  var channels = 200
  @OptionGroup var options: BenchOptions

  /// One run of one row.
  struct Measurement: Sendable, Encodable {
    var row: BenchRow
    var streams: Int
    var round: Int
    var figures: RunFigures
  }

  func validate() throws {
    try validateRanges([
      ("rounds", rounds ?? 1, 1...99), ("connections", connections, 1...99),
      ("requests", requests ?? 1000, 1000...100_000_000),
    ])
    guard streams.joined().allSatisfy({ (1...100).contains($0) }) else {
      throw ValidationError("--streams: give 1 to 100; nghttpd does not allow more")
    }
    try seconds?.validate("--seconds", in: 0.1...600)
    guard Set(rows.joined()).count == rows.joined().count else { throw ValidationError("--rows: give each row once") }
  }

  func text(_ report: [Measurement]) -> String {
    let table = ComparisonTable(report)
    let rounds = table.rounds == 1 ? "One round" : "Medians of \(table.rounds) rounds"
    return """
      \(rounds), \(connections) connections. \(Machine.summary).

      \(table.markdown)

      \(table.legend)
      """
  }

  func output(_ report: [Measurement]) throws -> String {
    if Machine.isInMemory(options.parentDirectory) {
      Terminal.printError("The data was in memory (tmpfs), where a sync costs nothing: give --directory on a disk.")
    }
    return options.json ? try ReportDocument.pretty(ComparisonTable(report).lines) : text(report)
  }

  func measure(_ run: BenchRun) async throws -> [Measurement] {
    let rows = rows.isEmpty ? BenchRow.allCases : rows.joined()
    let roundCount = rounds ?? (quick ? 1 : 3)
    try PeerProgram.check(rows)
    let runs = (1...roundCount).flatMap { round in
      streams.joined().flatMap { streams in rows.map { (round: round, streams: streams, row: $0) } }
    }
    return try await run.withStack(logLevel: "warning") { stack in
      if rows.contains(where: \.isOwn) { try await stack.start() }
      let peers = Peers(directory: stack.files.directory)
      return try await withCleanup {
        var services: [BenchRow: Peers.Service] = [:]
        for row in rows where !row.programs.isEmpty {
          run.note("starting \(row.programs.map(\.rawValue).joined(separator: ", "))")
          services[row] = try await peers.start(row)
        }
        var measurements: [Measurement] = []
        for (round, streams, row) in runs {
          let title = """
            run \(measurements.count + 1) of \(runs.count), round \(round), \(connections) × \(streams), \(row.title)
            """
          let rowRun = ComparisonRun(
            comparison: self,
            row: row,
            streams: streams,
            stack: stack,
            peers: peers,
            service: services[row],
            title: title,
            run: run.prefixed(title)
          )
          let figures = try await rowRun.measure()
          let measurement = Measurement(row: row, streams: streams, round: round, figures: figures)
          run.log(measurement.line)
          measurements.append(measurement)
        }
        return measurements
      } cleanUp: {
        await peers.stop()
      }
    }
  }

  /// Return the limit of measured requests. Mark rows register as many messages before the run.
  func requests(streams: Int) -> Int {
    if let requests { return requests }
    let (many, some, few) = quick ? (300_000, 150_000, 40_000) : (1_000_000, 500_000, 150_000)
    return streams >= 50 ? many : streams >= 5 ? some : few
  }

  var measuredSeconds: Double { seconds?.seconds ?? (quick ? 1 : 3) }
}

extension Comparison.Measurement {
  fileprivate var line: String {
    let cpu = figures.cpu.map { "\($0.process) \(Figures.decimal($0.perRequest, digits: 2))" }
      .joined(separator: ", ")
    return """
      round \(round)  \(streams) streams  \(row.title): \(Figures.count(Int(figures.rate)))/s, \
      p99 \(Figures.time(microseconds: figures.p99)), µs of CPU: \(cpu)
      """
  }
}

/// One run of one row of a ``Comparison``.
private struct ComparisonRun: Sendable {
  let comparison: Comparison
  let row: BenchRow
  let streams: Int
  let stack: LocalStack
  let peers: Peers
  /// Nil for a row of our own.
  let service: Peers.Service?
  let title: String
  let run: BenchRun

  private var requests: Int { comparison.requests(streams: streams) }

  /// Requests before the measured ones, which warm up header tables, windows and caches.
  private var warmup: Int { min(max(2_000, comparison.connections * streams * 4), requests / 4) }

  func measure() async throws -> RunFigures {
    guard let service else { return try await own() }
    switch row {
    case .redis: return try await redis(service)
    case .webdis:
      let bench = WebdisBench(
        service: service,
        connections: comparison.connections,
        streams: streams,
        channels: comparison.channels
      )
      let report = try await load(bench.plan(requests: requests, warmup: warmup))
      run.note("checking")
      try check(try await bench.verify(report))
      try await peers.checkRedis()
      return report.figures
    default:
      var plan = LoadPlan(
        endpoint: service.endpoint,
        connections: Array(repeating: .init(work: .get(path: Peers.path)), count: comparison.connections),
        streams: streams,
        requests: requests,
        warmup: warmup
      )
      plan.processes = service.processes
      let report = try await load(plan)
      try check(report.problems)
      return report.figures
    }
  }

  private func own() async throws -> RunFigures {
    let bench = try await stack.bench(
      row,
      connections: comparison.connections,
      streams: streams,
      requests: requests,
      warmup: warmup,
      channels: comparison.channels
    )
    var plan = try await bench.prepare { registered, total in
      run.note("\(Figures.count(registered)) of \(Figures.count(total)) messages registered")
    }
    plan.processes = try await stack.measuredProcesses().named.filter { row != .storeFrames || $0.name == "store" }
    let report = try await load(plan)
    run.note("checking")
    try check(try await bench.verify(report))
    return report.figures
  }

  private func redis(_ service: Peers.Service) async throws -> RunFigures {
    let benchmark = RedisBenchmark(endpoint: service.endpoint, connections: comparison.connections, pipeline: streams)
    let directory = stack.files.directory
    run.note("finding its rate")
    let trial = try await benchmark.run(
      requests: benchmark.requests(rate: Double(requests) / 10, seconds: 1),
      server: [],
      directory: directory
    )
    let requests = benchmark.requests(rate: trial.rate, seconds: comparison.measuredSeconds)
    run.note("\(Figures.count(requests)) commands")
    let figures = try await benchmark.run(requests: requests, server: service.processes, directory: directory)
    try await peers.checkRedis()
    return figures
  }

  private func load(_ plan: LoadPlan) async throws -> LoadReport {
    var plan = plan
    plan.duration = comparison.measuredSeconds
    run.note("under load")
    return try await LoadGenerator.run(plan) { requests, seconds in
      run.note("\(Figures.count(requests)) answers in \(Figures.decimal(seconds, digits: 0)) s")
    }
  }

  private func check(_ problems: [String]) throws(LoadError) {
    guard !problems.isEmpty else { return }
    throw LoadError("\(title): wrong results:\n  " + problems.joined(separator: "\n  "))
  }
}
