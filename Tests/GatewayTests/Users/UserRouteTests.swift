import Foundation
import HTTP2Session
import ReceiptModel
import ReceiptWire
import StoreTestSupport
import Testing

@testable import Gateway

/// Users' settings, and revocation of their tokens (R7), as a caller sees them.
@Suite struct UserRouteTests {
  private let alice = TestTokens.user("alice")

  private func privacy(_ read: Bool, _ delivered: Bool) -> NSDictionary {
    ["read_receipts": ["enabled": read], "delivery_receipts": ["enabled": delivered]]
  }

  @Test func settingsAreAssignedToEveryShard() async throws {
    try await TestGateway.run { gateway in
      let client = gateway.client
      let path = "/v1/users/alice"
      let unset = try await client.get(path)
      #expect(unset.status == 200 && unset.contentType == "application/json")
      #expect(unset.json == ["id": "alice", "privacy_settings": privacy(true, true)])
      // A PUT that changes nothing makes no new version, and no shard is assigned.
      _ = try await gateway.store.takeLog()
      #expect(try await client.put(path, "{}").json == unset.json)
      #expect(try await gateway.store.takeLog() == [.patchUser])
      // The home shard is patched, all others are assigned, the home shard is marked; then the response is sent.
      let hidden = try await client.put(path, #"{"privacy_settings":{"read_receipts":{"enabled":false}}}"#)
      #expect(hidden.status == 200)
      #expect(hidden.json == ["id": "alice", "privacy_settings": privacy(false, true)])
      #expect(
        try await gateway.store.takeLog() == [
          .patchUser, .assignUser, .assignUser, .assignUser, .listChannels, .settle,
        ]
      )
      #expect(try await gateway.store.settings(of: "alice") == Array(repeating: "1 hides read", count: 4))
      #expect(try await gateway.store.unsettled() == [])
      // The other receipt setting is unchanged.
      let both = try await client.put(
        path,
        #"{"privacy_settings":{"delivery_receipts":{"enabled":false},"read_receipts":null}}"#
      )
      #expect(both.json["privacy_settings"] as? NSDictionary == privacy(false, false))
      let revoked = try await client.put(path, #"{"revoke_tokens_before":"2024-01-01T01:00:00+01:00"}"#)
      #expect(
        revoked.json == [
          "id": "alice", "privacy_settings": privacy(false, false),
          "revoke_tokens_before": "2024-01-01T00:00:00.000Z",
        ]
      )
      #expect(try await client.get(path).json == revoked.json)
      let shown = try await client.put(
        path,
        #"{"privacy_settings":{"read_receipts":{"enabled":true},"delivery_receipts":{"enabled":true}}}"#
      )
      #expect(shown.json["privacy_settings"] as? NSDictionary == privacy(true, true))
      #expect(try await gateway.store.settings(of: "alice") == Array(repeating: "4", count: 4))
    }
  }

  @Test func usersMayChangeOnlyTheirOwnSettings() async throws {
    try await TestGateway.run { gateway in
      let client = gateway.client
      let hide = #"{"privacy_settings":{"read_receipts":{"enabled":false}}}"#
      let own = try await client.put("/v1/users/alice", hide, token: alice)
      #expect(own.status == 200 && own.json["privacy_settings"] as? NSDictionary == privacy(false, true))
      #expect(try await client.get("/v1/users/alice", token: alice).json == own.json)
      _ = try await gateway.store.takeLog()
      for (path, body, token, expected) in [
        ("/v1/users/bob", hide, alice, "403 user_id_mismatch"),
        (
          "/v1/users/alice", #"{"revoke_tokens_before":"2024-01-01T00:00:00Z"}"#, alice,
          "403 server_token_required"
        ),
        ("/v1/users/alice", #"{"privacy_settings":true}"#, alice, "400 invalid_field"),
        ("/v1/users/alice", #"{"privacy_settings":{"read_receipts":false}}"#, alice, "400 invalid_field"),
        ("/v1/users/alice", #"{"privacy_settings":{"read_receipts":{}}}"#, alice, "400 invalid_field"),
        (
          "/v1/users/alice", #"{"privacy_settings":{"delivery_receipts":{"enabled":1}}}"#, alice,
          "400 invalid_field"
        ),
        ("/v1/users/alice", #"{"revoke_tokens_before":1700000000}"#, TestTokens.server, "400 invalid_field"),
        ("/v1/users/alice", #"{"revoke_tokens_before":"now"}"#, TestTokens.server, "400 invalid_field"),
        ("/v1/users/alice", "[]", alice, "400 invalid_field"),
        ("/v1/users/alice", "{", alice, "400 invalid_json"),
        ("/v1/users/a%7Fb", hide, TestTokens.server, "400 invalid_user_id"),
      ] {
        #expect(try await client.put(path, body, token: token).verdict == expected, "\(path) \(body)")
      }
      #expect(try await client.get("/v1/users/bob", token: alice).verdict == "403 user_id_mismatch")
      #expect(try await gateway.store.takeLog().isEmpty)
    }
  }

  @Test func storeFailureIsAnswered() async throws {
    try await TestGateway.run { gateway in
      let path = "/v1/users/alice"
      let hide = #"{"privacy_settings":{"read_receipts":{"enabled":false}}}"#
      let table: [(StoreInMemory.Mode, String)] = [
        (.refusing(.busy), "503 store_busy"), (.refusing(.unavailable), "503 store_unavailable"),
        (.garbled, "500 internal_error"),
        // The home shard has applied the change.
        (.refusingAssignments(.busy), "503 outcome_unknown"),
        (.refusingAssignments(.unavailable), "503 outcome_unknown"),
      ]
      for (mode, expected) in table {
        try await gateway.store.set(mode)
        #expect(try await gateway.client.put(path, hide).verdict == expected, "\(mode)")
      }
      #expect(try await gateway.store.unsettled() == ["alice"])
      // All shards have the change, so the response is a success although marking it failed.
      try await gateway.store.set(.refusingKind(.settle, .busy))
      #expect(try await gateway.client.put(path, hide).status == 200)
      #expect(try await gateway.store.settings(of: "alice") == Array(repeating: "1 hides read", count: 4))
      #expect(try await gateway.store.unsettled() == ["alice"])
      try await gateway.store.set(.refusing(.busy))
      #expect(try await gateway.client.get(path).verdict == "503 store_busy")
      // Repeating the request finishes the change.
      try await gateway.store.set(.normal)
      #expect(try await gateway.client.put(path, hide).status == 200)
      #expect(try await gateway.store.unsettled() == [])
    }
  }

  /// Each route that users may call for themselves, with a body that succeeds.
  private static let routesOfBob: [(String, String?)] = [
    ("POST messaging:c/read", nil), ("POST messaging:c/read?totals=true", nil),
    ("POST messaging:c/unread", #"{"message_id":"m1"}"#),
    ("POST messaging:c/unread?totals=true", #"{"message_id":"m1"}"#),
    (
      "POST delivered",
      #"{"latest_delivered_messages":[{"cid":"messaging:c","id":"m1"},{"cid":"x","id":"m"}]}"#
    ),
    ("POST read", #"{"read_by_channel":{"messaging:c":""}}"#), ("POST read", #"{"all":true}"#),
    ("POST messaging:c/receipts", #"{"message_ids":["m1"]}"#), ("GET messaging:c/read-state", nil),
    ("POST messaging:c/receipts/query", #"{"message_ids":["m1"]}"#),
    ("GET messaging:c/messages/m1/status", nil), ("GET messaging:c/messages/m1/readers", nil),
    ("GET messaging:c/messages/m1/delivered", nil), ("GET messaging:c/messages/m1/unread", nil),
    ("GET messaging:c/messages/m1/members?user_ids=bob", nil), ("GET ../users/bob/unread", nil),
    ("GET ../users/bob/channels", nil), ("PUT ../users/bob", "{}"), ("GET ../users/bob", nil),
  ]

  /// Tokens are refused after a revocation, and after an erasure, even if the id is used again.
  @Test(arguments: ["revoke", "erase"])
  func revokedTokensAreRefusedEverywhere(by means: String) async throws {
    let time = Timestamp(milliseconds: 1_700_000_000_000)
    try await TestGateway.run(storeTime: time) { gateway in
      let client = gateway.client
      try await gateway.setUp("messaging:c", members: ["alice", "bob"], messages: ["m1"])
      let old = TestTokens.make(#"{"user_id":"bob","iat":1699999999.9}"#)
      let silent = TestTokens.make(#"{"user_id":"bob"}"#)
      let new = TestTokens.make(#"{"user_id":"bob","iat":1700000000}"#)
      for (round, tokens) in [[], [old, silent]].enumerated() {
        if round == 1 {
          if means == "revoke" {
            let revoke = #"{"revoke_tokens_before":"2023-11-14T22:13:20Z"}"#
            #expect(try await client.put("/v1/users/bob", revoke).status == 200)
          } else {
            #expect(try await client.delete("/v1/users/bob").status == 200)
            #expect(try await client.put("/v1/channels/messaging:c", #"{"members":["bob"]}"#).status == 200)
          }
        }
        for (route, body) in Self.routesOfBob {
          let parts = route.split(separator: " ")
          let path = ("/v1/channels/" + parts[1]).replacing("/channels/..", with: "")
          for token in [old, silent, new] {
            let method = parts[0] == "GET" ? .get : parts[0] == "PUT" ? .put : HTTP2Method.post
            let response = try await client.request(method, path, body, token: token)
            if tokens.contains(token) {
              #expect(response.verdict == "401 token_revoked", "\(route)")
              #expect(response.headers["www-authenticate"]?.contains("token_revoked") == true)
            } else {
              #expect((200..<300).contains(response.status), "\(route) \(response.body)")
            }
          }
        }
      }
      // The revocation does not affect server tokens that name bob, or tokens of other users.
      #expect(try await client.post("/v1/channels/messaging:c/read?user_id=bob", nil).status == 200)
      #expect(try await client.post("/v1/channels/messaging:c/read", nil, token: alice).status == 200)
    }
  }

  @Test func requestsCarryTokenIssueTime() async throws {
    try await TestGateway.run { gateway in
      let client = gateway.client
      try await gateway.setUp("messaging:c", members: ["alice"], messages: ["m1"])
      _ = try await gateway.store.takeIssueTimes()
      let path = "/v1/channels/messaging:c/read"
      for (claims, expected) in [
        (#""iat":1700000000"#, 1_700_000_000), (#""iat":1700000000.999"#, 1_700_000_000), (#""jti":"x""#, 0),
        (#""iat":0"#, 0), (#""iat":4294967295"#, .max), (#""iat":null"#, 0),
      ] as [(String, UInt32)] {
        let token = TestTokens.make("{\"user_id\":\"alice\",\(claims)}")
        // Three requests: the token is verified, found in the cache, and known to the connection.
        for _ in 0..<3 { #expect(try await client.post(path, nil, token: token).status == 200) }
        #expect(try await gateway.store.takeIssueTimes() == [expected, expected, expected], "\(claims)")
      }
      #expect(try await client.post(path + "?user_id=alice", nil).status == 200)
      #expect(try await gateway.store.takeIssueTimes() == [nil])
      // Only the first request of a PUT carries the user's token issue time.
      let token = TestTokens.make(#"{"user_id":"alice","iat":5}"#)
      let hide = #"{"privacy_settings":{"read_receipts":{"enabled":false}}}"#
      #expect(try await client.put("/v1/users/alice", hide, token: token).status == 200)
      #expect(try await gateway.store.takeIssueTimes() == [5, nil, nil, nil, nil, nil, nil])
    }
  }
}

@Suite struct UserJSONTests {
  @Test func userSettingsAreWritten() throws {
    var settings = UserSettings(user: "a@b", version: 3, hidesRead: true)
    #expect(
      try jsonObject { UserJSON.write(settings, into: &$0) } == [
        "id": "a@b",
        "privacy_settings": ["read_receipts": ["enabled": false], "delivery_receipts": ["enabled": true]],
      ]
    )
    settings.user = String(repeating: "u", count: 255)
    settings.hidesDelivered = true
    settings.tokensRevokedBefore = Timestamp(milliseconds: .max)
    let found = try jsonObject { UserJSON.write(settings, into: &$0) }
    #expect(found["revoke_tokens_before"] as? String == "9999-12-31T23:59:59.999Z")
  }
}
