internal import LocalStack
internal import Synchronization
internal import Watch

/// A sender's own stream of events, followed while the demo plays: each event that changes their ticks is printed as it
/// comes.
final class LiveTicks: Sendable {
  private struct State {
    var picture: LivePicture
    var hasOpened = false
    /// Why nothing more will come, in words.
    var failure: String?
    var isOver = false
  }

  /// How long what a step has changed may be on its way.
  private static let wayDurationMax = Duration.seconds(20)

  private let state: Mutex<State>
  private let ink: Ink

  init(sender: String, ink: Ink) {
    state = Mutex(State(picture: LivePicture(sender: sender)))
    self.ink = ink
  }

  /// What has been told so far.
  var picture: LivePicture { state.withLock { $0.picture } }

  /// Follows the stream until cancelled, over as many connections as it takes.
  func follow(_ watch: EventWatch) async {
    var watch = watch
    watch.opened = { self.state.withLock { $0.hasOpened = true } }
    do {
      try await watch.run(take: take, note: note)
    } catch is CancellationError {
      // The way to end it.
    } catch {
      fail("\(error)")
    }
  }

  /// From here on nothing is printed, whatever comes.
  func end() { state.withLock { $0.isOver = true } }

  /// Waits until the stream has begun: nothing that happens from then on is missed.
  func waitUntilOpen() async throws {
    try await wait { $0.hasOpened }
    guard state.withLock({ $0.hasOpened }) else {
      throw StackError("GET /v1/events: " + (failure ?? "no stream was opened"))
    }
  }

  /// Waits until the stream has told as much, or for as long as that may take; who called then sees what is missing.
  func wait(untilTold isTold: @Sendable (LivePicture) -> Bool) async throws {
    try await wait { isTold($0.picture) }
  }

  private func wait(_ isSo: (State) -> Bool) async throws {
    let deadline = ContinuousClock.now + Self.wayDurationMax
    while !state.withLock({ isSo($0) || $0.failure != nil }), ContinuousClock.now < deadline {
      try await Task.sleep(for: .milliseconds(5))
    }
  }

  // MARK: What comes

  private var failure: String? { state.withLock { $0.failure } }

  /// Printed under the lock: whoever sees the new picture finds the line above.
  private func take(_ event: StreamedEvent) {
    state.withLock { state in
      do {
        guard try state.picture.take(event), !state.isOver else { return }
        Terminal.print("    \(ink.grey(EventSentence.line(event)))")
      } catch {
        state.failure = "an event of another shape than expected: \(event.data)"
      }
    }
  }

  private func note(_ line: String) {
    state.withLock { state in
      if !state.isOver { Terminal.print("    \(ink.grey("\(state.picture.sender)'s stream: \(line)"))") }
    }
  }

  private func fail(_ reason: String) { state.withLock { $0.failure = reason } }
}
