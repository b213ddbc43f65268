package import UnixSignals

/// Error thrown when SIGINT or SIGTERM stopped this process's work.
package struct Interrupted: Error {
  /// The signal received.
  package let signal: UnixSignal
}

/// Run `body`, and cancel it on SIGINT or SIGTERM. The error is thrown only after `body` has returned, so that `body`
/// can clean up.
package func withInterrupts<Value: Sendable>(
  _ body: @escaping @Sendable () async throws -> Value
) async throws -> Value {
  let signals = await UnixSignalsSequence(trapping: .sigint, .sigterm)
  return try await withThrowingTaskGroup(of: Outcome<Value>.self) { group in
    group.addTask { .finished(try await body()) }
    group.addTask {
      for await signal in signals { return .interrupted(signal) }
      return .noSignal
    }
    var interrupted: UnixSignal?
    while true {
      do {
        switch try await group.next() {
        case .finished(let value):
          group.cancelAll()
          if let interrupted { throw Interrupted(signal: interrupted) }
          return value
        case .interrupted(let signal):
          interrupted = signal
          group.cancelAll()
        case .noSignal: continue
        case nil: throw CancellationError()
        }
      } catch {
        group.cancelAll()
        if let interrupted { throw Interrupted(signal: interrupted) }
        throw error
      }
    }
  }
}

private enum Outcome<Value: Sendable>: Sendable {
  case finished(Value)
  case interrupted(UnixSignal)
  case noSignal
}

/// Run `body`, then `cleanUp`, whether `body` returns or throws.
package func withCleanup<Outcome>(
  _ body: () async throws -> Outcome,
  cleanUp: () async -> Void
) async throws -> Outcome {
  do {
    let outcome = try await body()
    await cleanUp()
    return outcome
  } catch {
    await cleanUp()
    throw error
  }
}
