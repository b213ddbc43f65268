import Logging
import NIOCore
import NIOPosix
import ReceiptModel
import ReceiptWire
import TestSupport
import Testing

@testable import StoreClient

/// The same client over real sockets on loopback: bootstrap, addresses, closing. Client and stores share one event
/// loop, so no locks are needed.
struct SocketTests {
  /// A listening fake store.
  private final class Handler: ChannelInboundHandler {
    typealias InboundIn = ByteBuffer
    typealias OutboundOut = ByteBuffer
    private let connection: FakeConnection

    init(_ store: EchoStore) { connection = store.open() }

    func channelRead(context: ChannelHandlerContext, data: NIOAny) {
      connection.receive(unwrapInboundIn(data))
      context.writeAndFlush(wrapOutboundOut(connection.output), promise: nil)
      connection.output.clear()
      if connection.isClosed { context.close(promise: nil) }
    }
  }

  /// A stand-in for TLS: changes every byte on the way out, and restores it on the way in.
  private final class FakeTLSHandler: ChannelDuplexHandler {
    typealias InboundIn = ByteBuffer
    typealias InboundOut = ByteBuffer
    typealias OutboundIn = ByteBuffer
    typealias OutboundOut = ByteBuffer

    func channelRead(context: ChannelHandlerContext, data: NIOAny) {
      context.fireChannelRead(wrapInboundOut(scrambled(unwrapInboundIn(data))))
    }

    func write(context: ChannelHandlerContext, data: NIOAny, promise: EventLoopPromise<Void>?) {
      context.write(wrapOutboundOut(scrambled(unwrapOutboundIn(data))), promise: promise)
    }

    private func scrambled(_ bytes: ByteBuffer) -> ByteBuffer {
      ByteBuffer(bytes: bytes.readableBytesView.map { ~$0 })
    }
  }

  private final class Harness {
    let loop: any EventLoop
    let store = EchoStore()
    let recorder = Recorder()
    var listener: (any Channel)?
    var accepted: [any Channel] = []
    var client: StoreClient<Recorder>?
    let done: EventLoopPromise<Void>

    init(loop: any EventLoop) {
      self.loop = loop
      done = loop.makePromise()
    }

    func listen(scrambled: Bool) -> EventLoopFuture<Void> {
      let harness = NIOLoopBound(self, eventLoop: loop)
      return ServerBootstrap(group: loop)
        .serverChannelOption(.socketOption(.so_reuseaddr), value: 1)
        .childChannelInitializer { channel in
          channel.eventLoop.makeCompletedFuture {
            harness.value.accepted.append(channel)
            if scrambled { try channel.pipeline.syncOperations.addHandler(FakeTLSHandler()) }
            try channel.pipeline.syncOperations.addHandler(Handler(harness.value.store))
          }
        }
        .bind(host: "127.0.0.1", port: 0).map { harness.value.listener = $0 }
    }
  }

  /// 2,000 requests while the store cuts its connections. The first address has no listener.
  @Test(arguments: [false, true])
  func requestsSurviveCutConnections(scrambled: Bool) async throws {
    let loop = MultiThreadedEventLoopGroup.singleton.next()
    let harness = try await loop.submit { NIOLoopBound(Harness(loop: loop), eventLoop: loop) }.get()
    try await within("the listener's start") {
      try await loop.flatSubmit { harness.value.listen(scrambled: scrambled) }.get()
    }
    let done = loop.flatSubmit {
      let port = harness.value.listener!.localAddress!.port!
      var logger = Logger(label: "test")
      logger.logLevel = .critical
      var configuration = StoreClientConfiguration(
        addresses: [.init(host: "127.0.0.1", port: 1), .init(host: "127.0.0.1", port: port)],
        secrets: [Array("secret".utf8)],
        logger: logger
      )
      configuration.requestDeadline = .minutes(5)
      if scrambled { configuration.transport = StoreTransport(makeHandlers: { _ in [FakeTLSHandler()] }) }
      harness.value.store.secrets = configuration.secrets
      let recorder = harness.value.recorder
      let client = StoreClient(eventLoop: loop, configuration: configuration, delegate: recorder)
      harness.value.client = client
      var next: UInt64 = 0
      func more(_ count: Int) {
        for _ in 0..<count where next < 2000 {
          let cid = Array("messaging:c\(next % 50)".utf8)
          let tag = next
          guard client.send(.markRead, to: .channel(cid.span.bytes), tag: tag, { $0.writeInteger(tag) })
          else {
            break
          }
          next += 1
        }
        client.flush()
      }
      var replies = 0
      recorder.onEvent = { event in
        switch event {
        case .replied:
          replies += 1
          if replies.isMultiple(of: 300) { harness.value.accepted.last?.close(promise: nil) }
          if replies == 2000 { harness.value.done.succeed() }
        case .complete: more(40)
        case .ready, .shards, .failed, .events: break
        }
      }
      more(100)
      client.start()
      return harness.value.done.futureResult
    }
    try await within("2,000 answers") { try await done.get() }
    let closed = loop.flatSubmit {
      let value = harness.value
      value.recorder.onEvent = nil
      #expect(value.recorder.failures.isEmpty)
      #expect(value.recorder.replies.sorted() == (0..<2000).map { UInt64($0) })
      #expect(value.store.applied.count == 1)
      #expect(value.store.applied.values.first?.keys.sorted() == (1...2000).map { UInt64($0) })
      #expect(value.client!.stats.connections >= 6)
      return value.client!.close()
    }
    try await within("the client's end") { try await closed.get() }
    try await within("the listener's end") {
      try await loop.flatSubmit { harness.value.listener!.close() }.get()
    }
  }

  @Test func clientClosesWithoutListener() async throws {
    let loop = MultiThreadedEventLoopGroup.singleton.next()
    let connections = loop.flatSubmit {
      var logger = Logger(label: "test")
      logger.logLevel = .critical
      let client = StoreClient(
        eventLoop: loop,
        configuration: StoreClientConfiguration(
          addresses: [.init(host: "127.0.0.1", port: 1)],
          logger: logger
        ),
        delegate: Recorder()
      )
      client.start()
      let bound = NIOLoopBound(client, eventLoop: loop)
      return loop.scheduleTask(in: .milliseconds(50)) {}.futureResult
        .flatMap { bound.value.close() }
        .map { bound.value.stats.connections }
    }
    let count = try await within("the client's end") { try await connections.get() }
    #expect(count == 0)
  }
}
