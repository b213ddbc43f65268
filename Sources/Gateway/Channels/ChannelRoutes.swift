internal import HTTP2Session
internal import NIOCore
internal import ReceiptModel
internal import ReceiptWire
internal import StoreClient

/// Routes of channels and members, for servers; users may only mute a channel for themselves.
struct ChannelRoutes {
  let loop: GatewayLoop

  /// Handle `PUT /v1/channels/{cid}`.
  func putChannel(
    _ match: borrowing RouteMatch,
    _ context: RequestContext,
    _ request: borrowing HTTP2Request
  ) throws(Problem) {
    let body = try loop.object(request, .putChannel)
    let members = try body.optionalArray("members", countMax: loop.limits.membersPerRequest)
    var count = 0
    if let members { count = try checkMembers(members) }
    var patch = OptionPatch()
    if let options = try body.optionalObject("options") { patch = try OptionsJSON.patch(options) }
    try loop.send(.putChannel, to: .channel(match.subject), context) { buffer in
      buffer.writeOptionPatch(patch)
      buffer.writeVarint(count)
      if let members { Self.writeMembers(members, withRoles: true, into: &buffer) }
    }
  }

  /// Handle `POST /v1/channels`: create many channels.
  func putChannels(
    _ match: borrowing RouteMatch,
    _ context: RequestContext,
    _ request: borrowing HTTP2Request
  ) throws(Problem) {
    let body = try loop.object(request, .putChannels)
    let entries = try body.requiredArray("channels", countMax: loop.limits.entriesPerRequest)
    var iterator = entries.elements
    while let entry = iterator.next() {
      let fields = try entry.object()
      _ = try fields.requiredString("cid")
      _ = try fields.optionalArray("members", countMax: loop.limits.membersPerRequest)
      _ = try fields.optionalObject("options")
    }
    let response = FanOut.Response.results(status: 200, Self.writeChannels)
    var fanOut = loop.fanOuts.begin(context, count: entries.count, response)
    iterator = entries.elements
    while let entry = iterator.next() {
      let cid = try entry.requiredString("cid")
      fanOut.addEntry(cid: cid)
      do throws(Problem) {
        guard Identifier.isCID(cid) else { throw Problem(.invalidCID) }
        let members = try entry.optionalArray("members", countMax: loop.limits.membersPerRequest)
        var count = 0
        if let members { count = try checkMembers(members) }
        var patch = OptionPatch()
        if let options = try entry.optionalObject("options") { patch = try OptionsJSON.patch(options) }
        fanOut.send(.putChannel, to: .channel(cid)) { buffer in
          buffer.writeOptionPatch(patch)
          buffer.writeVarint(count)
          if let members { Self.writeMembers(members, withRoles: true, into: &buffer) }
        }
      } catch {
        fanOut.refuse(error.code)
      }
    }
    fanOut.close()
  }

  private static func writeChannels(_ fanOut: FanOut, into buffer: inout ByteBuffer) {
    let names = fanOut.names
    fanOut.writeResults("results", into: &buffer) { index, result, buffer in
      guard result.code == nil, let cid = names.cid(index) else {
        StatusJSON.writeEntry(cid: names.cid(index), id: nil, code: result.code, into: &buffer)
        return
      }
      buffer.writeStaticString("{\"cid\":")
      buffer.writeJSONString(cid)
      buffer.writeString(",\"ok\":true,\"created\":\(result.isCreated)}")
    }
  }

  /// Handle `GET /v1/channels/{cid}`.
  func getChannel(_ match: borrowing RouteMatch, _ context: RequestContext) throws(Problem) {
    try loop.send(.getChannel, to: .channel(match.subject), context) { _ in }
  }

  /// Handle `POST /v1/channels/{cid}/members`.
  func changeMembers(
    _ match: borrowing RouteMatch,
    _ context: RequestContext,
    _ request: borrowing HTTP2Request
  ) throws(Problem) {
    let body = try loop.object(request, .changeMembers)
    let added = try body.optionalArray("add", countMax: loop.limits.membersPerRequest)
    let removed = try body.optionalArray("remove", countMax: loop.limits.membersPerRequest)
    var addedCount = 0
    var removedCount = 0
    if let added { addedCount = try checkMembers(added) }
    if let removed { removedCount = try checkMembers(removed) }
    guard addedCount + removedCount <= loop.limits.membersPerRequest else {
      throw Problem(.invalidField, "a request may name at most \(loop.limits.membersPerRequest) members")
    }
    try loop.send(.changeMembers, to: .channel(match.subject), context) { buffer in
      buffer.writeVarint(addedCount)
      if let added { Self.writeMembers(added, withRoles: true, into: &buffer) }
      buffer.writeVarint(removedCount)
      if let removed { Self.writeMembers(removed, withRoles: false, into: &buffer) }
    }
  }

  /// Handle `PUT /v1/channels/{cid}/members/{user}`: set a role, and whether the user's totals exclude the channel
  /// (`muted`). A user sets only their own `muted`; a server also adds users who are not members.
  func putMember(
    _ match: borrowing RouteMatch,
    _ context: RequestContext,
    _ request: borrowing HTTP2Request
  ) throws(Problem) {
    try context.check(match.member)
    let body = try loop.object(request, .putMember)
    let role = try body.optionalString("role")
    let isMuted = try body.optionalBool("muted")
    if let role {
      guard context.caller.isServer else {
        throw Problem(.serverTokenRequired, "a user may only set their own \"muted\"")
      }
      guard Identifier.isRole(role) else {
        throw try body.required("role").error("must be 1 to 64 of A-Z a-z 0-9 _ . -")
      }
    }
    let flags =
      (isMuted == nil ? 0 : SetMemberRequest.muteGiven) | (isMuted == true ? SetMemberRequest.isMuted : 0)
      | (context.caller.isServer ? SetMemberRequest.joins : 0)
    let response = EchoingResponse.member(match.member.bytes)
    try loop.echoingResponses.send(.setMember, to: .channel(match.subject), context, response: response) { buffer in
      buffer.writeSetMember(user: match.member, role: role, flags: flags)
    }
  }

  /// Validate members, each `"alice"` or `{"user_id": "alice", "role"?: "admin"}`, and return their number.
  private func checkMembers(_ members: JSONValue) throws(Problem) -> Int {
    var elements = members.elements
    while let member = elements.next() {
      if let user = member.string {
        guard Identifier.isUser(user) else { throw member.error("is not a user id", .invalidUserID) }
        continue
      }
      guard member.kind == .object else { throw member.error("must be a string or an object") }
      guard Identifier.isUser(try member.requiredString("user_id")) else {
        throw member.error("has an invalid user_id", .invalidUserID)
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
      // Both fields were validated before.
      if let user = member.member("user_id")?.string { buffer.writeField(user) }
      guard withRoles else { continue }
      buffer.writeFieldOrEmpty(member.member("role")?.string)
    }
  }
}

extension KnownFields {
  /// A member given as an object.
  private static let member: KnownFields = ["user_id", "role"]
  static let putChannel: KnownFields = [.objects("members", member), .object("options", options)]
  static let putChannels: KnownFields = [.objects("channels", ["cid"] + putChannel)]
  static let changeMembers: KnownFields = [.objects("add", member), .objects("remove", member)]
  static let putMember: KnownFields = ["role", "muted"]
}

/// Channel types: versioned values that every shard has. A type's home shard decides changes. The result is
/// assigned to all other shards, and the response waits for the last of them.
extension ChannelRoutes {
  /// Handle `PUT /v1/channel-types/{type}`.
  func putChannelType(
    _ match: borrowing RouteMatch,
    _ context: RequestContext,
    _ request: borrowing HTTP2Request
  ) throws(Problem) {
    let patch = try OptionsJSON.patch(try loop.object(request, .options))
    let home = try loop.homeShard(of: match.subject)
    loop.valueChanges.begin(.patchChannelType, at: .shard(home, name: match.subject), context, route: match.route) {
      $0.writeOptionPatch(patch)
    }
  }

  /// Handle `GET /v1/channel-types/{type}`: the home shard's value; a type that was never set has the defaults.
  func getChannelType(_ match: borrowing RouteMatch, _ context: RequestContext) throws(Problem) {
    let home = try loop.homeShard(of: match.subject)
    try loop.send(.getChannelType, to: .shard(home, name: match.subject), context) { _ in }
  }

  /// Handle `GET /v1/channel-types`: query all shards, since a shard that missed a PUT may lack the newest value.
  func listChannelTypes(_ match: borrowing RouteMatch, _ context: RequestContext) throws(Problem) {
    guard loop.store.shardCount > 0 else { throw Problem(.storeUnavailable) }
    var fanOut = loop.fanOuts.begin(context, count: loop.store.shardCount, .channelTypes)
    for shard in 0..<loop.store.shardCount {
      fanOut.addEntry()
      fanOut.send(.listChannelTypes, to: .shard(ShardID(UInt16(shard)), name: nil)) { _ in }
    }
    fanOut.close()
  }
}

/// Removal of channels and messages (R16), for servers only. Users are erased by ``ErasurePart``.
extension ChannelRoutes {
  /// Handle `DELETE /v1/channels/{cid}`: succeed also where the channel does not exist.
  func deleteChannel(_ match: borrowing RouteMatch, _ context: RequestContext) throws(Problem) {
    let response = EchoingResponse.deletedChannel(cid: match.subject.bytes)
    try loop.echoingResponses.send(.deleteChannel, to: .channel(match.subject), context, response: response) { _ in }
  }

  /// Handle `POST /v1/channels/{cid}/truncate`: remove the messages before the named one; all messages with
  /// `{"all":true}`, or without either field.
  func truncateChannel(
    _ match: borrowing RouteMatch,
    _ context: RequestContext,
    _ request: borrowing HTTP2Request
  ) throws(Problem) {
    var before = match.query.extracting(0..<0)
    let body = try loop.object(request, .truncateChannel)
    let all = try body.optionalTrue("all")
    if let given = try body.optionalNonNullString("before") {
      guard !all else {
        throw Problem(.invalidField, "the body may have one of \"before\" and \"all\"")
      }
      guard Identifier.isMessage(given) else { throw Problem(.invalidMessageID) }
      before = given
    }
    try loop.send(.truncateChannel, to: .channel(match.subject), context) {
      $0.writeMessageRequest(before)
    }
  }
}

extension KnownFields {
  static let truncateChannel: KnownFields = ["before", "all"]
}
