package import StoreEngine
package import StoreEtcd

/// A group with its current set, for plans and for people.
package struct GroupState: Hashable, Sendable {
  package let id: GroupID
  package let set: GroupSet
  package let end: GroupEnd
  /// By all nodes that have ever reported, also those that are no members any more.
  package let reports: [NodeID: MemberReport]

  package init(id: GroupID, set: GroupSet, end: GroupEnd, reports: [NodeID: MemberReport]) {
    self.id = id
    self.set = set
    self.end = end
    self.reports = reports
  }

  package var members: [NodeID] { self.set.members }

  /// The node whose claim is the latest; `.none`: nobody has claimed the group.
  package var owner: NodeID { end.owner.node }

  /// Whether a node has all records of the group, in its storage or as the next ones in the log, and can read these.
  package func hasLog(_ node: NodeID) -> Bool {
    // A node has a new key some seconds before it is in use.
    let newest = members.compactMap { reports[$0]?.key }.max() ?? .none
    return reports[node]?.hasRecords(before: end.first, key: newest) ?? false
  }

  /// Whether a node has all records, but not the newest record key.
  func lacksOnlyKey(_ node: NodeID) -> Bool {
    !hasLog(node) && reports[node]?.hasRecords(before: end.first, key: .none) == true
  }

  /// Number of records that a node lacks, by its report; nil without one.
  package func lag(of node: NodeID) -> UInt64? {
    reports[node].map { end.last > $0.position ? end.last.rawValue - $0.position.rawValue : 0 }
  }
}

/// A cluster as a plan sees it.
package struct ClusterState: Hashable, Sendable {
  package let configuration: ClusterConfiguration
  /// ``ClusterOverview/revisions``
  let revisions: ClusterRevisions
  /// The nodes that run.
  package let nodes: [NodeAnnouncement]
  package let groups: [GroupState]

  package init(_ overview: ClusterOverview) {
    configuration = overview.configuration
    revisions = overview.revisions
    nodes = overview.nodes
    groups = overview.groups.map { group in
      GroupState(
        id: group.group,
        set: group.end.set ?? overview.configuration.initialSet(of: group.group),
        end: group.end,
        reports: group.reports
      )
    }
  }

  package func isRunning(_ node: NodeID) -> Bool { nodes.contains { $0.node == node } }

  /// Whether a group would move to a member: it runs, has the log, and does not stop soon.
  func canOwn(_ node: NodeID, _ group: GroupState) -> Bool {
    isRunning(node) && group.hasLog(node) && group.reports[node]?.phase == .following
  }

  /// Number of groups that each node is a member of. The keys are all members.
  package var memberships: [NodeID: Int] {
    groups.reduce(into: [:]) { counts, group in for member in group.members { counts[member, default: 0] += 1 } }
  }

  /// Number of groups whose preferred owner each node is.
  package var preferences: [NodeID: Int] {
    groups.reduce(into: [:]) { counts, group in counts[group.members[0], default: 0] += 1 }
  }

  /// The size that most sets have; of two that are as frequent, the smaller one.
  ///
  /// `add` and `remove` let one set at a time grow by one member, so an interrupted one leaves one set above it. Where
  /// there is only one group, the nodes that the cluster began with tell its size before.
  package var commonSize: Int {
    if groups.count == 1 {
      let (size, initial) = (groups[0].members.count, configuration.initialNodeCount)
      return size == initial + 1 ? initial : size
    }
    let counts = groups.reduce(into: [Int: Int]()) { $0[$1.members.count, default: 0] += 1 }
    return counts.max { ($0.value, -$0.key) < ($1.value, -$1.key) }?.key ?? 0
  }
}
