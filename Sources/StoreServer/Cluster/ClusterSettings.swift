package import NIOCore
package import StoreClient
package import StoreEngine

/// A node's part in a cluster (docs/cluster.md). Every event loop has one group, so all nodes have the same number of
/// loops.
package struct ClusterSettings: Sendable {
  package var node: NodeID
  /// The nodes that the cluster began with, in the order of their numbers.
  package var initialNodes: [NodeID]
  package var limits = ClusterLimits()
  /// Addresses at which the other nodes accept gateways; empty in a cluster of one.
  package var peers: [StoreClientConfiguration.Address]
  /// Connect an event loop to the shared log; called once for each loop, on it.
  package var makeLog: @Sendable (any EventLoop) -> any GroupLog

  package init(
    node: NodeID,
    initialNodes: [NodeID],
    peers: [StoreClientConfiguration.Address] = [],
    makeLog: @escaping @Sendable (any EventLoop) -> any GroupLog
  ) {
    self.node = node
    self.initialNodes = initialNodes
    self.peers = peers
    self.makeLog = makeLog
  }
}

/// What makes a host's loop a member of a cluster's group.
struct GroupMembership: Sendable {
  let id: GroupID
  let node: NodeID
  let initialSet: GroupSet
  let limits: ClusterLimits
  /// How far local storage has the group's log.
  let stored: LogCursor
  let link: SharedLogLink
  /// Nil in a cluster of one.
  let nodes: NodeLinks?
  /// Nil in a cluster of one.
  let snapshots: SnapshotSources?
  let events: GroupEvents
}
