internal import HTTP2Session
internal import NIOCore
internal import ReceiptModel
internal import ReceiptWire
internal import StoreClient

/// Registering and deleting messages (R5, R16).
struct MessageRoutes {
  let loop: GatewayLoop

  /// Handle `POST /v1/channels/{cid}/messages`.
  func registerMessage(
    _ match: borrowing RouteMatch,
    _ context: RequestContext,
    _ request: borrowing HTTP2Request
  ) throws(Problem) {
    let body = try loop.object(request, .registerMessage)
    try MessageFields.checkTypes(body)
    let message = try MessageFields(body, now: loop.now)
    try loop.echoingResponses.send(
      .registerMessage,
      to: .channel(match.subject, thread: message.thread),
      context,
      response: .registration(cid: match.subject.bytes, id: message.id.bytes)
    ) { message.write(into: &$0) }
  }

  /// Handle `DELETE /v1/channels/{cid}/messages/{id}`.
  func deleteMessage(_ match: borrowing RouteMatch, _ context: RequestContext) throws(Problem) {
    let message = match.message
    let response = EchoingResponse.deletion(cid: match.subject.bytes, id: message.bytes)
    try loop.echoingResponses.send(.deleteMessage, to: .channel(match.subject), context, response: response) {
      $0.writeMessageRequest(message)
    }
  }
}

extension KnownFields {
  static let registerMessage: KnownFields = [
    "id", "user_id", "created_at", "silent", "receipt", "parent_id", "mentions",
    "moves_position", .objects("reminders", RemindersJSON.fields),
  ]
}

/// Read states and statuses (R10, R12). A user gets a member's view. A server gets everything, and need not name a
/// user.
extension MessageRoutes {
  /// Handle `GET /v1/channels/{cid}/read-state?limit=&cursor=&thread_id=`.
  func readState(_ match: borrowing RouteMatch, _ context: RequestContext) throws(Problem) {
    var limit = loop.limits.rowsPerPage
    var cursor = match.query.extracting(0..<0)
    var thread = match.query.extracting(0..<0)
    var user = match.query.extracting(0..<0)
    var reader = QueryReader(match.query, loop.scratch)
    while let parameter = try reader.next() {
      // An empty value counts as absent.
      if parameter.value.isEmpty { continue }
      if parameter.name.equals("limit") {
        limit = try loop.limits.pageLimit(parameter.value)
      } else if parameter.name.equals("cursor") {
        cursor = parameter.value
      } else if parameter.name.equals("thread_id") {
        guard Identifier.isMessage(parameter.value) else { throw Problem(.invalidMessageID) }
        thread = parameter.value
      } else if parameter.name.equals("user_id") {
        user = parameter.value
        try context.check(user)
      }
    }
    let viewer = context.viewingUser(user)
    let isServer = context.caller.isServer
    guard thread.isEmpty else {
      guard cursor.isEmpty || ListCursorText.isOne(cursor) else { throw Problem(.invalidCursor) }
      return try loop.send(.threadReadState, to: .channel(match.subject), context) { buffer in
        buffer.writeThreadReadState(viewer: viewer, isServer: isServer, parent: thread, limit: limit, cursor: cursor)
      }
    }
    let row = PageCursor.row(cursor)
    guard cursor.isEmpty || row != nil else { throw Problem(.invalidCursor) }
    try loop.send(.readState, to: .channel(match.subject), context) { buffer in
      buffer.writeRowPage(viewer: viewer, isServer: isServer, limit: limit, cursor: row)
    }
  }

  /// Handle `GET /v1/channels/{cid}/messages/{id}/status`.
  func messageStatus(_ match: borrowing RouteMatch, _ context: RequestContext) throws(Problem) {
    let parameters = try PositionParameters(match.query, loop.scratch)
    if !parameters.user.isEmpty { try context.check(parameters.user) }
    let viewer = context.viewingUser(parameters.user)
    let isServer = context.caller.isServer
    let message = match.message
    let response = EchoingResponse.status(cid: match.subject.bytes, id: message.bytes)
    try loop.echoingResponses.send(.statuses, to: .channel(match.subject), context, response: response) { buffer in
      buffer.writeStatuses(viewer: viewer, isServer: isServer, messageCount: 1)
      buffer.writeField(message)
    }
  }

  /// Handle `POST /v1/channels/{cid}/receipts/query`.
  func statuses(
    _ match: borrowing RouteMatch,
    _ context: RequestContext,
    _ request: borrowing HTTP2Request
  ) throws(Problem) {
    let parameters = try PositionParameters(match.query, loop.scratch)
    let body = try loop.object(request, .statuses)
    let messages = try body.requiredArray("message_ids", countMax: loop.limits.entriesPerRequest)
    var count = 0
    var names = BatchEntryNames()
    var checked = messages.elements
    while let message = checked.next() {
      names.append(id: message.string)
      if Self.refusal(of: message.string) == nil { count += 1 }
    }
    var user = parameters.user
    if !user.isEmpty { try context.check(user) }
    if let named = try body.optionalNonNullString("user_id") {
      try context.check(named)
      user = named
    }
    let viewer = context.viewingUser(user)
    let isServer = context.caller.isServer
    // The store requires at least one message in the query.
    guard count > 0 else {
      let cid = match.subject
      return loop.respond(to: context) { Self.writeStatuses([], cid: cid, names, into: &$0) }
    }
    let response = EchoingResponse.statuses(cid: match.subject.bytes, names)
    try loop.echoingResponses.send(.statuses, to: .channel(match.subject), context, response: response) { buffer in
      buffer.writeStatuses(viewer: viewer, isServer: isServer, messageCount: count)
      var written = messages.elements
      while let message = written.next() {
        if Self.refusal(of: message.string) == nil, let id = message.string { buffer.writeField(id) }
      }
    }
  }

  /// Return why an entry of `message_ids` is not sent to the store; nil: it is sent.
  static func refusal(of id: RawSpan?) -> ProblemCode? {
    guard let id else { return .invalidField }
    return Identifier.isMessage(id) ? nil : .invalidMessageID
  }

  /// Write `{"statuses": […]}` in the order of the request. Ids that were sent to the store take its results in turn.
  static func writeStatuses(
    _ found: [StatusResultFields],
    cid: RawSpan,
    _ messages: BatchEntryNames,
    into buffer: inout ByteBuffer
  ) {
    var found = found.makeIterator()
    buffer.writeStaticString("{\"statuses\":[")
    for entry in 0..<messages.count {
      if entry > 0 { buffer.writeStaticString(",") }
      let id = messages.id(entry)
      if let code = refusal(of: id) {
        StatusJSON.write(code, message: id, into: &buffer)
      } else if let id {
        switch found.next() {
        case .found(let status): StatusJSON.write(status, message: id, cid: cid, into: &buffer)
        case .refused(let code): StatusJSON.write(problemCode(ofStatus: code), message: id, into: &buffer)
        case nil: StatusJSON.write(.messageNotFound, message: id, into: &buffer)
        }
      }
    }
    buffer.writeStaticString("]}")
  }

  /// Return the code of a message without a status.
  static func problemCode(ofStatus code: ErrorCode?) -> ProblemCode {
    code == .messageDeleted ? .messageDeleted : .messageNotFound
  }
}

extension KnownFields {
  static let statuses: KnownFields = ["message_ids", "user_id"]
}
