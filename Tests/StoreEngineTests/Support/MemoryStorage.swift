import NIOCore
import ReceiptModel
import StoreEngine
import StoreTestSupport

/// Storage in memory that tests can damage.
///
/// `@unchecked Sendable`: a test uses one thread.
final class MemoryStorage: MemoryBackedStorage, @unchecked Sendable {
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

  func readPages(
    _ shard: ShardID,
    _ channel: ChannelReference,
    _ selection: PageSelection
  ) throws(StorageError) -> StoredChannel? {
    beforePages(selection)
    return data.readPages(shard, channel, selection)
  }

  func purge() throws(StorageError) { purges += 1 }
}
