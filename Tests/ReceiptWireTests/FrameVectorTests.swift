import NIOCore
import ReceiptModel
import ReceiptWire
import Testing

/// Whole frames against Proto/vectors, in both directions.
struct FrameVectorTests {
  @Test func everyKindHasAVector() {
    let kinds = Set(Vectors.frames.map(\.kindNumber))
    for kind in FrameKind.allCases { #expect(kinds.contains(kind.rawValue), "\(kind)") }
    #expect(kinds.count == FrameKind.allCases.count)
  }

  @Test(arguments: Vectors.frames.indices)
  func frameVectorsAreDecoded(_ index: Int) throws {
    let vector = Vectors.frames[index]
    let bytes = [UInt8](hex: vector.hex)
    let header = FrameHeader(
      FrameKind(rawValue: vector.kindNumber)!,
      flags: .init(rawValue: vector.flags),
      shard: ShardID(vector.shard),
      correlation: vector.correlation
    )
    let next = try FrameDecoder().next(bytes.span.bytes, at: 0)
    #expect(next == .frame(header, payloadCount: bytes.count - FrameHeader.byteCount), "\(vector.name)")
    let payload = bytes.span.bytes.extracting(FrameHeader.byteCount..<bytes.count)
    var reader = FieldReader(payload)
    let fields = try read(vector.fields, from: &reader)
    try reader.end()
    #expect("\(fields)" == "\(vector.fields)", "\(vector.name)")
    try parse(header.kind, header.flags, payload)
  }

  /// Every error and option occurs in some vector.
  @Test func everyErrorAndOptionHasAVector() {
    let errors = Vectors.frames.filter { $0.kind == "error" }.map { $0.fields.number("code") }
    for code in ErrorCode.allCases { #expect(errors.contains(UInt64(code.rawValue)), "\(code)") }
    let options = Vectors.frames.filter {
      $0.kind == "get_channel_type_reply" || $0.kind == "patch_channel_type"
    }
    .flatMap { $0.fields.list($0.kind == "patch_channel_type" ? "patch" : "options") }
    #expect(Set(options.map { $0.number("option") }) == Set(1...12))
    #expect(Set(Vectors.frames.map(\.flags)) == [0, 1, 2, 3, 4, 5, 6, 7])
    // Each kind that allows a thread has one in some vector.
    let threads = Vectors.frames.filter { $0.flags & FrameHeader.Flags.thread.rawValue != 0 }
    let kinds: Set = [
      "register_message", "mark_read", "mark_unread", "mark_unread_since", "mark_delivered",
    ]
    #expect(Set(threads.map(\.kind)) == kinds)
  }

  @Test(arguments: Vectors.frames.indices)
  func frameVectorsAreEncoded(_ index: Int) {
    let vector = Vectors.frames[index]
    var buffer = ByteBuffer()
    buffer.writeFrame(
      FrameHeader(
        FrameKind(rawValue: vector.kindNumber)!,
        flags: .init(rawValue: vector.flags),
        shard: ShardID(vector.shard),
        correlation: vector.correlation
      )
    ) { $0.write(vector.fields) }
    #expect(Array(buffer.readableBytesView).hex == vector.hex, "\(vector.name)")
  }

  /// The types of the opening and of replies decode the vectors and encode the same bytes.
  @Test(arguments: Vectors.frames.indices)
  func typesRoundTripVectors(_ index: Int) throws {
    let vector = Vectors.frames[index]
    let fields = vector.fields
    let bytes = [UInt8](hex: vector.hex)
    let payload = bytes.span.bytes.extracting(FrameHeader.byteCount..<bytes.count)
    var frame = ByteBuffer()
    var content = ByteBuffer()
    switch vector.kind {
    case "hello":
      let hello = try Hello(payload)
      #expect(UInt64(hello.versionLowest) == fields.number("version_lowest"))
      #expect(UInt64(hello.versionHighest) == fields.number("version_highest"))
      #expect(hello.session == SessionID(high: 0x0011_2233_4455_6677, low: 0x8899_AABB_CCDD_EEFF))
      #expect(hello.sessionAgeMilliseconds == fields.optional("session_age"))
      #expect(hello.nonce.bytes == fields.bytes("nonce"))
      #expect(UInt64(hello.frameLengthMax) == fields.number("frame_length_max"))
      #expect(hello.name == fields.text("name"))
      hello.write(into: &frame)
    case "challenge":
      let challenge = try Challenge(payload)
      #expect(challenge.nonce.bytes == fields.bytes("nonce"))
      #expect(challenge.proof == fields.bytes("proof"))
      #expect(UInt64(challenge.window) == fields.number("window"))
      #expect(UInt64(challenge.shardCount) == fields.number("shard_count"))
      #expect(challenge.store == SessionID(high: 0xF0E0_D0C0_B0A0_9080, low: 0x7060_5040_3020_1000))
      challenge.write(into: &frame)
    case "proof":
      let proof = try Proof(payload)
      #expect(proof.bytes == fields.bytes("proof"))
      proof.write(into: &frame)
    case "ready":
      let ready = try Ready(payload)
      #expect(ready.isResumed == (fields.number("session") == 1))
      #expect(ready.sessionLifetimeMilliseconds == fields.number("session_lifetime"))
      #expect(ready.shards.map(\.address) == fields.list("shards").map { $0.text("address") })
      #expect(ready.shards.map { UInt64($0.first) } == fields.list("shards").map { $0.number("first") })
      #expect(ready.shards.map { UInt64($0.count) } == fields.list("shards").map { $0.number("count") })
      ready.write(into: &frame)
    case "error":
      let error = try ErrorFrame(payload)
      #expect(error.rawCode == fields.number("code"))
      #expect(error.code.map { UInt64($0.rawValue) } == fields.number("code"))
      #expect(error.detail == fields.text("detail"))
      frame.writeError(
        error.code!,
        shard: ShardID(vector.shard),
        correlation: vector.correlation,
        retryAfterMilliseconds: error.retryAfterMilliseconds,
        detail: error.detail
      )
    case "get_channel_reply", "change_members_reply", "truncate_channel_reply":
      let channel = try ChannelFields(payload)
      #expect(channel.cid == fields.text("cid"))
      #expect(UInt64(channel.memberCount) == fields.number("member_count"))
      #expect(UInt64(channel.newest.rawValue) == fields.number("newest_sequence"))
      #expect(channel.newestMessage == fields.text("newest_message"))
      #expect(UInt64(channel.newestRegistered.milliseconds) == fields.number("newest_registered"))
      channel.write(into: &content)
    case "get_channel_type_reply", "patch_channel_type_reply", "assign_channel_type_reply":
      var reader = FieldReader(payload)
      let record = try reader.channelTypeRecord()
      #expect(record.name == fields.text("type"))
      #expect(record.version == fields.number("version"))
      content.writeChannelTypeRecord(record)
    case "get_user_reply", "patch_user_reply", "assign_user_reply":
      var reader = FieldReader(payload)
      let settings = try reader.userSettings()
      Self.expect(settings, fields)
      content.writeUserSettings(settings)
    case "list_unsettled_reply":
      let unsettled = try UnsettledReply(payload)
      #expect(unsettled.types.map(\.name) == fields.list("types").map { $0.text("type") })
      #expect(unsettled.users.count == fields.list("users").count)
      for (settings, entry) in zip(unsettled.users, fields.list("users")) { Self.expect(settings, entry) }
      unsettled.write(into: &content)
    case "mark_read_reply", "mark_unread_reply", "mark_unread_since_reply", "mark_delivered_reply":
      let reply = try MarkReply(payload)
      let row = reply.row
      #expect(row.user.withUnsafeBytes { String(decoding: $0, as: UTF8.self) } == fields.text("user"))
      #expect(UInt64(row.lastRead.milliseconds) == fields.number("last_read"))
      #expect(UInt64(row.lastReadSequence.rawValue) == fields.number("last_read_sequence"))
      #expect(UInt64(row.lastDelivered.milliseconds) == fields.number("last_delivered"))
      #expect(UInt64(row.lastDeliveredSequence.rawValue) == fields.number("last_delivered_sequence"))
      let flags = fields.number("flags")
      #expect(row.hasOwnDetails == (flags & 1 != 0))
      #expect(row.isOwn == (flags & 2 != 0))
      #expect(row.isFlaggedUnread == (flags & 4 != 0))
      if row.isOwn { #expect(UInt64(row.unreadMentions) == fields.number("unread_mentions")) }
      #expect((row.joined != nil) == (flags & 64 == 64))
      if let joined = row.joined { #expect(UInt64(joined.rawValue) == fields.number("joined_sequence")) }
      if row.hasOwnDetails {
        #expect(UInt64(row.unreadMessages) == fields.number("unread_messages"))
        #expect(UInt64(row.unreadEpoch) == fields.number("unread_epoch"))
      }
      Self.write(reply, into: &content)
    case "statuses_reply":
      let results = try StatusResultFields.all(payload)
      #expect(results.count == fields.list("statuses").count)
      content.writeVarint(results.count)
      for (result, entry) in zip(results, fields.list("statuses")) {
        switch result {
        case .found(let status):
          #expect(entry.number("found") == 0)
          #expect(UInt64(status.unreadCount) == entry.number("unread_count"))
          content.writeStatusResult(status)
        case .refused(let code):
          let code = try #require(code)
          #expect(UInt64(code.rawValue) == entry.number("found"))
          content.writeStatusResult(refused: code)
        }
      }
    case "list_channels_reply":
      var reader = FieldReader(payload)
      let entries = fields.list("entries")
      content.writeVarint(try reader.count(elementBytesMin: ChannelEntryFields.byteCountMin))
      for expected in entries {
        let entry = try ChannelEntryFields(&reader)
        #expect(entry.cid == expected.text("cid"))
        #expect(entry.row.map { UInt64($0) } == expected.optional("row"))
        let member = expected.number("member")
        #expect(entry.isMember == (member & 1 == 1) && (entry.deletedAt != .none) == (member & 2 == 2))
        if member & 2 == 2 {
          #expect(UInt64(entry.deletedAt.milliseconds) == expected.number("deleted"))
        }
        #expect(UInt64(entry.joinedAt.milliseconds) == expected.number("joined"))
        entry.write(into: &content)
      }
      let next = try reader.optional32()
      #expect(next.map { UInt64($0) } == fields.optional("next_cursor"))
      content.writeOptional(next.map { UInt64($0) })
    case "unread_counts_reply":
      var reader = FieldReader(payload)
      content.writeVarint(try reader.count())
      for expected in fields.list("counts") {
        let count = try UnreadCountFields(&reader)
        switch count {
        case .found(let counts):
          #expect(expected.number("found") == 0)
          #expect(UInt64(counts.messages) == expected.number("unread_messages"))
          #expect(UInt64(counts.threads) == expected.number("unread_threads"))
          #expect(UInt64(counts.mentions) == expected.number("unread_mentions"))
          #expect((counts.isFlagged ? 1 : 0) | (counts.isMuted ? 2 : 0) == expected.number("unread_flags"))
        case .refused(let code):
          #expect(UInt64(code.rawValue) == expected.number("found"))
        }
        count.write(into: &content)
      }
    case "set_member_reply":
      let member = try SetMemberReply(payload)
      #expect(member.hasJoined == (fields.number("joined") == 1))
      #expect(member.role == fields.text("role"))
      #expect(UInt64(member.joinedAt.milliseconds) == fields.number("joined_at"))
      #expect(member.isMuted == (fields.number("muted") == 1))
      member.write(into: &content)
    case "put_channel_reply":
      let reply = try PutChannelReply(payload)
      #expect(reply.isNew == (fields.number("was_created") == 1))
      #expect(reply.channel.cid == fields.text("cid"))
      content.writePutChannelReply(isNew: reply.isNew) { reply.channel.write(into: &$0) }
    case "register_message_reply":
      let reply = try RegistrationReply(payload)
      #expect(reply.isNew == (fields.number("was_created") == 1))
      #expect(UInt64(reply.sequence.rawValue) == fields.number("sequence"))
      #expect(UInt64(reply.status.rawValue) == fields.number("status"))
      #expect(UInt64(reply.receiptRefusal.rawValue) == fields.number("receipt_refusal"))
      reply.write(into: &content)
    case "delete_message_reply":
      let reply = try DeleteMessageReply(payload)
      #expect(UInt64(reply.sequence.rawValue) == fields.number("sequence"))
      reply.write(into: &content)
    case "acknowledge_reply":
      let reply = try AcknowledgeReply(payload)
      #expect(reply.codes.map { UInt64($0?.rawValue ?? 0) } == fields.list("codes").map { $0.number("code") })
      reply.write(into: &content)
    case "get_token_reply", "revoke_token_reply":
      let reply = try TokenReply(payload)
      #expect(UInt64(reply.until.milliseconds) == fields.number("until"))
      #expect(reply.version == fields.number("version"))
      reply.write(into: &content)
    case "delete_channel_reply", "erase_member_reply", "settle_reply", "webhook_known_reply",
      "note_webhook_reply":
      content.writeFlag(try FlagReply(payload).isSet)
    case "rebuild_index_reply":
      let rebuild = try RebuildIndexReply(payload)
      #expect(UInt64(rebuild.phase.rawValue) == fields.number("phase"))
      #expect(rebuild.epoch == fields.number("epoch"))
      #expect(rebuild.channelsDone == fields.number("channels_done"))
      #expect(rebuild.channels == fields.number("channels"))
      #expect(rebuild.entries == fields.number("entries"))
      rebuild.write(into: &content)
    case "ticket_place_reply":
      var reader = FieldReader(payload)
      let place = try reader.ticketPlace()
      #expect(place.channel.rawValue == fields.number("channel"))
      #expect(UInt64(place.row.rawValue) == fields.number("row"))
      #expect(place.parent.map { UInt64($0.rawValue) } == fields.optional("parent"))
      #expect(UInt64(place.sequence.rawValue) == fields.number("sequence"))
      #expect(place.check == fields.bytes("check").reduce(0) { $0 << 8 | UInt64($1) })
      content.writeTicketPlace(place)
    case "acknowledge_push_reply", "redeem_ticket_reply", "present_ticket_reply":
      let delivery = try DeliveryReply(payload)
      #expect(delivery.moved == (fields.number("moved") & 1 == 1))
      #expect(UInt64(delivery.sent.milliseconds) == fields.number("sent"))
      #expect(UInt64(delivery.delivered.milliseconds) == fields.number("delivered"))
      #expect(delivery.cid.withUnsafeBytes { String(decoding: $0, as: UTF8.self) } == fields.text("cid"))
      #expect(delivery.user.withUnsafeBytes { String(decoding: $0, as: UTF8.self) } == fields.text("user"))
      #expect(
        delivery.message.withUnsafeBytes { String(decoding: $0, as: UTF8.self) } == fields.text("message")
      )
      DeliveryReply.write(
        moved: delivery.moved,
        delivery.uncounted,
        sent: delivery.sent,
        delivered: delivery.delivered,
        hasNames: !delivery.cid.isEmpty,
        names: { fields in
          fields.string(delivery.cid)
          fields.string(delivery.user)
          fields.string(delivery.message)
        },
        into: &content
      )
    case "events":
      let events = try EventsFields(payload)
      #expect(UInt64(events.through.milliseconds) == fields.number("through"))
      #expect(events.isLost == (fields.number("lost") == 1))
      #expect(events.channels.map(\.cid) == fields.list("channels").map { $0.text("cid") })
      #expect(events.users.map(\.user) == fields.list("users").map { $0.text("user") })
      events.write(into: &content)
    case "subscribe_reply":
      let subscribed = try SubscribedFields(payload)
      #expect(UInt64(subscribed.through.milliseconds) == fields.number("through"))
      #expect(subscribed.isComplete == (fields.number("complete") == 1))
      #expect(subscribed.channels.map(\.cid) == fields.list("channels").map { $0.text("cid") })
      subscribed.write(into: &content)
    default:
      return
    }
    if frame.readableBytes == 0 {
      frame.writeFrame(
        FrameHeader(
          FrameKind(rawValue: vector.kindNumber)!,
          shard: ShardID(vector.shard),
          correlation: vector.correlation
        )
      ) { $0.writeImmutableBuffer(content) }
    }
    #expect(Array(frame.readableBytesView).hex == vector.hex, "\(vector.name)")
  }

  /// Write a mark's reply as the store does.
  private static func write(_ reply: borrowing MarkReply, into buffer: inout ByteBuffer) {
    let own = ShownRow.OwnDetails(
      unreadMessages: reply.row.unreadMessages,
      firstUnread: .zero,
      unreadEpoch: reply.row.unreadEpoch,
      isOwn: reply.row.isOwn,
      isFlaggedUnread: reply.row.isFlaggedUnread,
      unreadMentions: reply.row.unreadMentions
    )
    let row = ShownRow(
      row: MemberOrdinal(0),
      joined: reply.row.joined ?? .zero,
      lastRead: reply.row.lastRead,
      lastReadSequence: reply.row.lastReadSequence,
      lastDelivered: reply.row.lastDelivered,
      lastDeliveredSequence: reply.row.lastDeliveredSequence,
      own: reply.row.hasOwnDetails ? own : nil
    )
    buffer.writeMarkReply(reply.uncounted) {
      RowFields.write(
        row,
        user: reply.row.user,
        lastReadMessage: reply.row.lastReadMessage,
        lastDeliveredMessage: reply.row.lastDeliveredMessage,
        firstUnreadMessage: reply.row.firstUnreadMessage,
        includesJoin: reply.row.joined != nil,
        into: &$0
      )
    }
  }

  private static func expect(_ settings: UserSettings, _ fields: [Vectors.Field]) {
    #expect(settings.user == fields.text("user"))
    #expect(settings.version == fields.number("version"))
    #expect(settings.hidesRead == (fields.number("flags") & 1 != 0))
    #expect(settings.hidesDelivered == (fields.number("flags") & 2 != 0))
    #expect(settings.isErasing == (fields.number("flags") & 4 != 0))
    #expect(settings.isErased == (fields.number("flags") & 8 != 0))
    #expect(UInt64(settings.readShownSince.milliseconds) == fields.number("read_shown_since"))
    #expect(UInt64(settings.deliveredShownSince.milliseconds) == fields.number("delivered_shown_since"))
    #expect(UInt64(settings.tokensRevokedBefore.milliseconds) == fields.number("tokens_revoked_before"))
  }

  @Test(arguments: Vectors.badFrames.indices)
  func badFrameVectorsAreRefused(_ index: Int) {
    let vector = Vectors.badFrames[index]
    let bytes = [UInt8](hex: vector.hex)
    let refusal = refusal(bytes.span.bytes, limit: vector.lengthLimit)
    #expect(refusal == vector.refusal, "\(vector.name)")
  }

  /// An invalid header is refused before any byte of the payload arrives.
  @Test func headersAreRefusedEarly() {
    for vector in Vectors.badFrames where ["lengthTooSmall", "lengthTooLarge"].contains(vector.refusal) {
      let bytes = [UInt8](hex: String(vector.hex.prefix(8)))
      #expect(refusal(bytes.span.bytes, limit: vector.lengthLimit) == vector.refusal, "\(vector.name)")
    }
    for vector in Vectors.badFrames where ["unknownKind", "badFlags"].contains(vector.refusal) {
      let bytes = [UInt8](hex: String(vector.hex.prefix(12)))
      #expect(refusal(bytes.span.bytes, limit: vector.lengthLimit) == vector.refusal, "\(vector.name)")
    }
  }

  private func refusal(_ bytes: RawSpan, limit: UInt32?) -> String {
    do throws(WireError) {
      let decoder = FrameDecoder(lengthLimit: limit ?? FrameHeader.lengthLimitDefault)
      guard case .frame(let header, let payloadCount) = try decoder.next(bytes, at: 0) else {
        return "incomplete"
      }
      let start = FrameHeader.byteCount
      try parse(header.kind, header.flags, bytes.extracting(start..<(start + payloadCount)))
      return "accepted"
    } catch {
      return error.name
    }
  }
}
