internal import HTTP2Session
internal import NIOCore
internal import ReceiptModel
internal import ReceiptWire

/// JSON of the change feed (docs/api/feed.md).
enum FeedJSON {
  // MARK: Consumers

  /// Write `{"name","types"?,"channel_types"?}`.
  static func write(_ name: String, _ filters: FeedFilters, into buffer: inout ByteBuffer) {
    buffer.writeStaticString("{")
    writeFilters(name, filters.kinds, filters.channelTypes, into: &buffer)
    buffer.writeStaticString("}")
  }

  private static func writeFilters(
    _ name: String,
    _ kinds: FeedRecordKinds,
    _ channelTypes: [String],
    into buffer: inout ByteBuffer
  ) {
    buffer.writeStaticString("\"name\":")
    buffer.writeJSONString(name)
    if kinds != .all {
      let names = FeedRecordKind.allCases.filter { kinds.contains($0) && $0 != .gap }.map(\.name.description)
      write("types", names, into: &buffer)
    }
    if !channelTypes.isEmpty { write("channel_types", channelTypes, into: &buffer) }
  }

  private static func write(_ name: StaticString, _ list: [String], into buffer: inout ByteBuffer) {
    buffer.writeStaticString(",\"")
    buffer.writeStaticString(name)
    buffer.writeStaticString("\":[")
    for (index, text) in list.enumerated() {
      if index > 0 { buffer.writeStaticString(",") }
      buffer.writeJSONString(text)
    }
    buffer.writeStaticString("]")
  }

  /// How far a consumer has come in one partition.
  private struct Progress {
    var partition: FeedPartition
    var epoch: UInt64 = 0
    var committedAt = Timestamp.none
    var lagRecords: UInt64 = 0
    /// Time of the oldest position with records behind it; none: there is no lag.
    var behindSince = Timestamp.none
    var state: [UInt8] = []
  }

  private static func progress(
    of name: String,
    _ replies: [(shard: UInt16, reply: ConsumersReply)]
  ) -> (consumer: FeedConsumer, partitions: [Progress])? {
    var consumer: FeedConsumer?
    var partitions: [FeedPartition: Progress] = [:]
    for (_, reply) in replies {
      guard let entry = reply.entries.first(where: { $0.consumer.name == name }) else { continue }
      let known = entry.consumer
      consumer = consumer ?? known
      var progress = partitions[known.partition] ?? Progress(partition: known.partition)
      progress.epoch = max(progress.epoch, known.epoch)
      progress.committedAt = max(progress.committedAt, known.committedAt)
      if reply.end > known.position {
        progress.lagRecords += reply.end - known.position
        let since = known.positionTime
        progress.behindSince = progress.behindSince == .none ? since : min(progress.behindSince, since)
      }
      partitions[known.partition] = progress
      for (partition, bytes) in entry.states {
        partitions[partition, default: Progress(partition: partition)].state = bytes
      }
    }
    return consumer.map {
      (
        $0,
        partitions.values.sorted { ($0.partition.count, $0.partition.index) < ($1.partition.count, $1.partition.index) }
      )
    }
  }

  private static func writePartitions(
    _ partitions: [Progress],
    now: Int64,
    isWhole: Bool,
    into buffer: inout ByteBuffer
  ) {
    buffer.writeStaticString(",\"partitions\":[")
    for (index, progress) in partitions.enumerated() {
      if index > 0 { buffer.writeStaticString(",") }
      buffer.writeStaticString("{\"partition\":\"")
      buffer.writeString(progress.partition.text)
      buffer.writeStaticString("\"")
      if isWhole { buffer.writeString(",\"epoch\":\(progress.epoch)") }
      buffer.writeStaticString(",\"committed_at\":")
      buffer.writeTimestamp(progress.committedAt)
      let seconds = progress.behindSince == .none ? 0 : max(0, now - progress.behindSince.milliseconds) / 1_000
      buffer.writeString(",\"lag_records\":\(progress.lagRecords),\"lag_seconds\":\(seconds)")
      if isWhole, !progress.state.isEmpty {
        buffer.writeStaticString(",\"state\":")
        buffer.writeJSONString(progress.state.span.bytes)
      }
      buffer.writeStaticString("}")
    }
    buffer.writeStaticString("]")
  }

  /// Write `{"retention_seconds"?,"consumers":[…]}`.
  static func write(_ replies: [(shard: UInt16, reply: ConsumersReply)], now: Int64, into buffer: inout ByteBuffer) {
    buffer.writeStaticString("{")
    if let milliseconds = replies.first?.reply.retentionMilliseconds, milliseconds > 0 {
      buffer.writeString("\"retention_seconds\":\(milliseconds / 1_000),")
    }
    buffer.writeStaticString("\"consumers\":[")
    let names = Set(replies.flatMap { $0.reply.entries.map(\.consumer.name) }).sorted()
    for (index, name) in names.enumerated() {
      guard let (consumer, partitions) = progress(of: name, replies) else { continue }
      if index > 0 { buffer.writeStaticString(",") }
      buffer.writeStaticString("{")
      writeFilters(name, consumer.kinds, consumer.channelTypes, into: &buffer)
      writePartitions(partitions, now: now, isWhole: false, into: &buffer)
      buffer.writeStaticString("}")
    }
    buffer.writeStaticString("]}")
  }

  /// Write one consumer, with what its workers keep.
  static func write(
    _ name: String,
    _ replies: [(shard: UInt16, reply: ConsumersReply)],
    now: Int64,
    into buffer: inout ByteBuffer
  ) {
    guard let (consumer, partitions) = progress(of: name, replies) else { return }
    buffer.writeStaticString("{")
    writeFilters(name, consumer.kinds, consumer.channelTypes, into: &buffer)
    writePartitions(partitions, now: now, isWhole: true, into: &buffer)
    buffer.writeStaticString("}")
  }

  /// Write `{"worker","partitions":["i/n"…],"workers","expires_in"}`.
  static func write(_ lease: LeasePartitionsReply, _ request: FeedLeases.Request, into buffer: inout ByteBuffer) {
    buffer.writeStaticString("{\"worker\":")
    buffer.writeJSONString(request.worker)
    write(
      "partitions",
      lease.partitions.map { FeedPartition(index: $0, count: request.partitionCount).text },
      into: &buffer
    )
    buffer.writeString(",\"workers\":\(lease.workerCount),\"expires_in\":\(request.milliseconds / 1_000)}")
  }

  // MARK: Lines of a stream

  /// Write the first line of a stream.
  ///
  /// - Parameter cursor: what was last committed.
  static func writeLease(_ cursor: FeedCursor, epoch: UInt64, state: [UInt8], into buffer: inout ByteBuffer) {
    beginLine(cursor, into: &buffer)
    buffer.writeString("\"type\":\"lease\",\"epoch\":\(epoch)")
    if !state.isEmpty {
      buffer.writeStaticString(",\"state\":")
      buffer.writeJSONString(state.span.bytes)
    }
    buffer.writeStaticString("}\n")
  }

  static func writeHeartbeat(_ cursor: FeedCursor, at time: Timestamp, into buffer: inout ByteBuffer) {
    beginLine(cursor, into: &buffer)
    buffer.writeStaticString("\"type\":\"heartbeat\",\"at\":")
    buffer.writeTimestamp(time)
    buffer.writeStaticString("}\n")
  }

  /// Write that records of a time are no longer kept.
  static func writeGap(_ cursor: FeedCursor, from: Timestamp, to: Timestamp, into buffer: inout ByteBuffer) {
    beginLine(cursor, into: &buffer)
    buffer.writeStaticString("\"type\":\"gap\",\"from\":")
    buffer.writeTimestamp(min(from, to))
    buffer.writeStaticString(",\"to\":")
    buffer.writeTimestamp(to)
    buffer.writeStaticString("}\n")
  }

  /// Write the last line of a stream that the gateway ends.
  static func writeEnd(_ code: ProblemCode, into buffer: inout ByteBuffer) {
    if code == .leaseLost { return _ = buffer.writeStaticString("{\"type\":\"lease_lost\"}\n") }
    buffer.writeString("{\"type\":\"error\",\"code\":\"\(code.rawValue)\"}\n")
  }

  private static func beginLine(_ cursor: FeedCursor, into buffer: inout ByteBuffer) {
    buffer.writeStaticString("{\"cursor\":\"")
    cursor.write(into: &buffer)
    buffer.writeStaticString("\",")
  }

  /// Write a record.
  ///
  /// - Parameter cursor: as of after the record.
  static func write(
    _ record: borrowing NamedFeedRecord,
    shard: ShardID,
    _ cursor: FeedCursor,
    into buffer: inout ByteBuffer
  ) {
    beginLine(cursor, into: &buffer)
    let texts =
      record.cid.byteCount + record.user.byteCount + record.message.byteCount + record.thread.byteCount
      + record.text.byteCount + record.detail.byteCount + userBytes(record)
    buffer.writeWithOutputRawSpan(minimumWritableBytes: 640 + OutputRawSpan.jsonStringByteMax(texts)) { out in
      out.literal("\"id\":\"")
      out.decimal(UInt64(shard.rawValue))
      out.literal(".")
      out.decimal(record.number)
      out.literal(".")
      out.decimal(UInt64(max(0, record.at.milliseconds)))
      out.literal("\",\"type\":\"")
      out.literal(record.kind.name)
      out.literal("\"")
      out.field("cid", record.cid)
      if !record.user.isEmpty {
        out.literal(",\"user\":{\"id\":")
        out.jsonString(record.user)
        out.literal("}")
      }
      out.field(record.kind == .status ? "last_message_id" : "message_id", record.message)
      out.field("thread_id", record.thread)
      writeDetails(record, into: &out)
      out.literal(",\"at\":")
      out.timestamp(milliseconds: record.at.milliseconds)
      out.literal("}\n")
    }
  }

  /// Return the size of the users of a reminder, with room for `{"id":},` around each.
  private static func userBytes(_ record: borrowing NamedFeedRecord) -> Int {
    var bytes = 0
    record.users?.forEach { bytes += $0.byteCount + 8 }
    return bytes
  }

  @_lifetime(out: copy out)
  private static func writeReminder(_ record: borrowing NamedFeedRecord, into out: inout OutputRawSpan) {
    guard let reminder = FeedRecord.Reminder(first: record.first, second: record.second) else { return }
    out.literal(",\"when\":\"")
    out.literal(reminder.condition.name)
    out.literal("\",\"users\":[")
    var isFirst = true
    if var users = record.users {
      while let user = users.next() {
        out.literal(isFirst ? "{\"id\":" : ",{\"id\":")
        out.jsonString(user)
        out.literal("}")
        isFirst = false
      }
    }
    out.literal("]")
    out.number("part", UInt64(reminder.part))
    out.number("parts", UInt64(reminder.partCount))
    if reminder.isTruncated { out.literal(",\"truncated\":true") }
  }

  @_lifetime(out: copy out)
  private static func writeDetails(_ record: borrowing NamedFeedRecord, into out: inout OutputRawSpan) {
    let sequence = UInt64(record.sequence.rawValue)
    switch record.kind {
    case .messageRegistered:
      let moves = ChannelEvent.SenderMoves(rawValue: UInt8(truncatingIfNeeded: record.first))
      out.number("seq", sequence)
      out.literal(",\"moves_position\":{\"read\":")
      out.bool(moves.contains(.read))
      out.literal(",\"delivered\":")
      out.bool(moves.contains(.delivered))
      out.literal("}")
    case .delivered:
      out.number("seq", sequence)
      if record.first > 0 {
        out.literal(",\"acked_at\":")
        out.timestamp(milliseconds: Int64(clamping: record.first))
      }
      out.field("provider", record.text)
      out.field("device", record.detail)
    case .markedUnread:
      if record.second == 1 {
        out.literal(",\"channel\":true")
      } else {
        out.number("last_read_seq", sequence)
      }
      out.number("unread_epoch", record.first)
    case .status:
      out.number("from_seq", record.first)
      out.number("to_seq", sequence)
      out.literal(",\"status\":")
      out.status(MessageStatus(rawValue: UInt8(clamping: record.second)) ?? .sent)
    case .rowChanged:
      out.number("last_read_seq", record.first)
      out.field("last_read_message_id", record.text)
      out.number("last_delivered_seq", record.second)
      out.field("last_delivered_message_id", record.detail)
    case .userUpdated:
      out.literal(",\"privacy_settings\":{\"read_receipts\":{\"enabled\":")
      out.bool(record.first & 1 != 0)
      out.literal("},\"delivery_receipts\":{\"enabled\":")
      out.bool(record.first & 2 != 0)
      out.literal("}}")
    case .reminderDue:
      out.number("seq", sequence)
      writeReminder(record, into: &out)
    case .read, .messageDeleted, .acknowledged, .receiptDone, .receiptExpired, .channelTruncated:
      out.number("seq", sequence)
    case .memberAdded, .memberRemoved, .channelCreated, .channelUpdated, .channelDeleted, .userErased, .gap: break
    }
  }
}

extension OutputRawSpan {
  /// Write `,"name":"text"`; nothing for an empty text.
  @_lifetime(self: copy self)
  fileprivate mutating func field(_ name: StaticString, _ text: RawSpan) {
    if text.isEmpty { return }
    literal(",\"")
    literal(name)
    literal("\":")
    jsonString(text)
  }

  /// Write `,"name":number`.
  @_lifetime(self: copy self)
  fileprivate mutating func number(_ name: StaticString, _ value: UInt64) {
    literal(",\"")
    literal(name)
    literal("\":")
    decimal(value)
  }
}
