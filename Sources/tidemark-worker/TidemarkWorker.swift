internal import ArgumentParser
internal import FeedClient
internal import Foundation
internal import Logging
internal import NIOPosix
internal import Operations
internal import Worker

@main
struct TidemarkWorker: AsyncParsableCommand {
  static let configuration = CommandConfiguration(
    commandName: "tidemark-worker",
    abstract: "Delivers the records of Tidemark's change feed to webhooks, and sends push notifications.",
    discussion: """
      Every flag can also be given as an environment variable (--jwt-secret-file is TIDEMARK_JWT_SECRET_FILE). A flag \
      overrides the environment. Any number of workers may run with the same tasks file; they share the work.
      """,
    version: ProductVersion.line(of: "tidemark-worker"),
    subcommands: [
      RunCommand.self, DeadLettersCommand.self, ReplayCommand.self, PushCommand.self, SandboxCommand.self,
    ],
    defaultSubcommand: RunCommand.self
  )

  static func main() async {
    ProcessRunner.ignoreHangups()
    do {
      var command = try parseAsRoot()
      if var command = command as? any AsyncParsableCommand {
        try await command.run()
      } else {
        try command.run()
      }
    } catch let error as SettingsError {
      ProcessRunner.exit("tidemark-worker", error)
    } catch {
      exit(withError: error)
    }
  }
}

/// Flags of every subcommand.
struct GatewayFlags: ParsableArguments {
  @Option(help: ArgumentHelp("The tasks file, YAML (docs/worker.md).", valueName: "file")) var config: String?
  @Option(help: ArgumentHelp("Gateway, https://HOST:PORT, or http://HOST:PORT of one with --h2c.", valueName: "url"))
  var gateway: String?
  @Option(help: ArgumentHelp("CA of the gateway's certificate, PEM; the system's by default.", valueName: "file"))
  var gatewayCa: String?
  @Option(help: ArgumentHelp("File whose first line is a server token; reread when it changes.", valueName: "file"))
  var tokenFile: String?
  @Option(help: ArgumentHelp("Secret of HS256 tokens, to issue server tokens with.", valueName: "file"))
  var jwtSecretFile: String?
  @Option(help: ArgumentHelp("trace, debug, info, notice, warning, error or critical.", valueName: "level"))
  var logLevel: String?

  /// The flags that were given, by the key of their setting.
  var given: [String: String] {
    let given: [String: String?] = [
      "gateway": gateway, "gateway-ca": gatewayCa, "token-file": tokenFile, "jwt-secret-file": jwtSecretFile,
      "log-level": logLevel,
    ]
    return given.compactMapValues { $0 }
  }

  /// Return the path of the tasks file that the flag or the environment names.
  func tasksPath() throws(SettingsError) -> String {
    guard let path = config ?? ProcessInfo.processInfo.environment["TIDEMARK_CONFIG"], !path.isEmpty else {
      throw SettingsError("config", "is missing: give the path of the tasks file")
    }
    return path
  }

  /// Read the tasks file.
  func tasks(warn: (String) -> Void) throws(SettingsError) -> TasksFile {
    try TasksFile.load(try tasksPath(), warn: warn)
  }

  /// Read the other settings.
  func configuration(
    _ more: [String: String] = [:],
    warn: (String) -> Void
  ) async throws(SettingsError) -> WorkerConfiguration {
    var environment = ProcessInfo.processInfo.environment
    // It names the tasks file, not a file of settings.
    environment["TIDEMARK_CONFIG"] = nil
    environment["TIDEMARK_HEALTH_CHECK"] = nil
    let settings = try await Settings(
      flags: given.merging(more) { $1 },
      keys: WorkerConfiguration.keys,
      environment: environment
    )
    return try await WorkerConfiguration(settings, warn: warn)
  }
}

/// Command `tidemark-worker`: delivers until interrupted.
struct RunCommand: AsyncParsableCommand {
  static let configuration = CommandConfiguration(
    commandName: "run",
    abstract: "Delivers until interrupted; the default."
  )

  @OptionGroup var flags: GatewayFlags
  @Option(help: ArgumentHelp("Address of the listener for /health, /ready and /metrics.", valueName: "host:port"))
  var admin: String?
  @Option(help: ArgumentHelp("Name among the workers; by default the host's with a random part.", valueName: "id"))
  var name: String?
  @Flag(help: "Check the tasks file and the files that it names, as `tidemark config check`, and exit.")
  var check = false
  @Option(
    help: ArgumentHelp(
      "Query the health URL of a running worker, such as http://127.0.0.1:9090/ready, and exit.",
      valueName: "url"
    )
  )
  var healthCheck: String?

  func run() async throws {
    if let url = HealthCheck.url(flag: healthCheck) {
      let (exitCode, line) = await HealthCheck.run(url)
      ProcessRunner.printLine(line)
      throw ExitCode(exitCode)
    }
    if check { return try Self.check(try flags.tasksPath()) }
    var warnings: [String] = []
    let tasks = try flags.tasks { warnings.append($0) }
    guard !tasks.webhooks.isEmpty else {
      throw SettingsError("config", "has no webhooks: add some, or run `tidemark-worker push`")
    }
    var more: [String: String] = [:]
    more["admin"] = admin
    more["name"] = name
    let configuration = try await flags.configuration(more) { warnings.append($0) }
    ProcessRunner.bootstrap(logLevel: configuration.logLevel)
    let logger = Logger(label: "tidemark-worker")
    for warning in warnings { logger.warning("Check a setting", metadata: ["warning": "\(warning)"]) }
    let metrics = MetricsRegistry()
    let readiness = Readiness()
    let worker = Worker(
      tasks,
      gateway: configuration.gateway,
      name: configuration.name,
      readiness: readiness,
      metrics: metrics,
      logger: logger
    )
    var line = "tidemark-worker \(configuration.name) delivers to \(tasks.webhooks.map(\.name).joined(separator: ", "))"
    guard let endpoint = configuration.admin else {
      ProcessRunner.printLine(line)
      return try await ProcessRunner.run([worker], logger: logger)
    }
    let admin = try await AdminServer.start(
      at: endpoint,
      group: MultiThreadedEventLoopGroup.singleton,
      readiness: readiness,
      metrics: metrics,
      logger: logger
    )
    line += ", operations on \(admin.address)"
    ProcessRunner.printLine(line)
    try await ProcessRunner.run([admin, worker], logger: logger)
  }

  /// Check a tasks file, and print what it has, or a line for each fault.
  private static func check(_ path: String) throws {
    switch TasksFile.check(path, warn: { ProcessRunner.printError("tidemark-worker: \($0)") }) {
    case .success(let tasks): ProcessRunner.printLine("\(path): ok, \(tasks.summary)")
    case .failure(let faults):
      for fault in faults.all { ProcessRunner.printError("tidemark-worker: \(fault)") }
      throw ExitCode(SettingsError.exitCode)
    }
  }
}

/// Command `tidemark-worker dead-letters`.
struct DeadLettersCommand: AsyncParsableCommand {
  static let configuration = CommandConfiguration(
    commandName: "dead-letters",
    abstract: "Lists the batches that could not be delivered in time."
  )

  @OptionGroup var flags: GatewayFlags
  @Option(help: ArgumentHelp("Only this webhook.", valueName: "name")) var webhook: String?
  @Flag(help: "Print a JSON array.") var json = false

  func run() async throws {
    let tasks = try flags.tasks { _ in }
    let gateway = try await flags.configuration { _ in }.gateway
    let names = tasks.webhooks.map(\.name).filter { webhook == nil || webhook == $0 }
    guard !names.isEmpty else {
      throw SettingsError("webhook", "\"\(webhook ?? "")\" is not in the tasks file")
    }
    do {
      var letters: [PlacedDeadLetter] = []
      for name in names { letters += try await DeadLetterReplay.list(gateway, webhook: name) }
      let text = json ? DeadLetterTable.json(letters) : DeadLetterTable.text(letters)
      for line in text.split(separator: "\n") { ProcessRunner.printLine(String(line)) }
    } catch let error as GatewayError {
      ProcessRunner.printError("tidemark-worker: \(error)")
      throw ExitCode(1)
    }
  }
}

/// Command `tidemark-worker replay`.
struct ReplayCommand: AsyncParsableCommand {
  static let configuration = CommandConfiguration(
    commandName: "replay",
    abstract: "Delivers dead letters once more, and removes those that are delivered.",
    discussion: "Workers may run meanwhile. Exits with 1 if a dead letter stays."
  )

  @OptionGroup var flags: GatewayFlags
  @Option(help: ArgumentHelp("Webhook of the dead letters.", valueName: "name")) var webhook: String
  @Option(help: ArgumentHelp("A dead letter, as `dead-letters` lists it.", valueName: "id")) var id: String?
  @Flag(help: "All of the webhook's, oldest first.") var all = false

  func validate() throws {
    guard (id != nil) != all else { throw ValidationError("give either --id or --all") }
  }

  func run() async throws {
    let tasks = try flags.tasks { _ in }
    let gateway = try await flags.configuration { _ in }.gateway
    guard let task = tasks.webhooks.first(where: { $0.name == webhook }) else {
      throw SettingsError("webhook", "\"\(webhook)\" is not in the tasks file")
    }
    var remaining = 0
    do {
      let letters = try await DeadLetterReplay.list(gateway, webhook: webhook).filter { all || $0.id == id }
      guard !letters.isEmpty || all else {
        throw SettingsError("id", "\"\(id ?? "")\" is no dead letter of \(webhook); `dead-letters` lists them")
      }
      let replay = DeadLetterReplay(gateway: gateway, task: task)
      for placed in letters where await !Self.replay(placed, replay) { remaining += 1 }
      await replay.close()
    } catch let error as GatewayError {
      ProcessRunner.printError("tidemark-worker: \(error)")
      throw ExitCode(1)
    }
    if remaining > 0 { throw ExitCode(1) }
  }

  /// Deliver one dead letter, and print what came of it.
  ///
  /// - Returns: whether it was delivered whole and removed.
  private static func replay(_ placed: PlacedDeadLetter, _ replay: DeadLetterReplay) async -> Bool {
    do {
      switch try await replay.replay(placed) {
      case .delivered(let records):
        ProcessRunner.printLine("\(placed.id): delivered \(records) records")
        return true
      case .incomplete(let records):
        ProcessRunner.printLine(
          "\(placed.id): delivered \(records) records; others are no longer in the feed, so the dead letter stays"
        )
      case .failed(let problem): ProcessRunner.printLine("\(placed.id): not delivered: \(problem)")
      }
    } catch {
      ProcessRunner.printLine("\(placed.id): \(error)")
    }
    return false
  }
}
