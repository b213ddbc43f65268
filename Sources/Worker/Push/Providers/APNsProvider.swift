internal import Crypto
internal import JWTKit
internal import Operations

/// Apple Push Notification service with token authentication, over HTTP/2.
///
/// Sources: Apple's documentation of User Notifications, "Sending notification requests to APNs", "Handling
/// notification responses from APNs" and "Establishing a token-based connection to APNs".
final class APNsProvider: PushProvider {
  /// Largest payload in bytes, except for VoIP.
  static let payloadByteCountMax = 4_096
  /// A provider token is refused after an hour, and may be renewed every 20 minutes.
  private static let tokenUsableMilliseconds: Int64 = 45 * 60_000

  private struct Claims: JWTPayload {
    var iss: String
    var iat: Int64

    /// Verify nothing: these claims are only created here.
    func verify(using algorithm: some JWTAlgorithm) throws {}
  }

  private let settings: PushProviderTask.APNs
  private let connection: PushServiceConnection

  init(_ task: PushProviderTask, _ settings: PushProviderTask.APNs, lookup: @escaping HostResolver.Lookup) {
    self.settings = settings
    let keys = JWTKeyCollection()
    let identifier = JWKIdentifier(string: settings.keyID)
    connection = PushServiceConnection(
      endpoint: CheckedEndpoint(task.endpointSettings(settings.url), lookup: lookup),
      tokens: TokenCache { now in
        await keys.add(ecdsa: try ES256PrivateKey(backing: settings.key), kid: identifier)
        let claims = Claims(iss: settings.teamID, iat: now / 1_000)
        let token = try await keys.sign(claims, kid: identifier)
        return TokenCache.Issued(token: token, usableMilliseconds: Self.tokenUsableMilliseconds)
      },
      pauseMilliseconds: task.pauseMilliseconds
    )
  }

  func open(_ device: PushDevice) throws(PushAnswer) -> PushServiceConnection {
    guard case .token(let token) = device.address, (1...200).contains(token.utf8.count),
      token.utf8.allSatisfy({ Character(UnicodeScalar($0)).isHexDigit })
    else { throw .rejected(code: "invalid_device", detail: "the provider needs a token of hexadecimal digits") }
    return connection
  }

  func close(_ connection: PushServiceConnection) {}

  func send(
    _ notification: PushNotification,
    to device: PushDevice,
    on connection: PushServiceConnection,
    now: Int64
  ) async -> PushAnswer {
    guard case .token(let address) = device.address else {
      return .rejected(code: "invalid_device", detail: "the provider needs a token")
    }
    let payload = JSONValue.object(Self.payload(notification)).bytes
    guard payload.count <= Self.payloadByteCountMax else {
      return .tooLarge(payload.count, max: Self.payloadByteCountMax)
    }
    return await connection.post("/3/device/\(address)", body: payload, now: now) { token in
      Self.headers(notification.content, topic: settings.topic, token: token, now: now)
    } classify: { response in
      Self.answer(response, now: now)
    }
  }

  /// The payload: an alert with `mutable-content`, so that a service extension can post the ticket, or a background
  /// notification without title and body.
  static func payload(_ notification: PushNotification) -> [String: JSONValue] {
    var members = notification.members
    let alert = [("title", members.removeValue(forKey: "title")), ("body", members.removeValue(forKey: "body"))]
    var aps = notification.content.aps
    if isAlert(notification.content) {
      aps["alert"] = .object(
        Dictionary(uniqueKeysWithValues: alert.compactMap { name, value in value.map { (name, $0) } })
      )
      aps["mutable-content"] = .integer(1)
    } else {
      aps["content-available"] = .integer(1)
    }
    aps["badge"] = members.removeValue(forKey: "badge")
    members["aps"] = .object(aps)
    return members
  }

  private static func isAlert(_ content: PushContent) -> Bool { content.title != nil || content.body != nil }

  /// Headers of a request.
  ///
  /// - Parameter now: in milliseconds since 1970.
  static func headers(_ content: PushContent, topic: String, token: String, now: Int64) -> [(String, String)] {
    let priority =
      switch content.urgency {
      // A background notification with priority 10 is refused.
      case .high: isAlert(content) ? 10 : 5
      case .normal: 5
      case .low, .veryLow: 1
      }
    var headers = [
      ("authorization", "bearer \(token)"), ("content-type", "application/json"), ("apns-topic", topic),
      ("apns-push-type", isAlert(content) ? "alert" : "background"), ("apns-priority", "\(priority)"),
      // 0: APNs does not store the notification.
      ("apns-expiration", content.ttlSeconds == 0 ? "0" : "\(now / 1_000 + content.ttlSeconds)"),
    ]
    if let key = content.collapseKey { headers.append(("apns-collapse-id", key)) }
    return headers
  }

  /// Classify a response.
  static func answer(_ response: EndpointResponse, now: Int64) -> PushAnswer {
    let reason = JSONValue(parsing: response.body)?["reason"]?.string ?? ""
    let code = reason.isEmpty ? "status_\(response.status)" : snakeCase(reason)
    switch (response.status, reason) {
    case (200, _): return .accepted(id: response.headers["apns-id"])
    case (410, _): return .gone(code: code)
    case (403, "ExpiredProviderToken"): return .tokenExpired
    case (403, _): return .credentialsRefused(code: code, detail: "check key_file, key_id, team_id and topic")
    // Also the answer for a token of the other environment. So the device is not reported as gone.
    case (400, "BadDeviceToken"), (400, "DeviceTokenNotForTopic"):
      return .rejected(code: code, detail: "check the device's token, and the provider's topic and environment")
    case (400, "TopicDisallowed"), (400, "BadTopic"), (400, "MissingTopic"):
      return .credentialsRefused(code: code, detail: "check topic")
    case (413, _): return .rejected(code: "payload_too_large", detail: reason)
    case (429, "TooManyProviderTokenUpdates"):
      return .throttled(.provider, retryAfterMilliseconds: response.retryAfterMilliseconds(now: now) ?? 20 * 60_000)
    case (429, _): return .throttled(.device, retryAfterMilliseconds: response.retryAfterMilliseconds(now: now))
    // The requests of an idle connection that APNs closes are sent again.
    case (400, "IdleTimeout"), (500...599, _): return response.unavailable(code: code, now: now)
    case (400...499, _): return .rejected(code: code, detail: reason)
    default: return response.unavailable(now: now)
    }
  }

  /// Convert a reason such as `BadDeviceToken` into a code.
  static func snakeCase(_ reason: String) -> String {
    var code = ""
    for character in reason.prefix(64) where character.isASCII && character.isLetter {
      if character.isUppercase, !code.isEmpty { code.append("_") }
      code += character.lowercased()
    }
    return code
  }

  func shutDown() async { await connection.endpoint.shutDown() }
}
