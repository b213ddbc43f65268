internal import HTTP2Session
internal import NIOCore
internal import Operations
internal import ReceiptModel

/// Who calls, from where, and how often: what a request has to pass before its route sees it.
extension GatewayLoop {
  // MARK: From where

  /// Notes whose a connection is: its peer, whom a PROXY header names, or clients that a proxy names one by one.
  ///
  /// - Parameter isNamed: a PROXY header names it: then the connection is that client's alone.
  func note(
    _ index: UInt32,
    client: PeerAddress?,
    isNamed: Bool,
    _ connection: HTTP2ServerConnection<GatewayLoop>
  ) {
    let isShared = !isNamed && client.map { gate?.isTrusted($0) ?? false } ?? false
    connections.note(index, client: client, isShared: isShared)
    connection.isShared = isShared
  }

  /// The address that a request comes from; nil where that is not known.
  func client(_ request: borrowing HTTP2Request, _ index: UInt32) -> PeerAddress? {
    guard connections.entries[Int(index)].isShared else { return connections.entries[Int(index)].client }
    return PeerAddress(lastOf: request.forwardedFor)
  }

  /// Who pays for tokens that are refused: nobody where the address is not known, or is this machine's, whose peers are
  /// most often a proxy.
  private func payer(_ request: borrowing HTTP2Request, _ index: UInt32) -> PeerAddress? {
    guard let address = client(request, index) else { return nil }
    return address.isLoopback && gate?.limits.countsLoopback != true ? nil : address
  }

  // MARK: Who

  /// Who calls; nil where the request was parked.
  func authenticate(
    _ request: borrowing HTTP2Request,
    _ match: borrowing RouteMatch,
    _ index: UInt32,
    _ stream: HTTP2StreamHandle
  ) throws(Problem) -> Caller? {
    let route = match.route
    let identity = request.authorizationIdentity
    if route.caller == .everybody { return Caller.nobody }
    // A device has no header: its credential is in the body.
    if route.caller == .anyone && identity == 0 { return Caller.nobody }
    switch connections.known(index, identity: identity) {
    case .caller(let caller):
      if let refusal = authenticator.refusal(of: caller, now: now) { throw refused(refusal, request, index) }
      counters.tokenHits &+= 1
      return caller
    case .refused(let code): throw refused(code, request, index)
    case .unknown: break
    }
    // A browser's EventSource sends no header.
    let token: RawSpan
    do throws(Problem) {
      token =
        route == .events && identity == 0
        ? try queryToken(match.query) : try Authenticator.token(of: request.authorization)
    } catch {
      throw error.code == .tokenTooLong ? refused(error.code, request, index) : error
    }
    switch authenticator.verdict(of: token, now: now) {
    case .caller(let caller):
      counters.tokenHits &+= 1
      connections.remember(index, identity: identity, .success(caller))
      prove(index)
      return caller
    case .refused(let code):
      // As in `verified`: others do not turn out otherwise.
      if !code.mayPass {
        connections.remember(index, identity: identity, .failure(TokenRefusal(code)))
      }
      throw refused(code, request, index)
    case .unknown:
      try park(token, request, route, index, stream)
      return nil
    }
  }

  /// Has a token verified that is not known yet, where its sender has not shown too many that are none.
  private func park(
    _ token: RawSpan,
    _ request: borrowing HTTP2Request,
    _ route: Route,
    _ index: UInt32,
    _ stream: HTTP2StreamHandle
  ) throws(Problem) {
    if let address = payer(request, index), let decision = rates.mayShowToken(address, at: clock),
      !decision.isAllowed
    {
      refusals?.note(.token, from: address)
      throw tooManyBadTokens(decision.retryAfterSeconds)
    }
    if connections.entries[Int(index)].badTokens >= limits.badTokensPerConnection {
      throw tooManyBadTokens(1)
    }
    try authenticator.park(
      ParkedRequest(connection: index, stream: stream, origin: origin(request, index)),
      token: token,
      now: { self.now },
      finished: { self.verified($0, $1) },
      allFinished: { self.endTurn() }
    )
    counters.tokenMisses &+= 1
  }

  private func origin(_ request: borrowing HTTP2Request, _ index: UInt32) -> TokenOrigin {
    guard connections.entries[Int(index)].isShared else { return .connection(index) }
    return client(request, index).map { .address($0.network) } ?? .unknown
  }

  /// A connection has shown a valid token: it does not give way to newer ones any more.
  private func prove(_ index: UInt32) {
    connections.noteGoodToken(index)
    guard connections.noteProven(index), let connection = connections.connection(index) else { return }
    connection.isProven = true
    if let channel = connection.channel { gate?.prove(channel) }
  }

  /// Goes on with a request whose token has been verified.
  private func verified(_ parked: ParkedRequest, _ result: Result<Caller, TokenRefusal>) {
    guard let connection = connections.connection(parked.connection), connection.isOpen(parked.stream) else {
      return
    }
    connections.markDirty(parked.connection)
    currentRoute = GatewayCounters.noRoute
    hasDrawn = false
    do throws(Problem) {
      _ = try connection.withRequest(parked.stream) { request throws(Problem) in
        let match = try self.router.match(request.method, request.path, self.scratch)
        self.currentRoute = match.route.rawValue
        switch result {
        case .success(let caller):
          self.connections.remember(parked.connection, identity: request.authorizationIdentity, result)
          self.prove(parked.connection)
          try self.receive(request, caller: caller, parked.stream, connection)
        case .failure(let refusal):
          // Its times and revocations change what a token is worth; anything else about it never does.
          if !refusal.code.mayPass {
            self.connections.remember(parked.connection, identity: request.authorizationIdentity, result)
          }
          throw self.refused(refusal.code, request, parked.connection)
        }
      }
    } catch {
      answer(drawn(error, parked.stream, connection), currentRoute, parked.stream, connection)
    }
  }

  // MARK: Tokens that are refused

  /// What the sender of a refused token is told. One that no key of ours has signed costs its address, and a connection
  /// that goes on showing them ends after a delay; a proxy's does not.
  private func refused(_ code: ProblemCode, _ request: borrowing HTTP2Request, _ index: UInt32) -> Problem {
    // Whether the token is revoked is not known yet.
    guard code != .storeUnavailable else { return Problem(code) }
    counters.tokenRefusals &+= 1
    refusals?.note(.token, from: client(request, index))
    guard code.isOfNoKey else { return Problem(code) }
    if let address = payer(request, index) { rates.noteBadToken(address, at: clock) }
    guard !connections.entries[Int(index)].isShared else { return Problem(code) }
    if connections.noteBadToken(index) == limits.badTokensPerConnection { endSoon(index) }
    return Problem(code)
  }

  private func tooManyBadTokens(_ retryAfterSeconds: Int) -> Problem {
    counters.tokenRefusals &+= 1
    var problem = Problem(
      .rateLimited,
      "too many tokens from here were signed by no key of this service; others are looked at later"
    )
    problem.retryAfterSeconds = retryAfterSeconds
    return problem
  }

  /// Ends a connection, but not at once: whoever tries tokens is to wait before it can try on the next.
  private func endSoon(_ index: UInt32) {
    guard let connection = connections.connection(index) else { return }
    counters.connectionsEndedForTokens &+= 1
    refusals?.note(.connection, from: connections.entries[Int(index)].client)
    eventLoop.assumeIsolated().scheduleTask(in: limits.badTokenDelay) {
      guard self.connections.entries[Int(index)].badTokens >= self.limits.badTokensPerConnection else {
        return
      }
      connection.fail(.enhanceYourCalm)
    }
  }

  // MARK: How often

  /// Nanoseconds, on a clock that does not go back.
  private var clock: Int64 { Int64(NIODeadline.now().uptimeNanoseconds) }

  /// Draws a request's cost from the buckets of its caller and of its address: from both, or from neither. A server's
  /// address is not asked: it has the requests of all its users.
  func draw(
    _ route: Route,
    _ caller: Caller,
    _ request: borrowing HTTP2Request,
    _ stream: HTTP2StreamHandle,
    _ connection: HTTP2ServerConnection<GatewayLoop>
  ) throws(Problem) {
    hasDrawn = true
    // It has paid before it waited.
    if isBeginningBatch { return }
    let (cost, now, index) = (route.requestCost, clock, UInt32(truncatingIfNeeded: connection.userToken))
    let address = caller.isServer ? nil : client(request, index)
    let asked = rates.take(cost, from: address, at: now, .nothing)
    if let asked, !asked.decision.isAllowed { throw limited(asked, request, index, stream) }
    let ofCaller = rates.take(cost, from: caller, at: now)
    if let ofCaller, !ofCaller.decision.isAllowed { throw limited(ofCaller, request, index, stream) }
    let ofAddress = rates.take(cost, from: address, at: now, .always)
    let answers = [ofCaller, ofAddress].compactMap { $0 }
    if let tightest = answers.min(by: { $0.decision.remaining < $1.decision.remaining }) {
      connection.note(stream, tightest.note)
    }
  }

  /// What a request that was refused before it has drawn is answered: the problem, or that its address asks too often.
  func drawn(
    _ problem: Problem,
    _ stream: HTTP2StreamHandle,
    _ connection: HTTP2ServerConnection<GatewayLoop>
  ) -> Problem {
    guard rates.isOn, !hasDrawn, problem.code != .rateLimited else { return problem }
    let index = UInt32(truncatingIfNeeded: connection.userToken)
    return connection.withRequest(stream) { request in
      do throws(Problem) {
        try self.drawForAddress(request, stream, connection, index)
        return problem
      } catch {
        return error
      }
    } ?? problem
  }

  /// Draws one request of somebody without a token, or with one that is refused.
  func drawForAddress(
    _ request: borrowing HTTP2Request,
    _ stream: HTTP2StreamHandle,
    _ connection: HTTP2ServerConnection<GatewayLoop>,
    _ index: UInt32
  ) throws(Problem) {
    guard let answer = rates.take(1, from: client(request, index), at: clock) else { return }
    if !answer.decision.isAllowed { throw limited(answer, request, index, stream) }
    connection.note(stream, answer.note)
  }

  private func limited(
    _ answer: RateAnswer,
    _ request: borrowing HTTP2Request,
    _ index: UInt32,
    _ stream: HTTP2StreamHandle
  ) -> Problem {
    connections.connection(index)?.note(stream, answer.note)
    counters.rateLimited[Int(answer.share.rawValue) - 1] &+= 1
    refusals?.note(.rate, from: client(request, index))
    return rates.problem(answer)
  }

  /// Whether a stream may ask one thing more; what it asks is drawn in ``drawForStream(_:)``.
  func mayDraw(_ stream: RequestStream) -> Bool {
    guard rates.isOn else { return true }
    let (caller, now) = (stream.caller, clock)
    return rates.take(1, from: caller, at: now, .nothing)?.decision.isAllowed != false
      && (caller.isServer
        || rates.take(1, from: stream.address, at: now, .nothing)?.decision.isAllowed != false)
  }

  /// Draws a frame or line of a stream's body, whatever is in it.
  func drawForStream(_ stream: RequestStream) {
    guard rates.isOn else { return }
    _ = rates.take(1, from: stream.caller, at: clock)
    if !stream.caller.isServer { _ = rates.take(1, from: stream.address, at: clock) }
  }

  /// Has answers carry what they share, to which rates belong while there are any.
  func setCommonHeaders() {
    let (origins, rates) = (origins, rates)
    switch (origins.isEmpty, rates.isOn) {
    case (true, false): resources.commonHeaders = nil
    case (false, false): resources.commonHeaders = { origins.headers($0) }
    case (true, true): resources.commonHeaders = { rates.headers($0.note) }
    case (false, true): resources.commonHeaders = { origins.headers($0) + rates.headers($0.note) }
    }
  }
}

extension ProblemCode {
  /// Whether it says that no key of this gateway has signed the token: time, and what its claims say, do not.
  var isOfNoKey: Bool {
    switch self {
    case .tokenMalformed, .tokenTooLong, .tokenAlgorithmNotAllowed, .tokenSignatureInvalid: true
    default: false
    }
  }
}

extension PeerAddress {
  /// The last of a list with commas, as `X-Forwarded-For` is. What is no address is one client with all others that are
  /// none; nil where the list is empty.
  init?(lastOf list: RawSpan) {
    if list.isEmpty { return nil }
    var start = list.byteCount
    var end = list.byteCount
    func byte(_ at: Int) -> UInt8 { list.unsafeLoad(fromByteOffset: at, as: UInt8.self) }
    while start > 0, byte(start - 1) != UInt8(ascii: ",") { start -= 1 }
    while start < end, byte(start) == 0x20 || byte(start) == 0x09 { start += 1 }
    while end > start, byte(end - 1) == 0x20 || byte(end - 1) == 0x09 { end -= 1 }
    self = PeerAddress(text: list.extracting(start..<end)) ?? PeerAddress(high: 0, low: 0)
  }
}
