import NIOCore
import NIOEmbedded
import Testing

@testable import HTTP2Session

@Suite("Memory of streams and of decoded header blocks") struct MemoryBudgetTests {
  /// Fields of one byte each that refer to a table entry of 3,900 bytes (RFC 7541 section 6.1).
  private func bomb(_ count: Int) -> [UInt8] {
    // Literal with incremental indexing and a new name; the value's length is 127 + 3,773.
    [0x40, 5] + Array("x-big".utf8) + [0x7f, 0xbd, 0x1d] + Array(repeating: UInt8(ascii: "x"), count: 3_900)
      + Array(repeating: 0xbe, count: count)
  }

  @Test("a block that decodes to more than 64 KiB closes the connection", arguments: [true, false])
  func blockOfTooLargeHeadersClosesConnection(inTrailers: Bool) throws {
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
    // A smaller block is answered with 431 as usual.
    let calm = try TestServer()
    calm.send(
      Frame(.headers, flags: Frame.endHeaders | Frame.endStream, stream: 1, HPACK.plain(getFields) + bomb(10))
    )
    #expect(calm.status(1) == 431 && !calm.isClosed)
  }

  @Test("the largest holder of memory is refused first, others are served, and all memory is returned")
  func largestHolderOfMemoryIsRefusedFirst() throws {
    var limits = HTTP2Limits()
    limits.memoryBytesMax = 1 << 20
    let resources = HTTP2ServerResources(limits: limits)
    let greedy = try TestServer(resources: resources)
    let neighbour = try TestServer(resources: resources)
    let streams = (0..<Int32(900)).map { $0 * 2 + 1 }
    greedy.send(streams.flatMap { post($0).bytes })
    let refused = greedy.frames(.rstStream).filter { $0.errorCode == HTTP2ErrorCode.refusedStream.rawValue }
    // Half of the budget is 341 streams of 1.5 KiB.
    #expect((500...600).contains(refused.count), "\(refused.count)")
    #expect(resources.heldBytes <= limits.memoryBytesMax && !greedy.isClosed)
    for stream in stride(from: Int32(1), to: 41, by: 2) {
      neighbour.send(post(stream), data(stream))
      #expect(neighbour.status(stream) == 200)
    }
    #expect(greedy.connection.counters.limitsHit == UInt64(refused.count))
    // A body that continues is reset.
    greedy.send(data(1, String(repeating: "x", count: 1_000), end: false))
    #expect(greedy.frames(.rstStream, stream: 1).last?.errorCode == HTTP2ErrorCode.enhanceYourCalm.rawValue)
    #expect(greedy.connection.counters.limitsHit == UInt64(refused.count + 1))
    _ = try? greedy.channel.finish(acceptAlreadyClosed: true)
    #expect(resources.heldBytes == 0)
  }

  @Test("unread answers count, and are returned with their streams")
  func unreadAnswersCountUntilStreamsEnd() throws {
    var limits = HTTP2Limits()
    limits.connectionMemoryBytesMax = 100_000
    let resources = HTTP2ServerResources(limits: limits)
    let server = try TestServer(resources: resources)
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

  @Test("an unauthenticated peer has a smaller share")
  func unauthenticatedPeerHasSmallerShare() throws {
    var limits = HTTP2Limits()
    limits.unauthenticatedMemoryBytesMax = 50_000
    let server = try TestServer(limits: limits, isAuthenticated: false)
    let streams = (0..<Int32(100)).map { $0 * 2 + 1 }
    server.send(streams.flatMap { post($0).bytes })
    #expect((60...75).contains(server.frames(.rstStream).count), "\(server.frames(.rstStream).count)")
    _ = server.takeFrames()
    server.connection.markAuthenticated()
    server.send(post(1_001), data(1_001))
    #expect(server.status(1_001) == 200)
  }

  @Test("connections without a valid token share a quarter of the memory")
  func unauthenticatedConnectionsShareQuarterOfMemory() throws {
    var limits = HTTP2Limits()
    limits.memoryBytesMax = 400_000
    let resources = HTTP2ServerResources(limits: limits)
    let body = String(repeating: "x", count: 5_000)
    let strangers = try (0..<40).map { _ in try TestServer(resources: resources, isAuthenticated: false) }
    for stranger in strangers {
      stranger.send(post(1))
      for _ in 0..<4 { stranger.send(data(1, body, end: false)) }
    }
    // A quarter, plus the possible excess of one frame and one stream of each connection.
    #expect(resources.heldBytes < 100_000 + 40 * 4_096 + 10_000, "\(resources.heldBytes)")
    #expect(strangers.count { $0.frames(.rstStream, stream: 1).isEmpty } < 10)
    // A newcomer's first request is accepted, and all of its requests once its token is known.
    let newcomer = try TestServer(resources: resources, isAuthenticated: false)
    newcomer.send(get(1))
    #expect(newcomer.status(1) == 200)
    newcomer.connection.markAuthenticated()
    newcomer.send(post(3), data(3, body, end: false), data(3, body, end: false), data(3, body))
    #expect(newcomer.status(3) == 200)
    for stranger in strangers { _ = try? stranger.channel.finish(acceptAlreadyClosed: true) }
    #expect(resources.heldBytes == 0)
    let later = try TestServer(resources: resources, isAuthenticated: false)
    later.send(post(1), data(1, body, end: false), data(1, body, end: false), data(1, body))
    #expect(later.status(1) == 200)
  }

  @Test("unused memory is freed after many connections without streams have closed")
  func unusedMemoryIsFreedAfterManyConnections() throws {
    let resources = HTTP2ServerResources()
    do {
      let servers = try (0..<1_100).map { _ in try TestServer(resources: resources) }
      #expect(!resources.freeUnused() && servers.allSatisfy { !$0.isClosed })
    }
    #expect(resources.freeUnused() && !resources.freeUnused())
  }

  @Test("an unauthenticated peer has few streams and HTTP/2's default window, until it has authenticated")
  func unauthenticatedPeerHasFewStreams() throws {
    let server = try TestServer(preface: false, isAuthenticated: false)
    server.send(TestServer.preface + settings().bytes + settings(ack: true).bytes)
    #expect(server.frames(.settings).first?.settings[3] == 100 && server.frames(.windowUpdate).isEmpty)
    _ = server.takeFrames()
    server.connection.markAuthenticated()
    server.connection.flushIfNeeded()
    server.collect()
    #expect(server.frames(.settings).first?.settings[3] == 1_000)
    #expect(server.frames(.windowUpdate).map { read32($0.payload, 0) } == [4 * 1024 * 1024 - 65_535])
    server.send(settings(ack: true))
    for stream in 0..<200 { server.send(post(Int32(stream) * 2 + 1)) }
    #expect(server.frames(.rstStream).isEmpty && server.connection.openStreams == 200)
  }

  @Test("an unauthenticated peer's request is announced before its body, and can be refused then")
  func unauthenticatedPeerRequestIsAnnouncedBeforeBody() throws {
    let server = try TestServer(isAuthenticated: false)
    var announced: [String] = []
    server.delegate.onAnnounced = { stream, connection in
      let path = connection.withHeaders(stream) { text($0.path) } ?? ""
      announced.append("\(path) \(connection.isOpen(stream))")
      return announced.count != 2
    }
    // The request arrived whole in one read, so it is not announced.
    server.send(post(1), data(1))
    #expect(announced == [] && server.status(1) == 200)
    server.send(post(3))
    server.send(data(3))
    #expect(announced == ["/ false"] && server.status(3) == 200)
    server.send(post(5))
    #expect(announced.count == 2 && server.status(5) == 200, "answered before the end of its body")
    server.send(data(5, String(repeating: "x", count: 1_000), end: true))
    #expect(server.connection.bufferedBodyBytes == 0 && server.connection.openStreams == 0)
    #expect(server.delegate.log == ["post / 4", "post / 4", "post / 0"])
    // Refused later, after a part has arrived.
    var waiting: HTTP2StreamHandle?
    server.delegate.onAnnounced = { stream, _ in
      waiting = stream
      return true
    }
    server.send(post(7))
    server.send(data(7, "1234", end: false))
    server.connection.refuseBody(try #require(waiting))
    server.connection.flushIfNeeded()
    server.collect()
    #expect(server.status(7) == 200 && server.delegate.log.last == "post / 4")
    server.send(data(7))
    #expect(server.connection.openStreams == 0 && server.connection.bufferedBodyBytes == 0)
    server.connection.markAuthenticated()
    server.send(post(9))
    #expect(server.connection.withHeaders(try #require(waiting)) { _ in 0 } == nil && !server.isClosed)
  }

  @Test("unsent data of streaming responses counts, and so does the application's data for them")
  func unsentDataOfStreamingResponsesCounts() throws {
    var limits = HTTP2Limits()
    limits.connectionMemoryBytesMax = 100_000
    let resources = HTTP2ServerResources(limits: limits)
    let server = try TestServer(resources: resources)
    var streams: [HTTP2StreamHandle] = []
    server.delegate.onRequest = { stream, connection in
      connection.startStreaming(stream, status: 200, contentType: .text)
      streams.append(stream)
    }
    server.send(settings([(4, 0)]), get(1), get(3))
    let (first, second) = (streams[0], streams[1])
    let idle = resources.heldBytes
    let piece = ByteBuffer(repeating: 7, count: 30_000)
    // A small first piece is shared with other streams, as an event is, and does not count.
    let event = ByteBuffer(repeating: 7, count: HTTP2Limits.uncountedResponseBytes)
    #expect(server.connection.write(second, event) == .queued && resources.heldBytes == idle)
    server.send(windowUpdate(3, UInt32(event.readableBytes)))
    #expect(server.connection.write(first, piece) == .queued && resources.heldBytes == idle + 30_000)
    #expect(server.connection.write(first, piece) == .queued && resources.heldBytes == idle + 60_000)
    #expect(server.connection.setRetainedBytes(second, 30_000) && resources.heldBytes == idle + 90_000)
    #expect(!server.connection.setRetainedBytes(second, 60_000) && resources.heldBytes == idle + 120_000)
    #expect(server.connection.write(first, ByteBuffer(repeating: 7, count: 1)) == .full)
    #expect(server.connection.setRetainedBytes(second, 0) && resources.heldBytes == idle + 60_000)
    server.send(windowUpdate(1, 60_000))
    #expect(resources.heldBytes == idle && server.delegate.log.last == "drained")
    server.send(rst(1), rst(3))
    #expect(resources.heldBytes == 0)
  }

  @Test("a caller's memory counts over all of their connections, and other callers on them continue")
  func memoryOfCallerCountsOverAllConnections() throws {
    var limits = HTTP2Limits()
    limits.connectionMemoryBytesMax = 100_000
    let resources = HTTP2ServerResources(limits: limits)
    let servers = try (0..<2).map { _ in try TestServer(resources: resources) }
    for server in servers {
      // Requests on every second stream come from the greedy caller.
      server.delegate.onRequest = { stream, connection in
        let path = connection.withRequest(stream) { text($0.path) }
        guard connection.admit(stream, for: path == "/greedy" ? 7 : 9, responseBytes: 0) == .admitted else {
          return connection.reset(stream, .refusedStream)
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
      #expect(server.status(5) == nil && server.status(7) == 200)
      #expect(server.frames(.rstStream).map(\.stream) == [5])
    }
    // A refused request holds no memory, however often it is repeated.
    let held = resources.heldBytes
    servers[0].send((0..<200).flatMap { get(101 + 2 * $0, "/greedy").bytes })
    #expect(resources.heldBytes == held)
    servers[1].send(rst(1), rst(3))
    servers[0].send(get(901, "/greedy"))
    #expect(servers[0].status(901) == 200)
  }

  @Test("clients that share a connection have separate shares, and limits end only their own streams")
  func clientsOfSharedConnectionHaveSeparateShares() throws {
    var limits = HTTP2Limits()
    limits.connectionMemoryBytesMax = 40_000
    limits.unauthenticatedMemoryBytesMax = 10_000
    limits.decodedHeaderBytesMax = 20_000
    limits.memoryBytesMax = 400_000
    let resources = HTTP2ServerResources(limits: limits)
    resources.clientKey = { text($0.forwardedFor).hasSuffix("192.0.2.1") ? 7 : 9 }
    let server = try TestServer(resources: resources, isShared: true)
    // Unfinished bodies, all of one client.
    for stream in stride(from: Int32(1), to: 101, by: 2) {
      server.send(post(stream, [("x-forwarded-for", "203.0.113.1, 192.0.2.1")]))
    }
    let refused = server.frames(.rstStream)
    #expect((20...30).contains(refused.count), "\(refused.count)")
    // No client can use up the streams: their own bytes end first.
    let another = try TestServer(preface: false, resources: resources, isShared: true)
    another.send(TestServer.preface + settings().bytes)
    #expect(another.frames(.settings).first?.settings[3] == 100 * limits.concurrentStreamsMax)
    server.send(post(201, [("x-forwarded-for", "192.0.2.2")]), data(201))
    #expect(server.status(201) == 200)
    // A block that would close the connection of a single client.
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

@Suite("nghttp2's memory") struct SessionMemoryTests {
  @Test("blocks have the requested size, are aligned, and are reused")
  func blocksHaveRequestedSize() throws {
    var memory = SessionMemory()
    defer { memory.destroy() }
    for byteCount in [0, 1, 15, 16, 17, 48, 49, 240, 1_007, 1_008, 1_009, 100_000] {
      let taken = memory.allocate(byteCount)
      let block = try #require(taken)
      #expect(SessionMemory.room(block) >= byteCount && Int(bitPattern: block) % 16 == 0, "\(byteCount)")
      block.initializeMemory(as: UInt8.self, repeating: 0xA5, count: byteCount)
      memory.deallocate(block)
      if byteCount <= 1_008 { #expect(memory.allocate(byteCount) == block); memory.deallocate(block) }
    }
    memory.deallocate(nil)
    #expect(memory.allocate(.max) == nil)
  }

  @Test("a block that grows keeps its content")
  func blockThatGrowsKeepsContent() throws {
    var memory = SessionMemory()
    defer { memory.destroy() }
    let taken = memory.resize(nil, to: 8)
    var block = try #require(taken)
    block.storeBytes(of: 0x0102_0304_0506_0708, as: UInt64.self)
    for byteCount in [16, 17, 200, 1_008, 5_000, 50_000, 4] {
      let larger = memory.resize(block, to: byteCount)
      block = try #require(larger)
      #expect(block.load(as: UInt64.self) == 0x0102_0304_0506_0708 && SessionMemory.room(block) >= byteCount)
    }
    memory.deallocate(block)
  }

  @Test("the free list is bounded")
  func freeListIsBounded() {
    var memory = SessionMemory()
    defer { memory.destroy() }
    let blocks = (0..<3_000).compactMap { _ in memory.allocate(1_000) }
    #expect(blocks.count == 3_000)
    #expect(memory.keptByteCount == 0)
    for block in blocks { memory.deallocate(block) }
    #expect(memory.keptByteCount == SessionMemory.keptByteMax)
    for _ in 0..<10 { #expect(memory.allocate(1_000) != nil) }
    #expect(memory.keptByteCount == SessionMemory.keptByteMax - 10 * 1_024)
  }
}
