internal import ArgumentParser
internal import CommandSupport
internal import LocalStack

/// Command `tidemark bench feed`: what the change feed adds to a mark, and how fast one consumer reads it.
struct FeedBench: Benchmark {
  static let name = "feed"
  static let abstract = "Marks with the change feed off and on, in turn, and one consumer that reads the whole feed."
  static let discussion = """
    Starts the tidemark-store and tidemark-gateway --h2c beside this program, or those in --programs, with data in new \
    directories under ./.tidemark: in each round once without and once with --feed-retention. Makes marks through the \
    gateway and marks of the store alone, then reads all records from the beginning through one stream of the \
    partition 0/1. Checks every watermark, and that each mark has one record; exits with 1 if one is wrong or missing.
    """

  /// Rows whose marks are made: through the gateway, and by the store alone.
  static let rows: [BenchRow] = [.readQuery, .storeFrames]
  /// Timeout in seconds for a consumer to read all records.
  private static let readLimit = 900

  @Flag(help: "Run one short round, as a test with rough figures.")
  var quick = false
  @Option(help: "Rounds, in turn; the medians are printed. Default 3.")
  var rounds: Int?
  @Option(help: "Connections.")
  var connections = 16
  @Option(help: "Streams on each connection; without HTTP, requests pipelined. Default 100.")
  var streams: Int?
  @Option(help: ArgumentHelp("The measured time of each run. Default 3s.", valueName: "time"))
  var seconds: TimeSpanArgument?
  @Option(help: "Marks after which a run ends before its time. Default 1000000.")
  var requests: Int?
  @OptionGroup var options: BenchOptions

  func validate() throws {
    try validateRanges([
      ("rounds", rounds ?? 1, 1...99), ("connections", connections, 1...99), ("streams", streams ?? 1, 1...100),
      ("requests", requests ?? 1_000, 1_000...10_000_000),
    ])
    try seconds?.validate("--seconds", in: 0.1...600)
  }

  func text(_ report: FeedReport) -> String { report.markdown }

  func measure(_ run: BenchRun) async throws -> FeedReport {
    let rounds = rounds ?? (quick ? 1 : 3)
    var report = FeedReport(rounds: rounds, connections: connections, streams: streamCount)
    for round in 1...rounds {
      for isOn in [false, true] {
        let name = isOn ? "on" : "off"
        let run = run.prefixed("round \(round) of \(rounds), feed \(name)")
        try await run.withServices(suffix: "-\(round)-\(name)", storeFlags: isOn ? FeedReader.storeFlags : []) {
          services in
          var marks = 0
          for row in Self.rows {
            let load = try await mark(row, services)
            report.marks.append(FeedReport.Marks(row: row, round: round, isOn: isOn, figures: load.figures))
            for walk in load.walks { marks += walk?.acknowledged.reduce(0) { $0 + Int($1) } ?? 0 }
          }
          if isOn { report.readings.append(try await read(marks, services)) }
        }
      }
    }
    return report
  }

  private var streamCount: Int { streams ?? (quick ? 10 : 100) }

  /// Make the marks of a row, and check every watermark.
  private func mark(_ row: BenchRow, _ services: BenchServices) async throws -> LoadReport {
    let (stack, note) = (services.stack, services.note)
    let requests = requests ?? (quick ? 10_000 : 1_000_000)
    let bench = try await stack.bench(
      row,
      connections: connections,
      streams: streamCount,
      requests: requests,
      warmup: min(connections * streamCount * 4, requests / 4)
    )
    var plan = try await bench.prepare { registered, total in
      note("\(Figures.count(registered)) of \(Figures.count(total)) messages registered")
    }
    plan.duration = seconds?.seconds ?? (quick ? 0.5 : 3)
    plan.processes = try await stack.measuredProcesses().named.filter { row != .storeFrames || $0.name == "store" }
    note("under load: \(row.title)")
    let report = try await LoadGenerator.run(plan)
    note("checking")
    let problems = try await bench.verify(report)
    guard problems.isEmpty else { throw LoadError("wrong results:\n  " + problems.joined(separator: "\n  ")) }
    return report
  }

  /// Read the whole feed, which has a record of each mark.
  private func read(_ marks: Int, _ services: BenchServices) async throws -> FeedReport.Reading {
    services.note("reading the feed")
    let meter = ServiceCPUMeter(try await services.stack.measuredProcesses())
    let cpuStart = meter.start()
    let outcome = try await FeedReader(services: services).read("bench", until: ("read", marks), within: Self.readLimit)
    let cpu = try meter.seconds(since: cpuStart)
    guard outcome.expected == marks else {
      throw LoadError("the feed has \(outcome.expected) records of type read, expected \(marks)")
    }
    return FeedReport.Reading(outcome, marks: marks, cpu: cpu)
  }
}
