internal import NIOCore
internal import ReceiptModel

/// Which node of a cluster serves each shard to a client: its owner, while the client is connected to it. Events of a
/// shard are taken from this node only. A shard without one waits.
struct ShardSources {
  private static let none = UInt8.max

  /// Index of the node, by shard.
  private var nodes: [UInt8]
  /// When a shard without a node has lost it.
  private var lostAt: [NIODeadline]

  init(shardCount: Int, now: NIODeadline) {
    nodes = Array(repeating: Self.none, count: shardCount)
    lostAt = Array(repeating: now, count: shardCount)
  }

  /// Return whether the node serves a shard.
  func isServed(_ shard: ShardID, by node: Int) -> Bool {
    let index = Int(shard.rawValue)
    return index < nodes.count && nodes[index] == UInt8(node)
  }

  /// The shards that no node serves, in order.
  var unserved: [ShardID] { nodes.indices.filter { nodes[$0] == Self.none }.map { ShardID(UInt16($0)) } }

  /// When the first of the unserved shards has lost its node; nil: all are served.
  var unservedSince: NIODeadline? {
    nodes.indices.lazy.filter { nodes[$0] == Self.none }.map { lostAt[$0] }.min()
  }

  /// What an update has changed.
  struct Change {
    /// Shards that another node serves now, or the same one over another connection: it has no subscriptions.
    var reopened: [ShardID] = []
    /// Whether shards have lost their node.
    var hasLost = false
    var isEmpty: Bool { reopened.isEmpty && !hasLost }
  }

  /// Take over the owners of the shards. Call it whenever an owner changes, and whenever a node becomes ready or is no
  /// longer ready: a node that is lost and ready again without a call keeps its shards.
  ///
  /// - Parameters:
  ///   - isReady: whether the client is connected to a node.
  ///   - now: when the shards that are lost were lost.
  mutating func update(_ routes: ShardRoutes, isReady: (Int) -> Bool, at now: NIODeadline) -> Change {
    var change = Change()
    for index in nodes.indices {
      let shard = ShardID(UInt16(index))
      let node = routes.owner(of: shard).flatMap { isReady($0) ? UInt8($0) : nil } ?? Self.none
      guard node != nodes[index] else { continue }
      nodes[index] = node
      if node == Self.none {
        lostAt[index] = now
        change.hasLost = true
      } else {
        change.reopened.append(shard)
      }
    }
    return change
  }
}
