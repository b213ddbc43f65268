internal import JWTKit

/// What a token has to say beside being signed by a key that is trusted (RFC 7519 section 4.1; docs/tokens.md). The
/// default asks for nothing.
package struct TokenPolicy: Sendable, Equatable {
  /// `iss` has to be one of these; empty: it is not looked at.
  package var issuers: [String] = []
  /// `aud` has to name one of these; empty: it is not looked at.
  package var audiences: [String] = []
  /// A token is expired so many seconds after its `iat`; nil: by its `exp` alone.
  package var secondsMax: Double?
  /// Whether a token needs an `exp`.
  package var requiresExpiry = false

  package init() {}

  /// Why claims are refused; nil where they may be used.
  func refusal(of claims: some IssuedClaims) -> ProblemCode? {
    if !issuers.isEmpty, !issuers.contains(claims.iss ?? "") { return .tokenIssuerNotAllowed }
    if !audiences.isEmpty, !(claims.aud?.value ?? []).contains(where: audiences.contains) {
      return .tokenAudienceNotAllowed
    }
    if requiresExpiry, claims.exp == nil { return .tokenWithoutExpiry }
    if secondsMax != nil, claims.iat == nil { return .tokenWithoutIssueTime }
    return nil
  }

  /// How far ahead of this clock a token's `iat` may be where its age counts, in seconds.
  static let issuedAheadMax: Double = 60

  /// When a token begins: by its own `nbf`, and, where its age counts, when it was issued: it would be young for ever.
  func start(_ claims: some IssuedClaims) -> Double? {
    guard secondsMax != nil, let issued = claims.iat else { return claims.nbf }
    return max(claims.nbf ?? -.infinity, issued - Self.issuedAheadMax)
  }

  /// When a token ends, in seconds since 1970: by its own `exp`, or so long after it was issued, whichever is earlier.
  func end(_ claims: some IssuedClaims) -> Double? {
    guard let secondsMax, let issued = claims.iat else { return claims.exp }
    return min(claims.exp ?? .infinity, issued + secondsMax)
  }
}

/// The claims that say where a token comes from, and for how long it is good.
protocol IssuedClaims {
  var iss: String? { get }
  var aud: AudienceClaim? { get }
  var exp: Double? { get }
  var nbf: Double? { get }
  var iat: Double? { get }
}
