import Foundation
import HTTP2Session
import NIOCore
import ReceiptWire
import Testing

@testable import Gateway

/// The routes as a caller sees them, through HTTP/2 and the frame protocol.
@Suite struct RouteTests {
  private let alice = TestTokens.user("alice")
  private let bob = TestTokens.user("bob")

  private func member(_ path: String, of object: NSDictionary) -> Any? {
    path.split(separator: ".").reduce(object as Any?) { found, key in (found as? NSDictionary)?[String(key)] }
  }

  @Test func marksRead() async throws {
    try await TestGateway.run { gateway in
      let client = gateway.client
      try await gateway.setUp("messaging:c", members: ["alice", "bob"], messages: ["m1", "m2", "m3"])
      let path = "/v1/channels/messaging:c/read"
      // The query form, the body form, both, and neither: the newest.
      let first = try await client.post(path + "?message_id=m1", nil, token: bob)
      #expect(first.status == 200 && first.contentType == "application/json")
      #expect(
        first.json == [
          "read": [
            "user": ["id": "bob"], "last_read": "1970-01-01T00:00:00.003Z", "last_read_message_id": "m1",
            "last_read_seq": 1, "unread_messages": 2, "last_delivered_seq": 0,
            "first_unread_message_id": "m2",
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
      // Their own id is allowed, escaped paths are the same.
      let own = try await client.post("/v1/channels/messaging%3Ac/read?user_id=bob", nil, token: bob)
      #expect(own.status == 200)
    }
  }

  /// Without these fields everything is meant, the newest, or another view: a value that the caller did not have must
  /// not do that.
  @Test func aNullIsNotEverything() async throws {
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
            let answer = try await gateway.client.post(route, "{\(rest)\"\(field)\":null}", token: token)
            #expect(answer.verdict == "400 invalid_field", "\(route) \(rest) \(field)")
            let detail = answer.json["detail"] as? String ?? ""
            #expect(detail.contains("\"\(field)\""), "\(route) \(field): \(detail)")
          }
        }
      }
      #expect(try await gateway.store.takeLog().isEmpty, "nothing was asked of the store")
    }
  }

  @Test func refusesWrongMarks() async throws {
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
        let answer = try await gateway.client.post("/v1/channels/messaging:c/\(path)", body, token: token)
        #expect(answer.verdict == expected, "\(path) \(body ?? "")")
        #expect(answer.contentType == "application/problem+json")
        #expect(answer.headers["x-request-id"] == answer.json["request_id"] as? String)
        #expect((answer.headers["retry-after"] == "1") == (expected == "404 message_not_found"), "\(path)")
      }
      let unknown = try await gateway.client.post("/v1/channels/messaging:none/read", nil, token: bob)
      #expect(unknown.verdict == "404 channel_not_found")
    }
  }

  @Test func marksUnread() async throws {
    try await TestGateway.run { gateway in
      try await gateway.setUp("messaging:c", members: ["alice", "bob"], messages: ["m1", "m2"])
      _ = try await gateway.client.post("/v1/channels/messaging:c/read", nil, token: bob)
      let answer = try await gateway.client.post(
        "/v1/channels/messaging:c/unread",
        #"{"message_id":"m2","unread_epoch":0}"#,
        token: bob
      )
      #expect(answer.status == 200)
      #expect(member("read.unread_messages", of: answer.json) as? Int == 1)
      #expect(member("read.first_unread_message_id", of: answer.json) as? String == "m2")
      #expect(member("read.unread_epoch", of: answer.json) as? Int == 1)
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

  @Test func marksManyDelivered() async throws {
    try await TestGateway.run { gateway in
      try await gateway.setUp("messaging:a", members: ["alice", "bob"], messages: ["a1", "a2"])
      try await gateway.setUp("messaging:b", members: ["alice"], messages: ["b1"])
      let body = """
        {"latest_delivered_messages":[{"cid":"messaging:a","id":"a2"},{"cid":"messaging:b","id":"b1"},
         {"cid":"messaging:none","id":"x"},{"cid":"no cid","id":"x"},{"cid":"messaging:a","id":"a\\u00071"},
         {"cid":"messaging:a","id":"a9"},{"cid":"messaging:a","id":"a1","parent_id":"p\\u0007p"},
         {"cid":"messaging:a","id":"a1"}]}
        """
      let answer = try await gateway.client.post("/v1/channels/delivered", body, token: bob)
      #expect(answer.status == 201)
      #expect(
        answer.json == [
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
        let answer = try await gateway.client.post("/v1/channels/delivered", body, token: token)
        #expect(answer.verdict == expected, "\(body ?? "")")
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

  @Test func aBadDeliveredEntryDoesNotFailTheRest() async throws {
    try await TestGateway.run { gateway in
      try await gateway.setUp("messaging:a", members: ["alice", "bob"], messages: ["a1"])
      let body = """
        {"latest_delivered_messages":[{"cid":"messaging:a"},{"cid":"messaging:a","id":7},{"id":"a1"},
         {"cid":null,"id":"a1"},7,{"cid":"messaging:a","id":"a1","parent_id":1},
         {"cid":"messaging:a","id":"a1","parent_id":null},[]]}
        """
      let answer = try await gateway.client.post("/v1/channels/delivered", body, token: bob)
      #expect(answer.status == 201)
      #expect(
        answer.json == [
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

  @Test func anEmptyQueryParameterCountsAsAbsent() async throws {
    try await TestGateway.run { gateway in
      try await gateway.setUp("messaging:c", members: ["alice", "bob"], messages: ["m1"])
      let path = "/v1/channels/messaging:c/"
      for query in [
        "totals=", "totals", "totals=false",
      ] {
        #expect(try await gateway.client.post("\(path)read?\(query)", nil, token: bob).status == 200)
      }
      for query in ["totals=1", "totals=TRUE", "totals=yes"] {
        let answer = try await gateway.client.post("\(path)read?\(query)", nil, token: bob)
        #expect(answer.verdict == "400 invalid_query", "\(query)")
      }
      // Without an id the newest is meant, the channel, or another view: one that was lost on its way is refused.
      for query in [
        "message_id=", "thread_id", "message_id=m1&thread_id=", "user_id=", "message_id=m1&message_id=m1",
        "user_id=bob&user_id=alice",
      ] {
        let answer = try await gateway.client.post("\(path)read?\(query)", nil, token: bob)
        #expect(answer.verdict == "400 invalid_query", "\(query)")
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

  @Test func marksManyRead() async throws {
    try await TestGateway.run { gateway in
      try await gateway.setUp("messaging:a", members: ["alice", "bob"], messages: ["a1", "a2"])
      let path = "/v1/channels/read"
      let answer = try await gateway.client.post(
        path,
        #"{"read_by_channel":{"messaging:a":"a1","messaging:none":"","bad":"x","team:a":"m\u00071"}}"#,
        token: bob
      )
      #expect(answer.status == 200)
      #expect(
        answer.json == [
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

  @Test func registersAndDeletesMessages() async throws {
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

  @Test func registersManyMessages() async throws {
    try await TestGateway.run { gateway in
      try await gateway.setUp("messaging:c", members: ["alice"])
      let answer = try await gateway.client.post(
        "/v1/messages",
        """
        {"messages":[{"cid":"messaging:c","id":"m1","user_id":"alice"},{"cid":"messaging:none","id":"m1"},
         {"cid":"bad","id":"m1"},{"cid":"messaging:c","id":"m\\u00071"},{"cid":"messaging:c","id":"m2","receipt":true},
         {"cid":"messaging:c","id":"m3","parent_id":"m\\u00071"},
         {"cid":"messaging:c","id":"m1"},{"cid":"messaging:c","id":"m4"}]}
        """
      )
      #expect(answer.status == 200)
      let message = { (id: String, seq: Int) -> NSDictionary in
        ["ok": true, "message": ["id": id, "cid": "messaging:c", "seq": seq, "status": "sent"]]
      }
      let refused = { (cid: String, id: String, code: String) -> NSDictionary in
        ["ok": false, "cid": cid, "id": id, "code": code]
      }
      #expect(
        answer.json == [
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

  @Test func keepsChannelsAndMembers() async throws {
    try await TestGateway.run { gateway in
      let client = gateway.client
      let path = "/v1/channels/messaging:c"
      #expect(try await client.get(path).verdict == "404 channel_not_found")
      let created = try await client.put(
        path,
        #"{"members":["alice",{"user_id":"bob","role":"admin"}],"options":{"read_events":false}}"#
      )
      #expect(created.status == 201 && created.contentType == "application/json")
      #expect(member("channel.member_count", of: created.json) as? Int == 2)
      #expect(member("channel.options.read_events", of: created.json) as? Bool == false)
      #expect(member("channel.type", of: created.json) as? String == "messaging")
      let again = try await client.put(path, #"{"members":["alice","carol"]}"#)
      #expect(again.status == 200 && member("channel.member_count", of: again.json) as? Int == 3)
      #expect(try await client.put(path, nil).status == 200)
      let changed = try await client.post(
        path + "/members",
        #"{"add":["dave"],"remove":["alice",{"user_id":"bob"}]}"#
      )
      #expect(changed.status == 200 && member("channel.member_count", of: changed.json) as? Int == 2)
      #expect(try await client.get(path).json == changed.json)
      let head = try await client.request(.head, path, nil, token: TestTokens.server)
      #expect(head.status == 200 && head.body.isEmpty)
      let many = (0..<1_001).map { "\"u\($0)\"" }
      let table: [(String, String)] = [
        (#"{"members":"alice"}"#, "400 invalid_field"), (#"{"members":[1]}"#, "400 invalid_field"),
        (#"{"members":["a\u007Fb"]}"#, "400 invalid_user_id"),
        (#"{"members":[{"role":"x"}]}"#, "400 invalid_field"),
        (#"{"members":[{"user_id":"x","role":"a b"}]}"#, "400 invalid_field"),
        (#"{"members":[{"user_id":"x\u0007y"}]}"#, "400 invalid_user_id"),
        (#"{"options":{"colour":1}}"#, "400 unknown_field"),
        (#"{"options":{"read_events":1}}"#, "400 invalid_option"),
        (#"{"options":{"kept_steps":4097}}"#, "400 invalid_option"),
        (#"{"options":[]}"#, "400 invalid_field"),
        ("{\"members\":[\(many.joined(separator: ","))]}", "400 invalid_field"),
      ]
      for (body, expected) in table {
        #expect(try await client.put(path, body).verdict == expected, "\(body.prefix(60))")
      }
      let thousand = "{\"members\":[\(many.dropLast().joined(separator: ","))]}"
      #expect(try await client.put(path, thousand).status == 200)
      for (method, path) in [(HTTP2Method.put, path), (.get, path), (.post, path + "/members")] {
        let answer = try await client.request(method, path, method == .get ? nil : "{}", token: alice)
        #expect(answer.verdict == "403 server_token_required")
      }
      let wrong = #"{"add":["a\u007Fb"]}"#
      #expect(try await client.post(path + "/members", wrong).verdict == "400 invalid_user_id")
      let both =
        "{\"add\":[\(many.prefix(600).joined(separator: ","))],\"remove\":[\(many.prefix(600).joined(separator: ","))]}"
      #expect(try await client.post(path + "/members", both).verdict == "400 invalid_field")
    }
  }

  @Test func keepsChannelTypesInEveryShard() async throws {
    try await TestGateway.run { gateway in
      let client = gateway.client
      #expect(try await client.get("/v1/channel-types").json == ["channel_types": []])
      let unset = try await client.get("/v1/channel-types/team")
      #expect(unset.status == 200 && unset.json["version"] as? Int == 0)
      _ = try await gateway.store.takeLog()
      let put = try await client.put("/v1/channel-types/team", #"{"mark_unread":"off","history":"visible"}"#)
      #expect(put.status == 200 && put.json["type"] as? String == "team" && put.json["version"] as? Int == 1)
      #expect(member("options.mark_unread", of: put.json) as? String == "off")
      #expect(
        try await gateway.store.takeLog() == [
          .patchChannelType, .assignChannelType, .assignChannelType, .assignChannelType, .settle,
        ]
      )
      let second = try await client.put("/v1/channel-types/team", #"{"history":"hidden"}"#)
      #expect(member("options.mark_unread", of: second.json) as? String == "off")
      #expect(try await client.get("/v1/channel-types/team").json == second.json)
      _ = try await client.put("/v1/channel-types/Alpha", "{}")
      let list = try await client.get("/v1/channel-types")
      let types = try #require(list.json["channel_types"] as? [NSDictionary])
      #expect(types.map { $0["type"] as? String } == ["Alpha", "team"] && types[1] == second.json)
      for (body, expected) in [
        (#"{"colour":1}"#, "400 unknown_field"), (#"{"history":1}"#, "400 invalid_option"),
        (#"{"status_rule":"most"}"#, "400 invalid_option"), ("7", "400 invalid_field"),
      ] {
        #expect(try await client.put("/v1/channel-types/team", body).verdict == expected)
      }
      #expect(
        try await client.put("/v1/channel-types/team", "{}", token: alice).verdict
          == "403 server_token_required"
      )
      #expect(try await client.get("/v1/channel-types", token: alice).verdict == "403 server_token_required")
    }
  }

  @Test func keepsAllOptions() async throws {
    try await TestGateway.run { gateway in
      let client = gateway.client
      let given: NSDictionary = [
        "read_events": false, "delivery_events": false, "mark_unread": "public", "history": "hidden",
        "read_acks_receipts": "always", "receipt_ttl": 3_600, "receipt_max_members": 0,
        "receipt_daily_limit": 100, "receipt_request_roles": ["admin", "owner.1"],
        "counts_visible_to": "sender", "status_rule": "50%", "kept_steps": 0,
      ]
      let body = String(decoding: try JSONSerialization.data(withJSONObject: given), as: UTF8.self)
      let put = try await client.put("/v1/channel-types/team", body)
      #expect(put.status == 200 && put.json["options"] as? NSDictionary == given)
      #expect(try await client.get("/v1/channel-types/team").json["options"] as? NSDictionary == given)
      let channel = try await client.put("/v1/channels/team:c", #"{"options":\#(body)}"#)
      #expect(member("channel.options", of: channel.json) as? NSDictionary == given)
      // null takes a limit away again.
      let cleared = try await client.put(
        "/v1/channel-types/team",
        #"{"receipt_ttl":null,"receipt_max_members":null,"receipt_daily_limit":null,"receipt_request_roles":null}"#
      )
      for name in ["receipt_ttl", "receipt_max_members", "receipt_daily_limit", "receipt_request_roles"] {
        #expect(member("options.\(name)", of: cleared.json) is NSNull, "\(name)")
      }
      #expect(member("options.status_rule", of: cleared.json) as? String == "50%")
      // One wrong value changes nothing.
      let wrong = try await client.put("/v1/channel-types/team", #"{"kept_steps":9,"status_rule":"0%"}"#)
      #expect(wrong.verdict == "400 invalid_option")
      #expect(try await client.get("/v1/channel-types/team").json == cleared.json)
      let named = try await client.put(
        "/v1/channels/team:c",
        #"{"options":{"receipt_request_roles":["a b"]}}"#
      )
      #expect(
        named.json["detail"] as? String
          == "field \"options.receipt_request_roles[0]\" must be a role: 1 to 64 of A-Z a-z 0-9 _ . -"
      )
    }
  }

  @Test func aTypeThatItsHomeShardHasChangedIsNotCalledUnchanged() async throws {
    try await TestGateway.run { gateway in
      let path = "/v1/channel-types/team"
      for code in [ErrorCode.busy, .unavailable, .notImplemented, .outcomeUnknown] {
        try await gateway.store.set(.refusingAssignments(code))
        let answer = try await gateway.client.put(path, #"{"mark_unread":"off"}"#)
        #expect(answer.verdict == "503 outcome_unknown" && answer.headers["retry-after"] == "1")
      }
      // The home shard itself has changed nothing.
      try await gateway.store.set(.refusing(.busy))
      #expect(try await gateway.client.put(path, "{}").verdict == "503 store_busy")
      // Repeated, it is finished.
      try await gateway.store.set(.normal)
      #expect(try await gateway.client.put(path, #"{"mark_unread":"off"}"#).status == 200)
    }
  }

  @Test func showsReadStates() async throws {
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

  @Test func showsStatuses() async throws {
    try await TestGateway.run { gateway in
      let client = gateway.client
      try await gateway.setUp(
        "messaging:c",
        members: ["alice", "bob", "carol"],
        messages: ["m1", "m2", "m3"]
      )
      _ = try await client.delete("/v1/channels/messaging:c/messages/m3")
      _ = try await client.post("/v1/channels/messaging:c/read", #"{"message_id":"m1"}"#, token: bob)
      let status = try await client.get("/v1/channels/messaging:c/messages/m1/status", token: alice)
      let expected: NSDictionary = [
        "message_id": "m1", "cid": "messaging:c", "seq": 1, "status": "read", "receipt_status": "none",
        "read_count": 1, "delivered_count": 1, "unread_count": 1, "member_count": 2, "read_events": true,
        "delivery_events": true, "created_at": "1970-01-01T00:00:00.005Z",
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
        let answer = try await client.post("/v1/channels/messaging:c/receipts/query", body, token: alice)
        #expect(answer.status == 200 && answer.json == found, "\(answer.body)")
      }
      #expect(try await client.get("/v1/channels/messaging:c/messages/m1/status").status == 200)
      for (path, token, expected) in [
        ("m9", alice, "404 message_not_found"), ("m3", alice, "404 message_deleted"),
        ("m1", TestTokens.user("x"), "404 channel_not_found"),
      ] {
        let answer = try await client.get("/v1/channels/messaging:c/messages/\(path)/status", token: token)
        #expect(answer.verdict == expected)
      }
      let many = (0..<101).map { "\"m\($0)\"" }.joined(separator: ",")
      for (body, expected) in [
        ("{}", "400 invalid_field"), (#"{"message_ids":{}}"#, "400 invalid_field"),
        ("{\"message_ids\":[\(many)]}", "400 invalid_field"),
      ] {
        let answer = try await client.post("/v1/channels/messaging:c/receipts/query", body, token: alice)
        #expect(answer.verdict == expected, "\(body.prefix(40))")
      }
    }
  }
}
