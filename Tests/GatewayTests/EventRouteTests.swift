import Foundation
import HTTP2Session
import NIOCore
import ReceiptModel
import ReceiptWire
import TestSupport
import Testing

@testable import Gateway

/// `GET /v1/events` as a client sees it, with a store that tells what a test has it tell.
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

  /// Of a new message.
  private static func id(_ event: NSDictionary) -> String? {
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

  private func refusal(
    _ client: TestClient,
    _ query: String,
    token: String?,
    headers: [(name: String, value: String)] = []
  )
    async throws -> String
  {
    let answer = try await client.request(.get, "/v1/events\(query)", nil, token: token, headers: headers)
    return answer.verdict
  }

  // MARK: Stories

  @Test func aMarkIsToldToEachWhoMayKnow() async throws {
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
      try await gateway.store.tell(Self.general, Self.read("bob", 2), Self.status(2), Self.message("end"))
      #expect(await a.types(3) == ["message.read bob", "message.status alice", "message.new alice"])
      #expect(await b.types(3) == ["message.read bob", "notification.mark_read bob", "message.new alice"])
      #expect(await server.types(3) == ["message.read bob", "message.status alice", "message.new alice"])
      #expect(
        await asBob.types(3) == ["message.read bob", "notification.mark_read bob", "message.new alice"]
      )
      // Hidden (R7): to the own devices alone. Without acknowledgement to others (R10): to servers.
      try await gateway.store.tell(
        Self.general,
        Self.read("bob", 3, shown: []),
        Self.read("bob", 4, own: [], shown: [.read, .serversOnly]),
        Self.message("end 2")
      )
      #expect(await a.types(1) == ["message.new alice"])
      #expect(await b.types(2) == ["notification.mark_read bob", "message.new alice"])
      #expect(await server.types(2) == ["message.read bob", "message.new alice"])
      // Nobody else's channel.
      try await gateway.store.tell(Self.other, Self.message("theirs"))
      let event = try #require(await c.event())
      #expect(event["cid"] as? String == Self.other && Self.id(event) == "theirs")
    }
  }

  @Test func eventsCarryWhatAllWasToldUpTo() async throws {
    try await run { gateway in
      let stream = try await gateway.client.events(token: alice)
      #expect(await stream.live())
      #expect(stream.lastID == "00000000000000010000000000000002-1000")
      // Another event of the frame may be of that time, too: the id is what was told before it.
      try await gateway.store.tell(Self.general, Self.message("m3"), through: 3_000)
      #expect(await stream.types(1) == ["message.new alice"])
      #expect(stream.lastID == "00000000000000010000000000000002-1000")
      try await gateway.store.pass(4_000)
      try await gateway.store.tell(Self.general, Self.message("m4"))
      #expect(await stream.types(1) == ["message.new alice"])
      #expect(stream.lastID == "00000000000000010000000000000002-4000")
    }
  }

  @Test func aStreamGoesOnWhereItWas() async throws {
    try await run { gateway in
      let now = Int64(Date().timeIntervalSince1970 * 1_000)
      let id = "00000000000000010000000000000002-\(now - 5_000)"
      let changes = [Self.message("m1"), Self.read("bob", 1)]
      _ = try await gateway.store.ask { model in
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
      var told = await stream.types(3)
      told.sort()
      // Of the channel that was left only that it was.
      #expect(told == ["member.removed alice", "message.new alice", "message.read bob"])
      #expect(stream.lastID == nil)
      #expect(await stream.live())
      let resumed = try await gateway.store.ask { $0.events.resumed.sorted() }
      #expect(resumed == ["\(Self.general) \(now - 5_000)", "messaging:left \(now - 7_000)"])
    }
  }

  @Test func whatWasDeletedMeanwhileIsTold() async throws {
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
      _ = try await gateway.store.ask { model in
        model.events.deleted = [
          "alice": [
            ("messaging:early", now - 9_000), ("messaging:gone", now - 4_000), (Self.general, now - 3_000),
          ]
        ]
        // Of the same name, and made anew.
        let deleted = EventFields.channelDeleted(at: Timestamp(milliseconds: now - 3_000))
        model.events.changes = [Self.general: [deleted, added, Self.message("n1")]]
      }
      let id = "00000000000000010000000000000002-\(now - 5_000)"
      let stream = try await gateway.client.events("?since=\(id)", token: alice)
      var told: [String] = []
      for _ in 0..<4 {
        let event = try #require(await stream.event())
        told.append("\(event["type"] as? String ?? "") \(event["cid"] as? String ?? "")")
      }
      #expect(
        told == [
          "channel.deleted \(Self.general)", "channel.deleted messaging:gone", "member.added \(Self.general)",
          "message.new \(Self.general)",
        ]
      )
      #expect(await stream.live())
      #expect(
        try await gateway.store.ask { $0.events.resumed } == ["\(Self.general) \(now - 3_000)"]
      )
      // What happens from here on.
      try await gateway.store.tell(Self.general, Self.message("n2"))
      #expect(await stream.types(1) == ["message.new alice"])
      // More was deleted than is kept.
      _ = try await gateway.store.ask { $0.events.keepsDeletedSince = now - 6_999 }
      let other = try await gateway.client.events("?since=\(id)", token: alice)
      #expect(await other.types(1) == ["stream.reset"])
      #expect(await other.live())
    }
  }

  @Test func whoCannotGoOnAsksAnew() async throws {
    try await run { gateway in
      for id in ["00000000000000010000000000000003-1767225600000", "00000000000000010000000000000002-1000"] {
        let stream = try await gateway.client.events("?since=\(id)", token: alice)
        #expect(await stream.types(1) == ["stream.reset"])
        #expect(stream.status == 200)
        #expect(await stream.live())
      }
      #expect(try await gateway.store.ask { $0.events.resumed } == [])
      // Too much has happened.
      _ = try await gateway.store.ask { $0.events.isTooMuch = true }
      let now = Int64(Date().timeIntervalSince1970 * 1_000)
      let stream = try await gateway.client.events(
        "?since=00000000000000010000000000000002-\(now)",
        token: alice
      )
      #expect(await stream.types(1) == ["stream.reset"])
      #expect(await stream.live())
    }
  }

  @Test func membershipsAreFollowed() async throws {
    try await run { gateway in
      let store = gateway.store
      let stream = try await gateway.client.events(token: alice)
      #expect(await stream.live())
      _ = try await store.ask {
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
      try await store.tell(
        user: "alice",
        .membership(entry, at: Timestamp(milliseconds: 2_000), isGone: false)
      )
      #expect(await stream.types(1) == ["member.added alice"])
      #expect(try await store.ask { $0.events.resumed } == ["\(Self.other) 2000"])
      try await store.tell(Self.other, Self.message("m1"), Self.removed("alice"), Self.message("secret"))
      try await store.tell(Self.general, Self.message("m2"))
      #expect(await stream.types(2) == ["message.new alice", "member.removed alice"])
      let next = try #require(await stream.event())
      #expect(Self.id(next) == "m2")
      // A channel that is deleted is told of last.
      try await store.tell(
        Self.general,
        .channelDeleted(at: Timestamp(milliseconds: 3_000)),
        Self.message("late")
      )
      try await store.tell(Self.other, Self.message("secret"))
      #expect(await stream.types(1) == ["channel.deleted"])
      try await store.tell(user: "alice", .tokensRevoked(before: Timestamp(milliseconds: 1_000)))
      // A token that does not say when it was issued falls to any revocation.
      #expect(await stream.event() == nil)
    }
  }

  @Test func onlyNamedChannels() async throws {
    try await run { gateway in
      let client = gateway.client
      try await gateway.setUp("messaging:third", members: ["alice"])
      let stream = try await client.events("?channels=\(Self.general)", token: alice)
      #expect(await stream.live())
      #expect(try await gateway.store.ask { $0.events.channels.sorted() } == [Self.general])
      let entry = ChannelEntryFields(
        cid: Self.other,
        row: 1,
        isMember: true,
        joinedAt: Timestamp(milliseconds: 2_000)
      )
      try await gateway.store.tell(user: "alice", .membership(entry, at: .none, isGone: false))
      try await gateway.store.tell(Self.general, Self.message("m2"))
      #expect(await stream.types(1) == ["message.new alice"])
      #expect(try await gateway.store.ask { $0.events.channels.sorted() } == [Self.general])
      // A channel that nobody has made is subscribed to all the same.
      let server = try await client.events(
        "?channels=messaging:none,\(Self.general)",
        token: TestTokens.server
      )
      #expect(await server.live())
    }
  }

  @Test func refusesWhatIsNotRight() async throws {
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
        // An escaped comma parts nothing: it is a part of one id, and nobody has made that channel.
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
      // A token in the query is for this route alone.
      #expect(
        try await client.get("/v1/users/alice?access_token=\(alice)", token: nil).verdict
          == "401 token_missing"
      )
      let stream = try await client.events("?access_token=\(alice)", token: nil)
      #expect(await stream.live())
    }
  }

  @Test func aStoreThatRefusesIsTold() async throws {
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

  // MARK: Ends

  @Test func endsWithItsToken() async throws {
    var limits = GatewayLimits()
    limits.heartbeat = .milliseconds(50)
    try await run(limits: limits) { gateway in
      let expires = Date().timeIntervalSince1970 + 3
      let token = TestTokens.make(#"{"user_id":"alice","exp":\#(expires)}"#)
      let stream = try await gateway.client.events(token: token)
      #expect(await stream.live())
      var last = ""
      while let block = await stream.block() { last = block }
      #expect(last == ": the token has expired")
      #expect(Date().timeIntervalSince1970 >= expires)
    }
  }

  @Test func endsWhereTheGatewayDrains() async throws {
    try await run { gateway in
      let stream = try await gateway.client.events(token: alice)
      #expect(await stream.live())
      let drained = gateway.eventLoop.flatSubmit { gateway.loop.value.drain() }
      #expect(await stream.block() == ": this gateway is shutting down")
      #expect(await stream.block() == nil)
      try await drained.value("the end of draining")
    }
  }

  @Test func whoGoesIsForgotten() async throws {
    var limits = GatewayLimits()
    limits.heartbeat = .milliseconds(20)
    try await run(limits: limits) { gateway in
      let first = try await gateway.client.events(token: alice)
      let second = try await TestClient.connect(port: gateway.port, on: gateway.eventLoop)
      let other = try await second.events(token: carol)
      #expect(await first.live())
      #expect(await other.live())
      try await gateway.client.cancel(first)
      try await second.close()
      // The store is told with a tick.
      try await eventually {
        try await gateway.store.ask({ $0.events.users.isEmpty && $0.events.channels.isEmpty })
      }
      let left = try await gateway.eventLoop.submit {
        let events = gateway.loop.value.events
        return [events.hub.streamCount, events.hub.channelCount, events.hub.userCount, events.table.count]
      }.get()
      #expect(left == [0, 0, 0, 0])
    }
  }

  @Test func whatIsNotGivenUpIsTriedAgain() async throws {
    var limits = GatewayLimits()
    limits.heartbeat = .milliseconds(20)
    try await run(limits: limits) { gateway in
      let stream = try await gateway.client.events(token: alice)
      #expect(await stream.live())
      try await gateway.store.set(.refusingKind(.unsubscribe, .busy))
      try await gateway.client.cancel(stream)
      var refused = 0
      try await eventually {
        refused += try await gateway.store.takeLog().count { $0 == .unsubscribe }
        return refused >= 2
      }
      #expect(try await gateway.store.ask { $0.events.channels } == [Self.general])
      try await gateway.store.set(.normal)
      try await eventually {
        try await gateway.eventLoop.submit({ gateway.loop.value.events.hub.channelCount }).get() <= 0
      }
      #expect(try await gateway.store.ask { $0.events.channels } == [])
    }
  }

  @Test func aLostStoreIsMadeUpFor() async throws {
    try await run { gateway in
      let store = gateway.store
      let stream = try await gateway.client.events(token: alice)
      #expect(await stream.live())
      try await store.pass(5_000)
      try await store.tell(Self.general, Self.message("m1"))
      #expect(await stream.types(1) == ["message.new alice"])
      _ = try await store.ask { model in
        model.events.channels = []
        model.events.users = []
        model.events.changes = [Self.general: [Self.message("missed")]]
        model.closeConnections()
      }
      let event = try #require(await stream.event())
      #expect(Self.id(event) == "missed")
      #expect(try await store.ask { $0.events.resumed } == ["\(Self.general) 5000"])
      try await eventually { try await store.ask({ $0.events.users == ["alice"] }) }
      try await store.tell(Self.general, Self.message("m2"))
      #expect(await stream.types(1) == ["message.new alice"])
      // Events that were dropped are asked for in the same way.
      let shard = ShardID.owning(Array(Self.general.utf8).span.bytes, count: 4)
      _ = try await store.ask {
        $0.tell(shard, EventsFields(through: Timestamp(milliseconds: 9_000), isLost: true))
      }
      #expect(Self.id(try #require(await stream.event())) == "missed")
    }
  }

  // MARK: Bounds

  /// A client that reads nothing gets each state once, or is told to ask anew, and costs no more than that.
  @Test func whoReadsNothingIsBounded() async throws {
    var limits = GatewayLimits()
    limits.eventStreamBytes = 512
    limits.heartbeat = .seconds(60)
    try await run(limits: limits) { gateway in
      let stream = try await gateway.client.events(token: alice)
      #expect(await stream.live())
      let loop = gateway.loop
      // In one turn, so that nothing of it leaves.
      let (count, resets, isReset) = try await gateway.eventLoop.submit {
        let value = loop.value
        for number in 1...UInt32(3_000) { try Self.tell(value, [Self.read("bob", number)]) }
        let events = value.events.table.all[0]
        let count = events.queue.count
        for number in 1...UInt32(3_000) { try Self.tell(value, [Self.message("n\(number)", number)]) }
        return (count, value.events.writer.resets, events.queue.isReset)
      }.get()
      #expect(count == 1 && resets == 1 && isReset)
      var types: [String] = []
      while let type = await stream.type() {
        types.append(type)
        if types.contains("stream.reset") { break }
      }
      // What had left, then the reset, then what came behind it: two overflows in one turn leave 3,000 - 1,025 - 1,024.
      #expect(types.last == "stream.reset" && types.count < 10)
      var last = 0
      while last < 3_000, let event = await stream.event() {
        let sequence = (event["message"] as? NSDictionary)?["seq"] as? Int ?? 0
        #expect(sequence > last)
        last = sequence
      }
      #expect(last == 3_000)
    }
  }

  static func tell(_ loop: GatewayLoop, _ events: [EventFields]) throws {
    let fields = EventsFields(
      through: Timestamp(milliseconds: 2_000),
      channels: [ChannelEventsFields(cid: general, events)]
    )
    var buffer = ByteBuffer()
    fields.write(into: &buffer)
    let shard = ShardID.owning(Array(general.utf8).span.bytes, count: 4)
    try loop.storeEvents(shard, buffer.readableBytesSpan)
  }

  /// What waits counts against the memory of the connection: past it the client is told to ask anew.
  @Test func whatWaitsCountsAsMemory() async throws {
    var limits = GatewayLimits()
    limits.eventStreamBytes = 512
    limits.heartbeat = .seconds(60)
    var http2 = HTTP2Limits()
    http2.maxConnectionMemoryBytes = 40_000
    try await run(limits: limits, http2: http2) { gateway in
      let stream = try await gateway.client.events(token: alice)
      #expect(await stream.live())
      let loop = gateway.loop
      let (held, resets) = try await gateway.eventLoop.submit {
        let value = loop.value
        var held = (idle: value.resources.heldBytes, most: 0)
        for number in 1...UInt32(1_000) {
          try Self.tell(value, [Self.message("n\(number)", number)])
          held.most = max(held.most, value.resources.heldBytes)
        }
        return (held, value.events.writer.resets)
      }.get()
      #expect(resets == 1 && held.most > 30_000 && held.most < 42_000, "\(held)")
      var isReset = false
      while let event = await stream.event() {
        if event["type"] as? String == "stream.reset" { isReset = true }
        if (event["message"] as? NSDictionary)?["seq"] as? Int == 1_000 { break }
      }
      #expect(isReset)
      try await eventually("nothing waits any more") {
        try await gateway.eventLoop.submit { loop.value.resources.heldBytes <= held.idle }.get()
      }
    }
  }

  @Test func tooManyStreamsAreTurnedAway() async throws {
    var limits = GatewayLimits()
    limits.events.streams = 2
    try await run(limits: limits) { gateway in
      let streams = [
        try await gateway.client.events(token: alice), try await gateway.client.events(token: bob),
      ]
      for stream in streams { #expect(await stream.live()) }
      let answer = try await gateway.client.get("/v1/events", token: alice)
      #expect(answer.verdict == "503 store_busy" && answer.headers["retry-after"] == "1")
      try await gateway.client.cancel(streams[0])
      try await eventually {
        try await gateway.eventLoop.submit({ gateway.loop.value.events.hub.streamCount }).get() <= 1
      }
      let third = try await gateway.client.events(token: alice)
      #expect(await third.live())
    }
  }

  @Test func aUserWithTooManyStreamsIsToldSo() async throws {
    var limits = GatewayLimits()
    limits.events.streamsPerUser = 1
    try await run(limits: limits) { gateway in
      let stream = try await gateway.client.events(token: alice)
      #expect(await stream.live())
      #expect(try await refusal(gateway.client, "", token: alice) == "409 limit_reached")
      let other = try await gateway.client.events(token: bob)
      #expect(await other.live())
    }
  }

  @Test func manyAtOnceAreOpenedInTurn() async throws {
    var limits = GatewayLimits()
    limits.events.openings = 3
    try await run(limits: limits) { gateway in
      var streams: [TestEventStream] = []
      for number in 0..<200 {
        let token = number % 2 == 0 ? alice : bob
        streams.append(try await gateway.client.events(token: token))
      }
      for stream in streams { #expect(await stream.live()) }
      try await gateway.store.tell(Self.general, Self.message("m1"))
      for stream in streams { #expect(await stream.types(1) == ["message.new alice"]) }
      let waiting = try await gateway.eventLoop.submit { gateway.loop.value.events.hub.waitingCount }.get()
      #expect(waiting == 0)
    }
  }
}
