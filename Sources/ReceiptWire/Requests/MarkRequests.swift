package import NIOCore
package import ReceiptModel

extension RequestSpec {
  /// The layouts of the requests in this file.
  static let markRequests: [RequestSpec] = [
    RequestSpec(
      .markRead,
      "mark_read",
      "cid counter user message unread_epoch:optional",
      reply: "@row @uncounted"
    ),
    RequestSpec(
      .markUnread,
      "mark_unread",
      "cid counter user message unread_epoch:optional",
      reply: "@row @uncounted"
    ),
    RequestSpec(.markDelivered, "mark_delivered", "cid counter user message", reply: "@row @uncounted"),
    RequestSpec(
      .markUnreadSince,
      "mark_unread_since",
      "cid counter user since unread_epoch:optional",
      reply: "@row @uncounted"
    ),
  ]
}

/// The fields of mark_read, mark_unread and mark_delivered, after the cid and the counter.
@usableFromInline
package struct MarkRequest: ~Escapable {
  @usableFromInline package let user: RawSpan
  /// Empty: the newest message; in mark_unread the whole channel.
  @usableFromInline package let message: RawSpan
  /// Nil in mark_delivered.
  @usableFromInline package let epoch: UInt32?

  /// Read the fields; mark_delivered has no epoch.
  @inlinable @inline(__always)
  @_lifetime(copy reader)
  @_lifetime(reader: copy reader)
  package init(_ reader: inout FieldReader, hasEpoch: Bool) throws(WireError) {
    user = try reader.string()
    message = try reader.string()
    epoch = try hasEpoch ? reader.optional32() : nil
  }
}

/// The fields of mark_unread_since, after the cid and the counter.
package struct MarkUnreadSinceRequest: ~Escapable {
  package let user: RawSpan
  package let since: Timestamp
  package let epoch: UInt32?

  @_lifetime(copy reader)
  @_lifetime(reader: copy reader)
  package init(_ reader: inout FieldReader) throws(WireError) {
    user = try reader.string()
    since = try reader.time()
    epoch = try reader.optional32()
  }
}

extension ByteBuffer {
  /// Write what ``MarkRequest`` reads of mark_read and mark_unread.
  package mutating func writeMark(user: RawSpan, message: RawSpan, epoch: UInt64?) {
    writeMarkDelivered(user: user, message: message)
    writeOptional(epoch)
  }

  /// Write what ``MarkRequest`` reads of mark_delivered.
  package mutating func writeMarkDelivered(user: RawSpan, message: RawSpan) {
    writeField(user)
    writeField(message)
  }

  /// Write what ``MarkUnreadSinceRequest`` reads.
  package mutating func writeMarkUnreadSince(user: RawSpan, since: Timestamp, epoch: UInt64?) {
    writeField(user)
    writeTime(since)
    writeOptional(epoch)
  }
}
