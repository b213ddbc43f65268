import NIOCore
import StoreRocksDB
import Testing

@Suite("Pace of free-space checks")
struct SpaceCheckPaceTests {
  /// A commit after this many milliseconds.
  private struct Commit {
    let bytes: Int
    let time: NIODeadline

    init(_ bytes: Int, at milliseconds: Int64) {
      self.bytes = bytes
      time = .uptimeNanoseconds(0) + .milliseconds(milliseconds)
    }
  }

  /// Whether each commit checks; a check passes unless the commit's index is in `failing`.
  private func checks(_ commits: [Commit], failing: Set<Int> = []) -> [Bool] {
    var pace = SpaceCheckPace()
    return commits.enumerated().map { index, commit in
      let isDue = pace.isDue(commit.bytes, at: commit.time)
      if isDue, !failing.contains(index) { pace.passed(commit.bytes, at: commit.time) }
      return isDue
    }
  }

  @Test("a commit checks the free space 100 ms after the last check that passed")
  func commitChecksFreeSpace100MillisecondsAfterLastCheck() {
    let commits = [0, 99, 100, 101, 102].map { Commit(1, at: $0) }
    #expect(checks(commits, failing: [2]) == [true, false, true, true, false])
  }

  @Test("a commit checks the free space before the commits since the last check reach 4 MiB")
  func commitChecksFreeSpaceBefore4MiBAreUnchecked() {
    let commits = [1 << 20, 2 << 20, 1 << 20, 1 << 20, 4 << 20].map { Commit($0, at: 0) }
    #expect(checks(commits) == [true, false, true, false, true])
  }
}
