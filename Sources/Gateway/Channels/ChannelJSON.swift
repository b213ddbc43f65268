package import NIOCore
package import ReceiptModel
package import ReceiptWire

/// JSON of channels and channel types (Proto/openapi.yaml).
package enum ChannelJSON {
  /// Write `{"channel": …}`.
  package static func writeResponse(_ channel: ChannelFields, into buffer: inout ByteBuffer) {
    buffer.writeStaticString("{\"channel\":")
    write(channel, into: &buffer)
    buffer.writeStaticString("}")
  }

  /// Write the channel itself.
  package static func write(_ channel: ChannelFields, into buffer: inout ByteBuffer) {
    let parts = Identifier.parts(cid: channel.cid)
    buffer.writeStaticString("{\"cid\":")
    buffer.writeJSONString(channel.cid)
    buffer.writeStaticString(",\"type\":")
    buffer.writeJSONString(String(parts.type))
    buffer.writeStaticString(",\"id\":")
    buffer.writeJSONString(String(parts.id))
    buffer.writeStaticString(",\"created_at\":")
    buffer.writeTimestamp(channel.created)
    buffer.writeStaticString(",\"member_count\":")
    buffer.writeString("\(channel.memberCount)")
    buffer.writeStaticString(",\"options\":")
    OptionsJSON.write(channel.options, into: &buffer)
    if !channel.newestMessage.isEmpty {
      buffer.writeStaticString(",\"newest_message\":{\"id\":")
      buffer.writeJSONString(channel.newestMessage)
      buffer.writeString(",\"seq\":\(channel.newest.rawValue)")
      buffer.writeStaticString(",\"registered_at\":")
      buffer.writeTimestamp(channel.newestRegistered)
      buffer.writeStaticString("}")
    }
    buffer.writeStaticString("}")
  }

  /// Write `{"cid","deleted"}`.
  static func writeDeleted(_ cid: RawSpan, existed: Bool, into buffer: inout ByteBuffer) {
    buffer.writeWithOutputRawSpan(minimumWritableBytes: 64 + OutputRawSpan.jsonStringByteMax(cid.byteCount)) { out in
      out.literal("{\"cid\":")
      out.jsonString(cid)
      out.literal(",\"deleted\":")
      out.bool(existed)
      out.literal("}")
    }
  }

  /// Write `{"member": {"user", "role"?, "joined_at", "muted"}}`.
  static func writeMember(_ user: RawSpan, _ member: SetMemberReply, into buffer: inout ByteBuffer) {
    let byteMax = 128 + OutputRawSpan.jsonStringByteMax(user.byteCount)
    buffer.writeWithOutputRawSpan(minimumWritableBytes: byteMax) { out in
      out.literal("{\"member\":{\"user\":{\"id\":")
      out.jsonString(user)
      out.literal("},\"joined_at\":")
      out.timestamp(milliseconds: member.joinedAt.milliseconds)
      out.literal(",\"muted\":")
      out.bool(member.isMuted)
    }
    if !member.role.isEmpty {
      buffer.writeStaticString(",\"role\":")
      buffer.writeJSONString(member.role)
    }
    buffer.writeStaticString("}}")
  }

  /// Write `{"type","version","options"}`.
  package static func write(_ record: ChannelTypeRecord, into buffer: inout ByteBuffer) {
    buffer.writeStaticString("{\"type\":")
    buffer.writeJSONString(record.name)
    buffer.writeString(",\"version\":\(record.version)")
    buffer.writeStaticString(",\"options\":")
    OptionsJSON.write(record.options, into: &buffer)
    buffer.writeStaticString("}")
  }
}

/// Channels' members and messages as JSON.
enum RosterJSON {
  /// Write `{"members": [{"user", "role"?, "joined_at", "muted"?}…], "next"?}` from a list_roster reply's fields.
  static func writeMembers(_ reader: inout FieldReader, into buffer: inout ByteBuffer) throws(WireError) {
    buffer.writeStaticString("{\"members\":[")
    for index in 0..<(try reader.count(elementBytesMin: 4)) {
      let entry = try RosterEntryFields(&reader)
      if index > 0 { buffer.writeStaticString(",") }
      let byteMax = 64 + 6 * (entry.user.byteCount + entry.role.byteCount) + OutputRawSpan.timestampByteCount
      buffer.writeWithOutputRawSpan(minimumWritableBytes: byteMax) { out in
        out.literal("{\"user\":{\"id\":")
        out.jsonString(entry.user)
        out.literal("}")
        if !entry.role.isEmpty {
          out.literal(",\"role\":")
          out.jsonString(entry.role)
        }
        out.literal(",\"joined_at\":")
        out.timestamp(milliseconds: entry.joinedAt.milliseconds)
        if entry.isMuted { out.literal(",\"muted\":true") }
        out.literal("}")
      }
    }
    buffer.writeStaticString("]")
    if let next = try reader.optional32() { buffer.writeString(",\"next\":\"j\(next)\"") }
    try reader.end()
    buffer.writeStaticString("}")
  }

  /// Write `{"messages": [{"id", "seq", "user"?, "created_at", "silent"?, "receipt"?, "parent_id"?}…], "next"?}`.
  static func writeMessages(_ reader: inout FieldReader, into buffer: inout ByteBuffer) throws(WireError) {
    buffer.writeStaticString("{\"messages\":[")
    for index in 0..<(try reader.count(elementBytesMin: 6)) {
      let entry = try MessageEntryFields(&reader)
      if index > 0 { buffer.writeStaticString(",") }
      let byteMax =
        128 + 6 * (entry.message.byteCount + entry.parent.byteCount + entry.sender.byteCount)
        + OutputRawSpan.timestampByteCount
      buffer.writeWithOutputRawSpan(minimumWritableBytes: byteMax) { out in
        out.literal("{\"id\":")
        out.jsonString(entry.message)
        out.literal(",\"seq\":")
        out.decimal(UInt64(entry.sequence.rawValue))
        if !entry.sender.isEmpty {
          out.literal(",\"user\":{\"id\":")
          out.jsonString(entry.sender)
          out.literal("}")
        }
        out.literal(",\"created_at\":")
        out.timestamp(milliseconds: entry.createdAt.milliseconds)
        if entry.flags.contains(.silent) { out.literal(",\"silent\":true") }
        if entry.flags.contains(.requestsAcknowledgement) { out.literal(",\"receipt\":true") }
        if !entry.parent.isEmpty {
          out.literal(",\"parent_id\":")
          out.jsonString(entry.parent)
        }
        out.literal("}")
      }
    }
    buffer.writeStaticString("]")
    if let next = try reader.messageListCursor() {
      buffer.writeString(",\"next\":\"\(PageCursor.text(next))\"")
    }
    try reader.end()
    buffer.writeStaticString("}")
  }
}
