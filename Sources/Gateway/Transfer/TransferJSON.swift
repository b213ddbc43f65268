internal import NIOCore
internal import ReceiptModel
internal import ReceiptWire

/// JSON of the lines of an export, which are lines of an import (docs/api/import-export.md).
enum TransferJSON {
  /// Moves of one watermark that a line has; more would exceed ``ImportLine/byteCountMax``.
  static let movesMax = 256

  static func write(_ record: ChannelTypeRecord, into buffer: inout ByteBuffer) {
    buffer.writeLine("channel_type") { line in
      line.string("type", record.name)
      line.field("options") { OptionsJSON.write(record.options, into: &$0) }
    }
  }

  static func write(_ settings: UserSettings, into buffer: inout ByteBuffer) {
    buffer.writeLine("user") { line in
      line.string("id", settings.user)
      line.field("privacy_settings") {
        $0.writeString("{\"read_receipts\":{\"enabled\":\(!settings.hidesRead)},")
        $0.writeString("\"delivery_receipts\":{\"enabled\":\(!settings.hidesDelivered)}}")
      }
      if settings.readShownSince != .none || settings.deliveredShownSince != .none {
        line.object("shown_since") { since in
          since.time("read_receipts", settings.readShownSince)
          since.time("delivery_receipts", settings.deliveredShownSince)
        }
      }
      line.time("revoke_tokens_before", settings.tokensRevokedBefore)
    }
  }

  static func write(_ channel: TransferredChannel, cid: String, into buffer: inout ByteBuffer) {
    buffer.writeLine("channel") { line in
      line.string("cid", cid)
      if channel.options != OptionPatch() {
        line.field("options") { OptionsJSON.write(channel.options, into: &$0) }
      }
      line.time("created_at", channel.created)
    }
  }

  static func write(_ message: TransferredMessage, cid: String, into buffer: inout ByteBuffer) {
    buffer.writeLine("message") { line in
      line.string("cid", cid)
      line.string("id", message.id)
      line.number("seq", message.sequence.rawValue)
      line.string("user_id", message.sender)
      if message.createdAt == .none {
        line.time("created_at", message.registeredAt)
      } else {
        line.time("created_at", message.createdAt)
        line.time("registered_at", message.registeredAt)
      }
      line.string("parent_id", message.parent)
      line.flag("silent", message.flags.contains(.silent))
      line.flag("receipt", message.flags.contains(.requestsAcknowledgement))
      if message.flags.contains(.requestNotAllowed) { line.string("receipt_refused", "receipt_not_allowed") }
      if message.flags.contains(.requestOverLimit) { line.string("receipt_refused", "receipt_limit_reached") }
      line.time("expires_at", message.expiresAt)
      if message.flags.contains(.mentionsAll) { line.string("mentions", "all") }
      if !message.mentions.isEmpty {
        line.array("mentions", message.mentions) { user, buffer in buffer.writeJSONString(user) }
      }
      line.flag("moves_position", !message.flags.contains(.keepsSenderPosition))
      line.flag("deleted", message.flags.contains(.deleted))
      line.time("deleted_at", message.deletedAt)
    }
  }

  static func write(_ member: TransferredMember, cid: String, into buffer: inout ByteBuffer) {
    buffer.writeLine("member") { line in
      line.string("cid", cid)
      line.string("user_id", member.user)
      line.string("role", member.role)
      line.time("joined_at", member.joinedAt)
      if let joined = member.joined { line.field("joined_seq") { $0.writeString("\(joined.rawValue)") } }
      line.time("left_at", member.leftAt)
      if member.flags.contains(.hidesHistory) { line.string("history", "hidden") }
      if member.flags.contains(.showsHistory) { line.string("history", "visible") }
      line.flag("muted", member.flags.contains(.muted))
      line.flag("marked_unread", member.flags.contains(.flaggedUnread))
      line.number("unread_epoch", member.unreadEpoch)
      line.string("thread_id", member.thread)
      line.string("last_read_message_id", member.read)
      line.time("last_read_at", member.readAt)
      line.flag("last_read_hidden", member.flags.contains(.readIsHidden))
      line.string("last_delivered_message_id", member.delivered)
      line.time("last_delivered_at", member.deliveredAt)
      line.flag("last_delivered_hidden", member.flags.contains(.deliveredIsHidden))
      line.string("unread_from_message_id", member.unreadFrom)
      line.number("read_moves", member.readMoves)
      line.number("delivered_moves", member.deliveredMoves)
      line.number("acknowledged_through_seq", member.acknowledgedThrough.rawValue)
      if let counted = member.countedAfter {
        line.field("counted_after_seq") { $0.writeString("\(counted.rawValue)") }
      }
      if let unread = member.unreadAfter { line.field("unread_after_seq") { $0.writeString("\(unread.rawValue)") } }
      line.flag("joined_by_reading", member.flags.contains(.joinedByReading))
      let moves = newest(.read, of: member) + newest(.delivered, of: member)
      guard !moves.isEmpty else { return }
      line.array("steps", moves) { move, buffer in
        buffer.writeStaticString(
          move.kind == .read ? "{\"kind\":\"read\",\"seq\":" : "{\"kind\":\"delivered\",\"seq\":"
        )
        buffer.writeString("\(move.sequence.rawValue)")
        buffer.writeStaticString(",\"at\":")
        buffer.writeTimestamp(move.at)
        buffer.writeStaticString(move.isHidden ? ",\"hidden\":true}" : "}")
      }
    }
  }

  private static func newest(_ kind: StepKind, of member: TransferredMember) -> [TransferredMember.Move] {
    member.moves.filter { $0.kind == kind }.suffix(movesMax)
  }

  static func write(_ record: TransferredAcknowledgement, cid: String, into buffer: inout ByteBuffer) {
    buffer.writeLine("acknowledged") { line in
      line.string("cid", cid)
      line.string("message_id", record.message)
      line.string("user_id", record.user)
      line.time("at", record.at)
      line.string("note", record.note)
      line.flag("hidden", record.isHidden)
    }
  }

  /// Write the line that ends an export early.
  static func writeError(_ problem: Problem, into buffer: inout ByteBuffer) {
    buffer.writeLine("error") { line in
      line.string("code", problem.code.rawValue)
      line.string("detail", problem.detail.isEmpty ? "\(problem.code.title)" : problem.detail)
    }
  }
}

/// A writer of an object's fields. Empty strings, zero, false and no time are left out.
private struct LineWriter {
  var buffer: ByteBuffer
  private var isFirst = true

  init(_ buffer: ByteBuffer) { self.buffer = buffer }

  mutating func field(_ name: StaticString, _ value: (inout ByteBuffer) -> Void) {
    buffer.writeStaticString(isFirst ? "\"" : ",\"")
    isFirst = false
    buffer.writeStaticString(name)
    buffer.writeStaticString("\":")
    value(&buffer)
  }

  mutating func string(_ name: StaticString, _ text: String) {
    if !text.isEmpty { field(name) { $0.writeJSONString(text) } }
  }

  mutating func time(_ name: StaticString, _ time: Timestamp) {
    if time != .none { field(name) { $0.writeTimestamp(time) } }
  }

  mutating func number(_ name: StaticString, _ number: UInt32) {
    if number > 0 { field(name) { $0.writeString("\(number)") } }
  }

  mutating func flag(_ name: StaticString, _ isSet: Bool) {
    if isSet { field(name) { $0.writeStaticString("true") } }
  }

  mutating func array<Element>(
    _ name: StaticString,
    _ elements: [Element],
    _ write: (Element, inout ByteBuffer) -> Void
  ) {
    field(name) { buffer in
      for (index, element) in elements.enumerated() {
        buffer.writeStaticString(index == 0 ? "[" : ",")
        write(element, &buffer)
      }
      buffer.writeStaticString("]")
    }
  }

  mutating func object(_ name: StaticString, _ fields: (inout LineWriter) -> Void) {
    field(name) { $0.writeObject(fields) }
  }
}

extension ByteBuffer {
  /// Write `{"kind":{…}}` and a line feed.
  fileprivate mutating func writeLine(_ kind: StaticString, _ fields: (inout LineWriter) -> Void) {
    writeStaticString("{\"")
    writeStaticString(kind)
    writeStaticString("\":")
    writeObject(fields)
    writeStaticString("}\n")
  }

  fileprivate mutating func writeObject(_ fields: (inout LineWriter) -> Void) {
    writeStaticString("{")
    // The buffer is moved, not copied: a second owner would make each write copy it.
    var line = LineWriter(self)
    self = ByteBuffer()
    fields(&line)
    self = line.buffer
    writeStaticString("}")
  }
}
