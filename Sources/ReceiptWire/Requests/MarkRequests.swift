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
  @inlinable @inline(__always) @_lifetime(copy reader)
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
    writeFields(byteCountMax: user.byteCount + message.byteCount + 3 * Varint.byteCountMax) { fields in
      fields.string(user)
      fields.string(message)
      fields.optional(epoch)
    }
  }

  /// Write what ``MarkRequest`` reads of mark_delivered.
  package mutating func writeMarkDelivered(user: RawSpan, message: RawSpan) {
    writeFields(byteCountMax: user.byteCount + message.byteCount + 2 * Varint.byteCountMax) { fields in
      fields.string(user)
      fields.string(message)
    }
  }

  /// Write what ``MarkUnreadSinceRequest`` reads.
  package mutating func writeMarkUnreadSince(user: RawSpan, since: Timestamp, epoch: UInt64?) {
    writeField(user)
    writeTime(since)
    writeOptional(epoch)
  }
}

/// The reply to a mark: the member's row, and why the mark does not count.
package struct MarkReply: ~Escapable {
  package let row: RowFields
  /// Nil: the mark counts.
  package let uncounted: ShardState.Uncounted?

  @_lifetime(copy payload)
  package init(_ payload: RawSpan) throws(WireError) {
    var reader = FieldReader(payload)
    row = try RowFields(&reader)
    guard reader.remaining > 0 else {
      uncounted = nil
      return
    }
    guard let reason = ShardState.Uncounted(rawValue: try reader.byte()) else { throw .badValue(.reason) }
    uncounted = reason
    try reader.end()
  }
}

extension ByteBuffer {
  /// Write what ``MarkReply`` reads.
  ///
  /// - Parameter row: writes what ``RowFields`` reads.
  @inline(__always)
  package mutating func writeMarkReply(_ uncounted: ShardState.Uncounted?, row: (inout ByteBuffer) -> Void) {
    row(&self)
    if let uncounted { writeByte(uncounted.rawValue) }
  }
}

/// *row* of Proto/frames.md, with its strings read in place from a payload.
package struct RowFields: ~Escapable {
  /// Maximum size: one user id and three message ids with their lengths, and at most 10 integers of at most 10 bytes.
  package static let byteCountMax = (Identifier.userLengthMax + 2) + 3 * (Identifier.messageLengthMax + 2) + 10 * 10

  package let user: RawSpan
  package let lastRead: Timestamp
  package let lastReadMessage: RawSpan
  package let lastReadSequence: SequenceNumber
  package let lastDelivered: Timestamp
  package let lastDeliveredMessage: RawSpan
  package let lastDeliveredSequence: SequenceNumber
  package let hasOwnDetails: Bool
  package let unreadMessages: UInt32
  /// Empty: no unread message.
  package let firstUnreadMessage: RawSpan
  package let unreadEpoch: UInt32
  /// The row is the viewer's own; only then are the flag and the mentions set.
  package let isOwn: Bool
  package let isFlaggedUnread: Bool
  /// Unread messages and replies that mention the member (R14).
  package let unreadMentions: UInt32
  /// The newest message at the member's join; nil: not reported.
  package let joined: SequenceNumber?

  @_lifetime(copy reader)
  package init(_ reader: inout FieldReader) throws(WireError) {
    user = try reader.string()
    lastRead = try reader.time()
    lastReadMessage = try reader.string()
    lastReadSequence = try reader.sequence()
    lastDelivered = try reader.time()
    lastDeliveredMessage = try reader.string()
    lastDeliveredSequence = try reader.sequence()
    let flags = try reader.rowFlags()
    hasOwnDetails = flags.contains(.details)
    isOwn = flags.contains(.own)
    isFlaggedUnread = flags.contains(.flagged)
    if hasOwnDetails {
      unreadMessages = try reader.varint32()
      firstUnreadMessage = try reader.string()
      unreadEpoch = try reader.varint32()
    } else {
      unreadMessages = 0
      firstUnreadMessage = try reader.raw(0)
      unreadEpoch = 0
    }
    unreadMentions = isOwn ? try reader.varint32() : 0
    joined = flags.contains(.joined) ? try reader.sequence() : nil
  }

  /// Write what ``init(_:)`` reads, in one pass: every mark is answered with a row.
  ///
  /// - Parameters:
  ///   - user: id of the row's user.
  ///   - lastReadMessage: id of the message at `row.lastReadSequence`; empty if it is not shown.
  ///   - lastDeliveredMessage: likewise.
  ///   - firstUnreadMessage: id of the first unread message; written only with the row's own details.
  ///   - includesJoin: include the newest message at the time of the member's join.
  package static func write(
    _ row: ShownRow,
    user: RawSpan,
    lastReadMessage: RawSpan,
    lastDeliveredMessage: RawSpan,
    firstUnreadMessage: RawSpan,
    includesJoin: Bool,
    into buffer: inout ByteBuffer
  ) {
    buffer.writeFields(byteCountMax: byteCountMax) { fields in
      fields.string(user)
      fields.time(row.lastRead)
      fields.string(lastReadMessage)
      fields.varint(UInt64(row.lastReadSequence.rawValue))
      fields.time(row.lastDelivered)
      fields.string(lastDeliveredMessage)
      fields.varint(UInt64(row.lastDeliveredSequence.rawValue))
      var flags = includesJoin ? RowFieldFlags.joined : RowFieldFlags()
      if let own = row.own {
        flags.insert(.details)
        if own.isOwn { flags.insert(.own) }
        if own.isFlaggedUnread { flags.insert(.flagged) }
      }
      fields.byte(flags.rawValue)
      if let own = row.own {
        fields.varint(UInt64(own.unreadMessages))
        fields.string(firstUnreadMessage)
        fields.varint(UInt64(own.unreadEpoch))
        if own.isOwn { fields.varint(UInt64(own.unreadMentions)) }
      }
      if includesJoin { fields.varint(UInt64(row.joined.rawValue)) }
    }
  }
}

/// The flags of *row* in Proto/frames.md.
struct RowFieldFlags: FlagSet {
  let rawValue: UInt8

  /// Own details follow.
  static let details = Self(rawValue: 1)
  /// The row is the viewer's own.
  static let own = Self(rawValue: 2)
  /// The channel is flagged unread as a whole (R4).
  static let flagged = Self(rawValue: 4)
  /// The newest message at the member's join follows.
  static let joined = Self(rawValue: 64)
  private static let known: Self = [.details, .own, .flagged, .joined]

  init(rawValue: UInt8) { self.rawValue = rawValue }

  /// Whether the combination is valid: the viewer's own row has details, and only it has the unread flag.
  var isValid: Bool {
    Self.known.contains(self) && (contains(.details) || !contains(.own)) && (contains(.own) || !contains(.flagged))
  }
}

extension FieldReader {
  /// Read the flags of a row.
  @_lifetime(self: copy self)
  mutating func rowFlags() throws(WireError) -> RowFieldFlags {
    guard let rawValue = UInt8(exactly: try varint()) else { throw .badValue(.flags) }
    let flags = RowFieldFlags(rawValue: rawValue)
    guard flags.isValid else { throw .badValue(.flags) }
    return flags
  }
}
