package import NIOCore
package import ReceiptModel

// Requests about a user's channels, and about events (Proto/frames.md). Only their form is checked here; the store
// checks their ranges.

extension RequestSpec {
  /// The layouts of the requests in this file.
  static let userRequests: [RequestSpec] = [
    RequestSpec(
      .listChannels,
      "list_channels",
      "user flags limit cursor:optional since?flags=2...3",
      reply: "entries:[@entry] next_cursor:optional"
    ),
    RequestSpec(
      .unreadCounts,
      "unread_counts",
      "channels:[cid user row]",
      reply: "counts:[found:varint(error) (unread_messages unread_threads unread_mentions unread_flags:byte)?found=0]"
    ), RequestSpec(.purge, "purge", "round", reply: "round"),
    RequestSpec(
      .rebuildIndex,
      "rebuild_index",
      "phase:byte(asked_phase) epoch",
      reply: "phase:byte(done_phase) epoch channels_done channels entries"
    ),
    RequestSpec(
      .subscribe,
      "subscribe",
      "flags since channels:[cid]",
      reply: "through complete:byte channels:[cid events:[@channel_event]]"
    ), RequestSpec(.unsubscribe, "unsubscribe", "channels:[cid]"),
    RequestSpec(.subscribeUser, "subscribe_user", "user on:byte", reply: "through"),
    RequestSpec(.announceRow, "announce_row", "user channels:[cid]"),
  ]
}

/// The fields of list_channels, after the user.
package struct ListChannelsRequest: Sendable {
  /// Every channel that knows the user, as a sender or a former member too.
  package static let withAll: UInt64 = 1
  /// Also channels deleted since ``since``, which then follows.
  package static let withDeleted: UInt64 = 2

  package let flags: UInt64
  package let limit: UInt64
  /// The position after which the page begins; nil: the first page.
  package let cursor: UInt32?
  /// None without ``withDeleted``.
  package let since: Timestamp

  package init(_ reader: inout FieldReader) throws(WireError) {
    flags = try reader.varint()
    limit = try reader.varint()
    cursor = try reader.optional32()
    since = flags & Self.withDeleted == 0 ? .none : try reader.time()
    try reader.end()
  }
}

/// An entry of unread_counts.
package struct UnreadCountEntry: ~Escapable {
  package let cid: RawSpan
  package let user: RawSpan
  package let row: UInt32

  @_lifetime(copy reader)
  @_lifetime(reader: copy reader)
  package init(_ reader: inout FieldReader) throws(WireError) {
    cid = try reader.string()
    user = try reader.string()
    row = try reader.varint32()
  }
}

/// The fields of subscribe.
package struct SubscribeRequest: ~Escapable {
  /// 1: the store answers what changed since ``since``; else 0.
  package let flags: UInt64
  package let since: Timestamp
  package let channels: StringListFields

  @_lifetime(copy reader)
  package init(_ reader: inout FieldReader) throws(WireError) {
    flags = try reader.varint()
    since = try reader.time()
    channels = try StringListFields(&reader)
    try reader.end()
  }
}

/// The fields of subscribe_user, after the user.
package struct SubscribeUserRequest: Sendable {
  /// 1: the connection gets the user's events; 0: no more.
  package let on: UInt8

  package init(_ reader: inout FieldReader) throws(WireError) {
    on = try reader.byte()
    try reader.end()
  }
}

/// The fields of rebuild_index.
package struct RebuildIndexRequest: Sendable {
  /// A ``RebuildIndexReply/Phase``, if known.
  package let phase: UInt8
  package let epoch: UInt64

  package init(_ reader: inout FieldReader) throws(WireError) {
    phase = try reader.byte()
    epoch = try reader.varint()
    try reader.end()
  }
}

extension ByteBuffer {
  /// Write what ``ListChannelsRequest`` reads.
  ///
  /// - Parameter deletedSince: nil: no deleted channels.
  package mutating func writeListChannels(withAll: Bool, limit: Int, cursor: UInt64?, deletedSince: Timestamp? = nil) {
    let all = withAll ? ListChannelsRequest.withAll : 0
    writeVarint(all | (deletedSince == nil ? 0 : ListChannelsRequest.withDeleted))
    writeVarint(limit)
    writeOptional(cursor)
    if let deletedSince { writeTime(deletedSince) }
  }

  /// Write what ``UnreadCountEntry`` reads.
  package mutating func writeUnreadCountEntry(cid: RawSpan, user: RawSpan, row: UInt32) {
    writeField(cid)
    writeField(user)
    writeVarint(row)
  }

  /// Write what ``SubscribeRequest`` reads; nil: without changes.
  package mutating func writeSubscribe(changesSince since: Timestamp?, _ channels: some Collection<String>) {
    writeVarint(UInt64(since == nil ? 0 : 1))
    writeTime(since ?? .none)
    writeStrings(channels)
  }

  /// Write what ``SubscribeUserRequest`` reads.
  package mutating func writeSubscribeUser(on: Bool) { writeFlag(on) }

  /// Write what ``RebuildIndexRequest`` reads.
  package mutating func writeRebuildIndex(phase: UInt8, epoch: UInt64) {
    writeInteger(phase)
    writeVarint(epoch)
  }
}

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

  package init(cid: String, row: UInt32?, isMember: Bool, joinedAt: Timestamp, deletedAt: Timestamp = .none) {
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
    let flags = ChannelEntryFlags().setting(.member, isMember).setting(.withDeletedAt, deletedAt != .none)
    buffer.writeByte(flags.rawValue)
    buffer.writeTime(joinedAt)
    if deletedAt != .none { buffer.writeTime(deletedAt) }
  }

  /// Minimum size of an entry in bytes.
  package static let byteCountMin = 4
}

/// The flags of *channel entry*.
private struct ChannelEntryFlags: FlagSet {
  let rawValue: UInt8

  static let member = Self(rawValue: 1)
  static let withDeletedAt = Self(rawValue: 2)
  static let known = Self(rawValue: 3)
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
    let flags = try reader.byteOfFlags(known: ChannelEntryFlags.known)
    isMember = flags.contains(.member)
    joinedAt = try reader.time()
    deletedAt = flags.contains(.withDeletedAt) ? try reader.time() : .none
  }
}

extension ByteBuffer {
  /// Write a reply to list_channels.
  ///
  /// - Parameters:
  ///   - next: the cursor of the next page; nil: this page is the last.
  ///   - entries: writes `count` entries (``ChannelEntryFields``).
  package mutating func writeChannelList(count: Int, next: UInt64?, entries: (inout ByteBuffer) -> Void) {
    writeVarint(count)
    entries(&self)
    writeOptional(next)
  }
}

extension FieldReader {
  /// Read a whole reply to list_channels, and call `body` with each channel in order.
  ///
  /// - Returns: the cursor of the next page; nil: this page is the last.
  @_lifetime(self: copy self)
  package mutating func channelList(_ body: (ListedChannel) throws(WireError) -> Void) throws(WireError) -> UInt64? {
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
      let flags = try reader.byteOfFlags(known: UnreadCountFlags.known)
      counts.isFlagged = flags.contains(.flagged)
      counts.isMuted = flags.contains(.muted)
      self = .found(counts)
      return
    }
    guard let known = UInt16(exactly: code).flatMap(ErrorCode.init) else { throw .badValue(.code) }
    self = .refused(known)
  }

  package func write(into buffer: inout ByteBuffer) {
    switch self {
    case .found(let counts):
      buffer.writeVarint(UInt64(0))
      buffer.writeVarint(counts.messages)
      buffer.writeVarint(counts.threads)
      buffer.writeVarint(counts.mentions)
      let flags = UnreadCountFlags().setting(.flagged, counts.isFlagged).setting(.muted, counts.isMuted)
      buffer.writeByte(flags.rawValue)
    case .refused(let code): buffer.writeVarint(UInt64(code.rawValue))
    }
  }
}

/// The flags of the counts in the reply to unread_counts.
private struct UnreadCountFlags: FlagSet {
  let rawValue: UInt8

  static let flagged = Self(rawValue: 1)
  static let muted = Self(rawValue: 2)
  static let known = Self(rawValue: 3)
}

/// The progress of rebuilding an index in one shard, in the reply to rebuild_index (Proto/frames.md).
package struct RebuildIndexReply: Hashable, Sendable {
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

  package init(_ payload: RawSpan) throws(WireError) {
    var reader = FieldReader(payload)
    guard let phase = Phase(rawValue: try reader.byte()) else { throw .badValue(.phase) }
    self.phase = phase
    epoch = try reader.varint()
    channelsDone = try reader.varint()
    channels = try reader.varint()
    entries = try reader.varint()
    try reader.end()
  }

  package func write(into buffer: inout ByteBuffer) {
    buffer.writeByte(phase.rawValue)
    buffer.writeVarint(epoch)
    buffer.writeVarint(channelsDone)
    buffer.writeVarint(channels)
    buffer.writeVarint(entries)
  }
}
