import NIOCore
import StoreRocksDB
import Testing

@Suite("Pace of free-space checks")
struct SpaceCheckPaceTests {
  private static func time(_ milliseconds: Int64) -> NIODeadline {
    .uptimeNanoseconds(0) + .milliseconds(milliseconds)
  }

  @Test("a commit checks the free space 100 ms after the last check that passed")
  func interval() {
    var pace = SpaceCheckPace()
    #expect(pace.isDue(1, at: Self.time(0)))
    pace.passed(1, at: Self.time(0))
    #expect(!pace.isDue(1, at: Self.time(99)))
    #expect(pace.isDue(1, at: Self.time(100)))
    // The check failed.
    #expect(pace.isDue(1, at: Self.time(101)))
    pace.passed(1, at: Self.time(101))
    #expect(!pace.isDue(1, at: Self.time(102)))
  }

  @Test("a commit checks the free space before the commits since the last check reach 4 MiB")
  func bytes() {
    var pace = SpaceCheckPace()
    #expect(pace.isDue(1 << 20, at: Self.time(0)))
    pace.passed(1 << 20, at: Self.time(0))
    #expect(!pace.isDue(2 << 20, at: Self.time(1)))
    #expect(pace.isDue(1 << 20, at: Self.time(1)))
    pace.passed(1 << 20, at: Self.time(1))
    #expect(!pace.isDue(1 << 20, at: Self.time(2)))
    #expect(pace.isDue(SpaceCheckPace.bytesMax, at: Self.time(2)))
  }
}
