internal import HTTP2Session

/// The routes of Proto/openapi.yaml. Each has its ``RouteSpec`` below and a handler in `GatewayLoop.dispatch`. The
/// router compares paths in this order: busy routes come first, a literal part before a parameter.
package enum Route: UInt8, CaseIterable, Sendable, BitwiseCopyable {
  case markRead
  case readState
  case markUnread
  case markDelivered
  case markReadMany
  case registerMessage
  case registerMessages
  case deleteMessage
  case putChannel
  case getChannel
  case changeMembers
  case putMember
  case putChannelType
  case getChannelType
  case listChannelTypes
  case apiDocument
  case readStates
  case listRoster
  case listMessages
  case putChannels
  case putUsers
  case statuses
  case messageStatus
  case acknowledgeReceipts
  case listReaders
  case listDelivered
  case listUnread
  case listAcknowledged
  case listUnacknowledged
  case chosenMembers
  case putUser
  case getUser
  case putToken
  case getToken
  case deleteChannel
  case truncateChannel
  case deleteUser
  case unreadOfUser
  case channelsOfUser
  case receiptsOfUser
  case threadsOfUser
  case unreadOfUsers
  case events
  case frames
  case issueTickets
  case acknowledgePushes
  case receiveHook
  /// A route of the public API that is not implemented yet: 501.
  case notImplemented
  /// The same, without authentication.
  case notImplementedPublic

  /// Whether this build implements the route.
  package var isImplemented: Bool { self != .notImplemented && self != .notImplementedPublic }

  /// Whether the route lists members of one message (R11).
  package var listsMembers: Bool {
    switch self {
    case .listReaders, .listDelivered, .listUnread, .listAcknowledged, .listUnacknowledged, .chosenMembers:
      true
    default: false
    }
  }
}

extension RouteSpec {
  // Lists of query parameters that several routes share.
  private static let viewer: [StaticString] = ["user_id"]
  private static let position: [StaticString] = ["message_id", "thread_id", "totals", "user_id"]
  private static let page: [StaticString] = ["limit", "cursor"]
  private static let list: [StaticString] = ["limit", "cursor", "order", "user_id"]

  /// The rows of all routes, by raw value.
  fileprivate static let all = Route.allCases.map(row)

  private static func row(of route: Route) -> RouteSpec {
    switch route {
    case .markRead:
      RouteSpec("mark_read", .post, "/v1/channels/{cid}/read", .user, query: position, body: .markRead)
    case .readState:
      RouteSpec(
        "read_state",
        .get,
        "/v1/channels/{cid}/read-state",
        .user,
        response: .page,
        query: ["limit", "cursor", "thread_id", "user_id"]
      )
    case .markUnread:
      RouteSpec("mark_unread", .post, "/v1/channels/{cid}/unread", .user, query: position, body: .markUnread)
    case .markDelivered:
      RouteSpec("mark_delivered", .post, "/v1/channels/delivered", .user, query: viewer, body: .markDelivered)
    case .markReadMany:
      RouteSpec(
        "mark_read_many",
        .post,
        "/v1/channels/read",
        .user,
        response: .batch,
        cost: 5,
        query: viewer,
        body: .markReadMany
      )
    case .registerMessage:
      RouteSpec("register_message", .post, "/v1/channels/{cid}/messages", .server, body: .registerMessage)
    case .registerMessages:
      RouteSpec("register_messages", .post, "/v1/messages", .server, cost: 10, body: .registerMessages)
    case .deleteMessage:
      RouteSpec("delete_message", .delete, "/v1/channels/{cid}/messages/{message}", .server)
    case .putChannel:
      RouteSpec("put_channel", .put, "/v1/channels/{cid}", .server, cost: 2, body: .putChannel)
    case .getChannel: RouteSpec("get_channel", .get, "/v1/channels/{cid}", .server, response: .page)
    case .changeMembers:
      RouteSpec("change_members", .post, "/v1/channels/{cid}/members", .server, cost: 2, body: .changeMembers)
    case .putMember:
      RouteSpec("put_member", .put, "/v1/channels/{cid}/members/{member}", .user, body: .putMember)
    case .putChannelType:
      RouteSpec("put_channel_type", .put, "/v1/channel-types/{type}", .server, body: .options)
    case .getChannelType: RouteSpec("get_channel_type", .get, "/v1/channel-types/{type}", .server)
    case .listChannelTypes:
      RouteSpec("list_channel_types", .get, "/v1/channel-types", .server, response: .page)
    case .apiDocument: RouteSpec("api_document", .get, "/v1/openapi.yaml", .unauthenticated, cost: 10)
    case .readStates:
      RouteSpec(
        "read_states",
        .post,
        "/v1/read-state",
        .user,
        response: .batch,
        cost: 10,
        query: viewer,
        body: .readStates
      )
    case .listRoster:
      RouteSpec(
        "list_roster",
        .get,
        "/v1/channels/{cid}/members",
        .user,
        response: .page,
        cost: 2,
        query: ["limit", "cursor", "user_id"]
      )
    case .listMessages:
      RouteSpec(
        "list_messages",
        .get,
        "/v1/channels/{cid}/messages",
        .server,
        response: .page,
        cost: 2,
        query: page
      )
    case .putChannels: RouteSpec("put_channels", .post, "/v1/channels", .server, cost: 10, body: .putChannels)
    case .putUsers: RouteSpec("put_users", .post, "/v1/users", .server, cost: 10, body: .putUsers)
    case .statuses:
      RouteSpec(
        "statuses",
        .post,
        "/v1/channels/{cid}/receipts/query",
        .user,
        response: .page,
        cost: 5,
        query: viewer,
        body: .statuses
      )
    case .messageStatus:
      RouteSpec(
        "message_status",
        .get,
        "/v1/channels/{cid}/messages/{message}/status",
        .user,
        response: .page,
        query: viewer
      )
    case .acknowledgeReceipts:
      RouteSpec(
        "acknowledge_receipts",
        .post,
        "/v1/channels/{cid}/receipts",
        .user,
        cost: 5,
        query: viewer,
        body: .acknowledgeReceipts
      )
    case .listReaders:
      RouteSpec(
        "list_readers",
        .get,
        "/v1/channels/{cid}/messages/{message}/readers",
        .user,
        response: .page,
        cost: 2,
        query: list
      )
    case .listDelivered:
      RouteSpec(
        "list_delivered",
        .get,
        "/v1/channels/{cid}/messages/{message}/delivered",
        .user,
        response: .page,
        cost: 2,
        query: list
      )
    case .listUnread:
      RouteSpec(
        "list_unread",
        .get,
        "/v1/channels/{cid}/messages/{message}/unread",
        .user,
        response: .page,
        cost: 2,
        query: list
      )
    case .listAcknowledged:
      RouteSpec(
        "list_acknowledged",
        .get,
        "/v1/channels/{cid}/messages/{message}/acknowledged",
        .user,
        response: .page,
        cost: 2,
        query: list
      )
    case .listUnacknowledged:
      RouteSpec(
        "list_unacknowledged",
        .get,
        "/v1/channels/{cid}/messages/{message}/unacknowledged",
        .user,
        response: .page,
        cost: 2,
        query: list
      )
    case .chosenMembers:
      RouteSpec(
        "chosen_members",
        .get,
        "/v1/channels/{cid}/messages/{message}/members",
        .user,
        response: .page,
        cost: 2,
        query: ["user_ids", "user_id"]
      )
    case .putUser: RouteSpec("put_user", .put, "/v1/users/{user}", .user, body: .putUser)
    case .getUser: RouteSpec("get_user", .get, "/v1/users/{user}", .user)
    case .putToken: RouteSpec("put_token", .put, "/v1/tokens/{jti}", .server, body: .putToken)
    case .getToken: RouteSpec("get_token", .get, "/v1/tokens/{jti}", .server)
    case .deleteChannel: RouteSpec("delete_channel", .delete, "/v1/channels/{cid}", .server, cost: 10)
    case .truncateChannel:
      RouteSpec(
        "truncate_channel",
        .post,
        "/v1/channels/{cid}/truncate",
        .server,
        cost: 10,
        body: .truncateChannel
      )
    case .deleteUser: RouteSpec("delete_user", .delete, "/v1/users/{user}", .server, cost: 10)
    case .unreadOfUser:
      RouteSpec(
        "unread_of_user",
        .get,
        "/v1/users/{user}/unread",
        .user,
        response: .page,
        cost: 5,
        query: page
      )
    case .channelsOfUser:
      RouteSpec(
        "channels_of_user",
        .get,
        "/v1/users/{user}/channels",
        .user,
        response: .page,
        cost: 2,
        query: page
      )
    case .receiptsOfUser:
      RouteSpec(
        "receipts_of_user",
        .get,
        "/v1/users/{user}/receipts",
        .user,
        response: .page,
        cost: 2,
        query: ["state", "limit", "cursor"]
      )
    case .threadsOfUser:
      RouteSpec(
        "threads_of_user",
        .get,
        "/v1/users/{user}/threads",
        .user,
        response: .page,
        cost: 2,
        query: ["unread", "limit", "cursor"]
      )
    case .unreadOfUsers:
      RouteSpec(
        "unread_of_users",
        .post,
        "/v1/unread",
        .server,
        response: .batch,
        cost: 10,
        body: .unreadOfUsers
      )
    case .events:
      RouteSpec(
        "events",
        .get,
        "/v1/events",
        .user,
        cost: 5,
        query: ["channels", "user_id", "since", "totals", "access_token"]
      )
    case .frames: RouteSpec("frames", .post, "/v1/frames", .server, cost: 5)
    case .issueTickets:
      RouteSpec(
        "issue_tickets",
        .post,
        "/v1/push/tickets",
        .server,
        response: .batch,
        cost: 10,
        body: .issueTickets
      )
    case .acknowledgePushes:
      RouteSpec(
        "acknowledge_pushes",
        .post,
        "/v1/push/acks",
        .credentialInBody,
        cost: 2,
        body: .acknowledgePushes
      )
    case .receiveHook: RouteSpec("receive_hook", .post, "/v1/push/hooks/{name}", .unauthenticated, query: nil)
    case .notImplemented:
      RouteSpec(
        "not_built",
        [
          (.get, "/v1/feed"),
          (.get, "/v1/feed/consumers"),
          (.put, "/v1/feed/consumers/{name}"),
          (.delete, "/v1/feed/consumers/{name}"),
          (.post, "/v1/feed/consumers/{name}/commit"),
          (.post, "/v1/import"),
          (.get, "/v1/export"),
        ],
        .user,
        query: nil
      )
    case .notImplementedPublic:
      RouteSpec("not_built_for_browsers", .get, "/sdk/{name}", .unauthenticated, query: nil)
    }
  }
}

extension Route {
  /// The route's row.
  package var spec: RouteSpec { RouteSpec.all[Int(rawValue)] }

  /// The name in metrics and logs.
  package var name: StaticString { RouteSpec.all[Int(rawValue)].name }

  /// Who may call the route, as Proto/openapi.yaml has it.
  package var caller: RouteSpec.Caller { RouteSpec.all[Int(rawValue)].caller }

  /// Whether the route reads up to a page of rows, and takes turns (``WaitingRequestsPart``).
  var isQuery: Bool { RouteSpec.all[Int(rawValue)].response == .page }

  /// The approximate size of the route's answer in bytes; 0: small.
  var responseBytes: Int { RouteSpec.all[Int(rawValue)].response.rawValue }
}

/// The facts about a route, besides its handler: method and path, name, callers, answer, cost, query parameters
/// and fields of the body.
package struct RouteSpec: Sendable {
  /// The name in metrics and logs.
  package let name: StaticString
  /// The route's method and path. Parts in braces are parameters. Only routes that are not implemented have several.
  let endpoints: [(method: HTTP2Method, path: StaticString)]
  package let caller: Caller
  let response: ResponseSize
  /// The cost of a request against ``RateLimits``: roughly its work relative to marking one channel read. Each frame or
  /// line of a streamed body costs one more; so do four acknowledgements of a JSON body, and of a scan over a user's
  /// channels five that are listed or marked or twenty that are counted.
  let cost: Int
  /// The known query parameters; nil: any, because a provider may add its own to its hook's URL.
  package let queryParameters: [StaticString]?
  /// The fields of the body; nil: no body, or one of another form than a JSON object.
  package let body: KnownFields?

  /// The callers that a route admits.
  package enum Caller: Sendable {
    /// Servers only.
    case server
    /// Servers, and users for themselves.
    case user
    /// All clients. A credential, if any, is in the body.
    case credentialInBody
    /// All clients. A credential is ignored.
    case unauthenticated
  }

  /// The approximate size of a response in bytes, where it is more than small. It counts as held memory from the
  /// request on, so that clients which request much and read nothing are refused early
  /// (``HTTP2Limits/memoryBytesMax``).
  enum ResponseSize: Int, Sendable {
    case small = 0
    /// Up to a page of rows, which the store reads. Requests for pages take turns (``WaitingRequestsPart``).
    case page = 12_288
    /// Many entries, or many pages.
    case batch = 49_152
  }

  init(
    _ name: StaticString,
    _ method: HTTP2Method,
    _ path: StaticString,
    _ caller: Caller,
    response: ResponseSize = .small,
    cost: Int = 1,
    query: [StaticString]? = [],
    body: KnownFields? = nil
  ) {
    self.init(name, [(method, path)], caller, response: response, cost: cost, query: query, body: body)
  }

  init(
    _ name: StaticString,
    _ endpoints: [(method: HTTP2Method, path: StaticString)],
    _ caller: Caller,
    response: ResponseSize = .small,
    cost: Int = 1,
    query: [StaticString]? = [],
    body: KnownFields? = nil
  ) {
    self.name = name
    self.endpoints = endpoints
    self.caller = caller
    self.response = response
    self.cost = cost
    queryParameters = query
    self.body = body
  }
}
