package import NIOCore

extension RequestSpec {
  /// The layouts of the requests in this file.
  static let snapshotRequests: [RequestSpec] = [
    RequestSpec(
      .snapshotBegin,
      "snapshot_begin",
      "group:byte first count from:byte",
      reply: "position epoch hash:bytes(8) record_key"
    ),
    RequestSpec(.snapshotRead, "snapshot_read", reply: "is_last:byte total digest:bytes(32) bytes:rest"),
    RequestSpec(.recordKeys, "record_keys", "group:byte", reply: "keys:[number secret:bytes(32)]"),
  ]
}

/// The fields of *snapshot_begin*: a node asks another for a group's data (Proto/frames.md, "Snapshots and record
/// keys").
package struct SnapshotRequest: Hashable, Sendable {
  package var group: UInt8
  /// The group's shards, so that both nodes have the same ones.
  package var shards: Range<UInt16>
  /// Whether the group's owner answers too. Followers have more time for it.
  package var asksOwner: Bool

  package init(group: UInt8, shards: Range<UInt16>, asksOwner: Bool) {
    self.group = group
    self.shards = shards
    self.asksOwner = asksOwner
  }

  package init(_ payload: RawSpan) throws(WireError) {
    var reader = FieldReader(payload)
    group = try reader.byte()
    let first = try reader.varint32()
    let count = try reader.varint32()
    guard let lower = UInt16(exactly: first), count > 0, count <= UInt32(UInt16.max - lower) else {
      throw .badValue(.count)
    }
    shards = lower..<(lower + UInt16(count))
    let from = try reader.byte()
    guard from <= 1 else { throw .badValue(.node) }
    asksOwner = from == 1
    try reader.end()
  }

  package func write(into buffer: inout ByteBuffer) {
    buffer.writeInteger(group)
    buffer.writeVarint(UInt32(shards.lowerBound))
    buffer.writeVarint(UInt32(shards.count))
    buffer.writeByte(asksOwner ? 1 : 0)
  }
}

/// The reply to *snapshot_begin*: the last record of the shared log that the data has.
package struct SnapshotHead: Hashable, Sendable {
  package var position: UInt64
  package var epoch: UInt64
  package var hash: UInt64
  /// Number of the record's key.
  package var key: UInt64

  package init(position: UInt64, epoch: UInt64, hash: UInt64, key: UInt64) {
    self.position = position
    self.epoch = epoch
    self.hash = hash
    self.key = key
  }

  package init(_ payload: RawSpan) throws(WireError) {
    var reader = FieldReader(payload)
    position = try reader.varint()
    epoch = try reader.varint()
    hash = try reader.fixed64()
    key = try reader.varint()
    try reader.end()
  }

  package func write(into buffer: inout ByteBuffer) {
    buffer.writeVarint(position)
    buffer.writeVarint(epoch)
    buffer.writeInteger(hash)
    buffer.writeVarint(key)
  }
}

/// The fields of *record_keys*: a node asks another for the keys of a group's records (Proto/frames.md, "Snapshots and
/// record keys").
package struct RecordKeysRequest: Hashable, Sendable {
  package var group: UInt8

  package init(group: UInt8) { self.group = group }

  package init(_ payload: RawSpan) throws(WireError) {
    var reader = FieldReader(payload)
    group = try reader.byte()
    try reader.end()
  }

  package func write(into buffer: inout ByteBuffer) { buffer.writeInteger(group) }
}

/// The reply to *record_keys*: the keys that the node has.
package struct RecordKeyList: Hashable, Sendable {
  package struct Key: Hashable, Sendable {
    package var number: UInt64
    package var secret: [UInt8]

    package init(number: UInt64, secret: [UInt8]) {
      self.number = number
      self.secret = secret
    }
  }

  private static let secretByteCount = 32

  package var keys: [Key]

  package init(keys: [Key]) { self.keys = keys }

  package init(_ payload: RawSpan) throws(WireError) {
    var reader = FieldReader(payload)
    keys = []
    for _ in 0..<(try reader.count(elementBytesMin: 1 + Self.secretByteCount)) {
      let number = try reader.varint()
      let secret = try reader.raw(Self.secretByteCount).withUnsafeBytes { Array($0) }
      keys.append(Key(number: number, secret: secret))
    }
    try reader.end()
  }

  package func write(into buffer: inout ByteBuffer) {
    buffer.writeVarint(keys.count)
    for key in keys {
      buffer.writeVarint(key.number)
      buffer.writeBytes(key.secret)
    }
  }
}

/// The reply to *snapshot_read*: the next bytes.
package struct SnapshotPart: Hashable, Sendable {
  /// Largest number of a reply's bytes.
  package static let byteCount = 1 << 18
  private static let digestByteCount = 32

  package var isLast: Bool
  /// Number of the snapshot's bytes up to the end of these, and their SHA-256.
  package var total: UInt64
  package var digest: [UInt8]
  package var bytes: ByteBuffer

  package init(isLast: Bool, total: UInt64, digest: [UInt8], bytes: ByteBuffer) {
    self.isLast = isLast
    self.total = total
    self.digest = digest
    self.bytes = bytes
  }

  package init(_ payload: RawSpan) throws(WireError) {
    var reader = FieldReader(payload)
    let last = try reader.byte()
    guard last <= 1 else { throw .badValue(.count) }
    isLast = last == 1
    total = try reader.varint()
    digest = try reader.raw(Self.digestByteCount).withUnsafeBytes { Array($0) }
    bytes = ByteBuffer()
    bytes.writeRaw(try reader.raw(reader.remaining))
    guard UInt64(bytes.readableBytes) <= total else { throw .badValue(.count) }
  }

  package func write(into buffer: inout ByteBuffer) {
    buffer.writeByte(isLast ? 1 : 0)
    buffer.writeVarint(total)
    buffer.writeBytes(digest)
    buffer.writeImmutableBuffer(bytes)
  }
}
