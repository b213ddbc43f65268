internal import HTTP2Session
internal import NIOCore
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
    var position = try queryParameters(match, context)
    var epoch: UInt64?
    if !request.body.isEmpty {
      let body = try loop.object(request, .markRead)
      try position.override(by: body, context)
      epoch = try Self.epoch(body)
    }
    let user = try context.actingUser(position.user)
    try position.checkIDs()
    // An empty id means the newest message.
    let message = position.message
    try send(.markRead, match, context, position, user: user) {
      $0.writeMark(user: user, message: message, epoch: epoch)
    }
  }

  func markUnread(
    _ match: borrowing RouteMatch,
    _ context: RequestContext,
    _ request: borrowing HTTP2Request
  ) throws(Problem) {
    var position = try queryParameters(match, context)
    var since: Timestamp?
    var epoch: UInt64?
    if !request.body.isEmpty {
      let body = try loop.object(request, .markUnread)
      try position.override(by: body, context)
      since = try Self.since(body)
      epoch = try Self.epoch(body)
    }
    let user = try context.actingUser(position.user)
    let message = position.message
    // Without a message, the whole channel is flagged; that needs an explicit body, if only `{}`.
    if message.isEmpty && position.thread.isEmpty && request.body.isEmpty {
      throw Problem(.invalidField, "field \"message_id\" is required; {} flags the whole channel unread")
    }
    try position.checkIDs()
    guard let since else {
      return try send(.markUnread, match, context, position, user: user) {
        $0.writeMark(user: user, message: message, epoch: epoch)
      }
    }
    guard message.isEmpty else {
      throw Problem(.invalidField, "fields \"message_id\" and \"message_timestamp\": one of the two")
    }
    try send(.markUnreadSince, match, context, position, user: user) {
      $0.writeMarkUnreadSince(user: user, since: since, epoch: epoch)
    }
  }

  /// Parse and check the query.
  @inline(__always)
  @_lifetime(copy match)
  private func queryParameters(
    _ match: borrowing RouteMatch,
    _ context: RequestContext
  ) throws(Problem) -> PositionParameters {
    let position = try PositionParameters(match.query, loop.scratch)
    if position.needsCheck { try match.checkQuery(context.caller, loop.scratch) }
    if position.totals == .invalid { throw Problem(.invalidQuery, "totals has to be true or false") }
    if !position.user.isEmpty { try context.check(position.user) }
    return position
  }

  /// Parse `unread_epoch`.
  private static func epoch(_ body: JSONValue) throws(Problem) -> UInt64? {
    try body.optionalInteger("unread_epoch", in: 0...Int64(UInt32.max)).map { UInt64($0) }
  }

  /// Parse `message_timestamp`.
  private static func since(_ body: JSONValue) throws(Problem) -> Timestamp? {
    guard let text = try body.optionalNonNullString("message_timestamp") else { return nil }
    guard let time = CivilTime.milliseconds(parsing: text), time > 0 else {
      throw try body.required("message_timestamp").error("must be a time since 1970, as in 2026-01-31T12:00:00.000Z")
    }
    return Timestamp(milliseconds: time)
  }

  /// Send the mark; with `?totals=true` the user's totals are counted after it.
  @inline(__always)
  private func send(
    _ kind: FrameKind,
    _ match: borrowing RouteMatch,
    _ context: RequestContext,
    _ position: borrowing PositionParameters,
    user: RawSpan,
    _ fields: (inout ByteBuffer) -> Void
  ) throws(Problem) {
    let thread = position.thread
    let destination = StoreDestination.channel(match.subject, thread: thread.isEmpty ? nil : thread)
    if position.totals == .requested {
      try sendAndCount(kind, to: destination, context, user: user, fields)
    } else {
      try loop.send(kind, to: destination, context, fields)
    }
  }

  private func sendAndCount(
    _ kind: FrameKind,
    to destination: StoreDestination,
    _ context: RequestContext,
    user: RawSpan,
    _ fields: (inout ByteBuffer) -> Void
  ) throws(Problem) {
    try loop.userScans.checkRoom(for: context)
    let scan = UserChannelScan(
      .count,
      users: [user.withUnsafeBytes { Array($0) }],
      shardCount: loop.store.shardCount,
      limits: UserChannelScan.Limits(loop.limits)
    )
    try loop.userScans.begin(UserScanJob(context, scan), marking: kind, at: destination, fields)
  }
}

extension KnownFields {
  static let markRead: KnownFields = ["message_id", "thread_id", "unread_epoch", "user_id"]
  static let markUnread: KnownFields = ["message_id", "message_timestamp", "thread_id", "unread_epoch", "user_id"]
}
