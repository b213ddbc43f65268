import HTTP2Session
import NIOCore
import NIOEmbedded
import Testing

@Suite("What streams hold, and what a header block stands for") struct MemoryBudgetTests {
  /// Fields that take one byte each, and stand for a table's entry of 3,900 (RFC 7541 section 6.1).
  private func bomb(_ count: Int) -> [UInt8] {
    // Literal with incremental indexing, a new name; the value's length is 127 + 3,773.
    [0x40, 5] + Array("x-big".utf8) + [0x7f, 0xbd, 0x1d] + Array(repeating: UInt8(ascii: "x"), count: 3_900)
      + Array(repeating: 0xbe, count: count)
  }

  @Test("a block that stands for more than 64 KiB ends the connection", arguments: [true, false])
  func headerBomb(inTrailers: Bool) throws {
    let server = try TestServer()
    let block = bomb(10_000)
    if inTrailers {
      server.send(post(1), Frame(.headers, flags: Frame.endHeaders | Frame.endStream, stream: 1, block))
    } else {
      server.send(
        Frame(.headers, flags: Frame.endHeaders | Frame.endStream, stream: 1, HPACK.plain(getFields) + block)
      )
    }
    #expect(server.frames(.goAway).last?.errorCode == HTTP2ErrorCode.enhanceYourCalm.rawValue)
    #expect(server.isClosed && server.connection.counters.limitsHit == 1)
    // Some of it is 431, as ever.
    let calm = try TestServer()
    calm.send(
      Frame(.headers, flags: Frame.endHeaders | Frame.endStream, stream: 1, HPACK.plain(getFields) + bomb(10))
    )
    #expect(calm.status(1) == 431 && !calm.isClosed)
  }

  @Test("of header fields only those are kept that are asked for")
  func keptHeaders() throws {
    var limits = HTTP2Limits()
    limits.keptHeaders = ["x-kept"]
    let server = try TestServer(limits: limits)
    var found: [String] = []
    server.delegate.onRequest = { stream, connection in
      connection.withRequest(stream) { request in
        found = ["\(request.method)", text(request.path), text(request.authorization)]
        if let kept = request.header("x-kept") { found.append(text(kept)) }
        if let other = request.header("x-other") { found.append(text(other)) }
      }
      connection.respond(stream, status: 200)
    }
    server.send(get(1, "/a", extra: [("x-other", "1"), ("authorization", "Bearer x"), ("x-kept", "2")]))
    #expect(found == ["get", "/a", "Bearer x", "2"])
  }

  @Test("who holds most is refused first, others are served, and all of it is given back")
  func shares() throws {
    var limits = HTTP2Limits()
    limits.maxHeldBytes = 1 << 20
    let resources = HTTP2ServerResources(limits: limits)
    let greedy = try TestServer(resources: resources)
    greedy.connection.isProven = true
    let neighbour = try TestServer(resources: resources)
    let streams = (0..<Int32(900)).map { $0 * 2 + 1 }
    greedy.send(streams.flatMap { post($0).bytes })
    let refused = greedy.frames(.rstStream).filter { $0.errorCode == HTTP2ErrorCode.refusedStream.rawValue }
    // Half of the budget is 341 streams of 1.5 KiB.
    #expect((500...600).contains(refused.count), "\(refused.count)")
    #expect(resources.heldBytes <= limits.maxHeldBytes && !greedy.isClosed)
    for stream in stride(from: Int32(1), to: 41, by: 2) {
      neighbour.send(post(stream), data(stream))
      #expect(neighbour.status(stream) == 200)
    }
    // A body that goes on is reset.
    greedy.send(data(1, String(repeating: "x", count: 1_000), end: false))
    #expect(greedy.frames(.rstStream, stream: 1).last?.errorCode == HTTP2ErrorCode.enhanceYourCalm.rawValue)
    _ = try? greedy.channel.finish(acceptAlreadyClosed: true)
    #expect(resources.heldBytes == 0)
  }

  @Test("answers that nobody takes count, and are given back with their streams")
  func answers() throws {
    var limits = HTTP2Limits()
    limits.maxConnectionHeldBytes = 100_000
    let resources = HTTP2ServerResources(limits: limits)
    let server = try TestServer(resources: resources)
    server.connection.isProven = true
    server.delegate.onRequest = { stream, connection in
      connection.respond(stream, status: 200) { $0.writeRepeatingByte(7, count: 40_000) }
    }
    // No stream may send (RFC 9113 section 6.9.2).
    server.send(settings([(4, 0)]))
    for stream in [1, 3, 5, 7, 9] as [Int32] { server.send(get(stream)) }
    #expect([1, 3, 5].allSatisfy { server.status($0) == 200 })
    for stream in [7, 9] as [Int32] {
      #expect(
        server.frames(.rstStream, stream: stream).map(\.errorCode) == [HTTP2ErrorCode.refusedStream.rawValue]
      )
    }
    #expect(resources.heldBytes > 120_000)
    for stream in [1, 3, 5] as [Int32] { server.send(rst(stream)) }
    #expect(resources.heldBytes == 0)
    server.send(get(11))
    #expect(server.status(11) == 200)
  }

  @Test("who has not shown who it is holds less, bodies aside")
  func unproven() throws {
    var limits = HTTP2Limits()
    limits.maxUnprovenHeldBytes = 50_000
    let server = try TestServer(limits: limits)
    let streams = (0..<Int32(100)).map { $0 * 2 + 1 }
    server.send(streams.flatMap { post($0).bytes })
    #expect((60...75).contains(server.frames(.rstStream).count), "\(server.frames(.rstStream).count)")
    _ = server.takeFrames()
    server.connection.isProven = true
    server.send(post(1_001), data(1_001))
    #expect(server.status(1_001) == 200)
  }

  @Test("what somebody holds counts over all of their connections, and their neighbours on one go on")
  func sharesOfCallers() throws {
    var limits = HTTP2Limits()
    limits.maxConnectionHeldBytes = 100_000
    let resources = HTTP2ServerResources(limits: limits)
    let servers = try (0..<2).map { _ in try TestServer(resources: resources) }
    for server in servers {
      server.connection.isProven = true
      // Who asks under an even stream of four is greedy.
      server.delegate.onRequest = { stream, connection in
        let path = connection.withRequest(stream) { text($0.path) }
        guard connection.admit(stream, for: path == "/greedy" ? 7 : 9, answerBytes: 0) else {
          return _ = connection.respond(stream, status: 503)
        }
        connection.respond(stream, status: 200) {
          $0.writeRepeatingByte(7, count: path == "/greedy" ? 30_000 : 10)
        }
      }
      server.send(settings([(4, 0)]))
    }
    for (index, stream) in [(0, 1), (1, 1), (0, 3), (1, 3)] as [(Int, Int32)] {
      servers[index].send(get(stream, "/greedy"))
      #expect(servers[index].status(stream) == 200)
    }
    for server in servers {
      server.send(get(5, "/greedy"), get(7, "/modest"))
      #expect(server.status(5) == 503 && server.status(7) == 200)
    }
    servers[1].send(rst(1), rst(3))
    servers[0].send(get(9, "/greedy"))
    #expect(servers[0].status(9) == 200)
  }

  @Test("on a connection that clients share each has its own part, and its limits end nobody else's streams")
  func sharedConnection() throws {
    var limits = HTTP2Limits()
    limits.maxConnectionHeldBytes = 40_000
    limits.maxUnprovenHeldBytes = 10_000
    limits.maxDecodedHeaderBytes = 20_000
    limits.maxHeldBytes = 400_000
    let resources = HTTP2ServerResources(limits: limits)
    resources.clientKey = { text($0.forwardedFor).hasSuffix("192.0.2.1") ? 7 : 9 }
    let server = try TestServer(resources: resources, isShared: true)
    // Bodies that do not end, of one client.
    for stream in stride(from: Int32(1), to: 101, by: 2) {
      server.send(post(stream, [("x-forwarded-for", "203.0.113.1, 192.0.2.1")]))
    }
    let refused = server.frames(.rstStream)
    #expect((20...30).contains(refused.count), "\(refused.count)")
    server.send(post(201, [("x-forwarded-for", "192.0.2.2")]), data(201))
    #expect(server.status(201) == 200)
    // A block that would end a connection of one client.
    server.send(
      Frame(
        .headers,
        flags: Frame.endHeaders | Frame.endStream,
        stream: 203,
        HPACK.plain(getFields) + bomb(20)
      )
    )
    #expect(server.status(203) == 431 && !server.isClosed)
  }
}
