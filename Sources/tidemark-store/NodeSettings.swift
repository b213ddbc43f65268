internal import Logging
internal import NIOCore
internal import Operations
internal import ReceiptModel
internal import StoreClient
internal import StoreEngine
internal import StoreEtcd
internal import StoreServer
internal import TLSSession

/// A node's part in a cluster, from flags, environment and file.
struct NodeSettings {
  /// Keys that need `cluster`.
  private static let dependentKeys = [
    "log", "log-cert", "log-key", "log-ca", "node", "members", "groups", "peers", "adopt",
  ]
  /// A group is a byte in the keys of the shared log. Each has an event loop.
  private static let groupsMax = 64

  let name: String
  /// Identity of the data: the same on all nodes, so that a gateway's session goes on at another one.
  let store: SessionID
  let groupCount: Int
  let settings: ClusterSettings
  let etcd: EtcdConfiguration
  /// Whether the directory of a single store becomes the cluster's.
  let adopts: Bool

  /// Nil without `cluster`.
  init?(_ settings: Settings, metrics: MetricsRegistry, _ logger: Logger) throws(SettingsError) {
    guard let name = try settings.string("cluster") else {
      for key in Self.dependentKeys {
        if try settings.string(key) != nil {
          throw SettingsError(key, "needs --cluster with the name of the cluster")
        }
      }
      return nil
    }
    self.name = name
    let members = try settings.integer("members", in: 1...7) ?? 3
    groupCount = try settings.integer("groups", in: 1...Self.groupsMax) ?? members
    guard let node = try settings.integer("node", in: 1...members) else {
      throw SettingsError("node", "is missing: give the number of this node, 1 to \(members) (--members)")
    }
    let bytes = Array(name.utf8)
    store = SessionID(
      high: StableHash.hash(bytes.span.bytes, seed: UInt64(groupCount)),
      low: StableHash.hash(bytes.span.bytes, seed: UInt64(groupCount) << 32)
    )
    let etcd = try EtcdConfiguration(
      cluster: name,
      urls: try settings.list("log"),
      files: TLSClientConfiguration(
        authorityFile: try settings.string("log-ca"),
        certificateChainFile: try settings.string("log-cert"),
        privateKeyFile: try settings.string("log-key")
      )
    )
    self.etcd = etcd
    adopts = try settings.flag("adopt")
    var cluster = ClusterSettings(
      node: NodeID(UInt16(node)),
      initialNodes: (1...UInt16(members)).map { NodeID($0) },
      peers: try Self.peers(settings, members: members),
      makeLog: { eventLoop in
        let log = EtcdGroupLog(configuration: etcd, eventLoop: eventLoop) { failure, endpoint in
          logger.warning("etcd call failed", metadata: ["server": "\(endpoint)", "error": "\(failure)"])
        }
        let counted = NIOLoopBound(log, eventLoop: eventLoop)
        metrics.register(on: eventLoop) { counted.value.collect(into: &$0) }
        return log
      }
    )
    cluster.limits = ClusterLimits(groupCount: groupCount)
    self.settings = cluster
  }

  private static func peers(
    _ settings: Settings,
    members: Int
  ) throws(SettingsError) -> [StoreClientConfiguration.Address] {
    let peers = try settings.endpoints("peers")
    guard peers.count == members - 1 else {
      throw SettingsError(
        "peers",
        "has \(peers.count) addresses: give the --listen addresses of the \(members - 1) other nodes (--members)"
      )
    }
    guard peers.allSatisfy({ $0.port > 0 }) else { throw SettingsError("peers", "give HOST:PORT with a port above 0") }
    return peers.map { StoreClientConfiguration.Address(host: $0.host, port: $0.port) }
  }
}
