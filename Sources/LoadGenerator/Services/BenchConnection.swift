internal import NIOCore
internal import NIOPosix
internal import Operations

/// TCP connections whose pipeline a bench assembles itself.
enum BenchConnection {
  /// Connect, with read buffers of up to `readBytesMax`.
  ///
  /// - Parameter assemble: adds the handlers, on the event loop.
  /// - Returns: the channel, or ``LoadError`` with the reason.
  static func connect(
    to endpoint: Endpoint,
    on eventLoop: any EventLoop,
    readBytesMax: Int = 65_536,
    _ assemble: @escaping @Sendable (any Channel) throws -> Void
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
      .channelInitializer { channel in channel.eventLoop.makeCompletedFuture { try assemble(channel) } }
      .connect(host: endpoint.host, port: endpoint.port)
      .flatMapErrorThrowing {
        throw LoadError("\(endpoint): no connection: \(ErrorText.of($0))")
      }
  }
}
