internal import NIOCore
internal import NIOPosix
internal import ReceiptModel
internal import ReceiptWire
internal import StoreClient
internal import StoreEngine

/// The other nodes, from which a node gets snapshots and record keys.
struct OtherNodes: Sendable {
  /// Identity that the nodes announce.
  let store: SessionID
  /// Their addresses, and how to connect to them now.
  let configuration: @Sendable () -> StoreClientConfiguration
  /// The address of one of them; nil: it does not run.
  let address: @Sendable (NodeID) -> StoreClientConfiguration.Address?
}

/// Why a snapshot or record keys cannot be fetched from another node, for the log.
struct NodeFetchFailure: Error, CustomStringConvertible {
  let description: String
  init(_ description: String) { self.description = description }
}

/// A connection to another node: the handshake of a gateway, then requests for its data or keys, one at a time.
final class NodeConnection: ChannelInboundHandler {
  typealias InboundIn = ByteBuffer
  typealias OutboundOut = ByteBuffer

  private enum State {
    /// Becomes awaitingReady with a challenge, or closed.
    case awaitingChallenge(Hello)
    /// Becomes open, or closed.
    case awaitingReady
    /// Becomes closed. One request may be unanswered.
    case open(unanswered: EventLoopPromise<ByteBuffer>?)
    case closed
  }

  /// Time limit of the handshake, and of each answer.
  private static let timeout = TimeAmount.seconds(30)

  private let others: OtherNodes
  private let configuration: StoreClientConfiguration
  private let opened: EventLoopPromise<Void>
  private var state: State
  private var context: ChannelHandlerContext?
  private var cut = CutFrame()
  private var correlation: UInt32 = 0
  private var timer: Scheduled<Void>?

  private init(_ others: OtherNodes, _ configuration: StoreClientConfiguration, opened: EventLoopPromise<Void>) {
    self.others = others
    self.configuration = configuration
    self.opened = opened
    // A session of its own: it makes no commands.
    let session = SessionID(high: .random(in: .min ... .max), low: .random(in: .min ... .max))
    let hello = Hello(session: session, sessionAgeMilliseconds: nil, nonce: .random(), name: configuration.name)
    state = .awaitingChallenge(hello)
  }

  /// Connect to one node and authenticate both sides.
  static func open(
    _ address: StoreClientConfiguration.Address,
    _ others: OtherNodes,
    on eventLoop: any EventLoop
  ) async throws -> NIOLoopBound<NodeConnection> {
    try await eventLoop.flatSubmit {
      let configuration = others.configuration()
      let opened = eventLoop.makePromise(of: Void.self)
      let connection = NodeConnection(others, configuration, opened: opened)
      let bound = NIOLoopBound(connection, eventLoop: eventLoop)
      let transport = configuration.transport
      ClientBootstrap(group: eventLoop)
        .connectTimeout(configuration.connectTimeout)
        .channelInitializer { channel in
          channel.eventLoop.makeCompletedFuture {
            let pipeline = channel.pipeline.syncOperations
            if let transport { try pipeline.addHandlers(try transport.makeHandlers(address)) }
            try pipeline.addHandler(bound.value)
          }
        }
        .connect(host: address.host, port: address.port)
        .whenFailure { bound.value.close("\($0)") }
      return opened.futureResult.map { bound }
    }.get()
  }

  /// Send a request and return its reply's payload.
  static func request(
    _ connection: NIOLoopBound<NodeConnection>,
    _ kind: FrameKind,
    _ fields: @escaping @Sendable (inout ByteBuffer) -> Void = { _ in }
  ) async throws -> ByteBuffer {
    try await connection.eventLoop.flatSubmit { connection.value.send(kind, fields) }.get()
  }

  private func send(_ kind: FrameKind, _ fields: (inout ByteBuffer) -> Void) -> EventLoopFuture<ByteBuffer> {
    guard let context, case .open(unanswered: nil) = state else {
      let eventLoop = opened.futureResult.eventLoop
      return eventLoop.makeFailedFuture(NodeFetchFailure("the connection is closed"))
    }
    let promise = context.eventLoop.makePromise(of: ByteBuffer.self)
    state = .open(unanswered: promise)
    correlation += 1
    var buffer = ByteBuffer()
    buffer.writeFrame(FrameHeader(kind, correlation: correlation), fields)
    context.writeAndFlush(wrapOutboundOut(buffer), promise: nil)
    setTimer(context)
    return promise.futureResult
  }

  func close() { close("closed by this node") }

  private func close(_ reason: String) {
    timer?.cancel()
    let failure = NodeFetchFailure(reason)
    if case .open(let unanswered) = state { unanswered?.fail(failure) } else { opened.fail(failure) }
    state = .closed
    context?.close(promise: nil)
  }

  private func setTimer(_ context: ChannelHandlerContext) {
    timer?.cancel()
    timer = context.eventLoop.assumeIsolated().scheduleTask(in: Self.timeout) { [weak self] in
      self?.close("no answer within \(Self.timeout.nanoseconds / 1_000_000_000) s")
    }
  }

  // MARK: - From the channel

  func handlerAdded(context: ChannelHandlerContext) {
    self.context = context
    if context.channel.isActive { begin(context) }
  }

  func handlerRemoved(context: ChannelHandlerContext) { self.context = nil }

  func channelActive(context: ChannelHandlerContext) { begin(context) }

  func channelInactive(context: ChannelHandlerContext) { close("the connection was lost") }

  func errorCaught(context: ChannelHandlerContext, error: any Error) { close("\(error)") }

  private func begin(_ context: ChannelHandlerContext) {
    guard case .awaitingChallenge(let hello) = state else { return }
    var buffer = ByteBuffer()
    hello.write(into: &buffer)
    context.writeAndFlush(wrapOutboundOut(buffer), promise: nil)
    setTimer(context)
  }

  func channelRead(context: ChannelHandlerContext, data: NIOAny) {
    let incoming = unwrapInboundIn(data)
    let read = incoming.readableBytesSpan
    let decoder = FrameDecoder(lengthLimit: FrameHeader.lengthLimitDefault)
    do throws(WireError) {
      var offset = 0
      if !cut.isEmpty {
        guard let (frame, used) = try cut.complete(with: read, decoder) else { return }
        _ = try receive(frame.readableBytesSpan, decoder, context)
        offset = used
      }
      offset += try receive(read.extracting(offset..<read.byteCount), decoder, context)
      cut.keep(read.extracting(offset..<read.byteCount))
    } catch {
      close("\(error)")
    }
  }

  /// Handle the whole frames at the start of `bytes`; return their total length.
  private func receive(
    _ bytes: RawSpan,
    _ decoder: FrameDecoder,
    _ context: ChannelHandlerContext
  ) throws(WireError) -> Int {
    var offset = 0
    while case .frame(let header, let count) = try decoder.next(bytes, at: offset) {
      let start = offset + FrameHeader.byteCount
      offset = start + count
      try frameReceived(header, bytes.extracting(start..<offset), context)
    }
    return offset
  }

  private func frameReceived(
    _ header: FrameHeader,
    _ payload: RawSpan,
    _ context: ChannelHandlerContext
  ) throws(WireError) {
    switch (state, header.kind) {
    case (_, .error):
      let error = try ErrorFrame(payload)
      let failure = "\(error.code?.name ?? "error \(error.rawCode)"): \(error.detail)"
      guard case .open(let unanswered?) = state, header.correlation == correlation else { return close(failure) }
      state = .open(unanswered: nil)
      timer?.cancel()
      unanswered.fail(NodeFetchFailure(failure))
    case (.awaitingChallenge(let hello), .challenge): prove(try Challenge(payload), hello, context)
    case (.awaitingReady, .ready):
      state = .open(unanswered: nil)
      timer?.cancel()
      opened.succeed()
    case (.open(let unanswered?), let kind) where header.isReply && kind.isSnapshot:
      guard header.correlation == correlation else { return close("an answer to no request") }
      state = .open(unanswered: nil)
      timer?.cancel()
      var reply = ByteBuffer()
      reply.writeRaw(payload)
      unanswered.succeed(reply)
    case (.open, .drain): close("the other node is shutting down")
    // What it tells gateways.
    case (.open, _), (.closed, _): break
    default: close("an unexpected frame \(header.kind)")
    }
  }

  private func prove(_ challenge: Challenge, _ hello: Hello, _ context: ChannelHandlerContext) {
    guard challenge.version == Hello.version, challenge.store == others.store else {
      return close("the other node is of another cluster or version")
    }
    guard case .prove(let proof) = StoreAuthenticator(secrets: configuration.secrets).verify(challenge, hello: hello)
    else { return close("the other node has a different secret") }
    state = .awaitingReady
    var buffer = ByteBuffer()
    proof.write(into: &buffer)
    context.writeAndFlush(wrapOutboundOut(buffer), promise: nil)
  }
}
