package import NIOCore
package import ReceiptModel

/// A member's changed row in its current state: for the member and for others.
package struct RowEventFields: Hashable, Sendable {
  /// The changes for the member's own devices.
  @usableFromInline
  package struct Own: FlagSet {
    @usableFromInline package let rawValue: UInt8
    @inlinable package init(rawValue: UInt8) { self.rawValue = rawValue }
    /// A mark-read moved the watermark or the marker (R2).
    package static let read = Own(rawValue: 1)
    /// A mark-unread set the marker (R4).
    package static let unread = Own(rawValue: 2)
    static let known: UInt8 = 3
  }

  /// The changes for others, as far as they may see them (R4, R7, R8).
  @usableFromInline
  package struct Shown: FlagSet {
    @usableFromInline package let rawValue: UInt8
    @inlinable package init(rawValue: UInt8) { self.rawValue = rawValue }
    /// The shown read position rose.
    package static let read = Shown(rawValue: 1)
    /// The shown delivered position rose.
    package static let delivered = Shown(rawValue: 2)
    /// The row fell, was hidden, or is visible again.
    package static let row = Shown(rawValue: 4)
    /// Of others, only servers may see it: the option `counts_visible_to` is `sender` (R10).
    package static let serversOnly = Shown(rawValue: 8)
    static let known: UInt8 = 15
  }

  /// The thread's parent message; empty: the channel itself.
  package var thread: String
  package var own: Own
  /// Without `read`, `delivered` and `row` the event goes to nobody else.
  package var shown: Shown
  package var at: Timestamp
  /// The member's unread messages in the channel, if `own` reports a read in a thread.
  package var unreadInChannel: UInt32?
  /// The row as the member sees it, with own details.
  package var ownRow: RowEventRow
  /// The row as others see it, without own details; set if `shown` reports a change.
  package var shownRow: RowEventRow?

  package init(
    thread: String,
    own: Own,
    shown: Shown,
    at: Timestamp,
    unreadInChannel: UInt32? = nil,
    ownRow: RowEventRow,
    shownRow: RowEventRow?
  ) {
    self.thread = thread
    self.own = own
    self.shown = shown
    self.at = at
    self.unreadInChannel = unreadInChannel
    self.ownRow = ownRow
    self.shownRow = shownRow
  }

  package init(_ reader: inout FieldReader) throws(WireError) {
    thread = try reader.text()
    let own = try reader.byte()
    let shown = try reader.byte()
    guard own <= Own.known, shown <= Shown.known else { throw .badValue(.flags) }
    self.own = Own(rawValue: own)
    self.shown = Shown(rawValue: shown)
    at = try reader.time()
    unreadInChannel = try reader.optional32()
    guard (unreadInChannel != nil) == (!thread.isEmpty && self.own.contains(.read)) else {
      throw .badValue(.flags)
    }
    ownRow = try RowEventRow(&reader)
    guard ownRow.own != nil else { throw .badValue(.flags) }
    shownRow = self.shown.isEmpty ? nil : try RowEventRow(&reader)
    guard shownRow?.own == nil else { throw .badValue(.flags) }
  }

  package func write(into buffer: inout ByteBuffer) {
    buffer.writeField(thread)
    buffer.writeByte(own.rawValue)
    buffer.writeByte(shown.rawValue)
    buffer.writeTime(at)
    buffer.writeOptional(unreadInChannel.map(UInt64.init))
    ownRow.write(into: &buffer)
    shownRow?.write(into: &buffer)
  }
}

/// *row* of Proto/frames.md, with its strings copied.
package struct RowEventRow: Hashable, Sendable {
  package struct OwnDetails: Hashable, Sendable {
    package var unreadMessages: UInt32
    /// Empty: no unread message.
    package var firstUnreadMessage: String
    package var unreadEpoch: UInt32
    /// The row is the member's own; the fields below are for the member only.
    package var isOwn: Bool
    package var isFlaggedUnread: Bool
    package var unreadMentions: UInt32

    package init(
      unreadMessages: UInt32,
      firstUnreadMessage: String,
      unreadEpoch: UInt32,
      isOwn: Bool = true,
      isFlaggedUnread: Bool = false,
      unreadMentions: UInt32 = 0
    ) {
      self.unreadMessages = unreadMessages
      self.firstUnreadMessage = firstUnreadMessage
      self.unreadEpoch = unreadEpoch
      self.isOwn = isOwn
      self.isFlaggedUnread = isFlaggedUnread
      self.unreadMentions = unreadMentions
    }
  }

  package var user: String
  package var lastRead: Timestamp
  package var lastReadMessage: String
  package var lastReadSequence: SequenceNumber
  package var lastDelivered: Timestamp
  package var lastDeliveredMessage: String
  package var lastDeliveredSequence: SequenceNumber
  package var own: OwnDetails?
  /// The newest message at the member's join; nil: not reported.
  package var joined: SequenceNumber?

  package init(
    user: String,
    lastRead: Timestamp,
    lastReadMessage: String,
    lastReadSequence: SequenceNumber,
    lastDelivered: Timestamp,
    lastDeliveredMessage: String,
    lastDeliveredSequence: SequenceNumber,
    own: OwnDetails? = nil,
    joined: SequenceNumber? = nil
  ) {
    self.user = user
    self.lastRead = lastRead
    self.lastReadMessage = lastReadMessage
    self.lastReadSequence = lastReadSequence
    self.lastDelivered = lastDelivered
    self.lastDeliveredMessage = lastDeliveredMessage
    self.lastDeliveredSequence = lastDeliveredSequence
    self.own = own
    self.joined = joined
  }

  init(_ reader: inout FieldReader) throws(WireError) {
    user = try reader.text()
    lastRead = try reader.time()
    lastReadMessage = try reader.text()
    lastReadSequence = try reader.sequence()
    lastDelivered = try reader.time()
    lastDeliveredMessage = try reader.text()
    lastDeliveredSequence = try reader.sequence()
    let flags = try reader.rowFlags()
    if flags.contains(.details) {
      let unread = try reader.varint32()
      let first = try reader.text()
      own = OwnDetails(
        unreadMessages: unread,
        firstUnreadMessage: first,
        unreadEpoch: try reader.varint32(),
        isOwn: flags.contains(.own),
        isFlaggedUnread: flags.contains(.flagged)
      )
      if flags.contains(.own) { own?.unreadMentions = try reader.varint32() }
    }
    if flags.contains(.joined) { joined = try reader.sequence() }
  }

  package func write(into buffer: inout ByteBuffer) {
    buffer.writeField(user)
    buffer.writeTime(lastRead)
    buffer.writeField(lastReadMessage)
    buffer.writeSequence(lastReadSequence)
    buffer.writeTime(lastDelivered)
    buffer.writeField(lastDeliveredMessage)
    buffer.writeSequence(lastDeliveredSequence)
    var flags = joined == nil ? RowFieldFlags() : RowFieldFlags.joined
    if let own {
      flags.insert(.details)
      if own.isOwn { flags.insert(.own) }
      if own.isFlaggedUnread { flags.insert(.flagged) }
    }
    buffer.writeFlags(flags)
    if let own {
      buffer.writeVarint(own.unreadMessages)
      buffer.writeField(own.firstUnreadMessage)
      buffer.writeVarint(own.unreadEpoch)
      if own.isOwn { buffer.writeVarint(own.unreadMentions) }
    }
    if let joined { buffer.writeSequence(joined) }
  }
}
