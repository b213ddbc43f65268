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

  package init(
    pages: [(page: PageID, bytes: ByteBuffer)],
    log: [(index: LogIndex, bytes: ByteBuffer)]
  ) {
    self.pages = pages
    self.log = log
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
