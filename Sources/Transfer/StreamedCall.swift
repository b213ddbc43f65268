package import GatewayClient
package import HTTP2Session
package import NIOCore
internal import Operations
package import TLSSession

/// Why a streamed call ended early.
package struct TransferError: Error, Hashable, CustomStringConvertible {
  package var description: String
  /// Whether another attempt may succeed.
  package var mayRetry: Bool

  package init(_ description: String, mayRetry: Bool = false) {
    self.description = description
    self.mayRetry = mayRetry
  }
}

/// One request to a gateway whose body and response are streamed at the same time.
package struct StreamedCall: Sendable {
  /// Bytes of the body that are queued for the server's windows; further ones are not read before.
  private static let queuedBytesMax = 512 << 10
  /// A connection without a byte for this long counts as lost.
  private static let silenceMax = TimeAmount.seconds(60)

  package var gateway: GatewayURL
  package var tls: TLSContext?
  package var method: HTTP2Method
  package var path: String
  package var token: String

  package init(gateway: GatewayURL, tls: TLSContext?, method: HTTP2Method, path: String, token: String) {
    self.gateway = gateway
    self.tls = tls
    self.method = method
    self.path = path
    self.token = token
  }

  /// Make the call. Both closures run on the connection's event loop and may block: the peer then waits.
  ///
  /// - Parameters:
  ///   - body: returns the next piece of the body; nil: it has ended.
  ///   - receive: receives the bytes of a 200's body in order. An error ends the call.
  /// - Throws: ``TransferError``, and what the closures throw.
  package func run(
    body: @escaping @Sendable () throws -> ByteBuffer?,
    receive: @escaping @Sendable (RawSpan) throws -> Void
  ) async throws {
    let call = self
    let channel: any Channel
    let connection: NIOLoopBound<HTTP2ClientConnection<CallConnection>>
    do {
      (channel, connection) = try await HTTP2ClientConnection.connect(to: gateway.endpoint, tls: tls) { channel in
        CallConnection(call, channel: channel, body: body, receive: receive)
      } makeErrorHandler: { delegate in
        ConnectionErrorHandler { delegate.end(TransferError(ErrorText.of($0), mayRetry: !($0 is TLSError))) }
      }
    } catch {
      throw TransferError("\(gateway.endpoint): \(ErrorText.of(error))", mayRetry: true)
    }
    let end = try await withTaskCancellationHandler {
      try await channel.eventLoop.flatSubmit { connection.value.delegate.start(silenceMax: Self.silenceMax) }.get()
    } onCancel: {
      channel.close(promise: nil)
    }
    try? await channel.close().get()
    try Task.checkCancellation()
    if let end { throw end }
  }

  fileprivate static func mayQueueMore(_ queued: Int) -> Bool { queued < queuedBytesMax }
}

/// Delegate of one connection. Used only on its event loop.
private final class CallConnection: HTTP2ClientDelegate {
  private static let problemByteCountMax = 64 * 1024
  private static let pollInterval = TimeAmount.milliseconds(20)

  private let path: String
  private let template: HTTP2RequestTemplate
  private let hasBody: Bool
  private let channel: any Channel
  private let body: () throws -> ByteBuffer?
  private let receive: (RawSpan) throws -> Void
  private var promise: EventLoopPromise<(any Error)?>?
  /// Outer nil: not ended; inner nil: the response is complete.
  private var result: (any Error)??
  private var handle: HTTP2StreamHandle?
  private var hasEndedBody = false
  private var problem: [UInt8] = []
  private var silence: Scheduled<Void>?

  init(
    _ call: StreamedCall,
    channel: any Channel,
    body: @escaping () throws -> ByteBuffer?,
    receive: @escaping (RawSpan) throws -> Void
  ) {
    path = call.path
    hasBody = call.method == .post
    template = call.gateway.requestTemplate(
      call.method,
      token: call.token,
      contentType: hasBody ? "application/x-ndjson" : ""
    )
    self.channel = channel
    self.body = body
    self.receive = receive
  }

  /// Use this connection, and return its result: nil if the response is complete.
  func start(silenceMax: TimeAmount) -> EventLoopFuture<(any Error)?> {
    if let result { return channel.eventLoop.makeSucceededFuture(result) }
    let promise = channel.eventLoop.makePromise(of: (any Error)?.self)
    self.promise = promise
    self.silenceMax = silenceMax
    waitForBytes()
    return promise.futureResult
  }

  private var silenceMax = TimeAmount.seconds(60)

  private func waitForBytes() {
    silence?.cancel()
    guard promise != nil, result == nil else { return }
    let bound = NIOLoopBound(self, eventLoop: channel.eventLoop)
    silence = channel.eventLoop.scheduleTask(in: silenceMax) {
      bound.value.end(TransferError("timed out: the gateway has sent nothing for a minute", mayRetry: true))
    }
  }

  func end(_ error: (any Error)?) {
    silence?.cancel()
    guard result == nil else { return }
    result = .some(error)
    promise?.succeed(error)
    channel.close(promise: nil)
  }

  // MARK: Body

  private func sendBody(_ connection: HTTP2ClientConnection<CallConnection>) {
    guard hasBody, result == nil, let handle, !hasEndedBody else { return }
    do {
      while let queued = connection.queuedBytes(handle), StreamedCall.mayQueueMore(queued) {
        guard let piece = try body() else {
          hasEndedBody = true
          connection.finish(handle)
          break
        }
        connection.write(handle, piece)
      }
      connection.flushIfNeeded()
    } catch {
      end(error)
    }
  }

  /// Send more where no bytes of the server have shown that there is room.
  private func poll(_ connection: HTTP2ClientConnection<CallConnection>) {
    guard result == nil, !hasEndedBody else { return }
    sendBody(connection)
    let bound = NIOLoopBound((self, connection), eventLoop: channel.eventLoop)
    channel.eventLoop.scheduleTask(in: Self.pollInterval) { bound.value.0.poll(bound.value.1) }
  }

  // MARK: Connection

  func http2ConnectionReady(_ connection: HTTP2ClientConnection<CallConnection>) {
    handle = connection.submit(template, path: path, tag: 0, streaming: true, hasMoreBody: hasBody)
    if handle == nil { end(TransferError("the connection takes no requests", mayRetry: true)) }
    connection.flushIfNeeded()
    poll(connection)
  }

  func http2ReadComplete(on connection: HTTP2ClientConnection<CallConnection>) {
    waitForBytes()
    sendBody(connection)
  }

  func http2ResponsePart(
    tag: UInt64,
    response: borrowing HTTP2ClientResponse,
    on connection: HTTP2ClientConnection<CallConnection>
  ) {
    read(response)
  }

  func http2ResponseReceived(
    tag: UInt64,
    response: borrowing HTTP2ClientResponse,
    on connection: HTTP2ClientConnection<CallConnection>
  ) {
    read(response)
    guard response.status != 200 else { return end(nil) }
    let (code, detail) = ProblemDocument.parts(of: problem)
    let words = ["\(response.status)", code, detail].filter { !$0.isEmpty }.joined(separator: " ")
    let mayRetry = [408, 429, 502, 503, 504].contains(response.status)
    end(TransferError("the gateway answered \(words)", mayRetry: mayRetry))
  }

  func http2StreamFailed(tag: UInt64, errorCode: UInt32, on connection: HTTP2ClientConnection<CallConnection>) {
    end(TransferError("the stream was reset with HTTP/2 error code \(errorCode)", mayRetry: true))
  }

  func http2ConnectionClosed(_ connection: HTTP2ClientConnection<CallConnection>) {
    end(TransferError("the connection was closed", mayRetry: true))
  }

  private func read(_ response: borrowing HTTP2ClientResponse) {
    guard result == nil, response.body.byteCount > 0 else { return }
    guard response.status == 200 else {
      return response.body.withUnsafeBytes {
        problem += $0.prefix(max(Self.problemByteCountMax - problem.count, 0))
      }
    }
    do { try receive(response.body) } catch { end(error) }
  }
}
