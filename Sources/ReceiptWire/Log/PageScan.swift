package import ReceiptModel

/// Scans the effects of a page without decoding them: requested fields are read in place, and a skipped effect costs a
/// few bytes of its head (Proto/frames.md, "The log and the pages").
package struct PageScan: ~Escapable {
  /// The kinds of effects that scans distinguish.
  package enum Kind: Sendable {
    case head
    case row
    case message
    case messageCounts
    case segmentFlags
    case truncation
    case other
  }

  /// The log index that the page includes.
  package let index: LogIndex
  /// The kind of the current effect.
  package private(set) var kind = Kind.other
  /// The parent message of the effect's thread; zero: the effect concerns the channel.
  package private(set) var parent = SequenceNumber.zero
  private var reader: FieldReader
  private var remaining: Int
  private var fieldsStart = 0

  @_lifetime(copy bytes)
  package init(_ bytes: RawSpan) throws(WireError) {
    reader = FieldReader(bytes)
    guard try reader.byte() == Page.formatVersion else { throw .badValue(.format) }
    index = LogIndex(try reader.varint())
    remaining = try reader.count(elementBytesMin: 2)
  }

  /// Advance to the next effect.
  ///
  /// - Returns: false if there is none; the page must end there.
  @_lifetime(self: copy self)
  package mutating func advance() throws(WireError) -> Bool {
    guard remaining > 0 else {
      try reader.end()
      return false
    }
    remaining -= 1
    parent = .zero
    var number = try reader.byte()
    var length = try reader.varint()
    guard length <= UInt64(reader.remaining) else { throw .truncated }
    let end = reader.offset + Int(length)
    if number == EffectNumber.inThread.rawValue {
      parent = try reader.sequence()
      number = try reader.byte()
      length = try reader.varint()
      guard length <= UInt64(reader.remaining), reader.offset + Int(length) == end else { throw .truncated }
    }
    guard let effect = EffectNumber(rawValue: number) else { throw .badValue(.effect) }
    kind = Self.kind(of: effect)
    fieldsStart = reader.offset
    _ = try reader.raw(end - reader.offset)
    return true
  }

  /// The fields of an effect of kind ``Kind/head``, up to the cid.
  package var head: ScannedHead {
    @_lifetime(copy self) get throws(WireError) {
      var fields = fields
      return try ScannedHead(&fields)
    }
  }

  /// The fields of an effect of kind ``Kind/row``, up to those that unread counts need.
  package var row: ScannedRow {
    @_lifetime(copy self) get throws(WireError) {
      var fields = fields
      return try ScannedRow(&fields)
    }
  }

  /// The fields of an effect of kind ``Kind/message``, up to the sender.
  package var message: ScannedMessage {
    @_lifetime(copy self) get throws(WireError) {
      var fields = fields
      return try ScannedMessage(&fields)
    }
  }

  /// The newest message and the number of countable messages in each segment, from an effect of kind
  /// ``Kind/messageCounts``.
  package var messageCounts: (newest: SequenceNumber, counts: [UInt32]) {
    get throws(WireError) {
      var fields = fields
      _ = try fields.varint()
      let newest = try fields.sequence()
      let count = try fields.count()
      var counts: [UInt32] = []
      counts.reserveCapacity(count)
      for _ in 0..<count { counts.append(try fields.varint32()) }
      return (newest, counts)
    }
  }

  /// Further facts about some segments, from an effect of kind ``Kind/segmentFlags``.
  package var segmentFlags: [SegmentFlags] {
    get throws(WireError) {
      var fields = fields
      _ = try fields.varint()
      return try fields.segmentFlags()
    }
  }

  /// The position up to which messages are gone, from an effect of kind ``Kind/truncation``.
  package var truncatedThrough: SequenceNumber {
    get throws(WireError) {
      var fields = fields
      _ = try fields.varint()
      return try fields.sequence()
    }
  }

  /// The current effect's fields.
  private var fields: FieldReader {
    @_lifetime(copy self) get { FieldReader(reader.whole.extracting(fieldsStart..<reader.offset)) }
  }

  private static func kind(of effect: EffectNumber) -> Kind {
    switch effect {
    case .channelAssigned: .head
    case .rowAssigned: .row
    case .messageAssigned: .message
    case .messageCountsAssigned: .messageCounts
    case .segmentFlagsAssigned: .segmentFlags
    case .truncated: .truncation
    default: .other
    }
  }
}

/// *channel_assigned*, up to its cid.
package struct ScannedHead: ~Escapable {
  package let channel: ChannelNumber
  package let cid: RawSpan

  @_lifetime(copy fields)
  fileprivate init(_ fields: inout FieldReader) throws(WireError) {
    channel = ChannelNumber(try fields.varint())
    cid = try fields.string()
  }
}

/// *row_assigned*, the fields that its member's unread count needs.
package struct ScannedRow: ~Escapable {
  package let channel: ChannelNumber
  package let row: UInt32
  package let hasLeft: Bool
  /// Empty: the row has no user.
  package let user: RawSpan
  /// Messages up to here do not count as unread for this member (R2, R4, R6).
  package let unreadFloor: SequenceNumber
  /// The same for a thread (R15).
  package let unreadFloorInThread: SequenceNumber
  /// In a thread: replies up to here are not unread for the member, who did not take part then.
  package let unreadAfter: SequenceNumber
  package let hasMarker: Bool
  package let isMuted: Bool
  /// The channel is flagged unread as a whole (R4).
  package let isFlaggedUnread: Bool
  package let joined: SequenceNumber

  @_lifetime(copy fields)
  fileprivate init(_ fields: inout FieldReader) throws(WireError) {
    channel = ChannelNumber(try fields.varint())
    row = try fields.varint32()
    let flags = RowRecordFlags(rawValue: try fields.varint())
    hasLeft = flags.contains(.left)
    isMuted = flags.contains(.muted)
    isFlaggedUnread = flags.contains(.flaggedUnread)
    user = try fields.string()
    _ = try fields.string()
    joined = try fields.sequence()
    _ = try fields.time()
    let read = try fields.sequence()
    _ = try fields.time()
    _ = try fields.sequence()
    _ = try fields.time()
    let marker = try fields.optional32().map { SequenceNumber($0) }
    let own = marker.map { min($0, read) } ?? read
    unreadFloor = flags.contains(.hidesHistory) ? max(own, joined) : own
    // The floor comes after fields that no count needs.
    var floor = joined
    if flags.contains(.withUnreadAfter) {
      _ = try fields.varint()
      if flags.contains(.withMarkedAt) { _ = try fields.time() }
      if flags.contains(.withAckedAt) { _ = try fields.time() }
      if flags.contains(.withCountedAfter) { _ = try fields.sequence() }
      floor = try fields.sequence()
    }
    unreadAfter = floor
    unreadFloorInThread = marker == nil ? max(own, floor) : own
    hasMarker = marker != nil
  }
}

/// *message_assigned*, the fields that unread counts need.
package struct ScannedMessage: ~Escapable {
  package let channel: ChannelNumber
  package let sequence: SequenceNumber
  package let flags: MessageRecord.Flags
  /// Empty: sent by the system.
  package let sender: RawSpan
  /// The fields after the sender.
  private let rest: FieldReader

  /// Return whether the message mentions a row that had joined before it (R14). Does not check for the sender.
  package func mentions(_ row: UInt32, joined: SequenceNumber) throws(WireError) -> Bool {
    guard flags.contains(.mentions) else { return false }
    var fields = rest
    _ = try fields.time()
    _ = try fields.time()
    if flags.contains(.requestsAcknowledgement) { _ = try fields.time() }
    switch try fields.mentions() {
    case .nobody: return false
    case .all: return joined < sequence
    case .rows(let rows): return rows.contains(row)
    }
  }

  @_lifetime(copy fields)
  fileprivate init(_ fields: inout FieldReader) throws(WireError) {
    channel = ChannelNumber(try fields.varint())
    sequence = try fields.sequence()
    guard let raw = UInt8(exactly: try fields.varint()), raw & ~MessageRecord.Flags.known == 0 else {
      throw .badValue(.flags)
    }
    flags = MessageRecord.Flags(rawValue: raw)
    _ = try fields.string()
    sender = try fields.string()
    rest = fields
  }
}

extension FieldReader {
  /// Read the list of *segment_flags_assigned*.
  mutating func segmentFlags() throws(WireError) -> [SegmentFlags] {
    var list: [SegmentFlags] = []
    for _ in 0..<(try count(elementBytesMin: 2)) {
      let segment = try varint32()
      guard let flags = SegmentFlags(segment: segment, rawFlags: try byte()),
        list.last.map({ $0.segment < segment }) ?? true
      else { throw .badValue(.flags) }
      list.append(flags)
    }
    return list
  }
}
