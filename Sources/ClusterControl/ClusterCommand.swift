package import StoreEngine

/// A change of a cluster that an operator asks for.
///
/// A plan has no memory: it is made anew from what the cluster is after each step. So a command that was interrupted
/// continues when it is run again, and changes by others are seen.
package enum ClusterCommand: Hashable, Sendable {
  /// Make a member the preferred owner of a group.
  case move(GroupID, to: NodeID)
  /// Make others the preferred owners of a node's groups, and make it the last member everywhere.
  case drain(NodeID)
  /// Spread the preferred owners evenly.
  case balance
  /// Make a node a member of its share of the groups.
  ///
  /// - Parameter members: size that sets grow to; nil: the size that most of them have.
  case add(NodeID, members: Int?)
  /// Make a node a member of all groups, the last one of each.
  case addToAll(NodeID)
  /// Drop a node from all sets, and put others in its place.
  case remove(NodeID)
  /// Raise the level to the highest one that all nodes support.
  case raise

  package var name: String {
    switch self {
    case .move: "move"
    case .drain: "drain"
    case .balance: "balance"
    case .add, .addToAll: "add"
    case .remove: "remove"
    case .raise: "raise"
    }
  }

  /// Return what to do next. Each change has been checked against the safety rule (``ClusterState/check(_:)``).
  package func nextStep(_ cluster: ClusterState) throws(ClusterRefusal) -> ClusterStep {
    let step: ClusterStep =
      switch self {
      case .move(let group, let node): try cluster.move(group, to: node)
      case .drain(let node): try cluster.drain(node)
      case .balance: try cluster.balance()
      case .add(let node, let members): try cluster.add(node, members: members)
      case .addToAll(let node): try cluster.addToAll(node)
      case .remove(let node): try cluster.remove(node)
      case .raise: try cluster.raise()
      }
    if case .change(let changes) = step {
      for change in changes { try cluster.check(change) }
    }
    return step
  }
}

/// The next step of a command.
package enum ClusterStep: Hashable, Sendable {
  /// Make these changes, then plan anew.
  case change([SetChange])
  /// Give the cluster this level, then plan anew.
  case raise(ClusterLevel)
  /// A member of a group has to receive the group's records. Plan anew after a while.
  case waitForMember(NodeID, GroupID)
  /// Groups have to move to another owner, which their nodes do. Plan anew after a while.
  case waitForOwners([PendingOwner])
  case done
}

/// A group that is not yet owned as wanted.
package struct PendingOwner: Hashable, Sendable {
  package var group: GroupID
  /// `.none`: nobody has claimed the group.
  package var owner: NodeID
  package var wanted: NodeID
}

extension ClusterState {
  // MARK: Move

  fileprivate func move(_ id: GroupID, to node: NodeID) throws(ClusterRefusal) -> ClusterStep {
    guard let group = groups.first(where: { $0.id == id }) else { throw .unknownGroup(id, count: groups.count) }
    guard group.members.contains(node) else { throw .notMember(node, id, members: group.members) }
    guard group.members[0] != node else {
      return group.owner == node
        ? .done : .waitForOwners([PendingOwner(group: id, owner: group.owner, wanted: node)])
    }
    guard group.hasLog(node) else { throw .lacksLog(node, id) }
    return .change([SetChange(group, to: group.members.moving(node, to: .first))])
  }

  // MARK: Drain

  fileprivate func drain(_ node: NodeID) throws(ClusterRefusal) -> ClusterStep {
    let groups = groups.filter { $0.members.contains(node) }
    guard !groups.isEmpty else { throw .unknownNode(node, members: memberships.keys.sorted()) }
    var preferences = preferences
    var changes: [SetChange] = []
    for group in groups {
      var members = group.members.moving(node, to: .last)
      // Where the node neither owns the group nor is preferred, its owner need not change.
      if group.members[0] == node || group.owner == node && !canOwn(members[0], group) {
        let others = group.members.filter { $0 != node }
        guard let next = others.filter({ canOwn($0, group) }).least(by: preferences) else {
          throw .noOtherOwner(node, group.id)
        }
        members = members.moving(next, to: .first)
        preferences[group.members[0], default: 0] -= 1
        preferences[next, default: 0] += 1
      }
      if members != group.members { changes.append(SetChange(group, to: members)) }
    }
    if !changes.isEmpty { return .change(changes) }
    return waitForOthers(toOwn: groups, of: node)
  }

  /// The step that waits until a node owns none of the groups.
  func waitForOthers(toOwn groups: [GroupState], of node: NodeID) -> ClusterStep {
    let owned = groups.filter { $0.owner == node }
    return owned.isEmpty
      ? .done
      : .waitForOwners(owned.map { PendingOwner(group: $0.id, owner: node, wanted: $0.members[0]) })
  }

  // MARK: Balance

  fileprivate func balance() throws(ClusterRefusal) -> ClusterStep {
    guard groups.contains(where: { group in group.members.contains { canOwn($0, group) } }) else { throw .noOwner }
    return balancedOwners
  }

  /// The changes that spread the preferred owners, or nothing.
  var balancedOwners: ClusterStep {
    let owners = PreferredOwners(self).balanced()
    let changes = zip(groups, owners).compactMap { group, owner in
      group.members[0] == owner ? nil : SetChange(group, to: group.members.moving(owner, to: .first))
    }
    return changes.isEmpty ? .done : .change(changes)
  }
}

extension ClusterState {
  // MARK: Raise

  /// The highest level that all nodes that run support; nil: none.
  var commonLevel: ClusterLevel? {
    guard let highest = nodes.map(\.levels.upperBound).min() else { return nil }
    return nodes.allSatisfy { $0.levels.contains(highest) } ? highest : nil
  }

  /// Return the step to the highest level of all nodes. Refused while a member does not run: its levels are not known.
  fileprivate func raise() throws(ClusterRefusal) -> ClusterStep {
    let absent = memberships.keys.sorted().filter { !isRunning($0) }
    guard absent.isEmpty else { throw .membersNotRunning(absent) }
    guard let commonLevel else { throw .noCommonLevel }
    let unsupporting = nodes.filter { !$0.levels.contains(configuration.level) }
    guard unsupporting.isEmpty else { throw .levelUnsupported(configuration.level, unsupporting.map(\.node)) }
    return commonLevel > configuration.level ? .raise(commonLevel) : .done
  }
}

extension [NodeID] {
  enum End { case first, last }

  /// The same nodes in the same order, but with one of them at an end.
  func moving(_ node: NodeID, to end: End) -> [NodeID] {
    let others = filter { $0 != node }
    return end == .first ? [node] + others : others + [node]
  }

  /// The node with the smallest count; of several, the first.
  func least(by counts: [NodeID: Int]) -> NodeID? {
    self.min { counts[$0, default: 0] < counts[$1, default: 0] }
  }
}
