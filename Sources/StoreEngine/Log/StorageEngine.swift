package import NIOCore
package import ReceiptModel

/// Storage of the shards' log and pages (docs/contribute/architecture.md, "Log, pages and recovery"). Every call
/// blocks. `commit` may be called on an event loop while commits are quick (`CommitPace`); call all others on a thread
/// that may block.
package protocol StorageEngine: Sendable {
  /// Make a commit durable: its batches are on stable storage when this returns. Its pages and log trims may become
  /// durable later than the batches, never before them. A log trim never becomes durable before the pages of earlier
  /// commits. Trims become durable in their order: each one begins where the last one of its log or row page ended.
  ///
  /// Throws if that failed or may have failed; the state of the storage is then unknown until ``recover(_:)``.
  func commit(_ commit: LoopCommit) throws(StorageError)

  /// Sync what earlier commits have left unsynced; do nothing if each commit syncs.
  func sync() throws(StorageError)

  /// Read a channel's pages by name or number, or only its head; nil if there is no such channel.
  func read(_ shard: ShardID, _ channel: ChannelReference) throws(StorageError) -> StoredChannel?

  /// Read some of a channel's pages, those that exist, in the requested order; nil if there is no channel of that
  /// name.
  ///
  /// Each page is read separately: if the channel is in memory and is being written, the pages may be of different
  /// states.
  func readPages(
    _ shard: ShardID,
    _ channel: ChannelReference,
    _ selection: PageSelection
  ) throws(StorageError) -> StoredChannel?

  /// Read those of a row page's step segments that are on storage, in rising order.
  func readSteps(
    _ shard: ShardID,
    _ channel: ChannelNumber,
    rowPage: UInt32,
    segments: Range<UInt32>
  ) throws(StorageError) -> [StoredSegment]

  /// Read blocks of a shard's feed in order, from the one that holds a record, or from the next one. Ends behind the
  /// block that reaches ``FeedReadRequest/bytesMax``.
  func readFeed(_ request: FeedReadRequest) throws(StorageError) -> [StoredFeedBlock]

  /// Remove the oldest blocks of a shard's feed, but not its last one.
  ///
  /// - Returns: what is kept.
  func trimFeed(_ request: FeedTrimRequest) throws(StorageError) -> FeedExtent

  /// Remove all traces of log batches that commits before this call have trimmed: in write-ahead files, and in
  /// overwritten parts of the log (R16). Current pages stay. Other calls may be in flight.
  func purge() throws(StorageError)

  /// Compact old overwritten and deleted data in the background; called every hour.
  func compactOld()

  /// Make a consistent copy of everything committed so far, using little disk space. One at a time; other calls may be
  /// in flight.
  func makeCheckpoint() throws(StorageError) -> any StorageCheckpoint

  /// Read how far the storage has the log of a cluster's group: the newest ``LoopCommit/position`` of the group, or
  /// the start of its log.
  func position(of group: GroupID) throws(StorageError) -> LogCursor

  /// Read the record keys of a group, by rising number.
  func recordKeys(of group: GroupID) throws(StorageError) -> [RecordKey]

  /// Replace the record keys of a group. These, and everything committed before, are on stable storage when this
  /// returns. The next ``purge()`` removes all traces of the others.
  func replaceRecordKeys(_ keys: [RecordKey], of group: GroupID) throws(StorageError)

  /// Read a group as it is now, for another node. Other calls may be in flight.
  func makeSnapshot(of group: GroupShards) throws(StorageError) -> any GroupSnapshot

  /// Begin to receive another node's snapshot of a group, one at a time for each group.
  func receiveSnapshot(of group: GroupShards) throws(StorageError) -> any GroupSnapshotReceiver

  /// Remove all data of a group, with its record keys, durably. Requires that nothing else reads or writes it.
  func remove(_ group: GroupShards) throws(StorageError)

  /// Make several calls of ``recover(_:)`` quick, while the storage is in use.
  func prepareRecovery() throws(StorageError)

  /// Read a shard's own pages and its log.
  func recover(_ shard: ShardID) throws(StorageError) -> StoredShard
}

/// A server's storage, which can be reopened after a failed append.
package protocol ReopenableStorage: Sendable {
  /// Open the storage. Requires that it is not open.
  func open() throws(StorageError) -> any StorageEngine
  /// Close the storage. Requires that no call is in flight.
  func close(_ storage: any StorageEngine)
  var shardCount: Int { get }
  var store: SessionID { get }
  /// Interval at which ``StorageEngine/sync()`` must be called, in milliseconds; nil for never.
  var syncIntervalMilliseconds: Int? { get }
  /// Why the storage is no longer where it was first opened, in words for the operator; nil if it still is. Blocks.
  var locationFault: String? { get }
}

extension StorageEngine {
  package func position(of group: GroupID) throws(StorageError) -> LogCursor { .start }
  package func sync() throws(StorageError) {}
  package func prepareRecovery() throws(StorageError) {}
  package func compactOld() {}
  package func readFeed(_ request: FeedReadRequest) throws(StorageError) -> [StoredFeedBlock] { [] }
  package func trimFeed(_ request: FeedTrimRequest) throws(StorageError) -> FeedExtent { FeedExtent() }
}

extension ReopenableStorage {
  package var syncIntervalMilliseconds: Int? { nil }
  package var locationFault: String? { nil }
}

/// Reference to a channel on storage.
package enum ChannelReference: Hashable, Sendable {
  case cid([UInt8])
  case number(ChannelNumber)
  /// By number, and only the head page, which contains the cid.
  case head(ChannelNumber)

  /// All bytes of a cid at once; the synthesised function takes them one by one. Creating a channel of ten members
  /// hashes 138 references.
  package func hash(into hasher: inout Hasher) {
    switch self {
    case .cid(let cid): cid.withUnsafeBytes { hasher.combine(bytes: $0) }
    case .number(let number): hasher.combine(number)
    case .head(let number):
      hasher.combine(true)
      hasher.combine(number)
    }
  }
}

/// Selection of a channel's pages.
package enum PageSelection: Hashable, Sendable {
  /// These pages, with one look-up each.
  case pages([PageID])
  /// The pages of its threads in key order, up to a maximum number.
  case threads(pagesMax: Int)
}

/// Key of a page on storage.
package struct PageKey: Hashable, Sendable {
  package var shard: ShardID
  /// 0 for the shard's own pages.
  package var channel: ChannelNumber
  package var page: PageID

  package init(shard: ShardID, channel: ChannelNumber, page: PageID) {
    self.shard = shard
    self.channel = channel
    self.page = page
  }
}

/// Errors of the storage.
package enum StorageError: Error, Hashable, Sendable, CustomStringConvertible {
  /// The operation failed or may have failed; the state of the storage is unknown until it is read again.
  case failed(String)
  /// The data that was read is not what was written. The text names the location.
  case corrupt(String)
  /// The data directory cannot be used as requested. The text says why and what to do.
  case unusable(String)

  package var description: String {
    switch self {
    case .failed(let text): "storage failed: \(text)"
    case .corrupt(let text): "stored data is damaged: \(text)"
    case .unusable(let text): text
    }
  }
}

/// A consistent copy of everything committed before it was made. It does not change while the storage continues. Every
/// call blocks.
package protocol StorageCheckpoint: Sendable {
  /// Files of the checkpoint; constant for its life.
  var files: [CheckpointFile] { get }

  /// Read `count` bytes of a file. Throws if they cannot be read or do not exist.
  func read(_ file: Int, at offset: UInt64, count: Int) throws(StorageError) -> ByteBuffer

  /// Remove the checkpoint; call nothing else afterwards.
  func remove()
}

/// A file of a checkpoint.
package struct CheckpointFile: Hashable, Sendable {
  package var name: String
  package var size: UInt64

  package init(name: String, size: UInt64) {
    self.name = name
    self.size = size
  }
}

extension StorageEngine {
  package func makeCheckpoint() throws(StorageError) -> any StorageCheckpoint {
    throw .unusable("this storage makes no checkpoints")
  }
}

/// Writes that one event loop commits together: one append in flight per loop.
package struct LoopCommit: Sendable {
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

  /// Trim of a shard's log up to an index.
  package struct LogTrim: Sendable {
    package var shard: ShardID
    /// The log was trimmed up to here, inclusive: nothing before is there.
    package var after: LogIndex
    /// The log is trimmed up to here, inclusive.
    package var through: LogIndex

    package init(shard: ShardID, after: LogIndex, through: LogIndex) {
      self.shard = shard
      self.after = after
      self.through = through
    }
  }

  /// Deletion of step segments of a row page. It may become durable later than the batches of its commit, never
  /// earlier.
  package struct StepTrim: Hashable, Sendable {
    package var shard: ShardID
    package var channel: ChannelNumber
    package var rowPage: UInt32
    /// All segments before these are deleted already.
    package var segments: Range<UInt32>

    package init(shard: ShardID, channel: ChannelNumber, rowPage: UInt32, segments: Range<UInt32>) {
      self.shard = shard
      self.channel = channel
      self.rowPage = rowPage
      self.segments = segments
    }
  }

  /// Drop of a deleted channel: removes all its pages and its cid, unless the cid belongs to another channel by now.
  /// Drops precede the pages of their commit, even pages of the same channel.
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
  package var feedBlocks: [FeedBlock] = []
  /// Number of the first batches that the shared log has committed already. Only local storage needs them.
  package var followedCount = 0
  package var drops: [Drop] = []
  package var pages: [PageWrite] = []
  package var logTrims: [LogTrim] = []
  package var stepTrims: [StepTrim] = []
  /// How far this commit and the ones before it have the log of a cluster's group; nil leaves that as it is.
  package var position: GroupCursor?

  package init() {}

  /// Size of all batches in bytes.
  package var logBytes: Int { batches.reduce(0) { $0 + $1.bytes.readableBytes } }

  package var isEmpty: Bool {
    batches.isEmpty && drops.isEmpty && pages.isEmpty && logTrims.isEmpty && stepTrims.isEmpty && position == nil
  }
}
