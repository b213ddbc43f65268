package import NIOCore
package import ReceiptModel

/// The seam between the shards and what keeps their log and pages (DESIGN.md section 3, "Shard log"). Every call
/// blocks, and is made on a thread that may block; never on an event loop.
package protocol StorageEngine: Sendable {
  /// Makes a group durable: its batches are on stable storage when this returns. Pages and cuts may be durable later
  /// than the batches, never before them, and a cut never before the pages written by earlier groups.
  ///
  /// Throws where that failed or may have failed; what the storage holds is then unknown until ``recover(_:)``.
  func commit(_ group: CommitGroup) throws(StorageError)

  /// Makes durable what earlier commits have left for later; where each commit is synced, nothing.
  func sync() throws(StorageError)

  /// A channel's pages as they are on storage, by name or by number, or its head alone; nil where there is none.
  func read(_ shard: ShardID, _ channel: ChannelReference) throws(StorageError) -> StoredChannel?

  /// Some of a channel's pages as they are on storage, those that are there, in the order asked for; nil where there is
  /// no channel of that name.
  ///
  /// Each is read for itself: where the channel is in memory, and written, meanwhile, they need not be of one state.
  func readPages(
    _ shard: ShardID,
    _ channel: ChannelReference,
    _ selection: PageSelection
  ) throws(StorageError) -> StoredChannel?

  /// Those of a row page's segments of steps that are on storage, in rising order.
  func readSteps(
    _ shard: ShardID,
    _ channel: ChannelNumber,
    rowPage: UInt32,
    segments: Range<UInt32>
  ) throws(StorageError) -> [StoredSegment]

  /// Leaves nothing behind of what commits before this call have cut off the log, where it was written as it came: in
  /// write-ahead files, and in what was overwritten of the log (R16). What pages hold now stays. Other calls may be
  /// under way.
  func purge() throws(StorageError)

  /// Has what was written over or deleted long ago merged away, in the background; called every hour.
  func mergeOld()

  /// Makes a consistent copy of everything that is committed now, with little room on the disk. One at a time; other
  /// calls may be under way.
  func makeCheckpoint() throws(StorageError) -> any StorageCheckpoint

  /// A shard's own pages and its log, as they are on storage.
  func recover(_ shard: ShardID) throws(StorageError) -> StoredShard
}

/// The storage under a server, which can be opened again after a failed append.
package protocol ReopenableStorage: Sendable {
  /// Opens the storage; nobody holds it open.
  func open() throws(StorageError) -> any StorageEngine
  /// Closes it; nothing is under way.
  func close(_ storage: any StorageEngine)
  var shardCount: Int { get }
  var store: SessionID { get }
  /// How often ``StorageEngine/sync()`` has to be called, in milliseconds; nil: never.
  var syncIntervalMilliseconds: Int? { get }
  /// Why the storage is not where it was opened first any more, in words for the operator; nil: it is. Blocks.
  var placeFault: String? { get }
}

extension StorageEngine {
  package func sync() throws(StorageError) {}
  package func mergeOld() {}
}

extension ReopenableStorage {
  package var syncIntervalMilliseconds: Int? { nil }
  package var placeFault: String? { nil }
}

/// How a channel on storage is asked for.
package enum ChannelReference: Hashable, Sendable {
  case cid([UInt8])
  case number(ChannelNumber)
  /// By number, and nothing but its head page, which says its cid.
  case head(ChannelNumber)
}

/// Which pages of a channel are read.
package enum PageSelection: Hashable, Sendable {
  /// These: a look-up each.
  case pages([PageID])
  /// Those of its threads, in the order of their keys, at most so many.
  case threads(pagesMax: Int)
}

/// A page's place on storage.
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

/// What one event loop commits at once: one append in flight per loop.
package struct CommitGroup: Sendable {
  /// A shard's log batch, encoded.
  package struct Batch: Sendable {
    package var shard: ShardID
    package var index: LogIndex
    package var bytes: ByteBuffer
  }

  /// A page, encoded. A channel's head brings its cid, under which it is found.
  package struct PageWrite: Sendable {
    package var key: PageKey
    package var cid: [UInt8]?
    package var bytes: ByteBuffer
  }

  /// The log of a shard is not needed any more up to here, inclusive.
  package struct Cut: Sendable {
    package var shard: ShardID
    package var through: LogIndex
  }

  /// Segments of steps that are needed no more: all of a row page before one. They may be gone later than the batches
  /// of this group are durable, never before.
  package struct Trim: Hashable, Sendable {
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

  /// A channel that was deleted: all its pages go, and its cid leads nowhere, unless it leads to another channel by
  /// now. Before the pages of the group that it is in, whatever they are of.
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
  package var drops: [Drop] = []
  package var pages: [PageWrite] = []
  package var cuts: [Cut] = []
  package var trims: [Trim] = []

  package init() {}

  /// Bytes of all batches.
  package var logBytes: Int { batches.reduce(0) { $0 + $1.bytes.readableBytes } }

  package var isEmpty: Bool {
    batches.isEmpty && drops.isEmpty && pages.isEmpty && cuts.isEmpty && trims.isEmpty
  }
}

/// A channel as it stands on storage.
package struct StoredChannel: Sendable {
  package var number: ChannelNumber
  /// The pages' bytes, in the order of their keys: head, rows, segments.
  package var pages: [(page: PageID, bytes: ByteBuffer)]

  package init(number: ChannelNumber, pages: [(page: PageID, bytes: ByteBuffer)]) {
    self.number = number
    self.pages = pages
  }
}

/// A segment of steps as it stands on storage: a page's bytes.
package struct StoredSegment: Sendable {
  package var rowPage: UInt32
  package var segment: UInt32
  package var bytes: ByteBuffer

  package init(rowPage: UInt32, segment: UInt32, bytes: ByteBuffer) {
    self.rowPage = rowPage
    self.segment = segment
    self.bytes = bytes
  }
}

/// What a shard starts from.
package struct StoredShard: Sendable {
  /// The shard's own pages, in the order of their keys.
  package var pages: [(page: PageID, bytes: ByteBuffer)]
  /// Batches in rising order of index.
  package var log: [(index: LogIndex, bytes: ByteBuffer)]

  package init(
    pages: [(page: PageID, bytes: ByteBuffer)],
    log: [(index: LogIndex, bytes: ByteBuffer)]
  ) {
    self.pages = pages
    self.log = log
  }

  package var head: ByteBuffer? { self[.shardHead] }
  package var types: ByteBuffer? { self[.types] }
  /// The pages of users' settings, in rising order.
  package var users: [(page: UInt32, bytes: ByteBuffer)] {
    pages.compactMap { page, bytes in
      guard case .users(let number) = page else { return nil }
      return (number, bytes)
    }
  }

  /// A page; nil where it was never written.
  package subscript(page: PageID) -> ByteBuffer? { pages.first { $0.page == page }?.bytes }
}

/// What storage can fail with.
package enum StorageError: Error, Hashable, Sendable, CustomStringConvertible {
  /// The operation failed, or may have; what is on storage is unknown until it is read again.
  case failed(String)
  /// What was read cannot be what was written. Names the place.
  case corrupt(String)
  /// The data directory cannot be used as asked: the text says why and what helps.
  case unusable(String)

  package var description: String {
    switch self {
    case .failed(let text): "storage failed: \(text)"
    case .corrupt(let text): "stored data is damaged: \(text)"
    case .unusable(let text): text
    }
  }
}
