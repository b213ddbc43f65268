package import NIOCore
package import ReceiptModel

// Requests about push notifications, after the name and the counter (Proto/frames.md). Only their form is checked here;
// the store checks their ranges.

extension RequestSpec {
  /// The layouts of the requests in this file.
  static let pushRequests: [RequestSpec] = [
    RequestSpec(.ticketPlace, "ticket_place", "cid user message", reply: "@place"),
    RequestSpec(.webhookKnown, "webhook_known", "key", reply: "known:byte"),
    RequestSpec(
      .acknowledgePush,
      "acknowledge_push",
      "cid counter user message acked flags (provider:string device:string)?flags&2",
      reply: "@delivery"
    ),
    RequestSpec(
      .redeemTicket,
      "redeem_ticket",
      "counter @place acked flags (provider:string device:string)?flags&2",
      reply: "@delivery"
    ),
    RequestSpec(.noteWebhook, "note_webhook", "key counter until", reply: "noted:byte"),
    RequestSpec(.presentTicket, "present_ticket", "counter ticket acked flags", reply: "@delivery"),
  ]
}

/// The fields of acknowledge_push.
package struct AcknowledgePushRequest: ~Escapable {
  package let user: RawSpan
  package let message: RawSpan
  /// When the device got the push; none: now.
  package let acked: Timestamp
  /// Bits of ``PushFlags``; others are invalid.
  package let flags: UInt64
  /// Empty: not given. Likewise the kind of device.
  package let provider: RawSpan
  package let device: RawSpan

  @_lifetime(copy reader)
  package init(_ reader: inout FieldReader) throws(WireError) {
    user = try reader.string()
    message = try reader.string()
    acked = try reader.time()
    flags = try reader.varint()
    let hasSource = flags & PushFlags.source != 0
    provider = hasSource ? try reader.string() : user.extracting(first: 0)
    device = hasSource ? try reader.string() : user.extracting(first: 0)
    try reader.end()
  }
}

/// Flags of push acks.
package enum PushFlags {
  /// The reply has the names of the channel, the user and the message.
  package static let names: UInt64 = 1
  /// The provider and the kind of device follow, for the feed (R21).
  package static let source: UInt64 = 2
  package static let all = names | source
}

/// The fields of ticket_place.
package struct TicketPlaceRequest: ~Escapable {
  package let user: RawSpan
  package let message: RawSpan

  @_lifetime(copy reader)
  package init(_ reader: inout FieldReader) throws(WireError) {
    user = try reader.string()
    message = try reader.string()
    try reader.end()
  }
}

/// The fields of redeem_ticket, after the counter.
package struct RedeemTicketRequest: ~Escapable {
  package let place: TicketPlace
  /// When the device got the push; none: now.
  package let acked: Timestamp
  /// Bits of ``PushFlags``; others are invalid.
  package let flags: UInt64
  /// Empty: not given. Likewise the kind of device.
  package let provider: RawSpan
  package let device: RawSpan

  @_lifetime(copy reader)
  package init(_ reader: inout FieldReader) throws(WireError) {
    place = try reader.ticketPlace()
    acked = try reader.time()
    flags = try reader.varint()
    let hasSource = flags & PushFlags.source != 0
    let none = try reader.raw(0)
    provider = hasSource ? try reader.string() : none
    device = hasSource ? try reader.string() : none
    try reader.end()
  }
}

/// The fields of present_ticket, after the counter.
package struct PresentTicketRequest: ~Escapable {
  package let ticket: RawSpan
  /// When the device got the push; none: now.
  package let acked: Timestamp
  /// 1: the reply has the names of the channel, the user and the message; else 0.
  package let flags: UInt64

  @_lifetime(copy reader)
  package init(_ reader: inout FieldReader) throws(WireError) {
    ticket = try reader.string()
    acked = try reader.time()
    flags = try reader.varint()
    try reader.end()
  }
}

extension ByteBuffer {
  /// Write what ``AcknowledgePushRequest`` reads.
  package mutating func writeAcknowledgePush(
    user: RawSpan,
    message: RawSpan,
    acked: Timestamp,
    wantsNames: Bool,
    provider: RawSpan = RawSpan(),
    device: RawSpan = RawSpan()
  ) {
    writeField(user)
    writeField(message)
    writeTime(acked)
    writePushFlags(wantsNames: wantsNames, provider: provider, device: device)
  }

  private mutating func writePushFlags(wantsNames: Bool, provider: RawSpan, device: RawSpan) {
    let hasSource = !provider.isEmpty || !device.isEmpty
    writeVarint((wantsNames ? PushFlags.names : 0) | (hasSource ? PushFlags.source : 0))
    guard hasSource else { return }
    writeField(provider)
    writeField(device)
  }

  /// Write what ``TicketPlaceRequest`` reads.
  package mutating func writeTicketPlaceRequest(user: RawSpan, message: RawSpan) {
    writeField(user)
    writeField(message)
  }

  /// Write what ``RedeemTicketRequest`` reads.
  ///
  /// - Parameter place: an encoded ``TicketPlace``.
  package mutating func writeRedeemTicket(
    place: RawSpan,
    acked: Timestamp,
    wantsNames: Bool,
    provider: RawSpan = RawSpan(),
    device: RawSpan = RawSpan()
  ) {
    writeRaw(place)
    writeTime(acked)
    writePushFlags(wantsNames: wantsNames, provider: provider, device: device)
  }

  /// Write what ``PresentTicketRequest`` reads.
  package mutating func writePresentTicket(_ ticket: RawSpan, acked: Timestamp, wantsNames: Bool) {
    writeField(ticket)
    writeTime(acked)
    writeVarint(UInt64(wantsNames ? 1 : 0))
  }
}

/// The reply to a push ack (*delivery* of Proto/frames.md), with its strings read in place.
package struct DeliveryReply: ~Escapable {
  /// Maximum size: a byte, two times, and three names with their lengths.
  private static let byteCountMax =
    1 + 2 * 10 + (Identifier.cidLengthMax + 2) + (Identifier.userLengthMax + 2) + (Identifier.messageLengthMax + 2)

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
  private static func flags(moved: Bool, _ uncounted: ShardState.Uncounted?) -> UInt8 {
    let moved: UInt8 = moved ? 1 : 0
    switch uncounted {
    case nil, .noReplies: return moved
    case .notInThread: return moved | 2
    case .registeredBefore: return moved | 4
    }
  }

  @_lifetime(copy payload)
  package init(_ payload: RawSpan) throws(WireError) {
    var reader = FieldReader(payload)
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
    try reader.end()
  }

  /// Write what ``init(_:)`` reads, up to the names, in one pass.
  ///
  /// - Parameters:
  ///   - hasNames: the names were requested.
  ///   - names: writes the cid, the user and the message.
  @inline(__always)
  package static func write(
    moved: Bool,
    _ uncounted: ShardState.Uncounted?,
    sent: Timestamp,
    delivered: Timestamp,
    hasNames: Bool,
    names: (inout FieldCursor) -> Void,
    into buffer: inout ByteBuffer
  ) {
    buffer.writeFields(byteCountMax: byteCountMax) { fields in
      fields.byte(flags(moved: moved, uncounted))
      fields.time(sent)
      fields.time(delivered)
      if hasNames { names(&fields) } else { for _ in 0..<3 { fields.byte(0) } }
    }
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
    return TicketPlace(channel: channel, row: row, parent: parent, sequence: sequence, check: try fixed64())
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
