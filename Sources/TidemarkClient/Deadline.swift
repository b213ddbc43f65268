/// What a deadline throws.
struct DeadlineExceeded: Error {}

/// Perform `body`, and cancel it after a time.
///
/// - Throws: ``DeadlineExceeded``, or the error of `body`, which has to end soon after it is cancelled.
func withDeadline<Value: Sendable>(
  _ limit: Duration,
  _ body: @escaping @Sendable () async throws -> Value
) async throws -> Value {
  try await withThrowingTaskGroup(of: Value?.self) { group in
    defer { group.cancelAll() }
    group.addTask { try await body() }
    group.addTask {
      try await Task.sleep(for: limit)
      return nil
    }
    guard let value = try await group.next() ?? nil else {
      // The caller may have been cancelled at the same time.
      try Task.checkCancellation()
      throw DeadlineExceeded()
    }
    return value
  }
}
