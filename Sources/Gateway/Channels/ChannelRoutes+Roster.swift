internal import HTTP2Session
internal import NIOCore
internal import ReceiptModel
internal import ReceiptWire
internal import StoreClient

/// The members and messages of a channel, for a backend to reconcile with, and for an app to show.
extension ChannelRoutes {
  /// Handle `GET /v1/channels/{cid}/members?limit=&cursor=`.
  func listRoster(_ match: borrowing RouteMatch, _ context: RequestContext) throws(Problem) {
    var limit = loop.limits.rowsPerPage
    var cursor: UInt32?
    var user = match.query.extracting(0..<0)
    var reader = QueryReader(match.query, loop.scratch)
    while let parameter = try reader.next() {
      // An empty value counts as absent.
      if parameter.value.isEmpty { continue }
      if parameter.name.equals("limit") {
        limit = try loop.limits.pageLimit(parameter.value)
      } else if parameter.name.equals("cursor") {
        guard let row = PageCursor.joined(parameter.value) else { throw Problem(.invalidCursor) }
        cursor = row
      } else if parameter.name.equals("user_id") {
        user = parameter.value
        try context.check(user)
      }
    }
    let viewer = context.viewingUser(user)
    let isServer = context.caller.isServer
    try loop.send(.listRoster, to: .channel(match.subject), context) { buffer in
      buffer.writeRowPage(viewer: viewer, isServer: isServer, limit: limit, cursor: cursor)
    }
  }

  /// Handle `GET /v1/channels/{cid}/messages?limit=&cursor=`.
  func listMessages(_ match: borrowing RouteMatch, _ context: RequestContext) throws(Problem) {
    var limit = loop.limits.rowsPerPage
    var cursor: MessageListCursor?
    var reader = QueryReader(match.query, loop.scratch)
    while let parameter = try reader.next() {
      if parameter.value.isEmpty { continue }
      if parameter.name.equals("limit") {
        limit = try loop.limits.pageLimit(parameter.value)
      } else if parameter.name.equals("cursor") {
        guard let message = PageCursor.message(parameter.value) else { throw Problem(.invalidCursor) }
        cursor = message
      }
    }
    try loop.send(.listMessages, to: .channel(match.subject), context) { buffer in
      buffer.writeListMessages(limit: limit, cursor: cursor)
    }
  }

  /// Handle `POST /v1/read-state`: the first page of many channels' read states (R12).
  func readStates(
    _ match: borrowing RouteMatch,
    _ context: RequestContext,
    _ request: borrowing HTTP2Request
  ) throws(Problem) {
    let parameters = try PositionParameters(match.query, loop.scratch)
    let body = try loop.object(request, .readStates)
    let cids = try body.requiredArray("cids", countMax: loop.limits.entriesPerRequest)
    var iterator = cids.elements
    while let cid = iterator.next() { _ = try cid.asString() }
    var user = parameters.user
    if !user.isEmpty { try context.check(user) }
    if let named = try body.optionalNonNullString("user_id") {
      try context.check(named)
      user = named
    }
    let viewer = context.viewingUser(user)
    let isServer = context.caller.isServer
    let limit = loop.limits.rowsPerPage
    let response = FanOut.Response.results(status: 200, Self.writeReadStates)
    var fanOut = loop.fanOuts.begin(context, count: cids.count, response)
    iterator = cids.elements
    while let cid = try iterator.next()?.asString() {
      fanOut.addEntry(cid: cid)
      if Identifier.isCID(cid) {
        fanOut.send(.readState, to: .channel(cid)) {
          $0.writeRowPage(viewer: viewer, isServer: isServer, limit: limit, cursor: nil)
        }
      } else {
        fanOut.refuse(.invalidCID)
      }
    }
    fanOut.close()
  }

  private static func writeReadStates(_ fanOut: FanOut, into buffer: inout ByteBuffer) {
    let names = fanOut.names
    fanOut.writeResults("states", into: &buffer) { index, result, buffer in
      buffer.writeStaticString("{\"cid\":")
      if let cid = names.cid(index) { buffer.writeJSONString(cid) }
      if let code = result.code {
        buffer.writeString(",\"code\":\"\(code.rawValue)\"}")
      } else {
        buffer.writeStaticString(",\"read\":[")
        if let rows = fanOut.replyBytes.viewBytes(at: result.replyStart, length: result.replyByteCount) {
          buffer.writeBytes(rows)
        }
        buffer.writeStaticString("]}")
      }
    }
  }
}

extension KnownFields {
  static let readStates: KnownFields = ["cids", "user_id"]
}
