import Foundation
import Testing

/// Random histories against the naive model (STYLE.md, habits 12 and 13).
///
/// `TIDEMARK_SEED=n` runs the one history of that seed; `TIDEMARK_STEPS=n` sets how many commands a history has. A failure says
/// both: what went wrong at a step goes wrong again at it.
@Suite("Random histories")
struct RandomHistoryTests {
  /// 48 seeds of 4,500 commands: 216,000 in all.
  static let seeds: [UInt64] = number("TIDEMARK_SEED").map { [UInt64($0)] } ?? Array(1...48)
  static let steps = number("TIDEMARK_STEPS") ?? 4500

  private static func number(_ name: String) -> Int? {
    ProcessInfo.processInfo.environment[name].map { value in
      guard let number = Int(value), number >= 0 else {
        preconditionFailure("\(name) is not a number: \(value)")
      }
      return number
    }
  }

  @Test("agree with the naive model, and replay", arguments: seeds)
  func history(seed: UInt64) {
    print("random history: TIDEMARK_SEED=\(seed) TIDEMARK_STEPS=\(Self.steps)")
    var history = RandomHistory(seed: seed)
    do throws(HistoryFault) {
      try history.run(steps: Self.steps)
    } catch {
      Issue.record("\(error)")
      return
    }
    guard Self.steps >= 4500 else { return }
    // A history that never comes by these would prove less than it seems to.
    for name in [
      "moved", "same", "created", "known", "message_not_found", "message_deleted", "not_a_member",
      "channel_not_found", "checkpoints", "evictions", "crashes", "comparisons",
    ] {
      #expect(history.tally[name, default: 0] > 0, "TIDEMARK_SEED=\(seed): never \(name)")
    }
  }

  @Test("are the same for the same seed")
  func repeatable() throws {
    var first = RandomHistory(seed: 7)
    var second = RandomHistory(seed: 7)
    try first.run(steps: 500)
    try second.run(steps: 500)
    #expect(first.shard.log.map(\.effects) == second.shard.log.map(\.effects))
    #expect(first.shard.digest() == second.shard.digest())
  }
}
