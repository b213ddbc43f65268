internal import HTTP2Session
internal import NIOCore
internal import TLSSession

/// Stands before the HTTP/2 session until it is known what a client speaks (``ProtocolGate``): hands an HTTP/2 client's
/// bytes on and leaves the pipeline, or answers an HTTP/1 client with 505 and closes.
///
/// What the session sends meanwhile, its SETTINGS, is held back: an HTTP/1 client could not read it.
final class ProtocolGateHandler: ChannelDuplexHandler, RemovableChannelHandler {
  typealias InboundIn = ByteBuffer
  typealias InboundOut = ByteBuffer
  typealias OutboundIn = ByteBuffer
  typealias OutboundOut = ByteBuffer

  private enum Output {
    /// What the session has written.
    case held([ByteBuffer])
    /// The client reads HTTP/2.
    case open
    /// The client has been answered, or is gone.
    case ended
  }

  private let loop: GatewayLoop
  /// Nil until the TLS handshake is complete.
  private var gate: ProtocolGate?
  private var output = Output.held([])
  /// What has come while the protocol is not known.
  private var input = ByteBuffer()
  private var timer: Scheduled<Void>?

  /// - Parameter isTLS: the protocol is known, or at least narrowed down, when the handshake is complete.
  init(_ loop: GatewayLoop, isTLS: Bool) {
    self.loop = loop
    if !isTLS { gate = ProtocolGate(takesHTTP2: true) }
  }

  // MARK: Inbound

  func userInboundEventTriggered(context: ChannelHandlerContext, event: Any) {
    context.fireUserInboundEventTriggered(event)
    guard let event = event as? TLSEstablished, gate == nil else { return }
    if event.applicationProtocol == "h2" { return passOn(context) }
    gate = ProtocolGate(takesHTTP2: false)
  }

  func channelRead(context: ChannelHandlerContext, data: NIOAny) {
    let bytes = unwrapInboundIn(data)
    if timer == nil { startTimer(context, loop.limits.firstBytesTimeout) }
    guard let action = gate?.received(bytes.readableBytesSpan) else { return }
    if action == .wait || action == .passOn {
      if input.readableBytes == 0 { input = bytes } else { input.writeImmutableBuffer(bytes) }
    }
    perform(action, context)
  }

  func channelInactive(context: ChannelHandlerContext) {
    end()
    context.fireChannelInactive()
  }

  func handlerRemoved(context: ChannelHandlerContext) { end() }

  private func perform(_ action: ProtocolGate.Action, _ context: ChannelHandlerContext) {
    switch action {
    case .wait, .discard: return
    case .awaitHead:
      input = ByteBuffer()
      output = .ended
    case .passOn: passOn(context)
    case .close:
      end()
      context.close(promise: nil)
    case .refuse(let isHead):
      input = ByteBuffer()
      output = .ended
      // The answer, then the end of the output; the input is read and dropped for a while, since closing with unread
      // input would make the kernel drop the answer.
      startTimer(context, loop.resources.limits.lingerTimeout)
      context.writeAndFlush(wrapOutboundOut(loop.http1Refusal(isHead: isHead)), promise: nil)
      context.close(mode: .output, promise: nil)
    }
  }

  /// From here on the session's own handler is next to the socket, or to TLS.
  private func passOn(_ context: ChannelHandlerContext) {
    release(context)
    timer?.cancel()
    let bytes = input
    input = ByteBuffer()
    if bytes.readableBytes > 0 { context.fireChannelRead(wrapInboundOut(bytes)) }
    context.pipeline.syncOperations.removeHandler(context: context, promise: nil)
  }

  private func startTimer(_ context: ChannelHandlerContext, _ timeout: TimeAmount) {
    timer?.cancel()
    timer = context.eventLoop.assumeIsolated().scheduleTask(in: timeout) {
      guard let action = self.gate?.timedOut() else { return }
      self.perform(action, context)
    }
  }

  private func end() {
    timer?.cancel()
    output = .ended
    input = ByteBuffer()
  }

  // MARK: Outbound

  func write(context: ChannelHandlerContext, data: NIOAny, promise: EventLoopPromise<Void>?) {
    switch output {
    case .open: context.write(data, promise: promise)
    case .held(var buffers):
      output = .held([])
      buffers.append(unwrapOutboundIn(data))
      output = .held(buffers)
      // Bytes of a session that has said nothing but its settings; nobody waits for them.
      promise?.succeed()
    case .ended: promise?.fail(ChannelError.ioOnClosedChannel)
    }
  }

  func flush(context: ChannelHandlerContext) {
    if case .open = output { context.flush() }
  }

  /// The session gives up, as where a client says nothing: it is told why in HTTP/2, unless it is known to speak
  /// HTTP/1.
  func close(context: ChannelHandlerContext, mode: CloseMode, promise: EventLoopPromise<Void>?) {
    release(context)
    if case .ended = output {
      context.close(mode: .all, promise: promise)
    } else {
      context.close(mode: mode, promise: promise)
    }
  }

  private func release(_ context: ChannelHandlerContext) {
    guard case .held(let buffers) = output else { return }
    output = .open
    for buffer in buffers { context.write(wrapOutboundOut(buffer), promise: nil) }
    if !buffers.isEmpty { context.flush() }
  }
}
