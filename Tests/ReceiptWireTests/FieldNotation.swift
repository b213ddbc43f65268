import NIOCore
import ReceiptModel
import ReceiptWire

/// Reads and writes fields by their notation in frames.md, using only the primitives of ReceiptWire.
extension ByteBuffer {
  mutating func write(_ fields: [Vectors.Field]) {
    for field in fields {
      switch field.value {
      case .varint(let value): writeVarint(value)
      case .byte(let value): writeInteger(value)
      case .raw(let bytes): writeBytes(bytes)
      case .string(let text): writeField(text)
      case .blob(let bytes): writeField(bytes.span.bytes)
      case .optional(let value): writeOptional(value)
      case .list(let entries):
        writeVarint(entries.count)
        for entry in entries { write(entry) }
      }
    }
  }
}

/// Read fields with the same notations as `expected`, and return the values read.
func read(_ expected: [Vectors.Field], from reader: inout FieldReader) throws(WireError) -> [Vectors.Field] {
  var result: [Vectors.Field] = []
  for var field in expected {
    switch field.value {
    case .varint: field.value = .varint(try reader.varint())
    case .byte: field.value = .byte(try reader.byte())
    case .raw(let bytes): field.value = .raw(try reader.raw(bytes.count).withUnsafeBytes { Array($0) })
    case .string: field.value = .string(try reader.text())
    case .blob: field.value = .blob(try reader.string().withUnsafeBytes { Array($0) })
    case .optional: field.value = .optional(try reader.optional())
    case .list(let entries):
      let count = try reader.count()
      guard count == entries.count else { throw .badValue(.count) }
      var read: [[Vectors.Field]] = []
      for entry in entries { read.append(try ReceiptWireTests.read(entry, from: &reader)) }
      field.value = .list(read)
    }
    result.append(field)
  }
  return result
}

/// Read a whole payload as the kind's receiver does, with the fields that the flags append.
func parse(_ kind: FrameKind, _ flags: FrameHeader.Flags = [], _ payload: RawSpan) throws(WireError) {
  let issuedBytes = flags.contains(.issued) ? FrameHeader.issuedByteCount : 0
  guard payload.byteCount >= issuedBytes else { throw .truncated }
  var reader = FieldReader(payload.extracting(0..<(payload.byteCount - issuedBytes)))
  if kind.traits.contains(.named) { _ = try reader.string() }
  if kind.traits.contains(.command) { _ = try reader.varint() }
  switch kind {
  case .hello: return _ = try Hello(payload)
  case .challenge: return _ = try Challenge(payload)
  case .proof: return _ = try Proof(payload)
  case .ready: return _ = try Ready(payload)
  case .putChannel: _ = try PutChannelRequest(&reader)
  case .changeMembers: _ = try ChangeMembersRequest(&reader)
  case .setMember: _ = try SetMemberRequest(&reader)
  case .registerMessage: _ = try RegisterMessageRequest(&reader)
  case .deleteMessage, .truncateChannel: _ = try MessageRequest(&reader)
  case .markRead, .markUnread: _ = try MarkRequest(&reader, hasEpoch: true)
  case .markDelivered: _ = try MarkRequest(&reader, hasEpoch: false)
  case .markUnreadSince: _ = try MarkUnreadSinceRequest(&reader)
  case .acknowledge: _ = try AcknowledgeRequest(&reader)
  case .patchChannelType: _ = try reader.optionPatch()
  case .assignChannelType: _ = try AssignChannelTypeRequest(&reader)
  case .patchUser: _ = try PatchUserRequest(&reader)
  case .assignUser: _ = try AssignUserRequest(&reader)
  case .settle: _ = try SettleRequest(&reader)
  case .eraseMember: _ = try reader.string()
  case .noteWebhook: _ = try reader.time()
  case .readState, .listRoster: _ = try RowPageRequest(&reader)
  case .threadReadState: _ = try ThreadReadStateRequest(&reader)
  case .statuses: _ = try StatusesRequest(&reader)
  case .listMembers: _ = try ListMembersRequest(&reader)
  case .memberStatuses: _ = try MemberStatusesRequest(&reader)
  case .listMessages: _ = try ListMessagesRequest(&reader)
  case .userReceipts, .userThreads: _ = try OwnListRequest(&reader)
  case .listChannels: _ = try ListChannelsRequest(&reader)
  case .unreadCounts: for _ in 0..<(try reader.count()) { _ = try UnreadCountEntry(&reader) }
  case .purge: _ = try reader.varint()
  case .rebuildIndex: _ = try RebuildIndexRequest(&reader)
  case .ticketPlace: _ = try TicketPlaceRequest(&reader)
  case .acknowledgePush: _ = try AcknowledgePushRequest(&reader)
  case .redeemTicket: _ = try RedeemTicketRequest(&reader)
  case .presentTicket: _ = try PresentTicketRequest(&reader)
  case .subscribe: _ = try SubscribeRequest(&reader)
  case .unsubscribe, .announceRow: _ = try StringListFields(&reader)
  case .subscribeUser: _ = try SubscribeUserRequest(&reader)
  case .listRevokedTokens: _ = try ListRevokedTokensRequest(&reader)
  case .revokeToken: _ = try RevokeTokenRequest(&reader)
  case .getChannel, .getChannelType, .getUser, .getToken, .webhookKnown, .deleteChannel, .listChannelTypes,
    .listUnsettled, .backupBegin, .backupEnd:
    break
  case .error: return _ = try ErrorFrame(payload)
  case .events: return _ = try EventsFields(payload)
  case .subscribeReply: return _ = try SubscribedFields(payload)
  case .backupBeginReply: return _ = try BackupContents(payload)
  case .subscribeUserReply: _ = try reader.time()
  case .unsubscribeReply, .announceRowReply, .backupEndReply: break
  case .ping, .pong: _ = try reader.raw(8)
  case .drain: break
  case .shardMap: return _ = try ShardMap(payload)
  case .deliverChanges: return _ = try MembershipDelivery(to: ShardID(0), payload)
  case .confirmChanges: return _ = try MembershipConfirmation(to: ShardID(0), payload)
  case .snapshotBegin: return _ = try SnapshotRequest(payload)
  case .snapshotRead: break
  case .snapshotBeginReply: return _ = try SnapshotHead(payload)
  case .snapshotReadReply: return _ = try SnapshotPart(payload)
  case .setMemberReply: return _ = try SetMemberReply(payload)
  case .getTokenReply, .revokeTokenReply: return _ = try TokenReply(payload)
  case .listRevokedTokensReply: return _ = try RevokedTokensReply(payload)
  case .ticketPlaceReply: _ = try reader.ticketPlace()
  case .webhookKnownReply, .noteWebhookReply, .settleReply, .deleteChannelReply, .eraseMemberReply:
    return _ = try FlagReply(payload)
  case .acknowledgePushReply, .redeemTicketReply, .presentTicketReply: return _ = try DeliveryReply(payload)
  case .purgeReply: _ = try reader.varint()
  case .backupRead, .backupDigest: return _ = try BackupPart(payload)
  case .backupReadReply:
    _ = try reader.raw(32)
    _ = try reader.raw(reader.remaining)
  case .backupDigestReply: _ = try reader.raw(32)
  case .listRosterReply:
    for _ in 0..<(try reader.count()) { _ = try RosterEntryFields(&reader) }
    _ = try reader.optional32()
  case .listMessagesReply:
    for _ in 0..<(try reader.count()) { _ = try MessageEntryFields(&reader) }
    _ = try reader.messageListCursor()
  case .putChannelReply: return _ = try PutChannelReply(payload)
  case .changeMembersReply, .truncateChannelReply, .getChannelReply: return _ = try ChannelFields(payload)
  case .registerMessageReply: return _ = try RegistrationReply(payload)
  case .deleteMessageReply: return _ = try DeleteMessageReply(payload)
  case .markReadReply, .markUnreadReply, .markUnreadSinceReply, .markDeliveredReply:
    return _ = try MarkReply(payload)
  case .patchChannelTypeReply, .assignChannelTypeReply, .getChannelTypeReply:
    _ = try reader.channelTypeRecord()
  case .userReceiptsReply:
    for _ in 0..<(try reader.count()) { _ = try OwnReceiptFields(&reader) }
    _ = try reader.optional32()
  case .userThreadsReply:
    for _ in 0..<(try reader.count()) { _ = try OwnThreadFields(&reader) }
    _ = try reader.optional32()
  case .threadReadStateReply:
    for _ in 0..<(try reader.count()) { _ = try RowFields(&reader) }
    _ = try reader.string()
  case .readStateReply:
    for _ in 0..<(try reader.count()) { _ = try RowFields(&reader) }
    _ = try reader.optional32()
  case .statusesReply: return _ = try StatusResultFields.all(payload)
  case .listChannelTypesReply: _ = try reader.channelTypeRecords()
  case .acknowledgeReply: return _ = try AcknowledgeReply(payload)
  case .patchUserReply, .assignUserReply, .getUserReply: _ = try reader.userSettings()
  case .listChannelsReply:
    _ = try reader.channelList { channel throws(WireError) in _ = try ChannelEntryFields(channel) }
  case .unreadCountsReply: for _ in 0..<(try reader.count()) { _ = try UnreadCountFields(&reader) }
  case .rebuildIndexReply: return _ = try RebuildIndexReply(payload)
  case .listUnsettledReply: return _ = try UnsettledReply(payload)
  case .listMembersReply:
    for _ in 0..<(try reader.count()) { _ = try ListEntryFields(&reader) }
    _ = try reader.string()
    if reader.remaining > 0 { _ = try reader.varint32() }
  case .memberStatusesReply:
    for _ in 0..<(try reader.count()) { _ = try MemberStatusFields(&reader) }
  }
  if flags.contains(.thread) { _ = try reader.string() }
  try reader.end()
}

extension WireError {
  /// The error's name in the vectors.
  var name: String {
    switch self {
    case .truncated: "truncated"
    case .trailingBytes: "trailingBytes"
    case .badVarint: "badVarint"
    case .badValue(let field): "badValue:\(field)"
    case .lengthTooSmall: "lengthTooSmall"
    case .lengthTooLarge: "lengthTooLarge"
    case .unknownKind: "unknownKind"
    case .badFlags: "badFlags"
    }
  }
}
