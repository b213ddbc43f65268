import HTTP2Session
import NIOCore
import NIOEmbedded
import Testing

@Suite("Buffered bodies and stalled answers")
struct StalledTests {
  private static let piece = 16_384

  private func piece(_ stream: Int32, end: Bool = false) -> Frame {
    Frame(
      .data,
      flags: end ? Frame.endStream : 0,
      stream: stream,
      Array(repeating: 7, count: StalledTests.piece)
    )
  }

  /// The sum of the window updates that the server has sent.
  private func windowIncrements(_ server: TestServer, stream: Int32) -> Int {
    server.frames(.windowUpdate, stream: stream).reduce(0) { $0 + Int(read32($1.payload, 0)) }
  }

  /// A client that sends bodies within the windows of their streams.
  private final class Uploads {
    let server: TestServer
    var windows: [Int32: Int] = [:]
    var remaining: [Int32: Int] = [:]
    var connectionWindow: Int
    var resets: [Int32] = []
    var answered: [Int32] = []
    /// The maximum of the body bytes that the server has held.
    var heldMax = 0

    init(_ server: TestServer, _ limits: HTTP2Limits, streams: [Int32], bytes: Int) {
      self.server = server
      connectionWindow = Int(limits.connectionWindowSize)
      for stream in streams {
        windows[stream] = Int(limits.initialWindowSize)
        remaining[stream] = bytes
        server.send(post(stream))
      }
    }

    /// Send a piece of a body. Return false if a window is closed or no bytes are left.
    func send(_ stream: Int32, ends: Bool) -> Bool {
      let count = min(windows[stream]!, connectionWindow, remaining[stream]!, StalledTests.piece)
      guard count > 0, !resets.contains(stream) else { return false }
      windows[stream]! -= count
      connectionWindow -= count
      remaining[stream]! -= count
      let isEnd = ends && remaining[stream]! == 0
      server.send(
        Frame(
          .data,
          flags: isEnd ? Frame.endStream : 0,
          stream: stream,
          Array(repeating: 7, count: count)
        )
      )
      heldMax = max(heldMax, server.connection.bufferedBodyBytes)
      readFrames()
      return true
    }

    /// Read the server's frames: window updates, resets and answers.
    func readFrames() {
      for update in server.frames(.windowUpdate) {
        let increment = Int(read32(update.payload, 0))
        if update.stream == 0 { connectionWindow += increment } else { windows[update.stream]! += increment }
      }
      resets += server.frames(.rstStream).map(\.stream)
      answered += server.frames(.headers).map(\.stream)
      _ = server.takeFrames()
    }

    /// Send in turn or stream by stream, until every relevant window is closed.
    func run(interleaved: Bool = true, ends: Bool = true) {
      var hasProgressed = true
      while hasProgressed {
        hasProgressed = false
        for stream in remaining.keys.sorted() {
          while send(stream, ends: ends) {
            hasProgressed = true
            if interleaved { break }
          }
        }
      }
    }
  }

  private func bound(_ limits: HTTP2Limits, streams: Int) -> Int {
    limits.bufferedBodyBytesMax + limits.bodyBytesMax + streams * Int(limits.initialWindowSize)
  }

  @Test(
    "bufferedBodyBytesMax: 300 bodies of 1 MiB are slowed down, and none is refused",
    arguments: [true, false]
  )
  func manyBodiesAreSlowedDown(_ interleaved: Bool) throws {
    let limits = HTTP2Limits()
    let server = try TestServer(limits: limits)
    let streams = (0..<Int32(300)).map { $0 * 2 + 1 }
    let uploads = Uploads(server, limits, streams: streams, bytes: limits.bodyBytesMax)
    uploads.run(interleaved: interleaved)
    #expect(uploads.resets.isEmpty && Set(uploads.answered) == Set(streams))
    #expect(uploads.heldMax <= bound(limits, streams: 300))
    // Interleaved bodies do not all fit; consecutive ones do.
    #expect((server.connection.counters.bodiesDelayed > 0) == interleaved)
    #expect(server.connection.counters.limitsHit == 0)
    #expect(server.connection.openStreams == 0 && server.connection.bufferedBodyBytes == 0)
    // The windows are restored, so the same works again.
    let again = streams.map { $0 + 1_000 }
    let repeated = Uploads(server, limits, streams: again, bytes: 100_000)
    repeated.connectionWindow = uploads.connectionWindow
    repeated.run()
    #expect(repeated.resets.isEmpty && Set(repeated.answered) == Set(again))
  }

  @Test("bufferedBodyBytesMax: unfinished bodies delay others only until their timeout")
  func endlessBodiesDelayOthersUntilTheirTimeout() throws {
    let limits = HTTP2Limits()
    let resources = HTTP2ServerResources(limits: limits)
    let server = try TestServer(resources: resources)
    let neighbour = try TestServer(resources: resources)
    let streams = (0..<Int32(300)).map { $0 * 2 + 1 }
    let uploads = Uploads(server, limits, streams: streams, bytes: limits.bodyBytesMax)
    uploads.run(ends: false)
    #expect(uploads.resets.isEmpty && uploads.answered.isEmpty)
    #expect(uploads.heldMax <= bound(limits, streams: 300) && uploads.heldMax >= limits.bufferedBodyBytesMax)
    // Small requests of this and of other connections are served meanwhile.
    server.send(get(1_001), post(1_003), data(1_003))
    #expect(server.status(1_001) == 200 && server.status(1_003) == 200)
    neighbour.send(post(1), piece(1), data(1))
    #expect(neighbour.status(1) == 200)
    _ = server.takeFrames()
    // Bodies that could continue and did not are reset. The timeout of the others starts when they can continue.
    for _ in 0..<600 where uploads.resets.count < 300 {
      server.advance(.seconds(31))
      uploads.readFrames()
      #expect(uploads.heldMax <= bound(limits, streams: 300))
    }
    #expect(Set(uploads.resets) == Set(streams))
    #expect(server.connection.openStreams == 0 && server.connection.bufferedBodyBytes == 0)
    #expect(!server.isClosed)
  }

  /// Send three pieces on each of ten streams. Some streams must be reset with `error`, and the others be served.
  /// Return the number of reset streams.
  private func sendBodies(to server: TestServer, _ limits: HTTP2Limits, resetWith error: HTTP2ErrorCode)
    -> Int
  {
    let streams = (0..<Int32(10)).map { $0 * 2 + 1 }
    for stream in streams { server.send(post(stream), piece(stream), piece(stream), piece(stream)) }
    let resets = server.frames(.rstStream)
    #expect(!resets.isEmpty)
    #expect(resets.allSatisfy { $0.errorCode == error.rawValue })
    #expect(server.connection.bufferedBodyBytes <= bound(limits, streams: 10))
    let reset = Set(resets.map(\.stream))
    for stream in streams where !reset.contains(stream) {
      server.send(data(stream))
      #expect(server.status(stream) == 200)
    }
    #expect(server.connection.openStreams == 0 && server.connection.bufferedBodyBytes == 0)
    return resets.count
  }

  @Test("bufferedBodyBytesMax: a client that exceeds its windows is reset, stream by stream")
  func bodiesBeyondTheirWindowsAreReset() throws {
    var limits = HTTP2Limits()
    limits.bufferedBodyBytesMax = 3 * StalledTests.piece
    limits.initialWindowSize = UInt32(StalledTests.piece)
    let server = try TestServer(limits: limits)
    _ = sendBodies(to: server, limits, resetWith: .flowControlError)
    #expect(!server.isClosed)
  }

  @Test(
    "bufferedBodyBytesMax: before the SETTINGS ack a client may send 65,535 bytes, where there is room"
  )
  func bodiesBeforeSettingsAckAreAccepted() throws {
    var limits = HTTP2Limits()
    limits.bufferedBodyBytesMax = 10 * StalledTests.piece
    limits.bodyBytesMax = 10 * StalledTests.piece
    limits.initialWindowSize = UInt32(StalledTests.piece)
    let server = try TestServer(limits: limits, preface: false)
    server.send(TestServer.preface + settings().bytes)
    let resetCount = sendBodies(to: server, limits, resetWith: .enhanceYourCalm)
    #expect(resetCount < 10)
    #expect(server.connection.counters.limitsHit == UInt64(resetCount))
  }

  @Test("bufferedBodyBytesMax: a body that its client cancels makes room for one that waits")
  func cancelledBodyMakesRoom() throws {
    var limits = HTTP2Limits()
    limits.bufferedBodyBytesMax = 4 * StalledTests.piece
    limits.bodyBytesMax = 8 * StalledTests.piece
    limits.initialWindowSize = UInt32(StalledTests.piece)
    let server = try TestServer(limits: limits)
    let uploads = Uploads(server, limits, streams: [1, 3], bytes: limits.bodyBytesMax)
    // Stream 1 is granted a whole body, so that stream 3 waits after its first window.
    for _ in 0..<5 { #expect(uploads.send(1, ends: true)) }
    #expect(uploads.send(3, ends: true) && !uploads.send(3, ends: true))
    #expect(server.connection.bufferedBodyBytes == 6 * StalledTests.piece)
    #expect(server.connection.counters.bodiesDelayed == 1)
    server.send(rst(1))
    #expect(server.connection.bufferedBodyBytes == StalledTests.piece)
    uploads.readFrames()
    while uploads.send(3, ends: true) {}
    #expect(uploads.answered == [3] && uploads.resets.isEmpty)
    #expect(server.connection.openStreams == 0 && server.connection.bufferedBodyBytes == 0)
    #expect(server.connection.counters.limitsHit == 0)
  }

  @Test("bufferedBodyBytesMax: a single body above the limit arrives whole")
  func singleBodyAboveLimitArrivesWhole() throws {
    var limits = HTTP2Limits()
    limits.bufferedBodyBytesMax = 4 * StalledTests.piece
    limits.bodyBytesMax = 32 * StalledTests.piece
    limits.initialWindowSize = UInt32(StalledTests.piece)
    limits.connectionWindowSize = 8 * Int32(StalledTests.piece)
    let server = try TestServer(limits: limits)
    let uploads = Uploads(server, limits, streams: [1], bytes: limits.bodyBytesMax)
    uploads.run()
    #expect(server.delegate.log == ["post / \(limits.bodyBytesMax)"])
    #expect(uploads.answered == [1] && uploads.heldMax > limits.bufferedBodyBytesMax)
    #expect(server.connection.counters.bodiesDelayed == 0 && server.connection.counters.limitsHit == 0)
    #expect(server.connection.openStreams == 0 && server.connection.bufferedBodyBytes == 0)
  }

  @Test("bufferedBodyBytesMax: complete bodies hold the connection's window until they are answered")
  func completeBodiesHoldTheWindow() throws {
    var limits = HTTP2Limits()
    limits.bufferedBodyBytesMax = 4 * StalledTests.piece
    limits.connectionWindowSize = 8 * Int32(StalledTests.piece)
    let server = try TestServer(limits: limits)
    let fields: Fields = [
      (":method", "POST"), (":scheme", "http"), (":authority", "localhost"), (":path", "/hold"),
    ]
    for stream in 0..<Int32(12) {
      server.send(headers(stream * 2 + 1, fields, end: false), piece(stream * 2 + 1, end: true))
    }
    // All requests are served, none is reset, and the client has no window left.
    #expect(server.delegate.held.count == 12 && server.frames(.rstStream).isEmpty)
    #expect(windowIncrements(server, stream: 0) == 4 * StalledTests.piece)
    server.send(get(101))
    #expect(server.status(101) == 200)
    for stream in server.delegate.held { server.connection.respond(stream, status: 200) }
    server.connection.flushIfNeeded()
    server.collect()
    #expect(windowIncrements(server, stream: 0) == 12 * StalledTests.piece)
    #expect(server.connection.bufferedBodyBytes == 0)
  }

  @Test("writeTimeout: answers held back by the client's windows are reset", arguments: [true, false])
  func stalledAnswersAreReset(_ onlyConnection: Bool) throws {
    let server = try TestServer()
    let large = ByteBuffer(repeating: 7, count: 10_000)
    server.delegate.onRequest = { stream, connection in
      connection.respond(stream, status: 200, contentType: .bytes, body: large)
    }
    server.send(settings([(4, onlyConnection ? 1_000_000 : 0)]))
    server.send((0..<50).flatMap { get(Int32($0) * 2 + 1).bytes })
    let sent = onlyConnection ? 6 : 0
    #expect(server.connection.openStreams == 50 - sent)
    server.advance(.seconds(29))
    #expect(server.frames(.rstStream).isEmpty)
    for _ in 0..<4 {
      // The peer still sends pings, which does not prevent the timeout.
      server.send(ping())
      server.advance(.seconds(16))
    }
    #expect(server.frames(.rstStream).count == 50 - sent)
    #expect(server.frames(.rstStream).allSatisfy { $0.errorCode == HTTP2ErrorCode.cancel.rawValue })
    #expect(server.connection.counters.limitsHit == UInt64(50 - sent))
    #expect(server.connection.openStreams == 0 && !server.isClosed)
    server.advance(.seconds(400))
    #expect(server.isClosed)
  }

  @Test("writeTimeout: an answer in progress is not reset; a trickling one and a stalled finished one are")
  func answerInProgressIsNotReset() throws {
    let server = try TestServer()
    let large = ByteBuffer(repeating: 7, count: 40_000)
    server.delegate.onRequest = { stream, connection in
      guard connection.withRequest(stream, { $0.path.byteCount }) == 6 else {
        return server.delegate.held.append(stream)
      }
      connection.respond(stream, status: 200, contentType: .bytes, body: large)
    }
    server.send(settings([(4, 0)]), get(1, "/large"), get(3, "/hold"), get(5, "/hold"), get(7, "/large"))
    for stream in server.delegate.held {
      server.connection.startStreaming(stream, status: 200, contentType: .eventStream)
      server.connection.write(stream, ByteBuffer(string: "event"))
    }
    server.connection.finish(server.delegate.held[0])
    server.connection.flushIfNeeded()
    for _ in 0..<9 {
      server.send(windowUpdate(1, 4_096), windowUpdate(7, 1))
      server.advance(.seconds(20))
    }
    // Stream 1 takes 4 KiB each time, stream 7 one byte. The application has to end stream 5.
    #expect(Set(server.frames(.rstStream).map(\.stream)) == [3, 7])
    #expect(server.delegate.log.filter { $0 == "aborted" }.count == 1)
    server.send(windowUpdate(1, 4_096))
    #expect(server.isEnded(1))
  }

  @Test("writeTimeout: a connection window opened a byte at a time does not extend the timeout")
  func trickledConnectionWindowDoesNotExtendTimeout() throws {
    let server = try TestServer()
    let large = ByteBuffer(repeating: 7, count: 100_000)
    server.delegate.onRequest = { stream, connection in
      connection.respond(stream, status: 200, contentType: .bytes, body: large)
    }
    server.send(settings([(4, 1_000_000)]), get(1), get(3))
    for _ in 0..<5 {
      server.send(windowUpdate(0, 1))
      server.advance(.seconds(20))
    }
    #expect(server.connection.openStreams == 0)
  }

  @Test("writeTimeout: an answer queued behind another is not reset")
  func queuedAnswerIsNotReset() throws {
    let server = try TestServer()
    let large = ByteBuffer(repeating: 7, count: 100_000)
    server.delegate.onRequest = { stream, connection in
      connection.respond(stream, status: 200, contentType: .bytes, body: large)
    }
    server.send(settings([(4, 1_000_000)]), get(1), get(3), get(5))
    for _ in 0..<60 {
      server.send(windowUpdate(0, 5_000))
      server.advance(.seconds(20))
    }
    #expect(server.frames(.rstStream).isEmpty)
    #expect(server.isEnded(1) && server.isEnded(3) && server.isEnded(5))
  }
}
