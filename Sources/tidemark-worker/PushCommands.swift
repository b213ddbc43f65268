internal import ArgumentParser
internal import Foundation
internal import Logging
internal import NIOPosix
internal import Operations
internal import PushSandbox
internal import Worker

/// Command `tidemark-worker push`: sends the jobs of standard input.
struct PushCommand: AsyncParsableCommand {
  static let configuration = CommandConfiguration(
    commandName: "push",
    abstract: "Sends push notifications: jobs on standard input, results on standard output, as JSON lines.",
    discussion: """
      Send a job again if its last result line has not arrived. With --queue the jobs are those of POST /v1/push/jobs, \
      which any number of workers share (docs/api/push-send.md).
      """
  )

  @OptionGroup var flags: GatewayFlags
  @Option(help: ArgumentHelp("Address of the listener for /health, /ready and /metrics.", valueName: "host:port"))
  var admin: String?
  @Flag(help: "Take the jobs of POST /v1/push/jobs instead of standard input.")
  var queue = false

  func run() async throws {
    var warnings: [String] = []
    guard let task = try flags.tasks(warn: { warnings.append($0) }).push else {
      throw SettingsError("config", "has no section push: add one with a provider")
    }
    var more: [String: String] = [:]
    more["admin"] = admin
    let configuration = try await flags.configuration(more) { warnings.append($0) }
    ProcessRunner.bootstrap(logLevel: configuration.logLevel)
    let logger = Logger(label: "tidemark-worker")
    for warning in warnings { logger.warning("Check a setting", metadata: ["warning": "\(warning)"]) }
    let metrics = MetricsRegistry()
    let worker = PushWorker(
      task,
      usesQueue: queue,
      gateway: configuration.gateway,
      streams: PushStreams(),
      metrics: metrics,
      logger: logger
    )
    do {
      guard let endpoint = configuration.admin else { return try await ProcessRunner.run([worker], logger: logger) }
      let readiness = Readiness()
      readiness.set("process", nil)
      let admin = try await AdminServer.start(
        at: endpoint,
        group: MultiThreadedEventLoopGroup.singleton,
        readiness: readiness,
        metrics: metrics,
        logger: logger
      )
      // Standard output has results only.
      ProcessRunner.printError("tidemark-worker push: operations on \(admin.address)")
      try await ProcessRunner.run([admin, worker], logger: logger)
    } catch let error as PushStreams.OutputClosed {
      ProcessRunner.printError("tidemark-worker: \(error)")
      throw ExitCode(1)
    }
  }
}

/// Command `tidemark-worker sandbox`: push providers for development and tests.
struct SandboxCommand: AsyncParsableCommand {
  static let configuration = CommandConfiguration(
    commandName: "sandbox",
    abstract: "Stands in for Web Push, APNs and FCM, for development and tests.",
    discussion: """
      Writes keys, a certificate and a tasks file into a directory. Simulated devices receive the pushes and post \
      their tickets to the gateway (docs/api/push.md).
      """
  )

  @Option(help: ArgumentHelp("Address of the providers, a loopback address.", valueName: "host:port"))
  var listen = "127.0.0.1:8460"
  @Option(help: ArgumentHelp("Directory of the keys and of tasks.yaml; created if missing.", valueName: "path"))
  var directory = ".tidemark/push-sandbox"
  @Option(help: ArgumentHelp("Gateway to which devices post tickets; without it they post none.", valueName: "url"))
  var gateway: String?
  @Option(help: ArgumentHelp("CA of the gateway's certificate, PEM; the system's by default.", valueName: "file"))
  var gatewayCa: String?

  func run() async throws {
    guard let endpoint = Endpoint(listen) else {
      throw SettingsError("listen", "\"\(listen)\": give HOST:PORT, such as 127.0.0.1:8460")
    }
    guard endpoint.isLoopback else {
      throw SettingsError("listen", "\"\(listen)\": the sandbox is for this machine only; give a loopback address")
    }
    let address = try gateway.map { try GatewayAddress($0, authorityFile: gatewayCa) }
    let poster = address.map { TicketPoster(url: $0.url, tls: $0.tls) }
    ProcessRunner.bootstrap(logLevel: .info)
    let logger = Logger(label: "tidemark-worker")
    let files = SandboxFiles(directory: directory)
    let keys = try SandboxKeys.loadOrCreate(files)
    let server = try await SandboxServer.start(at: endpoint, keys: keys, poster: poster)
    try files.writeTasks(port: server.port)
    ProcessRunner.printLine("tidemark-worker sandbox on https://localhost:\(server.port), tasks in \(files.tasks)")
    try await ProcessRunner.run([server], logger: logger)
  }
}
