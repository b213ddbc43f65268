internal import NIOCore
package import ReceiptModel

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
