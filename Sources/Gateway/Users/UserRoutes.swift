internal import HTTP2Session
package import NIOCore
package import ReceiptModel
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
    try patchUser(match.subject, patch, context)
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
    let results = FanOut.Response.results(status: 200, Self.writeUsers)
    var fanOut = loop.fanOuts.begin(context, count: entries.count, results)
    iterator = entries.elements
    while let entry = iterator.next() {
      fanOut.addEntry(id: entry.member("id")?.string)
      do throws(Problem) {
        let user = try entry.requiredString("id")
        guard Identifier.isUser(user) else { throw Problem(.invalidUserID) }
        let response = ValueChange.Response.entry(of: fanOut.index, at: fanOut.entry)
        try patchUser(user, try UserJSON.patch(entry), context, as: response)
      } catch {
        fanOut.refuse(error.code)
      }
    }
    fanOut.close()
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
    as response: ValueChange.Response = .value
  ) throws(Problem) {
    let home = try loop.homeShard(of: user)
    let changesPrivacy = patch.showsRead != nil || patch.showsDelivered != nil
    loop.valueChanges.begin(
      .patchUser,
      at: .shard(home, name: user),
      context,
      route: context.route,
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
    try loop.send(.getUser, to: .shard(home, name: match.subject), context) { _ in }
  }
}

extension KnownFields {
  private static let privacySwitch: KnownFields = ["enabled"]
  static let putUser: KnownFields = [
    .object(
      "privacy_settings",
      [.object("read_receipts", privacySwitch), .object("delivery_receipts", privacySwitch)]
    ), "revoke_tokens_before",
  ]
  static let putUsers: KnownFields = [.objects("users", ["id"] + putUser)]
}

/// JSON of a user's settings (Proto/openapi.yaml).
package enum UserJSON {
  /// Parse `{"privacy_settings"?: {"read_receipts"?: {"enabled"}, "delivery_receipts"?: {"enabled"}},
  /// "revoke_tokens_before"?}`.
  ///
  /// - Throws: `invalid_field`.
  package static func patch(_ body: JSONValue) throws(Problem) -> UserSettingsPatch {
    var patch = UserSettingsPatch()
    if let privacy = try body.optionalObject("privacy_settings") {
      patch.showsRead = try isEnabled(try privacy.optionalObject("read_receipts"))
      patch.showsDelivered = try isEnabled(try privacy.optionalObject("delivery_receipts"))
    }
    if let text = try body.optionalString("revoke_tokens_before") {
      guard let time = CivilTime.milliseconds(parsing: text) else {
        throw try body.required("revoke_tokens_before").error(
          "must be a time since 1970, as in 2026-01-31T12:00:00.000Z"
        )
      }
      patch.tokensRevokedBefore = Timestamp(milliseconds: time)
    }
    return patch
  }

  private static func isEnabled(_ kind: JSONValue?) throws(Problem) -> Bool? {
    guard let kind else { return nil }
    guard let isEnabled = try kind.optionalBool("enabled") else { throw kind.missing("enabled") }
    return isEnabled
  }

  /// Write `{"id", "privacy_settings": {both}, "revoke_tokens_before"?}`.
  package static func write(_ settings: UserSettings, into buffer: inout ByteBuffer) {
    let user = Array(settings.user.utf8)
    let byteMax = 160 + OutputRawSpan.jsonStringByteMax(user.count) + OutputRawSpan.timestampByteCount
    buffer.writeWithOutputRawSpan(minimumWritableBytes: byteMax) { out in
      out.literal("{\"id\":")
      out.jsonString(user.span.bytes)
      out.literal(",\"privacy_settings\":{\"read_receipts\":{\"enabled\":")
      out.bool(!settings.hidesRead)
      out.literal("},\"delivery_receipts\":{\"enabled\":")
      out.bool(!settings.hidesDelivered)
      out.literal("}}")
      if settings.tokensRevokedBefore != .none {
        out.literal(",\"revoke_tokens_before\":")
        out.timestamp(milliseconds: settings.tokensRevokedBefore.milliseconds)
      }
      out.literal("}")
    }
  }
}
