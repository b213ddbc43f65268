/// Who a verified token speaks for. Immutable and shared: the token cache, connections and parked requests
/// refer to it.
package final class Caller: Sendable {
  /// The user; empty for a server.
  package let userID: [UInt8]
  /// Whether it is a server, which may do everything and names the user that it acts for.
  package let isServer: Bool
  /// When the token ends, in milliseconds since 1970; `Int64.max` where it does not say.
  package let expiresAt: Int64
  /// When it begins; `Int64.min` where it does not say.
  package let notBefore: Int64
  /// When a user's token was issued, in seconds since 1970; 0 where it does not say, nil where this is no user.
  /// Goes with each request to the store, which knows whose tokens were revoked (Proto/frames.md, "Frame").
  package let issued: UInt32?
  /// Who this is, as a hash that is never 0: one for all tokens of a user, one for each token of a server. What is
  /// bounded for each caller goes by it (``RateTable``).
  package let key: UInt64
  /// The token's id, by which it may be revoked (``RevokedTokens``); nil where it has none.
  package let tokenID: TokenID?

  /// - Parameter token: a server's, as it is signed.
  package init(
    userID: [UInt8],
    isServer: Bool,
    expiresAt: Int64 = .max,
    notBefore: Int64 = .min,
    issued: UInt32 = 0,
    token: [UInt8] = [],
    tokenID: TokenID? = nil
  ) {
    var hasher = Hasher()
    hasher.combine(isServer ? token : userID)
    key = UInt64(bitPattern: Int64(hasher.finalize())) | 1
    self.tokenID = tokenID
    self.issued = isServer || userID.isEmpty ? nil : issued
    self.userID = userID
    self.isServer = isServer
    self.expiresAt = expiresAt
    self.notBefore = notBefore
  }

  /// Somebody without a token.
  static let nobody = Caller(userID: [], isServer: false)

  /// ``userID`` as it is compared and sent.
  package var user: RawSpan {
    @_lifetime(borrow self)
    get {
      // The array's bytes are on the heap and never change: they live as long as this object, not as this
      // copy.
      let bytes = userID
      return _overrideLifetime(bytes.span.bytes, borrowing: self)
    }
  }

  /// Why the token may not be used at `now`; nil if it may. RFC 7519 sections 4.1.4 and 4.1.5, without
  /// leeway.
  package func refusal(at now: Int64) -> ProblemCode? {
    if now >= expiresAt { return .tokenExpired }
    if now < notBefore { return .tokenNotYetValid }
    return nil
  }
}

extension ProblemCode {
  /// Whether a token that is refused with this code may be accepted later.
  var mayPass: Bool { self == .tokenNotYetValid || self == .tokenRevoked || self == .storeUnavailable }
}
