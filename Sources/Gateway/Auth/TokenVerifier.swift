internal import Foundation
internal import JWTKit
internal import ReceiptModel

/// What keys tokens may be signed with.
package struct TokenKeys: Sendable, Equatable {
  /// HS256 secrets of at least 32 bytes, the current one first (RFC 7518 section 3.2).
  package var secrets: [[UInt8]]
  /// A JSON Web Key Set (RFC 7517) with keys for RS256, PS256, ES256 or EdDSA, each with a `kid`; nil for none. Keys of
  /// other kinds are passed over.
  package var keySet: String?
  /// What tokens have to say.
  package var policy = TokenPolicy()

  package init(secrets: [[UInt8]] = [], keySet: String? = nil, policy: TokenPolicy = TokenPolicy()) {
    self.secrets = secrets
    self.keySet = keySet
    self.policy = policy
  }
}

/// Verifies tokens through jwt-kit. Each verification takes some 13 µs and a hop to an actor, so it is done
/// once per token and event loop: see ``TokenCache``.
package struct TokenVerifier: Sendable {
  /// A longer token is refused before anything is done with it.
  package static let byteCountMax = 4 * 1024

  /// Shared secrets and public keys are apart, so that a public key can never be taken for a secret whatever
  /// the token's header says. Collections for HS256 hold one secret each: jwt-kit would hide which of several
  /// had failed.
  private let secrets: [JWTKeyCollection]
  private let publicKeys: KeySet?
  private let policy: TokenPolicy

  /// Keys of the set that no token is verified with.
  package var passedOver: [PassedOverKey] { publicKeys?.passedOver ?? [] }

  /// - Throws: where the key set does not parse or has no key that can be used.
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

  /// Why a token need not be verified: it is not of the form of a JWT, or its algorithm is not among those
  /// that there are keys for. Nil: its signature and its claims decide.
  package func refusal(ofForm token: RawSpan) -> ProblemCode? {
    do {
      _ = try candidates(Self.header(Self.parts(of: token.withUnsafeBytes { Array($0) })[0]))
      return nil
    } catch {
      return error.code
    }
  }

  /// Whom a token speaks for. Its times are not looked at here: they are the cache's to check, at each use.
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

  /// The collections one of which has to hold the token's key.
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
        // The signature is right and the claims are not of their types.
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

  /// Whole seconds of `iat`, rounded down: a token is revoked rather than not by the fraction of a second. What is
  /// no date of ours, before 1970 or beyond the frames' 32 bits (milliseconds, in most cases), says nothing, and
  /// so falls to any revocation; were it taken at its word, none would ever reach it. A date that is merely ahead
  /// of this machine's clock is the issuer's to know (RFC 7519 section 4.1.6 asks for no check).
  static func issued(_ iat: Double?) -> UInt32 {
    guard let iat else { return 0 }
    return UInt32(exactly: iat.rounded(.down)) ?? 0
  }

  /// A NumericDate (RFC 7519 section 2) may have a fraction; what Int64 cannot hold means never.
  private static func milliseconds(_ seconds: Double?) -> Int64? {
    guard let seconds else { return nil }
    return Int64(exactly: (seconds * 1_000).rounded(.down)) ?? (seconds > 0 ? .max : .min)
  }

  /// Header, claims and signature, as they stand in the token.
  private static func parts(of token: [UInt8]) throws(TokenRefusal) -> [ArraySlice<UInt8>] {
    let parts = token.split(separator: UInt8(ascii: "."), omittingEmptySubsequences: false)
    guard parts.count == 3, parts.allSatisfy(isBase64URL) else { throw TokenRefusal(.tokenMalformed) }
    return parts
  }

  /// jwt-kit checks a signature with the key that it has whatever `alg` says, so `alg` is looked at first.
  private static func header(_ part: ArraySlice<UInt8>) throws(TokenRefusal) -> TokenHeader {
    let tape = JSONTape(limits: jsonLimits)
    guard let bytes = base64URLDecoded(part), let object = try? tape.parse(bytes.span.bytes),
      hasDifferentNames(object), let algorithm = object.member("alg")?.string
    else { throw TokenRefusal(.tokenMalformed) }
    // RFC 7515 section 4.1.11: an extension that must be understood and is not refuses the token.
    if let extensions = object.member("crit"), !extensions.isNull { throw TokenRefusal(.tokenMalformed) }
    return TokenHeader(alg: algorithm.withUnsafeBytes { String(decoding: $0, as: UTF8.self) })
  }

  private static func hasUnambiguousClaims(_ part: ArraySlice<UInt8>) -> Bool {
    let tape = JSONTape(limits: jsonLimits)
    guard let bytes = base64URLDecoded(part), let object = try? tape.parse(bytes.span.bytes) else {
      return false
    }
    return hasDifferentNames(object)
  }

  private static let jsonLimits = JSONLimits(tokenMax: 4096, keptByteMax: 0)

  /// Whether this is an object whose names are all different: every reader of it sees the same then (RFC 7519 section
  /// 4). Foundation would take one of equal names, and UTF-16 and UTF-32 as well, which RFC 8259 section 8.1 rules out.
  private static func hasDifferentNames(_ object: JSONValue) -> Bool {
    guard object.kind == .object else { return false }
    var names: Set<[UInt8]> = []
    var members = object.members
    while let member = members.next() {
      if !names.insert(member.name.withUnsafeBytes { Array($0) }).inserted { return false }
    }
    return true
  }

  /// Whether these are the characters of base64url without padding, and as many as bytes give.
  private static func isBase64URL(_ bytes: ArraySlice<UInt8>) -> Bool {
    bytes.count % 4 != 1
      && bytes.allSatisfy { byte in
        switch byte {
        case UInt8(ascii: "A")...UInt8(ascii: "Z"), UInt8(ascii: "a")...UInt8(ascii: "z"),
          UInt8(ascii: "0")...UInt8(ascii: "9"), UInt8(ascii: "-"), UInt8(ascii: "_"):
          true
        default: false
        }
      }
  }

  private static func base64URLDecoded(_ bytes: ArraySlice<UInt8>) -> [UInt8]? {
    var text = Data(capacity: bytes.count + 3)
    for byte in bytes {
      switch byte {
      case UInt8(ascii: "-"): text.append(UInt8(ascii: "+"))
      case UInt8(ascii: "_"): text.append(UInt8(ascii: "/"))
      default: text.append(byte)
      }
    }
    while text.count % 4 != 0 { text.append(UInt8(ascii: "=")) }
    return Data(base64Encoded: text).map { Array($0) }
  }
}

/// Why a token is refused: one of the 401 codes.
package struct TokenRefusal: Error, Equatable, Sendable {
  package let code: ProblemCode
  package init(_ code: ProblemCode) { self.code = code }
}

private struct TokenHeader {
  var alg: String
}

/// The claims that this service reads. Times are checked by ``Caller/refusal(at:)``.
private struct TokenClaims: JWTPayload, IssuedClaims {
  // The names are the claims' own.
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
