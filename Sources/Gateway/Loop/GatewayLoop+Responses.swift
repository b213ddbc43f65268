internal import HTTP2Session
internal import Logging
internal import NIOCore

/// Responses to requests. Each is counted where it is written.
extension GatewayLoop {
  /// Write a response, and count it.
  func respond(
    _ route: Route,
    stream: HTTP2StreamHandle,
    connection: HTTP2ServerConnection<GatewayLoop>,
    status: Int = 200,
    contentType: HTTP2ContentType = .json,
    body: (inout ByteBuffer) -> Void
  ) {
    connection.respond(stream, status: status, contentType: contentType, body: body)
    counters.answered(route, status: status)
  }

  /// Write a response whose body is ready, and count it.
  func respond(
    _ route: Route,
    stream: HTTP2StreamHandle,
    connection: HTTP2ServerConnection<GatewayLoop>,
    status: Int = 200,
    body: ByteBuffer
  ) {
    connection.respond(stream, status: status, body: body)
    counters.answered(route, status: status)
  }

  /// Answer where a bug of the gateway leaves no response: 500 with a log line, never an empty success. Traps in debug
  /// builds.
  func respondInternalError(
    _ what: StaticString,
    route: Route,
    stream: HTTP2StreamHandle,
    connection: HTTP2ServerConnection<GatewayLoop>
  ) {
    assertionFailure("\(what)")
    shared.logger.error("No answer could be written", metadata: ["bug": "\(what)", "route": "\(route.name)"])
    answer(Problem(.internalError), route: route, stream: stream, connection: connection)
  }

  /// Answer with a problem.
  func answer(
    _ problem: Problem,
    route: Route?,
    stream: HTTP2StreamHandle,
    connection: HTTP2ServerConnection<GatewayLoop>
  ) {
    let id = requestID(stream, connection)
    let status = problem.status
    let headers = problem.headers(requestID: id)
    connection.respond(stream, status: status, contentType: .problem, headers: headers) {
      problem.write(requestID: id, into: &$0)
    }
    counters.answered(route, status: status)
    if status >= 500 && problem.code != .notImplemented {
      shared.logger.debug(
        "Request not served",
        metadata: ["code": "\(problem.code.rawValue)", "request_id": "\(id)"]
      )
    }
  }
}
