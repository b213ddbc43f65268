import Testing

@testable import StoreServer

/// Pauses of a node before loops that have failed are made again.
@Suite struct RestartBackoffTests {
  private let start = ContinuousClock.now

  @Test func pausesGrowUpToTheirLimit() {
    var backoff = RestartBackoff()
    let pauses = (0..<9).map { _ in backoff.failed("gap", at: start).pause }
    #expect(pauses == [0, 0.5, 1, 2, 4, 8, 16, 30, 30].map { .seconds($0) })
    #expect((0..<100).map { _ in backoff.failed("gap", at: start).pause }.allSatisfy { $0 == .seconds(30) })
  }

  @Test func reasonIsNewOnce() {
    var backoff = RestartBackoff()
    let isNew = ["gap", "gap", "no space", "no space", "gap"].map { backoff.failed($0, at: start).isNew }
    #expect(isNew == [true, false, true, false, true])
  }

  @Test func loopsThatHaveRunForLongFailForFirstTime() {
    var backoff = RestartBackoff()
    for _ in 0..<3 { _ = backoff.failed("gap", at: start) }
    backoff.started(at: start)
    #expect(backoff.failed("gap", at: start + .seconds(59)) == .init(pause: .seconds(2), isNew: false))
    backoff.started(at: start)
    #expect(backoff.failed("gap", at: start + .seconds(60)) == .init(pause: .zero, isNew: true))
    // Loops that do not start again were not healthy.
    #expect(backoff.failed("gap", at: start + .seconds(300)) == .init(pause: .milliseconds(500), isNew: false))
  }
}
