import NIOCore
import Operations
import StoreEngine
import StoreTestSupport
import TestPrograms
import TestSupport
import Testing

@testable import StoreEtcd

/// Which server gets the calls. Servers 0 to 2 have the ids 10 to 12.
@Suite struct LeaderPreferenceTests {
  private var preference = LeaderPreference(servers: 3, moveInterval: .seconds(30))

  private mutating func answer(
    _ server: Int,
    leader: UInt64,
    current: Int,
    isReady: Bool = true,
    seconds: UInt64
  ) -> LeaderPreference.Decision {
    preference.answered(
      server,
      EtcdStatusResponse(member: 10 + UInt64(server), leader: leader),
      current: current,
      isReady: isReady,
      at: .uptimeNanoseconds(seconds * 1_000_000_000)
    )
  }

  @Test mutating func asksUntilAServerSaysThatItLeads() {
    #expect(preference.check(current: 0) == .ask(0))
    #expect(answer(0, leader: 12, current: 0, seconds: 1) == .ask(1))
    #expect(answer(1, leader: 12, current: 0, seconds: 1) == .ask(2))
    #expect(answer(2, leader: 12, current: 0, seconds: 1) == .move(to: 2))
    #expect(preference.check(current: 2) == .ask(2))
    #expect(answer(2, leader: 12, current: 2, seconds: 6) == .wait)
  }

  @Test mutating func movesOnceInAnInterval() {
    for server in 0...2 {
      _ = preference.check(current: server)
      _ = answer(server, leader: 10, current: 0, seconds: 1)
    }
    // The leader is lost and back.
    _ = preference.check(current: 1)
    #expect(answer(1, leader: 10, current: 1, seconds: 40) == .ask(0))
    #expect(answer(0, leader: 10, current: 1, seconds: 40) == .move(to: 0))
    _ = preference.check(current: 0)
    #expect(answer(0, leader: 11, current: 0, seconds: 45) == .wait)
    #expect(answer(0, leader: 11, current: 0, seconds: 69) == .wait)
    #expect(answer(0, leader: 11, current: 0, seconds: 70) == .ask(1))
    #expect(answer(1, leader: 11, current: 0, seconds: 70) == .move(to: 1))
  }

  @Test mutating func leaderWithoutConnectionDelaysNoMove() {
    for server in 0...2 {
      _ = preference.check(current: 0)
      _ = answer(server, leader: 10, current: 0, seconds: 1)
    }
    _ = preference.check(current: 0)
    #expect(answer(0, leader: 12, current: 0, seconds: 2) == .ask(2))
    #expect(answer(2, leader: 12, current: 0, isReady: false, seconds: 2) == .wait)
    _ = preference.check(current: 0)
    #expect(answer(0, leader: 12, current: 0, seconds: 7) == .ask(2))
    #expect(answer(2, leader: 12, current: 0, seconds: 7) == .move(to: 2))
  }

  @Test mutating func electionsMoveNothing() {
    _ = preference.check(current: 0)
    #expect(answer(0, leader: 0, current: 0, seconds: 1) == .wait)
    // A follower has not heard of the new leader, which no longer leads.
    _ = preference.check(current: 0)
    #expect(answer(0, leader: 11, current: 0, seconds: 2) == .ask(1))
    #expect(answer(1, leader: 0, current: 0, seconds: 2) == .wait)
    // The two name each other: each is asked once.
    _ = preference.check(current: 0)
    #expect(answer(0, leader: 11, current: 0, seconds: 3) == .ask(1))
    #expect(answer(1, leader: 10, current: 0, seconds: 3) == .ask(2))
    #expect(answer(2, leader: 10, current: 0, seconds: 3) == .wait)
  }
}

/// What the client counts, and to whom it turns, on real servers.
@Suite(.lanes(2), .needs(EtcdProcesses.isInstalled, "needs Debian's etcd-server"))
struct EtcdMetricsTests {
  private static func metrics(of log: AsyncGroupLog) async throws -> String {
    try await log.inspect { log in
      guard let log = log as? EtcdGroupLog else { return "" }
      var samples = MetricSamples()
      log.collect(into: &samples)
      var buffer = ByteBuffer()
      samples.write(into: &buffer)
      return String(buffer: buffer)
    }
  }

  @Test func turnsToTheLeaderAndCounts() async throws {
    try await EtcdProcesses.with(3) { etcd in
      let leader = etcd.servers[try await etcd.leader()].client
      let others = etcd.servers.map(\.client).filter { $0 != leader }
      var configuration = try etcd.configuration(endpoints: others + [leader])
      configuration.leaderCheckInterval = .milliseconds(20)
      try await AsyncGroupLog.with(configuration) { log in
        var owner = TestOwner(log, group: 0, node: 1)
        try await owner.claim()
        let name = "tidemark_store_log_server{server=\"\(leader)\"}"
        try await eventually("the calls go to the leader") {
          MetricText.value(name, in: try await Self.metrics(of: log)) == 1
        }
        for _ in 0..<5 { try await owner.append([1, 2, 3]) }
        let text = try await Self.metrics(of: log)
        #expect(MetricText.value("tidemark_store_log_records_appended_total", in: text) == 6)
        #expect(MetricText.value("tidemark_store_log_appended_bytes_total", in: text) == 15)
        #expect(MetricText.value("tidemark_store_log_call_seconds_count{call=\"append\"}", in: text) == 5)
        #expect(MetricText.value("tidemark_store_log_call_seconds_count{call=\"claim\"}", in: text) == 1)
        #expect(MetricText.value("tidemark_store_log_leader_moves_total", in: text) == 1)
        #expect(MetricText.sum("tidemark_store_log_server", in: text) == 1)
        #expect(try #require(MetricText.value("tidemark_store_log_database_bytes", in: text)) > 0)
        #expect(try #require(MetricText.value("tidemark_store_log_sent_bytes_total", in: text)) > 100)
        #expect(try #require(MetricText.value("tidemark_store_log_received_bytes_total", in: text)) > 100)
      }
    }
  }

  @Test func countsErrorsByKind() async throws {
    try await EtcdProcesses.with(1) { etcd in
      try await AsyncGroupLog.with(try etcd.serviceConfiguration()) { log in
        try await eventually("the server answers") { try await log.ends(of: [GroupID(0)]) != nil }
        await etcd.kill(0)
        try await eventually("a call fails for want of a server") {
          _ = try await log.ends(of: [GroupID(0)])
          let text = try await Self.metrics(of: log)
          return text.contains("tidemark_store_log_errors_total{kind=\"unreachable\"}")
            && text.contains("tidemark_store_log_errors_total{kind=\"no_server\"}")
        }
      }
    }
  }
}
