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
    let receipt = try OwnReceiptFields(&reader)
    let strings = receipt.message.byteCount + receipt.sender.byteCount + receipt.note.byteCount
    let byteMax = fixedByteMax + 6 * (cid.byteCount + strings)
    buffer.writeWithOutputRawSpan(minimumWritableBytes: byteMax) { out in
      out.literal("{\"cid\":")
      out.jsonString(cid)
      out.literal(",\"message_id\":")
      out.jsonString(receipt.message)
      out.literal(",\"seq\":")
      out.decimal(UInt64(receipt.sequence.rawValue))
      if !receipt.sender.isEmpty {
        out.literal(",\"user\":{\"id\":")
        out.jsonString(receipt.sender)
        out.literal("}")
      }
      out.literal(",\"created_at\":")
      out.timestamp(milliseconds: receipt.createdAt.milliseconds)
      out.literal(",\"receipt_status\":")
      out.acknowledgementStatus(receipt.status)
      if receipt.expiresAt != .none {
        out.literal(",\"expires_at\":")
        out.timestamp(milliseconds: receipt.expiresAt.milliseconds)
      }
      if receipt.acknowledgedAt != .none {
        out.literal(",\"acknowledged_at\":")
        out.timestamp(milliseconds: receipt.acknowledgedAt.milliseconds)
        out.literal(",\"exact\":")
        out.bool(receipt.isExact)
      }
      if !receipt.note.isEmpty {
        out.literal(",\"note\":")
        out.jsonString(receipt.note)
      }
      out.literal("}")
    }
    return receipt.sequence.rawValue
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
    let thread = try OwnThreadFields(&reader)
    let strings =
      thread.message.byteCount + thread.lastRead.byteCount + thread.firstUnread.byteCount + thread.newest.byteCount
    buffer.writeWithOutputRawSpan(minimumWritableBytes: fixedByteMax + 6 * (cid.byteCount + strings)) { out in
      out.literal("{\"cid\":")
      out.jsonString(cid)
      out.literal(",\"thread_id\":")
      out.jsonString(thread.message)
      out.literal(",\"unread_messages\":")
      out.decimal(UInt64(thread.unreadReplies))
      if !thread.lastRead.isEmpty {
        out.literal(",\"last_read_message_id\":")
        out.jsonString(thread.lastRead)
      }
      if !thread.firstUnread.isEmpty {
        out.literal(",\"first_unread_message_id\":")
        out.jsonString(thread.firstUnread)
      }
      out.literal(",\"newest_message_id\":")
      out.jsonString(thread.newest)
      out.literal("}")
    }
    return thread.parent.rawValue
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
