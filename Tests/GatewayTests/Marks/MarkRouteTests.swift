import Foundation
import ReceiptWire
import StoreTestSupport
import Testing

@testable import Gateway

/// Marks of one channel, as a caller sees them.
@Suite struct MarkRouteTests {
  private let alice = TestTokens.user("alice")
  private let bob = TestTokens.user("bob")

  @Test func markReadMovesPosition() async throws {
    try await TestGateway.run { gateway in
      let client = gateway.client
      try await gateway.setUp("messaging:c", members: ["alice", "bob"], messages: ["m1", "m2", "m3"])
      let path = "/v1/channels/messaging:c/read"
      // The id in the query, in the body, in both, and in neither, which means the newest message.
      let first = try await client.post(path + "?message_id=m1", nil, token: bob)
      #expect(first.status == 200 && first.contentType == "application/json")
      #expect(
        first.json == [
          "read": [
            "user": ["id": "bob"], "joined_seq": 0, "last_read": gateway.storeTime(), "last_read_message_id": "m1",
            "last_read_seq": 1, "unread_messages": 2, "last_delivered_at": gateway.storeTime(),
            "last_delivered_message_id": "m1", "last_delivered_seq": 1, "first_unread_message_id": "m2",
            "unread_epoch": 0, "marked_unread": false, "unread_mentions": 0,
          ]
        ]
      )
      #expect(first.headers["content-length"] == "\(first.body.utf8.count)")
      #expect(first.headers["x-request-id"] == nil)
      let second = try await client.post(path, #"{"message_id":"m2"}"#, token: bob)
      #expect(member("read.last_read_seq", of: second.json) as? Int == 2)
      let both = try await client.post(
        path + "?message_id=m1",
        #"{"message_id":"m2","unread_epoch":4}"#,
        token: bob
      )
      #expect(member("read.last_read_seq", of: both.json) as? Int == 2)
      for body in [nil, "{}", #"{"unread_epoch":null}"#] {
        let newest = try await client.post(path, body, token: bob)
        #expect(member("read.last_read_seq", of: newest.json) as? Int == 3, "\(body ?? "nil")")
      }
      // A server names the user, in the body or the query.
      for (query, body) in [
        ("", #"{"user_id":"alice"}"#), ("?user_id=alice", nil), ("?user_id=alice", #"{"user_id":"alice"}"#),
      ] {
        let named = try await client.post(path + query, body)
        #expect(member("read.user.id", of: named.json) as? String == "alice")
      }
      // A user may name their own id. Escaped paths are equivalent.
      let own = try await client.post("/v1/channels/messaging%3Ac/read?user_id=bob", nil, token: bob)
      #expect(own.status == 200)
    }
  }

  /// Omitting these fields means *all*, *newest* or another view, so a missing variable must not widen a request.
  @Test func nullFieldsAreRefused() async throws {
    try await TestGateway.run { gateway in
      try await gateway.setUp("messaging:c", members: ["alice", "bob"], messages: ["m1"])
      _ = try await gateway.store.takeLog()
      let channel = "/v1/channels/messaging:c/"
      let table: [(route: String, rest: String, fields: [String])] = [
        (channel + "truncate", "", ["all", "before"]),
        (channel + "read", "", ["message_id", "thread_id", "user_id"]),
        (channel + "read", #""message_id":"m1","#, ["thread_id", "user_id"]),
        (channel + "read?message_id=m1&user_id=bob", "", ["message_id", "thread_id", "user_id"]),
        (channel + "unread", #""thread_id":"m1","#, ["message_id", "user_id"]),
        (channel + "unread", #""message_id":"m1","#, ["thread_id", "user_id"]),
        ("/v1/channels/delivered", #""latest_delivered_messages":[],"#, ["user_id"]),
        ("/v1/channels/read", "", ["all", "read_by_channel", "user_id"]),
        ("/v1/channels/read", #""read_by_channel":{},"#, ["user_id"]),
        (channel + "receipts", #""message_ids":["m1"],"#, ["user_id"]),
        (channel + "receipts/query", #""message_ids":["m1"],"#, ["user_id"]),
      ]
      for (route, rest, fields) in table {
        for field in fields {
          for token in [TestTokens.server, TestTokens.user("bob")] {
            // Only servers truncate.
            if route.hasSuffix("truncate"), token != TestTokens.server { continue }
            let response = try await gateway.client.post(route, "{\(rest)\"\(field)\":null}", token: token)
            #expect(response.verdict == "400 invalid_field", "\(route) \(rest) \(field)")
            let detail = response.json["detail"] as? String ?? ""
            #expect(detail.contains("\"\(field)\""), "\(route) \(field): \(detail)")
          }
        }
      }
      #expect(try await gateway.store.takeLog().isEmpty, "a request reached the store")
    }
  }

  @Test func invalidMarksAreRefused() async throws {
    try await TestGateway.run { gateway in
      try await gateway.setUp("messaging:c", members: ["alice", "bob"], messages: ["m1"])
      let long = String(repeating: "m", count: 256)
      let table: [(String, String?, String, String)] = [
        ("read", nil, TestTokens.server, "400 user_id_required"),
        ("read?user_id=", nil, TestTokens.server, "400 invalid_query"),
        ("read?user_id=a%7Fb", nil, TestTokens.server, "400 invalid_user_id"),
        ("read", #"{"user_id":"a\u007Fb"}"#, TestTokens.server, "400 invalid_user_id"),
        ("read?user_id=carol", nil, TestTokens.server, "404 member_not_found"),
        ("read", nil, TestTokens.user("carol"), "404 channel_not_found"),
        ("read?user_id=alice", nil, bob, "403 user_id_mismatch"),
        ("read", #"{"user_id":"alice"}"#, bob, "403 user_id_mismatch"),
        ("read?user_id=alice", #"{"user_id":"bob"}"#, bob, "403 user_id_mismatch"),
        ("read?message_id=m9", nil, bob, "404 message_not_found"),
        ("read?message_id=\(long)", nil, bob, "400 invalid_message_id"),
        ("read?message_id=a%07b", nil, bob, "400 invalid_message_id"),
        ("read", #"{"message_id":""}"#, bob, "400 invalid_message_id"),
        ("read", #"{"message_id":7}"#, bob, "400 invalid_field"),
        ("read", #"{"unread_epoch":-1}"#, bob, "400 invalid_field"),
        ("read", #"{"unread_epoch":4294967296}"#, bob, "400 invalid_field"),
        ("read", "[]", bob, "400 invalid_field"),
        ("read", "{", bob, "400 invalid_json"), ("read", "\u{1}", bob, "400 invalid_json"),
        ("read?user_id=%zz", nil, bob, "400 invalid_query"),
        ("unread", nil, bob, "400 invalid_field"),
        ("unread", #"{"message_id":"m9"}"#, bob, "404 message_not_found"),
      ]
      for (path, body, token, expected) in table {
        let response = try await gateway.client.post("/v1/channels/messaging:c/\(path)", body, token: token)
        #expect(response.verdict == expected, "\(path) \(body ?? "")")
        #expect(response.contentType == "application/problem+json")
        #expect(response.headers["x-request-id"] == response.json["request_id"] as? String)
        #expect((response.headers["retry-after"] == "1") == (expected == "404 message_not_found"), "\(path)")
      }
      let unknown = try await gateway.client.post("/v1/channels/messaging:none/read", nil, token: bob)
      #expect(unknown.verdict == "404 channel_not_found")
    }
  }

  @Test func markUnreadMovesMarker() async throws {
    try await TestGateway.run { gateway in
      try await gateway.setUp("messaging:c", members: ["alice", "bob"], messages: ["m1", "m2"])
      _ = try await gateway.client.post("/v1/channels/messaging:c/read", nil, token: bob)
      let response = try await gateway.client.post(
        "/v1/channels/messaging:c/unread",
        #"{"message_id":"m2","unread_epoch":0}"#,
        token: bob
      )
      #expect(response.status == 200)
      #expect(member("read.unread_messages", of: response.json) as? Int == 1)
      #expect(member("read.first_unread_message_id", of: response.json) as? String == "m2")
      #expect(member("read.unread_epoch", of: response.json) as? Int == 1)
      let off = try await gateway.client.put(
        "/v1/channels/messaging:c",
        #"{"options":{"mark_unread":"off"}}"#
      )
      #expect(off.status == 200)
      let refused = try await gateway.client.post(
        "/v1/channels/messaging:c/unread",
        #"{"message_id":"m1"}"#,
        token: bob
      )
      #expect(refused.verdict == "403 mark_unread_off")
    }
  }
}
