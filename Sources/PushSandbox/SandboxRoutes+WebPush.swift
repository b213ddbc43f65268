internal import Crypto
internal import JWTKit
internal import Operations
internal import Worker

/// Verifier of VAPID (RFC 8292), as a push service does it.
package enum VAPIDVerifier {
  private struct Claims: JWTPayload {
    var aud: String
    var exp: Int64
    var sub: String?

    /// The verifier checks the claims with a time of its own.
    func verify(using algorithm: some JWTAlgorithm) throws {}
  }

  /// Return why a header is refused; nil if it is valid.
  ///
  /// - Parameters:
  ///   - authorization: value of the header (RFC 8292 section 3).
  ///   - now: in milliseconds since 1970.
  ///   - key: the key to which subscriptions are restricted (RFC 8292 section 4.2); nil: any.
  package static func refusal(
    of authorization: String,
    audience: String,
    now: Int64,
    key expected: [UInt8]?
  ) async -> String? {
    guard authorization.lowercased().hasPrefix("vapid ") else { return "the scheme is not vapid" }
    var parameters: [String: String] = [:]
    for part in authorization.dropFirst(6).split(separator: ",") {
      let pair = part.split(separator: "=", maxSplits: 1).map { $0.filter { $0 != " " && $0 != "\"" } }
      if pair.count == 2 { parameters[pair[0]] = pair[1] }
    }
    guard let token = parameters["t"], let bytes = parameters["k"].flatMap(Base64URL.bytes),
      let key = try? P256.Signing.PublicKey(x963Representation: bytes)
    else { return "t or k is missing or malformed" }
    guard expected == nil || expected == bytes else { return "the subscription was made for another key" }
    let keys = JWTKeyCollection()
    guard let verifying = try? ES256PublicKey(backing: key) else { return "k is malformed" }
    await keys.add(ecdsa: verifying)
    guard let claims = try? await keys.verify(token, as: Claims.self) else { return "the signature is invalid" }
    guard claims.aud == audience else { return "aud is \(claims.aud), not \(audience)" }
    guard claims.exp > now / 1_000, claims.exp <= now / 1_000 + 86_400 else { return "exp is not within 24 hours" }
    return nil
  }
}

extension SandboxRoutes {
  /// Message delivery of RFC 8030 section 5.
  func webPush(_ request: SandboxRequest, device id: String) async -> SandboxReply {
    func refuse(_ status: Int, _ detail: String) -> SandboxReply { Self.json(status, ["detail": .string(detail)]) }
    guard let device = device(id, .webpush), let key = device.key else { return refuse(404, "no such subscription") }
    if device.isGone { return refuse(410, "the subscription has expired") }
    let refusal = await VAPIDVerifier.refusal(
      of: request.headers["authorization"] ?? "",
      audience: origin,
      now: Times.now,
      key: Array(keys.vapid.x963Representation)
    )
    if let refusal { return refuse(403, refusal) }
    guard let ttl = request.headers["ttl"].flatMap(Int64.init), ttl >= 0 else { return refuse(400, "ttl is missing") }
    guard request.headers["content-encoding"] == "aes128gcm" else {
      return refuse(415, "the encoding is not aes128gcm")
    }
    if let urgency = request.headers["urgency"], PushUrgency(rawValue: urgency) == nil {
      return refuse(400, "urgency is unknown")
    }
    if let topic = request.headers["topic"] {
      guard topic.utf8.count <= 32, Base64URL.bytes(topic + String(repeating: "A", count: -topic.utf8.count & 3)) != nil
      else { return refuse(400, "topic is no base64url of at most 32 characters") }
    }
    guard request.body.count <= 4_096 else { return refuse(413, "the body has more than 4096 bytes") }
    guard let plaintext = try? WebPushEncryption.decrypt(request.body, key: key, secret: device.secret),
      let payload = JSONValue(parsing: plaintext)
    else { return refuse(400, "the device cannot decrypt the message") }
    let delivery = SandboxState.Delivery(
      kind: .webpush,
      device: id,
      payload: payload,
      headers: request.headers.filter { ["ttl", "urgency", "topic"].contains($0.key) }
    )
    let fault = deliver(delivery) { fault in
      switch fault {
      case .gone: refuse(410, "the subscription has expired")
      case .throttled: Self.json(429, [:], headers: [("retry-after", "1")])
      case .expired, .unavailable: Self.json(503, [:], headers: [("retry-after", "1")])
      case .error: refuse(500, "told to fail")
      case .credentials: refuse(403, "told to refuse the credentials")
      case .tooLarge: refuse(413, "told to be too large")
      case .hang, .close, .lost: nil
      }
    }
    let location = ("location", "\(origin)/message/\(Base64URL.text(WebPushEncryption.randomSalt()))")
    return fault ?? .response(status: 201, headers: [location, ("ttl", "\(ttl)")])
  }
}
