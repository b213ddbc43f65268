internal import HTTP2Session
internal import NIOCore
internal import ReceiptModel
internal import ReceiptWire
internal import StoreClient

/// Users' settings (R7): versioned values that every shard has, as channel types are. Users may read and change
/// their own.
struct UserRoutes {
  let loop: GatewayLoop

  /// Handle `PUT /v1/users/{user}`.
  func putUser(
    _ match: borrowing RouteMatch,
    _ context: RequestContext,
    _ request: borrowing HTTP2Request
  ) throws(Problem) {
    try context.check(match.subject)
    let patch = try UserJSON.patch(try loop.object(request, .putUser))
    if patch.tokensRevokedBefore != nil && !context.caller.isServer { throw Problem(.serverTokenRequired) }
    try patchUser(match.subject, patch, context, route: match.route)
  }

  /// Handle `POST /v1/users`: change many users, each like a PUT of its own.
  func putUsers(
    _ match: borrowing RouteMatch,
    _ context: RequestContext,
    _ request: borrowing HTTP2Request
  ) throws(Problem) {
    let body = try loop.object(request, .putUsers)
    let entries = try body.requiredArray("users", countMax: loop.limits.entriesPerRequest)
    var iterator = entries.elements
    while let entry = iterator.next() { _ = try entry.object().requiredString("id") }
    let fanOut = loop.fanOuts.begin(
      context,
      match.route,
      count: entries.count,
      .results(status: 200, Self.writeUsers)
    )
    var entryIndex = 0
    iterator = entries.elements
    while let entry = iterator.next() {
      loop.fanOuts.addNames(fanOut, id: entry.member("id")?.string)
      do throws(Problem) {
        let user = try entry.requiredString("id")
        guard Identifier.isUser(user) else { throw Problem(.invalidUserID) }
        try patchUser(
          user,
          try UserJSON.patch(entry),
          context,
          route: match.route,
          as: .entry(of: fanOut, at: entryIndex)
        )
      } catch {
        loop.fanOuts.recordResult(of: entryIndex, in: fanOut, code: error.code)
      }
      entryIndex += 1
    }
    loop.fanOuts.closeSending(fanOut)
  }

  private static func writeUsers(_ fanOut: FanOut, into buffer: inout ByteBuffer) {
    let names = fanOut.names
    fanOut.writeResults("results", into: &buffer) { index, result, buffer in
      StatusJSON.writeEntry(cid: nil, id: names.id(index), code: result.code, into: &buffer)
    }
  }

  /// Start a change of a user's settings.
  ///
  /// - Parameter response: for one user of a batch, the entry of the batch.
  private func patchUser(
    _ user: RawSpan,
    _ patch: UserSettingsPatch,
    _ context: RequestContext,
    route: Route,
    as response: ValueChange.Response = .value
  ) throws(Problem) {
    let home = try loop.homeShard(of: user)
    let changesPrivacy = patch.showsRead != nil || patch.showsDelivered != nil
    loop.valueChanges.begin(
      .patchUser,
      at: .shard(home, name: user),
      context,
      route: route,
      as: response,
      changesPrivacy: changesPrivacy
    ) {
      $0.writePatchUser(patch)
    }
  }

  /// Handle `GET /v1/users/{user}`: the home shard's value; a user without settings has the defaults.
  func getUser(_ match: borrowing RouteMatch, _ context: RequestContext) throws(Problem) {
    try context.check(match.subject)
    let home = try loop.homeShard(of: match.subject)
    try loop.send(.getUser, to: .shard(home, name: match.subject), context, route: match.route) { _ in }
  }
}

extension KnownFields {
  private static let privacySwitch: KnownFields = ["enabled"]
  static let putUser: KnownFields = [
    .object(
      "privacy_settings",
      [.object("read_receipts", privacySwitch), .object("delivery_receipts", privacySwitch)]
    ),
    "revoke_tokens_before",
  ]
  static let putUsers: KnownFields = [.objects("users", ["id"] + putUser)]
}
