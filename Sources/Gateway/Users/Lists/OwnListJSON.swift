internal import NIOCore
internal import ReceiptModel
internal import ReceiptWire

/// JSON of a user's own acknowledgement requests and threads (Proto/openapi.yaml; R9, R15).
enum OwnListJSON {
  /// Upper bound for the size of an entry without its variable-length strings.
  private static let fixedByteMax = 384

  /// Write one entry of a reply to user_receipts as
  /// `{"cid","message_id","seq","user"?,"created_at","receipt_status","expires_at"?,"acknowledged_at"?,"exact"?,
  /// "note"?}`.
  ///
  /// - Returns: the message's sequence number.
  static func writeReceipt(
    _ reader: inout FieldReader,
    cid: RawSpan,
    into buffer: inout ByteBuffer
  ) throws(WireError) -> UInt32 {
    let sequence = try reader.sequence()
    let message = try reader.string()
    let sender = try reader.string()
    let created = try reader.time()
    guard let status = AcknowledgementStatus(rawValue: try reader.byte()) else { throw .badValue(.status) }
    let expires = try reader.time()
    let acknowledged = try reader.time()
    let isExact = try reader.byte() == 1
    let note = try reader.string()
    let byteMax = fixedByteMax + 6 * (cid.byteCount + message.byteCount + sender.byteCount + note.byteCount)
    buffer.writeWithOutputRawSpan(minimumWritableBytes: byteMax) { out in
      out.literal("{\"cid\":")
      out.jsonString(cid)
      out.literal(",\"message_id\":")
      out.jsonString(message)
      out.literal(",\"seq\":")
      out.decimal(UInt64(sequence.rawValue))
      if !sender.isEmpty {
        out.literal(",\"user\":{\"id\":")
        out.jsonString(sender)
        out.literal("}")
      }
      out.literal(",\"created_at\":")
      out.timestamp(milliseconds: created.milliseconds)
      out.literal(",\"receipt_status\":")
      out.acknowledgementStatus(status)
      if expires != .none {
        out.literal(",\"expires_at\":")
        out.timestamp(milliseconds: expires.milliseconds)
      }
      if acknowledged != .none {
        out.literal(",\"acknowledged_at\":")
        out.timestamp(milliseconds: acknowledged.milliseconds)
        out.literal(",\"exact\":")
        out.bool(isExact)
      }
      if !note.isEmpty {
        out.literal(",\"note\":")
        out.jsonString(note)
      }
      out.literal("}")
    }
    return sequence.rawValue
  }

  /// Write one entry of a reply to user_threads as
  /// `{"cid","thread_id","unread_messages","last_read_message_id"?,"first_unread_message_id"?,"newest_message_id"}`.
  ///
  /// - Returns: the parent's sequence number.
  static func writeThread(
    _ reader: inout FieldReader,
    cid: RawSpan,
    into buffer: inout ByteBuffer
  ) throws(WireError) -> UInt32 {
    let parent = try reader.sequence()
    let thread = try reader.string()
    let unread = try reader.varint32()
    let lastRead = try reader.string()
    let firstUnread = try reader.string()
    let newest = try reader.string()
    let strings = thread.byteCount + lastRead.byteCount + firstUnread.byteCount + newest.byteCount
    buffer.writeWithOutputRawSpan(minimumWritableBytes: fixedByteMax + 6 * (cid.byteCount + strings)) { out in
      out.literal("{\"cid\":")
      out.jsonString(cid)
      out.literal(",\"thread_id\":")
      out.jsonString(thread)
      out.literal(",\"unread_messages\":")
      out.decimal(UInt64(unread))
      if !lastRead.isEmpty {
        out.literal(",\"last_read_message_id\":")
        out.jsonString(lastRead)
      }
      if !firstUnread.isEmpty {
        out.literal(",\"first_unread_message_id\":")
        out.jsonString(firstUnread)
      }
      out.literal(",\"newest_message_id\":")
      out.jsonString(newest)
      out.literal("}")
    }
    return parent.rawValue
  }

  /// Write `{"receipts": […], "next"?}` or `{"threads": […], "next"?}`.
  static func write(_ scan: UserListScan, into buffer: inout ByteBuffer) {
    switch scan.subject {
    case .receipts: buffer.writeStaticString("{\"receipts\":[")
    case .threads: buffer.writeStaticString("{\"threads\":[")
    }
    buffer.writeImmutableBuffer(scan.entries)
    buffer.writeStaticString("]")
    if let next = scan.next { buffer.writeString(",\"next\":\"\(next.text)\"") }
    buffer.writeStaticString("}")
  }
}
