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
    let home = try homeShard(of: match.subject)
    let gather = beginGather(context, match.route, count: 1)
    gathers[Int(gather)]?.changesPrivacy = patch.showsRead != nil || patch.showsDelivered != nil
    sendTyped(.patchUser, home, match.subject, context, match.route, gather, 0) { buffer in
      let given = (patch.showsRead, patch.showsDelivered, patch.tokensRevokedBefore)
      buffer.writeVarint(
        UInt64((given.0 == nil ? 0 : 1) | (given.1 == nil ? 0 : 2) | (given.2 == nil ? 0 : 4))
      )
      buffer.writeVarint(UInt64((given.0 == true ? 1 : 0) | (given.1 == true ? 2 : 0)))
      buffer.writeTime(given.2 ?? .none)
    }
    finishSending(gather)
  }

  /// Has the user's channels tell how others see the user's rows now, as every shard has the change (R7). False: there is nothing to tell.
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
