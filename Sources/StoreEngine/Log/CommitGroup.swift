package import NIOCore
package import ReceiptModel

/// Writes that one event loop commits together: one append in flight per loop.
package struct CommitGroup: Sendable {
  /// A shard's log batch, encoded.
  package struct Batch: Sendable {
    package var shard: ShardID
    package var index: LogIndex
    package var bytes: ByteBuffer
  }

  /// An encoded page. A channel's head carries the cid under which the channel is found.
  package struct PageWrite: Sendable {
    package var key: PageKey
    package var cid: [UInt8]?
    package var bytes: ByteBuffer
  }

  /// Trim of a shard's log up to an index, inclusive.
  package struct LogTrim: Sendable {
    package var shard: ShardID
    package var through: LogIndex
  }

  /// Deletion of a row page's step segments below `before`. It may become durable later than the batches of its group,
  /// never earlier.
  package struct StepTrim: Hashable, Sendable {
    package var shard: ShardID
    package var channel: ChannelNumber
    package var rowPage: UInt32
    package var before: UInt32

    package init(shard: ShardID, channel: ChannelNumber, rowPage: UInt32, before: UInt32) {
      self.shard = shard
      self.channel = channel
      self.rowPage = rowPage
      self.before = before
    }
  }

  /// Drop of a deleted channel: removes all its pages and its cid, unless the cid belongs to another channel by now.
  /// Drops precede the pages of their group, even pages of the same channel.
  package struct Drop: Hashable, Sendable {
    package var shard: ShardID
    package var channel: ChannelNumber
    package var cid: [UInt8]

    package init(shard: ShardID, channel: ChannelNumber, cid: [UInt8]) {
      self.shard = shard
      self.channel = channel
      self.cid = cid
    }
  }

  package var batches: [Batch] = []
  /// Number of the first batches that the shared log has committed already. Only local storage needs them.
  package var followedCount = 0
  package var drops: [Drop] = []
  package var pages: [PageWrite] = []
  package var logTrims: [LogTrim] = []
  package var stepTrims: [StepTrim] = []
  /// How far this commit and the ones before it have the log of a cluster's group; nil leaves that as it is.
  package var position: GroupPosition?

  package init() {}

  /// Size of all batches in bytes.
  package var logBytes: Int { batches.reduce(0) { $0 + $1.bytes.readableBytes } }

  package var isEmpty: Bool {
    batches.isEmpty && drops.isEmpty && pages.isEmpty && logTrims.isEmpty && stepTrims.isEmpty
      && position == nil
  }
}
