package import NIOCore
package import ReceiptModel

extension FieldReader {
  /// Read an optional sequence number, then an optional reply, which is none if there is no sequence number.
  @_lifetime(self: copy self)
  package mutating func messageListCursor() throws(WireError) -> MessageListCursor? {
    let message = try optional32()
    let reply = try optional32()
    guard let message else {
      guard reply == nil else { throw .badValue(.count) }
      return nil
    }
    return MessageListCursor(message: SequenceNumber(message), reply: reply.map { SequenceNumber($0) })
  }
}

extension ByteBuffer {
  package mutating func writeMessageListCursor(_ cursor: MessageListCursor?) {
    writeOptional(cursor.map { UInt64($0.message.rawValue) })
    writeOptional(cursor?.reply.map { UInt64($0.rawValue) })
  }
}

/// An entry of a roster, read in place from a payload.
package struct RosterEntryFields: ~Escapable {
  package let user: RawSpan
  /// Empty: no role.
  package let role: RawSpan
  package let joinedAt: Timestamp
  /// The member excludes the channel from their unread totals (R14); only sent to the member and to servers.
  package let isMuted: Bool

  @_lifetime(copy reader)
  package init(_ reader: inout FieldReader) throws(WireError) {
    user = try reader.string()
    role = try reader.string()
    joinedAt = try reader.time()
    let flags = try reader.byte()
    guard flags <= 1 else { throw .badValue(.flags) }
    isMuted = flags == 1
  }
}

/// An entry of list_messages, read in place from a payload.
package struct MessageEntryFields: ~Escapable {
  package struct Flags: FlagSet {
    package let rawValue: UInt8
    package init(rawValue: UInt8) { self.rawValue = rawValue }
    package static let silent = Flags(rawValue: 1)
    package static let requestsAcknowledgement = Flags(rawValue: 2)
    static let known: UInt8 = 3
  }

  package let sequence: SequenceNumber
  package let message: RawSpan
  /// The parent of a reply; empty: the message is no reply.
  package let parent: RawSpan
  /// Empty: sent by the system.
  package let sender: RawSpan
  package let createdAt: Timestamp
  package let flags: Flags

  @_lifetime(copy reader)
  package init(_ reader: inout FieldReader) throws(WireError) {
    sequence = try reader.sequence()
    message = try reader.string()
    parent = try reader.string()
    sender = try reader.string()
    createdAt = try reader.time()
    guard let raw = UInt8(exactly: try reader.varint()), raw & ~Flags.known == 0 else {
      throw .badValue(.flags)
    }
    flags = Flags(rawValue: raw)
  }
}
