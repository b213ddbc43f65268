package import NIOCore
internal import ReceiptModel
package import ReceiptWire

/// The encoding of records in the shared log (Proto/frames.md, "Records of a cluster").
extension GroupRecord {
  /// Maximum size of a payload: a record is one value of the shared log.
  package static let payloadBytesMax = 1 << 20

  /// Decode a record of any level from ``ClusterLevel/oldest`` on.
  ///
  /// - Parameter levelMax: highest level whose content is decoded.
  package init(
    _ bytes: RawSpan,
    levelMax: ClusterLevel = ClusterLevel.supported.upperBound
  ) throws(WireError) {
    var reader = FieldReader(bytes)
    let level = ClusterLevel(try reader.byte())
    guard level >= .oldest else { throw .badValue(.format) }
    let position = RecordPosition(try reader.varint())
    let epoch = OwnerEpoch(try reader.varint())
    let previous = RecordHash(try reader.fixed64())
    let key = RecordKeyNumber(try reader.varint())
    let kind: Kind
    var payload: [UInt8] = []
    if level > levelMax {
      kind = .unknown
      let content = try reader.raw(reader.remaining)
      payload = content.withUnsafeBytes { Array($0) }
    } else {
      let number = try reader.byte()
      switch number {
      case 0, 4:
        kind = number == 0 ? .batches : .part
        let content = try reader.string()
        payload = content.withUnsafeBytes { Array($0) }
      case 1: kind = .claim(by: try reader.nodeID())
      case 2: kind = .release(to: try reader.nodeID())
      case 3: kind = .alive
      case 5: kind = .purge(first: RecordPosition(try reader.varint()))
      default: throw .unknownKind(number)
      }
    }
    try reader.end()
    self.init(
      level: level,
      position: position,
      epoch: epoch,
      previous: previous,
      key: key,
      kind: kind,
      payload: payload
    )
  }

  package func encoded() -> ByteBuffer {
    var buffer = ByteBuffer()
    buffer.reserveCapacity(minimumWritableBytes: payload.count + 50)
    buffer.writeInteger(level.rawValue)
    buffer.writeVarint(position.rawValue)
    buffer.writeVarint(epoch.rawValue)
    buffer.writeInteger(previous.rawValue)
    buffer.writeVarint(key.rawValue)
    switch kind {
    case .batches, .part:
      buffer.writeInteger(UInt8(kind == .part ? 4 : 0))
      buffer.writeField(payload.span.bytes)
    case .claim(let node):
      buffer.writeInteger(UInt8(1))
      buffer.writeVarint(UInt64(node.rawValue))
    case .release(let node):
      buffer.writeInteger(UInt8(2))
      buffer.writeVarint(UInt64(node.rawValue))
    case .alive: buffer.writeInteger(UInt8(3))
    case .purge(let first):
      buffer.writeInteger(UInt8(5))
      buffer.writeVarint(first.rawValue)
    case .unknown: buffer.writeBytes(payload)
    }
    return buffer
  }
}

/// The value of a stored position: position, epoch, hash and key, 8 bytes each.
extension LogCursor {
  package init(stored bytes: RawSpan) throws(WireError) {
    var reader = FieldReader(bytes)
    let position = RecordPosition(try reader.fixed64())
    let epoch = OwnerEpoch(try reader.fixed64())
    let hash = RecordHash(try reader.fixed64())
    self.init(position: position, epoch: epoch, hash: hash, key: RecordKeyNumber(try reader.fixed64()))
    try reader.end()
  }

  package func stored() -> ByteBuffer {
    var buffer = ByteBuffer()
    buffer.writeInteger(position.rawValue)
    buffer.writeInteger(epoch.rawValue)
    buffer.writeInteger(hash.rawValue)
    buffer.writeInteger(key.rawValue)
    return buffer
  }
}

extension FieldReader {
  @_lifetime(self: copy self)
  fileprivate mutating func nodeID() throws(WireError) -> NodeID {
    guard let node = UInt16(exactly: try varint()), node > 0 else { throw .badValue(.node) }
    return NodeID(node)
  }
}

/// The payload of a record of batches: one commit's part for the shared log.
extension LoopCommit {
  /// Encode the batches that the shared log does not have yet.
  func recordPayload() -> [UInt8] {
    var buffer = ByteBuffer()
    buffer.reserveCapacity(minimumWritableBytes: logBytes + 16 * batches.count)
    let own = batches.dropFirst(followedCount)
    buffer.writeVarint(own.count)
    for batch in own {
      buffer.writeVarint(UInt64(batch.shard.rawValue))
      buffer.writeVarint(batch.index.rawValue)
      buffer.writeField(batch.bytes.readableBytesSpan)
    }
    return Array(buffer.readableBytesView)
  }

  /// Decode the batches of a record.
  package static func batches(ofRecordPayload payload: [UInt8]) throws(WireError) -> [Batch] {
    var reader = FieldReader(payload.span.bytes)
    var batches: [Batch] = []
    for _ in 0..<(try reader.count(elementBytesMin: 3)) {
      guard let shard = UInt16(exactly: try reader.varint()) else { throw .badVarint }
      let index = LogIndex(try reader.varint())
      let content = try reader.string()
      var bytes = ByteBuffer()
      bytes.writeRaw(content)
      batches.append(Batch(shard: ShardID(shard), index: index, bytes: bytes))
    }
    try reader.end()
    return batches
  }
}
