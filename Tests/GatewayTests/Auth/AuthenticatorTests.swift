import HTTP2Session
import Testing

@testable import Gateway

@Suite struct TokenCacheTests {
  private func token(_ number: Int) -> [UInt8] {
    Array("token-\(number)-\(String(repeating: "x", count: number % 40))".utf8)
  }
  private func user(_ number: Int, expiresAt: Int64 = .max) -> Caller {
    Caller(userID: Array("u\(number)".utf8), isServer: false, expiresAt: expiresAt)
  }

  @Test func insertedTokensAreFound() {
    var cache = TokenCache(capacity: 1_024, seed: 1)
    for number in 0..<200 { cache.insert(token(number), user(number), now: 0) }
    #expect(cache.count == 200)
    for number in 0..<200 {
      #expect(cache.find(token(number).span.bytes).map { $0.userID } == Array("u\(number)".utf8))
    }
    #expect(cache.find(token(200).span.bytes) == nil)
    #expect(cache.find(Array("token-1".utf8).span.bytes) == nil)
    cache.insert(token(7), user(77), now: 0)
    #expect(cache.count == 200)
    #expect(cache.find(token(7).span.bytes)?.userID == Array("u77".utf8))
  }

  @Test func cacheIsBounded() {
    var cache = TokenCache(capacity: 64, seed: 2)
    for number in 0..<10_000 { cache.insert(token(number), user(number), now: 0) }
    #expect(cache.count == 64)
    #expect(cache.find(token(9_999).span.bytes) != nil)
  }

  @Test func expiredThenLeastRecentlyUsedIsEvicted() {
    // The cache has one set of four entries.
    var cache = TokenCache(capacity: 4, seed: 3)
    for number in 0..<4 {
      cache.insert(token(number), user(number, expiresAt: number == 2 ? 10 : .max), now: 0)
    }
    cache.insert(token(4), user(4), now: 11)
    #expect(cache.find(token(2).span.bytes) == nil)
    for number in [0, 3, 4] { #expect(cache.find(token(number).span.bytes) != nil) }
    cache.insert(token(5), user(5), now: 11)
    #expect(cache.find(token(1).span.bytes) == nil)
    #expect(cache.count == 4)
  }

  @Test func hashCoversAllBytesAndLength() {
    let base = Array("0123456789abcdef0123456".utf8)
    var seen: Set<UInt64> = [TokenCache.hash(base.span.bytes, seed: 9)]
    for index in base.indices {
      var other = base
      other[index] ^= 1
      seen.insert(TokenCache.hash(other.span.bytes, seed: 9))
    }
    for count in 0..<base.count { seen.insert(TokenCache.hash(Array(base[..<count]).span.bytes, seed: 9)) }
    seen.insert(TokenCache.hash(base.span.bytes, seed: 10))
    #expect(seen.count == 2 * base.count + 2)
  }
}

@Suite struct BearerTests {
  @Test(arguments: [
    ("Bearer abc", "abc"), ("bearer abc", "abc"), ("BEARER   abc", "abc"), ("", "token_missing"),
    ("Bearer", "token_missing"), ("Bearer ", "token_missing"), ("Basic abc", "token_missing"),
    ("Bearerabc", "token_missing"), ("abc", "token_missing"),
  ])
  func tokenIsFoundInHeader(_ header: String, _ expected: String) {
    let bytes = Array(header.utf8)
    var found: String
    do throws(Problem) { found = try Authenticator.token(of: bytes.span.bytes).text } catch {
      found = error.code.rawValue
    }
    #expect(found == expected)
  }

  @Test func oversizeTokenIsRefused() {
    let bytes = Array(("Bearer " + String(repeating: "a", count: TokenVerifier.byteCountMax + 1)).utf8)
    #expect(throws: Problem(.tokenTooLong)) { _ = try Authenticator.token(of: bytes.span.bytes).byteCount }
  }
}

@Suite struct AuthenticatorTests {
  /// Run a verification and the actions that follow it; returns the streams' slots with their results.
  private func finish(
    _ verification: Authenticator.Verification?,
    _ authenticator: inout Authenticator
  ) async throws -> [String] {
    var verification = try #require(verification)
    while true {
      let result = await verification.verifier.verify(verification.token)
      switch authenticator.verified(verification, result, now: 20_000) {
      case .verify(let again): verification = again
      case .finish(let requests, let result):
        let text =
          switch result {
          case .success(let caller): String(decoding: caller.userID, as: UTF8.self)
          case .failure(let refusal): refusal.code.rawValue
          }
        return requests.map { "\($0.stream.slot) \(text)" }
      }
    }
  }

  private func request(_ slot: UInt32, origin: UInt64 = 0) -> RequestAwaitingVerification {
    RequestAwaitingVerification(connection: 0, stream: .init(slot: slot, generation: 0), origin: origin)
  }

  private func authenticator(_ verifier: TokenVerifier, _ limits: GatewayLimits = GatewayLimits()) -> Authenticator {
    Authenticator(verifier: verifier, revokedTokens: RevokedTokens(), limits: limits, seed: 1)
  }

  @Test func keysCanBeReplacedDuringVerification() async throws {
    func verifier(_ secret: String) async throws -> TokenVerifier {
      try await TokenVerifier(TokenKeys(secrets: [Array(secret.utf8)]))
    }
    let (old, new) = (try await verifier(TestTokens.secret), try await verifier(TestTokens.previousSecret))
    let (alice, bob) = (Array(TestTokens.user("alice").utf8), Array(TestTokens.user("bob").utf8))
    let good = Array(TestTokens.make(#"{"user_id":"carol"}"#, secret: TestTokens.previousSecret).utf8)
    let carol = try await new.verify(good).get()
    var authenticator = authenticator(old)
    let first = try authenticator.waitForVerification(request(0), token: alice.span.bytes)
    #expect(try await finish(first, &authenticator) == ["0 alice"] && authenticator.cachedCount == 1)
    // Bob's token is being verified with the old keys meanwhile.
    let second = try authenticator.waitForVerification(request(1), token: bob.span.bytes)
    authenticator.replace(new, verified: [(good, carol)], now: 20_000)
    #expect(try await finish(second, &authenticator) == ["1 token_signature_invalid"])
    for (token, expected) in [(alice, nil), (bob, nil), (good, "carol")] {
      switch authenticator.verdict(of: token.span.bytes, now: 20_000) {
      case .caller(let caller): #expect(String(decoding: caller.userID, as: UTF8.self) == expected)
      case .refused(let code): Issue.record("refused as \(code)")
      case .unknown: #expect(expected == nil)
      }
    }
  }

  /// Concurrent requests with one token share one verification. A full queue refuses further requests, and so does a
  /// full share of it. The request of a closed stream makes room.
  @Test func verificationsAreCoalescedAndBounded() async throws {
    let verifier = try await TokenVerifier(TokenKeys(secrets: [Array(TestTokens.secret.utf8)]))
    let token = Array(TestTokens.user("alice").utf8)
    let other = Array(TestTokens.make(#"{"user_id":"bob","exp":10}"#).utf8)
    var limits = GatewayLimits()
    limits.waiting.verifications = 5
    limits.waiting.verificationsPerOrigin = 2
    var authenticator = authenticator(verifier, limits)
    let first = try authenticator.waitForVerification(request(0, origin: 7), token: token.span.bytes)
    #expect(try authenticator.waitForVerification(request(1, origin: 7), token: token.span.bytes) == nil)
    #expect(throws: Problem(.authenticationBusy)) {
      _ = try authenticator.waitForVerification(request(2, origin: 7), token: token.span.bytes)?.token
    }
    let second = try authenticator.waitForVerification(request(3), token: other.span.bytes)
    for slot in UInt32(4)..<6 {
      #expect(try authenticator.waitForVerification(request(slot), token: token.span.bytes) == nil)
    }
    #expect(throws: Problem(.authenticationBusy)) {
      _ = try authenticator.waitForVerification(request(6), token: token.span.bytes)?.token
    }
    authenticator.cancel(request(4).stream)
    #expect(try authenticator.waitForVerification(request(6), token: token.span.bytes) == nil)
    // A request whose body has arrived replaces its own.
    #expect(try authenticator.waitForVerification(request(6), token: token.span.bytes) == nil)
    #expect(authenticator.waitingCount == 5)
    #expect(try await finish(first, &authenticator).sorted() == ["0 alice", "1 alice", "5 alice", "6 alice"])
    #expect(try await finish(second, &authenticator) == ["3 token_expired"])
    #expect(authenticator.cachedCount == 1 && authenticator.waitingCount == 0)
  }
}
