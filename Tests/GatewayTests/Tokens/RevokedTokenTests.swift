import Foundation
import HTTP2Session
import NIOCore
import NIOPosix
import ReceiptModel
import ReceiptWire
import StoreTestSupport
import Synchronization
import TestSupport
import Testing

@testable import Gateway

/// Revocation of tokens by their ids, as callers see it.
@Suite struct RevokedTokenRouteTests {
  private static func server(_ id: String) -> String { TestTokens.make(#"{"server":true,"jti":"\#(id)"}"#) }
  private static func user(_ name: String, _ id: String) -> String {
    TestTokens.make(#"{"user_id":"\#(name)","jti":"\#(id)"}"#)
  }

  private static let later = "2030-01-01T00:00:00.000Z"
  private static let revoke = #"{"revoked":true,"expires_at":"2030-01-01T00:00:00Z"}"#
  private static let reinstate = #"{"revoked":false}"#

  @Test func tokenIsRevokedAndReinstated() async throws {
    try await TestGateway.run { gateway in
      let client = gateway.client
      let (one, other) = (Self.server("one"), Self.server("other"))
      #expect(try await client.get("/v1/tokens/one", token: one).json == ["jti": "one", "revoked": false])
      let revoked = try await client.put("/v1/tokens/one", Self.revoke, token: one)
      #expect(
        revoked.status == 200 && revoked.json == ["jti": "one", "revoked": true, "expires_at": Self.later]
      )
      // Tokens known to the connection, known to the cache, and unknown; server tokens and user tokens.
      #expect(try await client.get("/v1/channel-types", token: one).verdict == "401 token_revoked")
      let second = try await TestClient.connect(port: gateway.port, on: gateway.eventLoop)
      #expect(try await second.get("/v1/channel-types", token: one).verdict == "401 token_revoked")
      let fresh = TestTokens.make(#"{"server":true,"jti":"one","iat":5}"#)
      #expect(try await second.get("/v1/channel-types", token: fresh).verdict == "401 token_revoked")
      #expect(
        try await second.get("/v1/users/bob", token: Self.user("bob", "one")).verdict == "401 token_revoked"
      )
      #expect(
        try await second.put("/v1/tokens/one", Self.reinstate, token: one).verdict == "401 token_revoked"
      )
      #expect(try await second.get("/v1/channel-types", token: other).status == 200)
      #expect(try await second.get("/v1/tokens/one", token: other).json == revoked.json)
      #expect(try await second.put("/v1/tokens/one", Self.revoke, token: other).json == revoked.json)
      let back = try await second.put("/v1/tokens/one", Self.reinstate, token: other)
      #expect(back.status == 200 && back.json == ["jti": "one", "revoked": false])
      for token in [one, fresh] {
        #expect(try await client.get("/v1/channel-types", token: token).status == 200)
        #expect(try await second.get("/v1/channel-types", token: token).status == 200)
      }
      try await second.close()
    }
  }

  @Test func invalidRevocationsAreRefused() async throws {
    try await TestGateway.run { gateway in
      let client = gateway.client
      let id = String(repeating: "j", count: 255)
      for (path, body, expected) in [
        ("one", "{}", "400 invalid_field"), ("one", #"{"revoked":null}"#, "400 invalid_field"),
        ("one", #"{"revoked":1}"#, "400 invalid_field"), ("one", #"{"revoked":true}"#, "400 invalid_field"),
        ("one", #"{"revoked":true,"expires_at":null}"#, "400 invalid_field"),
        ("one", #"{"revoked":true,"expires_at":1893456000}"#, "400 invalid_field"),
        ("one", #"{"revoked":true,"expires_at":"soon"}"#, "400 invalid_field"),
        ("one", #"{"revoked":true,"expires_at":"2020-01-01T00:00:00Z"}"#, "400 invalid_field"),
        ("one", #"{"revoked":true,"expires_at":"2999-01-01T00:00:00Z"}"#, "400 invalid_field"),
        ("one", #"{"revoked":false,"expires_at":"2030-01-01T00:00:00Z"}"#, "400 invalid_field"),
        ("one", #"{"revoked":true,"until":"2030-01-01T00:00:00Z"}"#, "400 unknown_field"),
        ("one?user_id=bob", Self.revoke, "400 unknown_field"), ("one", "[]", "400 invalid_field"),
        (".", Self.revoke, "400 invalid_token_id"), ("%2E%2e", Self.revoke, "400 invalid_token_id"),
        ("a%07", Self.revoke, "400 invalid_token_id"), ("a%FF", Self.revoke, "400 invalid_token_id"),
        (id + "j", Self.revoke, "400 invalid_token_id"), ("", Self.revoke, "404 route_not_found"),
        (id, Self.revoke, "200"), ("Zo%C3%AB%2F1", Self.revoke, "200"),
      ] {
        #expect(try await client.put("/v1/tokens/\(path)", body).verdict == expected, "\(path) \(body)")
      }
      #expect(try await client.get("/v1/tokens/Zo%C3%AB%2F1").json["jti"] as? String == "Zoë/1")
      for token in [TestTokens.user("bob"), Self.user("bob", "one")] {
        #expect(
          try await client.put("/v1/tokens/one", Self.revoke, token: token).verdict
            == "403 server_token_required"
        )
        #expect(try await client.get("/v1/tokens/one", token: token).verdict == "403 server_token_required")
      }
      #expect(try await client.delete("/v1/tokens/one").headers["allow"] == "GET, HEAD, PUT")
      for (mode, expected) in [
        (StoreInMemory.Mode.refusing(.limitReached), "409 limit_reached"), (.refusing(.busy), "503 store_busy"),
        (.garbled, "500 internal_error"),
      ] {
        try await gateway.store.set(mode)
        #expect(try await client.put("/v1/tokens/one", Self.revoke).verdict == expected)
      }
    }
  }

  @Test func revocationEndsOpenStreams() async throws {
    try await TestGateway.run { gateway in
      try await gateway.setUp("messaging:c", members: ["alice", "bob"], messages: ["m1"])
      let events = try await gateway.client.events(token: Self.user("alice", "one"))
      let others = try await gateway.client.events(token: Self.user("alice", "other"))
      let frames = try await gateway.client.begin(token: Self.server("one"))
      let acks = try await gateway.client.begin(
        "/v1/push/acks",
        contentType: "application/x-ndjson",
        token: Self.server("one")
      )
      var bytes = TestFrames()
      bytes.mark(1)
      try await gateway.client.send(bytes.bytes, frames)
      #expect(await frames.verdict() == "1 markRead")
      #expect(await events.live())
      #expect(await others.live())
      #expect(try await gateway.client.put("/v1/tokens/one", Self.revoke).status == 200)
      var last = ""
      while let block = await events.block() { last = block }
      #expect(last == ": the token has been revoked")
      #expect(await frames.verdicts(2) == ["0 authentication_failed the token has been revoked", "end"])
      #expect(await acks.line()?.contains("token_revoked") == true)
      #expect(try await gateway.client.get("/v1/channels/messaging:c").status == 200)
      #expect(try await gateway.eventLoop.submit { gateway.loop.value.events.hub.streamCount }.get() == 1)
    }
  }

  /// Another gateway revokes the tokens. Until this gateway has loaded the list, it refuses every token with an id.
  @Test func revocationsByOtherGatewaysAreLoaded() async throws {
    let group = MultiThreadedEventLoopGroup(numberOfThreads: 1)
    let store = try await StoreInMemory.start(on: group.next())
    try await store.set(.refusingKind(.listRevokedTokens, .unavailable))
    try await TestGateway.run(tokenList: .milliseconds(20), store: store) { gateway in
      let client = gateway.client
      let (one, user) = (Self.server("one"), Self.user("bob", "two"))
      #expect(try await client.get("/v1/channel-types", token: one).verdict == "503 store_unavailable")
      #expect(try await client.get("/v1/users/bob", token: user).verdict == "503 store_unavailable")
      #expect(try await client.get("/v1/users/bob", token: TestTokens.user("bob")).status == 200)
      try await TestGateway.run(store: store) { other in
        #expect(try await other.client.put("/v1/tokens/one", Self.revoke).status == 200)
        try await store.set(.normal)
        try await eventually("the first gateway has the list of revoked tokens") {
          try await client.get("/v1/users/bob", token: user).status == 200
        }
        #expect(try await client.get("/v1/channel-types", token: one).verdict == "401 token_revoked")
        try await eventually("the other gateway revokes the second token") {
          try await other.client.put("/v1/tokens/two", Self.revoke).status == 200
        }
        try await eventually("the first gateway refuses the second token") {
          try await client.get("/v1/users/bob", token: user).verdict == "401 token_revoked"
        }
        #expect(try await other.client.put("/v1/tokens/one", Self.reinstate).status == 200)
        try await eventually("the first gateway accepts the reinstated token") {
          try await client.get("/v1/channel-types", token: one).status == 200
        }
      }
    }
    try await store.close()
    try await group.shutdownGracefully()
  }
}

/// A ``TokenListing`` that can be mutated within a macro.
private final class TestListing {
  private var listing: TokenListing
  init(_ tokens: RevokedTokens) { listing = TokenListing(tokens) }

  func roundIsDue(isReady: Bool) -> TokenListing.Request? { listing.roundIsDue(isReady: isReady) }
  func reconnected() -> TokenListing.Request { listing.reconnected() }
  func failed(round: UInt32) { listing.failed(round: round) }
  func answered(_ answer: RevokedTokensReply, round: UInt32) -> TokenListing.Request? {
    listing.answered(answer, round: round)
  }
}

/// ``RevokedTokens`` and ``TokenListing``, without a store.
@Suite struct RevokedTokensTests {
  private static func id(_ text: String) -> TokenID { TokenID(Array(text.utf8)) }

  private static func answer(
    _ version: UInt64,
    _ revocations: [(String, Int64, UInt64)] = [],
    isAnew: Bool = false,
    hasMore: Bool = false,
    ended: Int64 = 0
  ) -> RevokedTokensReply {
    RevokedTokensReply(
      version: version,
      isAnew: isAnew,
      hasMore: hasMore,
      ended: Timestamp(milliseconds: ended),
      revocations: revocations.map {
        TokenRevocation(id: $0.0, until: Timestamp(milliseconds: $0.1), version: $0.2)
      }
    )
  }

  /// The ids from `a` to `f` that are refused.
  private static func refused(_ tokens: RevokedTokens) -> String {
    "abcdef".filter { tokens.refusal(of: id(String($0))) != nil }
  }

  @Test func tokenIDsAreRefusedBeforeListIsLoaded() {
    let tokens = RevokedTokens()
    #expect(tokens.refusal(of: nil) == nil)
    #expect(tokens.refusal(of: Self.id("a")) == .storeUnavailable)
    tokens.record(Self.id("b"), until: 5, version: 1)
    #expect(tokens.refusal(of: Self.id("a")) == .storeUnavailable)
    tokens.replace([], version: 0)
    #expect(tokens.refusal(of: Self.id("a")) == nil)
    #expect(tokens.refusal(of: Self.id("b")) == .tokenRevoked)
  }

  @Test func listIsLoadedInParts() throws {
    let tokens = RevokedTokens()
    let listing = TestListing(tokens)
    #expect(listing.roundIsDue(isReady: false) == nil)
    let first = try #require(listing.roundIsDue(isReady: true))
    #expect(first.known == 0 && first.after == 0)
    #expect(listing.roundIsDue(isReady: true) == nil)
    // The list takes effect as a whole. A reinstated token between two parts restarts it.
    let part = Self.answer(7, [("a", 50, 1), ("b", 50, 4)], isAnew: true, hasMore: true)
    let second = try #require(listing.answered(part, round: first.round))
    #expect(second.known == 7 && second.after == 4 && second.round == first.round)
    #expect(tokens.refusal(of: Self.id("c")) == .storeUnavailable)
    let restarted = Self.answer(8, [("a", 50, 1), ("c", 50, 5)], isAnew: true, hasMore: true)
    let third = try #require(listing.answered(restarted, round: first.round))
    #expect(third.known == 8 && third.after == 5)
    #expect(listing.answered(Self.answer(9, [("d", 60, 9)]), round: first.round) == nil)
    #expect(Self.refused(tokens) == "acd")
    // The next round loads only newer revocations.
    let next = try #require(listing.roundIsDue(isReady: true))
    #expect(next.known == 9 && next.after == 9)
    #expect(listing.answered(Self.answer(10, [("e", 60, 10)], ended: 50), round: next.round) == nil)
    #expect(Self.refused(tokens) == "de")
    let empty = try #require(listing.roundIsDue(isReady: true))
    #expect(listing.answered(Self.answer(11, isAnew: true), round: empty.round) == nil)
    #expect(Self.refused(tokens) == "" && tokens.count == 0)
  }

  @Test func lateAnswersAreIgnored() throws {
    let tokens = RevokedTokens()
    let listing = TestListing(tokens)
    let lost = try #require(listing.roundIsDue(isReady: true))
    let next = listing.reconnected()
    #expect(next.known == 0 && next.round != lost.round && listing.roundIsDue(isReady: true) == nil)
    #expect(listing.answered(Self.answer(9, [("a", 5, 9)], isAnew: true), round: lost.round) == nil)
    #expect(tokens.refusal(of: Self.id("b")) == .storeUnavailable)
    listing.failed(round: lost.round)
    #expect(listing.roundIsDue(isReady: true) == nil)
    listing.failed(round: next.round)
    let third = try #require(listing.roundIsDue(isReady: true))
    #expect(listing.answered(Self.answer(2, [("b", 5, 2)], isAnew: true), round: third.round) == nil)
    #expect(Self.refused(tokens) == "b")
    // A restored store has lower versions. The old list stays in effect until the new one is loaded.
    let restored = listing.reconnected()
    #expect(Self.refused(tokens) == "b")
    tokens.record(Self.id("c"), until: 9, version: 1)
    #expect(restored.known == 0)
    #expect(listing.answered(Self.answer(1, [("c", 9, 1)], isAnew: true), round: restored.round) == nil)
    #expect(Self.refused(tokens) == "c")
  }

  @Test func localChangeOutlivesOlderList() {
    let tokens = RevokedTokens()
    tokens.replace([(Self.id("a"), 50), (Self.id("b"), 50)], version: 5)
    tokens.record(Self.id("c"), until: 60, version: 7)
    tokens.record(Self.id("a"), until: nil, version: 8)
    #expect(Self.refused(tokens) == "bc")
    // A part of a list that was requested earlier.
    tokens.add([(Self.id("a"), 50), (Self.id("d"), 50)], version: 6)
    tokens.confirm(version: 6, ended: 0)
    #expect(Self.refused(tokens) == "bcd")
    tokens.replace([(Self.id("a"), 50), (Self.id("b"), 50)], version: 6)
    #expect(Self.refused(tokens) == "bc")
    tokens.replace([(Self.id("b"), 50), (Self.id("c"), 60)], version: 8)
    tokens.confirm(version: 8, ended: 49)
    #expect(Self.refused(tokens) == "bc" && tokens.count == 2)
    tokens.confirm(version: 8, ended: 50)
    #expect(Self.refused(tokens) == "c")
  }

  @Test func listExpiresWhenStoreDoesNotAnswer() throws {
    let tokens = RevokedTokens()
    let known = Mutex<[Bool]>([])
    let revoked = Mutex(0)
    tokens.observeAvailability { isKnown in known.withLock { $0.append(isKnown) } }
    let listing = TestListing(tokens)
    tokens.observe(listing) { revoked.withLock { $0 += 1 } }
    let round = try #require(listing.roundIsDue(isReady: true)).round
    #expect(listing.answered(Self.answer(1, [("a", 5, 1)], isAnew: true), round: round) == nil)
    for _ in 1..<TokenListing.unansweredRoundsMax { _ = listing.roundIsDue(isReady: false) }
    #expect(Self.refused(tokens) == "a")
    _ = listing.roundIsDue(isReady: false)
    #expect(tokens.refusal(of: Self.id("b")) == .storeUnavailable)
    let again = try #require(listing.roundIsDue(isReady: true))
    #expect(listing.answered(Self.answer(1), round: again.round) == nil)
    #expect(Self.refused(tokens) == "a")
    #expect(known.withLock { $0 } == [true, false, true])
    tokens.record(Self.id("a"), until: 6, version: 2)
    tokens.record(Self.id("b"), until: 6, version: 3)
    #expect(revoked.withLock { $0 } == 2)
    tokens.stopObserving(listing)
    tokens.record(Self.id("c"), until: 6, version: 4)
    #expect(revoked.withLock { $0 } == 2)
  }

  @Test func tokenIDIsReadFromClaims() async throws {
    let verifier = try await TokenVerifier(TokenKeys(secrets: [Array(TestTokens.secret.utf8)]))
    let long = String(repeating: "j", count: 255)
    for (claim, expected) in [
      (#""a""#, "a"), (#""Zoë/1""#, "Zoë/1"), (#""\#(long)""#, long), ("null", "none"),
      (#""\#(long)j""#, "token_id_invalid"), (#""""#, "token_id_invalid"), (#"".""#, "token_id_invalid"),
      (#""..""#, "token_id_invalid"), (#""a\u0007""#, "token_id_invalid"), ("7", "token_malformed"),
      (#"["a"]"#, "token_malformed"),
    ] {
      for rest in [#""server":true"#, #""user_id":"bob""#] {
        let token = TestTokens.make(#"{\#(rest),"jti":\#(claim)}"#)
        let verdict =
          switch await verifier.verify(Array(token.utf8)) {
          case .success(let caller):
            caller.tokenID.map { String(decoding: $0.bytes, as: UTF8.self) } ?? "none"
          case .failure(let refusal): refusal.code.rawValue
          }
        #expect(verdict == expected, "\(claim)")
      }
    }
  }
}
