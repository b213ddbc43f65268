import NIOCore
import NIOPosix
import ReceiptModel
import ReceiptWire

/// A store for tests of the gateway. It speaks the frame protocol over TCP, without secrets, and keeps its data in
/// dictionaries. It implements only the rules that these tests need; the real store has its own tests.
final class FakeStore: Sendable {
  /// How the store answers requests.
  enum Mode: Sendable {
    case normal
    /// Answers no request.
    case silent
    /// Answers every request with this error.
    case refusing(ErrorCode)
    /// Answers assignments of channel types and users with this error, other requests normally.
    case refusingAssignments(ErrorCode)
    /// Answers requests of this kind with this error, other requests normally.
    case refusingKind(FrameKind, ErrorCode)
    /// Answers requests about this channel with this error, other requests normally.
    case refusingChannel(String, ErrorCode)
    /// Ignores requests of this kind, and answers other requests normally.
    case ignoringKind(FrameKind)
    /// Closes the connection at a request of this kind, and answers other requests normally.
    case closing(FrameKind)
    /// Answers every request with a payload that does not parse.
    case garbled
  }

  private let listener: any Channel
  private let model: NIOLoopBound<FakeModel>
  let port: Int

  private init(listener: any Channel, model: NIOLoopBound<FakeModel>) {
    self.listener = listener
    self.model = model
    self.port = listener.localAddress!.port!
  }

  static func start(on eventLoop: any EventLoop, shardCount: UInt32 = 4) async throws -> FakeStore {
    let model = try await eventLoop.submit {
      NIOLoopBound(FakeModel(shardCount: shardCount), eventLoop: eventLoop)
    }.get()
    let listener = try await ServerBootstrap(group: eventLoop)
      .serverChannelOption(.socketOption(.so_reuseaddr), value: 1)
      .childChannelInitializer { channel in
        channel.eventLoop.makeCompletedFuture {
          try channel.pipeline.syncOperations.addHandler(FakeStoreHandler(model: model.value))
        }
      }
      .bind(host: "127.0.0.1", port: 0).get()
    return FakeStore(listener: listener, model: model)
  }

  /// Set how the store answers from now on.
  func set(_ mode: Mode) async throws {
    try await listener.eventLoop.submit { self.model.value.mode = mode }.get()
  }

  /// The kinds of the requests received since the last call, in order of arrival.
  func takeLog() async throws -> [FrameKind] {
    try await listener.eventLoop.submit {
      defer { self.model.value.log = [] }
      return self.model.value.log
    }.get()
  }

  /// The token issue times of the requests since the last call; nil for requests without one.
  func readTokenIssueTime() async throws -> [UInt32?] {
    try await listener.eventLoop.submit {
      defer { self.model.value.issued = [] }
      return self.model.value.issued
    }.get()
  }

  /// The user's settings in each shard, as "version flags".
  func users(_ id: String) async throws -> [String] {
    try await listener.eventLoop.submit { self.model.value.users(id) }.get()
  }

  /// The names of unsettled values in the home shards.
  func unsettled() async throws -> [String] {
    try await listener.eventLoop.submit { self.model.value.unsettledNames() }.get()
  }

  /// Run `body` with the model, on its event loop.
  func withModel<Result: Sendable>(_ body: @escaping @Sendable (FakeModel) -> Result) async throws -> Result {
    try await listener.eventLoop.submit { body(self.model.value) }.get()
  }

  func close() async throws {
    try await listener.close()
    try await listener.eventLoop.submit { self.model.value.closeConnections() }.get()
  }
}

final class FakeModel {
  struct Member {
    var read: UInt32 = 0
    var delivered: UInt32 = 0
    var marker: UInt32?
    var epoch: UInt32 = 0
    var isFlagged = false
    var isMuted = false
    /// The number of unread messages that mention the member; reading resets it.
    var mentions: UInt32 = 0
    var role = ""
    /// The number of messages at the join.
    var joined = 0
  }

  struct Channel {
    var members: [(user: String, row: Member)] = []
    var messages: [String] = []
    var senders: [String] = []
    var deleted: Set<String> = []
    /// Messages with an acknowledgement request, with the note of each user who acknowledged.
    var receipts: [String: [String: String]] = [:]
    var options = ChannelTypeOptions()
    /// Threads by parent.
    var threads: [String: FakeThread] = [:]
  }

  let shardCount: UInt32
  var mode = FakeStore.Mode.normal
  /// The shard state that keeps the revoked tokens.
  var tokens = ShardState(id: RevokedTokenTable.shard)
  var log: [FrameKind] = []
  var issued: [UInt32?] = []
  var channels: [String: Channel] = [:]
  /// By shard.
  var types: [UInt16: [String: ChannelTypeRecord]] = [:]
  /// By shard.
  var settings: [UInt16: [String: UserSettings]] = [:]
  /// Erased users by shard, all erased at ``eraseSeconds``.
  var erased: [UInt16: Set<String>] = [:]
  static let eraseSeconds: UInt32 = 1_700_000_000
  /// The shard and token issue time of the current request.
  var revocation: (shard: UInt16, issued: UInt32?) = (0, nil)
  /// Whether the current request is about a thread.
  var hasThread = false
  /// Cids in order of creation, which is their order in users' indexes.
  var order: [String] = []
  /// Numbers of the channels in issued tickets.
  var channelNumbers: [String: UInt64] = [:]
  var nextChannelNumber: UInt64 = 0
  /// Recorded webhooks with their expiry times.
  var webhooks: [String: Int64] = [:]
  var listMax = 1_000
  var countFrames: [Int] = []
  /// By user: channels that have erased the user and that the index still lists.
  var stale: [String: Set<String>] = [:]
  var staleLists = 0
  var purges: [UInt16: Int] = [:]
  var purgesNeeded = 0
  var events = FakeEvents()
  private var connections: [ObjectIdentifier: any NIOCore.Channel] = [:]

  init(shardCount: UInt32) { self.shardCount = shardCount }

  func opened(_ channel: any NIOCore.Channel) { connections[ObjectIdentifier(channel)] = channel }
  func closed(_ channel: any NIOCore.Channel) { connections[ObjectIdentifier(channel)] = nil }
  func broadcast(_ buffer: ByteBuffer) {
    for channel in connections.values { channel.writeAndFlush(buffer, promise: nil) }
  }
  func closeConnections() { for channel in connections.values { channel.close(promise: nil) } }

  struct Refused: Error {
    var code: ErrorCode
    var detail = ""
  }

  /// Answer one request frame.
  func answer(_ header: FrameHeader, _ payload: RawSpan, into buffer: inout ByteBuffer) throws(WireError) {
    log.append(header.kind)
    var payload = payload
    var tokenIssued: UInt32?
    if header.flags.contains(.issued) {
      let end = payload.byteCount - FrameHeader.issuedByteCount
      tokenIssued = UInt32(bigEndian: payload.unsafeLoadUnaligned(fromByteOffset: end, as: UInt32.self))
      payload = payload.extracting(0..<end)
    }
    issued.append(tokenIssued)
    var mode = mode
    switch mode {
    case .refusingAssignments(let code):
      let isAssignment = header.kind == .assignChannelType || header.kind == .assignUser
      mode = isAssignment ? .refusing(code) : .normal
    case .refusingKind(let kind, let code): mode = header.kind == kind ? .refusing(code) : .normal
    case .closing(let kind): if header.kind == kind { throw .truncated }
    case .ignoringKind(let kind): mode = header.kind == kind ? .silent : .normal
    default: break
    }
    switch mode {
    case .silent: return
    case .refusing(let code):
      buffer.writeError(
        code,
        shard: header.shard,
        correlation: header.correlation,
        retryAfterMilliseconds: 1_500,
        detail: "fake"
      )
      return
    case .garbled:
      buffer.writeFrame(FrameHeader(header.kind.reply, shard: header.shard, correlation: header.correlation)) {
        $0.writeRepeatingByte(0xFF, count: 20)
      }
      return
    case .normal, .refusingAssignments, .refusingKind, .closing, .refusingChannel, .ignoringKind: break
    }
    var fields = ByteBuffer()
    do {
      try answer(header, payload, tokenIssued, fields: &fields)
      buffer.writeFrame(FrameHeader(header.kind.reply, shard: header.shard, correlation: header.correlation)) {
        $0.writeBuffer(&fields)
      }
    } catch let refused as Refused {
      buffer.writeError(
        refused.code,
        shard: header.shard,
        correlation: header.correlation,
        detail: refused.detail
      )
    } catch {
      buffer.writeError(.malformedFrame, correlation: header.correlation, detail: "\(error)")
    }
  }

  private func answer(
    _ header: FrameHeader,
    _ payload: RawSpan,
    _ tokenIssued: UInt32?,
    fields: inout ByteBuffer
  ) throws {
    var reader = FieldReader(payload)
    hasThread = header.flags.contains(.thread)
    if header.kind == .unreadCounts { return try unreadCounts(header, &reader, mode, fields: &fields) }
    if [.revokeToken, .getToken, .listRevokedTokens].contains(header.kind) {
      return try token(header.kind, &reader, fields: &fields)
    }
    if header.kind.rawValue & 0xF0 == 0x30 { return try events(header, &reader, fields: &fields) }
    if header.kind == .purge { return try purge(header.shard.rawValue, &reader, fields: &fields) }
    if header.kind == .listUnsettled { return listUnsettled(header.shard.rawValue, fields: &fields) }
    if header.kind == .listChannelTypes {
      let records = (types[header.shard.rawValue] ?? [:]).values.sorted { $0.name < $1.name }
      return fields.writeChannelTypeRecords(records)
    }
    if header.kind == .redeemTicket { return try redeemTicket(&reader, fields: &fields) }
    let name = try reader.text()
    if header.kind.isCommand { _ = try reader.varint() }
    switch header.kind {
    case .patchChannelType, .assignChannelType, .getChannelType:
      return try channelType(header, name, &reader, fields: &fields)
    case .patchUser, .assignUser, .getUser:
      return try user(header, name, tokenIssued, &reader, fields: &fields)
    case .listChannels: return try listChannels(header, name, tokenIssued, &reader, fields: &fields)
    case .webhookKnown, .noteWebhook: return try webhook(header.kind, name, &reader, fields: &fields)
    case .settle: return try settle(header.shard.rawValue, name, &reader, fields: &fields)
    default:
      let owner = ShardID.owning(Array(name.utf8).span.bytes, count: Int(shardCount))
      guard owner == header.shard else { throw Refused(code: .wrongShard) }
    }
    if case .refusingChannel(name, let code) = mode { throw Refused(code: code) }
    if header.kind == .deleteChannel {
      try reader.end()
      return deleteChannel(name, fields: &fields)
    }
    revocation = (header.shard.rawValue, tokenIssued)
    if header.kind == .putChannel {
      let created = channels[name] == nil
      var channel = channels[name] ?? Channel()
      channel.options = channel.options.applying(try reader.optionPatch())
      try addMembers(&reader, to: &channel)
      channels[name] = channel
      if created { order.append(name) }
      fields.writePutChannelReply(isNew: created) { write(channel, name, into: &$0) }
      try reader.end()
      return
    }
    guard var channel = channels[name] else { throw Refused(code: .channelNotFound) }
    try answer(header.kind, name, &channel, &reader, fields: &fields)
    try reader.end()
    channels[name] = channel
  }

  private func answer(
    _ kind: FrameKind,
    _ cid: String,
    _ channel: inout Channel,
    _ reader: inout FieldReader,
    fields: inout ByteBuffer
  ) throws {
    switch kind {
    case .changeMembers:
      try addMembers(&reader, to: &channel)
      for _ in 0..<(try reader.count()) {
        let user = try reader.text()
        channel.members.removeAll { $0.user == user }
      }
      write(channel, cid, into: &fields)
    case .getChannel: write(channel, cid, into: &fields)
    case .registerMessage:
      let (id, user) = (try reader.text(), try reader.text())
      _ = try reader.time()
      let flags = try reader.varint()
      if flags & 8 != 0 {
        for memberIndex in channel.members.indices where channel.members[memberIndex].user != user {
          channel.members[memberIndex].row.mentions += 1
        }
      } else if flags & 16 != 0 {
        for _ in 0..<(try reader.count()) {
          let mentioned = try reader.text()
          if let memberIndex = channel.members.firstIndex(where: { $0.user == mentioned }) {
            channel.members[memberIndex].row.mentions += 1
          }
        }
      }
      try checkErasing(user, in: revocation.shard)
      if let parent = try thread(&reader) {
        return try reply(id, user, to: parent, &channel, fields: &fields)
      }
      if channel.deleted.contains(id) { throw Refused(code: .messageDeleted) }
      let known = channel.messages.firstIndex(of: id)
      if known == nil {
        channel.messages.append(id)
        channel.senders.append(user)
      }
      let refusal = flags & 2 == 0 ? ReceiptRefusal.none : receiptRefusal(of: user, channel)
      if flags & 2 != 0, refusal == .none, known == nil { channel.receipts[id] = [:] }
      RegistrationReply(
        isNew: known == nil,
        sequence: SequenceNumber(UInt32((known ?? channel.messages.count - 1) + 1)),
        status: .sent,
        receiptRefusal: refusal
      )
      .write(into: &fields)
    case .deleteMessage:
      let id = try reader.text()
      channel.deleted.insert(id)
      let sequence = SequenceNumber(UInt32((channel.messages.firstIndex(of: id) ?? -1) + 1))
      DeleteMessageReply(sequence: sequence).write(into: &fields)
    case .markRead, .markUnread, .markDelivered: try mark(kind, &channel, &reader, fields: &fields)
    case .setMember: try setMember(&channel, &reader, fields: &fields)
    case .truncateChannel:
      try truncate(&channel, before: try reader.text())
      write(channel, cid, into: &fields)
    case .eraseMember: eraseMember(cid, &channel, try reader.text(), fields: &fields)
    case .ticketPlace: try ticketPlace(cid, channel, &reader, fields: &fields)
    case .acknowledgePush: try acknowledgePush(cid, &channel, &reader, fields: &fields)
    case .readState: try readState(channel, &reader, fields: &fields)
    case .statuses: try statuses(channel, &reader, fields: &fields)
    case .acknowledge: try acknowledge(&channel, &reader, fields: &fields)
    case .listMembers: try listMembers(channel, &reader, fields: &fields)
    case .memberStatuses: try memberStatuses(channel, &reader, fields: &fields)
    default: throw Refused(code: .unknownKind)
    }
  }

  private func addMembers(_ reader: inout FieldReader, to channel: inout Channel) throws {
    for _ in 0..<(try reader.count()) {
      let (user, role) = (try reader.text(), try reader.text())
      try checkErasing(user, in: revocation.shard)
      if !channel.members.contains(where: { $0.user == user }) {
        channel.members.append((user, Member(role: role, joined: channel.messages.count)))
      }
    }
  }

  private func setMember(
    _ channel: inout Channel,
    _ reader: inout FieldReader,
    fields: inout ByteBuffer
  ) throws {
    let (user, role) = (try reader.text(), try reader.text())
    let flags = try reader.varint()
    let known = channel.members.firstIndex { $0.user == user }
    guard known != nil || flags & 4 != 0 else { throw Refused(code: .notAMember) }
    if known == nil { channel.members.append((user, Member(role: role, joined: channel.messages.count))) }
    let memberIndex = known ?? channel.members.count - 1
    if !role.isEmpty { channel.members[memberIndex].row.role = role }
    if flags & 1 != 0 { channel.members[memberIndex].row.isMuted = flags & 2 != 0 }
    let row = channel.members[memberIndex].row
    SetMemberReply(
      hasJoined: known == nil,
      role: row.role,
      joinedAt: Timestamp(milliseconds: 6),
      isMuted: row.isMuted
    )
    .write(into: &fields)
  }

  private func mark(
    _ kind: FrameKind,
    _ channel: inout Channel,
    _ reader: inout FieldReader,
    fields: inout ByteBuffer
  ) throws {
    let (user, message) = (try reader.text(), try reader.text())
    if kind != .markDelivered { _ = try reader.optional() }
    try checkToken(of: user)
    guard let memberIndex = channel.members.firstIndex(where: { $0.user == user }) else {
      throw Refused(code: .notAMember)
    }
    if let parent = try thread(&reader) {
      return try markThread(kind, parent, user, message, &channel, fields: &fields)
    }
    var sequence = UInt32(channel.messages.count)
    if !message.isEmpty {
      guard let index = channel.messages.firstIndex(of: message) else {
        throw Refused(code: .messageNotFound)
      }
      sequence = UInt32(index + 1)
    }
    switch kind {
    case .markRead:
      channel.members[memberIndex].row.read = max(channel.members[memberIndex].row.read, sequence)
      channel.members[memberIndex].row.isFlagged = false
      channel.members[memberIndex].row.mentions = 0
    case .markDelivered:
      channel.members[memberIndex].row.delivered = max(channel.members[memberIndex].row.delivered, sequence)
    default:
      if channel.options.markUnread == .off { throw Refused(code: .markUnreadOff) }
      channel.members[memberIndex].row.epoch += 1
      if message.isEmpty {
        channel.members[memberIndex].row.isFlagged = true
      } else {
        channel.members[memberIndex].row.marker = sequence - 1
      }
    }
    write(channel.members[memberIndex].row, user, channel, own: true, into: &fields)
  }

  private func readState(_ channel: Channel, _ reader: inout FieldReader, fields: inout ByteBuffer) throws {
    let isServer = try reader.varint() == 1
    let user = try reader.text()
    let limit = Int(try reader.varint())
    let cursor = try reader.optional()
    try checkViewer(user, channel)
    let rows = channel.members.enumerated().reversed().filter { cursor == nil || $0.offset < Int(cursor!) }
    fields.writeVarint(min(rows.count, limit))
    for (_, member) in rows.prefix(limit) {
      let isOwn = member.user == user
      write(member.row, member.user, channel, own: isServer || isOwn, isServers: !isOwn, into: &fields)
    }
    fields.writeOptional(rows.count > limit ? UInt64(rows[limit - 1].offset) : nil)
  }

  private func statuses(_ channel: Channel, _ reader: inout FieldReader, fields: inout ByteBuffer) throws {
    _ = try reader.varint()
    try checkViewer(try reader.text(), channel)
    let count = try reader.count()
    fields.writeVarint(count)
    for _ in 0..<count {
      let id = try reader.text()
      guard !channel.deleted.contains(id), let index = channel.messages.firstIndex(of: id) else {
        let code: ErrorCode = channel.deleted.contains(id) ? .messageDeleted : .messageNotFound
        fields.writeStatusResult(refused: code)
        continue
      }
      let others = channel.members.filter { $0.user != channel.senders[index] }.map(\.row)
      let read = UInt32(others.filter { $0.read > index }.count)
      let delivered = UInt32(others.filter { max($0.read, $0.delivered) > index }.count)
      fields.writeStatusResult(
        ShownStatus(
          sequence: SequenceNumber(UInt32(index + 1)),
          status: read > 0 ? .read : delivered > 0 ? .delivered : .sent,
          acknowledgement: channel.receipts[id].map { $0.count < others.count ? .processing : .done }
            ?? .none,
          readCount: read,
          deliveredCount: delivered,
          memberCount: UInt32(others.count),
          readEvents: true,
          deliveryEvents: true,
          createdAt: Timestamp(milliseconds: 5)
        )
      )
    }
  }

  private func channelType(
    _ header: FrameHeader,
    _ name: String,
    _ reader: inout FieldReader,
    fields: inout ByteBuffer
  ) throws {
    let shard = header.shard.rawValue
    var record = types[shard]?[name] ?? ChannelTypeRecord(name: name)
    if header.kind == .patchChannelType {
      let home = ShardID.owning(Array(name.utf8).span.bytes, count: Int(shardCount))
      guard home == header.shard else { throw Refused(code: .wrongShard) }
      record.options = record.options.applying(try reader.optionPatch())
      record.version += 1
    } else if header.kind == .assignChannelType {
      let version = try reader.varint()
      let options = try reader.options()
      if version > record.version {
        record = ChannelTypeRecord(name: name, version: version, options: options, isSettled: true)
      }
    }
    if header.kind == .patchChannelType { record.isSettled = false }
    if header.kind != .getChannelType { types[shard, default: [:]][name] = record }
    fields.writeChannelTypeRecord(record)
    try reader.end()
  }

  private func write(_ channel: Channel, _ cid: String, into buffer: inout ByteBuffer) {
    ChannelFields(
      cid: cid,
      created: Timestamp(milliseconds: 1),
      options: channel.options,
      memberCount: UInt32(channel.members.count),
      newest: SequenceNumber(UInt32(channel.messages.count)),
      newestMessage: channel.messages.last ?? "",
      newestRegistered: Timestamp(milliseconds: 2)
    ).write(into: &buffer)
  }

  private func write(
    _ member: Member,
    _ user: String,
    _ channel: Channel,
    own: Bool,
    isServers: Bool = false,
    into buffer: inout ByteBuffer
  ) {
    let message = { (sequence: UInt32) in sequence == 0 ? "" : channel.messages[Int(sequence) - 1] }
    let position = min(member.read, member.marker ?? member.read)
    let read = own ? position : member.read
    let details = ShownRow.OwnDetails(
      unreadMessages: UInt32(channel.messages.count) - position,
      firstUnread: .zero,
      unreadEpoch: member.epoch,
      isOwn: !isServers,
      isFlaggedUnread: !isServers && member.isFlagged,
      unreadMentions: member.mentions
    )
    buffer.write(
      ShownRow(
        row: MemberOrdinal(0),
        lastRead: Timestamp(milliseconds: 3),
        lastReadSequence: SequenceNumber(read),
        lastDelivered: Timestamp(milliseconds: member.delivered > 0 ? 4 : 0),
        lastDeliveredSequence: SequenceNumber(member.delivered),
        own: own ? details : nil
      ),
      user: user,
      lastReadMessage: message(read),
      lastDeliveredMessage: message(member.delivered),
      firstUnreadMessage: position < channel.messages.count ? channel.messages[Int(position)] : ""
    )
  }
}

extension ByteBuffer {
  /// Write a row without its member's join.
  mutating func write(
    _ row: ShownRow,
    user: String,
    lastReadMessage: String,
    lastDeliveredMessage: String = "",
    firstUnreadMessage: String
  ) {
    RowFields.write(
      row,
      user: Array(user.utf8).span.bytes,
      lastReadMessage: Array(lastReadMessage.utf8).span.bytes,
      lastDeliveredMessage: Array(lastDeliveredMessage.utf8).span.bytes,
      firstUnreadMessage: Array(firstUnreadMessage.utf8).span.bytes,
      includesJoin: false,
      into: &self
    )
  }
}
