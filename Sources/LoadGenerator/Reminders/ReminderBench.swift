internal import ArgumentParser
internal import CommandSupport
internal import Foundation
internal import LocalStack

/// Command `tidemark bench reminders`: what pending reminders cost a store, and how soon it tells those that are due at
/// the same time.
struct ReminderBench: Benchmark {
  static let name = "reminders"
  static let abstract = "Memory, disk and start-up time of pending reminders, and the time to tell all of them at once."
  static let discussion = """
    Starts the tidemark-store --feed-retention and tidemark-gateway --h2c beside this program, or those in --programs, \
    twice in each round, with data in new directories under ./.tidemark: with messages without reminders, then with a \
    reminder of each message. Restarts the store once its pages are written. All reminders are due in the same second, \
    which is late enough for the set-up; before it all channels are loaded. Then reads the records of all reminders \
    from the feed, and exits with 1 if one is missing or comes twice.
    """

  @Flag(help: "Run one round with few reminders, as a test with rough figures.")
  var quick = false
  @Option(help: "Reminders, one of each message. Default 1000000.")
  var count: Int?
  @Option(help: "Channels. Default 10000.")
  var channels: Int?
  @Option(help: "Rounds; the medians are printed. Default 3.")
  var rounds: Int?
  @OptionGroup var options: BenchOptions

  /// Store at rest, after a restart.
  struct AtRest: Sendable, Encodable {
    /// Resident memory of the process once it was ready.
    var residentBytes: Int
    /// Size of the data directory while the store was stopped.
    var diskBytes: Int
    /// Time from the start until the store was ready.
    var readySeconds: Double
  }

  struct Round: Sendable, Encodable {
    var reminders: Int
    var channels: Int
    var without: AtRest
    var with: AtRest
    /// Time from the beginning of the second in which all were due until the last one was told.
    var toldSeconds: Double
    /// Time in which a consumer has read their records afterwards.
    var readSeconds: Double
  }

  /// A shard writes its head page with its other pages, and that page may then be dirty again.
  private static let dirtyPagesMax = 32
  /// Time in seconds that the second set-up may take longer than twice the first one.
  private static let marginSeconds = 10
  /// Timeouts in seconds.
  private static let idleLimit = 1_800
  private static let startLimit = 600
  private static let metricLimit = 30
  private static let toldLimit = 600
  private static let readLimit = 900

  private static let pendingMetric = "tidemark_store_timers"

  func validate() throws {
    try validateRanges([
      ("count", count ?? 1, 1...50_000_000), ("channels", channels ?? 1, 1...1_000_000),
      ("rounds", rounds ?? 1, 1...100),
    ])
  }

  func text(_ report: [Round]) -> String {
    func bytes(_ rounds: [Round], _ value: (Round) -> Int) -> Int { Int(rounds.median { Double(value($0)) }) }
    let columns: [ReportTable<[Round]>.Column] = [
      .count("reminders") { $0[0].reminders }, .count("channels") { $0[0].channels },
      .mebibytes("memory without") { bytes($0, \.without.residentBytes) },
      .mebibytes("with") { bytes($0, \.with.residentBytes) },
      .mebibytes("disk without") { bytes($0, \.without.diskBytes) }, .mebibytes("with") { bytes($0, \.with.diskBytes) },
      .seconds("ready without") { $0.median(\.without.readySeconds) },
      .seconds("with") { $0.median(\.with.readySeconds) },
      .seconds("all told after") { $0.median(\.toldSeconds) },
      .count("told/s") { rounds in Int(rounds.median { Double($0.reminders) / max($0.toldSeconds, 0.001) }) },
      .seconds("read in") { $0.median(\.readSeconds) },
    ]
    return """
      Medians of \(report.count) rounds. Memory, disk and the time to become ready are of a restart; all reminders are \
      due in one second, with their channels in memory.

      \(ReportTable(columns: columns).markdown(report.isEmpty ? [] : [report]) ?? "")
      """
  }

  func measure(_ run: BenchRun) async throws -> [Round] {
    var report: [Round] = []
    let rounds = rounds ?? (quick ? 1 : 3)
    for round in 1...rounds {
      report.append(try await measureRound(run.prefixed("round \(round) of \(rounds)"), suffix: "-\(round)"))
    }
    return report
  }

  private func measureRound(_ run: BenchRun, suffix: String) async throws -> Round {
    let start = MonotonicClock.now
    let without = try await run.withServices(suffix: suffix + "-without", storeFlags: FeedReader.storeFlags) {
      services in
      let dataset = dataset(services)
      try await dataset.make(dueAt: nil)
      let atRest = try await restart(services)
      try await dataset.load()
      return atRest
    }
    // The second set-up takes about as long as the first.
    let allowance = Int(2 * MonotonicClock.seconds(since: start)) + Self.marginSeconds
    return try await run.withServices(suffix: suffix + "-with", storeFlags: FeedReader.storeFlags) { services in
      try await measureReminders(services, without: without, allowance: allowance)
    }
  }

  private func dataset(_ services: BenchServices) -> ReminderDataset {
    ReminderDataset(
      services: services,
      channels: channels ?? (quick ? 20 : 10_000),
      count: count ?? (quick ? 2_000 : 1_000_000)
    )
  }

  private func measureReminders(_ services: BenchServices, without: AtRest, allowance: Int) async throws -> Round {
    let (stack, dataset) = (services.stack, dataset(services))
    let due = Int(Date().timeIntervalSince1970) + allowance
    try await dataset.make(dueAt: due)
    let atRest = try await restart(services)
    try await dataset.load()
    try await stack.wait(
      untilMetric: Self.pendingMetric,
      is: dataset.count,
      within: Self.metricLimit,
      for: "all reminders to be pending",
      services.note
    )
    let remaining = Double(due) - Date().timeIntervalSince1970
    guard remaining > 0 else { throw LoadError("reminders were due before the store was restarted") }
    services.note("waiting \(Int(remaining)) s until the reminders are due")
    try await Task.sleep(for: .seconds(remaining))
    let told = try await stack.wait(
      untilMetric: Self.pendingMetric,
      is: 0,
      within: Self.toldLimit,
      for: "all reminders to be told",
      services.note
    )
    services.note("reading their records")
    let type = "reminder.due"
    let outcome = try await FeedReader(services: services).read(
      "bench",
      filter: #","types":["\#(type)"]"#,
      until: (type, dataset.count),
      within: Self.readLimit
    )
    guard outcome.records == dataset.count else {
      throw LoadError("the feed has \(outcome.records) records of reminders, expected \(dataset.count)")
    }
    return Round(
      reminders: dataset.count,
      channels: dataset.channels,
      without: without,
      with: atRest,
      toldSeconds: told,
      readSeconds: outcome.seconds
    )
  }

  /// Restart the store once it is idle, and measure it.
  private func restart(_ services: BenchServices) async throws -> AtRest {
    let stack = services.stack
    try await stack.waitUntilIdle(dirtyPagesMax: Self.dirtyPagesMax, within: Self.idleLimit, services.note)
    services.note("restarting the store")
    await stack.stopStore()
    let diskBytes = ProcessFigures.fileBytes(in: stack.files.data)
    let start = MonotonicClock.now
    try await stack.startStore(within: .seconds(Self.startLimit))
    let readySeconds = MonotonicClock.seconds(since: start)
    let processes = try await stack.measuredProcesses()
    guard let residentBytes = ProcessFigures.residentBytes(of: processes.store) else {
      throw LoadError("the store has exited")
    }
    try await stack.waitUntilGatewaysAreReady()
    return AtRest(residentBytes: residentBytes, diskBytes: diskBytes, readySeconds: readySeconds)
  }
}
