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
  /// A group is a byte in the keys of the shared log. Each has an event loop.
  static let groupsMax = 64
  private static let nodesMax = 999

  let name: String
  /// Identity of the data: the same on all nodes, so that a gateway's session goes on at another one.
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
    agreed: ClusterConfiguration?,
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
    groupCount = agreed.groupCount
    guard let node = try settings.integer("node", in: 1...Self.nodesMax) else {
      throw SettingsError("node", "is missing: give the number of this node; each node has another one")
    }
    let bytes = Array(name.utf8)
    store = SessionID(
      high: StableHash.hash(bytes.span.bytes, seed: UInt64(groupCount)),
      low: StableHash.hash(bytes.span.bytes, seed: UInt64(groupCount) << 32)
    )
    let etcd = try Self.etcd(settings, cluster: name)
    self.etcd = etcd
    adopts = try settings.flag("adopt")
    let report = { @Sendable (failure: EtcdFailure, endpoint: Endpoint) in
      logger.warning("etcd call failed", metadata: ["server": "\(endpoint)", "error": "\(failure)"])
    }
    var cluster = ClusterSettings(
      node: NodeID(UInt16(node)),
      configuration: agreed,
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

  /// Return the address at which gateways and other nodes reach this one. Port 0: the one that it listens on.
  private static func advertised(_ settings: Settings, _ listen: Endpoint) throws(SettingsError) -> Endpoint {
    if let given = try settings.endpoint("advertise") {
      guard given.port > 0 else { throw SettingsError("advertise", "give HOST:PORT with a port above 0") }
      return given
    }
    guard !["0.0.0.0", "::"].contains(listen.host) else {
      throw SettingsError(
        "advertise",
        "is missing: --listen names no address of this machine; give the HOST:PORT at which gateways and nodes reach it"
      )
    }
    return listen
  }

  static func etcd(_ settings: Settings, cluster: String) throws(SettingsError) -> EtcdConfiguration {
    let urls = try settings.list("log")
    guard !urls.isEmpty else {
      throw SettingsError("log", "is missing: give etcd's servers, such as https://e1:2379,https://e2:2379")
    }
    let servers = try urls.map { text throws(SettingsError) in
      guard let url = HTTPURL(text), url.path == "/" else {
        throw SettingsError("log", "\"\(text)\": give https://HOST:PORT")
      }
      return url
    }
    guard servers.allSatisfy({ $0.usesTLS == servers[0].usesTLS }) else {
      throw SettingsError("log", "give https:// for all servers, or for none")
    }
    do {
      return try EtcdConfiguration(
        cluster: cluster,
        endpoints: servers.map(\.endpoint),
        tls: servers[0].usesTLS ? try tls(settings) : nil
      )
    } catch let refusal as EtcdConfiguration.Refusal {
      throw error(refusal)
    } catch let error as SettingsError {
      throw error
    } catch {
      throw SettingsError("log", "\(error)")
    }
  }

  private static func tls(_ settings: Settings) throws(SettingsError) -> TLSContext {
    let client = TLSClientConfiguration(
      authorityFile: try settings.string("log-ca"),
      certificateChainFile: try settings.string("log-cert"),
      privateKeyFile: try settings.string("log-key")
    )
    do { return try TLSContext(client: client) } catch {
      throw SettingsError("log-cert", "the files of log-cert, log-key and log-ca: \(error)")
    }
  }

  private static func error(_ refusal: EtcdConfiguration.Refusal) -> SettingsError {
    switch refusal {
    case .noEndpoint: SettingsError("log", "is missing: give etcd's servers")
    case .badClusterName:
      SettingsError("cluster", "has to be 1 to 64 letters, digits, hyphens, underscores and full stops")
    case .plaintextOffLoopback(let endpoint):
      SettingsError("log", "\(endpoint): is not on this machine: give https:// with --log-cert, --log-key and --log-ca")
    }
  }
}
