internal import HTTP2Session
internal import NIOCore
internal import NIOPosix
internal import Operations
internal import ReceiptWire
internal import TLSSession

/// What a stream of messages delivers.
enum EtcdStreamEvent<Message> {
  case message(Message)
  /// Nothing more comes.
  case ended(EtcdFailure)
}

/// One HTTP/2 connection to one server, for unary calls and watches. It connects once; ``EtcdServers`` makes the next
/// one.
///
/// Not thread-safe: all calls are made on its event loop, and all results come back on it, later.
final class EtcdConnection {
  private enum Call {
    case unary(done: (Result<ByteBuffer, EtcdFailure>) -> Void, timeout: Scheduled<Void>)
    case stream(StreamCall)
  }

  /// An open stream of messages.
  private final class StreamCall {
    let receive: (EtcdStreamEvent<ByteBuffer>) -> Void
    var decoder: GRPCMessageDecoder
    /// Nil before it is sent.
    var handle: HTTP2StreamHandle?

    init(messageBytesMax: Int, receive: @escaping (EtcdStreamEvent<ByteBuffer>) -> Void) {
      self.receive = receive
      decoder = GRPCMessageDecoder(messageBytesMax: messageBytesMax)
    }
  }

  /// A call that waits for the connection.
  private struct Queued {
    var tag: UInt64
    var method: EtcdMethod
    var body: ByteBuffer
  }

  private enum State {
    /// Becomes ready with the server's SETTINGS, or closed.
    case connecting([Queued])
    /// Becomes closed.
    case ready
    /// For good.
    case closed
  }

  let endpoint: Endpoint
  private let eventLoop: any EventLoop
  private let configuration: EtcdConfiguration
  private let templates: EtcdTemplates
  private var http: HTTP2ClientConnection<EtcdConnection>?
  private var channel: (any Channel)?
  private var state = State.connecting([])
  private var calls: [UInt64: Call] = [:]
  private var lastTag: UInt64 = 0
  private var timer: Scheduled<Void>?
  /// Bytes received when the connection was last seen idle.
  private var bytesSeen: UInt64 = 0
  private var awaitsPing = false
  private let onClose: (EtcdConnection, EtcdFailure) -> Void

  /// - Parameter onClose: called once, before the open calls fail.
  init(
    endpoint: Endpoint,
    configuration: EtcdConfiguration,
    resources: HTTP2ClientResources,
    eventLoop: any EventLoop,
    onClose: @escaping (EtcdConnection, EtcdFailure) -> Void
  ) {
    self.endpoint = endpoint
    self.configuration = configuration
    self.eventLoop = eventLoop
    self.onClose = onClose
    templates = EtcdTemplates(endpoint: endpoint, configuration: configuration)
    http = HTTP2ClientConnection(delegate: self, resources: resources)
    timer = schedule(after: configuration.connectTimeout) {
      $0.close(.unreachable("no answer within \(configuration.connectTimeout.nanoseconds / 1_000_000) ms"))
    }
    connect()
  }

  /// Bytes of HTTP/2 received and sent so far.
  var byteCounts: (received: UInt64, sent: UInt64) {
    http.map { ($0.counters.bytesIn, $0.counters.bytesOut) } ?? (0, 0)
  }

  var isReady: Bool {
    if case .ready = state { true } else { false }
  }

  // MARK: Calls

  /// Make a unary call.
  func call(_ method: EtcdMethod, _ body: ByteBuffer, done: @escaping (Result<ByteBuffer, EtcdFailure>) -> Void) {
    lastTag += 1
    let tag = lastTag
    let timeout = schedule(after: configuration.callTimeout) { $0.timedOut(tag) }
    calls[tag] = .unary(done: done, timeout: timeout)
    send(Queued(tag: tag, method: method, body: body))
  }

  /// Open a stream of messages with a first request.
  ///
  /// - Returns: a tag for ``cancel(_:)``.
  func open(
    _ method: EtcdMethod,
    _ body: ByteBuffer,
    receive: @escaping (EtcdStreamEvent<ByteBuffer>) -> Void
  ) -> UInt64 {
    lastTag += 1
    let stream = StreamCall(messageBytesMax: configuration.responseBytesMax, receive: receive)
    calls[lastTag] = .stream(stream)
    send(Queued(tag: lastTag, method: method, body: body))
    return lastTag
  }

  /// Cancel a stream. Nothing more comes from it.
  func cancel(_ tag: UInt64) {
    guard case .stream(let stream) = calls.removeValue(forKey: tag) else { return }
    if let handle = stream.handle { http?.cancel(handle) }
  }

  private func send(_ call: Queued) {
    switch state {
    case .connecting(let queued): state = .connecting(queued + [call])
    case .ready: submit(call)
    case .closed: later { $0.fail(call.tag, .connectionLost) }
    }
  }

  private func submit(_ call: Queued) {
    guard let kind = calls[call.tag] else { return }
    let isStream = if case .stream = kind { true } else { false }
    let handle = http?.submit(
      isStream ? templates.stream : templates.unary,
      path: call.method.path,
      body: call.body,
      tag: call.tag,
      streaming: isStream,
      hasMoreBody: isStream
    )
    guard let handle else {
      // The server is shutting down.
      later { $0.close(.connectionLost) }
      return
    }
    if case .stream(let stream) = kind { stream.handle = handle }
    http?.flushIfNeeded()
  }

  private func timedOut(_ tag: UInt64) {
    guard calls[tag] != nil else { return }
    fail(tag, .timedOut)
    // A server that does not answer one call does not answer the others.
    close(.timedOut)
  }

  private func fail(_ tag: UInt64, _ failure: EtcdFailure) {
    switch calls.removeValue(forKey: tag) {
    case .unary(let done, let timeout):
      timeout.cancel()
      done(.failure(failure))
    case .stream(let stream): stream.receive(.ended(failure))
    case nil: break
    }
  }

  // MARK: Connection

  private func connect() {
    let bound = NIOLoopBound(self, eventLoop: eventLoop)
    let (endpoint, tls) = (endpoint, configuration.tls)
    ClientBootstrap(group: eventLoop)
      .connectTimeout(configuration.connectTimeout)
      .channelOption(.tcpOption(.tcp_nodelay), value: 1)
      .channelInitializer { channel in
        channel.eventLoop.makeCompletedFuture {
          let connection = bound.value
          // Closed before the socket was there.
          guard let http = connection.http else { throw ChannelError.alreadyClosed }
          let pipeline = channel.pipeline.syncOperations
          if let tls { try pipeline.addHandler(TLSHandler(context: tls, serverName: endpoint.host)) }
          try pipeline.addHandler(http)
          try pipeline.addHandler(EtcdErrorHandler(connection: connection))
        }
      }
      .connect(host: endpoint.host, port: endpoint.port)
      .whenComplete { result in bound.value.connected(result) }
  }

  private func connected(_ result: Result<any Channel, any Error>) {
    switch result {
    case .failure(let error): close(.unreachable("\(error)"))
    case .success(let channel): if case .closed = state { channel.close(promise: nil) } else { self.channel = channel }
    }
  }

  /// An error of the socket, of TLS or of HTTP/2. It closes the channel.
  fileprivate func failed(_ error: any Error) { close(isReady ? .connectionLost : .unreachable("\(error)")) }

  /// Close the connection, and fail its calls.
  func close(_ failure: EtcdFailure) {
    if case .closed = state { return }
    state = .closed
    timer?.cancel()
    // It reads the counters.
    onClose(self, failure)
    http = nil
    channel?.close(promise: nil)
    channel = nil
    for tag in calls.keys.sorted() { fail(tag, .connectionLost) }
  }

  // MARK: Idle connections

  /// Ping a server that sends nothing while calls are open; close the connection if it does not answer.
  private func checkIdle() {
    guard let http else { return }
    let bytes = http.counters.bytesIn
    if awaitsPing {
      close(.connectionLost)
    } else if bytes != bytesSeen || calls.isEmpty {
      bytesSeen = bytes
      scheduleIdleCheck(after: configuration.pingInterval)
    } else {
      http.ping()
      awaitsPing = true
      scheduleIdleCheck(after: configuration.pingTimeout)
    }
  }

  private func scheduleIdleCheck(after delay: TimeAmount) {
    timer = schedule(after: delay) { $0.checkIdle() }
  }

  private func schedule(after delay: TimeAmount, _ body: @escaping (EtcdConnection) -> Void) -> Scheduled<Void> {
    eventLoop.assumeIsolated().scheduleTask(in: delay) { [weak self] in
      if let self { body(self) }
    }
  }

  private func later(_ body: @escaping (EtcdConnection) -> Void) {
    eventLoop.assumeIsolated().execute { body(self) }
  }
}

extension EtcdConnection: HTTP2ClientDelegate {
  func http2ConnectionReady(_ connection: HTTP2ClientConnection<EtcdConnection>) {
    guard case .connecting(let queued) = state else { return }
    state = .ready
    timer?.cancel()
    scheduleIdleCheck(after: configuration.pingInterval)
    for call in queued { submit(call) }
  }

  func http2ReadComplete(on connection: HTTP2ClientConnection<EtcdConnection>) {
    // Whatever arrives answers a PING.
    guard awaitsPing else { return }
    awaitsPing = false
    timer?.cancel()
    scheduleIdleCheck(after: configuration.pingInterval)
  }

  func http2ConnectionClosed(_ connection: HTTP2ClientConnection<EtcdConnection>) {
    close(isReady ? .connectionLost : .unreachable("the server has closed the connection"))
  }

  func http2StreamFailed(tag: UInt64, errorCode: UInt32, on connection: HTTP2ClientConnection<EtcdConnection>) {
    fail(tag, .reset(errorCode))
  }

  func http2ResponsePart(
    tag: UInt64,
    response: borrowing HTTP2ClientResponse,
    on connection: HTTP2ClientConnection<EtcdConnection>
  ) {
    deliver(response.body, tag: tag)
  }

  func http2ResponseReceived(
    tag: UInt64,
    response: borrowing HTTP2ClientResponse,
    on connection: HTTP2ClientConnection<EtcdConnection>
  ) {
    let result = Self.result(response)
    switch calls[tag] {
    case .stream:
      deliver(response.body, tag: tag)
      switch result {
      case .success: fail(tag, .connectionLost)
      case .failure(let failure): fail(tag, failure)
      }
    case .unary(let done, let timeout):
      calls[tag] = nil
      timeout.cancel()
      done(result.flatMap { body in Self.content(body) })
    case nil: break
    }
  }

  /// Deliver the complete messages of a stream.
  private func deliver(_ bytes: RawSpan, tag: UInt64) {
    guard case .stream(let stream) = calls[tag] else { return }
    stream.decoder.append(bytes)
    do throws(EtcdWireError) {
      // The receiver may cancel the stream.
      while calls[tag] != nil, let message = try stream.decoder.next() { stream.receive(.message(message)) }
    } catch {
      if let handle = stream.handle { http?.cancel(handle) }
      fail(tag, .malformed(error))
    }
  }

  /// Return the body of a successful response. A response without a body has its status in the headers.
  private static func result(_ response: borrowing HTTP2ClientResponse) -> Result<ByteBuffer, EtcdFailure> {
    guard response.status == 200 else { return .failure(.httpStatus(response.status)) }
    let status: GRPCStatus
    do throws(EtcdWireError) {
      if let code = response.trailer("grpc-status") {
        status = try GRPCStatus(code: code, message: response.trailer("grpc-message"))
      } else {
        let code = response.header("grpc-status")?.withUnsafeBytes { Array($0) }
        let message = response.header("grpc-message")?.withUnsafeBytes { Array($0) }
        status = try GRPCStatus(code: code, message: message)
      }
    } catch {
      return .failure(.malformed(error))
    }
    guard status.code == GRPCStatus.ok else { return .failure(.status(status)) }
    var body = ByteBuffer()
    body.writeRaw(response.body)
    return .success(body)
  }

  private static func content(_ body: ByteBuffer) -> Result<ByteBuffer, EtcdFailure> {
    do throws(EtcdWireError) {
      return .success(try GRPCMessage.only(in: body))
    } catch {
      return .failure(.malformed(error))
    }
  }
}

/// Headers of the calls to one server.
private final class EtcdTemplates {
  let unary: HTTP2RequestTemplate
  let stream: HTTP2RequestTemplate

  init(endpoint: Endpoint, configuration: EtcdConfiguration) {
    func template(_ headers: [(name: String, value: String)]) -> HTTP2RequestTemplate {
      HTTP2RequestTemplate(
        method: .post,
        scheme: configuration.tls == nil ? "http" : "https",
        authority: "\(endpoint)",
        contentType: "application/grpc",
        // A server without a leader refuses the call, and ends watches, instead of waiting for one.
        headers: [("te", "trailers"), ("hasleader", "true")] + headers
      )
    }
    let milliseconds = max(1, configuration.callTimeout.nanoseconds / 1_000_000)
    unary = template([("grpc-timeout", "\(milliseconds)m")])
    stream = template([])
  }
}

/// Last handler of a connection's channel: reports errors.
private final class EtcdErrorHandler: ChannelInboundHandler {
  typealias InboundIn = ByteBuffer

  private weak var connection: EtcdConnection?

  init(connection: EtcdConnection) { self.connection = connection }

  func errorCaught(context: ChannelHandlerContext, error: any Error) {
    connection?.failed(error)
    context.close(promise: nil)
  }
}
