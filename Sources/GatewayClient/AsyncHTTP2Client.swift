internal import Foundation
package import HTTP2Session
package import NIOCore
internal import NIOPosix
package import Operations
package import TLSSession

/// Complete HTTP response.
package struct HTTPCallResponse: Sendable {
  /// `:status`.
  package let status: Int
  /// `content-type`; empty without one.
  package let contentType: String
  /// The body's bytes.
  package let body: [UInt8]

  /// The body as text.
  package var text: String { String(decoding: body, as: UTF8.self) }
}

/// Reason why a call got no response.
package enum CallError: Error, Hashable, CustomStringConvertible {
  /// The connection is closed, or accepts no more requests.
  case closed
  /// Timed out without a response.
  case timedOut
  /// The stream was reset with that HTTP/2 error code.
  case reset(UInt32)

  package var description: String {
    switch self {
    case .closed: "the connection was closed"
    case .timedOut: "timed out"
    case .reset(let code): "the request was reset with HTTP/2 error code \(code)"
    }
  }
}

/// HTTP/2 connection with an async call, for setup and demonstration. Load tests do not use it.
package final class AsyncHTTP2Client: Sendable {
  /// Timeout of a call.
  package static let deadline = TimeAmount.seconds(20)

  private let channel: any Channel
  private let connection: NIOLoopBound<HTTP2ClientConnection<CallDelegate>>

  private init(_ channel: any Channel, _ connection: NIOLoopBound<HTTP2ClientConnection<CallDelegate>>) {
    self.channel = channel
    self.connection = connection
  }

  /// Connect over TLS if there is a context, else with prior knowledge (h2c).
  ///
  /// - Returns: a connection whose server has sent its SETTINGS.
  package static func connect(
    to endpoint: Endpoint,
    tls: TLSContext? = nil,
    eventLoop: any EventLoop = MultiThreadedEventLoopGroup.singleton.next()
  ) async throws -> AsyncHTTP2Client {
    let ready = eventLoop.makePromise(of: Void.self)
    let timeout = eventLoop.scheduleTask(in: .seconds(10)) { ready.fail(CallError.timedOut) }
    defer { timeout.cancel() }
    do {
      let (channel, connection) = try await HTTP2ClientConnection<CallDelegate>.connect(
        to: endpoint,
        tls: tls,
        eventLoop: eventLoop
      ) { _ in
        CallDelegate(ready, scheme: tls == nil ? "http" : "https", authority: "\(endpoint)")
      } makeErrorHandler: { _ in
        ConnectionErrorHandler { ready.fail($0) }
      }
      try await ready.futureResult.get()
      return AsyncHTTP2Client(channel, connection)
    } catch {
      ready.fail(error)
      throw error
    }
  }

  /// Make one call. Calls may overlap; each is sent at once.
  ///
  /// - Throws: ``CallError``.
  package func call(
    _ method: HTTP2Method,
    _ path: String,
    body: [UInt8]? = nil,
    token: String? = nil
  ) async throws -> HTTPCallResponse {
    let connection = connection
    let template = TemplateKey(
      method: method,
      authorization: token.map { "Bearer \($0)" } ?? "",
      contentType: body == nil ? "" : "application/json"
    )
    return try await channel.eventLoop.flatSubmit {
      connection.value.delegate.call(template, path: path, body: body ?? [], on: connection.value)
    }.get()
  }

  /// Close the connection.
  package func close() async {
    try? await channel.close().get()
  }
}

/// Header values that stay the same from call to call.
private struct TemplateKey: Hashable, Sendable {
  var method: HTTP2Method
  var authorization: String
  var contentType: String
}

/// Delegate that matches responses to calls. Used only on the event loop.
private final class CallDelegate: HTTP2ClientDelegate {
  private let ready: EventLoopPromise<Void>
  private let scheme: String
  private let authority: String
  private var waiting: [UInt64: (promise: EventLoopPromise<HTTPCallResponse>, deadline: Scheduled<Void>)] = [:]
  private var templates: [TemplateKey: HTTP2RequestTemplate] = [:]
  private var lastTag: UInt64 = 0

  init(_ ready: EventLoopPromise<Void>, scheme: String, authority: String) {
    self.ready = ready
    self.scheme = scheme
    self.authority = authority
  }

  func call(
    _ key: TemplateKey,
    path: String,
    body: [UInt8],
    on connection: HTTP2ClientConnection<CallDelegate>
  ) -> EventLoopFuture<HTTPCallResponse> {
    let eventLoop = ready.futureResult.eventLoop
    let promise = eventLoop.makePromise(of: HTTPCallResponse.self)
    let template =
      templates[key]
      ?? HTTP2RequestTemplate(
        method: key.method,
        scheme: scheme,
        authority: authority,
        authorization: key.authorization,
        contentType: key.contentType
      )
    templates[key] = template
    lastTag += 1
    let tag = lastTag
    let handle = connection.submit(template, path: path, body: ByteBuffer(bytes: body), tag: tag)
    guard let handle else {
      promise.fail(CallError.closed)
      return promise.futureResult
    }
    let bound = NIOLoopBound((self, connection), eventLoop: eventLoop)
    let deadline = eventLoop.scheduleTask(in: AsyncHTTP2Client.deadline) {
      let (delegate, connection) = bound.value
      delegate.waiting.removeValue(forKey: tag)?.promise.fail(CallError.timedOut)
      connection.cancel(handle)
    }
    waiting[tag] = (promise, deadline)
    connection.flushIfNeeded()
    return promise.futureResult
  }

  func http2ConnectionReady(_ connection: HTTP2ClientConnection<CallDelegate>) { ready.succeed() }

  func http2ResponseReceived(
    tag: UInt64,
    response: borrowing HTTP2ClientResponse,
    on connection: HTTP2ClientConnection<CallDelegate>
  ) {
    guard let (promise, deadline) = waiting.removeValue(forKey: tag) else { return }
    deadline.cancel()
    let body = response.body.withUnsafeBytes { [UInt8]($0) }
    let contentType = response.contentType.withUnsafeBytes { String(decoding: $0, as: UTF8.self) }
    promise.succeed(HTTPCallResponse(status: response.status, contentType: contentType, body: body))
  }

  func http2StreamFailed(tag: UInt64, errorCode: UInt32, on connection: HTTP2ClientConnection<CallDelegate>) {
    fail(tag, connection.isUsable ? .reset(errorCode) : .closed)
  }

  func http2ConnectionClosed(_ connection: HTTP2ClientConnection<CallDelegate>) {
    ready.fail(CallError.closed)
    for tag in waiting.keys { fail(tag, .closed) }
  }

  private func fail(_ tag: UInt64, _ error: CallError) {
    guard let (promise, deadline) = waiting.removeValue(forKey: tag) else { return }
    deadline.cancel()
    promise.fail(error)
  }
}

/// Code and detail of an `application/problem+json` response.
package enum ProblemDocument {
  private struct Document: Decodable {
    var code: String?
    var detail: String?
  }

  /// Parse a body's code and detail; empty if they are missing or the body is not such a document.
  package static func parts(of body: [UInt8]) -> (code: String, detail: String) {
    let document = try? JSONDecoder().decode(Document.self, from: Data(body))
    return (document?.code ?? "", document?.detail ?? "")
  }
}

/// URL of a gateway: `https://HOST[:PORT]`, or `http://HOST[:PORT]` for h2c.
package struct GatewayURL: Hashable, Sendable {
  package var endpoint: Endpoint
  package var isTLS: Bool

  /// Parse a URL; nil if it is invalid or has a path other than `/`.
  package init?(_ text: String) {
    guard let url = HTTPURL(text), url.path == "/", url.endpoint.port > 0 else { return nil }
    endpoint = url.endpoint
    isTLS = url.usesTLS
  }
}

extension String {
  private static let queryCharacters = CharacterSet(
    charactersIn: "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-._~:@!"
  )

  /// The text as a value of a URL's query, or as one of several values between commas: percent-encoded UTF-8
  /// (RFC 3986, section 3.4).
  package var queryEscaped: String { addingPercentEncoding(withAllowedCharacters: Self.queryCharacters) ?? "" }
}
