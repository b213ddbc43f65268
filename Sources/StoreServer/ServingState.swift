import NIOConcurrencyHelpers
import NIOCore
import Operations
import ReceiptModel

/// The loops that serve at this moment; none while the store starts, or reads its data again after a failed append.
final class ServingState: Sendable {
  struct Serving: Sendable {
    var hosts: [LoopHost]
    /// From shard to its place in `hosts`.
    var hostOfShard: [UInt8]
  }

  private let state = NIOLockedValueBox<Serving?>(nil)

  func current() -> Serving? { state.withLockedValue { $0 } }

  /// - Returns: what was there before.
  @discardableResult
  func replace(_ serving: Serving?) -> Serving? {
    state.withLockedValue { state in
      defer { state = serving }
      return state
    }
  }
}

/// Connections since start and now, of all loops.
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

  /// When it is logged that connections have failed or were refused before they had shown who they are.
  let refusals = LogThrottle()
}
