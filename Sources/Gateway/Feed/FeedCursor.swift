internal import NIOCore
internal import ReceiptModel
internal import ReceiptWire

/// How far a reader of a partition has come in each of its shards: opaque text for callers (docs/api/feed.md).
struct FeedCursor: Hashable {
  private static let formatVersion: UInt8 = 1
  /// Longest text: a store has at most 1,024 shards.
  private static let textBytesMax = 16_384

  var partition: FeedPartition
  /// Time of the last record before the cursor; none: unknown.
  var time: Timestamp
  /// Number of the next record in each shard of the partition, in rising order of shards.
  var positions: [UInt64]

  init(_ partition: FeedPartition, time: Timestamp, positions: [UInt64]) {
    self.partition = partition
    self.time = time
    self.positions = positions
  }

  /// Parse a cursor's text; nil if it is none.
  init?(_ text: RawSpan) {
    guard text.byteCount <= Self.textBytesMax,
      let bytes = Base64URL().decode(text.withUnsafeBytes { Array($0) }[...])
    else { return nil }
    do throws(WireError) {
      var reader = FieldReader(bytes.span.bytes)
      guard try reader.byte() == Self.formatVersion, let index = UInt16(exactly: try reader.varint()),
        let count = UInt16(exactly: try reader.varint())
      else { return nil }
      partition = FeedPartition(index: index, count: count)
      time = try reader.time()
      positions = []
      for _ in 0..<(try reader.count()) { positions.append(try reader.varint()) }
      try reader.end()
    } catch {
      return nil
    }
  }

  /// Write the text.
  func write(into buffer: inout ByteBuffer) {
    var bytes = ByteBuffer()
    bytes.reserveCapacity(24 + 6 * positions.count)
    bytes.writeByte(Self.formatVersion)
    bytes.writeVarint(UInt64(partition.index))
    bytes.writeVarint(UInt64(partition.count))
    bytes.writeTime(time)
    bytes.writeVarint(positions.count)
    for position in positions { bytes.writeVarint(position) }
    Base64URL.encode(bytes.readableBytesSpan, into: &buffer)
  }

  /// Return the shards of a partition.
  static func shards(of partition: FeedPartition, shardCount: Int) -> [ShardID] {
    (0..<shardCount).map { ShardID(UInt16($0)) }.filter { partition.contains($0) }
  }
}

extension FeedPartition {
  /// Parse `i/n`; nil if the text is of another form, or names no partition of a store.
  init?(_ text: RawSpan, shardCount: Int) {
    guard let slash = text.firstOffset(of: UInt8(ascii: "/"), from: 0),
      let index = text.extracting(0..<slash).decimal.flatMap({ UInt16(exactly: $0) }),
      let count = text.extracting((slash + 1)..<text.byteCount).decimal.flatMap({ UInt16(exactly: $0) })
    else { return nil }
    self.init(index: index, count: count)
    guard isValid(shardCount: shardCount) else { return nil }
  }

  var text: String { "\(index)/\(count)" }
}
