import Foundation
import ReceiptWire
import StoreTestSupport
import Testing

@testable import Gateway

/// Acknowledgement requests and acknowledgements (R9), as a caller sees them.
@Suite struct AcknowledgementRouteTests {
  private let alice = TestTokens.user("alice")
  private let bob = TestTokens.user("bob")
  private let path = "/v1/channels/messaging:c/receipts"

  private func setUp(_ gateway: TestGateway) async throws {
    try await gateway.setUp("messaging:c", members: ["alice", "bob"], messages: ["plain", "gone"])
    for body in [
      #"{"id":"m1","user_id":"alice","receipt":true}"#, #"{"id":"m2","user_id":"alice","receipt":true}"#,
      #"{"id":"own","user_id":"bob","receipt":true}"#,
    ] {
      let registered = try await gateway.client.post("/v1/channels/messaging:c/messages", body)
      #expect(registered.status == 201)
    }
    _ = try await gateway.client.delete("/v1/channels/messaging:c/messages/gone")
    _ = try await gateway.store.takeLog()
  }

  @Test func acknowledgementRequestIsRefusedByOptions() async throws {
    try await TestGateway.run { gateway in
      let client = gateway.client
      let channel = "/v1/channels/messaging:c"
      let members = #"["alice",{"user_id":"bob","role":"admin"}]"#
      _ = try await client.put(
        channel,
        #"{"members":\#(members),"options":{"receipt_request_roles":["admin"],"receipt_daily_limit":1}}"#
      )
      for (body, refused) in [
        (#"{"id":"m1","user_id":"bob","receipt":true}"#, nil),
        (#"{"id":"m2","user_id":"bob","receipt":true}"#, "receipt_limit_reached"),
        (#"{"id":"m3","user_id":"alice","receipt":true}"#, "receipt_not_allowed"),
        (#"{"id":"m4","user_id":"alice","receipt":false}"#, nil), (#"{"id":"m5","user_id":"alice"}"#, nil),
      ] as [(String, String?)] {
        let response = try await client.post(channel + "/messages", body)
        let message = try #require(response.json["message"] as? NSDictionary)
        #expect(response.status == 201 && message["receipt_refused"] as? String == refused, "\(body)")
      }
      let batch = try await client.post(
        "/v1/messages",
        """
        {"messages":[{"cid":"messaging:c","id":"n1","user_id":"alice","receipt":true},
         {"cid":"messaging:c","id":"n2","user_id":"bob","receipt":true},{"cid":"messaging:c","id":"n3"}]}
        """
      )
      #expect(
        batch.json == [
          "results": [
            [
              "ok": true,
              "message": [
                "id": "n1", "cid": "messaging:c", "seq": 6, "status": "sent",
                "receipt_refused": "receipt_not_allowed",
              ],
            ],
            [
              "ok": true,
              "message": [
                "id": "n2", "cid": "messaging:c", "seq": 7, "status": "sent",
                "receipt_refused": "receipt_limit_reached",
              ],
            ],
            ["ok": true, "message": ["id": "n3", "cid": "messaging:c", "seq": 8, "status": "sent"]],
          ]
        ]
      )
    }
  }

  @Test func messagesAreAcknowledgedPerID() async throws {
    try await TestGateway.run { gateway in
      try await setUp(gateway)
      let client = gateway.client
      let status = "/v1/channels/messaging:c/messages/m1/status"
      #expect(try await client.get(status).json["receipt_status"] as? String == "processing")
      let one = try await client.post(path, #"{"message_ids":["m1"],"note":"Seen, \"thanks\""}"#, token: bob)
      #expect(one.status == 200 && one.contentType == "application/json")
      #expect(one.json == ["acknowledged": ["m1"], "errors": []])
      #expect(try await client.get(status).json["receipt_status"] as? String == "done")
      let plain = "/v1/channels/messaging:c/messages/plain/status"
      #expect(try await client.get(plain).json["receipt_status"] as? String == "none")
      // Each id has its own result, in the order of the request, also malformed ids.
      _ = try await gateway.store.takeLog()
      let all = try await client.post(
        path,
        #"{"message_ids":["m2","plain",7,"own","a\u007Fb","m1","m9","gone",null,"m2"]}"#,
        token: bob
      )
      #expect(all.status == 200)
      #expect(
        all.json == [
          "acknowledged": ["m2", "m1", "m2"],
          "errors": [
            ["message_id": "plain", "code": "receipt_not_requested"], ["code": "invalid_field"],
            ["message_id": "own", "code": "own_message"],
            ["message_id": "a\u{7F}b", "code": "invalid_message_id"],
            ["message_id": "m9", "code": "message_not_found"],
            ["message_id": "gone", "code": "message_deleted"], ["code": "invalid_field"],
          ],
        ]
      )
      #expect(try await gateway.store.takeLog() == [.acknowledge])
      // No id needs the store.
      let none = try await client.post(path, #"{"message_ids":["a\u007Fb",{}]}"#, token: bob)
      #expect(none.status == 200)
      #expect(
        none.json == [
          "acknowledged": [],
          "errors": [["message_id": "a\u{7F}b", "code": "invalid_message_id"], ["code": "invalid_field"]],
        ]
      )
      #expect(try await gateway.store.takeLog().isEmpty)
      // A server names the user. A request may have a hundred ids.
      let many = Array(repeating: "\"m1\"", count: 100).joined(separator: ",")
      let server = try await client.post(path, "{\"message_ids\":[\(many)],\"user_id\":\"bob\"}")
      #expect((server.json["acknowledged"] as? [String])?.count == 100)
      _ = try await client.put("/v1/channels/messaging:c", #"{"options":{"receipt_ttl":1}}"#)
      let late = #"{"id":"late","user_id":"alice","receipt":true}"#
      _ = try await client.post("/v1/channels/messaging:c/messages", late)
      try await gateway.store.advance(milliseconds: 2_000)
      let expired = try await client.post(path + "?user_id=bob", #"{"message_ids":["late"],"note":null}"#)
      #expect(
        expired.json == ["acknowledged": [], "errors": [["message_id": "late", "code": "receipt_expired"]]]
      )
    }
  }

  @Test func invalidAcknowledgementsAreRefused() async throws {
    try await TestGateway.run { gateway in
      try await setUp(gateway)
      let most = String(repeating: "n", count: 1_022) + "é"
      let ids = Array(repeating: "\"m1\"", count: 101).joined(separator: ",")
      let table: [(String?, String, String)] = [
        (nil, bob, "400 invalid_field"), ("{}", bob, "400 invalid_field"),
        (#"{"message_ids":"m1"}"#, bob, "400 invalid_field"),
        (#"{"message_ids":{}}"#, bob, "400 invalid_field"),
        (#"{"message_ids":[]}"#, bob, "400 invalid_field"),
        ("{\"message_ids\":[\(ids)]}", bob, "400 invalid_field"),
        (#"{"message_ids":["m1"],"note":7}"#, bob, "400 invalid_field"),
        ("{\"message_ids\":[\"m1\"],\"note\":\"\(most)n\"}", bob, "400 invalid_field"),
        (#"{"message_ids":["m1"]}"#, TestTokens.server, "400 user_id_required"),
        (#"{"message_ids":["m1"],"user_id":"a\u007Fb"}"#, TestTokens.server, "400 invalid_user_id"),
        (#"{"message_ids":["m1"],"user_id":"alice"}"#, bob, "403 user_id_mismatch"),
      ]
      for (body, token, expected) in table {
        let response = try await gateway.client.post(path, body, token: token)
        #expect(response.verdict == expected, "\(body?.prefix(60) ?? "")")
      }
      let tooLong = try await gateway.client.post(path, table[7].0, token: bob)
      #expect(tooLong.json["detail"] as? String == "field \"note\" may have at most 1024 bytes of UTF-8")
      // No request reached the store.
      #expect(try await gateway.store.takeLog().isEmpty)
      let fits = "{\"message_ids\":[\"m1\"],\"note\":\"\(most)\"}"
      #expect(try await gateway.client.post(path, fits, token: bob).status == 200)
      let body = #"{"message_ids":["m1"]}"#
      #expect(
        try await gateway.client.post(path, body, token: TestTokens.user("carol")).verdict
          == "404 channel_not_found"
      )
      let named = #"{"message_ids":["m1"],"user_id":"carol"}"#
      #expect(try await gateway.client.post(path, named).verdict == "404 member_not_found")
      #expect(
        try await gateway.client.post("/v1/channels/messaging:none/receipts", body, token: bob).verdict
          == "404 channel_not_found"
      )
      for (mode, expected) in [
        (StoreInMemory.Mode.refusing(.busy), "503 store_busy"),
        (.refusing(.outcomeUnknown), "503 outcome_unknown"),
        (.garbled, "500 internal_error"),
      ] {
        try await gateway.store.set(mode)
        #expect(try await gateway.client.post(path, body, token: bob).verdict == expected)
      }
    }
  }
}
