package import ArgumentParser
internal import CommandOutput
internal import CommandSupport
internal import GatewayClient
internal import Operations
internal import TLSSession

/// Command `tidemark bench`.
package struct BenchCommand: AsyncParsableCommand {
  package static let configuration = CommandConfiguration(
    commandName: "bench",
    abstract: "Load-tests an HTTP/2 server.",
    subcommands: [
      LoadCommand.self, Comparison.self, RecoveryBench.self, MemoryBench.self, ChannelBench.self,
      UserBench.self, EventBench.self, PushBench.self, FeedBench.self, ReminderBench.self, ImportBench.self,
      ClusterBench.self, SoakBench.self,
    ],
    defaultSubcommand: LoadCommand.self
  )

  package init() {}
}

/// Command `tidemark bench [load]`: one run.
struct LoadCommand: AsyncParsableCommand {
  static let configuration = CommandConfiguration(
    commandName: "load",
    abstract: "One run: GETs of a URL, or marks, registrations or queries against a Tidemark gateway.",
    discussion: """
      With --gateway, the command first creates its own channels, members and messages. Afterwards it checks every \
      watermark and count, and some answers field by field. It exits with 1 if one is wrong or if a request failed. \
      Rows: read-query and read-body (each mark moves a watermark), register (each message is new), read-state-16 and \
      read-state-100 (by members), status. The row store-frames pipelines mark_read frames to the store itself \
      (--store); the gateway only creates the channels.
      """
  )

  @Option(
    help: ArgumentHelp("URL to GET repeatedly: http (h2c with prior knowledge) or https.", valueName: "url"),
    transform: parsing("http://HOST[:PORT][/PATH], or https", HTTPURL.init)
  )
  var url: HTTPURL?
  @Option(help: ArgumentHelp("Certificates to trust for https, instead of the system's.", valueName: "file"))
  var ca: String?
  @Option(
    help: ArgumentHelp("A gateway to send requests to.", valueName: "http://host:port"),
    transform: parsing("http://HOST:PORT") { text in HTTPURL(text).flatMap { $0.usesTLS ? nil : $0 } }
  )
  var gateway: HTTPURL?
  @Option(help: ArgumentHelp("The gateway's secret for tokens.", valueName: "file"))
  var jwtSecretFile: String?
  @Option(help: ArgumentHelp("Kind of requests; see above.", valueName: "row"))
  var row: BenchRow = .readQuery
  @Option(
    help: ArgumentHelp("With store-frames: the store.", valueName: "host:port"),
    transform: parsing("HOST:PORT") { Endpoint($0) }
  )
  var store: Endpoint?
  @Option(help: ArgumentHelp("With store-frames: the secret that store and gateway share.", valueName: "file"))
  var secretFile: String?
  @OptionGroup var storeTLS: StoreTLSOptions
  @Option(help: "Minimum number of channels that the requests cycle through.")
  var channels = 200
  @Option(help: "Connections; with --gateway, each has its own user.")
  var connections = 16
  @Option(help: "Requests in flight on each connection.")
  var streams = 100
  @Option(help: "Event loops of the generator.")
  var loops = 1
  @Option(help: "Answers to measure, of all connections together. Default 1000000, without limit with --duration.")
  var requests: Int?
  @Option(help: "Answers before the measured ones. Default: 10 for each stream of each connection.")
  var warmup: Int?
  @Option(help: ArgumentHelp("Stop sending requests after this measured time: 10s, 1m.", valueName: "time"))
  var duration: TimeSpanArgument?
  @Option(help: ArgumentHelp("Process whose CPU time per request is reported as the gateway's.", valueName: "pid"))
  var gatewayPid: Int32?
  @Option(help: ArgumentHelp("Process whose CPU time per request is reported as the store's.", valueName: "pid"))
  var storePid: Int32?
  @Flag(help: "Print one JSON document instead of the table.")
  var json = false

  func validate() throws {
    guard (url == nil) != (gateway == nil) else { throw ValidationError("give either --url or --gateway") }
    if gateway != nil {
      guard jwtSecretFile != nil else { throw ValidationError("--gateway needs --jwt-secret-file") }
      guard row.isOwn else {
        throw ValidationError("--row \(row.rawValue) needs no gateway: use tidemark bench compare")
      }
      guard (row == .storeFrames) == (store != nil) else {
        throw ValidationError("--row store-frames and --store go together")
      }
    }
    try validateRanges([
      ("connections", connections, 1...10_000), ("streams", streams, 1...1_000), ("loops", loops, 1...64),
      ("channels", channels, 1...10_000), ("requests", requests ?? 1, 1...LoadPlan.requestsMax),
      ("warmup", warmup ?? 0, 0...100_000_000),
    ])
    try duration?.validate("--duration", in: 0.001...86_400)
  }

  func run() async throws {
    try await reportingErrors("tidemark bench") {
      Machine.warnAboutDebugBuild("tidemark bench")
      let isGood = try await withInterrupts {
        let progress = ProgressLine()
        defer { progress.clear() }
        if let url { return try await get(url, progress) }
        guard let gateway, let jwtSecretFile, let form = row.form else { throw ExitCode.validationFailure }
        return try await requestRow(form, of: gateway, secretFile: jwtSecretFile, progress)
      }
      if !isGood { throw ExitCode(1) }
    }
  }

  private var warmupCount: Int { warmup ?? connections * streams * 10 }

  private func get(_ target: HTTPURL, _ progress: ProgressLine) async throws -> Bool {
    var plan = LoadPlan(
      endpoint: target.endpoint,
      connections: Array(repeating: .init(work: .get(path: target.path)), count: connections),
      streams: streams,
      requests: requests ?? (duration == nil ? 1_000_000 : LoadPlan.requestsMax),
      warmup: warmupCount
    )
    if target.usesTLS { plan.tls = try TLSContext(client: TLSClientConfiguration(authorityFile: ca)) }
    let report = try await load(plan, progress)
    return try show(report, "GET \(target)", report.problems)
  }

  private func requestRow(
    _ form: RequestForm,
    of gateway: HTTPURL,
    secretFile jwtSecretFile: String,
    _ progress: ProgressLine
  ) async throws -> Bool {
    let tokenIssuer = try await TokenIssuer(secretFile: jwtSecretFile, warn: Terminal.printError)
    let secrets = try secretFile.map {
      [try SecretFile.load($0, key: "secret-file", warn: Terminal.printError).current]
    }
    let bench = try GatewayBench(
      endpoint: gateway.endpoint,
      store: store.map { ($0, secrets ?? []) },
      tokenIssuer: tokenIssuer,
      form: form,
      connections: connections,
      streams: streams,
      requests: requests ?? 1_000_000,
      warmup: warmupCount,
      channels: channels
    )
    Terminal.printError("setting up: \(bench.summary)")
    var plan = try await bench.prepare { registered, total in
      progress.show("\(Figures.count(registered)) of \(Figures.count(total)) messages registered")
    }
    plan.storeTLS = try storeTLS.tls
    let report = try await load(plan, progress)
    progress.show("checking")
    let problems = try await bench.verify(report)
    progress.clear()
    return try show(report, "\(row.title) (\(row.rawValue)) through \(store.map { "\($0)" } ?? "\(gateway)")", problems)
  }

  private func load(_ plan: LoadPlan, _ progress: ProgressLine) async throws -> LoadReport {
    var plan = plan
    plan.loops = loops
    plan.duration = duration?.seconds
    plan.processes = [("gateway", gatewayPid), ("store", storePid)].compactMap { name, id in id.map { (name, $0) } }
    let report = try await LoadGenerator.run(plan) { requests, seconds in
      let rate = Figures.count(Int(Double(requests) / seconds))
      progress.show("\(Figures.count(requests)) answers, \(rate)/s")
    }
    progress.clear()
    return report
  }

  private func show(_ report: LoadReport, _ what: String, _ problems: [String]) throws -> Bool {
    if json {
      Terminal.print(try report.json(title: what, problems: problems))
    } else {
      Terminal.print(report.text(title: what))
    }
    for problem in problems { Terminal.printError("tidemark bench: \(problem)") }
    return problems.isEmpty
  }
}
