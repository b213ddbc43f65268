package import ReceiptModel

/// A node of a cluster, as it announces itself.
package struct NodeAnnouncement: Hashable, Sendable {
  package var node: NodeID
  /// Address at which gateways and other nodes reach it.
  package var host: String
  package var port: UInt16
  /// Version of its program.
  package var version: String
  /// The levels that its program supports.
  package var levels: ClosedRange<ClusterLevel>

  package init(
    node: NodeID,
    host: String,
    port: UInt16,
    version: String,
    levels: ClosedRange<ClusterLevel> = ClusterLevel.supported
  ) {
    self.levels = levels
    self.node = node
    self.host = host
    self.port = port
    self.version = version
  }
}

/// The nodes of a cluster that run now, for their addresses and for people; never for safety. All calls are made on one
/// event loop, and all results come back on it.
package protocol NodeDirectory: AnyObject {
  /// Announce a node from now on, and report all that are announced, in the order of their numbers: at once and when
  /// they change.
  func announce(_ node: NodeAnnouncement, changed: @escaping ([NodeAnnouncement]) -> Void)

  /// Withdraw the announcement; `done` comes in any case.
  func withdraw(done: @escaping () -> Void)
}

/// What all nodes of a cluster have in common. The first one that starts fixes it, except the level.
package struct ClusterConfiguration: Hashable, Sendable {
  package var shardCount: Int
  package var groupCount: Int
  /// The cluster begins with the nodes 1 to this number. They are the members of all initial sets.
  package var initialNodeCount: Int
  /// `tidemark cluster raise` changes it.
  package var level: ClusterLevel
  /// Identity of the cluster's data, which the first node chooses at random. A cluster that is made again under the
  /// same name has another one, so nothing of the former one is taken for its own. Nil: an early build began the
  /// cluster.
  package var id: SessionID?
  /// Identity that the handshake announces, to which sessions, event ids and tickets belong: that of an adopted single
  /// store. Nil: that of the data.
  package var handshakeID: SessionID?

  package init(
    shardCount: Int,
    groupCount: Int,
    initialNodeCount: Int,
    level: ClusterLevel = ClusterLevel.supported.upperBound,
    id: SessionID? = nil,
    handshakeID: SessionID? = nil
  ) {
    self.level = level
    self.id = id
    self.handshakeID = handshakeID
    self.shardCount = shardCount
    self.groupCount = groupCount
    self.initialNodeCount = initialNodeCount
  }

  /// Return the shards of a group: ranges of equal length, as far as that is possible.
  package func shards(of group: GroupID) -> Range<Int> {
    let first = { (number: Int) in (number * shardCount + groupCount - 1) / groupCount }
    return first(Int(group.rawValue))..<first(Int(group.rawValue) + 1)
  }

  /// Return the set of a group that nobody has changed.
  package func initialSet(of group: GroupID) -> GroupSet {
    .initial(of: group, nodes: (1...UInt16(initialNodeCount)).map { NodeID($0) })
  }
}
