import Glibc
import NIOCore
import Operations
import StoreEngine
import StoreEtcd
import StoreTestSupport
import Synchronization
import TestPrograms
import TestSupport
import Testing

/// The log while servers, connections and answers are lost.
@Suite(.lanes(2), .needs(EtcdProcesses.isInstalled, "needs Debian's etcd-server"))
struct EtcdFailureTests {
  private static let group = GroupID(0)

  /// Append records and follow them by another client, while `disturb` runs in the middle. In the end the log has each
  /// record once, in order.
  ///
  /// - Parameter disturb: receives the number of the disturbance, and a function that returns the number of appended
  ///   records.
  private func appendThrough(
    _ etcd: EtcdProcesses,
    _ disturb: @escaping @Sendable (Int, _ appended: @escaping @Sendable () -> Int) async throws -> Void
  ) async throws {
    let configuration = try etcd.serviceConfiguration()
    try await AsyncGroupLog.with(configuration) { log in
      try await AsyncGroupLog.with(configuration) { other in
        var owner = TestOwner(log, group: 0, node: 1)
        try await owner.claim()
        var appended: [GroupRecord] = []
        let count = Mutex(0)
        for round in 0..<90 {
          if round % 30 == 15 { try await disturb(round / 30) { count.withLock { $0 } } }
          appended.append(try await owner.append([UInt8(round)]))
          count.withLock { $0 += 1 }
        }
        let records = try await log.records(Self.group)
        #expect(Array(records.dropFirst()) == appended)
        #expect(try await log.availableEnds(of: [Self.group])[0].last == owner.cursor.position)
        // A follower that restarts after each end.
        var followed: [GroupRecord] = []
        try await eventually("all records have been followed") {
          let part = other.follow(Self.group, from: UInt64(followed.count) + 1)
          try await eventually("the follower is at the end, or has ended") {
            part.isEnded || followed.count + part.records.count == records.count
          }
          followed += part.records
          return followed.count == records.count
        }
        #expect(followed == records)
      }
    }
  }

  @Test func recordsSurviveKillsOfTheLeader() async throws {
    try await EtcdProcesses.with(3) { etcd in
      try await appendThrough(etcd) { round, _ in
        let leader = try await etcd.leader()
        await etcd.kill(leader)
        // It is back before the next one is killed.
        if round < 2 {
          try etcd.start(leader)
          try await etcd.waitUntilReady()
        }
      }
    }
  }

  @Test func recordsSurviveStopsOfTheLeader() async throws {
    try await EtcdProcesses.with(3) { etcd in
      let resumption = Mutex<Task<Void, any Error>?>(nil)
      try await appendThrough(etcd) { round, appended in
        try await resumption.withLock { $0 }?.value
        let leader = try await etcd.leader()
        let before = appended()
        etcd.signal(leader, SIGSTOP)
        // It continues after the others have elected another leader and, where this returns before, appended by it.
        let task = Task {
          do {
            defer { etcd.signal(leader, SIGCONT) }
            try await eventually("the others have elected another leader") {
              (try? await etcd.leader(besides: leader)) != nil
            }
            if round == 0 { try await eventually("the others have appended") { appended() > before } }
          }
          // The next round stops the new leader.
          try await eventually("the server that was stopped follows") { try await !etcd.isLeader(leader) }
        }
        resumption.withLock { $0 = task }
        if round > 0 { try await etcd.waitUntilReady() }
      }
      try await resumption.withLock { $0 }?.value
    }
  }

  @Test func recordsSurviveLostConnections() async throws {
    try await EtcdProcesses.with(1) { etcd in
      try await appendThrough(etcd) { _, _ in
        await etcd.kill(0)
        try etcd.start(0)
      }
    }
  }

  /// The answers of appends and claims are lost, the second time too: one record each.
  @Test func commandsWhoseAnswersAreLostAreAppliedOnce() async throws {
    try await EtcdProcesses.with(1) { etcd in
      try await AnswerProxy.with(etcd.servers[0].client) { proxy, endpoint in
        var configuration = try etcd.configuration(endpoints: [endpoint])
        configuration.callTimeout = .seconds(1)
        let failures = FailureList()
        try await AsyncGroupLog.with(configuration, failures: failures) { log in
          try await AsyncGroupLog.with(try etcd.configuration()) { direct in
            let claim = GroupClaim(
              group: Self.group,
              record: LogCursor.start.record(.claim(by: NodeID(1)), epoch: OwnerEpoch(1)),
              seen: .none
            )
            try await eventually("the proxy passes calls on") { try await log.ends(of: [Self.group]) != nil }
            proxy.losesAnswers = true
            #expect(try await log.claim(claim) == .unclear)
            var claimed = try await direct.availableEnds(of: [Self.group])[0]
            try await eventually("the claim is applied") {
              claimed = try await direct.availableEnds(of: [Self.group])[0]
              return claimed.last == RecordPosition(1)
            }
            proxy.losesAnswers = false
            var outcome = AppendOutcome.unclear
            try await eventually("the claim is decided") {
              outcome = try await log.claim(claim)
              return outcome != .unclear
            }
            #expect(outcome == .committed(claimed.owner))

            let record = LogCursor(after: claim.record).record(.batches, epoch: OwnerEpoch(1), payload: [7])
            let append = GroupAppend(group: Self.group, record: record, fence: claimed.owner.fence)
            proxy.losesAnswers = true
            #expect(try await log.append([append]) == [.unclear])
            #expect(try await log.append([append]) == [.unclear])
            proxy.losesAnswers = false
            try await eventually("the append is decided") {
              outcome = try await log.append([append])[0]
              return outcome != .unclear
            }
            #expect(outcome == .committed(claimed.owner))
            #expect(try await direct.records(Self.group) == [claim.record, record])
          }
        }
        #expect(failures.failures.contains(.timedOut))
      }
    }
  }

  /// An append whose answer is lost, and whose owner is replaced meanwhile.
  @Test func deposedOwnerIsFencedAfterALostAnswer() async throws {
    try await EtcdProcesses.with(1) { etcd in
      try await AnswerProxy.with(etcd.servers[0].client) { proxy, endpoint in
        var configuration = try etcd.configuration(endpoints: [endpoint])
        configuration.callTimeout = .seconds(1)
        try await AsyncGroupLog.with(configuration) { log in
          try await AsyncGroupLog.with(try etcd.configuration()) { direct in
            var owner = TestOwner(log, group: 0, node: 1)
            try await owner.claim()
            let append = owner.next([1])
            proxy.losesAnswers = true
            #expect(try await log.append([append]) == [.unclear])
            owner.committed(append.record)
            try await eventually("the append is applied") {
              try await direct.availableEnds(of: [Self.group])[0].last == append.record.position
            }
            var taker = TestOwner(direct, group: 0, node: 2, after: owner.cursor)
            try await taker.claim(from: owner.owner)
            proxy.losesAnswers = false
            var outcome = AppendOutcome.unclear
            try await eventually("the append is decided") {
              outcome = try await log.append([append])[0]
              return outcome != .unclear
            }
            #expect(outcome == .fenced(taker.owner))
            #expect(try await direct.records(Self.group)[1] == append.record)
          }
        }
      }
    }
  }

  @Test func nothingIsDecidedWithoutAMajority() async throws {
    try await EtcdProcesses.with(3) { etcd in
      let failures = FailureList()
      try await AsyncGroupLog.with(try etcd.serviceConfiguration(), failures: failures) { log in
        var owner = TestOwner(log, group: 0, node: 1)
        try await owner.claim()
        let followed = log.follow(Self.group, from: 1)
        try await followed.waitForRecords(1)
        await etcd.kill(0)
        await etcd.kill(1)
        let append = owner.next([1])
        // Nothing is decided, and nothing is read.
        for _ in 0..<5 {
          #expect(try await log.append([append]) == [.unclear])
          #expect(try await log.ends(of: [Self.group]) == nil)
          #expect(try await log.read(Self.group, from: 1) == .failed)
        }
        try await eventually("the server that is left says that it has no leader") {
          _ = try await log.ends(of: [Self.group])
          return failures.contains(status: "no leader")
        }
        // It ends watches too.
        try await followed.waitForEnd()
        try etcd.start(0)
        try etcd.start(1)
        try await owner.append([1])
        #expect(try await log.records(Self.group).count == 2)
      }
    }
  }

  @Test func appendsToAFullDatabaseFailAndReadsContinue() async throws {
    try await EtcdProcesses.with(1, flags: ["--quota-backend-bytes", "3000000"]) { etcd in
      let failures = FailureList()
      try await AsyncGroupLog.with(try etcd.configuration(), failures: failures) { log in
        var owner = TestOwner(log, group: 0, node: 1)
        try await owner.claim()
        var outcome = AppendOutcome.committed(owner.owner)
        while case .committed = outcome {
          let append = owner.next(Array(repeating: 1, count: 500_000))
          outcome = try await log.append([append])[0]
          if case .committed = outcome { owner.committed(append.record) }
        }
        #expect(outcome == .unclear)
        #expect(failures.contains(status: "database space exceeded"))
        // Reads still succeed.
        let end = try await log.availableEnds(of: [Self.group])[0]
        // The unclear one may have been the last that found room.
        #expect(end.last == owner.cursor.position || end.last == owner.cursor.position.next)
        #expect(try await log.records(Self.group).count == Int(end.last.rawValue))
      }
    }
  }

  /// A server that is stopped is noticed by a client that only follows.
  @Test func followerNoticesAServerThatStops() async throws {
    try await EtcdProcesses.with(1, flags: ["--grpc-keepalive-min-time", "10ms"]) { etcd in
      try await AnswerProxy.with(etcd.servers[0].client) { proxy, endpoint in
        var configuration = try etcd.configuration(endpoints: [endpoint])
        configuration.pingInterval = .milliseconds(50)
        configuration.pingTimeout = .seconds(10)
        try await AsyncGroupLog.with(configuration) { log in
          var owner = TestOwner(log, group: 0, node: 1)
          try await owner.claim()
          let followed = log.follow(Self.group, from: 1)
          try await followed.waitForRecords(1)
          // PINGs are all that is sent, and they are answered.
          let before = proxy.bytesToServer
          try await eventually("three PINGs are sent") { proxy.bytesToServer >= before + 3 * 17 }
          #expect(!followed.isEnded)
          try await owner.append([1])
          try await followed.waitForRecords(2)
          #expect(proxy.connectionCount == 1)
          etcd.signal(0, SIGSTOP)
          try await followed.waitForEnd()
          etcd.signal(0, SIGCONT)
          try await owner.append([2])
        }
      }
    }
  }

  /// A server that cannot be reached is left out; calls fail at once while all of them are.
  @Test func unreachableServersAreLeftOut() async throws {
    try await EtcdProcesses.with(1) { etcd in
      let unused = etcd.servers[0].peer
      let nowhere = Endpoint(host: "127.0.0.1", port: 1)
      var configuration = try etcd.configuration(endpoints: [nowhere, unused, etcd.servers[0].client])
      configuration.backoffMin = .seconds(600)
      configuration.backoffMax = .seconds(600)
      try await AsyncGroupLog.with(configuration) { log in
        // After one failure at each of the others all calls go to the server.
        _ = try await log.availableEnds(of: [Self.group])
        for _ in 0..<20 { #expect(try await log.ends(of: [Self.group]) != nil) }
      }
      var alone = try etcd.configuration(endpoints: [nowhere])
      alone.backoffMin = .seconds(600)
      alone.backoffMax = .seconds(600)
      let failures = FailureList()
      try await AsyncGroupLog.with(alone, failures: failures) { log in
        for _ in 0..<3 {
          let ends = try await log.ends(of: [Self.group])
          #expect(ends == nil)
        }
        let followed = log.follow(Self.group, from: 1)
        try await followed.waitForEnd()
      }
      // The server was tried once.
      #expect(failures.failures.count == 1)
    }
  }
}
