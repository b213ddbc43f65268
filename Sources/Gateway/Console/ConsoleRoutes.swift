internal import Foundation
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

  /// Return the sessions, for a request that opens or closes one: a page of another site may neither log its visitor in
  /// nor out.
  private func sessions(for request: borrowing HTTP2Request) throws(Problem) -> ConsoleSessions {
    let sessions = try sessions()
    if ConsoleSessions.isOfOtherSite(request) { throw Problem(.tokenMissing, ConsoleSessions.otherSite) }
    return sessions
  }

  /// Handle `POST /console/codes`, for a server token: 201 `{"code","expires_in"}`, a one-time code for `tidemark
  /// console` and its validity in seconds.
  func issueCode(_ match: borrowing RouteMatch, _ context: RequestContext) throws(Problem) {
    let code = try sessions().issueCode(to: context.caller, now: loop.now)
    let seconds = ConsoleSessions.codeMilliseconds / 1_000
    respond(match.route, context, status: 201, ByteBuffer(string: #"{"code":"\#(code)","expires_in":\#(seconds)}"#))
  }

  /// Handle `POST /console/login` with `{"code"}`: exchanges a one-time code for a session. 200 as
  /// ``getSession(_:_:)``, with the cookie.
  ///
  /// - Throws: `console_code_invalid`, `rate_limited` after many invalid codes, `token_missing` for another site.
  func logIn(
    _ match: borrowing RouteMatch,
    _ context: RequestContext,
    _ request: borrowing HTTP2Request
  ) throws(Problem) {
    let sessions = try sessions(for: request)
    try loop.authentication.checkMayTry(request, context.connection)
    let body = try loop.object(request, .consoleLogin)
    guard let opened = sessions.open(code: try body.requiredString("code"), now: loop.now) else {
      let detail = "it was used, is older than 60 s, or is another gateway's: run tidemark console again"
      throw loop.authentication.refused(.consoleCodeInvalid, request, context.connection, detail: detail)
    }
    try answer(opened, match.route, context)
  }

  /// Handle `POST /console/session`, for a server token: a session that ends with the token at the latest. 200 as
  /// ``getSession(_:_:)``, with the cookie.
  func openSession(
    _ match: borrowing RouteMatch,
    _ context: RequestContext,
    _ request: borrowing HTTP2Request
  ) throws(Problem) {
    try answer(try sessions(for: request).open(for: context.caller, now: loop.now), match.route, context)
  }

  /// Handle `GET /console/session`: 200 `{"writes","expires_at_ms","stores"}`: whether the session may change anything,
  /// its end in milliseconds since 1970, and the addresses of stores whose metrics can be asked for.
  func getSession(_ match: borrowing RouteMatch, _ context: RequestContext) throws(Problem) {
    respond(match.route, context, status: 200, try body(context.caller))
  }

  /// Handle `POST /console/logout`: 200 `{}`, also without a session.
  func logOut(
    _ match: borrowing RouteMatch,
    _ context: RequestContext,
    _ request: borrowing HTTP2Request
  ) throws(Problem) {
    let sessions = try sessions(for: request)
    if let secret = request.cookie(ConsoleSessions.cookie) { sessions.close(secret) }
    respond(match.route, context, status: 200, ByteBuffer(string: "{}"), [Self.cookie("", seconds: 0)])
  }

  /// Handle `GET /console/metrics`: this gateway's metrics, as on its operations listener; with `?store=` those of a
  /// store, by its place in ``getSession(_:_:)``.
  ///
  /// - Throws: `invalid_query` for another number. Later `store_unavailable` if that store does not answer.
  func metrics(_ match: borrowing RouteMatch, _ context: RequestContext) throws(Problem) {
    let sessions = try sessions()
    let (route, eventLoop) = (match.route, loop.eventLoop)
    let bound = NIOLoopBound((routes: self, context: context), eventLoop: eventLoop)
    if let store = try Self.store(match.query, loop.scratch) {
      let urls = sessions.configuration.storeMetrics
      guard urls.indices.contains(store) else { throw Problem(.invalidQuery, "store: there is no such store") }
      let url = urls[store].description
      Task {
        let answer = await HealthCheck.get(url, timeout: Self.storeTimeout)
        eventLoop.execute {
          let (routes, context) = bound.value
          routes.answer(answer, of: url, route, context)
        }
      }
    } else {
      sessions.metrics.collect(on: eventLoop).whenSuccess { samples in
        var text = ByteBuffer()
        samples.write(into: &text)
        let (routes, context) = bound.value
        routes.respond(route, context, status: 200, text, type: .text)
        routes.loop.endTurn()
      }
    }
  }

  /// How long a store's operations listener may take.
  private static let storeTimeout = TimeAmount.seconds(2)

  private func answer(
    _ answer: (status: Int, body: String)?,
    of url: String,
    _ route: Route,
    _ context: RequestContext
  ) {
    if let answer, answer.status == 200 {
      respond(route, context, status: 200, ByteBuffer(string: answer.body), type: .text)
    } else if let connection = loop.connections.answering(context.stream, on: context.connection) {
      let problem = Problem(.storeUnavailable, "\(url) does not answer (--console-store-metrics)")
      loop.answer(problem, route: route, stream: context.stream, connection: connection)
    }
    loop.endTurn()
  }

  /// Return the number in the parameter `store`; nil: there is none.
  private static func store(_ query: RawSpan, _ scratch: PathScratch) throws(Problem) -> Int? {
    var reader = QueryReader(query, scratch)
    while let parameter = try reader.next() {
      guard parameter.name.equals("store") else { continue }
      guard let number = parameter.value.decimal else { throw Problem(.invalidQuery, "store has to be a number") }
      return Int(number)
    }
    return nil
  }

  // MARK: Responses

  private func answer(
    _ opened: (secret: String, caller: Caller),
    _ route: Route,
    _ context: RequestContext
  ) throws(Problem) {
    let seconds = max(0, (opened.caller.expiresAt - loop.now + 999) / 1_000)
    respond(route, context, status: 200, try body(opened.caller), [Self.cookie(opened.secret, seconds: seconds)])
  }

  /// The answer of ``getSession(_:_:)``.
  private struct Session: Encodable {
    var writes: Bool
    var expires_at_ms: Int64
    var stores: [String]
  }

  private func body(_ caller: Caller) throws(Problem) -> ByteBuffer {
    let stores = try sessions().configuration.storeMetrics.map { $0.endpoint.description }
    let session = Session(writes: !caller.isReadOnly, expires_at_ms: caller.expiresAt, stores: stores)
    guard let json = try? JSONEncoder().encode(session) else { throw Problem(.internalError) }
    return ByteBuffer(bytes: json)
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
