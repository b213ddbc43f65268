internal import HTTP2Session
internal import ReceiptModel

/// The routes of Proto/openapi.yaml, and of the demo page and the console. Each has its ``RouteSpec`` below and a
/// handler in `GatewayLoop.dispatch`. The router compares paths in this order: busy routes come first, a literal piece
/// before a parameter.
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
  case sdkFile
  case demoPage
  case demoSession
  case demoFile
  case consolePage
  case consoleLogin
  case consoleLogout
  case openConsoleSession
  case getConsoleSession
  case issueConsoleCode
  case consoleMetrics
  case consoleFile
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
  case putPushJob
  case claimPushJobs
  case renewPushJobs
  case finishPushJobs
  case readFeed
  case listConsumers
  case putConsumer
  case getConsumer
  case deleteConsumer
  case commitConsumer
  case leaseConsumer
  case importLines
  case exportLines

  /// Whether Proto/openapi.yaml describes the route: all but those of the pages.
  package var isDescribed: Bool { !isOfPage }

  /// Whether the route is of the demo page or of the console.
  private var isOfPage: Bool {
    switch self {
    case .demoPage, .demoSession, .demoFile, .consolePage, .consoleLogin, .consoleLogout, .openConsoleSession,
      .getConsoleSession, .issueConsoleCode, .consoleMetrics, .consoleFile:
      true
    default: false
    }
  }
}

extension RouteSpec {
  // Lists of query parameters that several routes share.
  private static let viewer: [StaticString] = ["user_id"]
  private static let position: [StaticString] = ["message_id", "thread_id", "totals", "user_id"]
  private static let paging: [StaticString] = ["limit", "cursor"]
  private static let list: [StaticString] = ["limit", "cursor", "order", "user_id"]

  /// The rows of all routes, by raw value.
  fileprivate static let all = Route.allCases.map(row)

  private static func row(of route: Route) -> RouteSpec {
    switch route {
    case .markRead: mark("mark_read", "/v1/channels/{cid}/read", body: .markRead)
    case .readState:
      page("read_state", "/v1/channels/{cid}/read-state", cost: 1, query: ["limit", "cursor", "thread_id", "user_id"])
    case .markUnread: mark("mark_unread", "/v1/channels/{cid}/unread", body: .markUnread)
    case .markDelivered:
      RouteSpec("mark_delivered", .post, "/v1/channels/delivered", .user, query: viewer, body: .markDelivered)
    case .markReadMany: batch("mark_read_many", "/v1/channels/read", .user, cost: 5, query: viewer, body: .markReadMany)
    case .registerMessage:
      RouteSpec("register_message", .post, "/v1/channels/{cid}/messages", .server, body: .registerMessage)
    case .registerMessages:
      RouteSpec("register_messages", .post, "/v1/messages", .server, cost: 10, body: .registerMessages)
    case .deleteMessage:
      RouteSpec("delete_message", .delete, "/v1/channels/{cid}/messages/{message}", .server)
    case .putChannel:
      RouteSpec("put_channel", .put, "/v1/channels/{cid}", .server, cost: 2, body: .putChannel)
    case .getChannel: page("get_channel", "/v1/channels/{cid}", .server, cost: 1)
    case .changeMembers:
      RouteSpec("change_members", .post, "/v1/channels/{cid}/members", .server, cost: 2, body: .changeMembers)
    case .putMember:
      RouteSpec("put_member", .put, "/v1/channels/{cid}/members/{member}", .user, body: .putMember)
    case .putChannelType:
      RouteSpec("put_channel_type", .put, "/v1/channel-types/{type}", .server, body: .options)
    case .getChannelType: RouteSpec("get_channel_type", .get, "/v1/channel-types/{type}", .server)
    case .listChannelTypes: page("list_channel_types", "/v1/channel-types", .server, cost: 1)
    case .apiDocument: RouteSpec("api_document", .get, "/v1/openapi.yaml", .unauthenticated, cost: 10)
    case .sdkFile: RouteSpec("sdk_file", .get, "/sdk/{name}", .unauthenticated)
    case .demoPage: RouteSpec("demo_page", .get, "/demo", .unauthenticated)
    case .demoSession: RouteSpec("demo_session", .get, "/demo/session", .unauthenticated)
    case .demoFile: RouteSpec("demo_file", .get, "/demo/{name}", .unauthenticated)
    case .consolePage: RouteSpec("console_page", .get, "/console", .unauthenticated)
    case .consoleLogin:
      RouteSpec("console_login", .post, "/console/login", .unauthenticated, cost: 10, body: .consoleLogin)
    case .consoleLogout: RouteSpec("console_logout", .post, "/console/logout", .unauthenticated)
    case .openConsoleSession: RouteSpec("open_console_session", .post, "/console/session", .server)
    case .getConsoleSession: RouteSpec("get_console_session", .get, "/console/session", .console)
    case .issueConsoleCode: RouteSpec("issue_console_code", .post, "/console/codes", .server)
    case .consoleMetrics:
      RouteSpec("console_metrics", .get, "/console/metrics", .console, cost: 10, query: ["store"])
    case .consoleFile: RouteSpec("console_file", .get, "/console/{name}", .unauthenticated)
    case .readStates: batch("read_states", "/v1/read-state", .user, query: viewer, body: .readStates)
    case .listRoster: page("list_roster", "/v1/channels/{cid}/members", query: ["limit", "cursor", "user_id"])
    case .listMessages: page("list_messages", "/v1/channels/{cid}/messages", .server, query: paging)
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
    case .messageStatus: page("message_status", "/v1/channels/{cid}/messages/{message}/status", cost: 1, query: viewer)
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
    case .listReaders: members("list_readers", "/v1/channels/{cid}/messages/{message}/readers", .list(.readers))
    case .listDelivered: members("list_delivered", "/v1/channels/{cid}/messages/{message}/delivered", .list(.delivered))
    case .listUnread: members("list_unread", "/v1/channels/{cid}/messages/{message}/unread", .list(.unread))
    case .listAcknowledged:
      members("list_acknowledged", "/v1/channels/{cid}/messages/{message}/acknowledged", .list(.acknowledged))
    case .listUnacknowledged:
      members("list_unacknowledged", "/v1/channels/{cid}/messages/{message}/unacknowledged", .list(.unacknowledged))
    case .chosenMembers:
      members(
        "chosen_members",
        "/v1/channels/{cid}/messages/{message}/members",
        .chosen,
        query: ["user_ids", "user_id"]
      )
    case .putUser: RouteSpec("put_user", .put, "/v1/users/{user}", .user, body: .putUser)
    case .getUser: RouteSpec("get_user", .get, "/v1/users/{user}", .user)
    case .putToken: RouteSpec("put_token", .put, "/v1/tokens/{jti}", .server, body: .putToken)
    case .getToken: RouteSpec("get_token", .get, "/v1/tokens/{jti}", .server)
    case .deleteChannel: RouteSpec("delete_channel", .delete, "/v1/channels/{cid}", .server, cost: 10)
    case .truncateChannel:
      RouteSpec("truncate_channel", .post, "/v1/channels/{cid}/truncate", .server, cost: 10, body: .truncateChannel)
    case .deleteUser: RouteSpec("delete_user", .delete, "/v1/users/{user}", .server, cost: 10)
    case .unreadOfUser: page("unread_of_user", "/v1/users/{user}/unread", cost: 5, query: paging)
    case .channelsOfUser: page("channels_of_user", "/v1/users/{user}/channels", query: paging)
    case .receiptsOfUser: page("receipts_of_user", "/v1/users/{user}/receipts", query: ["state", "limit", "cursor"])
    case .threadsOfUser: page("threads_of_user", "/v1/users/{user}/threads", query: ["unread", "limit", "cursor"])
    case .unreadOfUsers: batch("unread_of_users", "/v1/unread", .server, body: .unreadOfUsers)
    case .events:
      RouteSpec(
        "events",
        .get,
        "/v1/events",
        .user,
        cost: 5,
        query: ["channels", "user_id", "since", "totals", "access_token"]
      )
    case .frames: RouteSpec("frames", .post, "/v1/frames", .server, streams: .frames, cost: 5)
    case .issueTickets: batch("issue_tickets", "/v1/push/tickets", .server, body: .issueTickets)
    case .acknowledgePushes:
      RouteSpec(
        "acknowledge_pushes",
        .post,
        "/v1/push/acks",
        .credentialInBody,
        streams: .ndjson,
        cost: 2,
        body: .acknowledgePushes
      )
    case .receiveHook: RouteSpec("receive_hook", .post, "/v1/push/hooks/{name}", .unauthenticated, query: nil)
    case .putPushJob: RouteSpec("put_push_job", .post, "/v1/push/jobs", .server, cost: 2, body: .putPushJob)
    case .claimPushJobs:
      RouteSpec("claim_push_jobs", .post, "/v1/push/jobs/claim", .server, cost: 2, body: .claimPushJobs)
    case .renewPushJobs: RouteSpec("renew_push_jobs", .post, "/v1/push/jobs/renew", .server, body: .renewPushJobs)
    case .finishPushJobs: RouteSpec("finish_push_jobs", .post, "/v1/push/jobs/done", .server, body: .finishPushJobs)
    case .readFeed:
      RouteSpec("read_feed", .get, "/v1/feed", .server, cost: 5, query: ["consumer", "partition", "from", "to"])
    case .listConsumers: RouteSpec("list_consumers", .get, "/v1/feed/consumers", .server, cost: 2)
    case .putConsumer:
      RouteSpec("put_consumer", .put, "/v1/feed/consumers/{name}", .server, cost: 5, body: .putConsumer)
    case .getConsumer: RouteSpec("get_consumer", .get, "/v1/feed/consumers/{name}", .server, cost: 2)
    case .deleteConsumer: RouteSpec("delete_consumer", .delete, "/v1/feed/consumers/{name}", .server, cost: 5)
    case .commitConsumer:
      RouteSpec("commit_consumer", .post, "/v1/feed/consumers/{name}/commit", .server, body: .commitConsumer)
    case .leaseConsumer:
      RouteSpec("lease_consumer", .post, "/v1/feed/consumers/{name}/lease", .server, body: .leaseConsumer)
    case .importLines: RouteSpec("import", .post, "/v1/import", .server, streams: .ndjson, cost: 5, query: ["dry_run"])
    case .exportLines:
      RouteSpec("export", .get, "/v1/export", .server, cost: 5, query: ["channel_type", "user_id"])
    }
  }

  /// A route that moves one position of one user.
  private static func mark(_ name: StaticString, _ path: StaticString, body: KnownFields) -> RouteSpec {
    RouteSpec(name, .post, path, .user, query: position, checksOwnQuery: true, body: body)
  }

  /// A route that returns members of one message.
  private static func members(
    _ name: StaticString,
    _ path: StaticString,
    _ members: Members,
    query: [StaticString] = list
  ) -> RouteSpec {
    RouteSpec(name, .get, path, .user, response: .page, members: members, cost: 2, query: query)
  }

  /// A route that returns a page of rows.
  private static func page(
    _ name: StaticString,
    _ path: StaticString,
    _ callers: AdmittedCallers = .user,
    cost: Int = 2,
    query: [StaticString] = []
  ) -> RouteSpec {
    RouteSpec(name, .get, path, callers, response: .page, cost: cost, query: query)
  }

  /// A route with many entries in its body, and a result for each.
  private static func batch(
    _ name: StaticString,
    _ path: StaticString,
    _ callers: AdmittedCallers,
    cost: Int = 10,
    query: [StaticString] = [],
    body: KnownFields
  ) -> RouteSpec {
    RouteSpec(name, .post, path, callers, response: .batch, cost: cost, query: query, body: body)
  }
}

extension Route {
  /// The route's row.
  package var spec: RouteSpec { RouteSpec.all[Int(rawValue)] }

  /// The name in metrics and logs.
  package var name: StaticString { RouteSpec.all[Int(rawValue)].name }

  /// Who may call the route, as Proto/openapi.yaml has it.
  package var callers: RouteSpec.AdmittedCallers { RouteSpec.all[Int(rawValue)].callers }

  /// Whether requests are page queries, which take turns (``WaitingRequestsPart``).
  var isPageQuery: Bool { RouteSpec.all[Int(rawValue)].isPageQuery }

  /// The approximate size of the route's answer in bytes; 0: small.
  var responseBytes: Int { RouteSpec.all[Int(rawValue)].response.rawValue }

  /// Whether the route's handler checks its query.
  var checksOwnQuery: Bool { RouteSpec.all[Int(rawValue)].checksOwnQuery }

  /// Whether the route returns members of one message (R11).
  package var listsMembers: Bool { RouteSpec.all[Int(rawValue)].members != nil }

  /// The list that the route returns; nil: none.
  var memberList: MemberList? {
    if case .list(let list) = RouteSpec.all[Int(rawValue)].members { list } else { nil }
  }

  /// Return whether the route streams bodies of this type.
  func streams(_ contentType: RawSpan) -> Bool {
    RouteSpec.all[Int(rawValue)].streamedType?.isNamed(by: contentType) ?? false
  }
}

/// The facts about a route, besides its handler: method and path, name, callers, answer, cost, query parameters
/// and fields of the body.
package struct RouteSpec: Sendable {
  /// The name in metrics and logs.
  package let name: StaticString
  let method: HTTP2Method
  /// Pieces in braces are parameters.
  let path: StaticString
  package let callers: AdmittedCallers
  let response: ResponseSize
  /// The content type of bodies that the route streams; nil: none.
  let streamedType: HTTP2ContentType?
  /// Whether requests are page queries: the store reads up to a page of rows for each, so they take turns
  /// (``WaitingRequestsPart``).
  let isPageQuery: Bool
  /// The members of a message that the route returns (R11); nil: none.
  let members: Members?
  /// The cost of a request against ``RateLimits``: roughly its work relative to marking one channel read. Each frame or
  /// line of a streamed body costs one more; so do four acknowledgements of a JSON body, and of a scan over a user's
  /// channels five that are listed or marked or twenty that are counted.
  let cost: Int
  /// The known query parameters; nil: any, because a provider may add its own to its hook's URL.
  package let queryParameters: [StaticString]?
  /// Whether the route's handler checks the query. A mark parses its query once, for the values, and checks it only if
  /// something is unexpected.
  let checksOwnQuery: Bool
  /// The fields of the body; nil: no body, or one of another form than a JSON object.
  package let body: KnownFields?

  /// The callers that a route admits.
  package enum AdmittedCallers: Sendable {
    /// Servers only.
    case server
    /// Servers, and users for themselves.
    case user
    /// Sessions of the console.
    case console
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
    /// Up to a page of rows, which the store reads.
    case page = 12_288
    /// Many entries, or many pages.
    case batch = 49_152
  }

  /// Members of one message.
  enum Members: Sendable {
    /// A list in pages.
    case list(MemberList)
    /// The members that the request names.
    case chosen
  }

  init(
    _ name: StaticString,
    _ method: HTTP2Method,
    _ path: StaticString,
    _ callers: AdmittedCallers,
    response: ResponseSize = .small,
    streams streamedType: HTTP2ContentType? = nil,
    members: Members? = nil,
    cost: Int = 1,
    query: [StaticString]? = [],
    checksOwnQuery: Bool = false,
    body: KnownFields? = nil
  ) {
    self.name = name
    self.method = method
    self.path = path
    self.callers = callers
    self.response = response
    self.streamedType = streamedType
    isPageQuery = response == .page
    self.members = members
    self.cost = cost
    queryParameters = query
    self.checksOwnQuery = checksOwnQuery
    self.body = body
  }
}
