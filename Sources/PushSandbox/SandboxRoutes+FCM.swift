internal import Crypto
internal import CryptoExtras
internal import Foundation
internal import JWTKit
internal import Operations
internal import Worker

extension SandboxRoutes {
  private struct Assertion: JWTPayload {
    var iss: String
    var scope: String
    var aud: String
    var iat: Int64
    var exp: Int64

    /// The route checks the claims.
    func verify(using algorithm: some JWTAlgorithm) throws {}
  }

  /// Issue an access token for an assertion (RFC 7523 section 2.1).
  func accessToken(_ request: SandboxRequest) async -> SandboxReply {
    func refuse(_ code: String) -> SandboxReply { Self.json(400, ["error": .string(code)]) }
    var fields: [String: String] = [:]
    for pair in String(decoding: request.body, as: UTF8.self).split(separator: "&") {
      let parts = pair.split(separator: "=", maxSplits: 1).map(String.init)
      if parts.count == 2 { fields[parts[0]] = parts[1].removingPercentEncoding }
    }
    guard request.headers["content-type"]?.hasPrefix("application/x-www-form-urlencoded") == true,
      fields["grant_type"] == "urn:ietf:params:oauth:grant-type:jwt-bearer", let text = fields["assertion"]
    else { return refuse("unsupported_grant_type") }
    let collection = JWTKeyCollection()
    guard let key = try? Insecure.RSA.PublicKey(pem: keys.fcm.pemRepresentation) else { return refuse("server_error") }
    await collection.add(rsa: key, digestAlgorithm: .sha256, kid: JWKIdentifier(string: SandboxKeys.serviceKeyID))
    let now = Times.now / 1_000
    guard let assertion = try? await collection.verify(text, as: Assertion.self),
      assertion.iss == SandboxKeys.clientEmail, assertion.aud == origin + "/token",
      assertion.scope == "https://www.googleapis.com/auth/firebase.messaging", assertion.iat <= now + 60,
      assertion.exp > now, assertion.exp <= assertion.iat + 3_600
    else { return refuse("invalid_grant") }
    let token = "sandbox." + Base64URL.text(WebPushEncryption.randomSalt())
    with { $0.issue(token) }
    return Self.json(
      200,
      ["access_token": .string(token), "expires_in": .integer(3_599), "token_type": .string("Bearer")]
    )
  }

  /// `projects.messages.send` of FCM's HTTP v1 API.
  func fcm(_ request: SandboxRequest, project: String) async -> SandboxReply {
    func refuse(
      _ status: Int,
      _ name: String,
      _ message: String,
      code: String? = nil,
      _ headers: [(String, String)] = []
    ) -> SandboxReply {
      var error: [String: JSONValue] = [
        "code": .integer(Int64(status)), "status": .string(name), "message": .string(message),
      ]
      if let code {
        let type = "type.googleapis.com/google.firebase.fcm.v1.FcmError"
        error["details"] = .array([.object(["@type": .string(type), "errorCode": .string(code)])])
      }
      return Self.json(status, ["error": .object(error)], headers: headers)
    }
    guard request.path.hasSuffix("/messages:send") else { return refuse(404, "NOT_FOUND", "no such method") }
    let token = String((request.headers["authorization"] ?? "").dropFirst(7))
    guard with({ $0.accessTokens.contains(token) && !$0.expiredTokens.contains(token) }) else {
      return refuse(401, "UNAUTHENTICATED", "the access token is invalid")
    }
    guard project == SandboxKeys.project else { return refuse(403, "PERMISSION_DENIED", "another project") }
    guard let body = JSONValue(parsing: request.body), let message = body["message"]?.object,
      let id = message["token"]?.string
    else { return refuse(400, "INVALID_ARGUMENT", "the message has no token", code: "INVALID_ARGUMENT") }
    if let problem = Self.problem(ofMessage: message) {
      return refuse(400, "INVALID_ARGUMENT", problem, code: "INVALID_ARGUMENT")
    }
    guard let device = device(id, .fcm) else {
      return refuse(400, "INVALID_ARGUMENT", "the token is no registration token", code: "INVALID_ARGUMENT")
    }
    if device.isGone { return refuse(404, "NOT_FOUND", "the device is not registered", code: "UNREGISTERED") }
    let android = message["android"]?.object ?? [:]
    let delivery = SandboxState.Delivery(
      kind: .fcm,
      device: id,
      payload: body,
      headers: android.compactMapValues(\.string)
    )
    let fault = deliver(delivery) { fault in
      switch fault {
      case .gone: return refuse(404, "NOT_FOUND", "the device is not registered", code: "UNREGISTERED")
      case .throttled:
        return refuse(429, "RESOURCE_EXHAUSTED", "slow down", code: "QUOTA_EXCEEDED", [("retry-after", "1")])
      case .expired:
        with { $0.expire(token) }
        return refuse(401, "UNAUTHENTICATED", "the access token has expired")
      case .unavailable: return refuse(503, "UNAVAILABLE", "overloaded", code: "UNAVAILABLE", [("retry-after", "1")])
      case .error: return refuse(500, "INTERNAL", "told to fail", code: "INTERNAL")
      case .credentials: return refuse(403, "PERMISSION_DENIED", "told to refuse the credentials")
      case .tooLarge: return refuse(400, "INVALID_ARGUMENT", "message is too big", code: "INVALID_ARGUMENT")
      case .hang, .close, .lost: return nil
      }
    }
    let name = "projects/\(project)/messages/\(Base64URL.text(WebPushEncryption.randomSalt()))"
    return fault ?? Self.json(200, ["name": .string(name)])
  }

  /// Return why FCM refuses a message; nil if it is valid.
  private static func problem(ofMessage message: [String: JSONValue]) -> String? {
    let data = message["data"]?.object ?? [:]
    if data.values.contains(where: { $0.string == nil }) { return "values of data have to be strings" }
    let isReserved: (String) -> Bool = { name in
      name == "from" || name == "message_type" || name.hasPrefix("google.") || name.hasPrefix("gcm.")
    }
    if let name = data.keys.first(where: isReserved) { return "\(name) is reserved" }
    if JSONValue.object(data).bytes.count > 4_096 { return "message is too big" }
    let android = message["android"]?.object ?? [:]
    if let ttl = android["ttl"]?.string, ttl.wholeMatch(of: /[0-9]+(\.[0-9]+)?s/) == nil { return "ttl is malformed" }
    if let priority = android["priority"]?.string, !["HIGH", "NORMAL"].contains(priority) {
      return "priority is unknown"
    }
    return nil
  }
}
