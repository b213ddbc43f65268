import Logging
import NIOCore
import NIOEmbedded
import NIOPosix
import Operations
import ReceiptModel
import ReceiptWire
import StoreEngine
import Synchronization
import Testing

@testable import StoreServer

/// The store's hosts on embedded event loops, without sockets or threads. Connections are on the first loop. The loops
/// run only on request, so a test decides what happens between two turns.
final class ServerHarness {
  let storage = FailingStorage()
  let loops: [EmbeddedEventLoop]
  private(set) var hosts: [LoopHost] = []
  let serving = ServingState()
  let registry = ConnectionRegistry()
  let counters = ConnectionCounters()
  let gate: ConnectionGate
  let directory: DataDirectoryMonitor
  private let logger: Logger
  private let clock: StoreClock
  private let terms: ServerHandshake.Terms
  private let epochs: [OwnerEpoch?]?
  private let failures = Failures()
  private var connections: [EmbeddedGateway] = []

  /// Failed commits and syncs that the hosts have reported.
  private final class Failures: Sendable {
    let halts = Mutex<[StorageError]>([])
  }

  /// Shared by all harnesses, and stopped at once: no test uses their threads, because none makes a backup or a
  /// snapshot.
  private static let backups = {
    let server = BackupServer(
      store: SessionID(high: 9, low: 9),
      clock: StoreClock(limits: .init(), logger: logger),
      logger: logger
    )
    Task { await server.stop() }
    return server
  }()
  private static let snapshots = {
    let server = SnapshotServer(logger: logger)
    Task { await server.stop() }
    return server
  }()

  private static var logger: Logger {
    var logger = Logger(label: "test")
    logger.logLevel = .critical
    return logger
  }

  /// - Parameters:
  ///   - loops: number of event loops. One owns both shards; of two, each owns the shard of its number.
  ///   - window: maximum number of unanswered requests of a connection.
  ///   - owned: in a cluster, the hosts whose groups the node owns at first, in epoch 1; nil: no cluster.
  init(loops count: Int = 1, secrets: [String] = [], window: UInt32 = 64, owned: Set<Int>? = nil) throws {
    epochs = owned.map { owned in (0..<count).map { owned.contains($0) ? OwnerEpoch(1) : nil } }
    loops = (0..<count).map { _ in EmbeddedEventLoop() }
    logger = Self.logger
    clock = StoreClock(limits: .init(), logger: logger)
    directory = DataDirectoryMonitor(source: storage, logger: logger)
    gate = ConnectionGate(limits: .init(total: 64, perAddress: 64, unauthenticated: 64), logger: logger)
    var terms = ServerHandshake.Terms(
      secrets: secrets.map { Array($0.utf8) },
      window: window,
      frameLengthMax: FrameHeader.lengthLimitDefault,
      shardCount: storage.shardCount,
      store: storage.store,
      sessionLifetimeMilliseconds: 60_000
    )
    terms.isNode = owned != nil
    self.terms = terms
    try start()
  }

  /// Make hosts from the storage, as after a restart.
  func start() throws {
    hosts = try loops.indices.map { try makeHost(at: $0) }
    for host in hosts {
      host.connect(hosts, hostOfShard: hostOfShard)
      host.readClock()
    }
    serving.replace(ServingState.Serving(hosts: hosts, hostOfShard: hostOfShard, epochs: epochs, node: NodeID(1)))
  }

  private var hostOfShard: [UInt8] { loops.count == 1 ? [0, 0] : [0, 1] }

  private func makeHost(at position: Int) throws -> LoopHost {
    let owned = hostOfShard.indices.filter { Int(hostOfShard[$0]) == position }
    return try LoopHost(
      eventLoop: loops[position],
      storage: storage,
      // Pools that were not started run their work at once, on the caller's thread.
      committer: NIOThreadPool(numberOfThreads: 1),
      readers: NIOThreadPool(numberOfThreads: 1),
      ledgerWriter: NIOThreadPool(numberOfThreads: 1),
      configuration: StoreLoopConfiguration(),
      totalShardCount: storage.shardCount,
      stored: owned.map { shard in
        let id = ShardID(UInt16(shard))
        return (shard: id, state: try storage.recover(id))
      },
      erasures: nil,
      clock: clock,
      directory: directory,
      events: LoopHost.HostEvents(
        halted: { [failures] error in failures.halts.withLock { $0.append(error) } },
        errorReported: { _ in }
      )
    )
  }

  /// Closes the connections and cancels scheduled tasks: NIO traps if a loop with tasks is freed.
  deinit {
    for connection in connections { connection.close() }
    for host in hosts { _ = host.stop() }
    run()
    for loop in loops { try? loop.syncShutdownGracefully() }
  }

  var halts: [StorageError] { failures.halts.withLock { $0 } }

  /// Requests that a host has received so far.
  func requests(at host: Int) -> UInt64 { hosts[host].loop.counters.requests }

  /// Become the owner of a host's group, and tell the connections.
  func promote(_ host: Int, epoch: UInt64) -> Int? {
    let owned = serving.promote(hosts[host], OwnerEpoch(epoch))
    tellConnections()
    return owned
  }

  /// Name other nodes in the maps, and tell the connections if that is a change.
  func name(_ peers: [ShardMap.Peer]) {
    if serving.setPeers(peers) { tellConnections() }
  }

  /// Lose a host's group: its loop stops, and another host takes its place.
  func lose(_ host: Int) throws {
    _ = hosts[host].stop()
    #expect(serving.demote(hosts[host]))
    tellConnections()
    run()
    let made = try makeHost(at: host)
    #expect(
      serving.exchange(hosts[host], with: made) { hosts, hostOfShard in
        for host in hosts { host.connect(hosts, hostOfShard: hostOfShard) }
      }
    )
    made.readClock()
    hosts[host] = made
  }

  private func tellConnections() {
    for channel in registry.channels { channel.pipeline.fireUserInboundEventTriggered(ServingChanged()) }
  }

  /// Run the loops in turn, often enough for a request to reach the other loop, commit, and be answered.
  func run() {
    for _ in 0..<4 {
      for loop in loops { loop.run() }
    }
  }

  /// The hosts' ticks, which a server runs every 100 ms.
  func tick() {
    for host in hosts {
      host.readClock()
      host.loop.tick()
    }
  }

  /// Connect a gateway, without a handshake.
  func connect(session: UInt64 = 1) throws -> EmbeddedGateway {
    let handler = FrameServerHandler(
      servingState: serving,
      terms: terms,
      registry: registry,
      gate: gate,
      counters: counters,
      backups: Self.backups,
      snapshots: Self.snapshots,
      isTLS: false,
      tlsFailures: nil,
      logger: logger
    )
    let gateway = try EmbeddedGateway(handler, on: loops[0], session: session) { _ = gate.admit($0) }
    connections.append(gateway)
    return gateway
  }

  /// Connect a gateway and perform the handshake.
  func open(session: UInt64 = 1, secret: String? = nil) throws -> EmbeddedGateway {
    let gateway = try connect(session: session)
    gateway.open(secret: secret)
    _ = gateway.take()
    return gateway
  }

  /// Runs the loops, and returns the names of everything that closed connections left behind. Empty for nothing.
  var remains: [String] {
    run()
    let open = connections.count { !$0.isClosed }
    var remains: [String] = []
    if registry.count != open { remains.append("\(registry.count) registered") }
    if counters.current.now != open { remains.append("\(counters.current.now) counted") }
    if gate.openCount != open { remains.append("\(gate.openCount) at the gate") }
    if connections.contains(where: { $0.isClosed && $0.hasHandler }) { remains.append("a handler") }
    if hosts.contains(where: { $0.loop.isBusy }) { remains.append("work of a loop") }
    return remains
  }
}

/// A gateway whose connection is an embedded channel.
final class EmbeddedGateway {
  let channel: EmbeddedChannel
  var frames: GatewayFrames
  private weak var handler: FrameServerHandler?
  private let failingWrites = FailingWrites()
  private var words: [String] = []

  fileprivate init(
    _ handler: FrameServerHandler,
    on loop: EmbeddedEventLoop,
    session: UInt64,
    admit: (any Channel) -> Void
  ) throws {
    frames = GatewayFrames(session: session)
    self.handler = handler
    channel = EmbeddedChannel(handlers: [failingWrites, handler], loop: loop)
    admit(channel)
    channel.connect(to: try SocketAddress(ipAddress: "127.0.0.1", port: 1), promise: nil)
  }

  var isClosed: Bool { !channel.isActive }

  /// Whether anything refers to the connection's handler.
  var hasHandler: Bool { handler != nil }

  /// Bytes that the connection's handler has allocated for a partial frame.
  var partialFrameCapacity: Int { handler?.cut.capacity ?? 0 }

  /// Perform the handshake.
  func open(secret: String? = nil) {
    send(frames.hello())
    collect()
    send(frames.proof(secret))
  }

  /// Deliver frames as one read, and end it.
  func send(_ parts: ByteBuffer...) {
    read(ByteBuffer(joining: parts))
    endRead()
  }

  /// Deliver frames one byte at a time, each as a read of its own.
  func sendBytewise(_ bytes: ByteBuffer) {
    for byte in bytes.readableBytesView { send(ByteBuffer(bytes: [byte])) }
  }

  /// Deliver bytes without ending the read.
  func read(_ bytes: ByteBuffer) { channel.pipeline.fireChannelRead(bytes) }

  func endRead() { channel.pipeline.fireChannelReadComplete() }

  func close() {
    if channel.isActive { channel.close(promise: nil) }
  }

  /// Make the next write fail: it closes the connection before it returns, like a socket whose peer is gone.
  ///
  /// - Parameter lastBytes: bytes that the socket still delivers before it closes.
  func failNextWrite(lastBytes: ByteBuffer? = nil) { failingWrites.next = .some(lastBytes) }

  /// Writes of the handler since the last call, and how many of them have a promise.
  func takeWrites() -> (count: Int, promises: Int) {
    defer { failingWrites.writes = (0, 0) }
    return failingWrites.writes
  }

  /// Received frames since the last call, as text.
  func take() -> [String] {
    collect()
    defer { words = [] }
    return words
  }

  private func collect() {
    while let bytes = try? channel.readOutbound(as: ByteBuffer.self) {
      words += frames.words(receiving: bytes)
    }
  }
}

/// Counts writes, and fails one on request; see ``EmbeddedGateway/failNextWrite(lastBytes:)``.
private final class FailingWrites: ChannelOutboundHandler {
  typealias OutboundIn = ByteBuffer
  typealias OutboundOut = ByteBuffer

  /// Set if the next write fails; contains the bytes that are read before the close.
  var next: ByteBuffer??
  /// Writes that did not fail.
  var writes = (count: 0, promises: 0)

  func write(context: ChannelHandlerContext, data: NIOAny, promise: EventLoopPromise<Void>?) {
    guard let lastBytes = next else {
      writes.count += 1
      writes.promises += promise == nil ? 0 : 1
      return context.write(data, promise: promise)
    }
    next = nil
    if let lastBytes {
      context.fireChannelRead(NIOAny(lastBytes))
      context.fireChannelReadComplete()
    }
    promise?.fail(ChannelError.ioOnClosedChannel)
    context.close(promise: nil)
  }
}
