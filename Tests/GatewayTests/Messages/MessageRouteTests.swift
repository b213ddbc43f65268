import Foundation
import HTTP2Session
import StoreTestSupport
import Testing

@testable import Gateway

/// Messages, their statuses and read states, as a caller sees them.
@Suite struct MessageRouteTests {
  private let alice = TestTokens.user("alice")
  private let bob = TestTokens.user("bob")

  @Test func messageIsRegisteredAndDeleted() async throws {
    try await TestGateway.run { gateway in
      let client = gateway.client
      try await gateway.setUp("messaging:c", members: ["alice", "bob"])
      let path = "/v1/channels/messaging:c/messages"
      let body =
        #"{"id":"m\"1","user_id":"alice","created_at":"2024-01-01T00:00:00Z","silent":true,"receipt":false}"#
      let created = try await client.post(path, body)
      #expect(created.status == 201)
      #expect(created.json == ["message": ["id": "m\"1", "cid": "messaging:c", "seq": 1, "status": "sent"]])
      let again = try await client.post(path, body)
      #expect(again.status == 200 && again.json == created.json)
      let system = try await client.post(path, #"{"id":"m2"}"#)
      #expect(system.status == 201)
      let deleted = try await client.delete(path + "/m%221")
      #expect(
        deleted.status == 200 && deleted.json == ["message": ["id": "m\"1", "cid": "messaging:c", "seq": 1]]
      )
      #expect(try await client.delete(path + "/m%221").status == 200)
      #expect(try await client.post(path, body).verdict == "409 message_deleted")
      for (body, token, expected) in [
        (#"{"id":"m3"}"#, alice, "403 server_token_required"), ("{}", TestTokens.server, "400 invalid_field"),
        (#"{"id":"m\u00073"}"#, TestTokens.server, "400 invalid_message_id"),
        (#"{"id":3}"#, TestTokens.server, "400 invalid_field"),
        (#"{"id":"m3","user_id":"a\u007Fb"}"#, TestTokens.server, "400 invalid_user_id"),
        (#"{"id":"m3","created_at":"yesterday"}"#, TestTokens.server, "400 invalid_field"),
        (#"{"id":"m3","silent":"yes"}"#, TestTokens.server, "400 invalid_field"),
        (#"{"id":"m3","receipt":1}"#, TestTokens.server, "400 invalid_field"),
        (#"{"id":"m3","parent_id":""}"#, TestTokens.server, "400 invalid_message_id"),
        (#"{"id":"m3","parent_id":"m\u00072"}"#, TestTokens.server, "400 invalid_message_id"),
        (#"{"id":"m3","parent_id":2}"#, TestTokens.server, "400 invalid_field"),
      ] {
        #expect(try await client.post(path, body, token: token).verdict == expected, "\(body)")
      }
      #expect(try await client.delete(path + "/m2", token: alice).verdict == "403 server_token_required")
    }
  }

  @Test func bulkRegistrationAnswersPerMessage() async throws {
    try await TestGateway.run { gateway in
      try await gateway.setUp("messaging:c", members: ["alice"])
      let response = try await gateway.client.post(
        "/v1/messages",
        """
        {"messages":[{"cid":"messaging:c","id":"m1","user_id":"alice"},{"cid":"messaging:none","id":"m1"},
         {"cid":"bad","id":"m1"},{"cid":"messaging:c","id":"m\\u00071"},{"cid":"messaging:c","id":"m2","receipt":true},
         {"cid":"messaging:c","id":"m3","parent_id":"m\\u00071"},
         {"cid":"messaging:c","id":"m1","user_id":"alice"},{"cid":"messaging:c","id":"m4"}]}
        """
      )
      #expect(response.status == 200)
      let message = { (id: String, seq: Int) -> NSDictionary in
        ["ok": true, "message": ["id": id, "cid": "messaging:c", "seq": seq, "status": "sent"]]
      }
      let refused = { (cid: String, id: String, code: String) -> NSDictionary in
        ["ok": false, "cid": cid, "id": id, "code": code]
      }
      #expect(
        response.json == [
          "results": [
            message("m1", 1), refused("messaging:none", "m1", "channel_not_found"),
            refused("bad", "m1", "invalid_cid"),
            refused("messaging:c", "m\u{7}1", "invalid_message_id"),
            message("m2", 2), refused("messaging:c", "m3", "invalid_message_id"), message("m1", 1),
            message("m4", 3),
          ]
        ]
      )
      let thousand = (0..<1_000).map { #"{"cid":"messaging:c","id":"n\#($0)"}"# }
      let most = try await gateway.client.post(
        "/v1/messages",
        "{\"messages\":[\(thousand.joined(separator: ","))]}"
      )
      let results = try #require(most.json["results"] as? [NSDictionary])
      #expect(results.count == 1_000)
      #expect(member("message.id", of: results[999]) as? String == "n999")
      #expect(member("message.seq", of: results[999]) as? Int == 1_003)
      let tooMany = (thousand + [#"{"cid":"messaging:c","id":"x"}"#]).joined(separator: ",")
      #expect(
        try await gateway.client.post("/v1/messages", "{\"messages\":[\(tooMany)]}").verdict
          == "400 invalid_field"
      )
      let typed = #"{"messages":[{"cid":"messaging:c","id":"y"},{"cid":"messaging:c","id":8}]}"#
      #expect(try await gateway.client.post("/v1/messages", typed).verdict == "400 invalid_field")
      #expect(
        try await gateway.client.post("/v1/messages", "{}", token: alice).verdict
          == "403 server_token_required"
      )
    }
  }

  @Test func readStatesAreListedInPages() async throws {
    try await TestGateway.run { gateway in
      let client = gateway.client
      try await gateway.setUp("messaging:c", members: (0..<5).map { "u\($0)" }, messages: ["m1", "m2"])
      let path = "/v1/channels/messaging:c/read-state"
      let whole = try await client.get(path)
      let rows = try #require(whole.json["read"] as? [NSDictionary])
      #expect(
        rows.count == 5 && whole.json["next"] == nil && rows.allSatisfy { $0["unread_messages"] != nil }
      )
      let first = try await client.get(path + "?limit=2", token: TestTokens.user("u4"))
      let firstRows = try #require(first.json["read"] as? [NSDictionary])
      #expect(firstRows.map { member("user.id", of: $0) as? String } == ["u4", "u3"])
      #expect(firstRows[0]["unread_messages"] != nil && firstRows[1]["unread_messages"] == nil)
      let next = try #require(first.json["next"] as? String)
      let second = try await client.get(path + "?limit=2&cursor=\(next)", token: TestTokens.user("u4"))
      #expect(
        (second.json["read"] as? [NSDictionary])?.map { member("user.id", of: $0) as? String } == [
          "u2", "u1",
        ]
      )
      #expect(try await client.get(path + "?user_id=u1").status == 200)
      for (query, token, expected) in [
        ("?limit=0", TestTokens.server, "400 invalid_query"),
        ("?limit=101", TestTokens.server, "400 invalid_query"),
        ("?limit=x", TestTokens.server, "400 invalid_query"),
        ("?cursor=7", TestTokens.server, "400 invalid_cursor"),
        ("?cursor=r99999999999", TestTokens.server, "400 invalid_cursor"),
        ("", TestTokens.user("nobody"), "404 channel_not_found"),
        ("?user_id=nobody", TestTokens.server, "404 member_not_found"),
        ("?user_id=u1", TestTokens.user("u2"), "403 user_id_mismatch"),
      ] {
        #expect(try await client.get(path + query, token: token).verdict == expected, "\(query)")
      }
    }
  }

  @Test func messageStatusesAreListed() async throws {
    try await TestGateway.run { gateway in
      let client = gateway.client
      try await gateway.setUp("messaging:c", members: ["alice", "bob", "carol"])
      for id in ["m1", "m2", "m3"] {
        let body = #"{"id":"\#(id)","user_id":"alice","created_at":"2024-01-01T00:00:00Z"}"#
        _ = try await client.post("/v1/channels/messaging:c/messages", body)
      }
      _ = try await client.delete("/v1/channels/messaging:c/messages/m3")
      _ = try await client.post("/v1/channels/messaging:c/read", #"{"message_id":"m1"}"#, token: bob)
      let status = try await client.get("/v1/channels/messaging:c/messages/m1/status", token: alice)
      let expected: NSDictionary = [
        "message_id": "m1", "cid": "messaging:c", "seq": 1, "status": "read", "receipt_status": "none",
        "read_count": 1, "delivered_count": 1, "unread_count": 1, "member_count": 2, "read_events": true,
        "delivery_events": true, "created_at": "2024-01-01T00:00:00.000Z",
      ]
      #expect(status.status == 200 && status.json == expected)
      let query = try await client.post(
        "/v1/channels/messaging:c/receipts/query",
        #"{"message_ids":["m9","m1","m3","m2"]}"#,
        token: alice
      )
      let statuses = try #require(query.json["statuses"] as? [NSDictionary])
      #expect(statuses.count == 4 && statuses[1] == expected && statuses[3]["status"] as? String == "sent")
      #expect(statuses[0] == ["message_id": "m9", "code": "message_not_found"])
      #expect(statuses[2] == ["message_id": "m3", "code": "message_deleted"])
      let mixed = try await client.post(
        "/v1/channels/messaging:c/receipts/query",
        #"{"message_ids":["a\u007Fb","m1","",7,"m9"]}"#,
        token: alice
      )
      #expect(
        mixed.json == [
          "statuses": [
            ["message_id": "a\u{7F}b", "code": "invalid_message_id"], expected,
            ["message_id": "", "code": "invalid_message_id"], ["code": "invalid_field"],
            ["message_id": "m9", "code": "message_not_found"],
          ]
        ]
      )
      for (body, found) in [
        (#"{"message_ids":[]}"#, ["statuses": []] as NSDictionary),
        (
          #"{"message_ids":["a\u007Fb"]}"#,
          ["statuses": [["message_id": "a\u{7F}b", "code": "invalid_message_id"]]]
        ),
      ] {
        let response = try await client.post("/v1/channels/messaging:c/receipts/query", body, token: alice)
        #expect(response.status == 200 && response.json == found, "\(response.body)")
      }
      #expect(try await client.get("/v1/channels/messaging:c/messages/m1/status").status == 200)
      for (path, token, expected) in [
        ("m9", alice, "404 message_not_found"), ("m3", alice, "404 message_deleted"),
        ("m1", TestTokens.user("x"), "404 channel_not_found"),
      ] {
        let response = try await client.get("/v1/channels/messaging:c/messages/\(path)/status", token: token)
        #expect(response.verdict == expected)
      }
      let many = (0..<101).map { "\"m\($0)\"" }.joined(separator: ",")
      for (body, expected) in [
        ("{}", "400 invalid_field"), (#"{"message_ids":{}}"#, "400 invalid_field"),
        ("{\"message_ids\":[\(many)]}", "400 invalid_field"),
      ] {
        let response = try await client.post("/v1/channels/messaging:c/receipts/query", body, token: alice)
        #expect(response.verdict == expected, "\(body.prefix(40))")
      }
    }
  }
}
