/// Pauses of a node in a cluster before it makes loops again that have failed: none for the first failure, then growing
/// ones. A pure state machine.
struct RestartBackoff {
  /// Pause after the second failure. It doubles with each later one, up to ``pauseMax``.
  static let pauseMin = Duration.milliseconds(500)
  static let pauseMax = Duration.seconds(30)
  /// Loops that have run for this time were healthy: the next failure counts as the first one.
  static let healthyAfter = Duration.seconds(60)

  /// What follows a failure.
  struct Restart: Equatable {
    var pause: Duration
    /// Whether operators do not know the reason yet.
    var isNew: Bool
  }

  private var failures = 0
  private var startedAt: ContinuousClock.Instant?
  private var lastReason: String?

  /// Record that the loops run again.
  mutating func started(at now: ContinuousClock.Instant) { startedAt = now }

  /// Record a failure.
  mutating func failed(_ reason: String, at now: ContinuousClock.Instant) -> Restart {
    if let startedAt, now - startedAt >= Self.healthyAfter {
      failures = 0
      lastReason = nil
    }
    startedAt = nil
    defer {
      failures += 1
      lastReason = reason
    }
    let pause = failures == 0 ? .zero : min(Self.pauseMin * (1 << min(failures - 1, 16)), Self.pauseMax)
    return Restart(pause: pause, isNew: reason != lastReason)
  }
}
