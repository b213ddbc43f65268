internal import Crypto
internal import Foundation
internal import Synchronization
internal import Worker

/// Routes of the sandbox: those of the three providers, and `/sandbox` for tests and developers.
final class SandboxRoutes: Sendable {
  let keys: SandboxKeys
  private let poster: TicketPoster?
  private let state = Mutex(SandboxState())
  private let port = Mutex(0)

  init(keys: SandboxKeys, poster: TicketPoster?) {
    self.keys = keys
    self.poster = poster
  }

  func setPort(_ port: Int) { self.port.withLock { $0 = port } }

  /// Origin of the sandbox, as URLs of its endpoints have it.
  var origin: String { "https://localhost:\(port.withLock { $0 })" }

  func with<Value: Sendable>(_ body: (inout SandboxState) -> Value) -> Value { state.withLock { body(&$0) } }

  func reply(to request: SandboxRequest) async -> SandboxReply {
    let parts = request.path.split(separator: "/").map(String.init)
    switch (request.method, parts.first, parts.count) {
    case ("POST", "push", 2): return await webPush(request, device: parts[1])
    case ("POST", "3", 3): return await apns(request, device: parts[2])
    case ("POST", "token", 1): return await accessToken(request)
    case ("POST", "v1", 4): return await fcm(request, project: parts[2])
    case ("GET", "sandbox", 2) where parts[1] == "deliveries":
      return Self.json(200, ["deliveries": deliveries])
    case ("POST", "sandbox", 2) where parts[1] == "devices": return addDevice(request)
    case ("POST", "sandbox", 2) where parts[1] == "faults": return addFault(request)
    case ("DELETE", "sandbox", 2) where parts[1] == "faults":
      with { $0.removeFaults() }
      return Self.json(200, [:])
    default: return Self.json(404, ["code": .string("route_not_found")])
    }
  }

  static func json(
    _ status: Int,
    _ members: [String: JSONValue],
    headers: [(String, String)] = []
  ) -> SandboxReply {
    .response(
      status: status,
      headers: [("content-type", "application/json")] + headers,
      body: JSONValue.object(members).bytes
    )
  }

  // MARK: Deliveries

  /// Deliver a push, unless a fault is due.
  ///
  /// - Parameter refusal: the provider's answer to a fault; nil: to one of the connection.
  /// - Returns: the reply of a fault; nil: there was none, and the push is delivered.
  func deliver(
    _ delivery: SandboxState.Delivery,
    refusal: (SandboxFault) -> SandboxReply?
  ) -> SandboxReply? {
    guard let fault = with({ $0.nextFault(kind: delivery.kind, device: delivery.device) }) else {
      deliver(delivery)
      return nil
    }
    if fault == .gone { with { $0.remove(delivery.device) } }
    if let reply = refusal(fault) { return reply }
    if fault == .lost { deliver(delivery) }
    return fault == .hang ? .hang : .close
  }

  /// Deliver a push to its device, which posts the ticket.
  private func deliver(_ delivery: SandboxState.Delivery) {
    let postsTicket = with { state in
      state.deliver(delivery)
      return state.devices[delivery.device]?.postsTickets ?? false
    }
    let data = delivery.payload["message"]?["data"] ?? delivery.payload
    guard postsTicket, let poster, let ticket = data["ticket"]?.string else { return }
    Task { await poster.post(ticket) }
  }

  /// All deliveries, in order.
  var deliveries: JSONValue {
    let deliveries = with { $0.deliveries }
    let list = deliveries.map { delivery in
      JSONValue.object([
        "kind": .string(delivery.kind.rawValue), "device": .string(delivery.device), "payload": delivery.payload,
        "headers": .object(delivery.headers.mapValues { .string($0) }),
      ])
    }
    return .array(list)
  }

  // MARK: Devices and faults

  private func addDevice(_ request: SandboxRequest) -> SandboxReply {
    let body = JSONValue(parsing: request.body)
    guard let kind = body?["kind"]?.string.flatMap(SandboxKind.init) else {
      return Self.json(400, ["code": .string("invalid_field"), "detail": .string("kind is webpush, apns or fcm")])
    }
    let random = SymmetricKey(size: .bits256).withUnsafeBytes { Array($0) }
    let id =
      kind == .apns ? random.map { ($0 < 16 ? "0" : "") + String($0, radix: 16) }.joined() : Base64URL.text(random)
    var device = SandboxState.Device(kind: kind, id: id, postsTickets: body?["posts_tickets"] != .boolean(false))
    var answer: [String: JSONValue] = ["kind": .string(kind.rawValue), "device": .string(id)]
    if kind == .webpush {
      let (key, secret) = (P256.KeyAgreement.PrivateKey(), WebPushEncryption.randomSalt())
      device.key = key
      device.secret = secret
      answer["subscription"] = .object([
        "endpoint": .string("\(origin)/push/\(id)"),
        "keys": .object([
          "p256dh": .string(Base64URL.text(key.publicKey.x963Representation)), "auth": .string(Base64URL.text(secret)),
        ]),
      ])
    } else {
      answer["token"] = .string(id)
    }
    let added = device
    guard with({ $0.add(added) }) else { return Self.json(507, ["code": .string("limit_reached")]) }
    return Self.json(201, answer)
  }

  /// `{"fault","kind"?,"device"?,"times"?}` for the next requests, or `{"rate","faults"?,"seed"?}` for a share of all.
  private func addFault(_ request: SandboxRequest) -> SandboxReply {
    let body = JSONValue(parsing: request.body)
    let rate: Double? =
      switch body?["rate"] {
      case .number(let value): value
      case .integer(let value): Double(value)
      default: nil
      }
    if let rate {
      let faults = body?["faults"]?.array?.compactMap { $0.string.flatMap(SandboxFault.init) } ?? SandboxFault.allCases
      let seed = UInt64(truncatingIfNeeded: body?["seed"]?.integer ?? 0)
      with { $0.fail(rate: rate, with: faults, seed: seed) }
      return Self.json(200, [:])
    }
    guard let fault = body?["fault"]?.string.flatMap(SandboxFault.init) else {
      let known = SandboxFault.allCases.map(\.rawValue).joined(separator: ", ")
      return Self.json(400, ["code": .string("invalid_field"), "detail": .string("fault is one of \(known)")])
    }
    let kind = body?["kind"]?.string.flatMap(SandboxKind.init)
    let (device, times) = (body?["device"]?.string, Int(body?["times"]?.integer ?? 1))
    with { $0.add(fault: fault, kind: kind, device: device, times: times) }
    return Self.json(200, [:])
  }

  /// The device of an address; nil if there is none of that kind.
  func device(_ id: String, _ kind: SandboxKind) -> SandboxState.Device? {
    with { state in state.devices[id].flatMap { $0.kind == kind ? $0 : nil } }
  }
}
