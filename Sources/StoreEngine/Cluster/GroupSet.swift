/// The nodes that keep a group (docs/contribute/cluster-design.md, "Ownership").
package struct GroupSet: Hashable, Sendable {
  /// The members in the order of their ranks. The first one is the preferred owner: the group moves to it whenever it
  /// follows steadily. A node that is not among them keeps nothing of the group (C9).
  package var members: [NodeID]
  /// The log's own revision of the set. It rises with each change; 0: the log has none, and the set is the default.
  package var revision: UInt64

  /// Maximum number of members.
  package static let membersMax = 16

  package init(members: [NodeID], revision: UInt64) {
    self.members = members
    self.revision = revision
  }

  /// The set of a group that nobody has changed: a cluster's nodes, a different one first for each group.
  ///
  /// - Parameter nodes: the nodes that the cluster began with, in the order of their numbers; not empty.
  package static func initial(of group: GroupID, nodes: [NodeID]) -> GroupSet {
    let first = Int(group.rawValue) % nodes.count
    return GroupSet(members: Array(nodes[first...] + nodes[..<first]), revision: 0)
  }
}
