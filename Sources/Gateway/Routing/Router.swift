package import HTTP2Session
internal import ReceiptModel

/// Finds the route for a method and a path. The table lists the routes of Proto/openapi.yaml in search order, with busy
/// routes first.
package struct Router {
  private enum Part {
    case literal(StaticString)
    case cid, channelType, user, message, name, tokenID
    /// A user as a member of a channel.
    case member
  }

  private struct Pattern {
    var parts: [Part]
    var routes: [(method: HTTP2Method, route: Route)]
    var allow: Problem.AllowedMethods
  }

  /// Patterns by their number of parts.
  private let patterns: [[Pattern]]
  private static let partCountMax = 6

  package init() {
    var patterns: [[Pattern]] = Array(repeating: [], count: Self.partCountMax + 1)
    for (parts, routes) in Self.table {
      let names = routes.flatMap { $0.0 == .get ? ["GET", "HEAD"] : [Self.name($0.0)] }
      patterns[parts.count].append(
        Pattern(
          parts: parts,
          routes: routes.map { (method: $0.0, route: $0.1) },
          allow: Problem.AllowedMethods(names.joined(separator: ", "))
        )
      )
    }
    self.patterns = patterns
  }

  private static let table: [([Part], [(HTTP2Method, Route)])] = [
    ([.literal("v1"), .literal("channels"), .cid, .literal("read")], [(.post, .markRead)]),
    ([.literal("v1"), .literal("channels"), .cid, .literal("read-state")], [(.get, .readState)]),
    ([.literal("v1"), .literal("channels"), .cid, .literal("unread")], [(.post, .markUnread)]),
    (
      [.literal("v1"), .literal("channels"), .cid, .literal("messages")],
      [(.post, .registerMessage), (.get, .listMessages)]
    ),
    (
      [.literal("v1"), .literal("channels"), .cid, .literal("members")],
      [(.post, .changeMembers), (.get, .listRoster)]
    ),
    ([.literal("v1"), .literal("channels"), .cid, .literal("members"), .member], [(.put, .putMember)]),
    ([.literal("v1"), .literal("channels"), .cid, .literal("receipts")], [(.post, .acknowledgeReceipts)]),
    ([.literal("v1"), .literal("channels"), .cid, .literal("truncate")], [(.post, .truncateChannel)]),
    ([.literal("v1"), .literal("users"), .user, .literal("unread")], [(.get, .unreadOfUser)]),
    ([.literal("v1"), .literal("users"), .user, .literal("channels")], [(.get, .channelsOfUser)]),
    ([.literal("v1"), .literal("users"), .user, .literal("receipts")], [(.get, .receiptsOfUser)]),
    ([.literal("v1"), .literal("users"), .user, .literal("threads")], [(.get, .threadsOfUser)]),
    ([.literal("v1"), .literal("push"), .literal("hooks"), .name], [(.post, .receiveHook)]),
    ([.literal("v1"), .literal("channels"), .literal("delivered")], [(.post, .markDelivered)]),
    ([.literal("v1"), .literal("channels"), .literal("read")], [(.post, .markReadMany)]),
    (
      [.literal("v1"), .literal("channels"), .cid],
      [(.get, .getChannel), (.put, .putChannel), (.delete, .deleteChannel)]
    ),
    (
      [.literal("v1"), .literal("channel-types"), .channelType],
      [(.get, .getChannelType), (.put, .putChannelType)]
    ),
    (
      [.literal("v1"), .literal("users"), .user],
      [(.get, .getUser), (.put, .putUser), (.delete, .deleteUser)]
    ),
    ([.literal("v1"), .literal("tokens"), .tokenID], [(.get, .getToken), (.put, .putToken)]),
    ([.literal("v1"), .literal("push"), .literal("tickets")], [(.post, .issueTickets)]),
    ([.literal("v1"), .literal("push"), .literal("acks")], [(.post, .acknowledgePushes)]),
    (
      [.literal("v1"), .literal("channels"), .cid, .literal("receipts"), .literal("query")],
      [(.post, .statuses)]
    ),
    (
      [.literal("v1"), .literal("channels"), .cid, .literal("messages"), .message],
      [(.delete, .deleteMessage)]
    ),
    (
      [.literal("v1"), .literal("channels"), .cid, .literal("messages"), .message, .literal("status")],
      [(.get, .messageStatus)]
    ),
    (
      [.literal("v1"), .literal("channels"), .cid, .literal("messages"), .message, .literal("readers")],
      [(.get, .listReaders)]
    ),
    (
      [.literal("v1"), .literal("channels"), .cid, .literal("messages"), .message, .literal("delivered")],
      [(.get, .listDelivered)]
    ),
    (
      [.literal("v1"), .literal("channels"), .cid, .literal("messages"), .message, .literal("unread")],
      [(.get, .listUnread)]
    ),
    (
      [.literal("v1"), .literal("channels"), .cid, .literal("messages"), .message, .literal("acknowledged")],
      [(.get, .listAcknowledged)]
    ),
    (
      [
        .literal("v1"), .literal("channels"), .cid, .literal("messages"), .message,
        .literal("unacknowledged"),
      ],
      [(.get, .listUnacknowledged)]
    ),
    (
      [.literal("v1"), .literal("channels"), .cid, .literal("messages"), .message, .literal("members")],
      [(.get, .chosenMembers)]
    ),
    ([.literal("v1"), .literal("messages")], [(.post, .registerMessages)]),
    ([.literal("v1"), .literal("channels")], [(.post, .putChannels)]),
    ([.literal("v1"), .literal("users")], [(.post, .putUsers)]),
    ([.literal("v1"), .literal("read-state")], [(.post, .readStates)]),
    ([.literal("v1"), .literal("channel-types")], [(.get, .listChannelTypes)]),
    ([.literal("v1"), .literal("unread")], [(.post, .unreadOfUsers)]),
    ([.literal("v1"), .literal("events")], [(.get, .events)]),
    ([.literal("v1"), .literal("frames")], [(.post, .frames)]),
    ([.literal("v1"), .literal("openapi.yaml")], [(.get, .apiDocument)]),
    // Routes of the public API that are not implemented yet. Implementing one gives it a `Route` case of its own.
    ([.literal("v1"), .literal("feed")], [(.get, .notImplemented)]),
    ([.literal("v1"), .literal("feed"), .literal("consumers")], [(.get, .notImplemented)]),
    (
      [.literal("v1"), .literal("feed"), .literal("consumers"), .name],
      [(.put, .notImplemented), (.delete, .notImplemented)]
    ),
    (
      [.literal("v1"), .literal("feed"), .literal("consumers"), .name, .literal("commit")],
      [(.post, .notImplemented)]
    ),
    ([.literal("v1"), .literal("import")], [(.post, .notImplemented)]),
    ([.literal("v1"), .literal("export")], [(.get, .notImplemented)]),
    ([.literal("sdk"), .name], [(.get, .notImplementedPublic)]),
  ]

  /// Finds the route of a request.
  ///
  /// - Throws: `route_not_found`, `method_not_allowed`, or the code of a malformed part, in this order.
  @_lifetime(copy path)
  package func match(
    _ method: HTTP2Method,
    _ path: RawSpan,
    _ scratch: PathScratch
  ) throws(Problem) -> RouteMatch {
    scratch.clear()
    let pathEnd = path.firstOffset(of: UInt8(ascii: "?"), from: 0) ?? path.byteCount
    let query = path.extracting(Swift.min(pathEnd + 1, path.byteCount)..<path.byteCount)
    guard pathEnd > 0, path.unsafeLoad(fromByteOffset: 0, as: UInt8.self) == UInt8(ascii: "/") else {
      throw Problem(.routeNotFound)
    }
    // Part n lies between the slashes at ends[n] and ends[n + 1].
    var ends = InlineArray<8, Int>(repeating: 0)
    var count = 0
    var slash = 0
    while true {
      let next = path.firstOffset(of: UInt8(ascii: "/"), from: slash + 1) ?? pathEnd
      let end = Swift.min(next, pathEnd)
      guard count < Self.partCountMax else { throw Problem(.routeNotFound) }
      count += 1
      ends[count] = end
      if end == pathEnd { break }
      slash = end
    }
    for index in patterns[count].indices where Self.fits(patterns[count][index], path, ends) {
      return try routed(patterns[count][index], method, path, ends, query, scratch)
    }
    throw Problem(.routeNotFound)
  }

  private static func fits(_ pattern: borrowing Pattern, _ path: RawSpan, _ ends: InlineArray<8, Int>) -> Bool
  {
    for index in 0..<pattern.parts.count {
      let part = path.extracting((ends[index] + 1)..<ends[index + 1])
      switch pattern.parts[index] {
      case .literal(let text): if !part.equals(text) { return false }
      case .cid, .channelType, .user, .message, .name, .member, .tokenID: if part.isEmpty { return false }
      }
    }
    return true
  }

  @_lifetime(copy query)
  private func routed(
    _ pattern: Pattern,
    _ method: HTTP2Method,
    _ path: RawSpan,
    _ ends: InlineArray<8, Int>,
    _ query: RawSpan,
    _ scratch: PathScratch
  ) throws(Problem) -> RouteMatch {
    let wanted = method == .head ? .get : method
    guard let route = pattern.routes.first(where: { $0.method == wanted })?.route else {
      var problem = Problem(.methodNotAllowed)
      problem.allow = pattern.allow
      throw problem
    }
    let empty = path.extracting(0..<0)
    var subject = empty
    var message = empty
    var member = empty
    for index in 0..<pattern.parts.count {
      let raw = path.extracting((ends[index] + 1)..<ends[index + 1])
      switch pattern.parts[index] {
      case .literal: continue
      case .name: subject = raw
      case .cid:
        guard let part = scratch.decoded(raw), Identifier.isCID(part) else { throw Problem(.invalidCID) }
        subject = part
      case .channelType:
        guard let part = scratch.decoded(raw), Identifier.isType(part) else {
          throw Problem(.invalidChannelType)
        }
        subject = part
      case .user:
        guard let part = scratch.decoded(raw), Identifier.isUser(part) else { throw Problem(.invalidUserID) }
        guard !Self.isDots(part) else { throw Problem(.invalidUserID, Self.dots) }
        subject = part
      case .message:
        guard let part = scratch.decoded(raw), Identifier.isMessage(part) else {
          throw Problem(.invalidMessageID)
        }
        guard !Self.isDots(part) else { throw Problem(.invalidMessageID, Self.dots) }
        message = part
      case .member:
        guard let part = scratch.decoded(raw), Identifier.isUser(part) else { throw Problem(.invalidUserID) }
        guard !Self.isDots(part) else { throw Problem(.invalidUserID, Self.dots) }
        member = part
      case .tokenID:
        guard let part = scratch.decoded(raw), Identifier.isID(part) else { throw Problem(.invalidTokenID) }
        guard !Self.isDots(part) else { throw Problem(.invalidTokenID, Self.dots) }
        subject = part
      }
    }
    return RouteMatch(route, subject: subject, message: message, member: member, query: query)
  }

  private static let dots =
    "\".\" and \"..\" are not allowed in a path: clients and proxies resolve them, escaped or not"

  private static func isDots(_ part: RawSpan) -> Bool { part.equals(".") || part.equals("..") }

  private static func name(_ method: HTTP2Method) -> String {
    switch method {
    case .get: "GET"
    case .put: "PUT"
    case .post: "POST"
    case .delete: "DELETE"
    case .patch: "PATCH"
    case .head: "HEAD"
    case .options: "OPTIONS"
    case .other: "OTHER"
    }
  }
}
