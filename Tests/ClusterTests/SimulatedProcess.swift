import StoreEngine
import TestSupport

/// A store process: its groups, one probe, and one writer that sends what several groups append in one transaction.
final class SimulatedProcess {
  /// A group that a node owns.
  struct ServedGroup {
    let epoch: OwnerEpoch
    let group: StoreGroup
    let loop: StoreLoop
  }

  unowned let node: SimulatedNode
  unowned let simulation: ClusterSimulation
  let link: SimulatedLink
  let writer: GroupWriter
  private(set) var groups: [any SimulatedGroup] = []
  /// Gateways' connections.
  var connections: [SimulatedConnection] = []
  /// The groups that this node owns, with the loop that has each.
  private(set) var served: [GroupID: ServedGroup] = [:]
  private var probe: LogProbe
  /// Time for which the timer is set. Later timers find nothing to do.
  private var timer = BootTime.never
  private(set) var isClosed = false
  private var stopsSoon = false
  private var refusesCommands = false

  init(node: SimulatedNode, simulation: ClusterSimulation) {
    self.node = node
    self.simulation = simulation
    link = SimulatedLink(node: node.id, simulation: simulation)
    writer = GroupWriter(log: link)
    probe = LogProbe(limits: node.limits, now: node.clock)
    for index in 0..<simulation.groupCount {
      groups.append(node.storage[index].makeGroup(GroupID(UInt8(index)), self))
    }
  }

  func start() {
    timerFired()
    sync()
  }

  func close() {
    isClosed = true
    link.close()
    for connection in connections { connection.ended() }
    connections = []
  }

  /// Serve a group from now on, or no longer, and tell the connections.
  func serve(_ id: GroupID, _ group: ServedGroup?) {
    served[id] = group
    for connection in connections { connection.fromLoop { connection.servedGroupsChanged() } }
  }

  /// Calls the process later, unless it has crashed by then.
  func after(_ delay: Int64, _ body: @escaping () -> Void) {
    simulation.time.schedule(after: delay) { [self] in
      guard !isClosed else { return }
      node.run { [self] in
        if !isClosed { body() }
      }
    }
  }

  /// Hand all groups over, as before a planned stop.
  func handOver() {
    stopsSoon = true
    for group in groups { group.handle(.handOverRequested) }
  }

  /// Refuse commands, as a node whose clock has jumped, or take them again.
  func setRefusal(_ refuses: Bool) {
    refusesCommands = refuses
    for group in groups { group.handle(.refusalChanged(refuses)) }
  }

  // MARK: Time

  func timerFired() {
    perform(probe.timerFired(at: node.clock))
    for group in groups { group.handle(.timerFired) }
    setTimer()
  }

  /// Sets the timer to the earliest deadline.
  func setTimer() {
    let deadline = groups.reduce(probe.deadline) { min($0, $1.deadline) }
    guard deadline < timer else { return }
    timer = deadline
    after(max(0, node.simulatedTime(of: deadline) - simulation.time.nanoseconds)) { [self] in
      guard timer == deadline else { return }
      timer = .never
      timerFired()
    }
  }

  private func perform(_ actions: [LogProbe.Action]) {
    for action in actions {
      switch action {
      case .restartSilence:
        for group in groups { group.handle(.logUnresponsive) }
      case .probe(let number):
        link.ends(of: groups.map(\.id)) { [self] ends in
          guard !isClosed else { return }
          if let ends {
            perform(probe.answered(number, at: node.clock))
            for (group, end) in zip(groups, ends) { group.handle(.probeAnswered(end)) }
          } else {
            perform(probe.failed(number, at: node.clock))
          }
          setTimer()
        }
      }
    }
  }

  // MARK: Storage

  /// Syncs the storage each second and reports how far.
  private func sync() {
    for group in groups {
      let index = Int(group.id.rawValue)
      node.storage[index].sync()
      report(group, node.storage[index].synced)
    }
    after(simulation.random.milliseconds(800...1_200)) { [self] in sync() }
    guard simulation.settings.defects.contains(.reportsUnsynced) else { return }
    after(.milliseconds(500)) { [self] in
      for group in groups { report(group, node.storage[Int(group.id.rawValue)].position) }
    }
  }

  /// Report a group's synced position between two syncs.
  func report(_ group: any SimulatedGroup) { report(group, node.storage[Int(group.id.rawValue)].synced) }

  /// What an owner has that is not a member does not count.
  private func report(_ group: any SimulatedGroup, _ position: RecordPosition) {
    guard group.reportsProgress else { return }
    let position = group.isMember == true ? position : .zero
    let canOwn = !stopsSoon && !refusesCommands && group.supportsLevel
    let report =
      group.joiningAt.map { MemberReport(position: $0, .joining) }
      ?? MemberReport(position: position, canOwn ? .following : .ineligible)
    link.report(group.id, by: node.id, group.completed(report)) { [self] reports in
      guard !isClosed, let reports else { return }
      group.reported(reports)
    }
  }
}
