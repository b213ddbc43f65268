internal import Foundation

/// Reason why a line of the input is no job.
package struct PushJobError: Error, Hashable, Sendable {
  /// `invalid_json`, `unknown_field`, `invalid_field`, `limit_exceeded` or `line_too_long`.
  package var code: String
  /// The field and the remedy.
  package var detail: String
}

/// How soon a push has to arrive (RFC 8030 section 5.3).
package enum PushUrgency: String, Sendable, CaseIterable {
  case veryLow = "very-low"
  case low
  case normal
  case high
}

/// What a push says. Tidemark passes it on and does not look into it.
package struct PushContent: Sendable, Hashable {
  /// Channel of the message.
  package var cid: String
  /// Id of the message in Tidemark.
  package var messageID: String
  /// Parent of a reply.
  package var parentID: String?
  /// Title of the notification; without title and text the push shows nothing.
  package var title: String?
  /// Text of the notification.
  package var body: String?
  /// Further members of the payload.
  package var data: [String: JSONValue] = [:]
  /// How soon the push has to arrive.
  package var urgency = PushUrgency.high
  /// Time for which the provider keeps the push for an unreachable device, in seconds: 0 to 2,419,200.
  package var ttlSeconds = PushJob.ttlSecondsDefault
  /// Further members of APNs' `aps`, such as `sound`.
  package var aps: [String: JSONValue] = [:]
  /// Pushes with the same key replace each other on the device.
  package var collapseKey: String?

  /// Members of every payload: identifiers, `data`, title and body, ticket and badge.
  package func members(ticket: String, badge: Int64?) -> [String: JSONValue] {
    var members = data
    members["cid"] = .string(cid)
    members["message_id"] = .string(messageID)
    members["parent_id"] = parentID.map { .string($0) }
    members["title"] = title.map { .string($0) }
    members["body"] = body.map { .string($0) }
    members["badge"] = badge.map { .integer($0) }
    members["ticket"] = .string(ticket)
    return members
  }
}

/// Where a push is sent.
package struct PushDevice: Sendable, Hashable {
  /// Address of a device at its provider.
  package enum Address: Sendable, Hashable {
    /// Token of APNs or FCM.
    case token(String)
    /// Subscription of Web Push (Push API, section "PushSubscription").
    case subscription(WebPushSubscription)
  }

  /// Name of a provider in the tasks file.
  package var provider: String
  /// Address of the device at the provider.
  package var address: Address
  /// Kind of device for metrics, such as `ios`; by default the provider's.
  package var label: String?
}

/// Endpoint and keys of a Web Push subscription.
package struct WebPushSubscription: Sendable, Hashable {
  /// URL of the push resource (RFC 8030 section 4).
  package var endpoint: String
  /// Public key of the user agent: 65 bytes, uncompressed point of P-256.
  package var publicKey: [UInt8]
  /// Authentication secret: 16 bytes (RFC 8291 section 3.2).
  package var secret: [UInt8]

  /// Create a subscription with the keys of the user agent.
  package init(endpoint: String, publicKey: [UInt8], secret: [UInt8]) {
    self.endpoint = endpoint
    self.publicKey = publicKey
    self.secret = secret
  }
}

/// A line of the input: one message for the devices of some users.
package struct PushJob: Sendable, Hashable {
  /// A user and their devices.
  package struct User: Sendable, Hashable {
    /// The user's id.
    package var id: String
    /// Where the user is reached; may be empty.
    package var devices: [PushDevice]
  }

  /// Most users of a job.
  package static let usersMax = 1_000
  /// Most devices of a job.
  package static let devicesMax = 5_000
  /// Longest line in bytes, without its line feed.
  package static let lineByteCountMax = 1 << 20
  /// Maximum of `ttl`: 28 days, as long as tickets last.
  package static let ttlSecondsMax: Int64 = 2_419_200
  /// Default of `ttl`: 7 days, as that of tickets.
  package static let ttlSecondsDefault: Int64 = 604_800
  private static let idByteCountMax = 255

  /// The caller's own name of the job, repeated in its results.
  package var id: String?
  /// What the push says.
  package var content: PushContent
  /// Users with different ids, at least one.
  package var users: [User]

  /// Devices of all users.
  package var deviceCount: Int { users.reduce(0) { $0 + $1.devices.count } }

  /// Parse a line.
  package init(parsing line: some Sequence<UInt8>) throws(PushJobError) {
    guard let value = JSONValue(parsing: line) else {
      throw PushJobError(code: "invalid_json", detail: "the line is not JSON")
    }
    try self.init(value)
  }

  /// Check a parsed job.
  package init(_ value: JSONValue) throws(PushJobError) {
    let job = try JobFields(
      value,
      path: "",
      known: [
        "id", "cid", "message_id", "parent_id", "title", "body", "data", "aps", "urgency", "ttl", "collapse_key",
        "users",
      ]
    )
    id = try job.text("id", max: Self.idByteCountMax)
    content = PushContent(
      cid: try job.required("cid", max: 2 * Self.idByteCountMax),
      messageID: try job.required("message_id", max: Self.idByteCountMax)
    )
    content.parentID = try job.text("parent_id", max: Self.idByteCountMax)
    content.title = try job.text("title", max: Self.lineByteCountMax, isEmptyAllowed: true)
    content.body = try job.text("body", max: Self.lineByteCountMax, isEmptyAllowed: true)
    content.data = try job.object("data") ?? [:]
    for name in ["aps", "ticket", "cid", "message_id", "parent_id", "title", "body", "badge"]
    where content.data[name] != nil {
      throw PushJobError(code: "invalid_field", detail: "data.\(name) is reserved: use another name")
    }
    content.aps = try job.object("aps") ?? [:]
    for name in ["alert", "badge"] where content.aps[name] != nil {
      throw PushJobError(code: "invalid_field", detail: "aps.\(name) is reserved: give title and body")
    }
    if let text = try job.text("urgency", max: 16) {
      guard let urgency = PushUrgency(rawValue: text) else {
        let known = PushUrgency.allCases.map(\.rawValue).joined(separator: ", ")
        throw PushJobError(code: "invalid_field", detail: "urgency has to be one of \(known)")
      }
      content.urgency = urgency
    } else if content.title == nil, content.body == nil {
      content.urgency = .normal
    }
    content.ttlSeconds = try job.integer("ttl", 0...Self.ttlSecondsMax) ?? Self.ttlSecondsDefault
    content.collapseKey = try job.text("collapse_key", max: 64)
    // It goes into headers.
    guard content.collapseKey?.utf8.allSatisfy({ (0x20..<0x7F).contains($0) }) != false else {
      throw PushJobError(code: "invalid_field", detail: "collapse_key has to be printable ASCII")
    }
    users = try Self.users(job)
    guard deviceCount <= Self.devicesMax else {
      throw PushJobError(
        code: "limit_exceeded",
        detail: "the job has \(deviceCount) devices: send at most \(Self.devicesMax) in one line"
      )
    }
  }

  private static func users(_ job: JobFields) throws(PushJobError) -> [User] {
    guard let list = try job.array("users"), !list.isEmpty else {
      throw PushJobError(code: "invalid_field", detail: "users is missing or empty: give at least one user")
    }
    guard list.count <= usersMax else {
      throw PushJobError(code: "limit_exceeded", detail: "users has \(list.count) entries: send at most \(usersMax)")
    }
    var users: [User] = []
    // By their bytes, as everywhere: strings with the same look may differ.
    var ids: Set<[UInt8]> = []
    for (index, value) in list.enumerated() {
      let fields = try JobFields(value, path: "users[\(index)]", known: ["user_id", "devices"])
      let id = try fields.required("user_id", max: idByteCountMax)
      guard ids.insert(Array(id.utf8)).inserted else { throw fields.error("user_id", "is the id of an earlier entry") }
      guard let devices = try fields.array("devices") else { throw fields.error("devices", "is missing") }
      var user = User(id: id, devices: [])
      for (number, device) in devices.enumerated() {
        user.devices.append(try self.device(device, path: "users[\(index)].devices[\(number)]"))
      }
      users.append(user)
    }
    return users
  }

  private static func device(_ value: JSONValue, path: String) throws(PushJobError) -> PushDevice {
    let fields = try JobFields(value, path: path, known: ["provider", "token", "subscription", "device"])
    let provider = try fields.required("provider", max: 64)
    let label = try fields.text("device", max: 32)
    let address: PushDevice.Address
    switch (try fields.text("token", max: 4_096), fields.values["subscription"]) {
    case (let token?, nil): address = .token(token)
    case (nil, let subscription?):
      address = .subscription(try self.subscription(subscription, path: path + ".subscription"))
    default: throw PushJobError(code: "invalid_field", detail: "\(path) needs either a token or a subscription")
    }
    return PushDevice(provider: provider, address: address, label: label)
  }

  private static func subscription(_ value: JSONValue, path: String) throws(PushJobError) -> WebPushSubscription {
    // Browsers' `PushSubscription.toJSON()` has an expirationTime.
    let fields = try JobFields(value, path: path, known: ["endpoint", "keys", "expirationTime"])
    guard let keys = fields.values["keys"] else { throw fields.error("keys", "is missing") }
    let keyFields = try JobFields(keys, path: path + ".keys", known: ["p256dh", "auth"])
    guard let publicKey = Base64URL.bytes(try keyFields.required("p256dh", max: 128)), publicKey.count == 65 else {
      throw keyFields.error("p256dh", "has to be base64url of 65 bytes")
    }
    guard let secret = Base64URL.bytes(try keyFields.required("auth", max: 64)), secret.count == 16 else {
      throw keyFields.error("auth", "has to be base64url of 16 bytes")
    }
    let endpoint = try fields.required("endpoint", max: 2_048)
    return WebPushSubscription(endpoint: endpoint, publicKey: publicKey, secret: secret)
  }
}

/// The members of an object of a job, with the path for errors.
private struct JobFields {
  let path: String
  let values: [String: JSONValue]

  /// Members with the value null count as missing.
  init(_ value: JSONValue, path: String, known: [String]) throws(PushJobError) {
    guard let object = value.object else {
      throw PushJobError(code: "invalid_field", detail: "\(path.isEmpty ? "the job" : path) has to be an object")
    }
    if let unknown = object.keys.sorted().first(where: { !known.contains($0) }) {
      throw PushJobError(
        code: "unknown_field",
        detail: "\(path.isEmpty ? "" : path + ".")\(unknown.prefix(64)) is unknown; known are "
          + known.joined(separator: ", ")
      )
    }
    self.path = path
    values = object.filter { $0.value != .null }
  }

  func error(_ name: String, _ problem: String) -> PushJobError {
    PushJobError(code: "invalid_field", detail: "\(path.isEmpty ? "" : path + ".")\(name) \(problem)")
  }

  func text(_ name: String, max: Int, isEmptyAllowed: Bool = false) throws(PushJobError) -> String? {
    guard let value = values[name] else { return nil }
    guard let text = value.string else { throw error(name, "has to be a string") }
    guard text.utf8.count <= max, isEmptyAllowed || !text.isEmpty else {
      throw error(name, "has to be \(isEmptyAllowed ? 0 : 1) to \(max) bytes")
    }
    return text
  }

  func required(_ name: String, max: Int) throws(PushJobError) -> String {
    guard let text = try text(name, max: max) else { throw error(name, "is missing") }
    return text
  }

  func integer(_ name: String, _ range: ClosedRange<Int64>) throws(PushJobError) -> Int64? {
    guard let value = values[name] else { return nil }
    guard let number = value.integer, range.contains(number) else {
      throw error(name, "has to be a whole number from \(range.lowerBound) to \(range.upperBound)")
    }
    return number
  }

  func array(_ name: String) throws(PushJobError) -> [JSONValue]? {
    guard let value = values[name] else { return nil }
    guard let array = value.array else { throw error(name, "has to be an array") }
    return array
  }

  func object(_ name: String) throws(PushJobError) -> [String: JSONValue]? {
    guard let value = values[name] else { return nil }
    guard let object = value.object else { throw error(name, "has to be an object") }
    return object
  }
}
