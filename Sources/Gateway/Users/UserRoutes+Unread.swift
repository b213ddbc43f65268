internal import HTTP2Session
internal import NIOCore
internal import ReceiptModel
internal import ReceiptWire
internal import StoreClient

/// A user's channels and their unread counts (R13, R14). Users may only query themselves.
extension UserRoutes {
  private var scanLimits: UserChannelScan.Limits { UserChannelScan.Limits(loop.limits) }

  /// Handle `GET /v1/users/{user}/channels?limit=&cursor=`: the home shard's list.
  func channelsOfUser(_ match: borrowing RouteMatch, _ context: RequestContext) throws(Problem) {
    try context.check(match.subject)
    let parameters = try ChannelPageParameters(match.query, loop.scratch, loop.limits)
    let home = try loop.homeShard(of: match.subject)
    try loop.send(.listChannels, to: .shard(home, name: match.subject), context) {
      $0.writeListChannels(withAll: false, limit: parameters.limit, cursor: parameters.cursor)
    }
  }

  /// Handle `GET /v1/users/{user}/unread?limit=&cursor=`.
  func unreadOfUser(_ match: borrowing RouteMatch, _ context: RequestContext) throws(Problem) {
    try context.check(match.subject)
    let parameters = try ChannelPageParameters(match.query, loop.scratch, loop.limits)
    try loop.userScans.checkRoom(for: context)
    let page = UnreadPage(start: parameters.cursor, limit: parameters.limit)
    let user = match.subject.withUnsafeBytes { Array($0) }
    let scan = UserChannelScan(.count, users: [user], shardCount: loop.store.shardCount, page: page, limits: scanLimits)
    loop.userScans.begin(UserScanJob(context, scan))
  }

  /// Handle `POST /v1/unread`: the totals of many users, for badges. A bad entry does not fail the others.
  func unreadOfUsers(
    _ match: borrowing RouteMatch,
    _ context: RequestContext,
    _ request: borrowing HTTP2Request
  ) throws(Problem) {
    let body = try loop.object(request, .unreadOfUsers)
    let ids = try body.requiredArray("user_ids", countMax: loop.limits.entriesPerRequest)
    try loop.userScans.checkRoom(for: context)
    var users: [[UInt8]] = []
    var entries: [UserScanJob.Entry] = []
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
    let scan = UserChannelScan(.count, users: users, shardCount: loop.store.shardCount, limits: scanLimits)
    loop.userScans.begin(UserScanJob(context, scan, entries: entries))
  }

  /// Handle `POST /v1/channels/read` with `{"all":true}`: mark every channel of the user read up to its newest message.
  func markAllRead(
    _ match: borrowing RouteMatch,
    _ context: RequestContext,
    user: RawSpan,
    threads: Bool
  ) throws(Problem) {
    try loop.userScans.checkRoom(for: context)
    let user = user.withUnsafeBytes { Array($0) }
    let scan = UserChannelScan(
      .markRead,
      users: [user],
      shardCount: loop.store.shardCount,
      includesThreads: threads,
      limits: scanLimits
    )
    loop.userScans.begin(UserScanJob(context, scan))
  }
}

/// The query parameters of paged channel lists.
struct ChannelPageParameters {
  let limit: Int
  /// Nil: the first page.
  let cursor: UInt64?

  init(_ query: RawSpan, _ scratch: PathScratch, _ limits: GatewayLimits) throws(Problem) {
    var limit = limits.rowsPerPage
    var cursor: UInt64?
    var reader = QueryReader(query, scratch)
    while let parameter = try reader.next() {
      // An empty value counts as absent.
      if parameter.value.isEmpty { continue }
      if parameter.name.equals("limit") {
        limit = try limits.pageLimit(parameter.value)
      } else if parameter.name.equals("cursor") {
        guard let given = PageCursor.channel(parameter.value) else { throw Problem(.invalidCursor) }
        cursor = UInt64(given)
      }
    }
    self.limit = limit
    self.cursor = cursor
  }
}

extension KnownFields {
  static let unreadOfUsers: KnownFields = ["user_ids"]
}
