import HTTP2Session
import Operations
import Testing

@testable import Gateway

@Suite("How often callers may ask") struct RateTableTests {
  private let second: Int64 = 1_000_000_000

  @Test("a bucket lets through twice its rate at once, and its rate after that")
  func bucket() throws {
    let table = RateTable(perSecond: 10)
    let first = try (0..<20).map { _ in try #require(table.charge(1, to: 7, at: 0)) }
    #expect(first.allSatisfy(\.isAllowed) && first.map(\.remaining) == (0..<20).reversed())
    let refused = try #require(table.charge(1, to: 7, at: 0))
    #expect(
      refused == RateDecision(isAllowed: false, remaining: 0, resetSeconds: 2, retryAfterSeconds: 1)
    )
    // Refused requests cost nothing: a tenth of a second later there is room for one.
    #expect(table.charge(1, to: 7, at: second / 10)?.isAllowed == true)
    #expect(table.charge(1, to: 7, at: second / 10)?.isAllowed == false)
    #expect(table.charge(1, to: 8, at: second / 10)?.remaining == 19)
    // What was not used is not saved up.
    #expect(
      (0..<21).map { _ in table.charge(1, to: 7, at: 100 * second)?.isAllowed } == Array(
        repeating: true,
        count: 20
      ) + [false]
    )
  }

  @Test("a request that costs more than a full bucket has is let through when it is full, and leaves a debt")
  func costly() {
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

  @Test("a rate can be changed and taken away")
  func changes() {
    let table = RateTable()
    #expect(table.charge(1, to: 1, at: 0) == nil && !table.isOn)
    table.perSecond = 1
    #expect((0..<3).map { _ in table.charge(1, to: 1, at: 0)?.isAllowed } == [true, true, false])
    table.perSecond = nil
    #expect(table.charge(1, to: 1, at: 0) == nil)
  }

  @Test("asking without taking changes nothing")
  func asking() {
    let table = RateTable(perSecond: 1)
    for _ in 0..<5 { #expect(table.charge(1, to: 1, at: 0, .nothing)?.isAllowed == true) }
    _ = table.charge(2, to: 1, at: 0)
    #expect(table.charge(1, to: 1, at: 0, .nothing)?.isAllowed == false)
  }

  @Test("what is drawn in any case leaves a debt, ten seconds deep at most")
  func debt() {
    let table = RateTable(perSecond: 10)
    for _ in 0..<70 { _ = table.charge(1, to: 1, at: 0, .always) }
    #expect(table.charge(1, to: 1, at: 5 * second, .nothing)?.isAllowed == false)
    #expect(table.charge(1, to: 1, at: 51 * second / 10, .nothing)?.isAllowed == true)
    for _ in 0..<1_000 { _ = table.charge(1, to: 1, at: 10 * second, .always) }
    #expect(table.charge(1, to: 1, at: 181 * second / 10, .nothing)?.isAllowed == true)
  }

  @Test("what is left is never more than there was")
  func precise() {
    let table = RateTable(perSecond: 70_001)
    #expect(table.perSecond == 70_001)
    #expect(table.charge(1, to: 1, at: 0)?.remaining ?? 0 <= 140_002)
  }

  @Test("a full table forgets who owes least: nobody is rid of a debt by sending under other names")
  func bounded() {
    let table = RateTable(perSecond: 10, capacity: 128)
    for _ in 0..<30 { _ = table.charge(1, to: 42, at: 0) }
    for other in 1...100_000 as ClosedRange<UInt64> {
      _ = table.charge(1, to: other &* 0x9E37_79B9_7F4A_7C15, at: 0)
    }
    #expect(table.charge(1, to: 42, at: 0)?.isAllowed == false)
  }

  @Test("what an answer says of its bucket")
  func headers() throws {
    let limiter = RateLimiter(RateLimits(user: 5))
    let caller = Caller(userID: Array("bob".utf8), isServer: false)
    let answer = try #require(limiter.charge(2, to: caller, at: 0))
    let headers = limiter.headers(answer.packed).map { "\($0.name): \($0.value)" }
    #expect(headers == [#"ratelimit-policy: "user";q=10;w=2"#, #"ratelimit: "user";r=8;t=1"#])
    #expect(limiter.headers(0).isEmpty)
    #expect(limiter.charge(1, to: Caller.nobody, at: 0) == nil)
    #expect(limiter.charge(1, to: PeerAddress(high: 0, low: 1), at: 0) == nil)
  }
}
