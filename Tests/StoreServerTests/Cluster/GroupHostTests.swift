import Logging
import NIOCore
import NIOEmbedded
import NIOPosix
import ReceiptModel
import StoreClient
import StoreEngine
import Testing

@testable import StoreServer

/// The host of a cluster's group, on an embedded event loop.
@Suite struct GroupHostTests {
  /// A node's only group, on its own.
  private final class Node {
    let loop = EmbeddedEventLoop()
    let log = MemoryGroupLog(groupCount: 1)
    let link: SharedLogLink
    let host: LoopHost

    init() throws {
      let storage = FailingStorage()
      var logger = Logger(label: "test")
      logger.logLevel = .critical
      link = SharedLogLink(eventLoop: loop, log: log.connect(loop, node: NodeID(1)), limits: ClusterLimits())
      host = try LoopHost(
        eventLoop: loop,
        storage: storage,
        // Pools that were not started run their work at once, on the caller's thread.
        committer: NIOThreadPool(numberOfThreads: 1),
        readers: NIOThreadPool(numberOfThreads: 1),
        ledgerWriter: NIOThreadPool(numberOfThreads: 1),
        configuration: StoreLoopConfiguration(),
        totalShardCount: storage.shardCount,
        stored: try (0..<storage.shardCount).map { shard in
          let id = ShardID(UInt16(shard))
          return (shard: id, state: try storage.recover(id))
        },
        group: GroupMembership(
          id: GroupID(0),
          node: NodeID(1),
          initialSet: GroupSet(members: [NodeID(1), NodeID(2)], revision: 0),
          limits: ClusterLimits(),
          stored: .start,
          keys: [],
          link: link,
          nodes: NodeLinks(eventLoop: loop),
          others: OtherNodes(
            store: SessionID(high: 1, low: 1),
            configuration: { StoreClientConfiguration(addresses: [], name: "test", logger: Logger(label: "test")) },
            address: { _ in nil }
          ),
          events: GroupEvents(
            promoted: { _, _ in },
            yielded: { _ in },
            deposed: { _ in },
            failed: { _, _ in },
            keyAwaited: { _, _ in },
            dataKept: { _ in },
            removed: { _ in },
            levelUnsupported: { _ in },
            joining: { _ in },
            joinFailed: { _ in },
            installEnded: { _ in },
            joined: { _, _, _ in }
          )
        ),
        erasures: nil,
        clock: StoreClock(limits: .init(), logger: logger),
        directory: DataDirectoryMonitor(source: storage, logger: logger),
        events: LoopHost.HostEvents(halted: { _ in }, errorReported: { _ in })
      )
    }

    /// NIO traps if a loop with tasks is freed.
    deinit {
      _ = host.stop()
      link.stop()
      loop.run()
      try? loop.syncShutdownGracefully()
    }
  }

  /// Records that arrive for it later would reach a host that is gone.
  @Test func stoppedHostLeavesNoReplica() throws {
    let node = try Node()
    node.host.groupHost?.replica?.timerFired()
    node.link.probe(for: [node.host.groupHost?.replica].compactMap { $0 })
    // The answer of the probe is under way.
    weak let replica = node.host.groupHost?.replica
    #expect(replica != nil)
    _ = node.host.stop()
    #expect(replica == nil)
  }

  /// What the member has of another history must not count as synced (C7).
  @Test func memberOfAnotherHistoryReportsNothing() throws {
    let node = try Node()
    let groupHost = try #require(node.host.groupHost)
    let position = RecordPosition(9)
    #expect(groupHost.memberReport(synced: position) == MemberReport(position: position))
    groupHost.fetchSnapshot(.trimmed(first: RecordPosition(12)))
    #expect(groupHost.memberReport(synced: position) == MemberReport(position: position))
    groupHost.fetchSnapshot(.diverged(at: RecordPosition(5)))
    #expect(groupHost.memberReport(synced: position) == MemberReport(position: .zero))
    groupHost.joiningAt = RecordPosition(20)
    let joining = MemberReport(position: RecordPosition(20), .joining)
    #expect(groupHost.memberReport(synced: position) == joining)
  }

  /// What is stored may not be synced (C7).
  @Test func stoppingMemberReportsWhatIsSynced() throws {
    let node = try Node()
    let groupHost = try #require(node.host.groupHost)
    let end = GroupEnd(owner: .none, first: RecordPosition.zero.next, last: .zero)
    groupHost.replica?.handle(.probeAnswered(end))
    groupHost.handOver()
    #expect(node.log.reports(of: GroupID(0)).isEmpty)
    groupHost.reportSynced(LogCursor(position: RecordPosition(3), epoch: OwnerEpoch(1), hash: RecordHash(5)))
    groupHost.handOver()
    let ineligible = MemberReport(position: RecordPosition(3), .ineligible)
    #expect(node.log.reports(of: GroupID(0)) == [NodeID(1): ineligible])
  }

  /// A change of the set must not count on a report of a disk that is lost.
  @Test func nodeOutsideSetReportsNothingOnce() throws {
    let node = try Node()
    let groupHost = try #require(node.host.groupHost)
    node.log.report(GroupID(0), by: NodeID(1), synced: 9)
    let outside = GroupSet(members: [NodeID(2)], revision: 1)
    let end = GroupEnd(owner: .none, first: RecordPosition.zero.next, last: .zero, set: outside)
    groupHost.replica?.handle(.probeAnswered(end))
    groupHost.reportSynced(.start)
    node.loop.run()
    #expect(node.log.reports(of: GroupID(0)) == [NodeID(1): MemberReport(position: .zero)])
    node.log.report(GroupID(0), by: NodeID(1), synced: 9)
    groupHost.reportSynced(.start)
    #expect(node.log.reports(of: GroupID(0)) == [NodeID(1): MemberReport(position: RecordPosition(9))])
  }
}
