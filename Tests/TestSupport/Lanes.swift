import Synchronization
package import Testing

/// Limits how many tests of a suite run at the same time.
///
/// Two of the tests that start processes leave two cores idle for a third of the time, so three run by default. Beside
/// tests that compute, three would lack CPU time for their deadlines: `make test` runs these before.
package struct Lanes: TestTrait, SuiteTrait, TestScoping {
  fileprivate let semaphore: AsyncSemaphore
  package var isRecursive: Bool { true }

  package func provideScope(
    for test: Test,
    testCase: Test.Case?,
    performing function: @Sendable () async throws -> Void
  ) async throws {
    let semaphore = test.traits.contains { $0 is WaitsMostly } ? testsThatWait : semaphore
    await semaphore.wait()
    let start = ContinuousClock.now
    defer {
      semaphore.signal()
      // Durations in the test library's output contain the wait for a lane.
      print("lane: \(ContinuousClock.now - start) \(test.name)")
    }
    try await function()
  }

  /// A suite's own scope is not a test: only its test cases take a lane.
  package func scopeProvider(for test: Test, testCase: Test.Case?) -> Self? {
    testCase == nil ? nil : self
  }
}

extension Trait where Self == Lanes {
  /// At most `count` tests of the suite run at the same time.
  package static func lanes(_ count: Int) -> Self { Lanes(semaphore: AsyncSemaphore(count)) }

  /// The lanes of all suites whose tests start the real programs: `TIDEMARK_TEST_LANES`, by default three.
  package static var processLanes: Self { realProcesses }

  /// One more of these lanes, for a test of ``processLanes`` that promises latencies and starts many processes. At most
  /// one test may have it: two could wait for each other.
  package static var secondProcessLane: Self { laneCount > 1 ? realProcesses : .lanes(1) }
}

private let laneCount = TestRun.number("TIDEMARK_TEST_LANES") ?? 3
private let realProcesses = Lanes.lanes(laneCount)

/// Marks a test of ``Lanes/processLanes`` that uses little CPU time and waits for tens of seconds, for example until a
/// connection counts as lost. It takes none of these lanes. Two such tests run at a time, beside the others.
package struct WaitsMostly: TestTrait {}

extension Trait where Self == WaitsMostly {
  package static var waitsMostly: Self { WaitsMostly() }
}

private let testsThatWait = AsyncSemaphore(2)

/// A counting semaphore that suspends its callers, in FIFO order.
private final class AsyncSemaphore: Sendable {
  private struct State {
    var free: Int
    var waiting: [CheckedContinuation<Void, Never>] = []
  }

  private let state: Mutex<State>

  init(_ count: Int) { state = Mutex(State(free: count)) }

  func wait() async {
    await withCheckedContinuation { continuation in
      let isFree = state.withLock { state in
        guard state.free == 0 else {
          state.free -= 1
          return true
        }
        state.waiting.append(continuation)
        return false
      }
      if isFree { continuation.resume() }
    }
  }

  func signal() {
    let next: CheckedContinuation<Void, Never>? = state.withLock { state in
      guard !state.waiting.isEmpty else {
        state.free += 1
        return nil
      }
      return state.waiting.removeFirst()
    }
    next?.resume()
  }
}
