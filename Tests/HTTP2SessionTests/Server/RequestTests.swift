import HTTP2Session
import NIOCore
import NIOEmbedded
import Testing

@Suite("Requests and answers")
struct RequestTests {
  @Test(
    "a client that expects it is sent 100-continue, unless the body is refused",
    arguments: [true, false]
  )
  func clientIsSentContinue(isAuthenticated: Bool) throws {
    func statuses(_ server: TestServer, _ stream: Int32) -> [Int?] {
      server.frames(.headers, stream: stream).map { HPACK.status($0.payload) }
    }
    let server = try TestServer(isAuthenticated: isAuthenticated)
    // Without a body there is nothing to continue.
    server.send(get(1, extra: [("expect", "100-Continue")]))
    #expect(statuses(server, 1) == [200])
    server.send(post(3, [("expect", "100-continue")]))
    #expect(statuses(server, 3) == [100] && server.delegate.log == ["get / 0"])
    server.send(data(3))
    #expect(statuses(server, 3) == [100, 200])
    let refusing = try TestServer(isAuthenticated: isAuthenticated)
    refusing.delegate.onAnnounced = { _, _ in false }
    refusing.send(post(1, [("expect", "100-continue")]))
    #expect(statuses(refusing, 1) == (isAuthenticated ? [100] : [200]))
  }

  @Test(
    "every method is passed to the application",
    arguments: [
      ("GET", HTTP2Method.get), ("PUT", .put), ("POST", .post), ("DELETE", .delete), ("PATCH", .patch),
      ("HEAD", .head), ("OPTIONS", .options), ("TRACE", .other), ("get", .other),
    ]
  )
  func everyMethodIsPassedToApplication(_ name: String, _ method: HTTP2Method) throws {
    let server = try TestServer()
    var fields = getFields
    fields[0].1 = name
    server.send(headers(1, fields))
    #expect(server.delegate.log == ["\(method) / 0"])
  }

  @Test("an authorization has a stable identity, different from others; none has 0")
  func authorizationHasStableIdentity() throws {
    let server = try TestServer()
    var seen: [UInt32] = []
    server.delegate.onRequest = { stream, connection in
      connection.withRequest(stream) { seen.append($0.authorizationIdentity) }
      connection.respond(stream, status: 200)
    }
    for (index, token) in ["Bearer a", "Bearer a", "Bearer b", "", "Bearer b", "Bearer a"].enumerated() {
      server.send(get(Int32(index) * 2 + 1, extra: token.isEmpty ? [] : [("authorization", token)]))
    }
    #expect(seen[0] == seen[1] && seen[2] == seen[4] && seen[3] == 0)
    #expect(Set([seen[0], seen[2], seen[3]]).count == 3)
    #expect(seen[5] != seen[2])
  }

  /// The valid token, and others of the same length.
  private static let bob = "Bearer bob-bob-bob"
  private static let forged = "Bearer xxxxxxxxxxx"
  private static let other = "Bearer yyyyyyyyyyy"

  @Test(
    "two authorization headers: reset, and neither's verdict becomes the other's",
    arguments: [
      // The headers of each stream, and the responses: 400 stands for a refusal, nil for PROTOCOL_ERROR.
      ([[forged], [bob, forged], [forged]], [400, nil, 400]),
      ([[other, bob], [bob]], [nil, 200]),
      (
        [[bob], [forged, bob], [bob, bob], ["", bob], [bob, ""], [bob], [forged]],
        [200, nil, nil, nil, nil, 200, 400]
      ),
      ([[""], [bob], [""], []], [400, 200, 400, 400]),
      // Without a token, or with an extra space: the application answers.
      ([["Bearer "], [bob], [bob + " "], [" " + bob], ["Bearer "]], [400, 200, 400, 400, 400]),
    ] as [([[String]], [Int?])],
    [true, false]
  )
  func twoAuthorizationsGiveNoVerdict(_ sequence: ([[String]], [Int?]), _ inOneRead: Bool) throws {
    let server = try TestServer()
    // Like the gateway, it caches the first verdict on an identity.
    var known: [UInt32: Int] = [:]
    server.delegate.onRequest = { stream, connection in
      let status = connection.withRequest(stream) { request in
        let fresh = text(request.authorization) == RequestTests.bob ? 200 : 400
        let kept = known[request.authorizationIdentity] ?? fresh
        known[request.authorizationIdentity] = kept
        return kept
      }
      connection.respond(stream, status: status ?? 500)
    }
    let frames = sequence.0.enumerated().map { index, values in
      get(Int32(index) * 2 + 1, extra: values.map { ("authorization", $0) } + [("x-last", "1")])
    }
    if inOneRead { server.send(frames.flatMap(\.bytes)) } else { for frame in frames { server.send(frame) } }
    for (index, status) in sequence.1.enumerated() {
      let stream = Int32(index) * 2 + 1
      #expect(server.status(stream) == status)
      #expect(server.frames(.rstStream, stream: stream).map(\.errorCode) == (status == nil ? [1] : []))
    }
    #expect(server.connection.counters.protocolErrors == sequence.1.filter { $0 == nil }.count)
    #expect(server.connection.openStreams == 0 && !server.isClosed)
  }

  @Test(
    "RFC 9113 section 8.2.1: another value that begins or ends with a blank is malformed",
    arguments: [" a", "a ", "\ta", "a\t", " "]
  )
  func blankAtValueEndIsMalformed(_ value: String) throws {
    let server = try TestServer()
    server.send(get(1, extra: [("x-other", value)]), get(3, extra: [("x-other", "a b")]))
    #expect(server.frames(.rstStream, stream: 1).map(\.errorCode) == [1])
    #expect(server.status(1) == nil && server.status(3) == 200)
  }

  @Test("two authorization headers before a body reset the stream, and the body is dropped")
  func twoAuthorizationsResetStream() throws {
    let server = try TestServer(streamedContentTypes: [.frames])
    let two: Fields = [
      ("authorization", "a"), ("content-type", "application/vnd.tidemark.frames"), ("authorization", "b"),
    ]
    server.send(post(1, two), data(1, end: false), data(1))
    server.send(post(3, two), data(3, end: false))
    server.send(data(3), get(5))
    #expect(server.frames(.rstStream).map(\.errorCode) == [1, 1])
    #expect(server.delegate.log == ["get / 0"])
    #expect(server.connection.openStreams == 0 && !server.isClosed)
  }

  @Test("a hundred requests of one read are answered in one write")
  func hundredRequestsOfOneReadAreAnsweredInOneWrite() throws {
    let server = try TestServer()
    server.send((0..<100).flatMap { get(Int32($0) * 2 + 1).bytes })
    #expect(server.writes.count == 1)
    for stream in 0..<Int32(100) { #expect(server.body(stream * 2 + 1) == Array("0123456789".utf8)) }
    #expect(server.connection.openStreams == 0)
  }

  @Test("deferred answers leave in one write at the flush")
  func deferredAnswersLeaveInOneWriteAtFlush() throws {
    let server = try TestServer()
    server.send((0..<100).flatMap { get(Int32($0) * 2 + 1, "/hold").bytes })
    #expect(server.writes.isEmpty)
    for stream in server.delegate.held {
      // The request is still readable, for an asynchronous step.
      #expect(server.connection.withRequest(stream) { text($0.path) } == "/hold")
      #expect(server.connection.respond(stream, status: 200) { $0.writeString("later") } == .queued)
    }
    server.collect()
    #expect(server.writes.isEmpty)
    server.connection.flushIfNeeded()
    server.connection.flushIfNeeded()
    server.collect()
    #expect(server.writes.count == 1)
    #expect(server.frames(.data).count == 100)
  }

  @Test("an answer has its headers and body")
  func answerHasHeadersAndBody() throws {
    let server = try TestServer()
    server.delegate.onRequest = { stream, connection in
      switch connection.withRequest(stream, { text($0.path) }) {
      case "/empty": connection.respond(stream, status: 204)
      case "/buffer": connection.respond(stream, status: 201, body: ByteBuffer(string: "from a buffer"))
      case "/headers":
        let headers = [HTTP2Header("x-request-id", "r1"), HTTP2Header("retry-after", "1")]
        connection.respond(stream, status: 503, contentType: .problem, headers: headers) {
          $0.writeString("{}")
        }
      default: connection.respond(stream, status: 200) { $0.writeString("body") }
      }
    }
    server.send(get(1, "/empty"), get(3, "/buffer"), get(5, "/headers"))
    server.send(headers(7, [(":method", "HEAD"), (":scheme", "http"), (":authority", "a"), (":path", "/")]))
    #expect(server.status(1) == 204)
    #expect(server.frames(.headers, stream: 1).first?.flags == Frame.endHeaders | Frame.endStream)
    #expect(server.frames(.data, stream: 1).isEmpty)
    #expect(server.status(3) == 201)
    #expect(server.body(3) == Array("from a buffer".utf8))
    #expect(server.status(5) == 503)
    #expect(server.status(7) == 200)
    #expect(server.isEnded(7) && server.body(7).isEmpty)
  }

  @Test("a stream reset by the client is reported once, and its slot is freed")
  func streamResetByClientIsReportedOnce() throws {
    let server = try TestServer()
    server.send(get(1, "/hold"), get(3, "/hold"))
    server.send(rst(1))
    #expect(server.delegate.log == ["get /hold 0", "get /hold 0", "aborted"])
    #expect(server.connection.openStreams == 1)
    #expect(server.connection.counters.resetsReceived == 1)
  }

  @Test("a stream reset in the read that opened it is never delivered")
  func streamResetInItsFirstReadIsNotDelivered() throws {
    let server = try TestServer()
    server.send(get(1, "/hold"), rst(1), post(3), rst(3))
    #expect(server.delegate.log.isEmpty)
    #expect(server.connection.openStreams == 0)
  }

  @Test("the connection's end aborts delivered, unanswered requests")
  func connectionEndAbortsUnansweredRequests() throws {
    let server = try TestServer()
    server.send(get(1, "/hold"), get(3, "/hold"), post(5))
    _ = try server.channel.finish(acceptAlreadyClosed: true)
    #expect(server.delegate.log == ["get /hold 0", "get /hold 0", "aborted", "aborted", "closed"])
    #expect(server.connection.respond(HTTP2StreamHandle(slot: 0, generation: 0), status: 200) == .gone)
  }

  @Test("the application can reset a stream instead of answering")
  func applicationCanResetStreamInsteadOfAnswering() throws {
    let server = try TestServer()
    server.delegate.onRequest = { stream, connection in connection.reset(stream, .http11Required) }
    server.send(get(1))
    #expect(server.frames(.rstStream).first?.errorCode == HTTP2ErrorCode.http11Required.rawValue)
    #expect(server.delegate.log == ["get / 0"])
  }

  @Test("counters count requests, answers and resets")
  func countersCountRequestsAnswersAndResets() throws {
    let server = try TestServer()
    server.send(get(1), get(3, "/hold"), rst(3), get(5, ""))
    let counters = server.connection.counters
    #expect(counters.streamsOpened == 3)
    #expect(counters.responses == 1)
    #expect(counters.resetsReceived == 1 && counters.resetsSent == 1)
    #expect(counters.protocolErrors == 1)
    #expect(counters.bytesIn > 100 && counters.bytesOut > 50)
  }
}

@Suite("Streaming answers")
struct StreamingTests {
  private func start(_ limits: HTTP2Limits = HTTP2Limits()) throws -> (TestServer, HTTP2StreamHandle) {
    let server = try TestServer(limits: limits)
    server.send(get(1, "/hold"))
    let stream = server.delegate.held[0]
    #expect(server.connection.startStreaming(stream, status: 200, contentType: .eventStream) == .queued)
    server.connection.flushIfNeeded()
    server.collect()
    return (server, stream)
  }

  @Test("a streaming answer sends headers at once, pieces as they come, then the end")
  func streamingAnswerSendsHeadersAtOnce() throws {
    let (server, stream) = try start()
    #expect(server.status(1) == 200 && !server.isEnded(1))
    for piece in ["one", "two", "three"] {
      #expect(server.connection.write(stream, ByteBuffer(string: piece)) == .queued)
      server.connection.flushIfNeeded()
    }
    server.collect()
    #expect(
      server.frames(.data).map { String(decoding: $0.payload, as: UTF8.self) } == ["one", "two", "three"]
    )
    server.connection.write(stream, ByteBuffer(string: "four"))
    server.connection.finish(stream)
    server.connection.flushIfNeeded()
    server.collect()
    #expect(server.isEnded(1))
    #expect(server.connection.openStreams == 0)
    #expect(server.delegate.log == ["get /hold 0"])
  }

  @Test("a streaming answer can end without bytes, and later than its last byte")
  func streamingAnswerCanEndWithoutBytes() throws {
    let (server, stream) = try start()
    server.connection.finish(stream)
    server.connection.flushIfNeeded()
    server.collect()
    #expect(server.isEnded(1) && server.body(1).isEmpty)
    #expect(server.connection.write(stream, ByteBuffer(string: "x")) == .gone)
  }

  @Test("a full queue refuses pieces, keeps its content, and reports when it is empty")
  func fullQueueRefusesPieces() throws {
    var limits = HTTP2Limits()
    limits.streamQueueBytesMax = 100
    let (server, stream) = try start(limits)
    server.send(settings([(4, 0)]))
    let piece = ByteBuffer(repeating: UInt8(ascii: "a"), count: 60)
    #expect(server.connection.write(stream, piece) == .queued)
    #expect(server.connection.write(stream, piece) == .full)
    #expect(server.connection.queuedBytes(stream) == 60)
    server.connection.flushIfNeeded()
    server.collect()
    #expect(server.body(1).isEmpty)
    server.send(windowUpdate(1, 40))
    #expect(server.body(1).count == 40)
    #expect(!server.delegate.log.contains("drained"))
    server.send(windowUpdate(1, 40))
    #expect(server.body(1).count == 60)
    #expect(server.delegate.log.filter { $0 == "drained" }.count == 1)
    #expect(server.connection.write(stream, piece) == .queued)
  }

  @Test("a piece sent to several streams is shared, and later pieces are each stream's own")
  func pieceSentToSeveralStreamsIsShared() throws {
    let server = try TestServer()
    server.send(get(1, "/hold"), get(3, "/hold"))
    let streams = server.delegate.held
    for stream in streams {
      server.connection.startStreaming(stream, status: 200, contentType: .eventStream)
    }
    let piece = ByteBuffer(string: "both")
    for stream in streams { #expect(server.connection.write(stream, piece) == .queued) }
    #expect(server.connection.write(streams[0], ByteBuffer(string: " one")) == .queued)
    #expect(streams.map { server.connection.queuedBytes($0) } == [8, 4])
    server.connection.flushIfNeeded()
    server.collect()
    func text(_ stream: Int32) -> [String] {
      server.frames(.data).filter { $0.stream == stream }.map { String(decoding: $0.payload, as: UTF8.self) }
    }
    #expect(text(1) == ["both one"] && text(3) == ["both"])
    #expect(piece == ByteBuffer(string: "both"))
    #expect(streams.map { server.connection.queuedBytes($0) } == [0, 0])
  }

  @Test("a client's reset aborts a streaming answer, unless its end was sent")
  func clientResetAbortsStreamingAnswer() throws {
    let (server, stream) = try start()
    server.send(rst(1))
    #expect(server.delegate.log == ["get /hold 0", "aborted"])
    #expect(server.connection.write(stream, ByteBuffer(string: "x")) == .gone)
  }

  @Test("HEAD gets the headers and the end of a streaming answer")
  func headGetsHeadersAndEndOfStreamingAnswer() throws {
    let server = try TestServer()
    server.delegate.onRequest = { stream, connection in
      connection.startStreaming(stream, status: 200, contentType: .eventStream)
      #expect(connection.write(stream, ByteBuffer(string: "x")) == .gone)
    }
    server.send(headers(1, [(":method", "HEAD"), (":scheme", "http"), (":authority", "a"), (":path", "/")]))
    #expect(server.isEnded(1))
    #expect(server.connection.openStreams == 0)
  }
}

@Suite("Connection shutdown")
struct ShutdownTests {
  @Test("a graceful shutdown sends a warning and the binding GOAWAY, ends the streams, and closes")
  func gracefulShutdownWarnsAndThenCloses() throws {
    let server = try TestServer()
    server.send(get(1, "/hold"))
    server.connection.shutdownGracefully(grace: .seconds(2))
    server.collect()
    #expect(server.frames(.goAway).map { read32($0.payload, 0) } == [0x7fff_ffff])
    // A request in flight at the time of the warning is still answered.
    server.send(get(3))
    #expect(server.status(3) == 200)
    server.advance(.seconds(2))
    #expect(server.frames(.goAway).map { read32($0.payload, 0) } == [0x7fff_ffff, 3])
    #expect(!server.isClosed)
    server.send(get(5))
    #expect(server.status(5) == nil)
    server.connection.respond(server.delegate.held[0], status: 204)
    server.connection.flushIfNeeded()
    server.collect()
    #expect(server.status(1) == 204)
    #expect(server.isClosed)
    #expect(server.delegate.log.last == "closed")
  }

  @Test("a shutdown without grace and without streams closes at once")
  func shutdownWithoutGraceAndWithoutStreamsClosesAtOnce() throws {
    let server = try TestServer()
    server.connection.shutdownGracefully(grace: .zero)
    server.connection.shutdownGracefully(grace: .seconds(1))
    server.collect()
    #expect(server.frames(.goAway).count == 1)
    #expect(server.isClosed)
  }

  @Test("a client that sends GOAWAY is served to the end, then the connection closes")
  func clientThatSendsGOAWAYIsServed() throws {
    let server = try TestServer()
    server.send(get(1, "/hold"), goAway())
    #expect(!server.isClosed)
    server.connection.respond(server.delegate.held[0], status: 200)
    server.connection.flushIfNeeded()
    server.collect()
    #expect(server.status(1) == 200)
    #expect(server.isClosed)
  }

  @Test("a failure's GOAWAY names the reason")
  func failureGOAWAYNamesReason() throws {
    let server = try TestServer()
    server.connection.fail(.enhanceYourCalm)
    server.collect()
    #expect(server.frames(.goAway).first?.errorCode == HTTP2ErrorCode.enhanceYourCalm.rawValue)
    #expect(server.isClosed)
  }
}
