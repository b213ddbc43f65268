internal import NIOCore
internal import ReceiptModel
internal import ReceiptWire

/// JSON of events (Proto/openapi.yaml): for each form the block of an event stream, without its id and the final empty
/// line.
enum EventJSON {
  /// Encode one form of an event.
  ///
  /// - Parameter form: one of ``EventFields/forms(for:)``.
  static func block(_ form: EventForm, of event: EventFields, cid: String) -> ByteBuffer {
    var buffer = ByteBuffer()
    buffer.reserveCapacity(byteCountUsual)
    begin(form.name, cid: cid, into: &buffer)
    switch event {
    case .row(let row): write(row, form, into: &buffer)
    case .messageNew(let message): write(message, form, into: &buffer)
    case .messageDeleted(let thread, let sequence, let message, let time):
      buffer.member("created_at", time)
      buffer.member("message_id", message)
      buffer.member("seq", UInt64(sequence.rawValue))
      buffer.thread(thread)
    case .truncated(let sequence, let time):
      buffer.member("created_at", time)
      buffer.member("seq", UInt64(sequence.rawValue))
    case .channelUpdated(let time, let channel):
      buffer.member("created_at", time)
      buffer.name("channel")
      ChannelJSON.write(channel, into: &buffer)
    case .channelDeleted(let time): buffer.member("created_at", time)
    case .memberAdded(let member):
      buffer.user(member.user)
      buffer.member("created_at", member.at)
      buffer.memberIfAny("role", member.role)
      buffer.member("member_count", UInt64(member.memberCount))
      buffer.member("joined_seq", UInt64(member.joined.rawValue))
      buffer.memberIfAny("last_read_message_id", member.readMessage)
      buffer.member("last_read_seq", UInt64(member.readSequence.rawValue))
    case .memberRemoved(let user, let time, let count):
      buffer.user(user)
      buffer.member("created_at", time)
      buffer.member("member_count", UInt64(count))
    case .status(let status): write(status, into: &buffer)
    case .receipt(let receipt): write(receipt, into: &buffer)
    }
    end(&buffer)
    return buffer
  }

  /// Encode `notification.totals`.
  static func totals(_ totals: UnreadTotals, user: RawSpan, at time: Timestamp) -> ByteBuffer {
    var buffer = ByteBuffer()
    begin("notification.totals", cid: "", into: &buffer)
    buffer.user(user.withUnsafeBytes { String(decoding: $0, as: UTF8.self) })
    buffer.member("created_at", time)
    buffer.member("total_unread_count", totals.messages)
    buffer.member("unread_channels", totals.channels)
    buffer.member("unread_threads", totals.threads)
    buffer.member("unread_mentions", totals.mentions)
    end(&buffer)
    return buffer
  }

  /// Encode `stream.reset`, which tells the client to query its state again.
  static func reset(at time: Timestamp) -> ByteBuffer {
    var buffer = ByteBuffer()
    begin("stream.reset", cid: "", into: &buffer)
    buffer.member("created_at", time)
    end(&buffer)
    return buffer
  }

  /// Encode `member.removed` from the user's index, used when the channel's own event did not arrive.
  static func left(cid: String, user: String, at time: Timestamp) -> ByteBuffer {
    var buffer = ByteBuffer()
    begin(EventForm.memberRemoved.name, cid: cid, into: &buffer)
    buffer.user(user)
    buffer.member("created_at", time)
    end(&buffer)
    return buffer
  }

  private static let byteCountUsual = 384

  private static func begin(_ name: StaticString, cid: String, into buffer: inout ByteBuffer) {
    buffer.writeStaticString("event: ")
    buffer.writeStaticString(name)
    buffer.writeStaticString("\ndata: {\"type\":\"")
    buffer.writeStaticString(name)
    buffer.writeStaticString("\"")
    guard !cid.isEmpty else { return }
    buffer.member("cid", cid)
    let parts = Identifier.parts(cid: cid)
    buffer.member("channel_type", String(parts.type))
    buffer.member("channel_id", String(parts.id))
  }

  private static func end(_ buffer: inout ByteBuffer) { buffer.writeStaticString("}\n") }

  private static func write(_ event: RowEventFields, _ form: EventForm, into buffer: inout ByteBuffer) {
    let shown = event.shownRow ?? event.ownRow
    buffer.user(event.ownRow.user)
    buffer.member("created_at", event.at)
    switch form {
    case .read:
      buffer.memberIfAny("last_read_message_id", shown.lastReadMessage)
      buffer.member("last_read_seq", UInt64(shown.lastReadSequence.rawValue))
    case .delivered:
      if shown.lastDelivered != .none { buffer.member("last_delivered_at", shown.lastDelivered) }
      buffer.memberIfAny("last_delivered_message_id", shown.lastDeliveredMessage)
      buffer.member("last_delivered_seq", UInt64(shown.lastDeliveredSequence.rawValue))
    case .markRead:
      buffer.memberIfAny("last_read_message_id", event.ownRow.lastReadMessage)
      buffer.member("unread_messages", UInt64(event.unreadInChannel ?? event.ownRow.own?.unreadMessages ?? 0))
      buffer.member("unread_epoch", UInt64(event.ownRow.own?.unreadEpoch ?? 0))
      buffer.member("marked_unread", event.ownRow.own?.isFlaggedUnread ?? false)
    case .markUnread:
      let own = event.ownRow.own
      buffer.memberIfAny("first_unread_message_id", own?.firstUnreadMessage ?? "")
      buffer.memberIfAny("last_read_message_id", event.ownRow.lastReadMessage)
      buffer.member("last_read_at", event.ownRow.lastRead)
      buffer.member("unread_messages", UInt64(own?.unreadMessages ?? 0))
      buffer.member("unread_epoch", UInt64(own?.unreadEpoch ?? 0))
      buffer.member("marked_unread", own?.isFlaggedUnread ?? false)
    case .rowOwn: buffer.members(of: event.ownRow)
    case .rowServer:
      // A server gets the row as members see it, plus the user's own details (R7).
      var row = shown
      row.own = event.ownRow.own
      row.own?.isOwn = false
      buffer.members(of: row)
    default: buffer.members(of: shown)
    }
    buffer.thread(event.thread)
  }

  private static func write(_ event: MessageEventFields, _ form: EventForm, into buffer: inout ByteBuffer) {
    if !event.sender.isEmpty { buffer.user(event.sender) }
    buffer.member("created_at", event.registered)
    buffer.name("message")
    buffer.writeStaticString("{\"id\":")
    buffer.writeJSONString(event.message)
    buffer.member("seq", UInt64(event.sequence.rawValue))
    buffer.member("created_at", event.created)
    buffer.member("silent", event.flags.contains(.silent))
    buffer.member("receipt", event.flags.contains(.requestsAcknowledgement))
    buffer.memberIfAny("parent_id", event.thread)
    buffer.writeStaticString("}")
    let (read, delivered): (MessageEventFields.Flags, MessageEventFields.Flags) =
      form == .messageNewOwn ? (.read, .delivered) : (.readShown, .deliveredShown)
    let saysMoves = form != .messageNewPlain
    buffer.name("moves_position")
    buffer.writeStaticString(saysMoves && event.flags.contains(read) ? "{\"read\":true" : "{\"read\":false")
    buffer.member("delivered", saysMoves && event.flags.contains(delivered))
    buffer.writeStaticString("}")
    buffer.thread(event.thread)
  }

  private static func write(_ event: StatusEventFields, into buffer: inout ByteBuffer) {
    if !event.sender.isEmpty { buffer.user(event.sender) }
    buffer.member("created_at", event.at)
    buffer.member("from_seq", UInt64(event.from.rawValue))
    buffer.member("to_seq", UInt64(event.to.rawValue))
    buffer.member("last_message_id", event.lastMessage)
    buffer.name("status")
    buffer.writeWithOutputRawSpan(minimumWritableBytes: 16) { $0.status(event.status) }
    buffer.thread(event.thread)
  }

  private static func write(_ event: ReceiptEventFields, into buffer: inout ByteBuffer) {
    if !event.user.isEmpty { buffer.user(event.user) }
    buffer.member("created_at", event.at)
    buffer.member("message_id", event.message)
    buffer.member("seq", UInt64(event.sequence.rawValue))
    buffer.name("receipt_status")
    buffer.writeWithOutputRawSpan(minimumWritableBytes: 16) { $0.acknowledgementStatus(event.status) }
    buffer.member("read_count", UInt64(event.readCount))
    buffer.member("unread_count", UInt64(event.unreadCount))
    buffer.member("acknowledged_count", UInt64(event.acknowledgedCount))
    if event.acknowledgedAt != .none { buffer.member("acknowledged_at", event.acknowledgedAt) }
    buffer.memberIfAny("note", event.note)
  }
}

/// Writers of object members, each with its leading comma.
extension ByteBuffer {
  fileprivate mutating func name(_ name: StaticString) {
    writeStaticString(",\"")
    writeStaticString(name)
    writeStaticString("\":")
  }

  fileprivate mutating func member(_ name: StaticString, _ text: String) {
    self.name(name)
    writeJSONString(text)
  }

  fileprivate mutating func memberIfAny(_ name: StaticString, _ text: String) {
    if !text.isEmpty { member(name, text) }
  }

  fileprivate mutating func member(_ name: StaticString, _ number: UInt64) {
    self.name(name)
    writeWithOutputRawSpan(minimumWritableBytes: OutputRawSpan.decimalByteMax) { $0.decimal(number) }
  }

  fileprivate mutating func member(_ name: StaticString, _ time: Timestamp) {
    self.name(name)
    writeTimestamp(time)
  }

  fileprivate mutating func member(_ name: StaticString, _ value: Bool) {
    self.name(name)
    writeStaticString(value ? "true" : "false")
  }

  fileprivate mutating func user(_ id: String) {
    writeStaticString(",\"user\":{\"id\":")
    writeJSONString(id)
    writeStaticString("}")
  }

  fileprivate mutating func thread(_ thread: String) { memberIfAny("thread_id", thread) }

  /// Write a row of a read state (Proto/openapi.yaml) without its user.
  fileprivate mutating func members(of row: RowEventRow) {
    if let joined = row.joined { member("joined_seq", UInt64(joined.rawValue)) }
    member("last_read", row.lastRead)
    memberIfAny("last_read_message_id", row.lastReadMessage)
    member("last_read_seq", UInt64(row.lastReadSequence.rawValue))
    if let own = row.own { member("unread_messages", UInt64(own.unreadMessages)) }
    if row.lastDelivered != .none { member("last_delivered_at", row.lastDelivered) }
    memberIfAny("last_delivered_message_id", row.lastDeliveredMessage)
    member("last_delivered_seq", UInt64(row.lastDeliveredSequence.rawValue))
    if let own = row.own {
      memberIfAny("first_unread_message_id", own.firstUnreadMessage)
      member("unread_epoch", UInt64(own.unreadEpoch))
      if own.isOwn {
        member("marked_unread", own.isFlaggedUnread)
        member("unread_mentions", UInt64(own.unreadMentions))
      }
    }
  }
}
