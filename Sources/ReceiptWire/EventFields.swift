package import NIOCore
package import ReceiptModel

/// The events of one channel in a frame (Proto/frames.md, "Events").
package struct ChannelEventsFields: Hashable, Sendable {
  package var cid: String
  /// In the order in which they happened.
  package var events: [EventFields]
  /// By event index: the limits of events that some members must not see whole (R6).
  package var limits: [Int: [HistoryLimit]]

  package init(cid: String, _ events: [EventFields], limits: [Int: [HistoryLimit]] = [:]) {
    self.cid = cid
    self.events = events
    self.limits = limits
  }

  package init(_ reader: inout FieldReader) throws(WireError) {
    cid = try reader.text()
    let count = try reader.count(elementBytesMin: EventFields.byteCountMin)
    events = []
    limits = [:]
    events.reserveCapacity(count)
    for _ in 0..<count {
      let kind = try reader.byte()
      if kind == HistoryLimit.eventKind {
        guard limits[events.count] == nil else { throw .badValue(.flags) }
        limits[events.count] = try reader.historyLimits()
      } else {
        events.append(try EventFields(kind, &reader))
      }
    }
    // Limits come before their event.
    guard limits[events.count] == nil else { throw .badValue(.count) }
  }

  package func write(into buffer: inout ByteBuffer) {
    buffer.writeField(cid)
    buffer.writeVarint(events.count + limits.count)
    for (place, event) in events.enumerated() {
      if let limits = limits[place] { buffer.writeLimits(limits) }
      event.write(into: &buffer)
    }
  }

  /// Minimum size in bytes.
  package static let byteCountMin = 2
}

/// One event of a channel.
package enum EventFields: Hashable, Sendable {
  /// A member's row, in the channel or in one of its threads.
  case row(RowEventFields)
  case messageNew(MessageEventFields)
  case messageDeleted(thread: String, SequenceNumber, message: String, at: Timestamp)
  /// The messages up to `through` are gone.
  case truncated(through: SequenceNumber, at: Timestamp)
  /// The options of the channel or of its type changed.
  case channelUpdated(at: Timestamp, ChannelFields)
  case channelDeleted(at: Timestamp)
  case memberAdded(MemberEventFields)
  case memberRemoved(user: String, at: Timestamp, memberCount: UInt32)
  /// All messages of one sender in a range now have this status (R1, R19).
  case status(StatusEventFields)
  case receipt(ReceiptEventFields)

  /// The first byte of each event.
  package enum Kind: UInt8, Sendable, CaseIterable {
    case row = 1
    case messageNew = 2
    case messageDeleted = 3
    case truncated = 4
    case channelUpdated = 5
    case channelDeleted = 6
    case memberAdded = 7
    case memberRemoved = 8
    case status = 9
    case receipt = 10
  }

  /// Minimum size in bytes.
  package static let byteCountMin = 2

  package init(_ reader: inout FieldReader) throws(WireError) {
    try self.init(try reader.byte(), &reader)
  }

  fileprivate init(_ kind: UInt8, _ reader: inout FieldReader) throws(WireError) {
    guard let kind = Kind(rawValue: kind) else { throw .badValue(.flags) }
    switch kind {
    case .row: self = .row(try RowEventFields(&reader))
    case .messageNew: self = .messageNew(try MessageEventFields(&reader))
    case .messageDeleted:
      let thread = try reader.text()
      let sequence = try reader.sequence()
      let message = try reader.text()
      self = .messageDeleted(thread: thread, sequence, message: message, at: try reader.time())
    case .truncated:
      let sequence = try reader.sequence()
      self = .truncated(through: sequence, at: try reader.time())
    case .channelUpdated:
      let time = try reader.time()
      self = .channelUpdated(at: time, try ChannelFields(&reader))
    case .channelDeleted: self = .channelDeleted(at: try reader.time())
    case .memberAdded: self = .memberAdded(try MemberEventFields(&reader))
    case .memberRemoved:
      let user = try reader.text()
      let time = try reader.time()
      self = .memberRemoved(user: user, at: time, memberCount: try reader.varint32())
    case .status: self = .status(try StatusEventFields(&reader))
    case .receipt: self = .receipt(try ReceiptEventFields(&reader))
    }
  }

  package var kind: Kind {
    switch self {
    case .row: .row
    case .messageNew: .messageNew
    case .messageDeleted: .messageDeleted
    case .truncated: .truncated
    case .channelUpdated: .channelUpdated
    case .channelDeleted: .channelDeleted
    case .memberAdded: .memberAdded
    case .memberRemoved: .memberRemoved
    case .status: .status
    case .receipt: .receipt
    }
  }

  package func write(into buffer: inout ByteBuffer) {
    buffer.writeInteger(kind.rawValue)
    switch self {
    case .row(let event): event.write(into: &buffer)
    case .messageNew(let event): event.write(into: &buffer)
    case .messageDeleted(let thread, let sequence, let message, let time):
      buffer.writeField(thread)
      buffer.writeSequence(sequence)
      buffer.writeField(message)
      buffer.writeTime(time)
    case .truncated(let sequence, let time):
      buffer.writeSequence(sequence)
      buffer.writeTime(time)
    case .channelUpdated(let time, let channel):
      buffer.writeTime(time)
      channel.write(into: &buffer)
    case .channelDeleted(let time): buffer.writeTime(time)
    case .memberAdded(let event): event.write(into: &buffer)
    case .memberRemoved(let user, let time, let count):
      buffer.writeField(user)
      buffer.writeTime(time)
      buffer.writeVarint(count)
    case .status(let event): event.write(into: &buffer)
    case .receipt(let event): event.write(into: &buffer)
    }
  }
}

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
  fileprivate mutating func historyLimits() throws(WireError) -> [HistoryLimit] {
    var limits: [HistoryLimit] = []
    for _ in 0..<(try count(elementBytesMin: HistoryLimit.byteCountMin)) {
      limits.append(try HistoryLimit(&self))
    }
    guard !limits.isEmpty else { throw .badValue(.count) }
    return limits
  }
}

extension ByteBuffer {
  /// *limits* of Proto/frames.md.
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

/// A user who became a member, and the position at their join (R6).
package struct MemberEventFields: Hashable, Sendable {
  package var user: String
  /// Empty: no role.
  package var role: String
  package var at: Timestamp
  /// The channel's current number of members.
  package var memberCount: UInt32
  /// Messages up to here count as read and delivered for the member; zero under hidden history.
  package var readSequence: SequenceNumber
  /// The message at `readSequence`; empty: none.
  package var readMessage: String
  /// The newest message at the join.
  package var joined: SequenceNumber

  package init(
    user: String,
    role: String,
    at: Timestamp,
    memberCount: UInt32,
    readSequence: SequenceNumber,
    readMessage: String,
    joined: SequenceNumber = .zero
  ) {
    self.user = user
    self.role = role
    self.at = at
    self.memberCount = memberCount
    self.readSequence = readSequence
    self.readMessage = readMessage
    self.joined = joined
  }

  init(_ reader: inout FieldReader) throws(WireError) {
    user = try reader.text()
    role = try reader.text()
    at = try reader.time()
    memberCount = try reader.varint32()
    readSequence = try reader.sequence()
    readMessage = try reader.text()
    joined = try reader.sequence()
  }

  func write(into buffer: inout ByteBuffer) {
    buffer.writeField(user)
    buffer.writeField(role)
    buffer.writeTime(at)
    buffer.writeVarint(memberCount)
    buffer.writeSequence(readSequence)
    buffer.writeField(readMessage)
    buffer.writeSequence(joined)
  }
}

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
    buffer.writeInteger(own.rawValue)
    buffer.writeInteger(shown.rawValue)
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
    let flags = try reader.varint()
    guard RowFlags.areValid(flags) else { throw .badValue(.flags) }
    if flags & RowFlags.details != 0 {
      let unread = try reader.varint32()
      let first = try reader.text()
      own = OwnDetails(
        unreadMessages: unread,
        firstUnreadMessage: first,
        unreadEpoch: try reader.varint32(),
        isOwn: flags & RowFlags.own != 0,
        isFlaggedUnread: flags & RowFlags.flagged != 0
      )
      if flags & RowFlags.own != 0 { own?.unreadMentions = try reader.varint32() }
    }
    if flags & RowFlags.joined != 0 { joined = try reader.sequence() }
  }

  package func write(into buffer: inout ByteBuffer) {
    buffer.writeField(user)
    buffer.writeTime(lastRead)
    buffer.writeField(lastReadMessage)
    buffer.writeSequence(lastReadSequence)
    buffer.writeTime(lastDelivered)
    buffer.writeField(lastDeliveredMessage)
    buffer.writeSequence(lastDeliveredSequence)
    var flags: UInt64 = joined == nil ? 0 : RowFlags.joined
    if let own {
      flags |= RowFlags.details
      if own.isOwn { flags |= RowFlags.own }
      if own.isFlaggedUnread { flags |= RowFlags.flagged }
    }
    buffer.writeVarint(flags)
    if let own {
      buffer.writeVarint(own.unreadMessages)
      buffer.writeField(own.firstUnreadMessage)
      buffer.writeVarint(own.unreadEpoch)
      if own.isOwn { buffer.writeVarint(own.unreadMentions) }
    }
    if let joined { buffer.writeSequence(joined) }
  }
}

/// A registered message.
package struct MessageEventFields: Hashable, Sendable {
  package var thread: String
  package var sequence: SequenceNumber
  package var message: String
  /// Empty: sent by the system.
  package var sender: String
  package var registered: Timestamp
  /// The time for display (R20).
  package var created: Timestamp
  package var flags: Flags

  /// Flags of the message, and the sender's positions that it moved to itself (R5).
  package struct Flags: FlagSet {
    package let rawValue: UInt8
    @inlinable package init(rawValue: UInt8) { self.rawValue = rawValue }
    package static let silent = Flags(rawValue: 1)
    package static let receipt = Flags(rawValue: 2)
    /// The read position moved; the delivered position moved.
    package static let read = Flags(rawValue: 4)
    package static let delivered = Flags(rawValue: 8)
    /// Others may see that move (R7, R8).
    package static let readShown = Flags(rawValue: 16)
    package static let deliveredShown = Flags(rawValue: 32)
    /// Of others, only servers may see it: the option `counts_visible_to` is `sender` (R10).
    package static let serversOnly = Flags(rawValue: 64)
    package static let shown = Flags(rawValue: 48)
    static let known: UInt8 = 127
  }

  package init(
    thread: String,
    sequence: SequenceNumber,
    message: String,
    sender: String,
    registered: Timestamp,
    created: Timestamp,
    flags: Flags
  ) {
    self.thread = thread
    self.sequence = sequence
    self.message = message
    self.sender = sender
    self.registered = registered
    self.created = created
    self.flags = flags
  }

  init(_ reader: inout FieldReader) throws(WireError) {
    thread = try reader.text()
    sequence = try reader.sequence()
    message = try reader.text()
    sender = try reader.text()
    registered = try reader.time()
    created = try reader.time()
    let flags = try reader.byte()
    // A move that others may see must have happened.
    guard flags <= Flags.known, flags >> 4 & 3 & ~(flags >> 2) == 0 else { throw .badValue(.flags) }
    self.flags = Flags(rawValue: flags)
  }

  func write(into buffer: inout ByteBuffer) {
    buffer.writeField(thread)
    buffer.writeSequence(sequence)
    buffer.writeField(message)
    buffer.writeField(sender)
    buffer.writeTime(registered)
    buffer.writeTime(created)
    buffer.writeInteger(flags.rawValue)
  }
}

/// A run of one sender's messages that now have the same status; other senders' messages in between do not end it.
package struct StatusEventFields: Hashable, Sendable {
  package var thread: String
  package var sender: String
  package var from: SequenceNumber
  package var to: SequenceNumber
  /// The id of the message at `to`.
  package var lastMessage: String
  package var status: MessageStatus
  package var at: Timestamp

  package init(
    thread: String,
    sender: String,
    from: SequenceNumber,
    to: SequenceNumber,
    lastMessage: String,
    status: MessageStatus,
    at: Timestamp
  ) {
    self.thread = thread
    self.sender = sender
    self.from = from
    self.to = to
    self.lastMessage = lastMessage
    self.status = status
    self.at = at
  }

  init(_ reader: inout FieldReader) throws(WireError) {
    thread = try reader.text()
    sender = try reader.text()
    from = try reader.sequence()
    to = try reader.sequence()
    guard from <= to else { throw .badValue(.count) }
    lastMessage = try reader.text()
    guard let status = MessageStatus(rawValue: try reader.byte()) else { throw .badValue(.status) }
    self.status = status
    at = try reader.time()
  }

  func write(into buffer: inout ByteBuffer) {
    buffer.writeField(thread)
    buffer.writeField(sender)
    buffer.writeSequence(from)
    buffer.writeSequence(to)
    buffer.writeField(lastMessage)
    buffer.writeInteger(status.rawValue)
    buffer.writeTime(at)
  }
}

/// The state of a message's receipt (R9).
package struct ReceiptEventFields: Hashable, Sendable {
  package var sequence: SequenceNumber
  package var message: String
  package var sender: String
  package var status: ReceiptStatus
  package var readCount: UInt32
  package var unreadCount: UInt32
  /// The user who acknowledged it, if that is visible (R7); empty: nobody is named.
  package var user: String
  /// The user's note; empty: none.
  package var note: String
  package var at: Timestamp
  /// Number of members who have acknowledged it.
  package var acknowledgedCount: UInt32
  /// When the named user acknowledged it; none: nobody is named.
  package var acknowledgedAt: Timestamp

  package init(
    sequence: SequenceNumber,
    message: String,
    sender: String,
    status: ReceiptStatus,
    readCount: UInt32,
    unreadCount: UInt32,
    user: String,
    note: String,
    at: Timestamp,
    acknowledgedCount: UInt32,
    acknowledgedAt: Timestamp
  ) {
    self.sequence = sequence
    self.message = message
    self.sender = sender
    self.status = status
    self.readCount = readCount
    self.unreadCount = unreadCount
    self.user = user
    self.note = note
    self.at = at
    self.acknowledgedCount = acknowledgedCount
    self.acknowledgedAt = acknowledgedAt
  }

  init(_ reader: inout FieldReader) throws(WireError) {
    sequence = try reader.sequence()
    message = try reader.text()
    sender = try reader.text()
    guard let status = ReceiptStatus(rawValue: try reader.byte()) else { throw .badValue(.status) }
    self.status = status
    readCount = try reader.varint32()
    unreadCount = try reader.varint32()
    user = try reader.text()
    note = try reader.text()
    at = try reader.time()
    acknowledgedCount = try reader.varint32()
    acknowledgedAt = try reader.time()
  }

  func write(into buffer: inout ByteBuffer) {
    buffer.writeSequence(sequence)
    buffer.writeField(message)
    buffer.writeField(sender)
    buffer.writeInteger(status.rawValue)
    buffer.writeVarint(readCount)
    buffer.writeVarint(unreadCount)
    buffer.writeField(user)
    buffer.writeField(note)
    buffer.writeTime(at)
    buffer.writeVarint(acknowledgedCount)
    buffer.writeTime(acknowledgedAt)
  }
}

/// One event of a user, from the user's home shard.
package enum UserEventFields: Hashable, Sendable {
  /// The current entry of the user's channel index for one channel.
  case membership(ChannelEntryFields, at: Timestamp, isGone: Bool)
  /// The user's tokens issued before this time are refused from now on.
  case tokensRevoked(before: Timestamp)

  package static let byteCountMin = 2

  package init(_ reader: inout FieldReader) throws(WireError) {
    switch try reader.byte() {
    case 1:
      let entry = try ChannelEntryFields(&reader)
      let time = try reader.time()
      let gone = try reader.byte()
      guard gone <= 1 else { throw .badValue(.flags) }
      self = .membership(entry, at: time, isGone: gone == 1)
    case 2: self = .tokensRevoked(before: try reader.time())
    default: throw .badValue(.flags)
    }
  }

  package func write(into buffer: inout ByteBuffer) {
    switch self {
    case .membership(let entry, let time, let isGone):
      buffer.writeInteger(UInt8(1))
      entry.write(into: &buffer)
      buffer.writeTime(time)
      buffer.writeInteger(UInt8(isGone ? 1 : 0))
    case .tokensRevoked(let time):
      buffer.writeInteger(UInt8(2))
      buffer.writeTime(time)
    }
  }
}

/// The events of one user.
package struct UserEventsFields: Hashable, Sendable {
  package var user: String
  package var events: [UserEventFields]

  package init(user: String, _ events: [UserEventFields]) {
    self.user = user
    self.events = events
  }

  init(_ reader: inout FieldReader) throws(WireError) {
    user = try reader.text()
    let count = try reader.count(elementBytesMin: UserEventFields.byteCountMin)
    events = []
    for _ in 0..<count { events.append(try UserEventFields(&reader)) }
  }

  func write(into buffer: inout ByteBuffer) {
    buffer.writeField(user)
    buffer.writeVarint(events.count)
    for event in events { event.write(into: &buffer) }
  }
}

/// The payload of an events frame, which a shard pushes to a gateway (Proto/frames.md, "Events").
package struct EventsFields: Hashable, Sendable {
  /// Events are complete up to this time: this frame and earlier ones contain everything in this connection's
  /// subscriptions in the shard.
  package var through: Timestamp
  /// Events were dropped because the connection was too slow: nothing after the preceding `through` is complete.
  package var isLost: Bool
  package var channels: [ChannelEventsFields]
  package var users: [UserEventsFields]

  package init(
    through: Timestamp,
    isLost: Bool = false,
    channels: [ChannelEventsFields] = [],
    users: [UserEventsFields] = []
  ) {
    self.through = through
    self.isLost = isLost
    self.channels = channels
    self.users = users
  }

  package init(_ payload: RawSpan) throws(WireError) {
    var reader = FieldReader(payload)
    through = try reader.time()
    let lost = try reader.byte()
    guard lost <= 1 else { throw .badValue(.flags) }
    isLost = lost == 1
    channels = []
    users = []
    for _ in 0..<(try reader.count(elementBytesMin: ChannelEventsFields.byteCountMin)) {
      channels.append(try ChannelEventsFields(&reader))
    }
    for _ in 0..<(try reader.count(elementBytesMin: 2)) { users.append(try UserEventsFields(&reader)) }
    try reader.end()
  }

  package func write(into buffer: inout ByteBuffer) {
    buffer.writeTime(through)
    buffer.writeInteger(UInt8(isLost ? 1 : 0))
    buffer.writeVarint(channels.count)
    for channel in channels { channel.write(into: &buffer) }
    buffer.writeVarint(users.count)
    for user in users { user.write(into: &buffer) }
  }
}

/// The reply to a subscription: the current time, and the changes since the requested time.
package struct SubscribedFields: Hashable, Sendable {
  /// The shard's `through` at the time of the reply; later changes follow in events frames.
  package var through: Timestamp
  /// Whether `channels` contains all changes; false if there were too many, or the time is too far back.
  package var isComplete: Bool
  package var channels: [ChannelEventsFields]

  package init(through: Timestamp, isComplete: Bool = true, channels: [ChannelEventsFields] = []) {
    self.through = through
    self.isComplete = isComplete
    self.channels = channels
  }

  package init(_ payload: RawSpan) throws(WireError) {
    var reader = FieldReader(payload)
    through = try reader.time()
    let complete = try reader.byte()
    guard complete <= 1 else { throw .badValue(.flags) }
    isComplete = complete == 1
    channels = []
    for _ in 0..<(try reader.count(elementBytesMin: ChannelEventsFields.byteCountMin)) {
      channels.append(try ChannelEventsFields(&reader))
    }
    try reader.end()
  }

  package func write(into buffer: inout ByteBuffer) {
    buffer.writeTime(through)
    buffer.writeInteger(UInt8(isComplete ? 1 : 0))
    buffer.writeVarint(channels.count)
    for channel in channels { channel.write(into: &buffer) }
  }
}
