internal import Crypto
internal import Foundation
internal import JWTKit
internal import Operations
internal import Worker

extension SandboxRoutes {
  private struct ProviderClaims: JWTPayload {
    var iss: String
    var iat: Int64

    /// The route checks the claims.
    func verify(using algorithm: some JWTAlgorithm) throws {}
  }

  /// A notification request to APNs, checked in the order of Apple's documentation.
  func apns(_ request: SandboxRequest, device id: String) async -> SandboxReply {
    func refuse(_ status: Int, _ reason: String, _ headers: [(String, String)] = []) -> SandboxReply {
      Self.json(status, ["reason": .string(reason)], headers: headers)
    }
    guard request.isHTTP2 else { return refuse(505, "HTTP2Required") }
    guard let authorization = request.headers["authorization"], authorization.lowercased().hasPrefix("bearer ") else {
      return refuse(403, "MissingProviderToken")
    }
    let token = String(authorization.dropFirst(7))
    if let refusal = await refusal(ofProviderToken: token) { return refuse(403, refusal) }
    if let refusal = refusal(ofAPNsHeaders: request.headers) { return refuse(400, refusal) }
    guard id.utf8.count == 64, let device = device(id, .apns) else { return refuse(400, "BadDeviceToken") }
    let gone: [String: JSONValue] = ["reason": .string("Unregistered"), "timestamp": .integer(Times.now)]
    if device.isGone { return Self.json(410, gone) }
    guard request.body.count <= 4_096 else { return refuse(413, "PayloadTooLarge") }
    guard let payload = JSONValue(parsing: request.body), let aps = payload["aps"]?.object else {
      return refuse(400, "PayloadEmpty")
    }
    if request.headers["apns-push-type"] == "background" {
      guard request.headers["apns-priority"] != "10", aps["content-available"] == .integer(1) else {
        return refuse(400, "BadPriority")
      }
    }
    let delivery = SandboxState.Delivery(
      kind: .apns,
      device: id,
      payload: payload,
      headers: request.headers.filter { $0.key.hasPrefix("apns-") }
    )
    let fault = deliver(delivery) { fault in
      switch fault {
      case .gone: return Self.json(410, gone)
      case .throttled: return refuse(429, "TooManyRequests")
      case .expired:
        with { $0.expire(token) }
        return refuse(403, "ExpiredProviderToken")
      case .unavailable: return refuse(503, "ServiceUnavailable", [("retry-after", "1")])
      case .error: return refuse(500, "InternalServerError")
      case .credentials: return refuse(403, "InvalidProviderToken")
      case .tooLarge: return refuse(413, "PayloadTooLarge")
      case .hang, .close, .lost: return nil
      }
    }
    return fault ?? .response(status: 200, headers: [("apns-id", UUID().uuidString)])
  }

  private func refusal(ofProviderToken token: String) async -> String? {
    let collection = JWTKeyCollection()
    guard let key = try? ES256PublicKey(backing: keys.apns) else { return "InvalidProviderToken" }
    // The token has to name the key: no other key is in the collection.
    await collection.add(ecdsa: key, kid: JWKIdentifier(string: SandboxKeys.keyID))
    guard let claims = try? await collection.verify(token, as: ProviderClaims.self), claims.iss == SandboxKeys.teamID
    else { return "InvalidProviderToken" }
    let age = Times.now / 1_000 - claims.iat
    guard (-60...3_600).contains(age), !with({ $0.expiredTokens.contains(token) }) else {
      return "ExpiredProviderToken"
    }
    return nil
  }

  private func refusal(ofAPNsHeaders headers: [String: String]) -> String? {
    guard let topic = headers["apns-topic"] else { return "MissingTopic" }
    guard topic == SandboxKeys.topic else { return "DeviceTokenNotForTopic" }
    guard ["alert", "background"].contains(headers["apns-push-type"] ?? "") else { return "InvalidPushType" }
    guard ["1", "5", "10"].contains(headers["apns-priority"] ?? "10") else { return "BadPriority" }
    guard Int64(headers["apns-expiration"] ?? "0") != nil else { return "BadExpirationDate" }
    guard (headers["apns-collapse-id"] ?? "").utf8.count <= 64 else { return "BadCollapseId" }
    return nil
  }
}
