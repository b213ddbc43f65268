package import NIOCore

/// How an event loop reaches the store.
package enum StoreReach: Equatable, Sendable {
  /// It has had no connection yet. Becomes `connected`.
  case starting
  /// Becomes `cutOff`.
  case connected
  /// Becomes `connected`.
  case cutOff(since: NIODeadline)
}

/// Whether the event loops' ways to the store let the gateway take requests. A pure state machine.
///
/// A lost connection does not make a gateway unready at once. All gateways lose a store that restarts in the same
/// moment, so a load balancer would be left without any, while each of them could hold its requests until the store is
/// back. They wait in the store client's window, bounded in number and bytes, up to their own deadline.
struct StoreReachability {
  /// How long a gateway stays ready after a loop lost the store: a request's deadline (API.md, "Operations").
  static let toleranceMax = TimeAmount.seconds(5)

  private var loops: [StoreReach]

  /// - Parameter loopCount: at least 1; none of them has a connection yet.
  init(loopCount: Int) { loops = Array(repeating: .starting, count: loopCount) }

  /// A loop gained or lost its store.
  mutating func changed(_ loop: Int, _ reach: StoreReach) { loops[loop] = reach }

  /// From when on the gateway is not ready if nothing changes; nil: it stays ready.
  var notReadyFrom: NIODeadline? {
    var earliest: NIODeadline?
    for loop in loops {
      switch loop {
      case .starting: return .distantPast
      case .connected: continue
      case .cutOff(let since): earliest = min(earliest ?? .distantFuture, since + Self.toleranceMax)
      }
    }
    return earliest
  }
}
