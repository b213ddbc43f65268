internal import NIOCore
internal import ReceiptModel
internal import ReceiptWire

/// A push job as `POST /v1/push/jobs` gives it, split into what the store keeps: users with their devices, and the rest
/// (docs/api/push-send.md). The worker alone knows its providers.
struct PushJobFields {
  /// Maximum size of a job, as it is stored, in bytes.
  static let byteCountMax = 48 << 10
  private static let titleBytesMax = 4_096
  private static let collapseKeyBytesMax = 64
  private static let reservedData: [StaticString] = [
    "aps", "ticket", "cid", "message_id", "parent_id", "title", "body", "badge",
  ]
  private static let reservedAPS: [StaticString] = ["alert", "badge"]
  private static let urgencies: [StaticString] = ["very-low", "low", "normal", "high"]

  let cid: [UInt8]
  let request: PutPushJobRequest

  /// - Parameter key: the random number that names the job.
  init(_ body: JSONValue, key: UInt64) throws(Problem) {
    let cid = try body.requiredString("cid")
    guard Identifier.isCID(cid) else { throw Problem(.invalidCID) }
    let message = try body.requiredString("message_id")
    guard Identifier.isMessage(message) else { throw Problem(.invalidMessageID) }
    let seconds = PushJobTable.lifetimeMax / 1_000
    let ttl = try body.optionalInteger("ttl", in: 0...seconds) ?? GatewayLimits.ticketSeconds
    try Self.checkContent(body)
    let users = try Self.users(body)
    var content = ByteBuffer()
    content.writeJSONObject(body, except: "users")
    let byteCount = users.reduce(content.readableBytes) { $0 + $1.id.count + $1.devices.count }
    guard byteCount <= Self.byteCountMax else {
      throw Problem(
        .bodyTooLarge,
        "the job has \(byteCount) bytes: give at most \(Self.byteCountMax), or several jobs with fewer users each"
      )
    }
    self.cid = cid.bytes
    request = PutPushJobRequest(
      message: message.bytes,
      key: key,
      // A push with `ttl` 0 is sent at once or not at all; the worker still has to get it.
      milliseconds: UInt64(max(ttl, Self.ttlLeast) * 1_000),
      content: Array(content.readableBytesView),
      users: users
    )
  }

  /// Least time for which a job is kept, in seconds.
  private static let ttlLeast: Int64 = 60

  private static func checkContent(_ body: JSONValue) throws(Problem) {
    for name in ["id", "parent_id"] as [StaticString] {
      guard let id = try body.optionalString(name) else { continue }
      guard Identifier.isID(id) else { throw try body.required(name).error("must be 1 to 255 bytes of text") }
    }
    for name in ["title", "body"] as [StaticString] {
      guard let text = try body.optionalString(name), text.byteCount > titleBytesMax else { continue }
      throw try body.required(name).error("may have at most \(titleBytesMax) bytes")
    }
    for (name, reserved) in [("data", reservedData), ("aps", reservedAPS)] as [(StaticString, [StaticString])] {
      guard let object = try body.optionalObject(name) else { continue }
      for name in reserved {
        if let member = object.member(name) { throw member.error("is reserved: use another name") }
      }
    }
    if let urgency = try body.optionalString("urgency"), !urgencies.contains(where: { urgency.equals($0) }) {
      throw try body.required("urgency").error("must be very-low, low, normal or high")
    }
    if let key = try body.optionalString("collapse_key") {
      let isPrintable = key.bytes.allSatisfy { (0x20..<0x7F).contains($0) }
      guard (1...collapseKeyBytesMax).contains(key.byteCount), isPrintable else {
        throw try body.required("collapse_key").error("must be 1 to \(collapseKeyBytesMax) printable ASCII characters")
      }
    }
  }

  // MARK: Users

  private static func users(_ body: JSONValue) throws(Problem) -> [PushJob.User] {
    let list = try body.requiredArray("users", countMax: PushJobTable.usersMax)
    var users: [PushJob.User] = []
    var ids: Set<[UInt8]> = []
    var elements = list.elements
    while let element = elements.next() {
      let entry = try element.object()
      let id = try entry.requiredString("user_id")
      guard Identifier.isUser(id) else { throw Problem(.invalidUserID) }
      guard ids.insert(id.bytes).inserted else {
        throw try entry.required("user_id").error("is the id of an earlier entry")
      }
      let devices = try entry.requiredArray("devices", countMax: devicesMax)
      guard devices.count > 0 else { throw devices.error("must have at least one device") }
      var written = ByteBuffer()
      var items = devices.elements
      while let item = items.next() { try checkDevice(item) }
      written.writeJSON(devices)
      users.append(PushJob.User(id: id.bytes, devices: Array(written.readableBytesView)))
    }
    guard !users.isEmpty else { throw list.error("must have at least one user") }
    return users
  }

  /// Maximum number of devices of a user.
  private static let devicesMax = 100

  private static func checkDevice(_ value: JSONValue) throws(Problem) {
    let device = try value.object()
    try checkText(device.required("provider"), byteCountMax: 64)
    if let label = device.optional("device") { try checkText(label, byteCountMax: 32) }
    let subscription = try device.optionalObject("subscription")
    if let token = device.optional("token") {
      try checkText(token, byteCountMax: 4_096)
      guard subscription == nil else { throw device.error("must have either a token or a subscription") }
    } else if let subscription {
      try checkText(subscription.required("endpoint"), byteCountMax: 2_048)
      let keys = try subscription.required("keys").object()
      try checkKey(keys.required("p256dh"), byteCount: 65)
      try checkKey(keys.required("auth"), byteCount: 16)
    } else {
      throw device.error("must have either a token or a subscription")
    }
  }

  /// Check a key of a subscription (RFC 8291 section 2): base64url, with or without padding.
  private static func checkKey(_ value: JSONValue, byteCount: Int) throws(Problem) {
    let text = try value.asString().bytes
    let digits = text.prefix { $0 != UInt8(ascii: "=") }
    guard text.count <= 128, Base64URL().decode(digits)?.count == byteCount else {
      throw value.error("must be base64url of \(byteCount) bytes")
    }
  }

  private static func checkText(_ value: JSONValue, byteCountMax: Int) throws(Problem) {
    guard (1...byteCountMax).contains(try value.asString().byteCount) else {
      throw value.error("must have 1 to \(byteCountMax) bytes")
    }
  }
}

extension KnownFields {
  static let putPushJob: KnownFields = [
    "id", "cid", "message_id", "parent_id", "title", "body", "data", "aps", "urgency", "ttl", "collapse_key",
    .objects(
      "users",
      [
        "user_id",
        .objects(
          "devices",
          [
            "provider", "token", "device",
            .object("subscription", ["endpoint", "expirationTime", .object("keys", ["p256dh", "auth"])]),
          ]
        ),
      ]
    ),
  ]
  static let claimPushJobs: KnownFields = ["limit", "lease_seconds"]
  static let renewPushJobs: KnownFields = ["ids", "lease_seconds"]
  static let finishPushJobs: KnownFields = ["ids"]
}

extension ByteBuffer {
  /// Write a parsed value again.
  mutating func writeJSON(_ value: JSONValue) {
    switch value.kind {
    case .null: writeStaticString("null")
    case .bool: writeString(value.bool == true ? "true" : "false")
    case .integer: writeString("\(value.integer ?? 0)")
    case .double: writeString("\(value.number ?? 0)")
    case .string: if let text = value.string { writeJSONString(text) }
    case .array:
      writeStaticString("[")
      var elements = value.elements
      var isFirst = true
      while let element = elements.next() {
        if !isFirst { writeStaticString(",") }
        isFirst = false
        writeJSON(element)
      }
      writeStaticString("]")
    case .object: writeJSONObject(value, except: nil)
    }
  }

  /// Write a parsed object again, without one of its members.
  mutating func writeJSONObject(_ value: JSONValue, except name: StaticString?) {
    writeStaticString("{")
    var members = value.members
    var isFirst = true
    while let member = members.next() {
      if let name, member.name.equals(name) { continue }
      if !isFirst { writeStaticString(",") }
      isFirst = false
      writeJSONString(member.name)
      writeStaticString(":")
      writeJSON(member.value)
    }
    writeStaticString("}")
  }
}
