internal import NIOCore
package import ReceiptModel
internal import ReceiptWire

/// One push ack (Proto/openapi.yaml), by ticket or by names. Valid as long as the bytes that it was
/// read from.
package struct PushAck: ~Escapable {
  /// Empty: the push ack is by names.
  package let ticket: RawSpan
  package let cid: RawSpan
  package let user: RawSpan
  package let message: RawSpan
  /// The provider that delivered the push, for metrics; empty: not given.
  package let provider: RawSpan
  /// The kind of device, for metrics; empty: not given.
  package let device: RawSpan
  /// When the push was delivered; none: now.
  package let ackedAt: Timestamp

  package var isByTicket: Bool { !ticket.isEmpty }

  /// Make a push ack by ticket, which is not verified here. An unknown provider or device is empty, here and
  /// below.
  ///
  /// - Throws: `ticket_invalid` for an empty ticket.
  @_lifetime(copy ticket, copy provider, copy device)
  package init(ticket: RawSpan, provider: RawSpan, device: RawSpan, ackedAt: Timestamp = .none) throws(ProblemCode) {
    guard !ticket.isEmpty else { throw .ticketInvalid }
    self.ticket = ticket
    cid = RawSpan()
    user = RawSpan()
    message = RawSpan()
    self.provider = provider
    self.device = device
    self.ackedAt = ackedAt
  }

  /// Make a push ack by names, which are validated.
  ///
  /// - Throws: `invalid_cid`, `invalid_message_id`, `invalid_user_id`.
  @_lifetime(copy cid, copy message, copy user, copy provider, copy device)
  package init(
    cid: RawSpan,
    message: RawSpan,
    user: RawSpan,
    provider: RawSpan,
    device: RawSpan,
    ackedAt: Timestamp = .none
  ) throws(ProblemCode) {
    guard Identifier.isCID(cid) else { throw .invalidCID }
    guard Identifier.isMessage(message) else { throw .invalidMessageID }
    guard Identifier.isUser(user) else { throw .invalidUserID }
    ticket = RawSpan()
    self.cid = cid
    self.message = message
    self.user = user
    self.provider = provider
    self.device = device
    self.ackedAt = ackedAt
  }

  /// Parse an entry of `acks`, or a line, with known field names only: `{"ticket"}` or
  /// `{"cid","message_id","user_id"}`, each optionally with `provider`, `provider_message_id`, `device` and `acked_at`.
  ///
  /// - Throws: `invalid_field`, and the errors of the other initialisers.
  @_lifetime(copy value)
  package init(_ value: JSONValue) throws(ProblemCode) {
    guard value.kind == .object else { throw .invalidField }
    let provider = try Self.label(value, "provider")
    let device = try Self.label(value, "device")
    _ = try Self.string(value, "provider_message_id")
    let ackedAt = try Self.time(value)
    let cid = try Self.string(value, "cid")
    let message = try Self.string(value, "message_id")
    let user = try Self.string(value, "user_id")
    if let ticket = try Self.string(value, "ticket") {
      // Both a ticket and names would be ambiguous.
      guard cid == nil, message == nil, user == nil else { throw .invalidField }
      self = try PushAck(ticket: ticket, provider: provider, device: device, ackedAt: ackedAt)
    } else {
      guard let cid, let message, let user else { throw .invalidField }
      self = try PushAck(cid: cid, message: message, user: user, provider: provider, device: device, ackedAt: ackedAt)
    }
  }

  @_lifetime(copy value)
  private static func string(_ value: JSONValue, _ name: StaticString) throws(ProblemCode) -> RawSpan? {
    guard let member = value.optional(name) else { return nil }
    guard let string = member.string else { throw .invalidField }
    return string
  }

  @_lifetime(copy value)
  private static func label(_ value: JSONValue, _ name: StaticString) throws(ProblemCode) -> RawSpan {
    guard let string = try string(value, name) else { return RawSpan() }
    return string
  }

  private static func time(_ value: JSONValue) throws(ProblemCode) -> Timestamp {
    guard let text = try string(value, "acked_at") else { return .none }
    guard let milliseconds = CivilTime.milliseconds(parsing: text) else { throw .invalidField }
    // Zero stands for none. A time as old as that is clamped to the row's last step anyway (R20).
    return Timestamp(milliseconds: max(1, milliseconds))
  }
}

extension KnownFields {
  /// An entry of `acks`, or a line.
  static let pushAck: KnownFields = [
    "ticket", "cid", "message_id", "user_id", "provider", "provider_message_id", "device", "acked_at",
  ]
}

/// JSON of the results of push acks (Proto/openapi.yaml).
enum PushJSON {
  /// Write `{"ok":true,"cid","message_id","user_id"}` and the separator; with `"counted": false` and the reason where
  /// the delivery does not count.
  static func write(_ delivery: borrowing DeliveryReply, separator: UInt8, into buffer: inout ByteBuffer) {
    let (cid, message, user) = (delivery.cid, delivery.message, delivery.user)
    let byteMax = 128 + 6 * (cid.byteCount + message.byteCount + user.byteCount)
    buffer.writeWithOutputRawSpan(minimumWritableBytes: byteMax) { out in
      out.literal("{\"ok\":true,\"cid\":")
      out.jsonString(cid)
      out.literal(",\"message_id\":")
      out.jsonString(message)
      out.literal(",\"user_id\":")
      out.jsonString(user)
      out.uncounted(delivery.uncounted)
      out.literal("}")
      out.append(separator)
    }
  }

  /// Write `{"ok":false,"code"}` and the separator.
  static func write(_ code: ProblemCode, separator: UInt8, into buffer: inout ByteBuffer) {
    buffer.writeStaticString("{\"ok\":false,\"code\":\"")
    buffer.writeString(code.rawValue)
    buffer.writeStaticString("\"}")
    buffer.writeInteger(separator)
  }

  /// Write `{"results":[{"ok":true} | {"ok":false,"code"}…],"ignored"}` of a webhook.
  ///
  /// - Parameters:
  ///   - codes: the result of each delivery; nil: it succeeded.
  ///   - ignored: number of events that are no deliveries.
  static func writeResults(_ codes: [ProblemCode?], ignored: Int, into buffer: inout ByteBuffer) {
    buffer.writeStaticString("{\"results\":[")
    for (index, code) in codes.enumerated() {
      if index > 0 { buffer.writeStaticString(",") }
      if let code {
        buffer.writeString("{\"ok\":false,\"code\":\"\(code.rawValue)\"}")
      } else {
        buffer.writeStaticString("{\"ok\":true}")
      }
    }
    buffer.writeString("],\"ignored\":\(ignored)}")
  }

  /// Write `{"results":[…]}`.
  ///
  /// - Parameter entries: the results, each followed by a comma.
  static func writeResults(_ entries: ByteBuffer, into buffer: inout ByteBuffer) {
    buffer.writeStaticString("{\"results\":[")
    buffer.writeImmutableBuffer(entries)
    if entries.readableBytes > 0 { buffer.moveWriterIndex(to: buffer.writerIndex - 1) }
    buffer.writeStaticString("]}")
  }
}
