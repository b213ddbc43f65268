import Foundation
import HTTP2Session
import NIOCore
import ReceiptWire
import StoreTestSupport
import TestSupport
import Testing

@testable import Gateway

/// A user's channels, totals and mark-all (R13, R14), as a caller sees them.
@Suite struct UnreadRouteTests {
  private let alice = TestTokens.user("alice")

  /// Channels c0, c1, … of alice and bob; number n has n % 3 messages by bob.
  private func setUp(_ gateway: TestGateway, _ count: Int) async throws {
    for number in 0..<count {
      let messages = (0..<(number % 3)).map { "c\(number)-\($0)" }
      try await gateway.setUp("messaging:c\(number)", members: ["bob", "alice"], messages: messages)
    }
  }

  private func totals(_ response: TestResponse) -> String { totals(response.json, else: response.verdict) }

  private func totals(_ json: NSDictionary, else verdict: String = "?") -> String {
    guard let messages = json["total_unread_count"] as? Int, let channels = json["unread_channels"] as? Int,
      let threads = json["unread_threads"] as? Int
    else { return json["code"] as? String ?? verdict }
    return "\(messages) in \(channels), \(threads) threads"
  }

  private func cids(_ response: TestResponse) -> [String] {
    (response.json["channels"] as? [NSDictionary] ?? []).map { ($0["cid"] as? String ?? "?") }
  }

  /// All pages of a route. Each page but the last has to be full.
  private func pages(_ gateway: TestGateway, _ path: String, limit: Int) async throws -> [String] {
    var all: [String] = []
    var cursor = ""
    repeat {
      let response = try await gateway.client.get("\(path)?limit=\(limit)\(cursor)", token: alice)
      #expect(response.status == 200)
      let page = cids(response)
      all += page
      cursor = (response.json["next"] as? String).map { "&cursor=\($0)" } ?? ""
      #expect(cursor.isEmpty || page.count == limit)
    } while !cursor.isEmpty && all.count < 1_000
    return all
  }

  @Test func channelsAreListedInPages() async throws {
    try await TestGateway.run { gateway in
      try await setUp(gateway, 25)
      try await gateway.setUp("messaging:other", members: ["bob"])
      let path = "/v1/users/alice/channels"
      let first = try await gateway.client.get(path + "?limit=2", token: alice)
      #expect(
        first.json == [
          "channels": [
            ["cid": "messaging:c0", "joined_at": gateway.storeTime()],
            ["cid": "messaging:c1", "joined_at": gateway.storeTime()],
          ], "next": "c2",
        ]
      )
      let every = (0..<25).map { "messaging:c\($0)" }
      for limit in [1, 7, 24, 25, 100] {
        #expect(try await pages(gateway, path, limit: limit) == every, "\(limit)")
      }
      #expect(try await gateway.client.get("/v1/users/nobody/channels").json == ["channels": []])
    }
  }

  @Test func unreadChannelsAreListedWithTotals() async throws {
    try await TestGateway.run { gateway in
      try await setUp(gateway, 30)
      _ = try await gateway.client.post(
        "/v1/channels/messaging:c1/messages",
        #"{"id":"r1","user_id":"bob","parent_id":"c1-0"}"#
      )
      _ = try await gateway.client.post("/v1/channels/messaging:c1/read?thread_id=c1-0", nil, token: alice)
      _ = try await gateway.client.post(
        "/v1/channels/messaging:c1/messages",
        #"{"id":"r2","user_id":"bob","parent_id":"c1-0"}"#
      )
      _ = try await gateway.client.post("/v1/channels/messaging:c2/read?message_id=c2-0", nil, token: alice)
      let path = "/v1/users/alice/unread"
      let first = try await gateway.client.get(path + "?limit=2", token: alice)
      #expect(
        first.json == [
          "total_unread_count": 29, "unread_channels": 20, "unread_threads": 1, "unread_mentions": 0,
          "channels": [
            [
              "cid": "messaging:c1", "unread_messages": 1, "unread_mentions": 0,
              "first_unread_message_id": "c1-0",
              "last_read": gateway.storeTime(),
            ],
            [
              "cid": "messaging:c2", "unread_messages": 1, "unread_mentions": 0,
              "last_read_message_id": "c2-0",
              "first_unread_message_id": "c2-1", "last_read": gateway.storeTime(),
            ],
          ], "next": "c3",
        ]
      )
      let every = (0..<30).filter { $0 % 3 > 0 }.map { "messaging:c\($0)" }
      // Pages do not depend on the size of the store's replies, and each has the totals of all channels.
      for listMax in [nil, 8, 3, 1] {
        try await gateway.store.setListMax(listMax)
        for limit in [1, 6, 20, 100] {
          #expect(try await pages(gateway, path, limit: limit) == every, "\(listMax ?? 0) \(limit)")
        }
        for cursor in ["c1", "c8", "c46", "c88", "c89", "c1000"] {
          let page = try await gateway.client.get("\(path)?limit=1&cursor=\(cursor)", token: alice)
          #expect(totals(page) == "29 in 20, 1 threads", "\(cursor) \(listMax ?? 0)")
        }
      }
      #expect(totals(try await gateway.client.get("/v1/users/nobody/unread")) == "0 in 0, 0 threads")
      // There is one frame for each shard, for any number of channels.
      try await gateway.store.setListMax(nil)
      _ = try await gateway.store.takeRequests()
      _ = try await gateway.client.get("/v1/users/alice/unread")
      let frames = try await gateway.store.takeRequests().countedChannels
      #expect(frames.count <= 4 && frames.reduce(0, +) == 30)
      #expect(try await gateway.eventLoop.submit { gateway.loop.value.userScans.count }.get() == 0)
    }
  }

  @Test func totalsAreCountedForManyUsers() async throws {
    try await TestGateway.run { gateway in
      try await setUp(gateway, 12)
      let response = try await gateway.client.post(
        "/v1/unread",
        #"{"user_ids":["alice","bob","no\u007Fone","nobody",7,"alice"]}"#
      )
      let users = try #require(response.json["users"] as? [NSDictionary])
      #expect(
        users.map { "\($0["user_id"] ?? "-"): \(totals($0))" } == [
          "alice: 12 in 8, 0 threads", "bob: 0 in 0, 0 threads", "no\u{7F}one: invalid_user_id",
          "nobody: 0 in 0, 0 threads", "-: invalid_field", "alice: 12 in 8, 0 threads",
        ]
      )
      #expect(try await gateway.client.post("/v1/unread", #"{"user_ids":[]}"#).json == ["users": []])
      let hundred = (0..<100).map { "\"u\($0)\"" }.joined(separator: ",")
      let most = try await gateway.client.post("/v1/unread", "{\"user_ids\":[\(hundred)]}")
      #expect((most.json["users"] as? NSArray)?.count == 100)
      for (body, token, expected) in [
        ("{}", TestTokens.server, "400 invalid_field"),
        (#"{"user_ids":"a"}"#, TestTokens.server, "400 invalid_field"),
        (#"{"user_ids":null}"#, TestTokens.server, "400 invalid_field"),
        ("{\"user_ids\":[\(hundred),\"x\"]}", TestTokens.server, "400 invalid_field"),
        (#"{"user_ids":["alice"]}"#, alice, "403 server_token_required"),
      ] {
        #expect(try await gateway.client.post("/v1/unread", body, token: token).verdict == expected)
      }
      // A channel that cannot be counted fails only its own members.
      try await gateway.setUp("messaging:bobs", members: ["bob"])
      try await gateway.store.set(.refusingChannel("messaging:bobs", .unavailable))
      let some = try await gateway.client.post("/v1/unread", #"{"user_ids":["bob","alice"]}"#)
      #expect(
        (some.json["users"] as? [NSDictionary])?.map { totals($0) } == [
          "store_unavailable", "12 in 8, 0 threads",
        ]
      )
    }
  }

  @Test func markCanReturnTotals() async throws {
    try await TestGateway.run { gateway in
      try await setUp(gateway, 12)
      let path = "/v1/channels/messaging:c2/"
      let read = try await gateway.client.post(path + "read?totals=true", nil, token: alice)
      #expect(totals(read) == "10 in 7, 0 threads")
      #expect((read.json["read"] as? NSDictionary)?["last_read_message_id"] as? String == "c2-1")
      let unread = try await gateway.client.post(
        path + "unread?totals=true",
        #"{"message_id":"c2-1","user_id":"alice"}"#
      )
      #expect(totals(unread) == "11 in 8, 0 threads" && unread.json["read"] != nil)
      _ = try await gateway.store.takeLog()
      let plain = try await gateway.client.post(path + "read?totals=false", nil, token: alice)
      #expect(plain.json.allKeys as? [String] == ["read"])
      #expect(try await gateway.store.takeLog() == [.markRead])
      let reply = #"{"id":"r1","user_id":"bob","parent_id":"c2-0"}"#
      _ = try await gateway.client.post(path + "messages", reply)
      let thread = try await gateway.client.post(path + "read?totals=true&thread_id=c2-0", nil, token: alice)
      #expect((thread.json["read"] as? NSDictionary)?["last_read_message_id"] as? String == "r1")
      // A failed mark is the response, and nothing is counted.
      _ = try await gateway.store.takeLog()
      let wrong = try await gateway.client.post(path + "read?totals=true&message_id=x", nil, token: alice)
      #expect(wrong.verdict == "404 message_not_found" && wrong.headers["retry-after"] == "1")
      let stranger = TestTokens.user("carol")
      #expect(
        try await gateway.client.post(path + "read?totals=true", nil, token: stranger).verdict
          == "404 channel_not_found"
      )
      #expect(try await gateway.store.takeLog() == [.markRead, .markRead])
      // The mark has moved the position, so a failed count does not answer as if nothing had changed.
      for mode in [
        StoreInMemory.Mode.refusingKind(.listChannels, .busy), .refusingKind(.unreadCounts, .unavailable),
        .refusingKind(.unreadCounts, .busy),
      ] {
        try await gateway.store.set(mode)
        let failed = try await gateway.client.post(path + "read?totals=true", nil, token: alice)
        #expect(failed.verdict == "503 outcome_unknown" && failed.headers["retry-after"] != nil)
      }
    }
  }

  @Test func markAllReadsEveryChannel() async throws {
    try await TestGateway.run { gateway in
      try await setUp(gateway, 700)
      try await gateway.store.setListMax(250)
      let path = "/v1/channels/read"
      let unread = "/v1/users/alice/unread?limit=1"
      #expect(totals(try await gateway.client.get(unread)) == "699 in 466, 0 threads")
      let none = try await gateway.client.post(path, #"{"read_by_channel":{}}"#, token: alice)
      #expect(none.json == ["results": []])
      // A channel that could not be marked is named, and all others are marked.
      try await gateway.store.set(.refusingChannel("messaging:c5", .busy))
      let most = try await gateway.client.post(path, #"{"all":true}"#, token: alice)
      #expect(most.status == 200 && most.json == ["channels_read": 699, "failed": ["messaging:c5"]])
      // A channel that the user has left is neither marked nor failed.
      try await gateway.store.set(.refusingChannel("messaging:c6", .notAMember))
      let others = try await gateway.client.post(path, #"{"all":true}"#, token: alice)
      #expect(others.json == ["channels_read": 699, "failed": []])
      try await gateway.store.set(.normal)
      #expect(totals(try await gateway.client.get(unread)) == "0 in 0, 0 threads")
      let server = try await gateway.client.post(path, #"{"all":true,"user_id":"nobody"}"#)
      #expect(server.json == ["channels_read": 0, "failed": []])
      for (body, token, expected) in [
        ("{}", TestTokens.server, "400 user_id_required"), ("{}", alice, "400 invalid_field"),
        (nil, alice, "400 invalid_field"), (#"{"all":false}"#, alice, "400 invalid_field"),
        (#"{"all":"true"}"#, alice, "400 invalid_field"), (#"{"all":null}"#, alice, "400 invalid_field"),
        (#"{"all":true,"read_by_channel":{}}"#, alice, "400 invalid_field"),
        (#"{"user_id":"alice"}"#, alice, "400 invalid_field"),
        (#"{"all":true,"user_id":"bob"}"#, alice, "403 user_id_mismatch"),
        (#"{"user_id":"bob"}"#, alice, "403 user_id_mismatch"),
        (#"{"user_id":"b\u007Fb"}"#, TestTokens.server, "400 invalid_user_id"),
        (#"{"user_id":"bob","read_by_channel":null}"#, TestTokens.server, "400 invalid_field"),
      ] as [(String?, String, String)] {
        #expect(try await gateway.client.post(path, body, token: token).verdict == expected)
      }
      // A failure before the first mark has changed nothing.
      try await gateway.store.set(.refusingKind(.listChannels, .unavailable))
      #expect(
        try await gateway.client.post(path, #"{"all":true}"#, token: alice).verdict == "503 store_unavailable"
      )
    }
  }

  @Test func markAllIsNotLimitedByCountLimit() async throws {
    var limits = GatewayLimits()
    limits.countedChannels = 100
    limits.failedChannels = 2
    try await TestGateway.run(limits: limits) { gateway in
      try await setUp(gateway, 330)
      try await gateway.store.setListMax(40)
      let path = "/v1/channels/read"
      let all = try await gateway.client.post(path, #"{"all":true}"#, token: alice)
      #expect(all.status == 200 && all.json == ["channels_read": 330, "failed": []])
      let counted = try await gateway.client.get("/v1/users/alice/unread", token: alice)
      #expect(counted.verdict == "409 limit_reached")
      #expect(counted.json["detail"] as? String == "a request covers at most 100 channels")
      // Only some failed channels are named, with the number of all.
      try await gateway.store.set(.refusingKind(.markRead, .unavailable))
      let none = try await gateway.client.post(path, #"{"all":true}"#, token: alice)
      #expect(none.status == 200 && none.json["channels_read"] as? Int == 0)
      #expect((none.json["failed"] as? [String])?.count == 2 && none.json["failed_count"] as? Int == 330)
    }
  }

  @Test func listFailureAfterMarksAnswersOutcomeUnknown() async throws {
    try await TestGateway.run(deadline: .seconds(5)) { gateway in
      try await setUp(gateway, 900)
      try await gateway.store.setListMax(300)
      try await gateway.store.set(.ignoringKind(.markRead))
      let response = try await gateway.client.submit(
        .post,
        "/v1/channels/read",
        #"{"all":true}"#,
        token: alice
      )
      try await eventually("as many marks are pending as may be in flight") {
        try await gateway.eventLoop.submit({ gateway.loop.value.pendingCount }).get()
          >= UserChannelScan.marksMax
      }
      // The next page of the list fails.
      try await gateway.store.set(.refusingKind(.listChannels, .unavailable))
      let verdict = try await response.value("the answer")
      #expect(verdict.verdict == "503 outcome_unknown" && verdict.headers["retry-after"] != nil)
    }
  }

  @Test func invalidUnreadRequestsAreRefused() async throws {
    try await TestGateway.run { gateway in
      try await setUp(gateway, 1)
      _ = try await gateway.store.takeLog()
      for route in ["channels", "unread"] {
        for (rest, token, expected) in [
          ("alice/\(route)", TestTokens.user("bob"), "403 user_id_mismatch"),
          ("al%7Fice/\(route)", TestTokens.server, "400 invalid_user_id"),
          ("alice/\(route)?limit=0", alice, "400 invalid_query"),
          ("alice/\(route)?limit=101", alice, "400 invalid_query"),
          ("alice/\(route)?limit=x", alice, "400 invalid_query"),
          ("alice/\(route)?cursor=5", alice, "400 invalid_cursor"),
          ("alice/\(route)?cursor=c", alice, "400 invalid_cursor"),
          ("alice/\(route)?cursor=r5", alice, "400 invalid_cursor"),
          ("alice/\(route)?cursor=c4294967296", alice, "400 invalid_cursor"),
          ("alice/\(route)?cursor=%zz", alice, "400 invalid_query"),
        ] {
          #expect(
            try await gateway.client.get("/v1/users/" + rest, token: token).verdict == expected,
            "\(rest)"
          )
        }
        let bare = try await gateway.client.get("/v1/users/alice/\(route)", token: nil)
        #expect(bare.verdict == "401 token_missing")
      }
      #expect(try await gateway.store.takeLog().isEmpty)
      for query in ["limit=&cursor=", "limit=100", "cursor=c0", "cursor=c4294967295", "api_key=1"] {
        let path = "/v1/users/alice/unread?\(query)"
        #expect(try await gateway.client.get(path, token: alice).status == 200, "\(query)")
      }
    }
  }

  @Test func storeFailureIsAnswered() async throws {
    try await TestGateway.run(deadline: .seconds(2)) { gateway in
      try await setUp(gateway, 6)
      let requests: [(HTTP2Method, String, String?)] = [
        (.get, "/v1/users/alice/unread", nil), (.get, "/v1/users/alice/channels", nil),
        (.post, "/v1/channels/read", #"{"all":true}"#),
        (.post, "/v1/channels/messaging:c2/read?totals=true", nil),
      ]
      for (method, path, body) in requests {
        for (mode, expected) in [
          (StoreInMemory.Mode.refusing(.busy), "503 store_busy"),
          (.refusing(.unavailable), "503 store_unavailable"),
          (.refusing(.notImplemented), "501 not_implemented"), (.garbled, "500 internal_error"),
          (.refusing(.tokenRevoked), "401 token_revoked"),
        ] {
          try await gateway.store.set(mode)
          let response = try await gateway.client.request(method, path, body, token: alice)
          #expect(response.verdict == expected, "\(path) \(mode)")
          #expect((response.headers["retry-after"] != nil) == (response.status == 503))
        }
      }
      let unread = "/v1/users/alice/unread"
      for (mode, expected) in [
        (StoreInMemory.Mode.refusingKind(.unreadCounts, .busy), "503 store_busy"),
        (.refusingKind(.unreadCounts, .unavailable), "503 store_unavailable"),
        (.refusingKind(.readState, .unavailable), "503 store_unavailable"),
        (.refusingChannel("messaging:c1", .unavailable), "503 store_unavailable"),
        (.ignoringKind(.unreadCounts), "503 store_unavailable"),
        // The index may list channels that the user has left.
        (.refusingChannel("messaging:c1", .channelNotFound), "5 in 3, 0 threads"),
        (.refusingChannel("messaging:c1", .notAMember), "5 in 3, 0 threads"),
        (.refusingKind(.readState, .notAMember), "6 in 4, 0 threads"),
      ] {
        try await gateway.store.set(mode)
        let response = try await gateway.client.get(unread, token: alice)
        let found = response.status == 200 ? totals(response) : response.verdict
        #expect(found == expected, "\(mode)")
      }
      let jobs = try await gateway.eventLoop.submit { gateway.loop.value.userScans.count }.get()
      #expect(jobs == 0)
    }
  }

  @Test func revokedTokensAreRefused() async throws {
    try await TestGateway.run { gateway in
      try await setUp(gateway, 3)
      let revoke = #"{"revoke_tokens_before":"2023-11-14T22:13:20Z"}"#
      #expect(try await gateway.client.put("/v1/users/alice", revoke).status == 200)
      for (method, path, body) in [
        (HTTP2Method.get, "/v1/users/alice/unread", nil), (.get, "/v1/users/alice/channels", nil),
        (.post, "/v1/channels/read", #"{"all":true}"#),
        (.post, "/v1/channels/messaging:c1/read?totals=true", nil),
      ] as [(HTTP2Method, String, String?)] {
        let old = TestTokens.make(#"{"user_id":"alice","iat":1699999999}"#)
        let new = TestTokens.make(#"{"user_id":"alice","iat":1700000000}"#)
        #expect(
          try await gateway.client.request(method, path, body, token: old).verdict == "401 token_revoked"
        )
        _ = try await gateway.store.takeIssueTimes()
        #expect(try await gateway.client.request(method, path, body, token: new).status == 200)
        let issued = try await gateway.store.takeIssueTimes()
        #expect(!issued.isEmpty && issued.allSatisfy { $0 == 1_700_000_000 }, "\(path)")
      }
    }
  }

  @Test func closedConnectionCancelsItsJob() async throws {
    try await TestGateway.run { gateway in
      try await setUp(gateway, 600)
      try await gateway.store.setListMax(300)
      let other = try await TestClient.connect(port: gateway.port, on: gateway.eventLoop)
      try await gateway.store.set(.ignoringKind(.markRead))
      let response = try await other.submit(.post, "/v1/channels/read", #"{"all":true}"#, token: alice)
      let jobs = { try await gateway.eventLoop.submit { gateway.loop.value.userScans.count }.get() }
      let waiting = { try await gateway.eventLoop.submit { gateway.loop.value.pendingCount }.get() }
      // The number of marks in flight is limited.
      try await eventually("as many marks are pending as may be in flight") {
        try await waiting() >= UserChannelScan.marksMax
      }
      #expect(try await jobs() == 1)
      // No mark is in flight when the log is read below.
      var marks = 0
      try await eventually("the store has every mark") {
        marks += try await gateway.store.takeLog().count { $0 == .markRead }
        return marks >= UserChannelScan.marksMax
      }
      try await other.close()
      await #expect(throws: TestStreamFailed.self) { try await response.value("the answer") }
      try await eventually("the closed connection is removed") {
        try await gateway.eventLoop.submit({ gateway.loop.value.connections.count }).get() <= 1
      }
      try await gateway.store.set(.normal)
      _ = try await gateway.store.takeLog()
      // Requests in flight are answered or cancelled, and no further one is sent.
      try await eventually("the job has ended") { try await jobs() <= 0 }
      #expect(try await gateway.store.takeLog().count { $0 == .markRead } == 0)
      #expect(try await waiting() == 0)
    }
  }

  @Test func storeDisconnectIsAnswered() async throws {
    try await TestGateway.run(deadline: .seconds(3)) { gateway in
      try await setUp(gateway, 3)
      for kind in [FrameKind.listChannels, .unreadCounts, .readState, .markRead] {
        try await gateway.store.set(.closing(kind))
        let path = kind == .markRead ? "/v1/channels/read" : "/v1/users/alice/unread"
        let response = try await gateway.client.submit(
          kind == .markRead ? .post : .get,
          path,
          kind == .markRead ? #"{"all":true}"# : nil,
          token: alice
        )
        let verdict = try await response.value("the answer").verdict
        // A mark with an unknown outcome is named as failed.
        #expect(verdict == (kind == .markRead ? "200" : "503 store_unavailable"), "\(kind)")
        try await gateway.store.set(.normal)
        try await eventually("the gateway has its store again after \(kind)") {
          try await gateway.client.get("/v1/users/alice/unread").status == 200
        }
      }
    }
  }

  @Test func concurrentJobsAreLimited() async throws {
    var limits = GatewayLimits()
    limits.userJobs = 3
    try await TestGateway.run(limits: limits, deadline: .seconds(10)) { gateway in
      try await setUp(gateway, 3)
      try await gateway.store.set(.ignoringKind(.listChannels))
      var waiting: [EventLoopFuture<TestResponse>] = []
      for _ in 0..<3 {
        waiting.append(
          try await gateway.client.submit(.get, "/v1/users/alice/unread", nil, token: alice)
        )
      }
      try await eventually("three jobs are running") {
        try await gateway.eventLoop.submit({ gateway.loop.value.userScans.count }).get() >= 3
      }
      for (method, path, body) in [
        (HTTP2Method.get, "/v1/users/alice/unread", nil), (.post, "/v1/channels/read", #"{"all":true}"#),
        (.post, "/v1/unread", #"{"user_ids":["alice"]}"#),
        (.post, "/v1/channels/messaging:c1/read?totals=true&user_id=alice", nil),
      ] as [(HTTP2Method, String, String?)] {
        let token = path == "/v1/channels/read" ? alice : TestTokens.server
        let response = try await gateway.client.request(method, path, body, token: token)
        #expect(response.verdict == "503 store_busy" && response.headers["retry-after"] == "1", "\(path)")
      }
      // A mark without totals needs no job.
      let mark = try await gateway.client.post("/v1/channels/messaging:c1/read", nil, token: alice)
      #expect(mark.status == 200)
      for response in waiting {
        #expect(try await response.value("the answer").verdict == "503 store_unavailable")
      }
      try await gateway.store.set(.normal)
      #expect(try await gateway.client.get("/v1/users/alice/unread", token: alice).status == 200)
    }
  }
}
