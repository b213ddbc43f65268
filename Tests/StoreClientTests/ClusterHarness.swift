import NIOCore
import NIOEmbedded
import ReceiptModel
import ReceiptWire

@testable import StoreClient

/// A client and the fake nodes of a cluster on one embedded event loop, without sockets or threads. Time advances only
/// on request.
final class ClusterHarness {
  static let shardCount = 4

  let loop = EmbeddedEventLoop()
  let recorder = Recorder()
  let nodes: [EchoStore]
  let commands = AppliedCommands()
  private(set) var client: StoreClient<Recorder>!
  /// The newest connection to each node.
  private var connections: [Int: (channel: EmbeddedChannel, connection: FakeConnection)] = [:]
  /// Nodes that refuse connections.
  var down: Set<Int> = []

  struct Refused: Error {}

  init(nodes count: Int, _ configure: (inout StoreClientConfiguration) -> Void = { _ in }) {
    nodes = (0..<count).map { _ in EchoStore() }
    for node in nodes {
      node.commands = commands
      node.shardCount = UInt32(Self.shardCount)
      node.own([])
    }
    var configuration = StoreClientConfiguration.forTests(stores: count)
    for (index, node) in nodes.enumerated() {
      node.peers = (1...count).filter { $0 != index + 1 }.map { ShardMap.Peer(host: "store", port: UInt16($0)) }
    }
    configure(&configuration)
    client = StoreClient(eventLoop: loop, configuration: configuration, delegate: recorder) {
      [unowned self] node, address in
      let index = address.port - 1
      if down.contains(index) { return loop.makeFailedFuture(Refused()) }
      let channel = EmbeddedChannel(handler: StoreConnectionHandler(node: node), loop: loop)
      connections[index] = (channel, nodes[index].open())
      return channel.connect(to: try! SocketAddress(ipAddress: "127.0.0.1", port: 1)).map { channel }
    }
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
    connections[node]?.connection.sendEvents(of: shard)
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
      for (index, pair) in connections.sorted(by: { $0.key < $1.key }) where pair.channel.isActive {
        while let sent = try? pair.channel.readOutbound(as: ByteBuffer.self) {
          pair.connection.receive(sent)
          isBusy = true
        }
        if pair.connection.output.readableBytes > 0 {
          let bytes = pair.connection.output.readSlice(length: pair.connection.output.readableBytes)!
          pair.channel.pipeline.fireChannelRead(bytes)
          pair.channel.pipeline.fireChannelReadComplete()
          isBusy = true
        }
        if pair.connection.isClosed {
          cut(index)
          isBusy = true
        }
      }
    }
  }

  /// Cut the connection to a node, with all data in flight.
  func cut(_ node: Int) {
    guard let pair = connections.removeValue(forKey: node) else { return }
    pair.connection.close()
    if pair.channel.isActive { pair.channel.close(promise: nil) }
    loop.run()
  }

  func advance(_ time: TimeAmount) {
    // In small steps: frames sent at one time are delivered before time advances.
    for _ in 0..<(time.nanoseconds / 10_000_000) {
      loop.advanceTime(by: .milliseconds(10))
      pump()
    }
  }

  /// Queue a command for a shard. Its fields are the token.
  func command(_ token: UInt64, to shard: UInt16) { send(.markRead, token, to: shard) }

  func query(_ token: UInt64, to shard: UInt16) { send(.getChannel, token, to: shard) }

  private func send(_ kind: FrameKind, _ token: UInt64, to shard: UInt16) {
    let name = Array("shard \(shard)".utf8)
    let isQueued = client.send(kind, to: .shard(ShardID(shard), name: name.span.bytes), token: token) {
      $0.writeInteger(token)
    }
    precondition(isQueued)
  }

  /// The tokens of the requests that a node has received, in order, with `!` for a resend.
  func received(_ node: Int) -> [String] {
    nodes[node].requests.map { "\(token(of: $0.rest))" + ($0.isResend ? "!" : "") }
  }

  func flush() {
    client.flush()
    pump()
  }

  /// Answer what a node has held back, oldest first, and hold nothing back from now on.
  func release(_ node: Int) {
    nodes[node].holdsReplies = false
    let waiting = nodes[node].waiting
    nodes[node].waiting = []
    guard let connection = connections[node]?.connection else { return }
    for request in waiting where request.connection == connection.number { connection.reply(request) }
    pump()
  }
}
