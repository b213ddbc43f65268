package import NIOCore
package import ReceiptModel

/// *row* of Proto/frames.md, with its strings read in place from a payload.
package struct RowFields: ~Escapable {
  /// Maximum size: one user id and three message ids with their lengths, and at most 10 integers of at most 10 bytes.
  package static let byteCountMax =
    (Identifier.userLengthMax + 2) + 3 * (Identifier.messageLengthMax + 2) + 10 * 10

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
    let flags = try reader.varint()
    guard RowFieldFlags.areValid(flags) else { throw .badValue(.flags) }
    hasOwnDetails = flags & RowFieldFlags.details != 0
    isOwn = flags & RowFieldFlags.own != 0
    isFlaggedUnread = flags & RowFieldFlags.flagged != 0
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
    joined = flags & RowFieldFlags.joined != 0 ? try reader.sequence() : nil
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
      var flags = includesJoin ? RowFieldFlags.joined : 0
      if let own = row.own {
        flags |= RowFieldFlags.details
        if own.isOwn { flags |= RowFieldFlags.own }
        if own.isFlaggedUnread { flags |= RowFieldFlags.flagged }
      }
      fields.varint(flags)
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

/// The reply to set_member (Proto/frames.md), after whether the user joined.
package struct SetMemberFields: Hashable, Sendable {
  /// Empty: no role.
  package var role: String
  package var joinedAt: Timestamp
  package var isMuted: Bool

  package init(role: String, joinedAt: Timestamp, isMuted: Bool) {
    self.role = role
    self.joinedAt = joinedAt
    self.isMuted = isMuted
  }

  package init(_ reader: inout FieldReader) throws(WireError) {
    role = try reader.text()
    joinedAt = try reader.time()
    let muted = try reader.byte()
    guard muted <= 1 else { throw .badValue(.flags) }
    isMuted = muted == 1
  }

  package func write(into buffer: inout ByteBuffer) {
    buffer.writeField(role)
    buffer.writeTime(joinedAt)
    buffer.writeInteger(UInt8(isMuted ? 1 : 0))
  }
}

/// The flags of *row* in Proto/frames.md.
package enum RowFieldFlags {
  /// Own details follow.
  package static let details: UInt64 = 1
  /// The row is the viewer's own.
  package static let own: UInt64 = 2
  /// The channel is flagged unread as a whole (R4).
  package static let flagged: UInt64 = 4
  /// The newest message at the member's join follows.
  package static let joined: UInt64 = 64

  /// Return whether a combination is valid: the viewer's own row has details, and only it has the unread flag.
  static func areValid(_ flags: UInt64) -> Bool {
    switch flags & ~joined {
    case 0, details, details | own, details | own | flagged: true
    default: false
    }
  }
}

/// *channel* of Proto/frames.md.
package struct ChannelFields: Hashable, Sendable {
  package var cid: String
  package var created: Timestamp
  package var options: ChannelTypeOptions
  package var memberCount: UInt32
  package var newest: SequenceNumber
  /// Empty: no message yet.
  package var newestMessage: String
  package var newestRegistered: Timestamp

  package init(
    cid: String,
    created: Timestamp,
    options: ChannelTypeOptions,
    memberCount: UInt32,
    newest: SequenceNumber,
    newestMessage: String,
    newestRegistered: Timestamp
  ) {
    self.cid = cid
    self.created = created
    self.options = options
    self.memberCount = memberCount
    self.newest = newest
    self.newestMessage = newestMessage
    self.newestRegistered = newestRegistered
  }

  package init(_ reader: inout FieldReader) throws(WireError) {
    cid = try reader.text()
    created = try reader.time()
    options = try reader.options()
    memberCount = try reader.varint32()
    newest = try reader.sequence()
    newestMessage = try reader.text()
    newestRegistered = try reader.time()
  }

  package func write(into buffer: inout ByteBuffer) {
    buffer.writeField(cid)
    buffer.writeTime(created)
    buffer.writeOptions(options)
    buffer.writeVarint(memberCount)
    buffer.writeSequence(newest)
    buffer.writeField(newestMessage)
    buffer.writeTime(newestRegistered)
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
    let flags = try varint()
    guard flags <= 7 else { throw .badValue(.flags) }
    let created = try time()
    let acknowledged = flags & 4 != 0 ? try varint32() : nil
    if let acknowledged, acknowledged > members { throw .badValue(.count) }
    return ShownStatus(
      sequence: sequence,
      status: status,
      acknowledgement: acknowledgement,
      readCount: read,
      deliveredCount: delivered,
      memberCount: members,
      readEvents: flags & 1 != 0,
      deliveryEvents: flags & 2 != 0,
      createdAt: created,
      acknowledgedCount: acknowledged
    )
  }
}

extension ByteBuffer {
  package mutating func writeStatus(_ status: ShownStatus) {
    writeSequence(status.sequence)
    writeInteger(status.status.rawValue)
    writeInteger(status.acknowledgement.rawValue)
    writeVarint(status.readCount)
    writeVarint(status.deliveredCount)
    writeVarint(status.unreadCount)
    writeVarint(status.memberCount)
    let flags: UInt64 = (status.readEvents ? 1 : 0) | (status.deliveryEvents ? 2 : 0)
    writeVarint(flags | (status.acknowledgedCount == nil ? 0 : 4))
    writeTime(status.createdAt)
    if let acknowledged = status.acknowledgedCount { writeVarint(acknowledged) }
  }
}
