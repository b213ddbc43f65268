internal import Logging
internal import NIOCore
internal import NIOPosix
internal import Operations
internal import ReceiptModel
internal import StoreEngine
internal import StoreEtcd
internal import StoreRocksDB

/// What all nodes of a cluster have in common: the first node that starts fixes it, from its flags. Later nodes take it
/// from etcd, and their flags must not contradict it.
enum ClusterAgreement {
  /// For half a minute: etcd may start at the same time.
  private static let attempts = 60
  private static let pause = Duration.milliseconds(500)
  private static let defaultNodeCount = 3

  /// Nil without `cluster`.
  static func reach(_ settings: Settings, _ logger: Logger) async throws(SettingsError) -> ClusterConfiguration? {
    guard let cluster = try settings.string("cluster") else { return nil }
    let etcd = try NodeSettings.etcd(settings, cluster: cluster)
    let asked = (
      nodes: try settings.integer("members", in: 1...GroupSet.membersMax),
      groups: try settings.integer("groups", in: 1...NodeSettings.groupsMax),
      shards: try settings.integer("shards", in: 1...RocksDBEngine.shardCountMax)
    )
    let nodes = asked.nodes ?? defaultNodeCount
    let groups = asked.groups ?? nodes
    let stored = asked.shards == nil ? try storedShardCount(settings) : nil
    let shards = asked.shards ?? stored ?? max(RocksDBEngine.shardCountDefault, groups)
    let own = ClusterConfiguration(shardCount: shards, groupCount: groups, initialNodeCount: nodes)
    guard groups <= own.shardCount else {
      throw SettingsError("groups", "has to be at most \(own.shardCount), the number of shards")
    }
    let agreed = try await agree(own, etcd, logger)
    for (key, asked, agreed) in [
      ("members", asked.nodes, agreed.initialNodeCount), ("groups", asked.groups, agreed.groupCount),
      ("shards", asked.shards, agreed.shardCount),
    ] where asked != nil && asked != agreed {
      throw SettingsError(key, "cluster \(cluster) was created with \(agreed), which is fixed: leave the flag out")
    }
    return agreed
  }

  /// Number of shards of the data directory; nil: it is new.
  private static func storedShardCount(_ settings: Settings) throws(SettingsError) -> Int? {
    guard let directory = try settings.string("data"), RocksDBEngine.hasStore(directory) else { return nil }
    do throws(StorageError) {
      let engine = try RocksDBEngine(
        directory: directory,
        shardCount: nil,
        newStore: SessionID(high: 0, low: 0),
        settings: RocksDBSettings()
      )
      defer { engine.close() }
      return engine.identity.shardCount
    } catch {
      throw SettingsError(error.description)
    }
  }

  private static func agree(
    _ own: ClusterConfiguration,
    _ etcd: EtcdConfiguration,
    _ logger: Logger
  ) async throws(SettingsError) -> ClusterConfiguration {
    let eventLoop = MultiThreadedEventLoopGroup.singleton.next()
    for attempt in 0..<attempts {
      let agreed = try? await eventLoop.flatSubmit {
        let log = EtcdGroupLog(configuration: etcd, eventLoop: eventLoop)
        let promise = eventLoop.makePromise(of: ClusterConfiguration?.self)
        log.agree(own) { agreed in
          promise.succeed(agreed)
          log.close()
        }
        return promise.futureResult
      }.get()
      if let agreed { return agreed }
      if attempt == 0 { logger.notice("Waiting for etcd") }
      try? await Task.sleep(for: pause)
    }
    throw SettingsError("log", "etcd does not answer")
  }
}
