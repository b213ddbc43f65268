internal import HTTP2Session
internal import NIOCore
internal import ReceiptModel
internal import ReceiptWire
internal import StoreClient

/// The members of one message (R11): who has read it, has had it delivered, or has not read it; and the status of
/// chosen members.
extension MessageRoutes {
  /// Handle `GET /v1/channels/{cid}/messages/{id}/LIST?limit=&cursor=&order=&user_id=`, where LIST is `readers`,
  /// `delivered`, `unread`, `acknowledged` or `unacknowledged`.
  func listMembers(_ match: borrowing RouteMatch, _ context: RequestContext) throws(Problem) {
    var limit = loop.limits.rowsPerPage
    var order = ListOrder.joined
    var cursor = match.query.extracting(0..<0)
    var user = match.query.extracting(0..<0)
    var reader = QueryReader(match.query, loop.scratch)
    while let parameter = try reader.next() {
      // An empty value counts as absent.
      if parameter.value.isEmpty { continue }
      if parameter.name.equals("limit") {
        limit = try loop.limits.pageLimit(parameter.value)
      } else if parameter.name.equals("cursor") {
        guard ListCursorText.isOne(parameter.value) else { throw Problem(.invalidCursor) }
        cursor = parameter.value
      } else if parameter.name.equals("order") {
        order = try Self.order(parameter.value)
      } else if parameter.name.equals("user_id") {
        user = parameter.value
        try context.check(user)
      }
    }
    let viewer = context.viewingUser(user)
    let isServer = context.caller.isServer
    let message = match.message
    guard let list = match.route.memberList else {
      preconditionFailure("\(match.route.name) returns no list of members")
    }
    try loop.send(.listMembers, to: .channel(match.subject), context) { buffer in
      buffer.writeListMembers(
        viewer: viewer,
        isServer: isServer,
        message: message,
        list: list,
        order: order,
        limit: limit,
        cursor: cursor
      )
    }
  }

  private static func order(_ text: RawSpan) throws(Problem) -> ListOrder {
    if text.equals("joined") { return .joined }
    if text.equals("time") { return .time }
    if text.equals("time_desc") { return .timeDescending }
    throw Problem(.invalidQuery, "order has to be joined, time or time_desc")
  }

  /// Handle `GET /v1/channels/{cid}/messages/{id}/members?user_ids=a,b,c&user_id=`.
  func chosenMembers(_ match: borrowing RouteMatch, _ context: RequestContext) throws(Problem) {
    var chosen = ByteBuffer()
    var count = 0
    var user = match.query.extracting(0..<0)
    var reader = QueryReader(match.query, loop.scratch)
    while let parameter = try reader.next() {
      if parameter.name.equals("user_ids"), !parameter.value.isEmpty {
        var list = parameter.list(loop.scratch)
        while let id = list.next() {
          guard Identifier.isUser(id) else { throw Problem(.invalidUserID) }
          count += 1
          chosen.writeField(id)
        }
      } else if parameter.name.equals("user_id"), !parameter.value.isEmpty {
        user = parameter.value
        try context.check(user)
      }
    }
    guard count > 0 else {
      throw Problem(.invalidQuery, "user_ids has to name users, as in user_ids=alice,bob")
    }
    guard count <= loop.limits.entriesPerRequest else {
      throw Problem(.invalidQuery, "user_ids may name at most \(loop.limits.entriesPerRequest) users")
    }
    let viewer = context.viewingUser(user)
    let isServer = context.caller.isServer
    let message = match.message
    try loop.send(.memberStatuses, to: .channel(match.subject), context) { buffer in
      buffer.writeMemberStatuses(viewer: viewer, isServer: isServer, message: message, userCount: count)
      buffer.writeImmutableBuffer(chosen)
    }
  }
}
