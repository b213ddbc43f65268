internal import ArgumentParser
internal import CommandSupport
internal import LocalStack
internal import Operations

/// Command `tidemark bench cluster`: a cluster beside a single store, and what a lost node costs.
struct ClusterBench: Benchmark {
  static let name = "cluster"
  static let abstract =
    "Requests to a cluster beside a single store, in turn, and the pauses when nodes end and return."
  static let discussion = """
    Starts a store with a gateway, and a cluster with one: three servers of etcd and the nodes, all on free loopback \
    ports, with data in new directories under ./.tidemark. Needs Debian's etcd-server. After the rows it kills and \
    stops nodes while a client makes one request after the other, and prints the longest request of each time. Exits \
    with 1 if a request fails or an answer is wrong.
    """

  /// Rows of the table.
  static let rows: [BenchRow] = [.readQuery, .status, .storeFrames]
  private static let etcdCount = 3

  @Option(help: "Rounds, in turn; the medians are printed.")
  var rounds = 3
  @Option(help: "Nodes of the cluster.")
  var nodes = 3
  @Option(
    help: ArgumentHelp(
      "Groups of shards. With one, a node owns all shards and the others are standbys.",
      discussion: "Default: as many as nodes. With fewer no node is ended."
    )
  )
  var groups: Int?
  @Option(help: "Connections.")
  var connections = 16
  @Option(parsing: .upToNextOption, help: "Streams on each connection.")
  var streams = [CommaList([1, 10, 100])]
  @Option(help: ArgumentHelp("The measured time of each run.", valueName: "time"))
  var seconds = TimeSpanArgument(seconds: 3)
  @Option(help: "Answers after which a run ends before its time.")
  var requests = 200_000
  @Option(help: "How many times an owner is killed, and how many times one is stopped.")
  var ends = 5
  @OptionGroup var options: BenchOptions

  /// One run of one row.
  struct Measurement: Sendable, Encodable {
    var row: BenchRow
    var streams: Int
    var round: Int
    var isCluster: Bool
    var figures: RunFigures
    /// Of a cluster: when the followers had applied a commit; nil where they followed nothing.
    var followAge: FollowAge?
  }

  struct Report: Sendable, Encodable {
    var measurements: [Measurement] = []
    var pauses = ClusterPauses()
  }

  func validate() throws {
    try validateRanges([
      ("rounds", rounds, 1...99), ("nodes", nodes, 2...7), ("connections", connections, 1...99),
      ("groups", groups ?? nodes, 1...max(nodes, 1)), ("requests", requests, 1_000...100_000_000),
      ("ends", ends, 0...1_000),
    ])
    guard streams.joined().allSatisfy({ (1...100).contains($0) }) else {
      throw ValidationError("--streams: give 1 to 100")
    }
    try seconds.validate("--seconds", in: 0.1...600)
  }

  func measure(_ run: BenchRun) async throws -> Report {
    var report = Report()
    try await run.withStack(logLevel: "warning") { single in
      try await single.start()
      try await run.withStack(
        suffix: "-nodes",
        logLevel: "warning",
        nodes: nodes,
        groups: groups,
        etcdServers: Self.etcdCount
      ) { cluster in
        try await cluster.start()
        report = try await measure(run, single: single, cluster: cluster)
      }
    }
    return report
  }

  private func measure(_ run: BenchRun, single: LocalStack, cluster: LocalStack) async throws -> Report {
    var report = Report()
    let pauses = ClusterPauseBench(stack: cluster, note: run.note)
    try await pauses.waitForOwners()
    let count = rounds * streams.joined().count * Self.rows.count * 2
    for round in 1...rounds {
      for streams in streams.joined() {
        for row in Self.rows {
          for (isCluster, stack) in [(false, single), (true, cluster)] {
            let title = "run \(report.measurements.count + 1) of \(count), \(isCluster ? "cluster" : "one store")"
            let (figures, followAge) = try await measure(row, streams, stack, run.prefixed(title))
            let measurement = Measurement(
              row: row,
              streams: streams,
              round: round,
              isCluster: isCluster,
              figures: figures,
              followAge: followAge
            )
            run.log("\(title), \(streams) streams, \(row.title): \(Figures.count(Int(figures.rate)))/s")
            report.measurements.append(measurement)
          }
        }
      }
    }
    if groups ?? nodes == nodes { report.pauses = try await pauses.measure(ends: ends) }
    return report
  }

  private func measure(
    _ row: BenchRow,
    _ streams: Int,
    _ stack: LocalStack,
    _ run: BenchRun
  ) async throws -> (RunFigures, FollowAge?) {
    let bench = try await stack.bench(
      row,
      connections: connections,
      streams: streams,
      requests: requests,
      warmup: min(connections * streams * 4, requests / 4)
    )
    var plan = try await bench.prepare { registered, total in
      run.note("\(Figures.count(registered)) of \(Figures.count(total)) messages registered")
    }
    plan.duration = seconds.seconds
    plan.processes = await stack.namedProcesses().filter { row != .storeFrames || $0.name != "gateway" }
    run.note("under load")
    let before = await stack.followAges()
    let report = try await LoadGenerator.run(plan) { _, _ in }
    let followAge = FollowAge(before: before, after: await stack.followAges())
    run.note("checking")
    let problems = try await bench.verify(report)
    guard problems.isEmpty else { throw LoadError("wrong results:\n  " + problems.joined(separator: "\n  ")) }
    return (report.figures, followAge)
  }

  // MARK: Report

  func text(_ report: Report) -> String {
    let table = ClusterTable(report.measurements)
    return """
      Medians of \(rounds) rounds, \(connections) connections, \(nodes) nodes, \(groups ?? nodes) groups, \
      \(Self.etcdCount) servers of etcd. "Followed" is the time until the followers had applied a commit: at most this \
      for half, and for 99 of 100.

      \(table.markdown)

      \(report.pauses.text)
      """
  }
}

extension LocalStack {
  /// The measured processes of a stack with their names in reports. Nodes that own no group are standbys.
  fileprivate func namedProcesses() async -> [(name: String, processID: Int32)] {
    var named: [(name: String, processID: Int32)] = []
    var nodes = (plan.cluster?.nodes ?? []).makeIterator()
    for process in await runningProcesses() {
      var name = process.kind.rawValue
      if process.kind == .store, let node = nodes.next() {
        let owned = await Self.metric("tidemark_store_owned_groups", at: node.admin)
        if owned == 0 { name = "standby" }
      }
      named.append((name, process.processID))
    }
    return named
  }
}

/// How old commits were when followers had applied them, in seconds: upper bounds of the metric's buckets.
struct FollowAge: Sendable, Encodable {
  var p50: Double
  var p99: Double

  /// Nil without new values.
  ///
  /// - Parameters:
  ///   - before: the number of commits that were at most so old, by age.
  init?(before: [Double: Double], after: [Double: Double]) {
    let counts = after.map { (age: $0.key, count: $0.value - before[$0.key, default: 0]) }.sorted { $0.age < $1.age }
    guard let total = counts.last?.count, total > 0 else { return nil }
    func percentile(_ part: Double) -> Double { counts.first { $0.count >= part * total }?.age ?? .infinity }
    p50 = percentile(0.5)
    p99 = percentile(0.99)
  }

  var text: String {
    [p50, p99].map { "\(Figures.decimal($0 * 1_000, digits: $0 < 0.001 ? 2 : 0)) ms" }.joined(separator: ", ")
  }
}

extension [FollowAge] {
  /// The age with the median p99.
  fileprivate var median: FollowAge? {
    guard !isEmpty else { return nil }
    return sorted { $0.p99 < $1.p99 }[count / 2]
  }
}

extension LocalStack {
  /// The number of commits that followers have applied at most so many seconds after they were made, of all nodes.
  fileprivate func followAges() async -> [Double: Double] {
    var ages: [Double: Double] = [:]
    for node in plan.cluster?.nodes ?? [] {
      ages.merge(await Self.buckets("tidemark_store_follow_age_seconds", at: node.admin), uniquingKeysWith: +)
    }
    return ages
  }
}

/// The table of a ``ClusterBench``: a line for each row and number of streams.
private struct ClusterTable {
  private struct Line {
    var title: String
    var streams: Int
    var single: [RunFigures]
    var cluster: [RunFigures]
    var followAges: [FollowAge]

    /// CPU time of all processes of a name for a request.
    func cpu(_ runs: [RunFigures], _ name: String) -> Double {
      runs.median { $0.cpu.filter { $0.process == name }.reduce(0) { $0 + $1.perRequest } }
    }
  }

  let markdown: String

  init(_ measurements: [ClusterBench.Measurement]) {
    var lines: [Line] = []
    for row in ClusterBench.rows {
      for streams in Set(measurements.map(\.streams)).sorted() {
        let own = measurements.filter { $0.row == row && $0.streams == streams }
        lines.append(
          Line(
            title: row.title,
            streams: streams,
            single: own.filter { !$0.isCluster }.map(\.figures),
            cluster: own.filter(\.isCluster).map(\.figures),
            followAges: own.compactMap(\.followAge)
          )
        )
      }
    }
    let table = ReportTable<Line>(columns: [
      .text("row", \.title), .count("streams", \.streams),
      .number("one store") { line in Figures.count(Int(line.single.median(\.rate))) + "/s" },
      .number("cluster") { line in Figures.count(Int(line.cluster.median(\.rate))) + "/s" },
      .number("ratio") { line in
        Figures.decimal(line.cluster.median(\.rate) / line.single.median(\.rate), digits: 2)
      },
      .time("p50, one store") { line in line.single.median(\.p50) },
      .time("p50, cluster") { line in line.cluster.median(\.p50) },
      .time("p99, cluster") { line in line.cluster.median(\.p99) },
      .microseconds("CPU, store") { line in line.cpu(line.single, "store") },
      .microseconds("CPU, nodes") { line in line.cpu(line.cluster, "store") },
      .microseconds("CPU, standbys") { line in line.cpu(line.cluster, "standby") },
      .microseconds("CPU, etcd") { line in line.cpu(line.cluster, "etcd") },
      .number("followed") { line in line.followAges.median?.text ?? "" },
    ])
    markdown = table.markdown(lines) ?? ""
  }
}
