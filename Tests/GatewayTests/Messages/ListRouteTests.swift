import Foundation
import HTTP2Session
import ReceiptWire
import StoreTestSupport
import Testing

@testable import Gateway

/// The member lists of a message (R11), as a caller sees them.
@Suite struct ListRouteTests {
  private let alice = TestTokens.user("alice")
  private let message = "/v1/channels/messaging:c/messages/m1"

  /// m1 is by alice: bob and carol have read it, dave has received it, erin has done nothing, and frank joined later.
  private func setUp(_ gateway: TestGateway) async throws {
    let members = ["alice", "bob", "carol", "dave", "erin"]
    try await gateway.setUp("messaging:c", members: members)
    let client = gateway.client
    let channel = "/v1/channels/messaging:c"
    _ = try await client.put(channel, #"{"options":{"kept_steps":1}}"#)
    _ = try await client.post(channel + "/messages", #"{"id":"m1","user_id":"alice","receipt":true}"#)
    _ = try await client.post(channel + "/members", #"{"add":["frank"]}"#)
    for user in ["bob", "carol"] { _ = try await client.post(channel + "/read?user_id=\(user)", nil) }
    _ = try await client.post(channel + "/messages", #"{"id":"m2"}"#)
    // The channel keeps one step of each member: when carol read m1 is forgotten with her next read.
    try await gateway.store.advance(milliseconds: 1_000)
    _ = try await client.post(channel + "/read?user_id=carol", nil)
    let note = #"{"message_ids":["m1"],"note":"line\n\"two\"","user_id":"bob"}"#
    _ = try await client.post(channel + "/receipts", note)
    let delivered = #"{"user_id":"dave","latest_delivered_messages":[{"cid":"messaging:c","id":"m1"}]}"#
    _ = try await client.post("/v1/channels/delivered", delivered)
    _ = try await gateway.store.takeLog()
  }

  @Test func readersAreListedInPages() async throws {
    try await TestGateway.run { gateway in
      try await setUp(gateway)
      let whole = try await gateway.client.get(message + "/readers", token: alice)
      #expect(whole.status == 200 && whole.contentType == "application/json")
      #expect(
        whole.json == [
          "members": [
            [
              // A join makes the store's time rise, so that it is later than all messages before it.
              "user": ["id": "bob"], "read_at": gateway.storeTime(plus: 1), "exact": true,
              "note": "line\n\"two\"",
            ],
            ["user": ["id": "carol"], "read_at": gateway.storeTime(plus: 1_000), "exact": false],
          ], "total": 2,
        ]
      )
      let first = try await gateway.client.get(message + "/readers?limit=1")
      #expect((first.json["members"] as? NSArray)?.count == 1)
      let next = try #require(first.json["next"] as? String)
      let second = try await gateway.client.get(message + "/readers?limit=1&cursor=\(next)&order=joined")
      let rest = try #require(second.json["members"] as? [NSDictionary])
      #expect(rest.map { ($0["user"] as? NSDictionary)?["id"] as? String } == ["carol"])
      #expect(second.json["next"] == nil)
      #expect(first.json["total"] as? Int == 2 && second.json["total"] == nil)
      #expect(try await gateway.store.takeLog() == [.listMembers, .listMembers, .listMembers])
    }
  }

  @Test func deliveredAndUnreadMembersAreListed() async throws {
    try await TestGateway.run { gateway in
      try await setUp(gateway)
      #expect(
        try await gateway.client.get(message + "/delivered?order=&cursor=&limit=").json == [
          "members": [
            ["user": ["id": "dave"], "delivered_at": gateway.storeTime(plus: 1_000), "exact": true]
          ], "total": 1,
        ]
      )
      #expect(
        try await gateway.client.get(message + "/unread?user_id=bob").json
          == ["members": [["user": ["id": "dave"]], ["user": ["id": "erin"]]], "total": 2]
      )
      let head = try await gateway.client.request(.head, message + "/unread", nil, token: alice)
      #expect(head.status == 200 && head.body.isEmpty)
    }
  }

  @Test func storeCursorsArePassedThrough() async throws {
    try await TestGateway.run { gateway in
      try await gateway.setUp("messaging:s", members: ["alice", "a@b.c_d-e", "bob"], messages: ["m1"])
      let path = "/v1/channels/messaging:s/messages/m1/unread"
      let first = try await gateway.client.get(path + "?order=time&limit=1")
      #expect(first.json["next"] as? String == "t0-a@b.c_d-e")
      for escaped in ["t0-a@b.c_d-e", "t0-a%40b.c_d-e"] {
        let second = try await gateway.client.get(path + "?order=time&limit=1&cursor=\(escaped)")
        #expect(second.json == ["members": [["user": ["id": "bob"]]]])
      }
      _ = try await gateway.store.takeLog()
      let long = String(repeating: "1", count: 532)
      #expect(try await gateway.client.get(path + "?cursor=j\(long)").verdict == "400 invalid_cursor")
      for cursor in ["j%201", "j%2F", "j+1", "%C3%A9", "j%00", "j%22"] {
        let response = try await gateway.client.get(path + "?cursor=\(cursor)")
        #expect(response.verdict == "400 invalid_cursor", "\(cursor)")
      }
      #expect(try await gateway.store.takeLog().isEmpty)
      // Well-formed cursors that the store does not know, or that are of the other order.
      for query in ["cursor=x1", "cursor=t2-bob", "order=time&cursor=j1"] {
        #expect(try await gateway.client.get(path + "?" + query).verdict == "400 invalid_cursor", "\(query)")
      }
    }
  }

  @Test func chosenMembersAreListed() async throws {
    try await TestGateway.run { gateway in
      try await setUp(gateway)
      let response = try await gateway.client.get(
        message + "/members?user_ids=carol,erin,nobody,dave,frank",
        token: alice
      )
      #expect(response.status == 200)
      #expect(
        response.json == [
          "members": [
            [
              "user": ["id": "carol"], "status": "read", "read_at": gateway.storeTime(plus: 1_000),
              "read_exact": false, "delivered_at": gateway.storeTime(plus: 1_000), "delivered_exact": false,
            ],
            ["user": ["id": "erin"], "status": "sent"],
            ["user": ["id": "nobody"], "code": "member_not_found"],
            [
              "user": ["id": "dave"], "status": "delivered", "delivered_at": gateway.storeTime(plus: 1_000),
              "delivered_exact": true,
            ],
            ["user": ["id": "frank"], "code": "not_expected"],
          ]
        ]
      )
      let repeated = try await gateway.client.get(
        message + "/members?user_ids=carol&user_ids=&user_ids=nobody,dave&api_key=x"
      )
      #expect(
        (repeated.json["members"] as? [NSDictionary])?.compactMap {
          ($0["user"] as? NSDictionary)?["id"] as? String
        }
          == ["carol", "nobody", "dave"]
      )
      let hundred = Array(repeating: "bob", count: 100).joined(separator: ",")
      let most = try await gateway.client.get(message + "/members?user_ids=\(hundred)")
      #expect((most.json["members"] as? NSArray)?.count == 100)
      // A path with a hundred ids of 128 bytes is not too long.
      let longest = (100..<200).map { String(repeating: "u", count: 125) + "\($0)" }
      let long = try await gateway.client.get(
        message + "/members?user_ids=\(longest.joined(separator: ","))",
        token: alice
      )
      #expect((long.json["members"] as? [NSDictionary])?.last?["code"] as? String == "member_not_found")
      _ = try await gateway.store.takeLog()
      for (query, expected) in [
        ("", "400 invalid_query"), ("?user_ids=", "400 invalid_query"), ("?user_ids", "400 invalid_query"),
        ("?user_ids=\(hundred),bob", "400 invalid_query"), ("?user_ids=bob,", "400 invalid_user_id"),
        ("?user_ids=,", "400 invalid_user_id"), ("?user_ids=b%7Fb", "400 invalid_user_id"),
        ("?user_ids=bob%2C%00carol", "400 invalid_user_id"),
        ("?user_ids=\(hundred)&user_ids=bob", "400 invalid_query"),
        ("?user_ids=bob&user_id=b%7Fb", "400 invalid_user_id"), ("?user_ids=%zz", "400 invalid_query"),
      ] {
        #expect(try await gateway.client.get(message + "/members" + query).verdict == expected, "\(query)")
      }
      #expect(try await gateway.store.takeLog().isEmpty)
    }
  }

  @Test func listsAreHiddenFromOthersThanSender() async throws {
    try await TestGateway.run { gateway in
      try await setUp(gateway)
      _ = try await gateway.client.put(
        "/v1/channels/messaging:c",
        #"{"options":{"counts_visible_to":"sender"}}"#
      )
      let bob = TestTokens.user("bob")
      for list in ["readers", "delivered", "unread"] {
        let hidden = try await gateway.client.get("\(message)/\(list)", token: bob)
        #expect(hidden.verdict == "403 counts_not_visible")
        #expect(try await gateway.client.get("\(message)/\(list)", token: alice).status == 200)
        #expect(try await gateway.client.get("\(message)/\(list)").status == 200)
      }
      let chosen = try await gateway.client.get(message + "/members?user_ids=carol,bob", token: bob)
      let members = try #require(chosen.json["members"] as? [NSDictionary])
      #expect(members[0] == ["user": ["id": "carol"], "code": "counts_not_visible"])
      #expect(members[1]["status"] as? String == "read")
    }
  }

  @Test func invalidListRequestsAreRefused() async throws {
    try await TestGateway.run { gateway in
      try await setUp(gateway)
      let client = gateway.client
      let gone = "/v1/channels/messaging:c/messages/gone"
      _ = try await client.post("/v1/channels/messaging:c/messages", #"{"id":"gone","user_id":"alice"}"#)
      _ = try await client.delete(gone)
      // Too many members for a list in order of time.
      let members = (0..<1_000).map { "\"u\($0)\"" }.joined(separator: ",")
      _ = try await client.put("/v1/channels/messaging:c", "{\"members\":[\(members)]}")
      for list in ["readers", "delivered", "unread", "members"] {
        let chosen = list == "members" ? "&user_ids=bob" : ""
        for (path, query, token, expected) in [
          (message, "user_id=b%7Fb", TestTokens.server, "400 invalid_user_id"),
          (message, "user_id=bob", alice, "403 user_id_mismatch"),
          (message, "user_id=nobody", TestTokens.server, "404 member_not_found"),
          (message, "", TestTokens.user("nobody"), "404 channel_not_found"),
          (gone, "", alice, "404 message_deleted"),
          ("/v1/channels/messaging:c/messages/m9", "", alice, "404 message_not_found"),
          ("/v1/channels/messaging:none/messages/m1", "", alice, "404 channel_not_found"),
        ] {
          let response = try await client.get("\(path)/\(list)?\(query)\(chosen)", token: token)
          #expect(response.verdict == expected, "\(list) \(query)")
          #expect((response.headers["retry-after"] == "1") == (expected == "404 message_not_found"))
        }
        guard list != "members" else { continue }
        for (query, expected) in [
          ("limit=0", "400 invalid_query"), ("limit=101", "400 invalid_query"),
          ("limit=x", "400 invalid_query"), ("order=name", "400 invalid_query"),
          ("order=time", "400 order_not_available"),
        ] {
          let response = try await client.get("\(message)/\(list)?\(query)", token: alice)
          #expect(response.verdict == expected, "\(list) \(query)")
        }
      }
      for (mode, expected) in [
        (StoreInMemory.Mode.refusing(.busy), "503 store_busy"), (.garbled, "500 internal_error"),
      ] {
        try await gateway.store.set(mode)
        for list in ["readers", "members?user_ids=bob"] {
          #expect(try await client.get("\(message)/\(list)").verdict == expected)
        }
      }
    }
  }
}
