package import HTTP2Session
package import NIOCore
package import Operations

/// Who waits for the verification of a token.
package struct ParkedRequest: Sendable {
  /// The connection's place in the loop's ``ConnectionTable``.
  package var connection: UInt32
  package var stream: HTTP2StreamHandle
  /// Whose checks are bounded: the connection, or the client that it names where it is a proxy's.
  package var origin: TokenOrigin
}

/// Whose tokens are being verified.
package enum TokenOrigin: Hashable, Sendable {
  /// A connection of one client.
  case connection(UInt32)
  /// A client on a connection that it shares with others.
  case address(PeerAddress)
  /// A proxy's connection that does not say whose a request is.
  case unknown
}

/// One event loop's authentication: the cache, and the verifications that are under way.
///
/// A token that is in the cache is answered at once. Another one parks the requests that carry it, only
/// these, while it is verified once.
package final class Authenticator {
  /// What is known of a credential.
  package enum Verdict {
    case caller(Caller)
    case refused(ProblemCode)
    /// It has to be verified first: park the request.
    case unknown
  }

  /// What came of a parked request's token.
  package typealias Finished = (ParkedRequest, Result<Caller, TokenRefusal>) -> Void

  private let eventLoop: any EventLoop
  private var verifier: TokenVerifier
  /// How often the verifier was replaced: what one of before has found counts no more.
  private var generation = 0
  let revokedTokens: RevokedTokens
  private let parkedMax: Int
  private let parkedPerOrigin: Int
  private var cache: TokenCache
  private var parked: [[UInt8]: [ParkedRequest]] = [:]
  private(set) var parkedCount = 0
  /// Requests that wait, by whose they are.
  private var waiting: [TokenOrigin: Int] = [:]

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
    self.parkedMax = limits.parkedRequests
    self.parkedPerOrigin = limits.parkedRequestsPerOrigin
    self.cache = TokenCache(capacity: limits.cachedTokens, seed: seed)
  }

  /// The tokens that are remembered, to be verified with other keys before these are taken.
  var cachedTokens: [[UInt8]] { cache.tokens }

  /// Takes other keys. No token is accepted any more that only the keys of before verify.
  ///
  /// - Parameter verified: tokens that the new verifier has verified already: their next request need not wait.
  func replace(_ verifier: TokenVerifier, verified: [(token: [UInt8], caller: Caller)], now: Int64) {
    self.verifier = verifier
    generation += 1
    cache.removeAll()
    for (token, caller) in verified where caller.expiresAt > now { cache.insert(token, caller, now: now) }
  }

  /// Tokens in the cache.
  package var cachedCount: Int { cache.count }

  /// The token of an `authorization` header, as in `Bearer eyJ…` (RFC 6750 section 2.1; the scheme's case
  /// does not matter, RFC 9110 section 11.1).
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

  /// What is known of a token at `now`, in milliseconds since 1970. One that no key could make good is
  /// refused here, so that it takes no place among those that wait.
  package func verdict(of token: RawSpan, now: Int64) -> Verdict {
    guard let caller = cache.find(token) else {
      return verifier.refusal(ofForm: token).map { .refused($0) } ?? .unknown
    }
    if let refusal = refusal(of: caller, now: now) { return .refused(refusal) }
    return .caller(caller)
  }

  /// Why the caller's token may not be used at `now`, by its times or because it is revoked by its id; nil if it may.
  package func refusal(of caller: Caller, now: Int64) -> ProblemCode? {
    caller.refusal(at: now) ?? revokedTokens.refusal(of: caller.tokenID)
  }

  /// Has a token verified and calls `finished` for the request then, on the event loop. Requests with a token
  /// that is being verified already wait with it.
  ///
  /// - Throws: `authentication_busy` where too many requests wait, of all or of this origin.
  package func park(
    _ request: ParkedRequest,
    token: RawSpan,
    now: @escaping () -> Int64,
    finished: @escaping Finished,
    allFinished: @escaping () -> Void
  ) throws(Problem) {
    guard parkedCount < parkedMax else { throw Problem(.authenticationBusy) }
    let count = waiting[request.origin, default: 0]
    guard request.origin == .unknown || count < parkedPerOrigin else { throw Problem(.authenticationBusy) }
    waiting[request.origin] = count + 1
    parkedCount += 1
    let token = token.withUnsafeBytes { Array($0) }
    if parked[token] != nil {
      parked[token]!.append(request)
      return
    }
    parked[token] = [request]
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
    guard let requests = parked.removeValue(forKey: token) else { return }
    parkedCount -= requests.count
    for request in requests {
      let count = waiting[request.origin, default: 1] - 1
      waiting[request.origin] = count == 0 ? nil : count
    }
    var result = result
    if case .success(let caller) = result {
      if let refusal = refusal(of: caller, now: now) {
        result = .failure(TokenRefusal(refusal))
        // A token that is valid later will be asked for again; an expired one would only take a place.
        if refusal.mayPass { cache.insert(token, caller, now: now) }
      } else {
        cache.insert(token, caller, now: now)
      }
    }
    for request in requests { finished(request, result) }
  }
}
