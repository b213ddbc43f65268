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
    /// In a cluster: the addresses of the other nodes.
    var peers: [ShardMap.Peer] = []

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
      guard let epochs else { return nil }
      var owned: [ShardMap.OwnedRange] = []
      for (shard, host) in hostOfShard.enumerated() {
        guard let epoch = epochs[Int(host)], !withheld.contains(Int(host)) else { continue }
        if let last = owned.indices.last, owned[last].shards.upperBound == shard, owned[last].epoch == epoch.rawValue {
          owned[last].count += 1
        } else {
          owned.append(ShardMap.OwnedRange(first: UInt16(shard), count: 1, epoch: epoch.rawValue))
        }
      }
      return ShardMap(owned: owned, peers: peers)
    }
  }

  fileprivate let state = NIOLockedValueBox<Serving?>(nil)

  func current() -> Serving? { state.withLockedValue { $0 } }

  /// - Returns: the previous value.
  @discardableResult
  func replace(_ serving: Serving?) -> Serving? {
    state.withLockedValue { state in
      defer { state = serving }
      return state
    }
  }

  /// Serve the group of a host from now on.
  ///
  /// - Returns: the number of groups that this node owns; nil: the hosts are not these any more.
  func promote(_ host: LoopHost, _ epoch: OwnerEpoch) -> Int? {
    state.withLockedValue { state in
      guard let index = state?.hosts.firstIndex(where: { $0 === host }) else { return nil }
      state?.epochs?[index] = epoch
      return state?.epochs?.count { $0 != nil }
    }
  }
}

extension ServingState {
  /// Serve the group of a host no longer.
  ///
  /// - Returns: whether this node owned it.
  func demote(_ host: LoopHost) -> Bool {
    state.withLockedValue { state in
      guard var serving = state, let index = serving.hosts.firstIndex(where: { $0 === host }),
        var epochs = serving.epochs, epochs[index] != nil
      else { return false }
      epochs[index] = nil
      serving.epochs = epochs
      state = serving
      return true
    }
  }

  /// Put another host in the place of one whose group this node does not own.
  ///
  /// - Parameter connect: called with all hosts of now, in the order of exchanges. It must not block.
  /// - Returns: false if the host is not among these; then nothing was done.
  func exchange(_ host: LoopHost, with other: LoopHost, connect: ([LoopHost], [UInt8]) -> Void) -> Bool {
    state.withLockedValue { state in
      guard var serving = state, let index = serving.hosts.firstIndex(where: { $0 === host }) else { return false }
      serving.hosts[index] = other
      state = serving
      connect(serving.hosts, serving.hostOfShard)
      return true
    }
  }
}

/// The store serves other shards than before: tells each connection to open and close its routes.
struct ServingChanged: Sendable {}
