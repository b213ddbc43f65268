import Crypto
import CryptoExtras
import Foundation
import HTTP2Session
import JWTKit
import Testing

@testable import Gateway

@Suite struct TokenVerifierTests {
  private func verifier(keySet: String? = nil) async throws -> TokenVerifier {
    let secrets = [Array(TestTokens.secret.utf8), Array(TestTokens.previousSecret.utf8)]
    return try await TokenVerifier(TokenKeys(secrets: secrets, keySet: keySet))
  }

  private func verdict(_ token: String, _ verifier: TokenVerifier) async -> String {
    switch await verifier.verify(Array(token.utf8)) {
    case .success(let caller):
      let identity = caller.isServer ? "server" : "user \(String(decoding: caller.userID, as: UTF8.self))"
      let end = caller.expiresAt == .max ? "" : " until \(caller.expiresAt)"
      let begin = caller.notBefore == .min ? "" : " from \(caller.notBefore)"
      return identity + begin + end
    case .failure(let refusal): return refusal.code.rawValue
    }
  }

  @Test func tokensAreAcceptedOrRefused() async throws {
    let verifier = try await verifier()
    let none =
      TestTokens.base64URL(#"{"alg":"none"}"#.utf8) + "." + TestTokens.base64URL(#"{"server":true}"#.utf8)
      + "."
    let good = TestTokens.user("alice")
    let parts = good.split(separator: ".")
    // The last character's two unused bits are 0. The next character in the alphabet has one of them set.
    let last = try #require(good.unicodeScalars.last.flatMap { Unicode.Scalar($0.value + 1) })
    let respelled = String(good.dropLast()) + String(Character(last))
    let table: [(String, String)] = [
      (good, "user alice"),
      (respelled, "token_malformed"),
      (TestTokens.server, "server"),
      (TestTokens.make(#"{"sub":"bob"}"#), "user bob"),
      (TestTokens.make(#"{"user_id":"a@b.c_d-e","sub":"bob"}"#), "user a@b.c_d-e"),
      (TestTokens.make(#"{"server":false,"user_id":"carol"}"#), "user carol"),
      (
        TestTokens.make(#"{"user_id":"alice","exp":1700000000.5,"nbf":1600000000}"#),
        "user alice from 1600000000000 until 1700000000500"
      ),
      (TestTokens.make(#"{"user_id":"alice","exp":1e300}"#), "user alice"),
      (TestTokens.make(#"{"user_id":"alice"}"#, secret: TestTokens.previousSecret), "user alice"),
      (
        TestTokens.make(#"{"user_id":"alice"}"#, secret: "another secret of thirty-two bytes"),
        "token_signature_invalid"
      ),
      (none, "token_algorithm_not_allowed"),
      (none + "AAAA", "token_algorithm_not_allowed"),
      (TestTokens.make(#"{"server":true}"#, header: #"{"alg":"none"}"#), "token_algorithm_not_allowed"),
      (TestTokens.make(#"{"server":true}"#, header: #"{"alg":"HS512"}"#), "token_algorithm_not_allowed"),
      (TestTokens.make(#"{"server":true}"#, header: #"{"alg":"RS256"}"#), "token_algorithm_not_allowed"),
      (TestTokens.make(#"{"server":true}"#, header: #"{"alg":"ES256"}"#), "token_algorithm_not_allowed"),
      (TestTokens.make(#"{"server":true}"#, header: #"{"alg":"hs256"}"#), "token_algorithm_not_allowed"),
      (TestTokens.make(#"{"server":true}"#, header: #"{"typ":"JWT"}"#), "token_malformed"),
      (
        TestTokens.make(#"{"server":true}"#, header: #"{"alg":"HS256","crit":["b64"],"b64":false}"#),
        "token_malformed"
      ),
      (TestTokens.make(#"{"server":true}"#, header: "no json"), "token_malformed"),
      (TestTokens.make("no json"), "token_malformed"),
      (TestTokens.make("[]"), "token_malformed"),
      (TestTokens.make(#"{"user_id":7}"#), "token_malformed"),
      (TestTokens.make(#"{"user_id":"alice","exp":"soon"}"#), "token_malformed"),
      (TestTokens.make(#"{"user_id":"alice","iat":"today"}"#), "token_malformed"),
      (TestTokens.make(#"{"server":true,"iat":true}"#), "token_malformed"),
      (TestTokens.make(#"{"server":"true"}"#), "token_malformed"),
      // Of equal names, some parsers use the first and others the last.
      (TestTokens.make(#"{"user_id":"alice","user_id":"bob"}"#), "token_malformed"),
      (TestTokens.make(#"{"user_id":"alice","user\u005fid":"bob"}"#), "token_malformed"),
      (
        TestTokens.make(#"{"server":true}"#, header: #"{"alg":"none","alg":"HS256"}"#), "token_malformed"
      ),
      (
        TestTokens.make(bytes: Array("{\"server\":true}".data(using: .utf16LittleEndian)!)), "token_malformed"
      ),
      (TestTokens.make(bytes: Array("{\"server\":true}".data(using: .utf32BigEndian)!)), "token_malformed"),
      (TestTokens.make(bytes: [0xEF, 0xBB, 0xBF] + Array(#"{"server":true}"#.utf8)), "token_malformed"),
      (TestTokens.make("{}"), "token_without_user"),
      (TestTokens.make(#"{"server":false}"#), "token_without_user"),
      (TestTokens.make(#"{"user_id":"a\u007Fb"}"#), "token_user_invalid"),
      (TestTokens.make(#"{"user_id":""}"#), "token_user_invalid"),
      (TestTokens.make(#"{"user_id":"\#(String(repeating: "u", count: 256))"}"#), "token_user_invalid"),
      ("", "token_malformed"), ("a", "token_malformed"), ("a.b", "token_malformed"),
      ("a.b.c", "token_malformed"),
      ("...", "token_malformed"), ("a.b.c.d", "token_malformed"), (good + ".", "token_malformed"),
      (String(parts[0] + "." + parts[1]) + ".", "token_signature_invalid"),
      (String(parts[0] + "." + parts[1] + ".!!!!"), "token_malformed"),
      (String(parts[0] + "." + parts[1] + "." + parts[2].dropLast(3)), "token_signature_invalid"),
      (good + String(repeating: "a", count: 4096), "token_too_long"),
    ]
    for (token, expected) in table {
      #expect(await verdict(token, verifier) == expected, "\(token)")
    }
  }

  @Test func policyClaimsAreRequired() async throws {
    var policy = TokenPolicy()
    policy.issuers = ["https://id.example.org/", "backend"]
    policy.audiences = ["chat"]
    policy.secondsMax = 3_600
    policy.requiresExpiry = true
    let keys = TokenKeys(secrets: [Array(TestTokens.secret.utf8)], policy: policy)
    let verifier = try await TokenVerifier(keys)
    let table: [(String, String)] = [
      (
        #"{"sub":"bob","iss":"https://id.example.org/","aud":["mail","chat"],"iat":1700000000,"exp":1800000000}"#,
        "user bob from 1699999940000 until 1700003600000"
      ),
      (
        #"{"sub":"bob","iss":"backend","aud":"chat","iat":1700000000,"exp":1700000060}"#,
        "user bob from 1699999940000 until 1700000060000"
      ),
      (
        #"{"server":true,"iss":"backend","aud":"chat","iat":1700000000,"exp":1700000060}"#,
        "server from 1699999940000 until 1700000060000"
      ),
      (
        #"{"sub":"bob","iss":"https://id.example.org","aud":"chat","iat":1,"exp":2}"#,
        "token_issuer_not_allowed"
      ),
      (#"{"sub":"bob","aud":"chat","iat":1,"exp":2}"#, "token_issuer_not_allowed"),
      (#"{"sub":"bob","iss":"backend","aud":["mail"],"iat":1,"exp":2}"#, "token_audience_not_allowed"),
      (#"{"server":true,"iss":"backend","iat":1,"exp":2}"#, "token_audience_not_allowed"),
      (#"{"sub":"bob","iss":"backend","aud":"chat","iat":1}"#, "token_without_expiry"),
      (#"{"sub":"bob","iss":"backend","aud":"chat","exp":2}"#, "token_without_issue_time"),
      (#"{"sub":"bob","iss":["backend"],"aud":"chat","iat":1,"exp":2}"#, "token_malformed"),
      (#"{"sub":"bob","iss":"backend","aud":7,"iat":1,"exp":2}"#, "token_malformed"),
    ]
    for (claims, expected) in table {
      #expect(await verdict(TestTokens.make(claims), verifier) == expected, "\(claims)")
    }
  }

  @Test(
    arguments: [
      (#"{"user_id":"alice"}"#, 0), (#"{"user_id":"alice","iat":1700000000}"#, 1_700_000_000),
      (#"{"user_id":"alice","iat":1700000000.999}"#, 1_700_000_000), (#"{"sub":"alice","iat":7}"#, 7),
      (#"{"user_id":"alice","iat":0}"#, 0), (#"{"user_id":"alice","iat":4294967295.5}"#, .max),
      // Milliseconds and other invalid dates count as absent.
      (#"{"user_id":"alice","iat":1700000000000}"#, 0), (#"{"user_id":"alice","iat":-1}"#, 0),
      (#"{"user_id":"alice","iat":-0.5}"#, 0), (#"{"user_id":"alice","iat":1e300}"#, 0),
      // Issue times matter only for user tokens.
      (#"{"server":true,"iat":1700000000}"#, nil), (#"{"server":true,"user_id":"alice"}"#, nil),
    ] as [(String, UInt32?)]
  )
  func issueTimeIsReadFromClaims(_ claims: String, _ expected: UInt32?) async throws {
    let caller = try await verifier().verify(Array(TestTokens.make(claims).utf8)).get()
    #expect(caller.issued == expected)
  }

  @Test func publicKeysVerifyTokens() async throws {
    let elliptic = ES256PrivateKey()
    let edwards = try EdDSA.PrivateKey(curve: .ed25519)
    let parameters = try #require(elliptic.publicKey.parameters)
    let keySet = """
      {"keys":[
        {"kty":"EC","crv":"P-256","alg":"ES256","kid":"e1","x":"\(parameters.x)","y":"\(parameters.y)"},
        {"kty":"OKP","crv":"Ed25519","alg":"EdDSA","kid":"d1",
         "x":"\(TestTokens.base64URL(edwards.publicKey.rawRepresentation))"}]}
      """
    let verifier = try await verifier(keySet: keySet)
    let signers = JWTKeyCollection()
    await signers.add(ecdsa: elliptic, kid: "e1")
    await signers.add(eddsa: edwards, kid: "d1")
    let claims = SomeClaims(user_id: "alice")
    for kid in ["e1", "d1"] {
      let token = try await signers.sign(claims, kid: JWKIdentifier(string: kid))
      #expect(await verdict(token, verifier) == "user alice")
      #expect(await verdict(String(token.dropLast(4)) + "AAAA", verifier) == "token_signature_invalid")
    }
    let strangers = JWTKeyCollection()
    await strangers.add(ecdsa: ES256PrivateKey(), kid: "e1")
    #expect(await verdict(try await strangers.sign(claims, kid: "e1"), verifier) == "token_signature_invalid")
    // The classic confusion: an HS256 token whose secret is the public key.
    #expect(
      await verdict(TestTokens.make(#"{"server":true}"#, secret: parameters.x), verifier)
        == "token_signature_invalid"
    )
    // Shared secrets work beside public keys.
    #expect(await verdict(TestTokens.server, verifier) == "server")
  }

  /// RSA keys as identity providers publish them: a key with a declared algorithm verifies only that one, other keys
  /// verify RS256 and PS256.
  @Test func rsaKeysVerifyTheirAlgorithmsOnly() async throws {
    let (first, second, third) = (try RSAKey(), try RSAKey(), try RSAKey())
    let keySet = """
      {"keys":[\(first.jwk(#""kid":"r1","alg":"RS256","use":"sig""#)),
        \(second.jwk(#""kid":"p1","alg":"PS256","key_ops":["verify"]"#)),\(third.jwk(#""kid":"b1""#))]}
      """
    let verifier = try await verifier(keySet: keySet)
    #expect(verifier.skippedKeys == [])
    let table: [(RSAKey, String, String, String)] = [
      (first, "r1", "RS256", "user alice"), (second, "p1", "PS256", "user alice"),
      (third, "b1", "RS256", "user alice"), (third, "b1", "PS256", "user alice"),
      // The key's algorithm decides, not the token's header.
      (first, "r1", "PS256", "token_signature_invalid"), (second, "p1", "RS256", "token_signature_invalid"),
      (second, "r1", "RS256", "token_signature_invalid"),
      (first, "none", "RS512", "token_algorithm_not_allowed"),
    ]
    for (key, kid, algorithm, expected) in table {
      let token = try await key.token(kid: kid, algorithm)
      #expect(await verdict(token, verifier) == expected, "\(kid) \(algorithm)")
    }
    let good = try await first.token(kid: "r1", "RS256")
    #expect(await verdict(String(good.dropLast(8)) + "AAAAAAAA", verifier) == "token_signature_invalid")
    // The classic confusion: an HS256 token whose secret is the public key.
    #expect(
      await verdict(TestTokens.make(#"{"server":true}"#, secret: first.modulus), verifier)
        == "token_signature_invalid"
    )
  }

  /// A provider's key set may have unsupported keys. They are skipped and do not stop the gateway.
  @Test func unsupportedKeysAreSkipped() async throws {
    let good = try #require(ES256PrivateKey().publicKey.parameters)
    let point = #""x":"\#(good.x)","y":"\#(good.y)""#
    let rsa = try RSAKey()
    let usable = #"{"kty":"EC","crv":"P-256","kid":"e1",\#(point)}"#
    let others: [(String, reason: String)] = [
      (rsa.jwk(#""kid":"k","alg":"RSA-OAEP","use":"enc""#), "is not for signatures"),
      (rsa.jwk(#""kid":"k","alg":"RS256","use":"enc""#), "is not for signatures"),
      (rsa.jwk(#""kid":"k","alg":"RS256","key_ops":["sign"]"#), "is not for signatures"),
      (rsa.jwk(#""kid":"k","alg":"RS384""#), "is not for RS256, PS256, ES256 or EdDSA"),
      (rsa.jwk(#""alg":"RS256""#), "has no kid"),
      (
        #"{"kty":"EC","crv":"P-384","alg":"ES384","kid":"k",\#(point)}"#,
        "is not for RS256, PS256, ES256 or EdDSA"
      ),
      (
        #"{"kty":"EC","crv":"P-384","alg":"ES256","kid":"k",\#(point)}"#,
        "is not for RS256, PS256, ES256 or EdDSA"
      ),
      (
        #"{"kty":"EC","crv":"P-256","alg":"ES512","kid":"k",\#(point)}"#,
        "is not for RS256, PS256, ES256 or EdDSA"
      ),
      (#"{"kty":"EC","alg":"ES256","kid":"k",\#(point)}"#, "is not for RS256, PS256, ES256 or EdDSA"),
      (
        #"{"kty":"OKP","crv":"Ed25519","alg":"ES256","kid":"k","x":"\#(good.x)"}"#,
        "is not for RS256, PS256, ES256 or EdDSA"
      ),
      (#"{"kty":"oct","k":"AAAA","kid":"k"}"#, "is not for RS256, PS256, ES256 or EdDSA"),
      (#"{"kty":"AKP","alg":"ML-DSA-65","kid":"k","pub":"AAAA"}"#, "is not for RS256, PS256, ES256 or EdDSA"),
      (#"{"kty":"RSA","alg":"RS256","kid":"k","n":"AQAB","e":"AQAB"}"#, "is not well-formed"),
      (#"{"kty":"RSA","alg":"RS256","kid":"k"}"#, "is not well-formed"),
      (#"{"kty":7}"#, "is not for RS256, PS256, ES256 or EdDSA"),
    ]
    for (other, reason) in others {
      let keys = try await TokenVerifier(TokenKeys(keySet: "{\"keys\":[\(other),\(usable)]}"))
      try #require(keys.skippedKeys.count == 1, "\(other)")
      #expect(keys.skippedKeys[0].reason.hasPrefix(reason), "\(other): \(keys.skippedKeys[0])")
      // A key set without a usable key is refused.
      await #expect(throws: (any Error).self, "\(other)") {
        _ = try await TokenVerifier(TokenKeys(keySet: "{\"keys\":[\(other)]}"))
      }
    }
  }

  @Test(arguments: [
    "", "{}", "{\"keys\":[{\"kty\":\"EC\"}]}", "no json",
    "{\"keys\":[{\"kty\":\"oct\",\"k\":\"AAAA\",\"kid\":\"x\"}]}",
  ])
  func invalidKeySetIsRefused(_ keySet: String) async {
    await #expect(throws: (any Error).self) { _ = try await TokenVerifier(TokenKeys(keySet: keySet)) }
  }

  @Test func tokenTimesAreCheckedAtEachUse() {
    let caller = Caller(userID: [], isServer: true, expiresAt: 2_000, notBefore: 1_000)
    #expect(caller.refusal(at: 999) == .tokenNotYetValid)
    #expect(caller.refusal(at: 1_000) == nil)
    #expect(caller.refusal(at: 1_999) == nil)
    #expect(caller.refusal(at: 2_000) == .tokenExpired)
    #expect(Caller(userID: [], isServer: true).refusal(at: .max - 1) == nil)
  }
}

/// An RSA key pair made by OpenSSL, for algorithms that jwt-kit cannot sign with.
private struct RSAKey {
  private let key: _RSA.Signing.PrivateKey

  init() throws { key = try _RSA.Signing.PrivateKey(keySize: .bits2048) }

  var modulus: String {
    (try? key.publicKey.getKeyPrimitives()).map { TestTokens.base64URL($0.modulus) } ?? ""
  }

  /// The public key with these members.
  func jwk(_ members: String) -> String {
    let exponent =
      (try? key.publicKey.getKeyPrimitives()).map { TestTokens.base64URL($0.publicExponent) } ?? ""
    return #"{"kty":"RSA","n":"\#(modulus)","e":"\#(exponent)",\#(members)}"#
  }

  func token(kid: String, _ algorithm: String) async throws -> String {
    let header = TestTokens.base64URL(#"{"alg":"\#(algorithm)","kid":"\#(kid)"}"#.utf8)
    let signed = header + "." + TestTokens.base64URL(#"{"user_id":"alice"}"#.utf8)
    let padding: _RSA.Signing.Padding = algorithm == "PS256" ? .PSS : .insecurePKCS1v1_5
    let digest = SHA256.hash(data: Data(signed.utf8))
    return signed + "."
      + TestTokens.base64URL(try key.signature(for: digest, padding: padding).rawRepresentation)
  }
}

private struct SomeClaims: JWTPayload {
  var user_id: String
  func verify(using algorithm: some JWTAlgorithm) async throws {}
}
