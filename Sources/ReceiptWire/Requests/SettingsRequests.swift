package import NIOCore
package import ReceiptModel

// Commands about users' settings, channel types and revoked tokens, after the name and the counter (Proto/frames.md).
// Only their form is checked here; the store checks their ranges.

extension RequestSpec {
  /// The layouts of the requests in this file.
  static let settingsRequests: [RequestSpec] = [
    RequestSpec(.patchChannelType, "patch_channel_type", "type counter patch:[@option]", reply: "@type"),
    RequestSpec(
      .assignChannelType,
      "assign_channel_type",
      "type counter version options:[@option]",
      reply: "@type"
    ),
    RequestSpec(
      .patchUser,
      "patch_user",
      "user counter given values tokens_revoked_before",
      reply: "user @settings"
    ),
    RequestSpec(.assignUser, "assign_user", "user counter @settings", reply: "user @settings"),
    RequestSpec(.settle, "settle", "name counter what:byte(settled) version", reply: "settled:byte"),
    RequestSpec(.getChannelType, "get_channel_type", "type", reply: "@type"),
    RequestSpec(.listChannelTypes, "list_channel_types", reply: "types:[@type]"),
    RequestSpec(.getUser, "get_user", "user", reply: "user @settings"),
    RequestSpec(.listUnsettled, "list_unsettled", reply: "types:[@type] users:[user @settings]"),
    RequestSpec(.getToken, "get_token", "jti", reply: "until version"),
    RequestSpec(
      .listRevokedTokens,
      "list_revoked_tokens",
      "known after",
      reply: "version flags ended revocations:[jti until version]"
    ), RequestSpec(.revokeToken, "revoke_token", "jti counter revoked:byte until", reply: "until version"),
  ]
}

/// The fields of patch_user.
package struct PatchUserRequest: Sendable {
  /// Bits of ``given`` and ``values``.
  package static let readReceipts: UInt64 = 1
  package static let deliveryReceipts: UInt64 = 2
  package static let tokensRevoked: UInt64 = 4
  /// The user is to be erased; no other bit may be set.
  package static let erase: UInt64 = 8

  /// The settings that change.
  package let given: UInt64
  /// Those of them that are switched on.
  package let values: UInt64
  /// None unless ``given`` has ``tokensRevoked``.
  package let tokensRevokedBefore: Timestamp

  package init(_ reader: inout FieldReader) throws(WireError) {
    given = try reader.varint()
    values = try reader.varint()
    tokensRevokedBefore = try reader.time()
    try reader.end()
  }

  /// Return whether a kind of receipts is shown; nil: unchanged.
  package func shows(_ receipts: UInt64) -> Bool? { given & receipts == 0 ? nil : values & receipts != 0 }
}

/// The fields of assign_user.
package struct AssignUserRequest: Sendable {
  package let version: UInt64
  /// Not checked.
  package let flags: UserSettingsFlags
  package let readShownSince: Timestamp
  package let deliveredShownSince: Timestamp
  package let tokensRevokedBefore: Timestamp

  package init(_ reader: inout FieldReader) throws(WireError) {
    version = try reader.varint()
    flags = UserSettingsFlags(rawValue: try reader.varint())
    readShownSince = try reader.time()
    deliveredShownSince = try reader.time()
    tokensRevokedBefore = try reader.time()
    try reader.end()
  }
}

/// The fields of assign_channel_type.
package struct AssignChannelTypeRequest: Sendable {
  package let version: UInt64
  package let options: ChannelTypeOptions

  package init(_ reader: inout FieldReader) throws(WireError) {
    version = try reader.varint()
    options = try reader.options()
    try reader.end()
  }
}

/// The fields of settle.
package struct SettleRequest: Sendable {
  package static let channelType: UInt8 = 0
  package static let user: UInt8 = 1

  /// ``channelType`` or ``user``, if known.
  package let subject: UInt8
  package let version: UInt64

  package init(_ reader: inout FieldReader) throws(WireError) {
    subject = try reader.byte()
    version = try reader.varint()
    try reader.end()
  }
}

/// The fields of revoke_token.
package struct RevokeTokenRequest: Sendable {
  /// 1: the token is revoked; 0: its revocation is lifted.
  package let isRevoked: UInt8
  /// None where the revocation is lifted.
  package let until: Timestamp

  package init(_ reader: inout FieldReader) throws(WireError) {
    isRevoked = try reader.byte()
    until = try reader.time()
    try reader.end()
  }
}

/// The fields of list_revoked_tokens.
package struct ListRevokedTokensRequest: Sendable {
  /// The version of the list that the caller has; 0: none.
  package let known: UInt64
  /// The version of the last revocation that it has.
  package let after: UInt64

  package init(_ reader: inout FieldReader) throws(WireError) {
    known = try reader.varint()
    after = try reader.varint()
    try reader.end()
  }
}

extension ByteBuffer {
  /// Write what ``PatchUserRequest`` reads.
  package mutating func writePatchUser(_ patch: UserSettingsPatch) {
    var given: UInt64 = 0
    var values: UInt64 = 0
    if let shows = patch.showsRead {
      given |= PatchUserRequest.readReceipts
      if shows { values |= PatchUserRequest.readReceipts }
    }
    if let shows = patch.showsDelivered {
      given |= PatchUserRequest.deliveryReceipts
      if shows { values |= PatchUserRequest.deliveryReceipts }
    }
    if patch.tokensRevokedBefore != nil { given |= PatchUserRequest.tokensRevoked }
    writeVarint(given)
    writeVarint(values)
    writeTime(patch.tokensRevokedBefore ?? .none)
  }

  /// Write what ``PatchUserRequest`` reads of the command that erases a user.
  package mutating func writePatchErase() {
    writeVarint(PatchUserRequest.erase)
    writeVarint(UInt64(0))
    writeTime(.none)
  }

  /// Write what ``AssignUserRequest`` reads; of an erased user, write ``writeAssignErased(version:)``.
  package mutating func writeAssignUser(_ settings: UserSettings) {
    writeVarint(settings.version)
    writeVarint(UserSettingsFlags(settings).subtracting(.erased).rawValue)
    writeTime(settings.readShownSince)
    writeTime(settings.deliveredShownSince)
    writeTime(settings.tokensRevokedBefore)
  }

  /// Write what ``AssignUserRequest`` reads of an erased user.
  package mutating func writeAssignErased(version: UInt64) {
    writeVarint(version)
    writeVarint(UserSettingsFlags.erased.rawValue)
    for _ in 0..<3 { writeTime(.none) }
  }

  /// Write what ``AssignChannelTypeRequest`` reads.
  package mutating func writeAssignChannelType(version: UInt64, _ options: ChannelTypeOptions) {
    writeVarint(version)
    writeOptions(options)
  }

  /// Write what ``SettleRequest`` reads.
  package mutating func writeSettle(isUser: Bool, version: UInt64) {
    writeInteger(isUser ? SettleRequest.user : SettleRequest.channelType)
    writeVarint(version)
  }

  /// Write what ``RevokeTokenRequest`` reads; nil: the revocation is lifted.
  package mutating func writeRevokeToken(until: Timestamp?) {
    writeByte(until == nil ? 0 : 1)
    writeTime(until ?? .none)
  }

  /// Write what ``ListRevokedTokensRequest`` reads.
  package mutating func writeListRevokedTokens(known: UInt64, after: UInt64) {
    writeVarint(known)
    writeVarint(after)
  }
}

/// Token revocations (Proto/frames.md, 0x34, 0x35 and 0x46).
extension ByteBuffer {
  /// Write *revocation* of Proto/frames.md, in the list and in the log.
  package mutating func writeTokenRevocation(_ revocation: TokenRevocation) {
    writeField(revocation.id)
    writeTime(revocation.until)
    writeVarint(revocation.version)
  }
}

extension FieldReader {
  @_lifetime(self: copy self)
  package mutating func tokenRevocation() throws(WireError) -> TokenRevocation {
    let id = try text()
    let until = try time()
    return TokenRevocation(id: id, until: until, version: try varint())
  }
}

/// The reply to list_unsettled: what a home shard has and other shards may lack.
package struct UnsettledReply: Sendable {
  package var types: [ChannelTypeRecord]
  package var users: [UserSettings]

  package init(types: [ChannelTypeRecord], users: [UserSettings]) {
    self.types = types
    self.users = users
  }

  package init(_ payload: RawSpan) throws(WireError) {
    var reader = FieldReader(payload)
    types = try reader.channelTypeRecords()
    users = []
    for _ in 0..<(try reader.count(elementBytesMin: 6)) { users.append(try reader.userSettings()) }
    try reader.end()
  }

  package func write(into buffer: inout ByteBuffer) {
    buffer.writeChannelTypeRecords(types)
    buffer.writeVarint(users.count)
    for user in users { buffer.writeUserSettings(user) }
  }
}

extension ByteBuffer {
  /// Write a list of types: the reply to list_channel_types, and the first field of ``UnsettledReply``.
  package mutating func writeChannelTypeRecords(_ records: [ChannelTypeRecord]) {
    writeVarint(records.count)
    for record in records { writeChannelTypeRecord(record) }
  }
}

extension FieldReader {
  /// Read what `writeChannelTypeRecords` writes.
  @_lifetime(self: copy self)
  package mutating func channelTypeRecords() throws(WireError) -> [ChannelTypeRecord] {
    var records: [ChannelTypeRecord] = []
    for _ in 0..<(try count(elementBytesMin: 3)) { records.append(try channelTypeRecord()) }
    return records
  }
}

/// The reply to get_token and revoke_token.
package struct TokenReply: Equatable, Sendable {
  /// None: the token is not revoked.
  package var until: Timestamp
  /// The version of the list at that time.
  package var version: UInt64

  package init(until: Timestamp, version: UInt64) {
    self.until = until
    self.version = version
  }

  package init(_ payload: RawSpan) throws(WireError) {
    var reader = FieldReader(payload)
    until = try reader.time()
    version = try reader.varint()
    try reader.end()
  }

  package func write(into buffer: inout ByteBuffer) {
    buffer.writeTime(until)
    buffer.writeVarint(version)
  }
}

/// The reply to list_revoked_tokens: a part of the list.
package struct RevokedTokensReply: Equatable, Sendable {
  /// The version of the list when it was requested.
  package var version: UInt64
  /// The client must discard the list that it has: this is the beginning of a new one.
  package var isAnew: Bool
  /// More revocations follow the last one here.
  package var hasMore: Bool
  /// Revocations up to this time have ended.
  package var ended: Timestamp
  package var revocations: [TokenRevocation]

  private struct Flags: FlagSet {
    let rawValue: UInt8
    static let anew = Self(rawValue: 1)
    static let more = Self(rawValue: 2)
    static let known = Self(rawValue: 3)
  }

  package init(version: UInt64, isAnew: Bool, hasMore: Bool, ended: Timestamp, revocations: [TokenRevocation]) {
    self.version = version
    self.isAnew = isAnew
    self.hasMore = hasMore
    self.ended = ended
    self.revocations = revocations
  }

  package init(_ payload: RawSpan) throws(WireError) {
    var reader = FieldReader(payload)
    version = try reader.varint()
    let flags = try reader.flags(known: Flags.known)
    isAnew = flags.contains(.anew)
    hasMore = flags.contains(.more)
    ended = try reader.time()
    revocations = []
    for _ in 0..<(try reader.count(elementBytesMin: 3)) {
      revocations.append(try reader.tokenRevocation())
    }
    // A client continues after the last revocation, so there must be one.
    guard !hasMore || !revocations.isEmpty else { throw .badValue(.count) }
    try reader.end()
  }

  package func write(into buffer: inout ByteBuffer) {
    buffer.writeVarint(version)
    buffer.writeFlags(Flags().setting(.anew, isAnew).setting(.more, hasMore))
    buffer.writeTime(ended)
    buffer.writeVarint(revocations.count)
    for revocation in revocations { buffer.writeTokenRevocation(revocation) }
  }
}
