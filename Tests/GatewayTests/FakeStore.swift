import NIOCore
import NIOPosix
import ReceiptModel
import ReceiptWire

/// A store for tests of the gateway: it speaks the frame protocol over TCP, without secrets, and keeps what
/// it is told in dictionaries. It knows just enough of the rules to answer; the real store has its own tests.
final class FakeStore: Sendable {
  /// How it answers requests.
  enum Mode: Sendable {
    case normal
    /// Not at all.
    case silent
    /// With this error.
    case refusing(ErrorCode)
    /// Assignments of channel types and users with this error, all else as it should be.
    case refusingAssignments(ErrorCode)
    /// Requests of this kind with this error, all else as it should be.
    case refusingKind(FrameKind, ErrorCode)
    /// Whatever is asked about this channel with this error, all else as it should be.
    case refusingChannel(String, ErrorCode)
    /// Requests of this kind not at all, all else as it should be.
    case ignoringKind(FrameKind)
    /// All is as it should be, but a request of this kind finds the connection closed.
    case closing(FrameKind)
    /// With a payload that does not parse.
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

  /// Changes how it answers from now on.
  func set(_ mode: Mode) async throws {
    try await listener.eventLoop.submit { self.model.value.mode = mode }.get()
  }

  /// The kinds of the requests that have come since the last call, sorted by arrival.
  func takeLog() async throws -> [FrameKind] {
    try await listener.eventLoop.submit {
      defer { self.model.value.log = [] }
      return self.model.value.log
    }.get()
  }

  /// When the tokens behind the requests since the last call were issued; nil for those without.
  func readTokenIssueTime() async throws -> [UInt32?] {
    try await listener.eventLoop.submit {
      defer { self.model.value.issued = [] }
      return self.model.value.issued
    }.get()
  }

  /// What each shard knows of a user: "version flags".
  func users(_ id: String) async throws -> [String] {
    try await listener.eventLoop.submit { self.model.value.users(id) }.get()
  }

  /// What the home shards hold unsettled, by name.
  func unsettled() async throws -> [String] {
    try await listener.eventLoop.submit { self.model.value.unsettledNames() }.get()
  }

  /// Asks the model, on its loop.
  func ask<Answer: Sendable>(_ body: @escaping @Sendable (FakeModel) -> Answer) async throws -> Answer {
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
    /// Unread messages that mention them; reading takes them away.
    var mentions: UInt32 = 0
    var role = ""
    /// How many messages there were when they joined.
    var joined = 0
  }

  struct Channel {
    var members: [(user: String, row: Member)] = []
    var messages: [String] = []
    var senders: [String] = []
    var deleted: Set<String> = []
    /// The messages with a receipt, and the notes of those who have acknowledged them.
    var receipts: [String: [String: String]] = [:]
    var options = ChannelTypeOptions()
    /// By parent.
    var threads: [String: FakeThread] = [:]
  }

  let shardCount: UInt32
  var mode = FakeStore.Mode.normal
  /// Keeps the revoked tokens.
  var tokens = ShardState(id: ShardState.tokenShard)
  var log: [FrameKind] = []
  var issued: [UInt32?] = []
  var channels: [String: Channel] = [:]
  /// By shard.
  var types: [UInt16: [String: ChannelTypeRecord]] = [:]
  /// By shard.
  var settings: [UInt16: [String: UserSettings]] = [:]
  /// Users who were erased in each shard; ``eraseSeconds`` says when.
  var erased: [UInt16: Set<String>] = [:]
  static let eraseSeconds: UInt32 = 1_700_000_000
  /// The shard and the token of the request that is being answered.
  var revocation: (shard: UInt16, issued: UInt32?) = (0, nil)
  /// The request that is being answered means a thread.
  var hasThread = false
  /// Cids as they were made: their places in users' indexes.
  var order: [String] = []
  /// Of the channels that tickets were made of.
  var channelNumbers: [String: UInt64] = [:]
  var nextChannelNumber: UInt64 = 0
  /// Webhooks that are noted, with the time until which they are remembered.
  var webhooks: [String: Int64] = [:]
  var listMax = 1_000
  var countFrames: [Int] = []
  /// By user: channels that have erased them, which the index still lists.
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

  /// Answers one request frame.
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
      buffer.writeFrame(FrameHeader(header.kind.reply, shard: header.shard, correlation: header.correlation))
      {
        $0.writeRepeatingByte(0xFF, count: 20)
      }
      return
    case .normal, .refusingAssignments, .refusingKind, .closing, .refusingChannel, .ignoringKind: break
    }
    var fields = ByteBuffer()
    do {
      try answer(header, payload, tokenIssued, fields: &fields)
      buffer.writeFrame(FrameHeader(header.kind.reply, shard: header.shard, correlation: header.correlation))
      {
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
      fields.writeVarint(records.count)
      for record in records { fields.writeChannelTypeRecord(record) }
      return
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
      fields.writeInteger(UInt8(created ? 1 : 0))
      write(channel, name, into: &fields)
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
        for place in channel.members.indices where channel.members[place].user != user {
          channel.members[place].row.mentions += 1
        }
      } else if flags & 16 != 0 {
        for _ in 0..<(try reader.count()) {
          let mentioned = try reader.text()
          if let place = channel.members.firstIndex(where: { $0.user == mentioned }) {
            channel.members[place].row.mentions += 1
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
      fields.writeInteger(UInt8(known == nil ? 1 : 0))
      fields.writeVarint((known ?? channel.messages.count - 1) + 1)
      fields.writeInteger(UInt8(0))
      fields.writeInteger(refusal.rawValue)
    case .deleteMessage:
      let id = try reader.text()
      channel.deleted.insert(id)
      fields.writeVarint((channel.messages.firstIndex(of: id) ?? -1) + 1)
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
    let place = known ?? channel.members.count - 1
    if !role.isEmpty { channel.members[place].row.role = role }
    if flags & 1 != 0 { channel.members[place].row.isMuted = flags & 2 != 0 }
    let row = channel.members[place].row
    fields.writeInteger(UInt8(known == nil ? 1 : 0))
    SetMemberFields(role: row.role, joinedAt: Timestamp(milliseconds: 6), isMuted: row.isMuted)
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
    guard let place = channel.members.firstIndex(where: { $0.user == user }) else {
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
      channel.members[place].row.read = max(channel.members[place].row.read, sequence)
      channel.members[place].row.isFlagged = false
      channel.members[place].row.mentions = 0
    case .markDelivered:
      channel.members[place].row.delivered = max(channel.members[place].row.delivered, sequence)
    default:
      if channel.options.markUnread == .off { throw Refused(code: .markUnreadOff) }
      channel.members[place].row.epoch += 1
      if message.isEmpty {
        channel.members[place].row.isFlagged = true
      } else {
        channel.members[place].row.marker = sequence - 1
      }
    }
    write(channel.members[place].row, user, channel, own: true, into: &fields)
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
        fields.writeInteger(UInt8(code.rawValue))
        continue
      }
      let others = channel.members.filter { $0.user != channel.senders[index] }.map(\.row)
      let read = UInt32(others.filter { $0.read > index }.count)
      let delivered = UInt32(others.filter { max($0.read, $0.delivered) > index }.count)
      fields.writeInteger(UInt8(0))
      fields.writeStatus(
        StatusAnswer(
          sequence: SequenceNumber(UInt32(index + 1)),
          status: read > 0 ? .read : delivered > 0 ? .delivered : .sent,
          receipt: channel.receipts[id].map { $0.count < others.count ? .processing : .done } ?? .none,
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
        record = ChannelTypeRecord(name: name, version: version, options: options, isReplicated: true)
      }
    }
    if header.kind == .patchChannelType { record.isReplicated = false }
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
    buffer.writeField(user)
    buffer.writeTime(Timestamp(milliseconds: 3))
    buffer.writeField(message(own ? position : member.read))
    buffer.writeVarint(own ? position : member.read)
    buffer.writeTime(Timestamp(milliseconds: member.delivered > 0 ? 4 : 0))
    buffer.writeField(message(member.delivered))
    buffer.writeVarint(member.delivered)
    buffer.writeVarint(!own ? 0 : isServers ? 1 : member.isFlagged ? 7 : 3)
    guard own else { return }
    buffer.writeVarint(UInt32(channel.messages.count) - position)
    buffer.writeField(position < channel.messages.count ? channel.messages[Int(position)] : "")
    buffer.writeVarint(member.epoch)
    if !isServers { buffer.writeVarint(member.mentions) }
  }
}

private final class FakeStoreHandler: ChannelInboundHandler {
  typealias InboundIn = ByteBuffer
  typealias OutboundOut = ByteBuffer

  private let model: FakeModel
  private let decoder = FrameDecoder()
  private var received = ByteBuffer()

  init(model: FakeModel) { self.model = model }

  func channelActive(context: ChannelHandlerContext) { model.opened(context.channel) }
  func channelInactive(context: ChannelHandlerContext) { model.closed(context.channel) }

  func channelRead(context: ChannelHandlerContext, data: NIOAny) {
    var buffer = unwrapInboundIn(data)
    received.writeBuffer(&buffer)
    var out = ByteBuffer()
    do {
      try takeFrames(into: &out)
    } catch {
      context.close(promise: nil)
    }
    if out.readableBytes > 0 { context.writeAndFlush(wrapOutboundOut(out), promise: nil) }
  }

  private func takeFrames(into out: inout ByteBuffer) throws(WireError) {
    let buffer = received
    let bytes = buffer.readableBytesSpan
    var offset = 0
    while case .frame(let header, let count) = try decoder.next(bytes, at: offset) {
      let start = offset + FrameHeader.byteCount
      try handle(header, bytes.extracting(start..<(start + count)), into: &out)
      offset = start + count
    }
    received.moveReaderIndex(forwardBy: offset)
    received.discardReadBytes()
  }

  private func handle(_ header: FrameHeader, _ payload: RawSpan, into out: inout ByteBuffer) throws(WireError)
  {
    switch header.kind {
    case .hello:
      _ = try Hello(payload)
      Challenge(
        nonce: .random(),
        proof: [],
        window: 1_000,
        shardCount: model.shardCount,
        store: SessionID(high: 1, low: 2)
      ).write(into: &out)
    case .proof:
      Ready(
        isResumed: false,
        sessionLifetimeMilliseconds: 600_000,
        shards: [Ready.ShardRange(first: 0, count: model.shardCount, address: "")]
      ).write(into: &out)
    case .ping:
      out.writeFrame(FrameHeader(.pong, correlation: header.correlation)) { $0.writeRaw(payload) }
    default: try model.answer(header, payload, into: &out)
    }
  }
}
