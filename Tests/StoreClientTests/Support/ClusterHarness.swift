import NIOCore
import NIOEmbedded
import ReceiptModel
import ReceiptWire

@testable import StoreClient

/// A client and the fake nodes of a cluster on one embedded event loop, without sockets or threads. Time advances only
/// on request.
///
/// The address of each node is a port, at first its position from 1. Node numbers are positions from 1 too.
final class ClusterHarness {
  static let shardCount = 4

  let loop = EmbeddedEventLoop()
  let recorder = Recorder()
  let nodes: [EchoStore]
  let commands = AppliedCommands()
  private(set) var client: StoreClient<Recorder>!
  private struct Link {
    var node: Int
    var port: Int
    var fake: FakeLink
  }

  /// Links in the order of their attempts.
  private var links: [Link] = []
  /// Nodes that refuse connections.
  var down: Set<Int> = []
  /// Ports that lead to another node than that of their number, and ports that lead to none.
  var leads: [Int: Int] = [:]
  var deadPorts: Set<Int> = []
  /// The ports of all attempts to connect.
  private(set) var attempts: [Int] = []

  struct Refused: Error {}

  init(nodes count: Int, _ configure: (inout StoreClientConfiguration) -> Void = { _ in }) {
    nodes = (0..<count).map { _ in EchoStore() }
    for (index, node) in nodes.enumerated() {
      node.number = UInt16(index + 1)
      node.commands = commands
      node.shardCount = UInt32(Self.shardCount)
      node.own([])
    }
    var configuration = StoreClientConfiguration.forTests(stores: count)
    announce(Dictionary(uniqueKeysWithValues: nodes.indices.map { ($0, $0 + 1) }))
    configure(&configuration)
    client = StoreClient(eventLoop: loop, configuration: configuration, delegate: recorder) {
      [unowned self] node, address in
      attempts.append(address.port)
      let index = leads[address.port] ?? address.port - 1
      guard nodes.indices.contains(index), !down.contains(index), !deadPorts.contains(address.port) else {
        return loop.makeFailedFuture(Refused())
      }
      let link = FakeLink(node, to: nodes[index], on: loop)
      links.append(Link(node: index, port: address.port, fake: link))
      return link.connect()
    }
  }

  /// Let all nodes name the others that are among these, at these ports.
  func announce(_ ports: [Int: Int]) {
    let all = ports.sorted { $0.key < $1.key }.map {
      ShardMap.Peer(node: UInt16($0.key + 1), host: "store", port: UInt16($0.value))
    }
    for node in nodes { node.name(all.filter { $0.node != node.number }) }
  }

  /// The ports at which the client is connected, by node.
  var connected: [Int: [Int]] {
    Dictionary(grouping: links.filter { $0.fake.channel.isActive && $0.fake.connection.session != nil }, by: \.node)
      .mapValues { $0.map(\.port) }
  }

  /// Make a client that is connected to nodes, of which the first owns all shards in epoch 1.
  static func open(
    nodes count: Int,
    _ configure: (inout StoreClientConfiguration) -> Void = { _ in }
  ) -> ClusterHarness {
    let harness = ClusterHarness(nodes: count, configure)
    harness.own(0, [0...UInt16(shardCount - 1)], epoch: 1)
    harness.open()
    return harness
  }

  /// Send events of a shard from a node.
  func events(_ node: Int, of shard: UInt16) {
    for link in links where link.node == node && link.fake.channel.isActive {
      link.fake.connection.sendEvents(of: shard)
    }
    pump()
  }

  /// Give shards to a node, in an epoch.
  func own(_ node: Int, _ shards: [ClosedRange<UInt16>], epoch: UInt64, isAnnounced: Bool = true) {
    nodes[node].own(
      shards.map { .init(first: $0.lowerBound, count: UInt16($0.count), epoch: epoch) },
      isAnnounced: isAnnounced
    )
  }

  /// Start the client and connect to all nodes.
  func open() {
    client.start()
    pump()
  }

  /// Deliver bytes in both directions until none are left.
  func pump() {
    var isBusy = true
    while isBusy {
      loop.run()
      isBusy = false
      for link in links.sorted(by: { $0.node < $1.node }).map(\.fake) where link.channel.isActive {
        while let sent = link.takeSent() {
          link.connection.receive(sent)
          isBusy = true
        }
        if let received = link.takeReceived() {
          link.deliver(received)
          isBusy = true
        }
        if link.connection.isClosed {
          link.cut()
          loop.run()
          isBusy = true
        }
      }
      links.removeAll { !$0.fake.channel.isActive }
    }
  }

  /// Cut the connections to a node, with all data in flight.
  func cut(_ node: Int) {
    let cut = links.filter { $0.node == node }
    links.removeAll { $0.node == node }
    for link in cut { link.fake.cut() }
    loop.run()
  }

  func advance(_ time: TimeAmount) {
    // In small steps: frames sent at one time are delivered before time advances.
    for _ in 0..<(time.nanoseconds / 10_000_000) {
      loop.advanceTime(by: .milliseconds(10))
      pump()
    }
  }

  /// Queue a command for a shard. Its fields are the tag.
  func command(_ tag: UInt64, to shard: UInt16) { send(.markRead, tag, to: shard) }

  func query(_ tag: UInt64, to shard: UInt16) { send(.getChannel, tag, to: shard) }

  private func send(_ kind: FrameKind, _ tag: UInt64, to shard: UInt16) {
    let name = Array("shard \(shard)".utf8)
    let isQueued = client.send(kind, to: .shard(ShardID(shard), name: name.span.bytes), tag: tag) {
      $0.writeInteger(tag)
    }
    precondition(isQueued)
  }

  /// The tags of the requests that a node has received, in order, with `!` for a resend.
  func received(_ node: Int) -> [String] {
    nodes[node].requests.map { "\(tag(of: $0.rest))" + ($0.isResend ? "!" : "") }
  }

  func flush() {
    client.flush()
    pump()
  }

  /// Send a node's held replies, oldest first, and hold no further ones.
  func release(_ node: Int) {
    nodes[node].holdsReplies = false
    let waiting = nodes[node].waiting
    nodes[node].waiting = []
    for connection in nodes[node].openConnections {
      for request in waiting where request.connection == connection.number { connection.reply(request) }
    }
    pump()
  }
}
