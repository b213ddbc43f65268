internal import ArgumentParser
internal import ErasureLedger
internal import Foundation
internal import LinkSecurity
internal import Logging
internal import NIOCore
internal import NIOPosix
internal import Operations
internal import ReceiptModel
internal import ServiceLifecycle
internal import StoreEngine
internal import StoreRocksDB
internal import StoreServer

/// tidemark-store: flags in, one server out. This program alone chooses the storage engine, RocksDB.
@main
struct TidemarkStore: AsyncParsableCommand {
  static let configuration = CommandConfiguration(
    commandName: "tidemark-store",
    abstract: "Stores read and delivered positions durably, and serves gateways over a binary protocol.",
    discussion: """
      Every flag can also be given as an environment variable (--secret-file is TIDEMARK_SECRET_FILE) or as a key of \
      --config FILE (YAML or JSON). Flags take precedence over the environment, and the environment over the file.

      Files of certificates and secrets are read again on SIGHUP and when they change (docs/operate/operations.md).
      """,
    version: ProductVersion.line(of: "tidemark-store")
  )

  @Option(help: ArgumentHelp("Directory for the data; created if missing. Required.", valueName: "dir"))
  var data: String?
  @Option(help: ArgumentHelp("Address for gateways and other nodes. Default 127.0.0.1:7410.", valueName: "host:port"))
  var listen: String?
  @Option(help: ArgumentHelp("Number of shards; fixed when the directory is created. Default 16.", valueName: "n"))
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
  @Option(help: ArgumentHelp("Interval of batched events, 100ms to 60s. Default 1s.", valueName: "time"))
  var eventInterval: String?
  @Option(
    help: ArgumentHelp(
      """
      Keep the change feed this long: a time, a size, or both, such as 24h,10GiB (docs/api/feed.md). Default: no feed.
      """,
      valueName: "limits"
    )
  )
  var feedRetention: String?
  @Option(
    help: ArgumentHelp(
      """
      File outside of --data, on another disk, that also records each erasure of a user, as a keyed hash \
      (docs/operate/backup.md). Default: only in --data.
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
    help: ArgumentHelp("CA certificate that must have signed the gateways' certificates, PEM.", valueName: "file")
  )
  var tlsCa: String?
  @Flag(help: "Allow listening without TLS on addresses other than loopback.") var allowPlaintext = false
  @Option(
    help: ArgumentHelp(
      """
      Be a node of this cluster, over the shared log of --log (docs/operate/cluster.md). Default: the store owns all \
      its shards.
      """,
      valueName: "name"
    )
  )
  var cluster: String?
  @Option(
    help: ArgumentHelp(
      "etcd's servers, such as https://e1:2379,https://e2:2379,https://e3:2379; http:// only on loopback.",
      valueName: "urls"
    )
  )
  var log: String?
  @Option(help: ArgumentHelp("Client certificate for etcd, PEM.", valueName: "file")) var logCert: String?
  @Option(help: ArgumentHelp("Its private key, PEM.", valueName: "file")) var logKey: String?
  @Option(help: ArgumentHelp("CA certificate that must have signed etcd's certificates, PEM.", valueName: "file"))
  var logCa: String?
  @Option(help: ArgumentHelp("Number of this node, from 1; each node has another one.", valueName: "id"))
  var node: String?
  @Option(
    help: ArgumentHelp(
      "Number of nodes that the cluster begins with, 1 to n; fixed by its first node. Default 3.",
      valueName: "n"
    )
  )
  var members: String?
  @Option(
    help: ArgumentHelp(
      """
      Number of groups of shards, each with a log and an event loop of its own; fixed by the cluster's first \
      node. Default: the number of --members.
      """,
      valueName: "n"
    )
  )
  var groups: String?
  @Option(
    help: ArgumentHelp(
      "Address at which gateways and other nodes reach this node. Default: that of --listen.",
      valueName: "host:port"
    )
  )
  var advertise: String?
  @Flag(
    help: ArgumentHelp(
      """
      Make the directory of a single store the cluster's. Only one node, before the others start \
      (docs/operate/cluster.md).
      """
    )
  )
  var adopt = false
  @Flag(help: "Make the directory of a cluster's node a single store's (docs/operate/cluster.md).")
  var leaveCluster = false
  @Option(help: ArgumentHelp("YAML or JSON file with the same keys.", valueName: "file"))
  var config: String?
  @Option(
    help: ArgumentHelp("trace, debug, info, notice, warning, error or critical. Default info.", valueName: "level")
  )
  var logLevel: String?
  @Option(help: ArgumentHelp("Request this http:// URL, print the answer and exit: 0 if healthy.", valueName: "url"))
  var healthCheck: String?

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

  /// The flags that were given, by key.
  private var flags: [String: String] {
    [
      "data": data, "listen": listen, "shards": shards, "secret-file": secretFile, "admin": admin, "loops": loops,
      "config": config, "log-level": logLevel, "durability": durability, "memory": memory,
      "event-interval-members": eventIntervalMembers, "event-interval": eventInterval, "feed-retention": feedRetention,
      "erasure-ledger": erasureLedger, "clock-jump-max": clockJumpMax, "clock-start-max": clockStartMax,
      "tls-cert": tlsCert, "tls-key": tlsKey, "tls-ca": tlsCa,
      "allow-plaintext": allowPlaintext ? "true" : nil,
      "cluster": cluster, "log": log, "log-cert": logCert, "log-key": logKey, "log-ca": logCa, "node": node,
      "members": members, "groups": groups, "advertise": advertise, "adopt": adopt ? "true" : nil,
      "leave-cluster": leaveCluster ? "true" : nil,
    ].compactMapValues { $0 }
  }

  /// Make the service that reloads settings and files.
  private static func reloads(
    of settings: Settings,
    flags: [String: String],
    server: StoreServer,
    tls: [LinkTLS],
    logger: Logger
  ) -> ReloadService {
    let files = settings.files(StoreSettings.fileKeys)
    return ReloadService(files: files, prefix: "tidemark_store", logger: logger) { watched in
      let fresh = try await StoreSettings.read(flags)
      watched = fresh.files(StoreSettings.fileKeys)
      // Validate everything first, then apply it.
      let logLevel = try ProcessRunner.logLevel(fresh)
      let secrets = try StoreSettings.secrets(fresh, logger)
      let files = try StoreSettings.tlsFiles(fresh)
      let loaded = try files.map { files in try tls.map { try $0.load(files) } } ?? []
      for (link, loaded) in zip(tls, loaded) { link.apply(loaded) }
      server.replaceSecrets(secrets)
      ProcessRunner.setLogLevel(logLevel)
      let fixed = fresh.differences(from: settings, among: StoreSettings.keys.subtracting(StoreSettings.reloadedKeys))
      return fixed + (tls.isEmpty == (files == nil) ? [] : ["tls-cert", "tls-key", "tls-ca"])
    }
  }

  private func serve() async throws(SettingsError) {
    let flags = flags
    let read = try await StoreSettings.read(flags)
    let metrics = MetricsRegistry()
    ProcessRunner.bootstrap(logLevel: try ProcessRunner.logLevel(read))
    let logger = Logger(label: "tidemark-store")
    // A node's settings are checked before it writes to etcd, by the numbers that they ask for.
    let assumed = try ClusterAgreement(assumedFor: read)
    let silent = Logger(label: "tidemark-store") { _ in SwiftLogNoOpLogHandler() }
    var settings = try StoreSettings(read, agreed: assumed, metrics: metrics, assumed == nil ? logger : silent)
    let readiness = Readiness()
    readiness.set("process", "starting")
    var services: [any Service] = []
    let adminGroup = MultiThreadedEventLoopGroup.singleton
    // A node may wait for etcd.
    if let endpoint = try read.endpoint("admin") {
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
    if let agreed = try await ClusterAgreement(read, logger) {
      settings = try StoreSettings(read, agreed: agreed, metrics: metrics, logger)
    }
    settings.log(logger)
    if let cluster = settings.cluster, cluster.adopts { try await Adoption.run(settings, cluster, logger) }
    if settings.leavesCluster { try Adoption.leaveCluster(settings, logger) }
    let storage = try Self.open(settings, logger)
    let erasures = try Self.ledger(settings)
    settings.server.erasures = erasures
    settings.server.engine.residentBytesMax = settings.memoryBytes / min(settings.server.loops, storage.shardCount)
    let server = StoreServer(configuration: settings.server, storage: storage, logger: logger)
    services.append(
      StoreService(
        server: server,
        listen: settings.listen,
        tls: settings.server.tls,
        readiness: readiness,
        metrics: metrics,
        logger: logger,
        memoryBytes: settings.memoryBytes,
        durability: settings.durability,
        erasures: erasures
      )
    )
    let links = [settings.server.tls, settings.server.nodeTLS].compactMap { $0 }
    let reloads = Self.reloads(of: read, flags: flags, server: server, tls: links, logger: logger)
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

  private static func open(_ settings: StoreSettings, _ logger: Logger) throws(SettingsError) -> RocksDBStorage {
    let storage: RocksDBStorage
    do {
      storage = try RocksDBStorage(
        directory: settings.directory,
        shardCount: settings.shardCount,
        newStore: settings.cluster?.store
          ?? SessionID(high: .random(in: .min ... .max), low: .random(in: .min ... .max)),
        settings: settings.rocksDB
      )
    } catch {
      throw SettingsError(error.description)
    }
    if let cluster = settings.cluster {
      guard storage.store == cluster.store else {
        throw SettingsError(
          "data",
          """
          \(settings.directory): is not of cluster \(cluster.name): give the node an empty directory, or make that of \
          a single store the cluster's with --adopt
          """
        )
      }
      do throws(StorageError) { try storage.adopt(asNode: cluster.settings.node) } catch {
        throw SettingsError(error.description)
      }
    }
    if settings.cluster == nil {
      let isOfCluster: Bool
      do throws(StorageError) { isOfCluster = try storage.isOfCluster } catch {
        throw SettingsError(error.description)
      }
      guard !isOfCluster else {
        throw SettingsError(
          "data",
          """
          \(settings.directory): is that of a cluster's node: give --cluster, or --leave-cluster \
          (docs/operate/cluster.md)
          """
        )
      }
    }
    if let warning = storage.warning {
      logger.warning("The data directory was opened after a machine failure", metadata: ["detail": "\(warning)"])
    }
    return storage
  }

  private static func ledger(_ settings: StoreSettings) throws(SettingsError) -> ErasureLedger {
    do {
      return try ErasureLedger(data: settings.directory, outside: settings.erasureLedger)
    } catch {
      throw SettingsError(error.description)
    }
  }
}
