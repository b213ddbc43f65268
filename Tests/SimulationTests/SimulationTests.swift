import Foundation
import Synchronization
import TestSupport
import Testing

/// The store under simulated gateways, network, clock and disk.
///
/// `TIDEMARK_SEED=n` runs the simulation of that seed, `TIDEMARK_SEEDS=n` the simulations 1 to n. `TIDEMARK_STEPS=n`
/// sets the number of steps in each, about one in three of which issues a command. A failure reports seed and step, and
/// reproduces at the same step.
@Suite("Simulation", .computing)
struct SimulationTests {
  static let seeds = TestRun.seeds(20, long: 400)
  static let steps = TestRun.number("TIDEMARK_STEPS") ?? 15_000

  /// Counts over the simulations that have ended.
  private static let all = Mutex<(done: Int, tally: [String: Int])>((0, [:]))

  @Test(
    "a simulated store loses nothing, applies no command twice, and answers like the naive model",
    arguments: seeds
  )
  func simulatedStoreLosesNothing(seed: UInt64) {
    TestRun.printSeed(seed, steps: Self.steps, of: "simulation")
    let simulation = Simulation(seed: seed)
    let isFinished: Bool
    do throws(SimulationFault) {
      try simulation.run(steps: Self.steps)
      isFinished = true
    } catch {
      Issue.record("\(error)")
      isFinished = false
    }
    let tally = simulation.tally.sorted { $0.key < $1.key }.map { "\($0.value) \($0.key)" }
    print("simulation \(seed): \(simulation.issued) commands, \(tally.joined(separator: ", "))")
    guard Self.steps >= 15_000 else { return }
    // Checks that the simulation covered these; otherwise it would prove too little.
    let names = [
      "replies", "waits", "cuts", "ended", "resends", "restarts", "failed reads", "clock jumps", "pages",
      "log trims", "rows over 256",
    ]
    let refusals = [
      NaiveShard.Code.wrongShard, NaiveShard.Code.invalidField, NaiveShard.Code.channelNotFound,
      NaiveShard.Code.notAMember, NaiveShard.Code.messageNotFound,
    ]
    for name in names + refusals.map(Simulation.refusal) where isFinished {
      #expect(simulation.tally[name, default: 0] > 0, "TIDEMARK_SEED=\(seed): never \(name)")
    }
    // Rarer events occur in some of the simulations. A failed one counts too, up to its failure.
    let all = Self.all.withLock { all in
      all.done += 1
      all.tally.merge(simulation.tally) { $0 + $1 }
      return all
    }
    guard all.done == Self.seeds.count, all.done >= 20 else { return }
    let rareRefusals = [NaiveShard.Code.unavailable, NaiveShard.Code.messageDeleted]
    for name in [
      "evicted", "deletions in slices", "asked while being deleted", "postponed", "postponed after a load",
      "sliced queries", "sliced queries with changes",
    ]
      + rareRefusals.map(Simulation.refusal)
    {
      #expect(all.tally[name, default: 0] > 0, "never \(name), in all of them")
    }
  }

  /// `TIDEMARK_SEED`, `TIDEMARK_SEEDS` and `TIDEMARK_STEPS` as above.
  @Test(
    "followers that take over lose nothing, apply no command twice, and answer like the naive model",
    arguments: TestRun.seeds(2, long: 400)
  )
  func followersThatTakeOverLoseNothing(seed: UInt64) {
    TestRun.printSeed(seed, steps: Self.steps, of: "simulation with followers")
    let simulation = Simulation(seed: seed, hasFollowers: true)
    do throws(SimulationFault) {
      try simulation.run(steps: Self.steps)
    } catch {
      Issue.record("\(error)")
      return
    }
    let tally = simulation.tally.sorted { $0.key < $1.key }.map { "\($0.value) \($0.key)" }
    print(
      "simulation with followers \(seed): \(simulation.issued) commands, \(tally.joined(separator: ", "))"
    )
    guard Self.steps >= 15_000 else { return }
    for name in ["replies", "resends", "take-overs", "followers' crashes"] {
      #expect(simulation.tally[name, default: 0] > 0, "TIDEMARK_SEED=\(seed): never \(name)")
    }
  }

  /// Shows that the simulation can fail: the store relies on each promise that the disk breaks here.
  @Test("control: a disk that loses synced data is detected", arguments: SimulatedDisk.Defect.allCases)
  func diskThatLosesDataIsDetected(defect: SimulatedDisk.Defect) {
    let isNoticed = (1...UInt64(8)).contains { seed in
      let simulation = Simulation(seed: seed)
      simulation.disk.defect = defect
      do throws(SimulationFault) {
        try simulation.run(steps: 6_000)
        return false
      } catch {
        print("\(defect), seed \(seed): \(error.text)")
        return true
      }
    }
    #expect(isNoticed)
  }

  /// Shows that requests are compared at the moment at which the store performs them.
  @Test("control: a model without slices is detected", arguments: Simulation.ModelMistake.allCases)
  func modelWithoutSlicesIsDetected(mistake: Simulation.ModelMistake) {
    let isNoticed = (1...UInt64(8)).contains { seed in
      let simulation = Simulation(seed: seed)
      simulation.mistake = mistake
      do throws(SimulationFault) {
        try simulation.run(steps: 6_000)
        return false
      } catch {
        print("\(mistake), seed \(seed): \(error.text)")
        return true
      }
    }
    #expect(isNoticed)
  }

  @Test("a replay takes the same steps", arguments: TestRun.seeds(2, long: 40))
  func replayTakesSameSteps(seed: UInt64) throws {
    TestRun.printSeed(seed, of: "replayed simulation")
    let first = Simulation(seed: seed)
    try first.run(steps: 3_000)
    let second = Simulation(seed: seed)
    try second.run(steps: 3_000)
    #expect(first.issued > 0 && first.tally == second.tally)
    #expect(first.issued == second.issued && first.clock == second.clock)
  }
}
