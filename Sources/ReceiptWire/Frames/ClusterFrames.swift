package import NIOCore
package import ReceiptModel

/// The shards that a node of a cluster owns, and the addresses of the other nodes (Proto/frames.md, "Shards of a
/// cluster").
///
/// A node sends it after `ready`, and again whenever the shards that it owns or the other nodes change.
package struct ShardMap: Hashable, Sendable {
  /// Consecutive shards with one owner.
  package struct OwnedRange: Hashable, Sendable {
    package var first: UInt16
    /// At least 1.
    package var count: UInt16
    /// The number of the claim. Of two nodes that say that they own a shard, the one with the higher epoch does.
    package var epoch: UInt64

    package init(first: UInt16, count: UInt16, epoch: UInt64) {
      self.first = first
      self.count = count
      self.epoch = epoch
    }

    /// Indexes of the shards.
    package var shards: Range<Int> { Int(first)..<(Int(first) + Int(count)) }
  }

  /// Another node, and the address at which it accepts gateways.
  package struct Peer: Hashable, Sendable {
    /// Number of the node, from 1.
    package var node: UInt16
    package var host: String
    /// 1 to 65535.
    package var port: UInt16

    package init(node: UInt16, host: String, port: UInt16) {
      self.node = node
      self.host = host
      self.port = port
    }
  }

  /// In rising order, without overlaps. Every other shard has another owner, or none.
  package var owned: [OwnedRange]
  /// Number of the node that sends the map, from 1.
  package var node: UInt16
  /// All other nodes of the cluster, as far as this node knows, by rising numbers.
  package var peers: [Peer]
  private static let peersMax = 255

  package init(owned: [OwnedRange], node: UInt16, peers: [Peer] = []) {
    self.owned = owned
    self.node = node
    self.peers = peers
  }

  /// - Throws: if the fields do not parse, the ranges are empty or do not rise, an address is not valid, or the numbers
  ///   of the peers do not rise or are not those of other nodes.
  package init(_ payload: RawSpan) throws(WireError) {
    var reader = FieldReader(payload)
    var owned: [OwnedRange] = []
    var end = 0
    for _ in 0..<(try reader.count(elementBytesMin: 3)) {
      let (first, count) = (try reader.varint32(), try reader.varint32())
      guard Int(first) >= end, count > 0, UInt64(first) + UInt64(count) <= UInt64(UInt16.max) else {
        throw .badValue(.shards)
      }
      owned.append(OwnedRange(first: UInt16(first), count: UInt16(count), epoch: try reader.varint()))
      end = Int(first) + Int(count)
    }
    let node = try Self.node(&reader)
    var peers: [Peer] = []
    let peerCount = try reader.count(elementBytesMin: 4)
    guard peerCount <= Self.peersMax else { throw .badValue(.count) }
    for _ in 0..<peerCount {
      let number = try Self.node(&reader)
      guard number != node, number > peers.last?.node ?? 0 else { throw .badValue(.node) }
      let (host, port) = (try reader.text(), try reader.varint32())
      guard !host.isEmpty, port > 0, port <= UInt32(UInt16.max) else { throw .badValue(.address) }
      peers.append(Peer(node: number, host: host, port: UInt16(port)))
    }
    try reader.end()
    self.init(owned: owned, node: node, peers: peers)
  }

  private static func node(_ reader: inout FieldReader) throws(WireError) -> UInt16 {
    guard let node = UInt16(exactly: try reader.varint32()), node > 0 else { throw .badValue(.node) }
    return node
  }

  package func write(into buffer: inout ByteBuffer) {
    buffer.writeFrame(FrameHeader(.shardMap)) { buffer in
      buffer.writeVarint(owned.count)
      for range in owned {
        buffer.writeVarint(UInt32(range.first))
        buffer.writeVarint(UInt32(range.count))
        buffer.writeVarint(range.epoch)
      }
      buffer.writeVarint(UInt32(node))
      buffer.writeVarint(peers.count)
      for peer in peers {
        buffer.writeVarint(UInt32(peer.node))
        buffer.writeField(peer.host)
        buffer.writeVarint(UInt32(peer.port))
      }
    }
  }
}

/// Membership changes in transit from a channel's shard to their users' home shard. Between nodes they are a frame
/// (Proto/frames.md, "Between nodes"), whose header names the home shard. The sender repeats them until they are
/// confirmed.
package struct MembershipDelivery: Hashable, Sendable {
  package var from: ShardID
  package var to: ShardID
  /// Number of the preceding change for this shard; 0 if there was none.
  package var after: UInt64
  /// In rising order; durable in the sending shard.
  package var changes: [Outbox.QueuedChange]

  package init(from: ShardID, to: ShardID, after: UInt64, changes: [Outbox.QueuedChange]) {
    self.from = from
    self.to = to
    self.after = after
    self.changes = changes
  }

  /// Read the fields of a frame.
  package init(to shard: ShardID, _ payload: RawSpan) throws(WireError) {
    var reader = FieldReader(payload)
    to = shard
    from = try reader.shardID()
    after = try reader.varint()
    changes = []
    var last = after
    for _ in 0..<(try reader.count(elementBytesMin: 3)) {
      let queued = try reader.queuedChange(refusedAs: .change)
      guard queued.number > last, queued.number <= Outbox.numberMax else { throw .badValue(.change) }
      changes.append(queued)
      last = queued.number
    }
    try reader.end()
  }

  package func write(into buffer: inout ByteBuffer) {
    buffer.writeFrame(FrameHeader(.deliverChanges, shard: to)) { buffer in
      buffer.writeVarint(UInt32(from.rawValue))
      buffer.writeVarint(after)
      buffer.writeVarint(changes.count)
      for queued in changes { buffer.writeQueuedChange(queued.number, queued.change) }
    }
  }
}

/// Confirmation that changes are durable in the index.
package struct MembershipConfirmation: Hashable, Sendable {
  /// The shard that sent the changes.
  package var to: ShardID
  /// The shard that applied the changes.
  package var from: ShardID
  /// Number of the last confirmed change.
  package var through: UInt64

  package init(to: ShardID, from: ShardID, through: UInt64) {
    self.to = to
    self.from = from
    self.through = through
  }

  /// Read the fields of a frame.
  package init(to shard: ShardID, _ payload: RawSpan) throws(WireError) {
    var reader = FieldReader(payload)
    to = shard
    from = try reader.shardID()
    through = try reader.varint()
    guard through <= Outbox.numberMax else { throw .badValue(.change) }
    try reader.end()
  }

  package func write(into buffer: inout ByteBuffer) {
    buffer.writeFrame(FrameHeader(.confirmChanges, shard: to)) { buffer in
      buffer.writeVarint(UInt32(from.rawValue))
      buffer.writeVarint(through)
    }
  }
}
