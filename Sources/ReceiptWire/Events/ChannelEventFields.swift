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
    for (index, event) in events.enumerated() {
      if let limits = limits[index] { buffer.writeLimits(limits) }
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
    buffer.writeByte(kind.rawValue)
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

extension HistoryLimit {
  /// The first byte of limits, which precede the event that they belong to.
  static let eventKind: UInt8 = 32
  fileprivate static let byteCountMin = 4

  fileprivate init(_ reader: inout FieldReader) throws(WireError) {
    let from = try reader.time()
    let through = try reader.time()
    let hidden = try reader.byte()
    guard from <= through, (1...Hidden.known).contains(hidden) else { throw .badValue(.flags) }
    self.init(from: from, through: through, hidden: Hidden(rawValue: hidden), joined: try reader.sequence())
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
      writeByte(limit.hidden.rawValue)
      writeSequence(limit.joined)
    }
  }
}
