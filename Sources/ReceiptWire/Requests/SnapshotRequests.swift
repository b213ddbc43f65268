package import NIOCore

extension RequestSpec {
  /// The layouts of the requests in this file.
  static let snapshotRequests: [RequestSpec] = [
    RequestSpec(
      .snapshotBegin,
      "snapshot_begin",
      "group:byte first count from:byte",
      reply: "position epoch hash:bytes(8)"
    ),
    RequestSpec(.snapshotRead, "snapshot_read", reply: "is_last:byte total digest:bytes(32) bytes:rest"),
  ]
}

/// The fields of *snapshot_begin*: a node asks another for a group's data (Proto/frames.md, "Snapshots").
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

  package init(position: UInt64, epoch: UInt64, hash: UInt64) {
    self.position = position
    self.epoch = epoch
    self.hash = hash
  }

  package init(_ payload: RawSpan) throws(WireError) {
    var reader = FieldReader(payload)
    position = try reader.varint()
    epoch = try reader.varint()
    hash = try reader.fixed64()
    try reader.end()
  }

  package func write(into buffer: inout ByteBuffer) {
    buffer.writeVarint(position)
    buffer.writeVarint(epoch)
    buffer.writeInteger(hash)
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
