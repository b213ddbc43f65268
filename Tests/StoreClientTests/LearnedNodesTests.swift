import NIOCore
import ReceiptModel
import ReceiptWire
import TestSupport
import Testing

@testable import StoreClient

/// The addresses of nodes: those that are configured, those that nodes name, and several of one node
/// (Proto/frames.md, "Shards of a cluster").
@Suite struct LearnedNodesTests {
  private typealias Address = StoreClientConfiguration.Address

  /// Make a harness whose client is given these ports. Each node owns the shard of its position.
  private func harness(
    nodes count: Int,
    ports: [Int],
    _ configure: (inout StoreClientConfiguration) -> Void = { _ in }
  ) -> ClusterHarness {
    let harness = ClusterHarness(nodes: count) {
      $0.addresses = ports.map { Address(host: "store", port: $0) }
      configure(&$0)
    }
    for node in 0..<count { harness.own(node, [UInt16(node)...UInt16(node)], epoch: 1) }
    return harness
  }

  /// Send a command to each shard, with tags from `first`.
  private func commands(_ harness: ClusterHarness, from first: UInt64) {
    for shard in 0..<UInt16(ClusterHarness.shardCount) { harness.command(first + UInt64(shard), to: shard) }
    harness.flush()
  }

  @Test(arguments: [[1], [2], [1, 3], [4, 1, 2], [1, 2, 3, 4]])
  func anyAddressesLeadToAllNodes(_ ports: [Int]) {
    let harness = harness(nodes: 4, ports: ports)
    harness.open()
    #expect(harness.client.isReady)
    commands(harness, from: 1)
    #expect(harness.recorder.replies.sorted() == [1, 2, 3, 4])
    #expect(harness.nodes.map(\.hellos.count) == [1, 1, 1, 1])
    #expect(Set(harness.nodes.map { $0.hellos[0].session }).count == 1)
  }

  @Test func clientStartsWhileTheFirstConfiguredNodeIsDown() {
    let harness = harness(nodes: 4, ports: [1, 2])
    harness.down = [0]
    harness.open()
    harness.advance(.milliseconds(100))
    #expect(harness.client.unservedShards.map(\.rawValue) == [0])
    harness.down = []
    harness.advance(.milliseconds(200))
    #expect(harness.client.isReady)
    #expect(harness.nodes.map(\.hellos.count) == [1, 1, 1, 1])
  }

  @Test func clientLearnsTheNodesWhileAConfiguredOneDoesNotAnswer() {
    let harness = harness(nodes: 3, ports: [1, 2]) { $0.connectTimeout = .seconds(30) }
    harness.nodes[1].hasNoMap = true
    harness.open()
    #expect(harness.nodes[2].hellos.count == 0)
    harness.advance(.seconds(1) + .milliseconds(200))
    #expect(harness.nodes.map(\.hellos.count) == [1, 1, 1])
  }

  @Test func lossOfTheNodeThatNamedTheOthersChangesNothing() {
    let harness = harness(nodes: 3, ports: [1])
    harness.open()
    harness.down = [0]
    harness.cut(0)
    harness.own(2, [0...0, 2...3], epoch: 2)
    harness.pump()
    #expect(harness.client.isReady)
    harness.cut(1)
    harness.cut(2)
    harness.advance(.milliseconds(200))
    commands(harness, from: 1)
    #expect(harness.recorder.replies.sorted() == [1, 2, 3, 4])
  }

  /// A node's client has a configured address of each other node, which name that node.
  @Test func ownNodeIsNotConnectedTo() {
    let harness = harness(nodes: 3, ports: [2]) { $0.ownNode = 1 }
    harness.open()
    harness.advance(.seconds(2))
    #expect(harness.nodes.map(\.hellos.count) == [0, 1, 1])
  }

  @Test func requestsWaitForNoMoreNodesThanTheClientCanTellApart() {
    let harness = harness(nodes: 1, ports: [1])
    harness.announce(Dictionary(uniqueKeysWithValues: (0..<256).map { ($0, $0 + 1) }))
    harness.deadPorts = Set(2...256)
    harness.open()
    #expect(Set(harness.attempts).count == 1 + 254)
  }

  // MARK: - Changes

  @Test func addedNodeIsUsed() {
    let harness = harness(nodes: 4, ports: [1])
    harness.announce([0: 1, 1: 2, 2: 3])
    harness.open()
    #expect(harness.client.unservedShards.map(\.rawValue) == [3])
    harness.command(1, to: 3)
    harness.flush()
    harness.announce([0: 1, 1: 2, 2: 3, 3: 4])
    harness.pump()
    #expect(harness.client.isReady)
    #expect(harness.recorder.replies == [1])
  }

  /// A write that the map of a node causes may find that the node is gone.
  @Test func nodeThatNamesAnotherOneMayBeLostWhileItsMapIsTaken() {
    let harness = harness(nodes: 3, ports: [1, 2])
    harness.announce([0: 1, 1: 2])
    harness.open()
    harness.recorder.onEvent = { event in
      guard case .shards(reopened: [2]) = event else { return }
      harness.recorder.onEvent = nil
      harness.down = [0]
      harness.cut(0)
    }
    harness.own(0, [0...0, 2...2], epoch: 2, isAnnounced: false)
    harness.nodes[0].name([2, 3].map { ShardMap.Peer(node: $0, host: "store", port: $0) })
    harness.pump()
    #expect(harness.recorder.onEvent == nil)
    harness.nodes[1].name([ShardMap.Peer(node: 3, host: "store", port: 3)])
    harness.own(2, [2...2], epoch: 3)
    harness.pump()
    #expect(harness.client.unservedShards.map(\.rawValue) == [0, 3])
  }

  @Test func movedNodeIsReachedAtItsNewAddressAfterTheLoss() {
    let harness = harness(nodes: 3, ports: [1])
    harness.leads = [12: 1]
    harness.open()
    harness.announce([0: 1, 1: 12, 2: 3])
    harness.pump()
    #expect(harness.connected[1] == [2], "a working connection stays")
    harness.deadPorts = [2]
    harness.command(1, to: 1)
    harness.client.flush()
    harness.cut(1)
    harness.advance(.milliseconds(30))
    #expect(harness.connected[1] == [12])
    #expect(harness.recorder.replies == [1])
    #expect(harness.attempts == [1, 2, 3, 12], "the former address is not tried")
  }

  @Test func movedNodeThatIsAwayIsFoundAtItsNewAddress() {
    let harness = harness(nodes: 3, ports: [1, 2])
    harness.leads = [12: 1]
    harness.open()
    harness.deadPorts = [2]
    harness.cut(1)
    harness.advance(.milliseconds(300))
    #expect(harness.connected[1] == nil)
    harness.announce([0: 1, 1: 12, 2: 3])
    harness.advance(.milliseconds(300))
    #expect(harness.connected[1] == [12])
  }

  /// Gateways may be unable to reach the address that a node announces.
  @Test func configuredAddressOfANamedNodeStaysInUse() {
    let harness = harness(nodes: 2, ports: [11, 12])
    harness.deadPorts = [1, 2]
    harness.leads = [11: 0, 12: 1]
    harness.open()
    harness.down = [1]
    harness.cut(1)
    harness.advance(.seconds(1))
    harness.down = []
    harness.advance(.milliseconds(600))
    #expect(harness.connected == [0: [11], 1: [12]])
  }

  @Test func removedNodeIsLeftUntilItIsNamedAgain() {
    let harness = harness(nodes: 3, ports: [1])
    harness.open()
    harness.announce([0: 1, 1: 2])
    harness.pump()
    #expect(harness.connected[2] == [3], "a working connection stays")
    harness.nodes[2].holdsReplies = true
    harness.command(1, to: 2)
    harness.flush()
    harness.cut(2)
    harness.nodes[2].holdsReplies = false
    harness.advance(.seconds(1))
    #expect(harness.nodes[2].hellos.count == 1)
    #expect(!harness.client.isReady)
    // Its requests wait for the next owner.
    harness.own(1, [1...2], epoch: 2)
    harness.pump()
    #expect(harness.received(1) == ["1!"])
    harness.announce([0: 1, 1: 2, 2: 3])
    harness.pump()
    #expect(harness.connected[2] == [3])
    #expect(harness.client.stats.connections == 4)
  }

  @Test func configuredNodeThatIsRemovedIsTriedOn() {
    let harness = harness(nodes: 3, ports: [1, 3])
    harness.open()
    harness.down = [2]
    harness.announce([0: 1, 1: 2])
    harness.cut(2)
    harness.advance(.seconds(1))
    harness.down = []
    harness.advance(.milliseconds(200))
    #expect(harness.connected[2] == [3])
  }

  /// After the loss of all connections the nodes that were learned are tried too: the configured one may be gone.
  @Test func learnedNodesAreTriedWhileNoneIsConnected() {
    let harness = harness(nodes: 3, ports: [1])
    harness.open()
    harness.down = [0, 1, 2]
    for node in 0..<3 { harness.cut(node) }
    harness.advance(.seconds(1))
    harness.down = [0]
    harness.advance(.milliseconds(200))
    #expect(harness.connected == [1: [2], 2: [3]])
  }

  /// No node is connected that could name the new addresses.
  @Test func nodesThatHaveAllMovedAreFoundAtTheirListedAddresses() {
    let harness = harness(nodes: 2, ports: [1])
    harness.leads = [11: 0, 12: 1]
    harness.open()
    harness.deadPorts = [1, 2]
    for node in 0..<2 { harness.cut(node) }
    harness.announce([0: 11, 1: 12])
    harness.advance(.seconds(1))
    #expect(harness.connected == [:])
    harness.client.listNodes([1, 2].map { ShardMap.Peer(node: $0, host: "store", port: 10 + $0) })
    harness.advance(.seconds(1))
    #expect(harness.connected == [0: [11], 1: [12]])
  }

  @Test func clientThatWasNeverConnectedUsesTheListedAddresses() {
    let harness = harness(nodes: 2, ports: [1])
    harness.leads = [11: 0, 12: 1]
    harness.deadPorts = [1, 2]
    harness.open()
    harness.client.listNodes([1, 2].map { ShardMap.Peer(node: $0, host: "store", port: 10 + $0) })
    harness.advance(.seconds(2))
    #expect(harness.connected == [0: [11], 1: [12]])
  }

  /// A list does not make a client give up the nodes that others name.
  @Test func shorterListChangesNothingWhileNodesNameOneAnother() {
    let harness = harness(nodes: 3, ports: [1])
    harness.open()
    harness.client.listNodes([ShardMap.Peer(node: 1, host: "store", port: 1)])
    harness.advance(.seconds(1))
    #expect(harness.connected == [0: [1], 1: [2], 2: [3]])
  }

  // MARK: - Several addresses of one node

  /// The configured addresses are other names of nodes that are announced under their own addresses.
  @Test func configuredAliasesAreTheNamedNodes() {
    let harness = harness(nodes: 3, ports: [11, 12])
    harness.leads = [11: 0, 12: 1]
    harness.open()
    harness.advance(.seconds(2))
    #expect(harness.connected == [0: [11], 1: [12], 2: [3]])
    #expect(harness.nodes.map(\.hellos.count) == [1, 1, 1])
  }

  /// Two configured addresses lead to the same node.
  @Test func oneConnectionToANodeRemains() {
    let harness = harness(nodes: 2, ports: [1, 11])
    harness.leads = [11: 0]
    for tag in 1...4 { harness.command(UInt64(tag), to: 0) }
    harness.open()
    harness.advance(.seconds(2))
    #expect(harness.connected.mapValues(\.count) == [0: 1, 1: 1])
    #expect(harness.nodes[0].hellos.count <= 3)
    #expect(harness.recorder.replies.sorted() == [1, 2, 3, 4])
    #expect(harness.commands.lost == [])
    // Either address leads there from now on.
    let port = harness.connected[0]![0]
    harness.deadPorts = [port]
    harness.cut(0)
    harness.advance(.milliseconds(300))
    #expect(harness.connected[0] == [12 - port])
  }

  /// The alias answers when the node is connected already, by the address under which others name it.
  @Test func aliasThatComesUpLaterReplacesTheConnection() {
    let harness = harness(nodes: 2, ports: [2, 11])
    harness.deadPorts = [11]
    harness.open()
    #expect(harness.connected == [0: [1], 1: [2]])
    harness.nodes[0].holdsReplies = true
    for tag in 1...3 { harness.command(UInt64(tag), to: 0) }
    harness.flush()
    harness.deadPorts = []
    harness.leads = [11: 0]
    harness.nodes[0].holdsReplies = false
    harness.advance(.milliseconds(300))
    #expect(harness.connected == [0: [11], 1: [2]])
    #expect(harness.recorder.replies == [1, 2, 3])
    #expect(harness.nodes[0].requests.filter(\.isResend).count == 3)
    #expect(harness.commands.lost == [])
    harness.advance(.seconds(2))
    #expect(harness.nodes[0].hellos.count == 2)
  }

  /// A node announces an address that leads to another one.
  @Test func wrongAnnouncementEndsNoConnectionAgainAndAgain() {
    let harness = harness(nodes: 3, ports: [1])
    harness.announce([0: 1, 1: 12, 2: 3])
    harness.leads = [12: 2]
    harness.open()
    harness.advance(.seconds(2))
    let hellos = harness.nodes.map(\.hellos.count)
    harness.advance(.seconds(2))
    #expect(harness.nodes.map(\.hellos.count) == hellos)
    #expect(harness.connected.mapValues(\.count) == [0: 1, 2: 1])
    harness.announce([0: 1, 1: 2, 2: 3])
    harness.advance(.milliseconds(200))
    #expect(harness.client.unservedShards.map(\.rawValue) == [3])
  }

  /// Two nodes announce addresses that lead to a third one: each connection to it ends the one before.
  @Test func wrongAnnouncementsDoNotAlternate() {
    let harness = harness(nodes: 3, ports: [1])
    harness.announce([0: 1, 1: 12, 2: 13])
    harness.leads = [12: 0, 13: 0]
    for tag in 1...3 { harness.command(UInt64(tag), to: 0) }
    harness.open()
    harness.advance(.seconds(2))
    let attempts = harness.attempts.count
    #expect(attempts < 10)
    harness.cut(0)
    harness.advance(.seconds(2))
    #expect(harness.attempts.count < 2 * attempts + 3)
    #expect(harness.connected.mapValues(\.count) == [0: 1])
    #expect(harness.recorder.replies == [1, 2, 3])
    #expect(harness.commands.lost == [])
  }

  /// A configured address leads to another node than before, while the former one is connected elsewhere.
  @Test func configuredAddressFollowsTheNodeThatHasIt() {
    let harness = harness(nodes: 2, ports: [1])
    harness.announce([0: 11, 1: 2])
    harness.leads = [11: 0]
    harness.open()
    harness.deadPorts = [1]
    harness.cut(0)
    harness.advance(.milliseconds(200))
    #expect(harness.connected == [0: [11], 1: [2]])
    harness.deadPorts = [2]
    harness.leads[1] = 1
    harness.announce([0: 11, 1: 1])
    harness.cut(1)
    harness.advance(.milliseconds(200))
    #expect(harness.connected == [0: [11], 1: [1]])
    #expect(harness.nodes.map(\.hellos.count) == [2, 2])
  }

  /// The cluster behind the addresses is another one, which counts its nodes in another order.
  @Test func nodesOfAnotherClusterAreNumberedAnew() {
    let harness = harness(nodes: 3, ports: [1, 2, 3])
    harness.open()
    for (index, node) in harness.nodes.enumerated() {
      node.identity = SessionID(high: 7, low: 7)
      node.number = UInt16(3 - index)
    }
    harness.announce([0: 3, 1: 2, 2: 1])
    for node in 0..<3 { harness.cut(node) }
    harness.advance(.seconds(2))
    #expect(harness.connected == [0: [1], 1: [2], 2: [3]])
  }

  // MARK: - Random histories

  /// Nodes join, leave and move, and addresses lead to other nodes than before: no command is lost or applied twice,
  /// each is answered, and in the end there is one connection to each node.
  @Test(arguments: TestRun.seeds(40, long: 2_000))
  func commandsApplyOnceOverChangingAddresses(_ seed: UInt64) {
    var generator = SplitMix64(printing: seed, of: "commands over changing addresses")
    let count = 4
    let ports = [[1, 11], [11, 12, 13], [1], [2, 12]][generator.below(4)]
    let harness = harness(nodes: count, ports: ports) { $0.requestDeadline = .seconds(600) }
    var owners = [0, 1, 2, 3]
    var epochs: [UInt64] = [1, 1, 1, 1]
    var announced = [0: 1, 1: 2, 2: 3, 3: 4]
    for alias in 11...13 { harness.leads[alias] = generator.below(count) }
    harness.open()
    var sent: UInt64 = 0
    for _ in 0..<600 {
      let node = generator.below(count)
      switch generator.below(24) {
      case 0..<9:
        sent += 1
        harness.command(sent, to: UInt16(generator.below(ClusterHarness.shardCount)))
      case 9..<12: harness.client.flush()
      case 12..<15: harness.pump()
      case 15: harness.nodes[node].holdsReplies = true
      case 16: harness.release(node)
      case 17:
        let shard = generator.below(ClusterHarness.shardCount)
        let former = owners[shard]
        owners[shard] = node
        epochs[shard] += 1
        for changed in [former, node] {
          harness.nodes[changed].own(
            (0..<4).filter { owners[$0] == changed }.map { .init(first: UInt16($0), count: 1, epoch: epochs[$0]) },
            isAnnounced: changed == node || generator.oneIn(4)
          )
        }
      case 18: harness.leads[11 + generator.below(3)] = node
      case 19:
        // The node moves. Its former address leads nowhere, or to another node.
        let former = announced[node] ?? node + 1
        harness.leads[former] = generator.below(count)
        if generator.oneIn(2) { harness.deadPorts.insert(former) }
        let port = 21 + generator.below(8)
        harness.leads[port] = node
        harness.deadPorts.remove(port)
        announced = announced.filter { $0.value != port }
        announced[node] = port
        harness.announce(announced)
      case 20:
        if announced[node] != nil { announced[node] = nil } else { announced[node] = node + 1 }
        harness.announce(announced)
      case 21: if !harness.down.insert(node).inserted { harness.down = [] }
      default:
        harness.cut(node)
        harness.advance(.milliseconds(Int64(generator.below(200))))
      }
    }
    harness.down = []
    harness.deadPorts = []
    harness.leads = [:]
    for alias in 11...13 { harness.leads[alias] = alias - 11 }
    harness.announce([0: 1, 1: 2, 2: 3, 3: 4])
    // A connection over an address that leads to another node now is kept until it ends.
    for node in 0..<count { harness.cut(node) }
    for node in 0..<count { harness.release(node) }
    harness.flush()
    harness.advance(.seconds(3))
    for node in 0..<count { harness.release(node) }
    #expect(harness.client.isReady, "seed \(seed)")
    #expect(harness.commands.lost == [], "seed \(seed)")
    #expect(harness.recorder.replies.sorted() == Array(stride(from: 1, through: sent, by: 1)), "seed \(seed)")
    let applied = harness.commands.applied.values.flatMap { $0.values }.map { tag(of: $0.rest) }
    #expect(applied.sorted() == Array(stride(from: 1, through: sent, by: 1)), "seed \(seed)")
    #expect(harness.connected.mapValues(\.count) == [0: 1, 1: 1, 2: 1, 3: 1], "seed \(seed)")
    let attempts = harness.attempts.count
    harness.advance(.seconds(2))
    #expect(harness.attempts.count == attempts, "seed \(seed)")
  }
}
