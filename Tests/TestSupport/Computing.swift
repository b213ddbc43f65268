import Dispatch
package import Testing

/// A trait for suites whose tests use the CPU for seconds without a pause: each test gets a thread of its own.
///
/// Swift's pool has as many threads as there are cores. CPU-bound tests would occupy them all. Tests that use sockets
/// would then run only once in several seconds, and miss idle timeouts and deadlines.
package struct Computing: TestTrait, SuiteTrait, TestScoping {
  package var isRecursive: Bool { true }

  package func provideScope(
    for test: Test,
    testCase: Test.Case?,
    performing function: @Sendable () async throws -> Void
  ) async throws {
    try await withTaskExecutorPreference(Executor()) { try await function() }
  }

  /// A serial queue runs on threads outside the pool.
  private final class Executor: TaskExecutor {
    private let queue = DispatchQueue(label: "test that computes")

    func enqueue(_ job: consuming ExecutorJob) {
      let job = UnownedJob(job)
      queue.async { job.runSynchronously(on: self.asUnownedTaskExecutor()) }
    }
  }
}

extension Trait where Self == Computing {
  /// The suite's tests use the CPU for seconds.
  package static var computing: Self { Computing() }
}
