import Foundation
import Testing

extension RealProcesses {
  /// A misspelt field name does not widen a request: where omitting the field means *everything* or *the newest*, the
  /// request is rejected and changes nothing.
  @Suite struct UnknownNames {
    private struct Case {
      var method = "POST"
      var path: String
      var body: String?
      var isServer = false
      var code = "unknown_field"
      /// Texts that the error's detail must contain.
      var names: [String] = []
    }

    private static let channel = "/v1/channels/messaging:team"

    private static let cases: [Case] = [
      Case(
        path: "/v1/channels/read",
        body: #"{"readByChannel":{}}"#,
        names: ["readByChannel", "read_by_channel"]
      ),
      Case(
        path: "/v1/channels/read",
        body: #"{}"#,
        code: "invalid_field",
        names: ["read_by_channel", "all"]
      ),
      Case(path: "/v1/channels/read", body: nil, code: "invalid_field"),
      Case(path: "/v1/channels/read", body: #"{"all":false}"#, code: "invalid_field", names: ["all"]),
      Case(path: "/v1/channels/read", body: #"{"all":null}"#, code: "invalid_field", names: ["all"]),
      Case(
        path: channel + "/truncate",
        body: #"{"truncated_at":"2026-01-01T00:00:00Z"}"#,
        isServer: true,
        names: ["truncated_at"]
      ),
      Case(path: channel + "/truncate", body: #"{"before":null}"#, isServer: true, code: "invalid_field"),
      Case(path: channel + "/read", body: #"{"messageId":"m1"}"#, names: ["messageId", "message_id"]),
      Case(path: channel + "/read?messageId=m1", names: ["messageId", "message_id"]),
      Case(path: channel + "/unread?x=1", body: #"{"message_id":"m1"}"#, names: ["x"]),
      Case(
        path: "/v1/channels/delivered",
        body:
          #"{"latest_delivered_messages":[{"cid":"messaging:team","id":"m1"},{"cid":"messaging:team","ID":"m1"}]}"#,
        names: ["latest_delivered_messages[1].ID", "id"]
      ),
      Case(
        path: "/v1/messages",
        body:
          #"{"messages":[{"cid":"messaging:team","id":"n1"},{"cid":"messaging:team","id":"n2","sender":"bob"}]}"#,
        isServer: true,
        names: ["messages[1].sender"]
      ),
      Case(
        method: "PUT",
        path: channel,
        body: #"{"members":["carol",{"user_id":"dave","roles":"x"}]}"#,
        isServer: true,
        names: ["members[1].roles", "role"]
      ),
      Case(
        method: "PUT",
        path: "/v1/channel-types/messaging",
        body: #"{"mark_unread":"off","history_":"hidden"}"#,
        isServer: true,
        names: ["history"]
      ),
      Case(method: "GET", path: channel + "/read-state?limits=1", names: ["limits", "limit"]),
      Case(method: "GET", path: "/v1/events?channel=messaging:team", names: ["channel", "channels"]),
      Case(method: "DELETE", path: channel + "?hard_delete=true", isServer: true, names: ["hard_delete"]),
      Case(
        method: "GET",
        path: "/v1/feed?consumer=a&partitions=0/1",
        isServer: true,
        names: ["partitions", "partition"]
      ),
      Case(
        method: "PUT",
        path: "/v1/feed/consumers/a",
        body: #"{"type":["read"]}"#,
        isServer: true,
        names: ["type", "types"]
      ),
    ]

    @Test func unknownNamesAreRejectedWithoutEffect() async throws {
      try await TestServices.with { services in
        let server = services.serverToken
        let bob = try await services.token("bob")
        try await services.expect(
          201,
          "PUT",
          Self.channel,
          token: server,
          json: #"{"members":["alice","bob"]}"#
        )
        for id in ["m1", "m2"] {
          try await services.expect(
            201,
            "POST",
            Self.channel + "/messages",
            token: server,
            json: #"{"id":"\#(id)","user_id":"alice"}"#
          )
        }
        let before = try await Self.state(services, bob)
        for item in Self.cases {
          let response = try await services.curl(
            item.method,
            item.path,
            token: item.isServer ? server : bob,
            json: item.body
          )
          let status = item.code == "not_implemented" ? 501 : 400
          #expect(response.status == status, "\(item.path) \(item.body ?? ""): \(response)")
          let problem = try? JSONSerialization.jsonObject(with: Data(response.body.utf8)) as? [String: Any]
          #expect(problem?["code"] as? String == item.code, "\(item.path): \(response)")
          let detail = problem?["detail"] as? String ?? ""
          for name in item.names { #expect(detail.contains("\"\(name)\""), "\(item.path): \(detail)") }
        }
        #expect(try await Self.state(services, bob) == before)
        try await Self.expectAcceptedForms(services, bob)
      }
    }

    /// The channel, its rows, both messages and the type's options, as text.
    private static func state(_ services: TestServices, _ bob: String) async throws -> [String] {
      var found: [String] = []
      for (path, token) in [
        (channel, services.serverToken), (channel + "/read-state", bob),
        (channel + "/messages/m1/status", bob), (channel + "/messages/m2/status", bob),
        ("/v1/channel-types/messaging", services.serverToken),
        ("/v1/users/carol/channels", services.serverToken),
      ] {
        let response = try await services.curl("GET", path, token: token)
        #expect(response.status == 200, "\(path): \(response)")
        found.append(response.body)
      }
      return found
    }

    /// Accepted forms: lists with commas and repetition, an empty query value, parameters that Stream's clients add,
    /// and every field by its name.
    private static func expectAcceptedForms(_ services: TestServices, _ bob: String) async throws {
      for query in [
        "user_ids=alice,bob", "user_ids=alice&user_ids=bob", "user_ids=alice,b%6Fb&api_key=k&connection_id=c",
      ] {
        let response = try await services.expect(
          200,
          "GET",
          channel + "/messages/m1/members?" + query,
          token: services.serverToken
        )
        let users = (response["members"] as? [[String: Any]] ?? []).map {
          ($0["user"] as? [String: Any])?["id"] as? String
        }
        #expect(users == ["alice", "bob"], "\(query)")
      }
      let all = try await services.expect(
        200,
        "POST",
        "/v1/channels/read",
        token: bob,
        json: #"{"all":true}"#
      )
      #expect(all["channels_read"] as? Int == 1)
      try await services.expect(
        200,
        "POST",
        channel + "/truncate",
        token: services.serverToken,
        json: #"{"all":true}"#
      )
      let gone = try await services.curl("GET", channel + "/messages/m2/status", token: bob)
      #expect(gone.status == 404 && gone.body.contains("message_deleted"), "\(gone)")
    }
  }
}
