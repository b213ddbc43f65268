package import NIOCore
package import ReceiptModel

// Import and export (Proto/frames.md, 0x60 to 0x66). Only the form of fields is checked here; the store checks their
// ranges.

extension RequestSpec {
  private static let message =
    "message user parent sequence registered_at created_at expires_at deleted_at flags:byte mentions:[user]"
  private static let member =
    "user role parent flags:byte joined:optional joined_at left_at last_read_message last_read_at "
    + "last_delivered_message last_delivered_at first_unread_message unread_epoch read_moves delivered_moves "
    + "acknowledged_through counted_after:optional unread_after:optional moves:[move:byte sequence at]"
  private static let acknowledgement = "message user at note flags:byte"

  /// The layouts of the requests in this file.
  static let transferRequests: [RequestSpec] = [
    RequestSpec(.importChannel, "import_channel", "cid counter created patch:[@option]", reply: "was_created:byte"),
    RequestSpec(
      .importMessages,
      "import_messages",
      "cid counter messages:[\(message)]",
      reply: "codes:[code:varint(error)]"
    ),
    RequestSpec(
      .importMembers,
      "import_members",
      "cid counter members:[\(member)]",
      reply: "codes:[code:varint(error)]"
    ),
    RequestSpec(
      .importAcknowledgements,
      "import_acknowledgements",
      "cid counter acknowledgements:[\(acknowledgement)]",
      reply: "codes:[code:varint(error)]"
    ),
    RequestSpec(.listStoredChannels, "list_stored_channels", "after limit", reply: "channels:[cid] next:optional"),
    RequestSpec(
      .exportChannel,
      "export_channel",
      "cid user snapshot part",
      reply: "snapshot parts channels:[created patch:[@option]] messages:[\(message)] members:[\(member)] "
        + "acknowledgements:[\(acknowledgement)]"
    ),
    RequestSpec(.listUsers, "list_users", "after limit", reply: "users:[user @settings] next:optional"),
  ]
}

// MARK: Import

/// The fields of import_channel.
package struct ImportChannelRequest: Sendable {
  /// None: now.
  package let created: Timestamp
  package let options: OptionPatch

  package init(_ reader: inout FieldReader) throws(WireError) {
    created = try reader.time()
    options = try reader.optionPatch()
    try reader.end()
  }
}

/// A record of an import or an export, as one entry of a list.
package protocol TransferRecord {
  /// The least size of an entry in bytes.
  static var byteCountMin: Int { get }
  init(_ reader: inout FieldReader) throws(WireError)
  func write(into buffer: inout ByteBuffer)
}

extension FieldReader {
  /// Read a list of records.
  @_lifetime(self: copy self)
  package mutating func records<Record: TransferRecord>(_: Record.Type) throws(WireError) -> [Record] {
    let count = try count(elementBytesMin: Record.byteCountMin)
    var records: [Record] = []
    records.reserveCapacity(count)
    for _ in 0..<count { records.append(try Record(&self)) }
    return records
  }
}

/// The reply to the import of records: for each, its refusal.
package struct ImportReply: Hashable, Sendable {
  /// Codes of errors (Proto/frames.md, "Errors"); 0: imported, or known already.
  package let codes: [UInt16]

  package init(_ payload: RawSpan) throws(WireError) {
    var reader = FieldReader(payload)
    var codes: [UInt16] = []
    for _ in 0..<(try reader.count()) {
      guard let code = UInt16(exactly: try reader.varint()) else { throw .badValue(.code) }
      codes.append(code)
    }
    self.codes = codes
    try reader.end()
  }
}

extension ByteBuffer {
  /// Write the fields of import_channel after the counter.
  package mutating func writeImportChannel(created: Timestamp, _ options: OptionPatch) {
    writeTime(created)
    writeOptionPatch(options)
  }

  /// Write a list of records.
  package mutating func writeRecords(_ records: some Collection<some TransferRecord>) {
    writeVarint(records.count)
    for record in records { record.write(into: &self) }
  }

  /// Write what ``ImportReply`` reads.
  package mutating func writeImportReply(_ codes: [ErrorCode?]) {
    writeVarint(codes.count)
    for code in codes { writeVarint(UInt64(code?.rawValue ?? 0)) }
  }
}

// MARK: Records

extension TransferredMessage: TransferRecord {
  package static var byteCountMin: Int { 10 }

  package init(_ reader: inout FieldReader) throws(WireError) {
    self.init(id: try reader.text(), sender: try reader.text(), parent: try reader.text())
    sequence = try reader.sequence()
    registeredAt = try reader.time()
    createdAt = try reader.time()
    expiresAt = try reader.time()
    deletedAt = try reader.time()
    flags = try reader.byteOfFlags(known: .all)
    mentions = try reader.texts()
  }

  package func write(into buffer: inout ByteBuffer) {
    let byteCountMax = id.utf8.count + sender.utf8.count + parent.utf8.count + 9 * Varint.byteCountMax
    buffer.writeFields(byteCountMax: byteCountMax) { fields in
      fields.string(id)
      fields.string(sender)
      fields.string(parent)
      fields.varint(UInt64(sequence.rawValue))
      fields.time(registeredAt)
      fields.time(createdAt)
      fields.time(expiresAt)
      fields.time(deletedAt)
      fields.byte(flags.rawValue)
    }
    buffer.writeStrings(mentions)
  }
}

extension TransferredMember: TransferRecord {
  package static var byteCountMin: Int { 19 }
  /// The byte of a move: 1 for the delivered watermark, 2 for a hidden move.
  private static let moveMax: UInt8 = 3

  package init(_ reader: inout FieldReader) throws(WireError) {
    self.init(user: try reader.text(), role: try reader.text(), thread: try reader.text())
    flags = try reader.byteOfFlags(known: .all)
    joined = try reader.optional32().map { SequenceNumber($0) }
    joinedAt = try reader.time()
    leftAt = try reader.time()
    read = try reader.text()
    readAt = try reader.time()
    delivered = try reader.text()
    deliveredAt = try reader.time()
    unreadFrom = try reader.text()
    unreadEpoch = try reader.varint32()
    readMoves = try reader.varint32()
    deliveredMoves = try reader.varint32()
    acknowledgedThrough = try reader.sequence()
    countedAfter = try reader.optional32().map { SequenceNumber($0) }
    unreadAfter = try reader.optional32().map { SequenceNumber($0) }
    for _ in 0..<(try reader.count(elementBytesMin: 3)) {
      let move = try reader.byte()
      guard move <= Self.moveMax else { throw .badValue(.flags) }
      let sequence = try reader.sequence()
      guard sequence > .zero else { throw .badValue(.flags) }
      let kind = move & 1 == 0 ? StepKind.read : .delivered
      moves.append(Move(kind, to: sequence, at: try reader.time(), isHidden: move & 2 != 0))
    }
  }

  package func write(into buffer: inout ByteBuffer) {
    let textBytes =
      user.utf8.count + role.utf8.count + thread.utf8.count + read.utf8.count + delivered.utf8.count
      + unreadFrom.utf8.count
    buffer.writeFields(byteCountMax: textBytes + 20 * Varint.byteCountMax) { fields in
      fields.string(user)
      fields.string(role)
      fields.string(thread)
      fields.byte(flags.rawValue)
      fields.optional(joined.map { UInt64($0.rawValue) })
      fields.time(joinedAt)
      fields.time(leftAt)
      fields.string(read)
      fields.time(readAt)
      fields.string(delivered)
      fields.time(deliveredAt)
      fields.string(unreadFrom)
      fields.varint(UInt64(unreadEpoch))
      fields.varint(UInt64(readMoves))
      fields.varint(UInt64(deliveredMoves))
      fields.varint(UInt64(acknowledgedThrough.rawValue))
      fields.optional(countedAfter.map { UInt64($0.rawValue) })
      fields.optional(unreadAfter.map { UInt64($0.rawValue) })
      fields.varint(UInt64(moves.count))
    }
    for move in moves {
      buffer.writeByte(move.kind.rawValue | (move.isHidden ? 2 : 0))
      buffer.writeSequence(move.sequence)
      buffer.writeTime(move.at)
    }
  }
}

extension TransferredAcknowledgement: TransferRecord {
  package static var byteCountMin: Int { 5 }

  package init(_ reader: inout FieldReader) throws(WireError) {
    self.init(message: try reader.text(), user: try reader.text(), at: try reader.time(), note: try reader.text())
    isHidden = try reader.flag()
  }

  package func write(into buffer: inout ByteBuffer) {
    buffer.writeField(message)
    buffer.writeField(user)
    buffer.writeTime(at)
    buffer.writeField(note)
    buffer.writeFlag(isHidden)
  }
}

// MARK: Export

/// The fields of list_stored_channels, by channel number, and of list_users, by the number of a user with settings.
package struct ListStoredRequest: Sendable {
  /// Maximum number of entries of a reply.
  package static let limitMax = 256

  package let after: UInt64
  package let limit: UInt64

  package init(_ reader: inout FieldReader) throws(WireError) {
    after = try reader.varint()
    limit = try reader.varint()
    try reader.end()
  }
}

/// A channel as an export names it.
package struct TransferredChannel: Hashable, Sendable, TransferRecord {
  package static var byteCountMin: Int { 2 }

  package var created: Timestamp
  /// The channel's own options.
  package var options: OptionPatch

  package init(created: Timestamp, options: OptionPatch) {
    self.created = created
    self.options = options
  }

  package init(_ reader: inout FieldReader) throws(WireError) {
    created = try reader.time()
    options = try reader.optionPatch()
  }

  package func write(into buffer: inout ByteBuffer) {
    buffer.writeTime(created)
    buffer.writeOptionPatch(options)
  }
}

/// The fields of export_channel.
package struct ExportChannelRequest: Sendable {
  /// Empty: everything that is stored; else only what belongs to this user.
  package let user: String
  /// 0: begin; else the snapshot that the first part named.
  package let snapshot: UInt64
  package let part: UInt64

  package init(_ reader: inout FieldReader) throws(WireError) {
    user = try reader.text()
    snapshot = try reader.varint()
    part = try reader.varint()
    try reader.end()
  }
}

/// One part of a channel's export.
package struct ExportChannelReply: Hashable, Sendable {
  /// 0: there is only one part.
  package var snapshot: UInt64
  package var parts: UInt64
  package var channels: [TransferredChannel]
  package var messages: [TransferredMessage]
  package var members: [TransferredMember]
  package var acknowledgements: [TransferredAcknowledgement]

  package init(_ payload: RawSpan) throws(WireError) {
    var reader = FieldReader(payload)
    snapshot = try reader.varint()
    parts = try reader.varint()
    channels = try reader.records(TransferredChannel.self)
    messages = try reader.records(TransferredMessage.self)
    members = try reader.records(TransferredMember.self)
    acknowledgements = try reader.records(TransferredAcknowledgement.self)
    try reader.end()
  }
}

/// The reply to list_stored_channels.
package struct ListStoredChannelsReply: Hashable, Sendable {
  package let channels: [String]
  /// To continue after; nil: there is nothing more.
  package let next: UInt64?

  package init(_ payload: RawSpan) throws(WireError) {
    var reader = FieldReader(payload)
    channels = try reader.texts()
    next = try reader.optional()
    try reader.end()
  }
}

/// The reply to list_users.
package struct ListUsersReply: Hashable, Sendable {
  package let users: [UserSettings]
  /// To continue after; nil: there is nothing more.
  package let next: UInt64?

  package init(_ payload: RawSpan) throws(WireError) {
    var reader = FieldReader(payload)
    var users: [UserSettings] = []
    for _ in 0..<(try reader.count(elementBytesMin: 6)) { users.append(try reader.userSettings()) }
    self.users = users
    next = try reader.optional()
    try reader.end()
  }
}

extension ByteBuffer {
  /// Write what ``ListStoredRequest`` reads.
  package mutating func writeListStored(after: UInt64, limit: Int) {
    writeVarint(after)
    writeVarint(limit)
  }

  /// Write what ``ExportChannelRequest`` reads.
  package mutating func writeExportChannel(user: String, snapshot: UInt64, part: UInt64) {
    writeField(user)
    writeVarint(snapshot)
    writeVarint(part)
  }
}
