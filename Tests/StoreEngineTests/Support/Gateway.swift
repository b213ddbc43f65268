import NIOCore
import ReceiptModel
import ReceiptWire
import StoreEngine

/// A connection, its requests, and its decoded replies.
final class Gateway {
  unowned let harness: EngineHarness
  private(set) var lane: ReplyLane!
  var counter: UInt64 = 0
  private var correlation: UInt32 = 0
  /// The correlation of the newest request.
  var sent: UInt32 { correlation }
  private(set) var replies: [String] = []
  private(set) var ended: [WireError] = []
  /// The fields of the newest reply.
  private(set) var lastPayload = ByteBuffer()
  /// The newest claims of push jobs, by the jobs' keys.
  var claims: [UInt64: UInt64] = [:]

  init(_ harness: EngineHarness, session: SessionID, serial: UInt64) {
    self.harness = harness
    lane = ReplyLane(
      session: session,
      serial: serial,
      shards: harness.loop.shardCount,
      deliver: { [unowned self] bytes, _ in self.delivered(bytes) },
      end: { [unowned self] error in self.ended.append(error) }
    )
  }

  /// The decoded replies and events since the last call.
  func take() -> [String] {
    defer { replies = [] }
    return replies
  }

  /// Called when replies are delivered, to simulate the callback of a failing write.
  var onDelivery: () -> Void = {}

  /// Whether its socket accepts no data.
  var isSlow = false

  private func delivered(_ bytes: ByteBuffer) {
    onDelivery()
    if !isSlow { lane.backlog.wrote(bytes.readableBytes) }
    let decoder = FrameDecoder()
    var offset = 0
    while case .frame(let header, let count)? = try? decoder.next(bytes.readableBytesSpan, at: offset) {
      let start = offset + FrameHeader.byteCount
      offset = start + count
      lastPayload = bytes.getSlice(at: bytes.readerIndex + start, length: count)!
      if header.kind == .claimPushJobs, let reply = try? PushJobsReply(lastPayload.readableBytesSpan) {
        for (claim, job) in reply.jobs { claims[job.key] = claim }
      }
      if header.kind == .events {
        replies.append(EventText.frame(bytes.readableBytesSpan.extracting(start..<offset)))
        continue
      }
      replies.append(
        "\(header.correlation) \(Self.words(header, bytes.readableBytesSpan.extracting(start..<offset)))"
      )
    }
  }

  private static func words(_ header: FrameHeader, _ payload: RawSpan) -> String {
    var reader = FieldReader(payload)
    do {
      switch header.kind {
      case .error:
        let error = try ErrorFrame(payload)
        return error.code?.name ?? "code \(error.rawCode)"
      case _ where !header.isReply: return "\(header.kind), no reply"
      case .markRead, .markUnread, .markDelivered:
        let reply = try MarkReply(payload)
        let uncounted = reply.uncounted.map { " uncounted \($0.rawValue)" } ?? ""
        return
          "row read \(reply.row.lastReadSequence.rawValue) unread \(reply.row.unreadMessages)\(uncounted)"
      case .registerMessage:
        let reply = try RegistrationReply(payload)
        let refusal = ["", " over the limit", " not allowed"][Int(reply.acknowledgementRequestRefusal.rawValue)]
        return "message \(reply.sequence.rawValue)\(reply.isNew ? " new" : "")\(refusal)"
      case .acknowledge:
        let codes = try AcknowledgeReply(payload).codes
        return "acknowledged " + codes.map { $0?.name ?? "ok" }.joined(separator: " ")
      case .deleteMessage:
        return "deleted \(try DeleteMessageReply(payload).sequence.rawValue)"
      case .putChannel:
        let reply = try PutChannelReply(payload)
        return "channel of \(reply.channel.memberCount)\(reply.isNew ? " new" : "")"
      case .deleteChannel:
        return try FlagReply(payload).isSet ? "channel deleted" : "no channel"
      case .eraseMember:
        return try FlagReply(payload).isSet ? "erased" : "not known"
      case .purge:
        let round = try reader.varint()
        try reader.end()
        return round == 0 ? "purged" : "round \(round)"
      case .changeMembers, .getChannel, .truncateChannel:
        return "channel of \(try ChannelFields(payload).memberCount)"
      case .setMember:
        let member = try SetMemberReply(payload)
        return "member\(member.hasJoined ? " joined" : "")\(member.isMuted ? " muted" : "")"
      case .patchChannelType, .assignChannelType, .getChannelType:
        let type = try reader.channelTypeRecord()
        return
          "type \(type.name) version \(type.version)\(type.options.readEvents ? "" : " without read events")"
      case .patchUser, .assignUser, .getUser:
        return "user \(try userWords(&reader))"
      case .settle:
        return try FlagReply(payload).isSet ? "settled" : "not settled"
      case .listUnsettled:
        let unsettled = try UnsettledReply(payload)
        return "unsettled types \(unsettled.types.map(\.name)) users \(unsettled.users.map(\.user))"
      case .listChannelTypes:
        return "\(try reader.count()) types"
      case .readState:
        return "\(try reader.count()) rows"
      case .statuses:
        let results = try StatusResultFields.all(payload)
        var requests: [String] = []
        for case .found(let status) in results { requests.append("\(status.acknowledgement)") }
        let hasAcknowledgements = requests.contains { $0 != "none" }
        return hasAcknowledgements ? "requests \(requests.joined(separator: " "))" : "\(results.count) statuses"
      case .listMembers:
        return try listWords(&reader)
      case .memberStatuses:
        return try memberWords(&reader)
      case .unreadCounts:
        var words: [String] = []
        for _ in 0..<(try reader.count()) {
          switch try UnreadCountFields(&reader) {
          case .found(let counts):
            let flags = (counts.isFlagged ? " flagged" : "") + (counts.isMuted ? " muted" : "")
            let mentions = counts.mentions == 0 ? "" : " mentions \(counts.mentions)"
            words.append("\(counts.messages)/\(counts.threads)\(mentions)\(flags)")
          case .refused(let code): words.append(code.name)
          }
        }
        try reader.end()
        return "unread \(words.joined(separator: " "))"
      case .listChannels:
        return try channelWords(&reader)
      case .rebuildIndex:
        let fields = try RebuildIndexReply(payload)
        return
          """
          rebuild \(fields.phase) epoch \(fields.epoch), \(fields.channelsDone) of \(fields.channels), \
          \(fields.entries) entries
          """
      case .subscribe:
        return EventText.subscribed(payload)
      case .unsubscribe, .announceRow:
        try reader.end()
        return header.kind == .unsubscribe ? "unsubscribed" : "announced"
      case .ticketPlace:
        let place = try reader.ticketPlace()
        try reader.end()
        let parent = place.parent.map { " of a reply to \($0.rawValue)" } ?? ""
        return
          """
          ticket channel \(place.channel.rawValue) row \(place.row.rawValue) message \
          \(place.sequence.rawValue)\(parent)
          """
      case .acknowledgePush, .redeemTicket:
        return try deliveryWords(payload)
      case .webhookKnown:
        return try FlagReply(payload).isSet ? "known" : "not known"
      case .noteWebhook:
        return try FlagReply(payload).isSet ? "recorded" : "was known"
      case .revokeToken, .getToken:
        let state = try TokenReply(payload)
        return state.until == .none ? "not revoked" : "revoked until \(state.until.milliseconds)"
      case .listRevokedTokens:
        let list = try RevokedTokensReply(payload)
        let ids = list.revocations.map { " \($0.id)" }.joined()
        return
          "tokens\(ids) of version \(list.version)\(list.isAnew ? " anew" : "")\(list.hasMore ? " and more" : "")"
      case .putConsumer:
        return try FlagReply(payload).isSet ? "consumer made" : "consumer known"
      case .removeConsumer, .commitConsumer:
        try reader.end()
        return header.kind == .removeConsumer ? "consumer removed" : "committed"
      case .openPartition:
        let reply = try OpenPartitionReply(payload)
        return "opened at \(reply.position)\(reply.state.isEmpty ? "" : " with \(reply.state.count) bytes")"
      case .leasePartitions:
        let reply = try LeasePartitionsReply(payload)
        return "partitions \(reply.partitions) of \(reply.workerCount)"
      case .listConsumers:
        let reply = try ConsumersReply(payload)
        let words = reply.entries.map { "\($0.consumer.name) at \($0.consumer.position)" }
        return "consumers \(words.joined(separator: ", ")) end \(reply.end)"
      case .readFeed:
        return try FeedText.page(payload)
      case .putPushJob:
        return "job for \(try PutPushJobReply(payload).accepted)"
      case .claimPushJobs:
        let reply = try PushJobsReply(payload)
        let jobs = reply.jobs.map { entry in
          "\(entry.job.key) for \(entry.job.users.map { String(decoding: $0.id, as: UTF8.self) })"
        }
        return "jobs \(jobs)\(reply.hasMore ? " and more" : "")"
      case .updatePushJobs:
        return "updated, unknown \(try UpdatePushJobsReply(payload).unknown.map(\.key))"
      case .importChannel:
        return try FlagReply(payload).isSet ? "imported new" : "imported"
      case .importMessages, .importMembers, .importAcknowledgements:
        let codes = try ImportReply(payload).codes
        return "imported " + codes.map { ErrorCode(rawValue: $0)?.name ?? "ok" }.joined(separator: " ")
      case .exportChannel:
        let reply = try ExportChannelReply(payload)
        let counts = [reply.messages.count, reply.members.count, reply.acknowledgements.count]
        return "exported \(counts), part of \(reply.parts)"
      case .listStoredChannels:
        let reply = try ListStoredChannelsReply(payload)
        return "channels \(reply.channels.joined(separator: " "))" + (reply.next.map { " + \($0)" } ?? "")
      case .subscribeUser:
        let through = try reader.time().milliseconds
        try reader.end()
        return "user subscribed through \(through)"
      default:
        return "kind \(header.kind.rawValue)"
      }
    } catch {
      return "does not parse: \(error)"
    }
  }

  private static func deliveryWords(_ payload: RawSpan) throws(WireError) -> String {
    let delivery = try DeliveryReply(payload)
    let names = [
      delivery.cid.withUnsafeBytes { String(decoding: $0, as: UTF8.self) },
      delivery.user.withUnsafeBytes { String(decoding: $0, as: UTF8.self) },
      delivery.message.withUnsafeBytes { String(decoding: $0, as: UTF8.self) },
    ]
    let times = "sent \(delivery.sent.milliseconds) delivered \(delivery.delivered.milliseconds)"
    return ([delivery.moved ? "moved" : "same", times] + names.filter { !$0.isEmpty })
      .joined(separator: " ")
  }

  private static func userWords(_ reader: inout FieldReader) throws(WireError) -> String {
    let settings = try reader.userSettings()
    var words = "\(settings.user) version \(settings.version)"
    if settings.hidesRead { words += " hides read" }
    if settings.hidesDelivered { words += " hides delivered" }
    if settings.isErasing { words += " erasing" }
    if settings.isErased { words += " erased" }
    if settings.readShownSince != .none { words += " since \(settings.readShownSince.milliseconds)" }
    if settings.tokensRevokedBefore != .none {
      words += " revoked \(settings.tokensRevokedBefore.milliseconds)"
    }
    return words
  }

  private static func listWords(_ reader: inout FieldReader) throws(WireError) -> String {
    var words: [String] = []
    for _ in 0..<(try reader.count()) {
      let entry = try ListEntryFields(&reader)
      let user = entry.user.withUnsafeBytes { String(decoding: $0, as: UTF8.self) }
      words.append(user + (entry.at == .none ? "" : "@\(entry.at.milliseconds)"))
    }
    let next = try reader.text()
    // The first page has the total.
    let total = reader.remaining > 0 ? Int(try reader.varint()) : words.count
    try reader.end()
    if words.isEmpty { words = ["nobody"] }
    if total != words.count, words != ["nobody"] || total > 0 { words.append("of \(total)") }
    return (words + (next.isEmpty ? [] : ["+ \(next)"])).joined(separator: " ")
  }

  private static func channelWords(_ reader: inout FieldReader) throws(WireError) -> String {
    var words: [String] = []
    for _ in 0..<(try reader.count()) {
      let entry = try ChannelEntryFields(&reader)
      let isGone = entry.row == nil && entry.deletedAt != .none
      var word = entry.cid + (entry.isMember || isGone ? "" : entry.row == nil ? " (sent)" : " (left)")
      if entry.deletedAt != .none {
        word += " (\(isGone ? "" : "new since ")deleted \(entry.deletedAt.milliseconds))"
      }
      words.append(word)
    }
    let next = try reader.optional32()
    try reader.end()
    return (words.isEmpty ? "no channels" : words.joined(separator: ", ")) + (next.map { " + \($0)" } ?? "")
  }

  private static func memberWords(_ reader: inout FieldReader) throws(WireError) -> String {
    var words: [String] = []
    for _ in 0..<(try reader.count()) {
      let member = try MemberStatusFields(&reader)
      let user = member.user.withUnsafeBytes { String(decoding: $0, as: UTF8.self) }
      let code = ErrorCode(rawValue: UInt16(member.code))?.name ?? ""
      words.append("\(user) \(member.status.map { "\($0.status)" } ?? code)")
    }
    try reader.end()
    return words.joined(separator: ", ")
  }

  /// Send one request with the next correlation, and with the next counter unless one is given. The turn does not end.
  func send(
    _ kind: FrameKind,
    _ name: String?,
    counter given: UInt64? = nil,
    shard: UInt16 = 0,
    issued: UInt32? = nil,
    thread: String? = nil,
    hasThreadFlag: Bool = false,
    _ fields: (inout ByteBuffer) -> Void = { _ in }
  ) {
    correlation += 1
    var payload = ByteBuffer()
    if let name { payload.writeField(name) }
    if kind.isCommand {
      if given == nil { counter += 1 }
      payload.writeVarint(given ?? counter)
    }
    fields(&payload)
    if let thread { payload.writeField(thread) }
    if let issued { payload.writeInteger(issued) }
    var flags: FrameHeader.Flags = []
    if issued != nil { flags.insert(.issued) }
    if thread != nil || hasThreadFlag { flags.insert(.thread) }
    let header = FrameHeader(
      kind,
      flags: flags,
      shard: ShardID(shard),
      correlation: correlation
    )
    do {
      try harness.loop.receive(header, payload.readableBytesSpan, lane: lane)
    } catch {
      lane.fail(error)
    }
  }
}
