import Foundation
import StoreTestSupport
import Testing

@testable import Gateway

/// Threads (R15) as a caller sees them: every route that takes a `thread_id` or `parent_id`.
@Suite struct ThreadRouteTests {
  private let alice = TestTokens.user("alice")
  private let bob = TestTokens.user("bob")
  private let path = "/v1/channels/messaging:c/"

  private func seq(_ response: TestResponse) -> String {
    guard let row = response.json["read"] as? NSDictionary else { return response.verdict }
    return "\(row["last_read_seq"] ?? "-") unread \(row["unread_messages"] ?? "-")"
  }

  /// Create a channel with two messages by alice. Bob replies twice to the first one, alice once. Carol takes no part.
  private func setUp(_ gateway: TestGateway) async throws {
    try await gateway.setUp("messaging:c", members: ["alice", "bob", "carol"], messages: ["m1", "m2"])
    for (id, user, sequence) in [("r1", "bob", 1), ("r2", "bob", 2), ("r3", "alice", 3)] {
      let reply = try await gateway.client.post(
        path + "messages",
        "{\"id\":\"\(id)\",\"user_id\":\"\(user)\",\"parent_id\":\"m1\"}"
      )
      #expect(reply.status == 201)
      #expect(
        reply.json == ["message": ["id": id, "cid": "messaging:c", "seq": sequence, "status": "sent"]]
      )
    }
  }

  @Test func threadMarksMoveThreadPositions() async throws {
    try await TestGateway.run { gateway in
      try await setUp(gateway)
      // Ids in body or query, where the body takes precedence; a named reply, or the newest one.
      let table: [(String, String?, String, String)] = [
        ("read?thread_id=m1&message_id=r1", nil, bob, "2 unread 1"),
        ("read", #"{"thread_id":"m1","message_id":"r2"}"#, bob, "2 unread 1"),
        ("read?thread_id=m2", #"{"thread_id":"m1"}"#, bob, "3 unread 0"),
        ("read?thread_id=m1", "{}", bob, "3 unread 0"),
        ("read", nil, bob, "2 unread 0"), ("read?thread_id=", nil, bob, "400 invalid_query"),
        ("unread", #"{"thread_id":"m1","message_id":"r3"}"#, bob, "2 unread 1"),
        // A thread may be marked unread as a whole.
        ("unread", #"{"thread_id":"m1"}"#, bob, "0 unread 1"),
        ("unread?thread_id=m1&user_id=bob", nil, TestTokens.server, "0 unread 1"),
        ("read", #"{"thread_id":"m1","message_id":"m2"}"#, bob, "404 message_not_found"),
        ("read", #"{"thread_id":"m9"}"#, bob, "404 message_not_found"),
        ("read", #"{"thread_id":"r1"}"#, bob, "400 invalid_field"),
        ("unread", #"{"thread_id":"m1"}"#, TestTokens.user("carol"), "409 not_in_thread"),
        ("read", #"{"thread_id":""}"#, bob, "400 invalid_message_id"),
        ("read", #"{"thread_id":"a\u007Fb"}"#, bob, "400 invalid_message_id"),
        ("read", #"{"thread_id":1}"#, bob, "400 invalid_field"),
        ("read?thread_id=a%7Fb", nil, bob, "400 invalid_message_id"),
        ("unread?thread_id=%07", nil, bob, "400 invalid_message_id"),
        ("unread", nil, bob, "400 invalid_field"),
      ]
      for (route, body, token, expected) in table {
        let response = try await gateway.client.post(path + route, body, token: token)
        #expect(seq(response) == expected, "\(route) \(body ?? "")")
      }
      let body = #"{"thread_id":"m1","user_id":"carol"}"#
      let response = try await gateway.client.post(path + "unread", body, token: TestTokens.server)
      #expect(response.verdict == "409 not_in_thread")
      // In the frame the token's issue time follows the thread.
      _ = try await gateway.store.takeIssueTimes()
      let old = TestTokens.make(#"{"user_id":"bob","iat":7}"#)
      #expect(try await gateway.client.post(path + "read?thread_id=m1", nil, token: old).status == 200)
      #expect(try await gateway.store.takeIssueTimes() == [7])
    }
  }

  @Test func repliesAreNumberedPerThread() async throws {
    try await TestGateway.run { gateway in
      try await setUp(gateway)
      let again = try await gateway.client.post(path + "messages", #"{"id":"r1","user_id":"bob","parent_id":"m1"}"#)
      #expect(again.status == 200 && (again.json["message"] as? NSDictionary)?["seq"] as? Int == 1)
      let body = """
        {"messages":[{"cid":"messaging:c","id":"r4","user_id":"bob","parent_id":"m1"},
         {"cid":"messaging:c","id":"r5","parent_id":"none"},{"cid":"messaging:c","id":"r5","parent_id":"r1"},
         {"cid":"messaging:c","id":"m3","parent_id":null},{"cid":"messaging:c","id":"r6","parent_id":"m3"}]}
        """
      let many = try await gateway.client.post("/v1/messages", body)
      let results = (many.json["results"] as? [NSDictionary] ?? []).map { result in
        result["code"] as? String ?? "\((result["message"] as? NSDictionary)?["seq"] ?? "-")"
      }
      #expect(results == ["4", "message_not_found", "invalid_field", "3", "1"])
      #expect(try await gateway.client.delete(path + "messages/m2").status == 200)
      let closed = try await gateway.client.post(path + "messages", #"{"id":"r7","parent_id":"m2"}"#)
      #expect(closed.verdict == "409 message_deleted")
      let nested = try await gateway.client.post(path + "messages", #"{"id":"r7","parent_id":"r1"}"#)
      #expect(nested.json["detail"] as? String == "the parent is a reply, and a reply has no replies")
    }
  }

  @Test func repliesAreMarkedDelivered() async throws {
    try await TestGateway.run { gateway in
      try await setUp(gateway)
      let body = """
        {"latest_delivered_messages":[{"cid":"messaging:c","id":"r3","parent_id":"m1"},
         {"cid":"messaging:c","id":"r3","parent_id":"m2"},{"cid":"messaging:c","id":"m2"},
         {"cid":"messaging:c","id":"r3","parent_id":""},{"cid":"messaging:c","id":"r3","parent_id":"a\\u0007b"},
         {"cid":"messaging:c","id":"r3","parent_id":7}]}
        """
      let response = try await gateway.client.post("/v1/channels/delivered", body, token: bob)
      #expect(response.status == 201)
      let codes = (response.json["results"] as? [NSDictionary] ?? []).map { $0["code"] as? String ?? "ok" }
      #expect(
        codes == [
          "ok", "message_not_found", "ok", "invalid_message_id", "invalid_message_id", "invalid_field",
        ]
      )
    }
  }
}
