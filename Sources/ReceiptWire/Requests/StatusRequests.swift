package import NIOCore
package import ReceiptModel

// Queries about the statuses of a channel's messages, and about the members behind them, after the cid
// (Proto/frames.md). Only their form is checked here; the store checks their ranges.

extension RequestSpec {
  /// The layouts of the requests in this file.
  static let statusRequests: [RequestSpec] = [
    RequestSpec(.statuses, "statuses", "cid @viewer messages:[message]", reply: "statuses:[found:byte(error) @status]"),
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
  ]
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

extension ByteBuffer {
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
    writeByte(list.rawValue)
    writeByte(order.rawValue)
    writeVarint(limit)
    writeField(cursor)
  }

  /// Write what ``MemberStatusesRequest`` reads, up to its users: `userCount` strings (1 to 100) must follow.
  package mutating func writeMemberStatuses(viewer: RawSpan, isServer: Bool, message: RawSpan, userCount: Int) {
    writeViewer(viewer, isServer: isServer)
    writeField(message)
    writeVarint(userCount)
  }

  /// Write what ``StatusesRequest`` reads, up to its messages: `messageCount` strings (1 to 100) must follow.
  package mutating func writeStatuses(viewer: RawSpan, isServer: Bool, messageCount: Int) {
    writeViewer(viewer, isServer: isServer)
    writeVarint(messageCount)
  }
}

// MARK: Replies

/// The flags of *status*.
private struct StatusFlags: FlagSet {
  let rawValue: UInt8

  static let readEvents = Self(rawValue: 1)
  static let deliveryEvents = Self(rawValue: 2)
  static let withAcknowledgedCount = Self(rawValue: 4)
  static let known = Self(rawValue: 7)

  init(rawValue: UInt8) { self.rawValue = rawValue }

  init(_ status: ShownStatus) {
    self.init()
    if status.readEvents { insert(.readEvents) }
    if status.deliveryEvents { insert(.deliveryEvents) }
    if status.acknowledgedCount != nil { insert(.withAcknowledgedCount) }
  }
}

extension FieldReader {
  @_lifetime(self: copy self)
  package mutating func status() throws(WireError) -> ShownStatus {
    let sequence = try sequence()
    guard let status = MessageStatus(rawValue: try byte()) else { throw .badValue(.status) }
    guard let acknowledgement = AcknowledgementStatus(rawValue: try byte()) else { throw .badValue(.status) }
    let read = try varint32()
    let delivered = try varint32()
    let unread = try varint32()
    let members = try varint32()
    guard read <= members, unread == members - read else { throw .badValue(.count) }
    let flags = try flags(known: StatusFlags.known)
    let created = try time()
    let acknowledged = flags.contains(.withAcknowledgedCount) ? try varint32() : nil
    if let acknowledged, acknowledged > members { throw .badValue(.count) }
    return ShownStatus(
      sequence: sequence,
      status: status,
      acknowledgement: acknowledgement,
      readCount: read,
      deliveredCount: delivered,
      memberCount: members,
      readEvents: flags.contains(.readEvents),
      deliveryEvents: flags.contains(.deliveryEvents),
      createdAt: created,
      acknowledgedCount: acknowledged
    )
  }
}

extension ByteBuffer {
  package mutating func writeStatus(_ status: ShownStatus) {
    writeSequence(status.sequence)
    writeByte(status.status.rawValue)
    writeByte(status.acknowledgement.rawValue)
    writeVarint(status.readCount)
    writeVarint(status.deliveredCount)
    writeVarint(status.unreadCount)
    writeVarint(status.memberCount)
    writeFlags(StatusFlags(status))
    writeTime(status.createdAt)
    if let acknowledged = status.acknowledgedCount { writeVarint(acknowledged) }
  }
}

/// One result in the reply to statuses.
package enum StatusResultFields: Hashable, Sendable {
  case found(ShownStatus)
  /// Nil: a code that this build does not know.
  case refused(ErrorCode?)

  package init(_ reader: inout FieldReader) throws(WireError) {
    let code = try reader.byte()
    self = code == 0 ? .found(try reader.status()) : .refused(ErrorCode(rawValue: UInt16(code)))
  }

  /// Read a whole reply.
  package static func all(_ payload: RawSpan) throws(WireError) -> [StatusResultFields] {
    var reader = FieldReader(payload)
    var results: [StatusResultFields] = []
    for _ in 0..<(try reader.count()) { results.append(try StatusResultFields(&reader)) }
    try reader.end()
    return results
  }
}

extension ByteBuffer {
  /// Write a found status as ``StatusResultFields`` reads it.
  package mutating func writeStatusResult(_ status: ShownStatus) {
    writeByte(0)
    writeStatus(status)
  }

  /// Write a refusal as ``StatusResultFields`` reads it.
  package mutating func writeStatusResult(refused code: ErrorCode) { writeInteger(UInt8(code.rawValue)) }
}

/// *entry* of Proto/frames.md, one member in a list, with its strings read in place.
package struct ListEntryFields: ~Escapable {
  package let user: RawSpan
  /// When the member read it, had it delivered, or acknowledged it; none in the lists of members who have not.
  package let at: Timestamp
  package let isExact: Bool
  /// Empty: none.
  package let note: RawSpan

  @_lifetime(copy reader)
  package init(_ reader: inout FieldReader) throws(WireError) {
    user = try reader.string()
    at = try reader.time()
    isExact = try reader.flag()
    note = try reader.string()
  }
}

/// One member in the reply to *member_statuses*: the user, and their status for the message or the reason for its
/// absence.
package struct MemberStatusFields: ~Escapable {
  package let user: RawSpan
  /// 0, or an ``ErrorCode``: `not_a_member`, `not_expected`, `counts_not_visible`.
  package let code: UInt32
  /// Set if the code is 0.
  package let status: MemberStatus?

  @_lifetime(copy reader)
  package init(_ reader: inout FieldReader) throws(WireError) {
    user = try reader.string()
    code = try reader.varint32()
    status = code == 0 ? try reader.memberStatus() : nil
  }
}

/// The flags of *member status*.
private struct MemberStatusFlags: FlagSet {
  let rawValue: UInt8

  static let readIsExact = Self(rawValue: 1)
  static let deliveredIsExact = Self(rawValue: 2)
  static let withAcknowledgedAt = Self(rawValue: 4)
  static let known = Self(rawValue: 7)

  init(rawValue: UInt8) { self.rawValue = rawValue }

  init(_ status: MemberStatus) {
    self.init()
    if status.readIsExact { insert(.readIsExact) }
    if status.deliveredIsExact { insert(.deliveredIsExact) }
    if status.acknowledgedAt != .none { insert(.withAcknowledgedAt) }
  }
}

extension FieldReader {
  /// Read *member status* of Proto/frames.md.
  @_lifetime(self: copy self)
  package mutating func memberStatus() throws(WireError) -> MemberStatus {
    guard let status = MessageStatus(rawValue: try byte()) else { throw .badValue(.status) }
    let readAt = try time()
    let deliveredAt = try time()
    let flags = try byteOfFlags(known: MemberStatusFlags.known)
    return MemberStatus(
      status: status,
      readAt: readAt,
      deliveredAt: deliveredAt,
      readIsExact: flags.contains(.readIsExact),
      deliveredIsExact: flags.contains(.deliveredIsExact),
      acknowledgedAt: flags.contains(.withAcknowledgedAt) ? try time() : .none
    )
  }
}

extension ByteBuffer {
  /// Write *entry* of Proto/frames.md.
  package mutating func writeListEntry(user: RawSpan, _ entry: ListEntry) {
    writeField(user)
    writeTime(entry.at)
    writeFlag(entry.isExact)
    writeField(entry.note)
  }

  /// Write one member with a status in the reply to *member_statuses*.
  package mutating func writeMemberStatus(user: RawSpan, _ status: MemberStatus) {
    writeField(user)
    writeVarint(UInt64(0))
    writeByte(status.status.rawValue)
    writeTime(status.readAt)
    writeTime(status.deliveredAt)
    writeByte(MemberStatusFlags(status).rawValue)
    if status.acknowledgedAt != .none { writeTime(status.acknowledgedAt) }
  }

  /// Write one member without a status in the reply to *member_statuses*, with the reason.
  package mutating func writeMemberStatus(user: RawSpan, refused code: ErrorCode) {
    writeField(user)
    writeVarint(UInt64(code.rawValue))
  }
}
