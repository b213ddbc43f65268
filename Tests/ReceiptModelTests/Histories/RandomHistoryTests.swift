import Synchronization
import TestSupport
import Testing

/// Random histories against the naive model.
///
/// `TIDEMARK_SEED=n` runs the history of that seed, `TIDEMARK_SEEDS=n` the histories 1 to n. `TIDEMARK_STEPS=n` sets
/// the number of commands in each: with 500 seeds they are a million. A failure reports both, and reproduces at the
/// same step.
@Suite("Random histories", .computing)
struct RandomHistoryTests {
  /// 100 histories of 2,000 commands: 200,000 in all. They are short, because the oracle scans each history many times.
  static let seeds = TestRun.seeds(100, long: 500)
  static let steps = TestRun.number("TIDEMARK_STEPS") ?? 2000

  /// Counts over the finished histories.
  private static let all = Mutex<(done: Int, tally: [String: Int])>((0, [:]))

  @Test("random histories agree with the naive model, and replay", arguments: seeds)
  func randomHistoriesAgreeWithNaiveModel(seed: UInt64) {
    TestRun.printSeed(seed, steps: Self.steps, of: "random history")
    var history = RandomHistory<ShardHarness>(seed: seed)
    do throws(HistoryFault) {
      try history.run(steps: Self.steps)
    } catch {
      Issue.record("\(error)")
      return
    }
    let all = Self.all.withLock { all in
      all.done += 1
      all.tally.merge(history.tally) { $0 + $1 }
      return all
    }
    if all.done == Self.seeds.count, all.done >= 20, Self.steps >= 2000 {
      Self.expectFullCoverage(in: all.tally)
    }
  }

  /// Check that the histories covered every operation; otherwise they would prove too little.
  private static func expectFullCoverage(in tally: [String: Int]) {
    for name in [
      "moved", "same", "created", "acknowledge ok", "acknowledge receipt_expired", "acknowledge own_message",
      "acknowledge receipt_not_requested", "acknowledge message_deleted", "receipt_not_allowed",
      "receipt_limit_reached", "list of readers", "list of delivered", "list of unread", "notes",
      "times not exact", "known", "message_not_found", "message_deleted", "not_a_member",
      "channel_not_found", "mark_unread_off", "checkpoints", "evictions", "crashes", "trims", "comparisons",
      "exact times", "latest times", "in thread: created", "in thread: known", "in thread: moved",
      "in thread: no row", "in thread: invalid_field", "in thread: message_deleted",
      "in thread: message_not_found", "in thread: receipt_not_allowed", "unread threads", "truncate",
      "deleteChannel true", "deleteChannel false", "eraseMember true", "eraseMember false", "eraseUser",
      "assignErased", "user_erased", "push moved", "push same", "ticket", "redeem moved", "redeem same",
      "redeem channel_not_found", "redeem not_a_member", "redeem message_deleted", "marked all",
      "totals of several", "known, no member", "message_conflict", "in thread: message_conflict",
      "in thread: not_in_thread",
    ] {
      #expect(tally[name, default: 0] > 0, "never \(name)")
    }
  }

  @Test("control: the naive model agrees with itself, and every faulty shard is noticed")
  func everyFaultyShardIsNoticed() {
    func isNoticed<Shards: Subject>(_: Shards.Type) -> Bool {
      (UInt64(2)...8)
        .contains { seed in
          var history = RandomHistory<Shards>(seed: seed)
          do throws(HistoryFault) {
            try history.run(steps: 500)
            return false
          } catch {
            return true
          }
        }
    }
    #expect(!isNoticed(NaiveSubject.self))
    #expect(isNoticed(IgnoresTruncation.self))
    #expect(isNoticed(LeavesInsteadOfErasing.self))
    #expect(isNoticed(OmitsFormerMembers.self))
    #expect(isNoticed(StoresDeliveryOnRead.self))
    #expect(isNoticed(CountsThreadsAsMessages.self))
  }

  /// Seed 259506: a member leaves two threads, whose order in memory depends on evictions.
  @Test("random histories are the same for the same seed", arguments: [nil, 259_506] as [UInt64?])
  func randomHistoriesAreSameForSameSeed(fixedSeed: UInt64?) throws {
    let seed = fixedSeed ?? UInt64(TestRun.printedSeed(of: "repeated history"))
    var first = RandomHistory<ShardHarness>(seed: seed)
    var second = RandomHistory<ShardHarness>(seed: seed)
    try first.run(steps: 500)
    try second.run(steps: 500)
    #expect(
      first.shard.shards.map { $0.log.map(\.effects) } == second.shard.shards.map { $0.log.map(\.effects) }
    )
    #expect(first.shard.shards.map { $0.digest() } == second.shard.shards.map { $0.digest() })
  }
}
