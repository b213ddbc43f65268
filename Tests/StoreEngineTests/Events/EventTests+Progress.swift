import ReceiptModel
import ReceiptWire
import StoreEngine
import Testing

/// Complete-through of idle shards and of large channels, and events caused by time alone.
extension EventTests {
  // MARK: Complete through

  @Test("an idle shard sends progress about once a second; a shard with a commit in flight waits for it")
  func idleShardSendsProgress() throws {
    let (harness, writer, watcher) = try watchedHarness()
    for _ in 0..<20 {
      harness.advance(100)
      harness.loop.tick()
      try harness.persistAll()
    }
    #expect(watcher.take() == ["events through 1900", "events through 2800"])
    writer.post("team:a", "m1")
    harness.loop.endTurn()
    harness.advance(5_000)
    harness.loop.tick()
    #expect(watcher.take() == [])
    try harness.persist()
    #expect(watcher.take().first == "events through 3000: team:a new m1 1")
  }

  @Test(
    "an idle shard logs its time periodically; a time that it only sent counts as logged"
  )
  func idleShardLogsTimePeriodically() throws {
    let (harness, _, watcher) = try watchedHarness()
    for _ in 0..<4 {
      harness.advance(1_000)
      harness.loop.tick()
      #expect(harness.commits.isEmpty)
    }
    #expect(watcher.take().last == "events through 5000")
    // The store restarts with a clock that is behind the times that it sent.
    let again = try EngineHarness(harness.storage)
    again.clock = 3_000
    again.advance(0)
    let other = again.connect(session: 3)
    other.post("team:a", "m1")
    again.loop.endTurn()
    try again.completeLoads()
    try again.persistAll()
    again.advance(10_000)
    other.subscribe(["team:a"], since: 5_000)
    other.subscribe(["team:a"], since: 11_001)
    again.loop.endTurn()
    try again.persistAll()
    let events = other.take()
    #expect(events.contains { $0.hasPrefix("2 subscribed") && $0.contains("new m1 1") }, "\(events)")
    #expect(events.contains { $0.hasPrefix("3 subscribed") && !$0.contains("new m1 1") }, "\(events)")
    // A busy shard logs its time, and sends no later time than that allows.
    harness.advance(1_000)
    harness.loop.tick()
    #expect(harness.commits.count == 1 && watcher.take() == [])
    try harness.persistAll()
    #expect(watcher.take() == ["events through 6000"])
  }

  @Test("a subscription to an idle shard logs the shard's time, and is answered with it")
  func subscriptionToIdleShardLogsTime() throws {
    let (harness, writer) = try harnessWithChannel()
    let watcher = harness.connect(session: 2)
    harness.advance(3_600_000)
    watcher.subscribe(["team:a"])
    watcher.subscribe(["team:b"])
    harness.loop.endTurn()
    #expect(watcher.take() == [] && harness.commits.count == 1)
    harness.advance(5)
    watcher.subscribe(["team:c"])
    harness.loop.endTurn()
    #expect(watcher.take() == [])
    try harness.persistAll()
    #expect(
      watcher.take() == [
        "1 subscribed through 3601000", "2 subscribed through 3600999", "3 subscribed through 3601000",
      ]
    )
    watcher.subscribe(["team:d"])
    harness.loop.endTurn()
    #expect(watcher.take() == ["4 subscribed through 3601005"] && harness.commits.isEmpty)
    // With a change about to be logged, the progress covers only the events before it.
    watcher.unsubscribe(["team:a", "team:b", "team:c", "team:d"])
    harness.loop.endTurn()
    _ = watcher.take()
    harness.advance(60_000)
    writer.post("team:a", "m1")
    watcher.subscribe(["team:a"])
    harness.loop.endTurn()
    #expect(watcher.take() == [])
    try harness.persistAll()
    #expect(watcher.take().first == "6 subscribed through 3661004")
  }

  @Test(
    "in a large channel row events leave once per interval and hold complete-through back; messages leave at once"
  )
  func rowEventsOfLargeChannelLeaveOncePerInterval() throws {
    let (harness, writer, watcher) = try watchedHarness { $0.eventIntervalMembers = 1 }
    func after(_ milliseconds: Int64, _ ask: () -> Void) throws {
      harness.advance(milliseconds)
      ask()
      harness.loop.endTurn()
      try harness.persist()
    }
    try after(300) { writer.post("team:a", "m1") }
    #expect(watcher.take() == ["events through 1300: team:a new m1 1"])
    try after(300) { writer.post("team:a", "m2") }
    #expect(watcher.take() == ["events through 1599: team:a new m2 2"])
    try after(100) { writer.read("team:a", "bob", "m1") }
    try after(200) { writer.read("team:a", "bob", "m2") }
    harness.loop.tick()
    #expect(watcher.take() == [])
    try after(100) { writer.change("team:a", add: ["carol"]) }
    #expect(watcher.take() == ["events through 1599: team:a +carol of 3 at 2"])
    harness.advance(500)
    harness.loop.tick()
    #expect(watcher.take() == ["events through 2500: team:a row bob read 2 unread 0 shown 2, 1-2 read"])
    // Events within the interval hold back complete-through in a small channel's frame.
    try after(300) { writer.read("team:a", "alice", "m2") }
    writer.put("team:small")
    harness.loop.endTurn()
    try harness.runUntilIdle()
    #expect(watcher.take() == [])
    harness.advance(1_000)
    harness.loop.tick()
    try harness.persistAll()
    #expect(watcher.take() == ["events through 3800: team:a row alice read 2 unread 0 shown 2"])
  }

  // MARK: Requests that expire

  private func setRequestTTL(_ seconds: UInt32, _ harness: EngineHarness, _ writer: Gateway) throws {
    var patch = OptionPatch()
    patch.receiptTTL = .value(seconds)
    writer.send(.patchChannelType, "team") { $0.writeOptionPatch(patch) }
    harness.loop.endTurn()
    try harness.runUntilIdle()
  }

  @Test("an expired acknowledgement request sends its event once its time is durable; complete-through waits for it")
  func expiredRequestSendsEventOnceTimeIsDurable() throws {
    let (harness, writer, watcher) = try watchedHarness()
    try setRequestTTL(10, harness, writer)
    writer.post("team:a", "m1", by: "alice", flags: 2)
    writer.post("team:a", "done", by: "alice", flags: 2)
    writer.acknowledge("team:a", "bob", ["done"])
    harness.loop.endTurn()
    try harness.runUntilIdle()
    harness.advance(9_999)
    harness.loop.tick()
    try harness.persistAll()
    #expect(watcher.take().last == "events through 10999")
    harness.advance(1)
    writer.post("team:a", "m2")
    harness.loop.endTurn()
    try harness.persist()
    #expect(watcher.take() == ["events through 10999: team:a new m2 3"])
    harness.loop.tick()
    #expect(watcher.take() == [])
    try harness.persist()
    #expect(watcher.take() == ["events through 11000: team:a receipt m1 expired by : "])
    harness.loop.tick()
    try harness.persistAll()
    #expect(watcher.take() == [])
  }

  @Test("a resumed client gets expired acknowledgement requests only once a restarted shard cannot undo the expiry")
  func resumedClientGetsDurableExpiriesOnly() throws {
    let (harness, writer) = try harnessWithChannel()
    try setRequestTTL(10, harness, writer)
    writer.post("team:a", "m1", by: "alice", flags: 2)
    harness.loop.endTurn()
    try harness.runUntilIdle()
    harness.advance(8_000)
    writer.post("team:a", "m2")
    harness.loop.endTurn()
    try harness.runUntilIdle()
    harness.advance(3_000)
    let watcher = harness.connect(session: 2)
    for since in [11_000, 11_001] as [Int64] { watcher.subscribe(["team:a"], since: since) }
    harness.loop.endTurn()
    #expect(watcher.take().map { $0.prefix { $0 != " " } } == ["2"])
    try harness.persist()
    #expect(
      watcher.take().contains { $0.hasPrefix("1 ") && $0.hasSuffix(": team:a receipt m1 expired by : ") }
    )
    // The clock is set back, and the reply stays the same.
    let again = try EngineHarness(harness.storage)
    again.advance(0)
    let other = again.connect(session: 3)
    other.subscribe(["team:a"], since: 11_000)
    again.loop.endTurn()
    try again.completeLoads()
    #expect(other.take().last?.hasSuffix(": team:a receipt m1 expired by : ") == true)
  }

  @Test("a subscribed channel that was evicted is read when one of its acknowledgement requests expires")
  func evictedChannelIsReadWhenRequestExpires() throws {
    let (harness, writer, watcher) = try watchedHarness { $0.residentBytesMax = 1 }
    try setRequestTTL(1_000, harness, writer)
    writer.post("team:a", "m1", by: "alice", flags: 2)
    harness.loop.endTurn()
    try harness.runUntilIdle()
    let expiry = harness.clock + 1_000_000
    try harness.writePages()
    #expect(harness.loop.gauges.loadedChannels == 0)
    _ = watcher.take()
    harness.advance(expiry - harness.clock + 5)
    harness.loop.tick()
    #expect(!harness.loads.isEmpty)
    #expect(watcher.take().allSatisfy { $0 == "events through \(expiry - 1)" })
    try harness.completeLoads()
    #expect(watcher.take() == [])
    try harness.persistAll()
    #expect(watcher.take().last == "events through \(expiry + 5): team:a receipt m1 expired by : ")
  }
}
