import NIOCore
import ReceiptModel
import ReceiptWire
import StoreEngine
import TestSupport

/// One store loop, with its commit in flight and its pending reads.
final class SimulatedLoop: StoreLoopDriver {
  /// The outcome of a commit.
  enum CommitOutcome: Equatable {
    case success
    /// Reported as failed after this many of its steps, possibly all.
    case failure(after: Int)
  }

  struct Commit {
    var steps: [SimulatedDisk.Step]
    var done = 0
    var fate: CommitOutcome
  }

  struct Load {
    var request: LoadRequest
    var reference: ChannelReference
    /// The result, if it was read when requested; nil: it is read when answered.
    var early: StoredChannel??
  }

  struct Peek {
    var request: StorageReadRequest
    /// The result, if it was performed when requested; nil: it is performed when answered.
    var early: [StorageUnreadCounts]?
  }

  let number: Int
  unowned let simulation: Simulation
  let disk: SimulatedDisk
  /// A follower does nothing that the oracles know of.
  private(set) var isFollower: Bool
  /// Of a follower: batches of the shared log that it has followed.
  var position = 0
  private(set) var loop: StoreLoop!
  var commit: Commit?
  var loads: [Load] = []
  /// Of a follower: results of reads that it has not installed yet.
  var kept: [Load] = []
  var peeks: [Peek] = []
  private(set) var clock: Int64 = 0
  private(set) var isHalted = false
  var isSliceRequested = false

  init(
    _ number: Int,
    simulation: Simulation,
    configuration: StoreLoopConfiguration,
    disk: SimulatedDisk,
    follows: Bool = false
  ) throws(StorageError) {
    self.number = number
    self.simulation = simulation
    self.disk = disk
    isFollower = follows
    var stored: [(shard: ShardID, state: StoredShard)] = []
    for shard in stride(from: number, to: Simulation.shardCount, by: Simulation.loopCount) {
      let id = ShardID(UInt16(shard))
      stored.append((id, try disk.recover(id)))
    }
    loop = try StoreLoop(
      configuration: configuration,
      shardCount: Simulation.shardCount,
      stored: stored,
      follows: follows,
      driver: self
    )
  }

  /// Make the follower the owner. The oracles handle the reads in flight from here on.
  func promote() {
    isFollower = false
    loop.promote()
    for load in loads + kept {
      simulation.oracles[Int(load.request.shard.rawValue)].loading[load.reference] = load.request.loadID
    }
  }

  func setClock(_ time: Int64) {
    clock = max(clock, time)
    loop.clock = Timestamp(milliseconds: time)
  }

  // MARK: StoreLoopDriver

  func commit(_ writes: LoopCommit) {
    if commit != nil { simulation.faults.append("a second commit while one is in flight") }
    let steps = SimulatedDisk.steps(writes, &simulation.random)
    commit = Commit(steps: steps, fate: isFollower ? .success : simulation.fate(steps: steps.count))
    if !isFollower { simulation.closed(writes, by: self) }
  }

  func load(_ request: LoadRequest, as reference: ChannelReference) {
    var load = Load(request: request, reference: reference)
    if simulation.random.oneIn(2) { load.early = .some(read(request)) }
    loads.append(load)
    if isFollower { return }
    // A user's index: no request waits for it.
    if case .cid(let name) = reference, IndexName.isIndex(name) { return }
    let shard = Int(request.shard.rawValue)
    let known = simulation.oracles[shard].loading.updateValue(request.loadID, forKey: reference)
    // A request loads a channel by name; the load may have waited for memory since.
    if case .cid = reference {
      if known != .some(nil) { simulation.faults.append("\(reference) is read without a waiting request") }
    } else if known != nil {
      simulation.faults.append("\(reference) is requested twice")
    }
  }

  func peek(_ request: StorageReadRequest) {
    peeks.append(Peek(request: request, early: simulation.random.oneIn(2) ? request.perform(on: disk) : nil))
  }

  func read(_ request: LoadRequest) -> StoredChannel? { try? disk.read(request.shard, request.channel) }

  /// Only trimming reads steps, and these histories are too short for it.
  func readSteps(_ request: StepRequest) { simulation.faults.append("steps are read: \(request)") }

  func deliver(_ deliveries: [MembershipDelivery]) {
    if isFollower { simulation.faults.append("a follower sends changes") }
    simulation.post(.changes(deliveries))
  }

  func confirm(_ confirmations: [MembershipConfirmation]) {
    simulation.post(.taken(confirmations))
  }

  func sliceLater() { isSliceRequested = true }

  func slice() {
    guard isSliceRequested else { return }
    isSliceRequested = false
    setClock(simulation.clock)
    simulation.closingConnections = []
    loop.slice()
    if !isFollower { simulation.checkLookedUp(self) }
  }

  func noteDecision(_ decision: SchedulingDecision) {
    if case .install(let request, _, _) = decision { kept.removeAll { $0.request == request } }
    if !isFollower { simulation.noteDecision(decision, self) }
  }

  func purge() { simulation.faults.append("an unrequested purge") }

  func reportError(_ error: StorageError) {
    if case .failed = error { return }
    simulation.faults.append("\(error)")
  }

  func loopHalted(_ error: StorageError) { isHalted = true }
}
