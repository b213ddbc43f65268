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
    let link: SharedLogLink
    let host: LoopHost

    init() throws {
      let storage = FailingStorage()
      var logger = Logger(label: "test")
      logger.logLevel = .critical
      let log = MemoryGroupLog(groupCount: 1).connect(loop, node: NodeID(1))
      link = SharedLogLink(eventLoop: loop, log: log, limits: ClusterLimits())
      host = try LoopHost(
        eventLoop: loop,
        storage: storage,
        // Pools that were not started run their work at once, on the caller's thread.
        committer: NIOThreadPool(numberOfThreads: 1),
        readers: NIOThreadPool(numberOfThreads: 1),
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
          link: link,
          nodes: NodeLinks(eventLoop: loop),
          snapshots: SnapshotSources(store: SessionID(high: 1, low: 1)) {
            StoreClientConfiguration(addresses: [], name: "test", logger: Logger(label: "test"))
          },
          events: GroupEvents(
            promoted: { _, _ in },
            yielded: { _ in },
            deposed: { _ in },
            failed: { _, _ in },
            kept: { _ in },
            removed: { _ in },
            joining: { _ in },
            joinFailed: { _ in },
            installEnded: { _ in },
            joined: { _, _, _ in }
          )
        ),
        erasures: nil,
        clock: StoreClock(limits: .init(), logger: logger),
        directory: DataDirectoryMonitor(source: storage, logger: logger),
        events: LoopHost.HostEvents(halted: { _ in }, reported: { _ in })
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
    node.host.cluster?.replica?.timerFired()
    node.link.probe(for: [node.host.cluster?.replica].compactMap { $0 })
    // The answer of the probe is under way.
    weak let replica = node.host.cluster?.replica
    #expect(replica != nil)
    _ = node.host.stop()
    #expect(replica == nil)
  }

  /// What the member has of another history must not count as synced (C7).
  @Test func memberOfAnotherHistoryReportsNothing() throws {
    let node = try Node()
    let cluster = try #require(node.host.cluster)
    let position = RecordPosition(9)
    #expect(cluster.memberReport(synced: position) == MemberReport(position: position))
    cluster.fetchSnapshot(.trimmed(first: RecordPosition(12)))
    #expect(cluster.memberReport(synced: position) == MemberReport(position: position))
    cluster.fetchSnapshot(.diverged(at: RecordPosition(5)))
    #expect(cluster.memberReport(synced: position) == MemberReport(position: .zero))
    cluster.joiningAt = RecordPosition(20)
    let joining = MemberReport(position: RecordPosition(20), .joining)
    #expect(cluster.memberReport(synced: position) == joining)
  }
}
