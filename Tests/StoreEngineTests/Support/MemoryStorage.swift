import NIOCore
import ReceiptModel
import StoreEngine
import StoreTestSupport

/// Storage in memory that tests can damage.
///
/// `@unchecked Sendable`: a test uses one thread.
final class MemoryStorage: StorageEngine, @unchecked Sendable {
  var data = StoredData()
  /// Called before each single page is read, to change the storage in between.
  var beforePages: (PageSelection) -> Void = { _ in }
  /// The number of purges.
  private(set) var purges = 0

  var log: [ShardID: [UInt64: ByteBuffer]] {
    get { data.log }
    set { data.log = newValue }
  }

  var pages: [PageKey: ByteBuffer] {
    get { data.pages }
    set { data.pages = newValue }
  }

  /// The names of all shards, which differ.
  var directory: [[UInt8]: ChannelNumber] {
    data.directory.values.reduce(into: [:]) { all, names in
      all.merge(names) { _, _ in preconditionFailure("a name of two shards") }
    }
  }

  func commit(_ group: CommitGroup) throws(StorageError) {
    for batch in group.batches { data.apply(batch) }
    for drop in group.drops { data.apply(drop) }
    for page in group.pages { data.apply(page) }
    for trim in group.logTrims { data.trimLog(of: trim.shard, through: trim.through.rawValue) }
    for trim in group.stepTrims { data.apply(trim) }
  }

  func read(_ shard: ShardID, _ channel: ChannelReference) throws(StorageError) -> StoredChannel? {
    data.read(shard, channel)
  }

  func readPages(
    _ shard: ShardID,
    _ channel: ChannelReference,
    _ selection: PageSelection
  ) throws(StorageError) -> StoredChannel? {
    beforePages(selection)
    return data.readPages(shard, channel, selection)
  }

  func readSteps(
    _ shard: ShardID,
    _ channel: ChannelNumber,
    rowPage: UInt32,
    segments: Range<UInt32>
  ) throws(StorageError) -> [StoredSegment] {
    data.readSteps(shard, channel, rowPage: rowPage, segments: segments)
  }

  func purge() throws(StorageError) { purges += 1 }

  func recover(_ shard: ShardID) throws(StorageError) -> StoredShard { data.recover(shard) }
}
