package import NIOCore
package import ReceiptModel

/// The effect numbers of Proto/frames.md, "The log and the pages".
private enum EffectNumber: UInt8 {
  case channelAssigned = 1
  case rowAssigned = 2
  case rowLeft = 3
  case roleAssigned = 4
  case readMoved = 5
  case deliveredMoved = 6
  case markerAssigned = 7
  case messageAssigned = 8
  case messageDeleted = 9
  case channelTypeAssigned = 16
  case countersAssigned = 17
  case sessionAssigned = 18
}

extension ByteBuffer {
  /// byte kind, varint length, fields.
  package mutating func writeEffect(_ effect: Effect) {
    switch effect {
    case .readMoved(let channel, let row, let sequence, let time):
      writeMove(.readMoved, channel, row, sequence, time)
    case .deliveredMoved(let channel, let row, let sequence, let time):
      writeMove(.deliveredMoved, channel, row, sequence, time)
    case .channelAssigned(let channel, let cid, let created, let own):
      writeEffect(.channelAssigned) { buffer in
        buffer.writeVarint(channel.rawValue)
        buffer.writeField(cid)
        buffer.writeTime(created)
        buffer.writeOptionPatch(own)
      }
    case .rowAssigned(let channel, let row, let record):
      writeEffect(.rowAssigned) { $0.writeRow(channel, row, record) }
    case .rowLeft(let channel, let row, let time):
      writeEffect(.rowLeft) { buffer in
        buffer.writeVarint(channel.rawValue)
        buffer.writeVarint(row.rawValue)
        buffer.writeTime(time)
      }
    case .roleAssigned(let channel, let row, let role):
      writeEffect(.roleAssigned) { buffer in
        buffer.writeVarint(channel.rawValue)
        buffer.writeVarint(row.rawValue)
        buffer.writeField(role)
      }
    case .markerAssigned(let channel, let row, let marker, let epoch):
      writeEffect(.markerAssigned) { buffer in
        buffer.writeVarint(channel.rawValue)
        buffer.writeVarint(row.rawValue)
        buffer.writeOptional(marker.map { UInt64($0.rawValue) })
        buffer.writeVarint(epoch)
      }
    case .messageAssigned(let channel, let sequence, let record):
      writeEffect(.messageAssigned) { buffer in
        buffer.writeVarint(channel.rawValue)
        buffer.writeSequence(sequence)
        buffer.writeVarint(UInt64(record.flags.rawValue))
        buffer.writeField(record.id)
        buffer.writeField(record.sender)
        buffer.writeTime(record.registeredAt)
        buffer.writeTime(record.createdAt)
      }
    case .messageDeleted(let channel, let sequence, let time):
      writeEffect(.messageDeleted) { buffer in
        buffer.writeVarint(channel.rawValue)
        buffer.writeSequence(sequence)
        buffer.writeTime(time)
      }
    case .channelTypeAssigned(let record):
      writeEffect(.channelTypeAssigned) { $0.writeChannelTypeRecord(record) }
    case .countersAssigned(let next, let time):
      writeEffect(.countersAssigned) { buffer in
        buffer.writeVarint(next.rawValue)
        buffer.writeTime(time)
      }
    case .sessionAssigned(let record):
      writeEffect(.sessionAssigned) { $0.writeSessionRecord(record) }
    }
  }

  package mutating func writeSessionRecord(_ record: SessionRecord) {
    writeSessionID(record.session)
    writeVarint(record.highest)
    writeVarint(record.waiting.count)
    for counter in record.waiting { writeVarint(counter) }
    writeTime(record.lastWritten)
  }

  /// The hot one: a mark. Its fields take at most 36 bytes, so its length is one byte.
  private mutating func writeMove(
    _ number: EffectNumber,
    _ channel: ChannelNumber,
    _ row: MemberOrdinal,
    _ sequence: SequenceNumber,
    _ time: Timestamp
  ) {
    writeWithUnsafeMutableBytes(minimumWritableBytes: 40) { target in
      target[0] = number.rawValue
      var offset = 2
      Self.putVarint(channel.rawValue, target, &offset)
      Self.putVarint(UInt64(row.rawValue), target, &offset)
      Self.putVarint(UInt64(sequence.rawValue), target, &offset)
      Self.putVarint(UInt64(max(0, time.milliseconds)), target, &offset)
      target[1] = UInt8(offset - 2)
      return offset
    }
  }

  private static func putVarint(_ value: UInt64, _ target: UnsafeMutableRawBufferPointer, _ offset: inout Int)
  {
    var rest = value
    while rest >= 0x80 {
      target[offset] = UInt8(truncatingIfNeeded: rest) | 0x80
      rest >>= 7
      offset += 1
    }
    target[offset] = UInt8(truncatingIfNeeded: rest)
    offset += 1
  }

  private mutating func writeEffect(_ number: EffectNumber, _ fields: (inout ByteBuffer) -> Void) {
    writeInteger(number.rawValue)
    let lengthIndex = writerIndex
    writeInteger(UInt8(0))
    fields(&self)
    let length = writerIndex - lengthIndex - 1
    if length < 0x80 {
      setInteger(UInt8(length), at: lengthIndex)
      return
    }
    // A longer length needs more than the byte kept for it: the fields move up.
    let bytes = getBytes(at: lengthIndex + 1, length: length) ?? []
    moveWriterIndex(to: lengthIndex)
    writeVarint(length)
    writeBytes(bytes)
  }

  private mutating func writeRow(_ channel: ChannelNumber, _ row: MemberOrdinal, _ record: RowRecord) {
    writeVarint(channel.rawValue)
    writeVarint(row.rawValue)
    writeVarint(UInt64((record.hasLeft ? 1 : 0) | (record.hidesHistory ? 2 : 0)))
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
  }
}

extension FieldReader {
  /// An effect; one of a kind that this version does not know is ``WireError/badValue(_:)`` of `effect`.
  @_lifetime(self: copy self)
  package mutating func effect() throws(WireError) -> Effect {
    guard let number = EffectNumber(rawValue: try byte()) else { throw .badValue(.effect) }
    let length = try varint()
    guard length <= UInt64(remaining) else { throw .truncated }
    let end = offset + Int(length)
    let effect = try fields(of: number)
    guard offset == end else { throw .badValue(.effect) }
    return effect
  }

  @_lifetime(self: copy self)
  package mutating func sessionRecord() throws(WireError) -> SessionRecord {
    let session = try sessionID()
    let highest = try varint()
    var waiting: [UInt64] = []
    for _ in 0..<(try count()) { waiting.append(try varint()) }
    return SessionRecord(session: session, highest: highest, waiting: waiting, lastWritten: try time())
  }

  @_lifetime(self: copy self)
  private mutating func fields(of number: EffectNumber) throws(WireError) -> Effect {
    switch number {
    case .channelAssigned:
      let channel = try channel()
      let cid = try text()
      let created = try time()
      return .channelAssigned(channel, cid: cid, created: created, own: try optionPatch())
    case .rowAssigned:
      let channel = try channel()
      return .rowAssigned(channel, try row(), try rowRecord())
    case .rowLeft:
      let channel = try channel()
      return .rowLeft(channel, try row(), at: try time())
    case .roleAssigned:
      let channel = try channel()
      return .roleAssigned(channel, try row(), role: try text())
    case .readMoved:
      let channel = try channel()
      return .readMoved(channel, try row(), to: try sequence(), at: try time())
    case .deliveredMoved:
      let channel = try channel()
      return .deliveredMoved(channel, try row(), to: try sequence(), at: try time())
    case .markerAssigned:
      let channel = try channel()
      let row = try row()
      let marker = try optional32().map(SequenceNumber.init)
      return .markerAssigned(channel, row, marker: marker, epoch: try varint32())
    case .messageAssigned:
      let channel = try channel()
      let sequence = try messageSequence()
      guard let flags = UInt8(exactly: try varint()), flags <= 7 else { throw .badValue(.flags) }
      let id = try text()
      let sender = try text()
      let registered = try time()
      let record = MessageRecord(
        id: id,
        sender: sender,
        flags: MessageRecord.Flags(rawValue: flags),
        registeredAt: registered,
        createdAt: try time()
      )
      return .messageAssigned(channel, sequence, record)
    case .messageDeleted:
      let channel = try channel()
      return .messageDeleted(channel, try messageSequence(), at: try time())
    case .channelTypeAssigned:
      return .channelTypeAssigned(try channelTypeRecord())
    case .countersAssigned:
      let next = try channel()
      return .countersAssigned(nextChannel: next, time: try time())
    case .sessionAssigned:
      return .sessionAssigned(try sessionRecord())
    }
  }

  @_lifetime(self: copy self)
  private mutating func channel() throws(WireError) -> ChannelNumber {
    let number = ChannelNumber(try varint())
    guard number.rawValue > 0 else { throw .badValue(.effect) }
    return number
  }

  @_lifetime(self: copy self)
  private mutating func row() throws(WireError) -> MemberOrdinal {
    let row = MemberOrdinal(try varint32())
    guard row.rawValue < ReadVector.rowsMax else { throw .badValue(.effect) }
    return row
  }

  @_lifetime(self: copy self)
  private mutating func messageSequence() throws(WireError) -> SequenceNumber {
    let sequence = try sequence()
    guard sequence > .zero else { throw .badValue(.effect) }
    return sequence
  }

  @_lifetime(self: copy self)
  private mutating func rowRecord() throws(WireError) -> RowRecord {
    let flags = try varint()
    guard flags <= 3 else { throw .badValue(.flags) }
    let user = try text()
    let role = try text()
    let joined = try sequence()
    let joinedAt = try time()
    let read = try sequence()
    let readAt = try time()
    let delivered = try sequence()
    let deliveredAt = try time()
    let marker = try optional32().map(SequenceNumber.init)
    return RowRecord(
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
  }
}
