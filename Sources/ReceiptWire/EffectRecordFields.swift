package import NIOCore
package import ReceiptModel

// MARK: Row record

extension ByteBuffer {
  mutating func writeRow(_ record: RowRecord) {
    let hasMore =
      record.readIsHidden || record.deliveredIsHidden || record.readStepCount != 0
      || record.deliveredStepCount != 0
      || record.acknowledgedThrough != .zero
    var flags: UInt64 = 0
    if record.hasLeft { flags |= 1 }
    if record.hidesHistory { flags |= 2 }
    if hasMore { flags |= 4 }
    if record.joinedByReading { flags |= 8 }
    if record.markedAt != .none { flags |= 16 }
    if record.ackedAt != .none { flags |= 32 }
    if record.countedAfter != nil { flags |= 64 }
    if record.unreadAfter != nil { flags |= 128 }
    if record.isMuted { flags |= 256 }
    if record.isFlaggedUnread { flags |= 512 }
    if record.flaggedAt != .none { flags |= 1_024 }
    writeVarint(flags)
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
    if record.markedAt != .none { writeTime(record.markedAt) }
    if record.ackedAt != .none { writeTime(record.ackedAt) }
    if let countedAfter = record.countedAfter { writeSequence(countedAfter) }
    if let unreadAfter = record.unreadAfter { writeSequence(unreadAfter) }
    if record.flaggedAt != .none { writeTime(record.flaggedAt) }
    guard hasMore else { return }
    writeVarint(UInt64((record.readIsHidden ? 1 : 0) | (record.deliveredIsHidden ? 2 : 0)))
    writeVarint(record.readStepCount)
    writeVarint(record.deliveredStepCount)
    writeSequence(record.acknowledgedThrough)
  }
}

extension FieldReader {
  private static let rowFlagsKnown: UInt64 = 255 | 256 | 512 | 1_024

  @_lifetime(self: copy self)
  private mutating func sequence(below limit: SequenceNumber) throws(WireError) -> SequenceNumber {
    let sequence = try sequence()
    guard sequence < limit else { throw .badValue(.effect) }
    return sequence
  }

  @_lifetime(self: copy self)
  mutating func rowRecord() throws(WireError) -> RowRecord {
    let flags = try varint()
    guard flags & ~Self.rowFlagsKnown == 0 else { throw .badValue(.flags) }
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
      hasLeft: flags & 1 != 0,
      hidesHistory: flags & 2 != 0,
      joined: joined,
      joinedAt: joinedAt,
      read: read,
      readAt: readAt,
      delivered: delivered,
      deliveredAt: deliveredAt,
      marker: marker,
      unreadEpoch: try varint32()
    )
    record.joinedByReading = flags & 8 != 0
    if flags & 16 != 0 { record.markedAt = try time() }
    if flags & 32 != 0 {
      record.ackedAt = try time()
      guard record.ackedAt > .none, record.ackedAt < deliveredAt else { throw .badValue(.effect) }
    }
    if flags & 64 != 0 { record.countedAfter = try sequence(below: joined) }
    if flags & 128 != 0 { record.unreadAfter = try sequence(below: joined) }
    record.isMuted = flags & 256 != 0
    record.isFlaggedUnread = flags & 512 != 0
    if flags & 1_024 != 0 { record.flaggedAt = try time() }
    // A flag that is set has a time.
    guard record.flaggedAt > .none || !record.isFlaggedUnread else { throw .badValue(.effect) }
    guard flags & 4 != 0 else { return record }
    let hidden = try varint()
    guard hidden <= 3 else { throw .badValue(.flags) }
    record.readIsHidden = hidden & 1 != 0
    record.deliveredIsHidden = hidden & 2 != 0
    record.readStepCount = try varint32()
    record.deliveredStepCount = try varint32()
    record.acknowledgedThrough = try sequence()
    return record
  }
}

// MARK: Mentions of a message

extension ByteBuffer {
  /// Write the mentions of a message with that flag, after its other fields.
  mutating func writeMentions(_ mentions: MessageMentions) {
    switch mentions {
    case .nobody: break
    case .all: writeInteger(UInt8(1))
    case .rows(let rows):
      writeInteger(UInt8(0))
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
    var rows: [UInt32] = []
    for _ in 0..<(try count(elementBytesMin: 1)) {
      let row = try row().rawValue
      guard rows.last.map({ $0 < row }) ?? true else { throw .badValue(.effect) }
      rows.append(row)
    }
    guard !rows.isEmpty else { throw .badValue(.count) }
    return .rows(rows)
  }
}

// MARK: User settings

extension ByteBuffer {
  /// Write *user settings* of Proto/frames.md.
  package mutating func writeUserSettings(_ settings: UserSettings) {
    writeField(settings.user)
    writeVarint(settings.version)
    writeVarint(
      UInt64(
        (settings.hidesRead ? 1 : 0) | (settings.hidesDelivered ? 2 : 0) | (settings.isErasing ? 4 : 0)
          | (settings.isErased ? 8 : 0)
      )
    )
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
    let flags = try varint()
    // An erased user has no other flag.
    guard flags <= 8 else { throw .badValue(.flags) }
    let readShownSince = try time()
    let deliveredShownSince = try time()
    return UserSettings(
      user: user,
      version: version,
      hidesRead: flags & 1 != 0,
      hidesDelivered: flags & 2 != 0,
      readShownSince: readShownSince,
      deliveredShownSince: deliveredShownSince,
      tokensRevokedBefore: try time(),
      isErasing: flags & 4 != 0,
      isErased: flags & 8 != 0
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
    let wasDeleted = membership.deletedAt != .none
    writeInteger(
      UInt8((membership.isMember ? 1 : 0) | (wasDeleted ? 2 : 0) | (membership.isGone ? 4 : 0))
    )
    writeTime(membership.joinedAt)
    writeVarint(membership.epoch)
    if wasDeleted { writeTime(membership.deletedAt) }
  }
}

extension FieldReader {
  /// Read *membership* of Proto/frames.md.
  @_lifetime(self: copy self)
  mutating func membership() throws(WireError) -> Membership {
    let cid = try text()
    let channel = try channel()
    let row = try optional32()
    guard row.map({ $0 < ReadVector.rowsMax }) ?? true else { throw .badValue(.effect) }
    let flags = try byte()
    // A tombstone is no membership, and has a deletion time.
    guard flags <= 3 || flags == 6 else { throw .badValue(.flags) }
    let joinedAt = try time()
    let epoch = try varint()
    let deletedAt = flags & 2 == 0 ? Timestamp.none : try time()
    guard flags & 2 == 0 || deletedAt != .none else { throw .badValue(.effect) }
    return Membership(
      cid: cid,
      channel: channel,
      row: row.map(MemberOrdinal.init),
      isMember: flags & 1 != 0,
      joinedAt: joinedAt,
      epoch: epoch,
      deletedAt: deletedAt,
      isGone: flags & 4 != 0
    )
  }
}

// MARK: Session record

extension ByteBuffer {
  package mutating func writeSessionRecord(_ record: SessionRecord) {
    writeSessionID(record.session)
    writeVarint(record.highest)
    writeVarint(record.waiting.count)
    for counter in record.waiting { writeVarint(counter) }
    writeTime(record.lastWritten)
  }
}

extension FieldReader {
  @_lifetime(self: copy self)
  package mutating func sessionRecord() throws(WireError) -> SessionRecord {
    let session = try sessionID()
    let highest = try varint()
    var waiting: [UInt64] = []
    for _ in 0..<(try count()) { waiting.append(try varint()) }
    return SessionRecord(session: session, highest: highest, waiting: waiting, lastWritten: try time())
  }
}

// MARK: Checked numbers

extension FieldReader {
  /// Read a byte that is 0 or 1.
  @_lifetime(self: copy self)
  mutating func flag() throws(WireError) -> Bool {
    let flag = try byte()
    guard flag <= 1 else { throw .badValue(.flags) }
    return flag == 1
  }

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
