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
    ),
    RequestSpec(.purge, "purge", "round", reply: "round"),
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
    ),
    RequestSpec(.unsubscribe, "unsubscribe", "channels:[cid]"),
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
  /// A ``RebuildFields/Phase``, if known.
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
  package mutating func writeListChannels(
    withAll: Bool,
    limit: Int,
    cursor: UInt64?,
    deletedSince: Timestamp? = nil
  ) {
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
  package mutating func writeSubscribeUser(on: Bool) { writeInteger(UInt8(on ? 1 : 0)) }

  /// Write what ``RebuildIndexRequest`` reads.
  package mutating func writeRebuildIndex(phase: UInt8, epoch: UInt64) {
    writeInteger(phase)
    writeVarint(epoch)
  }
}
