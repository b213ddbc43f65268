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

/// A request, a reply or another frame: what the byte of its kind says.
struct FrameType: Hashable, CaseIterable, CustomStringConvertible, Sendable {
  let kind: FrameKind
  let isReply: Bool

  init(_ kind: FrameKind, isReply: Bool = false) {
    self.kind = kind
    self.isReply = isReply
  }

  init?(byte: UInt8) {
    guard let kind = FrameKind(rawValue: byte & ~FrameHeader.replyBit) else { return nil }
    self.init(kind, isReply: byte & FrameHeader.replyBit != 0)
  }

  init(_ header: FrameHeader) { self.init(header.kind, isReply: header.isReply) }

  static let allCases =
    FrameKind.allCases.map { FrameType($0) }
    + FrameKind.allCases.filter(\.hasReply).map { FrameType($0, isReply: true) }

  var byte: UInt8 { isReply ? kind.rawValue | FrameHeader.replyBit : kind.rawValue }
  var description: String { isReply ? "\(kind) reply" : "\(kind)" }
}

extension FrameHeader {
  init(_ vector: Vectors.Frame) {
    let type = FrameType(byte: vector.kindNumber)!
    self.init(
      type.kind,
      flags: Flags(rawValue: vector.flags),
      shard: ShardID(vector.shard),
      correlation: vector.correlation
    )
    isReply = type.isReply
  }
}

/// Read a whole payload as the receiver of its frame does, with the fields that the flags append.
func parse(_ type: FrameType, _ flags: FrameHeader.Flags = [], _ payload: RawSpan) throws(WireError) {
  if type.isReply { return try parseReply(type.kind, payload) }
  let kind = type.kind
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
  case .putConsumer: _ = try PutConsumerRequest(&reader)
  case .openPartition: _ = try OpenPartitionRequest(&reader)
  case .commitConsumer: _ = try CommitConsumerRequest(&reader)
  case .leasePartitions: _ = try LeasePartitionsRequest(&reader)
  case .readFeed: _ = try ReadFeedRequest(&reader)
  case .importChannel: _ = try ImportChannelRequest(&reader)
  case .importMessages: _ = try reader.records(TransferredMessage.self)
  case .importMembers: _ = try reader.records(TransferredMember.self)
  case .importAcknowledgements: _ = try reader.records(TransferredAcknowledgement.self)
  case .listStoredChannels, .listUsers: _ = try ListStoredRequest(&reader)
  case .exportChannel: _ = try ExportChannelRequest(&reader)
  case .putPushJob: _ = try PutPushJobRequest(&reader)
  case .claimPushJobs: _ = try ClaimPushJobsRequest(&reader)
  case .updatePushJobs: _ = try UpdatePushJobsRequest(&reader)
  case .getChannel, .getChannelType, .getUser, .getToken, .webhookKnown, .deleteChannel, .listChannelTypes,
    .listUnsettled, .backupBegin, .backupEnd, .listConsumers, .removeConsumer:
    break
  case .error: return _ = try ErrorFrame(payload)
  case .events: return _ = try EventsFields(payload)
  case .ping, .pong: _ = try reader.raw(8)
  case .drain: break
  case .shardMap: return _ = try ShardMap(payload)
  case .deliverChanges: return _ = try MembershipDelivery(to: ShardID(0), payload)
  case .confirmChanges: return _ = try MembershipConfirmation(to: ShardID(0), payload)
  case .snapshotBegin: return _ = try SnapshotRequest(payload)
  case .snapshotRead: break
  case .recordKeys: return _ = try RecordKeysRequest(payload)
  case .backupRead, .backupDigest: return _ = try BackupPart(payload)
  }
  if flags.contains(.thread) { _ = try reader.string() }
  try reader.end()
}

private func parseReply(_ kind: FrameKind, _ payload: RawSpan) throws(WireError) {
  var reader = FieldReader(payload)
  switch kind {
  case .subscribe: return _ = try SubscribedFields(payload)
  case .backupBegin: return _ = try BackupContents(payload)
  case .subscribeUser: _ = try reader.time()
  case .listConsumers: return _ = try ConsumersReply(payload)
  case .openPartition: return _ = try OpenPartitionReply(payload)
  case .leasePartitions: return _ = try LeasePartitionsReply(payload)
  case .removeConsumer, .commitConsumer: break
  case .readFeed:
    _ = try ReadFeedReply(&reader)
    for _ in 0..<(try reader.count(elementBytesMin: NamedFeedRecord.byteCountMin)) {
      _ = try NamedFeedRecord(&reader)
    }
  case .unsubscribe, .announceRow, .backupEnd: break
  case .snapshotBegin: return _ = try SnapshotHead(payload)
  case .snapshotRead: return _ = try SnapshotPart(payload)
  case .recordKeys: return _ = try RecordKeyList(payload)
  case .setMember: return _ = try SetMemberReply(payload)
  case .getToken, .revokeToken: return _ = try TokenReply(payload)
  case .listRevokedTokens: return _ = try RevokedTokensReply(payload)
  case .ticketPlace: _ = try reader.ticketPlace()
  case .importMessages, .importMembers, .importAcknowledgements: return _ = try ImportReply(payload)
  case .listStoredChannels: return _ = try ListStoredChannelsReply(payload)
  case .exportChannel: return _ = try ExportChannelReply(payload)
  case .listUsers: return _ = try ListUsersReply(payload)
  case .putPushJob: return _ = try PutPushJobReply(payload)
  case .claimPushJobs: return _ = try PushJobsReply(payload)
  case .updatePushJobs: return _ = try UpdatePushJobsReply(payload)
  case .webhookKnown, .noteWebhook, .settle, .deleteChannel, .eraseMember, .putConsumer, .importChannel:
    return _ = try FlagReply(payload)
  case .acknowledgePush, .redeemTicket, .presentTicket: return _ = try DeliveryReply(payload)
  case .purge: _ = try reader.varint()
  case .backupRead:
    _ = try reader.raw(32)
    _ = try reader.raw(reader.remaining)
  case .backupDigest: _ = try reader.raw(32)
  case .listRoster:
    for _ in 0..<(try reader.count()) { _ = try RosterEntryFields(&reader) }
    _ = try reader.optional32()
  case .listMessages:
    for _ in 0..<(try reader.count()) { _ = try MessageEntryFields(&reader) }
    _ = try reader.messageListCursor()
  case .putChannel: return _ = try PutChannelReply(payload)
  case .changeMembers, .truncateChannel, .getChannel: return _ = try ChannelFields(payload)
  case .registerMessage: return _ = try RegistrationReply(payload)
  case .deleteMessage: return _ = try DeleteMessageReply(payload)
  case .markRead, .markUnread, .markUnreadSince, .markDelivered:
    return _ = try MarkReply(payload)
  case .patchChannelType, .assignChannelType, .getChannelType:
    _ = try reader.channelTypeRecord()
  case .userReceipts:
    for _ in 0..<(try reader.count()) { _ = try OwnReceiptFields(&reader) }
    _ = try reader.optional32()
  case .userThreads:
    for _ in 0..<(try reader.count()) { _ = try OwnThreadFields(&reader) }
    _ = try reader.optional32()
  case .threadReadState:
    for _ in 0..<(try reader.count()) { _ = try RowFields(&reader) }
    _ = try reader.string()
  case .readState:
    for _ in 0..<(try reader.count()) { _ = try RowFields(&reader) }
    _ = try reader.optional32()
  case .statuses: return _ = try StatusResultFields.all(payload)
  case .listChannelTypes: _ = try reader.channelTypeRecords()
  case .acknowledge: return _ = try AcknowledgeReply(payload)
  case .patchUser, .assignUser, .getUser: _ = try reader.userSettings()
  case .listChannels:
    _ = try reader.channelList { channel throws(WireError) in _ = try ChannelEntryFields(channel) }
  case .unreadCounts: for _ in 0..<(try reader.count()) { _ = try UnreadCountFields(&reader) }
  case .rebuildIndex: return _ = try RebuildIndexReply(payload)
  case .listUnsettled: return _ = try UnsettledReply(payload)
  case .listMembers:
    for _ in 0..<(try reader.count()) { _ = try ListEntryFields(&reader) }
    _ = try reader.string()
    if reader.remaining > 0 { _ = try reader.varint32() }
  case .memberStatuses:
    for _ in 0..<(try reader.count()) { _ = try MemberStatusFields(&reader) }
  case .hello, .challenge, .proof, .ready, .ping, .pong, .drain, .events, .shardMap, .error, .deliverChanges,
    .confirmChanges:
    throw .unknownKind(kind.rawValue)
  }
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
