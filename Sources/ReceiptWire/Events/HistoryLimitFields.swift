package import NIOCore
package import ReceiptModel

extension HistoryLimit {
  /// The first byte of limits, which precede the event that they belong to.
  static let eventKind: UInt8 = 32
  fileprivate static let byteCountMin = 4

  fileprivate init(_ reader: inout FieldReader) throws(WireError) {
    let from = try reader.time()
    let through = try reader.time()
    let hidden = try reader.byte()
    guard from <= through, (1...Hidden.known).contains(hidden) else { throw .badValue(.flags) }
    self.init(
      from: from,
      through: through,
      hidden: Hidden(rawValue: hidden),
      joined: try reader.sequence()
    )
  }
}

extension FieldReader {
  @_lifetime(self: copy self)
  mutating func historyLimits() throws(WireError) -> [HistoryLimit] {
    var limits: [HistoryLimit] = []
    for _ in 0..<(try count(elementBytesMin: HistoryLimit.byteCountMin)) {
      limits.append(try HistoryLimit(&self))
    }
    guard !limits.isEmpty else { throw .badValue(.count) }
    return limits
  }
}

extension ByteBuffer {
  /// Write *limits* of Proto/frames.md.
  package mutating func writeLimits(_ limits: [HistoryLimit]) {
    writeInteger(HistoryLimit.eventKind)
    writeVarint(limits.count)
    for limit in limits {
      writeTime(limit.from)
      writeTime(limit.through)
      writeInteger(limit.hidden.rawValue)
      writeSequence(limit.joined)
    }
  }
}
