import Foundation
import HTTP2Session
import NIOCore
import ReceiptWire
import StoreClient
import StoreTestSupport
import Testing

@testable import Gateway

/// Refused requests and store failures, as problem responses.
@Suite struct ProblemTests {
  private let path = "/v1/channels/messaging:c/read"

  @Test(arguments: ProblemCode.allCases)
  func problemHasAllFieldsAndHeaders(_ code: ProblemCode) throws {
    let problem = Problem(code, code == .invalidField ? "field \"a\" is\nwrong" : "")
    let found = try jsonObject { problem.write(requestID: "r-1", into: &$0) }
    #expect(
      found == [
        "type": "urn:tidemark:problem:\(code.rawValue)", "title": "\(code.title)", "status": code.status,
        "code": code.rawValue, "detail": problem.detail.isEmpty ? "\(code.title)" : problem.detail,
        "request_id": "r-1",
      ]
    )
    #expect((400..<600).contains(code.status))
    let headers = Dictionary(
      uniqueKeysWithValues: problem.headers(requestID: "r-1").map { ("\($0.name)", $0.value) }
    )
    #expect(headers["x-request-id"] == "r-1")
    #expect(
      (headers["retry-after"] != nil) == ([429, 503].contains(code.status) || code == .messageNotFound)
    )
    let isOfToken = code.status == 401 && code != .webhookSignatureInvalid && code != .consoleCodeInvalid
    #expect((headers["www-authenticate"] != nil) == isOfToken)
  }

  @Test(arguments: [
    (StoreFailure.busy, true, "store_busy 1"), (.unavailable, true, "store_unavailable 1"),
    (.outcomeUnknown, true, "outcome_unknown 1"),
    (.refused(.busy, retryAfterMilliseconds: 2_001, detail: "x"), true, "store_busy 3"),
    (.refused(.unavailable, retryAfterMilliseconds: 0, detail: ""), true, "store_unavailable 1"),
    (.refused(.notAMember, retryAfterMilliseconds: 0, detail: ""), true, "member_not_found -"),
    (.refused(.notAMember, retryAfterMilliseconds: 0, detail: ""), false, "channel_not_found -"),
    (.refused(.messageNotFound, retryAfterMilliseconds: 0, detail: ""), false, "message_not_found 1"),
    (.refused(.messageDeleted, retryAfterMilliseconds: 0, detail: ""), false, "message_deleted -"),
    (.refused(.markUnreadOff, retryAfterMilliseconds: 0, detail: ""), false, "mark_unread_off -"),
    (.refused(.invalidField, retryAfterMilliseconds: 0, detail: "name"), false, "invalid_field -"),
    (.refused(.tokenRevoked, retryAfterMilliseconds: 0, detail: ""), false, "token_revoked -"),
    (.refused(.countsNotVisible, retryAfterMilliseconds: 0, detail: ""), false, "counts_not_visible -"),
    (.refused(.orderNotAvailable, retryAfterMilliseconds: 0, detail: ""), true, "order_not_available -"),
    (.refused(.invalidCursor, retryAfterMilliseconds: 0, detail: ""), true, "invalid_cursor -"),
    (.refused(.feedOff, retryAfterMilliseconds: 0, detail: ""), true, "feed_off -"),
    (.refused(.consumerNotFound, retryAfterMilliseconds: 0, detail: ""), true, "consumer_not_found -"),
    (.refused(.consumerConflict, retryAfterMilliseconds: 0, detail: ""), true, "consumer_conflict -"),
    (.refused(.leaseLost, retryAfterMilliseconds: 0, detail: "7"), true, "lease_lost -"),
    (.refused(.malformedFrame, retryAfterMilliseconds: 0, detail: "secret"), false, "internal_error -"),
  ])
  func storeFailureMapsToProblem(_ failure: StoreFailure, _ isServer: Bool, _ expected: String) {
    let problem = Problem(failure, route: .markRead, isServer: isServer)
    let after = problem.retryAfterSeconds.map { "\($0)" } ?? "-"
    #expect("\(problem.code.rawValue) \(after)" == expected)
    #expect(!problem.detail.contains("secret"))
  }

  @Test func storeFailureIsAnswered() async throws {
    try await TestGateway.run(deadline: .seconds(2)) { gateway in
      try await gateway.setUp("messaging:c", members: ["alice"], messages: ["m1"])
      let alice = TestTokens.user("alice")
      let batch = #"{"latest_delivered_messages":[{"cid":"messaging:c","id":"m1"}]}"#
      let modes: [(StoreInMemory.Mode, String, String)] = [
        (.refusing(.busy), "503 store_busy", "store_busy"),
        (.refusing(.unavailable), "503 store_unavailable", "store_unavailable"),
        (.refusing(.wrongShard), "503 store_unavailable", "store_unavailable"),
        (.refusing(.outcomeUnknown), "503 outcome_unknown", "outcome_unknown"),
        (.refusing(.limitReached), "409 limit_reached", "limit_reached"),
        (.garbled, "500 internal_error", "internal_error"),
        (.silent, "503 outcome_unknown", "outcome_unknown"), (.normal, "200", "ok"),
      ]
      for (mode, expected, entry) in modes {
        try await gateway.store.set(mode)
        let response = try await gateway.client.post(path, nil, token: alice)
        #expect(response.verdict == expected)
        if response.status == 503 {
          let after = Int(response.headers["retry-after"] ?? "") ?? 0
          #expect((1...2).contains(after))
        }
        let delivered = try await gateway.client.post("/v1/channels/delivered", batch, token: alice)
        #expect(delivered.status == 201)
        let result = try #require((delivered.json["results"] as? [NSDictionary])?.first)
        #expect((result["code"] as? String ?? "ok") == entry)
      }
      // An unanswered query has changed nothing.
      try await gateway.store.set(.silent)
      let query = try await gateway.client.get("/v1/channels/messaging:c/read-state", token: alice)
      #expect(query.verdict == "503 store_unavailable")
      // A channel type whose home shard does not answer may have changed.
      let type = try await gateway.client.put("/v1/channel-types/t", "{}")
      #expect(type.verdict == "503 outcome_unknown")
    }
  }
}
