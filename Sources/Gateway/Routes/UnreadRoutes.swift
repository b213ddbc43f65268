internal import HTTP2Session
internal import NIOCore
internal import ReceiptModel
internal import ReceiptWire
internal import StoreClient

/// A user's channels, and what is unread in them (R13, R14). Users ask for themselves.
extension GatewayLoop {
  private var walkLimits: UserWalk.Limits {
    UserWalk.Limits(countedMax: limits.countedChannels, failedMax: limits.failedChannels)
  }

  /// `GET /v1/users/{user}/channels?limit=&cursor=`: what the home shard lists.
  func channelsOfUser(_ match: borrowing RouteMatch, _ context: RequestContext) throws(Problem) {
    try Self.check(match.subject, context)
    let parameters = try PlaceParameters(match.query, self)
    let home = try homeShard(of: match.subject)
    let token = keep(context, match.route, .channelsOfUser)
    let issued = context.caller.issued
    let isSent = store.send(.listChannels, shard: home, name: match.subject, token: token, issued: issued) {
      $0.writeVarint(0)
      $0.writeVarint(parameters.limit)
      $0.writeOptional(parameters.place)
    }
    if !isSent {
      _ = pending.remove(token)
      throw Problem(.storeBusy)
    }
  }

  /// `GET /v1/users/{user}/unread?limit=&cursor=`.
  func unreadOfUser(_ match: borrowing RouteMatch, _ context: RequestContext) throws(Problem) {
    try Self.check(match.subject, context)
    let parameters = try PlaceParameters(match.query, self)
    try checkJobs()
    let page = UnreadPage(start: parameters.place, limit: parameters.limit)
    let user = match.subject.withUnsafeBytes { Array($0) }
    let walk = UserWalk(.count, users: [user], shardCount: store.shardCount, page: page, limits: walkLimits)
    beginJob(UserJob(context, match.route, walk, .walking))
  }

  /// `POST /v1/unread`: the totals of many users, for badges. A bad entry does not fail the rest.
  func unreadOfUsers(
    _ match: borrowing RouteMatch,
    _ context: RequestContext,
    _ request: borrowing HTTP2Request
  ) throws(Problem) {
    let body = try object(request, .unreadOfUsers)
    let ids = try body.requiredArray("user_ids", countMax: limits.entriesPerRequest)
    try checkJobs()
    var users: [[UInt8]] = []
    var entries: [UserJob.Entry] = []
    var elements = ids.elements
    while let element = elements.next() {
      guard let id = element.string else {
        entries.append(.refused(id: nil, .invalidField))
        continue
      }
      let bytes = id.withUnsafeBytes { Array($0) }
      if Identifier.isUser(id) {
        entries.append(.user(users.count))
        users.append(bytes)
      } else {
        entries.append(.refused(id: bytes, .invalidUserID))
      }
    }
    let walk = UserWalk(.count, users: users, shardCount: store.shardCount, limits: walkLimits)
    beginJob(UserJob(context, match.route, walk, .walking, entries: entries))
  }

  /// `POST /v1/channels/read` with `{"all":true}`: every channel of the user, each to its newest message.
  func markAllRead(
    _ match: borrowing RouteMatch,
    _ context: RequestContext,
    user: RawSpan,
    threads: Bool
  ) throws(Problem) {
    try checkJobs()
    let user = user.withUnsafeBytes { Array($0) }
    let walk = UserWalk(
      .markRead,
      users: [user],
      shardCount: store.shardCount,
      includesThreads: threads,
      limits: walkLimits
    )
    beginJob(UserJob(context, match.route, walk, .walking))
  }

  /// A mark with `?totals=true`: the totals are counted when it is done.
  ///
  /// - Parameter thread: empty: the channel itself.
  func markWithTotals(
    _ kind: FrameKind,
    _ match: borrowing RouteMatch,
    _ context: RequestContext,
    user: RawSpan,
    thread: RawSpan,
    _ fields: (inout ByteBuffer) -> Void
  ) throws(Problem) {
    try checkJobs()
    let walk = UserWalk(
      .count,
      users: [user.withUnsafeBytes { Array($0) }],
      shardCount: store.shardCount,
      limits: walkLimits
    )
    let token = keepMark(UserJob(context, match.route, walk, .marking))
    let isSent = store.send(
      kind,
      cid: match.subject,
      token: token,
      issued: context.caller.issued,
      thread: thread.isEmpty ? nil : thread,
      fields
    )
    if !isSent {
      dropMark(token)
      throw Problem(.storeBusy)
    }
  }
}

/// The query parameters of pages of channels.
struct PlaceParameters {
  let limit: Int
  /// Nil: the first page.
  let place: UInt64?

  init(_ query: RawSpan, _ loop: GatewayLoop) throws(Problem) {
    var limit = loop.limits.rowsPerPage
    var place: UInt64?
    var reader = QueryReader(query, loop.scratch)
    while let parameter = try reader.next() {
      // An empty value counts as absent.
      if parameter.value.isEmpty { continue }
      if parameter.name.equals("limit") {
        limit = try loop.pageLimit(parameter.value)
      } else if parameter.name.equals("cursor") {
        guard let given = PageCursor.place(parameter.value) else { throw Problem(.invalidCursor) }
        place = UInt64(given)
      }
    }
    self.limit = limit
    self.place = place
  }
}
