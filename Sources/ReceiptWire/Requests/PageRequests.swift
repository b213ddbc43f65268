package import NIOCore
package import ReceiptModel

// Queries about a channel that read pages, after the cid (Proto/frames.md). Only their form is checked here; the store
// checks their ranges. A limit is 1 to 100.

extension RequestSpec {
  /// The layouts of the requests in this file.
  static let pageRequests: [RequestSpec] = [
    RequestSpec(
      .readState,
      "read_state",
      "cid @viewer limit cursor:optional",
      reply: "rows:[@row] next_cursor:optional"
    ),
    RequestSpec(
      .threadReadState,
      "thread_read_state",
      "cid @viewer parent limit cursor:string",
      reply: "rows:[@row] next_cursor:string"
    ),
    RequestSpec(
      .userReceipts,
      "user_receipts",
      "cid user state:byte(receipt_state) limit cursor:optional",
      reply: "receipts:[@receipt] next_cursor:optional"
    ),
    RequestSpec(
      .userThreads,
      "user_threads",
      "cid user threads:byte(threads) limit cursor:optional",
      reply: "threads:[@thread] next_cursor:optional"
    ),
    RequestSpec(
      .listRoster,
      "list_roster",
      "cid @viewer limit cursor:optional",
      reply: "members:[user role joined_at muted:byte] next_cursor:optional"
    ),
    RequestSpec(
      .listMessages,
      "list_messages",
      "cid limit cursor:optional reply:optional",
      reply: "messages:[sequence message parent sender created flags] next_cursor:optional next_reply:optional"
    ),
  ]
}

/// The fields of read_state and list_roster.
package struct RowPageRequest: ~Escapable {
  package let viewer: ViewerFields
  package let limit: UInt64
  /// The next row to examine; nil: the first.
  package let cursor: UInt32?

  @_lifetime(copy reader)
  package init(_ reader: inout FieldReader) throws(WireError) {
    viewer = try ViewerFields(&reader)
    limit = try reader.varint()
    cursor = try reader.optional32()
    try reader.end()
  }
}

/// The fields of thread_read_state.
package struct ThreadReadStateRequest: ~Escapable {
  package let viewer: ViewerFields
  package let parent: RawSpan
  package let limit: UInt64
  /// Empty: the first page.
  package let cursor: RawSpan

  @_lifetime(copy reader)
  package init(_ reader: inout FieldReader) throws(WireError) {
    viewer = try ViewerFields(&reader)
    parent = try reader.string()
    limit = try reader.varint()
    cursor = try reader.string()
    try reader.end()
  }
}

/// The fields of list_messages.
package struct ListMessagesRequest: Sendable {
  package let limit: UInt64
  package let cursor: MessageListCursor?

  package init(_ reader: inout FieldReader) throws(WireError) {
    limit = try reader.varint()
    cursor = try reader.messageListCursor()
    try reader.end()
  }
}

/// The fields of user_receipts and user_threads.
package struct OwnListRequest: ~Escapable {
  package let user: RawSpan
  /// A ``ShardState/AcknowledgementState`` or a ``ShardState/ThreadSelection``, if known.
  package let selection: UInt8
  package let limit: UInt64
  /// Only what is below; nil: all.
  package let below: SequenceNumber?

  @_lifetime(copy reader)
  package init(_ reader: inout FieldReader) throws(WireError) {
    user = try reader.string()
    selection = try reader.byte()
    limit = try reader.varint()
    below = try reader.optional32().map { SequenceNumber($0) }
    try reader.end()
  }
}

extension ByteBuffer {
  /// Write what ``RowPageRequest`` reads.
  package mutating func writeRowPage(viewer: RawSpan, isServer: Bool, limit: Int, cursor: UInt32?) {
    writeViewer(viewer, isServer: isServer)
    writeVarint(limit)
    writeOptional(cursor.map(UInt64.init))
  }

  /// Write what ``ThreadReadStateRequest`` reads.
  package mutating func writeThreadReadState(
    viewer: RawSpan,
    isServer: Bool,
    parent: RawSpan,
    limit: Int,
    cursor: RawSpan
  ) {
    writeViewer(viewer, isServer: isServer)
    writeField(parent)
    writeVarint(limit)
    writeField(cursor)
  }

  /// Write what ``ListMessagesRequest`` reads.
  package mutating func writeListMessages(limit: Int, cursor: MessageListCursor?) {
    writeVarint(limit)
    writeMessageListCursor(cursor)
  }

  /// Write what ``OwnListRequest`` reads.
  package mutating func writeOwnList(user: RawSpan, selection: UInt8, limit: Int, below: SequenceNumber?) {
    writeField(user)
    writeInteger(selection)
    writeVarint(limit)
    writeOptional(below.map { UInt64($0.rawValue) })
  }
}

/// One entry of the reply to user_receipts, with its strings read in place.
package struct OwnReceiptFields: ~Escapable {
  package let sequence: SequenceNumber
  package let message: RawSpan
  /// Empty: sent by the system.
  package let sender: RawSpan
  package let createdAt: Timestamp
  package let status: AcknowledgementStatus
  /// None: the request does not expire.
  package let expiresAt: Timestamp
  /// When the user acknowledged it; none: they have not.
  package let acknowledgedAt: Timestamp
  package let isExact: Bool
  /// Empty: none.
  package let note: RawSpan

  @_lifetime(copy reader)
  @_lifetime(reader: copy reader)
  package init(_ reader: inout FieldReader) throws(WireError) {
    sequence = try reader.sequence()
    message = try reader.string()
    sender = try reader.string()
    createdAt = try reader.time()
    guard let status = AcknowledgementStatus(rawValue: try reader.byte()) else { throw .badValue(.status) }
    self.status = status
    expiresAt = try reader.time()
    acknowledgedAt = try reader.time()
    isExact = try reader.flag()
    note = try reader.string()
  }

  /// Write what ``init(_:)`` reads.
  package static func write(
    _ entry: ShardState.OwnAcknowledgement,
    message: RawSpan,
    sender: RawSpan,
    createdAt: Timestamp,
    into buffer: inout ByteBuffer
  ) {
    buffer.writeSequence(entry.sequence)
    buffer.writeField(message)
    buffer.writeField(sender)
    buffer.writeTime(createdAt)
    buffer.writeByte(entry.status.rawValue)
    buffer.writeTime(entry.expiresAt)
    buffer.writeTime(entry.acknowledgedAt)
    buffer.writeFlag(entry.isExact)
    buffer.writeField(entry.note)
  }
}

/// One entry of the reply to user_threads, with its strings read in place.
package struct OwnThreadFields: ~Escapable {
  /// Sequence number of the parent message.
  package let parent: SequenceNumber
  package let message: RawSpan
  package let unreadReplies: UInt32
  /// Empty, like the next: no such reply.
  package let lastRead: RawSpan
  package let firstUnread: RawSpan
  package let newest: RawSpan

  @_lifetime(copy reader)
  @_lifetime(reader: copy reader)
  package init(_ reader: inout FieldReader) throws(WireError) {
    parent = try reader.sequence()
    message = try reader.string()
    unreadReplies = try reader.varint32()
    lastRead = try reader.string()
    firstUnread = try reader.string()
    newest = try reader.string()
  }

  /// Write what ``init(_:)`` reads.
  package static func write(
    parent: SequenceNumber,
    message: RawSpan,
    unreadReplies: UInt32,
    lastRead: RawSpan,
    firstUnread: RawSpan,
    newest: RawSpan,
    into buffer: inout ByteBuffer
  ) {
    buffer.writeSequence(parent)
    buffer.writeField(message)
    buffer.writeVarint(unreadReplies)
    buffer.writeField(lastRead)
    buffer.writeField(firstUnread)
    buffer.writeField(newest)
  }
}

extension FieldReader {
  /// Read an optional sequence number, then an optional reply, which is none if there is no sequence number.
  @_lifetime(self: copy self)
  package mutating func messageListCursor() throws(WireError) -> MessageListCursor? {
    let message = try optional32()
    let reply = try optional32()
    guard let message else {
      guard reply == nil else { throw .badValue(.count) }
      return nil
    }
    return MessageListCursor(message: SequenceNumber(message), reply: reply.map { SequenceNumber($0) })
  }
}

extension ByteBuffer {
  package mutating func writeMessageListCursor(_ cursor: MessageListCursor?) {
    writeOptional(cursor.map { UInt64($0.message.rawValue) })
    writeOptional(cursor?.reply.map { UInt64($0.rawValue) })
  }
}

/// An entry of a roster, read in place from a payload.
package struct RosterEntryFields: ~Escapable {
  package let user: RawSpan
  /// Empty: no role.
  package let role: RawSpan
  package let joinedAt: Timestamp
  /// The member excludes the channel from their unread totals (R14); only sent to the member and to servers.
  package let isMuted: Bool

  @_lifetime(copy reader)
  package init(_ reader: inout FieldReader) throws(WireError) {
    user = try reader.string()
    role = try reader.string()
    joinedAt = try reader.time()
    isMuted = try reader.flag()
  }

  /// Write what ``init(_:)`` reads.
  package static func write(
    user: RawSpan,
    role: String,
    joinedAt: Timestamp,
    isMuted: Bool,
    into buffer: inout ByteBuffer
  ) {
    buffer.writeField(user)
    buffer.writeField(role)
    buffer.writeTime(joinedAt)
    buffer.writeFlag(isMuted)
  }
}

/// An entry of list_messages, read in place from a payload.
package struct MessageEntryFields: ~Escapable {
  package struct Flags: FlagSet {
    package let rawValue: UInt8
    package init(rawValue: UInt8) { self.rawValue = rawValue }
    package static let silent = Flags(rawValue: 1)
    package static let requestsAcknowledgement = Flags(rawValue: 2)
    static let known = Flags(rawValue: 3)
  }

  package let sequence: SequenceNumber
  package let message: RawSpan
  /// The parent of a reply; empty: the message is no reply.
  package let parent: RawSpan
  /// Empty: sent by the system.
  package let sender: RawSpan
  package let createdAt: Timestamp
  package let flags: Flags

  @_lifetime(copy reader)
  package init(_ reader: inout FieldReader) throws(WireError) {
    sequence = try reader.sequence()
    message = try reader.string()
    parent = try reader.string()
    sender = try reader.string()
    createdAt = try reader.time()
    flags = try reader.flags(known: Flags.known)
  }

  /// Write what ``init(_:)`` reads.
  package static func write(
    _ sequence: SequenceNumber,
    message: RawSpan,
    parent: RawSpan,
    sender: RawSpan,
    createdAt: Timestamp,
    flags: Flags,
    into buffer: inout ByteBuffer
  ) {
    buffer.writeSequence(sequence)
    buffer.writeField(message)
    buffer.writeField(parent)
    buffer.writeField(sender)
    buffer.writeTime(createdAt)
    buffer.writeFlags(flags)
  }
}
