internal import HTTP2Session
internal import NIOCore
internal import ReceiptModel
internal import StoreClient

/// `GET /v1/events` (API.md, "Events").
extension GatewayLoop {
  /// Takes up a stream. It is answered when its channels are subscribed to; one that resumes when they are known.
  func openEvents(
    _ match: borrowing RouteMatch,
    _ context: RequestContext,
    _ request: borrowing HTTP2Request
  ) throws(Problem) {
    var parameters = EventParameters()
    try parameters.read(match.query, context, self)
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
    guard let name = store.storeID else { throw Problem(.storeUnavailable) }
    if request.method == .head {
      guard let connection = connections.connection(context.connection) else { return }
      connections.markDirty(context.connection)
      connection.startStreaming(context.stream, status: 200, contentType: .eventStream)
      return counters.answered(match.route.rawValue, status: 200)
    }
    if events.isDraining { throw Problem(.storeBusy, "this gateway goes away") }
    let start = parameters.cursor?.start(store: name, now: now) ?? .live
    let ref = try events.hub.open(
      EventHub.Request(
        user: parameters.user,
        isServer: context.caller.isServer,
        issued: context.caller.issued,
        channels: parameters.channels,
        start: start
      )
    )
    let stream = EventStream(
      ref,
      connection: context.connection,
      handle: context.stream,
      caller: context.caller,
      totalsOf: parameters.wantsTotals ? parameters.user : nil
    )
    events.insert(stream)
    performEvents()
  }

  /// The token of a request that can have no header: `access_token` (RFC 6750 section 2.3), as a browser's EventSource
  /// sends it.
  @_lifetime(copy query)
  func queryToken(_ query: RawSpan) throws(Problem) -> RawSpan {
    var reader = QueryReader(query, scratch)
    while let parameter = try reader.next() {
      guard parameter.name.equals("access_token"), !parameter.value.isEmpty else { continue }
      guard parameter.value.byteCount <= TokenVerifier.byteCountMax else { throw Problem(.tokenTooLong) }
      return _overrideLifetime(parameter.value, copying: query)
    }
    throw Problem(.tokenMissing)
  }
}

/// The query of ``GatewayLoop/openEvents(_:_:_:)``.
struct EventParameters {
  /// Nil: all of the user's.
  var channels: [String]?
  var user: String?
  var cursor: EventCursor?
  var wantsTotals = false
  private var named: Set<ExactText> = []

  /// - Throws: `invalid_cid`, `invalid_field`, `invalid_query`, `invalid_user_id`, `user_id_mismatch`.
  mutating func read(_ query: RawSpan, _ context: RequestContext, _ loop: GatewayLoop) throws(Problem) {
    var reader = QueryReader(query, loop.scratch)
    while let parameter = try reader.next() {
      if parameter.name.equals("channels") {
        // This may not widen what is asked for: without channels it is all of them.
        guard !parameter.value.isEmpty else {
          throw Problem(.invalidQuery, "channels has to name channels, as in channels=team:a,team:b")
        }
        if channels == nil { channels = [] }
        var list = parameter.list(loop.scratch)
        while let cid = list.next() { try add(cid, countMax: loop.limits.channelsPerRequest) }
        continue
      }
      // An empty value of another parameter counts as absent.
      if parameter.value.isEmpty { continue }
      if parameter.name.equals("user_id") {
        try GatewayLoop.check(parameter.value, context)
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
      throw Problem(
        .invalidField,
        "\(name) is not the id of an event: leave it out, or give the last id that came"
      )
    }
    return cursor
  }

  /// Adds a channel that is not named yet.
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
