internal import NIOCore
package import ReceiptModel

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
    package static let requestsAcknowledgement = Flags(rawValue: 2)
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
    buffer.writeByte(flags.rawValue)
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
    buffer.writeByte(status.rawValue)
    buffer.writeTime(at)
  }
}

/// The state of a message's acknowledgement request (R9).
package struct ReceiptEventFields: Hashable, Sendable {
  package var sequence: SequenceNumber
  package var message: String
  package var sender: String
  package var status: AcknowledgementStatus
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
    status: AcknowledgementStatus,
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
    guard let status = AcknowledgementStatus(rawValue: try reader.byte()) else { throw .badValue(.status) }
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
    buffer.writeByte(status.rawValue)
    buffer.writeVarint(readCount)
    buffer.writeVarint(unreadCount)
    buffer.writeField(user)
    buffer.writeField(note)
    buffer.writeTime(at)
    buffer.writeVarint(acknowledgedCount)
    buffer.writeTime(acknowledgedAt)
  }
}
