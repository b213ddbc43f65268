internal import Logging
internal import NIOCore
internal import NIOPosix
internal import Operations
internal import ReceiptModel
internal import StoreEngine
internal import StoreEtcd
internal import StoreRocksDB
internal import StoreServer

/// `--adopt`: a single store's directory becomes a cluster's (docs/operate/cluster.md, "Adoption"). `--leave-cluster`:
/// a node's becomes a single store's.
///
/// The shared log first, then the directory: an attempt that ends in between is repeated, and finds its own claims.
enum Adoption {
  private static let attempts = 20
  private static let pause = Duration.milliseconds(500)

  /// Adopt the directory, unless it is the cluster's already.
  static func run(_ settings: StoreSettings, _ cluster: NodeSettings, _ logger: Logger) async throws(SettingsError) {
    let directory = settings.directory
    guard RocksDBEngine.hasStore(directory) else {
      throw SettingsError("adopt", "\(directory): contains no store; the other nodes start without --adopt")
    }
    let engine: RocksDBEngine
    do throws(StorageError) {
      engine = try RocksDBEngine(
        directory: directory,
        shardCount: settings.shardCount,
        newStore: cluster.store,
        settings: settings.rocksDB
      )
    } catch {
      throw SettingsError(error.description)
    }
    defer { engine.close() }
    let data = engine.identity.store
    guard data != cluster.store else {
      return logger.notice("The directory is the cluster's already: --adopt does nothing")
    }
    // Else gateways would take the data for that of another store.
    let expected: SessionID?
    do throws(StorageError) { expected = try engine.isOfCluster ? nil : data } catch {
      throw SettingsError(error.description)
    }
    guard cluster.settings.configuration.handshakeID == expected else {
      throw SettingsError(
        "cluster",
        """
        \(cluster.name): was begun without --data \(directory), by another node or with another directory: choose \
        another name, and start the node with --adopt first
        """
      )
    }
    try check(Int(cluster.settings.node.rawValue), among: cluster.settings.configuration.initialNodeCount)
    guard cluster.groupCount <= engine.identity.shardCount else {
      throw SettingsError("groups", "has to be at most \(engine.identity.shardCount), the directory's number of shards")
    }
    var positions: [GroupCursor] = []
    for number in 0..<cluster.groupCount {
      let group = GroupID(UInt8(number))
      let hash = StableHash.hash(Array("\(data.high) \(data.low)".utf8).span.bytes, seed: UInt64(number))
      let adoption = GroupAdoption(group: group, by: cluster.settings.node, data: RecordHash(hash))
      try await begin(adoption, cluster)
      positions.append(GroupCursor(group: group, cursor: adoption.cursor))
    }
    do throws(StorageError) {
      try engine.adopt(store: cluster.store, positions)
    } catch {
      throw SettingsError(error.description)
    }
    logger.notice(
      "The directory is the cluster's now",
      metadata: ["groups": "\(cluster.groupCount)", "shards": "\(engine.identity.shardCount)"]
    )
  }

  /// Refuse a node outside of the sets: it would remove the data, which no other node has.
  static func check(_ node: Int, among initialNodeCount: Int) throws(SettingsError) {
    guard node <= initialNodeCount else {
      throw SettingsError("adopt", "needs a node that the cluster begins with: give --node 1 to \(initialNodeCount)")
    }
  }

  /// Begin a group's log behind the data.
  private static func begin(_ adoption: GroupAdoption, _ cluster: NodeSettings) async throws(SettingsError) {
    for _ in 0..<attempts {
      switch await outcome(of: adoption, cluster.etcd) {
      case .adopted: return
      case .refused:
        throw SettingsError(
          "adopt",
          "cluster \(cluster.name): has data of group \(adoption.group.rawValue) already: choose another name"
        )
      case .unclear: try? await Task.sleep(for: pause)
      }
    }
    throw SettingsError("log", "etcd does not answer")
  }

  private static func outcome(
    of adoption: GroupAdoption,
    _ configuration: EtcdConfiguration
  ) async -> GroupAdoption.Outcome {
    let eventLoop = MultiThreadedEventLoopGroup.singleton.next()
    let outcome = try? await eventLoop.flatSubmit {
      let log = EtcdGroupLog(configuration: configuration, eventLoop: eventLoop)
      let promise = eventLoop.makePromise(of: GroupAdoption.Outcome.self)
      log.adopt(adoption) { outcome in
        promise.succeed(outcome)
        log.close()
      }
      return promise.futureResult
    }.get()
    return outcome ?? .unclear
  }

  /// Make the directory of a node a single store's, unless it is one already. It gets an identity of its own, so that
  /// it cannot be a node's again.
  static func leaveCluster(_ settings: StoreSettings, _ logger: Logger) throws(SettingsError) {
    guard RocksDBEngine.hasStore(settings.directory) else { return }
    let store = SessionID(high: .random(in: .min ... .max), low: .random(in: .min ... .max))
    let report: ShardAlignment.Report
    do throws(StorageError) {
      let engine = try RocksDBEngine(
        directory: settings.directory,
        shardCount: settings.shardCount,
        newStore: store,
        settings: settings.rocksDB
      )
      defer { engine.close() }
      guard try engine.isOfCluster else { return }
      report = try engine.makeSingleStore(store)
    } catch {
      throw SettingsError(error.description)
    }
    logger.notice("The directory was a node's of a cluster, and is a single store's now")
    if report.needsIndexRebuild {
      logger.warning(
        """
        The groups of the directory are of different moments: run tidemark rebuild-index once the store serves; until \
        then lists of users' channels may lack some
        """
      )
    }
  }
}
