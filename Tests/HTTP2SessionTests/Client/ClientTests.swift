import HTTP2Session
import NIOCore
import NIOEmbedded
import Testing

@Suite("Client")
struct ClientTests {
  @Test("a request gets its answer")
  func requestGetsAnswer() throws {
    let pair = try Pair()
    #expect(pair.delegate.isReady)
    #expect(pair.client.concurrentStreamsMax == 1_000)
    #expect(pair.client.submit(pair.template, path: "/a?b", tag: 7) != nil)
    pair.run()
    #expect(pair.server.delegate.log == ["get /a?b 0"])
    #expect(pair.delegate.log == ["7 200 text/plain; charset=utf-8 0123456789"])
    #expect(pair.client.openStreams == 0)
  }

  @Test("a body larger than all windows is sent and echoed")
  func bodyLargerThanAllWindowsIsSentAndEchoed() throws {
    let pair = try Pair()
    pair.server.delegate.onRequest = { stream, connection in
      let body = connection.withRequest(stream) { request in
        var copy = ByteBuffer()
        request.body.withUnsafeBytes { _ = copy.writeBytes($0) }
        return copy
      }
      connection.respond(stream, status: 200, contentType: .bytes, body: body ?? ByteBuffer())
    }
    let body = String(repeating: "0123456789", count: 100_000)
    pair.client.submit(pair.posting, path: "/", body: ByteBuffer(string: body), tag: 1)
    pair.run()
    #expect(pair.delegate.log == ["1 200 application/octet-stream \(body)"])
  }

  @Test("requests beyond the server's concurrent streams wait and are answered")
  func requestsBeyondConcurrentStreamsWait() throws {
    var limits = HTTP2Limits()
    limits.concurrentStreamsMax = 10
    let pair = try Pair(limits: limits)
    for tag in 0..<100 { pair.client.submit(pair.template, path: "/\(tag)", tag: UInt64(tag)) }
    pair.run()
    #expect(pair.delegate.log.count == 100)
    #expect(pair.delegate.log.allSatisfy { $0.contains(" 200 ") })
    #expect(pair.server.delegate.log.count == 100)
  }

  @Test("a reset, a cancel and the connection's end fail the request")
  func resetCancelAndConnectionEndFailRequest() throws {
    let pair = try Pair()
    pair.server.delegate.onRequest = { stream, connection in
      if connection.withRequest(stream, { text($0.path) }) == "/reset" {
        connection.reset(stream, .refusedStream)
      }
    }
    pair.client.submit(pair.template, path: "/reset", tag: 1)
    pair.run()
    let handle = try #require(pair.client.submit(pair.template, path: "/never", tag: 2))
    pair.client.submit(pair.template, path: "/never", tag: 3)
    pair.run()
    pair.client.cancel(handle)
    pair.run()
    #expect(pair.delegate.log == ["1 failed 7", "2 failed 8"])
    #expect(pair.server.delegate.log.last == "aborted")
    _ = try pair.channel.finish(acceptAlreadyClosed: true)
    #expect(pair.delegate.log == ["1 failed 7", "2 failed 8", "3 failed 2", "closed"])
    #expect(pair.client.submit(pair.template, path: "/", tag: 4) == nil)
  }

  @Test("a streaming answer arrives in parts")
  func streamingAnswerArrivesInParts() throws {
    let pair = try Pair()
    var stream: HTTP2StreamHandle?
    pair.server.delegate.onRequest = { handle, connection in
      connection.startStreaming(handle, status: 200, contentType: .eventStream)
      stream = handle
    }
    pair.client.submit(pair.template, path: "/events", tag: 1, streaming: true)
    pair.run()
    let handle = try #require(stream)
    for piece in ["a", "b"] {
      pair.server.connection.write(handle, ByteBuffer(string: piece))
      pair.server.connection.flushIfNeeded()
      pair.run()
    }
    pair.server.connection.write(handle, ByteBuffer(string: "c"))
    pair.server.connection.finish(handle)
    pair.server.connection.flushIfNeeded()
    pair.run()
    #expect(pair.delegate.log == ["1 part ", "1 part a", "1 part b", "1 200 text/event-stream c"])
  }

  @Test("a draining server answers sent requests, refuses new ones, and then both sides close")
  func drainingServerAnswersSentRequestsAndRefusesNewOnes() throws {
    let pair = try Pair()
    pair.client.submit(pair.template, path: "/hold", tag: 1)
    pair.run()
    pair.server.connection.shutdownGracefully(grace: .zero)
    pair.run()
    #expect(!pair.client.isUsable)
    #expect(pair.client.submit(pair.template, path: "/", tag: 2) == nil)
    pair.server.connection.respond(pair.server.delegate.held[0], status: 204)
    pair.server.connection.flushIfNeeded()
    pair.run()
    #expect(pair.delegate.log.first == "1 204  ")
    #expect(pair.server.isClosed)
  }

  @Test("a client that closes gracefully gets its answers first")
  func clientThatClosesGracefullyGetsAnswersFirst() throws {
    let pair = try Pair()
    pair.client.submit(pair.template, path: "/hold", tag: 1)
    pair.client.close()
    pair.run()
    #expect(pair.client.submit(pair.template, path: "/", tag: 2) == nil)
    pair.server.connection.respond(pair.server.delegate.held[0], status: 204)
    pair.server.connection.flushIfNeeded()
    pair.run()
    #expect(pair.delegate.log == ["1 204  ", "closed"])
  }

  @Test("trailers arrive with the complete response, whole and byte by byte", arguments: [Int.max, 1])
  func trailersArriveWithCompleteResponse(pieceBytes: Int) throws {
    let raw = try RawServerPair()
    raw.client.submit(raw.template, path: "/", tag: 1)
    raw.client.submit(raw.template, path: "/", tag: 2)
    let fields = [("grpc-status", "14"), ("grpc-message", "no%20leader"), ("grpc-status", "0")]
    let ends = Frame.endHeaders | Frame.endStream
    try raw.receive(
      [
        Frame(.headers, flags: Frame.endHeaders, stream: 1, HPACK.plain([(":status", "200")])),
        Frame(.headers, flags: Frame.endHeaders, stream: 3, HPACK.plain([(":status", "200"), ("a", "b")])),
        Frame(.data, stream: 1, Array("body".utf8)),
        Frame(.headers, flags: ends, stream: 1, HPACK.plain(fields)),
        Frame(.headers, flags: ends, stream: 3, HPACK.plain([("x-last", "")])),
      ],
      pieceBytes: pieceBytes
    )
    #expect(raw.delegate.log == ["1 200  body", "2 200  "])
    #expect(raw.delegate.trailers == ["grpc-status": ["14", nil], "grpc-message": ["no%20leader", nil]])
    #expect(raw.client.openStreams == 0)
  }

  @Test("a response without a body has its fields in the headers, and no trailers")
  func responseWithoutBodyHasFieldsInHeaders() throws {
    let raw = try RawServerPair()
    raw.client.submit(raw.template, path: "/", tag: 1)
    let block = HPACK.plain([(":status", "200"), ("grpc-status", "8")])
    try raw.receive([Frame(.headers, flags: Frame.endHeaders | Frame.endStream, stream: 1, block)])
    #expect(raw.delegate.log == ["1 200  "])
    #expect(raw.delegate.headerStatus == ["8"])
    #expect(raw.delegate.trailers == ["grpc-status": [nil], "grpc-message": [nil]])
  }

  @Test(
    "trailers above the header limit are left out, and a reset stream's trailers do not reach the next one"
  )
  func trailersAboveHeaderLimitAreLeftOut() throws {
    var limits = HTTP2ClientLimits()
    limits.headerListBytesMax = 200
    let raw = try RawServerPair(limits)
    raw.client.submit(raw.template, path: "/", tag: 1)
    raw.client.submit(raw.template, path: "/", tag: 2)
    let large = ("grpc-message", String(repeating: "a", count: 200))
    try raw.receive([
      Frame(.headers, flags: Frame.endHeaders, stream: 1, HPACK.plain([(":status", "200")])),
      Frame(
        .headers,
        flags: Frame.endHeaders | Frame.endStream,
        stream: 1,
        HPACK.plain([("grpc-status", "1"), large])
      ),
      Frame(.headers, flags: Frame.endHeaders, stream: 3, HPACK.plain([(":status", "200")])),
      Frame(
        .headers,
        flags: Frame.endHeaders | Frame.endStream,
        stream: 3,
        HPACK.plain([("grpc-status", "2"), (":status", "200")])
      ),
    ])
    raw.client.submit(raw.template, path: "/", tag: 3)
    try raw.receive([
      Frame(.headers, flags: Frame.endHeaders, stream: 5, HPACK.plain([(":status", "200")])),
      Frame(.data, flags: Frame.endStream, stream: 5),
    ])
    #expect(raw.delegate.log == ["1 200  ", "2 failed 1", "3 200  "])
    #expect(raw.delegate.trailers == ["grpc-status": ["1", nil], "grpc-message": [nil, nil]])
  }

  @Test("a PING leaves at once, and its acknowledgement counts as input")
  func pingLeavesAtOnceAndAcknowledgementCountsAsInput() throws {
    let raw = try RawServerPair()
    let before = raw.client.counters.bytesIn
    _ = try raw.sent()
    raw.client.ping()
    #expect(try raw.sent().map(\.kind) == [.ping])
    try raw.receive([Frame(.ping, flags: Frame.ack, stream: 0, Array(repeating: 0, count: 8))])
    #expect(raw.client.counters.bytesIn > before)
    #expect(raw.client.isUsable)
  }

  @Test("a server that does not speak HTTP/2 fails the connection")
  func serverWithoutHTTP2FailsConnection() throws {
    let channel = EmbeddedChannel()
    let delegate = TestClient()
    let client = HTTP2ClientConnection(delegate: delegate, resources: HTTP2ClientResources())
    try channel.pipeline.syncOperations.addHandler(client)
    channel.connect(to: try SocketAddress(ipAddress: "127.0.0.1", port: 1), promise: nil)
    let template = HTTP2RequestTemplate(method: .get, scheme: "http", authority: "localhost")
    client.submit(template, path: "/", tag: 1)
    _ = try? channel.writeInbound(ByteBuffer(string: "HTTP/1.1 400 Bad Request\r\n\r\n"))
    channel.embeddedEventLoop.run()
    #expect(!channel.isActive)
    // The request was never sent, so it can be retried elsewhere.
    #expect(delegate.log == ["1 failed \(HTTP2ErrorCode.refusedStream.rawValue)", "closed"])
  }
}

@Suite("Streamed request bodies")
struct StreamedBodyTests {
  /// Read a body line by line, and answer each line at once, like push acks.
  private func lines(_ pair: Pair) {
    pair.server.delegate.onRequest = { stream, connection in
      connection.startStreaming(stream, status: 200, contentType: .ndjson)
    }
    pair.server.delegate.onBody = { stream, connection in
      var response = ByteBuffer()
      var isOver = false
      connection.readBody(stream) { bytes, isEnd in
        let line = text(bytes)
        isOver = isEnd
        guard let last = line.utf8.lastIndex(of: UInt8(ascii: "\n")) else {
          return isEnd ? bytes.byteCount : 0
        }
        let whole = line.utf8.distance(from: line.utf8.startIndex, to: last) + 1
        response.writeString(String(line[...last]).uppercased())
        return isEnd ? bytes.byteCount : whole
      }
      if response.readableBytes > 0 { connection.write(stream, response) }
      if isOver { connection.finish(stream) }
    }
  }

  private func pair(
    _ limits: HTTP2Limits = HTTP2Limits(),
    clientLimits: HTTP2ClientLimits = HTTP2ClientLimits()
  ) throws -> (Pair, HTTP2RequestTemplate) {
    let pair = try Pair(
      limits: limits,
      clientLimits: clientLimits,
      streamedContentTypes: [.frames, .ndjson]
    )
    let template = HTTP2RequestTemplate(
      method: .post,
      scheme: "http",
      authority: "localhost",
      contentType: "application/x-ndjson; charset=utf-8"
    )
    return (pair, template)
  }

  @Test("streamed bodies pass in both directions, split anywhere")
  func streamedBodiesPassInBothDirections() throws {
    let (pair, template) = try pair()
    lines(pair)
    let handle = try #require(
      pair.client.submit(
        template,
        path: "/acks",
        body: ByteBuffer(string: "on"),
        tag: 1,
        streaming: true,
        hasMoreBody: true
      )
    )
    pair.run()
    for piece in ["e\ntwo\nthr", "ee\n", "four\n"] {
      #expect(pair.client.write(handle, ByteBuffer(string: piece)) == .queued)
      pair.run()
    }
    #expect(pair.delegate.log == ["1 part ", "1 part ONE\nTWO\n", "1 part THREE\n", "1 part FOUR\n"])
    pair.client.finish(handle)
    pair.run()
    #expect(pair.delegate.log.last == "1 200 application/x-ndjson ")
    #expect(pair.client.write(handle, ByteBuffer(string: "x")) == .gone)
    #expect(pair.server.connection.openStreams == 0)
  }

  @Test(
    "a body sent as the windows open is answered past the client's windows and its whole-body limit"
  )
  func bodySentInPiecesPassesClientLimits() throws {
    var limits = HTTP2Limits()
    limits.streamedWindowSize = 100_000
    var clientLimits = HTTP2ClientLimits()
    clientLimits.initialWindowSize = 65_535
    clientLimits.connectionWindowSize = 65_535
    clientLimits.bodyBytesMax = 200_000
    let (pair, template) = try pair(limits, clientLimits: clientLimits)
    lines(pair)
    let piece = String(repeating: "one line\n", count: 1_000)
    var remaining = 200
    var most = 0
    let handle = try #require(
      pair.client.submit(template, path: "/acks", tag: 1, streaming: true, hasMoreBody: true)
    )
    let fill = { (client: HTTP2ClientConnection<TestClient>) in
      while let queued = client.queuedBytes(handle), queued < 20_000 {
        guard remaining > 0 else { return _ = client.finish(handle) }
        client.write(handle, ByteBuffer(string: piece))
        remaining -= 1
        most = max(most, client.queuedBytes(handle) ?? 0)
      }
    }
    pair.delegate.onReadComplete = fill
    fill(pair.client)
    pair.run()
    #expect(remaining == 0 && most < 20_000 + piece.utf8.count)
    let end = "1 200 application/x-ndjson "
    let responses = pair.delegate.log.map { $0.replacing(end, with: "").replacing("1 part ", with: "") }
    #expect(
      pair.delegate.log.count { $0.hasPrefix(end) } == 1 && pair.delegate.log.last?.hasPrefix(end) == true
    )
    #expect(responses.joined() == String(repeating: piece.uppercased(), count: 200))
    #expect(pair.client.openStreams == 0)
  }

  @Test("an empty body, and a request without body of a streamed type, end at once")
  func emptyBodyEndsAtOnce() throws {
    let (pair, template) = try pair()
    lines(pair)
    let handle = try #require(pair.client.submit(template, path: "/acks", tag: 1, hasMoreBody: true))
    pair.client.finish(handle)
    pair.run()
    #expect(pair.delegate.log == ["1 200 application/x-ndjson "])
    pair.server.delegate.onRequest = nil
    pair.client.submit(template, path: "/acks", tag: 2)
    pair.run()
    #expect(pair.delegate.log.last?.hasPrefix("2 200") == true)
  }

  @Test("unread body bytes stop the client, which continues when they are read")
  func unreadBodyBytesStopClientUntilRead() throws {
    var limits = HTTP2Limits()
    limits.streamedWindowSize = 100_000
    limits.bodyBytesMax = 10
    let (pair, template) = try pair(limits)
    var stream: HTTP2StreamHandle?
    pair.server.delegate.onRequest = { handle, _ in stream = handle }
    let body = ByteBuffer(repeating: 7, count: 1_000_000)
    let sent = try #require(
      pair.client.submit(template, path: "/acks", body: body, tag: 1, hasMoreBody: true)
    )
    pair.run()
    #expect(pair.client.queuedBytes(sent) == 900_000)
    pair.client.finish(sent)
    let handle = try #require(stream)
    var total = 0
    var isOver = false
    for _ in 0..<100 where !isOver {
      pair.server.connection.readBody(handle) { bytes, isEnd in
        #expect(bytes.byteCount <= 100_000)
        let taken = min(60_000, bytes.byteCount)
        total += taken
        isOver = isEnd && taken == bytes.byteCount
        return taken
      }
      pair.server.connection.flushIfNeeded()
      pair.run()
    }
    #expect(total == 1_000_000)
    pair.server.connection.respond(handle, status: 204)
    pair.server.connection.flushIfNeeded()
    pair.run()
    #expect(pair.delegate.log == ["1 204  "])
  }

  @Test("unread bytes of a reset stream are returned to the connection's window")
  func unreadBytesOfResetStreamReturnToWindow() throws {
    let server = try TestServer(streamedContentTypes: [.ndjson])
    server.delegate.onRequest = { _, _ in }
    var window = 4 * 1024 * 1024
    for stream in stride(from: Int32(1), to: 201, by: 2) {
      server.send(
        post(stream, [("content-type", "application/x-ndjson")]),
        Frame(.data, stream: stream, Array(repeating: 7, count: 16_384)),
        Frame(.data, flags: 0x8, stream: stream, [100] + Array(repeating: 7, count: 16_000)),
        Frame(.data, stream: stream, Array(repeating: 7, count: 16_384))
      )
      server.send(rst(stream))
      window -= 16_384 * 2 + 16_001
      for update in server.frames(.windowUpdate) where update.stream == 0 {
        window += Int(read32(update.payload, 0))
      }
      _ = server.takeFrames()
      try #require(window > 0 && window <= 4 * 1024 * 1024 && !server.isClosed, "\(stream) \(window)")
    }
    // All bytes except those below the threshold of a window update.
    #expect(window > 2 * 1024 * 1024)
  }
}
