internal import ArgumentParser
internal import Foundation
internal import Gateway
internal import Logging
internal import NIOCore
internal import NIOPosix
internal import Operations

@main
struct TidemarkGateway: AsyncParsableCommand {
  static let configuration = CommandConfiguration(
    commandName: "tidemark-gateway",
    abstract: "Serves Tidemark's HTTP/2 API in front of a store.",
    discussion: """
      Every flag can also be given as an environment variable (--jwt-secret-file is TIDEMARK_JWT_SECRET_FILE) and as a \
      key of the --config file. A flag overrides the environment, which overrides the file.

      The gateway reloads files of certificates, secrets, keys and hooks, and limits in the --config file, on SIGHUP \
      and when they change (docs/operate/operations.md, "Reloading").
      """,
    version: ProductVersion.line(of: "tidemark-gateway")
  )

  @Option(help: ArgumentHelp("Address of the HTTP/2 listener.", valueName: "host:port")) var listen: String?
  @Option(help: ArgumentHelp("Certificate chain, PEM.", valueName: "file")) var tlsCert: String?
  @Option(help: ArgumentHelp("Private key of --tls-cert, PEM.", valueName: "file")) var tlsKey: String?
  @Flag(help: "Serve HTTP/2 without TLS, with prior knowledge, behind a load balancer.") var h2c = false
  @Option(parsing: .upToNextOption, help: ArgumentHelp("Addresses of the store.", valueName: "host:port"))
  var store: [String] = []
  @Option(
    help: ArgumentHelp("CA for TLS to the store; its certificate must be issued by this CA, PEM.", valueName: "file")
  )
  var tlsCa: String?
  @Option(help: ArgumentHelp("Client certificate for the store, PEM; --tls-cert by default.", valueName: "file"))
  var storeTlsCert: String?
  @Option(help: ArgumentHelp("Private key of --store-tls-cert, PEM.", valueName: "file")) var storeTlsKey: String?
  @Option(help: ArgumentHelp("Secret that store and gateway share, at least 16 bytes.", valueName: "file"))
  var secretFile: String?
  @Option(help: ArgumentHelp("Secret of HS256 tokens, at least 32 bytes.", valueName: "file"))
  var jwtSecretFile: String?
  @Option(
    help: ArgumentHelp("Public keys of RS256, PS256, ES256 and EdDSA tokens, a JSON Web Key Set.", valueName: "file")
  )
  var jwksFile: String?
  @Option(
    parsing: .upToNextOption,
    help: ArgumentHelp("Issuers (iss) whose tokens are accepted; all by default.", valueName: "issuer")
  )
  var jwtIssuer: [String] = []
  @Option(
    parsing: .upToNextOption,
    help: ArgumentHelp("Audiences (aud), one of which a token must name; any by default.", valueName: "audience")
  )
  var jwtAudience: [String] = []
  @Option(help: ArgumentHelp("Maximum age of a token since its iat, such as 12h or 30d.", valueName: "time"))
  var jwtMaxAge: String?
  @Flag(help: "Accept no token without an exp.") var jwtRequireExp = false
  @Option(help: ArgumentHelp("Secret of push tickets.", valueName: "file")) var ticketSecretFile: String?
  @Option(help: ArgumentHelp("Senders of push webhooks, YAML or JSON.", valueName: "file")) var hooksFile: String?
  @Option(help: ArgumentHelp("Address of the listener for /health, /ready and /metrics.", valueName: "host:port"))
  var admin: String?
  @Flag(help: "Connections of --trusted-proxies begin with a PROXY header, v1 or v2, that names the client.")
  var proxyProtocol = false
  @Option(
    parsing: .upToNextOption,
    help: ArgumentHelp("Web origins allowed to call the API (CORS).", valueName: "origin")
  )
  var corsOrigin: [String] = []
  @Option(
    help: ArgumentHelp(
      "Serve the demo page at /demo, with the tokens in this file. Only for `tidemark run`.",
      valueName: "file"
    )
  )
  var demoFile: String?
  @Flag(help: "Serve the console for operators at /console. `tidemark console` prints a link to log in.")
  var console = false
  @Option(
    parsing: .upToNextOption,
    help: ArgumentHelp(
      "Stores whose figures the console draws: http://HOST:PORT/metrics of their --admin.",
      valueName: "url"
    )
  )
  var consoleStoreMetrics: [String] = []
  @Flag(help: "Let the console change settings, members and positions. It is read-only by default.")
  var consoleWrites = false
  @Option(help: ArgumentHelp("Event loops; half the processors by default.", valueName: "n")) var loops: String?
  @Option(
    help: ArgumentHelp(
      """
      Memory limit for requests and answers, such as 512M; at least 16M. Default: a quarter of the memory, at most 2G.
      """,
      valueName: "size"
    )
  )
  var gatewayMemory: String?
  @Option(
    help: ArgumentHelp(
      "Maximum number of connections; by default 100000, or what the descriptors of the process allow.",
      valueName: "n"
    )
  )
  var connections: String?
  @Option(
    help: ArgumentHelp(
      "Connections of one IPv4 address or IPv6 /64; by default a tenth of --connections, unlimited for loopback.",
      valueName: "n"
    )
  )
  var connectionsPerAddress: String?
  @Option(
    parsing: .upToNextOption,
    help: ArgumentHelp(
      """
      Load balancers, such as 10.0.0.0/8. X-Forwarded-For names the client of each request; with --proxy-protocol, \
      a PROXY header names the client of a connection. Their connections count only for --connections.
      """,
      valueName: "cidr"
    )
  )
  var trustedProxies: [String] = []
  @Option(
    help: ArgumentHelp(
      "Requests per second of one user, with bursts of twice as many; no limit by default.",
      valueName: "n"
    )
  )
  var rateUser: String?
  @Option(help: ArgumentHelp("Requests per second of one server token.", valueName: "n")) var rateServer: String?
  @Option(
    help: ArgumentHelp(
      "Requests per second of one IPv4 address or IPv6 /64, without servers' requests.",
      valueName: "n"
    )
  )
  var rateAddress: String?
  @Option(help: ArgumentHelp("Settings, YAML or JSON.", valueName: "file")) var config: String?
  @Option(help: ArgumentHelp("trace, debug, info, notice, warning, error or critical.", valueName: "level"))
  var logLevel: String?
  @Option(
    help: ArgumentHelp(
      "Query the health URL of a running gateway, such as http://127.0.0.1:9090/ready, and exit.",
      valueName: "url"
    )
  )
  var healthCheck: String?

  private var flags: [String: String] {
    let given: [String: String?] = [
      "listen": listen, "tls-cert": tlsCert, "tls-key": tlsKey, "h2c": h2c ? "true" : nil,
      "store": store.isEmpty ? nil : store.joined(separator: ","),
      "tls-ca": tlsCa, "store-tls-cert": storeTlsCert, "store-tls-key": storeTlsKey,
      "secret-file": secretFile, "jwt-secret-file": jwtSecretFile, "jwks-file": jwksFile,
      "jwt-issuer": jwtIssuer.isEmpty ? nil : jwtIssuer.joined(separator: ","),
      "jwt-audience": jwtAudience.isEmpty ? nil : jwtAudience.joined(separator: ","),
      "jwt-max-age": jwtMaxAge,
      "jwt-require-exp": jwtRequireExp ? "true" : nil, "ticket-secret-file": ticketSecretFile,
      "hooks-file": hooksFile, "demo-file": demoFile, "admin": admin,
      "console": console ? "true" : nil, "console-writes": consoleWrites ? "true" : nil,
      "console-store-metrics": consoleStoreMetrics.isEmpty ? nil : consoleStoreMetrics.joined(separator: ","),
      "proxy-protocol": proxyProtocol ? "true" : nil,
      "cors-origin": corsOrigin.isEmpty ? nil : corsOrigin.joined(separator: ","), "loops": loops,
      "gateway-memory": gatewayMemory, "connections": connections,
      "connections-per-address": connectionsPerAddress,
      "trusted-proxies": trustedProxies.isEmpty ? nil : trustedProxies.joined(separator: ","),
      "rate-user": rateUser, "rate-server": rateServer, "rate-address": rateAddress,
      "config": config, "log-level": logLevel,
    ]
    return given.compactMapValues { $0 }
  }

  func run() async throws {
    ProcessRunner.ignoreHangups()
    if let url = HealthCheck.url(flag: healthCheck) {
      let (exitCode, line) = await HealthCheck.run(url)
      ProcessRunner.printLine(line)
      throw ExitCode(exitCode)
    }
    do {
      try await serve()
    } catch let error as SettingsError {
      ProcessRunner.exit(Self.configuration.commandName!, error)
    }
  }

  /// Log a warning about a setting that is accepted.
  private static func log(_ warning: String, _ logger: Logger) {
    logger.warning("Check a setting", metadata: ["warning": "\(warning)"])
  }

  private func serve() async throws {
    let settings = try await Settings(
      flags: flags,
      keys: GatewayConfiguration.keys,
      restrictions: GatewayConfiguration.restrictions,
      environment: ProcessInfo.processInfo.environment
    )
    var warnings: [String] = []
    let configuration = try GatewayConfiguration(settings) { warnings.append($0) }
    let metrics = MetricsRegistry()
    ProcessRunner.bootstrap(logLevel: configuration.logLevel)
    let logger = Logger(label: "tidemark-gateway")
    for warning in warnings { Self.log(warning, logger) }
    let group = MultiThreadedEventLoopGroup(numberOfThreads: configuration.loopCount)
    let readiness = Readiness()
    let gateway = try await GatewayServer.start(
      configuration,
      group: group,
      readiness: readiness,
      metrics: metrics,
      logger: logger
    )
    let reloads = ReloadService(
      files: GatewayConfiguration.files(settings) + configuration.hooks.flatMap(\.secretFiles),
      prefix: "tidemark_gateway",
      logger: logger
    ) { [flags] files in
      let fresh = try await Settings(
        flags: flags,
        keys: GatewayConfiguration.keys,
        restrictions: GatewayConfiguration.restrictions,
        environment: ProcessInfo.processInfo.environment
      )
      files = GatewayConfiguration.files(fresh)
      let configuration = try GatewayConfiguration(fresh) { Self.log($0, logger) }
      files += configuration.hooks.flatMap(\.secretFiles)
      try await gateway.reload(configuration)
      ProcessRunner.setLogLevel(configuration.logLevel)
      let fixed = GatewayConfiguration.keys.subtracting(GatewayConfiguration.reloadedKeys)
      return fresh.differences(from: settings, among: fixed) + gateway.settingsNeedingRestart(configuration)
    }
    metrics.register(on: group.next()) { reloads.collect(into: &$0) }
    var line = "tidemark-gateway listening on \(gateway.address) (\(configuration.tls == nil ? "h2c" : "TLS"))"
    line += ", \(configuration.storeTLS == nil ? "plaintext" : "TLS") to the store"
    if let endpoint = configuration.admin {
      // On threads of its own: clients of this listener cannot delay the others.
      let admin = try await AdminServer.start(
        at: endpoint,
        group: MultiThreadedEventLoopGroup.singleton,
        readiness: readiness,
        metrics: metrics,
        logger: logger
      )
      line += ", operations on \(admin.address)"
      ProcessRunner.printLine(line)
      try await ProcessRunner.run([admin, gateway, reloads], logger: logger)
    } else {
      ProcessRunner.printLine(line)
      try await ProcessRunner.run([gateway, reloads], logger: logger)
    }
    try await group.shutdownGracefully()
  }
}
