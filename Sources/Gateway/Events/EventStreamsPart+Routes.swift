internal import HTTP2Session
internal import NIOCore
internal import ReceiptModel
internal import StoreClient

/// `GET /v1/events` (Proto/openapi.yaml).
extension EventStreamsPart {
  /// Open an event stream. It is answered once its channels are subscribed to; a resuming stream, once they are
  /// listed.
  func openEvents(
    _ match: borrowing RouteMatch,
    _ context: RequestContext,
    _ request: borrowing HTTP2Request
  ) throws(Problem) {
    var parameters = EventParameters()
    try parameters.read(match.query, context, scratch: loop.scratch, limits: loop.limits)
    if !request.lastEventID.isEmpty {
      parameters.cursor = try EventParameters.cursor(request.lastEventID, "last-event-id")
    }
    if parameters.user == nil {
      if !context.caller.isServer {
        parameters.user = String(decoding: context.caller.userID, as: UTF8.self)
      } else if parameters.channels == nil || parameters.wantsTotals {
        throw Problem(.userIDRequired)
      }
    }
    guard let name = loop.store.storeID else { throw Problem(.storeUnavailable) }
    if request.method == .head {
      guard let connection = loop.connections.answering(context.stream, on: context.connection) else {
        return
      }
      connection.startStreaming(context.stream, status: 200, contentType: .eventStream)
      return loop.counters.answered(match.route, status: 200)
    }
    let start = parameters.cursor?.start(store: name, now: loop.now) ?? .live
    let stream = EventHub.Request(
      user: parameters.user,
      isServer: context.caller.isServer,
      issued: context.caller.issued,
      channels: parameters.channels,
      start: start
    )
    try open(stream, context, wantsTotals: parameters.wantsTotals)
  }
}
