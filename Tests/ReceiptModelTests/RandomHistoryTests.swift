import Foundation
import Testing

/// Random histories against the naive model (STYLE.md, habits 12 and 13).
///
/// `TIDEMARK_SEED=n` runs the one history of that seed, `TIDEMARK_SEEDS=n` those from 1 to n; `TIDEMARK_STEPS=n` sets how many commands a
/// history has: with 500 seeds they are a million. A failure says both: what went wrong at a step goes wrong again at it.
@Suite("Random histories")
struct RandomHistoryTests {
  /// 100 histories of 2,000 commands: 200,000 in all. They are short, so that the oracle can go through them again and again.
  static let seeds = seeds(default: 100)
  static let steps = number("TIDEMARK_STEPS") ?? 2000

  static func number(_ name: String) -> Int? {
    ProcessInfo.processInfo.environment[name].map { value in
      guard let number = Int(value), number >= 0 else {
        preconditionFailure("\(name) is not a number: \(value)")
      }
      return number
    }
  }

  static func seeds(default count: Int) -> [UInt64] {
    number("TIDEMARK_SEED").map { [UInt64($0)] } ?? Array(1...UInt64(number("TIDEMARK_SEEDS") ?? count))
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
  }

  @Test("come by everything: one that does not would prove less than it seems to")
  func tally() throws {
    var tally: [String: Int] = [:]
    for seed in UInt64(1)...10 {
      var history = RandomHistory(seed: seed)
      try history.run(steps: 2000)
      tally.merge(history.tally) { $0 + $1 }
    }
    for name in [
      "moved", "same", "created", "acknowledge ok", "acknowledge receipt_expired", "acknowledge own_message",
      "acknowledge receipt_not_requested", "acknowledge message_deleted", "receipt_not_allowed",
      "receipt_limit_reached", "list of readers", "list of delivered", "list of unread", "notes",
      "times not exact", "known", "message_not_found", "message_deleted", "not_a_member",
      "channel_not_found", "mark_unread_off", "checkpoints", "evictions", "crashes", "trims", "comparisons",
      "exact times", "latest times",
    ] {
      #expect(tally[name, default: 0] > 0, "never \(name)")
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
