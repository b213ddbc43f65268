import Dispatch
package import Testing

/// Of suites whose tests compute for seconds without a pause: each has a thread of its own.
///
/// Swift's pool has as many threads as there are cores. Held by such tests, it has none for those that talk over
/// sockets, which then come to their turn once in seconds, and to the ends of idle connections and deadlines in the
/// middle of a sentence.
package struct Computing: TestTrait, SuiteTrait, TestScoping {
  package var isRecursive: Bool { true }

  package func provideScope(
    for test: Test,
    testCase: Test.Case?,
    performing function: @Sendable () async throws -> Void
  ) async throws {
    try await withTaskExecutorPreference(Executor()) { try await function() }
  }

  /// A serial queue runs on threads beyond the pool's.
  private final class Executor: TaskExecutor {
    private let queue = DispatchQueue(label: "test that computes")

    func enqueue(_ job: consuming ExecutorJob) {
      let job = UnownedJob(job)
      queue.async { job.runSynchronously(on: self.asUnownedTaskExecutor()) }
    }
  }
}

extension Trait where Self == Computing {
  /// Its tests compute for seconds.
  package static var computing: Self { Computing() }
}
