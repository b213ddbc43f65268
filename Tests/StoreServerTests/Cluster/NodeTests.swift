import Logging
import NIOCore
import Operations
import ReceiptModel
import StoreTestSupport
import Synchronization
import TestSupport
import Testing

@testable import StoreEngine
@testable import StoreServer

/// A node of a cluster that loses one of its groups: a whole server with two event loops, two groups of one shard each,
/// and a shared log in this process.
@Suite struct NodeTests {
  /// Log lines at any level, as text.
  private final class Lines: Sendable {
    private let lines = Mutex<[(level: Logger.Level, text: String)]>([])

    func append(_ level: Logger.Level, _ text: String) { lines.withLock { $0.append((level, text)) } }

    func matching(_ word: String) -> [(level: Logger.Level, text: String)] {
      lines.withLock { $0.filter { $0.text.contains(word) } }
    }
  }

  private struct Handler: LogHandler {
    var lines: Lines
    var metadata: Logger.Metadata = [:]
    var logLevel = Logger.Level.debug

    subscript(metadataKey key: String) -> Logger.Metadata.Value? {
      get { metadata[key] }
      set { metadata[key] = newValue }
    }

    func log(event: LogEvent) {
      lines.append(event.level, "\(event.message) \(event.metadata ?? [:])")
    }
  }

  private struct Node {
    let server: StoreServer
    let address: SocketAddress
    let storage: FailingStorage
    let log: MemoryGroupLog
    let lines: Lines

    var owned: Int {
      get async { await server.statistics().cluster?.ownedGroups ?? 0 }
    }

    func owns(_ count: Int) async throws {
      try await eventually("the node to own \(count) groups") { await owned == count }
    }

    /// Connect a gateway; return it and the shards that the node names.
    func connect(session: UInt64) async throws -> (gateway: SocketGateway, owned: String) {
      let gateway = try await SocketGateway(opening: address, session: session)
      let words = try await gateway.nextReplies(3)
      #expect(words.prefix(2) == ["challenge", "ready"])
      return (gateway, words[2])
    }
  }

  private func withNode(_ body: (Node) async throws -> Void) async throws {
    let storage = FailingStorage()
    let log = MemoryGroupLog(groupCount: 2)
    let lines = Lines()
    var cluster = ClusterSettings(
      node: NodeID(1),
      configuration: ClusterConfiguration(shardCount: storage.shardCount, groupCount: 2, initialNodeCount: 2),
      advertised: Endpoint(host: "127.0.0.1", port: 0),
      makeLog: { log.connect($0, node: NodeID(1)) },
      makeDirectory: { _ in EmptyNodeDirectory() }
    )
    // Take-overs are quick, and a machine may still be slow.
    cluster.limits.leaseMilliseconds = 900
    cluster.limits.waitMilliseconds = 1_200
    // The other node does not run.
    cluster.limits.membersMin = 1
    var configuration = StoreServerConfiguration(host: "127.0.0.1", port: 0, loops: 2)
    configuration.cluster = cluster
    let server = StoreServer(
      configuration: configuration,
      storage: storage,
      logger: Logger(label: "test") { _ in Handler(lines: lines) }
    )
    let address = try await server.start()
    do {
      try await body(Node(server: server, address: address, storage: storage, log: log, lines: lines))
    } catch {
      await server.stop()
      throw error
    }
    try await within("the server to stop") { await server.stop() }
  }

  @Test func nodeThatLosesOneGroupContinuesWithOther() async throws {
    try await withNode { node in
      try await node.owns(2)
      let before = try await node.connect(session: 1)
      before.gateway.send { [$0.note("a", of: 0), $0.note("b", of: 1)] }
      #expect(try await before.gateway.nextReplies(2).sorted() == ["1 noted", "2 noted"])

      node.log.takeOver(GroupID(0), node: NodeID(2))
      #expect(try await before.gateway.nextReplies(2) == ["owns 1+1@1", "ping 1"])
      #expect(await node.owned == 1)
      before.gateway.send { [$0.pong(1), $0.known("b", of: 1), $0.known("a", of: 0)] }
      #expect(try await before.gateway.nextReplies(3).sorted() == ["3 known", "4 not_owner", "owns 1+1@1"])

      // The other node is silent, so the group comes back, with what both have committed.
      try await node.owns(2)
      #expect(try await before.gateway.nextReplies() == ["owns 0+1@3 1+1@1"])
      before.gateway.send { [$0.known("a", of: 0), $0.known("b", of: 1)] }
      #expect(try await before.gateway.nextReplies(2).sorted() == ["5 known", "6 known"])
      #expect(node.server.notReadyReason == nil)
      #expect(node.storage.opens == 1, "the storage stays open")
      #expect(node.storage.recoveries(of: 0) == 2 && node.storage.recoveries(of: 1) == 1)
      await before.gateway.close()
    }
  }

  /// A commit of another node does not fit what local storage has of the group.
  @Test func nodeReadsUnfittingGroupAgainWithGrowingPauses() async throws {
    try await withNode { node in
      try await node.owns(2)
      var foreign = LoopCommit()
      foreign.batches = [LoopCommit.Batch(shard: ShardID(0), index: LogIndex(99), bytes: ByteBuffer())]
      let key = try #require(try node.storage.recordKeys(of: GroupID(0)).last)
      let payload = key.seal(foreign.recordPayload())
      node.log.takeOver(GroupID(0), node: NodeID(2), payload: payload, key: key.number)
      // It was made at the start, for the other owner, and for three failures.
      try await eventually("three failures") { node.storage.recoveries(of: 0) == 5 }
      #expect(await node.owned == 1)
      let failures = node.lines.matching("cannot be applied to local storage")
      #expect(failures.map(\.level).prefix(3) == [.error, .debug, .debug])
      for (failure, pause) in zip(failures, ["0.0 seconds", "0.5 seconds", "1.0 seconds"]) {
        #expect(failure.text.contains("batches in between are missing") && failure.text.contains(pause), "\(failure)")
      }
      let gateway = try await node.connect(session: 1)
      #expect(gateway.owned == "owns 1+1@1")
      #expect(node.storage.opens == 1 && node.storage.recoveries(of: 1) == 1)
      await gateway.gateway.close()
    }
  }

  /// A snapshot that does not help leads to another one.
  @Test func nodeTakesSnapshotsAgainWithGrowingPauses() async throws {
    try await withNode { node in
      try await node.owns(2)
      let supervisor = node.server.supervisor
      for (count, pause) in zip(2..., ["0.0 seconds", "0.5 seconds", "1.0 seconds"]) {
        let host = try #require(supervisor.hosts.first)
        supervisor.installEnded(host, at: 0, generation: 1)
        let line = try #require(node.lines.matching("starts again after a snapshot").last)
        #expect(line.text.contains(pause))
        try await eventually("another host") {
          supervisor.hosts.first !== host && node.storage.recoveries(of: 0) == count
        }
      }
      #expect(node.lines.matching("starts again after a snapshot").map(\.level) == [.notice, .debug, .debug])
      #expect(node.storage.opens == 1 && node.storage.recoveries(of: 1) == 1)
    }
  }

  /// A node whose commits fail reloads everything, and does not do so again and again.
  @Test func nodeWhoseCommitsFailReloadsWithGrowingPauses() async throws {
    try await withNode { node in
      try await node.owns(2)
      node.storage.failure = .failed("no space")
      try await eventually("three reloads") { node.storage.opens == 4 }
      let failures = node.lines.matching("A commit failed")
      #expect(failures.map(\.level).prefix(3) == [.error, .debug, .debug])
      for (failure, pause) in zip(failures, ["0.0 seconds", "0.5 seconds", "1.0 seconds"]) {
        #expect(failure.text.contains("no space") && failure.text.contains(pause), "\(failure)")
      }
      node.storage.failure = nil
      try await node.owns(2)
    }
  }

  /// A node that is no member any more keeps nothing of the group, and can be a member again.
  @Test func nodeOutsideSetRemovesItsData() async throws {
    try await withNode { node in
      try await node.owns(2)
      let gateway = try await node.connect(session: 1).gateway
      gateway.send { [$0.note("a", of: 0), $0.note("b", of: 1)] }
      #expect(try await gateway.nextReplies(2).sorted() == ["1 noted", "2 noted"])
      // No other member has the group: its owner keeps it.
      node.log.setMembers(of: GroupID(0), [2])
      gateway.send { [$0.known("a", of: 0)] }
      #expect(try await gateway.nextReplies() == ["3 known"])
      node.log.takeOver(GroupID(0), node: NodeID(2))
      #expect(try await gateway.nextReplies(2) == ["owns 1+1@1", "ping 1"])
      // The other node has reported nothing: this one's data may be the last.
      try await eventually("the data is kept") { !node.lines.matching("keeps the group's data").isEmpty }
      #expect(node.storage.removals.isEmpty)
      node.log.report(GroupID(0), by: NodeID(2), synced: 100)
      try await eventually("the data is removed") { node.storage.removals == [GroupID(0)] }
      #expect(!node.log.isFollowed(GroupID(0), by: NodeID(1)))
      try await eventually("another host") { node.storage.recoveries(of: 0) == 3 }
      #expect(node.log.reports(of: GroupID(0))[NodeID(1)] == MemberReport(position: .zero))
      #expect(await node.owned == 1)

      node.log.setMembers(of: GroupID(0), [2, 1])
      try await node.owns(2)
      let again = try await node.connect(session: 2)
      #expect(again.owned == "owns 0+1@3 1+1@1")
      again.gateway.send { [$0.known("a", of: 0), $0.known("b", of: 1)] }
      #expect(try await again.gateway.nextReplies(2).sorted() == ["1 known", "2 known"])
      await again.gateway.close()
      await gateway.close()
    }
  }

  /// An owner outside of the set has no member to move the group to at first. It moves as soon as one follows.
  @Test func ownerOutsideSetReleasesItsGroupLater() async throws {
    try await withNode { node in
      try await node.owns(2)
      node.log.setMembers(of: GroupID(0), [2])
      try await eventually("the owner's data counts no more") {
        node.log.reports(of: GroupID(0))[NodeID(1)]?.position == .zero
      }
      #expect(await node.owned == 2)
      var position: UInt64 = 100
      try await eventually("the group is released") {
        position += 1
        node.log.report(GroupID(0), by: NodeID(2), synced: position)
        return node.log.lastKind(of: GroupID(0)) == .release(to: NodeID(2))
      }
    }
  }

  /// An owner's purge ends when all members have reported its record.
  @Test func purgeEndsWhenAllMembersHavePurged() async throws {
    try await withNode { node in
      try await node.owns(2)
      let group = GroupID(0)
      let gateway = try await node.connect(session: 1).gateway
      gateway.send { [$0.note("a", of: 0)] }
      #expect(try await gateway.nextReplies() == ["1 noted"])
      let before = try #require(try node.storage.recordKeys(of: group).first)
      gateway.send { [$0.purge(0, of: 0)] }
      #expect(try await gateway.nextReplies() == ["2 purge 1"])
      try await eventually("a purge record") { node.log.lastRecord(of: group, .purge(first: .zero)) != nil }
      let record = try #require(node.log.lastRecord(of: group, .purge(first: .zero)))
      #expect(record.key > before.number)
      try await eventually("the node's own purge") {
        node.storage.purges == 1 && node.log.reports(of: group)[NodeID(1)]?.purged == record.position
      }
      #expect(try node.storage.recordKeys(of: group).map(\.number) == [record.key])
      // The other member has not.
      gateway.send { [$0.purge(1, of: 0)] }
      #expect(try await gateway.nextReplies() == ["3 purge 1"])
      node.log.report(group, by: NodeID(2), synced: record.position.rawValue, purged: record.position)
      var number = 3
      try await eventually("the purge's end") {
        number += 1
        gateway.send { [$0.purge(1, of: 0)] }
        return try await gateway.nextReplies() == ["\(number) purge 0"]
      }
      #expect(node.storage.purges == 1)
      await gateway.close()
    }
  }

  /// A node that runs while the cluster gets a level that it does not support.
  @Test func nodeSaysThatItDoesNotSupportLevel() async throws {
    try await withNode { node in
      try await node.owns(2)
      #expect(node.server.notReadyReason == nil)
      node.log.setLevel(200)
      try await eventually("the node is not ready") { node.server.notReadyReason?.contains("level 200") == true }
      // Once, not for each group.
      #expect(node.lines.matching("does not support the cluster's level").map(\.level) == [.error])
      let group = GroupID(0)
      try await eventually("no group moves to it") { node.log.reports(of: group)[NodeID(1)]?.phase == .ineligible }
      // It still owns its groups, and writes what it has written.
      let gateway = try await node.connect(session: 1)
      gateway.gateway.send { [$0.note("a", of: 0)] }
      #expect(try await gateway.gateway.nextReplies() == ["1 noted"])
      node.log.takeOver(group, node: NodeID(2), level: 200)
      try await eventually("the group is lost") { await node.owned == 1 }
      try await eventually("a follower that stands still") { node.storage.recoveries(of: 0) == 2 }
      #expect(await node.owned == 1)
      await gateway.gateway.close()
    }
  }

  /// Before a stop the groups go to a member that follows.
  @Test func nodeThatStopsReleasesItsGroups() async throws {
    try await withNode { node in
      try await node.owns(2)
      let gateway = try await node.connect(session: 1).gateway
      // The other node follows group 0 alone.
      for position: UInt64 in 101...103 {
        node.log.report(GroupID(0), by: NodeID(2), synced: position)
        let seen = node.storage.syncs
        try await eventually("the owner reads the report") { node.storage.syncs >= seen + 4 }
      }
      try await within("the node to hand over its groups") { await node.server.supervisor.handOverGroups() }
      #expect(node.log.lastKind(of: GroupID(0)) == .release(to: NodeID(2)))
      #expect(node.log.lastKind(of: GroupID(1)) != .release(to: NodeID(2)))
      #expect(node.lines.matching("not handed over").isEmpty)
      #expect(try await gateway.nextReplies() == ["owns 1+1@1"])
      await gateway.close()
    }
  }
}
