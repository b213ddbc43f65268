internal import ReceiptModel

/// Where a sender's webhooks hold the deliveries. A path is a list of object keys, written with dots, from the body or
/// an event to a value.
package struct HookMapping: Sendable, Equatable {
  /// Object keys that lead to a value; empty: the value itself.
  package typealias Path = [[UInt8]]

  /// From the body to an event or a list of events.
  package var events: Path = []
  /// From an event to its kind.
  package var kind: Path = Self.path("type")
  /// The kinds that are deliveries.
  package var delivered: [[UInt8]] = [Array("push.delivered".utf8)]
  // From an event to its fields; nil: events do not have the field.
  package var ticket: Path? = Self.path("data.ticket")
  package var cid: Path? = Self.path("data.cid")
  package var message: Path? = Self.path("data.message_id")
  package var user: Path? = Self.path("data.user_id")
  package var ackedAt: Path? = Self.path("data.acked_at")
  package var device: Path? = Self.path("data.device")
  package var providerMessage: Path? = Self.path("data.provider_message_id")

  /// The mapping of `{"type":"push.delivered","data":{…}}`, one event or a list, with the field names of
  /// `POST /v1/push/acks`.
  package init() {}

  /// Parse a path; nil where it is malformed.
  static func path(ifAny text: String) -> Path? {
    if text.isEmpty { return [] }
    let names = text.split(separator: ".", omittingEmptySubsequences: false).map { Array($0.utf8) }
    return names.contains { $0.isEmpty } ? nil : names
  }

  private static func path(_ text: String) -> Path { path(ifAny: text) ?? [] }

  /// Return the events of a webhook's body; nil where it has none at their path.
  ///
  /// - Parameter countMax: maximum number of events.
  /// - Throws: a problem where there are more.
  func decode(_ body: JSONValue, countMax: Int) throws(Problem) -> [HookEvent]? {
    guard let found = body.value(at: events) else { return nil }
    switch found.kind {
    case .object: return [event(found)]
    case .array:
      _ = try found.asArray(countMax: countMax)
      var events: [HookEvent] = []
      var elements = found.elements
      while let element = elements.next() { events.append(event(element)) }
      return events
    case .null, .bool, .integer, .double, .string: return nil
    }
  }

  private func event(_ event: JSONValue) -> HookEvent {
    guard isDelivery(event) else { return .ignored }
    do throws(ProblemCode) {
      return .delivery(try delivery(event), id: providerMessage(event))
    } catch {
      return .malformed(error, id: providerMessage(event))
    }
  }

  /// Return whether an event is a delivery.
  private func isDelivery(_ event: JSONValue) -> Bool {
    guard let kind = event.value(at: kind)?.string else { return false }
    return delivered.contains { kind.equals($0.span.bytes) }
  }

  /// Return a delivery: by its ticket, or by names where it has none.
  ///
  /// - Throws: `invalid_field`.
  private func delivery(_ event: JSONValue) throws(ProblemCode) -> HookDelivery {
    let ackedAt = try time(event)
    let device = try string(event, device) ?? []
    if let ticket = try string(event, ticket) {
      return HookDelivery(mark: .ticket(ticket), device: device, ackedAt: ackedAt)
    }
    guard let cid = try string(event, cid), let message = try string(event, message), let user = try string(event, user)
    else { throw .invalidField }
    return HookDelivery(mark: .names(cid: cid, message: message, user: user), device: device, ackedAt: ackedAt)
  }

  /// Return the provider's id of the message, for logs.
  private func providerMessage(_ event: JSONValue) -> String {
    guard let path = providerMessage, let id = event.value(at: path)?.string else { return "" }
    return id.withUnsafeBytes { String(decoding: $0.prefix(256), as: UTF8.self) }
  }

  private func string(_ event: JSONValue, _ path: Path?) throws(ProblemCode) -> [UInt8]? {
    guard let path, let value = event.value(at: path), !value.isNull else { return nil }
    guard let string = value.string else { throw .invalidField }
    return string.bytes
  }

  /// Parse a time such as `2026-01-31T12:00:00Z`, or a whole number since 1970: of seconds or, from 100,000,000,000
  /// on, of milliseconds.
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

/// An event of a webhook, decoded.
enum HookEvent: Equatable, Sendable {
  /// The event is no delivery.
  case ignored
  /// A delivery, and the provider's id of the message.
  case delivery(HookDelivery, id: String)
  /// A delivery whose fields are malformed.
  case malformed(ProblemCode, id: String)
}

/// What a webhook's event acknowledges.
struct HookDelivery: Equatable, Sendable {
  enum Mark: Equatable, Sendable {
    case ticket([UInt8])
    case names(cid: [UInt8], message: [UInt8], user: [UInt8])
  }

  let mark: Mark
  /// The kind of device, for metrics; empty: not given.
  let device: [UInt8]
  /// When the push was delivered; none: now.
  let ackedAt: Timestamp
}

extension JSONValue {
  /// Return the value at a path, the last of duplicate names; nil where there is none.
  @_lifetime(copy self)
  fileprivate func value(at path: HookMapping.Path) -> JSONValue? {
    var value = self
    for name in path {
      guard let next = value.member(name) else { return nil }
      value = next
    }
    return value
  }
}
