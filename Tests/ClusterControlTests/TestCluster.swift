import StoreEngine
import StoreEtcd

@testable import ClusterControl

/// A cluster on paper. It does what the nodes of a real one do when a command waits for them.
struct TestCluster {
  var sets: [[UInt16]]
  /// By group; 0: none.
  var owners: [UInt16]
  var running: [UInt16]
  var reports: [[UInt16: MemberReport]]
  var level: UInt8 = 2
  /// The levels that nodes support; absent: only 2.
  var levels: [UInt16: ClosedRange<UInt8>] = [:]
  /// Nodes that never receive a snapshot, and so make a command wait.
  var stuck: Set<UInt16> = []
  private var revisions: [UInt64]
  private let initialNodeCount: Int

  /// The records 5 to 9 are in the log; all members have them, and the first ones own the groups.
  init(_ sets: [[UInt16]], running: [UInt16], initialNodeCount: Int = 3) {
    self.sets = sets
    owners = sets.map { $0[0] }
    self.running = running
    reports = sets.map { members in
      Dictionary(uniqueKeysWithValues: members.map { ($0, MemberReport(position: RecordPosition(9))) })
    }
    revisions = sets.map { _ in 0 }
    self.initialNodeCount = initialNodeCount
  }

  /// A cluster of nodes that all run, with the initial sets.
  static func initial(nodes: UInt16 = 3, groups: Int = 3) -> TestCluster {
    let all = (1...nodes).map { NodeID($0) }
    let sets = (0..<groups).map { GroupSet.initial(of: GroupID(UInt8($0)), nodes: all).members.map(\.rawValue) }
    return TestCluster(sets, running: Array(1...nodes), initialNodeCount: Int(nodes))
  }

  var overview: ClusterOverview {
    let configuration = ClusterConfiguration(
      shardCount: 64,
      groupCount: sets.count,
      initialNodeCount: initialNodeCount,
      level: ClusterLevel(level)
    )
    let nodes = running.map { node in
      let levels = levels[node] ?? 2...2
      return NodeAnnouncement(
        node: NodeID(node),
        host: "10.0.0.\(node)",
        port: 7_410,
        version: "0.9.0",
        levels: ClusterLevel(levels.lowerBound)...ClusterLevel(levels.upperBound)
      )
    }
    let groups = sets.indices.map { group in
      let owner = GroupOwner(
        node: NodeID(owners[group]),
        epoch: OwnerEpoch(owners[group] == 0 ? 0 : 2),
        fence: OwnerFence(7)
      )
      let set = GroupSet(members: sets[group].map { NodeID($0) }, revision: revisions[group])
      let end = GroupEnd(owner: owner, first: RecordPosition(5), last: RecordPosition(9), set: set)
      let reports = reports[group].map { (NodeID($0.key), $0.value) }
      return GroupOverview(
        group: GroupID(UInt8(group)),
        end: end,
        reports: Dictionary(uniqueKeysWithValues: reports)
      )
    }
    return ClusterOverview(
      configuration: configuration,
      revisions: ClusterRevisions(configuration: 1),
      nodes: nodes,
      groups: groups
    )
  }

  var state: ClusterState { ClusterState(overview) }

  mutating func report(_ node: UInt16, _ group: Int, at position: UInt64, _ phase: MemberReport.Phase = .following) {
    reports[group][node] = MemberReport(position: RecordPosition(position), phase)
  }

  /// Make a step happen.
  private mutating func carryOut(_ step: ClusterStep) -> [String] {
    switch step {
    case .change(let changes):
      for change in changes {
        let group = Int(change.group.rawValue)
        precondition(change.revision == revisions[group])
        sets[group] = change.members.map(\.rawValue)
        revisions[group] += 1
      }
      return changes.map { change in
        "group \(change.group.rawValue): \(change.members.map { "\($0.rawValue)" }.joined(separator: " "))"
      }
    case .raise(let level):
      self.level = level.rawValue
      return ["level \(self.level)"]
    case .waitForMember(let node, let group):
      report(node.rawValue, Int(group.rawValue), at: 9)
      return ["node \(node.rawValue) receives group \(group.rawValue)"]
    case .waitForOwners(let pending):
      for pending in pending { owners[Int(pending.group.rawValue)] = pending.wanted.rawValue }
      return pending.map { "node \($0.wanted.rawValue) takes over group \($0.group.rawValue)" }
    case .done: return []
    }
  }

  /// Carry out a command, and tell what happens.
  ///
  /// - Parameter stepsMax: the command is interrupted after so many steps.
  mutating func story(_ command: ClusterCommand, stepsMax: Int = 100) -> [String] {
    var story: [String] = []
    for _ in 0..<stepsMax {
      do throws(ClusterRefusal) {
        let step = try command.nextStep(state)
        if step == .done { return story }
        if case .waitForMember(let node, let group) = step, stuck.contains(node.rawValue) {
          return story + ["waits for node \(node.rawValue) in group \(group.rawValue)"]
        }
        story += carryOut(step)
      } catch {
        return story + ["refused: \(error)"]
      }
    }
    return story + ["interrupted"]
  }
}

extension ClusterCommand {
  static func move(_ group: UInt8, to node: UInt16) -> ClusterCommand { .move(GroupID(group), to: NodeID(node)) }
  static func drain(_ node: UInt16) -> ClusterCommand { .drain(NodeID(node)) }
  static func add(_ node: UInt16, members: Int? = nil) -> ClusterCommand { .add(NodeID(node), members: members) }
  static func remove(_ node: UInt16) -> ClusterCommand { .remove(NodeID(node)) }
}
