internal import ArgumentParser
internal import CommandOutput
internal import CommandSupport
internal import Foundation
internal import GatewayClient
internal import LocalStack

/// Benchmark that starts the services it measures: a subcommand of `tidemark bench`, with its options, its measurement
/// and its report.
protocol Benchmark: AsyncParsableCommand, Sendable {
  associatedtype Report: Encodable & Sendable

  static var name: String { get }
  static var abstract: String { get }
  static var discussion: String { get }

  var options: BenchOptions { get }

  /// Set up, measure every round, check all responses.
  ///
  /// - Throws: ``LoadError`` for a wrong answer.
  func measure(_ run: BenchRun) async throws -> Report

  /// Format the report for people, in Markdown.
  func text(_ report: Report) -> String

  /// Return the output for `options.json` or for people; empty for none.
  func output(_ report: Report) throws -> String
}

extension Benchmark {
  static var configuration: CommandConfiguration {
    CommandConfiguration(commandName: name, abstract: abstract, discussion: discussion)
  }

  func output(_ report: Report) throws -> String {
    options.json ? try ReportDocument.line(report) : text(report) + "\n\n" + Machine.summary
  }

  func run() async throws {
    let command = "tidemark bench \(Self.name)"
    try await reportingErrors(command) {
      Machine.warnAboutDebugBuild(command)
      let executables = try options.executables()
      let progress = ProgressLine()
      let run = BenchRun(
        executables: executables,
        directory: options.newDirectory(Self.name),
        note: progress.show,
        show: {
          progress.clear()
          Terminal.print($0)
        },
        log: {
          progress.clear()
          Terminal.printError($0)
        }
      )
      let text = try await withInterrupts {
        defer { progress.clear() }
        return try output(try await measure(run))
      }
      if !text.isEmpty { Terminal.print(text) }
    }
  }
}

/// Options of every ``Benchmark``.
struct BenchOptions: ParsableArguments, Sendable {
  @Option(help: ArgumentHelp("Directory of the run's data.", valueName: "dir"))
  var directory = ".tidemark"
  @Option(help: ArgumentHelp("Directory of tidemark-store and tidemark-gateway.", valueName: "dir"))
  var programs: String?
  @Flag(help: "Print JSON with every measurement instead of the tables.")
  var json = false

  func executables() throws -> Executables {
    try programs.map { try Executables(directory: $0) } ?? Executables.besideCurrentExecutable()
  }

  /// Absolute path of ``directory``.
  var parentDirectory: String {
    directory.hasPrefix("/") ? directory : FileManager.default.currentDirectoryPath + "/" + directory
  }

  /// Return a new directory name under ``directory``.
  func newDirectory(_ name: String) -> String {
    "\(parentDirectory)/\(name)-" + String(UInt32.random(in: 0...UInt32.max), radix: 16)
  }
}

/// Environment of one run of a ``Benchmark``: programs, data directory and output.
struct BenchRun: Sendable {
  let executables: Executables
  /// Directory that does not exist yet; each phase of the run uses it, or a name that begins with it.
  let directory: String
  /// Show progress.
  let note: ProgressHandler
  /// Print a result before the end of the run.
  var show: @Sendable (String) -> Void = { _ in }
  /// Print a line to standard error.
  var log: @Sendable (String) -> Void = { _ in }

  /// Return the same run with a prefix to its progress.
  func prefixed(_ prefix: String) -> BenchRun {
    let note: ProgressHandler = { [note] in note("\(prefix): \($0)") }
    return BenchRun(executables: executables, directory: directory, note: note, show: show, log: log)
  }

  /// Start store and gateways, run `body`, stop them.
  ///
  /// - Parameters:
  ///   - suffix: appended to the directory's name.
  ///   - storeFlags: additional flags of the store.
  func withServices<Outcome: Sendable>(
    suffix: String = "",
    gateways: Int = 1,
    storeFlags: [String] = [],
    _ body: (BenchServices) async throws -> Outcome
  ) async throws -> Outcome {
    try await withStack(suffix: suffix, gateways: gateways, storeFlags: storeFlags) { stack in
      try await stack.start()
      let tokenIssuer = try await TokenIssuer(secretFile: stack.files.jwtSecret)
      return try await BenchClient.with(stack.plan.gateways[0].listen, tokenIssuer: tokenIssuer) { client in
        try await body(BenchServices(stack: stack, tokenIssuer: tokenIssuer, client: client, note: note))
      }
    }
  }

  /// Run `body`, which may start the stack, and stop it. Its data is removed after a success and kept after an error,
  /// with the logs.
  ///
  /// - Parameters:
  ///   - nodes: number of a cluster's nodes; 1: a single store.
  ///   - groups: number of its groups of shards; nil: as many as nodes.
  func withStack<Outcome: Sendable>(
    suffix: String = "",
    gateways: Int = 1,
    storeFlags: [String] = [],
    logLevel: String = "notice",
    nodes: Int = 1,
    groups: Int? = nil,
    etcdServers: Int = 1,
    _ body: (LocalStack) async throws -> Outcome
  ) async throws -> Outcome {
    let files = StackFiles(directory: directory + suffix)
    try files.prepare()
    var plan = try StackPlan.onFreePorts(usesTLS: false, logLevel: logLevel, gateways: gateways)
    plan.storeFlags = storeFlags
    if nodes > 1 {
      let first = ClusterPlan.Node(listen: plan.store, admin: plan.storeAdmin)
      let etcd = try ClusterPlan.freePairs(etcdServers).map { (client: $0.0, peer: $0.1) }
      plan.cluster = try ClusterPlan(nodes: nodes, first: first, etcd: etcd)
      plan.cluster?.groups = groups
    }
    let stack = LocalStack(plan: plan, files: files, executables: executables)
    let outcome = try await withCleanup {
      try await body(stack)
    } cleanUp: {
      await stack.stop()
    }
    files.remove()
    return outcome
  }
}

/// Running store and gateways of a bench.
struct BenchServices: Sendable {
  let stack: LocalStack
  let tokenIssuer: TokenIssuer
  /// Client of the first gateway, for set-up and checks.
  let client: BenchClient
  /// Show progress.
  let note: ProgressHandler

  /// URL of the first gateway.
  var gatewayURL: GatewayURL {
    get throws(LoadError) {
      let text = "http://\(stack.plan.gateways[0].listen)"
      guard let url = GatewayURL(text) else { throw LoadError("\(text) is not the URL of a gateway") }
      return url
    }
  }

  /// Issue a user's token, valid for the whole run.
  func token(_ user: String) async throws -> String {
    try await tokenIssuer.user(user, lifetime: BenchClient.tokenLifetime)
  }
}

/// Run `body` for 0 to `count`−1, `atOnce` at a time, roughly in order.
///
/// - Parameter progress: receives the progress with each hundredth, as in "1,000 of 5,000 channels made".
func inParallel(
  _ count: Int,
  atOnce: Int,
  progress: (note: ProgressHandler, what: String)? = nil,
  _ body: @escaping @Sendable (Int) async throws -> Void
) async throws {
  try await withThrowingTaskGroup(of: Void.self) { tasks in
    for first in 0..<min(atOnce, count) {
      tasks.addTask {
        for position in stride(from: first, to: count, by: atOnce) {
          if let progress, position % max(1, count / 100) == 0 {
            progress.note("\(Figures.count(position)) of \(Figures.count(count)) \(progress.what)")
          }
          try await body(position)
        }
      }
    }
    try await tasks.waitForAll()
  }
}

/// Run `body`, and cancel it after a time.
///
/// - Parameter what: names what it waited for in the error.
/// - Throws: ``LoadError`` after the time; else what `body` throws.
func withTimeLimit<Outcome: Sendable>(
  seconds: Int,
  waitingFor what: String,
  _ body: @escaping @Sendable () async throws -> Outcome
) async throws -> Outcome {
  try await withThrowingTaskGroup(of: Outcome.self) { tasks in
    tasks.addTask { try await body() }
    tasks.addTask {
      try await Task.sleep(for: .seconds(seconds))
      throw LoadError("timed out after \(seconds) s waiting for \(what)")
    }
    defer { tasks.cancelAll() }
    guard let outcome = try await tasks.next() else { throw CancellationError() }
    return outcome
  }
}
