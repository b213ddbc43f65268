import NIOCore
import ReceiptModel
import ReceiptWire
import TestSupport
import Testing

@testable import StoreClient

/// Requests to the owners of their shards, and what happens to them when another node becomes the owner
/// (Proto/frames.md, "Shards of a cluster").
@Suite struct ClusterRoutingTests {
  @Test func eachRequestGoesToTheOwnerOfItsShard() {
    let harness = ClusterHarness(nodes: 3)
    harness.own(0, [0...0], epoch: 1)
    harness.own(1, [1...2], epoch: 1)
    harness.own(2, [3...3], epoch: 1)
    for tag in 1...4 { harness.command(UInt64(tag), to: UInt16(tag - 1)) }
    harness.open()
    harness.query(5, to: 2)
    harness.flush()
    #expect(harness.received(0) == ["1"])
    #expect(harness.received(1) == ["2", "3", "5"])
    #expect(harness.received(2) == ["4"])
    #expect(harness.recorder.replies.sorted() == [1, 2, 3, 4, 5])
    #expect(harness.client.isReady)
    let sessions = Set(harness.nodes.flatMap(\.hellos).map(\.session))
    #expect(sessions.count == 1, "all nodes know the client by one session")
  }

  /// A backup asks the node that its user names, whoever owns the shards.
  @Test func clientOfOneNodeFollowsNoMap() {
    let harness = ClusterHarness(nodes: 2) { configuration in
      configuration.addresses = [configuration.addresses[1]]
      configuration.usesOneNode = true
    }
    harness.own(0, [0...3], epoch: 2)
    harness.own(1, [0...3], epoch: 1)
    harness.open()
    harness.query(1, to: 0)
    harness.flush()
    harness.pump()
    #expect(harness.recorder.replies == [1])
    #expect(harness.received(1) == ["1"] && harness.nodes[0].hellos.isEmpty)
  }

  @Test func requestsWaitForAnOwner() {
    let harness = ClusterHarness(nodes: 2)
    harness.own(0, [0...1], epoch: 1)
    harness.open()
    harness.command(1, to: 2)
    harness.command(2, to: 0)
    harness.command(3, to: 2)
    harness.flush()
    #expect(harness.recorder.replies == [2])
    #expect(!harness.client.isReady)
    harness.own(1, [2...3], epoch: 1)
    harness.pump()
    #expect(harness.received(1) == ["1", "3"])
    #expect(harness.recorder.replies == [2, 1, 3])
    #expect(harness.client.isReady)
    #expect(harness.client.stats.inFlight == 0)
  }

  @Test func requestsWithoutOwnerFailAtTheirDeadline() {
    let harness = ClusterHarness(nodes: 1) { $0.requestDeadline = .seconds(1) }
    harness.own(0, [0...0], epoch: 1)
    harness.open()
    harness.command(1, to: 1)
    harness.flush()
    harness.advance(.milliseconds(1_300))
    #expect(harness.recorder.failures == [1: .unavailable])
  }

  @Test func anotherOwnerGetsTheUnansweredRequestsInOrder() {
    let harness = ClusterHarness.open(nodes: 2)
    harness.nodes[0].holdsReplies = true
    harness.command(1, to: 0)
    harness.command(2, to: 1)
    harness.command(3, to: 0)
    harness.flush()
    harness.command(4, to: 0)
    harness.own(1, [0...0], epoch: 2)
    harness.pump()
    #expect(harness.received(1) == ["1!", "3!", "4"])
    #expect(harness.recorder.replies == [1, 3, 4])
    // The former owner's replies are late.
    harness.release(0)
    #expect(harness.recorder.replies == [1, 3, 4, 2])
    #expect(harness.client.stats.repliesLate == 2)
    #expect(harness.commands.lost == [])
    #expect(harness.commands.applied.values.first?.count == 4)
  }

  /// A node refuses one request, and has not answered the one before. Both move, so that their order stays.
  @Test func refusedRequestMovesWithThoseBeforeIt() {
    let harness = ClusterHarness.open(nodes: 2)
    harness.nodes[0].holdsReplies = true
    harness.command(1, to: 0)
    harness.flush()
    harness.own(0, [1...3], epoch: 1, isAnnounced: false)
    harness.command(2, to: 0)
    harness.flush()
    #expect(harness.recorder.failures == [:])
    #expect(!harness.client.isReady)
    harness.own(1, [0...0], epoch: 2)
    harness.pump()
    #expect(harness.received(1) == ["1!", "2!"])
    #expect(harness.recorder.replies == [1, 2])
    #expect(harness.commands.lost == [])
  }

  @Test func olderClaimIsIgnored() {
    let harness = ClusterHarness(nodes: 2)
    harness.own(0, [0...3], epoch: 5)
    harness.open()
    harness.own(1, [0...3], epoch: 4)
    harness.pump()
    harness.command(1, to: 0)
    harness.flush()
    #expect(harness.received(0) == ["1"])
    #expect(harness.received(1) == [])
  }

  @Test func lostConnectionKeepsTheShardsUntilAnotherNodeOwnsThem() {
    let harness = ClusterHarness.open(nodes: 2)
    harness.nodes[0].holdsReplies = true
    harness.command(1, to: 0)
    harness.flush()
    harness.down = [0]
    harness.cut(0)
    harness.command(2, to: 0)
    harness.flush()
    #expect(!harness.client.isReady)
    #expect(harness.received(1) == [])
    harness.own(1, [0...3], epoch: 2)
    harness.pump()
    #expect(harness.received(1) == ["1!", "2"])
    #expect(harness.client.isReady, "the lost node owns nothing")
  }

  @Test func nodeThatComesBackGetsItsRequestsAgain() {
    let harness = ClusterHarness.open(nodes: 2)
    harness.nodes[0].holdsReplies = true
    harness.command(1, to: 0)
    harness.flush()
    harness.cut(0)
    harness.nodes[0].holdsReplies = false
    harness.advance(.milliseconds(100))
    #expect(harness.received(0) == ["1", "1!"])
    #expect(harness.recorder.replies == [1])
    #expect(harness.commands.applied.values.first?.count == 1)
  }

  @Test func readinessChangesWithTheOwners() {
    let harness = ClusterHarness.open(nodes: 2)
    harness.own(1, [3...3], epoch: 2)
    harness.pump()
    let changes = harness.recorder.events.filter { if case .ready = $0 { true } else { false } }
    #expect(changes == [.ready(true), .ready(false), .ready(true)])
  }

  // MARK: - Events

  /// Subscriptions begin again with each change of owners, as after a lost connection, but only in the shards
  /// concerned.
  @Test func subscriptionsBeginAgainInTheShardsThatHaveAnotherOwner() {
    let harness = ClusterHarness(nodes: 2)
    harness.own(0, [0...2], epoch: 1)
    harness.open()
    harness.own(1, [3...3], epoch: 1)
    harness.pump()
    harness.own(1, [2...3], epoch: 2)
    harness.pump()
    #expect(harness.recorder.reopened == [[0, 1, 2], [3], [2]])
    // A lost connection concerns the shards of its node.
    harness.cut(1)
    #expect(harness.client.unservedShards.map(\.rawValue) == [2, 3])
    harness.advance(.milliseconds(100))
    #expect(harness.recorder.reopened == [[0, 1, 2], [3], [2], [], [2, 3]])
    #expect(harness.client.isReady)
  }

  /// A new owner does not have the subscriptions yet, and a former one does not have them any more. Dropped
  /// events are replayed when the subscriptions begin again. Events of other shards continue.
  @Test func eventsAreTakenFromTheOwnersOfTheirShards() {
    let harness = ClusterHarness.open(nodes: 2)
    harness.events(0, of: 0)
    harness.events(1, of: 0)
    harness.own(0, [2...3], epoch: 1)
    harness.own(1, [0...0], epoch: 2)
    harness.pump()
    #expect(!harness.client.isReady, "shard 1 has no owner")
    #expect(harness.recorder.eventShards == [0])
    harness.events(1, of: 0)
    harness.events(0, of: 0)
    harness.events(0, of: 1)
    harness.events(0, of: 3)
    #expect(harness.recorder.eventShards == [0, 0, 3])
    harness.down = [0]
    harness.cut(0)
    harness.events(1, of: 0)
    harness.own(1, [0...3], epoch: 3)
    harness.pump()
    harness.events(1, of: 3)
    #expect(harness.recorder.eventShards == [0, 0, 3, 0, 3])
  }

  /// Each shard counts from its own loss.
  @Test func disconnectedTimeIsThatOfTheShardLostFirst() throws {
    let harness = ClusterHarness(nodes: 3)
    harness.own(0, [0...0], epoch: 1)
    harness.open()
    #expect(harness.client.disconnectedSince == nil && harness.client.unservedShards.map(\.rawValue) == [1, 2, 3])
    harness.own(1, [1...2], epoch: 1)
    harness.own(2, [3...3], epoch: 1)
    harness.pump()
    #expect(harness.client.isReady && harness.client.unservedShards == [])
    harness.down = [0, 1]
    let start = harness.client.eventLoop.now
    harness.cut(0)
    harness.advance(.seconds(1))
    harness.cut(1)
    #expect(harness.client.disconnectedSince == start)
    harness.own(2, [0...0, 3...3], epoch: 2)
    harness.pump()
    #expect(harness.client.unservedShards.map(\.rawValue) == [1, 2])
    #expect(harness.client.disconnectedSince == start + .seconds(1))
  }

  @Test func windowOfNodeWithoutShardsHoldsNothingBack() {
    let harness = ClusterHarness.open(nodes: 2) { $0.inFlightMax = 4 }
    harness.nodes[0].holdsReplies = true
    for tag in 1...4 { harness.command(UInt64(tag), to: 0) }
    harness.flush()
    #expect(!harness.client.hasRoom)
    harness.own(1, [0...3], epoch: 2)
    harness.pump()
    #expect(harness.recorder.replies == [1, 2, 3, 4])
    #expect(harness.client.hasRoom && harness.client.hasRoom(for: 3))
  }

  /// A node that has lost a shard does not answer its requests: they take no place in its window any more.
  @Test func requestsOfALostShardFreeTheirPlaces() {
    let harness = ClusterHarness.open(nodes: 2) { $0.inFlightMax = 4 }
    harness.nodes[0].holdsReplies = true
    for token in 1...3 { harness.command(UInt64(token), to: 0) }
    harness.command(4, to: 1)
    harness.flush()
    harness.own(0, [1...3], epoch: 1)
    harness.own(1, [0...0], epoch: 2)
    harness.pump()
    #expect(harness.received(1) == ["1!", "2!", "3!"])
    #expect(harness.recorder.replies == [1, 2, 3])
    for token in 5...7 { harness.command(UInt64(token), to: 1) }
    #expect(!harness.client.hasRoom)
    harness.flush()
    harness.release(0)
    #expect(harness.recorder.replies == [1, 2, 3, 4, 5, 6, 7])
    #expect(harness.client.stats.repliesLate == 0 && harness.client.stats.connectionsLost == 0)
  }

  /// A node loses a shard and owns it again before the client knows. What was under way is dropped, and what follows it
  /// must not be applied first.
  @Test func requestsUnderWayAreSentAgainToANodeThatOwnsTheirShardAgain() {
    let harness = ClusterHarness.open(nodes: 2)
    harness.nodes[0].holdsReplies = true
    harness.command(1, to: 0)
    harness.flush()
    harness.command(2, to: 0)
    harness.client.flush()
    harness.own(0, [1...3], epoch: 1)
    harness.own(0, [0...3], epoch: 3)
    harness.nodes[0].holdsReplies = false
    harness.pump()
    #expect(harness.received(0) == ["1", "1!", "2!"])
    #expect(harness.recorder.replies == [1, 2])
    #expect(harness.commands.lost == [])
  }

  /// Two addresses lead to each other's node: the epochs are those of before.
  @Test func ownersAreFoundBehindOtherAddresses() {
    let harness = ClusterHarness(nodes: 2)
    harness.own(0, [0...1], epoch: 1)
    harness.own(1, [2...3], epoch: 1)
    harness.open()
    harness.own(0, [2...3], epoch: 1)
    harness.own(1, [0...1], epoch: 1)
    harness.pump()
    harness.command(1, to: 0)
    harness.command(2, to: 3)
    harness.flush()
    #expect(harness.received(0) == ["2"])
    #expect(harness.received(1) == ["1"])
  }

  /// A cluster that was created again counts its epochs from 1.
  @Test func newClusterIsServedAfterTheSessionsEnd() {
    let harness = ClusterHarness(nodes: 1)
    harness.own(0, [0...3], epoch: 9)
    harness.open()
    harness.nodes[0].identity = SessionID(high: 7, low: 7)
    harness.nodes[0].shardCount = 2
    harness.own(0, [0...1], epoch: 1, isAnnounced: false)
    harness.cut(0)
    harness.advance(.milliseconds(300))
    #expect(harness.client.isReady)
    #expect(harness.client.shardCount == 2)
    harness.command(1, to: 1)
    harness.flush()
    #expect(harness.recorder.replies == [1])
  }

  /// The client learns that the store is a cluster only when the first node answers.
  @Test func allNodesGetTheReplacedSecrets() {
    let harness = ClusterHarness(nodes: 2) { $0.secrets = [[1]] }
    for node in harness.nodes { node.secrets = [[2]] }
    harness.own(0, [0...1], epoch: 1)
    harness.own(1, [2...3], epoch: 1)
    harness.client.replaceSecrets([[2]])
    harness.open()
    #expect(harness.client.isReady)
  }

  @Test func nodeWithoutMapIsLeft() {
    let harness = ClusterHarness(nodes: 1)
    harness.nodes[0].hasNoMap = true
    harness.open()
    harness.advance(.seconds(9))
    #expect(harness.nodes[0].hellos.count == 1)
    harness.nodes[0].hasNoMap = false
    harness.own(0, [0...3], epoch: 1, isAnnounced: false)
    harness.advance(.seconds(2))
    #expect(harness.nodes[0].hellos.count == 2)
    #expect(harness.client.isReady)
  }

  @Test func expiredSessionEndsAtAllNodes() {
    let harness = ClusterHarness(nodes: 2)
    harness.own(0, [0...1], epoch: 1)
    harness.own(1, [2...3], epoch: 1)
    harness.open()
    harness.nodes[0].holdsReplies = true
    harness.nodes[1].holdsReplies = true
    harness.command(1, to: 0)
    harness.command(2, to: 2)
    harness.query(3, to: 2)
    harness.flush()
    harness.nodes[0].expiresOldSessions = true
    harness.cut(0)
    harness.nodes[0].holdsReplies = false
    harness.nodes[1].holdsReplies = false
    harness.advance(.milliseconds(30))
    harness.nodes[0].expiresOldSessions = false
    harness.advance(.milliseconds(300))
    #expect(harness.recorder.failures == [1: .outcomeUnknown, 2: .outcomeUnknown])
    #expect(harness.recorder.replies == [3])
    let sessions = harness.nodes.map { $0.hellos.last!.session }
    #expect(sessions[0] == sessions[1])
    #expect(sessions[0] != harness.nodes[1].hellos[0].session)
    harness.command(4, to: 2)
    harness.flush()
    #expect(harness.nodes[1].requests.last?.counter == 1)
  }

  /// A command waits for a node that is gone, and the session ends at another one. Later commands of the shard do not
  /// overtake it when that node owns the shard.
  @Test func waitingCommandsStayInOrderOverASessionsEnd() {
    let harness = ClusterHarness(nodes: 2)
    harness.own(0, [0...1], epoch: 1)
    harness.own(1, [2...3], epoch: 1)
    harness.open()
    harness.down = [0, 1]
    harness.cut(0)
    harness.cut(1)
    harness.command(1, to: 0)
    harness.flush()
    harness.own(1, [], epoch: 1)
    harness.nodes[1].expiresOldSessions = true
    harness.down = [0]
    harness.advance(.milliseconds(300))
    harness.nodes[1].expiresOldSessions = false
    harness.advance(.milliseconds(300))
    harness.command(2, to: 0)
    harness.flush()
    harness.own(1, [0...3], epoch: 2)
    harness.pump()
    #expect(harness.received(1) == ["1", "2"])
    #expect(harness.recorder.replies == [1, 2] && harness.recorder.failures.isEmpty)
    #expect(harness.commands.lost == [])
  }

  @Test func movedRequestsFailAtTheirDeadline() {
    let harness = ClusterHarness.open(nodes: 2) { $0.requestDeadline = .seconds(1) }
    harness.nodes.forEach { $0.holdsReplies = true }
    harness.command(1, to: 0)
    harness.flush()
    harness.advance(.milliseconds(600))
    harness.own(1, [1...1], epoch: 2)
    harness.pump()
    harness.command(2, to: 1)
    harness.flush()
    harness.own(1, [0...1], epoch: 2)
    harness.pump()
    harness.advance(.milliseconds(600))
    #expect(harness.recorder.failures == [1: .outcomeUnknown])
    harness.advance(.milliseconds(600))
    #expect(harness.recorder.failures == [1: .outcomeUnknown, 2: .outcomeUnknown])
  }

  // MARK: - Random histories

  /// Owners change, with and without notice, connections are cut, replies are held back: no command is lost or applied
  /// twice, and each is answered.
  @Test(arguments: TestRun.seeds(40, long: 2_000))
  func commandsApplyOnceOverChangingOwners(_ seed: UInt64) {
    let harness = ClusterHarness(nodes: 3) { $0.requestDeadline = .seconds(600) }
    var generator = SplitMix64(printing: seed, of: "commands over changing owners")
    var owners = [0, 0, 1, 2]
    var epochs: [UInt64] = [1, 1, 1, 1]
    func tell(_ node: Int, isAnnounced: Bool) {
      harness.nodes[node].own(
        (0..<4).filter { owners[$0] == node }.map { .init(first: UInt16($0), count: 1, epoch: epochs[$0]) },
        isAnnounced: isAnnounced
      )
    }
    for node in 0..<3 { tell(node, isAnnounced: true) }
    harness.open()
    var sent: UInt64 = 0
    for _ in 0..<600 {
      let node = generator.below(3)
      switch generator.below(20) {
      case 0..<9:
        sent += 1
        harness.command(sent, to: UInt16(generator.below(4)))
      case 9..<13: harness.client.flush()
      case 13..<16: harness.pump()
      case 16: harness.nodes[node].holdsReplies = true
      case 17: harness.release(node)
      case 18:
        // The former owner does not know yet, or its requests come too late.
        let shard = generator.below(4)
        let former = owners[shard]
        owners[shard] = node
        epochs[shard] += 1
        if former != node { tell(former, isAnnounced: generator.oneIn(4)) }
        tell(node, isAnnounced: true)
      default:
        harness.cut(node)
        harness.advance(.milliseconds(Int64(generator.below(200))))
      }
    }
    for node in 0..<3 { harness.release(node) }
    harness.flush()
    harness.advance(.seconds(2))
    for node in 0..<3 { harness.release(node) }
    #expect(harness.commands.lost == [], "seed \(seed)")
    #expect(harness.recorder.replies.sorted() == Array(stride(from: 1, through: sent, by: 1)), "seed \(seed)")
    let applied = harness.commands.applied.values.flatMap { $0.values }.map { tag(of: $0.rest) }
    #expect(applied.sorted() == Array(stride(from: 1, through: sent, by: 1)), "seed \(seed)")
  }
}

/// The map of owners alone.
@Suite struct ShardRoutesTests {
  /// Routes of four shards, by events.
  private final class Player {
    private var routes = ShardRoutes(shardCount: 4)

    var owners: [Int?] { (0..<4).map { routes.owner(of: ShardID($0)) } }
    var unownedCount: Int { routes.unownedCount }

    /// Receive a node's map of ranges (first, count, epoch); return whether an owner has changed.
    func receive(_ node: Int, _ ranges: (UInt16, UInt16, UInt64)...) -> Bool {
      routes.receive(ShardMap(owned: ranges.map { .init(first: $0.0, count: $0.1, epoch: $0.2) }, node: 1), of: node)
    }

    func remove(_ node: Int) -> Bool { routes.remove(node) }
    func refused(_ shard: UInt16, by node: Int) -> Bool { routes.refused(ShardID(shard), by: node) }
    func owner(of shard: UInt16) -> Int? { routes.owner(of: ShardID(shard)) }
  }

  @Test func mapsOfNodesAreMerged() {
    let routes = Player()
    #expect(routes.unownedCount == 4)
    #expect(routes.receive(0, (0, 2, 1)))
    #expect(routes.receive(1, (2, 2, 7)))
    #expect(routes.owners == [0, 0, 1, 1])
    #expect(!routes.receive(1, (2, 2, 7)), "the same map again")
    #expect(routes.receive(2, (1, 1, 2)))
    #expect(routes.owners == [0, 2, 1, 1])
    #expect(!routes.receive(0, (0, 2, 1)), "the older claim of shard 1")
    #expect(routes.receive(1))
    #expect(routes.owners == [0, 2, nil, nil])
    #expect(routes.unownedCount == 2)
  }

  @Test func refusalRemovesTheOwnerUntilItsNextMap() {
    let routes = Player()
    #expect(routes.receive(1, (0, 4, 3)))
    #expect(!routes.refused(2, by: 0), "of a node that is not the owner")
    #expect(routes.refused(2, by: 1))
    #expect(!routes.refused(2, by: 1))
    #expect(routes.owners == [1, 1, nil, 1])
    #expect(routes.receive(1, (0, 4, 3)))
    #expect(routes.owners == [1, 1, 1, 1])
  }

  @Test func removedNodeOwnsNothing() {
    let routes = Player()
    #expect(routes.receive(0, (0, 1, 1)))
    #expect(routes.receive(1, (1, 2, 3)))
    #expect(routes.remove(1) && !routes.remove(1))
    #expect(routes.owners == [0, nil, nil, nil])
    #expect(!routes.receive(2, (1, 1, 2)), "older than the claim of the removed node")
    #expect(routes.receive(2, (1, 2, 3)), "the same claim behind another address")
    #expect(routes.owners == [0, 2, 2, nil])
  }

  @Test func shardsThatDoNotExistAreIgnored() {
    let routes = Player()
    #expect(!routes.receive(0, (4, 100, 9)))
    #expect(!routes.refused(4, by: 0))
    #expect(routes.receive(0, (0, 4, 1)))
    #expect(routes.owner(of: 400) == 0)
  }
}
