import NIOCore
import ReceiptModel
import ReceiptWire
import StoreEngine

/// Storage in memory that tests can damage.
///
/// `@unchecked Sendable`: a test uses one thread.
final class MemoryStorage: StorageEngine, @unchecked Sendable {
  var log: [ShardID: [UInt64: ByteBuffer]] = [:]
  var pages: [PageKey: ByteBuffer] = [:]
  var directory: [[UInt8]: ChannelNumber] = [:]
  /// Called before each single page is read, to change the storage in between.
  var beforePages: (PageSelection) -> Void = { _ in }

  func commit(_ group: CommitGroup) throws(StorageError) {
    for batch in group.batches { log[batch.shard, default: [:]][batch.index.rawValue] = batch.bytes }
    for drop in group.drops {
      for key in pages.keys where key.shard == drop.shard && key.channel == drop.channel { pages[key] = nil }
      if directory[drop.cid] == drop.channel { directory[drop.cid] = nil }
    }
    for page in group.pages {
      pages[page.key] = page.bytes
      if let cid = page.cid { directory[cid] = page.key.channel }
    }
    for cut in group.cuts { log[cut.shard] = log[cut.shard]?.filter { $0.key > cut.through.rawValue } }
    for trim in group.trims {
      for segment in pages.keys.filter({ $0.shard == trim.shard && $0.channel == trim.channel }) {
        if case .steps(trim.rowPage, let number) = segment.page, number < trim.before { pages[segment] = nil }
      }
    }
  }

  func read(_ shard: ShardID, _ channel: ChannelReference) throws(StorageError) -> StoredChannel? {
    var number = ChannelNumber(0)
    switch channel {
    case .number(let requested), .head(let requested): number = requested
    case .cid(let cid):
      guard let found = directory[cid] else { return nil }
      number = found
    }
    if case .head = channel {
      let head = pages[PageKey(shard: shard, channel: number, page: .head)]
      return head.map { StoredChannel(number: number, pages: [(page: .head, bytes: $0)]) }
    }
    let found = pages.filter { $0.key.shard == shard && $0.key.channel == number && !$0.key.page.isOfSteps }
      .sorted { $0.key.page.sortKey < $1.key.page.sortKey }
    if found.isEmpty { return nil }
    return StoredChannel(number: number, pages: found.map { (page: $0.key.page, bytes: $0.value) })
  }

  func readPages(
    _ shard: ShardID,
    _ channel: ChannelReference,
    _ selection: PageSelection
  ) throws(StorageError) -> StoredChannel? {
    beforePages(selection)
    var number = ChannelNumber(0)
    switch channel {
    case .number(let requested), .head(let requested): number = requested
    case .cid(let cid):
      guard let found = directory[cid] else { return nil }
      number = found
    }
    switch selection {
    case .pages(let requested):
      let found = requested.compactMap { page in
        pages[PageKey(shard: shard, channel: number, page: page)].map { (page: page, bytes: $0) }
      }
      return StoredChannel(number: number, pages: found)
    case .threads(let pagesMax):
      let found = pages.filter {
        $0.key.shard == shard && $0.key.channel == number && $0.key.page.isOfThread
      }
      .sorted { $0.key.page.sortKey < $1.key.page.sortKey }
      .prefix(pagesMax)
      return StoredChannel(number: number, pages: found.map { (page: $0.key.page, bytes: $0.value) })
    }
  }

  func readSteps(
    _ shard: ShardID,
    _ channel: ChannelNumber,
    rowPage: UInt32,
    segments: Range<UInt32>
  ) throws(StorageError) -> [StoredSegment] {
    segments.compactMap { segment in
      let key = PageKey(shard: shard, channel: channel, page: .steps(rowPage, segment))
      return pages[key].map { StoredSegment(rowPage: rowPage, segment: segment, bytes: $0) }
    }
  }

  /// The number of purges.
  private(set) var purges = 0
  func purge() throws(StorageError) { purges += 1 }

  func recover(_ shard: ShardID) throws(StorageError) -> StoredShard {
    let own = pages.filter { $0.key.shard == shard && $0.key.channel == ChannelNumber(0) }
      .sorted { $0.key.page.sortKey < $1.key.page.sortKey }
    let batches = log[shard, default: [:]].sorted { $0.key < $1.key }
    return StoredShard(
      pages: own.map { (page: $0.key.page, bytes: $0.value) },
      log: batches.map { (index: LogIndex($0.key), bytes: $0.value) }
    )
  }
}
