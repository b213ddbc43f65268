import Foundation
import HTTP2Session
import NIOCore
import ReceiptModel
import ReceiptWire
import TestSupport
import Testing

@testable import Gateway

/// `GET /v1/events` as a client sees it. The tests publish events through ``FakeStore``.
@Suite struct EventRouteTests {
  static let general = "messaging:general"
  static let other = "messaging:other"
  let alice = TestTokens.user("alice")
  let bob = TestTokens.user("bob")
  let carol = TestTokens.user("carol")

  static func read(
    _ user: String,
    _ sequence: UInt32,
    own: RowEventFields.Own = .read,
    shown: RowEventFields.Shown = .read,
    at time: Int64 = 2_000
  ) -> EventFields {
    var row = RowEventRow(
      user: user,
      lastRead: Timestamp(milliseconds: time),
      lastReadMessage: "m\(sequence)",
      lastReadSequence: SequenceNumber(sequence),
      lastDelivered: .none,
      lastDeliveredMessage: "",
      lastDeliveredSequence: .zero,
      own: RowEventRow.OwnDetails(unreadMessages: 7, firstUnreadMessage: "", unreadEpoch: 0)
    )
    let mine = row
    row.own = nil
    return .row(
      RowEventFields(
        thread: "",
        own: own,
        shown: shown,
        at: Timestamp(milliseconds: time),
        ownRow: mine,
        shownRow: shown.isEmpty ? nil : row
      )
    )
  }

  static func message(_ id: String, _ sequence: UInt32 = 1) -> EventFields {
    .messageNew(
      MessageEventFields(
        thread: "",
        sequence: SequenceNumber(sequence),
        message: id,
        sender: "alice",
        registered: Timestamp(milliseconds: 2_000),
        created: Timestamp(milliseconds: 2_000),
        flags: [.read, .delivered, .readShown, .deliveredShown]
      )
    )
  }

  /// The id in a `message.new` event.
  static func id(_ event: NSDictionary) -> String? {
    (event["message"] as? NSDictionary)?["id"] as? String
  }

  private static func status(_ to: UInt32) -> EventFields {
    .status(
      StatusEventFields(
        thread: "",
        sender: "alice",
        from: SequenceNumber(1),
        to: SequenceNumber(to),
        lastMessage: "m\(to)",
        status: .read,
        at: Timestamp(milliseconds: 2_000)
      )
    )
  }

  private static func removed(_ user: String) -> EventFields {
    .memberRemoved(user: user, at: Timestamp(milliseconds: 2_000), memberCount: 1)
  }

  /// A channel with alice and bob, and another one with carol.
  func run(
    limits: GatewayLimits = GatewayLimits(),
    http2: HTTP2Limits = HTTP2Limits(),
    deadline: TimeAmount = .seconds(5),
    _ body: (TestGateway) async throws -> Void
  ) async throws {
    var limits = limits
    limits.events.membershipMargin = 2_000
    try await TestGateway.run(limits: limits, http2: http2, deadline: deadline) { gateway in
      try await gateway.setUp(Self.general, members: ["alice", "bob"], messages: ["m1", "m2"])
      try await gateway.setUp(Self.other, members: ["carol"])
      try await body(gateway)
    }
  }

  func refusal(
    _ client: TestClient,
    _ query: String,
    token: String?,
    headers: [(name: String, value: String)] = []
  )
    async throws -> String
  {
    let response = try await client.request(.get, "/v1/events\(query)", nil, token: token, headers: headers)
    return response.verdict
  }

  // MARK: Delivery and resuming

  @Test func markReachesPermittedViewersOnly() async throws {
    try await run { gateway in
      let client = gateway.client
      let (a, b, c) = (
        try await client.events(token: alice), try await client.events(token: bob),
        try await client.events(token: carol)
      )
      let server = try await client.events("?channels=\(Self.general)", token: TestTokens.server)
      let asBob = try await client.events("?user_id=bob", token: TestTokens.server)
      for stream in [a, b, c, server, asBob] {
        #expect(await stream.live())
        #expect(stream.status == 200)
      }
      try await gateway.store.publish(Self.general, Self.read("bob", 2), Self.status(2), Self.message("end"))
      #expect(await a.types(3) == ["message.read bob", "message.status alice", "message.new alice"])
      #expect(await b.types(3) == ["message.read bob", "notification.mark_read bob", "message.new alice"])
      #expect(await server.types(3) == ["message.read bob", "message.status alice", "message.new alice"])
      #expect(
        await asBob.types(3) == ["message.read bob", "notification.mark_read bob", "message.new alice"]
      )
      // R7: a hidden read reaches only the user's own devices. R10: a servers-only read reaches servers.
      try await gateway.store.publish(
        Self.general,
        Self.read("bob", 3, shown: []),
        Self.read("bob", 4, own: [], shown: [.read, .serversOnly]),
        Self.message("end 2")
      )
      #expect(await a.types(1) == ["message.new alice"])
      #expect(await b.types(2) == ["notification.mark_read bob", "message.new alice"])
      #expect(await server.types(2) == ["message.read bob", "message.new alice"])
      // Only carol is in the other channel.
      try await gateway.store.publish(Self.other, Self.message("theirs"))
      let event = try #require(await c.event())
      #expect(event["cid"] as? String == Self.other && Self.id(event) == "theirs")
    }
  }

  @Test func eventIDIsTimeOfSlowestShard() async throws {
    try await run { gateway in
      let stream = try await gateway.client.events(token: alice)
      #expect(await stream.live())
      #expect(stream.lastID == "00000000000000010000000000000002-1000")
      // Another event of the frame may have the same time, so the id is the time before the frame.
      try await gateway.store.publish(Self.general, Self.message("m3"), through: 3_000)
      #expect(await stream.types(1) == ["message.new alice"])
      #expect(stream.lastID == "00000000000000010000000000000002-1000")
      try await gateway.store.advance(through: 4_000)
      try await gateway.store.publish(Self.general, Self.message("m4"))
      #expect(await stream.types(1) == ["message.new alice"])
      #expect(stream.lastID == "00000000000000010000000000000002-4000")
    }
  }

  @Test func streamResumesFromLastEventID() async throws {
    try await run { gateway in
      let now = Int64(Date().timeIntervalSince1970 * 1_000)
      let id = "00000000000000010000000000000002-\(now - 5_000)"
      let changes = [Self.message("m1"), Self.read("bob", 1)]
      _ = try await gateway.store.withModel { model in
        model.events.changes = [
          Self.general: changes, "messaging:left": [Self.message("theirs"), Self.removed("alice")],
        ]
        model.events.left = ["alice": ["messaging:left"]]
      }
      // The header wins over the query.
      let stream = try await gateway.client.events(
        "?since=00000000000000010000000000000002-1",
        token: alice,
        headers: [(name: "last-event-id", value: id)]
      )
      var received = await stream.types(3)
      received.sort()
      // The channel that alice left delivers only her removal.
      #expect(received == ["member.removed alice", "message.new alice", "message.read bob"])
      #expect(stream.lastID == nil)
      #expect(await stream.live())
      let resumed = try await gateway.store.withModel { $0.events.resumed.sorted() }
      #expect(resumed == ["\(Self.general) \(now - 5_000)", "messaging:left \(now - 7_000)"])
    }
  }

  @Test func resumeReportsDeletedChannels() async throws {
    try await run { gateway in
      let now = Int64(Date().timeIntervalSince1970 * 1_000)
      let added = EventFields.memberAdded(
        MemberEventFields(
          user: "alice",
          role: "",
          at: Timestamp(milliseconds: now - 3_000),
          memberCount: 2,
          readSequence: .zero,
          readMessage: ""
        )
      )
      _ = try await gateway.store.withModel { model in
        model.events.deleted = [
          "alice": [
            ("messaging:early", now - 9_000), ("messaging:gone", now - 4_000), (Self.general, now - 3_000),
          ]
        ]
        // The channel was deleted and created again under the same name.
        let deleted = EventFields.channelDeleted(at: Timestamp(milliseconds: now - 3_000))
        model.events.changes = [Self.general: [deleted, added, Self.message("n1")]]
      }
      let id = "00000000000000010000000000000002-\(now - 5_000)"
      let stream = try await gateway.client.events("?since=\(id)", token: alice)
      var received: [String] = []
      for _ in 0..<4 {
        let event = try #require(await stream.event())
        received.append("\(event["type"] as? String ?? "") \(event["cid"] as? String ?? "")")
      }
      #expect(
        received == [
          "channel.deleted \(Self.general)", "channel.deleted messaging:gone", "member.added \(Self.general)",
          "message.new \(Self.general)",
        ]
      )
      #expect(await stream.live())
      #expect(
        try await gateway.store.withModel { $0.events.resumed } == ["\(Self.general) \(now - 3_000)"]
      )
      // Live events after the replay.
      try await gateway.store.publish(Self.general, Self.message("n2"))
      #expect(await stream.types(1) == ["message.new alice"])
      // Some tombstones since the id are no longer kept.
      _ = try await gateway.store.withModel { $0.events.keepsDeletedSince = now - 6_999 }
      let other = try await gateway.client.events("?since=\(id)", token: alice)
      #expect(await other.types(1) == ["stream.reset"])
      #expect(await other.live())
    }
  }

  @Test func unresumableIDResetsStream() async throws {
    try await run { gateway in
      for id in ["00000000000000010000000000000003-1767225600000", "00000000000000010000000000000002-1000"] {
        let stream = try await gateway.client.events("?since=\(id)", token: alice)
        #expect(await stream.types(1) == ["stream.reset"])
        #expect(stream.status == 200)
        #expect(await stream.live())
      }
      #expect(try await gateway.store.withModel { $0.events.resumed } == [])
      // The replay exceeds the store's limit.
      _ = try await gateway.store.withModel { $0.events.replayIsIncomplete = true }
      let now = Int64(Date().timeIntervalSince1970 * 1_000)
      let stream = try await gateway.client.events(
        "?since=00000000000000010000000000000002-\(now)",
        token: alice
      )
      #expect(await stream.types(1) == ["stream.reset"])
      #expect(await stream.live())
    }
  }

  @Test func streamFollowsMembershipChanges() async throws {
    try await run { gateway in
      let store = gateway.store
      let stream = try await gateway.client.events(token: alice)
      #expect(await stream.live())
      _ = try await store.withModel {
        $0.events.changes = [
          Self.other: [
            .memberAdded(
              MemberEventFields(
                user: "alice",
                role: "",
                at: Timestamp(milliseconds: 2_000),
                memberCount: 2,
                readSequence: .zero,
                readMessage: ""
              )
            )
          ]
        ]
      }
      let entry = ChannelEntryFields(
        cid: Self.other,
        row: 1,
        isMember: true,
        joinedAt: Timestamp(milliseconds: 2_000)
      )
      try await store.publish(
        user: "alice",
        .membership(entry, at: Timestamp(milliseconds: 2_000), isGone: false)
      )
      #expect(await stream.types(1) == ["member.added alice"])
      #expect(try await store.withModel { $0.events.resumed } == ["\(Self.other) 2000"])
      try await store.publish(Self.other, Self.message("m1"), Self.removed("alice"), Self.message("secret"))
      try await store.publish(Self.general, Self.message("m2"))
      #expect(await stream.types(2) == ["message.new alice", "member.removed alice"])
      let next = try #require(await stream.event())
      #expect(Self.id(next) == "m2")
      // The deletion is the channel's last event.
      try await store.publish(
        Self.general,
        .channelDeleted(at: Timestamp(milliseconds: 3_000)),
        Self.message("late")
      )
      try await store.publish(Self.other, Self.message("secret"))
      #expect(await stream.types(1) == ["channel.deleted"])
      try await store.publish(user: "alice", .tokensRevoked(before: Timestamp(milliseconds: 1_000)))
      // Any revocation covers a token without an issue time.
      #expect(await stream.event() == nil)
    }
  }

  @Test func streamIsLimitedToNamedChannels() async throws {
    try await run { gateway in
      let client = gateway.client
      try await gateway.setUp("messaging:third", members: ["alice"])
      let stream = try await client.events("?channels=\(Self.general)", token: alice)
      #expect(await stream.live())
      #expect(try await gateway.store.withModel { $0.events.channels.sorted() } == [Self.general])
      let entry = ChannelEntryFields(
        cid: Self.other,
        row: 1,
        isMember: true,
        joinedAt: Timestamp(milliseconds: 2_000)
      )
      try await gateway.store.publish(user: "alice", .membership(entry, at: .none, isGone: false))
      try await gateway.store.publish(Self.general, Self.message("m2"))
      #expect(await stream.types(1) == ["message.new alice"])
      #expect(try await gateway.store.withModel { $0.events.channels.sorted() } == [Self.general])
      // A server may subscribe to a channel that does not exist yet.
      let server = try await client.events(
        "?channels=messaging:none,\(Self.general)",
        token: TestTokens.server
      )
      #expect(await server.live())
    }
  }

  @Test func invalidEventRequestsAreRefused() async throws {
    try await run { gateway in
      let client = gateway.client
      let table: [(String, String?, String)] = [
        ("", nil, "401 token_missing"), ("?access_token=", nil, "401 token_missing"),
        ("?access_token=nonsense", nil, "401 token_malformed"),
        ("", TestTokens.make(#"{"user_id":"alice","exp":1}"#), "401 token_expired"),
        ("?channels=\(Self.other)", alice, "404 channel_not_found"),
        ("?channels=\(Self.general),\(Self.other)", alice, "404 channel_not_found"),
        ("?channels=messaging:none", alice, "404 channel_not_found"),
        ("?user_id=alice&channels=\(Self.other)", TestTokens.server, "404 member_not_found"),
        ("?user_id=bob", alice, "403 user_id_mismatch"), ("", TestTokens.server, "400 user_id_required"),
        ("?user_id=a%7Fb", TestTokens.server, "400 invalid_user_id"),
        ("?channels=\(Self.general)&totals=true", TestTokens.server, "400 user_id_required"),
        ("?channels=general", alice, "400 invalid_cid"),
        ("?channels=\(Self.general),", alice, "400 invalid_cid"),
        ("?since=5", alice, "400 invalid_field"), ("?since=x-5", alice, "400 invalid_field"),
        ("?totals=yes", alice, "400 invalid_query"),
        ("?channels=", alice, "400 invalid_query"),
        ("?channels=\(Self.general)&channels=", alice, "400 invalid_query"),
        ("?channels=\(Self.general)&channels=\(Self.other)", alice, "404 channel_not_found"),
        // An escaped comma does not separate ids: it is part of one id, whose channel does not exist.
        ("?channels=\(Self.general)%2C\(Self.general)", alice, "404 channel_not_found"),
        ("?channel=\(Self.general)", alice, "400 unknown_field"),
      ]
      for (query, token, expected) in table {
        #expect(try await refusal(client, query, token: token) == expected, "\(query)")
      }
      let header = [(name: "last-event-id", value: "nonsense")]
      #expect(try await refusal(client, "", token: alice, headers: header) == "400 invalid_field")
      #expect(try await client.post("/v1/events", nil, token: alice).headers["allow"] == "GET, HEAD")
      let head = try await client.request(.head, "/v1/events", nil, token: alice)
      #expect(head.status == 200 && head.contentType == "text/event-stream" && head.body.isEmpty)
      #expect(try await gateway.eventLoop.submit { gateway.loop.value.events.hub.streamCount }.get() == 0)
      // Only this route accepts a token in the query.
      #expect(
        try await client.get("/v1/users/alice?access_token=\(alice)", token: nil).verdict
          == "401 token_missing"
      )
      let stream = try await client.events("?access_token=\(alice)", token: nil)
      #expect(await stream.live())
    }
  }

  @Test func storeRefusalIsAnswered() async throws {
    try await run { gateway in
      try await gateway.store.set(.refusingKind(.subscribe, .limitReached))
      #expect(try await refusal(gateway.client, "", token: alice) == "409 limit_reached")
      try await gateway.store.set(.refusingKind(.subscribeUser, .busy))
      #expect(try await refusal(gateway.client, "", token: carol) == "503 store_busy")
      try await gateway.store.set(.refusingKind(.listChannels, .tokenRevoked))
      #expect(try await refusal(gateway.client, "", token: alice) == "401 token_revoked")
      try await gateway.store.set(.garbled)
      #expect(try await refusal(gateway.client, "", token: carol) == "500 internal_error")
      try await gateway.store.set(.normal)
      let stream = try await gateway.client.events(token: alice)
      #expect(await stream.live())
    }
  }
}
