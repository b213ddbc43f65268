internal import StoreEngine

/// The preferred owner of each group, spread over the members that can own it with few changes.
struct PreferredOwners {
  /// Of each group: the members that can own it, in the order of their ranks.
  private let candidates: [[NodeID]]
  private var owners: [NodeID]
  private var counts: [NodeID: Int]

  init(_ cluster: ClusterState) {
    candidates = cluster.groups.map { group in group.members.filter { cluster.canOwn($0, group) } }
    owners = cluster.groups.map { $0.members[0] }
    counts = cluster.preferences
  }

  /// Return the preferred owners. A group without a member that can own it keeps its own.
  func balanced() -> [NodeID] {
    var result = self
    result.replaceAbsent()
    while result.evenOut() {}
    return result.owners
  }

  private mutating func replaceAbsent() {
    for group in owners.indices where !candidates[group].contains(owners[group]) {
      if let next = candidates[group].least(by: counts) { assign(group, to: next) }
    }
  }

  /// Take a group from a node that has at least two more than another. Where no group can change between the two, some
  /// change along a chain of nodes: each takes a group from the one before. The shortest chain changes the least.
  ///
  /// - Returns: false if the owners are as even as they can be.
  private mutating func evenOut() -> Bool {
    let most = counts.keys.sorted { (counts[$0, default: 0], $1) > (counts[$1, default: 0], $0) }
    guard let shortest = most.compactMap({ chain(from: $0) }).min(by: { $0.count < $1.count }) else { return false }
    for step in shortest { assign(step.group, to: step.to) }
    return true
  }

  private struct Step {
    var group: Int
    var to: NodeID
  }

  /// Search breadth first for a node with at least two groups less.
  private func chain(from start: NodeID) -> [Step]? {
    let limit = counts[start, default: 0] - 2
    var reached: Set = [start]
    var chains: [(end: NodeID, steps: [Step])] = [(start, [])]
    while !chains.isEmpty {
      var next: [(end: NodeID, steps: [Step])] = []
      for chain in chains {
        for group in owners.indices where owners[group] == chain.end {
          for candidate in candidates[group] where reached.insert(candidate).inserted {
            next.append((candidate, chain.steps + [Step(group: group, to: candidate)]))
          }
        }
      }
      let ends = next.filter { counts[$0.end, default: 0] <= limit }
      if let best = ends.min(by: { counts[$0.end, default: 0] < counts[$1.end, default: 0] }) { return best.steps }
      chains = next
    }
    return nil
  }

  private mutating func assign(_ group: Int, to node: NodeID) {
    counts[owners[group], default: 0] -= 1
    counts[node, default: 0] += 1
    owners[group] = node
  }
}
