internal import LocalStack
internal import Synchronization
internal import Watch

/// A sender's own stream of events during the demo: each event that changes their ticks is printed when it arrives.
final class LiveTickStream: Sendable {
  private struct State {
    var liveState: LiveMessageState
    var hasOpened = false
    /// Description of the error that ended the stream.
    var failure: String?
    var isOver = false
  }

  /// Timeout for a step's changes to arrive.
  private static let deliveryTimeout = Duration.seconds(20)

  private let state: Mutex<State>
  private let style: TextStyle

  init(sender: String, style: TextStyle) {
    state = Mutex(State(liveState: LiveMessageState(sender: sender)))
    self.style = style
  }

  /// State built from the events received so far.
  var liveState: LiveMessageState { state.withLock { $0.liveState } }

  /// Follow the stream until cancelled, with reconnects.
  func follow(_ watch: EventWatch) async {
    var watch = watch
    watch.opened = { self.state.withLock { $0.hasOpened = true } }
    do {
      try await watch.run(receive: apply, note: note)
    } catch is CancellationError {
      // The regular end.
    } catch {
      fail("\(error)")
    }
  }

  /// Stop printing events.
  func end() { state.withLock { $0.isOver = true } }

  /// Wait until the stream has begun: no later event is missed.
  func waitUntilOpen() async throws {
    try await wait { $0.hasOpened }
    guard state.withLock({ $0.hasOpened }) else {
      throw StackError("GET /v1/events: " + (failure ?? "no stream was opened"))
    }
  }

  /// Wait until the stream has delivered the expected state, or until the timeout. The caller then sees what is
  /// missing.
  func wait(untilTold isTold: @Sendable (LiveMessageState) -> Bool) async throws {
    try await wait { isTold($0.liveState) }
  }

  private func wait(_ isSo: (State) -> Bool) async throws {
    let deadline = ContinuousClock.now + Self.deliveryTimeout
    while !state.withLock({ isSo($0) || $0.failure != nil }), ContinuousClock.now < deadline {
      try await Task.sleep(for: .milliseconds(5))
    }
  }

  // MARK: Receiving

  private var failure: String? { state.withLock { $0.failure } }

  /// Apply an event and print it under the lock: a caller that sees the new state finds its line already printed.
  private func apply(_ event: StreamedEvent) {
    state.withLock { state in
      do {
        guard try state.liveState.apply(event), !state.isOver else { return }
        Terminal.print("    \(style.grey(EventLineFormatter.line(event)))")
      } catch {
        state.failure = "an event of another shape than expected: \(event.data)"
      }
    }
  }

  private func note(_ line: String) {
    state.withLock { state in
      if !state.isOver { Terminal.print("    \(style.grey("\(state.liveState.sender)'s stream: \(line)"))") }
    }
  }

  private func fail(_ reason: String) { state.withLock { $0.failure = reason } }
}
