internal import Foundation
internal import LinkSecurity
internal import Logging
internal import Operations
internal import StoreEngine
internal import StoreRocksDB
internal import StoreServer

/// The settings of a store process, from flags, environment and file, validated before anything is opened.
struct StoreSettings {
  /// All keys.
  static let keys: Set<String> = [
    "data", "listen", "shards", "secret-file", "admin", "loops", "config", "log-level", "durability",
    "memory", "event-interval-members", "event-interval", "feed-retention",
    "erasure-ledger", "clock-jump-max", "clock-start-max", "tls-cert", "tls-key", "tls-ca", "allow-plaintext",
    "cluster", "log", "log-cert", "log-key", "log-ca", "node", "members", "groups", "advertise", "adopt",
    "leave-cluster",
  ]
  /// Keys that restrict the store; an empty value is refused.
  private static let restrictions: Set<String> = [
    "secret-file", "tls-ca", "tls-cert", "tls-key", "erasure-ledger", "memory", "clock-jump-max", "clock-start-max",
  ]
  /// Keys that a running store reloads: paths of secrets and certificates, and the log level. Changes of other keys
  /// take effect at a restart.
  static let reloadedKeys: Set<String> = ["tls-cert", "tls-key", "tls-ca", "secret-file", "log-level"]
  /// Keys that name files to reload.
  static let fileKeys = ["config", "tls-cert", "tls-key", "tls-ca", "secret-file"]

  /// The directory of the data.
  let directory: String
  let listen: Endpoint
  /// Nil: that of the directory, or the default for a new one.
  let shardCount: Int?
  let durability: Durability
  /// Memory for channels.
  let memoryBytes: Int
  /// Directory of the second erasure ledger; nil: none.
  let erasureLedger: String?
  /// The node's part in a cluster; nil: the store owns all its shards.
  let cluster: NodeSettings?
  /// Whether the directory of a node becomes a single store's.
  let leavesCluster: Bool
  var server: StoreServerConfiguration
  var rocksDB = RocksDBSettings()

  static func read(_ flags: [String: String]) async throws(SettingsError) -> Settings {
    try await Settings(
      flags: flags,
      keys: keys,
      restrictions: restrictions,
      environment: ProcessInfo.processInfo.environment
    )
  }

  /// - Parameter agreed: what all nodes of the cluster have in common; nil: the store is no node.
  init(
    _ settings: Settings,
    agreed: ClusterAgreement?,
    metrics: MetricsRegistry,
    _ logger: Logger
  ) throws(SettingsError) {
    let listen = try settings.endpoint("listen") ?? NodeSettings.listenDefault
    self.listen = listen
    let cluster = try NodeSettings(settings, agreed: agreed, listen: listen, metrics: metrics, logger)
    leavesCluster = try settings.flag("leave-cluster")
    if cluster != nil, leavesCluster { throw SettingsError("leave-cluster", "does not go with --cluster") }
    self.cluster = cluster
    // The shared log syncs each record.
    let mode = try settings.string("durability") ?? (cluster == nil ? "sync" : "interval:1s")
    guard let durability = Self.durability(mode) else {
      throw SettingsError("durability", "\"\(mode)\": give sync, or interval:TIME from 1ms to 60s")
    }
    self.durability = durability
    memoryBytes = try settings.byteCount("memory", in: 1 << 20...1 << 50) ?? AvailableMemory.byteCount / 2
    directory = try settings.requiredString("data", for: "the directory that keeps the data")
    let shards = try settings.integer("shards", in: 1...RocksDBEngine.shardCountMax)
    shardCount = agreed?.configuration.shardCount ?? shards
    erasureLedger = try settings.string("erasure-ledger")
    // A node records only the erasures of the groups that it owns.
    if cluster != nil, erasureLedger != nil {
      throw SettingsError("erasure-ledger", "does not go with --cluster yet (docs/operate/cluster.md)")
    }
    let loops = try settings.integer("loops", in: 1...64)
    if cluster != nil, loops != nil {
      throw SettingsError("loops", "does not go with --cluster: a node has an event loop for each group (--groups)")
    }
    let defaultLoops = max(1, ProcessInfo.processInfo.activeProcessorCount / 2)
    server = StoreServerConfiguration(
      host: listen.host,
      port: listen.port,
      loops: cluster?.groupCount ?? loops ?? defaultLoops
    )
    server.engine = try Self.engine(settings, server.engine)
    server.clock = try Self.clock(settings, server.clock)
    server.connections = Self.connections(server.connections)
    server.secrets = try Self.secrets(settings, logger)
    server.tls = try Self.tls(settings, listen, logger)
    if cluster != nil, let files = try Self.tlsFiles(settings) {
      server.nodeTLS = try LinkTLS(files, end: .gateway, logger: logger)
    }
    server.cluster = cluster?.settings
    server.engine.feedRetention = try Self.feedRetention(settings)
    // Records of the feed are not in the shared log yet.
    if cluster != nil, server.engine.feedRetention != nil {
      throw SettingsError("feed-retention", "does not go with --cluster yet (docs/operate/cluster.md)")
    }
    rocksDB.hasFeed = server.engine.feedRetention != nil
    rocksDB.durability = durability
    rocksDB.cacheBytes = min(max(memoryBytes / 8, 8 << 20), 256 << 20)
  }

  /// Log what an operator should know of the settings.
  func log(_ logger: Logger) {
    if cluster != nil {
      logger.warning("Clusters are a preview: see what is not built yet in docs/operate/cluster.md")
    }
    logger.info("Memory for channels", metadata: ["mebibytes": "\(memoryBytes >> 20)"])
    if let interval = durability.syncIntervalMilliseconds, cluster == nil {
      logger.warning(
        """
        Acknowledged commands are synced at intervals: if the machine fails, those since the last sync are \
        lost; if only this process fails, none
        """,
        metadata: ["milliseconds": "\(interval)"]
      )
    }
  }

  /// Parse `sync`, or `interval:` with a time.
  private static func durability(_ text: String) -> Durability? {
    let prefix = "interval:"
    guard text.hasPrefix(prefix) else { return Durability(text) }
    let time = String(text.dropFirst(prefix.utf8.count))
    return TimeSpan.milliseconds(time, unitless: 1).flatMap { Durability("\(prefix)\($0)") }
  }

  private static func engine(
    _ settings: Settings,
    _ defaults: StoreLoopConfiguration
  ) throws(SettingsError) -> StoreLoopConfiguration {
    var engine = defaults
    if let members = try settings.integer("event-interval-members", in: 0...1 << 24) {
      engine.eventIntervalMembers = members
    }
    if let interval = try settings.milliseconds("event-interval", in: 100...60_000) {
      engine.eventIntervalMilliseconds = interval
    }
    return engine
  }

  /// Parse a time, a size, or both with a comma, such as `24h,10GiB`; nil: the feed is off.
  private static func feedRetention(_ settings: Settings) throws(SettingsError) -> FeedRetention? {
    guard let text = try settings.string("feed-retention") else { return nil }
    var retention = FeedRetention(milliseconds: 0, bytes: 0)
    for part in text.split(separator: ",", omittingEmptySubsequences: false) {
      let part = part.trimmingCharacters(in: .whitespaces)
      // 1m is a minute, not a mebibyte.
      if retention.milliseconds == 0, let time = TimeSpan.milliseconds(part),
        (60_000...3_650 * 86_400_000).contains(time)
      {
        retention.milliseconds = time
      } else if retention.bytes == 0, let bytes = Settings.byteCount(part), (1 << 20...1 << 50).contains(bytes) {
        retention.bytes = UInt64(bytes)
      } else {
        throw SettingsError(
          "feed-retention",
          "\"\(text)\": give a time from 1m to 3650d, a size from 1MiB, or both, such as 24h,10GiB"
        )
      }
    }
    return retention
  }

  private static func clock(
    _ settings: Settings,
    _ defaults: ClockGuard.Limits
  ) throws(SettingsError) -> ClockGuard.Limits {
    var clock = defaults
    if let most = try settings.milliseconds("clock-jump-max", in: 1_000...36_500 * 86_400_000) {
      clock.jumpMax = most
    }
    if let most = try settings.milliseconds("clock-start-max", in: 1_000...365_000 * 86_400_000) {
      clock.startMax = most
    }
    // A jump that was accepted while the store ran must not stop its next start.
    guard clock.jumpMax <= clock.startMax else {
      throw SettingsError("clock-start-max must be at least clock-jump-max: give a larger clock-start-max")
    }
    return clock
  }

  /// Return the limits that the process's file descriptors allow.
  private static func connections(_ defaults: ConnectionLimits) -> ConnectionLimits {
    var connections = defaults
    let descriptors = DescriptorLimit.forConnections(of: DescriptorLimit.raise()) / 2
    connections.total = min(connections.total, descriptors)
    connections.perAddress = connections.total
    connections.unauthenticated = min(connections.unauthenticated, max(1, descriptors / 2))
    return connections
  }

  static func secrets(_ settings: Settings, _ logger: Logger) throws(SettingsError) -> [[UInt8]] {
    guard let path = try settings.string("secret-file") else {
      logger.warning("No --secret-file: gateways are not authenticated: any process that reaches this port is served")
      return []
    }
    return try SecretFile.load(path, key: "secret-file", byteCountMin: 16) { logger.warning("\($0)") }.all
  }

  static func tlsFiles(_ settings: Settings) throws(SettingsError) -> LinkTLSFiles? {
    try LinkTLSFiles(
      certificate: try settings.string("tls-cert"),
      privateKey: try settings.string("tls-key"),
      authority: try settings.string("tls-ca")
    )
  }

  /// Return the TLS of the listener for gateways. Without it the store accepts only this machine's processes, unless
  /// the operator allows more.
  private static func tls(_ settings: Settings, _ listen: Endpoint, _ logger: Logger) throws(SettingsError) -> LinkTLS?
  {
    if let files = try tlsFiles(settings) { return try LinkTLS(files, end: .store, logger: logger) }
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
}
