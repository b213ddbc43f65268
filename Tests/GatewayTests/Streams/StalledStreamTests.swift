import Foundation
import HTTP2Session
import NIOCore
import NIOPosix
import ReceiptModel
import ReceiptWire
import StoreTestSupport
import Synchronization
import TestSupport
import Testing

@testable import Gateway

/// Streamed requests of stalled clients use bounded memory and are ended.
@Suite struct StalledStreamTests {
  /// A client that sends raw HTTP/2 frames, never opens a window, and records the received frames.
  private final class RawClient: Sendable {
    private let channel: any Channel
    private let frames: ReceivedFrames

    static func connect(port: Int, on eventLoop: any EventLoop) async throws -> RawClient {
      let frames = ReceivedFrames()
      let channel = try await ClientBootstrap(group: eventLoop)
        .channelInitializer { channel in
          channel.eventLoop.makeCompletedFuture {
            try channel.pipeline.syncOperations.addHandler(FrameReader(frames))
          }
        }
        .connect(host: "127.0.0.1", port: port).get()
      return RawClient(channel: channel, frames: frames)
    }

    private init(channel: any Channel, frames: ReceivedFrames) {
      self.channel = channel
      self.frames = frames
    }

    func close() async throws { try? await channel.close() }

    func write(_ bytes: ByteBuffer) async throws { try await channel.writeAndFlush(bytes) }

    /// Send the preface, SETTINGS with the initial stream window, and a request whose body follows.
    func begin(window: UInt32) async throws {
      try await begin(
        window: window,
        [
          (":method", "POST"), (":path", "/v1/frames"), ("authorization", "Bearer \(TestTokens.server)"),
          ("content-type", "application/vnd.tidemark.frames"),
        ]
      )
    }

    /// Send the preface, SETTINGS with the initial stream window, and a request for events.
    func beginEvents(window: UInt32, token: String) async throws {
      let fields = [(":method", "GET"), (":path", "/v1/events"), ("authorization", "Bearer \(token)")]
      try await begin(window: window, fields, flags: 5)
    }

    private func begin(window: UInt32, _ fields: [(String, String)], flags: UInt8 = 4) async throws {
      var bytes = ByteBuffer(string: "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n")
      var settings = ByteBuffer()
      settings.writeInteger(UInt16(4))
      settings.writeInteger(window)
      bytes.writeFrame(type: 4, flags: 0, stream: 0, settings)
      var headers = ByteBuffer()
      for (name, value) in [(":scheme", "http"), (":authority", "localhost")] + fields {
        // RFC 7541 section 6.2.2, with lengths below 127.
        headers.writeInteger(UInt8(0))
        headers.writeInteger(UInt8(name.utf8.count))
        headers.writeString(name)
        headers.writeInteger(UInt8(value.utf8.count))
        headers.writeString(value)
      }
      bytes.writeFrame(type: 1, flags: flags, stream: 1, headers)
      try await write(bytes)
    }

    func send(_ body: ByteBuffer) async throws {
      var body = body
      var bytes = ByteBuffer()
      while let piece = body.readSlice(length: min(16_384, body.readableBytes)), piece.readableBytes > 0 {
        bytes.writeFrame(type: 0, flags: 0, stream: 1, piece)
      }
      try await write(bytes)
    }

    /// The error code of the RST_STREAM that ends the request.
    func reset() async -> UInt32? { await frames.reset() }

    /// The number of bytes of the response so far.
    var responseBytes: Int { frames.responseBytes }
  }

  fileprivate final class ReceivedFrames: Sendable {
    private let bytes = Mutex(0)
    private let resets: AsyncStream<UInt32>
    private let continuation: AsyncStream<UInt32>.Continuation

    init() { (resets, continuation) = AsyncStream.makeStream() }

    var responseBytes: Int { bytes.withLock { $0 } }

    func received(_ type: UInt8, _ payload: ByteBuffer) {
      if type == 0 { bytes.withLock { $0 += payload.readableBytes } }
      if type == 3, let code = payload.getInteger(at: payload.readerIndex, as: UInt32.self) {
        continuation.yield(code)
      }
    }

    func ended() { continuation.finish() }

    func reset() async -> UInt32? {
      let resets = resets
      let code = try? await within("the reset of a stalled stream") {
        var iterator = resets.makeAsyncIterator()
        return await iterator.next()
      }
      return code ?? nil
    }
  }

  private final class FrameReader: ChannelInboundHandler {
    typealias InboundIn = ByteBuffer
    private let frames: ReceivedFrames
    private var received = ByteBuffer()

    init(_ frames: ReceivedFrames) { self.frames = frames }

    func channelRead(context: ChannelHandlerContext, data: NIOAny) {
      var bytes = unwrapInboundIn(data)
      received.writeBuffer(&bytes)
      while received.readableBytes >= 9,
        let head = received.getInteger(at: received.readerIndex, as: UInt32.self),
        received.readableBytes >= 9 + Int(head >> 8)
      {
        received.moveReaderIndex(forwardBy: 9)
        if let payload = received.readSlice(length: Int(head >> 8)) {
          frames.received(UInt8(truncatingIfNeeded: head), payload)
        }
      }
    }

    func channelInactive(context: ChannelHandlerContext) { frames.ended() }
  }

  private static var limits: GatewayLimits {
    var limits = GatewayLimits()
    limits.streamIdleTimeout = GatewayLimits.streamTick
    limits.streamReplyBytes = 8_192
    return limits
  }

  @Test func requestStreamWithUnreadAnswersIsReset() async throws {
    var http2 = HTTP2Limits()
    http2.streamQueueBytesMax = 8_192
    try await TestGateway.run(limits: Self.limits, http2: http2) { gateway in
      try await gateway.setUp("messaging:c", members: ["bob"], messages: ["m1"])
      _ = try await gateway.store.takeLog()
      let client = try await RawClient.connect(port: gateway.port, on: gateway.eventLoop)
      try await client.begin(window: 1_000)
      var frames = TestFrames()
      for index in 0..<1_000 { frames.mark(UInt32(index)) }
      try await client.send(frames.bytes)
      #expect(await client.reset() == HTTP2ErrorCode.cancel.rawValue)
      #expect(client.responseBytes == 1_000)
      // Because of the unread answers, the gateway stopped reading requests.
      let requestCount = try await gateway.store.takeLog().count
      #expect(requestCount > 0 && requestCount < 1_000)
      let left = try await gateway.eventLoop.submit { gateway.loop.value.streams.count }.get()
      #expect(left == 0)
      try await client.close()
    }
  }

  @Test func unreadEventStreamIsReset() async throws {
    var limits = GatewayLimits()
    limits.eventStreamBytes = 512
    limits.heartbeat = .milliseconds(50)
    limits.eventStallTimeout = .seconds(2)
    try await TestGateway.run(limits: limits) { gateway in
      try await gateway.setUp(EventRouteTests.general, members: ["alice"], messages: ["m1"])
      let reader = try await gateway.client.events(token: TestTokens.user("alice"))
      #expect(await reader.live())
      let held = try await gateway.eventLoop.submit { gateway.loop.value.resources.heldBytes }.get()
      let client = try await RawClient.connect(port: gateway.port, on: gateway.eventLoop)
      try await client.beginEvents(window: 100, token: TestTokens.user("alice"))
      try await eventually("both streams are open") {
        try await gateway.eventLoop.submit { gateway.loop.value.events.hub.streamCount == 2 }.get()
      }
      try await eventually("the second stream gets events") {
        try await gateway.eventLoop.submit {
          for number in 1...UInt32(100) {
            try EventRouteTests.deliver(gateway.loop.value, [EventRouteTests.message("n\(number)", number)])
          }
        }.get()
        return client.responseBytes == 100
      }
      #expect(await client.reset() == HTTP2ErrorCode.cancel.rawValue)
      try await eventually("its memory is released") {
        try await gateway.eventLoop.submit {
          gateway.loop.value.events.hub.streamCount == 1 && gateway.loop.value.resources.heldBytes <= held
        }.get()
      }
      // The other stream, which is read, continues.
      try await gateway.eventLoop.submit {
        try EventRouteTests.deliver(gateway.loop.value, [EventRouteTests.message("last", 101)])
      }.get()
      var message: String?
      while message != "last", let event = await reader.event() {
        message = (event["message"] as? NSDictionary)?["id"] as? String
      }
      #expect(message == "last")
      try await client.close()
    }
  }

  /// Heartbeats alone fill the window.
  @Test func unreadIdleEventStreamIsReset() async throws {
    var limits = GatewayLimits()
    limits.heartbeat = .milliseconds(50)
    limits.eventStallTimeout = .seconds(2)
    try await TestGateway.run(limits: limits) { gateway in
      try await gateway.setUp(EventRouteTests.general, members: ["alice"], messages: ["m1"])
      let client = try await RawClient.connect(port: gateway.port, on: gateway.eventLoop)
      try await client.beginEvents(window: 100, token: TestTokens.user("alice"))
      #expect(await client.reset() == HTTP2ErrorCode.cancel.rawValue)
      #expect(client.responseBytes == 100)
      try await client.close()
    }
  }

  @Test func unfinishedFrameIsReset() async throws {
    try await TestGateway.run(limits: Self.limits) { gateway in
      let client = try await RawClient.connect(port: gateway.port, on: gateway.eventLoop)
      try await client.begin(window: 65_535)
      try await client.send(ByteBuffer(bytes: [0, 0, 0, 40, 0x14]))
      #expect(await client.reset() == HTTP2ErrorCode.cancel.rawValue)
      try await client.close()
    }
  }

  /// A stream without an unfinished frame is not stalled.
  @Test func idleStreamIsNotReset() async throws {
    try await TestGateway.run(limits: Self.limits) { gateway in
      let stream = try await gateway.client.begin()
      let stalled = try await RawClient.connect(port: gateway.port, on: gateway.eventLoop)
      try await stalled.begin(window: 65_535)
      try await stalled.send(ByteBuffer(bytes: [0]))
      // By now the sweep has covered all streams.
      #expect(await stalled.reset() == HTTP2ErrorCode.cancel.rawValue)
      var frames = TestFrames()
      frames.add(.getChannel, 1)
      try await gateway.client.send(frames.bytes, stream)
      #expect(await stream.verdict() == "1 channel_not_found")
      try await stalled.close()
    }
  }
}

struct ClientProgressTests {
  /// Each row has a check's time in seconds, the bytes moved so far, and whether the client has to act.
  @Test func clientIsStalledAfterTheTimeoutWithoutProgress() {
    let step = UInt64(HTTP2Limits.progressBytesMin)
    let rows: [(at: Int64, moved: UInt64, mustAct: Bool, isStalled: Bool)] = [
      (0, 0, true, false),
      (9, 0, true, false),
      (10, 0, true, true),
      // The timeout starts again for a client that has moved enough since, or has nothing to do.
      (11, step, true, false),
      (20, 2 * step - 1, true, false),
      (21, 2 * step - 1, true, true),
      (22, 2 * step - 1, false, false),
      (31, 2 * step - 1, true, false),
      (32, 2 * step - 1, true, true),
    ]
    var progress = ClientProgress()
    for row in rows {
      let now = NIODeadline.uptimeNanoseconds(0) + .seconds(row.at)
      let isStalled = progress.isStalled(
        moved: row.moved,
        clientMustAct: row.mustAct,
        at: now,
        timeout: .seconds(10)
      )
      #expect(isStalled == row.isStalled, "\(row)")
    }
  }
}

extension ByteBuffer {
  /// Write one HTTP/2 frame (RFC 9113 section 4.1).
  fileprivate mutating func writeFrame(type: UInt8, flags: UInt8, stream: UInt32, _ payload: ByteBuffer) {
    writeInteger(UInt32(payload.readableBytes) << 8 | UInt32(type))
    writeInteger(flags)
    writeInteger(stream)
    writeImmutableBuffer(payload)
  }
}
