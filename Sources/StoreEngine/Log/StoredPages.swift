package import NIOCore
package import ReceiptModel

/// A channel as stored.
package struct StoredChannel: Sendable {
  package var number: ChannelNumber
  /// The pages' bytes in key order: head, rows, segments.
  package var pages: [(page: PageID, bytes: ByteBuffer)]

  package init(number: ChannelNumber, pages: [(page: PageID, bytes: ByteBuffer)]) {
    self.number = number
    self.pages = pages
  }
}

/// A step segment as stored: the bytes of a page.
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

/// Stored state that a shard starts from.
package struct StoredShard: Sendable {
  /// The shard's own pages, in key order.
  package var pages: [(page: PageID, bytes: ByteBuffer)]
  /// Batches in rising order of index.
  package var log: [(index: LogIndex, bytes: ByteBuffer)]
  /// Its part of the feed.
  package var feed = FeedExtent()

  package init(
    pages: [(page: PageID, bytes: ByteBuffer)],
    log: [(index: LogIndex, bytes: ByteBuffer)],
    feed: FeedExtent = FeedExtent()
  ) {
    self.pages = pages
    self.log = log
    self.feed = feed
  }

  package var head: ByteBuffer? { self[.shardHead] }
  package var types: ByteBuffer? { self[.types] }
  /// Pages of users' settings, in rising order.
  package var users: [(page: UInt32, bytes: ByteBuffer)] {
    pages.compactMap { page, bytes in
      guard case .users(let number) = page else { return nil }
      return (number, bytes)
    }
  }

  /// Bytes of a page; nil if it was never written.
  package subscript(page: PageID) -> ByteBuffer? { pages.first { $0.page == page }?.bytes }
}

extension PageID {
  /// Sort key of a page: head, rows, segments, acknowledgements, memberships, threads, steps, each in rising order.
  /// This is the order of the keys on storage, and of assignment.
  package var sortKey: UInt64 {
    switch self {
    case .head: 0
    case .rows(let number): 1 << 32 | UInt64(number)
    case .segment(let number): 2 << 32 | UInt64(number)
    case .types: 3 << 32
    case .shardHead: 4 << 32
    case .acknowledgements(let sequence): 5 << 32 | UInt64(sequence.rawValue)
    case .users(let number): 7 << 32 | UInt64(number)
    case .outbox(let number): 8 << 32 | UInt64(number)
    case .index: 9 << 32
    case .memberships(let number): 10 << 32 | UInt64(number)
    case .webhooks(let number): 11 << 32 | UInt64(number)
    case .tokens: 12 << 32
    case .consumers: 13 << 32
    case .timers(let number): 14 << 32 | UInt64(number)
    case .pushJob(let number): 15 << 32 | UInt64(number)
    // A thread's pages are adjacent, rows first.
    case .threadRows(let parent, let number): 1 << 56 | UInt64(parent.rawValue) << 24 | UInt64(number)
    case .threadSegment(let parent, let number):
      1 << 56 | UInt64(parent.rawValue) << 24 | Self.threadSegmentBit | UInt64(number)
    // After all pages that are read with a channel.
    case .steps(let rowPage, let segment): 2 << 56 | UInt64(rowPage) << 32 | UInt64(segment)
    }
  }

  private static let threadSegmentBit: UInt64 = 1 << 23

  /// Key range of all threads' pages.
  package static let threadSortKeys: Range<UInt64> = 1 << 56..<2 << 56

  /// Whether the page is a segment of steps, which is not read with its channel.
  package var isOfSteps: Bool {
    if case .steps = self { return true }
    return false
  }

  /// Whether the page is one of the shard's own, with a valid number.
  package var isOfShard: Bool {
    switch self {
    case .outbox(let number): UInt64(number) < Self.outboxPages
    case .webhooks(let number): number < Self.webhookPages
    case .pushJob(let number): number < PushJobTable.countMax
    default: !isOfChannel
    }
  }

  /// Whether the page belongs to a thread.
  package var isOfThread: Bool { Self.threadSortKeys.contains(sortKey) }

  /// Decode a page from its ``sortKey``.
  package init?(sortKey: UInt64) {
    let number = UInt32(truncatingIfNeeded: sortKey)
    switch sortKey >> 56 {
    case 0: break
    case 1:
      let parent = SequenceNumber(UInt32(truncatingIfNeeded: sortKey >> 24))
      let page = number & UInt32(Self.threadSegmentBit - 1)
      self = sortKey & Self.threadSegmentBit == 0 ? .threadRows(parent, page) : .threadSegment(parent, page)
      return
    case 2 where sortKey >> 48 & 0xFF == 0:
      self = .steps(UInt32(sortKey >> 32 & 0xFFFF), number)
      return
    default: return nil
    }
    switch sortKey >> 32 {
    case 0 where number == 0: self = .head
    case 1: self = .rows(number)
    case 2: self = .segment(number)
    case 3 where number == 0: self = .types
    case 4 where number == 0: self = .shardHead
    case 5: self = .acknowledgements(SequenceNumber(number))
    case 7: self = .users(number)
    case 8: self = .outbox(number)
    case 9 where number == 0: self = .index
    case 10: self = .memberships(number)
    case 11: self = .webhooks(number)
    case 12 where number == 0: self = .tokens
    case 13 where number == 0: self = .consumers
    case 14: self = .timers(number)
    case 15: self = .pushJob(number)
    default: return nil
    }
  }
}
