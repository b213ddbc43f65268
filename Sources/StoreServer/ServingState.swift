internal import NIOConcurrencyHelpers
internal import NIOCore
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
