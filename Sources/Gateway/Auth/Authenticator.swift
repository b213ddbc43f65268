package import HTTP2Session
package import NIOCore
package import Operations

/// Token authentication of one event loop: the cache, and the verifications in progress.
///
/// A cached token is answered at once. An unknown token is verified once; only the requests that carry it wait
/// meanwhile.
package final class Authenticator {
  /// The cached result for a credential.
  package enum Verdict {
    case caller(Caller)
    case refused(ProblemCode)
    /// The token must be verified first: the request waits.
    case unknown
  }

  /// Callback with the result for a waiting request.
  package typealias Finished = (RequestAwaitingVerification, Result<Caller, TokenRefusal>) -> Void

  private let eventLoop: any EventLoop
  private var verifier: TokenVerifier
  /// How often the verifier was replaced. A verification by an earlier verifier is repeated.
  private var generation = 0
  let revokedTokens: RevokedTokens
  private let waitingMax: Int
  private let waitingPerOriginMax: Int
  private var cache: TokenCache
  private var waiting: [[UInt8]: [RequestAwaitingVerification]] = [:]
  private(set) var waitingCount = 0
  /// Waiting requests by origin.
  private var waitingPerOrigin: [TokenOrigin: Int] = [:]

  package init(
    eventLoop: any EventLoop,
    verifier: TokenVerifier,
    revokedTokens: RevokedTokens,
    limits: GatewayLimits,
    seed: UInt64
  ) {
    self.revokedTokens = revokedTokens
    self.eventLoop = eventLoop
    self.verifier = verifier
    self.waitingMax = limits.waitingVerifications
    self.waitingPerOriginMax = limits.waitingVerificationsPerOrigin
    self.cache = TokenCache(capacity: limits.cachedTokens, seed: seed)
  }

  /// The cached tokens. Before new keys are applied, they are verified with these.
  var cachedTokens: [[UInt8]] { cache.tokens }

  /// Replace the keys. A token that only the old keys verify is no longer accepted.
  ///
  /// - Parameter verified: tokens that the new verifier has already verified; their next request need not wait.
  func replace(_ verifier: TokenVerifier, verified: [(token: [UInt8], caller: Caller)], now: Int64) {
    self.verifier = verifier
    generation += 1
    cache.removeAll()
    for (token, caller) in verified where caller.expiresAt > now { cache.insert(token, caller, now: now) }
  }

  /// Number of cached tokens.
  package var cachedCount: Int { cache.count }

  /// Extract the token of an `authorization` header, as in `Bearer eyJ…` (RFC 6750 section 2.1; the scheme is
  /// case-insensitive, RFC 9110 section 11.1).
  @_lifetime(copy header)
  package static func token(of header: RawSpan) throws(Problem) -> RawSpan {
    let scheme: StaticString = "bearer "
    guard header.byteCount > 0 else { throw Problem(.tokenMissing) }
    guard header.byteCount >= scheme.utf8CodeUnitCount else { throw Problem(.tokenMissing) }
    for at in 0..<scheme.utf8CodeUnitCount {
      let byte = header.unsafeLoad(fromByteOffset: at, as: UInt8.self)
      let lower = byte >= UInt8(ascii: "A") && byte <= UInt8(ascii: "Z") ? byte | 0x20 : byte
      guard lower == scheme.utf8Start[at] else { throw Problem(.tokenMissing) }
    }
    var start = scheme.utf8CodeUnitCount
    while start < header.byteCount, header.unsafeLoad(fromByteOffset: start, as: UInt8.self) == 0x20 {
      start += 1
    }
    let token = header.extracting(start..<header.byteCount)
    guard token.byteCount > 0 else { throw Problem(.tokenMissing) }
    guard token.byteCount <= TokenVerifier.byteCountMax else { throw Problem(.tokenTooLong) }
    return token
  }

  /// Return the token of a request that cannot have headers, such as a browser's EventSource: `access_token` (RFC 6750
  /// section 2.3).
  @_lifetime(copy query)
  static func token(ofQuery query: RawSpan, _ scratch: PathScratch) throws(Problem) -> RawSpan {
    var reader = QueryReader(query, scratch)
    while let parameter = try reader.next() {
      guard parameter.name.equals("access_token"), !parameter.value.isEmpty else { continue }
      guard parameter.value.byteCount <= TokenVerifier.byteCountMax else { throw Problem(.tokenTooLong) }
      return _overrideLifetime(parameter.value, copying: query)
    }
    throw Problem(.tokenMissing)
  }

  /// Look up a token at `now`, in milliseconds since 1970. A token that no key could verify is refused here, so that
  /// it does not count among the waiting requests.
  package func verdict(of token: RawSpan, now: Int64) -> Verdict {
    guard let caller = cache.find(token) else {
      return verifier.refusal(ofForm: token).map { .refused($0) } ?? .unknown
    }
    if let refusal = refusal(of: caller, now: now) { return .refused(refusal) }
    return .caller(caller)
  }

  /// Return why the caller's token is refused at `now`: its times, or its revoked id; nil if it is valid.
  package func refusal(of caller: Caller, now: Int64) -> ProblemCode? {
    caller.refusal(at: now) ?? revokedTokens.refusal(of: caller.tokenID)
  }

  /// Verify a token and then call `finished` for the request, on the event loop. Requests with the same token share
  /// one verification.
  ///
  /// - Throws: `authentication_busy` where too many requests wait, in total or of this origin.
  package func waitForVerification(
    _ request: RequestAwaitingVerification,
    token: RawSpan,
    now: @escaping () -> Int64,
    finished: @escaping Finished,
    allFinished: @escaping () -> Void
  ) throws(Problem) {
    guard waitingCount < waitingMax else { throw Problem(.authenticationBusy) }
    let count = waitingPerOrigin[request.origin, default: 0]
    guard request.origin == .unknown || count < waitingPerOriginMax else {
      throw Problem(.authenticationBusy)
    }
    waitingPerOrigin[request.origin] = count + 1
    waitingCount += 1
    let token = token.withUnsafeBytes { Array($0) }
    if waiting[token] != nil {
      waiting[token]!.append(request)
      return
    }
    waiting[token] = [request]
    verify(token, now, finished, allFinished)
  }

  private func verify(
    _ token: [UInt8],
    _ now: @escaping () -> Int64,
    _ finished: @escaping Finished,
    _ allFinished: @escaping () -> Void
  ) {
    let bound = NIOLoopBound((self, now, finished, allFinished), eventLoop: eventLoop)
    let (verifier, eventLoop, generation) = (verifier, eventLoop, generation)
    Task {
      let result = await verifier.verify(token)
      eventLoop.execute {
        let (authenticator, now, finished, allFinished) = bound.value
        guard generation == authenticator.generation else {
          return authenticator.verify(token, now, finished, allFinished)
        }
        authenticator.verified(token, result, now: now(), finished: finished)
        allFinished()
      }
    }
  }

  private func verified(
    _ token: [UInt8],
    _ result: Result<Caller, TokenRefusal>,
    now: Int64,
    finished: Finished
  ) {
    guard let requests = waiting.removeValue(forKey: token) else { return }
    waitingCount -= requests.count
    for request in requests {
      let count = waitingPerOrigin[request.origin, default: 1] - 1
      waitingPerOrigin[request.origin] = count == 0 ? nil : count
    }
    var result = result
    if case .success(let caller) = result {
      if let refusal = refusal(of: caller, now: now) {
        result = .failure(TokenRefusal(refusal))
        // A token that becomes valid later will be used again; an expired one would only occupy an entry.
        if refusal.isTransient { cache.insert(token, caller, now: now) }
      } else {
        cache.insert(token, caller, now: now)
      }
    }
    for request in requests { finished(request, result) }
  }
}

/// A request that waits for token verification.
package struct RequestAwaitingVerification: Sendable {
  /// The connection's index in the loop's ``ConnectionTable``.
  package var connection: ConnectionIndex
  package var stream: HTTP2StreamHandle
  /// The party whose waiting requests are limited: the connection, or the client that a proxy's connection names.
  package var origin: TokenOrigin
  /// Whether its body has not arrived; the request is handled again once it has.
  package var awaitsBody: Bool

  package init(
    connection: ConnectionIndex,
    stream: HTTP2StreamHandle,
    origin: TokenOrigin,
    awaitsBody: Bool = false
  ) {
    self.connection = connection
    self.stream = stream
    self.origin = origin
    self.awaitsBody = awaitsBody
  }
}

/// The origin of a token that is being verified.
package enum TokenOrigin: Hashable, Sendable {
  /// A connection of one client.
  case connection(ConnectionIndex)
  /// A client on a connection that it shares with others.
  case address(PeerAddress)
  /// A proxy's connection that does not name the client.
  case unknown
}
