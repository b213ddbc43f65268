import HTTP2Session
import NIOCore
import NIOEmbedded
import Testing

@Suite("Bodies held, and answers that nobody takes")
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

  private func given(_ server: TestServer, stream: Int32) -> Int {
    server.frames(.windowUpdate, stream: stream).reduce(0) { $0 + Int(read32($1.payload, 0)) }
  }

  @Test("maxBufferedBodyBytes: 300 bodies of 1 MiB that never end", arguments: [true, false])
  func endlessBodies(_ interleaved: Bool) throws {
    let limits = HTTP2Limits()
    let resources = HTTP2ServerResources(limits: limits)
    let server = try TestServer(resources: resources)
    let neighbour = try TestServer(resources: resources)
    let streams = (0..<Int32(300)).map { $0 * 2 + 1 }
    let bound = limits.maxBufferedBodyBytes + limits.maxBodyBytes + 300 * limits.maxKeptBufferBytes
    var most = 0
    var reset: Set<Int32> = []
    func sendPiece(_ stream: Int32) {
      if reset.contains(stream) { return }
      server.send(piece(stream))
      most = max(most, server.connection.bufferedBodyBytes)
      // It keeps its windows in mind, as those are given back.
      for frame in server.frames(.rstStream) {
        #expect(frame.errorCode == HTTP2ErrorCode.enhanceYourCalm.rawValue)
        reset.insert(frame.stream)
      }
      _ = server.takeFrames()
    }
    for stream in streams { server.send(post(stream)) }
    if interleaved {
      for _ in 0..<64 { for stream in streams { sendPiece(stream) } }
    } else {
      for stream in streams { for _ in 0..<64 { sendPiece(stream) } }
    }
    #expect(most <= bound && most >= limits.maxBufferedBodyBytes)
    // As many are left as the limit has room for, and the one that went on past it.
    #expect(reset.count == (interleaved ? 296 : 295))
    #expect(server.connection.counters.limitsHit == UInt64(reset.count))
    server.send(get(1_001), post(1_003), data(1_003))
    #expect(server.status(1_001) == 200 && server.status(1_003) == 200)
    neighbour.send(post(1), piece(1), data(1))
    #expect(neighbour.status(1) == 200)
    // Those that are left are complete as ever.
    for stream in streams where !reset.contains(stream) {
      server.send(Frame(.data, flags: Frame.endStream, stream: stream))
      #expect(server.status(stream) == 200)
    }
    #expect(server.connection.openStreams == 0 && server.connection.bufferedBodyBytes == 0)
    #expect(!server.isClosed)
  }

  @Test("maxBufferedBodyBytes: past it in one read, and by one body that is larger")
  func bodiesInOneRead() throws {
    var limits = HTTP2Limits()
    limits.maxBufferedBodyBytes = 3 * StalledTests.piece
    let server = try TestServer(limits: limits)
    var frames: [Frame] = []
    for stream in (0..<Int32(10)).map({ $0 * 2 + 1 }) { frames += [post(stream), piece(stream)] }
    server.send(frames.flatMap(\.bytes))
    // 1, 3 and 5 fill it, 7 goes on past it.
    #expect(server.frames(.rstStream).map(\.stream) == [9, 11, 13, 15, 17, 19])
    #expect(server.connection.bufferedBodyBytes == 4 * StalledTests.piece)
    for _ in 0..<20 { server.send(piece(7)) }
    server.send(data(7))
    #expect(server.status(7) == 200)
    // What was reset is read and dropped, and the next may go on where that one has ended.
    server.send(piece(9), piece(1, end: true), piece(3, end: true))
    #expect(server.status(1) == 200 && server.status(3) == 200)
    server.send(rst(5))
    #expect(server.connection.bufferedBodyBytes == 0 && server.connection.openStreams == 0)
  }

  @Test("maxBufferedBodyBytes: complete bodies hold the connection's window until they are answered")
  func pushesBack() throws {
    var limits = HTTP2Limits()
    limits.maxBufferedBodyBytes = 4 * StalledTests.piece
    limits.connectionWindowSize = 8 * Int32(StalledTests.piece)
    let server = try TestServer(limits: limits)
    let fields: Fields = [
      (":method", "POST"), (":scheme", "http"), (":authority", "localhost"), (":path", "/hold"),
    ]
    for stream in 0..<Int32(12) {
      server.send(headers(stream * 2 + 1, fields, end: false), piece(stream * 2 + 1, end: true))
    }
    // All are served, none is reset, and the client may send no more.
    #expect(server.delegate.held.count == 12 && server.frames(.rstStream).isEmpty)
    #expect(given(server, stream: 0) == 4 * StalledTests.piece)
    server.send(get(101))
    #expect(server.status(101) == 200)
    for stream in server.delegate.held { server.connection.respond(stream, status: 200) }
    server.connection.flushIfNeeded()
    server.collect()
    #expect(given(server, stream: 0) == 12 * StalledTests.piece)
    #expect(server.connection.bufferedBodyBytes == 0)
  }

  @Test("writeTimeout: answers that the client's windows hold back", arguments: [true, false])
  func stalledAnswers(_ onlyConnection: Bool) throws {
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
      // It is not still: that is not enough.
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

  @Test("writeTimeout: an answer that moves, and a finished stream that does not")
  func slowAnswers() throws {
    let server = try TestServer()
    server.send(settings([(4, 0)]), get(1), get(3, "/hold"), get(5, "/hold"))
    for stream in server.delegate.held {
      server.connection.startStreaming(stream, status: 200, contentType: .eventStream)
      server.connection.write(stream, ByteBuffer(string: "event"))
    }
    server.connection.finish(server.delegate.held[0])
    server.connection.flushIfNeeded()
    for _ in 0..<9 {
      server.send(windowUpdate(1, 1))
      server.advance(.seconds(20))
    }
    // 1 gets on by a byte at a time; 5 is the application's to end.
    #expect(server.frames(.rstStream).map(\.stream) == [3])
    #expect(server.delegate.log.filter { $0 == "aborted" }.count == 1)
    server.send(windowUpdate(1, 1))
    #expect(server.isEnded(1))
  }

  @Test("writeTimeout: an answer that waits its turn behind another is not reset")
  func waitsItsTurn() throws {
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
