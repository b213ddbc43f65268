import NIOCore
import NIOPosix
import Synchronization
import TestSupport
import Testing

/// A gateway whose connection is a socket.
struct SocketGateway: Sendable {
  private let channel: any Channel
  private let log: Log

  /// Received frames. Shared with the channel's event loop.
  private final class Log: Sendable {
    struct State {
      var frames: GatewayFrames
      var words: [String] = []
      var isClosed = false
      var onDrain: @Sendable () -> Void = {}
    }

    let state: Mutex<State>

    init(_ frames: GatewayFrames) { state = Mutex(State(frames: frames)) }
  }

  private final class Handler: ChannelInboundHandler {
    typealias InboundIn = ByteBuffer
    private let log: Log

    init(_ log: Log) { self.log = log }

    func channelRead(context: ChannelHandlerContext, data: NIOAny) {
      let bytes = unwrapInboundIn(data)
      let onDrain: (@Sendable () -> Void)? = log.state.withLock { state in
        let words = state.frames.words(receiving: bytes)
        state.words += words
        return words.contains("drain") ? state.onDrain : nil
      }
      onDrain?()
    }

    func channelInactive(context: ChannelHandlerContext) { log.state.withLock { $0.isClosed = true } }

    func errorCaught(context: ChannelHandlerContext, error: any Error) { context.close(promise: nil) }
  }

  /// Connects, without a handshake.
  init(connectingTo address: SocketAddress, session: UInt64 = 1) async throws {
    let log = Log(GatewayFrames(session: session))
    self.log = log
    channel = try await ClientBootstrap(group: MultiThreadedEventLoopGroup.singleton)
      .channelInitializer { channel in
        channel.eventLoop.makeCompletedFuture {
          try channel.pipeline.syncOperations.addHandler(Handler(log))
        }
      }
      .connect(to: address).get()
  }

  /// Connect and perform the handshake. The last reply is `ready`, or why it was refused.
  init(opening address: SocketAddress, session: UInt64 = 1, secret: String? = nil) async throws {
    try await self.init(connectingTo: address, session: session)
    send { [$0.hello()] }
    try await waitForAnswers(1)
    send { [$0.proof(secret)] }
    try await waitForAnswers(2)
  }

  /// Called with the drain frame, on the channel's event loop.
  func whenDrained(_ body: @escaping @Sendable () -> Void) { log.state.withLock { $0.onDrain = body } }

  /// Send frames in one write.
  func send(_ frames: (inout GatewayFrames) -> [ByteBuffer]) {
    let bytes = log.state.withLock { ByteBuffer(joining: frames(&$0.frames)) }
    channel.writeAndFlush(bytes, promise: nil)
  }

  /// Wait for this many answers and return them; the next call returns later ones.
  func nextReplies(_ count: Int = 1) async throws -> [String] {
    try await waitForAnswers(count)
    return log.state.withLock { state in
      defer { state.words.removeFirst(count) }
      return Array(state.words.prefix(count))
    }
  }

  /// Received frames that were not returned yet, as text.
  var pending: [String] { log.state.withLock { $0.words } }

  private func waitForAnswers(_ count: Int) async throws {
    try await eventually("\(count) answers") { pending.count >= count }
  }

  func waitUntilClosed() async throws {
    try await eventually("the store to close the connection") { log.state.withLock { $0.isClosed } }
  }

  var isClosed: Bool { log.state.withLock { $0.isClosed } }

  func close() async { try? await channel.close() }
}
