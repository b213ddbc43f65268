import DequeModule
import NIOCore
import NIOEmbedded
import StoreEngine
import TestSupport

/// A connection from a gateway to a process of a node. Bytes arrive late and in their order, in pieces, or not at all
/// once an end has closed it.
final class SimulatedSocket {
  let node: NodeID
  private let channel: EmbeddedChannel
  private let end: SimulatedConnection
  private let process: SimulatedProcess
  private unowned let all: SimulatedGateways
  private unowned let simulation: ClusterSimulation
  private let toNode: SimulatedQueue
  private let fromNode: SimulatedQueue
  /// Whether the gateway's end is closed, and the node's process knows.
  private(set) var isClosed = false

  init(
    _ channel: EmbeddedChannel,
    to node: NodeID,
    _ process: SimulatedProcess,
    _ all: SimulatedGateways,
    _ simulation: ClusterSimulation
  ) {
    self.node = node
    self.channel = channel
    self.process = process
    self.all = all
    self.simulation = simulation
    toNode = SimulatedQueue(simulation) { process.node.run($0) }
    fromNode = SimulatedQueue(simulation) { all.turn($0) }
    end = SimulatedConnection(process)
    end.write = { [weak self] bytes in self?.arrive(bytes) }
    end.ended = { [weak self] in self?.endLater() }
    process.connections.append(end)
  }

  /// Let nothing arrive before these times.
  func delay(toNode: Int64, fromNode: Int64) {
    self.toNode.delay(until: toNode)
    self.fromNode.delay(until: fromNode)
  }

  /// Delay of one message.
  private func delay() -> Int64 {
    simulation.random.percent(1) ? simulation.random.milliseconds(5...300) : simulation.random.milliseconds(0...5)
  }

  // MARK: To the node

  /// Send what the client has written since the last call, and its closing.
  func send() {
    while var bytes = (try? channel.readOutbound(as: ByteBuffer.self)) ?? nil {
      if simulation.random.oneIn(8), bytes.readableBytes > 1 {
        deliver(bytes.readSlice(length: 1 + simulation.random.below(bytes.readableBytes - 1))!)
      }
      deliver(bytes)
    }
    guard !channel.isActive, !isClosed else { return }
    isClosed = true
    toNode.add(after: delay()) { [end] in end.close() }
  }

  private func deliver(_ bytes: ByteBuffer) {
    toNode.add(after: delay()) { [self] in
      if !process.isClosed { return end.receive(bytes) }
      // A machine that has restarted knows nothing of the connection.
      if process.node.process != nil { reset() }
    }
  }

  // MARK: From the node

  private func arrive(_ bytes: ByteBuffer) {
    fromNode.add(after: delay()) { [channel] in
      guard channel.isActive else { return }
      channel.pipeline.fireChannelRead(bytes)
      channel.pipeline.fireChannelReadComplete()
    }
  }

  /// The process has closed the connection or has ended. The gateway may not learn that its machine is gone.
  private func endLater() {
    if process.isClosed, simulation.random.oneIn(4) { return }
    fromNode.add(after: delay()) { [self] in closeChannel() }
  }

  /// Each end learns of it by itself, and what is under way is lost.
  func reset() {
    simulation.time.schedule(after: simulation.random.milliseconds(0...50)) { [self] in all.turn { closeChannel() } }
    simulation.time.schedule(after: simulation.random.milliseconds(0...50)) { [self] in
      process.node.run { [end] in end.close() }
    }
  }

  private func closeChannel() {
    if channel.isActive { channel.close(promise: nil) }
  }
}

/// Calls that are made later, in their order.
final class SimulatedQueue {
  private unowned let simulation: ClusterSimulation
  /// Makes a call, or keeps it: then calls need not come in their order.
  private let perform: (@escaping () -> Void) -> Void
  /// When the last call is made.
  private var lastAt: Int64 = 0
  private var calls: Deque<() -> Void> = []

  init(_ simulation: ClusterSimulation, perform: @escaping (@escaping () -> Void) -> Void) {
    self.simulation = simulation
    self.perform = perform
  }

  func delay(until time: Int64) { lastAt = max(lastAt, time) }

  func add(after delay: Int64, _ call: @escaping () -> Void) {
    lastAt = max(lastAt, simulation.time.nanoseconds + delay)
    simulation.time.schedule(at: lastAt) { [self] in
      calls.append(call)
      perform { [self] in
        if let call = calls.popFirst() { call() }
      }
    }
  }
}
