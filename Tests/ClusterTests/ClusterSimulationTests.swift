import StoreEngine
import StoreTestSupport
import Synchronization
import TestSupport
import Testing

/// Groups, owners and members under a simulated log, network, clocks and crashes.
///
/// `TIDEMARK_SEED=n` runs the simulation of that seed, `TIDEMARK_SEEDS=n` the simulations 1 to n.
@Suite("Cluster simulation", .computing)
struct ClusterSimulationTests {
  static let seeds = TestRun.seeds(23, long: 3_000)
  static let awaySeeds = TestRun.seeds(4, long: 1_000)
  static let storeSeeds = TestRun.seeds(2, long: 200)
  static let gatewaySeeds = TestRun.seeds(23, long: 600)
  static let purgeSeeds = TestRun.seeds(3, long: 400)

  /// Counts over the finished simulations of a test.
  private struct Totals {
    var done = 0
    var commands = 0
    var reads = 0
    var snapshots = 0
    /// Purges that have ended.
    var purges = 0
    var tally: [String: Int] = [:]
  }

  private static let totals = Mutex<[String: Totals]>([:])

  /// Run a simulation to its end; record its faults, and that it did something.
  ///
  /// - Returns: the counts over all simulations of this name so far.
  private static func run(_ simulation: ClusterSimulation, _ name: String, _ seed: UInt64) -> Totals {
    simulation.run()
    let counts = simulation.tally.counts
    let (commands, reads) = (simulation.issued, simulation.oracle.reads)
    print(
      "\(name) \(seed): \(commands) commands, \(reads) reads, "
        + counts.map { "\($0.count) \($0.name)" }.joined(separator: ", ")
    )
    for fault in simulation.oracle.faults { Issue.record("TIDEMARK_SEED=\(seed): \(fault)") }
    #expect(commands > 0 && reads > 0, "TIDEMARK_SEED=\(seed): nothing happened")
    return totals.withLock { totals in
      var all = totals[name] ?? Totals()
      all.done += 1
      all.commands += commands
      all.reads += reads
      all.snapshots += simulation.tally.snapshots
      all.purges += simulation.tally.purges
      for (name, count) in counts { all.tally[name, default: 0] += count }
      totals[name] = all
      return all
    }
  }

  @Test(
    "a simulated cluster loses no acknowledged write, applies none twice, and shows no stale read",
    arguments: seeds
  )
  func simulatedClusterLosesNoWrite(seed: UInt64) {
    TestRun.printSeed(seed, of: "cluster simulation")
    let all = Self.run(ClusterSimulation(seed: seed), "cluster simulation", seed)
    guard all.done == Self.seeds.count, all.done >= 23 else { return }
    print("cluster simulation: \(all.commands) commands under \(all.done) seeds")
    // Otherwise the simulations would prove too little.
    #expect(all.commands >= 100_000)
    for (name, count) in all.tally { #expect(count > 50, "only \(count) \(name)") }
  }

  /// The node's code with real shards, sessions, pages and replies; the same faults.
  @Test(
    "store loops behind a simulated log lose no acknowledged command, apply none twice, and show no stale state",
    arguments: storeSeeds
  )
  func storeLoopsLoseNoCommand(seed: UInt64) {
    TestRun.printSeed(seed, of: "store loops")
    var settings = ClusterSimulation.Settings()
    settings.shards = .storeLoops
    // Every second one has commits of several records.
    let isSplit = seed % 2 == 0
    if isSplit { settings.limits.payloadBytesMax = 60 }
    let simulation = ClusterSimulation(seed: seed, settings: settings)
    let all = Self.run(simulation, "store loops", seed)
    if isSplit { #expect(simulation.oracle.partCount > 20, "TIDEMARK_SEED=\(seed)") }
    print("store loops: \(all.commands) commands, \(all.reads) reads, \(all.tally) under \(all.done) seeds")
  }

  fileprivate static var gatewaySettings: ClusterSimulation.Settings {
    var settings = ClusterSimulation.Settings()
    settings.shards = .storeLoops
    settings.gatewayCount = 2
    settings.disturbances += [.cutGateway, .cutGateway, .cutGateway, .bounce]
    return settings
  }

  /// The gateways' code before the nodes' code; the same faults, and those of the connections between them.
  @Test(
    "gateways before store loops lose no acknowledged command, apply none twice, and show no stale state",
    arguments: gatewaySeeds
  )
  func gatewaysLoseNoCommand(seed: UInt64) {
    TestRun.printSeed(seed, of: "gateways")
    var settings = Self.gatewaySettings
    // Every second one has commits of several records.
    if seed % 2 == 0 { settings.limits.payloadBytesMax = 60 }
    let simulation = ClusterSimulation(seed: seed, settings: settings)
    let all = Self.run(simulation, "gateways", seed)
    print("gateways \(seed): \(simulation.tally.unavailable) unavailable, \(simulation.tally.unknown) unknown")
    guard all.done == Self.gatewaySeeds.count, all.done >= 23 else { return }
    print("gateways: \(all.commands) commands, \(all.reads) reads, \(all.tally) under \(all.done) seeds")
    #expect(all.commands >= 100_000 && all.reads >= 100_000)
    for (name, count) in all.tally { #expect(count > 40, "only \(count) \(name)") }
  }

  /// One fault at a time: no client notices more than a pause.
  @Test("no request fails when nodes crash, stop, leave or give groups away", arguments: TestRun.seeds(1, long: 200))
  func singleFaultsFailNoRequest(seed: UInt64) {
    TestRun.printSeed(seed, of: "single faults")
    var settings = Self.gatewaySettings
    settings.disturbances = [.crash, .crash, .stop, .leave, .move, .election]
    settings.pauses = 8_000...10_000
    settings.seconds = 60
    settings.messageFaults = ClusterSimulation.MessageFaults.none
    let simulation = ClusterSimulation(seed: seed, settings: settings)
    _ = Self.run(simulation, "single faults", seed)
    #expect(simulation.tally.unavailable == 0 && simulation.tally.unknown == 0, "TIDEMARK_SEED=\(seed)")
  }

  /// Members that are away hold the trims for a few seconds only, and take snapshots when they are back.
  private static var awaySettings: ClusterSimulation.Settings {
    var settings = ClusterSimulation.Settings()
    settings.limits.awayMilliseconds = 3_000
    settings.limits.awayBytesMin = 200
    settings.limits.joiningMilliseconds = 6_000
    settings.limits.joiningBytesMax = 20_000
    settings.disturbances = [.away, .away, .away, .crash, .stop, .cut, .election, .move, .leave]
    settings.takesSnapshots = true
    return settings
  }

  @Test("members that were away take snapshots, and the cluster loses nothing", arguments: awaySeeds)
  func absentMembersTakeSnapshots(seed: UInt64) {
    TestRun.printSeed(seed, of: "members away")
    let simulation = ClusterSimulation(seed: seed, settings: Self.awaySettings)
    let all = Self.run(simulation, "members away", seed)
    print("members away \(seed): \(simulation.tally.snapshots) snapshots")
    guard all.done == Self.awaySeeds.count, all.done >= 4 else { return }
    #expect(all.snapshots > 0)
  }

  /// Sets get other members; those that are left out remove what they have.
  @Test("sets change, and the cluster loses nothing", arguments: awaySeeds)
  func changedSetsLoseNothing(seed: UInt64) {
    TestRun.printSeed(seed, of: "changed sets")
    var settings = Self.awaySettings
    settings.disturbances = [.resize, .resize, .resize, .move, .leave, .away, .crash, .stop, .cut, .election]
    settings.nodeCount = 5
    let simulation = ClusterSimulation(seed: seed, settings: settings)
    _ = Self.run(simulation, "changed sets", seed)
    let tally = simulation.tally
    print("changed sets \(seed): \(tally.removals) removals, \(tally.snapshots) snapshots")
    #expect(tally.removals + tally.snapshots > 0, "TIDEMARK_SEED=\(seed)")
  }

  /// The same with the node's code.
  @Test("sets of store loops change, and the cluster loses nothing", arguments: TestRun.seeds(2, long: 300))
  func changedSetsOfStoreLoopsLoseNothing(seed: UInt64) {
    TestRun.printSeed(seed, of: "changed sets of store loops")
    var settings = Self.awaySettings
    settings.shards = .storeLoops
    settings.disturbances = [.resize, .resize, .resize, .move, .leave, .away, .crash, .stop, .cut, .election]
    settings.nodeCount = 5
    let simulation = ClusterSimulation(seed: seed, settings: settings)
    _ = Self.run(simulation, "changed sets of store loops", seed)
    let tally = simulation.tally
    print("changed sets of store loops \(seed): \(tally.removals) removals, \(tally.snapshots) snapshots")
    #expect(tally.removals + tally.snapshots > 0, "TIDEMARK_SEED=\(seed)")
  }

  fileprivate static var purgeSettings: ClusterSimulation.Settings {
    var settings = awaySettings
    settings.shards = .storeLoops
    settings.limits.keyMilliseconds = 5_000
    settings.limits.purgeMilliseconds = 3_000
    settings.disturbances = [.purge, .purge, .purge, .move, .leave, .away, .crash, .stop, .cut, .election, .resize]
    return settings
  }

  /// What was logged before a purge is gone from all members, and every record can be read by those who need it.
  @Test(
    "a purge leaves no member a key or a batch from before it, and the cluster loses nothing",
    arguments: purgeSeeds
  )
  func purgesLeaveNothingAndLoseNothing(seed: UInt64) {
    TestRun.printSeed(seed, of: "purges")
    let simulation = ClusterSimulation(seed: seed, settings: Self.purgeSettings)
    let all = Self.run(simulation, "purges", seed)
    let tally = simulation.tally
    print("purges \(seed): \(tally.purges) of \(tally.purgesAsked) purges, \(tally.snapshots) snapshots")
    guard all.done == Self.purgeSeeds.count, all.done >= 3 else { return }
    #expect(all.purges > all.done)
  }

  fileprivate static var upgradeSettings: ClusterSimulation.Settings {
    var settings = awaySettings
    settings.disturbances = [
      .upgrade, .raise, .raise, .raise, .move, .leave, .refuse, .away, .crash, .stop, .cut, .resize,
    ]
    settings.nodeCount = 4
    return settings
  }

  /// Nodes get newer programs, and older ones again, and the level is raised while some of them run.
  @Test(
    "no node applies a record of a level that it does not support, and upgrades lose nothing",
    arguments: TestRun.seeds(2, long: 400),
    [ClusterSimulation.Shards.registers, .storeLoops]
  )
  func upgradesLoseNothing(seed: UInt64, shards: ClusterSimulation.Shards) {
    TestRun.printSeed(seed, of: "upgrades")
    var settings = Self.upgradeSettings
    settings.shards = shards
    let simulation = ClusterSimulation(seed: seed, settings: settings)
    _ = Self.run(simulation, "upgrades of \(shards)", seed)
    let tally = simulation.tally
    print(
      "upgrades \(seed): \(tally.upgrades), level \(simulation.log.level!.rawValue), \(tally.refusedStarts) refused"
    )
    let total = Self.upgradeTotal.withLock { total in
      total.done += 1
      total.raised += simulation.log.level == .oldest ? 0 : 1
      total.unsupported += tally.unsupported
      return total
    }
    guard total.done >= 8 else { return }
    #expect(total.raised * 2 >= total.done && total.unsupported * 4 >= total.done, "\(total)")
  }

  /// Finished simulations, those whose level was raised, and groups of nodes that did not support it.
  private static let upgradeTotal = Mutex((done: 0, raised: 0, unsupported: 0))

  /// Shows that the simulations above need their snapshots.
  @Test("control: without snapshots a member that was away cannot follow again")
  func membersThatAreAwayWithoutSnapshots() {
    var settings = Self.awaySettings
    settings.takesSnapshots = false
    let faults = (1...20).lazy.compactMap { seed -> String? in
      let simulation = ClusterSimulation(seed: UInt64(seed), settings: settings)
      simulation.run()
      return simulation.oracle.faults.first
    }
    #expect(faults.first?.contains("C7: ") == true)
  }

  /// Something that keeps an invariant (docs/contribute/cluster-design.md), and that is missing in a test.
  enum Guard: String, CaseIterable {
    case ownerCompare, ownerCompareWhileSendingAhead, positionCompare, predecessorCompare, lastRecordKept
    case oneRecordPerPosition
    case acknowledgementAfterCommit
    case leaseFromFirstSending, leaseShorterThanWait
    case leaseShorterThanWaitOfStoreLoops, leaseOfStoreLoops
    case trimBehindEveryMember, trimBehindEveryMemberOfStoreLoops
    case keyOfEnoughMembers, purgeOfEveryMember
    case levelOfCluster, levelOfMember, levelOfMemberOfStoreLoops
    case lossConfirmedByGateway

    var settingsWithout: ClusterSimulation.Settings {
      var settings = ClusterSimulation.Settings()
      switch self {
      // C1
      case .ownerCompare:
        settings.missingChecks = [.owner]
        settings.seconds = 12
        settings.limits.trimRecordsMin = 1
        settings.messageFaults = ClusterSimulation.MessageFaults(
          lossPercent: 0,
          slowPercent: 25,
          doubledPercent: 60
        )
      case .ownerCompareWhileSendingAhead:
        settings.missingChecks = [.owner]
        settings.defects = [.sendsAhead]
      case .positionCompare: settings.missingChecks = [.position]
      case .predecessorCompare: settings.missingChecks = [.predecessor]
      case .lastRecordKept: settings.missingChecks = [.lastRecord]
      // C2
      case .oneRecordPerPosition: settings.defects = [.replacesUndecidedRecord]
      // C3
      case .acknowledgementAfterCommit: settings.defects = [.acknowledgesEarly]
      // C4
      case .leaseFromFirstSending: settings.defects = [.countsLeaseFromLastSending]
      case .leaseShorterThanWait: settings.limits.leaseMilliseconds = 2_600
      case .leaseShorterThanWaitOfStoreLoops:
        // Reads of store loops are rarer than those of registers: 2.6 s was not noticed under 60 seeds.
        // `leaseShorterThanWait` has the boundary.
        settings.shards = .storeLoops
        settings.disturbances = [.stop, .stop, .cut]
        settings.nodeCount = 3
        settings.limits.leaseMilliseconds = 3_500
      case .leaseOfStoreLoops:
        settings.shards = .storeLoops
        settings.disturbances = [.stop, .stop, .cut]
        settings.nodeCount = 3
        settings.defects = [.ignoresLease]
      // C7
      case .trimBehindEveryMember: settings.defects = [.reportsUnsynced]
      case .trimBehindEveryMemberOfStoreLoops:
        settings.shards = .storeLoops
        settings.defects = [.reportsUnsynced]
      // C12
      case .keyOfEnoughMembers:
        settings.shards = .storeLoops
        settings.limits.keyMilliseconds = 2_000
        settings.defects = [.reportsKeysEarly]
      case .purgeOfEveryMember:
        settings = ClusterSimulationTests.purgeSettings
        settings.defects = [.reportsPurgesEarly]
      // C13
      case .levelOfCluster:
        settings = ClusterSimulationTests.upgradeSettings
        settings.defects = [.writesNewestLevel]
      case .levelOfMember:
        settings = ClusterSimulationTests.upgradeSettings
        settings.defects = [.followsAnyLevel]
      case .levelOfMemberOfStoreLoops:
        settings = ClusterSimulationTests.upgradeSettings
        settings.shards = .storeLoops
        settings.defects = [.followsAnyLevel]
      // Proto/frames.md, "Shards of a cluster"
      case .lossConfirmedByGateway:
        // Commands have to be under way all the time.
        settings = ClusterSimulationTests.gatewaySettings
        settings.disturbances = [.bounce]
        settings.nodeCount = 3
        settings.pauses = 4_000...9_000
        settings.clientPauses = 0...3_000
        settings.defects = [.takesRequestsBeforePong]
      }
      return settings
    }

    /// The invariants that fail without it.
    var invariants: [String] {
      switch self {
      case .ownerCompare, .ownerCompareWhileSendingAhead, .positionCompare, .predecessorCompare: ["C1"]
      case .lastRecordKept: ["C7", "liveness"]
      case .oneRecordPerPosition: ["C1", "C3"]
      case .acknowledgementAfterCommit: ["C3"]
      case .leaseFromFirstSending, .leaseShorterThanWait, .leaseShorterThanWaitOfStoreLoops,
        .leaseOfStoreLoops:
        ["C4"]
      case .trimBehindEveryMember, .trimBehindEveryMemberOfStoreLoops: ["C7"]
      case .keyOfEnoughMembers: ["C12"]
      case .purgeOfEveryMember: ["C12"]
      case .levelOfCluster, .levelOfMember, .levelOfMemberOfStoreLoops: ["C13"]
      case .lossConfirmedByGateway: ["C3"]
      }
    }
  }

  /// Shows that the simulation can fail.
  ///
  /// The owner compare is the last of several guards. While one record is in flight, a deposed owner's record also
  /// finds its position taken; only a late claim of position 1, below the trim, shows that the compare is missing. An
  /// owner that sends ahead needs it at once.
  @Test("control: a missing guard is detected", arguments: Guard.allCases)
  func missingGuardIsDetected(missing: Guard) {
    let seedsMax: UInt64 = 60
    for seed in 1...seedsMax {
      let simulation = ClusterSimulation(seed: seed, settings: missing.settingsWithout)
      simulation.run()
      guard let fault = simulation.oracle.faults.first else { continue }
      print("without \(missing): seed \(seed): \(fault)")
      #expect(missing.invariants.contains { fault.contains("\($0): ") })
      return
    }
    Issue.record("no fault without \(missing) under \(seedsMax) seeds")
  }

  @Test(
    "an owner that sends ahead is harmless while the log compares the owner",
    arguments: TestRun.seeds(2, long: 100)
  )
  func ownerThatSendsAheadIsHarmless(seed: UInt64) {
    TestRun.printSeed(seed, of: "owner that sends ahead")
    var settings = ClusterSimulation.Settings()
    settings.defects = [.sendsAhead]
    _ = Self.run(ClusterSimulation(seed: seed, settings: settings), "owner that sends ahead", seed)
  }

  @Test("an election of the log's leader deposes no owner", arguments: TestRun.seeds(2, long: 100))
  func electionDeposesNoOwner(seed: UInt64) {
    TestRun.printSeed(seed, of: "elections")
    var settings = ClusterSimulation.Settings()
    settings.disturbances = [.election]
    settings.limits.steadyMilliseconds = Self.noMoves
    settings.messageFaults = ClusterSimulation.MessageFaults.none
    let simulation = ClusterSimulation(seed: seed, settings: settings)
    _ = Self.run(simulation, "elections", seed)
    #expect(simulation.tally.elections > 10)
    #expect(simulation.tally.promotions == simulation.groupCount)
  }

  @Test("a crashed owner's group has an owner again within 3 s", arguments: TestRun.seeds(4, long: 200))
  func groupOfCrashedOwnerIsTakenOver(seed: UInt64) {
    TestRun.printSeed(seed, of: "take-over")
    let simulation = Self.calmCluster(seed, steadyMilliseconds: Self.noMoves)
    #expect(simulation.tally.promotions == 1)
    simulation.crash(simulation.owner())
    simulation.run(milliseconds: 3_000)
    #expect(simulation.tally.promotions == 2)
    #expect(simulation.nodes.contains { $0.process?.groups[0].isOwner == true })
    #expect(simulation.oracle.faults == [])
  }

  @Test("a planned move takes less than 100 ms", arguments: TestRun.seeds(4, long: 200))
  func plannedMoveTakesLessThan100Milliseconds(seed: UInt64) throws {
    TestRun.printSeed(seed, of: "planned move")
    let simulation = Self.calmCluster(seed, steadyMilliseconds: 2_000)
    let before = simulation.tally.releases + simulation.tally.depositions
    let owner = simulation.owner()
    let target = try #require(simulation.nodes.first { $0 !== owner })
    simulation.move(GroupID(0), to: target.id)
    // The owner learns of it by a probe.
    simulation.run(milliseconds: 700) { owner.process?.groups[0].isOwner == true }
    simulation.run(milliseconds: 100)
    #expect(target.process?.groups[0].isOwner == true && owner.process?.groups[0].isOwner == false)
    // The owner learns of it by the release's answer or by the target's claim.
    #expect(simulation.tally.releases + simulation.tally.depositions == before + 1)
    #expect(simulation.oracle.faults == [])
  }

  /// So long that no group moves to its preferred owner.
  private static let noMoves: Int64 = 1_000_000_000

  /// Three nodes whose first group has an owner, all of them up.
  private static func calmCluster(_ seed: UInt64, steadyMilliseconds: Int64) -> ClusterSimulation {
    var settings = ClusterSimulation.Settings()
    settings.limits.steadyMilliseconds = steadyMilliseconds
    settings.disturbances = []
    settings.messageFaults = ClusterSimulation.MessageFaults.none
    settings.nodeCount = 3
    settings.groupCount = 1
    let simulation = ClusterSimulation(seed: seed, settings: settings)
    simulation.start()
    simulation.run(milliseconds: 10_000)
    return simulation
  }

  @Test("a replay takes the same steps", arguments: TestRun.seeds(1, long: 30))
  func replayTakesTheSameSteps(seed: UInt64) {
    TestRun.printSeed(seed, of: "replayed cluster simulation")
    let first = ClusterSimulation(seed: seed)
    first.run()
    let second = ClusterSimulation(seed: seed)
    second.run()
    #expect(first.tally.counts.map(\.count) == second.tally.counts.map(\.count))
    #expect(first.issued > 0 && first.issued == second.issued && first.oracle.reads == second.oracle.reads)
    let groups = (0..<first.groupCount).map { GroupID(UInt8($0)) }
    #expect(first.log.ends(of: groups) == second.log.ends(of: groups))
  }
}
