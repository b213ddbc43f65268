import StoreEngine
import StoreTestSupport
import TestSupport

/// One node's connections to the shared log. Requests and answers are delayed, lost, doubled and reordered.
final class SimulatedLink: GroupLog {
  /// Until when each direction is cut.
  struct Cuts {
    var requestsUntil: Int64 = 0
    var answersUntil: Int64 = 0
    var watchesUntil: Int64 = 0
  }

  /// A watch of one group. Its records arrive in order; it may end, or go dead without a word.
  private final class Watch {
    var next: RecordPosition
    var lastArrival: Int64 = 0
    let receive: (FollowEvent) -> Void

    init(next: RecordPosition, receive: @escaping (FollowEvent) -> Void) {
      self.next = next
      self.receive = receive
    }
  }

  private let node: NodeID
  private unowned let simulation: ClusterSimulation
  private var watches: [Watch?]
  /// False after the node's process has ended: its requests in flight still arrive, its answers do not.
  private var isOpen = true

  init(node: NodeID, simulation: ClusterSimulation) {
    self.node = node
    self.simulation = simulation
    watches = Array(repeating: nil, count: simulation.log.groups.count)
  }

  func close() {
    isOpen = false
    watches = Array(repeating: nil, count: watches.count)
  }

  // MARK: GroupLog

  func append(_ appends: [GroupAppend], done: @escaping ([AppendOutcome]) -> Void) {
    request(failed: appends.map { _ in .unclear }, done) { simulation in simulation.log.append(appends) }
  }

  func claim(_ claim: GroupClaim, done: @escaping (AppendOutcome) -> Void) {
    simulation.tally.claims += 1
    request(failed: .unclear, done) { [node] simulation in simulation.log.claim(claim, by: node) }
  }

  func ends(of groups: [GroupID], done: @escaping ([GroupEnd]?) -> Void) {
    request(failed: nil, done) { simulation in simulation.log.ends(of: groups) }
  }

  func read(
    _ group: GroupID,
    from position: RecordPosition,
    max: Int,
    done: @escaping (ReadOutcome) -> Void
  ) {
    request(failed: .failed, done) { [node] simulation in
      let outcome = simulation.log.read(group, from: position, max: max)
      guard case .records(let records, let reachesEnd) = outcome else { return outcome }
      return .records(simulation.decoded(records, by: node), reachesEnd: reachesEnd)
    }
  }

  func unfollow(_ group: GroupID) { watches[Int(group.rawValue)] = nil }

  func report(
    _ group: GroupID,
    by node: NodeID,
    _ report: MemberReport,
    done: @escaping ([NodeID: MemberReport]?) -> Void
  ) {
    request(failed: nil, done) { simulation in simulation.log.report(group, by: node, report) }
  }

  func trim(_ trim: GroupTrim) {
    simulation.tally.trims += 1
    request(failed: (), { _ in }, { simulation in simulation.log.trim(trim) })
  }

  func follow(_ group: GroupID, from position: RecordPosition, receive: @escaping (FollowEvent) -> Void) {
    let watch = Watch(next: position, receive: receive)
    watches[Int(group.rawValue)] = watch
    pump(group)
  }

  // MARK: Network

  /// Sends a request, which may be lost or arrive several times, and each answer, which may be lost.
  private func request<Answer>(
    failed: Answer,
    _ done: @escaping (Answer) -> Void,
    _ perform: @escaping (ClusterSimulation) -> Answer
  ) {
    guard !loses(until: simulation.cuts(of: node).requestsUntil) else { return }
    let copies = simulation.random.percent(simulation.messageFaults.doubledPercent) ? 2 : 1
    for _ in 0..<copies {
      simulation.time.schedule(after: simulation.delay()) { [self] in arrived(failed: failed, done, perform) }
    }
  }

  private func arrived<Answer>(
    failed: Answer,
    _ done: @escaping (Answer) -> Void,
    _ perform: @escaping (ClusterSimulation) -> Answer
  ) {
    if simulation.electedUntil > simulation.time.nanoseconds {
      switch simulation.random.below(3) {
      case 0:
        simulation.time.schedule(at: simulation.electedUntil + simulation.delay()) { [self] in
          arrived(failed: failed, done, perform)
        }
      case 1: answer(failed, done)
      default: break
      }
      return
    }
    answer(perform(simulation), done)
  }

  private func answer<Answer>(_ answer: Answer, _ done: @escaping (Answer) -> Void) {
    guard !loses(until: simulation.cuts(of: node).answersUntil) else { return }
    simulation.time.schedule(after: simulation.delay()) { [self] in
      if isOpen { simulation.deliver(to: node) { done(answer) } }
    }
  }

  private func loses(until cut: Int64) -> Bool {
    cut > simulation.time.nanoseconds || simulation.random.percent(simulation.messageFaults.lossPercent)
  }

  /// Send the records that the group's watch does not have yet. Called after each record.
  func pump(_ group: GroupID) {
    guard let watch = watches[Int(group.rawValue)] else { return }
    if simulation.cuts(of: node).watchesUntil > simulation.time.nanoseconds {
      watches[Int(group.rawValue)] = nil
      // The node learns of it late or never.
      guard simulation.random.oneIn(2) else { return }
      simulation.time.schedule(at: simulation.cuts(of: node).watchesUntil) { [self] in
        if isOpen { simulation.deliver(to: node) { watch.receive(.ended) } }
      }
      return
    }
    switch simulation.log.read(group, from: watch.next, max: .max) {
    case .records(let records, reachesEnd: _):
      guard !records.isEmpty else { return }
      watch.next = records[records.count - 1].position.next
      send(.records(simulation.decoded(records, by: node)), watch)
    case .trimmed:
      watches[Int(group.rawValue)] = nil
      send(.ended, watch)
    case .failed: break
    }
  }

  private func send(_ event: FollowEvent, _ watch: Watch) {
    watch.lastArrival = max(watch.lastArrival, simulation.time.nanoseconds + simulation.delay())
    simulation.time.schedule(at: watch.lastArrival) { [self] in
      if isOpen { simulation.deliver(to: node) { watch.receive(event) } }
    }
  }
}
