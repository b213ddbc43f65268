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
