internal import HTTP2Session
internal import NIOCore
internal import ReceiptModel
internal import ReceiptWire

/// Read states and statuses (R10, R12). A user sees what a member sees; a server everything, and need not
/// name a user.
extension GatewayLoop {
  /// `GET /v1/channels/{cid}/read-state?limit=&cursor=&thread_id=`.
  func readState(_ match: borrowing RouteMatch, _ context: RequestContext) throws(Problem) {
    var limit = limits.rowsPerPage
    var cursor = match.query.extracting(0..<0)
    var thread = match.query.extracting(0..<0)
    var user = match.query.extracting(0..<0)
    var reader = QueryReader(match.query, scratch)
    while let parameter = try reader.next() {
      // An empty value counts as absent.
      if parameter.value.isEmpty { continue }
      if parameter.name.equals("limit") {
        limit = try pageLimit(parameter.value)
      } else if parameter.name.equals("cursor") {
        cursor = parameter.value
      } else if parameter.name.equals("thread_id") {
        guard Identifier.isMessage(parameter.value) else { throw Problem(.invalidMessageID) }
        thread = parameter.value
      } else if parameter.name.equals("user_id") {
        user = parameter.value
        try Self.check(user, context)
      }
    }
    let viewer = Self.viewingUser(user, context)
    let isServer = context.caller.isServer
    guard thread.isEmpty else {
      guard cursor.isEmpty || ListCursor.isOne(cursor) else { throw Problem(.invalidCursor) }
      return try send(.threadReadState, cid: match.subject, context, match.route, .threadRows) { buffer in
        buffer.writeViewer(viewer, isServer: isServer)
        buffer.writeField(thread)
        buffer.writeVarint(limit)
        buffer.writeField(cursor)
      }
    }
    let row = PageCursor.row(cursor)
    guard cursor.isEmpty || row != nil else { throw Problem(.invalidCursor) }
    try send(.readState, cid: match.subject, context, match.route, .readState) { buffer in
      buffer.writeViewer(viewer, isServer: isServer)
      buffer.writeVarint(limit)
      buffer.writeOptional(row.map { UInt64($0) })
    }
  }

  /// `GET /v1/channels/{cid}/messages/{id}/status`.
  func messageStatus(_ match: borrowing RouteMatch, _ context: RequestContext) throws(Problem) {
    let parameters = try PositionParameters(match.query, scratch)
    if !parameters.user.isEmpty { try Self.check(parameters.user, context) }
    let viewer = Self.viewingUser(parameters.user, context)
    let isServer = context.caller.isServer
    let message = match.message
    try send(.statuses, cid: match.subject, context, match.route, .status) { buffer in
      buffer.writeViewer(viewer, isServer: isServer)
      buffer.writeVarint(1)
      buffer.writeField(message)
    }
  }

  /// `POST /v1/channels/{cid}/receipts/query`.
  func statuses(
    _ match: borrowing RouteMatch,
    _ context: RequestContext,
    _ request: borrowing HTTP2Request
  ) throws(Problem) {
    let parameters = try PositionParameters(match.query, scratch)
    let body = try object(request, .statuses)
    let messages = try body.requiredArray("message_ids", countMax: limits.entriesPerRequest)
    var count = 0
    var checked = messages.elements
    while let message = checked.next() {
      if Self.refusal(of: message) == nil { count += 1 }
    }
    var user = parameters.user
    if !user.isEmpty { try Self.check(user, context) }
    if let named = try body.stringUnlessMissing("user_id") {
      try Self.check(named, context)
      user = named
    }
    let viewer = Self.viewingUser(user, context)
    let isServer = context.caller.isServer
    // The store takes a question about one message at least.
    guard count > 0 else { return answerWithoutStore(match, context, messages) }
    try send(.statuses, cid: match.subject, context, match.route, .statuses) { buffer in
      buffer.writeViewer(viewer, isServer: isServer)
      buffer.writeVarint(count)
      var written = messages.elements
      while let message = written.next() {
        if Self.refusal(of: message) == nil, let id = message.string { buffer.writeField(id) }
      }
    }
  }

  /// Why an entry of `message_ids` is not sent to the store.
  static func refusal(of message: JSONValue) -> ProblemCode? {
    guard let id = message.string else { return .invalidField }
    return Identifier.isMessage(id) ? nil : .invalidMessageID
  }

  private func answerWithoutStore(
    _ match: borrowing RouteMatch,
    _ context: RequestContext,
    _ messages: JSONValue
  ) {
    guard let connection = connections.connection(context.connection) else { return }
    var body = ByteBuffer()
    Self.writeStatuses([], cid: match.subject, messages, into: &body)
    connections.markDirty(context.connection)
    connection.respond(context.stream, status: 200, body: body)
    counters.answered(match.route.rawValue, status: 200)
  }
}

/// The cursor of a page of rows, or of a user's channels. Callers are to take it as it is.
enum PageCursor {
  /// The row number that a cursor stands for.
  static func row(_ text: RawSpan) -> UInt32? { number(text, behind: UInt8(ascii: "r")) }

  /// The place in a user's index of channels that a cursor stands for.
  static func place(_ text: RawSpan) -> UInt32? { number(text, behind: UInt8(ascii: "c")) }

  /// The row that a cursor of a channel's members stands for.
  static func joined(_ text: RawSpan) -> UInt32? { number(text, behind: UInt8(ascii: "j")) }

  /// A message, and a reply to it: `m7`, `m7-2`.
  static func message(_ text: RawSpan) -> MessageListCursor? {
    guard let dash = text.firstOffset(of: UInt8(ascii: "-"), from: 0) else {
      return number(text, behind: UInt8(ascii: "m")).map { MessageListCursor(message: SequenceNumber($0)) }
    }
    guard let message = number(text.extracting(0..<dash), behind: UInt8(ascii: "m")),
      let reply = text.extracting((dash + 1)..<text.byteCount).decimal.flatMap({ UInt32(exactly: $0) })
    else { return nil }
    return MessageListCursor(message: SequenceNumber(message), reply: SequenceNumber(reply))
  }

  static func text(_ cursor: MessageListCursor) -> String {
    "m\(cursor.message.rawValue)" + (cursor.reply.map { "-\($0.rawValue)" } ?? "")
  }

  private static func number(_ text: RawSpan, behind letter: UInt8) -> UInt32? {
    guard text.byteCount > 1, text.unsafeLoad(fromByteOffset: 0, as: UInt8.self) == letter else {
      return nil
    }
    return text.extracting(1..<text.byteCount).decimal.flatMap { UInt32(exactly: $0) }
  }
}

extension ByteBuffer {
  /// *viewer* of Proto/frames.md.
  mutating func writeViewer(_ user: RawSpan, isServer: Bool) {
    writeVarint(UInt64(isServer ? 1 : 0))
    writeField(user)
  }
}
