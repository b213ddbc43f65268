import Foundation
import HTTP2Session
import TestSupport
import Testing

@testable import Probe

/// HTTP/2 frames as lines and lines as frames, with bytes written by hand after RFC 9113.
struct HTTP2TextTests {
  struct Row: CustomTestStringConvertible {
    var line: String
    var hex: String
    var testDescription: String { line }

    init(_ line: String, _ hex: String) {
      self.line = line
      self.hex = hex
    }
  }

  /// Lines in printed form with their bytes; each is converted to the other.
  static let rows = [
    Row("preface", "505249202a20485454502f322e300d0a0d0a534d0d0a0d0a"),
    Row("data stream=1 end_stream text=test", "000004 00 01 00000001 74657374"),
    Row("data stream=1", "000000 00 00 00000001"), Row("data stream=1 bytes=00ff", "000002 00 00 00000001 00ff"),
    Row("data stream=3 end_stream padding=2 text=ab", "000005 00 09 00000003 02 6162 0000"),
    Row("data stream=3 padding=0 text='{\"a\":1}'", "000008 00 08 00000003 00 7b2261223a317d"),
    Row("headers stream=1 end_stream :method=GET", "000005 01 05 00000001 1203474554"),
    Row("headers stream=1 end_headers=0", "000000 01 00 00000001"),
    Row("headers stream=1 dependency=3 weight=256 exclusive=1", "000005 01 24 00000001 80000003 ff"),
    Row("headers stream=1 padding=1 dependency=0 weight=1", "000007 01 2c 00000001 01 00000000 00 00"),
    Row("priority stream=5 dependency=1 weight=16", "000005 02 00 00000005 00000001 0f"),
    Row("rst_stream stream=1 code=CANCEL", "000004 03 00 00000001 00000008"),
    Row("rst_stream stream=1 code=255", "000004 03 00 00000001 000000ff"), Row("settings", "000000 04 00 00000000"),
    Row("settings ack", "000000 04 01 00000000"),
    Row(
      "settings initial_window_size=1 initial_window_size=2 0xff=3",
      "000012 04 00 00000000 0004 00000001 0004 00000002 00ff 00000003"
    ), Row("push_promise stream=1 promised=2 :method=GET", "000009 05 04 00000001 00000002 1203474554"),
    Row("ping bytes=0102030405060708", "000008 06 00 00000000 0102030405060708"),
    Row("ping ack bytes=0102030405060708", "000008 06 01 00000000 0102030405060708"),
    Row("ping stream=1 @reserved bytes=0102030405060708", "000008 06 00 80000001 0102030405060708"),
    Row("ping @flags=0x16 bytes=0102030405060708", "000008 06 16 00000000 0102030405060708"),
    Row("goaway last_stream=5 code=ENHANCE_YOUR_CALM debug=bye", "00000b 07 00 00000000 00000005 0000000b 627965"),
    Row("window_update increment=0", "000004 08 00 00000000 00000000"),
    Row("window_update stream=1 increment=2147483647", "000004 08 00 00000001 7fffffff"),
    Row("continuation stream=1 end_headers=0", "000000 09 00 00000001"),
    Row("0x16 stream=1 @flags=0xff payload=00", "000001 16 ff 00000001 00"), Row("0xfe", "000000 fe 00 00000000"),
  ]

  @Test(arguments: rows)
  func linesAndBytesConvertIntoEachOther(_ row: Row) throws {
    let hex = row.hex.filter { $0 != " " }
    var wireProtocol = HTTP2Frames()
    #expect(Hex.text(try wireProtocol.encode(row.line)) == hex, "\(row.line)")
    #expect(try ProbeDecoding.lines(hex, in: HTTP2Frames()).text == [row.line])
    guard row.line != "preface" else { return }
    #expect(try wireProtocol.differences(row.line, from: unit(hex)) == [])
  }

  /// Deliberately malformed frames, and how they are shown.
  static let malformed: [(line: String, hex: String, shown: String?)] = [
    ("ping @length=7 bytes=0102030405060708", "000007 06 00 00000000 0102030405060708", nil),
    ("data stream=1 @length=16777215", "ffffff 00 00 00000001", nil),
    (
      "data stream=1 padding=0 pad_length=5 text=ab", "000003 00 08 00000001 05 6162",
      "data stream=1 @flags=0x08 payload=056162 (padding of 5 bytes in 2)"
    ),
    (
      "data stream=1 @flags=0x9 payload=", "000000 00 09 00000001",
      "data stream=1 end_stream @flags=0x09 payload= (no pad length)"
    ),
    (
      "headers stream=1 @flags=0x25 payload=00", "000001 01 25 00000001 00",
      "headers stream=1 end_stream @flags=0x25 payload=00 (no room for a priority)"
    ),
    (
      "priority stream=1 payload=80000001", "000004 02 00 00000001 80000001",
      "priority stream=1 payload=80000001 (4 bytes, not 5)"
    ),
    ("rst_stream stream=1 payload=00", "000001 03 00 00000001 00", "rst_stream stream=1 payload=00 (1 bytes, not 4)"),
    (
      "settings payload=000300", "000003 04 00 00000000 000300",
      "settings payload=000300 (a length that is no multiple of 6)"
    ),
    (
      "push_promise stream=1 payload=00", "000001 05 00 00000001 00",
      "push_promise stream=1 end_headers=0 payload=00 (shorter than 4 bytes)"
    ), ("ping bytes=01", "000001 06 00 00000000 01", "ping payload=01 (1 bytes, not 8)"),
    ("goaway payload=00", "000001 07 00 00000000 00", "goaway payload=00 (shorter than 8 bytes)"),
    ("window_update payload=000001", "000003 08 00 00000000 000001", "window_update payload=000001 (3 bytes, not 4)"),
    (
      "headers stream=1 end_stream block=80", "000001 01 05 00000001 80",
      "headers stream=1 end_stream block=80 (it does not decode)"
    ), ("hex:0102 03", "010203", nil),
  ]

  @Test(arguments: malformed)
  func malformedFramesAreEncodedAndShown(_ row: (line: String, hex: String, shown: String?)) throws {
    let hex = row.hex.filter { $0 != " " }
    var wireProtocol = HTTP2Frames()
    var line = row.line
    // push_promise has END_HEADERS unless the line clears it.
    if line.hasPrefix("push_promise") { line += " end_headers=0" }
    #expect(Hex.text(try wireProtocol.encode(line)) == hex, "\(line)")
    guard let shown = row.shown else { return }
    #expect(try ProbeDecoding.lines(hex, in: HTTP2Frames()).text == [shown])
    // A frame that does not parse has no fields to compare, except its kind and stream.
    let kind = String(line.prefix { $0 != " " })
    #expect(try wireProtocol.differences(kind, from: unit(hex)) == [])
  }

  static let wrong: [(line: String, error: String)] = [
    ("", "begins with its kind"), ("hedders stream=1", "there is no frame 'hedders'"),
    ("headers :method=GET", "stream=… is missing"), ("data text=a", "stream=… is missing"),
    ("ping foo=1", "ping has no field 'foo'; its fields are: stream, ack, bytes, payload"),
    ("ping end_stream", "ping has no field 'end_stream'"), ("ping @kind=1", "is not of the header"),
    ("ping @flags=256", "@flags=256: at most 255"), ("ping stream=2147483648", "at most 2147483647"),
    ("ping bytes=0", "hexadecimal is expected"), ("ping alone", "name=value expected"),
    ("rst_stream stream=1 code=NOPE", "a number or one of NO_ERROR, PROTOCOL_ERROR"),
    ("settings initial_window_size=4294967296", "at most 4294967295"),
    ("settings initial_window_size=x", "a number is expected"), ("settings foo=1", "has no field 'foo'"),
    ("data stream=1 text=a text=b", "given twice"), ("data stream=1 padding=256", "at most 255"),
    ("data stream=1 contains=a", "for what is expected"), ("data stream=1 text='a", "\"'\" is missing"),
    ("headers stream=1 block=8", "hexadecimal is expected"),
    ("headers stream=1 headers=[{name=a}]", "entries are written {name=… value=…}"),
    ("headers stream=1 a=[b]", "a single value is expected"), ("priority stream=1 weight=0", "1 to 256"),
    ("priority stream=1 weight=257", "at most 256"), ("hex:0", "hexadecimal is expected"),
  ]

  @Test(arguments: wrong)
  func invalidLinesNameTheirError(_ row: (line: String, error: String)) {
    var wireProtocol = HTTP2Frames()
    do {
      _ = try wireProtocol.encode(row.line)
      Issue.record("encoded: \(row.line)")
    } catch {
      #expect("\(error)".contains(row.error), "\(row.line): \(error)")
    }
  }

  // MARK: Header blocks

  @Test func headerBlocksRoundTrip() throws {
    // Invalid names and values are kept unchanged.
    let line = """
      headers stream=1 headers=[{name=:path value=/} {name=X-UPPER value=1} {name="x test" value="a\\x0d\\x0ab"} \
      {name= value=} {name=stream value=9}]
      """
    var wireProtocol = HTTP2Frames()
    let hex = Hex.text(try wireProtocol.encode(line))
    #expect(try ProbeDecoding.lines(hex, in: HTTP2Frames()).text == [line])
    #expect(
      try wireProtocol.differences("headers x-upper=1", from: unit(hex)) == ["x-upper: expected, but it is not there"]
    )
    #expect(try wireProtocol.differences("headers X-UPPER=1 headers=[{name=stream value=9}]", from: unit(hex)) == [])
  }

  @Test func rawBlocksKeepTheirPlaceInTheLine() throws {
    var wireProtocol = HTTP2Frames()
    // An index into the static table, a literal encoded by nghttp2, another index.
    let bytes = try wireProtocol.encode("headers stream=1 block=82 a=b block=87")
    #expect(Hex.text(bytes) == "00000701040000000182100161016287")
    #expect(
      try ProbeDecoding.lines(Hex.text(bytes), in: HTTP2Frames()).text == [
        "headers stream=1 :method=GET a=b :scheme=https"
      ]
    )
  }

  @Test func dynamicTableIsUsedOnlyOnRequest() throws {
    func lengths(_ line: String) throws -> [Int] {
      var wireProtocol = HTTP2Frames()
      return try (0..<2).map { _ in try wireProtocol.encode(line).count }
    }
    let plain = try lengths("headers stream=1 x-name=value")
    #expect(plain[0] == plain[1])
    let indexed = try lengths("headers stream=1 indexed x-name=value")
    #expect(indexed[0] == plain[0] && indexed[1] == 9 + 1)
    // The decoder keeps the peer's table over frames: without the first frame the second one does not decode.
    var wireProtocol = HTTP2Frames()
    let first = Hex.text(try wireProtocol.encode("headers stream=1 indexed x-name=value"))
    let second = Hex.text(try wireProtocol.encode("headers stream=3 indexed x-name=value"))
    #expect(
      try ProbeDecoding.lines(first + second, in: HTTP2Frames()).text.last == "headers stream=3 x-name=value"
    )
    #expect(
      try ProbeDecoding.lines(second, in: HTTP2Frames()).text == [
        "headers stream=3 block=be (it does not decode)"
      ]
    )
    // A new connection has new tables.
    wireProtocol.connected()
    #expect(Hex.text(try wireProtocol.encode("headers stream=1 indexed x-name=value")) == first)
  }

  @Test func blocksContinueInContinuationFrames() throws {
    var wireProtocol = HTTP2Frames()
    var hex = ""
    for line in [
      "headers stream=1 end_headers=0 a=1", "continuation stream=1 end_headers=0 b=2", "continuation stream=1 c=3",
    ] {
      hex += Hex.text(try wireProtocol.encode(line))
    }
    #expect(
      try ProbeDecoding.lines(hex, in: HTTP2Frames()).text == [
        "headers stream=1 end_headers=0 a=1", "continuation stream=1 end_headers=0 b=2", "continuation stream=1 c=3",
      ]
    )
    // A field that two frames share is complete with the second.
    let halves = "000004 01 00 00000001 00 01 61 03" + "000003 09 04 00000001 62 63 64"
    #expect(
      try ProbeDecoding.lines(halves, in: HTTP2Frames()).text == [
        "headers stream=1 end_headers=0", "continuation stream=1 a=bcd",
      ]
    )
  }

  @Test func decoderReadsEncodedFields() throws {
    let fields = [HeaderField(name: Array("a".utf8), value: [0, 255]), HeaderField(name: [], value: [])]
    let encoder = HeaderEncoder()
    let decoder = HeaderDecoder()
    for isIndexed in [false, true, true] {
      #expect(try decoder.decode(encoder.encode(fields, indexed: isIndexed), isFinal: true) == fields)
    }
    #expect(try decoder.decode(encoder.encode([]), isFinal: true) == [])
    // The block may be split anywhere.
    let block = encoder.encode(fields)
    for at in block.indices {
      var read = try decoder.decode(Array(block[..<at]), isFinal: false)
      read += try decoder.decode(Array(block[at...]), isFinal: true)
      #expect(read == fields)
    }
    // The decoder cannot continue after an error.
    #expect(throws: HeaderDecoder.Failure.self) { try decoder.decode([0x80], isFinal: true) }
    #expect(throws: HeaderDecoder.Failure.self) { try decoder.decode([0x82], isFinal: true) }
  }

  // MARK: Requests

  @Test func requestFieldsAreFilledIn() throws {
    var wireProtocol = HTTP2Frames(scheme: "https", authority: "chat:8443")
    func text(_ line: String) throws -> String {
      try ProbeDecoding.lines(Hex.text(try wireProtocol.encode(line)), in: HTTP2Frames()).text[0]
    }
    #expect(try text("request") == "headers stream=1 end_stream :method=GET :scheme=https :authority=chat:8443 :path=/")
    #expect(
      try text("request :path=/x a=b end_stream=0")
        == "headers stream=3 :method=GET :scheme=https :authority=chat:8443 :path=/x a=b"
    )
    #expect(try text("data stream=last text=a") == "data stream=3 text=a")
    #expect(
      try text("request stream=9 :method=PUT :scheme=a :authority=b :path=c").hasPrefix(
        "headers stream=9 end_stream :method=PUT"
      )
    )
    #expect(try text("rst_stream stream=last code=CANCEL") == "rst_stream stream=9 code=CANCEL")
    #expect(try text("request stream=next").hasPrefix("headers stream=11 "))
  }

  @Test func credentialsAreMasked() throws {
    var wireProtocol = HTTP2Frames()
    let line =
      "headers stream=1 :path=/v1/events?access_token=abc.def&x=1 authorization=\"Bearer abc.def\" cookie=abc x=abc"
    let bytes = try wireProtocol.encode(line)
    #expect(
      wireProtocol.text(wireProtocol.read(bytes, .sent))
        == "headers stream=1 :path=/v1/events?access_token=...&x=1 authorization=\"Bearer ...\" cookie=... x=abc"
    )
    wireProtocol.masksCredentials = false
    wireProtocol.connected()
    #expect(wireProtocol.text(wireProtocol.read(bytes, .sent)) == line)
  }

  // MARK: Comparing

  static let comparisons: [(expected: String, received: String, lines: [String])] = [
    ("settings ack", "settings ack", []),
    ("settings ack", "settings", ["ack: expected 1, received 0"]),
    ("settings ack=0 max_frame_size=*", "settings max_frame_size=16384", []),
    ("settings 0x5=16384", "settings max_frame_size=16384", []),
    ("settings max_frame_size=1", "settings", ["max_frame_size: expected, but it is not there"]),
    ("goaway code=PROTOCOL_ERROR", "goaway code=1", []),
    ("goaway code=*", "goaway code=1", []),
    ("goaway code=CANCEL", "goaway code=1", ["code: expected CANCEL, received PROTOCOL_ERROR"]),
    ("rst_stream stream=3 code=CANCEL", "rst_stream stream=1 code=CANCEL", ["stream: expected 3, received 1"]),
    ("ping", "settings", ["expected ping, received settings"]),
    ("ping bytes=00", "ping", ["bytes: expected 00, received 0000000000000000"]),
    ("headers stream=1 :status=200", "headers stream=1 :status=200 date=now", []),
    ("headers :status=200", "headers stream=1 :status=404", [":status: expected 200, received 404"]),
    ("headers set=a", "headers stream=1 set=b set=a", []),
    ("headers set=c", "headers stream=1 set=b set=a", ["set: expected c, received b, a"]),
    ("headers date=*", "headers stream=1", ["date: expected, but it is not there"]),
    ("headers end_stream", "headers stream=1", ["end_stream: expected 1, received 0"]),
    ("data text=a", "data stream=1 text=a", []),
    ("data text=a", "data stream=1 bytes=00", ["text: expected a, received \"\\x00\""]),
    ("data bytes=61", "data stream=1 text=a", []),
    ("data contains=b", "data stream=1 text=abc", []),
    ("data contains=d", "data stream=1 text=abc", ["contains: expected d, which is not in abc"]),
    ("data json='{\"a\":1}'", "data stream=1 text='{\"b\":2,\"a\":1}'", []),
    ("data json='{\"a\":[1,{\"b\":\"*\"}]}'", "data stream=1 text='{\"a\":[1,{\"b\":false}]}'", []),
    ("data json='{\"a\":true}'", "data stream=1 text='{\"a\":1}'", ["json.a: expected true, received 1"]),
    ("data json='{\"a\":{\"b\":1}}'", "data stream=1 text='{\"a\":{}}'", ["json.a.b: expected, but it is not there"]),
    ("data json='[1]'", "data stream=1 text='[1,2]'", ["json: expected 1 entries, received 2"]),
    ("data json='{}'", "data stream=1 text=a", ["json: received none: a"]),
    ("data padding=1", "data stream=1 text=a", ["padding: expected, but it is not there"]),
    ("0x16 payload=00", "0x16 payload=01", ["payload: expected 00, received 01"]),
    ("ping @flags=1", "ping", ["@flags: expected 1, received 0"]),
    ("ping @length=8", "ping", []),
  ]

  @Test(arguments: comparisons)
  func differencesAreListed(_ row: (expected: String, received: String, lines: [String])) throws {
    var wireProtocol = HTTP2Frames()
    let bytes = try wireProtocol.encode(row.received)
    #expect(try wireProtocol.differences(row.expected, from: unit(Hex.text(bytes))) == row.lines, "\(row.expected)")
  }

  /// Which frames an expectation consumes, and which stay for later ones.
  static let meant: [(expected: String?, received: String, matches: Bool)] = [
    ("headers stream=1", "headers stream=1", true), ("headers stream=1", "headers stream=3", false),
    ("headers", "headers stream=3", true), ("headers stream=1", "settings", false),
    ("headers stream=1", "window_update stream=1 increment=1", false),
    ("headers stream=1", "ping ack", false),
    ("headers stream=1", "goaway", true), ("headers stream=1", "rst_stream stream=1", true),
    ("headers stream=1", "rst_stream stream=3", false), ("data stream=1", "headers stream=1", true),
    ("ping ack", "ping", false), ("ping ack", "ping ack", true), ("ping ack", "rst_stream stream=3", true),
    ("ping ack", "data stream=3", false), ("settings ack", "settings", false),
    ("settings", "settings ack", true),
    ("settings ack", "rst_stream stream=1", false), ("goaway", "rst_stream stream=1", false),
    (nil, "goaway", true), (nil, "rst_stream stream=1", false), ("0x16", "0x17", false),
  ]

  @Test(arguments: meant)
  func unrelatedFramesAreKept(_ row: (expected: String?, received: String, matches: Bool)) throws {
    var wireProtocol = HTTP2Frames()
    let hex = Hex.text(try wireProtocol.encode(row.received))
    #expect(try wireProtocol.matches(unit(hex), by: row.expected) == row.matches, "\(row)")
  }

  @Test func streamIsSplitIntoFrames() {
    #expect(HTTP2Frames.boundary(in: []) == .incomplete)
    #expect(HTTP2Frames.boundary(in: [0, 0, 0, 4, 0, 0, 0, 0]) == .incomplete)
    #expect(HTTP2Frames.boundary(in: [0, 0, 0, 4, 0, 0, 0, 0, 0, 0]) == .unit(9))
    #expect(HTTP2Frames.boundary(in: [0, 0, 1, 4, 0, 0, 0, 0, 0]) == .incomplete)
    #expect(HTTP2Frames.boundary(in: Array("PRI * HTTP".utf8)) == .incomplete)
    #expect(HTTP2Frames.boundary(in: HTTP2Frame.preface + [0]) == .unit(24))
    #expect(HTTP2Frames.boundary(in: Array("HTTP/1.1 400".utf8)) == .broken("a length of 4740180 is no frame's"))
    #expect(HTTP2Frames.boundary(in: [0x15, 3, 3, 0, 2]) == .broken("a length of 1377027 is no frame's"))
  }

  /// Printed frames of any kind with any fields encode to the same bytes.
  @Test func printedFramesEncodeToSameBytes() throws {
    var generator = SplitMix64(printingSeedOf: "printed HTTP/2 frames")
    for _ in 0..<2000 {
      var frame = HTTP2Frame(type: generator.number(in: 0...12))
      frame.flags = generator.number(in: 0...255)
      frame.stream = generator.number(in: 0...5)
      frame.isReservedSet = generator.oneIn(2)
      let count = generator.number(in: 0...20)
      for _ in 0..<count { frame.payload.append(generator.number(in: 0...12)) }
      // Header blocks are encoded by nghttp2, and other encodings of the same fields are possible.
      if frame.kind?.hasHeaders == true { frame.payload = [] }
      let hex = Hex.text(frame.bytes())
      var line = try #require(try ProbeDecoding.lines(hex, in: HTTP2Frames()).text.first)
      // The remark about a malformed payload is not part of the line.
      if line.hasSuffix(")"), let open = line.firstRange(of: " (") { line = String(line[..<open.lowerBound]) }
      if frame.kind == .priority, frame.stream == 0 { line += " stream=0" }
      var wireProtocol = HTTP2Frames()
      #expect(Hex.text(try wireProtocol.encode(line)) == hex, "TIDEMARK_SEED=\(generator.seed): \(line)")
    }
  }

  private func unit(_ hex: String) -> HTTP2Frames.Unit {
    var wireProtocol = HTTP2Frames()
    return wireProtocol.read(Hex.bytes(hex) ?? [], .received)
  }
}
