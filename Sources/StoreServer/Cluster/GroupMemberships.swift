internal import Logging
internal import NIOConcurrencyHelpers
internal import NIOCore
internal import ReceiptModel
internal import StoreClient
internal import StoreEngine

/// A node's part in a cluster: each event loop's connections to the shared log and to the other nodes. They stay open
/// while loops are made again from storage.
final class GroupMemberships: Sendable {
  private struct Links: Sendable {
    let log: SharedLogLink
    /// Nil in a cluster of one.
    let nodes: NodeLinks?
  }

  private let settings: ClusterSettings
  /// Of the connections to other nodes; their addresses are ``ClusterSettings/peers``.
  private let nodeConfiguration: StoreClientConfiguration?
  /// Identity of the cluster's data.
  private let store: SessionID
  private let secrets: NIOLockedValueBox<[[UInt8]]>
  private let links = NIOLockedValueBox<[Links]>([])

  init(_ settings: ClusterSettings, _ configuration: StoreServerConfiguration, store: SessionID, logger: Logger) {
    self.settings = settings
    self.store = store
    secrets = NIOLockedValueBox(configuration.secrets)
    if settings.peers.isEmpty {
      nodeConfiguration = nil
    } else {
      var client = StoreClientConfiguration(
        addresses: settings.peers,
        name: "tidemark-store node \(settings.node.rawValue)",
        logger: logger
      )
      client.ownNode = settings.node.rawValue
      client.transport = configuration.tls.map { .tls($0) }
      nodeConfiguration = client
    }
  }

  /// Make the membership of a loop's group.
  ///
  /// - Parameters:
  ///   - position: the loop's number. Loops come in order when the node starts.
  ///   - stored: how far local storage has the group's log.
  ///   - events: callbacks of the group's host.
  func membership(
    ofLoop position: Int,
    _ eventLoop: any EventLoop,
    stored: LogCursor,
    events: GroupEvents
  ) async throws -> GroupMembership {
    if position == links.withLockedValue(\.count) {
      let made = try await eventLoop.submit { self.makeLinks(eventLoop) }.get()
      links.withLockedValue { $0.append(made) }
    }
    let links = links.withLockedValue { $0[position] }
    let id = GroupID(UInt8(position))
    return GroupMembership(
      id: id,
      node: settings.node,
      initialSet: .initial(of: id, nodes: settings.initialNodes),
      limits: settings.limits,
      stored: stored,
      link: links.log,
      nodes: links.nodes,
      snapshots: nodeConfiguration.map { configuration in
        SnapshotSources(store: store) { [secrets] in
          var configuration = configuration
          configuration.secrets = secrets.withLockedValue { $0 }
          return configuration
        }
      },
      events: events
    )
  }

  private func makeLinks(_ eventLoop: any EventLoop) -> Links {
    Links(
      log: SharedLogLink(eventLoop: eventLoop, log: settings.makeLog(eventLoop), limits: settings.limits),
      nodes: nodeConfiguration.map { configuration in
        var configuration = configuration
        configuration.secrets = secrets.withLockedValue { $0 }
        return NodeLinks(eventLoop: eventLoop, configuration: configuration)
      }
    )
  }

  /// Probe the shared log for the group of a host, instead of the one before of the same loop.
  func startProbes(ofLoop position: Int, for host: LoopHost) {
    let log = links.withLockedValue { $0[position].log }
    host.eventLoop.execute { log.probe(for: [host.cluster?.replica].compactMap { $0 }) }
  }

  func stopProbes() {
    for links in links.withLockedValue({ $0 }) { links.log.eventLoop.execute { links.log.stop() } }
  }

  /// Use other secrets for future handshakes with other nodes, the current one first.
  func replaceSecrets(_ secrets: [[UInt8]]) {
    self.secrets.withLockedValue { $0 = secrets }
    for links in links.withLockedValue({ $0 }) {
      links.log.eventLoop.execute { links.nodes?.replaceSecrets(secrets) }
    }
  }

  /// Close the connections to other nodes.
  func close() async {
    await withTaskGroup(of: Void.self) { tasks in
      for nodes in links.withLockedValue({ $0 }).compactMap(\.nodes) {
        tasks.addTask { try? await nodes.eventLoop.flatSubmit { nodes.close() }.get() }
      }
    }
  }
}
