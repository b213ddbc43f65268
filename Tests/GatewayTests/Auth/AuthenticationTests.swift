import Foundation
import HTTP2Session
import NIOCore
import TestSupport
import Testing

@testable import Gateway

/// Credentials, as all routes check them.
@Suite struct AuthenticationTests {
  private let path = "/v1/channels/messaging:c/read"

  @Test func invalidTokensAreRefused() async throws {
    try await TestGateway.run { gateway in
      try await gateway.setUp("messaging:c", members: ["alice"])
      let now = Int(Date().timeIntervalSince1970)
      let none =
        TestTokens.base64URL(#"{"alg":"none"}"#.utf8) + "." + TestTokens.base64URL(#"{"server":true}"#.utf8)
        + "."
      let table: [(String?, String)] = [
        (nil, "401 token_missing"), ("nonsense", "401 token_malformed"),
        (none, "401 token_algorithm_not_allowed"),
        (
          TestTokens.make(#"{"user_id":"alice"}"#, secret: "some other secret of 32 bytes ..."),
          "401 token_signature_invalid"
        ),
        (TestTokens.make(#"{"user_id":"alice","exp":\#(now - 1)}"#), "401 token_expired"),
        (TestTokens.make(#"{"user_id":"alice","nbf":\#(now + 60)}"#), "401 token_not_yet_valid"),
        (TestTokens.make("{}"), "401 token_without_user"),
        (TestTokens.make(#"{"user_id":"a\u007Fb"}"#), "401 token_user_invalid"),
        (String(repeating: "a", count: 5_000), "401 token_too_long"),
        (TestTokens.make(#"{"user_id":"alice","exp":\#(now + 60),"nbf":\#(now - 1)}"#), "200"),
      ]
      // Each token twice: the second request may use cached results of the first.
      for round in 0..<2 {
        for (token, expected) in table {
          let response = try await gateway.client.post(path, nil, token: token)
          #expect(response.verdict == expected, "round \(round) \(token?.prefix(20) ?? "nil")")
          if response.status == 401 {
            let challenge = try #require(response.headers["www-authenticate"])
            #expect(
              challenge.hasPrefix("Bearer")
                && challenge.contains("error=") == (expected != "401 token_missing")
            )
          }
        }
      }
      // The same invalid token several times on one connection, then a valid one.
      for _ in 0..<3 { #expect(try await gateway.client.post(path, nil, token: "bad").status == 401) }
      #expect(try await gateway.client.post(path, nil, token: TestTokens.user("alice")).status == 200)
    }
  }

  @Test func expiredCachedTokenIsRefused() async throws {
    try await TestGateway.run { gateway in
      try await gateway.setUp("messaging:c", members: ["alice"])
      let end = Date().timeIntervalSince1970 + 600
      let token = TestTokens.make(#"{"user_id":"alice","exp":\#(end)}"#)
      for _ in 0..<2 { #expect(try await gateway.client.post(path, nil, token: token).status == 200) }
      gateway.clock.advance(by: .minutes(9))
      #expect(try await gateway.client.post(path, nil, token: token).status == 200)
      gateway.clock.advance(by: .seconds(61))
      #expect(try await gateway.client.post(path, nil, token: token).verdict == "401 token_expired")
    }
  }

  @Test func burstWithOneNewTokenIsAnswered() async throws {
    try await TestGateway.run { gateway in
      try await gateway.setUp("messaging:c", members: ["alice"], messages: ["m1"])
      let token = TestTokens.make(#"{"user_id":"alice","jti":"burst"}"#)
      var responses: [EventLoopFuture<TestResponse>] = []
      for number in 0..<200 {
        let body = number % 2 == 0 ? nil : #"{"message_id":"m1"}"#
        responses.append(try await gateway.client.submit(.post, path, body, token: token))
      }
      for response in responses { #expect(try await response.value("the answer").status == 200) }
    }
  }

  @Test func fullVerificationQueueAnswersBusy() async throws {
    var limits = GatewayLimits()
    limits.waiting.verifications = 0
    try await TestGateway.run(limits: limits) { gateway in
      let response = try await gateway.client.post(path, nil, token: TestTokens.server)
      #expect(response.verdict == "503 authentication_busy" && response.headers["retry-after"] == "1")
      // Tokens that no key can verify do not enter the queue.
      let unsigned = TestTokens.make(#"{"server":true}"#, header: #"{"alg":"none"}"#)
      for (token, expected) in [
        ("nonsense", "401 token_malformed"), ("a.b.c", "401 token_malformed"),
        ("AAAA.AAAA.!!!!", "401 token_malformed"), ("AAAA.AAAA.AAAA", "401 token_malformed"),
        (unsigned, "401 token_algorithm_not_allowed"),
      ] {
        for _ in 0..<2 {
          #expect(try await gateway.client.post(path, nil, token: token).verdict == expected)
        }
      }
      #expect(
        try await gateway.client.post(path, nil, token: TestTokens.server).verdict
          == "503 authentication_busy"
      )
    }
  }
}
