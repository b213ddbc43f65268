internal import CMalloc
internal import HTTP2Session
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
  let reportStoreReadiness: (StoreReadiness) -> Void

  // Clients, and the reading of their requests.
  let resources: HTTP2ServerResources
  let connections = ConnectionTable()
  let origins: CrossOrigins
  /// Nil: there is no demo page.
  let demo: DemoSession?
  /// Nil: there is no console.
  let console: ConsoleSessions?
  let router = Router()
  let scratch = PathScratch()
  let tape: JSONTape
  private var requestIDs: RequestIDs

  // The store, and the requests that it has not answered.
  /// Set right after `init`, since the client needs its delegate. The loop and the client retain each other until
  /// `close`.
  private(set) var store: StoreClient<GatewayLoop>!
  private var pending = PendingRequests()

  let counters = GatewayCounters()
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
  let pushJobs = PushJobsPart()
  let consumers = FeedConsumersPart()
  let feedStreams = FeedStreamsPart()
  let exports = ExportsPart()

  /// - Parameters:
  ///   - configuration: of the gateway; a loop needs its limits, origins, tickets and hooks.
  ///   - verifier: verifies tokens until the keys are replaced (``apply(_:)``).
  ///   - reportStoreReadiness: called on the loop when the store client gains or loses its store.
  package init(
    eventLoop: any EventLoop,
    configuration: GatewayConfiguration,
    store: StoreClientConfiguration,
    verifier: TokenVerifier,
    shared: SharedServices,
    reportStoreReadiness: @escaping (StoreReadiness) -> Void
  ) {
    eventLoop.assertInEventLoop()
    var random = SystemRandomNumberGenerator()
    let limits = configuration.limits
    self.eventLoop = eventLoop
    self.shared = shared
    self.limits = limits
    self.reportStoreReadiness = reportStoreReadiness
    self.resources = HTTP2ServerResources(limits: configuration.http2, streamedContentTypes: [.ndjson, .frames])
    self.origins = configuration.origins
    self.demo = configuration.demo
    self.console = shared.console
    self.tape = JSONTape(limits: limits.json)
    self.hooks = HooksPart(configuration.hooks)
    self.push = PushPart(configuration.ticketKeys, hooks: configuration.hooks)
    self.events = EventStreamsPart(limits)
    self.tokens = TokensPart(shared)
    self.authentication = AuthenticationPart(
      Authenticator(verifier: verifier, revokedTokens: shared.revokedTokens, limits: limits, seed: random.next())
    )
    self.rates = RatesPart(shared.rates)
    self.waitingRequests = WaitingRequestsPart(limits.waiting)
    self.requestIDs = RequestIDs(random: random.next() >> 24)
    self.store = StoreClient(eventLoop: eventLoop, configuration: store, delegate: self)
    for part in parts { part.attach(to: self) }
    requirePartsAttached(of: self)
    resources.clientKey = { PeerAddress(lastOf: $0.forwardedFor)?.key }
    rates.setCommonHeaders(origins)
  }

  /// The features with state of their own, in the order in which they start, drain, stop and list their metrics.
  var parts: [GatewayPart] {
    [
      authentication, rates, echoingResponses, fanOuts, valueChanges, waitingRequests, openStreams, events,
      totals, streams, push,
      hooks, userScans, userLists, erasures, settlement, tokens, pushJobs, consumers, feedStreams,
      exports,
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

  /// Complete the drain once the last connection has closed.
  func connectionRemoved() {
    if connections.count == 0 { drained?.succeed() }
  }

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

  func flushStore() {
    turn.flushed()
    store.flush()
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
    let tag = register(request)
    if store.send(kind, to: destination, tag: tag, issued: issued, fields) { return true }
    _ = pending.remove(tag)
    return false
  }

  /// Register a request until the store replies; returns its tag. The first since the last flush has its round trip
  /// measured.
  private func register(_ request: PendingRequest) -> UInt64 {
    guard turn.takeSample() else { return pending.insert(request) }
    var request = request
    request.sentAt = NIODeadline.now().uptimeNanoseconds
    return pending.insert(request)
  }

  /// Remove the request of a tag; nil where it was removed before.
  func takePending(_ tag: UInt64) -> PendingRequest? { pending.remove(tag) }

  /// Requests waiting for the store.
  var pendingCount: Int { pending.count }

  /// Page queries waiting for the store.
  var pendingPageQueries: Int { pending.pageQueryCount }

  /// Send a request whose reply becomes the response (``writeResponse(to:kind:payload:stream:connection:)``).
  ///
  /// - Throws: `store_busy`.
  func send(
    _ kind: FrameKind,
    to destination: StoreDestination,
    _ context: RequestContext,
    _ fields: (inout ByteBuffer) -> Void
  ) throws(Problem) {
    let request = PendingRequest(
      .response(context.stream, connection: context.connection),
      route: context.route,
      isServer: context.caller.isServer,
      isPageQuery: context.route.isPageQuery
    )
    guard trySend(kind, to: destination, request, issued: context.caller.issued, fields) else {
      throw Problem(.storeBusy)
    }
  }

  /// Return the number of shards, which is unknown before the first connection to the store.
  ///
  /// - Throws: `store_unavailable`.
  func knownShardCount() throws(Problem) -> Int {
    guard store.shardCount > 0 else { throw Problem(.storeUnavailable) }
    return store.shardCount
  }

  /// Return the home shard of a channel type or a user.
  ///
  /// - Throws: `store_unavailable`.
  func homeShard(of name: RawSpan) throws(Problem) -> ShardID {
    ShardID.owning(name, count: try knownShardCount())
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
