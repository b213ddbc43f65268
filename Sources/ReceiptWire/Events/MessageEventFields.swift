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
    buffer.writeInteger(flags.rawValue)
  }
}
