/// The query parameters of each route.
extension Route {
  /// The known parameters; nil: any, because a provider may add its own to its hook's URL.
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
    case .receiveHook, .notImplemented, .notImplementedPublic: nil
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

  /// Parameters of the public API that are not implemented yet: 501.
  var parametersNotImplemented: [StaticString] { [] }
}

extension RouteMatch {
  /// Parameters that Stream's clients send with every request; ignored.
  private static let ignoredParameters: [StaticString] = ["api_key", "connection_id"]

  /// Parameters whose absence means everything, the newest, or another view. An empty value is refused, as `null` is in
  /// a body, so that a missing variable cannot widen a request.
  private static let ids: [StaticString] = ["message_id", "thread_id", "user_id"]

  /// Parameters that may be repeated.
  private static let lists: [StaticString] = ["channels", "user_ids"]

  /// - Parameters:
  ///   - name: the parameter's name in the route's list, at this index.
  ///   - seen: bit set of the parameters seen so far.
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

  /// Checks the names of a query's parameters. Every user route accepts the user's own id, which Stream's clients send
  /// with each request.
  ///
  /// - Throws: `invalid_query`, `unknown_field`, `not_implemented`, `user_id_mismatch`.
  func checkQuery(_ caller: Caller, _ scratch: PathScratch) throws(Problem) {
    guard !query.isEmpty, let known = route.queryParameters else { return }
    // The route decodes the values again.
    let mark = scratch.mark
    defer { scratch.forget(to: mark) }
    var notImplemented: StaticString?
    var seen: UInt64 = 0
    var reader = QueryReader(query, scratch)
    while let parameter = try reader.next() {
      if let place = known.firstIndex(where: { parameter.name.equals($0) }) {
        try Self.check(parameter, known[place], at: place, &seen)
        continue
      }
      if Self.ignoredParameters.contains(where: { parameter.name.equals($0) }) { continue }
      if let name = route.parametersNotImplemented.first(where: { parameter.name.equals($0) }) {
        notImplemented = name
      } else if parameter.name.equals("user_id"), route.caller == .user, !caller.isServer {
        guard parameter.value.isEmpty || parameter.value.equals(caller.user) else {
          throw Problem(.userIDMismatch)
        }
      } else {
        let name = parameter.name.withUnsafeBytes { String(decoding: $0.prefix(64), as: UTF8.self) }
        throw Problem(unknown: "query parameter", name, NearestName.of(parameter.name, among: known))
      }
    }
    if let notImplemented {
      throw Problem(.notImplemented, "query parameter \"\(notImplemented)\" is not built yet")
    }
  }
}
