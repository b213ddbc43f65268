package import HTTP2Session

/// Token authentication of one event loop: the cache, and the requests that wait until their token is verified. A pure
/// state machine: verifications to run come out, and each result goes in exactly once.
///
/// A cached token is answered at once. An unknown token is verified once; only the requests that carry it wait
/// meanwhile.
package struct Authenticator: ~Copyable {
  /// The cached result for a credential.
  package enum Verdict {
    case caller(Caller)
    case refused(ProblemCode)
    /// The token must be verified first: the request waits.
    case unknown
  }

  /// A verification to run; its result is for ``verified(_:_:now:)``.
  package struct Verification: Sendable {
    package let token: [UInt8]
    package let verifier: TokenVerifier
    /// ``Authenticator/generation`` when it began.
    fileprivate let generation: Int
  }

  package enum Action {
    /// The keys were replaced during the verification: run it again.
    case verify(Verification)
    /// Continue these requests with the result.
    case finish([RequestAwaitingVerification], Result<Caller, TokenRefusal>)
  }

  private var verifier: TokenVerifier
  /// How often the verifier was replaced. A verification by an earlier verifier is repeated.
  private var generation = 0
  private let revokedTokens: RevokedTokens
  private var cache: TokenCache
  private var waiting: WaitingQueue<HTTP2StreamHandle, RequestAwaitingVerification>
  /// The streams whose requests carry a token that is being verified; some have closed since.
  private var streamsByToken: [[UInt8]: [HTTP2StreamHandle]] = [:]

  package init(verifier: TokenVerifier, revokedTokens: RevokedTokens, limits: GatewayLimits, seed: UInt64) {
    self.verifier = verifier
    self.revokedTokens = revokedTokens
    cache = TokenCache(capacity: limits.cachedTokens, seed: seed)
    waiting = WaitingQueue(limit: limits.waiting.verifications, limitPerShare: limits.waiting.verificationsPerOrigin)
  }

  /// The cached tokens. Before new keys are applied, they are verified with these.
  var cachedTokens: [[UInt8]] { cache.tokens }

  /// Number of cached tokens.
  package var cachedCount: Int { cache.count }

  /// Requests that wait.
  package var waitingCount: Int { waiting.count }

  /// Replace the keys. A token that only the old keys verify is no longer accepted.
  ///
  /// - Parameter verified: tokens that the new verifier has already verified; their next request need not wait.
  mutating func replace(_ verifier: TokenVerifier, verified: [(token: [UInt8], caller: Caller)], now: Int64) {
    self.verifier = verifier
    generation += 1
    cache.removeAll()
    for (token, caller) in verified where caller.expiresAt > now { cache.insert(token, caller, now: now) }
  }

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
  package mutating func verdict(of token: RawSpan, now: Int64) -> Verdict {
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

  // MARK: Verification

  /// Let a request wait until its token is verified. Requests with the same token share one verification. A request
  /// whose body has arrived replaces its own that waited for the body.
  ///
  /// - Returns: the verification to run; nil: it runs already.
  /// - Throws: `authentication_busy` where too many requests wait, in total or of this origin.
  package mutating func waitForVerification(
    _ request: RequestAwaitingVerification,
    token: RawSpan
  ) throws(Problem) -> Verification? {
    waiting.cancel(request.stream)
    guard waiting.append(request, id: request.stream, share: request.origin) else {
      throw Problem(.authenticationBusy)
    }
    let token = token.bytes
    let isRunning = streamsByToken[token] != nil
    streamsByToken[token, default: []].append(request.stream)
    return isRunning ? nil : verification(of: token)
  }

  private func verification(of token: [UInt8]) -> Verification {
    Verification(token: token, verifier: verifier, generation: generation)
  }

  /// Cancel the request of a stream that has closed.
  mutating func cancel(_ stream: HTTP2StreamHandle) { waiting.cancel(stream) }

  /// Handle the result of a verification.
  package mutating func verified(
    _ verification: Verification,
    _ result: Result<Caller, TokenRefusal>,
    now: Int64
  ) -> Action {
    let token = verification.token
    guard verification.generation == generation else { return .verify(self.verification(of: token)) }
    let requests = (streamsByToken.removeValue(forKey: token) ?? []).compactMap { waiting.cancel($0) }
    guard case .success(let caller) = result else { return .finish(requests, result) }
    let refusal = refusal(of: caller, now: now)
    // A token that becomes valid later will be used again; an expired one would only occupy an entry.
    if refusal?.isTransient ?? true { cache.insert(token, caller, now: now) }
    return .finish(requests, refusal.map { .failure(TokenRefusal($0)) } ?? result)
  }
}

/// A request that waits for token verification.
package struct RequestAwaitingVerification: Sendable {
  /// The connection's index in the loop's ``ConnectionTable``.
  package let connection: ConnectionIndex
  package let stream: HTTP2StreamHandle
  /// Key of the party whose waiting requests are limited: the connection, or the client that a proxy's connection
  /// names; 0: a proxy's connection does not name the client.
  package let origin: UInt64
  /// Whether its body has not arrived; the request is handled again once it has.
  package let awaitsBody: Bool

  package init(connection: ConnectionIndex, stream: HTTP2StreamHandle, origin: UInt64, awaitsBody: Bool = false) {
    self.connection = connection
    self.stream = stream
    self.origin = origin
    self.awaitsBody = awaitsBody
  }
}
