package import Operations

/// Values of a node for `/metrics`.
package struct ClusterStatistics: Sendable {
  // Now
  /// Groups of the cluster.
  package var groups = 0
  package var ownedGroups = 0
  /// Groups whose set the node is in, and of which it has data.
  package var memberGroups = 0
  /// Groups that receive a snapshot.
  package var joiningGroups = 0
  /// Groups whose commands, or whose followers, wait for a record key.
  package var keyWaits = 0

  // Since the start
  package var groupsGained = 0
  /// Times that this node lost a group: by a claim, or by a planned move.
  package var groupsLost = 0
  package var snapshotsInstalled = 0
  /// Age of the newest batch of a record when this node had applied the record as a follower, by the clocks of both
  /// nodes.
  package var followAges = Histogram.durations

  package init() {}
}
