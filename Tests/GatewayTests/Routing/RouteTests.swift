import Foundation
import HTTP2Session
import NIOCore
import ReceiptWire
import StoreTestSupport
import Testing

@testable import Gateway

/// The routes as a caller sees them, through HTTP/2 and the frame protocol.
@Suite struct RouteTests {
  let alice = TestTokens.user("alice")
  let bob = TestTokens.user("bob")

  func member(_ path: String, of object: NSDictionary) -> Any? {
    path.split(separator: ".").reduce(object as Any?) { found, key in (found as? NSDictionary)?[String(key)] }
  }

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

  @Test func markDeliveredAnswersPerEntry() async throws {
    try await TestGateway.run { gateway in
      try await gateway.setUp("messaging:a", members: ["alice", "bob"], messages: ["a1", "a2"])
      try await gateway.setUp("messaging:b", members: ["alice"], messages: ["b1"])
      let body = """
        {"latest_delivered_messages":[{"cid":"messaging:a","id":"a2"},{"cid":"messaging:b","id":"b1"},
         {"cid":"messaging:none","id":"x"},{"cid":"no cid","id":"x"},{"cid":"messaging:a","id":"a\\u00071"},
         {"cid":"messaging:a","id":"a9"},{"cid":"messaging:a","id":"a1","parent_id":"p\\u0007p"},
         {"cid":"messaging:a","id":"a1"}]}
        """
      let response = try await gateway.client.post("/v1/channels/delivered", body, token: bob)
      #expect(response.status == 201)
      #expect(
        response.json == [
          "results": [
            ["cid": "messaging:a", "id": "a2", "ok": true],
            ["cid": "messaging:b", "id": "b1", "ok": false, "code": "channel_not_found"],
            ["cid": "messaging:none", "id": "x", "ok": false, "code": "channel_not_found"],
            ["cid": "no cid", "id": "x", "ok": false, "code": "invalid_cid"],
            ["cid": "messaging:a", "id": "a\u{7}1", "ok": false, "code": "invalid_message_id"],
            ["cid": "messaging:a", "id": "a9", "ok": false, "code": "message_not_found"],
            ["cid": "messaging:a", "id": "a1", "ok": false, "code": "invalid_message_id"],
            ["cid": "messaging:a", "id": "a1", "ok": true],
          ]
        ]
      )
      let server = try await gateway.client.post(
        "/v1/channels/delivered",
        #"{"user_id":"bob","latest_delivered_messages":[{"cid":"messaging:b","id":"b1"}]}"#
      )
      #expect(
        server.json == [
          "results": [["cid": "messaging:b", "id": "b1", "ok": false, "code": "member_not_found"]]
        ]
      )
      let empty = try await gateway.client.post(
        "/v1/channels/delivered",
        #"{"latest_delivered_messages":[]}"#,
        token: bob
      )
      #expect(empty.status == 201 && empty.json == ["results": []])

      _ = try await gateway.store.takeLog()
      let hundred = Array(repeating: #"{"cid":"messaging:a","id":"a1"}"#, count: 100).joined(separator: ",")
      let table: [(String?, String, String)] = [
        (nil, bob, "400 invalid_field"), (#"{"latest_delivered_messages":{}}"#, bob, "400 invalid_field"),
        (
          #"{"latest_delivered_messages":[\#(hundred),{"cid":"messaging:a","id":"a1"}]}"#, bob,
          "400 invalid_field"
        ),
        (
          #"{"latest_delivered_messages":[{"cid":"messaging:a","id":"a1"}]}"#, TestTokens.server,
          "400 user_id_required"
        ),
        (
          #"{"user_id":"alice","latest_delivered_messages":[{"cid":"messaging:a","id":"a1"}]}"#, bob,
          "403 user_id_mismatch"
        ),
      ]
      for (body, token, expected) in table {
        let response = try await gateway.client.post("/v1/channels/delivered", body, token: token)
        #expect(response.verdict == expected, "\(body ?? "")")
      }
      // A malformed body changed nothing.
      #expect(try await gateway.store.takeLog().isEmpty)
      let most = try await gateway.client.post(
        "/v1/channels/delivered",
        "{\"latest_delivered_messages\":[\(hundred)]}",
        token: bob
      )
      #expect(most.status == 201 && (most.json["results"] as? NSArray)?.count == 100)
    }
  }

  @Test func invalidDeliveredEntryFailsAlone() async throws {
    try await TestGateway.run { gateway in
      try await gateway.setUp("messaging:a", members: ["alice", "bob"], messages: ["a1"])
      let body = """
        {"latest_delivered_messages":[{"cid":"messaging:a"},{"cid":"messaging:a","id":7},{"id":"a1"},
         {"cid":null,"id":"a1"},7,{"cid":"messaging:a","id":"a1","parent_id":1},
         {"cid":"messaging:a","id":"a1","parent_id":null},[]]}
        """
      let response = try await gateway.client.post("/v1/channels/delivered", body, token: bob)
      #expect(response.status == 201)
      #expect(
        response.json == [
          "results": [
            ["cid": "messaging:a", "ok": false, "code": "invalid_field"],
            ["cid": "messaging:a", "ok": false, "code": "invalid_field"],
            ["id": "a1", "ok": false, "code": "invalid_field"],
            ["id": "a1", "ok": false, "code": "invalid_field"],
            ["ok": false, "code": "invalid_field"],
            ["cid": "messaging:a", "id": "a1", "ok": false, "code": "invalid_field"],
            ["cid": "messaging:a", "id": "a1", "ok": true],
            ["ok": false, "code": "invalid_field"],
          ]
        ]
      )
    }
  }

  @Test func onlyHarmlessEmptyQueryParametersCountAsAbsent() async throws {
    try await TestGateway.run { gateway in
      try await gateway.setUp("messaging:c", members: ["alice", "bob"], messages: ["m1"])
      let path = "/v1/channels/messaging:c/"
      for query in [
        "totals=", "totals", "totals=false",
      ] {
        #expect(try await gateway.client.post("\(path)read?\(query)", nil, token: bob).status == 200)
      }
      for query in ["totals=1", "totals=TRUE", "totals=yes"] {
        let response = try await gateway.client.post("\(path)read?\(query)", nil, token: bob)
        #expect(response.verdict == "400 invalid_query", "\(query)")
      }
      // Omitting an id means the newest message, the channel or another view, so an empty id is refused.
      for query in [
        "message_id=", "thread_id", "message_id=m1&thread_id=", "user_id=", "message_id=m1&message_id=m1",
        "user_id=bob&user_id=alice",
      ] {
        let response = try await gateway.client.post("\(path)read?\(query)", nil, token: bob)
        #expect(response.verdict == "400 invalid_query", "\(query)")
      }
      let status = try await gateway.client.get(
        "\(path)messages/m1/status?user_id=",
        token: TestTokens.server
      )
      #expect(status.verdict == "400 invalid_query")
      let rows = try await gateway.client.get("\(path)read-state?limit=&cursor=", token: bob)
      #expect(rows.status == 200 && (rows.json["read"] as? NSArray)?.count == 2)
    }
  }

  @Test func markReadManyAnswersPerChannel() async throws {
    try await TestGateway.run { gateway in
      try await gateway.setUp("messaging:a", members: ["alice", "bob"], messages: ["a1", "a2"])
      let path = "/v1/channels/read"
      let response = try await gateway.client.post(
        path,
        #"{"read_by_channel":{"messaging:a":"a1","messaging:none":"","bad":"x","team:a":"m\u00071"}}"#,
        token: bob
      )
      #expect(response.status == 200)
      #expect(
        response.json == [
          "results": [
            ["cid": "messaging:a", "id": "a1", "ok": true],
            ["cid": "messaging:none", "ok": false, "code": "channel_not_found"],
            ["cid": "bad", "id": "x", "ok": false, "code": "invalid_cid"],
            ["cid": "team:a", "id": "m\u{7}1", "ok": false, "code": "invalid_message_id"],
          ]
        ]
      )
      let newest = try await gateway.client.post(path, #"{"read_by_channel":{"messaging:a":""}}"#, token: bob)
      #expect(newest.json == ["results": [["cid": "messaging:a", "ok": true]]])
      #expect(
        try await gateway.client.post(path, #"{"read_by_channel":{}}"#, token: bob).json == ["results": []]
      )
      for (body, expected) in [
        (#"{"read_by_channel":[]}"#, "400 invalid_field"),
        (#"{"read_by_channel":{"messaging:a":1}}"#, "400 invalid_field"),
      ] {
        #expect(try await gateway.client.post(path, body, token: bob).verdict == expected)
      }
      #expect(
        try await gateway.client.post(path, #"{"read_by_channel":{"messaging:a":""}}"#).verdict
          == "400 user_id_required"
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
