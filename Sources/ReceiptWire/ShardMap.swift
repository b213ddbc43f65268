package import NIOCore
internal import ReceiptModel

/// The shards that a node of a cluster owns (Proto/frames.md, "Shards of a cluster").
///
/// A node sends it after `ready`, and again whenever it becomes the owner of more shards.
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

  /// In rising order, without overlaps. Every other shard has another owner, or none.
  package var owned: [OwnedRange]

  package init(owned: [OwnedRange]) { self.owned = owned }

  /// - Throws: if the fields do not parse, or the ranges are empty or do not rise.
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
    try reader.end()
    self.init(owned: owned)
  }

  package func write(into buffer: inout ByteBuffer) {
    buffer.writeFrame(FrameHeader(.shardMap)) { buffer in
      buffer.writeVarint(owned.count)
      for range in owned {
        buffer.writeVarint(UInt32(range.first))
        buffer.writeVarint(UInt32(range.count))
        buffer.writeVarint(range.epoch)
      }
    }
  }
}
