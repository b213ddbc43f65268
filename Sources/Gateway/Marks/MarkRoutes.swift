internal import HTTP2Session
internal import ReceiptModel
internal import ReceiptWire
internal import StoreClient

/// `POST /v1/channels/{cid}/read` and `…/unread`: move one position of one user (R2, R4). The first is the busiest
/// route: this code must not allocate a string, an array or an escaping closure.
struct MarkRoutes {
  let loop: GatewayLoop

  func markRead(
    _ match: borrowing RouteMatch,
    _ context: RequestContext,
    _ request: borrowing HTTP2Request
  ) throws(Problem) {
    try mark(kind: .markRead, match, context, request)
  }

  func markUnread(
    _ match: borrowing RouteMatch,
    _ context: RequestContext,
    _ request: borrowing HTTP2Request
  ) throws(Problem) {
    try mark(kind: .markUnread, match, context, request)
  }

  private func mark(
    kind: FrameKind,
    _ match: borrowing RouteMatch,
    _ context: RequestContext,
    _ request: borrowing HTTP2Request
  ) throws(Problem) {
    let parameters = try PositionParameters(match.query, loop.scratch)
    if parameters.needsCheck { try match.checkQuery(context.caller, loop.scratch) }
    if parameters.totals == .invalid { throw Problem(.invalidQuery, "totals has to be true or false") }
    let wantsTotals = parameters.totals == .requested
    var message = parameters.message
    var user = parameters.user
    var epoch: UInt64?
    var thread = parameters.thread
    var since: Int64?
    if !user.isEmpty { try context.check(user) }
    if !request.body.isEmpty {
      let body = try loop.object(request, kind == .markRead ? .markRead : .markUnread)
      if let given = try body.optionalNonNullString("message_id") {
        guard !given.isEmpty else { throw Problem(.invalidMessageID) }
        message = given
      }
      if let given = try body.optionalNonNullString("user_id") {
        try context.check(given)
        user = given
      }
      if let given = try body.optionalNonNullString("thread_id") {
        guard !given.isEmpty else { throw Problem(.invalidMessageID) }
        thread = given
      }
      if kind == .markUnread { since = try Self.since(body) }
      epoch = try body.optionalInteger("unread_epoch", in: 0...Int64(UInt32.max)).map { UInt64($0) }
    }
    let acting = try context.actingUser(user)
    // Without a message, mark-unread flags the whole channel; that needs an explicit body, if only `{}`.
    if kind == .markUnread && message.isEmpty && thread.isEmpty && request.body.isEmpty {
      throw Problem(.invalidField, "field \"message_id\" is required; {} flags the whole channel unread")
    }
    if !message.isEmpty && !Identifier.isMessage(message) { throw Problem(.invalidMessageID) }
    if !thread.isEmpty && !Identifier.isMessage(thread) { throw Problem(.invalidMessageID) }
    if let since {
      guard message.isEmpty else {
        throw Problem(.invalidField, "fields \"message_id\" and \"message_timestamp\": one of the two")
      }
      return try markUnread(
        since: since,
        wantsTotals: wantsTotals,
        match,
        context,
        user: acting,
        thread: thread,
        epoch: epoch
      )
    }
    // An empty id means the newest message.
    if wantsTotals {
      return try UserRoutes(loop: loop).markWithTotals(kind, match, context, user: acting, thread: thread) {
        $0.writeMark(user: acting, message: message, epoch: epoch)
      }
    }
    let parent = thread.isEmpty ? nil : thread
    try loop.send(kind, to: .channel(match.subject, thread: parent), context) {
      $0.writeMark(user: acting, message: message, epoch: epoch)
    }
  }

  /// Parse `message_timestamp`, in milliseconds since 1970.
  private static func since(_ body: JSONValue) throws(Problem) -> Int64? {
    guard let text = try body.optionalNonNullString("message_timestamp") else { return nil }
    guard let time = CivilTime.milliseconds(parsing: text), time > 0 else {
      throw try body.required("message_timestamp").error("must be a time since 1970, as in 2026-01-31T12:00:00.000Z")
    }
    return time
  }

  /// Mark unread from the first message created at or after a time.
  private func markUnread(
    since: Int64,
    wantsTotals: Bool,
    _ match: borrowing RouteMatch,
    _ context: RequestContext,
    user: RawSpan,
    thread: RawSpan,
    epoch: UInt64?
  ) throws(Problem) {
    let time = Timestamp(milliseconds: since)
    if wantsTotals {
      return try UserRoutes(loop: loop).markWithTotals(.markUnreadSince, match, context, user: user, thread: thread) {
        $0.writeMarkUnreadSince(user: user, since: time, epoch: epoch)
      }
    }
    let parent = thread.isEmpty ? nil : thread
    try loop.send(.markUnreadSince, to: .channel(match.subject, thread: parent), context) {
      $0.writeMarkUnreadSince(user: user, since: time, epoch: epoch)
    }
  }
}

extension KnownFields {
  static let markRead: KnownFields = ["message_id", "thread_id", "unread_epoch", "user_id"]
  static let markUnread: KnownFields = ["message_id", "message_timestamp", "thread_id", "unread_epoch", "user_id"]
}

/// The query parameters of position routes.
struct PositionParameters: ~Escapable {
  /// Whether the response shows the user's unread totals.
  enum Totals {
    case omitted, requested
    /// Neither `true` nor `false`.
    case invalid

    /// - Parameter value: as in the query; empty counts as `false`.
    init(_ value: RawSpan) {
      if value.equals("true") {
        self = .requested
      } else if value.isEmpty || value.equals("false") {
        self = .omitted
      } else {
        self = .invalid
      }
    }
  }

  /// Empty for none.
  private(set) var message: RawSpan
  /// Empty for none.
  private(set) var user: RawSpan
  /// Empty for none.
  private(set) var thread: RawSpan
  private(set) var totals = Totals.omitted
  /// Whether a parameter is unknown, repeated or empty; ``RouteMatch/checkQuery(_:_:)`` then finds the problem.
  private(set) var needsCheck = false

  @_lifetime(copy query)
  init(_ query: RawSpan, _ scratch: PathScratch) throws(Problem) {
    message = query.extracting(0..<0)
    user = query.extracting(0..<0)
    thread = query.extracting(0..<0)
    guard !query.isEmpty else { return }
    var hasTotals = false
    var reader = QueryReader(query, scratch)
    while let parameter = try reader.next() {
      if parameter.name.equals("message_id") {
        needsCheck = needsCheck || !message.isEmpty || parameter.value.isEmpty
        message = parameter.value
      } else if parameter.name.equals("user_id") {
        needsCheck = needsCheck || !user.isEmpty || parameter.value.isEmpty
        user = parameter.value
      } else if parameter.name.equals("thread_id") {
        needsCheck = needsCheck || !thread.isEmpty || parameter.value.isEmpty
        thread = parameter.value
      } else if parameter.name.equals("totals") {
        needsCheck = needsCheck || hasTotals
        hasTotals = true
        totals = Totals(parameter.value)
      } else {
        needsCheck = true
      }
    }
  }
}
