internal import NIOCore
internal import Operations

/// First handler on a connection that `--trusted-proxies` does not name, with `--proxy-protocol`: a connection that
/// begins with a PROXY header is closed with a line in the log, since its sender may not name a client.
final class UntrustedProxyHandler: ChannelInboundHandler, RemovableChannelHandler {
  typealias InboundIn = ByteBuffer
  typealias InboundOut = ByteBuffer

  private let gate: ConnectionGate

  init(_ gate: ConnectionGate) { self.gate = gate }

  func channelRead(context: ChannelHandlerContext, data: NIOAny) {
    guard !ProxyHeader.begins(unwrapInboundIn(data).readableBytesView) else {
      gate.refusedForProxyHeader(
        "it begins with a PROXY header, and its address is not in --trusted-proxies",
        context.channel
      )
      return context.close(promise: nil)
    }
    context.fireChannelRead(data)
    context.pipeline.syncOperations.removeHandler(context: context, promise: nil)
  }
}

/// First handler on a connection from a trusted proxy. Once the ``ProxyHeader`` is complete, it has the rest of the
/// pipeline added, passes on the bytes after the header, and removes itself.
final class ProxyHeaderHandler: ChannelInboundHandler, RemovableChannelHandler {
  typealias InboundIn = ByteBuffer
  typealias InboundOut = ByteBuffer

  private let timeout: TimeAmount
  private let refused: (any Channel) -> Void
  private let identified: (any Channel, PeerAddress?) throws -> Bool
  private var input = ByteBuffer()
  private var timer: Scheduled<Void>?

  /// - Parameters:
  ///   - timeout: how long the header may take.
  ///   - refused: called with a connection that does not begin with a PROXY header, before it is closed.
  ///   - identified: called with the client that the header names; returns false where the connection must be closed.
  init(
    timeout: TimeAmount,
    refused: @escaping (any Channel) -> Void = { _ in },
    identified: @escaping (any Channel, PeerAddress?) throws -> Bool
  ) {
    self.timeout = timeout
    self.refused = refused
    self.identified = identified
  }

  func channelActive(context: ChannelHandlerContext) {
    timer = context.eventLoop.assumeIsolated().scheduleTask(in: timeout) { context.close(promise: nil) }
    context.fireChannelActive()
  }

  func channelInactive(context: ChannelHandlerContext) {
    timer?.cancel()
    context.fireChannelInactive()
  }

  func channelRead(context: ChannelHandlerContext, data: NIOAny) {
    var bytes = unwrapInboundIn(data)
    input.writeBuffer(&bytes)
    switch ProxyHeader(Array(input.readableBytesView.prefix(ProxyHeader.binaryBytesMax))) {
    case .incomplete: return
    case .invalid:
      refused(context.channel)
      context.close(promise: nil)
    case .complete(let client, let byteCount):
      timer?.cancel()
      input.moveReaderIndex(forwardBy: byteCount)
      guard (try? identified(context.channel, client)) == true else { return context.close(promise: nil) }
      let rest = input
      input = ByteBuffer()
      if rest.readableBytes > 0 { context.fireChannelRead(wrapInboundOut(rest)) }
      context.pipeline.syncOperations.removeHandler(context: context, promise: nil)
    }
  }
}
