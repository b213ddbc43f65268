package import GatewayClient
internal import HTTP2Session
internal import NIOCore
internal import Operations
package import TLSSession

/// Subscription of a watch.
package struct WatchRequest: Hashable, Sendable {
  /// User whose events are wanted; nil if a server watches channels.
  package var user: String?
  /// Channels to watch; empty: all of the user's.
  package var channels: [String]
  package var wantsTotals: Bool

  package init(user: String? = nil, channels: [String] = [], wantsTotals: Bool = false) {
    self.user = user
    self.channels = channels
    self.wantsTotals = wantsTotals
  }

  /// `:path`, with the query.
  package var path: String {
    var query: [String] = []
    if let user { query.append("user_id=\(user.queryEscaped)") }
    if !channels.isEmpty { query.append("channels=\(channels.map(\.queryEscaped).joined(separator: ","))") }
    if wantsTotals { query.append("totals=true") }
    return "/v1/events" + (query.isEmpty ? "" : "?" + query.joined(separator: "&"))
  }
}

/// Client that follows `GET /v1/events` of a gateway and reconnects as needed.
package struct EventWatch: Sendable {
  private let gateway: GatewayURL
  private let tls: TLSContext?
  private let request: WatchRequest
  private let token: @Sendable () async throws -> String
  /// Number of events to receive; nil: unlimited.
  package var countMax: Int?
  /// A connection without a byte for this long counts as lost: the gateway sends a comment every 15 s.
  package var silenceMax = Duration.seconds(45)
  /// Called on the connection's event loop each time a stream has begun: events from now on will arrive.
  package var opened: @Sendable () -> Void = {}

  /// - Parameters:
  ///   - tls: for a gateway with TLS.
  ///   - token: called before each connection.
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

  /// Pass each event to `receive`, and messages for a person to `note`, until the wanted number of events has arrived.
  /// `receive` is called on the connection's event loop and may block: unread events wait at the gateway.
  ///
  /// - Parameter since: event id to resume from; empty: from now on.
  /// - Throws: ``WatchError`` if the gateway refuses the request; the error of the task's cancellation.
  package func run(
    since: String = "",
    receive: @escaping @Sendable (StreamedEvent) -> Void,
    note: @escaping @Sendable (String) -> Void
  ) async throws {
    var policy = WatchRetryPolicy()
    var attempt = Attempt(reader: EventStreamReader(lastEventID: since), remaining: countMax)
    var lastEventID: String { attempt.reader.lastEventID }
    var retryMilliseconds: Int?
    defer { if !lastEventID.isEmpty { note("the last event's id is \(lastEventID)") } }
    while true {
      attempt = Attempt(reader: EventStreamReader(lastEventID: lastEventID), remaining: attempt.remaining)
      let end: WatchEnd
      (attempt, end) = try await connect(attempt, receive)
      try Task.checkCancellation()
      retryMilliseconds = attempt.reader.retryMilliseconds ?? retryMilliseconds
      switch policy.ended(end, hasOpened: attempt.hasOpened, retryMilliseconds: retryMilliseconds) {
      case .stop: return
      case .fail(let reason): throw WatchError(description: reason)
      case .retry(let milliseconds, let reason):
        let place = lastEventID.isEmpty ? "" : ", from \(lastEventID) on"
        note("\(reason); reconnecting in \(Self.seconds(milliseconds)) s\(place)")
        try await Task.sleep(for: .milliseconds(milliseconds))
      }
    }
  }

  private static func seconds(_ milliseconds: Int) -> String {
    let tenths = (milliseconds + 50) / 100
    return tenths % 10 == 0 ? "\(tenths / 10)" : "\(tenths / 10).\(tenths % 10)"
  }

  /// Connect and follow the stream to its end. Cancellation closes the connection.
  private func connect(
    _ attempt: Attempt,
    _ receive: @escaping @Sendable (StreamedEvent) -> Void
  ) async throws -> AttemptResult {
    let token = try await token()
    let silenceMax = TimeAmount(silenceMax)
    let (gateway, tls, path, opened) = (gateway, tls, request.path, opened)
    let channel: any Channel
    let connection: NIOLoopBound<HTTP2ClientConnection<WatchConnection>>
    do {
      (channel, connection) = try await HTTP2ClientConnection.connect(to: gateway.endpoint, tls: tls) { channel in
        WatchConnection(
          attempt,
          template: gateway.requestTemplate(
            .get,
            token: token,
            headers: [("accept", "text/event-stream"), ("last-event-id", attempt.reader.lastEventID)]
          ),
          path: path,
          silenceMax: silenceMax,
          channel: channel,
          opened: opened,
          receive: receive
        )
      } makeErrorHandler: { delegate in
        ConnectionLossHandler(delegate: delegate, usesTLS: gateway.isTLS)
      }
    } catch {
      return (attempt, .lost("\(gateway.endpoint): \(ErrorText.of(error))"))
    }
    // The connection may already be over; its result has been kept.
    let result = try await withTaskCancellationHandler {
      try await channel.eventLoop.flatSubmit { connection.value.delegate.start() }.get()
    } onCancel: {
      channel.close(promise: nil)
    }
    try? await channel.close().get()
    return result
  }
}

/// Permanent refusal by the gateway, for the person at the terminal.
package struct WatchError: Error, Hashable, CustomStringConvertible {
  package var description: String
}

/// State of a watch during one connection.
private struct Attempt: Sendable {
  var reader: EventStreamReader
  /// Number of events still wanted; nil: unlimited.
  var remaining: Int?
  var hasOpened = false
}

private typealias AttemptResult = (attempt: Attempt, end: WatchEnd)

/// Delegate of one connection. Used only on its event loop.
private final class WatchConnection: HTTP2ClientDelegate {
  /// Upper bound of a problem document's size.
  private static let problemByteCountMax = 64 * 1024

  var hasOpened: Bool { attempt.hasOpened }

  private var attempt: Attempt
  private let template: HTTP2RequestTemplate
  private let path: String
  private let silenceMax: TimeAmount
  private let channel: any Channel
  private let opened: () -> Void
  private let receive: (StreamedEvent) -> Void
  /// Set by ``start()``.
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
    receive: @escaping (StreamedEvent) -> Void
  ) {
    self.attempt = attempt
    self.template = template
    self.path = path
    self.silenceMax = silenceMax
    self.channel = channel
    self.opened = opened
    self.receive = receive
  }

  /// Use this connection, and return its result.
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
    let result = (attempt, end)
    self.result = result
    promise?.succeed(result)
    channel.close(promise: nil)
  }

  func http2ConnectionReady(_ connection: HTTP2ClientConnection<WatchConnection>) {
    if connection.submit(template, path: path, tag: 0, streaming: true) == nil {
      end(.lost("the connection takes no requests"))
    }
    connection.flushIfNeeded()
  }

  func http2ResponsePart(
    tag: UInt64,
    response: borrowing HTTP2ClientResponse,
    on connection: HTTP2ClientConnection<WatchConnection>
  ) {
    waitForBytes()
    if response.status == 200 { read(response) } else { keepProblem(response) }
  }

  func http2ResponseReceived(
    tag: UInt64,
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

  func http2StreamFailed(tag: UInt64, errorCode: UInt32, on connection: HTTP2ClientConnection<WatchConnection>) {
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
    guard isStream else { return end(.unreadable("the response is not an event stream")) }
    if !attempt.hasOpened {
      attempt.hasOpened = true
      opened()
    }
    do throws(EventStreamReader.Failure) {
      var remaining = attempt.remaining
      let receive = receive
      let wantsMore = try attempt.reader.read(response.body) { event in
        receive(event)
        if let count = remaining { remaining = count - 1 }
        return remaining != 0
      }
      attempt.remaining = remaining
      if !wantsMore { end(.countReached) }
    } catch {
      end(.unreadable("\(error)"))
    }
  }

  private func keepProblem(_ response: borrowing HTTP2ClientResponse) {
    response.body.withUnsafeBytes { problem += $0.prefix(max(Self.problemByteCountMax - problem.count, 0)) }
  }
}

/// Last handler of the pipeline: reports why a connection failed or was lost.
private final class ConnectionLossHandler: ChannelInboundHandler {
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
      delegate.end(.lost(ErrorText.of(error)))
    }
    context.close(promise: nil)
  }

  func channelInactive(context: ChannelHandlerContext) {
    let hint = usesTLS || delegate.hasOpened ? "" : " (of a port with TLS give an https:// URL)"
    delegate.end(.lost("the connection was closed\(hint)"))
    context.fireChannelInactive()
  }
}

/// Reason for the end of one connection of a watch.
package enum WatchEnd: Hashable, Sendable {
  /// The wanted number of events has arrived.
  case countReached
  /// The stream ended normally: the gateway drains, or the token expired.
  case finished
  /// A status other than 200.
  case refused(status: Int, code: String, detail: String, retryAfterSeconds: Int?)
  /// The gateway's certificate is not accepted; a retry would not help.
  case untrusted(String)
  /// The connection failed or was lost.
  case lost(String)
  /// Not even a comment arrived for a while.
  case silent
  /// The response is not an event stream.
  case unreadable(String)
}

/// Retry policy of a watch: it continues as long as the gateway may accept it again.
package struct WatchRetryPolicy: Sendable {
  package enum Action: Hashable, Sendable {
    case stop
    /// Retry after this many milliseconds.
    case retry(afterMilliseconds: Int, because: String)
    case fail(String)
  }

  /// Default delay in milliseconds before the first retry.
  package static let delayDefault = 1_000
  /// Maximum delay in milliseconds. The delay doubles with each unsuccessful attempt.
  package static let delayMax = 30_000

  private var failedAttempts = 0

  package init() {}

  /// - Parameters:
  ///   - hasOpened: whether the connection was answered with 200.
  ///   - retryMilliseconds: reconnection delay that the stream has set.
  package mutating func ended(_ end: WatchEnd, hasOpened: Bool, retryMilliseconds: Int?) -> Action {
    failedAttempts = hasOpened ? 0 : failedAttempts + 1
    let first = min(max(retryMilliseconds ?? Self.delayDefault, 1), Self.delayMax)
    let delay = min(first << min(max(failedAttempts - 1, 0), 8), Self.delayMax)
    switch end {
    case .countReached: return .stop
    case .finished: return .retry(afterMilliseconds: delay, because: "the gateway ended the stream")
    case .lost(let reason): return .retry(afterMilliseconds: delay, because: reason)
    case .silent: return .retry(afterMilliseconds: delay, because: "timed out without events or comments")
    case .unreadable(let reason): return .fail(reason)
    case .untrusted(let reason):
      return .fail(
        "the gateway's certificate is not accepted (\(reason)): give the certificate of its authority with --ca FILE"
      )
    case .refused(let status, let code, let detail, let retryAfter):
      let words = ["\(status)", code, detail].filter { !$0.isEmpty }.joined(separator: " ")
      guard status == 429 || status == 502 || status == 503 || status == 504 || status == 408 else {
        return .fail("the gateway answered \(words)")
      }
      return .retry(
        afterMilliseconds: max(delay, min((retryAfter ?? 0), 3_600) * 1_000),
        because: "the gateway answered \(words)"
      )
    }
  }
}
