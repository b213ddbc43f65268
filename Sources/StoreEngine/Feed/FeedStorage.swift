package import NIOCore
package import ReceiptModel

/// How long the feed is kept (R21): until a record is older than `milliseconds`, or the records of all shards take more
/// than `bytes`.
package struct FeedRetention: Hashable, Sendable {
  /// 0: no limit.
  package var milliseconds: Int64
  /// 0: no limit.
  package var bytes: UInt64

  package init(milliseconds: Int64, bytes: UInt64) {
    self.milliseconds = milliseconds
    self.bytes = bytes
  }
}

/// The part of a shard's feed that is on storage. Numbers rise by one from record to record, from 1.
package struct FeedExtent: Hashable, Sendable {
  /// Number of the first record that is kept, and the time of its block.
  package var first: UInt64
  package var firstTime: Timestamp
  /// Number of the next record.
  package var end: UInt64

  package init(first: UInt64 = 1, firstTime: Timestamp = .none, end: UInt64 = 1) {
    self.first = first
    self.firstTime = firstTime
    self.end = end
  }
}

/// The records of one batch, as stored.
package struct StoredFeedBlock: Sendable {
  /// Number of its first record.
  package var first: UInt64
  package var bytes: ByteBuffer

  package init(first: UInt64, bytes: ByteBuffer) {
    self.first = first
    self.bytes = bytes
  }
}

/// A read of the feed from storage, requested from the loop's driver.
package struct FeedReadRequest: Hashable, Sendable {
  package var shard: ShardID
  /// Number of the first record that is wanted. The read begins with the block that holds it, or with the next one.
  package var number: UInt64
  /// Size of the blocks at which the read ends.
  package var bytesMax: Int

  package init(shard: ShardID, number: UInt64, bytesMax: Int) {
    self.shard = shard
    self.number = number
    self.bytesMax = bytesMax
  }
}

/// A trim of a shard's feed, requested from the loop's driver.
package struct FeedTrimRequest: Hashable, Sendable {
  package var shard: ShardID
  /// Remove blocks from before this time.
  package var before: Timestamp
  /// Remove the oldest blocks until the rest takes no more than this; nil: any size.
  package var bytesMax: UInt64?

  package init(shard: ShardID, before: Timestamp, bytesMax: UInt64?) {
    self.shard = shard
    self.before = before
    self.bytesMax = bytesMax
  }
}

extension LoopCommit {
  /// The records of a batch, for the feed. They are stored with the batch, or not at all.
  package struct FeedBlock: Sendable {
    package var shard: ShardID
    package var block: StoredFeedBlock

    package init(shard: ShardID, block: StoredFeedBlock) {
      self.shard = shard
      self.block = block
    }
  }
}
