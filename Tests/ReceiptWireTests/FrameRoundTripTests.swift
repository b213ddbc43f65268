import NIOCore
import ReceiptModel
import ReceiptWire
import Testing

/// The types of frames read the vectors of Proto/vectors and write the same bytes.
struct FrameRoundTripTests {
  @Test(arguments: Vectors.frames)
  func typesRoundTripVectors(_ vector: Vectors.Frame) throws {
    let type = try #require(FrameType(byte: vector.kindNumber))
    guard let roundTrip = Self.all.first(where: { $0.types.contains(type) }) else {
      #expect(Self.withoutWriter.contains(type), "\(type)")
      return
    }
    let bytes = [UInt8](hex: vector.hex)
    var frame = ByteBuffer()
    try roundTrip.write(bytes.span.bytes.extracting(FrameHeader.byteCount..<bytes.count), vector, into: &frame)
    #expect(Array(frame.readableBytesView).hex == vector.hex, "\(vector.name)")
  }

  /// Each kind is in one entry, or in the list of kinds without one.
  @Test func everyKindIsListedOnce() {
    let types = Self.all.flatMap(\.types) + Self.withoutWriter
    #expect(types.sorted { $0.byte < $1.byte } == FrameType.allCases)
  }

  /// The ids and times of a row differ in some vector of a mark, so that fields in the wrong order are detected.
  @Test func rowsOfMarksHaveDifferentIDs() {
    let ids = Vectors.frames.filter { $0.kind == "mark_unread_reply" || $0.kind == "mark_read_reply" }
      .filter { $0.fields.contains { $0.name == "first_unread_message" } }
      .map { frame in
        Set(
          ["last_read_message", "last_delivered_message", "first_unread_message"].map { frame.fields.text($0) }
        )
      }
    #expect(ids.contains { $0.count == 3 && !$0.contains("") })
  }

  /// What the type of some kinds reads and writes.
  struct RoundTrip: Sendable {
    typealias Body = @Sendable (RawSpan, Vectors.Frame, inout ByteBuffer) throws -> Void

    let types: [FrameType]
    /// Whether the type writes the header, too.
    private let writesHeader: Bool
    private let body: Body

    static func frame(_ kinds: FrameKind..., body: @escaping Body) -> RoundTrip {
      RoundTrip(types: kinds.map { FrameType($0) }, writesHeader: true, body: body)
    }

    static func payload(_ kinds: FrameKind..., body: @escaping Body) -> RoundTrip {
      RoundTrip(types: kinds.map { FrameType($0) }, writesHeader: false, body: body)
    }

    static func reply(_ kinds: FrameKind..., body: @escaping Body) -> RoundTrip {
      RoundTrip(types: kinds.map { FrameType($0, isReply: true) }, writesHeader: false, body: body)
    }

    /// Fields of a request between its name, its counter and what its flags append.
    static func request(
      _ kinds: FrameKind...,
      body: @escaping @Sendable (inout FieldReader, Vectors.Frame, inout ByteBuffer) throws -> Void
    ) -> RoundTrip {
      RoundTrip(types: kinds.map { FrameType($0) }, writesHeader: false) { payload, vector, buffer in
        let kind = FrameKind(rawValue: vector.kindNumber)!
        let isIssued = FrameHeader.Flags(rawValue: vector.flags).contains(.issued)
        let fieldBytes = payload.byteCount - (isIssued ? FrameHeader.issuedByteCount : 0)
        var reader = FieldReader(payload.extracting(0..<fieldBytes))
        if kind.traits.contains(.named) { _ = try reader.string() }
        if kind.isCommand { _ = try reader.varint() }
        buffer.writeRaw(payload.extracting(0..<reader.offset))
        try body(&reader, vector, &buffer)
        buffer.writeRaw(payload.extracting(reader.offset..<payload.byteCount))
      }
    }

    /// Read the payload, check the values that were read, and write the frame.
    func write(_ payload: RawSpan, _ vector: Vectors.Frame, into frame: inout ByteBuffer) throws {
      guard !writesHeader else { return try body(payload, vector, &frame) }
      let start = frame.beginFrame(FrameHeader(vector))
      try body(payload, vector, &frame)
      frame.endFrame(start)
    }
  }

  static let all: [RoundTrip] =
    connection + nodes + events + channels + marks + messages + settings + lists + push + pushJobs + feed + backups
    + transfers

  /// Frames without a type that writes all their fields. ``parse`` reads them.
  static let withoutWriter =
    kindsWithoutWriter.map { FrameType($0) } + repliesWithoutWriter.map { FrameType($0, isReply: true) }

  private static let kindsWithoutWriter: [FrameKind] = [
    .ping, .pong, .drain, .putChannel, .changeMembers, .registerMessage, .patchChannelType, .assignChannelType,
    .acknowledge, .patchUser, .assignUser, .settle, .deleteChannel, .eraseMember, .getChannel, .readState, .statuses,
    .getChannelType, .listChannelTypes, .getUser, .listUnsettled, .listMembers, .memberStatuses, .listChannels,
    .unreadCounts, .purge, .rebuildIndex, .ticketPlace, .webhookKnown, .subscribe, .unsubscribe, .subscribeUser,
    .announceRow, .getToken, .listRevokedTokens, .threadReadState, .userReceipts, .userThreads, .setMember,
    .noteWebhook, .presentTicket, .listRoster, .listMessages, .revokeToken, .listConsumers, .removeConsumer,
    .backupBegin, .backupEnd, .snapshotRead, .listUsers,
  ]
  private static let repliesWithoutWriter: [FrameKind] = [
    .readState, .listMembers, .memberStatuses, .purge, .unsubscribe, .subscribeUser, .announceRow, .listRevokedTokens,
    .threadReadState, .userReceipts, .userThreads, .listRoster, .listMessages, .removeConsumer, .commitConsumer,
    .backupRead, .backupDigest, .backupEnd, .listStoredChannels, .listUsers,
  ]

  /// Handshake and errors.
  private static let connection: [RoundTrip] = [
    .frame(.hello) { payload, vector, buffer in
      let hello = try Hello(payload)
      #expect(UInt64(hello.versionLowest) == vector.fields.number("version_lowest"))
      #expect(UInt64(hello.versionHighest) == vector.fields.number("version_highest"))
      #expect(hello.session == SessionID(high: 0x0011_2233_4455_6677, low: 0x8899_AABB_CCDD_EEFF))
      #expect(hello.sessionAgeMilliseconds == vector.fields.optional("session_age"))
      #expect(hello.nonce.bytes == vector.fields.bytes("nonce"))
      #expect(UInt64(hello.frameLengthMax) == vector.fields.number("frame_length_max"))
      #expect(hello.name == vector.fields.text("name"))
      hello.write(into: &buffer)
    },
    .frame(.challenge) { payload, vector, buffer in
      let challenge = try Challenge(payload)
      #expect(challenge.nonce.bytes == vector.fields.bytes("nonce"))
      #expect(challenge.proof == vector.fields.bytes("proof"))
      #expect(UInt64(challenge.window) == vector.fields.number("window"))
      #expect(UInt64(challenge.shardCount) == vector.fields.number("shard_count"))
      #expect(challenge.store == SessionID(high: 0xF0E0_D0C0_B0A0_9080, low: 0x7060_5040_3020_1000))
      challenge.write(into: &buffer)
    },
    .frame(.proof) { payload, vector, buffer in
      let proof = try Proof(payload)
      #expect(proof.bytes == vector.fields.bytes("proof"))
      proof.write(into: &buffer)
    },
    .frame(.ready) { payload, vector, buffer in
      let ready = try Ready(payload)
      #expect(ready.isResumed == (vector.fields.number("session") == 1))
      #expect(ready.sessionLifetimeMilliseconds == vector.fields.number("session_lifetime"))
      #expect(ready.shards.map(\.address) == vector.fields.list("shards").map { $0.text("address") })
      #expect(ready.shards.map { UInt64($0.first) } == vector.fields.list("shards").map { $0.number("first") })
      #expect(ready.shards.map { UInt64($0.count) } == vector.fields.list("shards").map { $0.number("count") })
      ready.write(into: &buffer)
    },
    .frame(.error) { payload, vector, buffer in
      let error = try ErrorFrame(payload)
      #expect(error.rawCode == vector.fields.number("code"))
      #expect(error.code.map { UInt64($0.rawValue) } == vector.fields.number("code"))
      #expect(error.detail == vector.fields.text("detail"))
      buffer.writeError(
        error.code!,
        shard: ShardID(vector.shard),
        correlation: vector.correlation,
        retryAfterMilliseconds: error.retryAfterMilliseconds,
        detail: error.detail
      )
    },
  ]

  /// Between the nodes of a cluster, and the shards that a node owns.
  private static let nodes: [RoundTrip] = [
    .frame(.shardMap) { payload, vector, buffer in
      let map = try ShardMap(payload)
      let owned = vector.fields.list("owned")
      #expect(map.owned.map { UInt64($0.first) } == owned.map { $0.number("first") })
      #expect(map.owned.map { UInt64($0.count) } == owned.map { $0.number("count") })
      #expect(map.owned.map(\.epoch) == owned.map { $0.number("epoch") })
      #expect(UInt64(map.node) == vector.fields.number("node"))
      #expect(map.peers.map { UInt64($0.node) } == vector.fields.list("peers").map { $0.number("node") })
      #expect(map.peers.map(\.host) == vector.fields.list("peers").map { $0.text("host") })
      #expect(map.peers.map { UInt64($0.port) } == vector.fields.list("peers").map { $0.number("port") })
      map.write(into: &buffer)
    },
    .frame(.deliverChanges) { payload, vector, buffer in
      let delivery = try MembershipDelivery(to: ShardID(vector.shard), payload)
      #expect(UInt64(delivery.from.rawValue) == vector.fields.number("from"))
      #expect(delivery.after == vector.fields.number("after"))
      #expect(delivery.changes.map(\.number) == vector.fields.list("changes").map { $0.number("number") })
      delivery.write(into: &buffer)
    },
    .frame(.confirmChanges) { payload, vector, buffer in
      let confirmation = try MembershipConfirmation(to: ShardID(vector.shard), payload)
      #expect(UInt64(confirmation.from.rawValue) == vector.fields.number("from"))
      #expect(confirmation.through == vector.fields.number("through"))
      confirmation.write(into: &buffer)
    },
    .payload(.snapshotBegin) { payload, vector, buffer in
      let request = try SnapshotRequest(payload)
      #expect(UInt64(request.group) == vector.fields.number("group"))
      #expect(UInt64(request.shards.lowerBound) == vector.fields.number("first"))
      #expect(UInt64(request.shards.count) == vector.fields.number("count"))
      #expect(request.asksOwner == (vector.fields.number("from") == 1))
      request.write(into: &buffer)
    },
    .reply(.snapshotBegin) { payload, vector, buffer in
      let head = try SnapshotHead(payload)
      #expect(head.position == vector.fields.number("position"))
      #expect(head.epoch == vector.fields.number("epoch"))
      #expect(head.hash == vector.fields.bytes("hash").reduce(0) { $0 << 8 | UInt64($1) })
      #expect(head.key == vector.fields.number("record_key"))
      head.write(into: &buffer)
    },
    .payload(.recordKeys) { payload, vector, buffer in
      let request = try RecordKeysRequest(payload)
      #expect(UInt64(request.group) == vector.fields.number("group"))
      request.write(into: &buffer)
    },
    .reply(.recordKeys) { payload, vector, buffer in
      let list = try RecordKeyList(payload)
      #expect(list.keys.map(\.number) == vector.fields.list("keys").map { $0.number("number") })
      #expect(list.keys.map(\.secret) == vector.fields.list("keys").map { $0.bytes("secret") })
      list.write(into: &buffer)
    },
    .reply(.snapshotRead) { payload, vector, buffer in
      let part = try SnapshotPart(payload)
      #expect(part.isLast == (vector.fields.number("is_last") == 1))
      #expect(part.total == vector.fields.number("total"))
      #expect(part.digest == vector.fields.bytes("digest"))
      #expect(Array(part.bytes.readableBytesView) == vector.fields.bytes("bytes"))
      part.write(into: &buffer)
    },
  ]

  /// Subscriptions and their events.
  private static let events: [RoundTrip] = [
    .payload(.events) { payload, vector, buffer in
      let events = try EventsFields(payload)
      #expect(UInt64(events.through.milliseconds) == vector.fields.number("through"))
      #expect(events.isLost == (vector.fields.number("lost") == 1))
      #expect(events.channels.map(\.cid) == vector.fields.list("channels").map { $0.text("cid") })
      #expect(events.users.map(\.user) == vector.fields.list("users").map { $0.text("user") })
      events.write(into: &buffer)
    },
    .reply(.subscribe) { payload, vector, buffer in
      let subscribed = try SubscribedFields(payload)
      #expect(UInt64(subscribed.through.milliseconds) == vector.fields.number("through"))
      #expect(subscribed.isComplete == (vector.fields.number("complete") == 1))
      #expect(subscribed.channels.map(\.cid) == vector.fields.list("channels").map { $0.text("cid") })
      subscribed.write(into: &buffer)
    },
  ]

  /// Channels and members.
  private static let channels: [RoundTrip] = [
    .reply(.getChannel, .changeMembers, .truncateChannel) { payload, vector, buffer in
      let channel = try ChannelFields(payload)
      #expect(channel.cid == vector.fields.text("cid"))
      #expect(UInt64(channel.memberCount) == vector.fields.number("member_count"))
      #expect(UInt64(channel.newest.rawValue) == vector.fields.number("newest_sequence"))
      #expect(channel.newestMessage == vector.fields.text("newest_message"))
      #expect(UInt64(channel.newestRegistered.milliseconds) == vector.fields.number("newest_registered"))
      channel.write(into: &buffer)
    },
    .reply(.putChannel) { payload, vector, buffer in
      let reply = try PutChannelReply(payload)
      #expect(reply.isNew == (vector.fields.number("was_created") == 1))
      #expect(reply.channel.cid == vector.fields.text("cid"))
      buffer.writePutChannelReply(isNew: reply.isNew) { reply.channel.write(into: &$0) }
    },
    .reply(.setMember) { payload, vector, buffer in
      let member = try SetMemberReply(payload)
      #expect(member.hasJoined == (vector.fields.number("joined") == 1))
      #expect(member.role == vector.fields.text("role"))
      #expect(UInt64(member.joinedAt.milliseconds) == vector.fields.number("joined_at"))
      #expect(member.isMuted == (vector.fields.number("muted") == 1))
      member.write(into: &buffer)
    },
    .reply(.deleteChannel, .eraseMember, .settle, .webhookKnown, .noteWebhook, .putConsumer, .importChannel) {
      payload,
      _,
      buffer in
      buffer.writeFlag(try FlagReply(payload).isSet)
    },
  ]

  /// Marks and statuses.
  private static let marks: [RoundTrip] = [
    .reply(.markRead, .markUnread, .markUnreadSince, .markDelivered) { payload, vector, buffer in
      let reply = try MarkReply(payload)
      let row = reply.row
      #expect(text(row.user) == vector.fields.text("user"))
      #expect(UInt64(row.lastRead.milliseconds) == vector.fields.number("last_read"))
      #expect(text(row.lastReadMessage) == vector.fields.text("last_read_message"))
      #expect(UInt64(row.lastReadSequence.rawValue) == vector.fields.number("last_read_sequence"))
      #expect(UInt64(row.lastDelivered.milliseconds) == vector.fields.number("last_delivered"))
      #expect(text(row.lastDeliveredMessage) == vector.fields.text("last_delivered_message"))
      #expect(UInt64(row.lastDeliveredSequence.rawValue) == vector.fields.number("last_delivered_sequence"))
      let flags = vector.fields.number("flags")
      #expect(row.hasOwnDetails == (flags & 1 != 0))
      #expect(row.isOwn == (flags & 2 != 0))
      #expect(row.isFlaggedUnread == (flags & 4 != 0))
      if row.isOwn { #expect(UInt64(row.unreadMentions) == vector.fields.number("unread_mentions")) }
      #expect((row.joined != nil) == (flags & 64 == 64))
      if let joined = row.joined { #expect(UInt64(joined.rawValue) == vector.fields.number("joined_sequence")) }
      if row.hasOwnDetails {
        #expect(text(row.firstUnreadMessage) == vector.fields.text("first_unread_message"))
        #expect(UInt64(row.unreadMessages) == vector.fields.number("unread_messages"))
        #expect(UInt64(row.unreadEpoch) == vector.fields.number("unread_epoch"))
      }
      write(reply, into: &buffer)
    },
    .reply(.statuses) { payload, vector, buffer in
      let results = try StatusResultFields.all(payload)
      #expect(results.count == vector.fields.list("statuses").count)
      buffer.writeVarint(results.count)
      for (result, entry) in zip(results, vector.fields.list("statuses")) {
        switch result {
        case .found(let status):
          #expect(entry.number("found") == 0)
          #expect(UInt64(status.unreadCount) == entry.number("unread_count"))
          buffer.writeStatusResult(status)
        case .refused(let code):
          let code = try #require(code)
          #expect(UInt64(code.rawValue) == entry.number("found"))
          buffer.writeStatusResult(refused: code)
        }
      }
    },
    .request(.markRead, .markUnread) { reader, vector, buffer in
      let mark = try MarkRequest(&reader, hasEpoch: true)
      #expect(text(mark.user) == vector.fields.text("user"))
      #expect(text(mark.message) == vector.fields.text("message"))
      #expect(mark.epoch.map { UInt64($0) } == vector.fields.optional("unread_epoch"))
      buffer.writeMark(user: mark.user, message: mark.message, epoch: mark.epoch.map { UInt64($0) })
    },
    .request(.markDelivered) { reader, vector, buffer in
      let mark = try MarkRequest(&reader, hasEpoch: false)
      #expect(text(mark.user) == vector.fields.text("user"))
      #expect(text(mark.message) == vector.fields.text("message"))
      buffer.writeMarkDelivered(user: mark.user, message: mark.message)
    },
    .request(.markUnreadSince) { reader, vector, buffer in
      let mark = try MarkUnreadSinceRequest(&reader)
      #expect(text(mark.user) == vector.fields.text("user"))
      #expect(UInt64(mark.since.milliseconds) == vector.fields.number("since"))
      #expect(mark.epoch.map { UInt64($0) } == vector.fields.optional("unread_epoch"))
      buffer.writeMarkUnreadSince(user: mark.user, since: mark.since, epoch: mark.epoch.map { UInt64($0) })
    },
  ]

  /// Messages and acknowledgements.
  private static let messages: [RoundTrip] = [
    .reply(.registerMessage) { payload, vector, buffer in
      let reply = try RegistrationReply(payload)
      #expect(reply.isNew == (vector.fields.number("was_created") == 1))
      #expect(UInt64(reply.sequence.rawValue) == vector.fields.number("sequence"))
      #expect(UInt64(reply.status.rawValue) == vector.fields.number("status"))
      #expect(UInt64(reply.acknowledgementRequestRefusal.rawValue) == vector.fields.number("receipt_refusal"))
      reply.write(into: &buffer)
    },
    .reply(.deleteMessage) { payload, vector, buffer in
      let reply = try DeleteMessageReply(payload)
      #expect(UInt64(reply.sequence.rawValue) == vector.fields.number("sequence"))
      reply.write(into: &buffer)
    },
    .reply(.acknowledge) { payload, vector, buffer in
      let reply = try AcknowledgeReply(payload)
      #expect(reply.codes.map { UInt64($0?.rawValue ?? 0) } == vector.fields.list("codes").map { $0.number("code") })
      reply.write(into: &buffer)
    },
    .request(.deleteMessage, .truncateChannel) { reader, vector, buffer in
      let request = try MessageRequest(&reader)
      #expect(text(request.message) == vector.fields.text("message"))
      buffer.writeMessageRequest(request.message)
    },
  ]

  /// Settings of channel types and users, and tokens.
  private static let settings: [RoundTrip] = [
    .reply(.getChannelType, .patchChannelType, .assignChannelType) { payload, vector, buffer in
      var reader = FieldReader(payload)
      let record = try reader.channelTypeRecord()
      #expect(record.name == vector.fields.text("type"))
      #expect(record.version == vector.fields.number("version"))
      buffer.writeChannelTypeRecord(record)
    },
    .reply(.getUser, .patchUser, .assignUser) { payload, vector, buffer in
      var reader = FieldReader(payload)
      let settings = try reader.userSettings()
      expect(settings, vector.fields)
      buffer.writeUserSettings(settings)
    },
    .reply(.listUnsettled) { payload, vector, buffer in
      let unsettled = try UnsettledReply(payload)
      #expect(unsettled.types.map(\.name) == vector.fields.list("types").map { $0.text("type") })
      #expect(unsettled.users.count == vector.fields.list("users").count)
      for (settings, entry) in zip(unsettled.users, vector.fields.list("users")) { expect(settings, entry) }
      unsettled.write(into: &buffer)
    },
    .reply(.getToken, .revokeToken) { payload, vector, buffer in
      let reply = try TokenReply(payload)
      #expect(UInt64(reply.until.milliseconds) == vector.fields.number("until"))
      #expect(reply.version == vector.fields.number("version"))
      reply.write(into: &buffer)
    },
    .reply(.listChannelTypes) { payload, vector, buffer in
      var reader = FieldReader(payload)
      let types = try reader.channelTypeRecords()
      #expect(types.map(\.name) == vector.fields.list("types").map { $0.text("type") })
      #expect(types.map(\.version) == vector.fields.list("types").map { $0.number("version") })
      buffer.writeChannelTypeRecords(types)
    },
  ]

  /// Lists of a user's channels, and the index.
  private static let lists: [RoundTrip] = [
    .reply(.listChannels) { payload, vector, buffer in
      var reader = FieldReader(payload)
      let entries = vector.fields.list("entries")
      buffer.writeVarint(try reader.count(elementBytesMin: ChannelEntryFields.byteCountMin))
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
        entry.write(into: &buffer)
      }
      let next = try reader.optional32()
      #expect(next.map { UInt64($0) } == vector.fields.optional("next_cursor"))
      buffer.writeOptional(next.map { UInt64($0) })
    },
    .reply(.unreadCounts) { payload, vector, buffer in
      var reader = FieldReader(payload)
      buffer.writeVarint(try reader.count())
      for expected in vector.fields.list("counts") {
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
        count.write(into: &buffer)
      }
    },
    .reply(.rebuildIndex) { payload, vector, buffer in
      let rebuild = try RebuildIndexReply(payload)
      #expect(UInt64(rebuild.phase.rawValue) == vector.fields.number("phase"))
      #expect(rebuild.epoch == vector.fields.number("epoch"))
      #expect(rebuild.channelsDone == vector.fields.number("channels_done"))
      #expect(rebuild.channels == vector.fields.number("channels"))
      #expect(rebuild.entries == vector.fields.number("entries"))
      rebuild.write(into: &buffer)
    },
  ]

  /// Push tickets.
  private static let push: [RoundTrip] = [
    .reply(.ticketPlace) { payload, vector, buffer in
      var reader = FieldReader(payload)
      let place = try reader.ticketPlace()
      #expect(place.channel.rawValue == vector.fields.number("channel"))
      #expect(UInt64(place.row.rawValue) == vector.fields.number("row"))
      #expect(place.parent.map { UInt64($0.rawValue) } == vector.fields.optional("parent"))
      #expect(UInt64(place.sequence.rawValue) == vector.fields.number("sequence"))
      #expect(place.check == vector.fields.bytes("check").reduce(0) { $0 << 8 | UInt64($1) })
      buffer.writeTicketPlace(place)
    },
    .request(.acknowledgePush) { reader, vector, buffer in
      let request = try AcknowledgePushRequest(&reader)
      #expect(text(request.user) == vector.fields.text("user"))
      #expect(text(request.message) == vector.fields.text("message"))
      #expect(UInt64(request.acked.milliseconds) == vector.fields.number("acked"))
      expect(request.flags, provider: request.provider, device: request.device, vector.fields)
      buffer.writeAcknowledgePush(
        user: request.user,
        message: request.message,
        acked: request.acked,
        wantsNames: request.flags & PushFlags.names != 0,
        provider: request.provider,
        device: request.device
      )
    },
    .request(.redeemTicket) { reader, vector, buffer in
      let request = try RedeemTicketRequest(&reader)
      #expect(request.place.channel.rawValue == vector.fields.number("channel"))
      #expect(UInt64(request.acked.milliseconds) == vector.fields.number("acked"))
      expect(request.flags, provider: request.provider, device: request.device, vector.fields)
      var place = ByteBuffer()
      place.writeTicketPlace(request.place)
      buffer.writeRedeemTicket(
        place: place.readableBytesSpan,
        acked: request.acked,
        wantsNames: request.flags & PushFlags.names != 0,
        provider: request.provider,
        device: request.device
      )
    },
    .reply(.acknowledgePush, .redeemTicket, .presentTicket) { payload, vector, buffer in
      let delivery = try DeliveryReply(payload)
      #expect(delivery.moved == (vector.fields.number("moved") & 1 == 1))
      #expect(UInt64(delivery.sent.milliseconds) == vector.fields.number("sent"))
      #expect(UInt64(delivery.delivered.milliseconds) == vector.fields.number("delivered"))
      #expect(text(delivery.cid) == vector.fields.text("cid"))
      #expect(text(delivery.user) == vector.fields.text("user"))
      #expect(
        text(delivery.message) == vector.fields.text("message")
      )
      DeliveryReply.write(
        moved: delivery.moved,
        delivery.uncounted,
        sent: delivery.sent,
        delivered: delivery.delivered,
        hasNames: !delivery.cid.isEmpty,
        names: { names in
          names.string(delivery.cid)
          names.string(delivery.user)
          names.string(delivery.message)
        },
        into: &buffer
      )
    },
  ]

  /// The feed and its consumers.
  private static let feed: [RoundTrip] = [
    .request(.readFeed) { reader, vector, buffer in
      let request = try ReadFeedRequest(&reader)
      expect(request.partition, vector.fields)
      #expect(request.epoch == vector.fields.number("epoch"))
      #expect(request.number == vector.fields.number("number"))
      #expect(request.flags == vector.fields.number("flags"))
      #expect(UInt64(request.limit) == vector.fields.number("limit"))
      request.write(into: &buffer)
    },
    .request(.putConsumer) { reader, vector, buffer in
      let request = try PutConsumerRequest(&reader)
      #expect(UInt64(request.kinds.rawValue) == vector.fields.number("kinds"))
      #expect(request.channelTypes == vector.fields.list("channel_types").map { $0.text("type") })
      #expect(UInt64(request.start.rawValue) == vector.fields.number("start"))
      #expect(UInt64(request.since.milliseconds) == vector.fields.number("since"))
      request.write(into: &buffer)
    },
    .request(.openPartition) { reader, vector, buffer in
      let request = try OpenPartitionRequest(&reader)
      expect(request.partition, vector.fields)
      #expect(request.epoch == vector.fields.number("epoch"))
      request.write(into: &buffer)
    },
    .request(.commitConsumer) { reader, vector, buffer in
      let request = try CommitConsumerRequest(&reader)
      let flags = vector.fields.number("flags")
      expect(request.partition, vector.fields)
      #expect((request.commit.position != nil) == (flags & 1 != 0))
      if let position = request.commit.position {
        #expect(position.number == vector.fields.number("number"))
        #expect(UInt64(position.time.milliseconds) == vector.fields.number("position_time"))
      }
      #expect(request.commit.state == (flags & 2 == 0 ? nil : Array(vector.fields.text("state").utf8)))
      #expect(request.commit.epoch == (flags & 4 == 0 ? nil : vector.fields.number("epoch")))
      request.write(into: &buffer)
    },
    .request(.leasePartitions) { reader, vector, buffer in
      let lease = try LeasePartitionsRequest(&reader)
      #expect(lease.request.worker == vector.fields.text("worker"))
      #expect(UInt64(lease.request.partitionCount) == vector.fields.number("partitions"))
      #expect(UInt64(lease.request.milliseconds) == vector.fields.number("milliseconds"))
      #expect(lease.request.held.map { UInt64($0) } == vector.fields.list("held").map { $0.number("index") })
      lease.write(into: &buffer)
    },
    .reply(.listConsumers) { payload, vector, buffer in
      let reply = try ConsumersReply(payload)
      #expect(reply.retentionMilliseconds == vector.fields.number("retention"))
      #expect(reply.end == vector.fields.number("end"))
      let expected = vector.fields.list("consumers")
      #expect(reply.entries.count == expected.count)
      for (entry, fields) in zip(reply.entries, expected) {
        expect(entry.consumer, fields)
        #expect(entry.states.count == fields.list("states").count)
        for (state, stored) in zip(entry.states, fields.list("states")) {
          expect(state.partition, stored)
          #expect(state.bytes == Array(stored.text("state").utf8))
        }
      }
      reply.write(into: &buffer)
    },
    .reply(.readFeed) { payload, vector, buffer in
      var reader = FieldReader(payload)
      let reply = try ReadFeedReply(&reader)
      #expect(reply.number == vector.fields.number("number"))
      #expect(reply.end == vector.fields.number("end"))
      #expect(UInt64(reply.through.milliseconds) == vector.fields.number("through"))
      #expect(UInt64(reply.gapTo.milliseconds) == vector.fields.number("gap_to"))
      reply.write(into: &buffer)
      // The store writes the records from its state.
      let start = reader.offset
      let expected = vector.fields.list("records")
      let count = try reader.count(elementBytesMin: NamedFeedRecord.byteCountMin)
      #expect(count == expected.count)
      for fields in expected {
        let record = try NamedFeedRecord(&reader)
        expect(record, fields)
      }
      try reader.end()
      buffer.writeRaw(payload.extracting(start..<payload.byteCount))
    },
    .reply(.openPartition) { payload, vector, buffer in
      let reply = try OpenPartitionReply(payload)
      #expect(reply.position == vector.fields.number("number"))
      #expect(UInt64(reply.positionTime.milliseconds) == vector.fields.number("position_time"))
      #expect(reply.state == Array(vector.fields.text("state").utf8))
      reply.write(into: &buffer)
    },
    .reply(.leasePartitions) { payload, vector, buffer in
      let reply = try LeasePartitionsReply(payload)
      #expect(UInt64(reply.workerCount) == vector.fields.number("workers"))
      #expect(reply.partitions.map { UInt64($0) } == vector.fields.list("granted").map { $0.number("index") })
      reply.write(into: &buffer)
    },
  ]

  /// Push jobs.
  private static let pushJobs: [RoundTrip] = [
    .request(.putPushJob) { reader, vector, buffer in
      let request = try PutPushJobRequest(&reader)
      #expect(request.message == Array(vector.fields.text("message").utf8))
      #expect(request.key == vector.fields.number("key"))
      #expect(request.milliseconds == vector.fields.number("milliseconds"))
      #expect(request.content == Array(vector.fields.text("content").utf8))
      #expect(request.users == users(vector.fields))
      request.write(into: &buffer)
    },
    .reply(.putPushJob) { payload, vector, buffer in
      let reply = try PutPushJobReply(payload)
      #expect(reply.accepted == vector.fields.number("accepted"))
      reply.write(into: &buffer)
    },
    .request(.claimPushJobs) { reader, vector, buffer in
      let request = try ClaimPushJobsRequest(&reader)
      #expect(request.milliseconds == vector.fields.number("milliseconds"))
      #expect(request.limit == vector.fields.number("limit"))
      #expect(request.byteCountMax == vector.fields.number("bytes"))
      request.write(into: &buffer)
    },
    .reply(.claimPushJobs) { payload, vector, buffer in
      let reply = try PushJobsReply(payload)
      #expect(reply.hasMore == (vector.fields.number("more") == 1))
      let expected = vector.fields.list("jobs")
      #expect(reply.jobs.count == expected.count)
      for ((claim, job), fields) in zip(reply.jobs, expected) {
        #expect(claim == fields.number("claim"))
        #expect(job.key == fields.number("key"))
        #expect(UInt64(job.createdAt.milliseconds) == fields.number("created"))
        #expect(UInt64(job.expiresAt.milliseconds) == fields.number("expires_at"))
        #expect(job.content == Array(fields.text("content").utf8))
        #expect(job.users == users(fields))
      }
      reply.write(into: &buffer)
    },
    .request(.updatePushJobs) { reader, vector, buffer in
      let request = try UpdatePushJobsRequest(&reader)
      #expect(request.isDone == (vector.fields.number("done") == 1))
      #expect(request.milliseconds == vector.fields.number("milliseconds"))
      #expect(request.jobs.map(\.key) == vector.fields.list("jobs").map { $0.number("key") })
      #expect(request.jobs.map(\.claim) == vector.fields.list("jobs").map { $0.number("claim") })
      request.write(into: &buffer)
    },
    .reply(.updatePushJobs) { payload, vector, buffer in
      let reply = try UpdatePushJobsReply(payload)
      #expect(reply.unknown.map(\.key) == vector.fields.list("unknown").map { $0.number("key") })
      #expect(reply.unknown.map(\.claim) == vector.fields.list("unknown").map { $0.number("claim") })
      reply.write(into: &buffer)
    },
  ]

  private static func users(_ fields: [Vectors.Field]) -> [PushJob.User] {
    fields.list("users").map {
      PushJob.User(id: Array($0.text("user").utf8), devices: Array($0.text("devices").utf8))
    }
  }

  /// Backups.
  private static let backups: [RoundTrip] = [
    .reply(.backupBegin) { payload, vector, buffer in
      let contents = try BackupContents(payload)
      #expect(UInt64(contents.time.milliseconds) == vector.fields.number("time"))
      #expect(contents.indexes.map(\.rawValue) == vector.fields.list("indexes").map { $0.number("index") })
      #expect(contents.files.map(\.name) == vector.fields.list("files").map { $0.text("name") })
      #expect(contents.files.map(\.size) == vector.fields.list("files").map { $0.number("size") })
      contents.write(into: &buffer)
    },
    .payload(.backupRead, .backupDigest) { payload, vector, buffer in
      let part = try BackupPart(payload)
      #expect(UInt64(part.file) == vector.fields.number("file"))
      #expect(part.offset == vector.fields.number("offset"))
      #expect(part.count == vector.fields.number("count"))
      part.write(into: &buffer)
    },
  ]

  private static func text(_ bytes: RawSpan) -> String {
    bytes.withUnsafeBytes { String(decoding: $0, as: UTF8.self) }
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

  /// Check the flags of a push ack, and the provider and device that follow flag 2; without it both are empty.
  private static func expect(_ flags: UInt64, provider: RawSpan, device: RawSpan, _ fields: [Vectors.Field]) {
    #expect(flags == fields.number("flags"))
    let hasSource = flags & PushFlags.source != 0
    #expect(text(provider) == (hasSource ? fields.text("provider") : ""))
    #expect(text(device) == (hasSource ? fields.text("device") : ""))
  }

  private static func expect(_ partition: FeedPartition, _ fields: [Vectors.Field]) {
    #expect(UInt64(partition.index) == fields.number("index"))
    #expect(UInt64(partition.count) == fields.number("partitions"))
  }

  private static func expect(_ consumer: FeedConsumer, _ fields: [Vectors.Field]) {
    #expect(consumer.name == fields.text("consumer"))
    #expect(UInt64(consumer.kinds.rawValue) == fields.number("kinds"))
    #expect(consumer.channelTypes == fields.list("channel_types").map { $0.text("type") })
    #expect(UInt64(consumer.since.milliseconds) == fields.number("since"))
    #expect(consumer.position == fields.number("number"))
    #expect(UInt64(consumer.positionTime.milliseconds) == fields.number("position_time"))
    #expect(UInt64(consumer.committedAt.milliseconds) == fields.number("committed_at"))
    expect(consumer.partition, fields)
    #expect(consumer.epoch == fields.number("epoch"))
  }

  private static func expect(_ record: borrowing NamedFeedRecord, _ fields: [Vectors.Field]) {
    let numbers = [
      UInt64(record.kind.rawValue), record.number, UInt64(record.at.milliseconds), UInt64(record.sequence.rawValue),
      record.first, record.second,
    ]
    #expect(numbers == ["kind", "number", "at", "sequence", "first", "second"].map { fields.number($0) })
    let texts = [
      text(record.cid), text(record.user), text(record.message), text(record.thread), text(record.text),
      text(record.detail),
    ]
    #expect(texts == ["cid", "user", "message", "thread", "text", "detail"].map { fields.text($0) })
    var users: [String] = []
    record.users?.forEach { users.append(text($0)) }
    #expect(users == (record.kind == .reminderDue ? fields.list("users").map { $0.text("user") } : []))
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
}
