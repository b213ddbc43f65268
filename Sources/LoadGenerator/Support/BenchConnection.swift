internal import GatewayClient
internal import HTTP2Session
internal import NIOCore
internal import NIOPosix
internal import Operations
internal import TLSSession

/// HTTP/2 connections that a bench drives on its own event loop.
enum BenchConnection {
  /// Connect, with read buffers of up to `readBytesMax`.
  ///
  /// - Parameters:
  ///   - tls: nil for h2c.
  ///   - failed: called with the error that closes the open connection, on the event loop.
  ///   - makeDelegate: called on the event loop.
  /// - Returns: the channel, or ``LoadError`` with the reason.
  static func connect<Delegate: HTTP2ClientDelegate>(
    to endpoint: Endpoint,
    on eventLoop: any EventLoop,
    tls: TLSContext? = nil,
    readBytesMax: Int = 65_536,
    failed: (@Sendable (any Error) -> Void)? = nil,
    _ makeDelegate: @escaping @Sendable (any Channel) -> (Delegate, HTTP2ClientResources)
  ) -> EventLoopFuture<any Channel> {
    ClientBootstrap(group: eventLoop)
      .connectTimeout(.seconds(10))
      .channelOption(ChannelOptions.tcpOption(.tcp_nodelay), value: 1)
      .channelOption(
        ChannelOptions.recvAllocator,
        value: AdaptiveRecvByteBufferAllocator(
          minimum: readBytesMax / 16,
          initial: readBytesMax / 4,
          maximum: readBytesMax
        )
      )
      .channelInitializer { channel in
        channel.eventLoop.makeCompletedFuture {
          let pipeline = channel.pipeline.syncOperations
          if let tls { try pipeline.addHandler(TLSHandler(context: tls, serverName: endpoint.host)) }
          let (delegate, resources) = makeDelegate(channel)
          try pipeline.addHandler(HTTP2ClientConnection(delegate: delegate, resources: resources))
          if let failed { try pipeline.addHandler(ConnectionErrorHandler(failed)) }
        }
      }
      .connect(host: endpoint.host, port: endpoint.port)
      .flatMapErrorThrowing {
        throw LoadError("\(endpoint): no connection: \(ErrorText.of($0))")
      }
  }
}
