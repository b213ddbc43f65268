package import NIOCore
package import ReceiptModel

/// A value in the log: one batch that a shard committed (Proto/frames.md, "The log and the pages").
package struct LogBatch: Hashable, Sendable {
  package static let formatVersion: UInt8 = 1

  package var index: LogIndex
  package var time: Timestamp
  package var sessions: [SessionRecord]
  package var effects: [Effect]

  package init(index: LogIndex, time: Timestamp, sessions: [SessionRecord], effects: [Effect]) {
    self.index = index
    self.time = time
    self.sessions = sessions
    self.effects = effects
  }

  package init(_ bytes: RawSpan) throws(WireError) {
    var reader = FieldReader(bytes)
    guard try reader.byte() == Self.formatVersion else { throw .badValue(.format) }
    index = LogIndex(try reader.varint())
    time = try reader.time()
    sessions = []
    for _ in 0..<(try reader.count(elementBytesMin: 19)) { sessions.append(try reader.sessionRecord()) }
    effects = try reader.effects()
    try reader.end()
  }

  /// Write a batch whose effects are already encoded.
  package static func write(
    index: LogIndex,
    time: Timestamp,
    sessions: [SessionRecord],
    effectCount: Int,
    effects: ByteBuffer,
    into buffer: inout ByteBuffer
  ) {
    buffer.writeInteger(formatVersion)
    buffer.writeVarint(index.rawValue)
    buffer.writeTime(time)
    buffer.writeVarint(sessions.count)
    for session in sessions { buffer.writeSessionRecord(session) }
    buffer.writeVarint(effectCount)
    buffer.writeImmutableBuffer(effects)
  }
}

/// A page: the effects that reproduce it, and the log index up to which it includes them.
package struct Page: Hashable, Sendable {
  package static let formatVersion: UInt8 = 1

  package var index: LogIndex
  package var effects: [Effect]

  package init(index: LogIndex, effects: [Effect]) {
    self.index = index
    self.effects = effects
  }

  package init(_ bytes: RawSpan) throws(WireError) {
    var reader = FieldReader(bytes)
    guard try reader.byte() == Self.formatVersion else { throw .badValue(.format) }
    index = LogIndex(try reader.varint())
    effects = try reader.effects()
    try reader.end()
  }

  package func write(into buffer: inout ByteBuffer) {
    buffer.writeInteger(Self.formatVersion)
    buffer.writeVarint(index.rawValue)
    buffer.writeVarint(effects.count)
    for effect in effects { buffer.writeEffect(effect) }
  }
}

extension FieldReader {
  @_lifetime(self: copy self)
  fileprivate mutating func effects() throws(WireError) -> [Effect] {
    let count = try count(elementBytesMin: 2)
    var effects: [Effect] = []
    effects.reserveCapacity(count)
    for _ in 0..<count { effects.append(try effect()) }
    return effects
  }
}

/// The effect numbers of Proto/frames.md, "The log and the pages".
enum EffectNumber: UInt8 {
  case channelAssigned = 1
  case rowAssigned = 2
  case rowLeft = 3
  case roleAssigned = 4
  case readMoved = 5
  case deliveredMoved = 6
  case markerAssigned = 7
  case messageAssigned = 8
  case messageDeleted = 9
  case readMovedHidden = 10
  case deliveredMovedHidden = 11
  case optionsChanged = 12
  case deliveredByPushAck = 13
  case deliveredByPushAckHidden = 14
  case channelTypeAssigned = 16
  case countersAssigned = 17
  case sessionAssigned = 18
  case typeSettled = 19
  case webhookNoted = 20
  case idsWidened = 21
  case tokenRevoked = 22
  case consumerAssigned = 23
  case consumerCommitted = 24
  case consumerOpened = 25
  case consumerStateAssigned = 26
  case consumerWorkersAssigned = 27
  case consumerRemoved = 28
  case feedSwitched = 29
  case deletionHeld = 30
  case deletionEnded = 31
  case acknowledged = 32
  case acknowledgementForgotten = 33
  case acknowledgedThrough = 34
  case stepsSealed = 35
  case stepTailCut = 36
  case stepsTrimmed = 37
  case stepTailAssigned = 38
  case truncated = 39
  case channelDeleted = 40
  case inThread = 41
  case rowErased = 42
  case senderErased = 43
  case messageCountsAssigned = 44
  case membershipAssigned = 45
  case membershipRemoved = 46
  case deletionBegun = 47
  case userAssigned = 48
  case userSettled = 49
  case userErased = 50
  case timerAssigned = 51
  case timerRemoved = 52
  case pushJobAssigned = 53
  case pushJobRemoved = 54
  case namesLost = 55
  case segmentFlagsAssigned = 58
  case muteAssigned = 59
  case unreadFlagAssigned = 60
  case membershipQueued = 64
  case membershipsConfirmed = 65
  case membershipsReceived = 66
  case indexEpochAssigned = 67
  case mentionsAssigned = 70
  case stepsImported = 71
}
