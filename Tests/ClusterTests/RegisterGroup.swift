import StoreEngine
import StoreTestSupport
import TestSupport

/// A group on one node whose loop is a model with a few registers: fast enough for many faults, and defective where a
/// test asks for it. It performs what its ``Ownership`` decides.
final class RegisterGroup: SimulatedGroup {
  /// A command that waits for its record.
  private typealias Command = (write: Write, acknowledge: () -> Void)

  let id: GroupID
  private unowned let process: SimulatedProcess
  private var simulation: ClusterSimulation { process.simulation }
  private var node: SimulatedNode { process.node }
  private let storage: RegisterStorage
  private var ownership: Ownership
  private var shard: RegisterShard
  private(set) var isOwner = false
  private(set) var joiningAt: RecordPosition?
  /// Number of the ``Ownership``: a node that leaves the set gets another one, with empty storage.
  private var generation = 0
  private var isRemoved = false
  /// Commands that no record has yet, and those of the record in flight.
  private var queue: [Command] = []
  private var inFlight: [Command] = []

  // Of defective nodes
  private var lastSentAt: [RecordPosition: BootTime] = [:]
  private var defectiveLeaseEnd = BootTime(nanoseconds: .min)
  private var replacement: GroupRecord?
  /// Number of times that the loop was reset.
  private var restarts = 0
  private var ahead: [Command] = []
  private func has(_ defect: SimulatedNode.Defect) -> Bool { simulation.settings.defects.contains(defect) }

  init(id: GroupID, storage: RegisterStorage, process: SimulatedProcess) {
    self.id = id
    self.storage = storage
    self.process = process
    shard = storage.shard()
    ownership = Ownership(
      group: id,
      node: process.node.id,
      initialSet: process.simulation.initialSet,
      limits: process.node.limits,
      stored: storage.cursor,
      now: process.node.clock
    )
  }

  var isMember: Bool? { ownership.isMember }
  var deadline: BootTime { ownership.deadline }
  var reportsProgress: Bool { ownership.reportsProgress }
  var supportsLevel: Bool { ownership.supportsLevel }

  func handle(_ event: Ownership.Event) {
    guard !process.isClosed, !isRemoved else { return }
    for action in ownership.handle(event, at: node.clock) { perform(action) }
    commitIfPossible()
    process.setTimer()
  }

  // MARK: Requests

  func submit(_ write: Write, isResent: Bool, done: @escaping (Bool) -> Void) {
    guard isOwner else { return done(false) }
    let acknowledge = { done(true) }
    if shard.isApplied(write) {
      acknowledge()
    } else if let at = queue.firstIndex(where: { $0.write == write }) {
      queue[at].acknowledge = acknowledge
    } else if let at = inFlight.firstIndex(where: { $0.write == write }) {
      inFlight[at].acknowledge = acknowledge
    } else if let at = ahead.firstIndex(where: { $0.write == write }) {
      ahead[at].acknowledge = acknowledge
    } else {
      queue.append((write, acknowledge))
      // A turn of the event loop.
      process.after(simulation.random.milliseconds(0...1)) { [self] in
        commitIfPossible()
        process.setTimer()
      }
    }
  }

  func read(_ register: Int, done: (Write?) -> Void) {
    let isAllowed =
      has(.countsLeaseFromLastSending)
      ? isOwner && node.clock < defectiveLeaseEnd : ownership.mayAnswer(at: node.clock)
    if isAllowed { done(shard.registers[register]) }
  }

  var mayAnswer: Bool { ownership.mayAnswer(at: node.clock) }

  private func commitIfPossible() {
    guard isOwner, inFlight.isEmpty, ownership.acceptsCommit else { return }
    if ahead.isEmpty {
      inFlight = Array(queue.prefix(16))
      queue.removeFirst(inFlight.count)
    } else {
      inFlight = ahead
      ahead = []
    }
    guard !inFlight.isEmpty else { return }
    let payload = Write.encode(inFlight.map(\.write))
    if has(.acknowledgesEarly) { for command in inFlight { command.acknowledge() } }
    for action in ownership.handle(.commitRequested(.init(payload: payload)), at: node.clock) { perform(action) }
  }

  // MARK: Actions

  private func perform(_ action: Ownership.Action) {
    switch action {
    case .read(let position):
      let restarts = restarts
      process.link.read(id, from: position, max: 40) { [self] outcome in
        guard restarts == self.restarts else { return }
        switch outcome {
        case .records(let records, let reachesEnd):
          handle(.recordsRead(records, from: position, reachesEnd: reachesEnd))
        case .trimmed(let first): handle(.readTrimmed(first: first))
        case .failed: break
        }
      }
    case .follow(let position):
      process.link.follow(id, from: position) { [self] event in
        switch event {
        case .records(let records): handle(.recordsFollowed(records))
        case .ended: handle(.followEnded)
        }
      }
    case .apply(let record): store(record)
    case .fetchSnapshot(let reason): fetchSnapshot(reason)
    case .levelUnsupported: simulation.tally.unsupported += 1
    case .claim(let claim, let attempt):
      lastSentAt[claim.record.position] = node.clock
      process.link.claim(claim) { [self] outcome in handle(.answered(attempt, outcome)) }
    case .append(let append, let attempt): send(append, attempt)
    case .committed(let record): committed(record)
    case .promote:
      isOwner = true
      simulation.tally.promotions += 1
    case .yield: isOwner = false
    case .stepDown(let reason):
      stepDown(reason)
    case .trim(let trim): process.link.trim(trim)
    case .removeData:
      isRemoved = true
      process.link.unfollow(id)
      _ = simulation.log.report(id, by: node.id, MemberReport(position: .zero))
      simulation.tally.removals += 1
      process.after(simulation.random.milliseconds(1...50)) { [self] in
        storage.removeAll()
        begin()
      }
    }
  }

  /// Take what another node has now, and install it later.
  private func fetchSnapshot(_ reason: Ownership.SnapshotReason) {
    guard simulation.settings.takesSnapshots, case .trimmed = reason else {
      return simulation.oracle.stranded(node.id, id, reason)
    }
    let others = simulation.nodes.filter { $0.id != node.id }
    let source = simulation.random.pick(others).storage[Int(id.rawValue)] as? RegisterStorage
    let records = source?.records ?? []
    joiningAt = RecordPosition(UInt64(records.count))
    process.after(simulation.random.milliseconds(20...2_000)) { [self, generation] in
      guard generation == self.generation, !isRemoved else { return }
      // A snapshot that is older than the node's data does not help.
      if records.count > storage.records.count, records.last!.level <= node.limits.levels.upperBound {
        storage.install(records)
        shard = storage.shard()
        simulation.tally.snapshots += 1
      }
      begin()
    }
  }

  /// Begin again from what is stored.
  private func begin() {
    generation += 1
    isRemoved = false
    joiningAt = nil
    shard = storage.shard()
    ownership = Ownership(
      group: id,
      node: node.id,
      initialSet: simulation.initialSet,
      limits: node.limits,
      stored: storage.cursor,
      now: node.clock
    )
  }

  private func send(_ append: GroupAppend, _ attempt: Ownership.Attempt) {
    var append = append
    let isResent = lastSentAt[append.record.position] != nil
    if isResent { simulation.tally.resends += 1 }
    lastSentAt[append.record.position] = node.clock
    if has(.writesNewestLevel) { append.record.level = node.levels.upperBound }
    if has(.replacesUndecidedRecord), isResent, append.record.kind == .batches, !queue.isEmpty {
      inFlight += queue
      queue = []
      append.record.payload = Write.encode(inFlight.map(\.write))
      replacement = append.record
    }
    process.writer.append(append) { [self] outcome in handle(.answered(attempt, outcome)) }
    guard has(.sendsAhead), append.record.kind == .batches, ahead.isEmpty, !queue.isEmpty else { return }
    ahead = queue
    queue = []
    let next = LogCursor(after: append.record)
      .record(.batches, epoch: append.record.epoch, payload: Write.encode(ahead.map(\.write)))
    process.link.append([GroupAppend(group: id, record: next, fence: append.fence)]) { _ in }
  }

  private func committed(_ record: GroupRecord) {
    if let sent = lastSentAt[record.position] {
      defectiveLeaseEnd = sent.adding(milliseconds: simulation.settings.limits.leaseMilliseconds)
    }
    lastSentAt = [:]
    let written = replacement.flatMap { $0.position == record.position ? $0 : nil } ?? record
    replacement = nil
    store(written)
    guard record.kind == .batches else { return }
    let commands = inFlight
    inFlight = []
    for command in commands { command.acknowledge() }
  }

  private func store(_ record: GroupRecord) {
    storage.append(record)
    shard.apply(record)
    simulation.oracle.applied(id, by: node, record.position)
  }

  private func stepDown(_ reason: Ownership.StepDownReason) {
    switch reason {
    case .deposed: simulation.tally.depositions += 1
    case .released: simulation.tally.releases += 1
    }
    isOwner = false
    queue = []
    inFlight = []
    ahead = []
    replacement = nil
    lastSentAt = [:]
    process.after(simulation.random.milliseconds(1...50)) { [self] in
      restarts += 1
      handle(.loopReset(storage.cursor))
    }
  }
}
