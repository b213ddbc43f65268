internal import CMalloc
package import HTTP2Session
package import NIOCore
internal import NIOPosix
internal import Operations
internal import ReceiptModel
internal import ReceiptWire
package import StoreClient

/// One event loop of the gateway: its connections, its store client and its pending requests. The features with state
/// of their own are its ``parts``. Mutable state is not shared between loops.
///
/// A request's path: `http2RequestReceived` → route → caller → a frame in the store client's buffer, flushed once at
/// the end of the loop's turn. The response's path: `storeReplied` → the stream's own buffer, flushed once per
/// connection at the end of the store's read.
package final class GatewayLoop {
  let eventLoop: any EventLoop
  let shared: SharedServices
  let limits: GatewayLimits
  let resources: HTTP2ServerResources
  private let origins: CrossOrigins
  let storeConnectivityChanged: (StoreConnectivity) -> Void

  let router = Router()
  let scratch = PathScratch()
  let tape: JSONTape
  let connections = ConnectionTable()
  let counters: GatewayCounters
  /// Set right after `init`, since the client needs its delegate. The loop and the client retain each other until
  /// `close`.
  private(set) var store: StoreClient<GatewayLoop>!
  private var pending = PendingRequests()
  private var requestIDs: RequestIDs
  private var turn = TurnState()
  /// Whether `close` was called; background work starts nothing more.
  private(set) var isClosed = false
  /// Completed when all connections have closed; nil unless draining.
  private var drained: EventLoopPromise<Void>?

  // The features with state of their own.
  let authentication: AuthenticationPart
  let rates: RatesPart
  let echoingResponses = EchoingResponsesPart()
  let fanOuts = FanOutPart()
  let valueChanges = ValueChangesPart()
  let waitingRequests: WaitingRequestsPart
  let openStreams = OpenStreamsPart()
  let events: EventStreamsPart
  let totals = TotalsPart()
  let streams = RequestStreamsPart()
  let push: PushPart
  let hooks: HooksPart
  let userScans = UserScanPart()
  let userLists = UserListPart()
  let erasures = ErasurePart()
  let settlement = SettlementPart()
  let tokens: TokensPart

  /// - Parameters:
  ///   - configuration: of the gateway; a loop needs its limits, origins, tickets and hooks.
  ///   - verifier: verifies tokens until the keys are replaced (``apply(_:)``).
  ///   - storeConnectivityChanged: called on the loop when the store client gains or loses its store.
  package init(
    eventLoop: any EventLoop,
    configuration: GatewayConfiguration,
    store: StoreClientConfiguration,
    verifier: TokenVerifier,
    shared: SharedServices,
    storeConnectivityChanged: @escaping (StoreConnectivity) -> Void
  ) {
    eventLoop.assertInEventLoop()
    var random = SystemRandomNumberGenerator()
    let limits = configuration.limits
    self.eventLoop = eventLoop
    self.shared = shared
    self.limits = limits
    self.storeConnectivityChanged = storeConnectivityChanged
    self.resources = HTTP2ServerResources(
      limits: configuration.http2,
      streamedContentTypes: [.ndjson, .frames]
    )
    self.origins = configuration.origins
    self.tape = JSONTape(limits: limits.json)
    self.counters = GatewayCounters(
      hooks: configuration.hooks.map { String(decoding: $0.provider, as: UTF8.self) }
    )
    self.hooks = HooksPart(configuration.hooks)
    self.push = PushPart(configuration.ticketKeys)
    self.events = EventStreamsPart(limits)
    self.tokens = TokensPart(shared)
    self.authentication = AuthenticationPart(
      Authenticator(
        verifier: verifier,
        revokedTokens: shared.revokedTokens,
        limits: limits,
        seed: random.next()
      )
    )
    self.rates = RatesPart(shared.rates)
    self.waitingRequests = WaitingRequestsPart(limits.waiting)
    self.requestIDs = RequestIDs(random: random.next() >> 24)
    self.store = StoreClient(eventLoop: eventLoop, configuration: store, delegate: self)
    for part in parts { part.attach(to: self) }
    assertPartsAttached(of: self)
    resources.clientKey = { PeerAddress(lastOf: $0.forwardedFor)?.key }
    rates.setCommonHeaders(origins)
  }

  /// The features with state of their own, in the order in which they start, drain, stop and list their metrics.
  var parts: [GatewayPart] {
    [
      authentication, rates, echoingResponses, fanOuts, valueChanges, waitingRequests, openStreams, events,
      totals, streams, push,
      hooks, userScans, userLists, erasures, settlement, tokens,
    ]
  }

  /// Start the timers, and connect to the store.
  package func start() {
    for part in parts { part.start() }
    store.start()
  }

  /// Count an HTTP/1 client, and return its response.
  func refuseHTTP1(isHead: Bool) -> ByteBuffer {
    counters.refusedHTTP1()
    return HTTP1Refusal.response(isHead: isHead, requestID: requestIDs.id(given: RawSpan()))
  }

  /// Apply a reloaded configuration to later requests. Connections, streams and requests in flight are unaffected.
  func apply(_ update: GatewayUpdate) {
    let configuration = update.configuration
    if let tokens = update.tokens { authentication.replace(tokens) }
    hooks.apply(configuration.hooks)
    push.apply(configuration.ticketKeys)
    store.replaceSecrets(configuration.storeSecrets)
    resources.setMemoryLimits(configuration.http2)
  }

  /// Ask all connections to close after their streams.
  ///
  /// - Returns: completed when they are closed, at the latest after the drain timeout.
  func drain() -> EventLoopFuture<Void> {
    let promise = drained ?? eventLoop.makePromise(of: Void.self)
    drained = promise
    for part in parts { part.drain() }
    if connections.count == 0 {
      promise.succeed()
    } else {
      let timeout = eventLoop.assumeIsolated().scheduleTask(in: limits.drainTimeout) {
        for connection in self.connections.all { connection.fail(.noError) }
        promise.succeed()
      }
      promise.futureResult.assumeIsolated().whenComplete { _ in timeout.cancel() }
      for connection in connections.all { connection.shutdownGracefully(grace: limits.shutdownGrace) }
    }
    return promise.futureResult
  }

  /// Close the store connection; pending requests are answered 503.
  func close() -> EventLoopFuture<Void> {
    isClosed = true
    for part in parts { part.stop() }
    return store.close()
  }

  /// The wall clock, in milliseconds since 1970; see ``GatewayClock/now``.
  var now: Int64 { @inline(__always) get { shared.clock.now } }

  /// Schedule the end of the turn after all sockets that became readable together have been read: NIO runs a loop's
  /// tasks after its input, so their requests leave in one write. With one stream on each of many connections, that
  /// makes one write to the store per turn instead of one per request.
  func endTurnSoon() {
    guard turn.scheduleEnd() else { return }
    eventLoop.assumeIsolated().execute {
      self.turn.end()
      self.endTurn()
    }
  }

  /// Flush the turn's output: first to the store, then to connections that were answered outside their own read.
  func endTurn() {
    tape.shrink()
    streams.advance()
    flushStore()
    while let connection = connections.nextDirty() { connection.flushIfNeeded() }
  }

  /// Return unused memory to the system after a load. glibc keeps freed memory between used blocks until it is
  /// trimmed, which takes milliseconds and therefore runs off the loop.
  func releaseUnusedMemory() {
    guard resources.freeUnused() else { return }
    #if canImport(Glibc)
      NIOThreadPool.singleton.submit { _ in malloc_trim(0) }
    #endif
  }
}

// MARK: - HTTP/2

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
  package func http2RequestReceived(
    _ stream: HTTP2StreamHandle,
    on connection: HTTP2ServerConnection<GatewayLoop>
  ) {
    var admission = RequestAdmission()
    do throws(Problem) {
      _ = try connection.withRequest(stream) { request throws(Problem) in
        try self.receive(request, caller: nil, stream: stream, connection: connection, admission: &admission)
      }
    } catch {
      answer(
        rates.refusalAfterCharge(error, stream: stream, connection: connection, admission: admission),
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

  private func flushStore() {
    turn.flushed()
    store.flush()
  }

  /// The size of some 100 marks.
  private static let flushBytes = 8 << 10

  /// Remove an aborted event stream or streamed request, and cancel a request that waits.
  package func http2StreamAborted(
    _ stream: HTTP2StreamHandle,
    on connection: HTTP2ServerConnection<GatewayLoop>
  ) {
    waitingRequests.cancel(stream)
    events.aborted(stream)
    if streams.count > 0 { streams.aborted(stream) }
  }

  /// Handle new bytes, or the end, of a streamed body.
  package func http2RequestBodyReceived(
    _ stream: HTTP2StreamHandle,
    on connection: HTTP2ServerConnection<GatewayLoop>
  ) {
    streams.bodyReceived(stream)
  }

  /// Continue an event stream, or a streamed request, that can write again.
  package func http2StreamDrained(
    _ stream: HTTP2StreamHandle,
    on connection: HTTP2ServerConnection<GatewayLoop>
  ) {
    if streams.count > 0, streams.drained(stream) { return }
    events.drained(stream)
  }

  /// Remove a closed connection. Replies to its requests find no stream and are dropped.
  package func http2ConnectionClosed(_ connection: HTTP2ServerConnection<GatewayLoop>) {
    if connection.hasFailed { rates.recordEnd(connection.tableIndex) }
    connections.remove(connection)
    counters.connectionClosed(connection.counters)
    // A connection that failed during a read gets no `http2ReadComplete`.
    endTurnSoon()
    if connections.count == 0 { drained?.succeed() }
  }

  /// Register a new connection before it is active.
  ///
  /// - Parameters:
  ///   - client: its address; nil where that is no IP address.
  ///   - isNamed: whether a PROXY header named the client.
  func connectionOpened(from client: PeerAddress?, isNamed: Bool = false) -> HTTP2ServerConnection<
    GatewayLoop
  > {
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
      if rates.isOn {
        try rates.chargeAddress(request, stream: stream, connection: connection)
      }
      connection.respond(stream, status: 204, headers: CrossOrigins.preflightHeaders)
      return counters.answered(admission.route, status: 204)
    }
    let match = try router.match(request.method, request.path, scratch)
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
      try rates.chargeRates(
        match.route,
        caller,
        request,
        stream: stream,
        connection: connection,
        admission: &admission
      )
    }
    if match.route.caller == .server && !caller.isServer { throw Problem(.serverTokenRequired) }
    // The body was refused, but the token is valid after all: a key was added meanwhile.
    if request.bodyRefused { throw Problem(.authenticationBusy) }
    if request.bodyTooLarge {
      throw Problem(.bodyTooLarge, "the body may have at most \(resources.limits.bodyBytesMax) bytes")
    }
    // The body has not arrived: a route that reads it whole would find it empty.
    if request.bodyStreams && match.route.isImplemented && !match.route.streams(request.contentType) {
      throw Problem(.contentTypeNotSupported)
    }
    let address = request.bodyStreams && rates.isOn ? rates.client(request, index) : nil
    let context = RequestContext(
      caller: caller,
      connection: index,
      stream: stream,
      address: address,
      hasWaited: admission.hasWaited
    )
    if match.route.isQuery, try !waitingRequests.beginOrEnqueue(query: match.route, context) { return }
    try dispatch(match, context, request)
  }

  /// Handle a request again that has waited as a batch or as a query.
  func resumeRequest(
    _ stream: HTTP2StreamHandle,
    _ connection: HTTP2ServerConnection<GatewayLoop>,
    caller: Caller
  ) {
    var admission = RequestAdmission(hasWaited: true)
    do throws(Problem) {
      guard caller.expiresAt > now else { throw Problem(.tokenExpired) }
      _ = try connection.withRequest(stream) { request throws(Problem) in
        try self.receive(
          request,
          caller: caller,
          stream: stream,
          connection: connection,
          admission: &admission
        )
      }
    } catch {
      answer(error, route: admission.route, stream: stream, connection: connection)
    }
  }
}

// MARK: - To the store

extension GatewayLoop {
  /// Send a request to the store. False: the store client takes no more; then nothing is pending.
  ///
  /// - Parameter issued: when the caller's token was issued; nil: the request is the gateway's own, or a server's.
  @inline(__always)
  func trySend(
    _ kind: FrameKind,
    to destination: StoreDestination,
    _ request: PendingRequest,
    issued: UInt32? = nil,
    _ fields: (inout ByteBuffer) -> Void
  ) -> Bool {
    let token = register(request)
    if store.send(kind, to: destination, token: token, issued: issued, fields) { return true }
    _ = pending.remove(token)
    return false
  }

  /// Register a request until the store replies; returns its token. The first since the last flush has its round trip
  /// measured.
  private func register(_ request: PendingRequest) -> UInt64 {
    guard turn.takeSample() else { return pending.insert(request) }
    var request = request
    request.sentAt = NIODeadline.now().uptimeNanoseconds
    return pending.insert(request)
  }

  /// Remove the request of a token; nil where it was removed before.
  func takePending(_ token: UInt64) -> PendingRequest? { pending.remove(token) }

  /// Requests waiting for the store.
  var pendingCount: Int { pending.count }

  /// Queries waiting for the store.
  var pendingQueries: Int { pending.queryCount }

  /// Send a request whose reply becomes the response (``writeResponse(to:kind:payload:stream:connection:)``).
  ///
  /// - Throws: `store_busy`.
  func send(
    _ kind: FrameKind,
    to destination: StoreDestination,
    _ context: RequestContext,
    route: Route,
    _ fields: (inout ByteBuffer) -> Void
  ) throws(Problem) {
    let request = PendingRequest(
      .response(context.stream, connection: context.connection),
      route: route,
      isServer: context.caller.isServer,
      isQuery: route.isQuery
    )
    guard trySend(kind, to: destination, request, issued: context.caller.issued, fields) else {
      throw Problem(.storeBusy)
    }
  }

  /// Return the home shard of a channel type or a user.
  ///
  /// - Throws: `store_unavailable`.
  func homeShard(of name: RawSpan) throws(Problem) -> ShardID {
    // The number of shards is unknown before the first connection to the store.
    guard store.shardCount > 0 else { throw Problem(.storeUnavailable) }
    return ShardID.owning(name, count: store.shardCount)
  }

  /// Return the request's id in answers and logs.
  func requestID(_ stream: HTTP2StreamHandle, _ connection: HTTP2ServerConnection<GatewayLoop>) -> String {
    connection.withRequest(stream) { requestIDs.id(given: $0.requestID) } ?? ""
  }
}

/// What a ``GatewayLoop`` has done since the start of the event loop's turn, and since its last flush to the store.
struct TurnState {
  /// Whether the end of the turn is scheduled.
  private var isEnding = false
  /// Whether a request since the last flush has recorded its sending time.
  private var hasSample = false

  /// True for the first call of a turn: the caller schedules the turn's end.
  mutating func scheduleEnd() -> Bool {
    if isEnding { return false }
    isEnding = true
    return true
  }

  mutating func end() { isEnding = false }

  /// True for the first request since the last flush, whose round trip is measured.
  mutating func takeSample() -> Bool {
    if hasSample { return false }
    hasSample = true
    return true
  }

  mutating func flushed() { hasSample = false }
}
