package import ReceiptModel

/// One acknowledgement of a push as its caller has given it (API.md, "Push"): by a ticket, or by names. Valid as long
/// as the bytes that it was read from.
package struct PushAck: ~Escapable {
  /// Empty: it is by names.
  package let ticket: RawSpan
  package let cid: RawSpan
  package let user: RawSpan
  package let message: RawSpan
  /// Who delivered the push, for metrics; empty: that was not said.
  package let provider: RawSpan
  /// What it was delivered to, for metrics; empty: that was not said.
  package let device: RawSpan
  /// When; none: now.
  package let ackedAt: Timestamp

  package var isByTicket: Bool { !ticket.isEmpty }

  /// By a ticket, which is not looked at here. A provider or a device that is not known is empty; so below.
  ///
  /// - Throws: `ticket_invalid` for an empty one.
  @_lifetime(copy ticket)
  package init(
    ticket: RawSpan,
    provider: RawSpan,
    device: RawSpan,
    ackedAt: Timestamp = .none
  ) throws(ProblemCode) {
    guard !ticket.isEmpty else { throw .ticketInvalid }
    let none = ticket.extracting(0..<0)
    self.ticket = ticket
    cid = none
    user = none
    message = none
    self.provider = _overrideLifetime(provider, copying: ticket)
    self.device = _overrideLifetime(device, copying: ticket)
    self.ackedAt = ackedAt
  }

  /// By names, which are checked.
  ///
  /// - Throws: `invalid_cid`, `invalid_message_id`, `invalid_user_id`.
  @_lifetime(copy cid)
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
    let none = cid.extracting(0..<0)
    ticket = none
    self.cid = cid
    self.message = _overrideLifetime(message, copying: cid)
    self.user = _overrideLifetime(user, copying: cid)
    self.provider = _overrideLifetime(provider, copying: cid)
    self.device = _overrideLifetime(device, copying: cid)
    self.ackedAt = ackedAt
  }

  /// An entry of `acks`, or a line, whose names have been checked: `{"ticket"}` or `{"cid","message_id","user_id"}`,
  /// each with `provider`, `provider_message_id`, `device` and `acked_at` where they are known.
  ///
  /// - Throws: `invalid_field`, and what the others throw.
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
      // Nobody knows which of the two is meant.
      guard cid == nil, message == nil, user == nil else { throw .invalidField }
      self = try PushAck(ticket: ticket, provider: provider, device: device, ackedAt: ackedAt)
    } else {
      guard let cid, let message, let user else { throw .invalidField }
      self = try PushAck(
        cid: cid,
        message: message,
        user: user,
        provider: provider,
        device: device,
        ackedAt: ackedAt
      )
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
    if let string = try string(value, name) { return string }
    return _overrideLifetime(RawSpan(), copying: value)
  }

  private static func time(_ value: JSONValue) throws(ProblemCode) -> Timestamp {
    guard let text = try string(value, "acked_at") else { return .none }
    guard let milliseconds = CivilTime.milliseconds(parsing: text) else { throw .invalidField }
    // Zero stands for none. What is as old as that becomes the row's last step all the same (R20).
    return Timestamp(milliseconds: max(1, milliseconds))
  }
}
