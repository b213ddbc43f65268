package import NIOCore
package import StoreEngine

/// A node's part in a cluster (docs/cluster.md). Every event loop has one group, so all nodes have the same number of
/// loops.
package struct ClusterSettings: Sendable {
  package var node: NodeID
  /// All nodes of the cluster, in the order of their ranks.
  package var members: [NodeID]
  package var limits = ClusterLimits()
  /// Connect an event loop to the shared log; called once for each loop, on it.
  package var makeLog: @Sendable (any EventLoop) -> any GroupLog

  package init(
    node: NodeID,
    members: [NodeID],
    makeLog: @escaping @Sendable (any EventLoop) -> any GroupLog
  ) {
    self.node = node
    self.members = members
    self.makeLog = makeLog
  }
}
