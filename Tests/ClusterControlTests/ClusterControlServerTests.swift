import LocalStack
import NIOCore
import NIOPosix
import Operations
import StoreEngine
import StoreEtcd
import StoreTestSupport
import TestPrograms
import TestSupport
import Testing

@testable import ClusterControl

/// Commands on a real etcd. The test does what nodes do: it announces them, claims groups and reports.
@Suite(.lanes(1), .needs(EtcdProcesses.isInstalled, "needs Debian's etcd-server"))
struct ClusterControlServerTests {
  private static let group = GroupID(0)

  private static func configuration(_ etcd: EtcdProcesses, cluster: String = "test") throws -> EtcdConfiguration {
    var configuration = try EtcdConfiguration(cluster: cluster, endpoints: etcd.servers.map(\.client))
    configuration.callTimeout = .seconds(20)
    configuration.connectTimeout = .seconds(20)
    return configuration
  }

  private static func control(
    _ configuration: EtcdConfiguration,
    _ change: (inout ClusterControl) -> Void = { _ in }
  ) -> ClusterControl {
    var control = ClusterControl(configuration)
    control.pollInterval = .milliseconds(10)
    change(&control)
    return control
  }

  /// Use a log in which the nodes have begun a cluster of two groups.
  private static func withCluster(
    _ configuration: EtcdConfiguration,
    body: (AsyncGroupLog, _ owners: [TestOwner]) async throws -> Void
  ) async throws {
    try await AsyncGroupLog.with { eventLoop in
      let log = EtcdGroupLog(configuration: configuration, eventLoop: eventLoop)
      return (log, { log.close() })
    } body: { log in
      let common = ClusterConfiguration(shardCount: 8, groupCount: 2, initialNodeCount: 3)
      let agreed: ClusterConfiguration? = try await log.call("the agreed configuration") { log, done in
        (log as? EtcdGroupLog)?.agree(common, done: done) ?? done(nil)
      }
      #expect(agreed == common)
      var owners: [TestOwner] = []
      for group in 0..<2 as Range<UInt8> {
        var owner = TestOwner(log, group: group, node: UInt16(group) + 1)
        try await owner.claim()
        for node in 1...3 as ClosedRange<UInt16> {
          _ = try await log.report(GroupID(group), by: NodeID(node), synced: 1)
        }
        owners.append(owner)
      }
      try await body(log, owners)
    }
  }

  /// Announce nodes while `body` runs.
  private static func announcing(
    _ nodes: [UInt16],
    _ configuration: EtcdConfiguration,
    levels: ClosedRange<ClusterLevel> = ClusterLevel.supported,
    body: () async throws -> Void
  ) async throws {
    let eventLoop = MultiThreadedEventLoopGroup.singleton.next()
    let directories = try await eventLoop.submit {
      let directories = nodes.map { node in
        let directory = EtcdNodeDirectory(configuration: configuration, eventLoop: eventLoop)
        let port = 7_410 + node
        directory.announce(
          NodeAnnouncement(node: NodeID(node), host: "127.0.0.1", port: port, version: "0.9.0", levels: levels)
        ) { _ in }
        return directory
      }
      return NIOLoopBound(directories, eventLoop: eventLoop)
    }.get()
    let control = control(configuration)
    let result: Result<Void, any Error>
    do {
      try await eventually("the nodes are announced") {
        let running = try await control.status().nodes.filter { $0.address != nil }.map(\.node.rawValue)
        return nodes.allSatisfy(running.contains)
      }
      result = .success(try await body())
    } catch {
      result = .failure(error)
    }
    try await eventLoop.submit { for directory in directories.value { directory.withdraw {} } }.get()
    try result.get()
  }

  @Test func clusterThatHasNotBegunIsNamed() async throws {
    try await EtcdProcesses.with(1) { etcd in
      let control = Self.control(try Self.configuration(etcd, cluster: "demo"))
      await #expect(throws: ClusterFailure.noCluster("demo")) { _ = try await control.status() }
      await #expect(throws: ClusterFailure.noCluster("demo")) { try await control.run(.balance) { _ in } }
      #expect("\(ClusterFailure.noCluster("demo"))".hasPrefix("etcd has no cluster \"demo\": check --cluster"))
    }
  }

  @Test func etcdThatIsDownIsNamed() async throws {
    let endpoint = try LoopbackPorts.free(1)[0]
    let control = Self.control(try EtcdConfiguration(cluster: "demo", endpoints: [endpoint])) { $0.attemptsMax = 3 }
    let failure = await #expect(throws: ClusterFailure.self) { _ = try await control.status() }
    let text = failure.map { "\($0)" } ?? ""
    #expect(text.hasPrefix("etcd does not answer (\(endpoint): "), "\(text)")
  }

  @Test func moveEndsWhenTheGroupHasMoved() async throws {
    try await EtcdProcesses.with(1) { etcd in
      let configuration = try Self.configuration(etcd)
      try await Self.withCluster(configuration) { log, owners in
        try await Self.announcing([1, 2, 3], configuration) {
          let control = Self.control(configuration)
          async let summary = control.run(.move(0, to: 3)) { _ in }
          try await eventually("the set is changed") {
            try await log.ends(of: [Self.group])?[0].set?.members.first == NodeID(3)
          }
          var next = TestOwner(log, group: 0, node: 3, after: owners[0].cursor)
          try await next.claim(from: owners[0].owner)
          #expect(
            try await summary.document
              == "{\"cluster\":\"test\",\"command\":\"move\",\"changes\":[{\"group\":0,\"members\":[3,1,2]}]}"
          )
          // The next one finds nothing to do.
          #expect(try await control.run(.move(0, to: 3)) { _ in }.changes == [])
        }
      }
    }
  }

  @Test func levelIsRaisedOnceAllNodesSupportIt() async throws {
    try await EtcdProcesses.with(1) { etcd in
      let configuration = try Self.configuration(etcd)
      let next = ClusterLevel(ClusterLevel.supported.upperBound.rawValue + 1)
      try await Self.withCluster(configuration) { log, _ in
        let control = Self.control(configuration)
        func level() async throws -> ClusterLevel? { try await log.ends(of: [Self.group])?[0].level }
        #expect(try await level() == ClusterLevel.supported.upperBound)
        try await Self.announcing([1, 2], configuration, levels: .oldest...next) {
          await #expect(throws: ClusterRefusal.membersNotRunning([NodeID(3)])) {
            try await control.run(.raise) { _ in }
          }
          try await Self.announcing([3], configuration) {
            let summary = try await control.run(.raise) { _ in }
            #expect(summary.level == ClusterLevel.supported.upperBound)
          }
          #expect(try await level() == ClusterLevel.supported.upperBound)
        }
        try await Self.announcing([1, 2, 3], configuration, levels: .oldest...next) {
          let document = try await control.run(.raise) { _ in }.document
          #expect(document == #"{"cluster":"test","command":"raise","level":\#(next.rawValue)}"#)
          #expect(try await level() == next)
          #expect(try await control.run(.raise) { _ in }.level == next)
        }
      }
    }
  }

  @Test func moveSaysWhatIsMissing() async throws {
    try await EtcdProcesses.with(1) { etcd in
      let configuration = try Self.configuration(etcd)
      try await Self.withCluster(configuration) { _, _ in
        try await Self.announcing([1, 2], configuration) {
          let control = Self.control(configuration) { $0.ownerTimeout = .zero }
          let failure = await #expect(throws: ClusterFailure.self) {
            _ = try await control.run(.move(0, to: 3)) { _ in }
          }
          #expect(
            failure.map { "\($0)" } == """
              the sets are changed, but a group has not moved in 0 s: group 0: node 3 does not run. They move when \
              the cause is gone
              """
          )
          let hasty = Self.control(configuration) { $0.waitsForOwners = false }
          let drained = try await hasty.run(.drain(NodeID(1))) { _ in }
          #expect(drained.changes.map(\.members.text) == ["2, 3, 1"])
        }
      }
    }
  }

  @Test func nodeJoinsAndAnotherLeaves() async throws {
    try await EtcdProcesses.with(1) { etcd in
      let configuration = try Self.configuration(etcd)
      try await Self.withCluster(configuration) { log, _ in
        try await Self.announcing([1, 2, 3, 4], configuration) {
          let control = Self.control(configuration)
          async let joined = control.run(.add(NodeID(4), members: nil)) { _ in }
          try await eventually("node 4 is a member") {
            try await log.ends(of: [Self.group])?[0].set?.members.contains(NodeID(4)) == true
          }
          _ = try await log.report(Self.group, by: NodeID(4), synced: 1, .joining)
          _ = try await log.report(Self.group, by: NodeID(4), synced: 1)
          #expect(
            try await joined.changes.map(\.members.text) == ["1, 2, 3, 4", "1, 3, 4"]
          )
          // Nobody takes over its groups here.
          let hasty = Self.control(configuration) { $0.waitsForOwners = false }
          async let left = hasty.run(.remove(NodeID(1))) { _ in }
          let groups = [GroupID(0), GroupID(1)]
          try await eventually("the sets have changed") {
            // Whoever becomes a member receives the group.
            for group in groups {
              for node in [2, 4] as [UInt16] { _ = try await log.report(group, by: NodeID(node), synced: 1) }
            }
            let sets = try await log.ends(of: groups)?.map { $0.set?.members.contains(NodeID(1)) }
            return sets == [false, false]
          }
          #expect(try await !left.changes.isEmpty)
          let status = try await control.status()
          #expect(status.groups.allSatisfy { $0.members.count == 3 })
        }
      }
    }
  }

  /// Somebody else changes a set between a command's look at it and its change.
  @Test func changeOfASetThatHasChangedIsRefused() async throws {
    try await EtcdProcesses.with(1) { etcd in
      let configuration = try Self.configuration(etcd)
      try await Self.withCluster(configuration) { _, _ in
        let connection = try await ClusterConnection.open(configuration)
        let before = ClusterState(try await connection.overview()).groups[0]
        #expect(before.set.revision == 0)
        let change = SetChange(before, to: [3, 1, 2].map { NodeID($0) })
        #expect(await connection.apply(change) == .changed)
        #expect(await connection.apply(change) == .conflict)
        let after = ClusterState(try await connection.overview()).groups[0]
        #expect(after.members == change.members && after.set.revision > 0)
        await connection.close()
      }
    }
  }
}
