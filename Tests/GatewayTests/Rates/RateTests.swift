import HTTP2Session
import NIOCore
import Operations
import Testing

@testable import Gateway

/// Rate limits per caller.
@Suite struct RateTableTests {
  private let second: Int64 = 1_000_000_000

  /// A bucket allows a burst of twice its rate, then its rate.
  @Test
  func bucketAllowsBurstThenRate() throws {
    let table = RateTable(perSecond: 10)
    let first = try (0..<20).map { _ in try #require(table.charge(1, to: 7, at: 0)) }
    #expect(first.allSatisfy(\.isAllowed) && first.map(\.remaining) == (0..<20).reversed())
    let refused = try #require(table.charge(1, to: 7, at: 0))
    #expect(
      refused == RateDecision(isAllowed: false, remaining: 0, resetSeconds: 2, retryAfterSeconds: 1)
    )
    // Refused requests cost nothing: after a tenth of a second there is a token for one request.
    #expect(table.charge(1, to: 7, at: second / 10)?.isAllowed == true)
    #expect(table.charge(1, to: 7, at: second / 10)?.isAllowed == false)
    #expect(table.charge(1, to: 8, at: second / 10)?.remaining == 19)
    // Unused tokens do not accumulate beyond the bucket's capacity.
    #expect(
      (0..<21).map { _ in table.charge(1, to: 7, at: 100 * second)?.isAllowed } == Array(
        repeating: true,
        count: 20
      ) + [false]
    )
  }

  /// A request that costs more than a full bucket is allowed when the bucket is full, and leaves a debt.
  @Test
  func costlyRequestNeedsFullBucketAndLeavesDebt() {
    let table = RateTable(perSecond: 1)
    #expect(table.charge(10, to: 1, at: 0)?.isAllowed == true)
    #expect(table.charge(1, to: 1, at: 0)?.retryAfterSeconds == 9)
    #expect(table.charge(1, to: 1, at: 8 * second)?.isAllowed == false)
    #expect(table.charge(1, to: 1, at: 9 * second)?.isAllowed == true)
    #expect(
      table.charge(10, to: 2, at: 0)?.isAllowed == true
        && table.charge(10, to: 2, at: 9 * second)?.isAllowed == false
    )
  }

  @Test
  func rateCanBeChangedAndRemoved() {
    let table = RateTable()
    #expect(table.charge(1, to: 1, at: 0) == nil && !table.isOn)
    table.perSecond = 1
    #expect((0..<3).map { _ in table.charge(1, to: 1, at: 0)?.isAllowed } == [true, true, false])
    table.perSecond = nil
    #expect(table.charge(1, to: 1, at: 0) == nil)
  }

  @Test
  func checkingWithoutChargingChangesNothing() {
    let table = RateTable(perSecond: 1)
    for _ in 0..<5 { #expect(table.charge(1, to: 1, at: 0, .nothing)?.isAllowed == true) }
    _ = table.charge(2, to: 1, at: 0)
    #expect(table.charge(1, to: 1, at: 0, .nothing)?.isAllowed == false)
  }

  /// Charges that are always applied leave a debt of at most ten seconds.
  @Test
  func unconditionalDebtIsCapped() {
    let table = RateTable(perSecond: 10)
    for _ in 0..<70 { _ = table.charge(1, to: 1, at: 0, .always) }
    #expect(table.charge(1, to: 1, at: 5 * second, .nothing)?.isAllowed == false)
    #expect(table.charge(1, to: 1, at: 51 * second / 10, .nothing)?.isAllowed == true)
    for _ in 0..<1_000 { _ = table.charge(1, to: 1, at: 10 * second, .always) }
    #expect(table.charge(1, to: 1, at: 181 * second / 10, .nothing)?.isAllowed == true)
  }

  @Test
  func remainingNeverExceedsCapacity() {
    let table = RateTable(perSecond: 70_001)
    #expect(table.perSecond == 70_001)
    #expect(table.charge(1, to: 1, at: 0)?.remaining ?? 0 <= 140_002)
  }

  /// A full table evicts the smallest debts, so that a caller cannot drop a debt by using other names.
  @Test
  func fullTableKeepsLargestDebts() {
    let table = RateTable(perSecond: 10, capacity: 128)
    for _ in 0..<30 { _ = table.charge(1, to: 42, at: 0) }
    for other in 1...100_000 as ClosedRange<UInt64> {
      _ = table.charge(1, to: other &* 0x9E37_79B9_7F4A_7C15, at: 0)
    }
    #expect(table.charge(1, to: 42, at: 0)?.isAllowed == false)
  }

  @Test
  func headersDescribeBucket() throws {
    let limiter = RateLimiter(RateLimits(user: 5))
    let caller = Caller(userID: Array("bob".utf8), isServer: false)
    let response = try #require(limiter.charge(2, to: caller, at: 0))
    var fields = ResponseFields()
    limiter.addHeaders(response.packed, to: &fields)
    let headers = fields.list.map { "\($0.name): \($0.value)" }
    #expect(headers == [#"ratelimit-policy: "user";q=10;w=2"#, #"ratelimit: "user";r=8;t=1"#])
    var none = ResponseFields()
    limiter.addHeaders(0, to: &none)
    #expect(none.isEmpty)
    #expect(limiter.charge(1, to: Caller.unauthenticated, at: 0) == nil)
    #expect(limiter.charge(1, to: PeerAddress(high: 0, low: 1), at: 0) == nil)
  }
}

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
