import NIOCore
import NIOPosix
import Operations
import ReceiptModel
import StoreEngine
import StoreTestSupport
import Synchronization
import TestPrograms
import TestSupport
import Testing

@testable import StoreEtcd

/// What all nodes have in common, their sets and announcements, over a real server.
@Suite(.lanes(2), .needs(EtcdProcesses.isInstalled, "needs Debian's etcd-server"))
struct EtcdClusterTests {
  private static func etcd<Value: Sendable>(
    _ log: AsyncGroupLog,
    _ body: @escaping @Sendable (EtcdGroupLog, @escaping (Value?) -> Void) -> Void
  ) async throws -> Value? {
    try await log.call("an answer of etcd") { log, done in
      guard let log = log as? EtcdGroupLog else { return done(nil) }
      body(log, done)
    }
  }

  @Test func firstNodeFixesTheNumbers() async throws {
    try await EtcdProcesses.with(1) { etcd in
      try await AsyncGroupLog.with(try etcd.configuration()) { log in
        let first = ClusterConfiguration(shardCount: 16, groupCount: 3, initialNodeCount: 3)
        let other = ClusterConfiguration(shardCount: 8, groupCount: 2, initialNodeCount: 5)
        for configuration in [first, other, first] {
          let agreed = try await Self.etcd(log) { $0.agree(configuration, done: $1) }
          #expect(agreed == first)
        }
      }
    }
  }

  @Test func levelIsRaisedByCompare() async throws {
    try await EtcdProcesses.with(1) { etcd in
      try await AsyncGroupLog.with(try etcd.configuration()) { log in
        let configuration = ClusterConfiguration(shardCount: 4, groupCount: 2, initialNodeCount: 2)
        func raise(to level: UInt8, from revisions: ClusterRevisions) async throws -> ChangeOutcome? {
          try await Self.etcd(log) { log, done in
            log.raise(configuration, to: ClusterLevel(level), from: revisions) { done($0) }
          }
        }
        func overview() async throws -> ClusterOverview? {
          try await Self.etcd(log) { log, done in
            log.overview { result in done((try? result.get()) ?? nil) }
          }
        }
        let groups = [GroupID(0), GroupID(1)]
        #expect(try await log.availableEnds(of: groups).map(\.level) == [nil, nil])
        _ = try await Self.etcd(log) { $0.agree(configuration, done: $1) }
        let before = try #require(try await overview())
        // A node was announced when the levels were read, and is gone.
        var other = before.revisions
        other.nodes[NodeID(1)] = 1
        #expect(try await raise(to: 7, from: other) == .conflict)
        #expect(try await raise(to: 7, from: before.revisions) == .changed)
        #expect(try await raise(to: 8, from: before.revisions) == .conflict)
        let after = try #require(try await overview())
        #expect(after.configuration.level == ClusterLevel(7))
        #expect(after.revisions.configuration > before.revisions.configuration)
        #expect(after.configuration.shardCount == 4 && after.configuration.initialNodeCount == 2)
        #expect(try await log.availableEnds(of: groups).map(\.level) == [ClusterLevel(7), ClusterLevel(7)])
      }
    }
  }

  @Test func setIsChangedByCompare() async throws {
    try await EtcdProcesses.with(1) { etcd in
      try await AsyncGroupLog.with(try etcd.configuration()) { log in
        func change(_ members: [UInt16], from revision: UInt64, first: UInt64 = 1) async throws -> ChangeOutcome? {
          try await Self.etcd(log) { log, done in
            let members = members.map { NodeID($0) }
            log.change(GroupID(1), to: members, from: revision, first: RecordPosition(first)) { done($0) }
          }
        }
        #expect(try await log.availableEnds(of: [GroupID(1)])[0].set == nil)
        #expect(try await change([2, 1, 3], from: 0) == .changed)
        #expect(try await change([3, 1, 2], from: 0) == .conflict)
        let set = try #require(try await log.availableEnds(of: [GroupID(0), GroupID(1)])[1].set)
        #expect(set.members == [2, 1, 3].map { NodeID($0) } && set.revision > 0)
        #expect(try await change([4], from: set.revision) == .changed)
        let changed = try #require(try await log.availableEnds(of: [GroupID(1)])[0].set)
        #expect(changed.members == [NodeID(4)])
        // Neither a trim for another set counts, nor a set that was planned before a trim.
        var owner = TestOwner(log, group: 1, node: 4)
        try await owner.claim()
        for value in 0..<5 as Range<UInt8> { try await owner.append([value]) }
        /// A trim has no answer. One append follows each, so that a refused one has had its time.
        func trim(before position: UInt64, of set: UInt64, first: UInt64) async throws {
          let position = RecordPosition(position)
          log.trim(GroupTrim(group: GroupID(1), before: position, fence: owner.owner.fence, set: set))
          try await owner.append([])
          try await eventually("the first position is \(first)") {
            try await log.availableEnds(of: [GroupID(1)])[0].first == RecordPosition(first)
          }
        }
        try await trim(before: 4, of: set.revision, first: 1)
        try await trim(before: 3, of: changed.revision, first: 3)
        try await trim(before: 4, of: changed.revision, first: 4)
        #expect(try await change([5], from: changed.revision, first: 3) == .conflict)
        #expect(try await change([5], from: changed.revision, first: 4) == .changed)
      }
    }
  }

  @Test func overviewHasConfigurationNodesAndGroups() async throws {
    try await EtcdProcesses.with(1) { etcd in
      try await AsyncGroupLog.with(try etcd.configuration()) { log in
        func overview() async throws -> ClusterOverview? {
          try await Self.etcd(log) { log, done in
            log.overview { result in done((try? result.get()) ?? nil) }
          }
        }
        #expect(try await overview() == nil)
        let configuration = ClusterConfiguration(shardCount: 4, groupCount: 2, initialNodeCount: 2)
        _ = try await Self.etcd(log) { $0.agree(configuration, done: $1) }
        var owner = TestOwner(log, group: 1, node: 2)
        try await owner.claim()
        _ = try await log.report(GroupID(1), by: NodeID(2), synced: 1)
        let found = try #require(try await overview())
        #expect(found.configuration == configuration && found.nodes.isEmpty)
        #expect(found.groups.map(\.group) == [GroupID(0), GroupID(1)])
        #expect(found.groups[0].end.owner == .none && found.groups[0].reports.isEmpty)
        #expect(found.groups[1].end.owner.node == NodeID(2))
        #expect(found.groups[1].reports == [NodeID(2): MemberReport(position: RecordPosition(1))])
      }
    }
  }

  /// Announces a node on an event loop of its own.
  private final class Announcer: Sendable {
    private let eventLoop: any EventLoop
    private let directory: NIOLoopBound<EtcdNodeDirectory>
    let nodes = Mutex<[NodeAnnouncement]>([])

    init(_ configuration: EtcdConfiguration, _ node: NodeAnnouncement, on eventLoop: any EventLoop) async throws {
      self.eventLoop = eventLoop
      directory = try await eventLoop.submit {
        NIOLoopBound(EtcdNodeDirectory(configuration: configuration, eventLoop: eventLoop), eventLoop: eventLoop)
      }.get()
      try await eventLoop.submit { [self] in
        directory.value.announce(node) { [self] nodes in self.nodes.withLock { $0 = nodes } }
      }.get()
    }

    func withdraw() async throws {
      try await eventLoop.flatSubmit { [self] in
        let withdrawn = eventLoop.makePromise(of: Void.self)
        directory.value.withdraw { withdrawn.succeed() }
        return withdrawn.futureResult
      }.get()
    }
  }

  @Test func nodesSeeEachOtherUntilTheyWithdraw() async throws {
    try await EtcdProcesses.with(1) { etcd in
      let configuration = try etcd.configuration()
      let announcements = [1, 2].map { number in
        NodeAnnouncement(
          node: NodeID(number),
          host: "10.0.0.\(number)",
          port: 7_410,
          version: "1.2.3",
          levels: ClusterLevel(2)...ClusterLevel(UInt8(number) + 2)
        )
      }
      let loop = MultiThreadedEventLoopGroup.singleton.next()
      let first = try await Announcer(configuration, announcements[0], on: loop)
      try await eventually("a node sees itself") { first.nodes.withLock { $0 } == [announcements[0]] }
      let second = try await Announcer(configuration, announcements[1], on: loop)
      try await eventually("both nodes see each other") {
        first.nodes.withLock { $0 } == announcements && second.nodes.withLock { $0 } == announcements
      }
      try await second.withdraw()
      try await eventually("the other node has gone") { first.nodes.withLock { $0 } == [announcements[0]] }
      try await first.withdraw()
    }
  }

  @Test func nodeIsAnnouncedAgainAfterAnotherProcessOfItsNumber() async throws {
    try await EtcdProcesses.with(1) { etcd in
      let configuration = try etcd.configuration()
      let announcements = [1, 2].map { number in
        NodeAnnouncement(node: NodeID(1), host: "10.0.0.\(number)", port: 7_410, version: "1.2.3")
      }
      let loop = MultiThreadedEventLoopGroup.singleton.next()
      let first = try await Announcer(configuration, announcements[0], on: loop)
      try await eventually("a node sees itself") { first.nodes.withLock { $0 } == [announcements[0]] }
      let second = try await Announcer(configuration, announcements[1], on: loop)
      try await eventually("it sees the other process") { first.nodes.withLock { $0 } == [announcements[1]] }
      try await second.withdraw()
      try await eventually("it sees itself again") { first.nodes.withLock { $0 } == [announcements[0]] }
      try await first.withdraw()
    }
  }

  @Test(arguments: [[], [2], [1, 0], [1, 1, 0], [1, 2, 3, 3], [1, 1, 5, 0]] as [[UInt8]])
  func damagedSetIsRefused(bytes: [UInt8]) {
    #expect(throws: EtcdWireError.badValue(.set)) { try EtcdSetValue(bytes) }
  }

  @Test func valuesAreReadBack() throws {
    let members = [7, 300, 1].map { NodeID($0) }
    #expect(try EtcdSetValue(Array(EtcdSetValue(members).encoded().readableBytesView)).members == members)
    var configuration = ClusterConfiguration(shardCount: 4_096, groupCount: 64, initialNodeCount: 16)
    let early = Array(EtcdConfigurationValue(configuration).encoded().readableBytesView)
    #expect(try early.first == 2 && EtcdConfigurationValue(early).configuration == configuration)
    configuration.id = SessionID(high: 1, low: .max)
    let stored = Array(EtcdConfigurationValue(configuration).encoded().readableBytesView)
    #expect(try EtcdConfigurationValue(stored).configuration == configuration)
    #expect(throws: EtcdWireError.badValue(.configuration)) { try EtcdConfigurationValue([2, 4, 5, 1, 2]) }
    #expect(throws: EtcdWireError.badValue(.configuration)) { try EtcdConfigurationValue(stored.dropLast()) }
    #expect(throws: EtcdWireError.badValue(.configuration)) { try EtcdConfigurationValue([5] + stored.dropFirst()) }
    var adopted = configuration
    adopted.handshakeID = SessionID(high: 2, low: 3)
    let ofAdopted = Array(EtcdConfigurationValue(adopted).encoded().readableBytesView)
    #expect(try EtcdConfigurationValue(ofAdopted).configuration == adopted)
    #expect(throws: EtcdWireError.badValue(.configuration)) { try EtcdConfigurationValue(ofAdopted.dropLast()) }
    // Of a later program, and of builds without levels.
    #expect(try EtcdConfigurationValue(stored + [0]).configuration == configuration)
    #expect(try EtcdConfigurationValue([1, 4, 2, 3]).configuration.level == .oldest)
    let node = NodeAnnouncement(node: NodeID(9), host: "store-9.example", port: 65_535, version: "0.9.0")
    let value = Array(EtcdNodeValue(node).encoded().readableBytesView)
    #expect(try EtcdNodeValue(value, node: NodeID(9)).announcement == node)
    #expect(try EtcdNodeValue(value + [0], node: NodeID(9)).announcement == node)
    #expect(throws: EtcdWireError.badValue(.node)) { try EtcdNodeValue(Array(value.dropLast()), node: NodeID(9)) }
  }

  @Test func shardsOfGroupsAreRangesOfEqualLength() {
    let configuration = ClusterConfiguration(shardCount: 16, groupCount: 3, initialNodeCount: 3)
    let ranges = (0..<3).map { configuration.shards(of: GroupID($0)) }
    #expect(ranges == [0..<6, 6..<11, 11..<16])
  }
}
