/// The query parameters that each route takes.
extension Route {
  /// Nil where they are the sender's own: a provider adds what it likes to the URL of its hook.
  var queryParameters: [StaticString]? {
    switch self {
    case .markRead, .markUnread: Self.positionParameters
    case .markDelivered, .markReadMany, .acknowledgeReceipts, .statuses, .messageStatus: Self.viewerParameters
    case .readState: Self.readStateParameters
    case .listRoster: Self.rosterParameters
    case .readStates: Self.viewerParameters
    case .listMessages: Self.pageParameters
    case .listReaders, .listDelivered, .listUnread, .listAcknowledged, .listUnacknowledged:
      Self.listParameters
    case .chosenMembers: Self.chosenMemberParameters
    case .unreadOfUser, .channelsOfUser: Self.pageParameters
    case .receiptsOfUser: Self.receiptParameters
    case .threadsOfUser: Self.threadParameters
    case .events: Self.eventParameters
    case .registerMessage, .registerMessages, .deleteMessage, .putChannel, .getChannel, .changeMembers,
      .putChannelType, .getChannelType, .listChannelTypes, .apiDocument, .putUser, .getUser, .deleteChannel,
      .truncateChannel, .deleteUser, .unreadOfUsers, .frames, .issueTickets, .acknowledgePushes, .putChannels,
      .putUsers, .putMember, .putToken, .getToken:
      Self.noParameters
    case .receiveHook, .notBuilt, .notBuiltForBrowsers: nil
    }
  }

  private static let noParameters: [StaticString] = []
  private static let viewerParameters: [StaticString] = ["user_id"]
  private static let positionParameters: [StaticString] = ["message_id", "thread_id", "totals", "user_id"]
  private static let pageParameters: [StaticString] = ["limit", "cursor"]
  private static let readStateParameters: [StaticString] = ["limit", "cursor", "thread_id", "user_id"]
  private static let rosterParameters: [StaticString] = ["limit", "cursor", "user_id"]
  private static let receiptParameters: [StaticString] = ["state", "limit", "cursor"]
  private static let threadParameters: [StaticString] = ["unread", "limit", "cursor"]
  private static let listParameters: [StaticString] = ["limit", "cursor", "order", "user_id"]
  private static let chosenMemberParameters: [StaticString] = ["user_ids", "user_id"]
  private static let eventParameters: [StaticString] = [
    "channels", "user_id", "since", "totals", "access_token",
  ]

  /// Parameters of the public API that this build does not know what to do with: 501.
  var parametersNotBuilt: [StaticString] { [] }
}

extension GatewayLoop {
  /// What Stream's clients send with every request; ignored.
  private static let ignoredParameters: [StaticString] = ["api_key", "connection_id"]

  /// Without them a request means everything, the newest, or another view: so an id that was lost on its way is refused,
  /// as `null` is in a body.
  private static let ids: [StaticString] = ["message_id", "thread_id", "user_id"]

  /// Those that may be given more than once.
  private static let lists: [StaticString] = ["channels", "user_ids"]

  /// - Parameters:
  ///   - name: one of those that the route knows, at this place.
  ///   - seen: the places of those that came before.
  private static func check(
    _ parameter: borrowing QueryParameter,
    _ name: StaticString,
    at place: Int,
    _ seen: inout UInt64
  ) throws(Problem) {
    if parameter.value.isEmpty, ids.contains(where: { parameter.name.equals($0) }) {
      throw Problem(.invalidQuery, "\(name) is empty: leave it out, or give an id")
    }
    guard seen & 1 << UInt64(place) == 0 || lists.contains(where: { parameter.name.equals($0) }) else {
      throw Problem(.invalidQuery, "\(name) is given twice")
    }
    seen |= 1 << UInt64(place)
  }

  /// Checks the names of a query's parameters. A user's own id is taken on every route of users: Stream's clients send
  /// it with each request.
  ///
  /// - Throws: `invalid_query`, `unknown_field`, `not_implemented`, `user_id_mismatch`.
  func checkQuery(_ match: borrowing RouteMatch, _ caller: Caller) throws(Problem) {
    guard !match.query.isEmpty, let known = match.route.queryParameters else { return }
    // The route decodes its values anew.
    let mark = scratch.mark
    defer { scratch.forget(to: mark) }
    var notBuilt: StaticString?
    var seen: UInt64 = 0
    var reader = QueryReader(match.query, scratch)
    while let parameter = try reader.next() {
      if let place = known.firstIndex(where: { parameter.name.equals($0) }) {
        try Self.check(parameter, known[place], at: place, &seen)
        continue
      }
      if Self.ignoredParameters.contains(where: { parameter.name.equals($0) }) { continue }
      if let name = match.route.parametersNotBuilt.first(where: { parameter.name.equals($0) }) {
        notBuilt = name
      } else if parameter.name.equals("user_id"), match.route.caller == .user, !caller.isServer {
        guard parameter.value.isEmpty || parameter.value.equals(caller.user) else {
          throw Problem(.userIDMismatch)
        }
      } else {
        let name = parameter.name.withUnsafeBytes { String(decoding: $0.prefix(64), as: UTF8.self) }
        throw Problem(unknown: "query parameter", name, NearestName.of(parameter.name, among: known))
      }
    }
    if let notBuilt { throw Problem(.notImplemented, "query parameter \"\(notBuilt)\" is not built yet") }
  }
}
