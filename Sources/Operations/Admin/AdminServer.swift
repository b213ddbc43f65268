internal import Foundation
package import Logging
internal import NIOConcurrencyHelpers
package import NIOCore
internal import NIOHTTP1
internal import NIOPosix
internal import ServiceLifecycle

/// Operations listener: HTTP/1.1 with `GET /health`, `/ready` and `/metrics`, separate from the service's traffic.
package final class AdminServer: Service {
  private let channel: any Channel
  private let logger: Logger

  /// Listening address, with the actual port if port 0 was requested.
  package let address: Endpoint

  private init(channel: any Channel, address: Endpoint, logger: Logger) {
    self.channel = channel
    self.address = address
    self.logger = logger
  }

  /// Maximum number of concurrent connections.
  private static let connectionsMax = 64

  /// Start listening.
  ///
  /// - Throws: a ``SettingsError`` that names `--admin` if the address cannot be bound.
  package static func start(
    at endpoint: Endpoint,
    group: any EventLoopGroup,
    readiness: Readiness,
    metrics: MetricsRegistry,
    logger: Logger
  ) async throws(SettingsError) -> AdminServer {
    ProcessMetrics.recordStartTime()
    // Clients of this listener never count as authenticated. The oldest connection is closed for a new one, so that a
    // probe always gets in.
    let gate = ConnectionGate(
      limits: ConnectionLimits(total: connectionsMax, perAddress: connectionsMax, unauthenticated: connectionsMax - 1),
      logger: logger
    )
    let scrapes = Scrapes(metrics)
    do {
      let channel = try await ServerBootstrap(group: group)
        .serverChannelOption(.socketOption(.so_reuseaddr), value: 1)
        .serverChannelInitializer { channel in
          channel.eventLoop.makeCompletedFuture { try ConnectionGateHandler.prepare(channel, gate) }
        }
        .childChannelInitializer { channel in
          channel.eventLoop.makeCompletedFuture {
            try channel.pipeline.syncOperations.configureHTTPServerPipeline(withErrorHandling: true)
            try channel.pipeline.syncOperations.addHandler(
              IdleStateHandler(allTimeout: AdminHandler.idleTimeout)
            )
            try channel.pipeline.syncOperations.addHandler(
              AdminHandler(readiness: readiness, scrapes: scrapes)
            )
          }
        }
        .bind(host: endpoint.host, port: endpoint.port).get()
      let address = Endpoint(host: endpoint.host, port: channel.localAddress?.port ?? endpoint.port)
      return AdminServer(channel: channel, address: address, logger: logger)
    } catch {
      throw SettingsError(
        "admin",
        "\(endpoint): cannot listen there (\(ErrorText.of(error))); is another process using it?"
      )
    }
  }

  /// Serve until the group shuts down. As the first service of its group it stops last, so `/ready` answers 503 during
  /// the drain.
  package func run() async throws {
    logger.debug("operations listener started", metadata: ["address": "\(address)"])
    try await withTaskCancellationOrGracefulShutdownHandler {
      try await channel.closeFuture.get()
    } onCancelOrGracefulShutdown: {
      self.channel.close(promise: nil)
    }
  }
}

/// Collects the metrics for all clients of the listener. Requests that arrive while a collection runs, or in the pause
/// after it, share the next one: however many a client sends, the event loops are asked twenty times a second at most.
private final class Scrapes: Sendable {
  private struct State {
    var waiting: [EventLoopPromise<ByteBuffer>] = []
    var isRunning = false
  }

  private static let pause = TimeAmount.milliseconds(50)

  private let metrics: MetricsRegistry
  private let state = NIOLockedValueBox(State())

  init(_ metrics: MetricsRegistry) { self.metrics = metrics }

  /// Return the text of a collection that begins after this call.
  func text(on eventLoop: any EventLoop) -> EventLoopFuture<ByteBuffer> {
    let promise = eventLoop.makePromise(of: ByteBuffer.self)
    let isFirst = state.withLockedValue { state in
      state.waiting.append(promise)
      defer { state.isRunning = true }
      return !state.isRunning
    }
    if isFirst { collect(on: eventLoop) }
    return promise.futureResult
  }

  private func collect(on eventLoop: any EventLoop) {
    let waiting = state.withLockedValue { state in
      defer { state.waiting = [] }
      return state.waiting
    }
    metrics.collect(on: eventLoop).whenComplete { result in
      let text = result.map { samples in
        var buffer = ByteBuffer()
        samples.write(into: &buffer)
        return buffer
      }
      for promise in waiting { promise.completeWith(text) }
      eventLoop.scheduleTask(in: Self.pause) {
        let hasMore = self.state.withLockedValue { state in
          state.isRunning = !state.waiting.isEmpty
          return state.isRunning
        }
        if hasMore { self.collect(on: eventLoop) }
      }
    }
  }
}

private final class AdminHandler: ChannelInboundHandler {
  typealias InboundIn = HTTPServerRequestPart
  typealias OutboundOut = HTTPServerResponsePart

  static let idleTimeout = TimeAmount.seconds(60)
  /// No endpoint reads a body.
  static let bodyByteCountMax = 4 * 1024

  private let readiness: Readiness
  private let scrapes: Scrapes
  private var head: HTTPRequestHead?
  private var bodyByteCount = 0

  init(readiness: Readiness, scrapes: Scrapes) {
    self.readiness = readiness
    self.scrapes = scrapes
  }

  func channelRead(context: ChannelHandlerContext, data: NIOAny) {
    switch unwrapInboundIn(data) {
    case .head(let head):
      self.head = head
      bodyByteCount = 0
    case .body(let body):
      bodyByteCount += body.readableBytes
      if bodyByteCount > Self.bodyByteCountMax { context.close(promise: nil) }
    case .end:
      guard let head else { return }
      self.head = nil
      // A client that sends requests and reads no responses.
      guard context.channel.isWritable else { return context.close(promise: nil) }
      answer(head, context)
    }
  }

  private struct Response {
    var status: HTTPResponseStatus
    var body: ByteBuffer
    var contentType: String
    var headers: [(String, String)] = []

    static func json(_ status: HTTPResponseStatus, _ text: String) -> Response {
      Response(status: status, body: ByteBuffer(string: text + "\n"), contentType: "application/json")
    }
  }

  private func answer(_ head: HTTPRequestHead, _ context: ChannelHandlerContext) {
    let path = head.uri.prefix { $0 != "?" }
    guard ["/health", "/ready", "/metrics"].contains(path) else {
      return write(.json(.notFound, #"{"error":"try /health, /ready or /metrics"}"#), head, context)
    }
    guard head.method == .GET || head.method == .HEAD else {
      var response = Response.json(.methodNotAllowed, #"{"error":"GET or HEAD only"}"#)
      response.headers = [("allow", "GET, HEAD")]
      return write(response, head, context)
    }
    switch path {
    case "/health": write(.json(.ok, #"{"status":"ok"}"#), head, context)
    case "/ready": write(Self.readyResponse(readiness.notReadyReasons), head, context)
    default:
      // The handler and its context stay on their loop; the future's callback runs there too.
      let bound = NIOLoopBound((self, context), eventLoop: context.eventLoop)
      scrapes.text(on: context.eventLoop).whenComplete { result in
        let (handler, context) = bound.value
        let response: Response =
          switch result {
          case .success(let text):
            Response(status: .ok, body: text, contentType: "text/plain; version=0.0.4; charset=utf-8")
          case .failure: .json(.internalServerError, #"{"error":"the metrics could not be collected"}"#)
          }
        handler.write(response, head, context)
      }
    }
  }

  private struct NotReady: Encodable {
    var status = "not_ready"
    var reasons: [String]
  }

  private static func readyResponse(_ notReadyReasons: [String]) -> Response {
    guard !notReadyReasons.isEmpty else { return .json(.ok, #"{"status":"ready"}"#) }
    let encoder = JSONEncoder()
    encoder.outputFormatting = [.sortedKeys, .withoutEscapingSlashes]
    let data = try? encoder.encode(NotReady(reasons: notReadyReasons))
    return .json(.serviceUnavailable, data.map { String(decoding: $0, as: UTF8.self) } ?? "{}")
  }

  private func write(_ response: Response, _ head: HTTPRequestHead, _ context: ChannelHandlerContext) {
    var headers = HTTPHeaders([
      ("content-type", response.contentType), ("content-length", "\(response.body.readableBytes)"),
      ("cache-control", "no-store"),
    ])
    headers.add(contentsOf: response.headers)
    if !head.isKeepAlive { headers.add(name: "connection", value: "close") }
    let start = HTTPResponseHead(version: head.version, status: response.status, headers: headers)
    context.write(wrapOutboundOut(.head(start)), promise: nil)
    if head.method != .HEAD {
      context.write(wrapOutboundOut(.body(.byteBuffer(response.body))), promise: nil)
    }
    let channel = context.channel
    context.writeAndFlush(wrapOutboundOut(.end(nil))).whenComplete { _ in
      if !head.isKeepAlive { channel.close(promise: nil) }
    }
  }

  func userInboundEventTriggered(context: ChannelHandlerContext, event: Any) {
    if event is IdleStateHandler.IdleStateEvent {
      context.close(promise: nil)
    } else {
      context.fireUserInboundEventTriggered(event)
    }
  }

  func errorCaught(context: ChannelHandlerContext, error: any Error) {
    context.close(promise: nil)
  }
}
