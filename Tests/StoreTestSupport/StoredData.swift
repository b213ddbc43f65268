package import NIOCore
package import ReceiptModel
package import ReceiptWire
package import StoreEngine

/// The content of a storage in memory: log, pages and the directory of names. It applies the parts of a commit and
/// answers the reads of a ``StorageEngine``.
package struct StoredData {
  package var log: [ShardID: [UInt64: ByteBuffer]] = [:]
  package var pages: [PageKey: ByteBuffer] = [:]
  package var directory: [ShardID: [[UInt8]: ChannelNumber]] = [:]
  package var feed: [ShardID: [StoredFeedBlock]] = [:]

  package init() {}

  // MARK: Writes

  /// Apply a whole commit.
  package mutating func apply(_ commit: LoopCommit) {
    for batch in commit.batches { apply(batch) }
    for item in commit.feedBlocks { apply(item) }
    for drop in commit.drops { apply(drop) }
    for page in commit.pages { apply(page) }
    for trim in commit.logTrims { apply(trim) }
    for trim in commit.stepTrims { apply(trim) }
  }

  package mutating func apply(_ batch: LoopCommit.Batch) {
    log[batch.shard, default: [:]][batch.index.rawValue] = batch.bytes
  }

  package mutating func apply(_ item: LoopCommit.FeedBlock) { feed[item.shard, default: []].append(item.block) }

  package mutating func apply(_ write: LoopCommit.PageWrite) {
    pages[write.key] = write.bytes
    if let cid = write.cid { directory[write.key.shard, default: [:]][cid] = write.key.channel }
  }

  package mutating func apply(_ drop: LoopCommit.Drop) {
    for key in pages.keys where key.shard == drop.shard && key.channel == drop.channel { pages[key] = nil }
    if directory[drop.shard]?[drop.cid] == drop.channel { directory[drop.shard]![drop.cid] = nil }
  }

  package mutating func apply(_ trim: LoopCommit.StepTrim) {
    for key in pages.keys where key.shard == trim.shard && key.channel == trim.channel {
      if case .steps(trim.rowPage, let segment) = key.page, trim.segments.contains(segment) { pages[key] = nil }
    }
  }

  /// Remove the batches of a trim, and no earlier ones: none should be there.
  package mutating func apply(_ trim: LoopCommit.LogTrim) {
    log[trim.shard]?.keys.filter { $0 > trim.after.rawValue && $0 <= trim.through.rawValue }
      .forEach { log[trim.shard]![$0] = nil }
  }

  /// Remove everything of a shard.
  package mutating func removeAll(of shard: ShardID) {
    log[shard] = nil
    directory[shard] = nil
    for key in pages.keys where key.shard == shard { pages[key] = nil }
  }

  /// Replace everything of a shard by what other data has of it.
  package mutating func replace(_ shard: ShardID, by other: StoredData) {
    removeAll(of: shard)
    log[shard] = other.log[shard]
    directory[shard] = other.directory[shard]
    for (key, bytes) in other.pages where key.shard == shard { pages[key] = bytes }
  }

  // MARK: Reads

  private func resolve(_ shard: ShardID, _ channel: ChannelReference) -> ChannelNumber? {
    switch channel {
    case .number(let number), .head(let number): number
    case .cid(let cid): directory[shard]?[cid]
    }
  }

  private func sortedPages(
    _ shard: ShardID,
    _ channel: ChannelNumber,
    where isIncluded: (PageID) -> Bool
  ) -> [(page: PageID, bytes: ByteBuffer)] {
    pages.filter { $0.key.shard == shard && $0.key.channel == channel && isIncluded($0.key.page) }
      .sorted { $0.key.page.sortKey < $1.key.page.sortKey }
      .map { (page: $0.key.page, bytes: $0.value) }
  }

  package func read(_ shard: ShardID, _ channel: ChannelReference) -> StoredChannel? {
    guard let number = resolve(shard, channel) else { return nil }
    if case .head = channel {
      let head = pages[PageKey(shard: shard, channel: number, page: .head)]
      return head.map { StoredChannel(number: number, pages: [(page: .head, bytes: $0)]) }
    }
    let found = sortedPages(shard, number) { !$0.isOfSteps }
    return found.isEmpty ? nil : StoredChannel(number: number, pages: found)
  }

  package func readPages(
    _ shard: ShardID,
    _ channel: ChannelReference,
    _ selection: PageSelection
  ) -> StoredChannel? {
    guard let number = resolve(shard, channel) else { return nil }
    switch selection {
    case .pages(let names):
      let found = names.compactMap { page in
        pages[PageKey(shard: shard, channel: number, page: page)].map { (page: page, bytes: $0) }
      }
      return StoredChannel(number: number, pages: found)
    case .threads(let pagesMax):
      let found = sortedPages(shard, number) { $0.isOfThread }.prefix(pagesMax)
      return StoredChannel(number: number, pages: Array(found))
    }
  }

  package func readSteps(
    _ shard: ShardID,
    _ channel: ChannelNumber,
    rowPage: UInt32,
    segments: Range<UInt32>
  ) -> [StoredSegment] {
    segments.compactMap { segment in
      let key = PageKey(shard: shard, channel: channel, page: .steps(rowPage, segment))
      return pages[key].map { StoredSegment(rowPage: rowPage, segment: segment, bytes: $0) }
    }
  }

  /// The places that name a user: log batches and pages.
  package func traces(of user: String) throws(WireError) -> [String] {
    var found: [String] = []
    for batches in log.values {
      for (index, bytes) in batches where "\(try LogBatch(bytes.readableBytesSpan).effects)".contains("\"\(user)\"") {
        found.append("log \(index)")
      }
    }
    for (key, bytes) in pages where "\(try Page(bytes.readableBytesSpan).effects)".contains("\"\(user)\"") {
      found.append("\(key.page) of \(key.channel.rawValue)")
    }
    return found.sorted()
  }

  package func recover(_ shard: ShardID) -> StoredShard {
    let batches = log[shard, default: [:]].sorted { $0.key < $1.key }
    return StoredShard(
      pages: sortedPages(shard, ChannelNumber(0)) { _ in true },
      log: batches.map { (index: LogIndex($0.key), bytes: $0.value) },
      feed: feedExtent(of: shard)
    )
  }

  // MARK: The feed

  private func feedExtent(of shard: ShardID) -> FeedExtent {
    guard let blocks = feed[shard], let first = blocks.first, let last = blocks.last else { return FeedExtent() }
    return FeedExtent(first: first.first, firstTime: first.header.time, end: last.first + UInt64(last.header.count))
  }

  package func readFeed(_ request: FeedReadRequest) -> [StoredFeedBlock] {
    var found: [StoredFeedBlock] = []
    var byteCount = 0
    for block in feed[request.shard] ?? [] where block.first + UInt64(block.header.count) > request.number {
      guard byteCount < request.bytesMax else { break }
      found.append(block)
      byteCount += block.bytes.readableBytes
    }
    return found
  }

  package mutating func trimFeed(_ request: FeedTrimRequest) -> FeedExtent {
    var blocks = feed[request.shard] ?? []
    var byteCount = blocks.reduce(0) { $0 + $1.bytes.readableBytes }
    while blocks.count > 1,
      blocks[0].header.time < request.before || byteCount > request.bytesMax.map({ Int($0) }) ?? .max
    {
      byteCount -= blocks.removeFirst().bytes.readableBytes
    }
    feed[request.shard] = blocks
    return feedExtent(of: request.shard)
  }
}

/// A storage whose content is in memory. Types that conform may override single operations, and damage the content.
package protocol MemoryBackedStorage: StorageEngine, AnyObject {
  var data: StoredData { get set }
}

extension MemoryBackedStorage {
  package func commit(_ commit: LoopCommit) throws(StorageError) { data.apply(commit) }

  package func read(_ shard: ShardID, _ channel: ChannelReference) throws(StorageError) -> StoredChannel? {
    data.read(shard, channel)
  }

  package func readPages(
    _ shard: ShardID,
    _ channel: ChannelReference,
    _ selection: PageSelection
  ) throws(StorageError) -> StoredChannel? { data.readPages(shard, channel, selection) }

  package func readSteps(
    _ shard: ShardID,
    _ channel: ChannelNumber,
    rowPage: UInt32,
    segments: Range<UInt32>
  ) throws(StorageError) -> [StoredSegment] {
    data.readSteps(shard, channel, rowPage: rowPage, segments: segments)
  }

  package func readFeed(_ request: FeedReadRequest) throws(StorageError) -> [StoredFeedBlock] {
    data.readFeed(request)
  }

  package func trimFeed(_ request: FeedTrimRequest) throws(StorageError) -> FeedExtent { data.trimFeed(request) }

  package func purge() throws(StorageError) {}

  package func recover(_ shard: ShardID) throws(StorageError) -> StoredShard { data.recover(shard) }
}

extension StoredFeedBlock {
  fileprivate var header: FeedBlockHeader {
    var reader = FieldReader(bytes.readableBytesSpan)
    do throws(WireError) { return try FeedBlockHeader(&reader) } catch { preconditionFailure("\(error)") }
  }
}

extension LoopCommit.LogTrim {
  /// A trim of everything, for storage with a defect.
  package var ofAll: Self { Self(shard: shard, after: .zero, through: LogIndex(.max)) }
}
