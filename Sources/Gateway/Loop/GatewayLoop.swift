internal import CMalloc
package import HTTP2Session
package import Logging
package import NIOCore
internal import NIOPosix
package import Operations
internal import ReceiptModel
internal import ReceiptWire
package import StoreClient

#if canImport(Glibc)
  internal import Glibc
#elseif canImport(Musl)
  internal import Musl
#endif

/// Everything that one event loop of the gateway has: its connections, its way to the store, its tokens, and
/// the requests that wait. Nothing is shared between loops.
///
/// The way of a request: `http2RequestReceived` → route → caller → a frame in the store client's buffer; at
/// the end of the loop's turn one flush to the store. Back: `storeReplied` → the answer in the stream's own
/// buffer; at the end of the store's read one flush per connection that got answers.
package final class GatewayLoop {
  let eventLoop: any EventLoop
  let logger: Logger
  let limits: GatewayLimits
  let resources: HTTP2ServerResources
  let storeReachChanged: (StoreReach) -> Void

  let router = Router()
  let scratch = PathScratch()
  let tape: JSONTape
  let authenticator: Authenticator
  /// Told of connections that have shown a valid token; nil in tests.
  let gate: ConnectionGate?
  let rates: RateLimiter
  let refusals: RefusalLog?
  /// Set right after `init`, as the client wants its delegate; the loop and it hold each other until `close`.
  private(set) var store: StoreClient<GatewayLoop>!

  var connections = ConnectionTable()
  var pending = PendingRequests()
  var gathers: [Gather?] = []
  var freeGathers: [UInt32] = []
  var counters = GatewayCounters()
  var userJobs = JobTable<UserJob>()
  var userLists = JobTable<UserListJob>()
  var events = EventTable()
  var eventTicker: RepeatedTask?
  var requestStreams = RequestStreamTable()
  var streamTicker: RepeatedTask?
  let origins: CrossOrigins
  var hooks: HookTable
  /// Nil: tickets are neither made nor taken.
  private(set) var tickets: TicketCodec?
  var ackBatches = AckBatchTable()
  var batches = BatchQueue()
  /// The request that is received now has waited among ``batches``.
  var isBeginningBatch = false
  var erasures: [ErasureJob?] = []
  var freeErasures: [UInt32] = []
  /// No more is begun by itself.
  private(set) var isClosed = false
  var settling = Settling()
  var tokenWatch: TokenWatch
  /// Nil where this loop leaves settling to others, or has ended.
  var settlingTicker: RepeatedTask?
  var requestIDs: RequestIDs

  /// Set while all connections are asked to end.
  private var drained: EventLoopPromise<Void>?
  /// Whether the turn's end is among the loop's tasks.
  private var isTurnEnding = false
  /// Whether a request since the last flush has had its sending time noted.
  private var hasSample = false
  /// The route of the request that is being received, for the answer that it may throw.
  var currentRoute = GatewayCounters.noRoute
  /// It has drawn from the buckets of its caller.
  var hasDrawn = false

  /// - Parameters:
  ///   - revokedTokens: one table for all loops.
  ///   - tickets: what tickets are signed with; nil: there are none.
  ///   - hooks: senders of webhooks, each of another name.
  ///   - storeReachChanged: called on the loop when the store client gains or loses its store.
  package init(
    eventLoop: any EventLoop,
    store: StoreClientConfiguration,
    verifier: TokenVerifier,
    revokedTokens: RevokedTokens,
    limits: GatewayLimits,
    http2: HTTP2Limits,
    origins: CrossOrigins = CrossOrigins(),
    tickets: TicketKeys? = nil,
    hooks: [PushHook] = [],
    gate: ConnectionGate? = nil,
    rates: RateLimiter = RateLimiter(),
    refusals: RefusalLog? = nil,
    logger: Logger,
    storeReachChanged: @escaping (StoreReach) -> Void
  ) {
    eventLoop.assertInEventLoop()
    var random = SystemRandomNumberGenerator()
    self.eventLoop = eventLoop
    self.logger = logger
    self.limits = limits
    self.storeReachChanged = storeReachChanged
    self.resources = HTTP2ServerResources(limits: http2, streamedContentTypes: [.ndjson, .frames])
    self.origins = origins
    self.hooks = HookTable(hooks)
    self.gate = gate
    self.rates = rates
    self.refusals = refusals
    counters.pushes = PushCounters(hooks: hooks.map { String(decoding: $0.provider, as: UTF8.self) })
    self.tickets = tickets.map { TicketCodec(keys: $0) }
    events.hub = EventHub(limits: limits.events)
    self.tape = JSONTape(limits: limits.json)
    self.tokenWatch = TokenWatch(revokedTokens)
    self.authenticator = Authenticator(
      eventLoop: eventLoop,
      verifier: verifier,
      revokedTokens: revokedTokens,
      limits: limits,
      seed: random.next()
    )
    self.requestIDs = RequestIDs(random: random.next() >> 24)
    self.store = StoreClient(eventLoop: eventLoop, configuration: store, delegate: self)
    resources.clientKey = { PeerAddress(lastOf: $0.forwardedFor)?.key }
    setCommonHeaders()
  }

  /// Begins to connect to the store.
  package func start() {
    startSettling()
    startEvents()
    startStreams()
    startTokens()
    store.start()
  }

  /// The tokens that this loop remembers.
  var cachedTokens: [[UInt8]] { authenticator.cachedTokens }

  /// Takes what was read again, for what is asked from now on. Connections, streams and what is under way stay.
  func take(_ update: GatewayUpdate) {
    let configuration = update.configuration
    if let tokens = update.tokens {
      authenticator.replace(tokens.verifier, verified: tokens.verified, now: now)
      connections.forgetCredentials()
    }
    hooks.hooks = configuration.hooks
    tickets = configuration.ticketKeys.map { TicketCodec(keys: $0) }
    if let store = store.storeID { tickets?.bind(to: store) }
    store.replaceSecrets(configuration.storeSecrets)
    resources.setMemoryLimits(configuration.http2)
  }

  /// Asks all connections to end after their streams.
  ///
  /// - Returns: done when they are closed, at the latest after the time that a drain may take.
  func drain() -> EventLoopFuture<Void> {
    let promise = drained ?? eventLoop.makePromise(of: Void.self)
    drained = promise
    drainEvents()
    drainStreams()
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

  /// Ends the way to the store; what still waits is answered 503.
  func close() -> EventLoopFuture<Void> {
    stopSettling()
    stopEvents()
    stopStreams()
    stopTokens()
    isClosed = true
    endErasures()
    return store.close()
  }

  /// The wall clock, in milliseconds since 1970. Read anew each time, some 20 ns: a time kept for the turn
  /// would let a token live on after a turn that did not end as it should.
  var now: Int64 {
    var time = timespec()
    clock_gettime(CLOCK_REALTIME, &time)
    return Int64(time.tv_sec) * 1_000 + Int64(time.tv_nsec) / 1_000_000
  }

  /// Ends the turn when all sockets that became readable together have been read: NIO runs a loop's tasks
  /// after its input, so their requests leave in one write. With one stream on each of many connections that
  /// is the difference between a write to the store per request and one per turn.
  func endTurnSoon() {
    if isTurnEnding { return }
    isTurnEnding = true
    eventLoop.assumeIsolated().execute {
      self.isTurnEnding = false
      self.endTurn()
    }
  }

  /// Writes what this turn has queued: to the store, then to the connections that were answered from outside.
  func endTurn() {
    hasSample = false
    tape.shrink()
    advanceStreams()
    store.flush()
    while let connection = connections.nextDirty() { connection.flushIfNeeded() }
  }

  /// Gives memory that a load has left back to the system. glibc keeps what is free between pieces in use until it is
  /// asked, off the loop: that takes milliseconds.
  func giveMemoryBack() {
    guard resources.freeUnused() else { return }
    #if canImport(Glibc)
      NIOThreadPool.singleton.submit { _ in malloc_trim(0) }
    #endif
  }

  /// What this loop tells when the metrics are scraped.
  func collect(into samples: inout MetricSamples) {
    counters.add(to: &samples, open: connections.all.map(\.counters))
    collectEvents(into: &samples)
    collectStreams(into: &samples)
    collectTokens(into: &samples)
    samples.gauge(
      "tidemark_gateway_connections",
      help: "HTTP/2 connections open.",
      Double(connections.count)
    )
    samples.gauge(
      "tidemark_gateway_held_bytes",
      help: "Bytes of requests, of answers that have not left, and of open streams (--gateway-memory).",
      Double(resources.heldBytes)
    )
    samples.gauge(
      "tidemark_gateway_streams",
      help: "Streams open.",
      connections.all.reduce(0) { $0 + Double($1.openStreams) }
    )
    samples.gauge(
      "tidemark_gateway_store_requests_in_flight",
      help: "Requests to the store without an answer.",
      Double(pending.count)
    )
    samples.gauge(
      "tidemark_gateway_tokens_cached",
      help: "Verified tokens remembered.",
      Double(authenticator.cachedCount)
    )
    samples.gauge(
      "tidemark_gateway_batches_waiting",
      help: "Batches that wait for room among the requests to the store.",
      Double(batches.count)
    )
    samples.counter(
      "tidemark_gateway_batches_delayed_total",
      help: "Batches that had to wait for room.",
      Int64(counters.batchesDelayed)
    )
    samples.gauge(
      "tidemark_gateway_requests_parked",
      help: "Requests that wait for their token to be verified.",
      Double(authenticator.parkedCount)
    )
    samples.counter(
      "tidemark_gateway_values_settled_total",
      help: "Changes of channel types and users that their gateway did not finish, brought to every shard.",
      Int64(settling.settledCount)
    )
    samples.gauge(
      "tidemark_gateway_user_jobs",
      help: "Requests under way that go over all channels of a user.",
      Double(userJobs.count)
    )
    samples.gauge(
      "tidemark_gateway_erasures",
      help: "Users who are being erased.",
      Double(erasures.count - freeErasures.count)
    )
    samples.gauge(
      "tidemark_gateway_store_connections_ready",
      help: "Connections to the store that take requests.",
      store.isReady ? 1 : 0
    )
    let stats = store.stats
    samples.counter(
      "tidemark_gateway_store_requests_total",
      help: "Requests sent to the store.",
      Int64(stats.requestsSent)
    )
    samples.counter(
      "tidemark_gateway_store_resends_total",
      help: "Requests sent again after a lost connection.",
      Int64(stats.resends)
    )
    samples.counter(
      "tidemark_gateway_store_timeouts_total",
      help: "Requests whose deadline passed.",
      Int64(stats.timeouts)
    )
    samples.counter(
      "tidemark_gateway_store_connections_lost_total",
      help: "Connections to the store that were lost.",
      Int64(stats.connectionsLost)
    )
  }
}

// MARK: - HTTP/2

extension GatewayLoop: HTTP2ServerDelegate {
  /// Takes up a request: it is answered at once, or waits for the store or for its token.
  package func http2RequestReceived(
    _ stream: HTTP2StreamHandle,
    on connection: HTTP2ServerConnection<GatewayLoop>
  ) {
    currentRoute = GatewayCounters.noRoute
    hasDrawn = false
    do throws(Problem) {
      _ = try connection.withRequest(stream) { request throws(Problem) in
        try self.receive(request, caller: nil, stream, connection)
      }
    } catch {
      answer(drawn(error, stream, connection), currentRoute, stream, connection)
    }
  }

  /// Has what the read has queued sent to the store: with the turn, or now where it is enough to keep the store at work
  /// while this loop reads its other connections.
  package func http2ReadComplete(on connection: HTTP2ServerConnection<GatewayLoop>) {
    if store.queuedBytes >= Self.flushBytes {
      hasSample = false
      store.flush()
    }
    endTurnSoon()
  }

  /// Some 100 marks.
  private static let flushBytes = 8 << 10

  /// Forgets a stream of events, or a streamed request.
  package func http2StreamAborted(
    _ stream: HTTP2StreamHandle,
    on connection: HTTP2ServerConnection<GatewayLoop>
  ) {
    if !events.places.isEmpty { eventStreamAborted(stream) }
    if requestStreams.count > 0 { requestStreamAborted(stream) }
  }

  /// Goes on with a stream of events, or with a streamed request.
  package func http2StreamDrained(
    _ stream: HTTP2StreamHandle,
    on connection: HTTP2ServerConnection<GatewayLoop>
  ) {
    if requestStreams.count > 0, requestStreamDrained(stream) { return }
    guard let place = events.places[stream.rawValue], let stream = events.streams[Int(place)] else { return }
    drained(stream)
  }

  /// Forgets the connection; what it waited for finds no stream.
  package func http2ConnectionClosed(_ connection: HTTP2ServerConnection<GatewayLoop>) {
    connections.remove(connection)
    counters.connectionClosed(connection.counters)
    // A connection that failed in the middle of a read has not come to its end.
    endTurnSoon()
    if connections.count == 0 { drained?.succeed() }
  }

  /// Takes up a connection, before it is active.
  ///
  /// - Parameters:
  ///   - client: from where it comes; nil where that is no IP address.
  ///   - isNamed: a PROXY header says so.
  func connectionOpened(from client: PeerAddress?, isNamed: Bool = false) -> HTTP2ServerConnection<
    GatewayLoop
  > {
    let connection = HTTP2ServerConnection(delegate: self, resources: resources)
    let index = connections.insert(connection)
    counters.connectionsOpened &+= 1
    note(index, client: client, isNamed: isNamed, connection)
    return connection
  }

  /// The checks that all routes share, in the order in which they are answered: 431, 404, 405, 401, 429, 403, 413,
  /// 415, 501.
  ///
  /// - Parameter caller: known already where the request was parked for its token.
  func receive(
    _ request: borrowing HTTP2Request,
    caller known: Caller?,
    _ stream: HTTP2StreamHandle,
    _ connection: HTTP2ServerConnection<GatewayLoop>
  ) throws(Problem) {
    if request.headersTooLarge { throw Problem(.headersTooLarge) }
    if !origins.isEmpty, origins.isPreflight(request) {
      if rates.isOn {
        try drawForAddress(request, stream, connection, UInt32(truncatingIfNeeded: connection.userToken))
      }
      connection.respond(stream, status: 204, headers: CrossOrigins.preflightHeaders)
      return counters.answered(currentRoute, status: 204)
    }
    let match = try router.match(request.method, request.path, scratch)
    currentRoute = match.route.rawValue
    let index = UInt32(truncatingIfNeeded: connection.userToken)
    let caller: Caller
    if let known {
      caller = known
    } else if let found = try authenticate(request, match, index, stream) {
      caller = found
    } else {
      return
    }
    let share = caller.isServer || caller.userID.isEmpty ? 0 : caller.key
    guard connection.admit(stream, for: share, answerBytes: match.route.answerBytes) else {
      throw Problem(.overloaded)
    }
    if rates.isOn { try draw(match.route, caller, request, stream, connection) }
    if match.route.caller == .server && !caller.isServer { throw Problem(.serverTokenRequired) }
    if request.bodyTooLarge {
      throw Problem(.bodyTooLarge, "the body may have at most \(resources.limits.maxBodyBytes) bytes")
    }
    // Its body has yet to come: a route that reads it whole would find it empty.
    if request.bodyStreams && match.route.isBuilt && !match.route.streams(request.contentType) {
      throw Problem(.contentTypeNotSupported)
    }
    let address = request.bodyStreams && rates.isOn ? client(request, index) : nil
    let context = RequestContext(caller: caller, connection: index, stream: stream, address: address)
    try dispatch(match, context, request)
  }

  /// Takes up a request once more whose caller is known.
  func receiveAgain(
    _ stream: HTTP2StreamHandle,
    _ connection: HTTP2ServerConnection<GatewayLoop>,
    caller: Caller
  ) {
    currentRoute = GatewayCounters.noRoute
    do throws(Problem) {
      _ = try connection.withRequest(stream) { request throws(Problem) in
        try self.receive(request, caller: caller, stream, connection)
      }
    } catch {
      answer(error, currentRoute, stream, connection)
    }
  }
}

// MARK: - To the store

/// What the routes are told of a request beside its bytes.
struct RequestContext {
  let caller: Caller
  /// The connection's place in the ``ConnectionTable``.
  let connection: UInt32
  let stream: HTTP2StreamHandle
  /// From where a streamed request comes, where there are rates; nil: not known, or not asked.
  var address: PeerAddress?
}

extension GatewayLoop {
  /// Keeps a request until the store has answered; returns its token.
  func keep(
    _ context: RequestContext,
    _ route: Route,
    _ shape: ReplyShape,
    gather: UInt32 = 0,
    entry: Int = 0
  ) -> UInt64 {
    keep(
      PendingRequest(
        stream: context.stream,
        connection: context.connection,
        gather: gather,
        entry: UInt32(entry),
        shape: shape,
        route: route,
        isServer: context.caller.isServer
      )
    )
  }

  /// Keeps a request; the first since the last flush is measured.
  func keep(_ request: PendingRequest) -> UInt64 {
    var request = request
    if !hasSample {
      hasSample = true
      request.sentAt = NIODeadline.now().uptimeNanoseconds
    }
    return pending.insert(request)
  }

  /// Sends one request about a channel, whose reply is the answer.
  func send(
    _ kind: FrameKind,
    cid: RawSpan,
    _ context: RequestContext,
    _ route: Route,
    _ shape: ReplyShape,
    thread: RawSpan? = nil,
    _ fields: (inout ByteBuffer) -> Void
  ) throws(Problem) {
    let token = keep(context, route, shape)
    guard
      store.send(kind, cid: cid, token: token, issued: context.caller.issued, thread: thread, fields)
    else {
      _ = pending.remove(token)
      throw Problem(.storeBusy)
    }
  }

  /// The name that a request has in answers and logs.
  func requestID(_ stream: HTTP2StreamHandle, _ connection: HTTP2ServerConnection<GatewayLoop>) -> String {
    connection.withRequest(stream) { requestIDs.id(given: $0.requestID) } ?? ""
  }

  /// Answers with a problem.
  func answer(
    _ problem: Problem,
    _ route: UInt8,
    _ stream: HTTP2StreamHandle,
    _ connection: HTTP2ServerConnection<GatewayLoop>
  ) {
    let id = requestID(stream, connection)
    let status = problem.status
    let headers = problem.headers(requestID: id)
    connection.respond(stream, status: status, contentType: .problem, headers: headers) {
      problem.write(requestID: id, into: &$0)
    }
    counters.answered(route, status: status)
    if status >= 500 && problem.code != .notImplemented {
      logger.debug(
        "Request not served",
        metadata: ["code": "\(problem.code.rawValue)", "request_id": "\(id)"]
      )
    }
  }
}
