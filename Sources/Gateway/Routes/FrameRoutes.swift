internal import HTTP2Session

/// `POST /v1/frames` (API.md, "Frames over HTTP/2").
extension GatewayLoop {
  /// Takes up a stream of frames.
  ///
  /// - Throws: `content_type_not_supported`, `store_busy`.
  func openFrames(
    _ match: borrowing RouteMatch,
    _ context: RequestContext,
    _ request: borrowing HTTP2Request
  ) throws(Problem) {
    guard match.route.streams(request.contentType) else { throw Problem(.contentTypeNotSupported) }
    // A body that ended with the headers has no frames.
    guard request.bodyStreams else {
      guard let connection = connections.connection(context.connection) else { return }
      connections.markDirty(context.connection)
      connection.respond(context.stream, status: 200, contentType: .frames) { _ in }
      return counters.answered(match.route.rawValue, status: 200)
    }
    try open(FrameStream(context, limits), contentType: .frames)
  }
}
