internal import Logging
internal import NIOConcurrencyHelpers
internal import NIOCore
internal import Operations
internal import ReceiptModel
internal import ReceiptWire
internal import StoreClient
internal import StoreEngine

/// A node's part in a cluster: each event loop's connections to the shared log and to the other nodes, which stay open
/// while loops are made again from storage, and the directory of nodes.
final class ClusterLinks: Sendable {
  private struct Links: Sendable {
    let log: SharedLogLink
    let nodes: NodeLinks
  }

  private struct State: Sendable {
    var secrets: [[UInt8]]
    /// The other nodes that run.
    var others: [NodeAnnouncement] = []
    /// One of each event loop.
    var links: [Links] = []
    var directory: NIOLoopBound<any NodeDirectory>?
  }

  private let settings: ClusterSettings
  /// Of the connections to other nodes, without their addresses and the secrets.
  private let nodeConfiguration: StoreClientConfiguration
  /// Identity that the nodes announce in handshakes.
  private let store: SessionID
  private let logger: Logger
  private let state: NIOLockedValueBox<State>

  init(_ settings: ClusterSettings, _ configuration: StoreServerConfiguration, store: SessionID, logger: Logger) {
    self.settings = settings
    self.store = store
    self.logger = logger
    state = NIOLockedValueBox(State(secrets: configuration.secrets))
    var client = StoreClientConfiguration(
      addresses: [],
      name: "tidemark-store node \(settings.node.rawValue)",
      logger: logger
    )
    client.ownNode = settings.node.rawValue
    client.transport = configuration.nodeTLS.map { .tls($0) }
    nodeConfiguration = client
  }

  /// Make the membership of a loop's group.
  ///
  /// - Parameters:
  ///   - index: the loop's number. Loops come in order when the node starts.
  ///   - stored: how far local storage has the group's log.
  ///   - keys: the group's record keys in local storage.
  ///   - events: callbacks of the group's host.
  func membership(
    ofLoop index: Int,
    _ eventLoop: any EventLoop,
    stored: LogCursor,
    keys: [RecordKey],
    events: GroupEvents
  ) async throws -> GroupMembership {
    if index == state.withLockedValue(\.links.count) {
      let made = try await eventLoop.submit { self.makeLinks(eventLoop) }.get()
      state.withLockedValue { $0.links.append(made) }
    }
    let links = state.withLockedValue { $0.links[index] }
    let id = GroupID(UInt8(index))
    return GroupMembership(
      id: id,
      node: settings.node,
      initialSet: settings.configuration.initialSet(of: id),
      limits: settings.limits,
      stored: stored,
      keys: keys,
      link: links.log,
      nodes: links.nodes,
      others: OtherNodes(
        store: store,
        configuration: { [self] in currentNodeConfiguration() },
        address: { [self] node in state.withLockedValue(\.others).first { $0.node == node }.map(Self.address) }
      ),
      events: events
    )
  }

  private func makeLinks(_ eventLoop: any EventLoop) -> Links {
    Links(
      log: SharedLogLink(eventLoop: eventLoop, log: settings.makeLog(eventLoop), limits: settings.limits),
      nodes: NodeLinks(eventLoop: eventLoop)
    )
  }

  /// Return how to connect to the other nodes that run now.
  private func currentNodeConfiguration() -> StoreClientConfiguration {
    var configuration = nodeConfiguration
    let (secrets, others) = state.withLockedValue { ($0.secrets, $0.others) }
    configuration.secrets = secrets
    configuration.addresses = others.map(Self.address)
    return configuration
  }

  private static func address(_ node: NodeAnnouncement) -> StoreClientConfiguration.Address {
    StoreClientConfiguration.Address(host: node.host, port: Int(node.port))
  }

  /// Probe the shared log for the group of a host, instead of the one before of the same loop.
  func startProbes(ofLoop index: Int, for host: LoopHost) {
    let log = state.withLockedValue { $0.links[index].log }
    host.eventLoop.execute { log.probe(for: [host.groupHost?.replica].compactMap { $0 }) }
  }

  /// The longest time since the shared log has answered a probe.
  var logSilence: Duration { state.withLockedValue(\.links).map(\.log.silence).max() ?? .zero }

  /// ``ClusterStatistics/followAges`` of all loops.
  func followAges() async -> Histogram {
    var ages = Histogram.durations
    for links in state.withLockedValue(\.links) {
      let log = links.log
      if let own = try? await log.eventLoop.submit({ log.followAges }).get() { ages.add(own) }
    }
    return ages
  }

  func stopProbes() {
    for links in state.withLockedValue(\.links) { links.log.eventLoop.execute { links.log.stop() } }
  }

  /// Use other secrets for future handshakes with other nodes, the current one first.
  func replaceSecrets(_ secrets: [[UInt8]]) {
    let links = state.withLockedValue { state in
      state.secrets = secrets
      return state.links
    }
    for links in links { links.nodes.eventLoop.execute { links.nodes.replaceSecrets(secrets) } }
  }

  /// Withdraw the announcement, and close the connections to the shared log and to other nodes.
  func close() async {
    let (links, directory) = state.withLockedValue { ($0.links, $0.directory) }
    if let directory {
      try? await directory.eventLoop.flatSubmit {
        let withdrawn = directory.eventLoop.makePromise(of: Void.self)
        directory.value.withdraw { withdrawn.succeed() }
        return withdrawn.futureResult
      }.get()
    }
    await withTaskGroup(of: Void.self) { tasks in
      for links in links {
        tasks.addTask {
          try? await links.nodes.eventLoop.flatSubmit {
            links.log.log.close()
            return links.nodes.close()
          }.get()
        }
      }
    }
  }

  // MARK: Directory

  /// Announce this node, and connect to the others as they come and go.
  ///
  /// - Parameters:
  ///   - port: the port that the node listens on.
  ///   - changed: gets the other nodes when they change.
  func announce(port: Int, on eventLoop: any EventLoop, changed: @escaping @Sendable ([NodeAnnouncement]) -> Void) {
    let address = settings.advertised
    let own = NodeAnnouncement(
      node: settings.node,
      host: address.host,
      port: UInt16(address.port > 0 ? address.port : port),
      version: ProductVersion.current,
      levels: settings.limits.levels
    )
    eventLoop.execute { [self] in
      let directory = settings.makeDirectory(eventLoop)
      state.withLockedValue { $0.directory = NIOLoopBound(directory, eventLoop: eventLoop) }
      directory.announce(own) { [self] nodes in
        if let other = nodes.first(where: { $0.node == own.node && $0 != own }) {
          logger.error(
            "Another process runs as this node: give each node another number (--node)",
            metadata: ["node": "\(own.node.rawValue)", "other": "\(other.host):\(other.port)"]
          )
        }
        let others = nodes.filter { $0.node != own.node }
        logger.info(
          "Nodes of the cluster",
          metadata: ["others": "\(others.map { "\($0.node.rawValue) \($0.host):\($0.port)" })"]
        )
        connect(to: others)
        changed(others)
      }
    }
  }

  private func connect(to others: [NodeAnnouncement]) {
    let links = state.withLockedValue { state in
      state.others = others
      return state.links
    }
    let configuration = currentNodeConfiguration()
    let peers = others.map(\.peer)
    for links in links { links.nodes.eventLoop.execute { links.nodes.connect(to: peers, configuration) } }
  }
}

extension NodeAnnouncement {
  /// The node as others name it in their maps.
  var peer: ShardMap.Peer { ShardMap.Peer(node: node.rawValue, host: host, port: port) }
}
