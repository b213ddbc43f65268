import Testing

@testable import Worker

@Suite struct LeaseKeeperTests {
  @Test func answersStartAndStopPartitions() {
    var keeper = LeaseKeeper()
    #expect(keeper.answered(["0/4", "1/4"], sentAt: 0) == [.start("0/4"), .start("1/4")])
    #expect(keeper.answered(["0/4", "1/4"], sentAt: 2_000) == [])
    #expect(keeper.answered(["1/4", "2/4"], sentAt: 4_000) == [.stop("0/4"), .start("2/4")])
    // The stopping partition is held until it has ended, and is not stopped twice.
    #expect(keeper.held == ["0/4", "1/4", "2/4"])
    #expect(keeper.answered(["1/4", "2/4"], sentAt: 6_000) == [])
    keeper.ended("0/4")
    #expect(keeper.held == ["1/4", "2/4"])
  }

  @Test func partitionGrantedAgainStartsAfterItsEnd() {
    var keeper = LeaseKeeper()
    _ = keeper.answered(["0/4"], sentAt: 0)
    #expect(keeper.answered([], sentAt: 1) == [.stop("0/4")])
    #expect(keeper.answered(["0/4"], sentAt: 2) == [])
    keeper.ended("0/4")
    #expect(keeper.answered(["0/4"], sentAt: 3) == [.start("0/4")])
  }

  @Test func silenceCancelsEverythingOnce() {
    var keeper = LeaseKeeper()
    #expect(keeper.tick(now: 1_000_000) == [])
    _ = keeper.answered(["0/4", "1/4"], sentAt: 1_000)
    _ = keeper.answered(["1/4"], sentAt: 1_000)
    #expect(keeper.tick(now: 8_999) == [])
    #expect(keeper.tick(now: 9_000) == [.cancel("0/4"), .cancel("1/4")])
    #expect(keeper.tick(now: 9_001) == [])
    keeper.ended("0/4")
    keeper.ended("1/4")
    #expect(keeper.answered(["1/4"], sentAt: 9_500) == [.start("1/4")])
    #expect(keeper.tick(now: 10_000) == [])
  }

  @Test func lateAnswersDoNotShortenTheLease() {
    var keeper = LeaseKeeper()
    _ = keeper.answered(["0/4"], sentAt: 5_000)
    _ = keeper.answered(["0/4"], sentAt: 1_000)
    #expect(keeper.tick(now: 12_999) == [])
    #expect(keeper.tick(now: 13_000) == [.cancel("0/4")])
  }

  @Test func leavingStopsWhatRuns() {
    var keeper = LeaseKeeper()
    _ = keeper.answered(["0/4", "1/4"], sentAt: 0)
    _ = keeper.answered(["0/4"], sentAt: 0)
    #expect(keeper.stopAll() == [.stop("0/4")])
    #expect(keeper.stopAll() == [])
  }
}
