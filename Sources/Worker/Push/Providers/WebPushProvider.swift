package import Crypto
internal import JWTKit
internal import Operations
internal import Synchronization

/// Web Push: the protocol of RFC 8030, encryption of RFC 8291, VAPID of RFC 8292.
///
/// Endpoints come from clients. So each origin has its own connections and its own throttling, and an answer of one
/// endpoint never pauses the others.
final class WebPushProvider: PushProvider {
  /// Origins with connections at the same time. Few push services exist, so more are a mistake or an attack.
  static let originsMax = 256

  private struct Entry {
    var connection: PushServiceConnection
    var uses: Int
    /// Number of the last use.
    var lastUse: UInt64
  }

  private struct State {
    var connections: [String: Entry] = [:]
    var uses: UInt64 = 0
  }

  private let task: PushProviderTask
  private let settings: PushProviderTask.WebPush
  private let lookup: HostResolver.Lookup
  private let state = Mutex(State())

  init(_ task: PushProviderTask, _ settings: PushProviderTask.WebPush, lookup: @escaping HostResolver.Lookup) {
    self.task = task
    self.settings = settings
    self.lookup = lookup
  }

  // MARK: Origins

  private func url(of device: PushDevice) throws(PushAnswer) -> EndpointURL {
    guard case .subscription(let subscription) = device.address else {
      throw .rejected(code: "invalid_device", detail: "the provider needs a subscription, not a token")
    }
    guard let url = EndpointURL(subscription.endpoint) else {
      throw .rejected(code: "invalid_device", detail: "the endpoint is not https://HOST[:PORT]/PATH")
    }
    guard url.usesTLS || task.allowsHTTP else {
      throw .rejected(code: "invalid_device", detail: "the endpoint has to begin with https://")
    }
    return url
  }

  func open(_ device: PushDevice) throws(PushAnswer) -> PushServiceConnection {
    let url = try url(of: device)
    let (connection, evicted) = state.withLock { state in
      state.uses += 1
      var evicted: PushServiceConnection?
      if state.connections[url.origin] == nil {
        if state.connections.count >= Self.originsMax {
          let idle = state.connections.filter { $0.value.uses == 0 }.min { $0.value.lastUse < $1.value.lastUse }
          guard let idle else { return (nil as PushServiceConnection?, nil as PushServiceConnection?) }
          evicted = idle.value.connection
          state.connections[idle.key] = nil
        }
        state.connections[url.origin] = Entry(connection: makeConnection(url), uses: 0, lastUse: 0)
      }
      state.connections[url.origin]?.uses += 1
      state.connections[url.origin]?.lastUse = state.uses
      return (state.connections[url.origin]?.connection, evicted)
    }
    if let evicted { Task { await evicted.endpoint.shutDown() } }
    guard let connection else {
      throw .unavailable(
        code: "too_many_origins",
        detail: "too many push services at once",
        retryAfterMilliseconds: nil
      )
    }
    return connection
  }

  func close(_ connection: PushServiceConnection) {
    state.withLock { state in
      guard let origin = state.connections.first(where: { $0.value.connection === connection })?.key else { return }
      state.connections[origin]?.uses -= 1
    }
  }

  private func makeConnection(_ url: EndpointURL) -> PushServiceConnection {
    let settings = settings
    return PushServiceConnection(
      endpoint: CheckedEndpoint(task.endpointSettings(url), lookup: lookup),
      tokens: TokenCache { now in
        TokenCache.Issued(
          token: try await VAPID.authorization(
            key: settings.key,
            subject: settings.subject,
            audience: url.origin,
            now: now
          ),
          usableMilliseconds: VAPID.usableMilliseconds
        )
      },
      pauseMilliseconds: 0
    )
  }

  // MARK: Requests

  func send(
    _ notification: PushNotification,
    to device: PushDevice,
    on connection: PushServiceConnection,
    now: Int64
  ) async -> PushAnswer {
    do {
      guard case .subscription(let subscription) = device.address else {
        return .rejected(code: "invalid_device", detail: "the provider needs a subscription, not a token")
      }
      let payload = JSONValue.object(notification.members).bytes
      guard payload.count <= WebPushEncryption.plaintextByteCountMax else {
        return .tooLarge(payload.count, max: WebPushEncryption.plaintextByteCountMax)
      }
      let url = try url(of: device)
      let body: [UInt8]
      do {
        body = try WebPushEncryption.encrypt(payload, for: subscription)
      } catch {
        return .rejected(code: "invalid_device", detail: "p256dh is not a point of P-256")
      }
      return await connection.post(url.path, body: body, now: now) { token in
        Self.headers(notification.content, authorization: token)
      } classify: { response in
        Self.answer(response, now: now)
      }
    } catch {
      return error
    }
  }

  /// Headers of a request (RFC 8030 section 5, RFC 8188, RFC 8292 section 3).
  static func headers(_ content: PushContent, authorization: String) -> [(String, String)] {
    var headers = [
      ("authorization", authorization), ("content-type", "application/octet-stream"),
      ("content-encoding", "aes128gcm"), ("ttl", "\(content.ttlSeconds)"), ("urgency", content.urgency.rawValue),
    ]
    if let key = content.collapseKey { headers.append(("topic", topic(key))) }
    return headers
  }

  /// A topic has at most 32 characters of base64url (RFC 8030 section 5.4). Other keys are replaced by their hash.
  static func topic(_ key: String) -> String {
    let isTopic = key.utf8.allSatisfy { byte in
      switch byte {
      case UInt8(ascii: "a")...UInt8(ascii: "z"), UInt8(ascii: "A")...UInt8(ascii: "Z"),
        UInt8(ascii: "0")...UInt8(ascii: "9"), UInt8(ascii: "-"), UInt8(ascii: "_"):
        true
      default: false
      }
    }
    return isTopic && key.utf8.count <= 32 ? key : String(Base64URL.text(SHA256.hash(data: Array(key.utf8))).prefix(32))
  }

  /// Classify a response (RFC 8030 sections 5 and 7.3).
  ///
  /// 401 and 403 concern this subscription only, which may have been made for another key (RFC 8292 section 4.2).
  static func answer(_ response: EndpointResponse, now: Int64) -> PushAnswer {
    let detail = String(decoding: response.body.prefix(200), as: UTF8.self)
    switch response.status {
    case 200...299: return .accepted(id: response.headers["location"].map { String($0.prefix(500)) })
    case 404, 410: return .gone(code: "subscription_expired")
    case 401, 403: return .rejected(code: "vapid_refused", detail: detail)
    case 413: return .rejected(code: "payload_too_large", detail: detail)
    case 408: return response.unavailable(now: now)
    case 429: return .throttled(.provider, retryAfterMilliseconds: response.retryAfterMilliseconds(now: now))
    case 300...399:
      return .rejected(code: "redirected", detail: "the push service redirects; a device subscribes again")
    case 400...499: return .rejected(code: "status_\(response.status)", detail: detail)
    default: return response.unavailable(now: now)
    }
  }

  func shutDown() async {
    let connections = state.withLock { state in
      defer { state.connections = [:] }
      return state.connections.values.map(\.connection)
    }
    for connection in connections { await connection.endpoint.shutDown() }
  }
}

/// Voluntary Application Server Identification (RFC 8292).
package enum VAPID {
  /// Lifetime of a token: at most 24 h (RFC 8292 section 2).
  static let lifetimeSeconds: Int64 = 12 * 3_600
  /// How long a token is used: the clocks of services may differ.
  static let usableMilliseconds = lifetimeSeconds * 1_000 / 2

  private struct Claims: JWTPayload {
    var aud: String
    var exp: Int64
    var sub: String

    /// Verify nothing: these claims are only created here.
    func verify(using algorithm: some JWTAlgorithm) throws {}
  }

  /// Return the value of `authorization` (RFC 8292 section 3).
  ///
  /// - Parameters:
  ///   - subject: `mailto:` or `https:` URL of the sender's operator.
  ///   - audience: the endpoint's origin.
  ///   - now: in milliseconds since 1970.
  package static func authorization(
    key: P256.Signing.PrivateKey,
    subject: String,
    audience: String,
    now: Int64
  ) async throws -> String {
    let keys = JWTKeyCollection()
    await keys.add(ecdsa: try ES256PrivateKey(backing: key))
    let claims = Claims(aud: audience, exp: now / 1_000 + lifetimeSeconds, sub: subject)
    return "vapid t=\(try await keys.sign(claims)), k=\(publicKey(key))"
  }

  /// The public key as `k`, and as browsers' `applicationServerKey` takes it.
  package static func publicKey(_ key: P256.Signing.PrivateKey) -> String {
    Base64URL.text(key.publicKey.x963Representation)
  }
}
