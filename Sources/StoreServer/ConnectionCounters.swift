internal import NIOConcurrencyHelpers
internal import Operations

/// Connections since start and now, over all loops.
final class ConnectionCounters: Sendable {
  private let values = NIOLockedValueBox<(opened: UInt64, now: Int)>((0, 0))

  func opened() {
    values.withLockedValue {
      $0.opened += 1
      $0.now += 1
    }
  }

  func closed() { values.withLockedValue { $0.now -= 1 } }

  var current: (opened: UInt64, now: Int) { values.withLockedValue { $0 } }

  /// Throttles log entries about connections that failed or were refused before authentication.
  let refusals = LogThrottle()
}
