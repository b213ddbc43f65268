import NIOCore
import ReceiptModel
import ReceiptWire
import StoreEngine
import StoreTestSupport
import TestSupport

/// A process's end of a gateway's connection, as a node has it (Proto/frames.md, "Shards of a cluster"): the handshake,
/// the maps of its shards, and a lane in each group that it owns. Groups are on event loops of their own, so bytes
/// between them and the connection take a moment.
final class SimulatedConnection {
  private struct Route {
    let loop: StoreLoop
    let lane: ReplyLane
    let group: StoreGroup
  }

  private unowned let process: SimulatedProcess
  private var simulation: ClusterSimulation { process.simulation }
  /// Sends bytes to the gateway.
  var write: (ByteBuffer) -> Void = { _ in }
  /// Tells the gateway that this end is closed.
  var ended: () -> Void = {}
  private var input = ByteBuffer()
  /// Of the hello.
  private var session: SessionID?
  private var isOpen = false
  private var isClosed = false
  private var routes: [GroupID: Route] = [:]
  /// Groups that this node has lost, until the gateway confirms it.
  private var withheld: Set<GroupID> = []
  private var lastPing: UInt64 = 0
  private let toLoops: SimulatedQueue
  private let fromLoops: SimulatedQueue

  init(_ process: SimulatedProcess) {
    self.process = process
    let perform: (@escaping () -> Void) -> Void = { body in
      process.node.run {
        if !process.isClosed { body() }
      }
    }
    toLoops = SimulatedQueue(process.simulation, perform: perform)
    fromLoops = SimulatedQueue(process.simulation, perform: perform)
  }

  // MARK: Frames

  func receive(_ bytes: ByteBuffer) {
    guard !isClosed, !process.isClosed else { return }
    input.writeImmutableBuffer(bytes)
    do throws(WireError) {
      while !isClosed, case .frame(let header, let count) = try FrameDecoder().next(input.readableBytesSpan, at: 0) {
        input.moveReaderIndex(forwardBy: FrameHeader.byteCount)
        try receive(header, input.readSlice(length: count)!)
      }
      input.discardReadBytes()
    } catch {
      simulation.oracle.failed(GroupID(0), "a gateway's frame does not parse: \(error)")
    }
  }

  private func receive(_ header: FrameHeader, _ payload: ByteBuffer) throws(WireError) {
    var output = ByteBuffer()
    switch header.kind {
    case .hello:
      session = try Hello(payload.readableBytesSpan).session
      Challenge(
        nonce: Nonce(Array(repeating: 1, count: Nonce.byteCount)),
        proof: [],
        window: 1_000,
        shardCount: UInt32(simulation.groupCount * StoreRegisters.shardsPerGroup),
        store: SessionID(high: 1, low: 2)
      ).write(into: &output)
      write(output)
    case .proof: open()
    case .ping:
      output.writeFrame(FrameHeader(.pong, correlation: header.correlation)) { $0.writeImmutableBuffer(payload) }
      write(output)
    case .pong:
      guard payload.getInteger(at: payload.readerIndex, as: UInt64.self) == lastPing, !withheld.isEmpty else { return }
      withheld = []
      servedGroupsChanged()
    default: request(header, payload)
    }
  }

  private func open() {
    guard let session else { return }
    // A session's new connection ends its older one.
    for other in process.connections where other !== self && other.session == session && other.isOpen {
      var refusal = ByteBuffer()
      refusal.writeError(.superseded)
      other.write(refusal)
      other.close()
    }
    isOpen = true
    openRoutes()
    var output = ByteBuffer()
    Ready(isResumed: false, sessionLifetimeMilliseconds: 600_000, shards: []).write(into: &output)
    map().write(into: &output)
    write(output)
  }

  private func request(_ header: FrameHeader, _ payload: ByteBuffer) {
    let id = simulation.group(of: header.shard)
    if let route = routes[id] {
      return toLoop { route.group.receive(header, payload, on: route.loop, route.lane) }
    }
    if withheld.contains(id) { return }
    var refusal = ByteBuffer()
    refusal.writeError(.notOwner, shard: header.shard, correlation: header.correlation)
    write(refusal)
  }

  func close() {
    guard !isClosed else { return }
    isClosed = true
    for route in routes.values { toLoop { route.loop.close(route.lane) } }
    routes = [:]
    process.connections.removeAll { $0 === self }
    ended()
  }

  // MARK: Served groups

  /// The process serves other groups than before.
  func servedGroupsChanged() {
    guard isOpen, !isClosed else { return }
    var isLoss = false
    for (id, route) in routes.sorted(by: { $0.key.rawValue < $1.key.rawValue })
    where process.served[id]?.loop !== route.loop {
      isLoss = true
      routes[id] = nil
      if !simulation.settings.defects.contains(.takesRequestsBeforePong) { withheld.insert(id) }
      toLoop { route.loop.close(route.lane) }
    }
    openRoutes()
    var output = ByteBuffer()
    map().write(into: &output)
    if isLoss {
      lastPing += 1
      output.writeFrame(FrameHeader(.ping)) { $0.writeInteger(lastPing) }
    }
    write(output)
  }

  private func openRoutes() {
    guard let session else { return }
    for (id, served) in process.served.sorted(by: { $0.key.rawValue < $1.key.rawValue })
    where routes[id] == nil && !withheld.contains(id) {
      simulation.connections += 1
      var this: ReplyLane?
      let lane = ReplyLane(
        session: session,
        serial: simulation.connections,
        shards: StoreRegisters.shardsPerGroup,
        deliver: { [weak self] bytes, _ in
          guard let self else { return }
          fromLoop { [self] in
            // Replies about shards that were lost are dropped.
            if let lane = routes[id]?.lane, lane === this { write(bytes) }
          }
        },
        end: { [simulation] error in simulation.oracle.failed(id, "a connection ends: \(error)") }
      )
      this = lane
      routes[id] = Route(loop: served.loop, lane: lane, group: served.group)
      toLoop { served.loop.open(lane) }
    }
  }

  private func map() -> ShardMap {
    let owned = process.served.filter { !withheld.contains($0.key) }.sorted { $0.key.rawValue < $1.key.rawValue }
    let peers = simulation.nodes.map(\.id).filter { $0 != process.node.id }
    return ShardMap(
      owned: owned.map { id, served in
        ShardMap.OwnedRange(
          first: UInt16(id.rawValue) * UInt16(StoreRegisters.shardsPerGroup),
          count: UInt16(StoreRegisters.shardsPerGroup),
          epoch: served.epoch.rawValue
        )
      },
      node: process.node.id.rawValue,
      peers: peers.map { ShardMap.Peer(node: $0.rawValue, host: "node", port: $0.rawValue) }
    )
  }

  // MARK: Event loops

  /// Call `body` on the groups' loops, after earlier calls.
  private func toLoop(_ body: @escaping () -> Void) { toLoops.add(after: delay(), body) }

  /// Call `body` on the connection's loop, after earlier calls.
  func fromLoop(_ body: @escaping () -> Void) {
    fromLoops.add(after: delay()) { [self] in
      if !isClosed { body() }
    }
  }

  private func delay() -> Int64 { simulation.random.milliseconds(0...1) }
}
