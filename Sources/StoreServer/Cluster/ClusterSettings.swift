package import NIOCore
package import Operations
package import StoreEngine

/// A node's part in a cluster (docs/operate/cluster.md). Every event loop has one group, so all nodes have the same
/// number of loops.
package struct ClusterSettings: Sendable {
  package var node: NodeID
  package var configuration: ClusterConfiguration
  package var limits = ClusterLimits()
  /// Address at which gateways and other nodes reach this one. Port 0: the one that it listens on.
  package var advertised: Endpoint
  /// Connect an event loop to the shared log; called once for each loop, on it.
  package var makeLog: @Sendable (any EventLoop) -> any GroupLog
  /// Connect an event loop to the directory of nodes; called once.
  package var makeDirectory: @Sendable (any EventLoop) -> any NodeDirectory

  package init(
    node: NodeID,
    configuration: ClusterConfiguration,
    advertised: Endpoint,
    makeLog: @escaping @Sendable (any EventLoop) -> any GroupLog,
    makeDirectory: @escaping @Sendable (any EventLoop) -> any NodeDirectory
  ) {
    self.node = node
    self.configuration = configuration
    self.advertised = advertised
    self.makeLog = makeLog
    self.makeDirectory = makeDirectory
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
  /// The record keys in local storage.
  let keys: [RecordKey]
  let link: SharedLogLink
  let nodes: NodeLinks
  let others: OtherNodes
  let events: GroupEvents
}
