public import Foundation

#if canImport(FoundationNetworking)
  import FoundationNetworking
#endif

/// Requests with `URLSession`, which negotiates HTTP/2 over TLS.
///
/// Responses come by a delegate, because Linux has no other way to get a body while it arrives.
public final class URLSessionTransport: Transport {
  private let url: String
  private let sessions = Sessions()
  #if canImport(FoundationNetworking)
    /// Event streams have connections of their own on Linux.
    ///
    /// There `URLSession` never unregisters from the writability of a socket that it has connected, while a request
    /// uses it. A stream on such a connection costs half a core. So a short request connects, and when it has ended
    /// the stream is the only one on its connection.
    private let streams = Sessions()
  #endif

  /// Address a gateway, or the load balancer before it.
  ///
  /// - Parameter url: An address with `https`.
  public init(url: URL) {
    var text = url.absoluteString
    while text.hasSuffix("/") { text.removeLast() }
    self.url = text
  }

  deinit { close() }

  /// Perform a request.
  ///
  /// - Throws: `URLError`, or `CancellationError` if the task is cancelled.
  public func open(_ request: TransportRequest) async throws -> TransportResponse {
    #if canImport(FoundationNetworking)
      if request.headers["accept"] == "text/event-stream" {
        let connecting = TransportRequest(method: "HEAD", path: "/sdk/tidemark.d.ts", headers: [:])
        for try await _ in try await perform(connecting, streams).chunks {}
        return try await perform(request, streams)
      }
    #endif
    return try await perform(request, sessions)
  }

  private func perform(_ request: TransportRequest, _ sessions: Sessions) async throws -> TransportResponse {
    guard let address = URL(string: url + request.path) else { throw URLError(.badURL) }
    var sent = URLRequest(url: address)
    sent.httpMethod = request.method
    sent.httpBody = request.body
    for (name, value) in request.headers { sent.setValue(value, forHTTPHeaderField: name) }
    let (task, exchange) = try sessions.makeTask(sent)
    return try await withTaskCancellationHandler {
      try await withCheckedThrowingContinuation { continuation in
        if exchange.wait(continuation, cancel: { task.cancel() }) { task.resume() }
      }
    } onCancel: {
      exchange.finish(CancellationError())
      task.cancel()
    }
  }

  /// Drop all connections.
  public func reset() {
    sessions.reset()
    #if canImport(FoundationNetworking)
      streams.reset()
    #endif
  }

  /// Drop all connections, and refuse later requests.
  public func close() {
    sessions.close()
    #if canImport(FoundationNetworking)
      streams.close()
    #endif
  }
}

/// The session in use. `URLSession` can only drop its connections by being invalidated, and a task of an invalidated
/// session is a fatal error, so tasks are made under the lock that a reset takes.
///
/// `@unchecked`: every access to the variables is under the lock.
private final class Sessions: @unchecked Sendable {
  private let lock = NSLock()
  private var current: (session: URLSession, delegate: SessionDelegate)?
  private var isClosed = false

  /// Make a task that is not resumed yet.
  func makeTask(_ request: URLRequest) throws -> (URLSessionDataTask, Exchange) {
    try lock.withLock {
      guard !isClosed else { throw URLError(.cancelled) }
      let (session, delegate) = current ?? Self.makeSession()
      current = (session, delegate)
      let task = session.dataTask(with: request)
      return (task, delegate.makeExchange(task))
    }
  }

  private static func makeSession() -> (URLSession, SessionDelegate) {
    let configuration = URLSessionConfiguration.ephemeral
    configuration.requestCachePolicy = .reloadIgnoringLocalCacheData
    configuration.urlCache = nil
    configuration.httpCookieStorage = nil
    configuration.httpShouldSetCookies = false
    // Between two pieces of a response. Requests have a limit of their own, and event streams a watch.
    configuration.timeoutIntervalForRequest = 60
    let delegate = SessionDelegate()
    return (URLSession(configuration: configuration, delegate: delegate, delegateQueue: nil), delegate)
  }

  func reset() { drop(isLast: false) }

  func close() { drop(isLast: true) }

  private func drop(isLast: Bool) {
    let dropped = lock.withLock {
      defer { current = nil }
      isClosed = isClosed || isLast
      return current
    }
    // A session keeps its delegate until it is invalidated.
    dropped?.session.invalidateAndCancel()
    dropped?.delegate.failAll()
  }
}

/// Passes what a session tells to the exchanges.
///
/// `@unchecked`: `URLSession` calls on a queue of its own; every access to the variable is under the lock.
private final class SessionDelegate: NSObject, URLSessionDataDelegate, @unchecked Sendable {
  private let lock = NSLock()
  private var exchanges: [Int: Exchange] = [:]

  func makeExchange(_ task: URLSessionTask) -> Exchange {
    let exchange = Exchange()
    lock.withLock { exchanges[task.taskIdentifier] = exchange }
    return exchange
  }

  private func exchange(_ task: URLSessionTask) -> Exchange? { lock.withLock { exchanges[task.taskIdentifier] } }

  func failAll() {
    let failed = lock.withLock {
      defer { exchanges = [:] }
      return exchanges
    }
    for exchange in failed.values { exchange.finish(URLError(.networkConnectionLost)) }
  }

  func urlSession(
    _: URLSession,
    dataTask: URLSessionDataTask,
    didReceive response: URLResponse,
    completionHandler: @escaping @Sendable (URLSession.ResponseDisposition) -> Void
  ) {
    if let response = response as? HTTPURLResponse { exchange(dataTask)?.respond(response) }
    completionHandler(.allow)
  }

  func urlSession(_: URLSession, dataTask: URLSessionDataTask, didReceive data: Data) {
    exchange(dataTask)?.receive(data)
  }

  func urlSession(_: URLSession, task: URLSessionTask, didCompleteWithError error: (any Error)?) {
    lock.withLock { exchanges.removeValue(forKey: task.taskIdentifier) }?.finish(error)
  }

  /// A redirection is answered as it is, since a token must not go elsewhere.
  func urlSession(
    _: URLSession,
    task _: URLSessionTask,
    willPerformHTTPRedirection _: HTTPURLResponse,
    newRequest _: URLRequest,
    completionHandler: @escaping @Sendable (URLRequest?) -> Void
  ) {
    completionHandler(nil)
  }
}

/// A request and its response.
///
/// `@unchecked`: the delegate's queue, the caller and a cancellation meet here; every access to the state is under the
/// lock.
private final class Exchange: @unchecked Sendable {
  /// Pieces of a body that wait for a reader that is too slow; a piece has up to some 16 KiB on Linux.
  private static let waitingMax = 1_024

  private enum State {
    /// Becomes waiting or done.
    case made
    /// Becomes responding or done.
    case waiting(CheckedContinuation<TransportResponse, any Error>, cancel: @Sendable () -> Void)
    /// Becomes done.
    case responding(AsyncThrowingStream<Data, any Error>.Continuation)
    case done((any Error)?)
  }

  private let lock = NSLock()
  private var state = State.made

  /// Wait for the response.
  ///
  /// - Returns: false if the request has failed already.
  func wait(
    _ continuation: CheckedContinuation<TransportResponse, any Error>,
    cancel: @escaping @Sendable () -> Void
  ) -> Bool {
    let failure: (any Error)? = lock.withLock {
      if case .done(let error) = state { return error ?? URLError(.cancelled) }
      state = .waiting(continuation, cancel: cancel)
      return nil
    }
    if let failure { continuation.resume(throwing: failure) }
    return failure == nil
  }

  func respond(_ response: HTTPURLResponse) {
    let (chunks, body) = AsyncThrowingStream<Data, any Error>
      .makeStream(bufferingPolicy: .bufferingOldest(Self.waitingMax))
    let waiting: CheckedContinuation<TransportResponse, any Error>? = lock.withLock {
      guard case .waiting(let continuation, let cancel) = state else { return nil }
      body.onTermination = { _ in cancel() }
      state = .responding(body)
      return continuation
    }
    var headers: [String: String] = [:]
    for (name, value) in response.allHeaderFields {
      headers["\(name)".lowercased()] = "\(value)"
    }
    waiting?.resume(returning: TransportResponse(status: response.statusCode, headers: headers, chunks: chunks))
  }

  func receive(_ data: Data) {
    let body: AsyncThrowingStream<Data, any Error>.Continuation? = lock.withLock {
      guard case .responding(let body) = state else { return nil }
      return body
    }
    if case .dropped = body?.yield(data) { body?.finish(throwing: URLError(.dataLengthExceedsMaximum)) }
  }

  /// End the exchange; only the first end counts.
  func finish(_ error: (any Error)?) {
    let ended = lock.withLock {
      defer {
        if case .done = state {} else { state = .done(error) }
      }
      return state
    }
    switch ended {
    case .made, .done: break
    case .waiting(let continuation, _): continuation.resume(throwing: error ?? URLError(.badServerResponse))
    case .responding(let body): body.finish(throwing: error)
    }
  }
}
