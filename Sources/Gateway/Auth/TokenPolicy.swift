internal import JWTKit

/// The claims that a token needs besides a trusted signature (RFC 7519 section 4.1; docs/tokens.md). The default
/// requires none.
package struct TokenPolicy: Sendable, Equatable {
  /// Accepted values of `iss`; empty: any.
  package var issuers: [String] = []
  /// Accepted values of `aud`, one of which a token must name; empty: any.
  package var audiences: [String] = []
  /// Maximum age of a token in seconds from its `iat`; nil: only `exp` limits it.
  package var secondsMax: Double?
  /// Whether a token must have an `exp`.
  package var requiresExpiry = false

  package init() {}

  /// Return why the claims are refused; nil if they are accepted.
  func refusal(of claims: some IssuedClaims) -> ProblemCode? {
    if !issuers.isEmpty, !issuers.contains(claims.iss ?? "") { return .tokenIssuerNotAllowed }
    if !audiences.isEmpty, !(claims.aud?.value ?? []).contains(where: audiences.contains) {
      return .tokenAudienceNotAllowed
    }
    if requiresExpiry, claims.exp == nil { return .tokenWithoutExpiry }
    if secondsMax != nil, claims.iat == nil { return .tokenWithoutIssueTime }
    return nil
  }

  /// How far a token's `iat` may be ahead of this clock when its age is limited, in seconds.
  static let issuedAheadMax: Double = 60

  /// Return when a token becomes valid, in seconds since 1970: at its `nbf`. If its age is limited, also not more than
  /// ``issuedAheadMax`` before its `iat`: a far future `iat` would defeat the limit.
  func start(_ claims: some IssuedClaims) -> Double? {
    guard secondsMax != nil, let issued = claims.iat else { return claims.nbf }
    return max(claims.nbf ?? -.infinity, issued - Self.issuedAheadMax)
  }

  /// Return when a token expires, in seconds since 1970: at its `exp` or at the maximum age, whichever is earlier.
  func end(_ claims: some IssuedClaims) -> Double? {
    guard let secondsMax, let issued = claims.iat else { return claims.exp }
    return min(claims.exp ?? .infinity, issued + secondsMax)
  }
}

/// The claims about a token's issuer, audience and times.
protocol IssuedClaims {
  var iss: String? { get }
  var aud: AudienceClaim? { get }
  var exp: Double? { get }
  var nbf: Double? { get }
  var iat: Double? { get }
}
