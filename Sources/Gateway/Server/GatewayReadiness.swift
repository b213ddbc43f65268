package import NIOCore
package import ReceiptModel

/// Whether the store is ready for an event loop: the state of the loop's connection to it.
///
/// In a cluster, the loop is connected to the owners of all shards, and else lacks those of some.
package enum StoreReadiness: Equatable, Sendable {
  /// There has been no connection yet. Becomes `connected`.
  case starting(lacking: [ShardID] = [])
  /// Becomes `cutOff`.
  case connected
  /// Becomes `connected`.
  case cutOff(since: NIODeadline, lacking: [ShardID] = [])
}

/// Whether the event loops' store connections let the gateway take requests. A pure state machine.
///
/// A lost connection does not make a gateway unready at once. When a store restarts, all gateways lose it at the same
/// moment, and a load balancer would be left without any. Each gateway can hold its requests until the store is back:
/// they wait in the store client's window, bounded in number and bytes, up to their own deadline.
struct GatewayReadiness {
  /// How long a gateway stays ready after a loop has lost the store: a request's deadline (Proto/openapi.yaml).
  static let toleranceMax = TimeAmount.seconds(5)

  private var loops: [StoreReadiness]

  /// - Parameter loopCount: at least 1; no loop has a connection yet.
  init(loopCount: Int) { loops = Array(repeating: .starting(), count: loopCount) }

  /// Record that a loop gained or lost its store connection.
  mutating func changed(_ loop: Int, _ store: StoreReadiness) { loops[loop] = store }

  /// When the gateway becomes unready if nothing changes; nil: it stays ready.
  var unreadyAt: NIODeadline? {
    var earliest: NIODeadline?
    for loop in loops {
      switch loop {
      case .starting: return .distantPast
      case .connected: continue
      case .cutOff(let since, lacking: _): earliest = min(earliest ?? .distantFuture, since + Self.toleranceMax)
      }
    }
    return earliest
  }

  /// What operators read at `/ready` while the gateway is not ready.
  var reason: String {
    var lacking: Set<UInt16> = []
    for loop in loops {
      switch loop {
      case .connected: continue
      case .starting(let shards), .cutOff(since: _, lacking: let shards): lacking.formUnion(shards.map(\.rawValue))
      }
    }
    guard !lacking.isEmpty else { return "no connection" }
    let ranges = Self.ranges(lacking.sorted())
    return "no connection to an owner of \(lacking.count == 1 ? "shard" : "shards") \(ranges)"
  }

  /// Write rising numbers in short: `2-4, 7`.
  private static func ranges(_ numbers: [UInt16]) -> String {
    var ranges: [ClosedRange<UInt16>] = []
    for number in numbers {
      if let last = ranges.last, last.upperBound + 1 == number {
        ranges[ranges.count - 1] = last.lowerBound...number
      } else {
        ranges.append(number...number)
      }
    }
    return ranges.map { $0.count == 1 ? "\($0.lowerBound)" : "\($0.lowerBound)-\($0.upperBound)" }
      .joined(separator: ", ")
  }
}
