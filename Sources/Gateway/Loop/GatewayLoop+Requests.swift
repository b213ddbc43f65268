package import HTTP2Session
internal import NIOCore
internal import Operations
internal import ReceiptModel
internal import StoreClient

/// Requests of clients, from HTTP/2 to their routes.
extension GatewayLoop: HTTP2ServerDelegate {
  /// Check the token before the body arrives.
  package func http2RequestAnnounced(
    _ stream: HTTP2StreamHandle,
    on connection: HTTP2ServerConnection<GatewayLoop>
  ) -> Bool {
    let index = connection.tableIndex
    return connection.withHeaders(stream) { self.authentication.acceptsBody($0, index, stream) } ?? true
  }

  /// Handle a request: answer it at once, or queue it for the store or for token verification.
  package func http2RequestReceived(_ stream: HTTP2StreamHandle, on connection: HTTP2ServerConnection<GatewayLoop>) {
    var admission = RequestAdmission()
    do throws(Problem) {
      _ = try connection.withRequest(stream) { request throws(Problem) in
        try self.receive(request, caller: nil, stream: stream, connection: connection, admission: &admission)
      }
    } catch {
      answer(
        rates.chargeRefused(error, stream: stream, connection: connection, admission: admission),
        route: admission.route,
        stream: stream,
        connection: connection
      )
    }
  }

  /// Flush the read's requests to the store at the end of the turn. It flushes now if they are enough to keep the
  /// store busy while this loop reads its other connections.
  package func http2ReadComplete(on connection: HTTP2ServerConnection<GatewayLoop>) {
    if store.queuedBytes >= Self.flushBytes { flushStore() }
    endTurnSoon()
  }

  /// The size of some 100 marks.
  private static let flushBytes = 8 << 10

  /// Remove an aborted event stream or streamed request, and cancel a request that waits.
  package func http2StreamAborted(_ stream: HTTP2StreamHandle, on connection: HTTP2ServerConnection<GatewayLoop>) {
    waitingRequests.cancel(stream)
    authentication.cancel(stream)
    // A long-lived stream cancels its own entries when it is removed.
    openStreams.aborted(stream)
  }

  /// Handle new bytes, or the end, of a streamed body.
  package func http2RequestBodyReceived(
    _ stream: HTTP2StreamHandle,
    on connection: HTTP2ServerConnection<GatewayLoop>
  ) {
    streams.bodyReceived(stream)
  }

  /// Continue an event stream, or a streamed request, that can write again.
  package func http2StreamDrained(_ stream: HTTP2StreamHandle, on connection: HTTP2ServerConnection<GatewayLoop>) {
    openStreams.drained(stream)
  }

  /// Remove a closed connection. Replies to its requests find no stream and are dropped.
  package func http2ConnectionClosed(_ connection: HTTP2ServerConnection<GatewayLoop>) {
    if connection.hasFailed { rates.recordEnd(connection.tableIndex) }
    connections.remove(connection)
    counters.connectionClosed(connection.counters)
    // A connection that failed during a read gets no `http2ReadComplete`.
    endTurnSoon()
    connectionRemoved()
  }

  /// Register a new connection before it is active.
  ///
  /// - Parameters:
  ///   - client: its address; nil where that is no IP address.
  ///   - isNamed: whether a PROXY header named the client.
  func connectionOpened(from client: PeerAddress?, isNamed: Bool = false) -> HTTP2ServerConnection<GatewayLoop> {
    let connection = HTTP2ServerConnection(delegate: self, resources: resources)
    let index = connections.insert(connection)
    counters.connectionOpened()
    rates.recordClient(index, client: client, isNamed: isNamed, connection)
    return connection
  }

  /// Perform the checks that all routes share, in the order in which they are answered: 431, 404, 405, 401,
  /// 503 `overloaded`, 429, 403, 503 `authentication_busy` (a refused body), 413, 415, 503 `store_busy` (queries), 501.
  ///
  /// - Parameter caller: known if the request has waited for its token or as a batch.
  func receive(
    _ request: borrowing HTTP2Request,
    caller known: Caller?,
    stream: HTTP2StreamHandle,
    connection: HTTP2ServerConnection<GatewayLoop>,
    admission: inout RequestAdmission
  ) throws(Problem) {
    if request.headersTooLarge { throw Problem(.headersTooLarge) }
    if !origins.isEmpty, origins.isPreflight(request) {
      return try answerPreflight(request, stream: stream, connection: connection)
    }
    let match = try match(request)
    admission.route = match.route
    let index = connection.tableIndex
    let caller: Caller
    if let known {
      caller = known
    } else if let found = try authentication.authenticate(request, match, connection: index, stream: stream) {
      caller = found
    } else {
      return
    }
    // A request that has waited was admitted before, and is charged since.
    if !admission.hasWaited {
      let share = !caller.isServer && caller.userID.isEmpty ? 0 : caller.key
      switch connection.admit(stream, for: share, responseBytes: match.route.responseBytes) {
      case .admitted: break
      case .connectionIsOverLimit: throw Problem(.overloaded)
      case .callerIsOverShare: return connection.reset(stream, .refusedStream)
      }
    }
    if rates.isOn {
      try rates.chargeRates(match.route, caller, request, stream: stream, connection: connection, admission: &admission)
    }
    try checkBody(request, match.route, caller)
    let address = request.bodyStreams && rates.isOn ? rates.client(request, index) : nil
    let context = RequestContext(
      route: match.route,
      caller: caller,
      connection: index,
      stream: stream,
      address: address,
      hasWaited: admission.hasWaited
    )
    if match.route.isPageQuery, try !waitingRequests.beginOrEnqueuePageQuery(context) { return }
    try dispatch(match, context, request)
  }

  /// Find the route of a request. The console calls the API below `/console`.
  @inline(__always)
  @_lifetime(borrow request)
  func match(_ request: borrowing HTTP2Request) throws(Problem) -> RouteMatch {
    let path = request.path
    let isOfConsole = isOfConsole(path)
    let pathOfAPI = isOfConsole ? path.extracting(Self.consolePath.utf8CodeUnitCount..<path.byteCount) : path
    return _overrideLifetime(try router.match(request.method, pathOfAPI, scratch), borrowing: request)
  }

  private static let consolePath: StaticString = "/console"

  /// Return whether a path is the console's own way to the API.
  @inline(__always)
  func isOfConsole(_ path: RawSpan) -> Bool {
    let prefix: StaticString = "/console/v1/"
    guard console != nil, path.byteCount > prefix.utf8CodeUnitCount else { return false }
    return path.extracting(0..<prefix.utf8CodeUnitCount).equals(prefix)
  }

  /// Answer a CORS preflight, which has no route.
  private func answerPreflight(
    _ request: borrowing HTTP2Request,
    stream: HTTP2StreamHandle,
    connection: HTTP2ServerConnection<GatewayLoop>
  ) throws(Problem) {
    if rates.isOn { try rates.chargeAddress(request, stream: stream, connection: connection) }
    connection.respond(stream, status: 204, headers: CrossOrigins.preflightHeaders)
    counters.answered(nil, status: 204)
  }

  /// Check that the caller may use the route, with a body that HTTP/2 has taken.
  @inline(__always)
  private func checkBody(_ request: borrowing HTTP2Request, _ route: Route, _ caller: Caller) throws(Problem) {
    if route.callers == .server && !caller.isServer { throw Problem(.serverTokenRequired) }
    // The body was refused, but the token is valid after all: a key was added meanwhile.
    if request.bodyRefused { throw Problem(.authenticationBusy) }
    if request.bodyTooLarge {
      throw Problem(.bodyTooLarge, "the body may have at most \(resources.limits.bodyBytesMax) bytes")
    }
    // The body has not arrived: a route that reads it whole would find it empty.
    if request.bodyStreams && !route.streams(request.contentType) {
      throw Problem(.contentTypeNotSupported)
    }
  }

  /// Handle a request again that has waited as a batch or as a query.
  func resumeRequest(_ stream: HTTP2StreamHandle, _ connection: HTTP2ServerConnection<GatewayLoop>, caller: Caller) {
    var admission = RequestAdmission(hasWaited: true)
    do throws(Problem) {
      guard caller.expiresAt > now else { throw Problem(.tokenExpired) }
      _ = try connection.withRequest(stream) { request throws(Problem) in
        try self.receive(request, caller: caller, stream: stream, connection: connection, admission: &admission)
      }
    } catch {
      answer(error, route: admission.route, stream: stream, connection: connection)
    }
  }
}
