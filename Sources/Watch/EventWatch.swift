internal import HTTP2Session
package import LocalStack
internal import NIOCore
internal import NIOPosix
internal import Operations
package import TLSSession

/// Follows `GET /v1/events` of a gateway, over as many connections as it takes.
package struct EventWatch: Sendable {
  private let gateway: GatewayURL
  private let tls: TLSContext?
  private let request: WatchRequest
  private let token: @Sendable () async throws -> String
  /// How many events are wanted; nil: all that come.
  package var countMax: Int?
  /// Without a byte for so long a connection counts as lost: a comment comes every 15 s.
  package var silenceMax = Duration.seconds(45)
  /// Called each time that a connection's stream has begun: what happens from now on will come. On the connection's
  /// event loop.
  package var opened: @Sendable () -> Void = {}

  /// - Parameters:
  ///   - tls: for a gateway with TLS.
  ///   - token: asked for before each connection.
  package init(
    gateway: GatewayURL,
    tls: TLSContext?,
    request: WatchRequest,
    token: @escaping @Sendable () async throws -> String
  ) {
    self.gateway = gateway
    self.tls = tls
    self.request = request
    self.token = token
  }

  /// Gives each event to `take`, and to `note` what a person should know, until as many have come as are wanted. `take`
  /// is called on the connection's event loop and may block: what is not read waits at the gateway.
  ///
  /// - Parameter since: the id of an event to go on from; empty: from now on.
  /// - Throws: ``WatchError`` where the gateway will not have it; what stops the task.
  package func run(
    since: String = "",
    take: @escaping @Sendable (StreamedEvent) -> Void,
    note: @escaping @Sendable (String) -> Void
  ) async throws {
    var progress = WatchProgress()
    var reader = EventStreamReader(lastEventID: since)
    var retryMilliseconds: Int?
    var left = countMax
    defer { if !reader.lastEventID.isEmpty { note("the last event's id is \(reader.lastEventID)") } }
    while true {
      let result = try await connect(
        Attempt(reader: EventStreamReader(lastEventID: reader.lastEventID), left: left),
        take
      )
      reader = result.reader
      left = result.left
      try Task.checkCancellation()
      retryMilliseconds = reader.retryMilliseconds ?? retryMilliseconds
      switch progress.ended(result.end, hasOpened: result.hasOpened, retryMilliseconds: retryMilliseconds) {
      case .stop: return
      case .fail(let reason): throw WatchError(description: reason)
      case .again(let milliseconds, let reason):
        let place = reader.lastEventID.isEmpty ? "" : ", from \(reader.lastEventID) on"
        note("\(reason); connecting again in \(Self.seconds(milliseconds)) s\(place)")
        try await Task.sleep(for: .milliseconds(milliseconds))
      }
    }
  }

  private static func seconds(_ milliseconds: Int) -> String {
    let tenths = (milliseconds + 50) / 100
    return tenths % 10 == 0 ? "\(tenths / 10)" : "\(tenths / 10).\(tenths % 10)"
  }

  /// Connects and follows the stream to its end. Cancelled, that is the end of the connection too.
  private func connect(
    _ attempt: Attempt,
    _ take: @escaping @Sendable (StreamedEvent) -> Void
  ) async throws -> AttemptResult {
    let token = try await token()
    let silenceMax = TimeAmount(silenceMax)
    let (gateway, tls, path, opened) = (gateway, tls, request.path, opened)
    let bootstrap = ClientBootstrap(group: MultiThreadedEventLoopGroup.singleton.next())
      .connectTimeout(.seconds(10))
      .channelOption(ChannelOptions.tcpOption(.tcp_nodelay), value: 1)
    let channel: any Channel
    let connection: NIOLoopBound<WatchConnection>
    do {
      (channel, connection) = try await bootstrap.connect(
        host: gateway.endpoint.host,
        port: gateway.endpoint.port
      ) { channel in
        // Of a host with several addresses more than one channel may be tried.
        channel.eventLoop.makeCompletedFuture {
          let pipeline = channel.pipeline.syncOperations
          if let tls { try pipeline.addHandler(TLSHandler(context: tls, serverName: gateway.endpoint.host)) }
          let template = HTTP2RequestTemplate(
            method: .get,
            scheme: gateway.isTLS ? "https" : "http",
            authority: "\(gateway.endpoint)",
            authorization: "Bearer \(token)",
            headers: [("accept", "text/event-stream"), ("last-event-id", attempt.reader.lastEventID)]
          )
          let delegate = WatchConnection(
            attempt,
            template: template,
            path: path,
            silenceMax: silenceMax,
            channel: channel,
            opened: opened,
            take: take
          )
          try pipeline.addHandler(
            HTTP2ClientConnection(delegate: delegate, resources: HTTP2ClientResources())
          )
          try pipeline.addHandler(LossHandler(delegate: delegate, usesTLS: gateway.isTLS))
          return (channel, NIOLoopBound(delegate, eventLoop: channel.eventLoop))
        }
      }
    } catch {
      return attempt.result(.lost("\(gateway.endpoint): \(HTTP2Caller.reason(error))"))
    }
    // By now all may be over: what it came to has been kept.
    let result = try await withTaskCancellationHandler {
      try await channel.eventLoop.flatSubmit { connection.value.start() }.get()
    } onCancel: {
      channel.close(promise: nil)
    }
    try? await channel.close().get()
    return result
  }
}

/// The gateway will not have it; for the person at the terminal.
package struct WatchError: Error, Hashable, CustomStringConvertible {
  package var description: String
}

/// One connection's part of a watch.
private struct Attempt: Sendable {
  var reader: EventStreamReader
  /// Events that are still wanted; nil: all.
  var left: Int?
  var hasOpened = false

  func result(_ end: WatchEnd) -> AttemptResult {
    AttemptResult(end: end, reader: reader, left: left, hasOpened: hasOpened)
  }
}

private struct AttemptResult: Sendable {
  var end: WatchEnd
  var reader: EventStreamReader
  var left: Int?
  var hasOpened: Bool
}

/// The delegate of one connection. On its event loop only.
private final class WatchConnection: HTTP2ClientDelegate {
  /// A problem document is smaller than this.
  private static let problemByteCountMax = 64 * 1024

  var hasOpened: Bool { attempt.hasOpened }

  private var attempt: Attempt
  private let template: HTTP2RequestTemplate
  private let path: String
  private let silenceMax: TimeAmount
  private let channel: any Channel
  private let opened: () -> Void
  private let take: (StreamedEvent) -> Void
  /// From ``start()`` on.
  private var promise: EventLoopPromise<AttemptResult>?
  private var result: AttemptResult?
  private var silence: Scheduled<Void>?
  private var problem: [UInt8] = []

  init(
    _ attempt: Attempt,
    template: HTTP2RequestTemplate,
    path: String,
    silenceMax: TimeAmount,
    channel: any Channel,
    opened: @escaping () -> Void,
    take: @escaping (StreamedEvent) -> Void
  ) {
    self.attempt = attempt
    self.template = template
    self.path = path
    self.silenceMax = silenceMax
    self.channel = channel
    self.opened = opened
    self.take = take
  }

  /// This is the connection that counts: what it comes to is waited for.
  func start() -> EventLoopFuture<AttemptResult> {
    if let result { return channel.eventLoop.makeSucceededFuture(result) }
    let promise = channel.eventLoop.makePromise(of: AttemptResult.self)
    self.promise = promise
    waitForBytes()
    return promise.futureResult
  }

  private func waitForBytes() {
    silence?.cancel()
    guard promise != nil, result == nil else { return }
    let bound = NIOLoopBound(self, eventLoop: channel.eventLoop)
    silence = channel.eventLoop.scheduleTask(in: silenceMax) { bound.value.end(.silent) }
  }

  func end(_ end: WatchEnd) {
    silence?.cancel()
    guard result == nil else { return }
    let result = attempt.result(end)
    self.result = result
    promise?.succeed(result)
    channel.close(promise: nil)
  }

  func http2ConnectionReady(_ connection: HTTP2ClientConnection<WatchConnection>) {
    if connection.submit(template, path: path, token: 0, streaming: true) == nil {
      end(.lost("the connection takes no requests"))
    }
    connection.flushIfNeeded()
  }

  func http2ResponsePart(
    token: UInt64,
    response: borrowing HTTP2ClientResponse,
    on connection: HTTP2ClientConnection<WatchConnection>
  ) {
    waitForBytes()
    if response.status == 200 { read(response) } else { keepProblem(response) }
  }

  func http2ResponseReceived(
    token: UInt64,
    response: borrowing HTTP2ClientResponse,
    on connection: HTTP2ClientConnection<WatchConnection>
  ) {
    if response.status == 200 {
      read(response)
      return end(.finished)
    }
    keepProblem(response)
    let (code, detail) = ProblemDocument.parts(of: problem)
    let retryAfter = response.header("retry-after")?.withUnsafeBytes {
      Int(String(decoding: $0, as: UTF8.self))
    }
    end(.refused(status: response.status, code: code, detail: detail, retryAfterSeconds: retryAfter ?? nil))
  }

  func http2StreamFailed(
    token: UInt64,
    errorCode: UInt32,
    on connection: HTTP2ClientConnection<WatchConnection>
  ) {
    end(.lost("the stream was reset with HTTP/2 error code \(errorCode)"))
  }

  func http2ConnectionClosed(_ connection: HTTP2ClientConnection<WatchConnection>) {
    end(.lost("the connection was closed"))
  }

  private func read(_ response: borrowing HTTP2ClientResponse) {
    guard result == nil else { return }
    let isStream = response.contentType.withUnsafeBytes {
      String(decoding: $0, as: UTF8.self).lowercased().hasPrefix("text/event-stream")
    }
    guard isStream else { return end(.unreadable("the gateway's answer is no event stream")) }
    if !attempt.hasOpened {
      attempt.hasOpened = true
      opened()
    }
    do throws(EventStreamReader.Failure) {
      var left = attempt.left
      let take = take
      let wantsMore = try attempt.reader.read(response.body) { event in
        take(event)
        if let count = left { left = count - 1 }
        return left != 0
      }
      attempt.left = left
      if !wantsMore { end(.enough) }
    } catch {
      end(.unreadable("\(error)"))
    }
  }

  private func keepProblem(_ response: borrowing HTTP2ClientResponse) {
    response.body.withUnsafeBytes { problem += $0.prefix(max(Self.problemByteCountMax - problem.count, 0)) }
  }
}

/// The end of the pipeline: says why a connection did not come about, or was lost.
private final class LossHandler: ChannelInboundHandler {
  typealias InboundIn = Never

  private let delegate: WatchConnection
  private let usesTLS: Bool

  init(delegate: WatchConnection, usesTLS: Bool) {
    self.delegate = delegate
    self.usesTLS = usesTLS
  }

  func errorCaught(context: ChannelHandlerContext, error: any Error) {
    if let error = error as? TLSError, case .certificate(let reason) = error {
      delegate.end(.untrusted(reason))
    } else if error as? TLSError == .notTLS {
      delegate.end(.unreadable("\(TLSError.notTLS); of a port without TLS give an http:// URL"))
    } else {
      delegate.end(.lost(HTTP2Caller.reason(error)))
    }
    context.close(promise: nil)
  }

  func channelInactive(context: ChannelHandlerContext) {
    let hint = usesTLS || delegate.hasOpened ? "" : " (of a port with TLS give an https:// URL)"
    delegate.end(.lost("the connection was closed\(hint)"))
    context.fireChannelInactive()
  }
}
