import NIOCore
import ReceiptModel
import ReceiptWire
import Testing

/// Effects, batches and pages against Proto/vectors/log.json, in both directions.
struct LogVectorTests {
  /// A known effect without its fields is truncated. An unknown effect is refused by name.
  @Test func everyEffectHasVector() {
    var known: Set<UInt8> = []
    for number in UInt8.min...UInt8.max {
      let bytes = [number, 0]
      var reader = FieldReader(bytes.span.bytes)
      do throws(WireError) {
        // One effect has no fields.
        let effect = try reader.effect()
        #expect(effect == .shard(.idsWidened), "\(number): an effect without fields")
        known.insert(number)
      } catch {
        #expect(error == .truncated || error == .badValue(.effect), "\(number)")
        if error == .truncated { known.insert(number) }
      }
    }
    #expect(known == Set(Vectors.log.effects.map { [UInt8](hex: $0.hex)[0] }))
    #expect(known.count == 63)
  }

  /// Every effect that the model allows in a thread has a vector in one.
  @Test func everyEffectOfThreadHasVector() {
    let all = Set(Vectors.log.effects.filter { Self.isThreadable(Self.effect($0)) }.map(\.effect))
    let inThreads = Vectors.log.effects.filter { $0.effect == "in_thread" }.map { $0.fields.text("inner") }
    #expect(Set(inThreads.map { $0.split(separator: ":")[0] }) == Set(all.map { $0[...] }))
    // The other effects are refused in threads.
    let refused = Vectors.log.badBatches.filter { $0.refusal == "badValue:effect" }.map(\.name)
    for kind in Set(Vectors.log.effects.map(\.effect)).subtracting(all) where kind != "in_thread" {
      #expect(refused.contains("in a thread: \(kind)"), "\(kind)")
    }
  }

  /// A nested thread is refused at the second level, at any depth. A recursive reader would overflow its stack.
  @Test(arguments: [2, 3, 100, 200_000])
  func nestedThreadsAreRefused(_ depth: Int) {
    // Built backwards from the innermost effect, because the lengths depend on the content.
    var reversed = Array(
      [UInt8](hex: Vectors.log.effects.first { $0.effect == "read_moved" }!.hex).reversed()
    )
    for _ in 0..<depth {
      reversed.append(1)
      var length = ByteBuffer()
      length.writeVarint(reversed.count)
      reversed += length.readableBytesView.reversed()
      reversed.append(41)
    }
    let bytes = Array(reversed.reversed())
    var reader = FieldReader(bytes.span.bytes)
    do throws(WireError) {
      _ = try reader.effect()
      Issue.record("taken")
    } catch {
      #expect(error == .badValue(.effect))
    }
    // The kind, the length, the parent, and the kind of the nested effect.
    #expect(reader.offset < 12)
  }

  @Test(arguments: Vectors.log.effects)
  func effectVectorsRoundTrip(_ vector: Vectors.Effect) throws {
    let effect = Self.effect(vector)
    var buffer = ByteBuffer()
    buffer.writeEffect(effect)
    #expect(Array(buffer.readableBytesView).hex == vector.hex, "\(vector.name)")
    let bytes = [UInt8](hex: vector.hex)
    var reader = FieldReader(bytes.span.bytes)
    #expect(try reader.effect() == effect, "\(vector.name)")
    try reader.end()
  }

  @Test(arguments: Vectors.log.batches)
  func batchVectorsRoundTrip(_ vector: Vectors.Batch) throws {
    let batch = LogBatch(
      index: LogIndex(vector.index),
      time: Timestamp(milliseconds: vector.time),
      sessions: vector.sessions.map(Self.session),
      effects: vector.effects.map(Self.effect(named:))
    )
    let bytes = [UInt8](hex: vector.hex)
    #expect(try LogBatch(bytes.span.bytes) == batch, "\(vector.name)")
    var effects = ByteBuffer()
    for effect in batch.effects { effects.writeEffect(effect) }
    var buffer = ByteBuffer()
    LogBatch.write(
      index: batch.index,
      time: batch.time,
      sessions: batch.sessions,
      effectCount: batch.effects.count,
      effects: effects,
      into: &buffer
    )
    #expect(Array(buffer.readableBytesView).hex == vector.hex, "\(vector.name)")
  }

  @Test(arguments: Vectors.log.pages)
  func pageVectorsRoundTrip(_ vector: Vectors.Page) throws {
    let page = Page(index: LogIndex(vector.index), effects: vector.effects.map(Self.effect(named:)))
    let bytes = [UInt8](hex: vector.hex)
    #expect(try Page(bytes.span.bytes) == page, "\(vector.name)")
    var buffer = ByteBuffer()
    page.write(into: &buffer)
    #expect(Array(buffer.readableBytesView).hex == vector.hex, "\(vector.name)")
  }

  @Test(arguments: Vectors.log.badBatches)
  func badBatchVectorsAreRefused(_ vector: Vectors.Bad) {
    let bytes = [UInt8](hex: vector.hex)
    do throws(WireError) {
      _ = try LogBatch(bytes.span.bytes)
      Issue.record("\(vector.name): accepted")
    } catch {
      #expect(error.name == vector.refusal, "\(vector.name)")
    }
  }

  /// A truncated value never passes for a complete one.
  @Test func everyPrefixOfBatchIsRefused() {
    for vector in Vectors.log.batches {
      let bytes = [UInt8](hex: vector.hex)
      for count in 0..<bytes.count {
        #expect(throws: WireError.self, "\(vector.name) at \(count)") {
          try LogBatch(bytes.span.bytes.extracting(0..<count))
        }
      }
    }
  }

  private static func isThreadable(_ effect: Effect) -> Bool {
    if case .channel(_, let effect) = effect { effect.traits.contains(.threadable) } else { false }
  }

  static func effect(named name: String) -> Effect { effect(Vectors.log.effects.first { $0.name == name }!) }

  static func session(_ fields: [Vectors.Field]) -> SessionRecord {
    let bytes = fields.bytes("session")
    let halves = [bytes.prefix(8), bytes.suffix(8)].map { $0.reduce(UInt64(0)) { $0 << 8 | UInt64($1) } }
    return SessionRecord(
      session: SessionID(high: halves[0], low: halves[1]),
      highest: fields.number("highest"),
      notApplied: fields.list("not_applied").map { $0.number("counter") },
      lastWritten: time(fields, "last_written")
    )
  }

  private static func time(_ fields: [Vectors.Field], _ name: String) -> Timestamp {
    Timestamp(milliseconds: Int64(fields.number(name)))
  }

  /// Build the effect from the vector's readable fields, without the decoder.
  static func effect(_ vector: Vectors.Effect) -> Effect {
    let fields = vector.fields
    func channel() -> ChannelNumber { ChannelNumber(fields.number("channel")) }
    func row() -> MemberOrdinal { MemberOrdinal(UInt32(fields.number("row"))) }
    func sequence(_ name: String = "sequence") -> SequenceNumber {
      SequenceNumber(UInt32(fields.number(name)))
    }
    func marker() -> SequenceNumber? { fields.optional("marker").map { SequenceNumber(UInt32($0)) } }
    func epoch() -> UInt32 { UInt32(fields.number("unread_epoch")) }
    switch vector.effect {
    case "channel_assigned":
      return .channel(
        channel(),
        .channelAssigned(
          cid: fields.text("cid"),
          created: time(fields, "created"),
          own: patch(fields.list("own"))
        )
      )
    case "row_assigned":
      let flags = fields.number("flags")
      var record = RowRecord(
        user: fields.text("user"),
        role: fields.text("role"),
        hasLeft: flags & 1 != 0,
        hidesHistory: flags & 2 != 0,
        joined: sequence("joined"),
        joinedAt: time(fields, "joined_at"),
        read: sequence("read"),
        readAt: time(fields, "read_at"),
        delivered: sequence("delivered"),
        deliveredAt: time(fields, "delivered_at"),
        marker: marker(),
        unreadEpoch: epoch()
      )
      record.joinedByReading = flags & 8 != 0
      if flags & 16 != 0 { record.markedAt = time(fields, "marked_at") }
      if flags & 32 != 0 { record.ackedAt = time(fields, "acked_at") }
      if flags & 64 != 0 { record.countedAfter = sequence("counted_after") }
      if flags & 128 != 0 { record.unreadAfter = sequence("unread_after") }
      record.isMuted = flags & 256 != 0
      record.isFlaggedUnread = flags & 512 != 0
      if flags & 1_024 != 0 { record.flaggedAt = time(fields, "flagged_at") }
      if flags & 4 != 0 {
        record.readIsHidden = fields.number("hidden") & 1 != 0
        record.deliveredIsHidden = fields.number("hidden") & 2 != 0
        record.readStepCount = UInt32(fields.number("read_steps"))
        record.deliveredStepCount = UInt32(fields.number("delivered_steps"))
        record.acknowledgedThrough = sequence("acknowledged_through")
      }
      return .channel(channel(), .rowAssigned(row(), record))
    case "row_left": return .channel(channel(), .rowLeft(row(), at: time(fields, "time")))
    case "role_assigned": return .channel(channel(), .roleAssigned(row(), role: fields.text("role")))
    case "read_moved", "read_moved_hidden":
      let isHidden = vector.effect == "read_moved_hidden"
      return .channel(
        channel(),
        .readMoved(row(), to: sequence(), at: time(fields, "time"), isHidden: isHidden)
      )
    case "delivered_moved", "delivered_moved_hidden":
      let isHidden = vector.effect == "delivered_moved_hidden"
      return .channel(
        channel(),
        .deliveredMoved(
          row(),
          to: sequence(),
          at: time(fields, "time"),
          isHidden: isHidden
        )
      )
    case "delivered_by_push_ack", "delivered_by_push_ack_hidden":
      let isHidden = vector.effect == "delivered_by_push_ack_hidden"
      return .channel(
        channel(),
        .deliveredByPushAck(
          row(),
          to: sequence(),
          at: time(fields, "time"),
          ackedAt: time(fields, "acked"),
          isHidden: isHidden
        )
      )
    case "marker_assigned":
      return .channel(
        channel(),
        .markerAssigned(
          row(),
          marker: marker(),
          epoch: epoch(),
          at: time(fields, "time")
        )
      )
    case "options_changed": return .channel(channel(), .optionsChanged(at: time(fields, "time")))
    case "message_assigned":
      var record = MessageRecord(
        id: fields.text("id"),
        sender: fields.text("sender"),
        flags: MessageRecord.Flags(rawValue: UInt8(fields.number("flags"))),
        registeredAt: time(fields, "registered"),
        createdAt: time(fields, "created")
      )
      if fields.number("flags") & 8 != 0 { record.acknowledgementExpiresAt = time(fields, "receipt_expires") }
      if fields.number("flags") & 128 != 0 {
        let isAll = fields.number("all") == 1
        record.mentions =
          isAll ? .all : .rows(fields.list("mentions").map { UInt32($0.number("row")) })
      }
      return .channel(channel(), .messageAssigned(sequence(), record))
    case "message_deleted": return .channel(channel(), .messageDeleted(sequence(), at: time(fields, "time")))
    case "channel_type_assigned":
      return .shard(
        .channelTypeAssigned(
          ChannelTypeRecord(
            name: fields.text("type"),
            version: fields.number("version"),
            options: ChannelTypeOptions().applying(patch(fields.list("options"))),
            appliedAt: time(fields, "taken")
          )
        )
      )
    case "counters_assigned":
      return .shard(
        .countersAssigned(
          nextChannel: ChannelNumber(fields.number("next_channel")),
          time: time(fields, "time")
        )
      )
    case "session_assigned": return .shard(.sessionAssigned(session(fields)))
    case "type_settled":
      return .shard(.typeSettled(name: fields.text("type"), version: fields.number("version")))
    case "acknowledged":
      return .channel(
        channel(),
        .acknowledged(
          sequence(),
          Acknowledgement(
            row: row(),
            at: time(fields, "time"),
            isHidden: fields.number("flags") == 1,
            note: fields.text("note")
          )
        )
      )
    case "acknowledgement_forgotten": return .channel(channel(), .acknowledgementForgotten(sequence(), row()))
    case "acknowledged_through": return .channel(channel(), .acknowledgedThrough(row(), to: sequence()))
    case "steps_sealed":
      return .channel(
        channel(),
        .stepsSealed(
          rowPage: UInt32(fields.number("row_page")),
          segment: UInt32(fields.number("segment")),
          bytes: fields.bytes("steps")
        )
      )
    case "step_tail_cut":
      return .channel(
        channel(),
        .stepTailCut(rowPage: UInt32(fields.number("row_page")), end: time(fields, "end"))
      )
    case "steps_trimmed":
      return .channel(
        channel(),
        .stepsTrimmed(
          rowPage: UInt32(fields.number("row_page")),
          first: UInt32(fields.number("first"))
        )
      )
    case "step_tail_assigned":
      var record = StepTailRecord(first: UInt32(fields.number("first")))
      record.ends = fields.list("ends").map { time($0, "end") }
      record.tail = fields.bytes("steps")
      return .channel(channel(), .stepTailAssigned(rowPage: UInt32(fields.number("row_page")), record))
    case "mentions_assigned":
      let rows = fields.list("rows").map { UInt32($0.number("row")) }
      let users = fields.list("users").map { $0.bytes("hash").reduce(0) { $0 << 8 | UInt64($1) } }
      return .channel(channel(), .mentionsAssigned(sequence(), rows: rows, pending: users))
    case "steps_imported":
      return .channel(
        channel(),
        .stepsImported(rowPage: UInt32(fields.number("row_page")), bytes: fields.bytes("steps"))
      )
    case "user_assigned":
      return .shard(
        .userAssigned(
          UInt32(fields.number("number")),
          UserSettings(
            user: fields.text("user"),
            version: fields.number("version"),
            hidesRead: fields.number("flags") & 1 != 0,
            hidesDelivered: fields.number("flags") & 2 != 0,
            readShownSince: time(fields, "read_shown_since"),
            deliveredShownSince: time(fields, "delivered_shown_since"),
            tokensRevokedBefore: time(fields, "tokens_revoked_before"),
            isErasing: fields.number("flags") & 4 != 0,
            appliedAt: time(fields, "taken")
          )
        )
      )
    case "user_settled":
      return .shard(.userSettled(UInt32(fields.number("number")), version: fields.number("version")))
    case "user_erased":
      return .shard(
        .userErased(
          UInt32(fields.number("number")),
          version: fields.number("version"),
          hash: fields.bytes("hash").reduce(0) { $0 << 8 | UInt64($1) },
          at: time(fields, "time")
        )
      )
    case "truncated": return .channel(channel(), .truncated(through: sequence(), at: time(fields, "time")))
    case "deletion_begun": return .channel(channel(), .deletionBegun)
    case "channel_deleted": return .channel(channel(), .channelDeleted(cid: fields.text("cid")))
    case "in_thread":
      guard case .channel(let channel, let inner) = effect(named: fields.text("inner")) else {
        preconditionFailure("an effect of the shard in a thread")
      }
      return .channel(channel, .inThread(sequence("parent"), inner))
    case "row_erased": return .channel(channel(), .rowErased(row(), at: time(fields, "time")))
    case "sender_erased": return .channel(channel(), .senderErased(sequence()))
    case "message_counts_assigned":
      let counts = fields.list("counts").map { UInt32($0.number("count")) }
      return .channel(channel(), .messageCountsAssigned(newest: sequence("newest"), counts))
    case "mute_assigned":
      return .channel(channel(), .muteAssigned(row(), isMuted: fields.number("muted") == 1))
    case "unread_flag_assigned":
      return .channel(
        channel(),
        .unreadFlagAssigned(
          row(),
          isSet: fields.number("set") == 1,
          epoch: UInt32(fields.number("unread_epoch")),
          at: time(fields, "time")
        )
      )
    case "segment_flags_assigned":
      let flags = fields.list("segments").map {
        SegmentFlags(segment: UInt32($0.number("segment")), rawFlags: UInt8($0.number("what")))!
      }
      return .channel(channel(), .segmentFlagsAssigned(flags))
    case "membership_assigned":
      return .channel(
        channel(),
        .membershipAssigned(position: UInt32(fields.number("place")), membership(fields))
      )
    case "membership_removed":
      return .channel(channel(), .membershipRemoved(position: UInt32(fields.number("place"))))
    case "membership_queued":
      let isGone = fields.number("gone") == 1
      let change = MembershipChange(user: fields.text("user"), membership(fields), isGone: isGone)
      return .shard(.membershipQueued(fields.number("number"), change))
    case "memberships_confirmed":
      return .shard(
        .membershipsConfirmed(
          by: ShardID(UInt16(fields.number("shard"))),
          through: fields.number("through")
        )
      )
    case "memberships_received":
      return .shard(
        .membershipsReceived(
          from: ShardID(UInt16(fields.number("shard"))),
          through: fields.number("through")
        )
      )
    case "webhook_noted":
      let key = fields.bytes("hash").reduce(0) { $0 << 8 | UInt64($1) }
      return .shard(.webhookNoted(key, until: time(fields, "until")))
    case "token_revoked":
      return .shard(
        .tokenRevoked(
          TokenRevocation(
            id: fields.text("jti"),
            until: time(fields, "until"),
            version: fields.number("version")
          )
        )
      )
    case "consumer_assigned":
      var consumer = FeedConsumer(
        name: fields.text("consumer"),
        kinds: FeedRecordKinds(rawValue: UInt32(fields.number("kinds"))),
        channelTypes: fields.list("channel_types").map { $0.text("type") },
        position: fields.number("number"),
        positionTime: time(fields, "position_time"),
        committedAt: time(fields, "committed_at")
      )
      consumer.since = time(fields, "since")
      consumer.partition = partition(fields)
      consumer.epoch = fields.number("epoch")
      return .shard(.consumer(.assigned(consumer)))
    case "consumer_committed":
      return .shard(
        .consumer(
          .committed(
            name: fields.text("consumer"),
            position: fields.number("number"),
            positionTime: time(fields, "position_time"),
            at: time(fields, "committed_at")
          )
        )
      )
    case "consumer_opened":
      return .shard(
        .consumer(.opened(name: fields.text("consumer"), partition(fields), epoch: fields.number("epoch")))
      )
    case "consumer_state_assigned":
      return .shard(
        .consumer(.stateAssigned(name: fields.text("consumer"), partition(fields), fields.bytes("state")))
      )
    case "consumer_workers_assigned":
      let workers = fields.list("workers").map { worker in
        FeedWorker(
          name: worker.text("worker"),
          partitionCount: UInt16(worker.number("partitions")),
          until: time(worker, "until"),
          partitions: worker.list("held").map { UInt16($0.number("index")) }
        )
      }
      return .shard(.consumer(.workersAssigned(name: fields.text("consumer"), workers)))
    case "consumer_removed": return .shard(.consumer(.removed(name: fields.text("consumer"))))
    case "deletion_held":
      let deletion = HeldDeletion(
        channel: ChannelNumber(fields.number("channel")),
        cid: fields.text("cid"),
        namesNeededBefore: fields.number("needed_before")
      )
      return .shard(.consumer(.deletionHeld(deletion)))
    case "deletion_ended": return .shard(.consumer(.deletionEnded(ChannelNumber(fields.number("channel")))))
    case "names_lost": return .shard(.consumer(.namesLost(before: fields.number("number"))))
    case "feed_switched": return .shard(.consumer(.switched(offSince: time(fields, "off_since"))))
    case "timer_assigned":
      let purpose: MessageTimer.Purpose =
        if let condition = ReminderCondition(rawValue: UInt8(fields.number("purpose"))) {
          .reminder(condition, membersMax: UInt32(fields.number("limit")))
        } else {
          .expiry
        }
      let timer = MessageTimer(
        channel: ChannelNumber(fields.number("channel")),
        thread: SequenceNumber(UInt32(fields.number("thread"))),
        message: SequenceNumber(UInt32(fields.number("sequence"))),
        dueAt: time(fields, "due"),
        after: UInt32(fields.number("after")),
        purpose
      )
      return .shard(.timerAssigned(fields.number("number"), timer))
    case "timer_removed": return .shard(.timerRemoved(fields.number("number")))
    case "push_job_assigned":
      let job = PushJob(
        key: fields.number("key"),
        createdAt: time(fields, "created"),
        expiresAt: time(fields, "expires_at"),
        content: Array(fields.text("content").utf8),
        users: fields.list("users").map {
          PushJob.User(id: Array($0.text("user").utf8), devices: Array($0.text("devices").utf8))
        }
      )
      return .shard(.pushJob(.assigned(UInt32(fields.number("number")), job)))
    case "push_job_removed": return .shard(.pushJob(.removed(UInt32(fields.number("number")))))
    case "ids_widened": return .shard(.idsWidened)
    case "index_epoch_assigned": return .shard(.indexEpochAssigned(fields.number("epoch")))
    default: fatalError("no effect \(vector.effect)")
    }
  }

  private static func partition(_ fields: [Vectors.Field]) -> FeedPartition {
    FeedPartition(index: UInt16(fields.number("index")), count: UInt16(fields.number("partitions")))
  }

  private static func membership(_ fields: [Vectors.Field]) -> Membership {
    Membership(
      cid: fields.text("cid"),
      channel: ChannelNumber(fields.number("channel_there")),
      row: fields.optional("row").map { MemberOrdinal(UInt32($0)) },
      isMember: fields.number("member") & 1 == 1,
      joinedAt: time(fields, "joined"),
      epoch: fields.number("epoch"),
      deletedAt: fields.number("member") & 2 == 0 ? .none : time(fields, "deleted"),
      isGone: fields.number("member") & 4 != 0
    )
  }

  private static func reminders(_ value: [UInt8]) -> [ReminderRule] {
    var rest = value.dropFirst()
    func number() -> UInt32 {
      let last = rest.firstIndex { $0 < 0x80 }!
      defer { rest = rest[(last + 1)...] }
      return UInt32(groups(rest[...last]))
    }
    return (0..<value[0]).map { _ in
      let after = number()
      let condition = ReminderCondition(rawValue: UInt8(number()))!
      return ReminderRule(after: after, condition, membersMax: number())
    }
  }

  /// Build the patch from the values' bytes, without the option reader.
  private static func patch(_ entries: [[Vectors.Field]]) -> OptionPatch {
    var patch = OptionPatch()
    for entry in entries {
      let value = entry.bytes("value")
      switch entry.number("option") {
      case 1: patch.readEvents = value[0] == 1
      case 2: patch.deliveryEvents = value[0] == 1
      case 3: patch.markUnread = MarkUnreadOption(rawValue: value[0])
      case 4: patch.history = HistoryOption(rawValue: value[0])
      case 5: patch.readAcksReceipts = ReadAcksOption(rawValue: value[0])
      case 6: patch.receiptTTL = nullable(value)
      case 7: patch.receiptMembersMax = nullable(value)
      case 8: patch.receiptDailyLimit = nullable(value)
      case 9: patch.receiptRequestRoles = value[0] == 0 ? .null : .value(roles(value.dropFirst(2)))
      case 10: patch.countsVisibleTo = CountsVisibleOption(rawValue: value[0])
      case 11:
        switch value[0] {
        case 0: patch.statusRule = .any
        case 1: patch.statusRule = .all
        case 2: patch.statusRule = .count(UInt32(groups(value.dropFirst())))
        default: patch.statusRule = .percentage(value[1])
        }
      case 13: patch.reminders = reminders(value)
      default: patch.keptSteps = UInt16(groups(value))
      }
    }
    return patch
  }

  /// Groups of 7 bits, the lowest first.
  private static func groups(_ bytes: some Sequence<UInt8>) -> UInt64 {
    bytes.reversed().reduce(0) { $0 << 7 | UInt64($1 & 0x7F) }
  }

  private static func nullable(_ bytes: [UInt8]) -> Nullable<UInt32> {
    bytes == [0] ? .null : .value(UInt32(groups(bytes) - 1))
  }

  /// Roles shorter than 128 bytes, each after its length.
  private static func roles(_ bytes: ArraySlice<UInt8>) -> [String] {
    var rest = bytes
    var roles: [String] = []
    while let length = rest.popFirst() {
      roles.append(String(decoding: rest.prefix(Int(length)), as: UTF8.self))
      rest = rest.dropFirst(Int(length))
    }
    return roles
  }
}
