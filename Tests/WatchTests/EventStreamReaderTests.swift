import Testing

@testable import Watch

/// `text/event-stream` as the WHATWG specifies it, whole and in pieces.
@Suite struct EventStreamReaderTests {
  struct Row: CustomTestStringConvertible {
    var testDescription: String
    var stream: String
    /// Events in the form `type|data`.
    var events: [String]
    var id: String
    var retry: Int?

    init(_ name: String, _ stream: String, _ events: [String], id: String = "", retry: Int? = nil) {
      testDescription = name
      self.stream = stream
      self.events = events
      self.id = id
      self.retry = retry
    }
  }

  static let rows = [
    Row("empty stream", "", []),
    Row("an event", "event: message.read\ndata: {}\n\n", ["message.read|{}"]),
    Row("without a type", "data: x\n\n", ["message|x"]),
    Row("an empty type", "event\ndata: x\n\n", ["message|x"]),
    Row("a type counts once", "event: a\ndata: x\n\ndata: y\n\n", ["a|x", "message|y"]),
    Row("the last type counts", "event: a\nevent: b\ndata: x\n\n", ["b|x"]),
    Row("no event without data", "event: a\n\ndata: y\n\n", ["message|y"]),
    Row("several lines", "data: YHOO\ndata: +2\ndata: 10\n\n", ["message|YHOO\n+2\n10"]),
    Row("empty data", "data\n\ndata\ndata\n\ndata:", ["message|", "message|\n"]),
    Row("one leading space is removed", "data:a\n\ndata: a\n\ndata:  a\n\n", ["message|a", "message|a", "message| a"]),
    Row("a colon in the value", "data: a: b:c\n\n", ["message|a: b:c"]),
    Row("CRLF", "event: a\r\ndata: x\r\n\r\ndata: y\r\n\r\n", ["a|x", "message|y"]),
    Row("CR", "event: a\rdata: x\r\rdata: y\r\r", ["a|x", "message|y"]),
    Row("all line endings", "data: 1\rdata: 2\ndata: 3\r\n\rdata: 4\n\n", ["message|1\n2\n3", "message|4"]),
    Row("comments", ": a comment\n:\n\ndata: x\n: another\ndata: y\n\n", ["message|x\ny"]),
    Row("a comment that looks like a field", ":data: x\n\n", []),
    Row("unknown fields", "foo: bar\ndatax: 1\n data: 2\nDATA: 3\n\n", []),
    Row("an id with its event", "id: 1-9\ndata: x\n\n", ["message|x"], id: "1-9"),
    Row("an id persists", "id: 1\ndata: x\n\ndata: y\n\n", ["message|x", "message|y"], id: "1"),
    Row("a heartbeat: a comment and an id alone", ":\nid: 7\n\n", [], id: "7"),
    Row("an empty id clears it", "id: 1\ndata: x\n\nid\ndata: y\n\n", ["message|x", "message|y"], id: ""),
    Row("a zero byte voids an id", "id: 1\n\nid: 2\0\n\n", [], id: "1"),
    Row("an incomplete block has no id", "id: 1\n\nid: 2\ndata: x\n", [], id: "1"),
    Row("an incomplete block is no event", "data: x\n\ndata: y\n", ["message|x"]),
    Row("retry", "retry: 2500\n\n", [], retry: 2500), Row("retry in an unfinished line", "retry: 5", [], retry: nil),
    Row(
      "retry that is not a number",
      "retry: 1\nretry: 2s\nretry: -1\nretry:\nretry: 99999999999999999999\n",
      [],
      retry: 1
    ), Row("a byte order mark", "\u{FEFF}data: x\n\n", ["message|x"]),
    Row("two byte order marks", "\u{FEFF}\u{FEFF}data: x\n\ndata: y\n\n", ["message|y"]),
    Row("non-ASCII text", "event: é\ndata: ✓\n\n", ["é|✓"]),
  ]

  @Test(arguments: rows)
  func streamIsReadWhole(_ row: Row) throws {
    #expect(try Self.events([Array(row.stream.utf8)], row) == row.events)
  }

  @Test(arguments: rows)
  func streamIsReadByteByByte(_ row: Row) throws {
    #expect(try Self.events(row.stream.utf8.map { [$0] }, row) == row.events)
  }

  @Test(arguments: rows)
  func streamIsReadInTwoPieces(_ row: Row) throws {
    let bytes = Array(row.stream.utf8)
    for cut in 0...bytes.count {
      #expect(try Self.events([Array(bytes[..<cut]), Array(bytes[cut...])], row) == row.events, "at \(cut)")
    }
  }

  private static func events(_ pieces: [[UInt8]], _ row: Row) throws -> [String] {
    var reader = EventStreamReader()
    var events: [String] = []
    for piece in pieces {
      let wantsMore = try reader.read(piece.span.bytes) {
        events.append("\($0.type)|\($0.data)")
        return true
      }
      #expect(wantsMore)
    }
    #expect(reader.lastEventID == row.id)
    #expect(reader.retryMilliseconds == row.retry)
    return events
  }

  /// A partial byte order mark belongs to the first line.
  @Test func partialByteOrderMarkIsText() throws {
    var reader = EventStreamReader()
    var count = 0
    let bytes: [UInt8] = [0xEF, 0xBB] + Array("data: x\n\ndata: y\n\n".utf8)
    _ = try reader.read(bytes.span.bytes) { event in
      count += 1
      #expect(event.data == "y")
      return true
    }
    #expect(count == 1)
  }

  @Test func initialLastEventIDIsKept() throws {
    var reader = EventStreamReader(lastEventID: "5")
    _ = try reader.read(Array(":\n\n".utf8).span.bytes) { _ in true }
    #expect(reader.lastEventID == "5")
  }

  @Test func readerStopsOnRequest() throws {
    var reader = EventStreamReader()
    var events: [String] = []
    let bytes = Array("id: 1\ndata: x\n\nid: 2\ndata: y\n\n".utf8)
    let wantsMore = try reader.read(bytes.span.bytes) {
      events.append($0.data)
      return false
    }
    #expect(!wantsMore && events == ["x"])
    // Only the delivered event counts, not the ones after it.
    #expect(reader.lastEventID == "1")
  }

  @Test func linesAndDataAreBounded() throws {
    let half = [UInt8](repeating: UInt8(ascii: "x"), count: EventStreamReader.byteCountMax / 2)
    var line = EventStreamReader()
    #expect(try line.read(half.span.bytes) { _ in true })
    #expect(try line.read(half.span.bytes) { _ in true })
    #expect(throws: EventStreamReader.Failure.tooLong) {
      try line.read([UInt8(ascii: "x")].span.bytes) { _ in true }
    }
    var data = EventStreamReader()
    let field = Array("data:".utf8) + half + [0x0A]
    #expect(try data.read(field.span.bytes) { _ in true })
    #expect(throws: EventStreamReader.Failure.tooLong) { try data.read(field.span.bytes) { _ in true } }
    // The reader does not buffer comments.
    var comment = EventStreamReader()
    for _ in 0..<4 { #expect(try comment.read((Array(":".utf8) + half + [0x0A]).span.bytes) { _ in true }) }
  }
}
