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

  /// The numbers of the settings alone; nil without `cluster`.
  init?(assumedFor settings: Settings) throws(SettingsError) {
    guard let cluster = try settings.string("cluster") else { return nil }
    etcd = try NodeSettings.etcd(settings, cluster: cluster)
    configuration = try AskedNumbers(settings).configuration(adopted: nil)
  }

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

/// A data directory that becomes a cluster's.
private struct AdoptedDirectory {
  let shardCount: Int
  /// Identity of a single store, with which its gateways continue their sessions; nil: it was a node's.
  let store: SessionID?
}

/// The numbers that a node's settings ask for; nil: it takes those of the cluster.
private struct AskedNumbers {
  private static let defaultNodeCount = 3

  let nodes: Int?
  let groups: Int?
  let shards: Int?

  init(_ settings: Settings) throws(SettingsError) {
    nodes = try settings.integer("members", in: 1...GroupSet.membersMax)
    groups = try settings.integer("groups", in: 1...GroupID.countMax)
    shards = try settings.integer("shards", in: 1...RocksDBEngine.shardCountMax)
  }

  /// Return the numbers of a cluster that this node begins.
  ///
  /// - Parameter adopted: the directory that is adopted; nil: there is none.
  func configuration(adopted: AdoptedDirectory?) throws(SettingsError) -> ClusterConfiguration {
    let nodes = nodes ?? Self.defaultNodeCount
    let groups = groups ?? nodes
    let shards = shards ?? adopted?.shardCount ?? max(RocksDBEngine.shardCountDefault, groups)
    guard groups <= shards else {
      throw SettingsError("groups", "has to be at most \(shards), the number of shards")
    }
    return ClusterConfiguration(
      shardCount: shards,
      groupCount: groups,
      initialNodeCount: nodes,
      id: SessionID(high: .random(in: .min ... .max), low: .random(in: .min ... .max)),
      handshakeID: adopted?.store
    )
  }
}

/// Questions to etcd before a node starts.
private struct ClusterTalk {
  private static let pause = Duration.milliseconds(500)
  /// A notice of etcd's silence comes with the first attempt, and then with each hundredth.
  private static let attemptsPerNotice = 100
  /// The announcement of a process that was killed stays for 10 s.
  private static let announcementChecks = 30

  let etcd: EtcdConfiguration
  let logger: Logger

  /// Settle the numbers that all nodes have in common.
  func agree(_ settings: Settings, cluster: String) async throws(SettingsError) -> ClusterConfiguration {
    let asked = try AskedNumbers(settings)
    let adopts = try settings.flag("adopt")
    if !adopts, let directory = try settings.string("data"), RocksDBEngine.hasStore(directory) {
      let exists = await ask { log, done in log.hasConfiguration(done: done) }
      guard exists else {
        throw SettingsError(
          "cluster",
          """
          \(cluster): etcd has no such cluster, and the data directory is not empty: correct --cluster or --log, or \
          give --adopt with a single store's directory; if etcd has lost its data see docs/operate/cluster.md
          """
        )
      }
    }
    let own = try asked.configuration(adopted: adopts ? try Self.adopted(settings) : nil)
    // Before the cluster's values are written, so that a wrong number does not use its name up.
    if adopts, let number = try settings.integer("node", in: 1...NodeID.numberMax), number > own.initialNodeCount,
      !(await ask { log, done in log.hasConfiguration(done: done) })
    {
      try Adoption.check(number, among: own.initialNodeCount)
    }
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

  /// The data directory; nil: it is new.
  private static func adopted(_ settings: Settings) throws(SettingsError) -> AdoptedDirectory? {
    guard let directory = try settings.string("data"), RocksDBEngine.hasStore(directory) else { return nil }
    do throws(StorageError) {
      let engine = try RocksDBEngine(
        directory: directory,
        shardCount: nil,
        newStore: SessionID(high: 0, low: 0),
        settings: RocksDBSettings()
      )
      defer { engine.close() }
      // What a lost cluster has acknowledged may be missing in the directory of one of its nodes.
      let store = try engine.isOfCluster ? nil : engine.identity.store
      return AdoptedDirectory(shardCount: engine.identity.shardCount, store: store)
    } catch {
      throw SettingsError(error.description)
    }
  }

  /// Refuse a number that another process has.
  func checkNumber(_ settings: Settings) async throws(SettingsError) {
    guard let number = try settings.integer("node", in: 1...NodeID.numberMax) else { return }
    let own = try NodeSettings.advertised(settings, try settings.endpoint("listen") ?? NodeSettings.listenDefault)
    var other: NodeAnnouncement?
    let node = NodeID(UInt16(number))
    for check in 0..<Self.announcementChecks {
      let nodes = await ask { log, done in log.nodes(done: done) }
      // An earlier process of this one has ended. A raise must not count on the levels that it supported.
      if nodes.contains(where: { $0.node == node }), !nodes.contains(where: { isOther($0, node, own) }) {
        _ = await ask { log, done in log.removeAnnouncement(of: node, done: done) }
      }
      other = nodes.first { isOther($0, node, own) }
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

  /// Whether an announcement is of another process with this number.
  private func isOther(_ announcement: NodeAnnouncement, _ node: NodeID, _ own: Endpoint) -> Bool {
    announcement.node == node && (announcement.host != own.host || Int(announcement.port) != own.port)
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
        logger.warning(
          "etcd does not answer, or has no values of this version: start it, or correct --log and --cluster",
          metadata: ["error": "\(reason)"]
        )
      }
      try? await Task.sleep(for: Self.pause)
    }
    preconditionFailure("an endless loop has ended")
  }
}
