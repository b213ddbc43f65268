internal import NIOConcurrencyHelpers
internal import NIOCore
internal import Operations
internal import ReceiptModel

/// The loops that serve now; nil while the store starts, or reloads its data after a failed append.
final class ServingState: Sendable {
  struct Serving: Sendable {
    var hosts: [LoopHost]
    /// Index in `hosts`, by shard.
    var hostOfShard: [UInt8]
  }

  private let state = NIOLockedValueBox<Serving?>(nil)

  func current() -> Serving? { state.withLockedValue { $0 } }

  /// - Returns: the previous value.
  @discardableResult
  func replace(_ serving: Serving?) -> Serving? {
    state.withLockedValue { state in
      defer { state = serving }
      return state
    }
  }
}

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
