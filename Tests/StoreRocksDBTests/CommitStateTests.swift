import NIOCore
import Testing

@testable import StoreRocksDB

/// What commits share.
@Suite struct CommitStateTests {
  @Test("the write-ahead log is synced again after 4 MiB of writes that succeeded")
  func presyncFollows4MiBOfWrites() {
    var state = CommitState()
    let written: [Int?] = [4 << 20, 3 << 20, nil, 1 << 20, (4 << 20) - 1, nil, 1]
    let due = written.map { bytes in
      state.writeBegan()
      return state.writeEnded(bytes)
    }
    #expect(due == [true, false, false, true, false, false, true])
  }

  @Test("after a failure no commit begins")
  func commitsDoNotBeginAfterAFailure() {
    var state = CommitState()
    let now = NIODeadline.now()
    var starts = [state.begin(1, at: now)]
    state.passedSpaceCheck(1, at: now)
    starts.append(state.begin(1, at: now))
    state.failed()
    starts.append(state.begin(SpaceCheckPace.bytesMax, at: now))
    #expect(starts == [.needsSpaceCheck, .ready, .failed])
    #expect(state.hasFailed)
  }

  @Test("a commit uses the write batch of one that has ended, but not that of one in flight")
  func commitsUseBatchesOfEndedCommits() {
    var state = CommitState()
    let (first, second) = (state.takeBatch(), state.takeBatch())
    state.giveBack(first)
    let (third, fourth) = (state.takeBatch(), state.takeBatch())
    #expect(third === first)
    #expect(second !== first)
    #expect(fourth !== first && fourth !== second)
  }
}
