import NIOCore
import Testing

@testable import StoreServer

/// Commits leave the event loop while the disk is slow.
@Suite struct CommitPaceTests {
  @Test func commitsStartOnLoop() { #expect(CommitPace().isQuick) }

  @Test func oneStallMovesCommitsOffLoop() {
    var pace = CommitPace()
    pace.record(.milliseconds(20))
    #expect(!pace.isQuick)
  }

  @Test func quickCommitsMoveBackToLoop() {
    var pace = CommitPace()
    pace.record(.milliseconds(20))
    var count = 0
    while !pace.isQuick, count < 100 {
      pace.record(.microseconds(150))
      count += 1
    }
    #expect(count == 8)
  }

  @Test func durationsBelowBoundStayOnLoop() {
    var pace = CommitPace()
    for _ in 0..<1_000 { pace.record(.microseconds(900)) }
    #expect(pace.isQuick)
    for _ in 0..<1_000 { pace.record(.microseconds(1_100)) }
    #expect(!pace.isQuick)
  }
}
