internal import Foundation
internal import JWTKit
internal import Operations

/// Firebase Cloud Messaging, HTTP v1 API.
///
/// Sources: Google's documentation "Using OAuth 2.0 for Server to Server Applications" (the access token), the
/// reference of `projects.messages.send`, and "ErrorCode".
final class FCMProvider: PushProvider {
  /// Largest payload in bytes.
  static let payloadByteCountMax = 4_096
  private static let scope = "https://www.googleapis.com/auth/firebase.messaging"
  /// Lifetime of the assertion: at most 1 h.
  private static let assertionSeconds: Int64 = 3_600
  /// Delay after 429 without `Retry-After`, as the documentation asks.
  private static let throttleMilliseconds: Int64 = 60_000

  private struct Claims: JWTPayload {
    var iss: String
    var scope: String
    var aud: String
    var iat: Int64
    var exp: Int64

    /// Verify nothing: these claims are only created here.
    func verify(using algorithm: some JWTAlgorithm) throws {}
  }

  private let settings: PushProviderTask.FCM
  private let tokenEndpoint: CheckedEndpoint
  private let connection: PushServiceConnection

  init(_ task: PushProviderTask, _ settings: PushProviderTask.FCM, lookup: @escaping HostResolver.Lookup) {
    self.settings = settings
    var endpointSettings = task.endpointSettings(settings.tokenURL)
    // Access tokens of some kinds of accounts are long.
    endpointSettings.bodyByteCountMax = 16 * 1_024
    let tokenEndpoint = CheckedEndpoint(endpointSettings, lookup: lookup)
    self.tokenEndpoint = tokenEndpoint
    connection = PushServiceConnection(
      endpoint: CheckedEndpoint(task.endpointSettings(settings.url), lookup: lookup),
      tokens: TokenCache { now in try await Self.accessToken(settings, tokenEndpoint, now: now) },
      pauseMilliseconds: task.pauseMilliseconds
    )
  }

  func open(_ device: PushDevice) throws(PushAnswer) -> PushServiceConnection {
    guard case .token = device.address else {
      throw .rejected(code: "invalid_device", detail: "the provider needs a token, not a subscription")
    }
    return connection
  }

  func close(_ connection: PushServiceConnection) {}

  // MARK: Access token

  /// Exchange a signed assertion for an access token (RFC 7523 section 2.1).
  private static func accessToken(
    _ settings: PushProviderTask.FCM,
    _ endpoint: CheckedEndpoint,
    now: Int64
  ) async throws -> TokenCache.Issued {
    let keys = JWTKeyCollection()
    let identifier = settings.keyID.map { JWKIdentifier(string: $0) }
    await keys.add(
      rsa: try Insecure.RSA.PrivateKey(pem: settings.privateKey),
      digestAlgorithm: .sha256,
      kid: identifier
    )
    let seconds = now / 1_000
    let claims = Claims(
      iss: settings.clientEmail,
      scope: scope,
      aud: settings.tokenAudience,
      iat: seconds,
      exp: seconds + assertionSeconds
    )
    let assertion = try await keys.sign(claims, kid: identifier)
    let body = "grant_type=urn%3Aietf%3Aparams%3Aoauth%3Agrant-type%3Ajwt-bearer&assertion=\(assertion)"
    let headers = [("content-type", "application/x-www-form-urlencoded")]
    switch await endpoint.post(settings.tokenURL.path, headers: headers, body: Array(body.utf8)) {
    case .success(let response) where response.status == 200:
      let value = JSONValue(parsing: response.body)
      guard let token = value?["access_token"]?.string, let seconds = value?["expires_in"]?.integer,
        token.utf8.allSatisfy({ $0 > 0x20 && $0 < 0x7F })
      else { throw response.unavailable(code: "token_malformed", now: now) }
      // A token is replaced when a tenth of its lifetime is left.
      return TokenCache.Issued(token: token, usableMilliseconds: min(max(seconds, 0), 86_400) * 900)
    case .success(let response) where (400...499).contains(response.status) && response.status != 429:
      let code = JSONValue(parsing: response.body)?["error"]?.string ?? "status_\(response.status)"
      throw PushAnswer.credentialsRefused(
        code: String(code.prefix(64)),
        detail: "check key_file, and this machine's clock"
      )
    case .success(let response): throw response.unavailable(now: now)
    case .failure(let failure): throw PushAnswer(failure)
    }
  }

  // MARK: Messages

  func send(
    _ notification: PushNotification,
    to device: PushDevice,
    on connection: PushServiceConnection,
    now: Int64
  ) async -> PushAnswer {
    guard case .token(let address) = device.address else {
      return .rejected(code: "invalid_device", detail: "the provider needs a token")
    }
    let data = Self.data(notification)
    let count = JSONValue.object(data).bytes.count
    guard count <= Self.payloadByteCountMax else { return .tooLarge(count, max: Self.payloadByteCountMax) }
    let body = JSONValue.object(["message": .object(Self.message(notification.content, token: address, data: data))])
    return await connection.post(settings.path, body: body.bytes, now: now) { token in
      [("authorization", "Bearer \(token)"), ("content-type", "application/json; charset=utf-8")]
    } classify: { response in
      Self.answer(response, now: now)
    }
  }

  /// The message: data only, because Android hands a message with a `notification` to the app only while it is in the
  /// foreground.
  static func message(_ content: PushContent, token: String, data: [String: JSONValue]) -> [String: JSONValue] {
    var android: [String: JSONValue] = [
      "ttl": .string("\(content.ttlSeconds)s"),
      "priority": .string(content.urgency == .high ? "HIGH" : "NORMAL"),
    ]
    android["collapse_key"] = content.collapseKey.map { .string($0) }
    return ["token": .string(token), "data": .object(data), "android": .object(android)]
  }

  /// The members of `data`: all values are strings; others become JSON.
  static func data(_ notification: PushNotification) -> [String: JSONValue] {
    notification.members.mapValues { $0.string == nil ? .string($0.text) : $0 }
  }

  /// Classify a response.
  static func answer(_ response: EndpointResponse, now: Int64) -> PushAnswer {
    let body = JSONValue(parsing: response.body)
    let error = body?["error"]
    let status = error?["status"]?.string ?? ""
    let specific = error?["details"]?.array?.lazy.compactMap { $0["errorCode"]?.string }.first
    let code = (specific ?? (status.isEmpty ? "status_\(response.status)" : status)).prefix(64).lowercased()
    let detail = String((error?["message"]?.string ?? "").prefix(200))
    switch (response.status, specific) {
    case (200, _): return .accepted(id: body?["name"]?.string.map { String($0.prefix(500)) })
    case (_, "UNREGISTERED"): return .gone(code: code)
    // The service's own credentials for APNs or Web Push are wrong: other devices are not affected.
    case (_, "THIRD_PARTY_AUTH_ERROR"), (_, "SENDER_ID_MISMATCH"): return .rejected(code: code, detail: detail)
    case (401, _): return .tokenExpired
    case (403, _): return .credentialsRefused(code: code, detail: "check key_file and its project: \(detail)")
    // Without an error code it is the project that is unknown, not the device.
    case (404, _): return .credentialsRefused(code: code, detail: "check project_id in key_file: \(detail)")
    case (413, _): return .rejected(code: "payload_too_large", detail: detail)
    case (429, _):
      let delay = response.retryAfterMilliseconds(now: now) ?? throttleMilliseconds
      return .throttled(.provider, retryAfterMilliseconds: delay)
    case (400...499, _): return .rejected(code: code, detail: detail)
    default: return response.unavailable(code: code, now: now)
    }
  }

  func shutDown() async {
    await connection.endpoint.shutDown()
    await tokenEndpoint.shutDown()
  }
}
