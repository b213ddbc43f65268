internal import Foundation
internal import JWTKit
internal import ReceiptModel

/// The keys and the policy for verifying tokens.
package struct TokenKeys: Sendable, Equatable {
  /// HS256 secrets of at least 32 bytes, the current one first (RFC 7518 section 3.2).
  package var secrets: [[UInt8]]
  /// A JSON Web Key Set (RFC 7517) with keys for RS256, PS256, ES256 or EdDSA, each with a `kid`; nil for none. Keys of
  /// other types are skipped.
  package var keySet: String?
  /// The claims that tokens must have.
  package var policy = TokenPolicy()

  package init(secrets: [[UInt8]] = [], keySet: String? = nil, policy: TokenPolicy = TokenPolicy()) {
    self.secrets = secrets
    self.keySet = keySet
    self.policy = policy
  }
}

/// Verifier of tokens, over jwt-kit. Each verification takes some 13 µs and a hop to an actor, so it runs once per
/// token and event loop: see ``TokenCache``.
package struct TokenVerifier: Sendable {
  /// Maximum size of a token in bytes; a longer one is refused unread.
  package static let byteCountMax = 4 * 1024

  /// Shared secrets and public keys are kept apart, so that a public key is never used as a secret, whatever the
  /// token's header says. Each HS256 collection holds one secret: with several, jwt-kit would hide which one failed.
  private let secrets: [JWTKeyCollection]
  private let publicKeys: KeySet?
  private let policy: TokenPolicy

  /// Skipped keys of the set.
  package var skippedKeys: [SkippedKey] { publicKeys?.skippedKeys ?? [] }

  /// - Throws: where the key set does not parse or has no usable key.
  package init(_ keys: TokenKeys) async throws {
    var secrets: [JWTKeyCollection] = []
    for secret in keys.secrets {
      let collection = JWTKeyCollection()
      await collection.add(hmac: HMACKey(from: secret), digestAlgorithm: .sha256)
      secrets.append(collection)
    }
    self.secrets = secrets
    policy = keys.policy
    if let keySet = keys.keySet {
      self.publicKeys = try await KeySet(keySet)
    } else {
      self.publicKeys = nil
    }
  }

  /// Return why a token is refused without verification: it is not in the form of a JWT, or no key has its algorithm.
  /// Nil: its signature and claims decide.
  package func refusal(ofForm token: RawSpan) -> ProblemCode? {
    do {
      _ = try candidates(Self.header(Self.parts(of: token.withUnsafeBytes { Array($0) })[0]))
      return nil
    } catch {
      return error.code
    }
  }

  /// Verify a token and return its caller. Times are not checked here but at each use.
  package func verify(_ token: [UInt8]) async -> Result<Caller, TokenRefusal> {
    guard token.count <= Self.byteCountMax else { return .failure(TokenRefusal(.tokenTooLong)) }
    do {
      let parts = try Self.parts(of: token)
      let header = try Self.header(parts[0])
      guard Self.hasUnambiguousClaims(parts[1]) else { throw TokenRefusal(.tokenMalformed) }
      let claims = try await verified(token, header)
      if let refusal = policy.refusal(of: claims) { return .failure(TokenRefusal(refusal)) }
      return .success(try caller(claims, token))
    } catch let refusal as TokenRefusal {
      return .failure(refusal)
    } catch {
      return .failure(TokenRefusal(.tokenMalformed))
    }
  }

  /// Return the collections that may hold the token's key.
  private func candidates(_ header: TokenHeader) throws(TokenRefusal) -> [JWTKeyCollection] {
    let candidates: [JWTKeyCollection]
    switch header.alg {
    case "HS256": candidates = secrets
    default: candidates = publicKeys?.collections[header.alg].map { [$0] } ?? []
    }
    guard !candidates.isEmpty else { throw TokenRefusal(.tokenAlgorithmNotAllowed) }
    return candidates
  }

  private func verified(_ token: [UInt8], _ header: TokenHeader) async throws -> TokenClaims {
    for keys in try candidates(header) {
      do {
        return try await keys.verify(token, as: TokenClaims.self)
      } catch let error as JWTError where error.errorType == .malformedToken {
        throw TokenRefusal(.tokenMalformed)
      } catch is DecodingError {
        // The signature is valid, but a claim has a wrong type.
        throw TokenRefusal(.tokenMalformed)
      } catch {
        continue
      }
    }
    throw TokenRefusal(.tokenSignatureInvalid)
  }

  private func caller(_ claims: TokenClaims, _ token: [UInt8]) throws -> Caller {
    let end = policy.end(claims)
    let start = policy.start(claims)
    let times = (expiresAt: Self.milliseconds(end) ?? .max, notBefore: Self.milliseconds(start) ?? .min)
    let tokenID = try Self.tokenID(claims.jti)
    if claims.server == true {
      return Caller(
        userID: [],
        isServer: true,
        expiresAt: times.expiresAt,
        notBefore: times.notBefore,
        token: token,
        tokenID: tokenID
      )
    }
    guard let user = claims.user_id ?? claims.sub else { throw TokenRefusal(.tokenWithoutUser) }
    let bytes = Array(user.utf8)
    guard Identifier.isUser(bytes.span.bytes) else { throw TokenRefusal(.tokenUserInvalid) }
    return Caller(
      userID: bytes,
      isServer: false,
      expiresAt: times.expiresAt,
      notBefore: times.notBefore,
      issued: Self.issued(claims.iat),
      tokenID: tokenID
    )
  }

  private static func tokenID(_ jti: String?) throws(TokenRefusal) -> TokenID? {
    guard let jti else { return nil }
    let bytes = Array(jti.utf8)
    guard TokenID.isValid(bytes.span.bytes) else { throw TokenRefusal(.tokenIDInvalid) }
    return TokenID(bytes)
  }

  /// Return the whole seconds of `iat`, rounded down, so that a revocation at a fraction of a second includes the
  /// token.
  /// An `iat` before 1970 or beyond the frames' 32 bits (usually milliseconds) counts as absent, and so any revocation
  /// applies; taken literally, no revocation would ever apply. An `iat` ahead of this machine's clock is accepted (RFC
  /// 7519 section 4.1.6 requires no check).
  static func issued(_ iat: Double?) -> UInt32 {
    guard let iat else { return 0 }
    return UInt32(exactly: iat.rounded(.down)) ?? 0
  }

  /// Convert a NumericDate (RFC 7519 section 2), which may have a fraction; a value beyond Int64 means never.
  private static func milliseconds(_ seconds: Double?) -> Int64? {
    guard let seconds else { return nil }
    return Int64(exactly: (seconds * 1_000).rounded(.down)) ?? (seconds > 0 ? .max : .min)
  }

  /// Split a token into header, claims and signature, and decode them.
  private static func parts(of token: [UInt8]) throws(TokenRefusal) -> [[UInt8]] {
    let base64 = Base64URL()
    var parts: [[UInt8]] = []
    for part in token.split(separator: UInt8(ascii: "."), omittingEmptySubsequences: false) {
      guard parts.count < 3, let bytes = base64.decode(part) else { throw TokenRefusal(.tokenMalformed) }
      parts.append(bytes)
    }
    guard parts.count == 3 else { throw TokenRefusal(.tokenMalformed) }
    return parts
  }

  /// Parse the header. jwt-kit verifies with whatever key it has, regardless of `alg`, so `alg` is checked first.
  private static func header(_ part: [UInt8]) throws(TokenRefusal) -> TokenHeader {
    let tape = JSONTape(limits: jsonLimits)
    guard let object = try? tape.parse(part.span.bytes), hasUniqueNames(object),
      let algorithm = object.member("alg")?.string
    else { throw TokenRefusal(.tokenMalformed) }
    // RFC 7515 section 4.1.11: a token with a critical extension that is not understood is refused.
    if let extensions = object.member("crit"), !extensions.isNull { throw TokenRefusal(.tokenMalformed) }
    return TokenHeader(alg: algorithm.withUnsafeBytes { String(decoding: $0, as: UTF8.self) })
  }

  private static func hasUnambiguousClaims(_ part: [UInt8]) -> Bool {
    let tape = JSONTape(limits: jsonLimits)
    guard let object = try? tape.parse(part.span.bytes) else { return false }
    return hasUniqueNames(object)
  }

  private static let jsonLimits = JSONLimits(tokenMax: 4096, keptByteMax: 0)

  /// Return whether this is an object without duplicate names, which every reader sees alike (RFC 7519 section 4).
  /// Foundation would accept duplicates, and also UTF-16 and UTF-32, which RFC 8259 section 8.1 rules out.
  private static func hasUniqueNames(_ object: JSONValue) -> Bool {
    guard object.kind == .object else { return false }
    var names: Set<[UInt8]> = []
    var members = object.members
    while let member = members.next() {
      if !names.insert(member.name.withUnsafeBytes { Array($0) }).inserted { return false }
    }
    return true
  }
}

/// The reason for refusing a token: one of the 401 codes.
package struct TokenRefusal: Error, Equatable, Sendable {
  package let code: ProblemCode
  package init(_ code: ProblemCode) { self.code = code }
}

private struct TokenHeader {
  var alg: String
}

/// The claims that this service reads. Times are checked by ``Caller/refusal(at:)``.
private struct TokenClaims: JWTPayload, IssuedClaims {
  // The properties have the claims' names.
  // swift-format-ignore: AlwaysUseLowerCamelCase
  var user_id: String?
  var sub: String?
  var server: Bool?
  var exp: Double?
  var nbf: Double?
  var iat: Double?
  var iss: String?
  var aud: AudienceClaim?
  var jti: String?

  func verify(using algorithm: some JWTAlgorithm) async throws {}
}

/// The claims that a token needs besides a trusted signature (RFC 7519 section 4.1; docs/api/tokens.md). The default
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
