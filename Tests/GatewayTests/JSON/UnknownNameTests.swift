import Foundation
import HTTP2Session
import StoreTestSupport
import Testing

@testable import Gateway

/// Unknown names in requests: misspelt fields and query parameters.
@Suite struct UnknownNameTests {
  private let bob = TestTokens.user("bob")

  // MARK: Tables

  private static let fields: KnownFields = [
    "message_id", .object("options", ["enabled"]),
    .objects("entries", ["cid", .object("user", ["id"])]), "read_by_channel",
  ]

  @Test(arguments: [
    ("{}", nil),
    (#"{"message_id":1,"options":{"enabled":1},"entries":[{"cid":1,"user":{"id":1}},"x",7,[]]}"#, nil),
    (#"{"read_by_channel":{"anything":{"at":"all"}}}"#, nil), (#"{"options":null,"entries":{"x":1}}"#, nil),
    (#"{"messageId":1}"#, #"unknown_field there is no field "messageId"; did you mean "message_id"?"#),
    (
      #"{"message_id":1,"readByChannel":{}}"#,
      #"unknown_field there is no field "readByChannel"; did you mean "read_by_channel"?"#
    ),
    (#"{"colour":1}"#, #"unknown_field there is no field "colour""#),
    (#"{"":1}"#, #"unknown_field there is no field "<empty>""#),
    (
      #"{"options":{"enable":1}}"#,
      #"unknown_field there is no field "options.enable"; did you mean "enabled"?"#
    ),
    (
      #"{"entries":[{"cid":1},{"user":{"id":1,"ids":2}}]}"#,
      #"unknown_field there is no field "entries[1].user.ids"; did you mean "id"?"#
    ),
    (#"{"message_id":1,"message_id":2}"#, nil),
  ])
  func unknownFieldsAreRefused(text: String, expected: String?) throws {
    let tape = JSONTape()
    let bytes = Array(text.utf8)
    let value = try tape.parse(bytes.span.bytes)
    var found: String?
    do throws(Problem) { try value.check(Self.fields) } catch {
      found = "\(error.code.rawValue) \(error.detail)"
    }
    #expect(found == expected?.replacingOccurrences(of: "<empty>", with: ""), "\(text)")
  }

  @Test(arguments: [
    ("message_ids", "message_id"), ("messageID", "message_id"), ("Message-Id", "message_id"),
    ("mesage_id", "message_id"), ("msg_id", nil), ("user", nil), ("userid", "user_id"), ("curser", "cursor"),
    ("x", nil), ("", nil), ("id", nil), ("truncated_at", nil),
    (String(repeating: "message_id", count: 9), nil),
  ])
  func onlySimilarNamesAreSuggested(name: String, expected: String?) {
    let bytes = Array(name.utf8)
    let known: [StaticString] = ["message_id", "user_id", "cursor", "before"]
    #expect(NearestName.of(bytes.span.bytes, among: known).map { "\($0)" } == expected, "\(name)")
  }

  // MARK: Routes

  /// Each route with a body gets a valid one with one unknown field, which the problem names.
  @Test func misspeltFieldIsRefusedWithoutEffect() async throws {
    try await TestGateway.run { gateway in
      try await gateway.setUp("messaging:c", members: ["alice", "bob"], messages: ["m1"])
      _ = try await gateway.store.takeLog()
      let channel = "/v1/channels/messaging:c"
      let table: [(HTTP2Method, String, String, String, near: String?)] = [
        (.post, channel + "/truncate", #"{"truncated_at":"2026-01-01T00:00:00Z"}"#, "truncated_at", nil),
        (.post, channel + "/read?user_id=bob", #"{"messageId":"m1"}"#, "messageId", "message_id"),
        (.post, channel + "/unread", #"{"user_id":"bob","message_id":"m1","epoch":1}"#, "epoch", nil),
        (
          .post, "/v1/channels/read", #"{"readByChannel":{},"user_id":"bob"}"#, "readByChannel",
          "read_by_channel"
        ),
        (
          .post, "/v1/channels/delivered",
          #"{"latest_delivered_messages":[{"cid":"messaging:c","id":"m1"},{"cid":"x","message":1}],"user_id":"bob"}"#,
          "latest_delivered_messages[1].message", nil
        ),
        (.put, channel, #"{"members":["carol",{"user":"dave"}]}"#, "members[1].user", nil),
        (.put, channel, #"{"options":{"read_event":false}}"#, "options.read_event", "read_events"),
        (.put, "/v1/channel-types/messaging", #"{"markUnread":"off"}"#, "markUnread", "mark_unread"),
        (.post, channel + "/members", #"{"remove_members":["bob"],"add":[]}"#, "remove_members", nil),
        (.post, channel + "/messages", #"{"id":"m2","user":"alice"}"#, "user", nil),
        (
          .post, "/v1/messages", #"{"messages":[{"cid":"messaging:c","id":"m2","slient":true}]}"#,
          "messages[0].slient", "silent"
        ),
        (
          .put, "/v1/users/bob", #"{"privacy_settings":{"typing_indicators":{"enabled":false}}}"#,
          "privacy_settings.typing_indicators", nil
        ),
        (
          .post, channel + "/receipts", #"{"message_ids":["m1"],"notes":"x","user_id":"bob"}"#, "notes",
          "note"
        ),
        (.post, channel + "/receipts/query", #"{"message_ids":[],"userId":"bob"}"#, "userId", "user_id"),
        (.post, "/v1/unread", #"{"user_ids":["bob"],"limit":1}"#, "limit", nil),
        (.post, "/v1/push/tickets", #"{"tickets":[{"cid":"a:b","user":"x"}]}"#, "tickets[0].user", nil),
        (.post, "/v1/push/acks", #"{"acks":[{"tickets":"x"}]}"#, "acks[0].tickets", "ticket"),
        (.delete, channel, #"{"hard_delete":true}"#, "hard_delete", nil),
        (.get, channel, #"{"limit":1}"#, "limit", nil),
        (.put, "/v1/feed/consumers/x", #"{"from":"now","type":["read"]}"#, "type", "types"),
        (.post, "/v1/feed/consumers/x/commit", #"{"partition":"0/1","cursors":"x"}"#, "cursors", "cursor"),
        (.post, "/v1/feed/consumers/x/lease", #"{"worker":"w","partition":4}"#, "partition", "partitions"),
      ]
      for (method, path, body, field, near) in table {
        let response = try await gateway.client.request(method, path, body, token: TestTokens.server)
        #expect(response.verdict == "400 unknown_field", "\(path) \(body)")
        let hint = near.map { "; did you mean \"\($0)\"?" } ?? ""
        #expect(response.json["detail"] as? String == "there is no field \"\(field)\"\(hint)")
      }
      #expect(try await gateway.store.takeLog().isEmpty, "a request reached the store")
    }
  }

  @Test func unknownQueryParametersAreRefused() async throws {
    try await TestGateway.run { gateway in
      try await gateway.setUp("messaging:c", members: ["alice", "bob"], messages: ["m1"])
      _ = try await gateway.store.takeLog()
      let channel = "/v1/channels/messaging:c"
      let server = TestTokens.server
      for (method, path, token, expected) in [
        (
          .post, channel + "/read?messageId=m1", bob,
          #"400 unknown_field "messageId"; did you mean "message_id"?"#
        ),
        (
          .post, channel + "/read?message%5Fidd=m1", bob,
          #"400 unknown_field "message_idd"; did you mean "message_id"?"#
        ),
        (.post, channel + "/read?%zz", bob, "400 invalid_query"),
        (.get, channel + "/read-state?%zz=1", bob, "400 invalid_query"),
        (.get, channel + "/read-state?limits=1", bob, #"400 unknown_field "limits"; did you mean "limit"?"#),
        (.get, channel + "/read-state?foo", bob, #"400 unknown_field "foo""#),
        (.get, channel + "?user_id=bob", server, #"400 unknown_field "user_id""#),
        (.delete, channel + "?hard_delete=true", server, #"400 unknown_field "hard_delete""#),
        (.get, "/v1/channel-types?limit=1", server, #"400 unknown_field "limit""#),
        (.get, "/v1/openapi.yaml?v=1", nil, #"400 unknown_field "v""#),
        (.get, "/v1/users/bob?user_id=alice", bob, "403 user_id_mismatch"),
        (.get, "/v1/users/bob?user_id=bob", server, #"400 unknown_field "user_id""#),
        (.post, "/v1/push/acks?token=x", nil, #"400 unknown_field "token""#),
        (.post, "/v1/frames?x=1", server, #"400 unknown_field "x""#),
        (
          .get, "/v1/feed?consumer=x&partitions=0/1", server,
          #"400 unknown_field "partitions"; did you mean "partition"?"#
        ),
        (.get, "/v1/feed/consumers?limit=1", server, #"400 unknown_field "limit""#),
      ] as [(HTTP2Method, String, String?, String)] {
        let response = try await gateway.client.request(method, path, nil, token: token)
        let detail = response.json["detail"] as? String ?? ""
        let found =
          response.verdict.hasSuffix("unknown_field")
          ? response.verdict + detail.replacingOccurrences(of: "there is no query parameter", with: "")
          : response.verdict
        #expect(found == expected, "\(path)")
      }
      #expect(try await gateway.store.takeLog().isEmpty, "a request reached the store")
    }
  }

  /// Query parameters that Stream's clients send with every request.
  @Test func hostedClientParametersAreAccepted() async throws {
    try await TestGateway.run { gateway in
      try await gateway.setUp("messaging:c", members: ["alice", "bob"], messages: ["m1"])
      let common = "api_key=key&connection_id=5-6&user_id=bob"
      for (method, path) in [
        (.post, "/v1/channels/messaging:c/read"), (.get, "/v1/channels/messaging:c/read-state"),
        (.get, "/v1/users/bob"), (.get, "/v1/users/bob/unread"), (.get, "/v1/users/bob/channels"),
      ] as [(HTTP2Method, String)] {
        let response = try await gateway.client.request(method, path + "?" + common, nil, token: bob)
        #expect(response.status == 200, "\(path)")
      }
      let server = try await gateway.client.get("/v1/channels/messaging:c?api_key=key&connection_id=")
      #expect(server.status == 200)
    }
  }
}
