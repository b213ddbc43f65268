package import NIOCore
package import ReceiptModel

/// *delivery* of Proto/frames.md, with its strings read in place from a payload.
package struct DeliveryFields: ~Escapable {
  /// Maximum size: a byte, two times, and three names with their lengths.
  package static let byteCountMax =
    1 + 2 * 10 + (Identifier.cidLengthMax + 2) + (Identifier.userLengthMax + 2)
    + (Identifier.messageLengthMax + 2)

  /// The member's watermark moved; false: the message was delivered before.
  package let moved: Bool
  /// Why the delivery does not count (R15).
  package let uncounted: ShardState.Uncounted?
  package let sent: Timestamp
  /// None: the watermark never moved.
  package let delivered: Timestamp
  /// Empty, like the names that follow, if no names were requested.
  package let cid: RawSpan
  package let user: RawSpan
  package let message: RawSpan

  /// Return the first byte.
  package static func flags(moved: Bool, _ uncounted: ShardState.Uncounted?) -> UInt8 {
    let moved: UInt8 = moved ? 1 : 0
    switch uncounted {
    case nil, .noReplies: return moved
    case .notInThread: return moved | 2
    case .registeredBefore: return moved | 4
    }
  }

  @_lifetime(copy reader)
  package init(_ reader: inout FieldReader) throws(WireError) {
    let moved = try reader.byte()
    self.moved = moved & 1 == 1
    switch moved & ~1 {
    case 0: uncounted = nil
    case 2: uncounted = .notInThread
    case 4: uncounted = .registeredBefore
    default: throw .badValue(.flags)
    }
    sent = try reader.time()
    delivered = try reader.time()
    cid = try reader.string()
    user = try reader.string()
    message = try reader.string()
  }
}

extension FieldReader {
  /// Read *place* of Proto/frames.md.
  @_lifetime(self: copy self)
  package mutating func ticketPlace() throws(WireError) -> TicketPlace {
    let channel = ChannelNumber(try varint())
    let row = MemberOrdinal(try varint32())
    let parent = try optional32().map { SequenceNumber($0) }
    let sequence = try sequence()
    return TicketPlace(channel: channel, row: row, parent: parent, sequence: sequence, check: try hash())
  }
}

extension ByteBuffer {
  /// Write *place* of Proto/frames.md.
  package mutating func writeTicketPlace(_ place: TicketPlace) {
    writeVarint(place.channel.rawValue)
    writeVarint(place.row.rawValue)
    writeOptional(place.parent.map { UInt64($0.rawValue) })
    writeSequence(place.sequence)
    writeInteger(place.check)
  }
}
