internal import NIOCore
package import ReceiptModel

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
