internal import HTTP2Session
internal import ReceiptModel
internal import ReceiptWire

/// `POST /v1/channels/{cid}/read` and `…/unread`: one position of one user (R2, R4). The first of them is the
/// busiest route of all: nothing here makes a string, an array or a closure that escapes.
extension GatewayLoop {
  func markRead(
    _ match: borrowing RouteMatch,
    _ context: RequestContext,
    _ request: borrowing HTTP2Request
  ) throws(Problem) {
    try mark(.markRead, messageRequired: false, match, context, request)
  }

  func markUnread(
    _ match: borrowing RouteMatch,
    _ context: RequestContext,
    _ request: borrowing HTTP2Request
  ) throws(Problem) {
    try mark(.markUnread, messageRequired: true, match, context, request)
  }

  private func mark(
    _ kind: FrameKind,
    messageRequired: Bool,
    _ match: borrowing RouteMatch,
    _ context: RequestContext,
    _ request: borrowing HTTP2Request
  ) throws(Problem) {
    let parameters = try PositionParameters(match.query, scratch)
    var message = parameters.message
    var user = parameters.user
    var epoch: UInt64?
    if parameters.wantsTotals { throw Problem(.notImplemented, "totals are not built yet") }
    var hasThread = parameters.hasThread
    if !user.isEmpty { try Self.check(user, context) }
    if !request.body.isEmpty {
      let body = try object(request)
      if let given = try body.optionalString("message_id") {
        guard !given.isEmpty else { throw Problem(.invalidMessageID) }
        message = given
      }
      if let given = try body.optionalString("user_id") {
        try Self.check(given, context)
        user = given
      }
      if try body.optionalString("thread_id") != nil { hasThread = true }
      epoch = try body.optionalInteger("unread_epoch", in: 0...Int64(UInt32.max)).map { UInt64($0) }
    }
    if hasThread { throw Problem(.notImplemented, "threads are not built yet") }
    let acting = try Self.actingUser(user, context)
    if message.isEmpty {
      if messageRequired { throw Problem(.invalidField, "field \"message_id\" is required") }
    } else if !Identifier.isMessage(message) {
      throw Problem(.invalidMessageID)
    }
    // An empty id stands for the newest message.
    try send(kind, cid: match.subject, context, match.route, .row) { buffer in
      buffer.writeField(acting)
      buffer.writeField(message)
      buffer.writeOptional(epoch)
    }
  }
}

/// The query parameters that position routes take. An empty value counts as absent, for each of them.
struct PositionParameters: ~Escapable {
  /// Empty for none.
  let message: RawSpan
  /// Empty for none.
  let user: RawSpan
  let hasThread: Bool
  let wantsTotals: Bool

  @_lifetime(copy query)
  init(_ query: RawSpan, _ scratch: PathScratch) throws(Problem) {
    var message = query.extracting(0..<0)
    var user = query.extracting(0..<0)
    var hasThread = false
    var wantsTotals = false
    if !query.isEmpty {
      var reader = QueryReader(query, scratch)
      while let parameter = try reader.next() {
        if parameter.name.equals("message_id") {
          message = parameter.value
        } else if parameter.name.equals("user_id") {
          user = parameter.value
        } else if parameter.name.equals("thread_id") {
          hasThread = !parameter.value.isEmpty
        } else if parameter.name.equals("totals") {
          wantsTotals = parameter.value.equals("true")
          guard wantsTotals || parameter.value.isEmpty || parameter.value.equals("false") else {
            throw Problem(.invalidQuery, "totals has to be true or false")
          }
        }
      }
    }
    self.message = message
    self.user = user
    self.hasThread = hasThread
    self.wantsTotals = wantsTotals
  }
}
