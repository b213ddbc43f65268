import Foundation
import StoreTestSupport
import Testing

@testable import Gateway

/// Marks of many channels in one request.
@Suite struct BatchRouteTests {
  private let bob = TestTokens.user("bob")

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
}
