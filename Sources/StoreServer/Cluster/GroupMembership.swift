internal import StoreEngine

/// What makes a host's loop a member of a cluster's group.
struct GroupMembership: Sendable {
  let id: GroupID
  let node: NodeID
  /// The nodes that keep the group, in the order of their ranks.
  let members: [NodeID]
  let limits: ClusterLimits
  /// How far local storage has the group's log.
  let stored: LogCursor
  let link: SharedLogLink
}
