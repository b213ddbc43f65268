internal import HTTP2Session
internal import NIOCore
internal import TLSSession

/// Handler in front of the HTTP/2 session until the client's protocol is known (``ProtocolGate``). It passes an HTTP/2
/// client's bytes on and removes itself, or answers an HTTP/1 client with 505 and closes.
///
/// Until then the session's output, its SETTINGS, is held back: an HTTP/1 client could not read it.
final class ProtocolGateHandler: ChannelDuplexHandler, RemovableChannelHandler {
  typealias InboundIn = ByteBuffer
  typealias InboundOut = ByteBuffer
  typealias OutboundIn = ByteBuffer
  typealias OutboundOut = ByteBuffer

  private enum Output {
    /// Output of the session, held back.
    case held([ByteBuffer])
    /// The client speaks HTTP/2; output passes.
    case open
    /// The client was answered, or has disconnected.
    case ended
  }

  private let loop: GatewayLoop
  /// Nil until the TLS handshake is complete.
  private var gate: ProtocolGate?
  private var output = Output.held([])
  /// Bytes received while the protocol is not known.
  private var input = ByteBuffer()
  private var timer: Scheduled<Void>?

  /// - Parameter isTLS: whether the TLS handshake decides the protocol, or at least narrows it down.
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
    case .wait, .drop: return
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
      // Send the response, then close the output. The input is read and dropped for a while: closing with unread input
      // would make the kernel drop the response.
      startTimer(context, loop.resources.limits.lingerTimeout)
      context.writeAndFlush(wrapOutboundOut(loop.refuseHTTP1(isHead: isHead)), promise: nil)
      context.close(mode: .output, promise: nil)
    }
  }

  /// Hand over to the session's own handler, from then on next to the socket, or to TLS.
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
      // The session has sent only its SETTINGS, whose promise has no observer.
      promise?.succeed()
    case .ended: promise?.fail(ChannelError.ioOnClosedChannel)
    }
  }

  func flush(context: ChannelHandlerContext) {
    if case .open = output { context.flush() }
  }

  /// Close on behalf of the session, for instance when a client stays silent. The held output is sent first, so that
  /// the client gets the error in HTTP/2, unless it is known to speak HTTP/1.
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

/// The response to an HTTP/1 client, the gateway's only response outside HTTP/2.
enum HTTP1Refusal {
  /// - Parameters:
  ///   - isHead: whether the request is HEAD, whose answer has no content.
  ///   - id: the request's id.
  static func response(isHead: Bool, requestID id: String) -> ByteBuffer {
    let problem = Problem(
      .httpVersionNotSupported,
      """
      the client spoke HTTP/1: use an HTTP/2 client (over TLS with \"h2\" in ALPN, or by prior knowledge in the \
      clear), or a load balancer that speaks HTTP/1.1 to its clients and HTTP/2 to the gateway, as \
      Deploy/haproxy/haproxy.cfg does (docs/operate/deploy.md)
      """
    )
    var body = ByteBuffer()
    problem.write(requestID: id, into: &body)
    var response = ByteBuffer()
    response.writeString(
      """
      HTTP/1.1 505 HTTP Version Not Supported\r
      content-type: application/problem+json\r
      content-length: \(body.readableBytes)\r
      connection: close\r
      x-request-id: \(id)\r
      \r

      """
    )
    if !isHead { response.writeBuffer(&body) }
    return response
  }
}
