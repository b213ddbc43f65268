internal import NIOCore
internal import ReceiptModel
internal import ReceiptWire

/// Channels' members and messages as JSON.
enum RosterJSON {
  /// Write `{"members": [{"user", "role"?, "joined_at", "muted"?}…], "next"?}` from the fields of list_roster's reply.
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
