internal import StoreEngine

/// Joining and leaving of nodes. One set changes at a time, so that one snapshot at a time is taken.
extension ClusterState {
  // MARK: Add

  func add(_ node: NodeID, members: Int?) throws(ClusterRefusal) -> ClusterStep {
    let common = commonSize
    let size = members ?? common
    guard size >= common else { throw .sizeBelowCommon(size, common: common) }
    let joined = groups.filter { $0.members.contains(node) }
    if let joining = joined.first(where: { !$0.hasLog(node) }) { return .waitForMember(node, joining.id) }
    if let grown = joined.first(where: { $0.members.count == size + 1 }) {
      return .change([try dropping(for: node, grown)])
    }
    let places = groups.reduce(0) { $0 + max($1.members.count, members ?? 0) }
    let nodes = Set(memberships.keys).union([node])
    let share = min(places / nodes.count, groups.count)
    guard share > 0 || !joined.isEmpty else { throw .noShare(node, places: places, nodes: nodes.count) }
    guard joined.count < share, let group = groupToJoin(node, size: size) else { return balancedOwners }
    guard isRunning(node) else { throw .notRunning(node) }
    return .change([SetChange(group, to: group.members + [node])])
  }

  /// Nobody leaves the groups, and the preferred owners stay.
  func addToAll(_ node: NodeID) throws(ClusterRefusal) -> ClusterStep {
    if let joining = groups.first(where: { $0.members.contains(node) && !$0.hasLog(node) }) {
      return .waitForMember(node, joining.id)
    }
    guard let group = groups.first(where: { !$0.members.contains(node) }) else { return .done }
    guard group.members.count < GroupSet.membersMax else { throw .setFull(group.id) }
    guard isRunning(node) else { throw .notRunning(node) }
    return .change([SetChange(group, to: group.members + [node])])
  }

  /// The group that a node joins next: one whose set is too small, or one with a member of many groups. Sets that are
  /// larger than others stay as they are.
  private func groupToJoin(_ node: NodeID, size: Int) -> GroupState? {
    let memberships = memberships
    /// Groups of the most loaded member that could be dropped.
    func load(_ group: GroupState) -> Int {
      group.members.filter { $0 != group.owner }.map { memberships[$0, default: 0] }.max() ?? 0
    }
    let open = groups.filter {
      !$0.members.contains(node) && $0.members.count <= size && $0.members.count < GroupSet.membersMax
    }
    if let small = open.filter({ $0.members.count < size }).min(by: { $0.members.count < $1.members.count }) {
      return small
    }
    return open.max { (load($0), $1.id) < (load($1), $0.id) }
  }

  /// Drop the member of most groups, but not the owner if another one can go.
  private func dropping(for node: NodeID, _ group: GroupState) throws(ClusterRefusal) -> SetChange {
    let memberships = memberships
    let others = group.members.filter { $0 != node }.sorted { a, b in
      guard (a == group.owner) == (b == group.owner) else { return b == group.owner }
      return memberships[a, default: 0] > memberships[b, default: 0]
    }
    var refusal: ClusterRefusal?
    for dropped in others {
      let change = SetChange(group, to: group.members.filter { $0 != dropped })
      do throws(ClusterRefusal) {
        try check(change)
        return change
      } catch {
        refusal = refusal ?? error
      }
    }
    throw refusal ?? .onlyMember(node, group.id)
  }

  // MARK: Remove

  func remove(_ node: NodeID) throws(ClusterRefusal) -> ClusterStep {
    let groups = groups.filter { $0.members.contains(node) }
    guard !groups.isEmpty else {
      // A node that the cluster begins with may never have run.
      let isInitial = node.rawValue <= configuration.initialNodeCount
      let isKnown = isInitial || isRunning(node) || self.groups.contains { $0.reports[node] != nil }
      guard isKnown else { throw .unknownNode(node, members: memberships.keys.sorted()) }
      return waitForOthers(toOwn: self.groups, of: node)
    }
    var refusal: ClusterRefusal?
    for group in groups {
      do throws(ClusterRefusal) {
        return try remove(node, group)
      } catch {
        // The other groups come first: they need not wait for this one.
        refusal = refusal ?? error
      }
    }
    throw refusal ?? .unknownNode(node, members: [])
  }

  private func remove(_ node: NodeID, _ group: GroupState) throws(ClusterRefusal) -> ClusterStep {
    let others = group.members.filter { $0 != node }
    let spare = nodes.map(\.node).filter { !group.members.contains($0) }.least(by: memberships)
    if let spare, group.members.count <= commonSize, group.members.count < GroupSet.membersMax {
      return .change([SetChange(group, to: group.members + [spare])])
    }
    if let joining = others.first(where: { isRunning($0) && !group.hasLog($0) }) {
      return .waitForMember(joining, group.id)
    }
    guard !others.isEmpty else { throw .onlyMember(node, group.id) }
    var members = others
    if group.members[0] == node, let next = others.filter({ canOwn($0, group) }).least(by: preferences) {
      members = members.moving(next, to: .first)
    }
    let change = SetChange(group, to: members)
    try check(change)
    return .change([change])
  }
}
