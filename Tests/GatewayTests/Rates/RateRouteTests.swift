import NIOCore
import Testing

@testable import Gateway

/// Rate limits over HTTP. The gateway's clocks are moved, so no test waits for a bucket to fill.
@Suite struct RateRouteTests {
  @Test func limitedUserIsAnsweredAgainOnceTheBucketIsFull() async throws {
    try await TestGateway.run(rates: RateLimits(user: 1)) { gateway in
      try await gateway.setUp("messaging:c", members: ["alice", "bob"])
      let (alice, bob) = (TestTokens.user("alice"), TestTokens.user("bob"))
      func mark(_ token: String) async throws -> TestResponse {
        try await gateway.client.post("/v1/channels/messaging:c/read", nil, token: token)
      }
      for _ in 0..<2 {
        var last = try await mark(alice)
        // Two at once; a busy machine may take so long that there is room for a few more.
        for _ in 0..<50 where last.status == 200 { last = try await mark(alice) }
        #expect(last.verdict == "429 rate_limited" && last.headers["retry-after"] == "1")
        #expect(try await mark(bob).status == 200)
        gateway.clock.advance(by: .seconds(2))
        #expect(try await mark(alice).status == 200)
      }
    }
  }
}
