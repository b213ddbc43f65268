import ReceiptModel
import StoreEngine
import StoreTestSupport
import TestSupport

/// A machine of the cluster: its clock, its storage, and the process that runs on it or does not.
final class SimulatedNode {
  /// A mistake that a node makes, to show that the simulation notices it.
  enum Defect: Hashable {
    /// The lease counts from the last sending of a record instead of the first (C4).
    case countsLeaseFromLastSending
    /// A record that is sent again has grown meanwhile (C2).
    case replacesUndecidedRecord
    /// The record after the undecided one is sent too (C2).
    case sendsAhead
    /// A write is acknowledged when it is sent (C3).
    case acknowledgesEarly
    /// A member reports what it has stored instead of what it has synced (C7).
    case reportsUnsynced
    /// An owner answers without a lease (C4).
    case ignoresLease
    /// A member reports the newest key before it has it (C12).
    case reportsKeysEarly
    /// A member reports purges before they are done (C12).
    case reportsPurgesEarly
    /// An owner writes the newest level that it supports (C13).
    case writesNewestLevel
    /// A member applies records of a level that it does not support (C13).
    case followsAnyLevel
    /// A node that lost a group and owns it again takes requests before the gateway has confirmed the loss.
    case takesRequestsBeforePong
  }

  let id: NodeID
  private unowned let simulation: ClusterSimulation
  /// Seconds of this node's clock in one second, and its reading at the start.
  private let rate: Double
  private let offset: Int64
  /// How far its time of day is off, in milliseconds.
  private let wallOffset: Int64
  let storage: [any SimulatedStorage]
  /// The levels that the node's program supports.
  private(set) var levels = SimulatedNode.oldProgram
  private(set) var process: SimulatedProcess?
  /// Calls that arrived while the process was stopped; nil while it runs.
  private var backlog: [() -> Void]?

  init(id: NodeID, simulation: ClusterSimulation) {
    self.id = id
    self.simulation = simulation
    rate = 0.9 + Double(simulation.random.below(2_001)) / 10_000
    offset = simulation.random.milliseconds(0...100_000_000)
    wallOffset = Int64(simulation.random.below(7_200_000)) - 3_600_000
    storage = (0..<simulation.groupCount).map { _ in simulation.makeStorage() }
  }

  var clock: BootTime { BootTime(nanoseconds: offset + Int64(Double(simulation.time.nanoseconds) * rate)) }

  /// The simulation's time at which the clock shows `reading`.
  func simulatedTime(of reading: BootTime) -> Int64 {
    Int64((Double(reading.nanoseconds - offset) / rate).rounded(.up)) + 1
  }

  /// The node's time of day, an hour off or less.
  var wallClock: Timestamp {
    Timestamp(milliseconds: 1_700_000_000_000 + wallOffset + simulation.time.nanoseconds / 1_000_000)
  }

  // MARK: Programs

  static let oldProgram = ClusterLevel.oldest...ClusterLevel.oldest
  static let newProgram = ClusterLevel.oldest...ClusterLevel(ClusterLevel.oldest.rawValue + 1)

  /// Limits for the node's next process.
  var limits: ClusterLimits {
    var limits = simulation.settings.limits
    limits.levels = levels
    if simulation.settings.defects.contains(.followsAnyLevel) { limits.levels = levels.lowerBound...ClusterLevel(9) }
    return limits
  }

  /// Install another program. The process crashes, and the next one uses it.
  func install(_ levels: ClosedRange<ClusterLevel>) {
    crash()
    self.levels = levels
  }

  /// Runs `body` in the process: now, or when it resumes.
  func run(_ body: @escaping () -> Void) {
    guard backlog == nil else {
      backlog?.append(body)
      return
    }
    body()
  }

  /// Start a process. A program that does not support the cluster's level refuses to start, and the new one is
  /// installed.
  ///
  /// - Parameter checksLevel: false: the level was raised since the process has checked it.
  func start(checksLevel: Bool = true) {
    guard process == nil else { return }
    if checksLevel, let level = simulation.log.level, !levels.contains(level) {
      levels = Self.newProgram
      simulation.tally.refusedStarts += 1
    }
    process = SimulatedProcess(node: self, simulation: simulation)
    process?.start()
  }

  func crash() {
    process?.close()
    process = nil
    backlog = nil
    for group in storage { group.crash(&simulation.random) }
  }

  func stop() {
    if process != nil, backlog == nil { backlog = [] }
  }

  func resume() {
    guard let calls = backlog else { return }
    backlog = nil
    // Order of signals, timers and sockets is the kernel's.
    for call in simulation.random.shuffledSlightly(calls) { call() }
  }
}

extension SplitMix64 {
  /// The calls in their order, except that the last one may come first: a timer before the sockets.
  fileprivate mutating func shuffledSlightly(_ calls: [() -> Void]) -> [() -> Void] {
    guard let last = calls.last, oneIn(2) else { return calls }
    return [last] + calls.dropLast()
  }
}
