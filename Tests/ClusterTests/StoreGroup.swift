import NIOCore
import ReceiptModel
import ReceiptWire
import StoreEngine
import StoreTestSupport
import TestSupport

/// A group on one node with its store loop: the code that a node runs, over a simulated log and storage.
final class StoreGroup: SimulatedGroup, StoreLoopDriver, GroupReplicaDriver {
  let id: GroupID
  private let storage: StoreStorage
  private let registers: StoreRegisters
  private unowned let process: SimulatedProcess
  private var simulation: ClusterSimulation { process.simulation }
  private let configuration: StoreLoopConfiguration
  private var replica: GroupReplica!
  private var loop: StoreLoop { replica.loop }
  private var wasOwner = false
  private(set) var joiningAt: RecordPosition?
  private var isSliceRequested = false
  private var lastAppended: GroupRecord?
  private var askedPurge: AskedPurge?
  /// When the last write to storage ends, in the simulation's time.
  private var storedAt: Int64 = 0

  // Connections
  private var lanes: [UInt16: ReplyLane] = [:]
  private var correlation: UInt32 = 0
  private var replies: [UInt32: (FrameHeader, RawSpan) -> Void] = [:]

  init(id: GroupID, storage: StoreStorage, registers: StoreRegisters, process: SimulatedProcess) {
    self.id = id
    self.storage = storage
    self.registers = registers
    self.process = process
    configuration = Self.configuration(&process.simulation.random)
    begin()
    tick()
  }

  /// Begin from what is stored, as a process or a new host does.
  private func begin() {
    joiningAt = nil
    lanes = [:]
    askedPurge = nil
    replica = GroupReplica(
      group: id,
      node: process.node.id,
      initialSet: simulation.initialSet,
      limits: process.node.limits,
      loop: newLoop(),
      stored: storage.cursor,
      keys: storage.keys,
      driver: self
    )
    wasOwner = false
  }

  /// Begin again later from changed storage. The writes of before come first.
  private func begin(after delay: Int64, change: @escaping () -> Void) {
    let ended = replica
    process.after(max(delay, storedAt - simulation.time.nanoseconds)) { [self] in
      guard ended === replica else { return }
      change()
      begin()
    }
  }

  /// Small, so that pages are written, read and evicted.
  private static func configuration(_ random: inout SplitMix64) -> StoreLoopConfiguration {
    var configuration = StoreLoopConfiguration()
    configuration.pageWriteAgeMilliseconds = random.pick([0, 300, 3_000])
    configuration.trimBatchesMin = random.pick([1, 50])
    configuration.residentBytesMax = random.pick([.max, 1, 4_000])
    configuration.followWaitingBytesMax = random.pick([5_000, 16 << 20])
    return configuration
  }

  private func newLoop() -> StoreLoop {
    do throws(StorageError) {
      return try StoreLoop(
        configuration: configuration,
        shardCount: registers.shardCount,
        stored: registers.shards(of: id).map { ($0, storage.data.recover($0)) },
        follows: true,
        driver: self
      )
    } catch {
      preconditionFailure("\(error)")
    }
  }

  private func tick() {
    process.after(.milliseconds(100)) { [self] in
      beginTurn()
      loop.tick()
      tick()
    }
  }

  private func beginTurn() {
    loop.clock = process.node.wallClock
    if !simulation.settings.defects.contains(.ignoresLease) { replica.updateLease() }
  }

  // MARK: SimulatedGroup

  var isMember: Bool? { replica.isMember }
  var isOwner: Bool { replica.isOwner }
  var mayAnswer: Bool { replica.mayAnswer }
  var deadline: BootTime { replica.deadline }
  var reportsProgress: Bool { replica.reportsProgress }
  var supportsLevel: Bool { replica.supportsLevel }

  func handle(_ event: Ownership.Event) {
    guard !process.isClosed else { return }
    loop.clock = process.node.wallClock
    replica.handle(event)
  }

  func reported(_ reports: [NodeID: MemberReport]) {
    guard !process.isClosed else { return }
    loop.clock = process.node.wallClock
    replica.reported(reports)
  }

  func completed(_ report: MemberReport) -> MemberReport {
    var report = replica.completed(report)
    if simulation.settings.defects.contains(.reportsKeysEarly) { report.key = RecordKeyNumber(.max) }
    if simulation.settings.defects.contains(.reportsPurgesEarly) { report.purged = RecordPosition(.max) }
    return report
  }

  func submit(_ write: Write, isResent: Bool, done: @escaping (Bool) -> Void) {
    // A resent command comes on a new connection of its session.
    let lane = isResent ? openLane(write.client) : lanes[write.client] ?? openLane(write.client)
    let header = FrameHeader(
      .setMember,
      flags: isResent ? .resend : FrameHeader.Flags(),
      shard: registers.shard(id, Int(write.register)),
      correlation: nextCorrelation()
    )
    replies[header.correlation] = { reply, payload in
      guard reply.kind == .error else { return done(true) }
      var reader = FieldReader(payload)
      if (try? reader.varint()) != UInt64(ErrorCode.outcomeUnknown.rawValue) { done(false) }
    }
    send(header, registers.payload(write, id), lane)
  }

  func read(_ register: Int, done: @escaping (Write?) -> Void) {
    let lane = lanes[0] ?? openLane(0)
    let header = FrameHeader(
      .listRoster,
      shard: registers.shard(id, register),
      correlation: nextCorrelation()
    )
    replies[header.correlation] = { [self] reply, payload in
      guard reply.kind != .error else { return }
      do throws(WireError) {
        done(try registers.write(inReply: payload, register: register))
      } catch {
        simulation.oracle.failed(id, "a reply does not parse: \(error)")
      }
    }
    send(header, registers.queryPayload(id, register), lane)
  }

  private func nextCorrelation() -> UInt32 {
    correlation += 1
    return correlation
  }

  private func openLane(_ client: UInt16) -> ReplyLane {
    simulation.connections += 1
    let lane = ReplyLane(
      session: SessionID(high: client == 0 ? UInt64(process.node.id.rawValue) << 32 : 1, low: UInt64(client)),
      serial: simulation.connections,
      shards: StoreRegisters.shardsPerGroup,
      deliver: { [unowned self] bytes, _ in delivered(bytes) },
      end: { [unowned self] error in simulation.oracle.failed(id, "a connection ends: \(error)") }
    )
    lanes[client] = lane
    loop.open(lane)
    return lane
  }

  private func send(_ header: FrameHeader, _ payload: ByteBuffer, _ lane: ReplyLane) {
    receive(header, payload, on: loop, lane)
  }

  /// Receive a request.
  ///
  /// - Parameter target: the group's loop when the lane was opened.
  func receive(_ header: FrameHeader, _ payload: ByteBuffer, on target: StoreLoop, _ lane: ReplyLane) {
    beginTurn()
    target.clock = process.node.wallClock
    do throws(WireError) {
      try target.receive(header, payload.readableBytesSpan, lane: lane)
    } catch {
      simulation.oracle.failed(id, "a request does not parse: \(error)")
    }
    target.endTurn()
  }

  private func delivered(_ bytes: ByteBuffer) {
    let frames = bytes.readableBytesSpan
    let decoder = FrameDecoder()
    var offset = 0
    while case .frame(let header, let count)? = try? decoder.next(frames, at: offset) {
      let start = offset + FrameHeader.byteCount
      offset = start + count
      replies.removeValue(forKey: header.correlation)?(header, frames.extracting(start..<offset))
    }
  }

  // MARK: Purges

  /// A purge that was asked for, and what must be gone after it.
  private final class AskedPurge {
    let position: RecordPosition
    let lastBatches: [ShardID: UInt64]
    /// The round that each shard's client waits for; 0: it has ended.
    var rounds: [ShardID: UInt64]

    init(_ storage: StoreStorage, _ shards: [ShardID]) {
      position = storage.position
      lastBatches = storage.data.log.mapValues { $0.keys.max() ?? 0 }
      rounds = Dictionary(uniqueKeysWithValues: shards.map { ($0, 0) })
    }
  }

  func askPurge() {
    guard isOwner, askedPurge == nil else { return }
    let asked = AskedPurge(storage, registers.shards(of: id))
    askedPurge = asked
    simulation.tally.purgesAsked += 1
    for shard in asked.rounds.keys.sorted(by: { $0.rawValue < $1.rawValue }) { askPurge(asked, shard) }
  }

  private func askPurge(_ asked: AskedPurge, _ shard: ShardID) {
    guard isOwner, askedPurge === asked else { return askedPurge = nil }
    let header = FrameHeader(.purge, shard: shard, correlation: nextCorrelation())
    replies[header.correlation] = { [self] reply, payload in
      var reader = FieldReader(payload)
      guard reply.kind != .error, let round = try? reader.varint() else { return askedPurge = nil }
      asked.rounds[shard] = round
      guard round == 0 else {
        return process.after(.milliseconds(200)) { [self] in askPurge(asked, shard) }
      }
      guard askedPurge === asked, asked.rounds.values.allSatisfy({ $0 == 0 }) else { return }
      askedPurge = nil
      simulation.purgeEnded(id, before: asked.position, asked.lastBatches)
    }
    var payload = ByteBuffer()
    payload.writeVarint(asked.rounds[shard] ?? 0)
    send(header, payload, lanes[0] ?? openLane(0))
  }

  // MARK: GroupReplicaDriver

  func makeRecordKey(_ number: RecordKeyNumber) -> RecordKey {
    let key = RecordKey(number: number, secret: (0..<32).map { _ in UInt8(simulation.random.below(256)) })
    simulation.made(key, of: id)
    return key
  }

  func storeRecordKeys(_ keys: [RecordKey]) {
    storedAt = max(storedAt, simulation.time.nanoseconds + simulation.random.milliseconds(0...5))
    let target = replica!
    later(at: storedAt, writing: { $0.replaceKeys(keys) }) { [self] in
      if target === replica { target.recordKeysStored(keys, .success(())) }
    }
  }

  /// Write to storage, then call `body`.
  private func later(at time: Int64, writing write: @escaping (StoreStorage) -> Void, then body: @escaping () -> Void) {
    simulation.time.schedule(at: time) { [self] in
      guard !process.isClosed else { return }
      write(storage)
      process.node.run { [self] in
        guard !process.isClosed else { return }
        loop.clock = process.node.wallClock
        body()
      }
    }
  }

  func fetchRecordKeys(from node: NodeID) {
    let target = replica!
    process.after(simulation.random.milliseconds(1...200)) { [self] in
      guard target === replica else { return }
      let source = simulation.nodes.first { $0.id == node && $0.process != nil }
      let storage = source?.storage[Int(id.rawValue)] as? StoreStorage
      target.recordKeysFetched(simulation.random.percent(20) ? nil : storage?.keys, from: node)
    }
  }

  func purgeStorage() {
    storedAt = max(storedAt, simulation.time.nanoseconds + simulation.random.milliseconds(1...50))
    let (target, loop) = (replica!, loop)
    later(at: storedAt, writing: { $0.sync() }) { [self] in
      if target === replica, loop === self.loop { target.storagePurged() }
    }
  }

  func reportNow() { process.report(self) }

  func followed(_ time: Timestamp) {}

  var bootTime: BootTime { process.node.clock }
  var sharedLog: any GroupLog { process.link }

  func append(_ append: GroupAppend, as attempt: Ownership.Attempt) {
    if append.record == lastAppended {
      simulation.tally.resends += 1
    } else if case .release = append.record.kind {
      simulation.tally.releases += 1
    }
    lastAppended = append.record
    process.writer.append(append) { [self] outcome in handle(.answered(attempt, outcome)) }
  }

  func store(_ commit: LoopCommit) {
    if let position = commit.position { simulation.oracle.applied(id, by: process.node, position.cursor.position) }
    storedAt = max(storedAt, simulation.time.nanoseconds + simulation.random.milliseconds(0...2))
    let target = replica!
    later(at: storedAt, writing: { $0.commit(commit) }) { target.stored(.success(())) }
  }

  func restart() {
    simulation.tally.depositions += 1
    let halted = replica!
    process.after(simulation.random.milliseconds(1...50)) { [self] in
      guard halted === replica else { return }
      lanes = [:]
      halted.restarted(newLoop(), stored: storage.cursor)
    }
  }

  /// Take what another node has now, and install it later.
  func fetchSnapshot(_ reason: Ownership.SnapshotReason) {
    if case .diverged = reason { return simulation.oracle.stranded(process.node.id, id, reason) }
    guard simulation.settings.takesSnapshots else {
      return simulation.oracle.stranded(process.node.id, id, reason)
    }
    let others = simulation.nodes.filter { $0.id != process.node.id }
    guard let source = simulation.random.pick(others).storage[Int(id.rawValue)] as? StoreStorage else { return }
    let (data, cursor) = (source.data, source.cursor)
    joiningAt = cursor.position
    _ = simulation.log.report(id, by: process.node.id, MemberReport(position: joiningAt!, .joining))
    begin(after: simulation.random.milliseconds(20...2_000)) { [self] in
      // A snapshot that is older than the node's data does not help.
      guard cursor.position > storage.position,
        simulation.oracle.level(id, cursor.position) <= process.node.limits.levels.upperBound
      else { return }
      storage.install(data, cursor)
      simulation.tally.snapshots += 1
    }
  }

  func levelUnsupported(_ level: ClusterLevel) { simulation.tally.unsupported += 1 }

  func removeData() {
    _ = simulation.log.report(id, by: process.node.id, MemberReport(position: .zero))
    simulation.tally.removals += 1
    begin(after: simulation.random.milliseconds(1...50)) { [self] in storage.removeAll() }
  }

  func replicaFailed(_ error: FollowError) {
    simulation.oracle.failed(id, "C6: node \(process.node.id.rawValue) cannot follow: \(error)")
  }

  func replicaChanged() {
    if let epoch = replica.ownedEpoch, !wasOwner {
      simulation.tally.promotions += 1
      process.serve(id, SimulatedProcess.ServedGroup(epoch: epoch, group: self, loop: loop))
    }
    if !isOwner, wasOwner { process.serve(id, nil) }
    wasOwner = isOwner
    process.setTimer()
  }

  // MARK: StoreLoopDriver

  func purge() {
    let target = replica!
    process.after(0) { [self] in
      if target === replica { target.purge() }
    }
  }

  func commit(_ commit: LoopCommit) { replica.commit(commit) }

  func load(_ request: LoadRequest, as reference: ChannelReference) {
    let target = loop
    process.after(simulation.random.milliseconds(0...3)) { [self] in
      guard target === loop else { return }
      beginTurn()
      loop.loaded(request, as: reference, .success(storage.data.read(request.shard, request.channel)))
    }
  }

  func sliceLater() {
    guard !isSliceRequested else { return }
    isSliceRequested = true
    process.after(0) { [self] in
      isSliceRequested = false
      beginTurn()
      loop.slice()
    }
  }

  func readSteps(_ request: StepRequest) { simulation.oracle.failed(id, "an unexpected read of steps") }
  func peek(_ request: StorageReadRequest) { simulation.oracle.failed(id, "an unexpected peek") }
  func deliver(_ deliveries: [MembershipDelivery]) { simulation.oracle.failed(id, "unexpected deliveries") }
  func confirm(_ confirmations: [MembershipConfirmation]) {}
  func reportError(_ error: StorageError) { simulation.oracle.failed(id, "\(error)") }
  func loopHalted(_ error: StorageError) { simulation.oracle.failed(id, "the loop halted: \(error)") }
}
