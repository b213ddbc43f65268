import Foundation
import HTTP2Session
import NIOCore
import NIOPosix
import Operations
import ReceiptModel
import ReceiptWire
import TestSupport
import Testing

@testable import Gateway

/// `POST /v1/frames` (Proto/frames.md, "Over HTTP/2").
@Suite struct FrameRouteTests {
  /// One frame of every kind that is taken, the first ones making what the later ones are about.
  private static func everyKind() -> (frames: TestFrames, answers: [String]) {
    var frames = TestFrames()
    frames.add(.putChannel, 1) { fields in
      fields.writeOptionPatch(OptionPatch())
      fields.writeVarint(2)
      for user in ["alice", "bob"] {
        fields.writeField(user)
        fields.writeEmptyField()
      }
    }
    frames.add(.changeMembers, 2) { fields in
      fields.writeVarint(1)
      fields.writeField("carol")
      fields.writeField("admin")
      fields.writeVarint(1)
      fields.writeField("dave")
    }
    for (correlation, flags, id) in [(3, [], "m1"), (4, FrameHeader.Flags.thread, "r1")]
      as [(UInt32, FrameHeader.Flags, String)]
    {
      frames.add(.registerMessage, correlation, flags: flags) { fields in
        fields.writeField(id)
        fields.writeField("alice")
        fields.writeTime(Timestamp(milliseconds: 5))
        fields.writeVarint(UInt64(2))
        if flags.contains(.thread) { fields.writeField("m1") }
      }
    }
    frames.mark(5, message: "m1")
    frames.add(.markUnread, 6, flags: .issued) { fields in
      fields.writeField("bob")
      fields.writeField("m1")
      fields.writeOptional(1)
      fields.writeInteger(UInt32(7))
    }
    frames.add(.markDelivered, 7) { fields in
      fields.writeField("bob")
      fields.writeEmptyField()
    }
    frames.add(.acknowledge, 8) { fields in
      fields.writeField("bob")
      fields.writeField("søster")
      fields.writeVarint(1)
      fields.writeField("m1")
    }
    frames.add(.getChannel, 9)
    frames.add(.readState, 10) { fields in
      fields.writeVarint(1)
      fields.writeEmptyField()
      fields.writeVarint(100)
      fields.writeOptional(nil)
    }
    for (correlation, kind) in [(11, FrameKind.statuses), (13, .memberStatuses)] as [(UInt32, FrameKind)] {
      frames.add(kind, correlation) { fields in
        fields.writeVarint(1)
        fields.writeEmptyField()
        if kind == .memberStatuses { fields.writeField("m1") }
        fields.writeVarint(1)
        fields.writeField(kind == .memberStatuses ? "bob" : "m1")
      }
    }
    frames.add(.listMembers, 12) { fields in
      fields.writeVarint(1)
      fields.writeEmptyField()
      fields.writeField("m1")
      fields.writeInteger(UInt8(0))
      fields.writeInteger(UInt8(0))
      fields.writeVarint(100)
      fields.writeEmptyField()
    }
    frames.add(.deleteMessage, 14) { $0.writeField("m1") }
    frames.add(.truncateChannel, 15) { $0.writeEmptyField() }
    frames.add(.deleteChannel, 16)
    let kinds: [FrameKind] = [
      .putChannelReply, .changeMembersReply, .registerMessageReply, .registerMessageReply, .markReadReply,
      .markUnreadReply, .markDeliveredReply, .acknowledgeReply, .getChannelReply, .readStateReply,
      .statusesReply,
      .listMembersReply, .memberStatusesReply, .deleteMessageReply, .truncateChannelReply,
      .deleteChannelReply,
    ]
    let correlations = [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16]
    return (frames, zip(correlations, kinds).map { "\($0) \($1)" })
  }

  @Test(arguments: [Int.max, 1_000, 7, 1])
  func answersEveryKindHoweverItComes(pieceBytes: Int) async throws {
    try await TestGateway.run { gateway in
      let stream = try await gateway.client.begin()
      var (frames, answers) = Self.everyKind()
      while let piece = frames.bytes.readSlice(length: min(pieceBytes, frames.bytes.readableBytes)),
        piece.readableBytes > 0
      {
        try await gateway.client.send(piece, stream)
      }
      #expect(Set(await stream.verdicts(answers.count)) == Set(answers))
      #expect(stream.status == 200 && stream.contentType == "application/vnd.tidemark.frames")
      #expect(stream.cacheControl == "no-store")
      // What it says of the token behind a request goes on to the store.
      #expect(try await gateway.store.readTokenIssueTime().compactMap { $0 } == [7])
      try await gateway.client.finish(stream)
      #expect(await stream.verdict() == "end")
    }
  }

  @Test func answersPingsAndWhatIsNotTakenHere() async throws {
    try await TestGateway.run { gateway in
      let stream = try await gateway.client.begin()
      var frames = TestFrames()
      frames.add(.ping, 1, cid: nil) { $0.writeInteger(UInt64(0x0102_0304_0506_0708)) }
      for (index, kind) in [FrameKind.patchUser, .settle, .eraseMember, .subscribe, .hello, .redeemTicket]
        .enumerated()
      {
        frames.add(kind, UInt32(index + 2))
      }
      try await gateway.client.send(frames.bytes, stream)
      let pong = try #require(await stream.frame())
      #expect(pong.0.kind == .pong && pong.0.correlation == 1 && pong.1 == [1, 2, 3, 4, 5, 6, 7, 8])
      for index in 2...7 {
        #expect(await stream.verdict() == "\(index) not_implemented this frame kind is not accepted here")
      }
      #expect(try await gateway.store.takeLog().isEmpty)
    }
  }

  /// A field out of its range: the kind, the fields, and what is said of it.
  private static let refusals:
    [(FrameKind, FrameHeader.Flags, String, String, @Sendable (inout ByteBuffer) -> Void)] = {
      let cid = "messaging:c"
      let message = "message: 1 to 255 bytes of UTF-8 without control characters"
      let user = "user: 1 to 255 bytes of UTF-8 without control characters"
      func mark(_ user: String, _ message: String, thread: String? = nil)
        -> @Sendable (inout ByteBuffer) -> Void
      {
        {
          $0.writeField(user)
          $0.writeField(message)
          $0.writeOptional(nil)
          if let thread { $0.writeField(thread) }
        }
      }
      func register(_ id: String, _ sender: String, _ time: Int64, _ flags: Int)
        -> @Sendable (inout ByteBuffer) -> Void
      {
        {
          $0.writeField(id)
          $0.writeField(sender)
          $0.writeTime(Timestamp(milliseconds: time))
          $0.writeVarint(flags)
        }
      }
      func viewer(_ flags: Int, _ user: String, _ rest: @escaping @Sendable (inout ByteBuffer) -> Void)
        -> @Sendable (inout ByteBuffer) -> Void
      {
        {
          $0.writeVarint(flags)
          $0.writeField(user)
          rest(&$0)
        }
      }
      func list(_ list: UInt8, _ order: UInt8, _ limit: Int, _ cursor: String)
        -> @Sendable (inout ByteBuffer) -> Void
      {
        viewer(1, "") {
          $0.writeField("m1")
          $0.writeInteger(list)
          $0.writeInteger(order)
          $0.writeVarint(limit)
          $0.writeField(cursor)
        }
      }
      @Sendable func names(_ count: Int, _ name: String) -> @Sendable (inout ByteBuffer) -> Void {
        {
          $0.writeVarint(count)
          for _ in 0..<count { $0.writeField(name) }
        }
      }
      func acknowledge(_ user: String, _ note: String, _ rest: @escaping @Sendable (inout ByteBuffer) -> Void)
        -> @Sendable (inout ByteBuffer) -> Void
      {
        {
          $0.writeField(user)
          $0.writeField(note)
          rest(&$0)
        }
      }
      return [
        (
          .markRead, [], "nocolon",
          "cid: 1 to 64 of A-Z a-z 0-9 _ -, a colon, 1 to 255 bytes of UTF-8 without control characters",
          mark("bob", "")
        ),
        (.markRead, [], cid, user, mark("", "m1")), (.markRead, [], cid, user, mark("b\u{7F}b", "m1")),
        (.markRead, [], cid, message, mark("bob", "m\u{7}1")),
        (
          .markUnread, .thread, cid, "thread: 1 to 255 bytes of UTF-8 without control characters",
          mark("bob", "", thread: "m\u{7}1")
        ),
        (.registerMessage, [], cid, message, register("", "alice", 5, 0)),
        (.registerMessage, [], cid, user, register("m1", "al\u{7}ice", 5, 0)),
        (
          .registerMessage, [], cid, "time created: given, up to the year 9999", register("m1", "alice", 0, 0)
        ),
        (
          .registerMessage, [], cid, "time created: given, up to the year 9999",
          register("m1", "alice", .max, 0)
        ),
        (
          .registerMessage, [], cid,
          "flags: 1 (silent), 2 (receipt), 4 (moves no position), 8 (mentions all) or 16 (mentions follow)",
          register("m1", "", 5, 32)
        ),
        (
          .setMember, [], cid, "flags: 1 (mute given), 2 (mute, with 1), 4 (joins) and their sums",
          {
            $0.writeField("bob")
            $0.writeField("")
            $0.writeVarint(UInt64(2))
          }
        ),
        (
          .markUnreadSince, [], cid, "time created: given, up to the year 9999",
          {
            $0.writeField("bob")
            $0.writeTime(.none)
            $0.writeOptional(nil)
          }
        ),
        (
          .acknowledgePush, [], cid, "flags: 0 or 1",
          {
            $0.writeField("bob")
            $0.writeField("m1")
            $0.writeTime(.none)
            $0.writeVarint(UInt64(2))
          }
        ),
        (
          .acknowledgePush, [], cid, "time acked: up to the year 9999",
          {
            $0.writeField("bob")
            $0.writeField("m1")
            $0.writeTime(Timestamp(milliseconds: .max))
            $0.writeVarint(UInt64(0))
          }
        ),
        (.acknowledge, [], cid, "messages: 1 to 100", acknowledge("bob", "", names(0, ""))),
        (.acknowledge, [], cid, "messages: 1 to 100", acknowledge("bob", "", names(101, "m1"))),
        (.acknowledge, [], cid, message, acknowledge("bob", "", names(2, "m\u{7}1"))),
        (
          .acknowledge, [], cid, "note: at most 1,024 bytes of UTF-8",
          acknowledge("bob", String(repeating: "n", count: 1_025), names(1, "m1"))
        ),
        (
          .readState, [], cid, "viewer flags: 0 or 1",
          viewer(2, "") {
            $0.writeVarint(1)
            $0.writeOptional(nil)
          }
        ),
        (
          .readState, [], cid, "limit: 1 to 100",
          viewer(1, "") {
            $0.writeVarint(101)
            $0.writeOptional(nil)
          }
        ),
        (.statuses, [], cid, "messages: 1 to 100", viewer(1, "", names(0, ""))),
        (.statuses, [], cid, user, viewer(1, "b\u{7}b", names(1, "m1"))),
        (.listMembers, [], cid, "list: 0 to 4", list(5, 0, 1, "")),
        (.listMembers, [], cid, "order: 0 to 2", list(0, 3, 1, "")),
        (.listMembers, [], cid, "limit: 1 to 100", list(0, 0, 0, "")),
        (.listMembers, [], cid, "cursor: a cursor from an earlier page", list(0, 0, 1, "a b")),
        (
          .memberStatuses, [], cid, "users: 1 to 100",
          viewer(1, "") {
            $0.writeField("m1")
            $0.writeVarint(0)
          }
        ),
        (
          .putChannel, [], cid, "options: in rising order of their numbers, each with a value that it takes",
          {
            $0.writeVarint(1)
            $0.writeVarint(99)
            $0.writeField("x")
            $0.writeVarint(0)
          }
        ),
        (
          .putChannel, [], cid, "role: 1 to 64 of A-Z a-z 0-9 _ . -",
          {
            $0.writeVarint(0)
            $0.writeVarint(1)
            $0.writeField("bob")
            $0.writeField("a role")
          }
        ),
        (
          .changeMembers, [], cid, "members: at most 1,000 in a request",
          {
            $0.writeVarint(0)
            names(1_001, "u")(&$0)
          }
        ),
        (
          .changeMembers, [], cid, user,
          {
            $0.writeVarint(0)
            names(1, "")(&$0)
          }
        ),
        (.truncateChannel, [], cid, message, { $0.writeField("m\u{7}1") }),
        (.deleteMessage, [], cid, message, { $0.writeEmptyField() }),
      ]
    }()

  @Test func refusesWhatIsOutOfRangeAndGoesOn() async throws {
    try await TestGateway.run { gateway in
      let stream = try await gateway.client.begin()
      var frames = TestFrames()
      for (index, (kind, flags, cid, _, fields)) in Self.refusals.enumerated() {
        frames.add(kind, UInt32(index), flags: flags, cid: cid, fields)
      }
      frames.add(.getChannel, 1_000)
      try await gateway.client.send(frames.bytes, stream)
      for (index, refusal) in Self.refusals.enumerated() {
        #expect(await stream.verdict() == "\(index) invalid_field \(refusal.3)", "\(refusal.0)")
      }
      #expect(await stream.verdict() == "1000 channel_not_found")
      #expect(try await gateway.store.takeLog() == [.getChannel])
    }
  }

  /// Bytes behind a request that is answered, and how the stream ends.
  private static let malformed: [(String, [UInt8], String)] = [
    ("no frame", [0, 0, 0, 7, 0x14, 0, 0, 0, 0, 0, 0, 9], "0 malformed_frame lengthTooSmall"),
    (
      "too large", [0, 1, 0, 1, 0x14, 0], "0 frame_too_large the frame's length is 65537, the limit is 65536"
    ),
    ("unknown kind", [0, 0, 0, 8, 0x7F, 0, 0, 0, 0, 0, 0, 9], "0 unknown_kind there is no kind 127"),
    ("unknown flag", [0, 0, 0, 8, 0x20, 8, 0, 0, 0, 0, 0, 9], "0 malformed_frame badFlags(8)"),
    ("flag thread", [0, 0, 0, 9, 0x20, 4, 0, 0, 0, 0, 0, 9, 0], "9 malformed_frame badFlags(4)"),
    ("no cid", [0, 0, 0, 8, 0x20, 0, 0, 0, 0, 0, 0, 9], "9 malformed_frame truncated"),
    ("cut issued", [0, 0, 0, 9, 0x20, 2, 0, 0, 0, 0, 0, 9, 0], "9 malformed_frame truncated"),
    ("trailing", [0, 0, 0, 12, 0x20, 0, 0, 0, 0, 0, 0, 9, 2, 97, 58, 0], "9 malformed_frame trailingBytes"),
    (
      "a count that cannot be", [0, 0, 0, 12, 0x1D, 0, 0, 0, 0, 0, 0, 9, 0, 0x80, 0, 0],
      "9 malformed_frame badVarint"
    ),
    ("cut ping", [0, 0, 0, 9, 0x05, 0, 0, 0, 0, 0, 0, 9, 1], "9 malformed_frame truncated"),
  ]

  @Test func endsAtWhatIsNoFrame() async throws {
    try await TestGateway.run { gateway in
      try await gateway.setUp("messaging:c", members: ["bob"], messages: ["m1"])
      for (name, bytes, expected) in Self.malformed {
        let stream = try await gateway.client.begin()
        var frames = TestFrames()
        frames.mark(5)
        frames.bytes.writeBytes(bytes)
        frames.mark(6)
        try await gateway.client.send(frames.bytes, stream)
        #expect(await stream.verdicts(3) == ["5 markReadReply", expected, "end"], "\(name)")
      }
      let cut = try await gateway.client.begin()
      var frames = TestFrames()
      frames.mark(5)
      frames.bytes.writeBytes([0, 0, 0, 40, 0x14])
      try await gateway.client.send(frames.bytes, cut)
      try await gateway.client.finish(cut)
      let end = ["5 markReadReply", "0 malformed_frame the body ends within a frame", "end"]
      #expect(await cut.verdicts(3) == end)
    }
  }

  @Test func passesTheStoresRefusalsOn() async throws {
    try await TestGateway.run(deadline: TestGateway.shortDeadline) { gateway in
      let stream = try await gateway.client.begin()
      for (mode, command, query) in [
        (.refusing(.channelNotFound), "channel_not_found", "channel_not_found"),
        (.refusing(.limitReached), "limit_reached fake", "limit_reached fake"),
        (.refusing(.busy), "busy", "busy"), (.refusing(.wrongShard), "unavailable", "unavailable"),
        (.silent, "outcome_unknown", "unavailable"),
      ] as [(FakeStore.Mode, String, String)] {
        try await gateway.store.set(mode)
        var frames = TestFrames()
        frames.mark(1)
        frames.add(.getChannel, 2)
        try await gateway.client.send(frames.bytes, stream)
        #expect(Set(await stream.verdicts(2)) == ["1 \(command)", "2 \(query)"], "\(mode)")
      }
    }
  }

  // MARK: Acknowledgements

  @Test func acknowledgesByNameAndByTicket() async throws {
    try await TestGateway.run { gateway in
      try await gateway.setUp("messaging:c", members: ["bob", "carol"], messages: ["m1", "m2"])
      let issued = try await gateway.client.post(
        "/v1/push/tickets",
        #"{"tickets":[{"cid":"messaging:c","message_id":"m2","user_id":"carol","device":"ios"}]}"#
      )
      let ticket = try #require((issued.json["tickets"] as? [String])?.first)
      let stream = try await gateway.client.begin()
      var frames = TestFrames()
      for named in [0, 1] as [UInt64] {
        frames.add(.acknowledgePush, UInt32(named)) { fields in
          fields.writeField("bob")
          fields.writeField("m1")
          fields.writeTime(Timestamp(milliseconds: 7))
          fields.writeVarint(named)
        }
        frames.add(.presentTicket, UInt32(named + 2), cid: nil) {
          Self.writeTicket(ticket, flags: named, into: &$0)
        }
      }
      try await gateway.client.send(frames.bytes, stream)
      var answers: [UInt32: (FrameKind, String)] = [:]
      for _ in 0..<4 {
        let (header, payload) = try #require(await stream.frame())
        var reader = FieldReader(payload.span.bytes)
        let delivery = try DeliveryFields(&reader)
        let names = "\(delivery.cid.text) \(delivery.user.text) \(delivery.message.text)"
        answers[header.correlation] = (
          header.kind, "\(delivery.moved) \(delivery.delivered.milliseconds) \(names)"
        )
      }
      let carol = FakeModel.sentBase + 4_000
      #expect(answers[0]?.0 == .acknowledgePushReply && answers[0]?.1 == "true 7   ")
      #expect(answers[1]?.0 == .acknowledgePushReply && answers[1]?.1 == "false 7 messaging:c bob m1")
      #expect(answers[2]?.0 == .presentTicketReply && answers[2]?.1 == "true \(carol)   ")
      #expect(answers[3]?.0 == .presentTicketReply && answers[3]?.1 == "false \(carol) messaging:c carol m2")
      frames.bytes.clear()
      frames.add(.presentTicket, 4, cid: nil) { Self.writeTicket(ticket + "A", into: &$0) }
      frames.add(.presentTicket, 5, cid: nil) { Self.writeTicket("", into: &$0) }
      frames.add(.presentTicket, 6, cid: nil) { Self.writeTicket(ticket, flags: 2, into: &$0) }
      frames.add(.acknowledgePush, 7) { fields in
        fields.writeField("dave")
        fields.writeField("m1")
        fields.writeTime(.none)
        fields.writeVarint(UInt64(0))
      }
      try await gateway.client.send(frames.bytes, stream)
      let refused = await stream.verdicts(4)
      #expect(
        refused == [
          "4 ticket_invalid",
          "5 invalid_field ticket: 1 to 160 bytes",
          "6 invalid_field flags: 0 or 1", "7 not_a_member",
        ]
      )
      let metrics = try await gateway.eventLoop.submit {
        var samples = MetricSamples()
        gateway.loop.value.collect(into: &samples)
        var text = ByteBuffer()
        samples.write(into: &text)
        return String(buffer: text)
      }.get()
      for (labels, count) in [
        (#"by="worker",provider="none",device="none",result="moved""#, 1),
        (#"by="worker",provider="none",device="none",result="known""#, 1),
        (#"by="worker",provider="none",device="none",result="refused""#, 1),
        (#"by="ticket",provider="none",device="ios",result="moved""#, 1),
        (#"by="ticket",provider="none",device="ios",result="known""#, 1),
        (#"by="ticket",provider="none",device="none",result="refused""#, 3),
      ] {
        #expect(metrics.contains("tidemark_gateway_push_acks_total{\(labels)} \(count)\n"), "\(labels)")
      }
    }
  }

  @Test func withoutASecretThereAreNoTickets() async throws {
    try await TestGateway.run(tickets: nil) { gateway in
      let stream = try await gateway.client.begin()
      var frames = TestFrames()
      frames.add(.presentTicket, 1, cid: nil) { Self.writeTicket("AAAA", into: &$0) }
      try await gateway.client.send(frames.bytes, stream)
      #expect(
        await stream.verdict() == "1 not_implemented this gateway was started without --ticket-secret-file"
      )
    }
  }

  private static func writeTicket(_ ticket: String, flags: UInt64 = 0, into buffer: inout ByteBuffer) {
    buffer.writeField(ticket)
    buffer.writeTime(.none)
    buffer.writeVarint(flags)
  }

  // MARK: Bounds

  @Test func answersAllHoweverFewMayBeUnderWay() async throws {
    var limits = GatewayLimits()
    limits.framesInFlight = 2
    limits.streamedInFlight = 3
    limits.streamAnswerBytes = 1
    try await TestGateway.run(limits: limits) { gateway in
      try await gateway.setUp("messaging:c", members: ["bob"], messages: ["m1"])
      let streams = [
        try await gateway.client.begin(), try await gateway.client.begin(), try await gateway.client.begin(),
      ]
      var frames = TestFrames()
      for index in 0..<500 { frames.mark(UInt32(index)) }
      for stream in streams {
        try await gateway.client.send(frames.bytes, stream)
        try await gateway.client.finish(stream)
      }
      for stream in streams {
        let verdicts = await stream.verdicts(501)
        #expect(verdicts == (0..<500).map { "\($0) markReadReply" } + ["end"])
      }
    }
  }

  /// No reply of the store wakes a stream of frames that ask nothing of it, and the body has ended: it goes on by
  /// itself.
  @Test func framesThatTheGatewayAnswersFillTheRoom() async throws {
    var limits = GatewayLimits()
    limits.streamAnswerBytes = 1_024
    try await TestGateway.run(limits: limits) { gateway in
      let stream = try await gateway.client.begin()
      var frames = TestFrames()
      for index in 0..<500 { frames.add(.getUser, UInt32(index)) }
      try await gateway.client.send(frames.bytes, stream)
      try await gateway.client.finish(stream)
      let verdicts = await stream.verdicts(501)
      #expect(
        verdicts == (0..<500).map { "\($0) not_implemented this frame kind is not accepted here" } + ["end"]
      )
    }
  }

  /// More frames than a stream may take in one turn, while a request waits for a silent store: the stream goes on by
  /// itself.
  @Test func goesOnAfterItsTurn() async throws {
    try await TestGateway.run { gateway in
      try await gateway.store.set(.silent)
      let stream = try await gateway.client.begin()
      var frames = TestFrames()
      frames.mark(0)
      let count = 3 * RequestStream.itemsPerTurn
      for index in 1...count { frames.add(.getUser, UInt32(index)) }
      try await gateway.client.send(frames.bytes, stream)
      let verdicts = await stream.verdicts(count)
      #expect(verdicts == (1...count).map { "\($0) not_implemented this frame kind is not accepted here" })
    }
  }

  @Test func takesNoMoreThanMayBeUnderWay() async throws {
    var limits = GatewayLimits()
    limits.framesInFlight = 2
    try await TestGateway.run(limits: limits) { gateway in
      try await gateway.store.set(.silent)
      let stream = try await gateway.client.begin()
      var frames = TestFrames()
      for index in 1...5 { frames.mark(UInt32(index)) }
      try await gateway.client.send(frames.bytes, stream)
      // What another stream asks for later comes to the store, and nothing more of this one before it.
      let other = try await gateway.client.begin()
      frames.bytes.clear()
      frames.add(.getChannel, 1)
      try await gateway.client.send(frames.bytes, other)
      var log: [FrameKind] = []
      try await eventually {
        log += try await gateway.store.takeLog()
        return log.last == .getChannel
      }
      #expect(log == [.markRead, .markRead, .getChannel])
    }
  }

  @Test func endsWithTheTokenAndWithTheGateway() async throws {
    try await TestGateway.run { gateway in
      try await gateway.setUp("messaging:c", members: ["bob"], messages: ["m1"])
      let expiry = Int(Date().timeIntervalSince1970) + 2
      let short = try await gateway.client.begin(
        token: TestTokens.make("{\"server\":true,\"exp\":\(expiry)}")
      )
      let long = try await gateway.client.begin()
      var frames = TestFrames()
      frames.mark(1)
      try await gateway.client.send(frames.bytes, short)
      try await gateway.client.send(frames.bytes, long)
      let expected = ["1 markReadReply", "0 authentication_failed the token has expired", "end"]
      #expect(await short.verdicts(3) == expected)
      #expect(await long.verdict() == "1 markReadReply")
      let drained = try await gateway.eventLoop.submit { gateway.loop.value.drain() }.get()
      #expect(await long.verdicts(2) == ["0 drain", "end"])
      try await drained.value("the end of draining")
    }
  }

  @Test func takesSoManyStreams() async throws {
    var limits = GatewayLimits()
    limits.requestStreams = 1
    try await TestGateway.run(limits: limits) { gateway in
      let first = try await gateway.client.begin()
      var frames = TestFrames()
      frames.add(.getChannel, 1)
      try await gateway.client.send(frames.bytes, first)
      #expect(await first.verdict() == "1 channel_not_found")
      let second = try await gateway.client.begin()
      // What is refused is read on until its end.
      try await gateway.client.finish(second)
      _ = await second.frame()
      #expect(second.status == 503)
      try await gateway.client.reset(first)
      // The reset and the next request come on one connection, in this order.
      let third = try await gateway.client.begin()
      try await gateway.client.send(frames.bytes, third)
      #expect(await third.verdict() == "1 channel_not_found")
    }
  }

  @Test func noTokenTakesAllStreams() async throws {
    var limits = GatewayLimits()
    limits.requestStreams = 4
    try await TestGateway.run(limits: limits) { gateway in
      var frames = TestFrames()
      frames.add(.getChannel, 1)
      func isOpened(_ token: String) async throws -> Bool {
        let stream = try await gateway.client.begin(token: token)
        try await gateway.client.send(frames.bytes, stream)
        _ = await stream.frame()
        return stream.status == 200
      }
      var opened: [Bool] = []
      for _ in 0..<3 { opened.append(try await isOpened(TestTokens.server)) }
      opened.append(try await isOpened(TestTokens.make(#"{"server":true,"jti":"another"}"#)))
      #expect(opened == [true, true, false, true])
    }
  }

  @Test func forgetsStreamsThatAreReset() async throws {
    try await TestGateway.run(deadline: TestGateway.shortDeadline) { gateway in
      try await gateway.store.set(.silent)
      let stream = try await gateway.client.begin()
      var frames = TestFrames()
      for index in 0..<10 { frames.mark(UInt32(index)) }
      try await gateway.client.send(frames.bytes, stream)
      try await eventually { try await !gateway.store.takeLog().isEmpty }
      try await gateway.client.reset(stream)
      #expect(await stream.verdict() == "end")
      // A new stream may get its place; what the old one asked for is not answered there.
      let other = try await gateway.client.begin()
      frames.bytes.clear()
      frames.add(.getChannel, 77)
      try await gateway.client.send(frames.bytes, other)
      #expect(await other.verdict() == "77 unavailable")
      try await gateway.client.finish(other)
      #expect(await other.verdict() == "end")
      let left = try await gateway.eventLoop.submit {
        (gateway.loop.value.streams.inFlight, gateway.loop.value.streams.count)
      }.get()
      #expect(left == (0, 0))
    }
  }

  // MARK: Who and what

  @Test func isForServersAndForFramesOnly() async throws {
    try await TestGateway.run { gateway in
      let client = gateway.client
      let frames = "application/vnd.tidemark.frames"
      for (token, type, expected) in [
        (nil, frames, 401), (TestTokens.user("bob"), frames, 403),
        (TestTokens.server, "application/json", 415),
        (TestTokens.server, "application/x-ndjson", 415), (TestTokens.server, frames + ";v=1", 200),
        (TestTokens.server, "Application/VND.tidemark.frames ; v=1", 200),
      ] as [(String?, String, Int)] {
        let stream = try await client.begin(contentType: type, token: token)
        try await client.finish(stream)
        _ = await stream.frame()
        #expect(stream.status == expected, "\(type)")
      }
      // A body that ends with the headers.
      let empty = try await client.request(
        .post,
        "/v1/frames",
        nil,
        token: TestTokens.server,
        headers: [(name: "content-type", value: frames)]
      )
      #expect(empty.status == 200 && empty.body.isEmpty && empty.contentType == frames)
      #expect(try await client.post("/v1/frames", nil).verdict == "415 content_type_not_supported")
    }
  }

  /// A body that is read as it comes has not come when its request does: a route that takes no such body must not take
  /// it for an empty one.
  @Test(arguments: ["application/x-ndjson", "application/vnd.tidemark.frames"])
  func otherRoutesTakeNoStreams(type: String) async throws {
    try await TestGateway.run { gateway in
      try await gateway.setUp("messaging:c", members: ["bob"], messages: ["m1"])
      _ = try await gateway.store.takeLog()
      for (method, path) in [
        (.post, "/v1/channels/read?user_id=bob"), (.post, "/v1/channels/messaging:c/read?user_id=bob"),
        (.post, "/v1/channels/delivered"), (.post, "/v1/channels/messaging:c/truncate"),
        (.post, "/v1/messages"), (.put, "/v1/channels/messaging:c"), (.get, "/v1/channels/messaging:c"),
        (.delete, "/v1/channels/messaging:c"), (.post, "/v1/push/tickets"), (.get, "/v1/events?user_id=bob"),
      ] as [(HTTP2Method, String)] {
        let answer = try await gateway.client.request(
          method,
          path,
          "{}",
          token: TestTokens.server,
          contentType: type
        )
        #expect(answer.verdict == "415 content_type_not_supported", "\(path)")
      }
      for (path, token, expected) in [
        ("/v1/nothing", TestTokens.server, "404 route_not_found"),
        ("/v1/channels/read", nil, "401 token_missing"),
        ("/v1/messages", TestTokens.user("bob"), "403 server_token_required"),
      ] as [(String, String?, String)] {
        let answer = try await gateway.client.request(.post, path, "{}", token: token, contentType: type)
        #expect(answer.verdict == expected, "\(path)")
      }
      #expect(try await gateway.store.takeLog().isEmpty)
    }
  }
}
