import Synchronization
package import Testing

/// The longest time that a test waits for a condition. Only a failing test waits that long.
package let waitLimit = Duration.seconds(120)

/// Wait until a condition holds.
///
/// After ``waitLimit`` it records an issue that names the condition, and throws ``TimedOut``.
package func eventually(
  _ condition: String,
  pollInterval: Duration = .milliseconds(10),
  sourceLocation: SourceLocation = #_sourceLocation,
  _ holds: () async throws -> Bool
) async throws {
  let start = ContinuousClock.now
  // A machine that stood still for longer than the limit still gets some polls.
  var polls = 0
  while polls < 50 || ContinuousClock.now - start < waitLimit {
    if try await holds() { return }
    try await Task.sleep(for: pollInterval)
    polls += 1
  }
  throw TimedOut.recorded(condition, after: waitLimit, sourceLocation)
}

/// Run `body` with a time limit.
///
/// After `limit` it records an issue that names the awaited operation, cancels `body` and throws ``TimedOut``. It
/// does not wait for a `body` that ignores cancellation, as an event loop's future does.
package func within<Value: Sendable>(
  _ awaited: String,
  limit: Duration = waitLimit,
  sourceLocation: SourceLocation = #_sourceLocation,
  _ body: @escaping @Sendable () async throws -> Value
) async throws -> Value {
  let outcome = Outcome<Value>()
  let work = Task { outcome.finish(await catching(body)) }
  let timer = Task {
    try await Task.sleep(for: limit)
    outcome.finish(nil)
  }
  defer { timer.cancel() }
  let result = await withTaskCancellationHandler {
    await outcome.value
  } onCancel: {
    work.cancel()
  }
  guard let result else {
    work.cancel()
    throw TimedOut.recorded(awaited, after: limit, sourceLocation)
  }
  return try result.get()
}

private func catching<Value>(_ body: () async throws -> Value) async -> Result<Value, any Error> {
  do { return .success(try await body()) } catch { return .failure(error) }
}

/// The first of two results: the work's, or nil for the timeout. Later results are ignored.
private final class Outcome<Value: Sendable>: Sendable {
  /// running → waiting → finished, or running → finished.
  private enum State {
    case running
    case waiting(CheckedContinuation<Result<Value, any Error>?, Never>)
    case finished(Result<Value, any Error>?)
  }

  private let state = Mutex(State.running)

  func finish(_ result: Result<Value, any Error>?) {
    let waiting: CheckedContinuation<Result<Value, any Error>?, Never>? = state.withLock { state in
      switch state {
      case .running:
        state = .finished(result)
        return nil
      case .waiting(let continuation):
        state = .finished(result)
        return continuation
      case .finished:
        return nil
      }
    }
    waiting?.resume(returning: result)
  }

  var value: Result<Value, any Error>? {
    get async {
      await withCheckedContinuation { continuation in
        let finished: Result<Value, any Error>?? = state.withLock { state in
          if case .finished(let result) = state { return .some(result) }
          state = .waiting(continuation)
          return .none
        }
        if let finished { continuation.resume(returning: finished) }
      }
    }
  }
}

/// A condition did not hold within its time limit.
package struct TimedOut: Error, CustomStringConvertible {
  package let description: String

  fileprivate static func recorded(
    _ awaited: String,
    after limit: Duration,
    _ sourceLocation: SourceLocation
  ) -> TimedOut {
    let error = TimedOut(description: "timed out after \(limit) waiting for \(awaited)")
    Issue.record(error, sourceLocation: sourceLocation)
    return error
  }
}

/// Something that a test cannot go on with.
package struct Unexpected: Error, CustomStringConvertible {
  package let description: String
  package init(_ description: String) { self.description = description }
}
