internal import ReceiptModel

/// Where in a sender's webhooks the deliveries are: names with dots between them lead from the body, or from an event,
/// to a value.
package struct HookMapping: Sendable, Equatable {
  /// Names that lead to a value; empty: the value itself.
  package typealias Path = [[UInt8]]

  /// From the body to a list of events, or to one.
  package var events: Path = []
  /// From an event to what says what it is.
  package var kind: Path = Self.path("type")
  /// What that is where the event is a delivery.
  package var delivered: [[UInt8]] = [Array("push.delivered".utf8)]
  // From an event; nil: events have none.
  package var ticket: Path? = Self.path("data.ticket")
  package var cid: Path? = Self.path("data.cid")
  package var message: Path? = Self.path("data.message_id")
  package var user: Path? = Self.path("data.user_id")
  package var ackedAt: Path? = Self.path("data.acked_at")
  package var device: Path? = Self.path("data.device")
  package var providerMessage: Path? = Self.path("data.provider_message_id")

  /// That of `{"type":"push.delivered","data":{…}}` with the names of `POST /v1/push/acks`, one or a list.
  package init() {}

  /// The path that a text stands for; nil where it is none.
  static func path(ifAny text: String) -> Path? {
    if text.isEmpty { return [] }
    let names = text.split(separator: ".", omittingEmptySubsequences: false).map { Array($0.utf8) }
    return names.contains { $0.isEmpty } ? nil : names
  }

  private static func path(_ text: String) -> Path { path(ifAny: text) ?? [] }

  /// Whether an event is a delivery.
  package func isDelivery(_ event: JSONValue) -> Bool {
    guard let kind = event.value(at: kind)?.string else { return false }
    return delivered.contains { kind.equals($0.span.bytes) }
  }

  /// What a delivery acknowledges: by its ticket, or by names where it has none.
  ///
  /// - Parameter provider: what it is counted as; has to live as long as the event.
  /// - Throws: as ``PushAck`` does.
  @_lifetime(copy event)
  package func acknowledgement(_ event: JSONValue, provider: RawSpan) throws(ProblemCode) -> PushAck {
    let ackedAt = try time(event)
    var device = _overrideLifetime(RawSpan(), copying: event)
    if let given = try string(event, self.device) { device = given }
    if let ticket = try string(event, ticket) {
      return try PushAck(ticket: ticket, provider: provider, device: device, ackedAt: ackedAt)
    }
    guard let cid = try string(event, cid), let message = try string(event, message),
      let user = try string(event, user)
    else { throw .invalidField }
    return try PushAck(
      cid: cid,
      message: message,
      user: user,
      provider: provider,
      device: device,
      ackedAt: ackedAt
    )
  }

  /// What the provider calls the message, for logs.
  package func providerMessage(_ event: JSONValue) -> String {
    guard let path = providerMessage, let id = event.value(at: path)?.string else { return "" }
    return id.withUnsafeBytes { String(decoding: $0.prefix(256), as: UTF8.self) }
  }

  @_lifetime(copy event)
  private func string(_ event: JSONValue, _ path: Path?) throws(ProblemCode) -> RawSpan? {
    guard let path, let value = event.value(at: path), !value.isNull else { return nil }
    guard let string = value.string else { throw .invalidField }
    return _overrideLifetime(string, copying: event)
  }

  /// A time as in `2026-01-31T12:00:00Z`, or a whole number of seconds or, from 100,000,000,000 on, milliseconds since
  /// 1970.
  private func time(_ event: JSONValue) throws(ProblemCode) -> Timestamp {
    guard let path = ackedAt, let value = event.value(at: path), !value.isNull else { return .none }
    if let text = value.string, let milliseconds = CivilTime.milliseconds(parsing: text) {
      return Timestamp(milliseconds: milliseconds)
    }
    guard let number = value.integer, (1...FrameRule.timeMax).contains(number) else { throw .invalidField }
    return Timestamp(milliseconds: number < Self.millisecondsMin ? number * 1_000 : number)
  }

  private static let millisecondsMin: Int64 = 100_000_000_000
}

extension JSONValue {
  /// The value that names lead to, the last of equal ones; nil where there is none.
  @_lifetime(copy self)
  func value(at path: HookMapping.Path) -> JSONValue? {
    var value = self
    for name in path {
      guard let next = value.member(named: name) else { return nil }
      value = next
    }
    return value
  }

  @_lifetime(copy self)
  private func member(named name: [UInt8]) -> JSONValue? {
    var found: JSONValue?
    var members = members
    while let member = members.next() {
      if member.name.equals(name.span.bytes) { found = _overrideLifetime(member.value, copying: self) }
    }
    return found
  }
}
