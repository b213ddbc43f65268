import Synchronization
import Testing

@testable import StoreServer

/// Background reads run a few at a time, in the order in which they came.
@Suite struct BackgroundReadsTests {
  @Test func readsBeyondMaximumWaitInOrder() {
    let ran = Mutex<[Int]>([])
    var reads = BackgroundReads()
    for _ in 0..<BackgroundReads.runningMax { #expect(reads.startOrQueue {}) }
    for number in 1...3 {
      #expect(!reads.startOrQueue { ran.withLock { $0.append(number) } })
    }
    for _ in 1...3 { reads.finishedOne()?() }
    #expect(ran.withLock { $0 } == [1, 2, 3])
  }

  @Test func endedReadFreesItsPlace() {
    var reads = BackgroundReads()
    for _ in 0..<BackgroundReads.runningMax { #expect(reads.startOrQueue {}) }
    #expect(reads.finishedOne() == nil)
    #expect(reads.startOrQueue {})
    #expect(!reads.startOrQueue {})
  }
}
