package import NIOCore
internal import ReceiptModel
package import ReceiptWire

/// JSON of a row of a read state (Proto/openapi.yaml).
package enum RowJSON {
  /// Upper bound for the size of a row without its variable-length strings.
  private static let fixedByteMax = 640
  /// Size of a row with ids of ten characters and all positions set.
  private static let typicalByteCount = 256

  /// Return the upper bound for the size of a row in bytes.
  package static func byteMax(_ row: borrowing RowFields) -> Int {
    fixedByteMax + 6
      * (row.user.byteCount + row.lastReadMessage.byteCount + row.lastDeliveredMessage.byteCount
        + row.firstUnreadMessage.byteCount)
  }

  /// Write `{"read": row}`, with `"counted": false` and the reason where the mark does not count.
  package static func writeResponse(_ reply: borrowing MarkReply, into buffer: inout ByteBuffer) {
    buffer.writeWithOutputRawSpan(minimumWritableBytes: byteMax(reply.row)) { out in
      out.literal("{\"read\":")
      write(reply.row, into: &out)
      out.uncounted(reply.uncounted)
      out.literal("}")
    }
  }

  /// Write `{"read": [row…], "next"?}` from a reply to read_state.
  static func writeReadState(_ reader: inout FieldReader, into buffer: inout ByteBuffer) throws(WireError) {
    buffer.writeStaticString("{\"read\":[")
    try writeRows(&reader, into: &buffer)
    buffer.writeStaticString("]")
    if let next = try reader.optional() { buffer.writeString(",\"next\":\"r\(next)\"") }
    buffer.writeStaticString("}")
  }

  /// Write `{"read": [row…], "next"?}` from a reply to thread_read_state.
  static func writeThreadReadState(_ reader: inout FieldReader, into buffer: inout ByteBuffer) throws(WireError) {
    buffer.writeStaticString("{\"read\":[")
    try writeRows(&reader, into: &buffer)
    buffer.writeStaticString("]")
    ListJSON.writeNext(try reader.string(), into: &buffer)
  }

  /// Write the rows of a read state, with commas between them.
  static func writeRows(_ reader: inout FieldReader, into buffer: inout ByteBuffer) throws(WireError) {
    let count = try reader.count(elementBytesMin: 8)
    // Otherwise the buffer doubles, and is copied, five times for a page.
    buffer.reserveCapacity(minimumWritableBytes: (Swift.min(count, WireLimits.pageMax) + 4) * typicalByteCount)
    for index in 0..<count {
      let row = try RowFields(&reader)
      if index > 0 { buffer.writeStaticString(",") }
      buffer.writeWithOutputRawSpan(minimumWritableBytes: byteMax(row)) {
        write(row, into: &$0)
      }
    }
  }

  /// Write the row itself.
  @_lifetime(out: copy out)
  package static func write(_ row: borrowing RowFields, into out: inout OutputRawSpan) {
    out.literal("{\"user\":{\"id\":")
    out.jsonString(row.user)
    if let joined = row.joined {
      out.literal("},\"joined_seq\":")
      out.decimal(UInt64(joined.rawValue))
      out.literal(",\"last_read\":")
    } else {
      out.literal("},\"last_read\":")
    }
    out.timestamp(milliseconds: row.lastRead.milliseconds)
    if !row.lastReadMessage.isEmpty {
      out.literal(",\"last_read_message_id\":")
      out.jsonString(row.lastReadMessage)
    }
    out.literal(",\"last_read_seq\":")
    out.decimal(UInt64(row.lastReadSequence.rawValue))
    if row.hasOwnDetails {
      out.literal(",\"unread_messages\":")
      out.decimal(UInt64(row.unreadMessages))
    }
    if row.lastDelivered != .none {
      out.literal(",\"last_delivered_at\":")
      out.timestamp(milliseconds: row.lastDelivered.milliseconds)
    }
    if !row.lastDeliveredMessage.isEmpty {
      out.literal(",\"last_delivered_message_id\":")
      out.jsonString(row.lastDeliveredMessage)
    }
    out.literal(",\"last_delivered_seq\":")
    out.decimal(UInt64(row.lastDeliveredSequence.rawValue))
    if row.hasOwnDetails {
      if !row.firstUnreadMessage.isEmpty {
        out.literal(",\"first_unread_message_id\":")
        out.jsonString(row.firstUnreadMessage)
      }
      out.literal(",\"unread_epoch\":")
      out.decimal(UInt64(row.unreadEpoch))
    }
    if row.isOwn {
      out.literal(row.isFlaggedUnread ? ",\"marked_unread\":true" : ",\"marked_unread\":false")
      out.literal(",\"unread_mentions\":")
      out.decimal(UInt64(row.unreadMentions))
    }
    out.literal("}")
  }
}

extension OutputRawSpan {
  /// Write, inside an object, that a marked position does not count, and why (R15).
  @_lifetime(self: copy self)
  mutating func uncounted(_ uncounted: ShardState.Uncounted?) {
    switch uncounted {
    case nil: break
    case .notInThread: literal(",\"counted\":false,\"reason\":\"not_in_thread\"")
    case .noReplies: literal(",\"counted\":false,\"reason\":\"no_replies\"")
    case .registeredBefore: literal(",\"counted\":false,\"reason\":\"registered_before\"")
    }
  }
}
