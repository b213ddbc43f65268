import Operations
import Testing

@testable import Watch

/// Retries after a connection ends, gateway addresses, and request paths.
@Suite struct WatchRetryPolicyTests {
  @Test(arguments: [
    (
      WatchEnd.finished,
      WatchRetryPolicy.Step.retry(afterMilliseconds: 1_000, because: "the gateway ended the stream")
    ),
    (.countReached, .stop),
    (.lost("why"), .retry(afterMilliseconds: 1_000, because: "why")),
    (.silent, .retry(afterMilliseconds: 1_000, because: "timed out without events or comments")),
    (.unreadable("why"), .fail("why")),
    (
      .untrusted("why"),
      .fail(
        "the gateway's certificate is not accepted (why): give the certificate of its authority with --ca FILE"
      )
    ),
    (
      .refused(status: 403, code: "not_a_member", detail: "", retryAfterSeconds: nil),
      .fail("the gateway answered 403 not_a_member")
    ),
    (
      .refused(status: 401, code: "token_expired", detail: "it is over", retryAfterSeconds: 9),
      .fail("the gateway answered 401 token_expired it is over")
    ),
    (
      .refused(status: 503, code: "unavailable", detail: "", retryAfterSeconds: 5),
      .retry(afterMilliseconds: 5_000, because: "the gateway answered 503 unavailable")
    ),
    (
      .refused(status: 429, code: "", detail: "", retryAfterSeconds: 1_000_000),
      .retry(afterMilliseconds: 3_600_000, because: "the gateway answered 429")
    ),
    (
      .refused(status: 502, code: "", detail: "", retryAfterSeconds: nil),
      .retry(afterMilliseconds: 1_000, because: "the gateway answered 502")
    ),
  ])
  func endDeterminesNextStep(_ end: WatchEnd, _ step: WatchRetryPolicy.Step) {
    var progress = WatchRetryPolicy()
    #expect(progress.ended(end, hasOpened: true, retryMilliseconds: nil) == step)
  }

  private static func delays(_ opened: [Bool], retry: Int? = nil) -> [Int] {
    var progress = WatchRetryPolicy()
    return opened.map { hasOpened in
      guard
        case .retry(let milliseconds, _) = progress.ended(
          .lost(""),
          hasOpened: hasOpened,
          retryMilliseconds: retry
        )
      else { return -1 }
      return milliseconds
    }
  }

  @Test func failedConnectionsBackOff() {
    #expect(
      Self.delays([false, false, false, false, false, false, false, true, false, false]) == [
        1_000, 2_000, 4_000, 8_000, 16_000, 30_000, 30_000, 1_000, 1_000, 2_000,
      ]
    )
    #expect(Self.delays([true, true, true]) == [1_000, 1_000, 1_000])
    // The stream sets the delay, within limits.
    #expect(Self.delays([true, false, false], retry: 200) == [200, 200, 400])
    #expect(Self.delays([true], retry: 1_000_000) == [30_000])
    #expect(Self.delays([true], retry: 0) == [1])
    #expect(Self.delays([false, false], retry: .max) == [30_000, 30_000])
    // The delay has a maximum, after any number of failures.
    #expect(Self.delays(Array(repeating: false, count: 100)).last == 30_000)
  }

  @Test func pathHasEncodedParameters() {
    #expect(WatchRequest(user: "bob").path == "/v1/events?user_id=bob")
    #expect(
      WatchRequest(user: "b@x", channels: ["messaging:a", "team:!m&=#"], wantsTotals: true).path
        == "/v1/events?user_id=b@x&channels=messaging:a,team:!m%26%3D%23&totals=true"
    )
    #expect(WatchRequest(channels: ["a:b"]).path == "/v1/events?channels=a:b")
    #expect(WatchRequest(user: "\n✓").path == "/v1/events?user_id=%0A%E2%9C%93")
  }
}
