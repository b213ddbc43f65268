import Foundation
import HTTP2Session
import NIOCore
import NIOPosix
import Operations
import ReceiptModel
import ReceiptWire
import StoreTestSupport
import TestSupport
import Testing

@testable import Gateway

/// `POST /v1/frames` (Proto/frames.md, "Over HTTP/2").
@Suite struct FrameRouteTests {
  /// One frame of every accepted kind. The first ones create what the later ones refer to.
  private static func everyKind() -> (frames: TestFrames, responses: [String]) {
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
      .putChannel, .changeMembers, .registerMessage, .registerMessage, .markRead, .markUnread, .markDelivered,
      .acknowledge, .getChannel, .readState, .statuses, .listMembers, .memberStatuses, .deleteMessage,
      .truncateChannel, .deleteChannel,
    ]
    let correlations = [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16]
    return (frames, zip(correlations, kinds).map { "\($0) \($1)" })
  }

  @Test(arguments: [Int.max, 1_000, 7, 1])
  func everyKindIsAnsweredInPiecesOfAnySize(pieceBytes: Int) async throws {
    try await TestGateway.run { gateway in
      let stream = try await gateway.client.begin()
      var (frames, responses) = Self.everyKind()
      while let piece = frames.bytes.readSlice(length: min(pieceBytes, frames.bytes.readableBytes)),
        piece.readableBytes > 0
      {
        try await gateway.client.send(piece, stream)
      }
      #expect(Set(await stream.verdicts(responses.count)) == Set(responses))
      #expect(stream.status == 200 && stream.contentType == "application/vnd.tidemark.frames")
      #expect(stream.cacheControl == "no-store")
      // The token issue time in a frame is passed to the store.
      #expect(try await gateway.store.takeIssueTimes().compactMap { $0 } == [7])
      try await gateway.client.finish(stream)
      #expect(await stream.verdict() == "end")
    }
  }

  @Test func pingsAreAnsweredAndOtherKindsRefused() async throws {
    try await TestGateway.run { gateway in
      let stream = try await gateway.client.begin()
      var frames = TestFrames()
      frames.add(.ping, 1, cid: nil) { $0.writeInteger(UInt64(0x0102_0304_0506_0708)) }
      for (index, kind) in [
        FrameKind.patchUser, .settle, .eraseMember, .subscribe, .hello, .redeemTicket,
      ]
      .enumerated() {
        frames.add(kind, UInt32(index + 2))
      }
      // The kind is accepted as a request only.
      frames.bytes.writeFrame(FrameHeader(replyTo: .deleteChannel, correlation: 8)) { $0.writeFlag(true) }
      try await gateway.client.send(frames.bytes, stream)
      let pong = try #require(await stream.frame())
      #expect(pong.0.kind == .pong && pong.0.correlation == 1 && pong.1 == [1, 2, 3, 4, 5, 6, 7, 8])
      for index in 2...8 {
        #expect(await stream.verdict() == "\(index) not_implemented this frame kind is not accepted here")
      }
      #expect(try await gateway.store.takeLog().isEmpty)
    }
  }

  @Test func storeRefusalIsReturnedAsErrorFrame() async throws {
    try await TestGateway.run(deadline: TestGateway.shortDeadline) { gateway in
      let stream = try await gateway.client.begin()
      for (mode, command, query) in [
        (.refusing(.channelNotFound), "channel_not_found", "channel_not_found"),
        (.refusing(.limitReached), "limit_reached fake", "limit_reached fake"),
        (.refusing(.busy), "busy", "busy"), (.refusing(.wrongShard), "unavailable", "unavailable"),
        (.silent, "outcome_unknown", "unavailable"),
      ] as [(StoreInMemory.Mode, String, String)] {
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

  @Test func pushIsAcknowledgedByNameOrTicket() async throws {
    try await TestGateway.run { gateway in
      try await gateway.setUp("messaging:c", members: ["alice", "bob", "carol"], messages: ["m1", "m2"])
      try await gateway.store.advance(milliseconds: 10_000)
      let start = gateway.store.startTime.milliseconds
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
          fields.writeTime(Timestamp(milliseconds: start + 7))
          fields.writeVarint(named)
        }
        frames.add(.presentTicket, UInt32(named + 2), cid: nil) {
          Self.writeTicket(ticket, flags: named, into: &$0)
        }
      }
      try await gateway.client.send(frames.bytes, stream)
      var responses: [UInt32: (FrameKind, String)] = [:]
      for _ in 0..<4 {
        let (header, payload) = try #require(await stream.frame())
        #expect(header.isReply)
        let delivery = try DeliveryReply(payload.span.bytes)
        let names = "\(delivery.cid.text) \(delivery.user.text) \(delivery.message.text)"
        responses[header.correlation] = (
          header.kind, "\(delivery.moved) \(delivery.delivered.milliseconds) \(names)"
        )
      }
      let (bob, carol) = (start + 7, start + 10_000)
      #expect(responses[0]?.0 == .acknowledgePush && responses[0]?.1 == "true \(bob)   ")
      #expect(responses[1]?.0 == .acknowledgePush && responses[1]?.1 == "false \(bob) messaging:c bob m1")
      #expect(responses[2]?.0 == .presentTicket && responses[2]?.1 == "true \(carol)   ")
      #expect(
        responses[3]?.0 == .presentTicket && responses[3]?.1 == "false \(carol) messaging:c carol m2"
      )
      frames.bytes.clear()
      frames.add(.acknowledgePush, 8) { fields in
        fields.writeField("bob")
        fields.writeField("m1")
        fields.writeTime(.none)
        fields.writeVarint(UInt64(2))
        fields.writeField("apns")
        fields.writeField("tablet")
      }
      try await gateway.client.send(frames.bytes, stream)
      let sourced = try #require(await stream.frame())
      #expect(sourced.0.correlation == 8 && sourced.0.isReply)
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
        (#"by="worker",provider="apns",device="tablet",result="known""#, 1),
        (#"by="worker",provider="none",device="none",result="refused""#, 1),
        (#"by="ticket",provider="none",device="ios",result="moved""#, 1),
        (#"by="ticket",provider="none",device="ios",result="known""#, 1),
        (#"by="ticket",provider="none",device="none",result="refused""#, 3),
      ] {
        #expect(metrics.contains("tidemark_gateway_push_acks_total{\(labels)} \(count)\n"), "\(labels)")
      }
    }
  }

  @Test func ticketsNeedTicketSecret() async throws {
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

  // MARK: Credentials and types

  @Test func streamNeedsServerTokenAndFrameType() async throws {
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

  /// A streamed body is not complete when its request begins. A route without streamed bodies must not process it as an
  /// empty body.
  @Test(arguments: ["application/x-ndjson", "application/vnd.tidemark.frames"])
  func otherRoutesRefuseStreamedBodies(type: String) async throws {
    try await TestGateway.run { gateway in
      try await gateway.setUp("messaging:c", members: ["bob"], messages: ["m1"])
      _ = try await gateway.store.takeLog()
      for (method, path) in [
        (.post, "/v1/channels/read?user_id=bob"), (.post, "/v1/channels/messaging:c/read?user_id=bob"),
        (.post, "/v1/channels/delivered"), (.post, "/v1/channels/messaging:c/truncate"),
        (.post, "/v1/messages"), (.put, "/v1/channels/messaging:c"), (.get, "/v1/channels/messaging:c"),
        (.delete, "/v1/channels/messaging:c"), (.post, "/v1/push/tickets"), (.get, "/v1/events?user_id=bob"),
      ] as [(HTTP2Method, String)] {
        let response = try await gateway.client.request(
          method,
          path,
          "{}",
          token: TestTokens.server,
          contentType: type
        )
        #expect(response.verdict == "415 content_type_not_supported", "\(path)")
      }
      for (path, token, expected) in [
        ("/v1/nothing", TestTokens.server, "404 route_not_found"),
        ("/v1/channels/read", nil, "401 token_missing"),
        ("/v1/messages", TestTokens.user("bob"), "403 server_token_required"),
      ] as [(String, String?, String)] {
        let response = try await gateway.client.request(.post, path, "{}", token: token, contentType: type)
        #expect(response.verdict == expected, "\(path)")
      }
      #expect(try await gateway.store.takeLog().isEmpty)
    }
  }
}
