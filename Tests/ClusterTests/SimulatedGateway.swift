import Logging
import NIOCore
import NIOEmbedded
import ReceiptModel
import ReceiptWire
import StoreEngine
import TestSupport

@testable import StoreClient

/// The outcome of a request through a gateway.
enum GatewayOutcome {
  /// The reply's fields.
  case answered([UInt8])
  /// Nothing was applied.
  case unavailable
  /// A command may have been applied.
  case unknown
}

/// The gateways of a simulation: clients of the store on one event loop, whose time is the simulation's. Nodes have
/// their number as port.
final class SimulatedGateways {
  private unowned let simulation: ClusterSimulation
  private let loop = EmbeddedEventLoop()
  private(set) var gateways: [SimulatedGateway] = []

  init(count: Int, registers: StoreRegisters, simulation: ClusterSimulation) {
    self.simulation = simulation
    for _ in 0..<count { gateways.append(SimulatedGateway(registers, loop, self, simulation)) }
  }

  /// Connect, and let timers fire.
  func start() {
    for gateway in gateways { turn { gateway.start() } }
    tick()
  }

  private func tick() {
    simulation.time.schedule(after: .milliseconds(1)) { [self] in
      turn {}
      tick()
    }
  }

  /// Call `body` on the event loop, and send what it has written.
  func turn(_ body: () -> Void) {
    loop.advanceTime(to: .uptimeNanoseconds(UInt64(simulation.time.nanoseconds)))
    body()
    loop.run()
    for gateway in gateways { gateway.send() }
  }
}

/// A gateway's client of the store, with its connections.
final class SimulatedGateway: StoreClientDelegate {
  private let registers: StoreRegisters
  private unowned let all: SimulatedGateways
  private unowned let simulation: ClusterSimulation
  private var client: StoreClient<SimulatedGateway>!
  private var sockets: [SimulatedSocket] = []
  private var requests: [UInt64: (GatewayOutcome) -> Void] = [:]
  private var requestCount: UInt64 = 0
  /// Bytes to and from a node arrive no sooner than then.
  private var cutUntil: [NodeID: (toNode: Int64, fromNode: Int64)] = [:]

  private struct Refused: Error {}

  init(
    _ registers: StoreRegisters,
    _ loop: EmbeddedEventLoop,
    _ all: SimulatedGateways,
    _ simulation: ClusterSimulation
  ) {
    self.registers = registers
    self.all = all
    self.simulation = simulation
    var logger = Logger(label: "gateway")
    logger.logLevel = .critical
    let configuration = StoreClientConfiguration(
      addresses: simulation.nodes.map { StoreClientConfiguration.Address(host: "node", port: Int($0.id.rawValue)) },
      logger: logger
    )
    client = StoreClient(eventLoop: loop, configuration: configuration, delegate: self) {
      [unowned self] node, address in
      connect(node, NodeID(UInt16(address.port)), loop)
    } randomNumber: { [unowned simulation] in
      simulation.random.next()
    }
  }

  func start() { client.start() }

  // MARK: Requests

  func submit(_ write: Write, _ group: GroupID, done: @escaping (GatewayOutcome) -> Void) {
    let fields = { [registers] (payload: inout ByteBuffer) in registers.writeFields(write, into: &payload) }
    request(.setMember, group, Int(write.register), fields, done: done)
  }

  func read(_ register: Int, _ group: GroupID, done: @escaping (Write?) -> Void) {
    request(.listRoster, group, register) { [registers] in
      registers.writeQueryFields(into: &$0)
    } done: { [simulation, registers] outcome in
      guard case .answered(let payload) = outcome else { return }
      do throws(WireError) {
        done(try registers.write(inReply: payload.span.bytes, register: register))
      } catch {
        simulation.oracle.failed(group, "a reply does not parse: \(error)")
      }
    }
  }

  private func request(
    _ kind: FrameKind,
    _ group: GroupID,
    _ register: Int,
    _ fields: (inout ByteBuffer) -> Void,
    done: @escaping (GatewayOutcome) -> Void
  ) {
    all.turn {
      requestCount += 1
      requests[requestCount] = done
      let cid = Array(registers.cid(group, register).utf8)
      if !client.send(kind, to: .channel(cid.span.bytes), tag: requestCount, fields) {
        requests.removeValue(forKey: requestCount)?(.unavailable)
      }
      client.flush()
    }
  }

  // MARK: StoreClientDelegate

  func storeReplied(_ tag: UInt64, kind: FrameKind, payload: RawSpan) {
    requests.removeValue(forKey: tag)?(.answered(payload.withUnsafeBytes { Array($0) }))
  }

  func storeFailed(_ tag: UInt64, _ failure: StoreFailure) {
    switch failure {
    case .outcomeUnknown, .refused(.outcomeUnknown, _, _): requests.removeValue(forKey: tag)?(.unknown)
    case .busy, .unavailable, .refused: requests.removeValue(forKey: tag)?(.unavailable)
    }
  }

  func storeReadComplete() {}
  func storeReadinessChanged(_ isReady: Bool) {}

  // MARK: Connections

  /// Connect to a node's process. Without one the attempt is refused, or times out.
  private func connect(
    _ node: StoreNode<SimulatedGateway>,
    _ id: NodeID,
    _ loop: EmbeddedEventLoop
  ) -> EventLoopFuture<any Channel> {
    let promise = loop.makePromise(of: (any Channel).self)
    let start = simulation.time.nanoseconds
    let timeout = start + .milliseconds(2_000)
    var arrival = start + simulation.random.milliseconds(0...5)
    if simulation.nodes[Int(id.rawValue) - 1].process == nil, simulation.random.oneIn(4) { arrival = timeout }
    if let cut = cutUntil[id] { arrival = max(arrival, cut.toNode, cut.fromNode) }
    simulation.time.schedule(at: min(arrival, timeout)) { [self] in
      all.turn {
        guard arrival < timeout, let process = simulation.nodes[Int(id.rawValue) - 1].process else {
          return promise.fail(Refused())
        }
        let channel = EmbeddedChannel(handler: StoreConnectionHandler(node: node), loop: loop)
        let socket = SimulatedSocket(channel, to: id, process, all, simulation)
        if let cut = cutUntil[id] { socket.delay(toNode: cut.toNode, fromNode: cut.fromNode) }
        sockets.append(socket)
        channel.connect(to: try! SocketAddress(ipAddress: "127.0.0.1", port: 1)).map { channel }.cascade(to: promise)
      }
    }
    return promise.futureResult
  }

  /// Send what the client has written.
  func send() {
    for socket in sockets { socket.send() }
    sockets.removeAll { $0.isClosed }
  }

  /// Cut one or both directions to a node until then: what is under way arrives afterwards.
  func cut(_ node: NodeID, toNode: Int64, fromNode: Int64) {
    cutUntil[node] = (toNode, fromNode)
    for socket in sockets where socket.node == node { socket.delay(toNode: toNode, fromNode: fromNode) }
  }

  /// Reset the connections to a node. Each end learns of it by itself.
  func reset(_ node: NodeID) {
    for socket in sockets where socket.node == node { socket.reset() }
  }

  /// End all cuts. What is under way arrives when it would have.
  func heal() { cutUntil = [:] }
}
