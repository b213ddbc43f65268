internal import HTTP2Session
internal import NIOCore
internal import Operations
internal import ReceiptModel

/// Routes of the console. Its page calls the API below `/console/v1` with its session, as a server that may only read,
/// unless `--console-writes` is given.
struct ConsoleRoutes {
  let loop: GatewayLoop

  /// Return the sessions.
  ///
  /// - Throws: `route_not_found`: this gateway has no console.
  private func sessions() throws(Problem) -> ConsoleSessions {
    guard let console = loop.console else { throw Problem(.routeNotFound) }
    return console
  }

  /// Handle `POST /console/codes`, for a server token: 201 `{"code","expires_in"}`, a one-time code for `tidemark
  /// console` and its validity in seconds.
  func issueCode(_ match: borrowing RouteMatch, _ context: RequestContext) throws(Problem) {
    let code = try sessions().issueCode(to: context.caller, now: loop.now)
    let seconds = ConsoleSessions.codeMilliseconds / 1_000
    respond(match.route, context, status: 201, ByteBuffer(string: #"{"code":"\#(code)","expires_in":\#(seconds)}"#))
  }

  /// Handle `POST /console/login` with `{"code"}`: exchanges a one-time code for a session. 200 as ``getSession(_:_:)``,
  /// with the cookie.
  ///
  /// - Throws: `console_code_invalid`, `rate_limited` after many invalid codes, `token_missing` for another site's page.
  func logIn(
    _ match: borrowing RouteMatch,
    _ context: RequestContext,
    _ request: borrowing HTTP2Request
  ) throws(Problem) {
    let sessions = try sessions()
    try refuseOtherSites(request)
    if let decision = loop.rates.refusalToVerify(request, context.connection) {
      var problem = Problem(.rateLimited, "too many invalid codes or tokens came from here; retry later")
      problem.retryAfterSeconds = decision.retryAfterSeconds
      throw problem
    }
    let body = try loop.object(request, .consoleLogin)
    guard let opened = sessions.open(code: try body.requiredString("code"), now: loop.now) else {
      loop.rates.recordRefusal(.token, request, context.connection)
      loop.rates.chargeBadToken(request, context.connection)
      let detail = "it was used, is older than 60 s, or is another gateway's: run tidemark console again"
      throw Problem(.consoleCodeInvalid, detail)
    }
    answer(opened, match.route, context)
  }

  /// Handle `POST /console/session`, for a server token: a session that ends with the token at the latest. 200 as
  /// ``getSession(_:_:)``, with the cookie.
  func openSession(
    _ match: borrowing RouteMatch,
    _ context: RequestContext,
    _ request: borrowing HTTP2Request
  ) throws(Problem) {
    try refuseOtherSites(request)
    answer(try sessions().open(for: context.caller, now: loop.now), match.route, context)
  }

  /// Handle `GET /console/session`: 200 `{"writes","expires_at_ms"}`, whether the session may change anything, and its
  /// end in milliseconds since 1970.
  func getSession(_ match: borrowing RouteMatch, _ context: RequestContext) throws(Problem) {
    respond(match.route, context, status: 200, Self.body(context.caller))
  }

  /// Handle `POST /console/logout`: 200 `{}`, also without a session.
  func logOut(
    _ match: borrowing RouteMatch,
    _ context: RequestContext,
    _ request: borrowing HTTP2Request
  ) throws(Problem) {
    let sessions = try sessions()
    try refuseOtherSites(request)
    if let secret = request.cookie(ConsoleSessions.cookie) { sessions.close(secret) }
    respond(match.route, context, status: 200, ByteBuffer(string: "{}"), [Self.cookie("", seconds: 0)])
  }

  /// Handle `GET /console/metrics`: this gateway's metrics, as on its operations listener.
  func metrics(_ match: borrowing RouteMatch, _ context: RequestContext) throws(Problem) {
    let registry = try sessions().metrics
    let route = match.route
    let bound = NIOLoopBound((routes: self, context: context), eventLoop: loop.eventLoop)
    registry.collect(on: loop.eventLoop).whenSuccess { samples in
      var text = ByteBuffer()
      samples.write(into: &text)
      let (routes, context) = bound.value
      routes.respond(route, context, status: 200, text, type: .text)
      routes.loop.endTurn()
    }
  }

  /// A page of another site may neither log its visitor in nor out.
  private func refuseOtherSites(_ request: borrowing HTTP2Request) throws(Problem) {
    if ConsoleSessions.isOfOtherSite(request) { throw Problem(.tokenMissing, ConsoleSessions.otherSite) }
  }

  // MARK: Responses

  private func answer(_ opened: (secret: String, caller: Caller), _ route: Route, _ context: RequestContext) {
    let seconds = max(0, (opened.caller.expiresAt - loop.now + 999) / 1_000)
    respond(route, context, status: 200, Self.body(opened.caller), [Self.cookie(opened.secret, seconds: seconds)])
  }

  private static func body(_ caller: Caller) -> ByteBuffer {
    ByteBuffer(string: #"{"writes":\#(!caller.isReadOnly),"expires_at_ms":\#(caller.expiresAt)}"#)
  }

  private static func cookie(_ secret: String, seconds: Int64) -> HTTP2Header {
    HTTP2Header(
      "set-cookie",
      "\(ConsoleSessions.cookie)=\(secret); Path=/console; Max-Age=\(seconds); HttpOnly; Secure; SameSite=Strict"
    )
  }

  private func respond(
    _ route: Route,
    _ context: RequestContext,
    status: Int,
    _ body: ByteBuffer,
    _ headers: [HTTP2Header] = [],
    type: HTTP2ContentType = .json
  ) {
    guard let connection = loop.connections.answering(context.stream, on: context.connection) else { return }
    connection.respond(
      context.stream,
      status: status,
      contentType: type,
      headers: [.noStore] + headers,
      body: body
    )
    loop.counters.answered(route, status: status)
  }
}

extension KnownFields {
  static let consoleLogin: KnownFields = ["code"]
}
