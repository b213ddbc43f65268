package import NIOCore
package import ReceiptModel

/// One channel of a user, in the reply to list_channels (Proto/frames.md).
package struct ChannelEntryFields: Hashable, Sendable {
  package var cid: String
  /// The user's last row in the channel; nil: never a member, but a sender.
  package var row: UInt32?
  /// Whether the user is a member now.
  package var isMember: Bool
  package var joinedAt: Timestamp
  /// When the user ceased to be a member of a deleted channel of this name; none: no such channel, or not requested.
  package var deletedAt: Timestamp

  package init(
    cid: String,
    row: UInt32?,
    isMember: Bool,
    joinedAt: Timestamp,
    deletedAt: Timestamp = .none
  ) {
    self.cid = cid
    self.row = row
    self.isMember = isMember
    self.joinedAt = joinedAt
    self.deletedAt = deletedAt
  }

  package init(_ reader: inout FieldReader) throws(WireError) { try self.init(ListedChannel(&reader)) }

  /// Copy an entry that was read in place.
  package init(_ channel: borrowing ListedChannel) throws(WireError) {
    cid = try FieldReader.text(channel.cid)
    row = channel.row
    isMember = channel.isMember
    joinedAt = channel.joinedAt
    deletedAt = channel.deletedAt
  }

  package func write(into buffer: inout ByteBuffer) {
    buffer.writeField(cid)
    buffer.writeOptional(row.map(UInt64.init))
    buffer.writeInteger(UInt8((isMember ? 1 : 0) | (deletedAt == .none ? 0 : 2)))
    buffer.writeTime(joinedAt)
    if deletedAt != .none { buffer.writeTime(deletedAt) }
  }

  /// Minimum size of an entry in bytes.
  package static let byteCountMin = 4
}

/// The same fields as ``ChannelEntryFields``, with the cid read in place.
package struct ListedChannel: ~Escapable {
  package let cid: RawSpan
  package let row: UInt32?
  package let isMember: Bool
  package let joinedAt: Timestamp
  package let deletedAt: Timestamp

  @_lifetime(copy reader)
  @_lifetime(reader: copy reader)
  fileprivate init(_ reader: inout FieldReader) throws(WireError) {
    cid = try reader.string()
    row = try reader.optional32()
    let flags = try reader.byte()
    guard flags <= 3 else { throw .badValue(.flags) }
    isMember = flags & 1 != 0
    joinedAt = try reader.time()
    deletedAt = flags & 2 == 0 ? .none : try reader.time()
  }
}

extension FieldReader {
  /// Read a whole reply to list_channels, and call `body` with each channel in order.
  ///
  /// - Returns: the cursor of the next page; nil: this page is the last.
  @_lifetime(self: copy self)
  package mutating func channelList(
    _ body: (ListedChannel) throws(WireError) -> Void
  ) throws(WireError) -> UInt64? {
    for _ in 0..<(try count(elementBytesMin: ChannelEntryFields.byteCountMin)) {
      try body(ListedChannel(&self))
    }
    let next = try optional()
    try end()
    return next
  }
}

/// A user's unread counts in one channel, in the reply to unread_counts, or the reason why they are unknown
/// (Proto/frames.md).
package enum UnreadCountFields: Hashable, Sendable {
  case found(UnreadCounts)
  case refused(ErrorCode)

  package init(_ reader: inout FieldReader) throws(WireError) {
    let code = try reader.varint()
    if code == 0 {
      var counts = UnreadCounts()
      counts.messages = try reader.varint32()
      counts.threads = try reader.varint32()
      counts.mentions = try reader.varint32()
      let flags = try reader.byte()
      guard flags <= 3 else { throw .badValue(.flags) }
      counts.isFlagged = flags & 1 != 0
      counts.isMuted = flags & 2 != 0
      self = .found(counts)
      return
    }
    guard let known = UInt16(exactly: code).flatMap(ErrorCode.init) else { throw .badValue(.flags) }
    self = .refused(known)
  }

  package func write(into buffer: inout ByteBuffer) {
    switch self {
    case .found(let counts):
      buffer.writeVarint(UInt64(0))
      buffer.writeVarint(counts.messages)
      buffer.writeVarint(counts.threads)
      buffer.writeVarint(counts.mentions)
      buffer.writeInteger(UInt8((counts.isFlagged ? 1 : 0) | (counts.isMuted ? 2 : 0)))
    case .refused(let code):
      buffer.writeVarint(UInt64(code.rawValue))
    }
  }
}

/// The progress of rebuilding an index in one shard, in the reply to rebuild_index (Proto/frames.md).
package struct RebuildFields: Hashable, Sendable {
  package enum Phase: UInt8, Sendable {
    case none = 0
    case resending = 1
    case sweeping = 2
  }

  /// The current phase.
  package var phase: Phase
  /// The shard's epoch.
  package var epoch: UInt64
  package var channelsDone: UInt64
  package var channels: UInt64
  /// Number of changes queued, or of entries examined.
  package var entries: UInt64

  package init(phase: Phase, epoch: UInt64, channelsDone: UInt64, channels: UInt64, entries: UInt64) {
    self.phase = phase
    self.epoch = epoch
    self.channelsDone = channelsDone
    self.channels = channels
    self.entries = entries
  }

  package init(_ reader: inout FieldReader) throws(WireError) {
    guard let phase = Phase(rawValue: try reader.byte()) else { throw .badValue(.flags) }
    self.phase = phase
    epoch = try reader.varint()
    channelsDone = try reader.varint()
    channels = try reader.varint()
    entries = try reader.varint()
  }

  package func write(into buffer: inout ByteBuffer) {
    buffer.writeInteger(phase.rawValue)
    buffer.writeVarint(epoch)
    buffer.writeVarint(channelsDone)
    buffer.writeVarint(channels)
    buffer.writeVarint(entries)
  }
}
