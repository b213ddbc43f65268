internal import ReceiptModel
internal import ReceiptWire

/// Which node of a cluster owns each shard, by the maps that the nodes send (Proto/frames.md, "Shards of a cluster").
struct ShardRoutes {
  private static let none = UInt8.max
  /// Most nodes that a client can tell apart.
  static let nodesMax = Int(none)

  /// Index of the owner, by shard.
  private var owners: [UInt8]
  /// Epoch of the newest claim that is known, by shard.
  private var epochs: [UInt64]
  /// Number of shards by owner; the last entry is for shards without one.
  private var ownedCounts = [Int](repeating: 0, count: Int(none) + 1)
  var shardCount: Int { owners.count }
  /// Number of shards without a known owner.
  var unownedCount: Int { ownedCounts[Int(Self.none)] }

  init(shardCount: Int) {
    owners = Array(repeating: Self.none, count: shardCount)
    epochs = Array(repeating: 0, count: shardCount)
    ownedCounts[Int(Self.none)] = shardCount
  }

  /// Return the node that owns a shard; nil: none is known. A shard that does not exist counts as the first one's
  /// owner's, who refuses it.
  @inline(__always)
  func owner(of shard: ShardID) -> Int? {
    let index = Int(shard.rawValue)
    let owner = owners[index < owners.count ? index : 0]
    return owner == Self.none ? nil : Int(owner)
  }

  /// Return whether the node owns any shard.
  func isOwner(_ node: Int) -> Bool { ownedCounts[node] > 0 }

  /// Take the map of a node, which names all shards that it owns.
  ///
  /// - Returns: whether the owner of a shard has changed.
  mutating func receive(_ map: ShardMap, of node: Int) -> Bool {
    var isOwned = [Bool](repeating: false, count: owners.count)
    var hasChanged = false
    for range in map.owned {
      for shard in range.shards.clamped(to: owners.indices) {
        isOwned[shard] = true
        // An epoch has one owner, which may be known by another address.
        guard range.epoch >= epochs[shard] else { continue }
        epochs[shard] = range.epoch
        hasChanged = set(UInt8(node), of: shard) || hasChanged
      }
    }
    for shard in owners.indices where !isOwned[shard] && owners[shard] == UInt8(node) {
      hasChanged = set(Self.none, of: shard) || hasChanged
    }
    return hasChanged
  }

  /// Record that a node has refused a request because it does not own the shard.
  ///
  /// - Returns: whether it was the shard's owner. Another one may be known since the request was sent.
  mutating func refused(_ shard: ShardID, by node: Int) -> Bool {
    guard owner(of: shard) == node, Int(shard.rawValue) < owners.count else { return false }
    return set(Self.none, of: Int(shard.rawValue))
  }

  /// Remove a node, which is not connected to any more.
  ///
  /// - Returns: whether it was the owner of a shard.
  mutating func remove(_ node: Int) -> Bool {
    guard isOwner(node) else { return false }
    for shard in owners.indices where owners[shard] == UInt8(node) { _ = set(Self.none, of: shard) }
    return true
  }

  private mutating func set(_ owner: UInt8, of shard: Int) -> Bool {
    guard owners[shard] != owner else { return false }
    ownedCounts[Int(owners[shard])] -= 1
    ownedCounts[Int(owner)] += 1
    owners[shard] = owner
    return true
  }
}
