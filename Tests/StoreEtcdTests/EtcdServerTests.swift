import NIOCore
import StoreEngine
import StoreEtcd
import StoreTestSupport
import TestPrograms
import TestSupport
import Testing

/// The log on real etcd servers that have no failure.
@Suite(.lanes(2), .needs(EtcdProcesses.isInstalled, "needs Debian's etcd-server"))
struct EtcdServerTests {
  @Test(arguments: GroupLogConformance.allCases)
  func logOnOneServerConforms(_ conformance: GroupLogConformance) async throws {
    try await EtcdProcesses.with(1) { etcd in
      try await AsyncGroupLog.with(try etcd.configuration()) { try await conformance.run($0) }
    }
  }

  @Test func logOnThreeServersConforms() async throws {
    try await EtcdProcesses.with(3) { etcd in
      for conformance in GroupLogConformance.allCases {
        let configuration = try etcd.configuration(cluster: conformance.rawValue)
        try await AsyncGroupLog.with(configuration) { try await conformance.run($0) }
      }
    }
  }

  /// A node that follows by one server sees what another node appends by another.
  @Test func nodesAtDifferentServersSeeTheSameLog() async throws {
    try await EtcdProcesses.with(3) { etcd in
      let endpoints = etcd.servers.map(\.client)
      try await AsyncGroupLog.with(try etcd.configuration(endpoints: [endpoints[0]])) { log in
        try await AsyncGroupLog.with(try etcd.configuration(endpoints: [endpoints[1]])) { other in
          let followed = other.follow(GroupID(0), from: 1)
          var owner = TestOwner(log, group: 0, node: 1)
          try await owner.claim()
          for value in 0..<50 as Range<UInt8> { try await owner.append([value]) }
          // Linearizable: the other server answers with what this one has acknowledged.
          #expect(try await other.ends(of: [GroupID(0)])?[0].last == owner.cursor.position)
          try await followed.waitForRecords(51)
          #expect(followed.records == (try await log.records(GroupID(0))))
          var taker = TestOwner(other, group: 0, node: 2, after: owner.cursor)
          try await taker.claim(from: owner.owner)
          #expect(try await log.append([owner.next([1])]) == [.fenced(taker.owner)])
        }
      }
    }
  }

  @Test func historyIsCompactedAfterATrim() async throws {
    try await EtcdProcesses.with(1) { etcd in
      var configuration = try etcd.configuration()
      configuration.compactionDelay = .milliseconds(10)
      let failures = FailureList()
      try await AsyncGroupLog.with(configuration, failures: failures) { log in
        var owner = TestOwner(log, group: 0, node: 1)
        try await owner.claim()
        let followed = log.follow(GroupID(0), from: 1)
        // It has read the log's beginning and watches before that is trimmed.
        try await followed.waitForRecords(1)
        try await owner.append([0])
        try await followed.waitForRecords(2)
        for value in 1..<200 as Range<UInt8> {
          try await owner.append([value])
          let before = RecordPosition(owner.cursor.position.rawValue - 1)
          log.trim(GroupTrim(group: GroupID(0), before: before, fence: owner.owner.fence))
        }
        try await eventually("the history is compacted") {
          try await etcd.compactions() > 0
        }
        // A follower at the end is not hurt, and one that begins reads what is there.
        try await owner.append([1])
        try await followed.waitForRecords(202)
        let late = log.follow(GroupID(0), from: owner.cursor.position.rawValue)
        try await late.waitForRecords(1)
      }
      #expect(failures.failures == [])
    }
  }

  /// As while a member is away: reports overwrite their keys, and nothing is trimmed.
  @Test func historyIsCompactedWithoutTrims() async throws {
    try await EtcdProcesses.with(1) { etcd in
      var configuration = try etcd.configuration()
      configuration.compactionDelay = .milliseconds(10)
      try await AsyncGroupLog.with(configuration) { log in
        var owner = TestOwner(log, group: 0, node: 1)
        try await owner.claim()
        for value in 0..<1_100 {
          try await owner.append([UInt8(truncatingIfNeeded: value)])
          if value % 10 == 0 {
            _ = try await log.report(GroupID(0), by: NodeID(1), synced: owner.cursor.position.rawValue)
          }
        }
        try await eventually("the history is compacted") {
          try await etcd.compactions() > 0
        }
      }
    }
  }

  @Test func mutualTLSRefusesClientsWithoutACertificate() async throws {
    try await EtcdProcesses.with(1, tls: true) { etcd in
      try await AsyncGroupLog.with(try etcd.configuration()) { log in
        try await GroupLogConformance.appends.run(log)
        let followed = log.follow(GroupID(0), from: 1)
        try await followed.waitForRecords(5)
      }
      // Without a certificate of its own, and without TLS.
      let failures = FailureList()
      for other in [try etcd.configurationWithoutCertificate(), try etcd.serviceConfiguration()] {
        try await AsyncGroupLog.with(other, failures: failures) { log in
          let ends = try await log.ends(of: [GroupID(0)])
          #expect(ends == nil)
        }
      }
      #expect(!failures.failures.isEmpty)
    }
  }
}
