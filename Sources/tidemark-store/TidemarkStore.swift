import ArgumentParser
import ErasureLedger
import Foundation
import LinkSecurity
import Logging
import NIOCore
import NIOPosix
import Operations
import ReceiptModel
import ServiceLifecycle
import StoreEngine
import StoreRocksDB
import StoreServer

/// tidemark-store: flags in, one server out. The storage engine is chosen here and nowhere else.
@main
struct TidemarkStore: AsyncParsableCommand {
  static let configuration = CommandConfiguration(
    commandName: "tidemark-store",
    abstract: "Stores read and delivered positions durably, and serves gateways over a binary protocol.",
    discussion: """
      Every flag can also be given as an environment variable (--secret-file is TIDEMARK_SECRET_FILE) or as a key of \
      --config FILE (YAML or JSON). Flags take precedence over the environment, and the environment over the file.

      Files of certificates and secrets are read again on SIGHUP and when they change (docs/operations.md, "Reloading").
      """,
    version: ProductVersion.line(of: "tidemark-store")
  )

  @Option(help: ArgumentHelp("Directory for the data; created if missing. Required.", valueName: "dir"))
  var data: String?
  @Option(help: ArgumentHelp("Address for gateways. Default 127.0.0.1:7410.", valueName: "host:port"))
  var listen: String?
  @Option(
    help: ArgumentHelp("Number of shards; fixed when the directory is created. Default 16.", valueName: "n")
  )
  var shards: String?
  @Option(
    help: ArgumentHelp(
      "File with the secret shared with gateways; a second line is the previous one.",
      valueName: "file"
    )
  )
  var secretFile: String?
  @Option(help: ArgumentHelp("Address for /health, /ready and /metrics (HTTP/1.1).", valueName: "host:port"))
  var admin: String?
  @Option(help: ArgumentHelp("Event loops. Default: half the processors, at least 1.", valueName: "n"))
  var loops: String?
  @Option(
    help: ArgumentHelp(
      """
      sync: a command is synced before it is acknowledged; or interval:TIME, 1ms to 60s (a number alone is in \
      milliseconds): synced that often, and as much is lost if the machine fails. Default sync.
      """,
      valueName: "mode"
    )
  )
  var durability: String?
  @Option(
    help: ArgumentHelp(
      """
      Memory for channels, such as 512M or 8G, at least 1M; RocksDB's buffers need some 400M more. Default: \
      half of the memory that the machine or the container has.
      """,
      valueName: "size"
    )
  )
  var memory: String?
  @Option(
    help: ArgumentHelp(
      """
      Channel size above which read, delivery and status events are batched once per interval, 0 to \
      16777216. Default 256.
      """,
      valueName: "n"
    )
  )
  var eventIntervalMembers: String?
  @Option(
    help: ArgumentHelp(
      "Interval of batched events, 100ms to 60s. Default 1s.",
      valueName: "time"
    )
  )
  var eventInterval: String?
  @Option(
    help: ArgumentHelp(
      """
      File outside of --data, on another disk, that also records each erasure of a user, as a keyed hash \
      (docs/backup.md). Default: only in --data.
      """,
      valueName: "file"
    )
  )
  var erasureLedger: String?
  @Option(
    help: ArgumentHelp(
      """
      Maximum forward jump of the clock while the store runs; above it commands are refused as clock_jump until \
      the clock is right. 1s to 36500d. Default 1h.
      """,
      valueName: "time"
    )
  )
  var clockJumpMax: String?
  @Option(
    help: ArgumentHelp(
      """
      Maximum time between the last log entry and a start; beyond it commands are refused as \
      clock_jump. 1s to 365000d. Default 400d.
      """,
      valueName: "time"
    )
  )
  var clockStartMax: String?
  @Option(
    help: ArgumentHelp(
      "TLS certificate for gateways, PEM; must be valid for the host in the gateways' --store.",
      valueName: "file"
    )
  )
  var tlsCert: String?
  @Option(help: ArgumentHelp("Its private key, PEM.", valueName: "file")) var tlsKey: String?
  @Option(
    help: ArgumentHelp(
      "CA certificate that must have signed the gateways' certificates, PEM.",
      valueName: "file"
    )
  )
  var tlsCa: String?
  @Flag(help: "Allow listening without TLS on addresses other than loopback.") var allowPlaintext = false
  @Option(help: ArgumentHelp("YAML or JSON file with the same keys.", valueName: "file"))
  var config: String?
  @Option(
    help: ArgumentHelp(
      "trace, debug, info, notice, warning, error or critical. Default info.",
      valueName: "level"
    )
  )
  var logLevel: String?
  @Option(
    help: ArgumentHelp(
      "Request this http:// URL, print the answer and exit: 0 if healthy.",
      valueName: "url"
    )
  )
  var healthCheck: String?

  private static let keys: Set<String> = [
    "data", "listen", "shards", "secret-file", "admin", "loops", "config", "log-level", "durability",
    "memory", "event-interval-members", "event-interval",
    "erasure-ledger", "clock-jump-max", "clock-start-max", "tls-cert", "tls-key", "tls-ca", "allow-plaintext",
  ]

  func run() async throws {
    ProcessRunner.ignoreHangups()
    if let url = HealthCheck.url(flag: healthCheck) {
      let (exitCode, line) = await HealthCheck.run(url, timeout: .seconds(5))
      ProcessRunner.printLine(line)
      throw ExitCode(exitCode)
    }
    do throws(SettingsError) {
      try await serve()
    } catch {
      ProcessRunner.exit("tidemark-store", error)
    }
  }

  /// Parse `sync`, or `interval:` with a time.
  private static func durability(_ text: String) -> Durability? {
    let prefix = "interval:"
    guard text.hasPrefix(prefix) else { return Durability(text) }
    let time = String(text.dropFirst(prefix.utf8.count))
    return TimeSpan.milliseconds(time, unitless: 1).flatMap { Durability("\(prefix)\($0)") }
  }

  /// TLS of the listener for gateways. Without it the store accepts only this machine's processes, unless the operator
  /// allows more.
  private func tls(_ settings: Settings, _ listen: Endpoint, _ logger: Logger) throws(SettingsError)
    -> LinkTLS?
  {
    if let files = try Self.tlsFiles(settings) { return try LinkTLS(files, end: .store, logger: logger) }
    guard !listen.isLoopback else {
      logger.notice("TLS is off: only processes on this machine can reach the port")
      return nil
    }
    guard try settings.flag("allow-plaintext") else {
      throw SettingsError(
        "listen",
        "\(listen): other machines could reach the store there without TLS; "
          + "give --tls-cert, --tls-key and --tls-ca, listen on 127.0.0.1, or give --allow-plaintext"
      )
    }
    logger.warning(
      """
      Frames are not encrypted (--allow-plaintext): anyone on the network between gateways and store can read and \
      change everything
      """
    )
    return nil
  }

  /// Keys that a running store reloads: paths of secrets and certificates, and the log level. Changes of other keys
  /// take effect at a restart.
  private static let reloadedKeys: Set<String> = [
    "tls-cert", "tls-key", "tls-ca", "secret-file", "log-level",
  ]
  /// Keys that name files to reload.
  private static let fileKeys = ["config", "tls-cert", "tls-key", "tls-ca", "secret-file"]

  private static func settings(_ flags: [String: String]) async throws(SettingsError) -> Settings {
    try await Settings(
      flags: flags,
      keys: keys,
      restrictions: [
        "secret-file", "tls-ca", "tls-cert", "tls-key", "erasure-ledger", "memory", "clock-jump-max",
        "clock-start-max",
      ],
      environment: ProcessInfo.processInfo.environment
    )
  }

  private static func secrets(_ settings: Settings, _ logger: Logger) throws(SettingsError) -> [[UInt8]] {
    guard let path = try settings.string("secret-file") else {
      logger.warning(
        "No --secret-file: gateways are not authenticated: any process that reaches this port is served"
      )
      return []
    }
    return try SecretFile.load(path, key: "secret-file", byteCountMin: 16) { logger.warning("\($0)") }.all
  }

  /// Make the service that reloads settings and files.
  private static func reloads(
    _ flags: [String: String],
    _ settings: Settings,
    _ server: StoreServer,
    _ tls: LinkTLS?,
    _ logger: Logger
  ) -> ReloadService {
    ReloadService(files: settings.files(fileKeys), prefix: "tidemark_store", logger: logger) { watched in
      let fresh = try await Self.settings(flags)
      watched = fresh.files(fileKeys)
      // Validate everything first, then apply it.
      let logLevel = try ProcessRunner.logLevel(fresh)
      let secrets = try Self.secrets(fresh, logger)
      let files = try Self.tlsFiles(fresh)
      let loaded = try tls.flatMap { tls in try files.map { try tls.load($0) } }
      if let tls, let loaded { tls.take(loaded) }
      server.replaceSecrets(secrets)
      ProcessRunner.setLogLevel(logLevel)
      let fixed = fresh.differences(from: settings, among: keys.subtracting(reloadedKeys))
      return fixed + ((tls == nil) == (files == nil) ? [] : ["tls-cert", "tls-key", "tls-ca"])
    }
  }

  private static func tlsFiles(_ settings: Settings) throws(SettingsError) -> LinkTLSFiles? {
    try LinkTLSFiles(
      certificate: try settings.string("tls-cert"),
      privateKey: try settings.string("tls-key"),
      authority: try settings.string("tls-ca")
    )
  }

  private func serve() async throws(SettingsError) {
    var flags: [String: String] = [:]
    flags["data"] = data
    flags["listen"] = listen
    flags["shards"] = shards
    flags["secret-file"] = secretFile
    flags["admin"] = admin
    flags["loops"] = loops
    flags["config"] = config
    flags["log-level"] = logLevel
    flags["durability"] = durability
    flags["memory"] = memory
    flags["event-interval-members"] = eventIntervalMembers
    flags["event-interval"] = eventInterval
    flags["erasure-ledger"] = erasureLedger
    flags["clock-jump-max"] = clockJumpMax
    flags["clock-start-max"] = clockStartMax
    flags["tls-cert"] = tlsCert
    flags["tls-key"] = tlsKey
    flags["tls-ca"] = tlsCa
    flags["allow-plaintext"] = allowPlaintext ? "true" : nil
    let settings = try await Self.settings(flags)
    let mode = try settings.string("durability") ?? "sync"
    guard let durability = Self.durability(mode) else {
      throw SettingsError("durability", "\"\(mode)\": give sync, or interval:TIME from 1ms to 60s")
    }
    let memory = try settings.byteCount("memory", in: 1 << 20...1 << 50) ?? AvailableMemory.byteCount / 2
    let metrics = MetricsRegistry()
    ProcessRunner.bootstrap(logLevel: try ProcessRunner.logLevel(settings), metrics: metrics)
    let logger = Logger(label: "tidemark-store")

    let directory = try settings.requiredString("data", for: "the directory that keeps the data")
    guard let listen = try settings.endpoint("listen") ?? Endpoint("127.0.0.1:7410") else {
      throw SettingsError("listen", "has to be HOST:PORT")
    }
    let shardCount = try settings.integer("shards", in: 1...RocksDBEngine.shardCountMax)
    let loops =
      try settings.integer("loops", in: 1...64) ?? max(1, ProcessInfo.processInfo.activeProcessorCount / 2)
    var configuration = StoreServerConfiguration(host: listen.host, port: listen.port, loops: loops)
    configuration.secrets = try Self.secrets(settings, logger)
    configuration.tls = try tls(settings, listen, logger)

    let descriptors = DescriptorLimit.forConnections(of: DescriptorLimit.raise()) / 2
    configuration.connections.total = min(configuration.connections.total, descriptors)
    configuration.connections.perAddress = configuration.connections.total
    configuration.connections.unproven = min(configuration.connections.unproven, max(1, descriptors / 2))

    let readiness = Readiness()
    var services: [any Service] = []
    let adminGroup = MultiThreadedEventLoopGroup.singleton
    if let endpoint = try settings.endpoint("admin") {
      let admin = try await AdminServer.start(
        at: endpoint,
        group: adminGroup,
        readiness: readiness,
        metrics: metrics,
        logger: logger
      )
      logger.info("Operations listener started", metadata: ["address": "\(admin.address)"])
      services.append(admin)
    }
    logger.info("Memory for channels", metadata: ["mebibytes": "\(memory >> 20)"])
    if let interval = durability.syncIntervalMilliseconds {
      logger.warning(
        """
        Acknowledged commands are synced at intervals: if the machine fails, those since the last sync are \
        lost; if only this process fails, none
        """,
        metadata: ["milliseconds": "\(interval)"]
      )
    }
    if let members = try settings.integer("event-interval-members", in: 0...1 << 24) {
      configuration.engine.eventIntervalMembers = members
    }
    if let interval = try settings.milliseconds("event-interval", in: 100...60_000) {
      configuration.engine.eventIntervalMilliseconds = interval
    }
    if let most = try settings.milliseconds("clock-jump-max", in: 1_000...36_500 * 86_400_000) {
      configuration.clock.jumpMax = most
    }
    if let most = try settings.milliseconds("clock-start-max", in: 1_000...365_000 * 86_400_000) {
      configuration.clock.startMax = most
    }
    guard configuration.clock.jumpMax <= configuration.clock.startMax else {
      // A jump that was accepted while the store ran must not stop its next start.
      throw SettingsError("clock-start-max must be at least clock-jump-max: give a larger clock-start-max")
    }
    var rocksDB = RocksDBSettings()
    rocksDB.durability = durability
    rocksDB.cacheBytes = min(max(memory / 8, 8 << 20), 256 << 20)
    let storage: RocksDBStorage
    do {
      storage = try RocksDBStorage(
        directory: directory,
        shardCount: shardCount,
        newStore: SessionID(high: .random(in: .min ... .max), low: .random(in: .min ... .max)),
        settings: rocksDB
      )
    } catch {
      throw SettingsError(error.description)
    }
    if let warning = storage.warning {
      logger.warning(
        "The data directory was opened after a machine failure",
        metadata: ["detail": "\(warning)"]
      )
    }
    let erasures: ErasureLedger
    do {
      erasures = try ErasureLedger(data: directory, outside: try settings.string("erasure-ledger"))
    } catch let fault as ErasureLedger.Fault {
      throw SettingsError(fault.description)
    } catch {
      throw SettingsError("\(error)")
    }
    configuration.erasures = erasures
    configuration.engine.residentBytesMax = memory / min(loops, storage.shardCount)
    let server = StoreServer(configuration: configuration, storage: storage, logger: logger)
    services.append(
      StoreService(
        server: server,
        listen: listen,
        tls: configuration.tls,
        readiness: readiness,
        metrics: metrics,
        logger: logger,
        memoryBytes: memory,
        durability: durability,
        erasures: erasures
      )
    )
    let reloads = Self.reloads(flags, settings, server, configuration.tls, logger)
    metrics.register(on: adminGroup.next()) { reloads.collect(into: &$0) }
    services.append(reloads)
    do {
      try await ProcessRunner.run(services, logger: logger)
    } catch let error as SettingsError {
      throw error
    } catch {
      throw SettingsError("\(error)")
    }
  }
}
