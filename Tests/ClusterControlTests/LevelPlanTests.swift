import Testing

@testable import ClusterControl

/// `tidemark cluster raise`, on paper.
@Suite struct LevelPlanTests {
  private static func cluster(
    level: UInt8 = 2,
    _ levels: [UInt16: ClosedRange<UInt8>],
    running: [UInt16] = [1, 2, 3]
  ) -> TestCluster {
    var cluster = TestCluster.initial()
    cluster.level = level
    cluster.levels = levels
    cluster.running = running
    return cluster
  }

  /// The levels that nodes support, the nodes that run, and what happens.
  @Test(
    arguments: [
      ([:], [1, 2, 3], []), ([1: 2...3, 2: 2...3], [1, 2, 3], []),
      ([1: 2...3, 2: 2...3, 3: 2...3], [1, 2, 3], ["level 3"]),
      ([1: 2...9, 2: 2...4, 3: 2...5], [1, 2, 3], ["level 4"]),
      // A node that is no member yet counts too.
      ([1: 2...3, 2: 2...3, 3: 2...3], [1, 2, 3, 4], []),
      (
        [1: 2...3, 2: 2...3], [1, 2],
        [
          """
          refused: node 3 does not run, so it is not known which levels it supports: start it, or drop it with \
          tidemark cluster remove, and run this again
          """
        ]
      ),
      (
        [1: 2...3, 2: 4...5, 3: 4...5], [1, 2, 3],
        [
          """
          refused: there is no level that all running nodes support: install the same tidemark-store on all of them, \
          and run this again
          """
        ]
      ),
    ] as [([UInt16: ClosedRange<UInt8>], [UInt16], [String])]
  )
  func levelIsTheHighestOneThatAllNodesSupport(
    levels: [UInt16: ClosedRange<UInt8>],
    running: [UInt16],
    story: [String]
  ) {
    var cluster = Self.cluster(levels, running: running)
    #expect(cluster.story(.raise) == story)
  }

  @Test func levelNeverFalls() {
    var cluster = Self.cluster(level: 5, [1: 2...3, 2: 2...5, 3: 2...3])
    #expect(
      cluster.story(.raise) == [
        """
        refused: the cluster has level 5, which node 1, 3 does not support: install a newer tidemark-store there, and \
        run this again
        """
      ]
    )
    let warnings = ClusterStatus(cluster: "demo", cluster.state).warnings
    #expect(warnings.map(\.code) == Array(repeating: .levelUnsupported, count: 3))
    #expect(warnings[0].text == "has members that do not support the cluster's level: 1, 3")
  }
}
