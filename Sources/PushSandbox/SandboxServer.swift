internal import NIOCore
internal import NIOHTTP1
internal import NIOHTTP2
internal import NIOPosix
internal import NIOSSL
package import Operations
internal import ServiceLifecycle
internal import Synchronization
package import Worker

/// A request to the sandbox.
struct SandboxRequest: Sendable {
  var method: String
  /// Path without the query.
  var path: String
  /// Headers with names in lower case; of a repeated name the first.
  var headers: [String: String]
  var body: [UInt8]
  var isHTTP2: Bool
}

/// What the sandbox does with a request.
enum SandboxReply: Sendable {
  case response(status: Int, headers: [(String, String)] = [], body: [UInt8] = [])
  /// No response.
  case hang
  /// Close the connection.
  case close
}

/// The push providers for development and tests: Web Push, APNs and FCM on one TLS listener, over HTTP/2 and HTTP/1.1.
package final class SandboxServer: Service {
  private let channel: any Channel
  private let connections: ConnectionTable
  private let group: MultiThreadedEventLoopGroup
  private let routes: SandboxRoutes

  /// The port that it listens on.
  package let port: Int

  /// The pushes that have reached a device, as `GET /sandbox/deliveries` answers them.
  package var deliveries: JSONValue { routes.deliveries }

  private init(
    _ channel: any Channel,
    _ connections: ConnectionTable,
    _ group: MultiThreadedEventLoopGroup,
    _ routes: SandboxRoutes
  ) {
    self.channel = channel
    self.connections = connections
    self.group = group
    self.routes = routes
    port = channel.localAddress?.port ?? 0
  }

  /// Listen.
  ///
  /// - Parameters:
  ///   - endpoint: a loopback address; port 0 chooses a free one.
  ///   - poster: the way for devices to post tickets; nil: they post none.
  package static func start(
    at endpoint: Endpoint,
    keys: SandboxKeys,
    poster: TicketPoster?
  ) async throws -> SandboxServer {
    var configuration = TLSConfiguration.makeServerConfiguration(
      certificateChain: try NIOSSLCertificate.fromPEMBytes(Array(keys.certificate.utf8)).map { .certificate($0) },
      privateKey: .privateKey(try NIOSSLPrivateKey(bytes: Array(keys.certificateKey.utf8), format: .pem))
    )
    configuration.applicationProtocols = ["h2", "http/1.1"]
    let context = try NIOSSLContext(configuration: configuration)
    let group = MultiThreadedEventLoopGroup(numberOfThreads: 1)
    let connections = ConnectionTable()
    let routes = SandboxRoutes(keys: keys, poster: poster)
    do {
      let channel = try await ServerBootstrap(group: group)
        .serverChannelOption(.socketOption(.so_reuseaddr), value: 1)
        .childChannelInitializer { channel in
          connections.add(channel)
          do {
            try channel.pipeline.syncOperations.addHandler(NIOSSLServerHandler(context: context))
          } catch {
            return channel.eventLoop.makeFailedFuture(error)
          }
          return channel.configureCommonHTTPServerPipeline { stream in
            stream.eventLoop.makeCompletedFuture {
              try stream.pipeline.syncOperations.addHandler(SandboxHandler(routes, connection: channel))
            }
          }
        }
        .bind(host: endpoint.host, port: endpoint.port).get()
      routes.setPort(channel.localAddress?.port ?? 0)
      return SandboxServer(channel, connections, group, routes)
    } catch {
      try? await group.shutdownGracefully()
      throw error
    }
  }

  /// Serve until the service group shuts down.
  package func run() async throws {
    await withGracefulShutdownHandler {
      try? await channel.closeFuture.get()
    } onGracefulShutdown: {
      self.channel.close(promise: nil)
    }
    await stop()
  }

  /// Close all connections.
  package func stop() async {
    try? await channel.close()
    for connection in connections.all { try? await connection.close() }
    try? await group.shutdownGracefully()
  }
}

/// The open connections.
private final class ConnectionTable: Sendable {
  private let channels = Mutex<[ObjectIdentifier: any Channel]>([:])

  var all: [any Channel] { channels.withLock { Array($0.values) } }

  func add(_ channel: any Channel) {
    let id = ObjectIdentifier(channel)
    channels.withLock { $0[id] = channel }
    channel.closeFuture.whenComplete { [self] _ in channels.withLock { $0[id] = nil } }
  }
}

/// Handler of one HTTP/2 stream, or of an HTTP/1.1 connection: collects a request, and writes the reply.
private final class SandboxHandler: ChannelInboundHandler {
  typealias InboundIn = HTTPServerRequestPart
  typealias OutboundOut = HTTPServerResponsePart

  /// Larger bodies are refused: no provider takes them.
  private static let bodyByteCountMax = 256 * 1_024

  private let routes: SandboxRoutes
  private let connection: any Channel
  private var head: HTTPRequestHead?
  private var body: [UInt8] = []

  init(_ routes: SandboxRoutes, connection: any Channel) {
    self.routes = routes
    self.connection = connection
  }

  func channelRead(context: ChannelHandlerContext, data: NIOAny) {
    switch unwrapInboundIn(data) {
    case .head(let head):
      self.head = head
      body = []
    case .body(let part):
      guard body.count + part.readableBytes <= Self.bodyByteCountMax else { return connection.close(promise: nil) }
      body += part.readableBytesView
    case .end:
      guard let head else { return }
      self.head = nil
      var headers: [String: String] = [:]
      for (name, value) in head.headers { headers[name.lowercased()] = headers[name.lowercased()] ?? value }
      let request = SandboxRequest(
        method: head.method.rawValue,
        path: String(head.uri.prefix { $0 != "?" }),
        headers: headers,
        body: body,
        isHTTP2: head.version.major == 2
      )
      let bound = NIOLoopBound((self, context), eventLoop: context.eventLoop)
      let (routes, eventLoop) = (routes, context.eventLoop)
      Task {
        let reply = await routes.reply(to: request)
        eventLoop.execute {
          let (handler, context) = bound.value
          handler.write(reply, context)
        }
      }
    }
  }

  private func write(_ reply: SandboxReply, _ context: ChannelHandlerContext) {
    switch reply {
    case .hang: break
    case .close: connection.close(promise: nil)
    case .response(let status, let headers, let body):
      var fields = HTTPHeaders(headers)
      fields.add(name: "content-length", value: "\(body.count)")
      let head = HTTPResponseHead(version: .http1_1, status: .init(statusCode: status), headers: fields)
      context.write(wrapOutboundOut(.head(head)), promise: nil)
      if !body.isEmpty { context.write(wrapOutboundOut(.body(.byteBuffer(ByteBuffer(bytes: body)))), promise: nil) }
      context.writeAndFlush(wrapOutboundOut(.end(nil)), promise: nil)
    }
  }

  func errorCaught(context: ChannelHandlerContext, error: any Error) { context.close(promise: nil) }
}
