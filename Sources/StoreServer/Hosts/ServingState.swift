internal import NIOConcurrencyHelpers
internal import NIOCore
internal import ReceiptModel
internal import ReceiptWire
internal import StoreEngine

/// The loops that serve now; nil while the store starts, or reloads its data after a failed append.
final class ServingState: Sendable {
  struct Serving: Sendable {
    var hosts: [LoopHost]
    /// Index in `hosts`, by shard.
    var hostOfShard: [UInt8]
    /// In a cluster: the epoch in which this node owns each host's group; nil: it follows. Nil: no cluster.
    var epochs: [OwnerEpoch?]?
    /// In a cluster: this node.
    var node: NodeID?
    /// In a cluster: the other nodes, by rising numbers. ``ServingState`` sets them.
    fileprivate(set) var peers: [ShardMap.Peer] = []

    init(hosts: [LoopHost], hostOfShard: [UInt8], epochs: [OwnerEpoch?]? = nil, node: NodeID? = nil) {
      self.hosts = hosts
      self.hostOfShard = hostOfShard
      self.epochs = epochs
      self.node = node
    }

    /// Return whether this node answers requests for the shards of a host.
    func isServed(_ host: Int) -> Bool { epochs.map { $0[host] != nil } ?? true }

    /// Return whether this node answers requests for a host's shards, and with this host.
    func isServed(_ index: Int, by host: LoopHost) -> Bool {
      index < hosts.count && hosts[index] === host && isServed(index)
    }

    /// Return the shards that this node owns, and the other nodes; nil: no cluster.
    ///
    /// - Parameter withheld: indexes of hosts whose shards are left out.
    func shardMap(without withheld: Set<Int> = []) -> ShardMap? {
      guard let epochs, let node else { return nil }
      var owned: [ShardMap.OwnedRange] = []
      for (shard, host) in hostOfShard.enumerated() {
        guard let epoch = epochs[Int(host)], !withheld.contains(Int(host)) else { continue }
        if let last = owned.indices.last, owned[last].shards.upperBound == shard, owned[last].epoch == epoch.rawValue {
          owned[last].count += 1
        } else {
          owned.append(ShardMap.OwnedRange(first: UInt16(shard), count: 1, epoch: epoch.rawValue))
        }
      }
      return ShardMap(owned: owned, node: node.rawValue, peers: peers)
    }
  }

  fileprivate struct State {
    var serving: Serving?
    /// The other nodes, also while nothing serves.
    var peers: [ShardMap.Peer] = []
  }

  fileprivate let state = NIOLockedValueBox(State())

  func current() -> Serving? { state.withLockedValue(\.serving) }

  /// Serve with other loops. The other nodes stay as they are.
  ///
  /// - Returns: the previous value.
  @discardableResult
  func replace(_ serving: Serving?) -> Serving? {
    state.withLockedValue { state in
      let previous = state.serving
      state.serving = serving
      state.serving?.peers = state.peers
      return previous
    }
  }

  /// Name these nodes in the maps from now on, by rising numbers.
  ///
  /// - Returns: whether that is a change.
  func setPeers(_ peers: [ShardMap.Peer]) -> Bool {
    state.withLockedValue { state in
      guard state.peers != peers else { return false }
      state.peers = peers
      state.serving?.peers = peers
      return true
    }
  }

  /// Serve the group of a host from now on.
  ///
  /// - Returns: the number of groups that this node owns; nil: the hosts are not these any more.
  func promote(_ host: LoopHost, _ epoch: OwnerEpoch) -> Int? {
    state.withLockedValue { state in
      guard let index = state.serving?.hosts.firstIndex(where: { $0 === host }) else { return nil }
      state.serving?.epochs?[index] = epoch
      return state.serving?.epochs?.count { $0 != nil }
    }
  }
}

extension ServingState {
  /// Serve the group of a host no longer.
  ///
  /// - Returns: whether this node owned it.
  func demote(_ host: LoopHost) -> Bool {
    state.withLockedValue { state in
      guard var serving = state.serving, let index = serving.hosts.firstIndex(where: { $0 === host }),
        var epochs = serving.epochs, epochs[index] != nil
      else { return false }
      epochs[index] = nil
      serving.epochs = epochs
      state.serving = serving
      return true
    }
  }

  /// Put another host in the place of one whose group this node does not own.
  ///
  /// - Parameter connect: called with all hosts of now, in the order of exchanges. It must not block.
  /// - Returns: false if the host is not among these; then nothing was done.
  func exchange(_ host: LoopHost, with other: LoopHost, connect: ([LoopHost], [UInt8]) -> Void) -> Bool {
    state.withLockedValue { state in
      guard var serving = state.serving, let index = serving.hosts.firstIndex(where: { $0 === host }) else {
        return false
      }
      serving.hosts[index] = other
      state.serving = serving
      connect(serving.hosts, serving.hostOfShard)
      return true
    }
  }
}

/// The store serves other shards than before: tells each connection to open and close its routes.
struct ServingChanged: Sendable {}
