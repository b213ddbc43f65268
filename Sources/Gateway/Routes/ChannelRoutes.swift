internal import HTTP2Session
internal import NIOCore
internal import ReceiptModel
internal import ReceiptWire

/// Channels and their members: for servers, except that a user may mute a channel for themselves.
extension GatewayLoop {
  /// `PUT /v1/channels/{cid}`.
  func putChannel(
    _ match: borrowing RouteMatch,
    _ context: RequestContext,
    _ request: borrowing HTTP2Request
  ) throws(Problem) {
    let body = try object(request, .putChannel)
    let members = try body.optionalArray("members", countMax: limits.membersPerRequest)
    var count = 0
    if let members { count = try checkMembers(members) }
    var patch = OptionPatch()
    if let options = try body.optionalObject("options") { patch = try OptionsJSON.patch(options) }
    try send(.putChannel, cid: match.subject, context, match.route, .createdChannel) { buffer in
      buffer.writeOptionPatch(patch)
      buffer.writeVarint(count)
      if let members { Self.writeMembers(members, withRoles: true, into: &buffer) }
    }
  }

  /// `POST /v1/channels`: makes many.
  func putChannels(
    _ match: borrowing RouteMatch,
    _ context: RequestContext,
    _ request: borrowing HTTP2Request
  ) throws(Problem) {
    let body = try object(request, .putChannels)
    let entries = try body.requiredArray("channels", countMax: limits.entriesPerRequest)
    var checked = entries.elements
    while let entry = checked.next() {
      let fields = try entry.object()
      _ = try fields.requiredString("cid")
      _ = try fields.optionalArray("members", countMax: limits.membersPerRequest)
      _ = try fields.optionalObject("options")
    }
    let gather = beginGather(context, match.route, count: entries.count)
    var position = 0
    var sent = entries.elements
    while let entry = sent.next() {
      do throws(Problem) {
        let cid = try entry.requiredString("cid")
        guard Identifier.isCID(cid) else { throw Problem(.invalidCID) }
        let members = try entry.optionalArray("members", countMax: limits.membersPerRequest)
        var count = 0
        if let members { count = try checkMembers(members) }
        var patch = OptionPatch()
        if let options = try entry.optionalObject("options") { patch = try OptionsJSON.patch(options) }
        sendEntry(.putChannel, cid: cid, context, match.route, gather, position) { buffer in
          buffer.writeOptionPatch(patch)
          buffer.writeVarint(count)
          if let members { Self.writeMembers(members, withRoles: true, into: &buffer) }
        }
      } catch {
        finishEntry(gather, position, error.code)
      }
      position += 1
    }
    finishSending(gather)
  }

  /// `GET /v1/channels/{cid}`.
  func getChannel(_ match: borrowing RouteMatch, _ context: RequestContext) throws(Problem) {
    try send(.getChannel, cid: match.subject, context, match.route, .channel) { _ in }
  }

  /// `POST /v1/channels/{cid}/members`.
  func changeMembers(
    _ match: borrowing RouteMatch,
    _ context: RequestContext,
    _ request: borrowing HTTP2Request
  ) throws(Problem) {
    let body = try object(request, .changeMembers)
    let added = try body.optionalArray("add", countMax: limits.membersPerRequest)
    let removed = try body.optionalArray("remove", countMax: limits.membersPerRequest)
    var addedCount = 0
    var removedCount = 0
    if let added { addedCount = try checkMembers(added) }
    if let removed { removedCount = try checkMembers(removed) }
    guard addedCount + removedCount <= limits.membersPerRequest else {
      throw Problem(.invalidField, "a request may name at most \(limits.membersPerRequest) members")
    }
    try send(.changeMembers, cid: match.subject, context, match.route, .channel) { buffer in
      buffer.writeVarint(addedCount)
      if let added { Self.writeMembers(added, withRoles: true, into: &buffer) }
      buffer.writeVarint(removedCount)
      if let removed { Self.writeMembers(removed, withRoles: false, into: &buffer) }
    }
  }

  /// `PUT /v1/channels/{cid}/members/{user}`: a role, and whether the user keeps the channel out of their totals. Users
  /// set
  /// the latter for themselves; a server makes a member of whoever is none.
  func putMember(
    _ match: borrowing RouteMatch,
    _ context: RequestContext,
    _ request: borrowing HTTP2Request
  ) throws(Problem) {
    try Self.check(match.member, context)
    let body = try object(request, .putMember)
    let role = try body.optionalString("role")
    let isMuted = try body.optionalBool("muted")
    if let role {
      guard context.caller.isServer else {
        throw Problem(.serverTokenRequired, "a user sets \"muted\" of their own, and nothing else")
      }
      guard Identifier.isRole(role) else {
        throw try body.required("role").error("must be 1 to 64 of A-Z a-z 0-9 _ . -")
      }
    }
    let flags = (isMuted == nil ? 0 : 1) | (isMuted == true ? 2 : 0) | (context.caller.isServer ? 4 : 0)
    try send(.setMember, cid: match.subject, context, match.route, .member) { buffer in
      buffer.writeField(match.member)
      if let role { buffer.writeField(role) } else { buffer.writeEmptyField() }
      buffer.writeVarint(UInt64(flags))
    }
  }

  /// Each member is `"alice"` or `{"user_id": "alice", "role"?: "admin"}`.
  private func checkMembers(_ members: JSONValue) throws(Problem) -> Int {
    var elements = members.elements
    while let member = elements.next() {
      if let user = member.string {
        guard Identifier.isUser(user) else { throw member.error("is not a user id", .invalidUserID) }
        continue
      }
      guard member.kind == .object else { throw member.error("must be a string or an object") }
      guard Identifier.isUser(try member.requiredString("user_id")) else {
        throw member.error("has a user_id that is none", .invalidUserID)
      }
      if let role = try member.optionalString("role"), !Identifier.isRole(role) {
        throw member.error("has a role that is not 1 to 64 of A-Z a-z 0-9 _ . -")
      }
    }
    return members.count
  }

  private static func writeMembers(_ members: JSONValue, withRoles: Bool, into buffer: inout ByteBuffer) {
    var elements = members.elements
    while let member = elements.next() {
      if let user = member.string {
        buffer.writeField(user)
        if withRoles { buffer.writeEmptyField() }
        continue
      }
      // Both were found to be there, of their types, before.
      if let user = member.member("user_id")?.string { buffer.writeField(user) }
      guard withRoles else { continue }
      if let role = member.member("role")?.string {
        buffer.writeField(role)
      } else {
        buffer.writeEmptyField()
      }
    }
  }
}
