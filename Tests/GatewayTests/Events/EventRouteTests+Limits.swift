import Foundation
import HTTP2Session
import NIOCore
import ReceiptModel
import ReceiptWire
import StoreClient
import StoreTestSupport
import TestSupport
import Testing

@testable import Gateway

/// The end of streams, reconnecting to the store, and limits.
extension EventRouteTests {
  // MARK: Ending

  @Test func streamEndsWhenTokenExpires() async throws {
    var limits = GatewayLimits()
    limits.heartbeat = .milliseconds(50)
    try await run(limits: limits) { gateway in
      let expires = Date().timeIntervalSince1970 + 600
      let token = TestTokens.make(#"{"user_id":"alice","exp":\#(expires)}"#)
      let stream = try await gateway.client.events(token: token)
      #expect(await stream.live())
      gateway.clock.advance(by: .minutes(9))
      #expect(await stream.live())
      gateway.clock.advance(by: .seconds(61))
      var last = ""
      while let block = await stream.block() { last = block }
      #expect(last == ": the token has expired")
    }
  }

  @Test func streamEndsWhenGatewayDrains() async throws {
    try await run { gateway in
      let stream = try await gateway.client.events(token: alice)
      #expect(await stream.live())
      let drained = gateway.eventLoop.flatSubmit { gateway.loop.value.drain() }
      #expect(await stream.block() == ": this gateway is shutting down")
      #expect(await stream.block() == nil)
      try await drained.value("the end of draining")
    }
  }

  @Test func closedStreamsLeaveNoState() async throws {
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
      // The store is unsubscribed with a tick.
      try await eventually("the store has no subscriptions") {
        try await gateway.store.subscriptionCount() == 0
      }
      // The hub forgets a channel or a user with the store's answer.
      try await eventually("the gateway keeps nothing of the streams") {
        try await gateway.eventLoop.submit {
          let events = gateway.loop.value.events
          return [events.hub.streamCount, events.hub.channelCount, events.hub.userCount, events.table.count]
        }.get() == [0, 0, 0, 0]
      }
    }
  }

  @Test func refusedUnsubscribeIsRetried() async throws {
    var limits = GatewayLimits()
    limits.heartbeat = .milliseconds(20)
    try await run(limits: limits) { gateway in
      let stream = try await gateway.client.events(token: alice)
      #expect(await stream.live())
      try await gateway.store.set(.refusingKind(.unsubscribe, .busy))
      try await gateway.client.cancel(stream)
      var refused = 0
      try await eventually("the store has refused two unsubscriptions") {
        refused += try await gateway.store.takeLog().count { $0 == .unsubscribe }
        return refused >= 2
      }
      #expect(try await gateway.store.watchedChannels() == [Self.general])
      try await gateway.store.set(.normal)
      try await eventually("the hub has no channels") {
        try await gateway.eventLoop.submit({ gateway.loop.value.events.hub.channelCount }).get() <= 0
      }
      #expect(try await gateway.store.watchedChannels() == [])
    }
  }

  @Test func storeReconnectReplaysMissedEvents() async throws {
    try await run { gateway in
      let store = gateway.store
      let stream = try await gateway.client.events(token: alice)
      #expect(await stream.live())
      try await store.advance(milliseconds: 5_000)
      _ = try await store.takeLog()
      try await store.dropConnections { store in
        store.clock = Timestamp(milliseconds: store.clock.milliseconds + 1)
        Self.register("missed", in: store)
      }
      let event = try #require(await stream.event())
      #expect(Self.id(event) == "missed")
      let through = store.startTime.milliseconds + 5_000
      try await eventually("the store has alice's subscriptions") { try await store.subscriptionCount() == 2 }
      #expect(try await store.takeRequests().resumedChannels == ["\(Self.general) \(through)"])
      _ = try await gateway.client.post("/v1/channels/\(Self.general)/messages", #"{"id":"m3"}"#)
      #expect(await stream.types(1) == ["message.new"])
      // Events that the store dropped are replayed in the same way.
      let lost = EventsFields(through: Timestamp(milliseconds: through + 1), isLost: true)
      try await store.send(FrameHeader(.events, shard: store.shard(of: Self.general))) { lost.write(into: &$0) }
      #expect(Self.id(try #require(await stream.event())) == "missed")
    }
  }

  /// Register a message without a sender, as another gateway does.
  private static func register(_ id: String, in store: SynchronousStore) {
    var fields = ByteBuffer()
    fields.writeField(general)
    fields.writeVarint(UInt64(1))
    fields.writeField(id)
    fields.writeEmptyField()
    fields.writeTime(.none)
    fields.writeVarint(UInt64(0))
    _ = store.reply(to: .registerMessage, ShardID.owning(Array(general.utf8).span.bytes, count: 4), fields)
  }

  // MARK: Limits

  /// A client that does not read gets each state once, or a reset, and uses bounded memory.
  @Test func unreadStreamIsConflatedOrReset() async throws {
    var limits = GatewayLimits()
    limits.eventStreamBytes = 512
    limits.heartbeat = .seconds(60)
    try await run(limits: limits) { gateway in
      let stream = try await gateway.client.events(token: alice)
      #expect(await stream.live())
      let loop = gateway.loop
      // In one turn of the loop, so that nothing is sent meanwhile.
      let (count, resets, isReset) = try await gateway.eventLoop.submit {
        let value = loop.value
        for number in 1...UInt32(3_000) { try Self.deliver(value, [Self.read("bob", number)]) }
        let events = value.events.table.all[0]
        let count = events.queue.count
        for number in 1...UInt32(3_000) { try Self.deliver(value, [Self.message("n\(number)", number)]) }
        return (count, value.events.writer.resets, events.queue.isReset)
      }.get()
      #expect(count == 1 && resets == 1 && isReset)
      var types: [String] = []
      while let type = await stream.type() {
        types.append(type)
        if types.contains("stream.reset") { break }
      }
      // Events sent before, the reset, then later events. Two overflows in one turn leave 3,000 - 1,025 - 1,024.
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

  static func deliver(_ loop: GatewayLoop, _ events: [EventFields]) throws {
    let fields = EventsFields(
      through: Timestamp(milliseconds: 2_000),
      channels: [ChannelEventsFields(cid: general, events)]
    )
    var buffer = ByteBuffer()
    fields.write(into: &buffer)
    let shard = ShardID.owning(Array(general.utf8).span.bytes, count: 4)
    try loop.storeEvents(shard, buffer.readableBytesSpan)
  }

  /// Queued events count as memory of the connection. Beyond its limit the stream is reset.
  @Test func queuedEventsCountAsConnectionMemory() async throws {
    var limits = GatewayLimits()
    limits.eventStreamBytes = 512
    limits.heartbeat = .seconds(60)
    var http2 = HTTP2Limits()
    http2.connectionMemoryBytesMax = 40_000
    try await run(limits: limits, http2: http2) { gateway in
      let stream = try await gateway.client.events(token: alice)
      #expect(await stream.live())
      let loop = gateway.loop
      let (held, resets) = try await gateway.eventLoop.submit {
        let value = loop.value
        var held = (idle: value.resources.heldBytes, most: 0)
        for number in 1...UInt32(1_000) {
          try Self.deliver(value, [Self.message("n\(number)", number)])
          held.most = max(held.most, value.resources.heldBytes)
        }
        return (held, value.events.writer.resets)
      }.get()
      #expect(resets == 1 && held.most > 30_000 && held.most < 42_000, "\(held)")
      var isReset = false
      var newest: Int?
      while newest != 1_000, let event = await stream.event() {
        if event["type"] as? String == "stream.reset" { isReset = true }
        newest = (event["message"] as? NSDictionary)?["seq"] as? Int
      }
      #expect(isReset && newest == 1_000)
      try await eventually("no events are queued") {
        try await gateway.eventLoop.submit { loop.value.resources.heldBytes <= held.idle }.get()
      }
    }
  }

  @Test func streamsBeyondLimitAreRefused() async throws {
    var limits = GatewayLimits()
    limits.events.streams = 2
    try await run(limits: limits) { gateway in
      let streams = [
        try await gateway.client.events(token: alice), try await gateway.client.events(token: bob),
      ]
      for stream in streams { #expect(await stream.live()) }
      let response = try await gateway.client.get("/v1/events", token: alice)
      #expect(response.verdict == "503 store_busy" && response.headers["retry-after"] == "1")
      try await gateway.client.cancel(streams[0])
      try await eventually("the hub has released the cancelled stream") {
        try await gateway.eventLoop.submit({ gateway.loop.value.events.hub.streamCount }).get() <= 1
      }
      let third = try await gateway.client.events(token: alice)
      #expect(await third.live())
    }
  }

  /// While the store's window is full, each waiting stream is refused when it is its turn: in order, without recursion.
  @Test func fullWindowRefusesThousandsOfWaitingStreams() async throws {
    try await run { gateway in
      try await gateway.store.set(.silent)
      let loop = gateway.loop
      let (before, after) = try await gateway.eventLoop.submit {
        let value = loop.value
        // No client waits behind these handles, so their answers are dropped.
        func handle(_ number: UInt32) -> HTTP2StreamHandle {
          HTTP2StreamHandle(slot: 1_000_000 + number, generation: 1)
        }
        let connection = ConnectionIndex(0)
        let openings = UInt32(value.limits.events.openings)
        for number in 0..<openings + 5_000 {
          let context = RequestContext(
            route: .events,
            caller: .unauthenticated,
            connection: connection,
            stream: handle(number)
          )
          try value.events.open(EventHub.Request(user: "u\(number)"), context, wantsTotals: false)
        }
        let filler = PendingRequest(
          .response(handle(openings + 5_000), connection: connection),
          route: .events,
          isServer: true
        )
        while value.trySend(.listChannels, to: .shard(ShardID(0), name: nil), filler, { _ in }) {}
        let before = [value.events.table.count, value.events.hub.openings, value.events.hub.waitingCount]
        value.events.aborted(handle(0))
        return (
          before, [value.events.table.count, value.events.hub.openings, value.events.hub.waitingCount]
        )
      }.get()
      #expect(before == [5_064, 64, 5_000])
      #expect(after == [63, 63, 0])
    }
  }

  @Test func streamsBeyondUserLimitAreRefused() async throws {
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

  @Test func concurrentOpeningsAllBecomeLive() async throws {
    var limits = GatewayLimits()
    limits.events.openings = 3
    try await run(limits: limits) { gateway in
      var streams: [TestEventStream] = []
      for number in 0..<200 {
        let token = number % 2 == 0 ? alice : bob
        streams.append(try await gateway.client.events(token: token))
      }
      for stream in streams { #expect(await stream.live()) }
      try await gateway.store.publish(Self.general, Self.message("m1"))
      for stream in streams { #expect(await stream.types(1) == ["message.new alice"]) }
      let waiting = try await gateway.eventLoop.submit { gateway.loop.value.events.hub.waitingCount }.get()
      #expect(waiting == 0)
    }
  }
}
