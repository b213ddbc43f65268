/// The identity and times of a verified token. Immutable, and shared by the token cache, connections and pending
/// requests.
package final class Caller: Sendable {
  /// The user; empty for a server.
  package let userID: [UInt8]
  /// Whether it is a server, which has all rights and names the user that it acts for.
  package let isServer: Bool
  /// Whether it may only read: a session of the console (``ConsoleSessions``).
  package let isReadOnly: Bool
  /// When the token expires, in milliseconds since 1970; `Int64.max` where it has no expiry.
  package let expiresAt: Int64
  /// When the token becomes valid, in milliseconds since 1970; `Int64.min` where it does not say.
  package let notBefore: Int64
  /// When a user's token was issued, in seconds since 1970; 0 where the token does not say, nil for no user. Each
  /// request to the store carries it, and the store knows whose tokens were revoked (Proto/frames.md, "Frame").
  package let issued: UInt32?
  /// Hash of the identity, never 0: the same for all tokens of a user, one for each token of a server. Per-caller
  /// limits use it as their key (``RateTable``).
  package let key: UInt64
  /// The token's id, which can be revoked (``RevokedTokens``); nil where it has none.
  package let tokenID: TokenID?

  /// - Parameters:
  ///   - token: the signed token of a server.
  ///   - given: the key of the caller that has opened a session; nil: one of its own.
  package init(
    userID: [UInt8],
    isServer: Bool,
    isReadOnly: Bool = false,
    expiresAt: Int64 = .max,
    notBefore: Int64 = .min,
    issued: UInt32 = 0,
    token: [UInt8] = [],
    tokenID: TokenID? = nil,
    key given: UInt64? = nil
  ) {
    var hasher = Hasher()
    // Without the signature, which can be written in several ways.
    hasher.combine(
      isServer ? Array(token.prefix(upTo: token.lastIndex(of: UInt8(ascii: ".")) ?? token.endIndex)) : userID
    )
    key = given ?? UInt64(bitPattern: Int64(hasher.finalize())) | 1
    self.tokenID = tokenID
    self.issued = isServer || userID.isEmpty ? nil : issued
    self.userID = userID
    self.isServer = isServer
    self.isReadOnly = isReadOnly
    self.expiresAt = expiresAt
    self.notBefore = notBefore
  }

  /// A caller without a token.
  static let unauthenticated = Caller(userID: [], isServer: false)

  /// The bytes of ``userID``, as they are compared and sent.
  package var user: RawSpan {
    @_lifetime(borrow self)
    get {
      // The array's bytes are on the heap and never change. They live as long as this object, not just as long as this
      // copy.
      let bytes = userID
      return _overrideLifetime(bytes.span.bytes, borrowing: self)
    }
  }

  /// Return why the token may not be used at `now`; nil if it may. RFC 7519 sections 4.1.4 and 4.1.5, without leeway.
  package func refusal(at now: Int64) -> ProblemCode? {
    if now >= expiresAt { return .tokenExpired }
    if now < notBefore { return .tokenNotYetValid }
    return nil
  }
}

extension ProblemCode {
  /// Whether a token that is refused with this code may be accepted later.
  var isTransient: Bool { self == .tokenNotYetValid || self == .tokenRevoked || self == .storeUnavailable }
}

/// Results of the tokens that a connection has shown.
struct ConnectionCredentials {
  /// The credential checked last; 0: none. HTTP/2 gives equal headers of one connection equal numbers, so the next
  /// request with the same credential skips the token lookup.
  private var identity: UInt32 = 0
  /// The caller of that credential, whose times are still checked; nil where it was refused for good.
  private var caller: Caller?
  private var refusal = ProblemCode.tokenMissing
  private var isAuthenticated = false
  /// Consecutive refused tokens since the last valid one.
  private(set) var badTokens = 0

  /// Look up the last credential, if it is this one.
  @inline(__always)
  func verdict(identity: UInt32) -> Authenticator.Verdict {
    guard identity != 0, self.identity == identity else { return .unknown }
    if let caller { return .caller(caller) }
    return .refused(refusal)
  }

  /// Cache the result for a credential.
  mutating func remember(identity: UInt32, _ result: Result<Caller, TokenRefusal>) {
    guard identity != 0 else { return }
    self.identity = identity
    switch result {
    case .success(let caller): self.caller = caller
    case .failure(let refusal):
      caller = nil
      self.refusal = refusal.code
    }
  }

  /// Clear the cached result, for instance after the keys have changed.
  mutating func clear() {
    identity = 0
    caller = nil
  }

  /// Record a valid token.
  ///
  /// - Returns: whether it is the connection's first.
  mutating func recordAuthenticated() -> Bool {
    badTokens = 0
    defer { isAuthenticated = true }
    return !isAuthenticated
  }

  /// Count a refused token.
  mutating func recordBadToken() { badTokens += 1 }
}
