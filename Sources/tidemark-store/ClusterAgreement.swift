internal import Logging
internal import NIOConcurrencyHelpers
internal import NIOCore
internal import NIOPosix
internal import Operations
internal import ReceiptModel
internal import StoreEngine
internal import StoreEtcd
internal import StoreRocksDB

/// What a node settles with etcd before it starts.
///
/// All nodes of a cluster have some numbers in common: the first node that starts fixes them, from its flags. Later
/// nodes take them from etcd, and their flags must not contradict. They have to support the cluster's level. And no two
/// nodes have the same number.
struct ClusterAgreement {
  let configuration: ClusterConfiguration
  let etcd: EtcdConfiguration

  /// Nil without `cluster`.
  init?(_ settings: Settings, _ logger: Logger) async throws(SettingsError) {
    guard let cluster = try settings.string("cluster") else { return nil }
    etcd = try NodeSettings.etcd(settings, cluster: cluster)
    let talk = ClusterTalk(etcd: etcd, logger: logger)
    try await talk.checkNumber(settings)
    // After a wait for another process, so that the level is that of now.
    configuration = try await talk.agree(settings, cluster: cluster)
  }
}

/// Questions to etcd before a node starts.
private struct ClusterTalk {
  private static let pause = Duration.milliseconds(500)
  /// A notice of etcd's silence comes with the first attempt, and then with each hundredth.
  private static let attemptsPerNotice = 100
  private static let defaultNodeCount = 3
  /// The announcement of a process that was killed stays for 10 s.
  private static let announcementChecks = 30

  let etcd: EtcdConfiguration
  let logger: Logger

  /// Settle the numbers that all nodes have in common.
  func agree(_ settings: Settings, cluster: String) async throws(SettingsError) -> ClusterConfiguration {
    let asked = (
      nodes: try settings.integer("members", in: 1...GroupSet.membersMax),
      groups: try settings.integer("groups", in: 1...GroupID.countMax),
      shards: try settings.integer("shards", in: 1...RocksDBEngine.shardCountMax)
    )
    let nodes = asked.nodes ?? Self.defaultNodeCount
    let groups = asked.groups ?? nodes
    let stored = asked.shards == nil ? try Self.storedShardCount(settings) : nil
    let shards = asked.shards ?? stored ?? max(RocksDBEngine.shardCountDefault, groups)
    guard groups <= shards else {
      throw SettingsError("groups", "has to be at most \(shards), the number of shards")
    }
    let own = ClusterConfiguration(shardCount: shards, groupCount: groups, initialNodeCount: nodes)
    let agreed = await ask { log, done in log.agree(own, done: done) }
    guard ClusterLevel.supported.contains(agreed.level) else {
      throw SettingsError(
        "cluster",
        """
        \(cluster): has level \(agreed.level.rawValue), and this tidemark-store \(ProductVersion.current) supports \
        \(ClusterLevel.supported.text): install the tidemark-store that the other nodes run (tidemark cluster status)
        """
      )
    }
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

  /// Refuse a number that another process has.
  func checkNumber(_ settings: Settings) async throws(SettingsError) {
    guard let number = try settings.integer("node", in: 1...NodeID.numberMax) else { return }
    let own = try NodeSettings.advertised(settings, try settings.endpoint("listen") ?? NodeSettings.listenDefault)
    var other: NodeAnnouncement?
    for check in 0..<Self.announcementChecks {
      let nodes = await ask { log, done in log.nodes(done: done) }
      other = nodes.first { $0.node.rawValue == number && ($0.host != own.host || Int($0.port) != own.port) }
      guard let other else { return }
      if check == 0 {
        logger.notice(
          "Waiting for the process that had this node's number",
          metadata: ["node": "\(number)", "address": "\(other.host):\(other.port)"]
        )
      }
      try? await Task.sleep(for: Self.pause)
    }
    if let other {
      throw SettingsError(
        "node",
        "\(number): is used by the process at \(other.host):\(other.port): give each node another number"
      )
    }
  }

  /// Ask etcd until it answers.
  private func ask<Answer: Sendable>(
    _ body: @escaping @Sendable (EtcdGroupLog, @escaping (Answer?) -> Void) -> Void
  ) async -> Answer {
    let eventLoop = MultiThreadedEventLoopGroup.singleton.next()
    for attempt in 0... {
      let failure = NIOLockedValueBox("no answer")
      let answer = try? await eventLoop.flatSubmit { [etcd] in
        let log = EtcdGroupLog(configuration: etcd, eventLoop: eventLoop) { reason, server in
          failure.withLockedValue { $0 = "\(server): \(reason)" }
        }
        let promise = eventLoop.makePromise(of: Answer?.self)
        body(log) { answer in
          promise.succeed(answer)
          log.close()
        }
        return promise.futureResult
      }.get()
      if let answer { return answer }
      if attempt % Self.attemptsPerNotice == 0 {
        let reason = failure.withLockedValue { $0 }
        logger.warning("etcd does not answer: start it, or correct --log", metadata: ["error": "\(reason)"])
      }
      try? await Task.sleep(for: Self.pause)
    }
    preconditionFailure("an endless loop has ended")
  }
}
