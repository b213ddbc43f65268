import NIOCore
import ReceiptModel
import ReceiptWire
import StoreEngine
import StoreTestSupport
import TestSupport

/// All record keys of a simulation.
final class MadeKeys {
  private var keys: [GroupID: [RecordKeyNumber: RecordKey]] = [:]

  subscript(group: GroupID, number: RecordKeyNumber) -> RecordKey? {
    get { keys[group]?[number] }
    set { keys[group, default: [:]][number] = newValue }
  }
}

/// A cluster of three to five nodes, its shared log, clients, and the network between them, in one thread and in an
/// order determined by the seed.
///
/// Phase 1: messages are delayed, lost, doubled and reordered; links are cut one-way; the log elects leaders; nodes
/// stop and resume, crash and restart; groups move, and their sets change. Phase 2: all of that ends, and every group
/// must have an owner within 3 s. ``ClusterOracle`` checks every step.
final class ClusterSimulation {
  struct Settings {
    var limits: ClusterLimits
    var missingChecks: Set<SimulatedLog.MissingCheck> = []
    var defects: Set<SimulatedNode.Defect> = []
    /// Length of phase 1.
    var seconds = 60
    /// What happens in phase 1, each as often as it stands here.
    var disturbances: [Disturbance] = [
      .stop, .stop, .stop, .crash, .crash, .cut, .cut, .election, .move, .move, .leave, .refuse,
    ]
    /// Faults of messages in phase 1; nil: by the seed.
    var messageFaults: MessageFaults?
    /// Number of nodes; nil: three to five.
    var nodeCount: Int?
    /// Number of groups; nil: one to three.
    var groupCount: Int?
    /// What stands for a group's shards.
    var shards = Shards.registers
    /// Number of gateways, whose clients send all requests; 0: clients send them to nodes. Needs store loops.
    var gatewayCount = 0
    /// Pauses between disturbances, and between the writes of a client, in milliseconds.
    var pauses = 200...3_000
    var clientPauses = 0...60
    /// Whether a member whose next record is trimmed takes another node's storage. Otherwise that is a fault.
    var takesSnapshots = false

    /// Small trims, so that the log is trimmed many times.
    init() {
      limits = ClusterLimits()
      limits.trimRecordsMin = 8
      limits.steadyMilliseconds = 2_000
    }
  }

  /// What stands for a group's shards on each node.
  enum Shards {
    /// A model with a few registers.
    case registers
    /// Store loops, with their storage, and ``GroupReplica``.
    case storeLoops
  }

  /// What may happen to a cluster.
  enum Disturbance {
    /// A process stops and resumes, as by SIGSTOP and SIGCONT.
    case stop
    /// A machine crashes and restarts.
    case crash
    /// A machine is away for long.
    case away
    /// Some directions of a node's link to the log are cut for a while.
    case cut
    /// The log elects a leader.
    case election
    /// A group is moved.
    case move
    /// A node hands its groups over and restarts.
    case leave
    /// A group's log is purged. Registers have no purges.
    case purge
    /// A group's set gets other members. Needs ``Settings/takesSnapshots``.
    case resize
    /// Some nodes, or all of them, refuse commands for a while.
    case refuse
    /// A gateway's connection to a node is reset, or what it carries arrives late.
    case cutGateway
    /// An owner releases a group and owns it again, before gateways hear of either.
    case bounce
    /// A node restarts with a newer program, or with the older one.
    case upgrade
    /// The level is raised if all nodes run and support it, or else a node is upgraded for that. Sometimes an older
    /// program starts at the same time.
    case raise
  }

  /// Faults of single messages.
  struct MessageFaults {
    var lossPercent = 0
    /// Messages with a delay of up to 3 s.
    var slowPercent = 0
    /// Requests that arrive twice.
    var doubledPercent = 0

    static let none = MessageFaults()
  }

  /// How often each thing happened, to check that a simulation covers it.
  struct Tally {
    var claims = 0
    var promotions = 0
    var depositions = 0
    var releases = 0
    var resends = 0
    var trims = 0
    var stops = 0
    var crashes = 0
    var cuts = 0
    var elections = 0
    var refusals = 0
    /// Only of simulations in which members are away.
    var snapshots = 0
    /// Only of simulations with purges: those that were asked for, and those that have ended.
    var purgesAsked = 0
    var purges = 0
    /// Only of simulations in which sets get other members.
    var removals = 0
    /// Only of simulations with upgrades: programs that were installed, those that refused to start, and groups of
    /// nodes that did not support the level.
    var upgrades = 0
    var refusedStarts = 0
    var unsupported = 0
    /// Only of simulations with gateways: refused writes of which nothing was applied, and those whose outcome is not
    /// known.
    var unavailable = 0
    var unknown = 0

    /// The values by name.
    var counts: [(name: String, count: Int)] {
      [
        ("claims", claims), ("promotions", promotions), ("depositions", depositions), ("releases", releases),
        ("resends", resends), ("trims", trims), ("stops", stops), ("crashes", crashes), ("cuts", cuts),
        ("elections", elections), ("refusals", refusals),
      ]
    }
  }

  let settings: Settings
  let time = SimulatedTime()
  var random: SplitMix64
  let groupCount: Int
  private(set) var nodes: [SimulatedNode] = []
  let log: SimulatedLog
  let oracle: ClusterOracle
  private var clients: [SimulatedClient] = []
  private let keys = MadeKeys()
  /// The key that each group uses.
  private var usedKeys: [GroupID: RecordKeyNumber] = [:]
  /// Of a simulation with store loops.
  private let storeRegisters: StoreRegisters?
  private(set) var gateways: SimulatedGateways?
  /// Number of connections that clients have opened.
  var connections: UInt64 = 0
  private(set) var messageFaults = MessageFaults.none
  private var linkCuts: [SimulatedLink.Cuts] = []
  /// The log elects a leader until then.
  private(set) var electedUntil: Int64 = 0
  private var isDisturbed = true
  /// When a group's set may change again.
  private var nextResize: [GroupID: Int64] = [:]
  /// Whether clients issue new writes.
  private(set) var clientsIssue = true
  var tally = Tally()

  var issued: Int { clients.reduce(0) { $0 + $1.issued } }

  init(seed: UInt64, settings: Settings = Settings()) {
    self.settings = settings
    var random = SplitMix64(seed: seed)
    groupCount = settings.groupCount ?? 1 + random.below(3)
    let registers = settings.shards == .storeLoops ? StoreRegisters(groupCount: groupCount) : nil
    storeRegisters = registers
    let keys = keys
    oracle = ClusterOracle(groupCount: groupCount) { payload, key, group in
      guard let registers else { return RecordContent(writes: Write.decode(payload)) }
      let opened = keys[group, key].flatMap { $0.open(payload) }
      return registers.content(opened ?? [], of: group)
    }
    log = SimulatedLog(groupCount: groupCount, missing: settings.missingChecks)
    let drawn = MessageFaults(
      lossPercent: random.pick([0, 1, 3, 10]),
      slowPercent: random.pick([0, 1, 3, 10]),
      doubledPercent: 2
    )
    messageFaults = settings.messageFaults ?? drawn
    self.random = random
    log.level = .oldest
    log.accepted = { [unowned self] group, record in accepted(group, record) }
    let nodeCount = settings.nodeCount ?? 3 + self.random.below(3)
    for id in 1...UInt16(nodeCount) { nodes.append(SimulatedNode(id: NodeID(id), simulation: self)) }
    linkCuts = Array(repeating: SimulatedLink.Cuts(), count: nodes.count)
    if settings.gatewayCount > 0, let registers {
      gateways = SimulatedGateways(count: settings.gatewayCount, registers: registers, simulation: self)
    }
    for group in 0..<groupCount {
      for _ in 0..<(settings.gatewayCount == 0 ? 4 + self.random.below(12) : 10 + self.random.below(10)) {
        clients.append(
          SimulatedClient(id: UInt16(clients.count + 1), group: GroupID(UInt8(group)), simulation: self)
        )
      }
    }
  }

  /// The set of a group that was not changed: all nodes.
  var initialSet: GroupSet { GroupSet(members: nodes.map(\.id), revision: 0) }

  func members(of group: GroupID) -> [NodeID] { (log[group].set ?? initialSet).members }

  func makeStorage() -> any SimulatedStorage {
    storeRegisters.map { StoreStorage($0) } ?? RegisterStorage()
  }

  // MARK: Network

  func cuts(of node: NodeID) -> SimulatedLink.Cuts { linkCuts[Int(node.rawValue) - 1] }

  /// Delay of one message.
  func delay() -> Int64 {
    random.percent(messageFaults.slowPercent)
      ? random.milliseconds(50...3_000) : random.milliseconds(0...5)
  }

  func deliver(to node: NodeID, _ body: @escaping () -> Void) { self.node(node).run(body) }

  private func node(_ id: NodeID) -> SimulatedNode { nodes[Int(id.rawValue) - 1] }

  func group(of shard: ShardID) -> GroupID { storeRegisters!.group(of: shard) }

  // MARK: Keys and purges

  /// A node has made a record key.
  func made(_ key: RecordKey, of group: GroupID) {
    if let other = keys[group, key.number], other != key {
      oracle.failed(group, "C12: two keys have the number \(key.number.rawValue)")
    }
    keys[group, key.number] = key
  }

  /// Enough members have stored a key before its first use (C12).
  private func checkKey(of record: GroupRecord, _ group: GroupID) {
    guard settings.shards == .storeLoops, record.key != usedKeys[group] ?? .none else { return }
    usedKeys[group] = record.key
    let holders = nodes.count { node in
      (node.storage[Int(group.rawValue)] as? StoreStorage)?.keys.contains { $0.number == record.key } == true
    }
    if holders < min(settings.limits.membersMin, members(of: group).count) {
      oracle.failed(group, "C12: key \(record.key.rawValue) is used, and \(holders) nodes have it")
    }
  }

  private func purge(_ group: GroupID) {
    for node in nodes {
      guard let process = node.process, process.groups[Int(group.rawValue)].isOwner else { continue }
      node.run { if !process.isClosed { process.groups[Int(group.rawValue)].askPurge() } }
    }
  }

  /// A purge has ended: no member has a key or a logged batch from before it (C12).
  func purgeEnded(_ group: GroupID, before position: RecordPosition, _ lastBatches: [ShardID: UInt64]) {
    tally.purges += 1
    for node in nodes where members(of: group).contains(node.id) {
      guard let storage = node.storage[Int(group.rawValue)] as? StoreStorage else { continue }
      for key in storage.keys where key.number.rawValue < position.rawValue {
        oracle.failed(group, "C12: node \(node.id.rawValue) has \(key) after a purge at \(position.rawValue)")
      }
      for (shard, last) in lastBatches {
        let batches = storage.data.log[shard, default: [:]].keys
        if let batch = batches.filter({ $0 <= last }).min() {
          oracle.failed(
            group,
            "C12: node \(node.id.rawValue) has batch \(batch) of shard \(shard) after a purge of \(last)"
          )
        }
      }
    }
  }

  // MARK: Run

  /// Starts nodes, clients and disturbances.
  func start() {
    for node in nodes { node.start() }
    gateways?.start()
    for client in clients { client.issue() }
    for group in 0..<groupCount { read(GroupID(UInt8(group))) }
    disturb()
  }

  /// Run for a time, or until a condition ends it.
  func run(milliseconds: Int, while condition: () -> Bool = { true }) {
    time.run(until: time.nanoseconds + .milliseconds(milliseconds), while: condition)
  }

  /// Runs both phases; stops at the first fault.
  func run() {
    start()
    let isSound: () -> Bool = { [oracle] in oracle.faults.isEmpty }
    run(milliseconds: settings.seconds * 1_000, while: isSound)
    heal()
    // Messages of phase 1 may still be in flight.
    run(milliseconds: 3_100, while: isSound)
    for group in 0..<groupCount { expectOwner(GroupID(UInt8(group))) }
    run(milliseconds: 3_000, while: isSound)
    clientsIssue = false
    run(milliseconds: 3_000, while: isSound)
    // A transfer from a node that has nothing is begun again at another one.
    run(milliseconds: 30_000) { isSound() && hasJoiningMember }
    guard isSound() else { return }
    let ends = (0..<groupCount).map { oracle.length(GroupID(UInt8($0))) }
    run(milliseconds: 500, while: isSound)
    for (index, end) in ends.enumerated() {
      let group = GroupID(UInt8(index))
      for node in nodes where members(of: group).contains(node.id) {
        oracle.check(node.id, group, node.storage[index].position, reaches: end)
        node.storage[index].check(oracle, node.id, group)
      }
      oracle.check(group, log[group])
    }
    for client in clients where !client.isIdle {
      oracle.missed(client.group, "client \(client.id) has no answer")
    }
  }

  /// Whether a member receives a snapshot.
  private var hasJoiningMember: Bool {
    nodes.contains { node in
      node.process?.groups.contains { $0.joiningAt != nil && members(of: $0.id).contains(node.id) } == true
    }
  }

  /// Within 3 s some node of the group is its owner and may answer.
  private func expectOwner(_ group: GroupID) {
    let limit = time.nanoseconds + .milliseconds(3_000)
    func look() {
      if nodes.contains(where: { $0.process?.groups[Int(group.rawValue)].mayAnswer == true }) { return }
      guard time.nanoseconds < limit else {
        oracle.missed(group, "no owner 3 s after the last fault")
        return
      }
      time.schedule(after: .milliseconds(10), look)
    }
    look()
  }

  /// The log has accepted a record: it goes to all watches.
  private func accepted(_ group: GroupID, _ record: GroupRecord) {
    oracle.accepted(group, record)
    if record.level > log.level! {
      oracle.failed(group, "C13: record \(record.position.rawValue) has level \(record.level.rawValue)")
    }
    checkKey(of: record, group)
    time.schedule(after: 0) { [self] in
      for node in nodes { node.process?.link.pump(group) }
    }
  }

  /// Reads a register of a group on some node, again and again.
  private func read(_ group: GroupID) {
    time.schedule(after: random.milliseconds(1...(gateways == nil ? 15 : 50))) { [self] in
      let node = random.pick(nodes)
      let register = random.below(Write.registerCount)
      let atLeast = oracle.readBegins(group, register)
      if let gateways = gateways?.gateways {
        random.pick(gateways).read(register, group) { [self] answer in
          oracle.readEnds(group, by: "a gateway", answer, atLeast: atLeast)
        }
      } else if let process = node.process {
        node.run { [self] in
          guard !process.isClosed else { return }
          process.groups[Int(group.rawValue)].read(register) { [self] answer in
            oracle.readEnds(group, by: "node \(node.id.rawValue)", answer, atLeast: atLeast)
          }
        }
      }
      read(group)
    }
  }

  // MARK: Disturbances

  private func heal() {
    isDisturbed = false
    messageFaults = .none
    linkCuts = Array(repeating: SimulatedLink.Cuts(), count: nodes.count)
    electedUntil = 0
    installSupported()
    for gateway in gateways?.gateways ?? [] { gateway.heal() }
    for node in nodes {
      node.resume()
      node.start()
    }
  }

  private func disturb() {
    guard !settings.disturbances.isEmpty else { return }
    time.schedule(after: random.milliseconds(settings.pauses)) { [self] in
      guard isDisturbed else { return }
      switch random.pick(settings.disturbances) {
      case .stop: stop(random.oneIn(2) ? owner() : random.pick(nodes))
      case .crash: crash(random.oneIn(2) ? owner() : random.pick(nodes))
      case .away: crash(random.pick(nodes), milliseconds: 5_000...15_000)
      case .cut: cut(random.oneIn(2) ? owner() : random.pick(nodes))
      case .election:
        tally.elections += 1
        electedUntil = time.nanoseconds + random.milliseconds(800...2_600)
      case .move:
        let group = GroupID(UInt8(random.below(groupCount)))
        let target = random.pick(members(of: group))
        move(group, to: target)
        // It then sees the release only after another node has claimed the group.
        if random.oneIn(3) { time.schedule(after: random.milliseconds(0...1_000)) { [self] in stop(node(target)) } }
      case .leave: leave(random.oneIn(2) ? owner() : random.pick(nodes))
      case .purge: purge(GroupID(UInt8(random.below(groupCount))))
      case .resize: resize(GroupID(UInt8(random.below(groupCount))))
      case .upgrade: install(random.oneIn(6) ? SimulatedNode.oldProgram : SimulatedNode.newProgram, random.pick(nodes))
      case .raise: raise()
      case .cutGateway: cutGateway()
      case .bounce: bounce()
      case .refuse: for node in nodes where random.oneIn(2) { refuse(node) }
      }
      disturb()
    }
  }

  /// A node that owns some group.
  func owner() -> SimulatedNode {
    nodes.first { $0.process?.groups.contains(where: { $0.isOwner }) == true } ?? nodes[0]
  }

  private func stop(_ node: SimulatedNode) {
    stop(node, milliseconds: random.pick([300, 1_000, 1_600, 2_500, 4_000, 8_000]))
  }

  private func stop(_ node: SimulatedNode, milliseconds: Int) {
    tally.stops += 1
    node.stop()
    time.schedule(after: .milliseconds(milliseconds)) { node.resume() }
  }

  func crash(_ node: SimulatedNode, milliseconds: ClosedRange<Int> = 50...4_000) {
    tally.crashes += 1
    node.crash()
    time.schedule(after: random.milliseconds(milliseconds)) { node.start() }
  }

  private func cut(_ node: SimulatedNode) {
    tally.cuts += 1
    let end = time.nanoseconds + random.milliseconds(300...5_000)
    let index = Int(node.id.rawValue) - 1
    let sides = 1 + random.below(7)
    if sides & 1 != 0 { linkCuts[index].requestsUntil = end }
    if sides & 2 != 0 { linkCuts[index].answersUntil = end }
    if sides & 4 != 0 { linkCuts[index].watchesUntil = end }
  }

  private func cutGateway() {
    guard let gateway = gateways.map({ random.pick($0.gateways) }) else { return }
    let node = (random.oneIn(2) ? owner() : random.pick(nodes)).id
    if random.oneIn(2) { return gateway.reset(node) }
    let end = time.nanoseconds + random.milliseconds(100...5_000)
    let sides = 1 + random.below(3)
    gateway.cut(node, toNode: sides & 1 != 0 ? end : 0, fromNode: sides & 2 != 0 ? end : 0)
    if random.oneIn(3) { time.schedule(at: end) { gateway.reset(node) } }
  }

  /// The next owner is stopped before it can claim.
  private func bounce() {
    let group = GroupID(UInt8(random.below(groupCount)))
    func owns(_ node: SimulatedNode) -> Bool { node.process?.groups[Int(group.rawValue)].isOwner == true }
    guard let owner = nodes.first(where: owns), let target = members(of: group).first(where: { $0 != owner.id }) else {
      return
    }
    for gateway in gateways?.gateways ?? [] {
      gateway.cut(owner.id, toNode: 0, fromNode: time.nanoseconds + .milliseconds(4_500))
    }
    move(group, to: target)
    let limit = time.nanoseconds + .milliseconds(1_500)
    func look() {
      if !owns(owner) { return stop(node(target), milliseconds: 3_500) }
      if time.nanoseconds < limit { time.schedule(after: .milliseconds(1), look) }
    }
    look()
  }

  /// Make a member the preferred owner.
  func move(_ group: GroupID, to target: NodeID) {
    log.change(group, members: [target] + members(of: group).filter { $0 != target })
  }

  /// Give a group another set, of which two members have the log at least, or all if it has fewer.
  ///
  /// Reports of before a change may still be in flight, so changes keep a distance.
  private func resize(_ group: GroupID) {
    guard time.nanoseconds >= nextResize[group] ?? 0 else { return }
    let before = members(of: group)
    let holders = before.filter { id in
      guard let report = log[group].reports[id], report.phase != .joining else { return false }
      let newest = before.compactMap { log[group].reports[$0]?.key }.max() ?? .none
      return report.position.next >= log[group].first && report.key >= newest
    }
    guard holders.count >= 2 else { return }
    let count = 2 + random.below(nodes.count - 1)
    var members = Array(random.shuffled(holders).prefix(2))
    members += random.shuffled(nodes.map(\.id).filter { !members.contains($0) }).prefix(count - 2)
    nextResize[group] = time.nanoseconds + .milliseconds(6_000)
    log.change(group, members: random.shuffled(members))
  }

  private func refuse(_ node: SimulatedNode) {
    guard let process = node.process else { return }
    tally.refusals += 1
    node.run { process.setRefusal(true) }
    time.schedule(after: random.milliseconds(100...8_000)) {
      node.run { process.setRefusal(false) }
    }
  }

  // MARK: Upgrades

  /// Records as a node's program decodes them: of a higher level it knows no content.
  func decoded(_ records: [GroupRecord], by node: NodeID) -> [GroupRecord] {
    let levelMax = self.node(node).levels.upperBound
    guard let last = records.last, last.level > levelMax else { return records }
    return records.map { record in
      do throws(WireError) {
        return try GroupRecord(record.encoded().readableBytesSpan, levelMax: levelMax)
      } catch {
        preconditionFailure("\(record): \(error)")
      }
    }
  }

  private func install(_ program: ClosedRange<ClusterLevel>, _ node: SimulatedNode) {
    tally.upgrades += 1
    node.install(program)
    time.schedule(after: random.milliseconds(50...2_000)) { node.start() }
  }

  private func raise() {
    let next = SimulatedNode.newProgram.upperBound
    guard log.level != next else { return }
    if let old = nodes.first(where: { !$0.levels.contains(next) }) { return install(SimulatedNode.newProgram, old) }
    guard nodes.allSatisfy({ $0.process != nil }) else { return }
    log.level = next
    // It has read the old level before, and announces itself after the check.
    guard random.oneIn(2) else { return }
    let node = random.pick(nodes)
    node.install(SimulatedNode.oldProgram)
    time.schedule(after: random.milliseconds(0...50)) { node.start(checksLevel: false) }
  }

  /// Replace programs that do not support the level.
  private func installSupported() {
    for node in nodes where !node.levels.contains(log.level!) { node.install(SimulatedNode.newProgram) }
  }

  private func leave(_ node: SimulatedNode) {
    guard let process = node.process else { return }
    node.run { process.handOver() }
    time.schedule(after: random.milliseconds(0...1_500)) { [self] in
      if node.process === process { crash(node) }
    }
  }
}
