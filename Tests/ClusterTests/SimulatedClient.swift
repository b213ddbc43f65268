import StoreEngine
import TestSupport

/// A client with one write at a time. It repeats a write until some node acknowledges it. With gateways it sends it to
/// one of them, and again if nothing was applied.
final class SimulatedClient {
  let id: UInt16
  let group: GroupID
  private unowned let simulation: ClusterSimulation
  private(set) var issued = 0
  private var outstanding: Write?
  /// The node that acknowledged last.
  private var target: Int
  private var attempt = 0
  /// The first attempt of the outstanding write.
  private var first = 0

  init(id: UInt16, group: GroupID, simulation: ClusterSimulation) {
    self.id = id
    self.group = group
    self.simulation = simulation
    target = simulation.random.below(simulation.nodes.count)
  }

  var isIdle: Bool { outstanding == nil }

  func issue() {
    simulation.time.schedule(after: simulation.random.milliseconds(simulation.settings.clientPauses)) { [self] in
      guard simulation.clientsIssue else { return }
      issued += 1
      outstanding = Write(
        client: id,
        counter: UInt32(issued),
        register: UInt8(simulation.random.below(Write.registerCount))
      )
      first = attempt + 1
      send()
    }
  }

  private func send() {
    guard let write = outstanding else { return }
    if let gateways = simulation.gateways?.gateways { return send(write, gateways[Int(id) % gateways.count]) }
    attempt += 1
    let sent = attempt
    let node = simulation.nodes[target]
    if let process = node.process {
      node.run { [self] in
        guard !process.isClosed else { return tryNext(sent, after: .milliseconds(20)) }
        process.groups[Int(group.rawValue)].submit(write, isResent: attempt > first) { [self] isApplied in
          if isApplied { acknowledged(write, sent) } else { tryNext(sent, after: .milliseconds(20)) }
        }
      }
      tryNext(sent, after: .milliseconds(1_000))
    } else {
      tryNext(sent, after: .milliseconds(20))
    }
  }

  private func send(_ write: Write, _ gateway: SimulatedGateway) {
    gateway.submit(write, group) { [self] outcome in
      switch outcome {
      case .answered:
        simulation.oracle.acknowledged(group, write)
        next()
      case .unavailable:
        simulation.tally.unavailable += 1
        simulation.time.schedule(after: .milliseconds(20)) { [self] in send() }
      case .unknown:
        simulation.tally.unknown += 1
        next()
      }
    }
  }

  private func next() {
    outstanding = nil
    issue()
  }

  private func tryNext(_ sent: Int, after delay: Int64) {
    simulation.time.schedule(after: delay) { [self] in
      guard sent == attempt, outstanding != nil else { return }
      target = (target + 1) % simulation.nodes.count
      send()
    }
  }

  /// Every acknowledgement counts for the oracle, also one that the client no longer waits for.
  private func acknowledged(_ write: Write, _ sent: Int) {
    simulation.oracle.acknowledged(group, write)
    guard write == outstanding else { return }
    attempt += 1
    next()
  }
}
