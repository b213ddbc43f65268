internal import HTTP2Session
internal import NIOCore
internal import ReceiptModel
internal import ReceiptWire
internal import StoreClient

/// Users' settings (R7): versioned values that every shard holds a copy of, as channel types are. A user may
/// change and see their own.
extension GatewayLoop {
  /// `PUT /v1/users/{user}`.
  func putUser(
    _ match: borrowing RouteMatch,
    _ context: RequestContext,
    _ request: borrowing HTTP2Request
  ) throws(Problem) {
    try Self.check(match.subject, context)
    let patch = try UserJSON.patch(try object(request, .putUser))
    if patch.tokensRevokedBefore != nil && !context.caller.isServer { throw Problem(.serverTokenRequired) }
    try patchUser(match.subject, patch, context, match.route)
  }

  /// `POST /v1/users`: many, each as a PUT of its own.
  func putUsers(
    _ match: borrowing RouteMatch,
    _ context: RequestContext,
    _ request: borrowing HTTP2Request
  ) throws(Problem) {
    let body = try object(request, .putUsers)
    let entries = try body.requiredArray("users", countMax: limits.entriesPerRequest)
    var checked = entries.elements
    while let entry = checked.next() { _ = try entry.object().requiredString("id") }
    let gather = beginGather(context, match.route, count: entries.count)
    var position = 0
    var sent = entries.elements
    while let entry = sent.next() {
      do throws(Problem) {
        let user = try entry.requiredString("id")
        guard Identifier.isUser(user) else { throw Problem(.invalidUserID) }
        try patchUser(user, try UserJSON.patch(entry), context, match.route, parent: (gather, position))
      } catch {
        finishEntry(gather, position, error.code)
      }
      position += 1
    }
    finishSending(gather)
  }

  /// Begins to change a user's settings.
  ///
  /// - Parameter parent: of one user of many, the gather of all and the entry's place in it.
  private func patchUser(
    _ user: RawSpan,
    _ patch: UserSettingsPatch,
    _ context: RequestContext,
    _ route: Route,
    parent: (gather: UInt32, entry: Int)? = nil
  ) throws(Problem) {
    let home = try homeShard(of: user)
    let gather = beginGather(context, route, count: 1)
    gathers[Int(gather)]?.parent = parent
    gathers[Int(gather)]?.changesPrivacy = patch.showsRead != nil || patch.showsDelivered != nil
    sendTyped(.patchUser, home, user, context, route, gather, 0) { buffer in
      let given = (patch.showsRead, patch.showsDelivered, patch.tokensRevokedBefore)
      buffer.writeVarint(
        UInt64((given.0 == nil ? 0 : 1) | (given.1 == nil ? 0 : 2) | (given.2 == nil ? 0 : 4))
      )
      buffer.writeVarint(UInt64((given.0 == true ? 1 : 0) | (given.1 == true ? 2 : 0)))
      buffer.writeTime(given.2 ?? .none)
    }
    finishSending(gather)
  }

  /// Has the user's channels tell how others see the user's rows now, as every shard has the change (R7). False: there
  /// is nothing to tell.
  func announce(_ value: SharedValue, _ gather: Gather, _ index: UInt32) -> Bool {
    guard gather.changesPrivacy, value.isUser, value.version > 0 else { return false }
    gather.waiting += 1
    let walk = UserWalk(.announce, users: [Array(value.name.utf8)], shardCount: store.shardCount)
    beginJob(UserJob(.announcement(gather: index), walk))
    return true
  }

  /// They have told, or why not: then the change is not settled, and ``Settling`` goes on with it.
  func announced(_ index: UInt32, _ problem: Problem?) {
    guard let gather = gathers[Int(index)] else { return }
    if let problem { gather.results.append(Gather.Result(code: problem.code)) }
    gather.waiting -= 1
    answerIfComplete(gather, index)
  }

  /// `GET /v1/users/{user}`: what their home shard holds; a user who was never given any has the defaults.
  func getUser(_ match: borrowing RouteMatch, _ context: RequestContext) throws(Problem) {
    try Self.check(match.subject, context)
    let home = try homeShard(of: match.subject)
    let token = keep(context, match.route, .user)
    guard
      store.send(
        .getUser,
        shard: home,
        name: match.subject,
        token: token,
        issued: context.caller.issued,
        { _ in }
      )
    else {
      _ = pending.remove(token)
      throw Problem(.storeBusy)
    }
  }
}
