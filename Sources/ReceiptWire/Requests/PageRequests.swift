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
      .statuses,
      "statuses",
      "cid @viewer messages:[message]",
      reply: "statuses:[found:byte(error) @status]"
    ),
    RequestSpec(
      .listMembers,
      "list_members",
      "cid @viewer message list:byte(list) order:byte(order) limit cursor:string",
      reply: "entries:[user time exact:byte note] next_cursor:string total~"
    ),
    RequestSpec(
      .memberStatuses,
      "member_statuses",
      "cid @viewer message users:[user]",
      reply: "statuses:[@member_status]"
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

/// The fields of list_members (R11).
package struct ListMembersRequest: ~Escapable {
  package let viewer: ViewerFields
  package let message: RawSpan
  /// A ``MemberList``, if known.
  package let list: UInt8
  /// A ``ListOrder``, if known.
  package let order: UInt8
  package let limit: UInt64
  /// Empty: the first page.
  package let cursor: RawSpan

  @_lifetime(copy reader)
  package init(_ reader: inout FieldReader) throws(WireError) {
    viewer = try ViewerFields(&reader)
    message = try reader.string()
    list = try reader.byte()
    order = try reader.byte()
    limit = try reader.varint()
    cursor = try reader.string()
    try reader.end()
  }
}

/// The fields of member_statuses.
package struct MemberStatusesRequest: ~Escapable {
  package let viewer: ViewerFields
  package let message: RawSpan
  package let users: StringListFields

  @_lifetime(copy reader)
  package init(_ reader: inout FieldReader) throws(WireError) {
    viewer = try ViewerFields(&reader)
    message = try reader.string()
    users = try StringListFields(&reader)
    try reader.end()
  }
}

/// The fields of statuses.
package struct StatusesRequest: ~Escapable {
  package let viewer: ViewerFields
  package let messages: StringListFields

  @_lifetime(copy reader)
  package init(_ reader: inout FieldReader) throws(WireError) {
    viewer = try ViewerFields(&reader)
    messages = try StringListFields(&reader)
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

  /// Write what ``ListMembersRequest`` reads.
  package mutating func writeListMembers(
    viewer: RawSpan,
    isServer: Bool,
    message: RawSpan,
    list: MemberList,
    order: ListOrder,
    limit: Int,
    cursor: RawSpan
  ) {
    writeViewer(viewer, isServer: isServer)
    writeField(message)
    writeInteger(list.rawValue)
    writeInteger(order.rawValue)
    writeVarint(limit)
    writeField(cursor)
  }

  /// Write what ``MemberStatusesRequest`` reads, up to its users: `userCount` strings (1 to 100) must follow.
  package mutating func writeMemberStatuses(
    viewer: RawSpan,
    isServer: Bool,
    message: RawSpan,
    userCount: Int
  ) {
    writeViewer(viewer, isServer: isServer)
    writeField(message)
    writeVarint(userCount)
  }

  /// Write what ``StatusesRequest`` reads, up to its messages: `messageCount` strings (1 to 100) must follow.
  package mutating func writeStatuses(viewer: RawSpan, isServer: Bool, messageCount: Int) {
    writeViewer(viewer, isServer: isServer)
    writeVarint(messageCount)
  }

  /// Write what ``OwnListRequest`` reads.
  package mutating func writeOwnList(user: RawSpan, selection: UInt8, limit: Int, below: SequenceNumber?) {
    writeField(user)
    writeInteger(selection)
    writeVarint(limit)
    writeOptional(below.map { UInt64($0.rawValue) })
  }
}
