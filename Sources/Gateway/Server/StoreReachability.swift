package import NIOCore

/// The state of an event loop's connection to the store.
package enum StoreConnectivity: Equatable, Sendable {
  /// There has been no connection yet. Becomes `connected`.
  case starting
  /// Becomes `cutOff`.
  case connected
  /// Becomes `connected`.
  case cutOff(since: NIODeadline)
}

/// Whether the event loops' store connections let the gateway take requests. A pure state machine.
///
/// A lost connection does not make a gateway unready at once. When a store restarts, all gateways lose it at the same
/// moment, and a load balancer would be left without any. Each gateway can hold its requests until the store is back:
/// they wait in the store client's window, bounded in number and bytes, up to their own deadline.
struct StoreReachability {
  /// How long a gateway stays ready after a loop has lost the store: a request's deadline (Proto/openapi.yaml).
  static let toleranceMax = TimeAmount.seconds(5)

  private var loops: [StoreConnectivity]

  /// - Parameter loopCount: at least 1; no loop has a connection yet.
  init(loopCount: Int) { loops = Array(repeating: .starting, count: loopCount) }

  /// Record that a loop gained or lost its store connection.
  mutating func changed(_ loop: Int, _ reach: StoreConnectivity) { loops[loop] = reach }

  /// When the gateway becomes unready if nothing changes; nil: it stays ready.
  var unreadyAt: NIODeadline? {
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
