internal import ArgumentParser
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
  @Option(help: ArgumentHelp("The tasks file, YAML (docs/api/worker.md).", valueName: "file")) var config: String?
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
