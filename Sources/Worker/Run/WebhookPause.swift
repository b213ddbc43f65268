internal import Synchronization

/// Pause of a webhook whose endpoint has answered 410 Gone, known to all partitions of this worker.
final class WebhookPause: Sendable {
  private struct State {
    var until: Int64?
    var listeners: [String: AsyncStream<PartitionMachine.Event>.Continuation] = [:]
  }

  private let state = Mutex(State())

  /// Send changes to a partition's machine, and return the current pause.
  func listen(_ partition: String, _ listener: AsyncStream<PartitionMachine.Event>.Continuation) -> Int64? {
    state.withLock { state in
      state.listeners[partition] = listener
      return state.until
    }
  }

  func forget(_ partition: String) { state.withLock { $0.listeners[partition] = nil } }

  /// Change the pause.
  ///
  /// - Parameter until: in milliseconds since 1970; nil ends it.
  /// - Returns: whether it has begun or ended by this call.
  func set(_ until: Int64?) -> Bool {
    let (hasChanged, listeners) = state.withLock { state in
      defer { state.until = until }
      let isSame = state.until == nil && until == nil
      return ((state.until == nil) != (until == nil), isSame ? [] : Array(state.listeners.values))
    }
    for listener in listeners { listener.yield(.paused(until: until)) }
    return hasChanged
  }
}
