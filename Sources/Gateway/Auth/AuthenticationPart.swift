internal import HTTP2Session
internal import NIOCore
internal import Operations
internal import ReceiptModel

/// Authentication of one event loop: the caller of each request, and the handling of refused tokens.
final class AuthenticationPart: GatewayPart {
  private var authenticator: Authenticator
  // Look-ups of tokens since the start, by their result.
  private var hits: UInt64 = 0
  private var misses: UInt64 = 0
  private var refusals: UInt64 = 0
  /// Connections closed since the start after too many tokens that no key has signed.
  private var endedConnections: UInt64 = 0

  init(_ authenticator: consuming Authenticator) { self.authenticator = authenticator }

  /// The tokens in the cache.
  var cachedTokens: [[UInt8]] { authenticator.cachedTokens }

  /// Replace the keys of tokens. Every connection's credential is checked again.
  func replace(_ tokens: GatewayUpdate.Tokens) {
    authenticator.replace(tokens.verifier, verified: tokens.verified, now: loop.now)
    loop.connections.clearCredentials()
    // Nobody knows which key has opened them.
    loop.console?.end { _ in true }
  }

  /// Return the caller of a request; nil if the request now waits for its token's verification.
  func authenticate(
    _ request: borrowing HTTP2Request,
    _ match: borrowing RouteMatch,
    connection index: ConnectionIndex,
    stream: HTTP2StreamHandle
  ) throws(Problem) -> Caller? {
    let route = match.route
    let identity = request.authorizationIdentity
    if route.callers == .unauthenticated { return Caller.unauthenticated }
    if usesSession(request, route) { return try session(of: request, route, index) }
    // A device sends no header: its credential is in the body.
    if route.callers == .credentialInBody && identity == 0 { return Caller.unauthenticated }
    switch loop.connections.verdict(of: identity, on: index) {
    case .caller(let caller):
      if let refusal = authenticator.refusal(of: caller, now: loop.now) { throw refused(refusal, request, index) }
      hits &+= 1
      return caller
    case .refused(let code): throw refused(code, request, index)
    case .unknown: break
    }
    let token: RawSpan
    do throws(Problem) {
      token = try self.token(of: request, match)
    } catch {
      throw error.code == .tokenTooLong ? refused(error.code, request, index) : error
    }
    switch authenticator.verdict(of: token, now: loop.now) {
    case .caller(let caller):
      hits &+= 1
      remember(.success(caller), index, identity: identity)
      return caller
    case .refused(let code):
      remember(.failure(TokenRefusal(code)), index, identity: identity)
      throw refused(code, request, index)
    case .unknown:
      try waitForVerification(token, request, connection: index, stream: stream)
      return nil
    }
  }

  /// Return whether a request has a session of the console, not a token.
  @inline(__always)
  private func usesSession(_ request: borrowing HTTP2Request, _ route: Route) -> Bool {
    route.callers == .console || loop.isOfConsole(request.path)
  }

  /// Return the caller of the console's session that a request has.
  private func session(
    of request: borrowing HTTP2Request,
    _ route: Route,
    _ index: ConnectionIndex
  ) throws(Problem) -> Caller {
    guard let console = loop.console, route.callers != .credentialInBody else { throw Problem(.routeNotFound) }
    guard let caller = console.caller(of: request) else {
      let hasEnded = "the session has ended: log in at /console"
      throw Problem(.tokenMissing, ConsoleSessions.isOfOtherSite(request) ? ConsoleSessions.otherSite : hasEnded)
    }
    // The figures of this gateway are seen while the list of revoked tokens is not known, since the store is away.
    if let refusal = authenticator.refusal(of: caller, now: loop.now),
      refusal != .storeUnavailable || route.callers != .console
    {
      throw Problem(refusal)
    }
    markAuthenticated(index)
    guard !caller.isReadOnly || request.method == .get || request.method == .head else {
      throw Problem(.consoleReadOnly)
    }
    return caller
  }

  /// Return the token of a request. A browser's EventSource sends no header; its token is in the query.
  @_lifetime(borrow request, copy match)
  private func token(of request: borrowing HTTP2Request, _ match: borrowing RouteMatch) throws(Problem) -> RawSpan {
    match.route == .events && request.authorizationIdentity == 0
      ? try Authenticator.token(ofQuery: match.query, loop.scratch) : try Authenticator.token(of: request.authorization)
  }

  /// Check the token of a request before its body arrives, on a connection that has shown no valid token: bodies of
  /// unauthenticated clients are not kept.
  ///
  /// - Returns: false where the request will be refused, whatever its body is.
  func acceptsBody(_ request: borrowing HTTP2Request, _ index: ConnectionIndex, _ stream: HTTP2StreamHandle) -> Bool {
    // A request without a route is always refused.
    guard let match = try? loop.match(request) else { return false }
    let identity = request.authorizationIdentity
    if match.route.callers == .unauthenticated || match.route.callers == .credentialInBody && identity == 0 {
      return true
    }
    if usesSession(request, match.route) {
      return (try? session(of: request, match.route, index)) != nil
    }
    switch loop.connections.verdict(of: identity, on: index) {
    case .caller: return true
    case .refused: return false
    case .unknown: break
    }
    do throws(Problem) {
      let token = try token(of: request, match)
      switch authenticator.verdict(of: token, now: loop.now) {
      case .caller: markAuthenticated(index)
      case .refused(let code): return code == .storeUnavailable
      case .unknown: try waitForVerification(token, request, connection: index, stream: stream, awaitsBody: true)
      }
      return true
    } catch {
      return error.code == .rateLimited || error.code == .authenticationBusy
    }
  }

  /// Continue a request whose token was verified before its body arrived.
  private func tokenVerifiedBeforeBody(_ waiting: RequestAwaitingVerification, _ result: Result<Caller, TokenRefusal>) {
    guard let connection = loop.connections.connection(waiting.connection) else { return }
    // A request that is complete by now waits for the same token again.
    guard let identity = connection.withHeaders(waiting.stream, { $0.authorizationIdentity }) else { return }
    loop.connections.markDirty(waiting.connection)
    remember(result, waiting.connection, identity: identity)
    if case .failure(let refusal) = result, refusal.code != .storeUnavailable {
      connection.refuseBody(waiting.stream)
    }
  }

  /// Cache the result for a connection's credential, unless time or revocation can change it.
  private func remember(_ result: Result<Caller, TokenRefusal>, _ index: ConnectionIndex, identity: UInt32) {
    if case .failure(let refusal) = result, refusal.code.isTransient { return }
    loop.connections[credentialsOf: index].remember(identity: identity, result)
    if case .success = result { markAuthenticated(index) }
  }

  /// Let a request wait until its unknown token is verified, unless its sender has shown too many bad tokens.
  private func waitForVerification(
    _ token: RawSpan,
    _ request: borrowing HTTP2Request,
    connection index: ConnectionIndex,
    stream: HTTP2StreamHandle,
    awaitsBody: Bool = false
  ) throws(Problem) {
    try checkMayTry(request, index)
    if loop.connections[credentialsOf: index].badTokens >= loop.limits.badTokensPerConnection {
      loop.rates.recordRefusal(.token, request, index)
      throw tooManyBadTokens(1)
    }
    let waiting = RequestAwaitingVerification(
      connection: index,
      stream: stream,
      origin: origin(request, index),
      awaitsBody: awaitsBody
    )
    if let verification = try authenticator.waitForVerification(waiting, token: token) { verify(verification) }
    misses &+= 1
  }

  /// Return the key of the party whose waiting requests are limited (``RequestAwaitingVerification/origin``).
  private func origin(_ request: borrowing HTTP2Request, _ index: ConnectionIndex) -> UInt64 {
    guard loop.connections.isShared(index) else { return UInt64(index.rawValue) + 1 }
    return loop.rates.client(request, index)?.key ?? 0
  }

  /// Cancel the request of a stream that has closed.
  func cancel(_ stream: HTTP2StreamHandle) { authenticator.cancel(stream) }

  /// Run a verification, off the event loop.
  private func verify(_ verification: Authenticator.Verification) {
    let eventLoop = loop.eventLoop
    // Retains the loop until the result is there.
    let bound = NIOLoopBound((part: self, loop: loop), eventLoop: eventLoop)
    Task {
      let result = await verification.verifier.verify(verification.token)
      eventLoop.execute { bound.value.part.verified(verification, result) }
    }
  }

  private func verified(_ verification: Authenticator.Verification, _ result: Result<Caller, TokenRefusal>) {
    switch authenticator.verified(verification, result, now: loop.now) {
    case .verify(let again): verify(again)
    case .finish(let requests, let result):
      for request in requests { resume(request, result) }
      loop.endTurn()
    }
  }

  /// Mark a connection that has shown a valid token: it is no longer evicted for newer ones.
  private func markAuthenticated(_ index: ConnectionIndex) {
    guard loop.connections[credentialsOf: index].recordAuthenticated(),
      let connection = loop.connections.connection(index)
    else { return }
    connection.markAuthenticated()
    if let channel = connection.channel { loop.shared.gate?.markAuthenticated(channel) }
  }

  /// Continue a request whose token has been verified.
  private func resume(_ waiting: RequestAwaitingVerification, _ result: Result<Caller, TokenRefusal>) {
    if waiting.awaitsBody { return tokenVerifiedBeforeBody(waiting, result) }
    guard let connection = loop.connections.answering(waiting.stream, on: waiting.connection) else { return }
    var admission = RequestAdmission()
    do throws(Problem) {
      _ = try connection.withRequest(waiting.stream) { request throws(Problem) in
        switch result {
        case .success(let caller):
          self.remember(result, waiting.connection, identity: request.authorizationIdentity)
          try self.loop.receive(
            request,
            caller: caller,
            stream: waiting.stream,
            connection: connection,
            admission: &admission
          )
        case .failure(let refusal):
          admission.route = try self.loop.match(request).route
          self.remember(result, waiting.connection, identity: request.authorizationIdentity)
          throw self.refused(refusal.code, request, waiting.connection)
        }
      }
    } catch {
      loop.answer(
        loop.rates.chargeRefused(error, stream: waiting.stream, connection: connection, admission: admission),
        route: admission.route,
        stream: waiting.stream,
        connection: connection
      )
    }
  }

  // MARK: Refused tokens

  /// Return the problem for a refused token. A token that no key has signed counts against its address. A connection
  /// that keeps sending such tokens is closed after a delay, unless it is a proxy's.
  func refused(
    _ code: ProblemCode,
    _ request: borrowing HTTP2Request,
    _ index: ConnectionIndex,
    detail: String? = nil
  ) -> Problem {
    let problem = detail.map { Problem(code, $0) } ?? Problem(code)
    // The list of revoked tokens is not known yet.
    guard code != .storeUnavailable else { return problem }
    refusals &+= 1
    loop.rates.recordRefusal(.token, request, index)
    guard code.isSignatureFailure else { return problem }
    loop.rates.chargeBadToken(request, index)
    guard !loop.connections.isShared(index) else { return problem }
    loop.connections[credentialsOf: index].recordBadToken()
    if loop.connections[credentialsOf: index].badTokens == loop.limits.badTokensPerConnection {
      closeAfterDelay(index)
    }
    return problem
  }

  /// Refuse another token or code from where too many bad ones came.
  func checkMayTry(_ request: borrowing HTTP2Request, _ index: ConnectionIndex) throws(Problem) {
    if let decision = loop.rates.refusalToVerify(request, index) {
      throw tooManyBadTokens(decision.retryAfterSeconds)
    }
  }

  private func tooManyBadTokens(_ retryAfterSeconds: Int) -> Problem {
    refusals &+= 1
    var problem = Problem(.rateLimited, "too many tokens with invalid signatures came from here; retry later")
    problem.retryAfterSeconds = retryAfterSeconds
    problem.isForBadTokens = true
    return problem
  }

  /// Close a connection after a delay, which slows down a client that guesses tokens.
  private func closeAfterDelay(_ index: ConnectionIndex) {
    guard let connection = loop.connections.connection(index) else { return }
    endedConnections &+= 1
    loop.rates.recordEnd(index)
    loop.eventLoop.assumeIsolated().scheduleTask(in: loop.limits.badTokenDelay) { [loop] in
      guard loop.connections[credentialsOf: index].badTokens >= loop.limits.badTokensPerConnection else { return }
      connection.fail(.enhanceYourCalm)
    }
  }

  // MARK: Metrics

  override func collect(into samples: inout MetricSamples) {
    samples.gauge(
      "tidemark_gateway_tokens_cached",
      help: "Verified tokens in the cache.",
      Double(authenticator.cachedCount)
    )
    samples.gauge(
      "tidemark_gateway_requests_parked",
      help: "Requests that wait for their token to be verified.",
      Double(authenticator.waitingCount)
    )
    let tokens = [("hit", hits), ("miss", misses), ("refused", refusals)]
    for (result, count) in tokens {
      samples.counter(
        "tidemark_gateway_tokens_total",
        help: "Token look-ups: found in the cache, verified, or refused.",
        labels: ["result": result],
        Int64(count)
      )
    }
    samples.counter(
      "tidemark_gateway_connections_ended_for_tokens_total",
      help: "Connections closed after too many tokens with an invalid signature.",
      Int64(clamping: endedConnections)
    )
  }
}

extension ProblemCode {
  /// Whether the code says that no key of this gateway has signed the token, or that it has not issued the console's
  /// code. Codes about times and claims do not.
  var isSignatureFailure: Bool {
    switch self {
    case .tokenMalformed, .tokenTooLong, .tokenAlgorithmNotAllowed, .tokenSignatureInvalid, .consoleCodeInvalid:
      true
    default: false
    }
  }
}
