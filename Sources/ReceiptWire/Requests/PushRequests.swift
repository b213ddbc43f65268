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
      "cid counter user message acked flags",
      reply: "@delivery"
    ),
    RequestSpec(.redeemTicket, "redeem_ticket", "counter @place acked flags", reply: "@delivery"),
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
  /// 1: the reply has the names of the channel, the user and the message; else 0.
  package let flags: UInt64

  @_lifetime(copy reader)
  package init(_ reader: inout FieldReader) throws(WireError) {
    user = try reader.string()
    message = try reader.string()
    acked = try reader.time()
    flags = try reader.varint()
    try reader.end()
  }
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
package struct RedeemTicketRequest: Sendable {
  package let place: TicketPlace
  /// When the device got the push; none: now.
  package let acked: Timestamp
  /// 1: the reply has the names of the channel, the user and the message; else 0.
  package let flags: UInt64

  package init(_ reader: inout FieldReader) throws(WireError) {
    place = try reader.ticketPlace()
    acked = try reader.time()
    flags = try reader.varint()
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
    wantsNames: Bool
  ) {
    writeField(user)
    writeField(message)
    writeTime(acked)
    writeVarint(UInt64(wantsNames ? 1 : 0))
  }

  /// Write what ``TicketPlaceRequest`` reads.
  package mutating func writeTicketPlaceRequest(user: RawSpan, message: RawSpan) {
    writeField(user)
    writeField(message)
  }

  /// Write what ``RedeemTicketRequest`` reads.
  ///
  /// - Parameter place: an encoded ``TicketPlace``.
  package mutating func writeRedeemTicket(place: RawSpan, acked: Timestamp, wantsNames: Bool) {
    writeRaw(place)
    writeTime(acked)
    writeVarint(UInt64(wantsNames ? 1 : 0))
  }

  /// Write what ``PresentTicketRequest`` reads.
  package mutating func writePresentTicket(_ ticket: RawSpan, acked: Timestamp, wantsNames: Bool) {
    writeField(ticket)
    writeTime(acked)
    writeVarint(UInt64(wantsNames ? 1 : 0))
  }
}
