internal import Foundation
package import NIOCore
internal import NIOHTTP1
internal import NIOPosix
internal import Synchronization

/// Implementation of `--health-check URL`: one HTTP/1.1 GET, for containers without curl.
package enum HealthCheck {
  /// Return the URL to check: the flag's value, or that of `TIDEMARK_HEALTH_CHECK`.
  package static func url(flag: String?) -> String? {
    flag ?? ProcessInfo.processInfo.environment["TIDEMARK_HEALTH_CHECK"]
  }

  /// Request `http://HOST[:PORT][/PATH]` and report the result in one line.
  ///
  /// - Returns: the exit code, 0 for a status of 200 to 299, else 1, and the line.
  package static func run(_ url: String, timeout: TimeAmount = .seconds(5)) async -> (exitCode: Int32, line: String) {
    guard let target = HTTPURL(url), !target.usesTLS else {
      return (1, "--health-check \"\(url)\": give http://HOST:PORT/ready")
    }
    let group = MultiThreadedEventLoopGroup(numberOfThreads: 1)
    let outcome = await request(target, group: group, timeout: timeout)
    try? await group.shutdownGracefully()
    switch outcome {
    case .success(let response) where (200..<300).contains(response.status): return (0, "\(url): \(response.status)")
    case .success(let response): return (1, "\(url): \(response.status)")
    case .failure(let error): return (1, "\(url): \(ErrorText.of(error))")
    }
  }

  /// Return the whole response, such as the text of `/metrics`; nil if there is none.
  package static func get(_ url: String, timeout: TimeAmount = .seconds(5)) async -> (status: Int, body: String)? {
    guard let target = HTTPURL(url), !target.usesTLS else { return nil }
    let outcome = await request(target, group: MultiThreadedEventLoopGroup.singleton, timeout: timeout)
    guard case .success(let response) = outcome else { return nil }
    return (response.status, response.body)
  }

  fileprivate struct Response {
    var status: Int
    var body: String
  }

  /// Larger responses do not come from an operations listener.
  fileprivate static let bodyBytesMax = 1 << 20

  struct TimedOut: Error, CustomStringConvertible {
    var description: String { "timed out" }
  }

  struct Closed: Error, CustomStringConvertible {
    var description: String { "the connection was closed before an answer" }
  }

  private static func request(
    _ target: HTTPURL,
    group: MultiThreadedEventLoopGroup,
    timeout: TimeAmount
  ) async -> Result<Response, any Error> {
    let eventLoop = group.next()
    let response = eventLoop.makePromise(of: Response.self)
    let timer = eventLoop.scheduleTask(in: timeout) { response.fail(TimedOut()) }
    defer { timer.cancel() }
    ClientBootstrap(group: eventLoop)
      .connectTimeout(timeout)
      .channelInitializer { channel in
        channel.eventLoop.makeCompletedFuture {
          try channel.pipeline.syncOperations.addHTTPClientHandlers()
          try channel.pipeline.syncOperations.addHandler(RequestHandler(target: target, response: response))
        }
      }
      .connect(host: target.endpoint.host, port: target.endpoint.port)
      .whenFailure { response.fail($0) }
    do {
      return .success(try await response.futureResult.get())
    } catch {
      return .failure(error)
    }
  }
}

private final class RequestHandler: ChannelInboundHandler {
  typealias InboundIn = HTTPClientResponsePart
  typealias OutboundOut = HTTPClientRequestPart

  private let target: HTTPURL
  private let response: EventLoopPromise<HealthCheck.Response>
  private var status = 0
  private var body = ByteBuffer()

  init(target: HTTPURL, response: EventLoopPromise<HealthCheck.Response>) {
    self.target = target
    self.response = response
  }

  func channelActive(context: ChannelHandlerContext) {
    let headers = HTTPHeaders([("host", "\(target.endpoint)"), ("connection", "close")])
    let head = HTTPRequestHead(version: .http1_1, method: .GET, uri: target.path, headers: headers)
    context.write(wrapOutboundOut(.head(head)), promise: nil)
    context.writeAndFlush(wrapOutboundOut(.end(nil)), promise: nil)
  }

  func channelRead(context: ChannelHandlerContext, data: NIOAny) {
    switch unwrapInboundIn(data) {
    case .head(let head): status = Int(head.status.code)
    case .body(var part): if body.readableBytes < HealthCheck.bodyBytesMax { body.writeBuffer(&part) }
    case .end:
      response.succeed(HealthCheck.Response(status: status, body: String(buffer: body)))
      context.close(promise: nil)
    }
  }

  func channelInactive(context: ChannelHandlerContext) {
    response.fail(HealthCheck.Closed())
  }

  func errorCaught(context: ChannelHandlerContext, error: any Error) {
    response.fail(error)
    context.close(promise: nil)
  }
}

/// Readiness of a process: the reasons of its parts for not being ready. It is ready if there are none.
package final class Readiness: Sendable {
  private struct Reason {
    var part: String
    var text: String
    /// Time from which the reason counts.
    var start: NIODeadline
  }

  private let reasons: Mutex<[Reason]>

  /// Create a readiness that is not ready until `set("process", nil)`.
  package init() {
    reasons = Mutex([Reason(part: "process", text: "starting", start: .distantPast)])
  }

  /// Set the reason of one part, as in `set("store", "no connection")`, or clear it with nil.
  ///
  /// - Parameter start: time from which the reason counts, unless it is cleared before.
  package func set(_ part: String, _ reason: String?, from start: NIODeadline = .distantPast) {
    reasons.withLock { reasons in
      reasons.removeAll { $0.part == part }
      if let reason { reasons.append(Reason(part: part, text: reason, start: start)) }
    }
  }

  /// Whether no part currently has a reason.
  package var isReady: Bool { notReadyReasons.isEmpty }

  /// Current reasons, see ``notReadyReasons(at:)``.
  package var notReadyReasons: [String] { notReadyReasons(at: .now()) }

  /// Return the reasons, such as `store: no connection`; empty when ready.
  package func notReadyReasons(at now: NIODeadline) -> [String] {
    reasons.withLock { reasons in reasons.filter { $0.start <= now }.map { "\($0.part): \($0.text)" } }
  }
}
