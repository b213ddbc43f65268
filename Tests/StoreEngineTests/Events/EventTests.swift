import NIOCore
import ReceiptModel
import ReceiptWire
import StoreEngine
import Testing

/// Subscribers receive events together with the commit that makes them durable (Proto/frames.md, "Events").
@Suite("Events")
struct EventTests {
  /// `team:a` of alice and bob, and a second gateway that subscribes to it.
  func watchedHarness(
    configure: (inout StoreLoopConfiguration) -> Void = { _ in }
  ) throws -> (harness: EngineHarness, writer: Gateway, watcher: Gateway) {
    let (harness, writer) = try harnessWithChannel(configure: configure)
    let watcher = harness.connect(session: 2)
    watcher.subscribe(["team:a"])
    harness.loop.endTurn()
    #expect(watcher.take() == ["1 subscribed through 1000"])
    return (harness, writer, watcher)
  }

  // MARK: Delivery

  @Test("an event leaves once durable, with its reply, to the subscribers")
  func eventLeavesOnceDurable() throws {
    let (harness, writer, watcher) = try watchedHarness()
    let stranger = harness.connect(session: 3)
    stranger.subscribe(["team:b"])
    harness.loop.endTurn()
    _ = stranger.take()
    harness.advance(10)
    writer.post("team:a", "m1")
    harness.loop.endTurn()
    #expect(watcher.take() == [] && writer.take() == [])
    try harness.persist()
    #expect(writer.take() == ["2 message 1 new"])
    #expect(watcher.take() == ["events through 1010: team:a new m1 1"])
    #expect(stranger.take() == [])
  }

  @Test("three changes in one commit send one event with the final state, after the reply")
  func threeChangesInOneCommitSendOneEventWithFinalState() throws {
    let (harness, _, watcher) = try watchedHarness()
    for number in 1...3 { watcher.post("team:a", "m\(number)") }
    for number in 1...3 { watcher.read("team:a", "bob", "m\(number)") }
    harness.loop.endTurn()
    try harness.persist()
    #expect(
      watcher.take() == [
        "2 message 1 new", "3 message 2 new", "4 message 3 new", "5 row read 1 unread 2",
        "6 row read 2 unread 1", "7 row read 3 unread 0",
        "events through 1000: team:a new m1 1, new m2 2, new m3 3, row bob read 3 unread 0 shown 3, 1-3 read",
      ]
    )
  }

  @Test("events of the commit in flight precede those of the next one")
  func eventsOfCommitInFlightPrecedeThoseOfNextOne() throws {
    let (harness, writer, watcher) = try watchedHarness()
    writer.post("team:a", "m1")
    harness.loop.endTurn()
    harness.advance(5)
    writer.post("team:a", "m2")
    harness.loop.endTurn()
    #expect(watcher.take() == [])
    try harness.persist()
    #expect(watcher.take() == ["events through 1000: team:a new m1 1"])
    try harness.persist()
    #expect(watcher.take() == ["events through 1005: team:a new m2 2"])
  }

  @Test("a failed commit sends no event, and closes the connection")
  func failedCommitSendsNoEvent() throws {
    let (harness, writer, watcher) = try watchedHarness()
    harness.loop.open(watcher.lane)
    writer.post("team:a", "m1")
    harness.loop.endTurn()
    harness.fail()
    harness.loop.endTurn()
    #expect(watcher.take() == [] && watcher.lane.isClosed)
  }

  @Test("changes and queries without subscribers send no events")
  func changesAndQueriesWithoutSubscribersSendNoEvents() throws {
    let (harness, writer, watcher) = try watchedHarness()
    watcher.unsubscribe(["team:a", "team:never"])
    writer.post("team:a", "m1")
    harness.loop.endTurn()
    try harness.persist()
    for _ in 0..<30 {
      harness.advance(100)
      harness.loop.tick()
    }
    try harness.persistAll()
    #expect(watcher.take() == ["2 unsubscribed"])
    #expect(harness.loop.gauges.subscriptions == 0 && harness.loop.counters.eventsSent == 0)
  }

  @Test("subscribing twice changes nothing, and closing a connection ends its subscriptions")
  func subscribingTwiceChangesNothing() throws {
    let (harness, writer, watcher) = try watchedHarness()
    watcher.subscribe(["team:a", "team:a", "team:b"])
    harness.loop.endTurn()
    #expect(watcher.take() == ["2 subscribed through 1000"])
    #expect(harness.loop.gauges.subscriptions == 2)
    writer.post("team:a", "m1")
    harness.loop.endTurn()
    try harness.persist()
    #expect(watcher.take() == ["events through 1000: team:a new m1 1"])
    harness.loop.close(watcher.lane)
    #expect(harness.loop.gauges.subscriptions == 0 && watcher.lane.backlog.subscriptions == 0)
    writer.post("team:a", "m2")
    harness.loop.endTurn()
    try harness.persist()
    #expect(watcher.take() == [])
  }

  @Test("every kind of event round-trips, in the channel and in a thread")
  func everyKindOfEventRoundTrips() throws {
    let (harness, writer, watcher) = try watchedHarness()
    func events(_ requests: () -> Void) throws -> String {
      requests()
      harness.loop.endTurn()
      try harness.runUntilIdle()
      return watcher.take().joined(separator: " ")
    }
    let posted = try events { writer.post("team:a", "m1", by: "alice", flags: 2) }
    #expect(posted.contains("new m1 1 moving") && !posted.contains("row alice"))
    let replied = try events {
      writer.send(.registerMessage, "team:a", thread: "m1") { payload in
        payload.writeField("r1")
        payload.writeField("bob")
        payload.writeTime(.none)
        payload.writeVarint(UInt64(0))
      }
    }
    #expect(replied.contains("new r1 1 in m1"))
    _ = try events { writer.post("team:a", "m2", by: "bob") }
    let readInThread = try events {
      writer.send(.markRead, "team:a", thread: "m1") { payload in
        payload.writeField("alice")
        payload.writeField("r1")
        payload.writeVarint(0)
      }
    }
    #expect(readInThread.contains("row in m1 alice read 1 unread 0 (1)"))
    let acknowledged = try events {
      writer.send(.acknowledge, "team:a") { payload in
        payload.writeField("bob")
        payload.writeField("seen")
        payload.writeVarint(1)
        payload.writeField("m1")
      }
    }
    #expect(acknowledged.contains("receipt m1 done by bob: seen"))
    #expect(try events { writer.deleteMessage("team:a", "m1") }.contains("deleted m1 1"))
    #expect(try events { writer.truncate("team:a") }.contains("truncated 2"))
    #expect(try events { writer.change("team:a", remove: ["bob"]) }.contains("-bob of 1"))
    #expect(try events { writer.change("team:a", add: ["bob"]) }.contains("+bob of 2 at 2"))
    #expect(try events { writer.deleteChannel("team:a") }.contains("gone"))
  }

  // MARK: Slow connections

  @Test("a connection that falls behind loses events, and is informed once it reads again")
  func connectionThatFallsBehindLosesEvents() throws {
    let (harness, writer, watcher) = try watchedHarness { $0.unwrittenBytesMax = 200 }
    watcher.isSlow = true
    for number in 1...20 {
      writer.post("team:a", "m\(number)")
      harness.loop.endTurn()
      try harness.persist()
    }
    let events = watcher.take()
    #expect(events.count > 1 && events.count < 10)
    #expect(events.last == "events through 1000: team:a new m\(events.count) \(events.count)")
    #expect(harness.loop.counters.eventsDropped == UInt64(20 - events.count))
    watcher.isSlow = false
    watcher.lane.backlog.wrote(watcher.lane.backlog.unwrittenBytes)
    harness.advance(100)
    harness.loop.tick()
    #expect(watcher.take() == ["events lost through 1100"])
    writer.post("team:a", "m21")
    harness.loop.endTurn()
    try harness.persistAll()
    #expect(watcher.take() == ["events through 1100: team:a new m21 21"])
  }

  @Test("events too large for one frame are split; only the last frame advances complete-through")
  func eventsTooLargeForOneFrameAreSplit() throws {
    let (harness, writer, watcher) = try watchedHarness()
    harness.advance(10)
    let id = String(repeating: "x", count: 100)
    for number in 1...4_000 { writer.post("team:a", "\(id)\(number)") }
    harness.loop.endTurn()
    try harness.persist()
    let frames = watcher.take().map { $0.prefix { $0 != ":" } }
    #expect(frames.count > 1)
    #expect(frames.dropLast().allSatisfy { $0 == "events through 1000" })
    #expect(frames.last == "events through 1010")
    #expect(harness.loop.counters.eventsSent == 4_000)
  }

  // MARK: Channels that are created, deleted, evicted

  @Test("a channel subscription covers creation, deletion and a new channel of the same cid")
  func channelSubscriptionCoversDeletionAndNewChannel() throws {
    let (harness, writer, watcher) = try watchedHarness()
    watcher.subscribe(["team:new"])
    writer.put("team:new", ["alice"])
    harness.loop.endTurn()
    try harness.runUntilIdle()
    #expect(
      watcher.take() == [
        "2 subscribed through 1000", "events through 1000: team:new updated of 1, +alice of 1 at 0",
      ]
    )
    writer.post("team:new", "m1")
    writer.deleteChannel("team:new")
    harness.loop.endTurn()
    try harness.runUntilIdle()
    #expect(watcher.take() == ["events through 1000: team:new gone"])
    writer.deleteChannel("team:a")
    writer.put("team:a", ["carol"])
    harness.loop.endTurn()
    try harness.runUntilIdle()
    #expect(watcher.take() == ["events through 1000: team:a gone, updated of 1, +carol of 1 at 0"])
    writer.post("team:a", "n1", by: "carol")
    harness.loop.endTurn()
    try harness.runUntilIdle()
    #expect(watcher.take().last?.contains("new n1 1") == true)
  }

  @Test("an evicted channel sends events again when it is next used")
  func evictedChannelSendsEventsAgainWhenItIsNextUsed() throws {
    let (harness, writer, watcher) = try watchedHarness { $0.residentBytesMax = 1 }
    try harness.writePages()
    #expect(harness.loop.gauges.loadedChannels == 0)
    _ = watcher.take()
    writer.post("team:a", "m1")
    harness.loop.endTurn()
    try harness.completeLoads()
    try harness.persist()
    #expect(watcher.take().first?.hasSuffix("team:a new m1 1") == true)
  }

  @Test("a channel type's changed options are sent to subscribed channels, also those on storage")
  func channelTypeChangedOptionsAreSentToSubscribedChannels() throws {
    let (harness, writer, watcher) = try watchedHarness { $0.residentBytesMax = 1 }
    for cid in ["team:b", "other:a"] {
      writer.put(cid, ["alice"])
      watcher.subscribe([cid])
    }
    harness.loop.endTurn()
    try harness.runUntilIdle()
    try harness.writePages()
    _ = watcher.take()
    writer.patch("team", readEvents: false)
    harness.loop.endTurn()
    try harness.runUntilIdle()
    let events = watcher.take().joined(separator: " ")
    #expect(events.contains("team:a updated of 2") && events.contains("team:b updated of 1"))
    #expect(!events.contains("other:a"))
  }

  // MARK: Users

  @Test("a user's membership events are sent once their index has them; token revocations are sent too")
  func userMembershipEventsAreSentOnceIndexHasThem() throws {
    let (harness, writer) = try harnessWithChannel()
    try harness.runUntilIdle()
    let watcher = harness.connect(session: 2)
    watcher.subscribe(user: "bob")
    harness.loop.endTurn()
    #expect(watcher.take() == ["1 user subscribed through 1000"])
    writer.put("team:b", ["alice", "bob"])
    harness.loop.endTurn()
    try harness.runUntilIdle()
    #expect(watcher.take() == ["events through 1000: bob in team:b"])
    writer.change("team:b", remove: ["bob"])
    harness.loop.endTurn()
    try harness.runUntilIdle()
    #expect(watcher.take() == ["events through 1000: bob left team:b"])
    writer.send(.patchUser, "bob") { payload in
      payload.writeVarint(UInt64(4))
      payload.writeVarint(UInt64(0))
      payload.writeTime(Timestamp(milliseconds: 50_000))
    }
    harness.loop.endTurn()
    try harness.runUntilIdle()
    #expect(watcher.take() == ["events through 1000: bob revoked before 50000"])
    watcher.subscribe(user: "bob", issued: 49)
    watcher.subscribe(user: "bob", on: 0)
    harness.loop.endTurn()
    #expect(watcher.take() == ["2 token_revoked", "3 user subscribed through 1000"])
    writer.put("team:c", ["bob"])
    harness.loop.endTurn()
    try harness.runUntilIdle()
    #expect(watcher.take() == [])
  }
}
