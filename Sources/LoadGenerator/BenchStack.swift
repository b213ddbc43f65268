internal import LocalStack
internal import Operations

/// The services for one run of a bench, with their data in a directory of their own.
enum BenchStack {
  /// Starts them, runs `body`, stops them; the directory is removed where all went well, and stays to be looked at
  /// where it did not.
  static func run<Outcome: Sendable>(
    executables: Executables,
    directory: String,
    gateways: Int = 1,
    _ body: (LocalStack, StackFiles) async throws -> Outcome
  ) async throws -> Outcome {
    let files = StackFiles(directory: directory)
    let stack = LocalStack(
      plan: try .onFreePorts(usesTLS: false, logLevel: "notice", gateways: gateways),
      files: files,
      executables: executables
    )
    let outcome: Result<Outcome, any Error>
    do {
      try await stack.start()
      outcome = .success(try await body(stack, files))
    } catch {
      outcome = .failure(error)
    }
    await stack.stop()
    if case .success = outcome { files.remove() }
    return try outcome.get()
  }

  /// One of the store's metrics; nil where it does not answer.
  static func storeMetric(_ name: String, _ stack: LocalStack) async -> Double? {
    let answer = await HealthCheck.get("http://\(stack.plan.storeAdmin)/metrics")
    return answer.flatMap { ProcessFigures.metric(name, in: $0.body) }
  }

  /// Calls `body` for 0 to `count`−1, so many at once, roughly in order.
  static func inParallel(
    _ count: Int,
    atOnce: Int,
    _ body: @escaping @Sendable (Int) async throws -> Void
  ) async throws {
    try await withThrowingTaskGroup(of: Void.self) { tasks in
      for first in 0..<min(atOnce, count) {
        tasks.addTask {
          for position in stride(from: first, to: count, by: atOnce) { try await body(position) }
        }
      }
      try await tasks.waitForAll()
    }
  }
}
