package import StoreEngine

/// Another set for a group.
package struct SetChange: Hashable, Sendable {
  package var group: GroupID
  /// In the order of their ranks; the first one is the preferred owner.
  package var members: [NodeID]
  /// The revision of the set that is replaced.
  package var revision: UInt64
  /// The log's first record when it was planned.
  package var first: RecordPosition

  init(_ group: GroupState, to members: [NodeID]) {
    self.group = group.id
    self.members = members
    revision = group.set.revision
    first = group.end.first
  }
}

extension ClusterState {
  /// Check that a change leaves enough copies of a group: a node that is no member any more removes its data.
  ///
  /// At least two of the new members have to be members already and have the log; one, if it is the only new member.
  /// One of these has to run: what is known of the others is their last report, and their disks may be lost. A change
  /// that drops nobody removes no data, and is always allowed.
  package func check(_ change: SetChange) throws(ClusterRefusal) {
    guard let group = groups.first(where: { $0.id == change.group }) else {
      throw .unknownGroup(change.group, count: groups.count)
    }
    if group.members.allSatisfy(change.members.contains) { return }
    let dropped = group.members.filter { !change.members.contains($0) }
    let copies = change.members.filter { group.members.contains($0) && group.hasLog($0) }
    guard copies.count >= min(2, change.members.count) else {
      throw .tooFewCopies(group.id, dropped: dropped, left: copies)
    }
    guard copies.contains(where: isRunning) else { throw .noRunningCopy(group.id, dropped: dropped, left: copies) }
  }
}

/// The reason why a command changes nothing more, and the remedy.
package enum ClusterRefusal: Error, Hashable, Sendable, CustomStringConvertible {
  case unknownGroup(GroupID, count: Int)
  case notMember(NodeID, GroupID, members: [NodeID])
  /// The node is a member of no group.
  case unknownNode(NodeID, members: [NodeID])
  /// The node lacks records of a group.
  case lacksLog(NodeID, GroupID)
  /// No other member of a group runs and has the log.
  case noOtherOwner(NodeID, GroupID)
  /// No member of any group runs and has the log.
  case noOwner
  case notRunning(NodeID)
  /// There are fewer places in sets than nodes.
  case noShare(NodeID, places: Int, nodes: Int)
  /// The set has as many members as sets can have.
  case setFull(GroupID)
  /// Sets do not shrink.
  case sizeBelowCommon(Int, common: Int)
  case onlyMember(NodeID, GroupID)
  case tooFewCopies(GroupID, dropped: [NodeID], left: [NodeID])
  case noRunningCopy(GroupID, dropped: [NodeID], left: [NodeID])
  /// The levels that these members support are not known.
  case membersNotRunning([NodeID])
  /// There is no level that all nodes support.
  case noCommonLevel
  /// These nodes do not support the cluster's level.
  case levelUnsupported(ClusterLevel, [NodeID])

  package var description: String {
    switch self {
    case .unknownGroup(let group, let count):
      "there is no group \(group.rawValue): give 0 to \(count - 1)"
    case .notMember(let node, let group, let members):
      """
      node \(node.rawValue) is no member of group \(group.rawValue): give one of \(members.text), or make it a member \
      with tidemark cluster add
      """
    case .unknownNode(let node, let members):
      "node \(node.rawValue) is a member of no group: give one of \(members.text)"
    case .lacksLog(let node, let group):
      """
      node \(node.rawValue) lacks records of group \(group.rawValue): wait until tidemark cluster status shows it as \
      following
      """
    case .noOtherOwner(let node, let group):
      """
      no other member of group \(group.rawValue) runs and has the group's records: start one, or wait until one \
      follows, before node \(node.rawValue) is drained
      """
    case .noOwner: "no member of any group runs and has the group's records: start the nodes first"
    case .notRunning(let node):
      "node \(node.rawValue) does not run: start it with --node \(node.rawValue), and run this again"
    case .noShare(let node, let places, let nodes):
      """
      node \(node.rawValue) would get no group: the sets have \(places) places for \(nodes) nodes: give --members with \
      a larger number of members of each group
      """
    case .setFull(let group):
      """
      group \(group.rawValue) has \(GroupSet.membersMax) members, and no more are possible: drop one with tidemark \
      cluster remove
      """
    case .sizeBelowCommon(let size, let common):
      "--members \(size): groups have \(common) members: give at least as many; tidemark cluster remove drops members"
    case .onlyMember(let node, let group):
      """
      node \(node.rawValue) is the only member of group \(group.rawValue): start another node, which then becomes a \
      member, and run this again
      """
    case .noRunningCopy(let group, let dropped, let left):
      """
      group \(group.rawValue) would have no running copy without node \(dropped.text): start node \(left.text), and \
      run this again
      """
    case .membersNotRunning(let nodes):
      """
      node \(nodes.text) does not run, so it is not known which levels it supports: start it, or drop it with tidemark \
      cluster remove, and run this again
      """
    case .levelUnsupported(let level, let nodes):
      """
      the cluster has level \(level.rawValue), which node \(nodes.text) does not support: install a newer \
      tidemark-store there, and run this again
      """
    case .noCommonLevel:
      """
      there is no level that all running nodes support: install the same tidemark-store on all of them, and run this \
      again
      """
    case .tooFewCopies(let group, let dropped, let left):
      """
      group \(group.rawValue) would lose copies without node \(dropped.text): \
      \(left.isEmpty ? "no other member has" : "of the others only node \(left.text) has") its records: start \
      another node, or wait until a member follows, and run this again
      """
    }
  }
}

extension [NodeID] {
  /// The numbers, separated by commas.
  var text: String { map { String($0.rawValue) }.joined(separator: ", ") }
}
