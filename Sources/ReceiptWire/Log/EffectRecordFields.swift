package import NIOCore
package import ReceiptModel

// MARK: Row record

extension ByteBuffer {
  mutating func writeRow(_ record: RowRecord) {
    let flags = RowRecordFlags(record)
    writeVarint(flags.rawValue)
    writeField(record.user)
    writeField(record.role)
    writeSequence(record.joined)
    writeTime(record.joinedAt)
    writeSequence(record.read)
    writeTime(record.readAt)
    writeSequence(record.delivered)
    writeTime(record.deliveredAt)
    writeOptional(record.marker.map { UInt64($0.rawValue) })
    writeVarint(record.unreadEpoch)
    if flags.contains(.withMarkedAt) { writeTime(record.markedAt) }
    if flags.contains(.withAckedAt) { writeTime(record.ackedAt) }
    if let countedAfter = record.countedAfter { writeSequence(countedAfter) }
    if let unreadAfter = record.unreadAfter { writeSequence(unreadAfter) }
    if flags.contains(.withFlaggedAt) { writeTime(record.flaggedAt) }
    guard flags.contains(.withMoves) else { return }
    writeVarint(RowMoveFlags(record).rawValue)
    writeVarint(record.readStepCount)
    writeVarint(record.deliveredStepCount)
    writeSequence(record.acknowledgedThrough)
  }
}

extension FieldReader {
  @_lifetime(self: copy self)
  private mutating func sequence(below limit: SequenceNumber) throws(WireError) -> SequenceNumber {
    let sequence = try sequence()
    guard sequence < limit else { throw .badValue(.effect) }
    return sequence
  }

  @_lifetime(self: copy self)
  mutating func rowRecord() throws(WireError) -> RowRecord {
    let flags = RowRecordFlags(rawValue: try varint())
    guard flags.isKnown else { throw .badValue(.flags) }
    let user = try text()
    let role = try text()
    let joined = try sequence()
    let joinedAt = try time()
    let read = try sequence()
    let readAt = try time()
    let delivered = try sequence()
    let deliveredAt = try time()
    let marker = try optional32().map(SequenceNumber.init)
    var record = RowRecord(
      user: user,
      role: role,
      hasLeft: flags.contains(.left),
      hidesHistory: flags.contains(.hidesHistory),
      joined: joined,
      joinedAt: joinedAt,
      read: read,
      readAt: readAt,
      delivered: delivered,
      deliveredAt: deliveredAt,
      marker: marker,
      unreadEpoch: try varint32()
    )
    record.joinedByReading = flags.contains(.joinedByReading)
    if flags.contains(.withMarkedAt) { record.markedAt = try time() }
    if flags.contains(.withAckedAt) {
      record.ackedAt = try time()
      guard record.ackedAt > .none, record.ackedAt < deliveredAt else { throw .badValue(.effect) }
    }
    if flags.contains(.withCountedAfter) { record.countedAfter = try sequence(below: joined) }
    if flags.contains(.withUnreadAfter) { record.unreadAfter = try sequence(below: joined) }
    record.isMuted = flags.contains(.muted)
    record.isFlaggedUnread = flags.contains(.flaggedUnread)
    if flags.contains(.withFlaggedAt) { record.flaggedAt = try time() }
    // A flag that is set has a time.
    guard record.flaggedAt > .none || !record.isFlaggedUnread else { throw .badValue(.effect) }
    guard flags.contains(.withMoves) else { return record }
    let moves = RowMoveFlags(rawValue: try varint())
    guard moves.isKnown else { throw .badValue(.flags) }
    record.readIsHidden = moves.contains(.readIsHidden)
    record.deliveredIsHidden = moves.contains(.deliveredIsHidden)
    record.readStepCount = try varint32()
    record.deliveredStepCount = try varint32()
    record.acknowledgedThrough = try sequence()
    return record
  }
}

// MARK: Mentions of a message

extension ByteBuffer {
  /// Write the mentions of a message with that flag, after its other fields.
  mutating func writeMessageRecord(_ record: MessageRecord) {
    let byteCountMax = record.id.utf8.count + record.sender.utf8.count + 6 * Varint.byteCountMax
    writeFields(byteCountMax: byteCountMax) { fields in
      fields.varint(UInt64(record.flags.rawValue))
      fields.string(record.id)
      fields.string(record.sender)
      fields.time(record.registeredAt)
      fields.time(record.createdAt)
      if record.flags.contains(.requestsAcknowledgement) { fields.time(record.acknowledgementExpiresAt) }
    }
    writeMentions(record.mentions)
  }

  mutating func writeMentions(_ mentions: MessageMentions) {
    switch mentions {
    case .nobody: break
    case .all: writeByte(1)
    case .rows(let rows):
      writeByte(0)
      writeVarint(rows.count)
      for row in rows { writeVarint(row) }
    }
  }
}

extension FieldReader {
  /// Read the mentions of a message with that flag, after its other fields.
  @_lifetime(self: copy self)
  mutating func mentions() throws(WireError) -> MessageMentions {
    if try flag() { return .all }
    let rows = try risingRows()
    guard !rows.isEmpty else { throw .badValue(.count) }
    return .rows(rows)
  }

  /// Read a list of rows in rising order.
  @_lifetime(self: copy self)
  mutating func risingRows() throws(WireError) -> [UInt32] {
    var rows: [UInt32] = []
    for _ in 0..<(try count(elementBytesMin: 1)) {
      let row = try row().rawValue
      guard rows.last.map({ $0 < row }) ?? true else { throw .badValue(.effect) }
      rows.append(row)
    }
    return rows
  }
}

// MARK: User settings

extension ByteBuffer {
  /// Write *user settings* of Proto/frames.md.
  package mutating func writeUserSettings(_ settings: UserSettings) {
    writeField(settings.user)
    writeVarint(settings.version)
    writeVarint(UserSettingsFlags(settings).rawValue)
    writeTime(settings.readShownSince)
    writeTime(settings.deliveredShownSince)
    writeTime(settings.tokensRevokedBefore)
  }
}

extension FieldReader {
  /// Read *user settings* of Proto/frames.md.
  @_lifetime(self: copy self)
  package mutating func userSettings() throws(WireError) -> UserSettings {
    let user = try text()
    let version = try varint()
    let flags = UserSettingsFlags(rawValue: try varint())
    guard flags.isValid else { throw .badValue(.flags) }
    let readShownSince = try time()
    let deliveredShownSince = try time()
    return UserSettings(
      user: user,
      version: version,
      hidesRead: flags.contains(.hidesRead),
      hidesDelivered: flags.contains(.hidesDelivered),
      readShownSince: readShownSince,
      deliveredShownSince: deliveredShownSince,
      tokensRevokedBefore: try time(),
      isErasing: flags.contains(.erasing),
      isErased: flags.contains(.erased)
    )
  }
}

// MARK: Membership

extension ByteBuffer {
  /// Write *membership* of Proto/frames.md.
  mutating func writeMembership(_ membership: Membership) {
    writeField(membership.cid)
    writeVarint(membership.channel.rawValue)
    writeOptional(membership.row.map { UInt64($0.rawValue) })
    let flags = MembershipFlags(membership)
    writeByte(flags.rawValue)
    writeTime(membership.joinedAt)
    writeVarint(membership.epoch)
    if flags.contains(.withDeletedAt) { writeTime(membership.deletedAt) }
  }

  mutating func writeQueuedChange(_ number: UInt64, _ change: MembershipChange) {
    writeVarint(number)
    writeField(change.user)
    writeFlag(change.isGone)
    writeMembership(change.membership)
  }
}

extension FieldReader {
  /// Read the fields of *membership_queued*.
  ///
  /// - Parameter field: what a refusal names.
  @_lifetime(self: copy self)
  mutating func queuedChange(refusedAs field: WireError.StaticField) throws(WireError) -> Outbox.QueuedChange {
    let number = try varint()
    let user = try text()
    let gone = try byte()
    guard gone <= 1, number > 0 else { throw .badValue(field) }
    return Outbox.QueuedChange(
      number: number,
      change: MembershipChange(user: user, try membership(), isGone: gone == 1)
    )
  }

  /// Read *membership* of Proto/frames.md.
  @_lifetime(self: copy self)
  mutating func membership() throws(WireError) -> Membership {
    let cid = try text()
    let channel = try channel()
    let row = try optional32()
    guard row.map({ $0 < ReadVector.rowsMax }) ?? true else { throw .badValue(.effect) }
    let flags = MembershipFlags(rawValue: try byte())
    guard flags.isValid else { throw .badValue(.flags) }
    let joinedAt = try time()
    let epoch = try varint()
    let deletedAt = flags.contains(.withDeletedAt) ? try time() : .none
    guard !flags.contains(.withDeletedAt) || deletedAt != .none else { throw .badValue(.effect) }
    return Membership(
      cid: cid,
      channel: channel,
      row: row.map(MemberOrdinal.init),
      isMember: flags.contains(.member),
      joinedAt: joinedAt,
      epoch: epoch,
      deletedAt: deletedAt,
      isGone: flags.contains(.gone)
    )
  }
}

// MARK: Session record

extension ByteBuffer {
  package mutating func writeSessionRecord(_ record: SessionRecord) {
    writeSessionID(record.session)
    writeVarint(record.highest)
    writeVarint(record.notApplied.count)
    for counter in record.notApplied { writeVarint(counter) }
    writeTime(record.lastWritten)
  }
}

extension FieldReader {
  @_lifetime(self: copy self)
  package mutating func sessionRecord() throws(WireError) -> SessionRecord {
    let session = try sessionID()
    let highest = try varint()
    var notApplied: [UInt64] = []
    for _ in 0..<(try count()) { notApplied.append(try varint()) }
    return SessionRecord(session: session, highest: highest, notApplied: notApplied, lastWritten: try time())
  }
}

// MARK: Checked numbers

extension FieldReader {
  @_lifetime(self: copy self)
  mutating func shardID() throws(WireError) -> ShardID {
    guard let number = UInt16(exactly: try varint()) else { throw .badValue(.effect) }
    return ShardID(number)
  }

  @_lifetime(self: copy self)
  mutating func channel() throws(WireError) -> ChannelNumber {
    let number = ChannelNumber(try varint())
    guard number.rawValue > 0 else { throw .badValue(.effect) }
    return number
  }

  @_lifetime(self: copy self)
  mutating func row() throws(WireError) -> MemberOrdinal {
    let row = MemberOrdinal(try varint32())
    guard row.rawValue < ReadVector.rowsMax else { throw .badValue(.effect) }
    return row
  }

  @_lifetime(self: copy self)
  mutating func rowPage() throws(WireError) -> UInt32 {
    let page = try varint32()
    guard page < UInt32(ReadVector.rowsMax) / PageID.rowsPerPage else { throw .badValue(.effect) }
    return page
  }

  @_lifetime(self: copy self)
  mutating func messageSequence() throws(WireError) -> SequenceNumber {
    let sequence = try sequence()
    guard sequence > .zero else { throw .badValue(.effect) }
    return sequence
  }
}

// MARK: Flags of stored records

// The numbers of each stand only here: the writer, the reader and PageScan use the same type.

/// The flags of *row_assigned*: facts about the row, and which optional fields follow.
struct RowRecordFlags: OptionSet {
  let rawValue: UInt64

  static let left = Self(rawValue: 1)
  static let hidesHistory = Self(rawValue: 2)
  /// The record ends with ``RowMoveFlags``, the numbers of steps and the acknowledged position.
  static let withMoves = Self(rawValue: 4)
  static let joinedByReading = Self(rawValue: 8)
  static let withMarkedAt = Self(rawValue: 16)
  static let withAckedAt = Self(rawValue: 32)
  static let withCountedAfter = Self(rawValue: 64)
  static let withUnreadAfter = Self(rawValue: 128)
  static let muted = Self(rawValue: 256)
  static let flaggedUnread = Self(rawValue: 512)
  static let withFlaggedAt = Self(rawValue: 1_024)
  private static let known: UInt64 = 2_047

  /// Whether this version knows all flags that are set.
  var isKnown: Bool { rawValue & ~Self.known == 0 }

  init(rawValue: UInt64) { self.rawValue = rawValue }

  init(_ record: RowRecord) {
    self.init()
    if record.hasLeft { insert(.left) }
    if record.hidesHistory { insert(.hidesHistory) }
    if record.readIsHidden || record.deliveredIsHidden || record.readStepCount != 0
      || record.deliveredStepCount != 0 || record.acknowledgedThrough != .zero
    {
      insert(.withMoves)
    }
    if record.joinedByReading { insert(.joinedByReading) }
    if record.markedAt != .none { insert(.withMarkedAt) }
    if record.ackedAt != .none { insert(.withAckedAt) }
    if record.countedAfter != nil { insert(.withCountedAfter) }
    if record.unreadAfter != nil { insert(.withUnreadAfter) }
    if record.isMuted { insert(.muted) }
    if record.isFlaggedUnread { insert(.flaggedUnread) }
    if record.flaggedAt != .none { insert(.withFlaggedAt) }
  }
}

/// The flags of a row's last moves, which follow with ``RowRecordFlags/withMoves``.
struct RowMoveFlags: OptionSet {
  let rawValue: UInt64

  static let readIsHidden = Self(rawValue: 1)
  static let deliveredIsHidden = Self(rawValue: 2)

  /// Whether this version knows all flags that are set.
  var isKnown: Bool { rawValue <= 3 }

  init(rawValue: UInt64) { self.rawValue = rawValue }

  init(_ record: RowRecord) {
    self.init()
    if record.readIsHidden { insert(.readIsHidden) }
    if record.deliveredIsHidden { insert(.deliveredIsHidden) }
  }
}

/// The flags of *user settings*, in records and in assign_user.
package struct UserSettingsFlags: OptionSet, Sendable {
  package let rawValue: UInt64

  package static let hidesRead = Self(rawValue: 1)
  package static let hidesDelivered = Self(rawValue: 2)
  package static let erasing = Self(rawValue: 4)
  /// The user is erased; no other flag may be set.
  package static let erased = Self(rawValue: 8)

  /// Whether the flags are known, and none is set beside ``erased``.
  package var isValid: Bool { rawValue <= Self.erased.rawValue }

  package init(rawValue: UInt64) { self.rawValue = rawValue }

  init(_ settings: UserSettings) {
    self.init()
    if settings.hidesRead { insert(.hidesRead) }
    if settings.hidesDelivered { insert(.hidesDelivered) }
    if settings.isErasing { insert(.erasing) }
    if settings.isErased { insert(.erased) }
  }
}

/// The flags of *membership*.
struct MembershipFlags: OptionSet {
  let rawValue: UInt8

  static let member = Self(rawValue: 1)
  /// The time of the deletion follows.
  static let withDeletedAt = Self(rawValue: 2)
  /// A tombstone: the membership is gone.
  static let gone = Self(rawValue: 4)

  /// Whether the flags are known. A tombstone is no membership, and has a deletion time.
  var isValid: Bool { !contains(.gone) ? rawValue <= 3 : self == [.withDeletedAt, .gone] }

  init(rawValue: UInt8) { self.rawValue = rawValue }

  init(_ membership: Membership) {
    self.init()
    if membership.isMember { insert(.member) }
    if membership.deletedAt != .none { insert(.withDeletedAt) }
    if membership.isGone { insert(.gone) }
  }
}
