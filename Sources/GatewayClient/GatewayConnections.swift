package import HTTP2Session
package import NIOCore
internal import NIOPosix
package import Operations
internal import Synchronization
package import TLSSession

extension HTTP2ClientConnection where Delegate: SendableMetatype {
  /// Connect over TLS if there is a context, else with prior knowledge (h2c). A delegate is told when the server has
  /// sent its SETTINGS; the connection may already be over when this returns.
  ///
  /// - Parameters:
  ///   - makeDelegate: for a host with several addresses, more than one channel may be tried.
  ///   - makeErrorHandler: last handler of the channel's pipeline, such as ``ConnectionErrorHandler``.
  package static func connect(
    to endpoint: Endpoint,
    tls: TLSContext?,
    eventLoop: any EventLoop = MultiThreadedEventLoopGroup.singleton.next(),
    makeDelegate: @escaping @Sendable (any Channel) -> Delegate,
    makeErrorHandler: @escaping @Sendable (Delegate) -> any ChannelHandler
  ) async throws -> (channel: any Channel, connection: NIOLoopBound<HTTP2ClientConnection<Delegate>>) {
    let bootstrap = ClientBootstrap(group: eventLoop)
      .connectTimeout(.seconds(10))
      .channelOption(ChannelOptions.tcpOption(.tcp_nodelay), value: 1)
    return try await bootstrap.connect(host: endpoint.host, port: endpoint.port) { channel in
      channel.eventLoop.makeCompletedFuture {
        let pipeline = channel.pipeline.syncOperations
        if let tls { try pipeline.addHandler(TLSHandler(context: tls, serverName: endpoint.host)) }
        let delegate = makeDelegate(channel)
        let connection = HTTP2ClientConnection(delegate: delegate, resources: HTTP2ClientResources())
        try pipeline.addHandler(connection)
        try pipeline.addHandler(makeErrorHandler(delegate))
        return (channel, NIOLoopBound(connection, eventLoop: channel.eventLoop))
      }
    }
  }
}

extension GatewayURL {
  /// Headers of requests with a token.
  package func requestTemplate(
    _ method: HTTP2Method,
    token: String,
    contentType: String = "",
    headers: [(name: String, value: String)] = []
  ) -> HTTP2RequestTemplate {
    HTTP2RequestTemplate(
      method: method,
      scheme: isTLS ? "https" : "http",
      authority: "\(endpoint)",
      authorization: "Bearer \(token)",
      contentType: contentType,
      headers: headers
    )
  }
}

/// Last handler of a client's pipeline: reports an error, mostly one of TLS, and closes the connection.
package final class ConnectionErrorHandler: ChannelInboundHandler {
  package typealias InboundIn = Never

  private let report: (any Error) -> Void

  package init(_ report: @escaping (any Error) -> Void) { self.report = report }

  package func errorCaught(context: ChannelHandlerContext, error: any Error) {
    report(error)
    context.close(promise: nil)
  }
}

/// Client of a gateway whose calls share one connection. It is opened when it is needed, and again after it has broken.
package final class ReconnectingHTTP2Client: Sendable {
  private let url: GatewayURL
  private let tls: TLSContext?
  private let connection = Mutex<Task<AsyncHTTP2Client, any Error>?>(nil)

  /// - Parameter tls: for a gateway with TLS.
  package init(url: GatewayURL, tls: TLSContext?) {
    self.url = url
    self.tls = tls
  }

  /// Make one call, as ``AsyncHTTP2Client/call(_:_:body:token:)``.
  package func call(
    _ method: HTTP2Method,
    _ path: String,
    body: [UInt8]? = nil,
    token: String? = nil
  ) async throws -> HTTPCallResponse {
    let connecting = connection.withLock { connection in
      if let connection { return connection }
      let task = Task { [url, tls] in try await AsyncHTTP2Client.connect(to: url.endpoint, tls: tls) }
      connection = task
      return task
    }
    do {
      return try await connecting.value.call(method, path, body: body, token: token)
    } catch {
      // A reset stream says nothing about the connection; every other failure does.
      if case CallError.reset = error {} else { drop(connecting) }
      throw error
    }
  }

  private func drop(_ failed: Task<AsyncHTTP2Client, any Error>) {
    connection.withLock { if $0 == failed { $0 = nil } }
    Task { try? await failed.value.close() }
  }

  /// Close the connection.
  package func close() async {
    let open = connection.withLock { connection in
      defer { connection = nil }
      return connection
    }
    try? await open?.value.close()
  }
}
