internal import HTTP2Session
internal import ReceiptModel

extension GatewayLoop {
  /// Calls the route. Each one checks its input whole before it sends anything to the store.
  func dispatch(
    _ match: borrowing RouteMatch,
    _ context: RequestContext,
    _ request: borrowing HTTP2Request
  ) throws(Problem) {
    // A mark looks at its query once, for its values; one that is not in order is checked then.
    if match.route != .markRead, match.route != .markUnread { try checkQuery(match, context.caller) }
    // What has no body has no fields either; an empty object is taken.
    if !request.body.isEmpty, request.method == .get || request.method == .delete {
      _ = try object(request, [])
    }
    switch match.route {
    case .markRead: try markRead(match, context, request)
    case .markUnread: try markUnread(match, context, request)
    case .markDelivered: try markDelivered(match, context, request)
    case .markReadMany: try markReadMany(match, context, request)
    case .registerMessage: try registerMessage(match, context, request)
    case .registerMessages: try registerMessages(match, context, request)
    case .deleteMessage: try deleteMessage(match, context)
    case .putChannel: try putChannel(match, context, request)
    case .getChannel: try getChannel(match, context)
    case .changeMembers: try changeMembers(match, context, request)
    case .putMember: try putMember(match, context, request)
    case .putChannelType: try putChannelType(match, context, request)
    case .getChannelType: try getChannelType(match, context)
    case .listChannelTypes: try listChannelTypes(match, context)
    case .apiDocument: apiDocument(match, context, request)
    case .readState: try readState(match, context)
    case .readStates: try readStates(match, context, request)
    case .listRoster: try listRoster(match, context)
    case .listMessages: try listMessages(match, context)
    case .putChannels: try putChannels(match, context, request)
    case .putUsers: try putUsers(match, context, request)
    case .statuses: try statuses(match, context, request)
    case .messageStatus: try messageStatus(match, context)
    case .acknowledgeReceipts: try acknowledgeReceipts(match, context, request)
    case .receiptsOfUser: try receiptsOfUser(match, context)
    case .threadsOfUser: try threadsOfUser(match, context)
    case .listReaders, .listDelivered, .listUnread, .listAcknowledged, .listUnacknowledged:
      try listMembers(match, context)
    case .chosenMembers: try chosenMembers(match, context)
    case .putUser: try putUser(match, context, request)
    case .getUser: try getUser(match, context)
    case .putToken: try putToken(match, context, request)
    case .getToken: try getToken(match, context)
    case .deleteChannel: try deleteChannel(match, context)
    case .truncateChannel: try truncateChannel(match, context, request)
    case .deleteUser: try deleteUser(match, context)
    case .unreadOfUser: try unreadOfUser(match, context)
    case .channelsOfUser: try channelsOfUser(match, context)
    case .unreadOfUsers: try unreadOfUsers(match, context, request)
    case .events: try openEvents(match, context, request)
    case .frames: try openFrames(match, context, request)
    case .issueTickets: try issueTickets(match, context, request)
    case .acknowledgePushes: try acknowledgePushes(match, context, request)
    case .receiveHook: try receiveHook(match, context, request)
    case .notBuilt, .notBuiltForBrowsers: throw Problem(.notImplemented, "this route is not built yet")
    }
  }

  /// The body as a JSON object that has known fields only; an empty body counts as `{}`.
  ///
  /// - Throws: `content_type_not_supported` for a body of another type, `invalid_json`, `invalid_field`,
  /// `unknown_field`,
  ///   `not_implemented`.
  @_lifetime(borrow self)
  func object(
    _ request: borrowing HTTP2Request,
    _ known: borrowing KnownFields
  ) throws(Problem) -> JSONValue {
    if request.body.isEmpty { return try parsed(Self.emptyObject.span.bytes) }
    guard Self.isJSON(request.contentType) else { throw Problem(.contentTypeNotSupported) }
    let body = try parsed(request.body)
    try body.check(known)
    return body
  }

  private static let emptyObject = Array("{}".utf8)

  @_lifetime(borrow self)
  private func parsed(_ bytes: RawSpan) throws(Problem) -> JSONValue {
    let tape = self.tape
    let value: JSONValue
    do throws(JSONSyntaxError) { value = try tape.parse(bytes) } catch { throw Problem(error) }
    guard value.kind == .object else { throw Problem(.invalidField, "the body must be an object") }
    return _overrideLifetime(value, borrowing: self)
  }

  /// Whether a body of this type is read as JSON: `application/json`, any parameters, or no type at all.
  static func isJSON(_ contentType: RawSpan) -> Bool {
    contentType.isEmpty || HTTP2ContentType.json.isNamed(by: contentType)
  }

  /// The user that a request acts for: a user's own id, or the one that a server names.
  ///
  /// - Parameter given: a `user_id` that was checked; empty where there is none.
  /// - Throws: `user_id_required` where a server names none.
  @_lifetime(borrow context)
  static func actingUser(_ given: RawSpan, _ context: borrowing RequestContext) throws(Problem) -> RawSpan {
    if !given.isEmpty { return _overrideLifetime(given, borrowing: context) }
    guard !context.caller.isServer else { throw Problem(.userIDRequired) }
    return _overrideLifetime(context.caller.user, borrowing: context)
  }

  /// The same where a server need not name a user: empty then.
  @_lifetime(borrow context)
  static func viewingUser(_ given: RawSpan, _ context: borrowing RequestContext) -> RawSpan {
    given.isEmpty
      ? _overrideLifetime(context.caller.user, borrowing: context)
      : _overrideLifetime(given, borrowing: context)
  }

  /// Checks a `user_id` wherever it is given: a request that names one twice is held to both.
  ///
  /// - Throws: `invalid_user_id`, `user_id_mismatch` where a user names another.
  static func check(_ given: RawSpan, _ context: borrowing RequestContext) throws(Problem) {
    guard Identifier.isUser(given) else { throw Problem(.invalidUserID) }
    if !context.caller.isServer && !given.equals(context.caller.user) {
      throw Problem(.userIDMismatch)
    }
  }
}
