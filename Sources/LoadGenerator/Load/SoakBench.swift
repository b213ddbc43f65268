internal import ArgumentParser
internal import CommandSupport
internal import GatewayClient
internal import LocalStack
internal import Operations

/// Command `tidemark bench soak`: marks at a constant rate for an hour, and what the processes use.
struct SoakBench: Benchmark {
  static let name = "soak"
  static let abstract = "Marks at a constant rate, for long: latencies, CPU time and memory by the minute."
  static let discussion = """
    Starts a store and a gateway on free loopback ports, with data in a new directory under ./.tidemark. With --nodes \
    it starts a cluster instead, with three servers of etcd: that needs Debian's etcd-server. Each minute has new \
    channels, whose messages are registered first. After it every watermark is checked. Exits with 1 if a request \
    fails or a watermark is wrong. A mark that is late counts from the time at which it was due.
    """

  private static let etcdCount = 3

  @Option(help: "Minutes.")
  var minutes = 60
  @Option(help: "Marks per second.")
  var rate = 30_000
  @Option(help: "Nodes of a cluster; 1: one store, and no cluster.")
  var nodes = 1
  @Option(help: "Connections.")
  var connections = 16
  @Option(help: "Streams on each connection.")
  var streams = 100
  @OptionGroup var options: BenchOptions

  /// Measurements of one minute.
  struct Minute: Sendable, Encodable {
    var figures: RunFigures
    /// Microseconds.
    var max: Double
    /// Peaks of resident memory in bytes: of the store or a node, of the gateway, of a server of etcd.
    var storeBytes: Int
    var gatewayBytes: Int
    var etcdBytes: Int
    /// Size of etcd's database in bytes.
    var databaseBytes: Int

    /// CPU time of all processes of a kind for a mark, in microseconds.
    func cpu(_ kind: StackProcess) -> Double {
      figures.cpu.filter { $0.process == kind.rawValue }.reduce(0) { $0 + $1.perRequest }
    }
  }

  struct Report: Sendable, Encodable {
    var rate: Int
    var minutes: [Minute] = []
  }

  func validate() throws {
    try validateRanges([
      ("minutes", minutes, 1...10_000), ("rate", rate, 1...1_000_000), ("nodes", nodes, 1...7),
      ("connections", connections, 1...99), ("streams", streams, 1...100),
    ])
  }

  func measure(_ run: BenchRun) async throws -> Report {
    try await run.withStack(logLevel: "warning", nodes: nodes, etcdServers: Self.etcdCount) { stack in
      try await stack.start()
      if nodes > 1 { try await ClusterPauseBench(stack: stack, note: run.note).waitForOwners() }
      var report = Report(rate: rate)
      for number in 1...minutes {
        let minute = try await measure(stack, run.prefixed("minute \(number) of \(minutes)"))
        report.minutes.append(minute)
        if number == 1 { run.log(table.heading) }
        run.log(table.line((number, minute)))
      }
      return report
    }
  }

  private func measure(_ stack: LocalStack, _ run: BenchRun) async throws -> Minute {
    let requests = rate * 60
    let bench = try GatewayBench(
      endpoint: stack.plan.gateways[0].listen,
      tokenIssuer: try await TokenIssuer(secretFile: stack.files.jwtSecret),
      form: .query,
      connections: connections,
      streams: streams,
      requests: requests,
      warmup: rate
    )
    var plan = try await bench.prepare { registered, total in
      run.note("\(Figures.count(registered)) of \(Figures.count(total)) messages registered")
    }
    plan.rate = Double(rate)
    let processes = await stack.runningProcesses()
    plan.processes = processes.map { ($0.kind.rawValue, $0.processID) }
    for process in processes {
      guard ProcessFigures.resetPeak(of: process.processID) else {
        throw LoadError("the peak memory of a \(process.kind.rawValue) cannot be measured")
      }
    }
    run.note("under load")
    let report = try await LoadGenerator.run(plan)
    func peak(_ kind: StackProcess) -> Int {
      processes.filter { $0.kind == kind }.compactMap { ProcessFigures.peakBytes(of: $0.processID) }.max() ?? 0
    }
    var minute = Minute(
      figures: report.figures,
      max: report.latencies.max,
      storeBytes: peak(.store),
      gatewayBytes: peak(.gateway),
      etcdBytes: peak(.etcd),
      databaseBytes: 0
    )
    for node in stack.plan.cluster?.nodes ?? [] {
      let bytes = await LocalStack.metric("tidemark_store_log_database_bytes", at: node.admin) ?? 0
      minute.databaseBytes = max(minute.databaseBytes, Int(bytes))
    }
    run.note("checking")
    let problems = try await bench.verify(report)
    guard problems.isEmpty else { throw LoadError("wrong results:\n  " + problems.joined(separator: "\n  ")) }
    return minute
  }

  // MARK: Report

  private var table: ReportTable<(number: Int, minute: Minute)> {
    let own: [ReportTable<(number: Int, minute: Minute)>.Column] = [
      .count("minute", \.number),
      .count("marks/s") { Int($0.minute.figures.rate) },
      .time("p50") { $0.minute.figures.p50 },
      .time("p99") { $0.minute.figures.p99 },
      .time("p99.9") { $0.minute.figures.p999 ?? 0 },
      .time("longest") { $0.minute.max },
      .microseconds("CPU, gateway") { $0.minute.cpu(.gateway) },
      .microseconds("CPU, store") { $0.minute.cpu(.store) },
      .mebibytes("store") { $0.minute.storeBytes },
      .mebibytes("gateway") { $0.minute.gatewayBytes },
    ]
    let cluster: [ReportTable<(number: Int, minute: Minute)>.Column] = [
      .microseconds("CPU, etcd") { $0.minute.cpu(.etcd) },
      .mebibytes("server of etcd") { $0.minute.etcdBytes },
      .mebibytes("database") { $0.minute.databaseBytes },
    ]
    return ReportTable(columns: nodes == 1 ? own : own + cluster)
  }

  func text(_ report: Report) -> String {
    let all = report.minutes
    func time(_ value: (Minute) -> Double) -> String { Figures.time(microseconds: all.median(value)) }
    func mebibytes(_ value: (Minute) -> Int) -> String {
      "\(Figures.count((all.map(value).min() ?? 0) >> 20)) to \(Figures.count((all.map(value).max() ?? 0) >> 20)) MiB"
    }
    func microseconds(_ kind: StackProcess) -> String {
      "\(Figures.decimal(all.median { $0.cpu(kind) }, digits: 2)) µs"
    }
    let cluster = nodes == 1 ? "" : ", \(nodes) nodes, \(Self.etcdCount) servers of etcd"
    let etcd = nodes == 1 ? "" : ", etcd"
    return """
      \(table.markdown(all.enumerated().map { ($0.offset + 1, $0.element) }) ?? "")

      \(all.count) min at \(Figures.count(report.rate)) marks/s, \(connections) connections\(cluster): \
      \(Figures.count(all.reduce(0) { $0 + $1.figures.requests })) marks, none failed, every watermark as expected.

      - Medians of the minutes: p50 \(time(\.figures.p50)), p99 \(time(\.figures.p99)), \
      p99.9 \(time { $0.figures.p999 ?? 0 }), longest \(time(\.max)); longest of all \
      \(Figures.time(microseconds: all.map(\.max).max() ?? 0)).
      - CPU time of a mark in gateway, store\(etcd): \(microseconds(.gateway)), \(microseconds(.store))\
      \(nodes == 1 ? "" : ", \(microseconds(.etcd))").
      - Peaks of memory by the minute: store \(mebibytes(\.storeBytes)), gateway \(mebibytes(\.gatewayBytes))\
      \(nodes == 1 ? "" : ", server of etcd \(mebibytes(\.etcdBytes)), etcd's database \(mebibytes(\.databaseBytes))").
      """
  }
}

/// Kind of a process of a stack, with its name in reports. Nodes of a cluster are stores.
enum StackProcess: String, Sendable {
  case gateway
  case store
  case etcd
}

extension LocalStack {
  /// The running processes.
  func runningProcesses() async -> [(kind: StackProcess, processID: Int32)] {
    let stores = plan.cluster == nil ? [storeProcess?.processID].compactMap { $0 } : await nodeProcessIDs
    return gatewayProcesses.map { (.gateway, $0.processID) } + stores.map { (.store, $0) }
      + (await etcdProcessIDs).map { (.etcd, $0) }
  }
}
