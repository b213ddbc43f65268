import HTTP2Session
import NIOCore
import NIOEmbedded
import Testing

/// A peer that exceeds a limit, and the limit's name.
struct Flood: CustomTestStringConvertible, Sendable {
  let name: String
  let limits: HTTP2Limits
  let frames: [Frame]
  let codes: [HTTP2ErrorCode]

  init(
    _ name: String,
    _ codes: [HTTP2ErrorCode],
    _ frames: [Frame],
    set: (inout HTTP2Limits) -> Void = { _ in }
  ) {
    var limits = HTTP2Limits()
    set(&limits)
    self.name = name
    self.limits = limits
    self.frames = frames
    self.codes = codes
  }

  var testDescription: String { name }

  static func repeated(_ count: Int, _ make: (Int32) -> [Frame]) -> [Frame] {
    (0..<Int32(count)).flatMap { make($0 * 2 + 1) }
  }

  static let all: [Flood] = [
    // nghttp2 ends a rapid reset with INTERNAL_ERROR.
    Flood(
      "streamResetBurst",
      [.internalError, .enhanceYourCalm],
      repeated(30) { [get($0, "/hold"), rst($0)] }
    ) {
      $0.streamResetBurst = 20
    },
    Flood(
      "continuationsMax",
      [.enhanceYourCalm],
      [Frame(.headers, flags: 1, stream: 1, HPACK.plain(getFields))]
        + repeated(20) { _ in [continuation(1, [], end: false)] }
    ),
    Flood("settingsEntriesMax", [.enhanceYourCalm], [settings(Array(repeating: (0xf0, 1), count: 33))]),
    Flood("outboundAcksMax: SETTINGS", [.enhanceYourCalm], repeated(50) { _ in [settings()] }) {
      $0.outboundAcksMax = 40
    },
    Flood("outboundAcksMax: PING", [.enhanceYourCalm], repeated(50) { _ in [ping()] }) {
      $0.outboundAcksMax = 40
    },
    Flood("controlFrameBurst: SETTINGS", [.enhanceYourCalm], repeated(101) { _ in [settings()] }) {
      $0.controlFrameBurst = 100
    },
    Flood("controlFrameBurst: PING", [.enhanceYourCalm], repeated(101) { _ in [ping()] }) {
      $0.controlFrameBurst = 100
    },
    Flood("controlFrameBurst: PRIORITY", [.enhanceYourCalm], repeated(101) { [priority($0)] }) {
      $0.controlFrameBurst = 100
    },
    Flood(
      "controlFrameBurst: empty DATA",
      [.enhanceYourCalm],
      [post(1)] + repeated(101) { _ in [data(1, "", end: false)] }
    ) {
      $0.controlFrameBurst = 100
    },
    Flood(
      "controlFrameBurst: DATA of a byte",
      [.enhanceYourCalm],
      [post(1)] + repeated(101) { _ in [data(1, "x", end: false)] }
    ) {
      $0.controlFrameBurst = 100
    },
    Flood(
      "controlFrameBurst: unknown frames",
      [.enhanceYourCalm],
      repeated(101) { _ in [Frame(type: 0x99, stream: 0)] }
    ) {
      $0.controlFrameBurst = 100
    },
    Flood(
      "controlFrameBurst: DATA after RST_STREAM",
      [.enhanceYourCalm],
      [post(1), rst(1)] + repeated(101) { _ in [data(1, end: false)] }
    ) { $0.controlFrameBurst = 100 },
  ]
}

@Suite("Limits")
struct LimitTests {
  @Test("a flood in one read ends the connection", arguments: Flood.all)
  func floodInOneReadEndsConnection(_ flood: Flood) throws {
    let server = try TestServer(limits: flood.limits)
    server.send(flood.frames.flatMap(\.bytes))
    expectEnd(of: server, flood)
  }

  /// Without acks: only unsent ones count, and each read sends them.
  @Test(
    "a flood of single frames ends the connection",
    arguments: Flood.all.filter { !$0.name.hasPrefix("outboundAcksMax") }
  )
  func floodOfFramesEndsConnection(_ flood: Flood) throws {
    let server = try TestServer(limits: flood.limits)
    for frame in flood.frames { server.send(frame) }
    expectEnd(of: server, flood)
  }

  private func expectEnd(of server: TestServer, _ flood: Flood) {
    #expect(flood.codes.map(\.rawValue).contains(server.frames(.goAway).last?.errorCode), "\(server.frames)")
    #expect(server.isClosed)
    #expect(server.connection.counters.goAwaysSent == 1)
  }

  /// Like a client that writes a frame's header and payload separately.
  @Test("short DATA frames beside as many longer ones do not end the connection")
  func shortDataBesideLongDataIsAccepted() throws {
    var limits = HTTP2Limits()
    limits.controlFrameBurst = 2
    let server = try TestServer(limits: limits)
    server.send(post(1))
    for _ in 0..<100 { server.send(data(1, "short", end: false), data(1, "sixteen bytes...", end: false)) }
    server.send(data(1))
    #expect(!server.isClosed)
    #expect(server.status(1) == 200)
  }

  @Test("control frames below their limit do not end the connection")
  func controlFramesBelowLimitDoNotEndConnection() throws {
    var limits = HTTP2Limits()
    limits.controlFrameBurst = 20
    limits.controlFramesPerSecond = 10
    let server = try TestServer(limits: limits)
    for _ in 0..<200 {
      server.send(ping())
      server.advance(.milliseconds(100))
    }
    #expect(!server.isClosed)
    #expect(server.frames(.ping).count == 200)
  }

  @Test("headerListBytesMax: the application is informed and can answer 431")
  func headersAboveLimitAreReported() throws {
    var limits = HTTP2Limits()
    limits.headerListBytesMax = 1_000
    let server = try TestServer(limits: limits)
    server.send(get(1, extra: [("x-large", String(repeating: "x", count: 1_000)), ("x-small", "1")]), get(3))
    #expect(server.status(1) == 431)
    #expect(server.status(3) == 200)
    #expect(!server.isClosed)
  }

  @Test("headerListBytesMax: a large block over several frames is detected")
  func headersAboveLimitInPiecesAreDetected() throws {
    let server = try TestServer()
    let large = HPACK.plain([("x-large", String(repeating: "x", count: 10_000))])
    server.send(
      Frame(.headers, flags: 1, stream: 1, HPACK.plain(getFields)),
      continuation(1, large, end: false),
      continuation(1, large)
    )
    #expect(server.status(1) == 431)
    server.send(get(3))
    #expect(server.status(3) == 200)
  }

  @Test("bodyBytesMax: a larger body gets 413 and RST_STREAM(NO_ERROR) at once, and its rest is ignored")
  func bodyAboveLimitIsAnsweredWith413() throws {
    var limits = HTTP2Limits()
    limits.bodyBytesMax = 10
    limits.droppedBodyBytesMax = 0
    let server = try TestServer(limits: limits)
    server.send(post(1), data(1, "12345678", end: false))
    #expect(server.status(1) == nil)
    server.send(data(1, "12345678", end: false))
    #expect(server.status(1) == 413)
    #expect(server.isEnded(1))
    #expect(server.frames(.rstStream, stream: 1).map(\.errorCode) == [0])
    #expect(server.frames.last?.kind == .rstStream)
    server.send(data(1, "12345678", end: false), headers(1, [("x-trailer", "1")]), get(3))
    #expect(server.status(3) == 200)
    #expect(!server.isClosed)
    #expect(server.connection.openStreams == 0)
  }

  @Test(
    "droppedBodyBytesMax: after a 413 the rest is read and dropped, and the stream is reset beyond the limit"
  )
  func droppedBodyEndsAtItsLimit() throws {
    var limits = HTTP2Limits()
    limits.bodyBytesMax = 10
    limits.droppedBodyBytesMax = 30
    let server = try TestServer(limits: limits)
    server.send(post(1), data(1, "123456789012", end: false))
    #expect(server.status(1) == 413)
    server.send(data(1, "1234567890", end: false))
    #expect(server.frames(.rstStream, stream: 1).isEmpty)
    server.send(data(1, "12"))
    #expect(server.frames(.rstStream, stream: 1).isEmpty)
    #expect(server.connection.openStreams == 0)
    server.send(post(3), data(3, "123456789012", end: false))
    #expect(server.isEnded(3))
    server.send(data(3, "12345678901234567890", end: false))
    #expect(server.frames(.rstStream, stream: 3).map(\.errorCode) == [0])
  }

  @Test(
    "droppedBodyBytesMax: a streamed body answered early is dropped, and the stream is reset beyond the limit"
  )
  func droppedStreamedBodyEndsAtItsLimit() throws {
    var limits = HTTP2Limits()
    limits.droppedBodyBytesMax = 30
    let server = try TestServer(limits: limits, streamedContentTypes: [.ndjson])
    server.delegate.onRequest = { stream, connection in connection.respond(stream, status: 401) }
    let lines: Fields = [("content-type", "application/x-ndjson")]
    server.send(post(1, lines), data(1, "1234567890", end: false))
    #expect(server.status(1) == 401)
    server.send(data(1, "1234567890123456789", end: false))
    #expect(server.frames(.rstStream, stream: 1).isEmpty)
    server.send(data(1, ""))
    #expect(server.frames(.rstStream, stream: 1).isEmpty)
    #expect(server.connection.openStreams == 0)
    server.send(post(3, lines), data(3, "1234567890", end: false))
    server.send(data(3, "12345678901234567890", end: false))
    #expect(server.frames(.rstStream, stream: 3).map(\.errorCode) == [0])
    #expect(server.connection.openStreams == 0 && !server.isClosed)
  }

  @Test("bodyBytesMax: a larger content-length is refused before the body")
  func bodyDeclaredTooLargeIsRefused() throws {
    var limits = HTTP2Limits()
    limits.bodyBytesMax = 10
    limits.droppedBodyBytesMax = 0
    let server = try TestServer(limits: limits)
    server.send(post(1, [("content-length", "11")]))
    #expect(server.status(1) == 413)
    #expect(server.frames(.rstStream, stream: 1).map(\.errorCode) == [0])
  }

  @Test("bodyBytesMax: a body of the exact limit is accepted, and one that ends beyond it needs no reset")
  func bodyOfExactLimitIsDelivered() throws {
    var limits = HTTP2Limits()
    limits.bodyBytesMax = 4
    let server = try TestServer(limits: limits)
    server.send(post(1), data(1, "1234"), post(3), data(3, "12345"))
    #expect(server.status(1) == 200)
    #expect(server.status(3) == 413)
    #expect(server.frames(.rstStream).isEmpty)
  }

  @Test("a body of many windows arrives whole: windows are replenished")
  func bodyOfManyWindowsArrivesWhole() throws {
    var limits = HTTP2Limits()
    limits.initialWindowSize = 65_535
    let server = try TestServer(limits: limits)
    var window = 65_535
    var connectionWindow = Int(limits.connectionWindowSize)
    server.send(post(1))
    for piece in 0..<60 {
      _ = server.takeFrames()
      server.send(Frame(.data, flags: piece == 59 ? 1 : 0, stream: 1, Array(repeating: 7, count: 16_384)))
      window -= 16_384
      connectionWindow -= 16_384
      #expect(window >= 0 && connectionWindow >= 0)
      for update in server.frames(.windowUpdate) {
        if update.stream == 0 {
          connectionWindow += Int(read32(update.payload, 0))
        } else {
          window += Int(read32(update.payload, 0))
        }
      }
    }
    #expect(server.delegate.log == ["post / \(60 * 16_384)"])
  }

  @Test("a slow reader keeps output bounded, and output resumes where it stopped")
  func slowReaderKeepsOutputBounded() throws {
    var limits = HTTP2Limits()
    limits.writeBytesMax = 32 * 1024
    let server = try TestServer(limits: limits)
    let body = ByteBuffer(repeating: 7, count: 100_000)
    server.delegate.onRequest = { stream, connection in
      connection.respond(stream, status: 200, contentType: .bytes, body: body)
    }
    server.send(settings([(4, 1_000_000)]), windowUpdate(0, 100_000_000))
    server.channel.isWritable = false
    for stream in 0..<50 { server.send(get(Int32(stream) * 2 + 1)) }
    #expect(server.writes.count <= 1)
    server.channel.isWritable = true
    server.channel.pipeline.fireChannelWritabilityChanged()
    server.collect()
    // One write per turn: in between the event loop serves other connections.
    for turn in 1...200 where server.connection.openStreams > 0 {
      let before = server.writes.count
      server.advance(.microseconds(200))
      #expect(server.writes.count <= before + 1, "turn \(turn)")
    }
    #expect(server.frames(.data).reduce(0) { $0 + $1.payload.count } == 50 * 100_000)
    #expect(server.writes.max() ?? 0 <= 32 * 1024 + 16_384 + 9)
  }

  @Test("resets of a peer that does not read count as its memory, and end its connection")
  func resetsOfUnreadingPeerCountAsItsMemory() throws {
    // Each lacks its path, and is reset. The client does not acknowledge SETTINGS, which would make it an error to open
    // too many streams.
    let begin = TestServer.preface + settings().bytes
    let malformed = (0..<Int32(3_000)).flatMap {
      headers($0 * 2 + 1, [(":method", "GET"), (":scheme", "http")], end: true).bytes
    }
    var limits = HTTP2Limits()
    let resources = HTTP2ServerResources(limits: limits)
    let server = try TestServer(preface: false, resources: resources)
    server.send(begin)
    server.channel.isWritable = false
    server.send(malformed)
    #expect(resources.heldBytes > 500_000 && server.frames(.rstStream).isEmpty && !server.isClosed)
    server.channel.isWritable = true
    server.channel.pipeline.fireChannelWritabilityChanged()
    for _ in 0..<100 { server.advance(.microseconds(200)) }
    #expect(resources.heldBytes == 0 && server.frames(.rstStream).count == 3_000)

    limits.connectionMemoryBytesMax = 100_000
    let greedy = try TestServer(limits: limits, preface: false)
    greedy.send(begin)
    greedy.channel.isWritable = false
    greedy.send(malformed)
    greedy.channel.isWritable = true
    greedy.channel.pipeline.fireChannelWritabilityChanged()
    for _ in 0..<100 { greedy.advance(.microseconds(200)) }
    #expect(greedy.frames(.goAway).last?.errorCode == HTTP2ErrorCode.enhanceYourCalm.rawValue)
  }

  @Test("writeTimeout: a peer that reads nothing is disconnected")
  func unreadingPeerIsDisconnected() throws {
    let server = try TestServer()
    server.channel.isWritable = false
    server.send(get(1))
    server.advance(.seconds(100))
    #expect(server.isClosed)
    #expect(server.connection.counters.limitsHit == 1)
  }

  @Test(
    "prefaceTimeout: a connection without preface and SETTINGS is closed",
    arguments: [[], Array(TestServer.preface.prefix(10)), TestServer.preface]
  )
  func connectionWithoutPrefaceIsClosed(_ sent: [UInt8]) throws {
    let server = try TestServer(preface: false)
    server.send(sent)
    server.advance(.seconds(9))
    #expect(!server.isClosed)
    server.advance(.seconds(2))
    #expect(server.isClosed)
    #expect(server.frames(.goAway).last?.errorCode == HTTP2ErrorCode.settingsTimeout.rawValue)
  }

  @Test("requestTimeout: an incomplete request is reset, and others are not")
  func incompleteRequestIsReset() throws {
    let server = try TestServer()
    server.send(post(1), get(3, "/hold"))
    server.advance(.seconds(29))
    #expect(server.frames(.rstStream).isEmpty)
    server.advance(.seconds(32))
    #expect(server.frames(.rstStream).map(\.stream) == [1])
    #expect(server.frames(.rstStream).first?.errorCode == HTTP2ErrorCode.cancel.rawValue)
    #expect(!server.isClosed)
  }

  @Test("idleTimeout: an idle connection closes gracefully, but not while a stream is open")
  func idleConnectionCloses() throws {
    let server = try TestServer()
    server.send(get(1, "/hold"))
    server.advance(.seconds(1_000))
    #expect(!server.isClosed)
    server.connection.respond(server.delegate.held[0], status: 204)
    server.connection.flushIfNeeded()
    server.advance(.seconds(240))
    #expect(server.isClosed)
    #expect(server.frames(.goAway).last?.errorCode == 0)
  }
}
