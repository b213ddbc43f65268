package import NIOCore
package import ReceiptModel

// Commands about a channel and its messages, after the cid and the counter (Proto/frames.md). Only their form is
// checked here; the store checks their ranges.

extension RequestSpec {
  /// The layouts of the requests in this file.
  static let channelRequests: [RequestSpec] = [
    RequestSpec(
      .putChannel,
      "put_channel",
      "cid counter patch:[@option] members:[user role]",
      reply: "was_created:byte @channel"
    ), RequestSpec(.changeMembers, "change_members", "cid counter add:[user role] remove:[user]", reply: "@channel"),
    RequestSpec(
      .registerMessage,
      "register_message",
      """
      cid counter message user created flags mentions:[user]?flags&16 \
      reminders:[after when:byte(when) limit]?flags&32
      """,
      reply: "was_created:byte sequence status:byte(status) receipt_refusal:byte(receipt_refusal)"
    ), RequestSpec(.deleteMessage, "delete_message", "cid counter message", reply: "sequence"),
    RequestSpec(
      .acknowledge,
      "acknowledge",
      "cid counter user note messages:[message]",
      reply: "codes:[code:varint(error)]"
    ), RequestSpec(.deleteChannel, "delete_channel", "cid counter", reply: "deleted:byte"),
    RequestSpec(.truncateChannel, "truncate_channel", "cid counter message", reply: "@channel"),
    RequestSpec(.eraseMember, "erase_member", "cid counter user", reply: "erased:byte"),
    RequestSpec(.getChannel, "get_channel", "cid", reply: "@channel"),
    RequestSpec(
      .setMember,
      "set_member",
      "cid counter user role flags",
      reply: "joined:byte role joined_at muted:byte"
    ),
  ]
}

/// The fields of register_message.
package struct RegisterMessageRequest: ~Escapable {
  package static let silent: UInt64 = 1
  package static let requestsAcknowledgement: UInt64 = 2
  /// The message moves no position of its sender.
  package static let movesNoPosition: UInt64 = 4
  package static let mentionsAll: UInt64 = 8
  /// The names of the mentioned users follow.
  package static let mentionsUsers: UInt64 = 16
  /// The message's own reminders follow (R22).
  package static let hasReminders: UInt64 = 32

  /// Return whether these are flags of a registration: `mentionsAll` and `mentionsUsers` exclude each other.
  package static func areFlags(_ flags: UInt64) -> Bool {
    flags < 64 && flags & (mentionsAll | mentionsUsers) != mentionsAll | mentionsUsers
  }

  package let message: RawSpan
  /// Empty: sent by the system.
  package let sender: RawSpan
  package let created: Timestamp
  package let flags: UInt64
  package let mentions: NewMessage.Mentions
  /// nil: those of the channel.
  package let reminders: [ReminderRule]?

  package var isSilent: Bool { flags & Self.silent != 0 }
  package var requestsAcknowledgement: Bool { flags & Self.requestsAcknowledgement != 0 }
  package var movesPosition: Bool { flags & Self.movesNoPosition == 0 }

  /// Read the fields; the thread may follow. After flags of a later version no list is read.
  @_lifetime(copy reader)
  @_lifetime(reader: copy reader)
  package init(_ reader: inout FieldReader) throws(WireError) {
    message = try reader.string()
    sender = try reader.string()
    created = try reader.time()
    flags = try reader.varint()
    let known = Self.areFlags(flags) ? flags : 0
    if known & Self.mentionsUsers != 0 {
      mentions = .users(try reader.texts())
    } else {
      mentions = known & Self.mentionsAll != 0 ? .all : .nobody
    }
    reminders = known & Self.hasReminders != 0 ? try reader.reminderRules() : nil
  }
}

/// The fields of delete_message, and of truncate_channel, where an empty message means all.
package struct MessageRequest: ~Escapable {
  package let message: RawSpan

  @_lifetime(copy reader)
  package init(_ reader: inout FieldReader) throws(WireError) {
    message = try reader.string()
    try reader.end()
  }
}

/// The fields of acknowledge (R9).
package struct AcknowledgeRequest: ~Escapable {
  package let user: RawSpan
  /// Empty: none.
  package let note: RawSpan
  package let messages: StringListFields

  @_lifetime(copy reader)
  package init(_ reader: inout FieldReader) throws(WireError) {
    user = try reader.string()
    note = try reader.string()
    messages = try StringListFields(&reader)
    try reader.end()
  }
}

/// The fields of put_channel.
package struct PutChannelRequest: Sendable {
  package let patch: OptionPatch
  package let members: [ShardState.NewMember]

  package init(_ reader: inout FieldReader) throws(WireError) {
    patch = try reader.optionPatch()
    members = try reader.newMembers()
    try reader.end()
  }
}

/// The fields of change_members.
package struct ChangeMembersRequest: Sendable {
  package let add: [ShardState.NewMember]
  package let remove: [String]

  package init(_ reader: inout FieldReader) throws(WireError) {
    add = try reader.newMembers()
    remove = try reader.texts()
    try reader.end()
  }
}

/// The fields of set_member.
package struct SetMemberRequest: Sendable {
  package static let muteGiven: UInt64 = 1
  /// Only with ``muteGiven``.
  package static let isMuted: UInt64 = 2
  /// The user becomes a member if they are none.
  package static let joins: UInt64 = 4
  /// All of them.
  package static let flagsMax: UInt64 = 7

  package let member: ShardState.NewMember
  package let flags: UInt64

  package init(_ reader: inout FieldReader) throws(WireError) {
    member = ShardState.NewMember(user: try reader.text(), role: try reader.text())
    flags = try reader.varint()
    try reader.end()
  }
}

extension FieldReader {
  /// Read a list of strings, copied.
  @_lifetime(self: copy self)
  package mutating func texts() throws(WireError) -> [String] {
    var texts: [String] = []
    for _ in 0..<(try count()) { texts.append(try text()) }
    return texts
  }

  /// Read a list of users with their roles.
  @_lifetime(self: copy self)
  fileprivate mutating func newMembers() throws(WireError) -> [ShardState.NewMember] {
    var members: [ShardState.NewMember] = []
    for _ in 0..<(try count(elementBytesMin: 2)) {
      members.append(ShardState.NewMember(user: try text(), role: try text()))
    }
    return members
  }
}

extension ByteBuffer {
  /// Write what ``RegisterMessageRequest`` reads, up to the mentioned users and the reminders, which must follow if the
  /// flags announce them.
  package mutating func writeRegisterMessage(_ message: RawSpan, sender: RawSpan?, created: Timestamp, flags: UInt64) {
    let byteCountMax = message.byteCount + (sender?.byteCount ?? 0) + 4 * Varint.byteCountMax
    writeFields(byteCountMax: byteCountMax) { fields in
      fields.string(message)
      if let sender { fields.string(sender) } else { fields.byte(0) }
      fields.time(created)
      fields.varint(flags)
    }
  }

  /// Write what ``MessageRequest`` reads.
  package mutating func writeMessageRequest(_ message: RawSpan) { writeField(message) }

  /// Write what ``AcknowledgeRequest`` reads, up to its messages: `messageCount` strings (1 to 100) must follow.
  package mutating func writeAcknowledge(user: RawSpan, note: RawSpan?, messageCount: Int) {
    writeField(user)
    writeFieldOrEmpty(note)
    writeVarint(messageCount)
  }

  /// Write what ``SetMemberRequest`` reads.
  package mutating func writeSetMember(user: RawSpan, role: RawSpan?, flags: UInt64) {
    writeField(user)
    writeFieldOrEmpty(role)
    writeVarint(flags)
  }
}

/// The reply to register_message.
package struct RegistrationReply: Hashable, Sendable {
  /// False: the message was registered before.
  package var isNew: Bool
  package var sequence: SequenceNumber
  package var status: MessageStatus
  /// Why the message has no acknowledgement request although one was asked for.
  package var acknowledgementRequestRefusal: AcknowledgementRequestRefusal

  package init(
    isNew: Bool,
    sequence: SequenceNumber,
    status: MessageStatus,
    acknowledgementRequestRefusal: AcknowledgementRequestRefusal
  ) {
    self.isNew = isNew
    self.sequence = sequence
    self.status = status
    self.acknowledgementRequestRefusal = acknowledgementRequestRefusal
  }

  package init(_ payload: RawSpan) throws(WireError) {
    var reader = FieldReader(payload)
    isNew = try reader.flag()
    sequence = try reader.sequence()
    guard let status = MessageStatus(rawValue: try reader.byte()) else { throw .badValue(.status) }
    guard let refusal = AcknowledgementRequestRefusal(rawValue: try reader.byte()) else { throw .badValue(.reason) }
    self.status = status
    acknowledgementRequestRefusal = refusal
    try reader.end()
  }

  package func write(into buffer: inout ByteBuffer) {
    buffer.writeFields(byteCountMax: Varint.byteCountMax + 3) { fields in
      fields.byte(isNew ? 1 : 0)
      fields.varint(UInt64(sequence.rawValue))
      fields.byte(status.rawValue)
      fields.byte(acknowledgementRequestRefusal.rawValue)
    }
  }
}

/// The reply to delete_message: the message's sequence number.
package struct DeleteMessageReply: Hashable, Sendable {
  package var sequence: SequenceNumber

  package init(sequence: SequenceNumber) { self.sequence = sequence }

  package init(_ payload: RawSpan) throws(WireError) {
    var reader = FieldReader(payload)
    sequence = try reader.sequence()
    try reader.end()
  }

  package func write(into buffer: inout ByteBuffer) { buffer.writeSequence(sequence) }
}

/// The reply to acknowledge: a result for each message.
package struct AcknowledgeReply: Hashable, Sendable {
  /// In the order of the request; nil: the message is acknowledged.
  package var codes: [ErrorCode?]

  package init(codes: [ErrorCode?]) { self.codes = codes }

  package init(_ payload: RawSpan) throws(WireError) {
    var reader = FieldReader(payload)
    codes = []
    for _ in 0..<(try reader.count()) {
      let number = try reader.varint()
      let code = UInt16(exactly: number).flatMap(ErrorCode.init)
      guard number == 0 || code != nil else { throw .badValue(.code) }
      codes.append(code)
    }
    try reader.end()
  }

  package func write(into buffer: inout ByteBuffer) {
    buffer.writeVarint(codes.count)
    for code in codes { buffer.writeVarint(UInt64(code?.rawValue ?? 0)) }
  }
}

/// The reply to put_channel.
package struct PutChannelReply: Hashable, Sendable {
  /// False: the channel existed.
  package var isNew: Bool
  package var channel: ChannelFields

  package init(_ payload: RawSpan) throws(WireError) {
    var reader = FieldReader(payload)
    isNew = try reader.flag()
    channel = try ChannelFields(&reader)
    try reader.end()
  }
}

extension ByteBuffer {
  /// Write what ``PutChannelReply`` reads.
  ///
  /// - Parameter channel: writes what ``ChannelFields`` reads.
  package mutating func writePutChannelReply(isNew: Bool, channel: (inout ByteBuffer) -> Void) {
    writeFlag(isNew)
    channel(&self)
  }
}

/// The reply to set_member.
package struct SetMemberReply: Hashable, Sendable {
  /// The user was no member before.
  package var hasJoined: Bool
  /// Empty: no role.
  package var role: String
  package var joinedAt: Timestamp
  package var isMuted: Bool

  package init(hasJoined: Bool, role: String, joinedAt: Timestamp, isMuted: Bool) {
    self.hasJoined = hasJoined
    self.role = role
    self.joinedAt = joinedAt
    self.isMuted = isMuted
  }

  package init(_ payload: RawSpan) throws(WireError) {
    var reader = FieldReader(payload)
    hasJoined = try reader.flag()
    role = try reader.text()
    joinedAt = try reader.time()
    isMuted = try reader.flag()
    try reader.end()
  }

  package func write(into buffer: inout ByteBuffer) {
    buffer.writeFlag(hasJoined)
    buffer.writeField(role)
    buffer.writeTime(joinedAt)
    buffer.writeFlag(isMuted)
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

  /// Read a whole reply to change_members, get_channel or truncate_channel.
  package init(_ payload: RawSpan) throws(WireError) {
    var reader = FieldReader(payload)
    self = try ChannelFields(&reader)
    try reader.end()
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
