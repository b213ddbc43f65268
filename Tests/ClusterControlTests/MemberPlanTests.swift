import StoreEngine
import Testing

@testable import ClusterControl

/// Nodes that join and leave: the members change, one set at a time.
@Suite struct MemberPlanTests {
  @Test func nodeJoinsItsShareOfTheGroups() {
    var cluster = TestCluster.initial()
    cluster.running.append(4)
    #expect(
      cluster.story(.add(4)) == [
        "group 0: 1 2 3 4", "node 4 receives group 0", "group 0: 1 3 4",
        "group 1: 2 3 1 4", "node 4 receives group 1", "group 1: 2 1 4",
      ]
    )
    // floor(9 / 4) = 2 of 3 groups. Three groups for four owners are even already.
    #expect(cluster.story(.add(4)) == [])
  }

  @Test func nodeBecomesThePreferredOwnerOfItsShare() {
    var cluster = TestCluster.initial(groups: 8)
    cluster.running.append(4)
    let story = cluster.story(.add(4))
    #expect(cluster.sets.allSatisfy { $0.count == 3 })
    for node in 1...4 as ClosedRange<UInt16> {
      #expect(cluster.sets.count { $0.contains(node) } == 6, "node \(node): \(story)")
      #expect(cluster.sets.count { $0[0] == node } == 2, "node \(node): \(story)")
    }
  }

  /// An interrupted command continues, wherever it was interrupted.
  @Test(arguments: 1...7)
  func interruptedJoinContinues(steps: Int) {
    var (whole, cluster) = (TestCluster.initial(groups: 4), TestCluster.initial(groups: 4))
    whole.running.append(4)
    cluster.running.append(4)
    _ = whole.story(.add(4))
    let parts = cluster.story(.add(4), stepsMax: steps) + cluster.story(.add(4))
    #expect(cluster.sets == whole.sets, "\(parts)")
  }

  /// One group tells nothing about the size of others: the cluster's first nodes do.
  @Test func interruptedJoinOfTheOnlyGroupContinues() {
    var cluster = TestCluster([[1, 2, 3, 4]], running: [1, 2, 3, 4])
    #expect(cluster.story(.add(4)) == ["group 0: 1 3 4"])
  }

  @Test func setsGrowToTheGivenSize() {
    var cluster = TestCluster([[1, 2], [2, 1]], running: [1, 2, 3], initialNodeCount: 2)
    let story = [
      "group 0: 1 2 3", "node 3 receives group 0", "group 1: 2 1 3", "node 3 receives group 1",
    ]
    #expect(cluster.story(.add(3, members: 3)) == story)
    #expect(cluster.story(.add(3, members: 3)) == [])
    cluster.running.append(4)
    #expect(
      cluster.story(.add(4, members: 2)) == [
        """
        refused: --members 2: groups have 3 members: give at least as many; tidemark cluster remove drops members
        """
      ]
    )
  }

  /// Backups need a node that keeps all groups.
  @Test func nodeJoinsAllGroups() {
    var cluster = TestCluster([[1, 2, 3], [2, 3, 4], [3, 4, 1]], running: [1, 2, 3, 4, 5])
    let story = [
      "group 0: 1 2 3 5", "node 5 receives group 0", "group 1: 2 3 4 5", "node 5 receives group 1",
      "group 2: 3 4 1 5", "node 5 receives group 2",
    ]
    var interrupted = cluster
    #expect(cluster.story(.addToAll(NodeID(5))) == story)
    #expect(cluster.story(.addToAll(NodeID(5))) == [])
    _ = interrupted.story(.addToAll(NodeID(5)), stepsMax: 3)
    _ = interrupted.story(.addToAll(NodeID(5)))
    #expect(interrupted.sets == cluster.sets)
    let refusal = "refused: node 6 does not run: start it with --node 6, and run this again"
    #expect(cluster.story(.addToAll(NodeID(6))) == [refusal])
    cluster.sets[0] = Array(1...16)
    cluster.running.append(17)
    #expect(
      cluster.story(.addToAll(NodeID(17))).first
        == "refused: group 0 has 16 members, and no more are possible: drop one with tidemark cluster remove"
    )
  }

  @Test func storeOfOneNodeGetsASecond() {
    var cluster = TestCluster([[1]], running: [1, 2], initialNodeCount: 1)
    #expect(
      cluster.story(.add(2)) == [
        """
        refused: node 2 would get no group: the sets have 1 places for 2 nodes: give --members with a larger number \
        of members of each group
        """
      ]
    )
    #expect(cluster.story(.add(2, members: 2)) == ["group 0: 1 2", "node 2 receives group 0"])
  }

  @Test func nodeThatDoesNotRunIsNotAdded() {
    var cluster = TestCluster.initial()
    #expect(
      cluster.story(.add(4)) == ["refused: node 4 does not run: start it with --node 4, and run this again"]
    )
    cluster.running.append(4)
    cluster.stuck = [4]
    #expect(cluster.story(.add(4)) == ["group 0: 1 2 3 4", "waits for node 4 in group 0"])
    // It has stopped meanwhile: the command goes on waiting.
    cluster.running.removeLast()
    #expect(cluster.story(.add(4)) == ["waits for node 4 in group 0"])
  }

  /// The owner stays, and copies are not dropped while too few have the log.
  @Test func joinDropsTheMostLoadedMemberThatCanGo() {
    var cluster = TestCluster([[1, 2, 3, 4], [1, 2, 3], [1, 5, 3]], running: [1, 2, 3, 4, 5])
    #expect(cluster.story(.add(4), stepsMax: 1) == ["group 0: 1 2 4", "interrupted"])
    cluster.sets[0] = [1, 2, 3, 4]
    // Only 3 and 4 have the log: 2 goes.
    for node in [1, 2] as [UInt16] { cluster.report(node, 0, at: 1) }
    #expect(cluster.story(.add(4), stepsMax: 1) == ["group 0: 1 3 4", "interrupted"])
    cluster.sets[0] = [1, 2, 3, 4]
    cluster.report(3, 0, at: 9, .joining)
    #expect(
      cluster.story(.add(4), stepsMax: 1) == [
        """
        refused: group 0 would lose copies without node 3: of the others only node 4 has its records: start another \
        node, or wait until a member follows, and run this again
        """
      ]
    )
  }

  @Test func nodeLeavesToSpareNodes() {
    var cluster = TestCluster([[1, 2, 3], [2, 3, 1], [3, 4, 2]], running: [1, 2, 3, 4, 5])
    #expect(
      cluster.story(.remove(2)) == [
        "group 0: 1 2 3 5", "node 5 receives group 0", "group 0: 1 3 5",
        "group 1: 2 3 1 4", "node 4 receives group 1", "group 1: 4 3 1",
        "group 2: 3 4 2 5", "node 5 receives group 2", "group 2: 3 4 5",
        "node 4 takes over group 1",
      ]
    )
    #expect(cluster.story(.remove(2)) == [])
  }

  @Test(arguments: 1...5)
  func interruptedRemovalContinues(steps: Int) {
    let sets: [[UInt16]] = [[1, 2, 3], [2, 3, 1]]
    var (whole, cluster) = (TestCluster(sets, running: [1, 2, 3, 4]), TestCluster(sets, running: [1, 2, 3, 4]))
    _ = whole.story(.remove(1))
    let parts = cluster.story(.remove(1), stepsMax: steps) + cluster.story(.remove(1))
    #expect(cluster.sets == whole.sets, "\(parts)")
  }

  /// A machine is lost, and no other is there.
  @Test func lostNodeIsDroppedAtOnce() {
    var cluster = TestCluster.initial()
    cluster.running = [1, 3]
    #expect(cluster.story(.remove(2)) == ["group 0: 1 3", "group 1: 3 1", "group 2: 3 1", "node 3 takes over group 1"])
    // Of two copies one may go, if the other is whole.
    cluster.running = [3]
    #expect(cluster.story(.remove(1)) == ["group 0: 3", "group 1: 3", "group 2: 3", "node 3 takes over group 0"])
    #expect(
      cluster.story(.remove(3)) == [
        """
        refused: node 3 is the only member of group 0: start another node, which then becomes a member, and run this \
        again
        """
      ]
    )
  }

  /// Their disks may be lost.
  @Test func membersThatDoNotRunAreNotTheOnlyCopies() {
    var cluster = TestCluster.initial()
    cluster.running = [1]
    #expect(
      cluster.story(.remove(1)) == [
        """
        refused: group 0 would have no running copy without node 1: start node 2, 3, and run this again
        """
      ]
    )
    #expect(cluster.story(.remove(2)) == ["group 0: 1 3", "group 1: 1 3", "group 2: 3 1", "node 1 takes over group 1"])
  }

  @Test func removalWaitsForMembersThatJoin() {
    var cluster = TestCluster.initial()
    cluster.report(3, 0, at: 9, .joining)
    cluster.stuck = [3]
    #expect(cluster.story(.remove(2)) == ["waits for node 3 in group 0"])
    // The member that joins is gone as well: the last copies stay, and the other groups go on.
    cluster.running = [1]
    #expect(
      cluster.story(.remove(2)) == [
        "group 1: 1 3", "group 2: 3 1",
        """
        refused: group 0 would lose copies without node 2: of the others only node 1 has its records: start another \
        node, or wait until a member follows, and run this again
        """,
      ]
    )
  }

  /// One of the nodes that the cluster begins with was never started.
  @Test func nodeThatNeverRanIsRemoved() {
    var cluster = TestCluster([[1, 2, 3]], running: [1, 2])
    cluster.reports[0][3] = nil
    #expect(cluster.story(.remove(3)) == ["group 0: 1 2"])
    #expect(cluster.story(.remove(3)) == [])
    #expect(cluster.story(.remove(7)) == ["refused: node 7 is a member of no group: give one of 1, 2"])
  }

  @Test func unknownNodeIsNotRemoved() {
    var cluster = TestCluster.initial()
    #expect(cluster.story(.remove(7)) == ["refused: node 7 is a member of no group: give one of 1, 2, 3"])
    cluster.running.append(7)
    #expect(cluster.story(.remove(7)) == [])
  }

  @Test func changesThatDropNobodyAreSafe() throws {
    var cluster = TestCluster.initial()
    for node in [2, 3] as [UInt16] { cluster.reports[0][node] = nil }
    let group = cluster.state.groups[0]
    for members in [[3, 2, 1], [1, 2, 3, 4]] as [[UInt16]] {
      try cluster.state.check(SetChange(group, to: members.map { NodeID($0) }))
    }
    for members in [[1, 2], [1, 2, 4], [2], [4]] as [[UInt16]] {
      #expect(throws: ClusterRefusal.self) {
        try cluster.state.check(SetChange(group, to: members.map { NodeID($0) }))
      }
    }
    try cluster.state.check(SetChange(group, to: [NodeID(1)]))
  }
}
