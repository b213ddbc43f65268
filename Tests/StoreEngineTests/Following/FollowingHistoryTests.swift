import Synchronization
import TestSupport
import Testing

/// Random histories of followers. `TIDEMARK_SEED=n` runs the history of that seed, `TIDEMARK_SEEDS=n` the histories 1
/// to n. `TIDEMARK_STEPS=n` sets the number of steps in each.
@Suite("Following, random histories", .computing)
struct FollowingHistoryTests {
  static let seeds = TestRun.seeds(8, long: 2_000)
  static let steps = TestRun.number("TIDEMARK_STEPS") ?? 1_200

  private static let all = Mutex<[String: Int]>([:])

  /// Runs a history, and adds what it covered. Any error carries the seed.
  private static func run(_ seed: UInt64, _ body: (FollowingHistory) throws -> Void) throws {
    TestRun.printSeed(seed, steps: steps, of: "history of followers")
    do {
      let history = try FollowingHistory(seed: seed)
      try body(history)
      all.withLock { $0.merge(history.tally) { $0 + $1 } }
    } catch let fault as HistoryFault {
      throw fault
    } catch {
      throw HistoryFault(seed: seed, text: "\(error)")
    }
  }

  @Test("an owner and its followers write the same pages and give the same answers (C8)")
  func equalPages() throws {
    for seed in Self.seeds {
      try Self.run(seed) { history in
        try history.steps(Self.steps)
        try history.compare()
      }
    }
    report([
      "drops", "crashes within a commit", "followers' evictions", "followers' loads", "postponed requests",
    ])
  }

  @Test("a follower promoted at a random moment goes on like an owner that recovers the whole log")
  func promotedFollowerContinuesLikeOwner() throws {
    for seed in Self.seeds {
      try Self.run(seed) { history in
        var random = SplitMix64(seed: seed)
        try history.steps(100 + random.below(Self.steps))
        try history.promote()
      }
    }
    report([
      "promotions", "promotions within a commit", "promotions with a tail", "resent commands",
      "unclear groups",
    ])
  }

  /// Prints what the histories covered, and checks that they covered these.
  private func report(_ names: [String]) {
    let all = Self.all.withLock { $0 }
    let words = all.sorted { $0.key < $1.key }.map { "\($0.value) \($0.key)" }.joined(separator: ", ")
    print("\(Self.seeds.count) histories: \(words)")
    guard Self.seeds.count >= 8, Self.steps >= 1_200 else { return }
    for name in names { #expect(all[name, default: 0] > 0, "never \(name)") }
  }

  /// Shows that the comparison can fail.
  @Test("control: a broken follower is detected", arguments: Follower.Defect.allCases)
  func brokenFollowerIsDetected(defect: Follower.Defect) throws {
    let isNoticed = try (1...UInt64(8)).contains { seed in
      let history = try FollowingHistory(seed: seed)
      history.followers[1].defect = defect
      do {
        try history.steps(1_000)
        try history.compare()
        return false
      } catch {
        print("\(defect), seed \(seed): \(error)")
        return true
      }
    }
    #expect(isNoticed)
  }
}
