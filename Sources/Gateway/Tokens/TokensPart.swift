internal import HTTP2Session
internal import NIOCore
internal import Operations
internal import ReceiptModel
internal import ReceiptWire
internal import StoreClient

/// Revoked tokens: their routes, the reading of the store's list, and the end of their streams. Callers are checked by
/// the ``Authenticator``.
final class TokensPart: GatewayPart {
  private var listing: TokenListing
  /// Nil where another loop reads the list, or after the end.
  private var ticker: RepeatedTask?
  /// Whether a sweep of the loop's streams is scheduled.
  private var isSweepDue = false
  private var sweptAt = NIODeadline.distantPast

  init(_ shared: SharedServices) { listing = TokenListing(shared.revokedTokens) }

  private var revoked: RevokedTokens { loop.shared.revokedTokens }

  /// Observe revocations, and start to read the list if that is this loop's task.
  override func start() {
    let bound = NIOLoopBound(self, eventLoop: loop.eventLoop)
    let eventLoop = loop.eventLoop
    revoked.observe(self) { eventLoop.execute { bound.value.tokensRevoked() } }
    loop.console?.observe(self) { ended in eventLoop.execute { bound.value.sessionsEnded(ended) } }
    guard let interval = loop.limits.tokenListInterval else { return }
    ticker = loop.eventLoop.scheduleRepeatedTask(initialDelay: interval, delay: interval) { _ in
      bound.value.readList()
    }
  }

  override func stop() {
    revoked.stopObserving(self)
    loop.console?.stopObserving(self)
    ticker?.cancel()
    ticker = nil
  }

  // MARK: List

  /// Read the list from its beginning, after a reconnect to the store.
  func restartList() {
    guard ticker != nil else { return }
    trySend(listing.reconnected())
    loop.endTurnSoon()
  }

  private func readList() {
    guard let request = listing.roundIsDue(isReady: loop.store.isReady) else { return }
    trySend(request)
    loop.endTurnSoon()
  }

  private func trySend(_ request: TokenListing.Request) {
    let pending = PendingRequest(.tokenList(round: request.round), route: .getToken, isServer: true, isPageQuery: false)
    let isSent = loop.trySend(.listRevokedTokens, to: .shard(RevokedTokenTable.shard, name: nil), pending) {
      $0.writeListRevokedTokens(known: request.known, after: request.after)
    }
    if !isSent { listing.failed(round: request.round) }
  }

  func completed(_ round: UInt32, with result: StoreResult) {
    guard case .reply(let kind, let payload) = result else { return listing.failed(round: round) }
    do throws(WireError) {
      if let request = listing.answered(try RevokedTokensReply(payload), round: round) {
        trySend(request)
        loop.endTurnSoon()
      }
    } catch {
      loop.logMalformedReply(error, kind)
      listing.failed(round: round)
    }
  }

  /// Record a token's state before it is answered: from then on no loop of this gateway accepts a revoked token.
  func record(_ id: [UInt8], _ state: TokenReply) {
    let until = state.until == .none ? nil : state.until.milliseconds
    revoked.record(TokenID(id), until: until, version: state.version)
  }

  // MARK: Streams

  /// Minimum time between two sweeps of all streams, when tokens are revoked in quick succession.
  private static let sweepInterval = TimeAmount.milliseconds(100)

  private func tokensRevoked() {
    guard !isSweepDue, !loop.isClosed else { return }
    isSweepDue = true
    runLater(in: max(.zero, sweptAt + Self.sweepInterval - .now())) { [self] in sweepStreams() }
  }

  /// End the streams of revoked tokens.
  private func sweepStreams() {
    isSweepDue = false
    sweptAt = .now()
    func isRevoked(_ caller: Caller) -> Bool { caller.tokenID.map { revoked.isRevoked($0) } ?? false }
    loop.console?.end(where: isRevoked)
    loop.openStreams.revoke(where: isRevoked)
    loop.endTurnSoon()
  }

  /// End the streams of the console's sessions that have ended.
  private func sessionsEnded(_ callers: [Caller]) {
    guard !loop.isClosed else { return }
    loop.openStreams.revoke { caller in callers.contains { $0 === caller } }
    loop.endTurnSoon()
  }

  // MARK: Metrics

  override func collect(into samples: inout MetricSamples) {
    guard ticker != nil else { return }
    samples.gauge(
      "tidemark_gateway_tokens_revoked",
      help: "Tokens that are revoked by their ids, as this gateway knows them.",
      Double(revoked.count)
    )
  }
}

/// Revocation of single tokens by id.
extension TokensPart {
  /// Handle `PUT /v1/tokens/{jti}`.
  func putToken(
    _ match: borrowing RouteMatch,
    _ context: RequestContext,
    _ request: borrowing HTTP2Request
  ) throws(Problem) {
    let until = try TokenJSON.revocation(try loop.object(request, .putToken))
    try sendTokenRequest(.revokeToken, match, context) { $0.writeRevokeToken(until: until) }
  }

  /// Handle `GET /v1/tokens/{jti}`.
  func getToken(_ match: borrowing RouteMatch, _ context: RequestContext) throws(Problem) {
    try sendTokenRequest(.getToken, match, context) { _ in }
  }

  private func sendTokenRequest(
    _ kind: FrameKind,
    _ match: borrowing RouteMatch,
    _ context: RequestContext,
    _ fields: (inout ByteBuffer) -> Void
  ) throws(Problem) {
    let response = EchoingResponse.token(match.subject.bytes)
    let shard = RevokedTokenTable.shard
    try loop.echoingResponses.send(kind, to: .shard(shard, name: match.subject), context, response: response, fields)
  }
}

extension KnownFields {
  static let putToken: KnownFields = ["revoked", "expires_at"]
}

/// A token's revocation.
enum TokenJSON {
  /// Parse `{"revoked":true,"expires_at"}` or `{"revoked":false}`.
  ///
  /// - Returns: the end of the revocation; nil: not revoked.
  /// - Throws: `invalid_field`.
  static func revocation(_ body: JSONValue) throws(Problem) -> Timestamp? {
    guard let isRevoked = try body.optionalBool("revoked") else { throw body.missing("revoked") }
    guard isRevoked else {
      if let expiry = body.member("expires_at") {
        throw expiry.error("goes with \"revoked\": true, and is left out where a revocation is taken back")
      }
      return nil
    }
    let text = try body.requiredString("expires_at")
    guard let time = CivilTime.milliseconds(parsing: text) else {
      throw try body.required("expires_at").error(
        "must be a time, as in 2026-01-31T12:00:00.000Z: when the token expires by itself"
      )
    }
    return Timestamp(milliseconds: time)
  }

  /// Write `{"jti","revoked","expires_at"?}`.
  static func write(_ id: RawSpan, until: Timestamp?, into buffer: inout ByteBuffer) {
    let byteMax = 64 + OutputRawSpan.jsonStringByteMax(id.byteCount) + OutputRawSpan.timestampByteCount
    buffer.writeWithOutputRawSpan(minimumWritableBytes: byteMax) { out in
      out.literal("{\"jti\":")
      out.jsonString(id)
      out.literal(",\"revoked\":")
      out.bool(until != nil)
      if let until {
        out.literal(",\"expires_at\":")
        out.timestamp(milliseconds: until.milliseconds)
      }
      out.literal("}")
    }
  }
}
