import Foundation
import HTTP2Session
import NIOCore
import ReceiptWire
import StoreTestSupport
import Testing

@testable import Gateway

/// Channels, members and channel types, as a caller sees them.
@Suite struct ChannelRouteTests {
  private let alice = TestTokens.user("alice")

  @Test func channelAndMembersAreCreatedAndChanged() async throws {
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
        let response = try await client.request(method, path, method == .get ? nil : "{}", token: alice)
        #expect(response.verdict == "403 server_token_required")
      }
      let wrong = #"{"add":["a\u007Fb"]}"#
      #expect(try await client.post(path + "/members", wrong).verdict == "400 invalid_user_id")
      let both =
        "{\"add\":[\(many.prefix(600).joined(separator: ","))],\"remove\":[\(many.prefix(600).joined(separator: ","))]}"
      #expect(try await client.post(path + "/members", both).verdict == "400 invalid_field")
    }
  }

  @Test func channelTypeIsAssignedToEveryShard() async throws {
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

  @Test func allOptionsAreStored() async throws {
    try await TestGateway.run { gateway in
      let client = gateway.client
      let allOptions: NSDictionary = [
        "read_events": false, "delivery_events": false, "mark_unread": "public", "history": "hidden",
        "read_acks_receipts": "always", "receipt_ttl": 3_600, "receipt_max_members": 0,
        "receipt_daily_limit": 100, "receipt_request_roles": ["admin", "owner.1"],
        "counts_visible_to": "sender", "status_rule": "50%", "kept_steps": 0,
        "reminders": [
          ["after": 60, "when": "unread"], ["after": 3_600, "when": "unacknowledged", "limit_members": 10],
        ],
      ]
      let body = String(decoding: try JSONSerialization.data(withJSONObject: allOptions), as: UTF8.self)
      let put = try await client.put("/v1/channel-types/team", body)
      #expect(put.status == 200 && put.json["options"] as? NSDictionary == allOptions)
      #expect(try await client.get("/v1/channel-types/team").json["options"] as? NSDictionary == allOptions)
      let channel = try await client.put("/v1/channels/team:c", #"{"options":\#(body)}"#)
      #expect(member("channel.options", of: channel.json) as? NSDictionary == allOptions)
      // null removes a limit.
      let cleared = try await client.put(
        "/v1/channel-types/team",
        #"{"receipt_ttl":null,"receipt_max_members":null,"receipt_daily_limit":null,"receipt_request_roles":null}"#
      )
      for name in ["receipt_ttl", "receipt_max_members", "receipt_daily_limit", "receipt_request_roles"] {
        #expect(member("options.\(name)", of: cleared.json) is NSNull, "\(name)")
      }
      #expect(member("options.status_rule", of: cleared.json) as? String == "50%")
      // A request with one invalid value changes nothing.
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

  @Test func partlyAssignedTypeAnswersOutcomeUnknown() async throws {
    try await TestGateway.run { gateway in
      let path = "/v1/channel-types/team"
      for code in [ErrorCode.busy, .unavailable, .notImplemented, .outcomeUnknown] {
        try await gateway.store.set(.refusingAssignments(code))
        let response = try await gateway.client.put(path, #"{"mark_unread":"off"}"#)
        #expect(response.verdict == "503 outcome_unknown" && response.headers["retry-after"] == "1")
      }
      // The home shard has changed nothing.
      try await gateway.store.set(.refusing(.busy))
      #expect(try await gateway.client.put(path, "{}").verdict == "503 store_busy")
      // Repeating the request finishes the change.
      try await gateway.store.set(.normal)
      #expect(try await gateway.client.put(path, #"{"mark_unread":"off"}"#).status == 200)
    }
  }

  @Test func channelIsDeletedOnce() async throws {
    try await TestGateway.run { gateway in
      try await gateway.setUp("messaging:c", members: ["alice"], messages: ["m1"])
      let path = "/v1/channels/messaging:c"
      for token in [alice, nil] {
        let refused = try await gateway.client.delete(path, token: token)
        #expect(refused.verdict == (token == nil ? "401 token_missing" : "403 server_token_required"))
      }
      let deleted = try await gateway.client.delete(path)
      #expect(deleted.status == 200 && deleted.contentType == "application/json")
      #expect(deleted.json == ["cid": "messaging:c", "deleted": true])
      #expect(try await gateway.client.delete(path).json == ["cid": "messaging:c", "deleted": false])
      #expect(try await gateway.client.get(path).verdict == "404 channel_not_found")
      #expect(try await gateway.client.delete("/v1/channels/nocolon").verdict == "400 invalid_cid")
      #expect(try await gateway.client.delete("/v1/channels/a%3A!b").json["cid"] as? String == "a:!b")
      for (mode, expected) in [
        (StoreInMemory.Mode.refusing(.busy), "503 store_busy"), (.garbled, "500 internal_error"),
        (.refusing(.outcomeUnknown), "503 outcome_unknown"),
      ] {
        try await gateway.store.set(mode)
        #expect(try await gateway.client.delete(path).verdict == expected)
      }
    }
  }

  @Test func channelIsTruncatedBeforeMessage() async throws {
    try await TestGateway.run { gateway in
      try await gateway.setUp("messaging:c", members: ["alice", "bob"], messages: ["m1", "m2", "m3"])
      let path = "/v1/channels/messaging:c/truncate"
      let some = try await gateway.client.post(path, #"{"before":"m2"}"#)
      #expect(some.status == 200)
      #expect((some.json["channel"] as? NSDictionary)?["cid"] as? String == "messaging:c")
      let status = { (id: String) in
        try await gateway.client.get("/v1/channels/messaging:c/messages/\(id)/status").verdict
      }
      #expect(try await status("m1") == "404 message_deleted")
      #expect(try await status("m2") == "200")
      for body in [nil, "{}", #"{"all":true}"#] {
        #expect(try await gateway.client.post(path, body).status == 200)
        #expect(try await status("m3") == "404 message_deleted")
      }
      for (body, token, expected) in [
        (#"{"before":"m9"}"#, TestTokens.server, "404 message_not_found"),
        (#"{"before":"m2","all":true}"#, TestTokens.server, "400 invalid_field"),
        (#"{"all":false}"#, TestTokens.server, "400 invalid_field"),
        (#"{"before":""}"#, TestTokens.server, "400 invalid_message_id"),
        (#"{"before":"m\u00071"}"#, TestTokens.server, "400 invalid_message_id"),
        (#"{"before":1}"#, TestTokens.server, "400 invalid_field"),
        ("[]", TestTokens.server, "400 invalid_field"), ("{", TestTokens.server, "400 invalid_json"),
        ("{}", alice, "403 server_token_required"),
      ] {
        #expect(try await gateway.client.post(path, body, token: token).verdict == expected, "\(body)")
      }
      #expect(
        try await gateway.client.post("/v1/channels/messaging:none/truncate", nil).verdict
          == "404 channel_not_found"
      )
    }
  }
}
