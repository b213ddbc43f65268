import NIOCore
import StoreEngine
import StoreTestSupport
import TestPrograms
import TestSupport
import Testing

@testable import StoreEtcd

/// Logs that begin behind the data of a single store.
@Suite(.lanes(2), .needs(EtcdProcesses.isInstalled, "needs Debian's etcd-server"))
struct EtcdAdoptionTests {
  private static func adopt(_ log: AsyncGroupLog, group: UInt8 = 0, node: UInt16 = 1, data: UInt64 = 7) async throws
    -> GroupAdoption.Outcome
  {
    let adoption = GroupAdoption(group: GroupID(group), by: NodeID(node), data: RecordHash(data))
    return try await log.call("the adoption's outcome") { log, done in
      guard let log = log as? EtcdGroupLog else { return done(.unclear) }
      log.adopt(adoption, done: done)
    }
  }

  @Test func othersFindTheBeginningTrimmed() async throws {
    try await EtcdProcesses.with(1) { etcd in
      try await AsyncGroupLog.with(try etcd.configuration()) { log in
        #expect(try await Self.adopt(log) == .adopted)
        // An attempt whose answer was lost, or whose process ended.
        #expect(try await Self.adopt(log) == .adopted)
        #expect(try await Self.adopt(log, data: 8) == .refused)
        #expect(try await Self.adopt(log, node: 2) == .refused)
        #expect(try await log.read(GroupID(0), from: 1) == .trimmed(first: RecordPosition(2)))
        let end = try await log.availableEnds(of: [GroupID(0)])[0]
        #expect(end.first == RecordPosition(2) && end.last == RecordPosition(3))
        #expect(end.owner.node == NodeID(1) && end.owner.epoch == OwnerEpoch(1))
        guard case .records(let records, reachesEnd: true) = try await log.read(GroupID(0), from: 2) else {
          throw Unexpected("the claim is not there")
        }
        #expect(records.map(\.kind) == [.claim(by: NodeID(1)), .release(to: NodeID(1))])
        #expect(records.map(\.previous) == [RecordHash(7), records[0].hash])
        // The claim of a node that began before, with an empty log.
        let claim = LogCursor.start.record(.claim(by: NodeID(2)), epoch: OwnerEpoch(1))
        let outcome = try await log.claim(GroupClaim(group: GroupID(0), record: claim, seen: .none))
        #expect(outcome == .fenced(end.owner))
        // The log continues after it.
        var owner = TestOwner(log, group: 0, node: 1, after: LogCursor(after: records[1]))
        try await owner.claim(from: end.owner)
        try await owner.append([1])
      }
    }
  }

  @Test func groupWithAnotherHistoryIsRefused() async throws {
    try await EtcdProcesses.with(1) { etcd in
      try await AsyncGroupLog.with(try etcd.configuration()) { log in
        var owner = TestOwner(log, group: 3, node: 2)
        try await owner.claim()
        #expect(try await Self.adopt(log, group: 3) == .refused)
        #expect(try await Self.adopt(log, group: 4) == .adopted)
      }
    }
  }
}
