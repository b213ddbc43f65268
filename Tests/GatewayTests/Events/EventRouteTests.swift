import Foundation
import HTTP2Session
import NIOCore
import ReceiptModel
import ReceiptWire
import StoreTestSupport
import TestSupport
import Testing

@testable import Gateway

/// `GET /v1/events` from a client's view. Tests of the gateway's filters publish events as the store would.
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

  /// A channel with alice and bob, and another one with carol.
  func run(
    limits: GatewayLimits = GatewayLimits(),
    http2: HTTP2Limits = HTTP2Limits(),
    deadline: TimeAmount = .seconds(5),
    _ body: (TestGateway) async throws -> Void
  ) async throws {
    var limits = limits
    limits.events.membershipMargin = 2_000
    // The store's time reaches the wall clock's in tests of resuming.
    let start = Timestamp(milliseconds: (Int64(Date().timeIntervalSince1970) - 10) * 1_000)
    try await TestGateway.run(limits: limits, http2: http2, deadline: deadline, storeTime: start) { gateway in
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
      let start = gateway.store.startTime.milliseconds
      let stream = try await gateway.client.events(token: alice)
      #expect(await stream.live())
      #expect(stream.lastID == Self.id(start))
      // Another event of the frame may have the same time, so the id is the time before the frame.
      try await gateway.store.publish(Self.general, Self.message("m3"), through: start + 2_000)
      #expect(await stream.types(1) == ["message.new alice"])
      #expect(stream.lastID == Self.id(start))
      try await gateway.store.advance(milliseconds: 3_000)
      try await gateway.store.publish(Self.general, Self.message("m4"))
      #expect(await stream.types(1) == ["message.new alice"])
      #expect(stream.lastID == Self.id(start + 3_000))
    }
  }

  /// The id of an event at a time of the store.
  private static func id(_ time: Int64) -> String { "00000000000000010000000000000002-\(time)" }

  @Test func streamResumesFromLastEventID() async throws {
    try await run { gateway in
      let client = gateway.client
      try await gateway.setUp("messaging:left", members: ["alice", "dave"])
      try await gateway.store.advance(milliseconds: 10_000)
      let since = gateway.store.startTime.milliseconds + 5_000
      _ = try await client.post("/v1/channels/\(Self.general)/messages", #"{"id":"m3"}"#)
      _ = try await client.post("/v1/channels/\(Self.general)/read?message_id=m1", nil, token: bob)
      _ = try await client.post("/v1/channels/messaging:left/members", #"{"remove":["alice"]}"#)
      _ = try await client.post("/v1/channels/messaging:left/messages", #"{"id":"theirs"}"#)
      _ = try await gateway.store.takeLog()
      // The header wins over the query.
      let stream = try await client.events(
        "?since=\(Self.id(1))",
        token: alice,
        headers: [(name: "last-event-id", value: Self.id(since))]
      )
      var received = await stream.types(4)
      received.sort()
      // The channel that alice left delivers only her removal.
      #expect(received == ["member.removed alice", "message.new", "message.read bob", "message.status alice"])
      #expect(stream.lastID == nil)
      #expect(await stream.live())
      let resumed = try await gateway.store.takeRequests().resumedChannels
      #expect(resumed == ["\(Self.general) \(since)", "messaging:left \(since - 2_000)"])
    }
  }

  @Test func resumeReportsDeletedChannels() async throws {
    try await run { gateway in
      let (client, store) = (gateway.client, gateway.store)
      for cid in ["messaging:early", "messaging:gone"] { try await gateway.setUp(cid, members: ["alice"]) }
      try await store.advance(milliseconds: 1_000)
      _ = try await client.delete("/v1/channels/messaging:early")
      try await store.advance(milliseconds: 5_000)
      _ = try await client.delete("/v1/channels/messaging:gone")
      try await store.advance(milliseconds: 1_000)
      // The channel is deleted and created again under the same name.
      _ = try await client.delete("/v1/channels/\(Self.general)")
      try await gateway.setUp(Self.general, members: ["alice"])
      _ = try await client.post("/v1/channels/\(Self.general)/messages", #"{"id":"n1"}"#)
      let start = store.startTime.milliseconds
      _ = try await store.takeLog()
      let stream = try await client.events("?since=\(Self.id(start + 5_000))", token: alice)
      var received: [String] = []
      for _ in 0..<5 {
        let event = try #require(await stream.event())
        received.append("\(event["type"] as? String ?? "") \(event["cid"] as? String ?? "")")
      }
      #expect(
        received == [
          "channel.deleted \(Self.general)", "channel.deleted messaging:gone", "channel.updated \(Self.general)",
          "message.new \(Self.general)", "member.added \(Self.general)",
        ]
      )
      #expect(await stream.live())
      #expect(try await store.takeRequests().resumedChannels == ["\(Self.general) \(start + 7_000)"])
      // Live events after the replay.
      _ = try await client.post("/v1/channels/\(Self.general)/messages", #"{"id":"n2"}"#)
      #expect(await stream.types(1) == ["message.new"])
      // Some tombstones since the id are no longer kept.
      try await store.script(.listChannels) { request in
        var reader = FieldReader(request.payload.readableBytesSpan)
        _ = try reader.text()
        let asksForDeleted = try ListChannelsRequest(&reader).flags & ListChannelsRequest.withDeleted != 0
        return asksForDeleted ? .refusal(.limitReached) : .engine
      }
      let other = try await client.events("?since=\(Self.id(start + 5_000))", token: alice)
      #expect(await other.types(1) == ["stream.reset"])
      #expect(await other.live())
    }
  }

  @Test func unresumableIDResetsStream() async throws {
    try await run { gateway in
      _ = try await gateway.store.takeLog()
      for id in ["00000000000000010000000000000003-1767225600000", Self.id(1_000)] {
        let stream = try await gateway.client.events("?since=\(id)", token: alice)
        #expect(await stream.types(1) == ["stream.reset"])
        #expect(stream.status == 200)
        #expect(await stream.live())
      }
      #expect(try await gateway.store.takeRequests().resumedChannels == [])
      // The replay exceeds the store's limit.
      let start = gateway.store.startTime
      try await gateway.store.script(.subscribe) { _ in
        var reply = ByteBuffer()
        SubscribedFields(through: start, isComplete: false).write(into: &reply)
        return .reply(reply)
      }
      let stream = try await gateway.client.events("?since=\(Self.id(start.milliseconds))", token: alice)
      #expect(await stream.types(1) == ["stream.reset"])
      #expect(await stream.live())
    }
  }

  @Test func streamFollowsMembershipChanges() async throws {
    try await run { gateway in
      let (client, store) = (gateway.client, gateway.store)
      let stream = try await client.events(token: alice)
      #expect(await stream.live())
      _ = try await store.takeLog()
      try await store.advance(milliseconds: 1)
      let members = "/v1/channels/\(Self.other)/members"
      _ = try await client.post(members, #"{"add":["alice"]}"#)
      #expect(await stream.types(1) == ["member.added alice"])
      let joined = store.startTime.milliseconds + 1
      #expect(try await store.takeRequests().resumedChannels == ["\(Self.other) \(joined)"])
      _ = try await client.post("/v1/channels/\(Self.other)/messages", #"{"id":"m1"}"#)
      _ = try await client.post(members, #"{"remove":["alice"]}"#)
      _ = try await client.post("/v1/channels/\(Self.other)/messages", #"{"id":"secret"}"#)
      _ = try await client.post("/v1/channels/\(Self.general)/messages", #"{"id":"m3"}"#)
      #expect(await stream.types(2) == ["message.new", "member.removed alice"])
      let next = try #require(await stream.event())
      #expect(Self.id(next) == "m3")
      // The deletion is the channel's last event.
      _ = try await client.delete("/v1/channels/\(Self.general)")
      try await store.publish(Self.general, Self.message("late"))
      _ = try await client.post("/v1/channels/\(Self.other)/messages", #"{"id":"another"}"#)
      #expect(await stream.types(1) == ["channel.deleted"])
      let revoke = #"{"revoke_tokens_before":"1970-01-01T00:00:01Z"}"#
      #expect(try await client.put("/v1/users/alice", revoke).status == 200)
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
      #expect(try await gateway.store.watchedChannels() == [Self.general])
      _ = try await client.post("/v1/channels/\(Self.other)/members", #"{"add":["alice"]}"#)
      _ = try await client.post("/v1/channels/\(Self.general)/messages", #"{"id":"m3"}"#)
      #expect(await stream.types(1) == ["message.new"])
      #expect(try await gateway.store.watchedChannels() == [Self.general])
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

@Suite struct EventCursorTests {
  private let store = SessionID(high: 0x0123_4567_89AB_CDEF, low: 2)
  private let text = "0123456789abcdef0000000000000002-1767225600000"

  private func read(_ text: String) -> EventCursor? {
    let bytes = Array(text.utf8)
    return EventCursor(bytes.span.bytes)
  }

  @Test func cursorRoundTrips() {
    let cursor = EventCursor(store: store, time: Timestamp(milliseconds: 1_767_225_600_000))
    var buffer = ByteBuffer()
    cursor.write(into: &buffer)
    #expect(String(buffer: buffer) == text)
    #expect(read(text) == cursor)
    #expect(read("0123456789abcdef0000000000000002-0")?.time == Timestamp.none)
  }

  @Test(arguments: [
    "", "-", "1767225600000", "0123456789abcdef0000000000000002", "0123456789abcdef0000000000000002-",
    "0123456789abcdef0000000000000002-x", "0123456789abcdef0000000000000002--1",
    "0123456789ABCDEF0000000000000002-1", "0123456789abcdef000000000000000-21",
    "0123456789abcdef0000000000000002-1 ", "0123456789abcdef0000000000000002-1234567890123456",
  ])
  func invalidCursorIsRefused(text: String) {
    #expect(read(text) == nil)
  }

  @Test func cursorDeterminesStart() {
    let now: Int64 = 1_767_225_600_000
    let day: Int64 = 24 * 3_600_000
    let other = SessionID(high: 1, low: 2)
    let table: [(Int64, SessionID, EventCursor.Start)] = [
      (now, store, .since(Timestamp(milliseconds: now))),
      (now - 7 * day, store, .since(Timestamp(milliseconds: now - 7 * day))),
      (now - 7 * day - 1, store, .reset),
      (now, other, .reset),
    ]
    for (time, currentStore, start) in table {
      let cursor = EventCursor(store: store, time: Timestamp(milliseconds: time))
      #expect(cursor.start(store: currentStore, now: now) == start)
    }
  }
}
