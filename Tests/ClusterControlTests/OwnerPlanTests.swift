import StoreEngine
import Testing

@testable import ClusterControl

/// Moves, drains and balance: the preferred owners change, the members stay.
@Suite struct OwnerPlanTests {
  @Test func moveMakesAMemberThePreferredOwner() {
    var cluster = TestCluster.initial()
    #expect(cluster.story(.move(0, to: 3)) == ["group 0: 3 1 2", "node 3 takes over group 0"])
    #expect(cluster.story(.move(0, to: 3)) == [])
  }

  @Test func interruptedMoveOnlyWaits() {
    var cluster = TestCluster.initial()
    #expect(cluster.story(.move(0, to: 2), stepsMax: 1) == ["group 0: 2 1 3", "interrupted"])
    #expect(cluster.story(.move(0, to: 2)) == ["node 2 takes over group 0"])
  }

  @Test func moveIsRefusedByName() {
    var cluster = TestCluster([[1, 2, 3], [2, 3, 1]], running: [1, 2, 3, 4])
    #expect(
      cluster.story(.move(1, to: 4)) == [
        "refused: node 4 is no member of group 1: give one of 2, 3, 1, or make it a member with tidemark cluster add"
      ]
    )
    #expect(cluster.story(.move(2, to: 1)) == ["refused: there is no group 2: give 0 to 1"])
    let lacks = "wait until tidemark cluster status shows it as following"
    // Joining, behind the trim, with a new disk, and never heard of.
    for report in [MemberReport(position: RecordPosition(9), .joining), .init(position: RecordPosition(3)), nil] {
      cluster.reports[0][3] = report
      #expect(cluster.story(.move(0, to: 3)) == ["refused: node 3 lacks records of group 0: \(lacks)"])
    }
    cluster.report(3, 0, at: 4)
    #expect(cluster.story(.move(0, to: 3)) == ["group 0: 3 1 2", "node 3 takes over group 0"])
  }

  @Test func drainGivesGroupsToTheNodesWithFewest() {
    var cluster = TestCluster([[1, 2, 3], [1, 2, 3], [2, 3, 1], [3, 1, 2], [3, 2, 1]], running: [1, 2, 3])
    #expect(
      cluster.story(.drain(1)) == [
        "group 0: 2 3 1", "group 1: 2 3 1", "group 3: 3 2 1",
        "node 2 takes over group 0", "node 2 takes over group 1",
      ]
    )
    #expect(cluster.story(.drain(1)) == [])
    // The others' turn, and back.
    #expect(
      cluster.story(.drain(2)).suffix(3) == [
        "node 1 takes over group 0", "node 1 takes over group 1", "node 3 takes over group 2",
      ]
    )
    #expect(cluster.story(.balance) == ["group 2: 2 3 1"])
  }

  @Test func drainPassesOverMembersThatCannotOwn() {
    var cluster = TestCluster([[1, 2, 3, 4], [1, 4, 2, 3]], running: [1, 2, 3])
    cluster.report(2, 0, at: 9, .ineligible)
    cluster.report(3, 1, at: 2)
    #expect(
      cluster.story(.drain(1)) == [
        "group 0: 3 2 4 1", "group 1: 2 4 3 1", "node 3 takes over group 0", "node 2 takes over group 1",
      ]
    )
  }

  /// A node that owns a group in the place of one that is down gives it to a third.
  @Test func drainMovesGroupsOfWhichTheNodeIsNotThePreferredOwner() {
    var cluster = TestCluster([[2, 1, 3]], running: [1, 3])
    cluster.owners = [1]
    #expect(cluster.story(.drain(1)) == ["group 0: 3 2 1", "node 3 takes over group 0"])
  }

  @Test func drainIsRefusedWithoutAnotherOwner() {
    var cluster = TestCluster([[1, 2], [2, 1]], running: [1])
    #expect(
      cluster.story(.drain(1)) == [
        """
        refused: no other member of group 0 runs and has the group's records: start one, or wait until one follows, \
        before node 1 is drained
        """
      ]
    )
    #expect(cluster.story(.drain(9)) == ["refused: node 9 is a member of no group: give one of 1, 2"])
    // Node 2 does not run, and owns nothing: nothing has to move.
    cluster.owners = [1, 1]
    #expect(cluster.story(.drain(2)) == ["group 1: 1 2"])
  }

  @Test func balanceChangesAsLittleAsNeeded() {
    var even = TestCluster.initial(groups: 8)
    #expect(even.story(.balance) == [])
    var after = TestCluster([[2, 3, 1], [2, 3, 1], [3, 1, 2], [3, 1, 2]], running: [1, 2, 3])
    #expect(after.story(.balance) == ["group 0: 1 2 3"])
  }

  /// Node 1 can give none of its groups to node 4, which has none: each gives one to the next.
  @Test func balanceFindsChains() {
    var cluster = TestCluster([[1, 2], [1, 2], [1, 2], [2, 3], [3, 4]], running: [1, 2, 3, 4])
    #expect(cluster.story(.balance) == ["group 0: 2 1", "group 3: 3 2", "group 4: 4 3"])
    #expect(cluster.story(.balance) == [])
  }

  @Test func balanceLeavesOutNodesThatCannotOwn() {
    var cluster = TestCluster.initial()
    cluster.running = [1, 2]
    cluster.owners[2] = 1
    #expect(cluster.story(.balance) == ["group 2: 1 3 2"])
    #expect(cluster.story(.balance) == [])
    cluster.running = [1, 2, 3]
    // It has the log of group 1 only.
    cluster.report(3, 0, at: 9, .joining)
    cluster.report(3, 2, at: 9, .joining)
    #expect(cluster.story(.balance) == ["group 0: 2 1 3", "group 1: 3 2 1"])
    cluster.running = []
    #expect(
      cluster.story(.balance) == [
        "refused: no member of any group runs and has the group's records: start the nodes first"
      ]
    )
  }

  /// The counts differ by one at most where every member can own every group.
  @Test func balanceIsEven() {
    for groups in 1...16 {
      var cluster = TestCluster.initial(nodes: 5, groups: groups)
      for group in cluster.sets.indices { cluster.sets[group].swapAt(0, group % 3) }
      let story = cluster.story(.balance)
      let counts = (1...5 as ClosedRange<UInt16>).map { node in cluster.sets.count { $0[0] == node } }
      #expect((counts.max() ?? 0) - (counts.min() ?? 0) <= 1, "\(groups): \(story)")
    }
  }
}
