internal import Logging
internal import NIOCore
internal import Operations
internal import ReceiptModel
internal import StoreEngine
internal import StoreEtcd
internal import StoreServer
internal import TLSSession

/// A node's part in a cluster, from flags, environment and file.
struct NodeSettings {
  /// Keys that need `cluster`.
  private static let dependentKeys = [
    "log", "log-cert", "log-key", "log-ca", "node", "members", "groups", "advertise", "adopt",
  ]
  static let listenDefault = Endpoint(host: "127.0.0.1", port: 7_410)

  let name: String
  /// Identity of the data: the same on all nodes.
  let store: SessionID
  let groupCount: Int
  let settings: ClusterSettings
  let etcd: EtcdConfiguration
  /// Whether the directory of a single store becomes the cluster's.
  let adopts: Bool

  /// Nil without `cluster`.
  ///
  /// - Parameter agreed: what all nodes of the cluster have in common; nil without `cluster`.
  init?(
    _ settings: Settings,
    agreed: ClusterAgreement?,
    listen: Endpoint,
    metrics: MetricsRegistry,
    _ logger: Logger
  ) throws(SettingsError) {
    guard let name = try settings.string("cluster"), let agreed else {
      for key in Self.dependentKeys {
        if try settings.string(key) != nil {
          throw SettingsError(key, "needs --cluster with the name of the cluster")
        }
      }
      return nil
    }
    self.name = name
    groupCount = agreed.configuration.groupCount
    guard let node = try settings.integer("node", in: 1...NodeID.numberMax) else {
      throw SettingsError("node", "is missing: give the number of this node; each node has another one")
    }
    store = agreed.configuration.id ?? Self.identity(ofCluster: name, groupCount: groupCount)
    let etcd = agreed.etcd
    self.etcd = etcd
    adopts = try settings.flag("adopt")
    let throttle = LogThrottle()
    let report = { @Sendable (failure: EtcdFailure, endpoint: Endpoint) in
      let kind = "\(failure)".prefix { $0 != "(" }
      guard let count = throttle.occurrencesToLog("\(endpoint) \(kind)") else { return }
      logger.warning(
        "Calls of etcd failed",
        metadata: ["server": "\(endpoint)", "error": "\(failure)", "count": "\(count)"]
      )
    }
    var cluster = ClusterSettings(
      node: NodeID(UInt16(node)),
      configuration: agreed.configuration,
      advertised: try Self.advertised(settings, listen),
      makeLog: { eventLoop in
        let log = EtcdGroupLog(configuration: etcd, eventLoop: eventLoop, report: report)
        let counted = NIOLoopBound(log, eventLoop: eventLoop)
        metrics.register(on: eventLoop) { counted.value.collect(into: &$0) }
        return log
      },
      makeDirectory: { EtcdNodeDirectory(configuration: etcd, eventLoop: $0, report: report) }
    )
    cluster.limits = ClusterLimits(groupCount: groupCount)
    self.settings = cluster
  }

  /// The identity of a cluster that an early build began.
  private static func identity(ofCluster name: String, groupCount: Int) -> SessionID {
    let bytes = Array(name.utf8)
    return SessionID(
      high: StableHash.hash(bytes.span.bytes, seed: UInt64(groupCount)),
      low: StableHash.hash(bytes.span.bytes, seed: UInt64(groupCount) << 32)
    )
  }

  private static let anyAddresses: Set<String> = ["0.0.0.0", "::"]

  /// Return the address at which gateways and other nodes reach this one. Port 0: the one that it listens on.
  static func advertised(_ settings: Settings, _ listen: Endpoint) throws(SettingsError) -> Endpoint {
    if let given = try settings.endpoint("advertise") {
      guard given.port > 0, !anyAddresses.contains(given.host) else {
        throw SettingsError("advertise", "\(given): give a HOST:PORT that others can connect to, with a port above 0")
      }
      return given
    }
    guard !anyAddresses.contains(listen.host) else {
      throw SettingsError(
        "advertise",
        "is missing: --listen names no address of this machine; give the HOST:PORT at which gateways and nodes reach it"
      )
    }
    return listen
  }

  /// Return how to reach etcd.
  static func etcd(_ settings: Settings, cluster: String) throws(SettingsError) -> EtcdConfiguration {
    try EtcdConfiguration(
      cluster: cluster,
      urls: try settings.list("log"),
      files: TLSClientConfiguration(
        authorityFile: try settings.string("log-ca"),
        certificateChainFile: try settings.string("log-cert"),
        privateKeyFile: try settings.string("log-key")
      )
    )
  }
}
