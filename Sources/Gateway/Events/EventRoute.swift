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

/// The query parameters of ``EventStreamsPart/openEvents(_:_:_:)``.
struct EventParameters {
  /// Nil: all channels of the user.
  var channels: [String]?
  var user: String?
  var cursor: EventCursor?
  var wantsTotals = false
  private var named: Set<ExactText> = []

  /// - Throws: `invalid_cid`, `invalid_field`, `invalid_query`, `invalid_user_id`, `user_id_mismatch`.
  mutating func read(
    _ query: RawSpan,
    _ context: RequestContext,
    scratch: PathScratch,
    limits: GatewayLimits
  ) throws(Problem) {
    var reader = QueryReader(query, scratch)
    while let parameter = try reader.next() {
      if parameter.name.equals("channels") {
        // An empty list must not widen the request: without `channels` it covers all channels.
        guard !parameter.value.isEmpty else {
          throw Problem(.invalidQuery, "channels has to name channels, as in channels=team:a,team:b")
        }
        if channels == nil { channels = [] }
        var list = parameter.list(scratch)
        while let cid = list.next() { try add(cid, countMax: limits.channelsPerRequest) }
        continue
      }
      // An empty value of another parameter counts as absent.
      if parameter.value.isEmpty { continue }
      if parameter.name.equals("user_id") {
        try context.check(parameter.value)
        user = parameter.value.withUnsafeBytes { String(decoding: $0, as: UTF8.self) }
      } else if parameter.name.equals("since") {
        cursor = try Self.cursor(parameter.value, "since")
      } else if parameter.name.equals("totals") {
        wantsTotals = parameter.value.equals("true")
        guard wantsTotals || parameter.value.equals("false") else {
          throw Problem(.invalidQuery, "totals has to be true or false")
        }
      }
    }
  }

  static func cursor(_ text: RawSpan, _ name: String) throws(Problem) -> EventCursor {
    guard let cursor = EventCursor(text) else {
      throw Problem(.invalidField, "\(name) is not the id of an event: leave it out, or give the last id that came")
    }
    return cursor
  }

  /// Add a channel, unless it was named before.
  private mutating func add(_ cid: RawSpan, countMax: Int) throws(Problem) {
    guard Identifier.isCID(cid) else { throw Problem(.invalidCID) }
    let name = cid.withUnsafeBytes { String(decoding: $0, as: UTF8.self) }
    guard named.insert(ExactText(name)).inserted else { return }
    guard named.count <= countMax else {
      throw Problem(.invalidField, "channels has to name at most \(countMax)")
    }
    channels?.append(name)
  }
}
