internal import HTTP2Session
internal import Operations
internal import ReceiptModel

/// Routes of the files in the program. They are public, since the files contain no user data.
struct FileRoutes {
  let loop: GatewayLoop

  /// Handle `GET /v1/openapi.yaml`: this gateway's API in OpenAPI 3.1.
  func apiDocument(_ match: borrowing RouteMatch, _ context: RequestContext, _ request: borrowing HTTP2Request) {
    serve(.apiDocument, [], match, context, request)
  }

  /// Handle `GET /sdk/{name}`.
  func sdkFile(
    _ match: borrowing RouteMatch,
    _ context: RequestContext,
    _ request: borrowing HTTP2Request
  ) throws(Problem) {
    // An app loads a new version within five minutes.
    let caching = [HTTP2Header("cache-control", "public, max-age=300")]
    serve(try file("sdk/" + Self.name(match)), caching, match, context, request)
  }

  /// Handle `GET /demo`.
  func demoPage(
    _ match: borrowing RouteMatch,
    _ context: RequestContext,
    _ request: borrowing HTTP2Request
  ) throws(Problem) {
    try servePage(loop.demo != nil, "demo/index.html", match, context, request)
  }

  /// Handle `GET /demo/{name}`.
  func demoFile(
    _ match: borrowing RouteMatch,
    _ context: RequestContext,
    _ request: borrowing HTTP2Request
  ) throws(Problem) {
    try servePage(loop.demo != nil, "demo/" + Self.name(match), match, context, request)
  }

  /// Handle `GET /console`.
  func consolePage(
    _ match: borrowing RouteMatch,
    _ context: RequestContext,
    _ request: borrowing HTTP2Request
  ) throws(Problem) {
    try servePage(loop.console != nil, "console/index.html", match, context, request)
  }

  /// Handle `GET /console/{name}`.
  func consoleFile(
    _ match: borrowing RouteMatch,
    _ context: RequestContext,
    _ request: borrowing HTTP2Request
  ) throws(Problem) {
    try servePage(loop.console != nil, "console/" + Self.name(match), match, context, request)
  }

  /// Handle `GET /demo/session`: the tokens of the demo page, for its code as bearer.
  func demoSession(
    _ match: borrowing RouteMatch,
    _ context: RequestContext,
    _ request: borrowing HTTP2Request
  ) throws(Problem) {
    guard let demo = loop.demo else { throw Problem(.routeNotFound) }
    guard demo.accepts(request.authorization) else { throw Problem(.tokenSignatureInvalid) }
    guard let connection = loop.connections.connection(context.connection) else { return }
    loop.connections.markDirty(context.connection)
    let headers = [HTTP2Header("cache-control", "no-store")]
    connection.respond(context.stream, status: 200, contentType: .json, headers: headers, body: demo.tokens)
    loop.counters.answered(match.route, status: 200)
  }

  /// - Parameter isOn: whether this gateway has the page.
  private func servePage(
    _ isOn: Bool,
    _ name: String,
    _ match: borrowing RouteMatch,
    _ context: RequestContext,
    _ request: borrowing HTTP2Request
  ) throws(Problem) {
    guard isOn else { throw Problem(.routeNotFound) }
    serve(try file(name), Self.pageHeaders, match, context, request)
  }

  /// A page runs only scripts of this gateway, sends requests only to it, and is in no frame.
  private static let pageHeaders = [
    HTTP2Header(
      "content-security-policy",
      "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' data:; "
        + "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    ),
    HTTP2Header("x-content-type-options", "nosniff"), HTTP2Header("referrer-policy", "no-referrer"),
    HTTP2Header("cache-control", "no-cache"),
  ]

  private static func name(_ match: borrowing RouteMatch) -> String {
    match.subject.withUnsafeBytes { String(decoding: $0, as: UTF8.self) }
  }

  private func file(_ name: String) throws(Problem) -> EmbeddedFile {
    guard let file = EmbeddedFile.all[name] else { throw Problem(.routeNotFound) }
    return file
  }

  private func serve(
    _ file: EmbeddedFile,
    _ others: [HTTP2Header],
    _ match: borrowing RouteMatch,
    _ context: RequestContext,
    _ request: borrowing HTTP2Request
  ) {
    guard let connection = loop.connections.connection(context.connection) else { return }
    loop.connections.markDirty(context.connection)
    var form = file.plain
    if let gzip = file.gzip, let accepted = request.header("accept-encoding"), EmbeddedFile.allowsGzip(accepted) {
      form = gzip
    }
    var headers = [HTTP2Header("etag", form.tag), HTTP2Header("vary", "accept-encoding")] + others
    if let known = request.header("if-none-match"), form.isAmong(known) {
      connection.respond(context.stream, status: 304, headers: headers)
      return loop.counters.answered(match.route, status: 304)
    }
    if form.isCompressed { headers.append(HTTP2Header("content-encoding", "gzip")) }
    connection.respond(
      context.stream,
      status: 200,
      contentType: file.contentType,
      headers: headers,
      body: form.body,
      isKept: true
    )
    loop.counters.answered(match.route, status: 200)
  }
}
