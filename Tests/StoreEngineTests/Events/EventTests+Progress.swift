import ReceiptModel
import ReceiptWire
import StoreEngine
import Testing

/// Complete-through of idle shards and of large channels, and events caused by time alone.
extension EventTests {
  // MARK: Complete through

  @Test("an idle shard sends progress about once a second; a shard with a commit in flight waits for it")
  func through() throws {
    let (world, writer, watcher) = try watchedWorld()
    for _ in 0..<20 {
      world.advance(100)
      world.loop.tick()
      try world.persistAll()
    }
    #expect(watcher.take() == ["events through 1900", "events through 2800"])
    writer.post("team:a", "m1")
    world.loop.endTurn()
    world.advance(5_000)
    world.loop.tick()
    #expect(watcher.take() == [])
    try world.persist()
    #expect(watcher.take().first == "events through 3000: team:a new m1 1")
  }

  @Test(
    "an idle shard logs its time periodically; a time that it only sent counts as logged"
  )
  func unlogged() throws {
    let (world, _, watcher) = try watchedWorld()
    for _ in 0..<4 {
      world.advance(1_000)
      world.loop.tick()
      #expect(world.commits.isEmpty)
    }
    #expect(watcher.take().last == "events through 5000")
    // The store restarts with a clock that is behind the times that it sent.
    let again = try EngineWorld(world.storage)
    again.clock = 3_000
    again.advance(0)
    let other = again.connect(session: 3)
    other.post("team:a", "m1")
    again.loop.endTurn()
    try again.answerLoads()
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
    world.advance(1_000)
    world.loop.tick()
    #expect(world.commits.count == 1 && watcher.take() == [])
    try world.persistAll()
    #expect(watcher.take() == ["events through 6000"])
  }

  @Test("a subscription to an idle shard logs the shard's time, and is answered with it")
  func atRest() throws {
    let (world, writer) = try settledWorld()
    let watcher = world.connect(session: 2)
    world.advance(3_600_000)
    watcher.subscribe(["team:a"])
    watcher.subscribe(["team:b"])
    world.loop.endTurn()
    #expect(watcher.take() == [] && world.commits.count == 1)
    world.advance(5)
    watcher.subscribe(["team:c"])
    world.loop.endTurn()
    #expect(watcher.take() == [])
    try world.persistAll()
    #expect(
      watcher.take() == [
        "1 subscribed through 3601000", "2 subscribed through 3600999", "3 subscribed through 3601000",
      ]
    )
    watcher.subscribe(["team:d"])
    world.loop.endTurn()
    #expect(watcher.take() == ["4 subscribed through 3601005"] && world.commits.isEmpty)
    // With a change about to be logged, the progress covers only the events before it.
    watcher.unsubscribe(["team:a", "team:b", "team:c", "team:d"])
    world.loop.endTurn()
    _ = watcher.take()
    world.advance(60_000)
    writer.post("team:a", "m1")
    watcher.subscribe(["team:a"])
    world.loop.endTurn()
    #expect(watcher.take() == [])
    try world.persistAll()
    #expect(watcher.take().first == "6 subscribed through 3661004")
  }

  @Test(
    "in a large channel row events leave once per interval and hold complete-through back; messages leave at once"
  )
  func interval() throws {
    let (world, writer, watcher) = try watchedWorld { $0.eventIntervalMembers = 1 }
    func after(_ milliseconds: Int64, _ ask: () -> Void) throws {
      world.advance(milliseconds)
      ask()
      world.loop.endTurn()
      try world.persist()
    }
    try after(300) { writer.post("team:a", "m1") }
    #expect(watcher.take() == ["events through 1300: team:a new m1 1"])
    try after(300) { writer.post("team:a", "m2") }
    #expect(watcher.take() == ["events through 1599: team:a new m2 2"])
    try after(100) { writer.read("team:a", "bob", "m1") }
    try after(200) { writer.read("team:a", "bob", "m2") }
    world.loop.tick()
    #expect(watcher.take() == [])
    try after(100) { writer.change("team:a", add: ["carol"]) }
    #expect(watcher.take() == ["events through 1599: team:a +carol of 3 at 2"])
    world.advance(500)
    world.loop.tick()
    #expect(watcher.take() == ["events through 2500: team:a row bob read 2 unread 0 shown 2, 1-2 read"])
    // Events within the interval hold back complete-through in a small channel's frame.
    try after(300) { writer.read("team:a", "alice", "m2") }
    writer.put("team:small")
    world.loop.endTurn()
    try world.settle()
    #expect(watcher.take() == [])
    world.advance(1_000)
    world.loop.tick()
    try world.persistAll()
    #expect(watcher.take() == ["events through 3800: team:a row alice read 2 unread 0 shown 2"])
  }

  // MARK: Receipts that expire

  private func setReceiptTTL(_ seconds: UInt32, _ world: EngineWorld, _ writer: Gateway) throws {
    var patch = OptionPatch()
    patch.receiptTTL = .value(seconds)
    writer.send(.patchChannelType, "team") { $0.writeOptionPatch(patch) }
    world.loop.endTurn()
    try world.settle()
  }

  @Test("an expired receipt sends its event once its time is durable; complete-through waits for it")
  func expiry() throws {
    let (world, writer, watcher) = try watchedWorld()
    try setReceiptTTL(10, world, writer)
    writer.post("team:a", "m1", by: "alice", flags: 2)
    writer.post("team:a", "done", by: "alice", flags: 2)
    writer.acknowledge("team:a", "bob", ["done"])
    world.loop.endTurn()
    try world.settle()
    world.advance(9_999)
    world.loop.tick()
    try world.persistAll()
    #expect(watcher.take().last == "events through 10999")
    world.advance(1)
    writer.post("team:a", "m2")
    world.loop.endTurn()
    try world.persist()
    #expect(watcher.take() == ["events through 10999: team:a new m2 3"])
    world.loop.tick()
    #expect(watcher.take() == [])
    try world.persist()
    #expect(watcher.take() == ["events through 11000: team:a receipt m1 expired by : "])
    world.loop.tick()
    try world.persistAll()
    #expect(watcher.take() == [])
  }

  @Test("a resumed client gets expired receipts only once a restarted shard cannot undo the expiry")
  func expiryMeanwhile() throws {
    let (world, writer) = try settledWorld()
    try setReceiptTTL(10, world, writer)
    writer.post("team:a", "m1", by: "alice", flags: 2)
    world.loop.endTurn()
    try world.settle()
    world.advance(8_000)
    writer.post("team:a", "m2")
    world.loop.endTurn()
    try world.settle()
    world.advance(3_000)
    let watcher = world.connect(session: 2)
    for since in [11_000, 11_001] as [Int64] { watcher.subscribe(["team:a"], since: since) }
    world.loop.endTurn()
    #expect(watcher.take().map { $0.prefix { $0 != " " } } == ["2"])
    try world.persist()
    #expect(
      watcher.take().contains { $0.hasPrefix("1 ") && $0.hasSuffix(": team:a receipt m1 expired by : ") }
    )
    // The clock is set back, and the answer stays the same.
    let again = try EngineWorld(world.storage)
    again.advance(0)
    let other = again.connect(session: 3)
    other.subscribe(["team:a"], since: 11_000)
    again.loop.endTurn()
    try again.answerLoads()
    #expect(other.take().last?.hasSuffix(": team:a receipt m1 expired by : ") == true)
  }

  @Test("a subscribed channel that was evicted is read when one of its receipts expires")
  func expiryCold() throws {
    let (world, writer, watcher) = try watchedWorld { $0.residentBytesMax = 1 }
    try setReceiptTTL(1_000, world, writer)
    writer.post("team:a", "m1", by: "alice", flags: 2)
    world.loop.endTurn()
    try world.settle()
    let expiry = world.clock + 1_000_000
    try world.checkpoint()
    #expect(world.loop.gauges.loadedChannels == 0)
    _ = watcher.take()
    world.advance(expiry - world.clock + 5)
    world.loop.tick()
    #expect(!world.loads.isEmpty)
    #expect(watcher.take().allSatisfy { $0 == "events through \(expiry - 1)" })
    try world.answerLoads()
    #expect(watcher.take() == [])
    try world.persistAll()
    #expect(watcher.take().last == "events through \(expiry + 5): team:a receipt m1 expired by : ")
  }
}
