import NIOCore
import ReceiptModel
import Testing

@testable import Gateway

/// Cursors of the change feed, as text.
@Suite struct FeedCursorTests {
  private static func text(_ cursor: FeedCursor) -> String {
    var buffer = ByteBuffer()
    cursor.write(into: &buffer)
    return String(buffer: buffer)
  }

  private static func parse(_ text: String) -> FeedCursor? { FeedCursor(Array(text.utf8).span.bytes) }

  @Test func cursorsReadBack() {
    for cursor in [
      FeedCursor(FeedPartition(index: 0, count: 1), time: .none, positions: [0]),
      FeedCursor(FeedPartition(index: 3, count: 4), time: Timestamp(milliseconds: 1), positions: [1, .max, 300]),
      FeedCursor(
        FeedPartition(index: .max, count: .max),
        time: Timestamp(milliseconds: .max),
        positions: Array(repeating: .max, count: 1_000)
      ),
    ] {
      #expect(Self.parse(Self.text(cursor)) == cursor)
    }
  }

  @Test func otherTextsAreNoCursors() {
    let text = Self.text(FeedCursor(FeedPartition(index: 0, count: 2), time: .none, positions: [5, 6]))
    for other in [
      "", "A", "!!!!", String(text.dropLast()), text + "AAAA", "B" + text.dropFirst(),
      String(repeating: "A", count: 20_000),
    ] {
      #expect(Self.parse(other) == nil, "\(other.prefix(40))")
    }
  }

  @Test func partitionsAreParsed() {
    func parse(_ text: String, shards: Int = 16) -> FeedPartition? {
      FeedPartition(Array(text.utf8).span.bytes, shardCount: shards)
    }
    #expect(parse("0/1") == FeedPartition(index: 0, count: 1))
    #expect(parse("15/16") == FeedPartition(index: 15, count: 16))
    for text in [
      "", "/", "0", "0/", "/1", "1/1", "16/16", "0/17", "-1/2", "0/0", "0/65536", "65536/65537", "0/1/2", " 0/1",
      "0x0/1",
      "99999999999999999999/1",
    ] {
      #expect(parse(text) == nil, "\(text)")
    }
  }
}
