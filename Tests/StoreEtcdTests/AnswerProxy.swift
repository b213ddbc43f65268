import NIOCore
import NIOPosix
import Operations
import StoreTestSupport
import Synchronization
import TestSupport

/// A TCP proxy in front of a server, which can lose the server's answers: its clients' requests still arrive.
///
/// A connection that has lost an answer loses all that follow, since its stream of frames has a gap.
final class AnswerProxy: Sendable {
  private struct State {
    var losesAnswers = false
    var connectionCount = 0
    var bytesToServer = 0
  }

  private let target: Endpoint
  private let state = Mutex(State())

  private init(target: Endpoint) { self.target = target }

  /// Run a proxy while `body` runs.
  static func with<Value>(
    _ target: Endpoint,
    body: (AnswerProxy, Endpoint) async throws -> Value
  ) async throws -> Value {
    let proxy = AnswerProxy(target: target)
    let channel = try await ServerBootstrap(group: MultiThreadedEventLoopGroup.singleton)
      .serverChannelOption(.socketOption(.so_reuseaddr), value: 1)
      .childChannelInitializer { channel in
        channel.eventLoop.makeCompletedFuture {
          try channel.pipeline.syncOperations.addHandler(ClientSide(proxy: proxy))
        }
      }
      .bind(host: "127.0.0.1", port: 0).get()
    guard let port = channel.localAddress?.port else { throw Unexpected("the proxy has no port") }
    do {
      let value = try await body(proxy, Endpoint(host: "127.0.0.1", port: port))
      try await channel.close()
      return value
    } catch {
      try await channel.close()
      throw error
    }
  }

  /// Whether answers are lost from now on.
  var losesAnswers: Bool {
    get { state.withLock { $0.losesAnswers } }
    set { state.withLock { $0.losesAnswers = newValue } }
  }

  var connectionCount: Int { state.withLock { $0.connectionCount } }
  var bytesToServer: Int { state.withLock { $0.bytesToServer } }

  /// Handler of a client's connection: connects to the server, and passes bytes on.
  private final class ClientSide: ChannelInboundHandler {
    typealias InboundIn = ByteBuffer
    typealias OutboundOut = ByteBuffer

    private let proxy: AnswerProxy
    private var server: (any Channel)?
    /// Bytes that arrived before the server's connection was there.
    private var early: [ByteBuffer] = []
    private var context: ChannelHandlerContext?
    private var hasLostAnswer = false

    init(proxy: AnswerProxy) { self.proxy = proxy }

    func channelActive(context: ChannelHandlerContext) {
      self.context = context
      proxy.state.withLock { $0.connectionCount += 1 }
      let bound = NIOLoopBound(self, eventLoop: context.eventLoop)
      ClientBootstrap(group: context.eventLoop)
        .channelInitializer { channel in
          channel.eventLoop.makeCompletedFuture {
            try channel.pipeline.syncOperations.addHandler(ServerSide(client: bound.value))
          }
        }
        .connect(host: proxy.target.host, port: proxy.target.port)
        .whenComplete { bound.value.connected($0) }
    }

    private func connected(_ result: Result<any Channel, any Error>) {
      guard case .success(let channel) = result, context != nil else {
        context?.close(promise: nil)
        if case .success(let channel) = result { channel.close(promise: nil) }
        return
      }
      server = channel
      for bytes in early { channel.writeAndFlush(bytes, promise: nil) }
      early = []
    }

    func channelRead(context: ChannelHandlerContext, data: NIOAny) {
      let bytes = unwrapInboundIn(data)
      proxy.state.withLock { $0.bytesToServer += bytes.readableBytes }
      if let server { server.writeAndFlush(bytes, promise: nil) } else { early.append(bytes) }
    }

    func channelInactive(context: ChannelHandlerContext) {
      self.context = nil
      server?.close(promise: nil)
    }

    func answered(_ bytes: ByteBuffer) {
      if proxy.losesAnswers { hasLostAnswer = true }
      guard !hasLostAnswer else { return }
      context?.writeAndFlush(wrapOutboundOut(bytes), promise: nil)
    }

    func serverClosed() { context?.close(promise: nil) }
  }

  /// Handler of the connection to the server.
  private final class ServerSide: ChannelInboundHandler {
    typealias InboundIn = ByteBuffer

    private let client: ClientSide

    init(client: ClientSide) { self.client = client }

    func channelRead(context: ChannelHandlerContext, data: NIOAny) { client.answered(unwrapInboundIn(data)) }

    func channelInactive(context: ChannelHandlerContext) { client.serverClosed() }
  }
}
