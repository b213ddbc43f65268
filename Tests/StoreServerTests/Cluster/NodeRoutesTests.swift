import NIOCore
import NIOEmbedded
import ReceiptModel
import ReceiptWire
import StoreEngine
import Testing

@testable import StoreServer

/// The shard maps of a cluster's node, and the requests that it accepts (Proto/frames.md, "Shards of a cluster"). Two
/// loops have one shard each, and one group.
@Suite struct NodeRoutesTests {
  @Test func nodeAnnouncesItsShardsAndRefusesOthers() throws {
    let harness = try ServerHarness(loops: 2, owned: [1])
    let gateway = try harness.connect()
    gateway.open()
    #expect(gateway.take() == ["challenge", "ready", "owns 1+1@1"])
    gateway.send(gateway.frames.note("a", of: 0), gateway.frames.note("b", of: 1), gateway.frames.known("c", of: 0))
    harness.run()
    #expect(gateway.take() == ["1 not_owner", "3 not_owner", "2 noted"])
    #expect(harness.requests(at: 0) == 0)
    #expect(harness.remains == [])
  }

  @Test func nodeWithoutShardsKeepsItsConnections() throws {
    let harness = try ServerHarness(loops: 2, owned: [])
    let gateway = try harness.connect()
    gateway.open()
    #expect(gateway.take() == ["challenge", "ready", "owns"])
    gateway.send(gateway.frames.note("a", of: 0))
    #expect(gateway.take() == ["1 not_owner"])
    #expect(harness.remains == [])
  }

  @Test func mapsNameTheOtherNodesAlsoAfterAReload() throws {
    let harness = try ServerHarness(loops: 2, owned: [1])
    let gateway = try harness.open()
    let peers = [ShardMap.Peer(node: 2, host: "b", port: 7410), ShardMap.Peer(node: 5, host: "c", port: 1)]
    harness.name(peers)
    #expect(gateway.take() == ["owns 1+1@1 beside 2=b:7410 5=c:1"])
    harness.name(peers)
    #expect(gateway.take() == [])
    harness.serving.replace(nil)
    try harness.start()
    let other = try harness.connect(session: 2)
    other.open()
    #expect(other.take() == ["challenge", "ready", "owns 1+1@1 beside 2=b:7410 5=c:1"])
    harness.name([])
    #expect(other.take() == ["owns 1+1@1"])
  }

  /// Refused requests do not count against the window.
  @Test func newOwnerServesItsOpenConnections() throws {
    let harness = try ServerHarness(loops: 2, window: 2, owned: [])
    let gateway = try harness.open()
    for _ in 0..<3 { gateway.send(gateway.frames.note("a", of: 0)) }
    #expect(gateway.take() == ["1 not_owner", "2 not_owner", "3 not_owner"])
    #expect(harness.promote(0, epoch: 7) == 1)
    #expect(gateway.take() == ["owns 0+1@7"])
    gateway.send(gateway.frames.note("a", of: 0, resending: 1), gateway.frames.note("b", of: 1))
    harness.run()
    #expect(gateway.take() == ["5 not_owner", "4 noted"])
    #expect(harness.promote(1, epoch: 9) == 2)
    #expect(gateway.take() == ["owns 0+1@7 1+1@9"])
    gateway.send(gateway.frames.known("a", of: 0), gateway.frames.note("b", of: 1, resending: 4))
    harness.run()
    #expect(gateway.take() == ["6 known", "7 noted"])
    #expect(harness.remains == [])
  }

  /// A gateway sends commands to a shard that the node loses, and claims again. What the gateway had sent before it
  /// knew may arrive late: a later command must not be applied without those before it.
  @Test func requestsSentBeforeTheLossWasKnownAreWithheld() throws {
    let harness = try ServerHarness(loops: 2, window: 3, owned: [0, 1])
    let gateway = try harness.open()
    gateway.send(gateway.frames.note("a", of: 0), gateway.frames.note("b", of: 1))
    // The commit of neither has ended.
    try harness.lose(0)
    #expect(gateway.take() == ["owns 1+1@1", "ping 1", "2 noted"])
    gateway.send(gateway.frames.note("c", of: 0), gateway.frames.known("a", of: 0), gateway.frames.note("d", of: 1))
    #expect(harness.promote(0, epoch: 3) == 2)
    gateway.send(gateway.frames.note("e", of: 0))
    harness.run()
    #expect(gateway.take() == ["owns 1+1@1", "5 noted"])
    #expect(harness.requests(at: 0) == 0)
    // From here on it knows. Lost requests do not count against the window.
    gateway.send(gateway.frames.pong(1))
    #expect(gateway.take() == ["owns 0+1@3 1+1@1"])
    gateway.send(
      gateway.frames.note("a", of: 0, resending: 1),
      gateway.frames.note("c", of: 0, resending: 3),
      gateway.frames.note("e", of: 0, resending: 5)
    )
    harness.run()
    #expect(gateway.take() == ["7 noted", "8 noted", "9 noted"])
    #expect(harness.remains == [])
  }

  /// The pong of an earlier ping says nothing about a later loss.
  @Test func eachLossWaitsForItsOwnPong() throws {
    let harness = try ServerHarness(loops: 2, owned: [0, 1])
    let gateway = try harness.open()
    try harness.lose(0)
    try harness.lose(1)
    #expect(gateway.take() == ["owns 1+1@1", "ping 1", "owns", "ping 2"])
    gateway.send(gateway.frames.pong(1), gateway.frames.note("a", of: 0))
    #expect(harness.promote(0, epoch: 2) == 1)
    #expect(gateway.take() == ["owns"])
    gateway.send(gateway.frames.pong(2), gateway.frames.note("a", of: 0), gateway.frames.note("b", of: 1))
    harness.run()
    #expect(gateway.take() == ["owns 0+1@2", "3 not_owner", "2 noted"])
    #expect(harness.remains == [])
  }

  /// Requests of a lost shard leave the window, whichever loop had them. The window still has its size.
  @Test(arguments: [0, 1] as [UInt16])
  func requestsOfLostShardLeaveWindow(_ lost: UInt16) throws {
    let kept = 1 - lost
    let harness = try ServerHarness(loops: 2, window: 2, owned: [0, 1])
    let gateway = try harness.open()
    gateway.send(
      gateway.frames.note("a", of: lost),
      gateway.frames.note("b", of: kept),
      gateway.frames.known("c", of: kept)
    )
    #expect(gateway.take() == ["3 busy, retry after 100 ms"])
    try harness.lose(Int(lost))
    #expect(gateway.take() == ["owns \(kept)+1@1", "ping 1", "2 noted"])
    gateway.send(
      gateway.frames.note("d", of: kept),
      gateway.frames.note("e", of: kept),
      gateway.frames.note("f", of: kept),
      gateway.frames.known("a", of: lost)
    )
    #expect(gateway.take() == ["6 busy, retry after 100 ms"])
    harness.run()
    #expect(gateway.take() == ["4 noted", "5 noted"])
    #expect(harness.remains == [])
  }

  /// The commit has ended, and its reply is on the way from the other loop. It must not follow the map.
  @Test func replyOfLostShardIsDropped() throws {
    let harness = try ServerHarness(loops: 2, owned: [0, 1])
    let gateway = try harness.open()
    gateway.send(gateway.frames.note("a", of: 1))
    harness.loops[1].run()
    try harness.lose(1)
    #expect(gateway.take() == ["owns 0+1@1", "ping 1"])
    #expect(harness.promote(1, epoch: 2) == 2)
    gateway.send(gateway.frames.pong(1))
    #expect(gateway.take() == ["owns 0+1@1", "owns 0+1@1 1+1@2"])
    gateway.send(gateway.frames.note("a", of: 1, resending: 1), gateway.frames.note("a", of: 1))
    harness.run()
    #expect(gateway.take() == ["2 noted", "3 was known"])
    #expect(harness.remains == [])
  }

  @Test func neighbouringShardsOfOneClaimAreOneRange() throws {
    let harness = try ServerHarness(loops: 1, owned: [0])
    let gateway = try harness.connect()
    gateway.open()
    #expect(gateway.take() == ["challenge", "ready", "owns 0+2@1"])
  }

  /// Hosts that were replaced meanwhile cannot become owners.
  @Test func promotionAfterReloadIsIgnored() throws {
    let harness = try ServerHarness(loops: 1, owned: [])
    let old = harness.hosts[0]
    harness.serving.replace(nil)
    #expect(harness.serving.promote(old, OwnerEpoch(2)) == nil)
    #expect(harness.serving.current() == nil)
  }

  // MARK: Between nodes

  private static func delivery(_ number: UInt64, from shard: UInt16, to home: UInt16) -> ByteBuffer {
    let membership = Membership(
      cid: GatewayFrames.key("team:red", of: 0),
      channel: ChannelNumber(1),
      row: MemberOrdinal(0),
      isMember: true,
      joinedAt: Timestamp(milliseconds: 1_000),
      epoch: 0
    )
    var buffer = ByteBuffer()
    let change = MembershipChange(user: GatewayFrames.key("alice", of: 1), membership, isGone: false)
    let changes = [Outbox.QueuedChange(number: number, change: change)]
    MembershipDelivery(from: ShardID(shard), to: ShardID(home), after: number - 1, changes: changes)
      .write(into: &buffer)
    return buffer
  }

  @Test func changesOfAnotherNodeReachOwnersIndex() throws {
    let harness = try ServerHarness(loops: 2, owned: [1])
    let gateway = try harness.open()
    gateway.send(Self.delivery(1, from: 0, to: 1))
    harness.run()
    #expect(!gateway.isClosed)
    #expect(harness.hosts[1].loop.counters.indexEntries == 1)
    gateway.send(gateway.frames.channels(of: "alice", of: 1))
    harness.run()
    #expect(gateway.take() == ["1 channels: 1"])
  }

  /// A frame has a limit of 1 MiB, and changes have the longest ids.
  @Test func largeDeliveryIsSeveralFrames() throws {
    let cid = "t:" + String(repeating: "c", count: 318)
    let changes = (1...4_000).map { number in
      let membership = Membership(
        cid: cid,
        channel: ChannelNumber(UInt64(number)),
        row: MemberOrdinal(0),
        isMember: true,
        joinedAt: Timestamp(milliseconds: 1_000),
        epoch: 0
      )
      let change = MembershipChange(user: String(repeating: "u", count: 255), membership, isGone: false)
      return Outbox.QueuedChange(number: UInt64(number), change: change)
    }
    let delivery = MembershipDelivery(from: ShardID(0), to: ShardID(1), after: 0, changes: changes)
    var after: UInt64 = 0
    var count = 0
    for message in MessageBetweenShards.delivery(delivery).frames {
      var buffer = ByteBuffer()
      message.write(into: &buffer)
      #expect(buffer.readableBytes < Int(FrameHeader.lengthLimitDefault))
      guard case .delivery(let part) = message else { return #expect(Bool(false), "not a delivery") }
      #expect(part.after == after)
      after = part.changes.last?.number ?? 0
      count += part.changes.count
    }
    #expect(count == 4_000 && after == 4_000)
  }

  /// The frames are for nodes of a cluster. Any other store treats them as unknown.
  @Test func storeOutsideClusterKnowsNoMessagesOfNodes() throws {
    let harness = try ServerHarness(loops: 2)
    let gateway = try harness.open()
    gateway.send(Self.delivery(1, from: 0, to: 1))
    #expect(gateway.take() == ["error unknown_kind"])
    #expect(gateway.isClosed)
    #expect(harness.remains == [])
  }

  @Test func changesForShardsThatDoNotExistAreIgnored() throws {
    let harness = try ServerHarness(loops: 2, owned: [0, 1])
    let gateway = try harness.open()
    gateway.send(Self.delivery(1, from: 0, to: 2))
    gateway.send(Self.delivery(1, from: 9, to: 1))
    harness.run()
    #expect(gateway.take() == [])
    #expect(!gateway.isClosed)
    #expect(harness.hosts.allSatisfy { $0.loop.counters.indexEntries == 0 })
    #expect(harness.remains == [])
  }
}
