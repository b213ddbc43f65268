import Foundation
import Testing

/// The store under simulated gateways, network, clock and disk.
///
/// `TIDEMARK_SEED=n` runs the one simulation of that seed, `TIDEMARK_SEEDS=n` those from 1 to n; `TIDEMARK_STEPS=n` sets how many steps a simulation has, which issue about
/// one command in three. A failure says seed and step: what went wrong there goes wrong there again.
@Suite("Simulation")
struct SimulationTests {
  static let seeds: [UInt64] =
    number("TIDEMARK_SEED").map { [UInt64($0)] } ?? Array(1...UInt64(number("TIDEMARK_SEEDS") ?? 28))
  static let steps = number("TIDEMARK_STEPS") ?? 15_000

  private static func number(_ name: String) -> Int? {
    ProcessInfo.processInfo.environment[name].map { value in
      guard let number = Int(value), number >= 0 else {
        preconditionFailure("\(name) is not a number: \(value)")
      }
      return number
    }
  }

  @Test("loses nothing, applies nothing twice, answers like the naive model", arguments: seeds)
  func simulation(seed: UInt64) {
    print("simulation: TIDEMARK_SEED=\(seed) TIDEMARK_STEPS=\(Self.steps)")
    let simulation = Simulation(seed: seed)
    do throws(SimulationFault) {
      try simulation.run(steps: Self.steps)
    } catch {
      Issue.record("\(error)")
      return
    }
    let tally = simulation.tally.sorted { $0.key < $1.key }.map { "\($0.value) \($0.key)" }
    print("simulation \(seed): \(simulation.issued) commands, \(tally.joined(separator: ", "))")
    guard Self.steps >= 15_000 else { return }
    // A simulation that never comes by these would prove less than it seems to.
    let rare = simulation.isShortOfMemory ? "evicted" : "code 34"
    for name in [
      rare, "replies", "waits", "cuts", "ended", "resends", "restarts", "failed reads", "clock jumps",
      "code 20",
      "code 22", "code 30", "code 31", "code 32", "code 33", "pages", "log cuts",
      "rows over 256",
    ] {
      #expect(simulation.tally[name, default: 0] > 0, "TIDEMARK_SEED=\(seed): never \(name)")
    }
  }
}
