import NIOCore
import ReceiptModel
import ReceiptWire
import StoreEngine
import Testing

/// Events leave with the commit that makes durable what they tell, to those who have subscribed (Proto/frames.md, "Events").
@Suite("Events")
struct EventTests {
  /// `team:a` of alice and bob, and a second gateway that watches it.
  private func watchedWorld(
    configure: (inout StoreLoopConfiguration) -> Void = { _ in }
  ) throws -> (world: EngineWorld, writer: Gateway, watcher: Gateway) {
    let (world, writer) = try settledWorld(configure: configure)
    let watcher = world.connect(session: 2)
    watcher.subscribe(["team:a"])
    world.loop.endTurn()
    #expect(watcher.take() == ["1 subscribed through 1000"])
    return (world, writer, watcher)
  }

  // MARK: Telling

  @Test("an event leaves when it is durable, with its reply, to those who watch")
  func durable() throws {
    let (world, writer, watcher) = try watchedWorld()
    let stranger = world.connect(session: 3)
    stranger.subscribe(["team:b"])
    world.loop.endTurn()
    _ = stranger.take()
    world.pass(10)
    writer.post("team:a", "m1")
    world.loop.endTurn()
    #expect(watcher.take() == [] && writer.take() == [])
    try world.persist()
    #expect(writer.take() == ["2 message 1 new"])
    #expect(watcher.take() == ["events through 1010: team:a new m1 1"])
    #expect(stranger.take() == [])
  }

  @Test("what happens three times in a commit is told once, as it is; a reply goes before it")
  func states() throws {
    let (world, _, watcher) = try watchedWorld()
    for number in 1...3 { watcher.post("team:a", "m\(number)") }
    for number in 1...3 { watcher.read("team:a", "bob", "m\(number)") }
    world.loop.endTurn()
    try world.persist()
    #expect(
      watcher.take() == [
        "2 message 1 new", "3 message 2 new", "4 message 3 new", "5 row read 1 unread 2",
        "6 row read 2 unread 1", "7 row read 3 unread 0",
        "events through 1000: team:a new m1 1, new m2 2, new m3 3, row bob read 3 unread 0 shown 3, 1-3 read",
      ]
    )
  }

  @Test("what is in flight and what gathers is told one after the other")
  func order() throws {
    let (world, writer, watcher) = try watchedWorld()
    writer.post("team:a", "m1")
    world.loop.endTurn()
    world.pass(5)
    writer.post("team:a", "m2")
    world.loop.endTurn()
    #expect(watcher.take() == [])
    try world.persist()
    #expect(watcher.take() == ["events through 1000: team:a new m1 1"])
    try world.persist()
    #expect(watcher.take() == ["events through 1005: team:a new m2 2"])
  }

  @Test("a commit that fails leaves no event, and ends the connection")
  func failure() throws {
    let (world, writer, watcher) = try watchedWorld()
    world.loop.open(watcher.lane)
    writer.post("team:a", "m1")
    world.loop.endTurn()
    world.fail()
    world.loop.endTurn()
    #expect(watcher.take() == [] && watcher.lane.isClosed)
  }

  @Test("a server that only makes and reads what nobody watches tells nobody")
  func unwatched() throws {
    let (world, writer, watcher) = try watchedWorld()
    watcher.unsubscribe(["team:a", "team:never"])
    writer.post("team:a", "m1")
    world.loop.endTurn()
    try world.persist()
    for _ in 0..<30 {
      world.pass(100)
      world.loop.tick()
    }
    try world.persistAll()
    #expect(watcher.take() == ["2 unsubscribed"])
    #expect(world.loop.gauges.subscriptions == 0 && world.loop.counters.eventsSent == 0)
  }

  @Test("subscribing twice changes nothing, and the end of a connection ends what it watched")
  func twice() throws {
    let (world, writer, watcher) = try watchedWorld()
    watcher.subscribe(["team:a", "team:a", "team:b"])
    world.loop.endTurn()
    #expect(watcher.take() == ["2 subscribed through 1000"])
    #expect(world.loop.gauges.subscriptions == 2)
    writer.post("team:a", "m1")
    world.loop.endTurn()
    try world.persist()
    #expect(watcher.take() == ["events through 1000: team:a new m1 1"])
    world.loop.close(watcher.lane)
    #expect(world.loop.gauges.subscriptions == 0 && watcher.lane.account.subscriptions == 0)
    writer.post("team:a", "m2")
    world.loop.endTurn()
    try world.persist()
    #expect(watcher.take() == [])
  }

  @Test("every kind of event is read as it was written, in the channel and in a thread")
  func kinds() throws {
    let (world, writer, watcher) = try watchedWorld()
    func told(_ requests: () -> Void) throws -> String {
      requests()
      world.loop.endTurn()
      try world.settle()
      return watcher.take().joined(separator: " ")
    }
    let posted = try told { writer.post("team:a", "m1", by: "alice", flags: 2) }
    #expect(posted.contains("new m1 1") && posted.contains("row alice read 1 unread 0 shown 1"))
    let replied = try told {
      writer.send(.registerMessage, "team:a", thread: "m1") { payload in
        payload.writeField("r1")
        payload.writeField("bob")
        payload.writeTime(.none)
        payload.writeVarint(UInt64(0))
      }
    }
    #expect(replied.contains("new r1 1 in m1"))
    let readInThread = try told {
      writer.send(.markRead, "team:a", thread: "m1") { payload in
        payload.writeField("alice")
        payload.writeField("r1")
        payload.writeVarint(0)
      }
    }
    #expect(readInThread.contains("row in m1 alice read 1 unread 0"))
    let acknowledged = try told {
      writer.send(.acknowledge, "team:a") { payload in
        payload.writeField("bob")
        payload.writeField("seen")
        payload.writeVarint(1)
        payload.writeField("m1")
      }
    }
    #expect(acknowledged.contains("receipt m1 done by bob: seen"))
    #expect(try told { writer.delete("team:a", "m1") }.contains("deleted m1 1"))
    #expect(try told { writer.truncate("team:a") }.contains("truncated 1"))
    #expect(try told { writer.change("team:a", remove: ["bob"]) }.contains("-bob of 1"))
    #expect(try told { writer.change("team:a", add: ["bob"]) }.contains("+bob of 2 at 1"))
    #expect(try told { writer.end("team:a") }.contains("gone"))
  }

  // MARK: How far all is told

  @Test("an idle shard says about once a second that all is told; one with a commit on its way waits for it")
  func through() throws {
    let (world, writer, watcher) = try watchedWorld()
    for _ in 0..<20 {
      world.pass(100)
      world.loop.tick()
      try world.persistAll()
    }
    #expect(watcher.take() == ["events through 1900", "events through 2800"])
    writer.post("team:a", "m1")
    world.loop.endTurn()
    world.pass(5_000)
    world.loop.tick()
    #expect(watcher.take() == [])
    try world.persist()
    #expect(watcher.take().first == "events through 3000: team:a new m1 1")
  }

  @Test(
    "an idle shard logs its time now and then; a time that it only told counts as the one that it had logged"
  )
  func unlogged() throws {
    let (world, _, watcher) = try watchedWorld()
    for _ in 0..<4 {
      world.pass(1_000)
      world.loop.tick()
      #expect(world.commits.isEmpty)
    }
    #expect(watcher.take().last == "events through 5000")
    // It starts again, with the clock put back behind what it has told.
    let again = try EngineWorld(world.storage)
    again.clock = 3_000
    again.pass(0)
    let other = again.connect(session: 3)
    other.post("team:a", "m1")
    again.loop.endTurn()
    try again.answerLoads()
    try again.persistAll()
    again.pass(10_000)
    other.subscribe(["team:a"], since: 5_000)
    other.subscribe(["team:a"], since: 11_001)
    again.loop.endTurn()
    let told = other.take()
    #expect(told.contains { $0.hasPrefix("2 subscribed") && $0.contains("new m1 1") }, "\(told)")
    #expect(told.contains { $0.hasPrefix("3 subscribed") && !$0.contains("new m1 1") }, "\(told)")
    // One that goes on logs its time, and tells no more than that allows.
    world.pass(1_000)
    world.loop.tick()
    #expect(world.commits.count == 1 && watcher.take() == [])
    try world.persistAll()
    #expect(watcher.take() == ["events through 6000"])
    world.pass(60_000)
    watcher.subscribe(["team:b"])
    world.loop.endTurn()
    #expect(watcher.take() == ["2 subscribed through 16000"])
    world.loop.tick()
    try world.persistAll()
    #expect(watcher.take() == ["events through 66000"])
  }

  @Test(
    "in a large channel rows are told once per interval, stay in memory until then, and hold back how far all is told; messages are told at once"
  )
  func interval() throws {
    let (world, writer, watcher) = try watchedWorld { $0.eventIntervalMembers = 1 }
    func after(_ milliseconds: Int64, _ ask: () -> Void) throws {
      world.pass(milliseconds)
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
    world.pass(500)
    world.loop.tick()
    #expect(watcher.take() == ["events through 2500: team:a row bob read 2 unread 0 shown 2, 1-2 read"])
    // What came within the interval holds back what a small channel's frame says.
    try after(300) { writer.read("team:a", "alice", "m2") }
    writer.put("team:small")
    world.loop.endTurn()
    try world.settle()
    #expect(watcher.take() == [])
    world.pass(1_000)
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

  @Test("a receipt that expires is told when its time is durable; how far all is told waits for it")
  func expiry() throws {
    let (world, writer, watcher) = try watchedWorld()
    try setReceiptTTL(10, world, writer)
    writer.post("team:a", "m1", by: "alice", flags: 2)
    writer.post("team:a", "done", by: "alice", flags: 2)
    writer.acknowledge("team:a", "bob", ["done"])
    world.loop.endTurn()
    try world.settle()
    world.pass(9_999)
    world.loop.tick()
    try world.persistAll()
    #expect(watcher.take().last == "events through 10999")
    world.pass(1)
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

  @Test("who comes back is told what has expired, once a shard that starts again cannot take it back")
  func expiryMeanwhile() throws {
    let (world, writer) = try settledWorld()
    try setReceiptTTL(10, world, writer)
    writer.post("team:a", "m1", by: "alice", flags: 2)
    world.loop.endTurn()
    try world.settle()
    world.pass(20_000)
    let watcher = world.connect(session: 2)
    for since in [11_000, 11_001] as [Int64] { watcher.subscribe(["team:a"], since: since) }
    world.loop.endTurn()
    #expect(watcher.take().map { $0.prefix { $0 != " " } } == ["2"])
    try world.persist()
    #expect(
      watcher.take().contains { $0.hasPrefix("1 ") && $0.hasSuffix(": team:a receipt m1 expired by : ") }
    )
    // The clock is put back: the answer holds.
    let again = try EngineWorld(world.storage)
    again.pass(0)
    let other = again.connect(session: 3)
    other.subscribe(["team:a"], since: 11_000)
    again.loop.endTurn()
    try again.answerLoads()
    #expect(other.take().last?.hasSuffix(": team:a receipt m1 expired by : ") == true)
  }

  @Test("a watched channel that has left memory is read when one of its receipts expires")
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
    world.pass(expiry - world.clock + 5)
    world.loop.tick()
    #expect(!world.loads.isEmpty)
    #expect(watcher.take().allSatisfy { $0 == "events through \(expiry - 1)" })
    try world.answerLoads()
    #expect(watcher.take() == [])
    try world.persistAll()
    #expect(watcher.take().last == "events through \(expiry + 5): team:a receipt m1 expired by : ")
  }

  // MARK: Connections that take nothing

  @Test("a connection that takes nothing loses events, and is told so once it takes some again")
  func slow() throws {
    let (world, writer, watcher) = try watchedWorld { $0.unwrittenBytesMax = 200 }
    watcher.isSlow = true
    for number in 1...20 {
      writer.post("team:a", "m\(number)")
      world.loop.endTurn()
      try world.persist()
    }
    let told = watcher.take()
    #expect(told.count > 1 && told.count < 10)
    #expect(told.last == "events through 1000: team:a new m\(told.count) \(told.count)")
    #expect(world.loop.counters.eventsDropped == UInt64(20 - told.count))
    watcher.isSlow = false
    watcher.lane.account.wrote(watcher.lane.account.unwrittenBytes)
    world.pass(100)
    world.loop.tick()
    #expect(watcher.take() == ["events lost through 1100"])
    writer.post("team:a", "m21")
    world.loop.endTurn()
    try world.persistAll()
    #expect(watcher.take() == ["events through 1100: team:a new m21 21"])
  }

  @Test("what is too much for one frame comes in several, of which the last says how far all is told")
  func frames() throws {
    let (world, writer, watcher) = try watchedWorld()
    world.pass(10)
    let id = String(repeating: "x", count: 100)
    for number in 1...4_000 { writer.post("team:a", "\(id)\(number)") }
    world.loop.endTurn()
    try world.persist()
    let frames = watcher.take().map { $0.prefix { $0 != ":" } }
    #expect(frames.count > 1)
    #expect(frames.dropLast().allSatisfy { $0 == "events through 1000" })
    #expect(frames.last == "events through 1010")
    #expect(world.loop.counters.eventsSent == 4_000)
  }

  // MARK: Channels that come and go

  @Test("a channel is watched before it exists, when it is deleted, and when another has its name")
  func deleted() throws {
    let (world, writer, watcher) = try watchedWorld()
    watcher.subscribe(["team:new"])
    writer.put("team:new", ["alice"])
    world.loop.endTurn()
    try world.settle()
    #expect(
      watcher.take() == [
        "2 subscribed through 1000", "events through 1000: team:new updated of 1, +alice of 1 at 0",
      ]
    )
    writer.post("team:new", "m1")
    writer.end("team:new")
    world.loop.endTurn()
    try world.settle()
    #expect(watcher.take() == ["events through 1000: team:new gone"])
    writer.end("team:a")
    writer.put("team:a", ["carol"])
    world.loop.endTurn()
    try world.settle()
    #expect(watcher.take() == ["events through 1000: team:a gone, updated of 1, +carol of 1 at 0"])
    writer.post("team:a", "n1", by: "carol")
    world.loop.endTurn()
    try world.settle()
    #expect(watcher.take().last?.contains("new n1 1") == true)
  }

  @Test("a channel that left memory is told of when it is used again")
  func cold() throws {
    let (world, writer, watcher) = try watchedWorld { $0.residentBytesMax = 1 }
    try world.checkpoint()
    #expect(world.loop.gauges.loadedChannels == 0)
    _ = watcher.take()
    writer.post("team:a", "m1")
    world.loop.endTurn()
    try world.answerLoads()
    try world.persist()
    #expect(watcher.take().first?.hasSuffix("team:a new m1 1") == true)
  }

  @Test("the options of a type are told to its watched channels, those on storage too")
  func types() throws {
    let (world, writer, watcher) = try watchedWorld { $0.residentBytesMax = 1 }
    for cid in ["team:b", "other:a"] {
      writer.put(cid, ["alice"])
      watcher.subscribe([cid])
    }
    world.loop.endTurn()
    try world.settle()
    try world.checkpoint()
    _ = watcher.take()
    writer.patch("team", readEvents: false)
    world.loop.endTurn()
    try world.settle()
    let told = watcher.take().joined(separator: " ")
    #expect(told.contains("team:a updated of 2") && told.contains("team:b updated of 1"))
    #expect(!told.contains("other:a"))
  }

  // MARK: What has changed

  @Test("a subscription tells what has changed since then, and leaves when that is durable")
  func since() throws {
    let (world, writer) = try settledWorld()
    let watcher = world.connect(session: 2)
    writer.post("team:a", "m1")
    world.loop.endTurn()
    try world.persistAll()
    world.pass(100)
    writer.post("team:a", "m2", by: "bob")
    world.loop.endTurn()
    watcher.subscribe(["team:a"], since: 1_100)
    world.loop.endTurn()
    #expect(watcher.take() == [])
    try world.persist()
    #expect(
      watcher.take() == [
        "1 subscribed through 1000: team:a new m2 2, row bob read 2 unread 0 shown 2, 1-1 read, 2-2 sent"
      ]
    )
    world.pass(10)
    watcher.subscribe(["team:a"], since: 1_101)
    world.loop.endTurn()
    #expect(watcher.take() == ["2 subscribed through 1110"])
  }

  @Test("what is on storage is read, what does not exist is gone, and what moved meanwhile is told as it is")
  func sinceCold() throws {
    let world = try EngineWorld { $0.residentBytesMax = 1 }
    let writer = world.connect()
    writer.put("team:a", ["alice"])
    writer.put("team:b", ["alice"])
    world.loop.endTurn()
    try world.settle()
    writer.post("team:a", "m1")
    writer.post("team:b", "n1")
    world.loop.endTurn()
    try world.settle()
    try world.checkpoint()
    let watcher = world.connect(session: 2)
    watcher.subscribe(["team:a", "team:b", "team:never"], since: 1_000)
    world.loop.endTurn()
    #expect(!world.loads.isEmpty && watcher.take() == [])
    try world.answerLoad(.cid(Array("team:a".utf8)))
    writer.post("team:a", "m2")
    world.loop.endTurn()
    try world.answerLoads()
    try world.settle()
    let told = watcher.take()
    #expect(
      told.contains {
        $0.hasSuffix(
          "team:b gone, updated of 1, new n1 1, +alice of 1 at 0; team:never gone; team:a gone, updated of 1, new m1 1, +alice of 1 at 0, new m2 2"
        )
      },
      "\(told)"
    )
  }

  @Test("of a channel that was made anew it is told that the one before is gone, and then how it is")
  func sinceMadeAnew() throws {
    let (world, writer) = try settledWorld()
    writer.post("team:a", "m1")
    world.pass(10)
    writer.end("team:a")
    world.pass(10)
    writer.put("team:a", ["bob"])
    writer.post("team:a", "n1")
    writer.put("team:empty")
    world.loop.endTurn()
    try world.settle()
    let watcher = world.connect(session: 2)
    for since in [1_010, 1_020, 1_021] as [Int64] {
      watcher.subscribe(["team:a", "team:empty"], since: since)
      world.loop.endTurn()
    }
    let told = "team:a gone, updated of 1, new n1 1, +bob of 1 at 0; team:empty gone, updated of 0"
    world.pass(1)
    watcher.subscribe(["team:a", "team:empty"], since: 1_021)
    world.loop.endTurn()
    #expect(
      watcher.take() == [
        "1 subscribed through 1020: \(told)", "2 subscribed through 1020: \(told)",
        "3 subscribed through 1020 not complete", "4 subscribed through 1021",
      ]
    )
  }

  @Test("a deletion that goes on over many turns is told when it begins, to who comes while it goes on too")
  func endings() throws {
    let world = try EngineWorld { $0.changesPerTurn = 10 }
    let writer = world.connect()
    writer.put("team:a", (0..<45).map { "user\($0)" })
    world.loop.endTurn()
    try world.settle()
    let watcher = world.connect(session: 2)
    watcher.subscribe(["team:a"])
    world.pass(10)
    world.loop.endTurn()
    _ = watcher.take()
    writer.end("team:a")
    world.loop.endTurn()
    try world.persistAll()
    #expect(watcher.take() == ["events through 1010: team:a gone"] && world.slices == 1)
    let late = world.connect(session: 3)
    world.pass(10)
    late.subscribe(["team:a"], since: 1_011)
    world.loop.endTurn()
    #expect(late.take().last?.hasSuffix(": team:a gone") == true)
    try world.settle()
    #expect(watcher.take().allSatisfy { !$0.contains("gone") })
    // All of them were told at the same time, whenever their part of it was done: who had not heard of it finds it.
    writer.list("user44", flags: 2, since: 1_010)
    writer.list("user0", flags: 2, since: 1_010)
    world.loop.endTurn()
    #expect(writer.take().suffix(2).allSatisfy { $0.contains("team:a (deleted 10") })
  }

  @Test("too much, too long ago, or ahead of the shard's time: not complete, and watched all the same")
  func incomplete() throws {
    let (world, writer) = try settledWorld()
    let watcher = world.connect(session: 2)
    for number in 1...1_025 { writer.post("team:a", "m\(number)") }
    world.loop.endTurn()
    try world.persistAll()
    world.pass(8 * 86_400_000)
    for since in [world.clock - 7 * 86_400_000 - 1, world.clock + 1] {
      watcher.subscribe(["team:a"], since: since)
      world.loop.endTurn()
      #expect(watcher.take().last?.hasSuffix("not complete") == true)
    }
    writer.post("team:a", "late")
    world.loop.endTurn()
    try world.persistAll()
    _ = watcher.take()
    watcher.subscribe(["team:a"], since: world.clock - 7 * 86_400_000)
    world.loop.endTurn()
    #expect(
      watcher.take().last?.hasSuffix("subscribed through \(world.clock): team:a new late 1026") == true
    )
    world.pass(-86_400_000 * 2)
    #expect(world.loop.gauges.subscriptions == 1)
    let (other, many) = try settledWorld()
    for number in 1...1_025 { many.post("team:a", "m\(number)") }
    other.loop.endTurn()
    try other.persistAll()
    _ = many.take()
    many.subscribe(["team:a"], since: 1_000)
    other.loop.endTurn()
    #expect(many.take().last?.hasSuffix("not complete") == true)
  }

  @Test(
    "many channels are looked at over several turns; one in which something happens between them is told as it is"
  )
  func slices() throws {
    let world = try EngineWorld {
      $0.sliceRows = 64
      $0.shortRows = 64
    }
    let writer = world.connect()
    let cids = (0..<5).map { "team:c\($0)" }
    for cid in cids { writer.put(cid, ["alice"]) }
    world.loop.endTurn()
    try world.settle()
    world.pass(10)
    for cid in cids { writer.post(cid, "m1") }
    world.loop.endTurn()
    try world.settle()
    let watcher = world.connect(session: 2)
    watcher.subscribe(cids, since: 1_010)
    world.loop.endTurn()
    #expect(world.slices == 1 && watcher.take() == [])
    writer.post("team:c0", "m2")
    world.loop.endTurn()
    try world.settle()
    #expect(
      watcher.take() == [
        "events through 1010: team:c0 new m2 2",
        "1 subscribed through 1010: team:c1 new m1 1; team:c2 new m1 1; team:c3 new m1 1; team:c4 new m1 1; team:c0 new m1 1, new m2 2",
      ]
    )
    watcher.subscribe(cids, since: 1_010)
    world.loop.endTurn()
    world.loop.close(watcher.lane)
    try world.settle()
    #expect(watcher.take() == [] && !world.loop.isBusy)
  }

  @Test(
    "a connection watches so many channels and users; one more is refused, and nothing of that request is done"
  )
  func limit() throws {
    let world = try EngineWorld { $0.subscriptionsMax = 3 }
    let gateway = world.connect()
    gateway.subscribe(["team:a"])
    gateway.subscribe(["team:b", "team:c", "team:d"])
    gateway.subscribe(user: "alice")
    gateway.subscribe(["team:b"])
    gateway.subscribe(user: "bob")
    gateway.unsubscribe(["team:a", "team:a"])
    gateway.subscribe(user: "bob")
    world.loop.endTurn()
    #expect(
      gateway.take() == [
        "1 subscribed through 1000", "2 limit_reached", "3 user subscribed through 1000",
        "4 subscribed through 1000", "5 limit_reached", "6 unsubscribed", "7 user subscribed through 1000",
      ]
    )
    #expect(world.loop.gauges.subscriptions == 3)
  }

  @Test(
    "a channel that cannot be read refuses what has changed; what another request relies on is watched all the same"
  )
  func unreadable() throws {
    let (world, _) = try settledWorld { $0.residentBytesMax = 1 }
    try world.checkpoint()
    let watcher = world.connect(session: 2)
    watcher.subscribe(["team:a", "team:b"], since: 1_000)
    watcher.subscribe(["team:b"])
    world.loop.endTurn()
    _ = watcher.take()
    try world.answerLoad(failing: true)
    #expect(watcher.take() == ["1 unavailable"])
    try world.answerLoads()
    #expect(watcher.take() == [])
    watcher.put("team:b", ["carol"])
    world.loop.endTurn()
    try world.settle()
    #expect(watcher.take().last?.hasSuffix("team:b updated of 1, +carol of 1 at 0") == true)
    watcher.unsubscribe(["team:a", "team:b"])
    world.loop.endTurn()
    #expect(world.loop.gauges.subscriptions == 0)
  }

  @Test("a channel that takes more than a turn has room for is looked at once, however busy it is")
  func busy() throws {
    let (world, writer) = try settledWorld {
      $0.sliceRows = 64
      $0.shortRows = 64
    }
    let watcher = world.connect(session: 2)
    writer.post("team:a", "m1")
    watcher.subscribe(["team:a"], since: 1_000)
    world.loop.endTurn()
    try world.persist()
    #expect(watcher.take().contains { $0.hasPrefix("1 subscribed") } && world.slices == 0)
  }

  @Test(
    "messages whose statuses may have changed count towards a turn like rows, and where they are too many it is not complete"
  )
  func statuses() throws {
    let world = try EngineWorld {
      $0.sliceRows = 360
      $0.shortRows = 360
      $0.walkStatusesMax = 300
    }
    let writer = world.connect()
    let cids = ["team:a", "team:b"]
    for cid in cids {
      writer.put(cid, ["alice", "bob"])
      for number in 1...300 { writer.post(cid, "m\(number)") }
    }
    world.loop.endTurn()
    try world.settle()
    world.pass(10)
    for cid in cids { writer.read(cid, "bob", "m300") }
    world.loop.endTurn()
    try world.settle()
    let watcher = world.connect(session: 2)
    watcher.subscribe(cids, since: 1_010)
    world.loop.endTurn()
    #expect(watcher.take() == [] && world.slices == 1)
    try world.settle()
    let told = cids.map { "\($0) row bob read 300 unread 0 shown 300, 1-300 read" }.joined(separator: "; ")
    #expect(watcher.take() == ["1 subscribed through 1010: \(told)"])
    world.pass(10)
    writer.post("team:a", "m301")
    writer.read("team:a", "bob", "m301")
    writer.post("team:b", "m301")
    world.loop.endTurn()
    try world.settle()
    watcher.subscribe(["team:a"], since: 1_020)
    watcher.subscribe(["team:a"], since: 1_010)
    world.loop.endTurn()
    try world.settle()
    let after = watcher.take()
    #expect(
      after.contains { $0.hasPrefix("2 subscribed") && $0.hasSuffix("shown 301, 301-301 read") },
      "\(after)"
    )
    #expect(after.contains { $0.hasPrefix("3 subscribed") && $0.hasSuffix("not complete") })
  }

  @Test("what has changed in channels that are others in every turn is not looked for without end")
  func late() throws {
    let world = try EngineWorld {
      $0.sliceRows = 64
      $0.shortRows = 64
    }
    let writer = world.connect()
    let cids = ["team:a", "team:b"]
    for cid in cids { writer.put(cid, ["alice"]) }
    world.loop.endTurn()
    try world.settle()
    let watcher = world.connect(session: 2)
    watcher.subscribe(cids, since: 1_000)
    world.loop.endTurn()
    for number in 1...11 {
      #expect(world.slices == 1 && !watcher.take().contains { $0.hasPrefix("1 ") })
      world.pass(1_000)
      for cid in cids { writer.post(cid, "m\(number)") }
      world.loop.endTurn()
      try world.persistAll()
      world.slice()
    }
    #expect(watcher.take().contains("1 busy") && world.slices == 0)
    writer.post("team:b", "n1")
    world.loop.endTurn()
    try world.persistAll()
    #expect(watcher.take().last?.contains("team:b new n1") == true)
  }

  @Test("what does not fit is refused by name, and nothing of it is done")
  func refusals() throws {
    let world = try EngineWorld(shards: [0, 1], of: 2)
    let gateway = world.connect()
    let cids = ["team:a", "team:b", "team:c", "team:d"]
    let home = { (cid: String) in ShardID.owning(Array(cid.utf8).span.bytes, count: 2).rawValue }
    let mine = cids.first { home($0) == 0 }!
    let other = cids.first { home($0) == 1 }!
    gateway.subscribe([])
    gateway.subscribe([mine, other])
    gateway.subscribe([mine, "no cid"])
    gateway.subscribe(Array(repeating: mine, count: 1_025))
    gateway.unsubscribe([other])
    gateway.announce("alice", [other])
    gateway.announce("no user!", [mine])
    gateway.subscribe(user: "no user!")
    gateway.subscribe(user: "alice", on: 2)
    let users = ["alice", "bob", "carol", "dave"]
    gateway.subscribe(user: users.first { home($0) == 1 }!)
    world.loop.endTurn()
    #expect(
      gateway.take() == [
        "1 invalid_field", "2 wrong_shard", "3 invalid_field", "4 invalid_field", "5 wrong_shard",
        "6 wrong_shard", "7 invalid_field", "8 invalid_field", "9 invalid_field", "10 wrong_shard",
      ]
    )
    #expect(world.loop.gauges.subscriptions == 0)
  }

  // MARK: Users

  @Test("a user's memberships are told when their index has them, and that their tokens are revoked")
  func users() throws {
    let (world, writer) = try settledWorld()
    try world.settle()
    let watcher = world.connect(session: 2)
    watcher.subscribe(user: "bob")
    world.loop.endTurn()
    #expect(watcher.take() == ["1 user subscribed through 1000"])
    writer.put("team:b", ["alice", "bob"])
    world.loop.endTurn()
    try world.settle()
    #expect(watcher.take() == ["events through 1000: bob in team:b"])
    writer.change("team:b", remove: ["bob"])
    world.loop.endTurn()
    try world.settle()
    #expect(watcher.take() == ["events through 1000: bob left team:b"])
    writer.send(.patchUser, "bob") { payload in
      payload.writeVarint(UInt64(4))
      payload.writeVarint(UInt64(0))
      payload.writeTime(Timestamp(milliseconds: 50_000))
    }
    world.loop.endTurn()
    try world.settle()
    #expect(watcher.take() == ["events through 1000: bob revoked before 50000"])
    watcher.subscribe(user: "bob", issued: 49)
    watcher.subscribe(user: "bob", on: 0)
    world.loop.endTurn()
    #expect(watcher.take() == ["2 token_revoked", "3 user subscribed through 1000"])
    writer.put("team:c", ["bob"])
    world.loop.endTurn()
    try world.settle()
    #expect(watcher.take() == [])
  }

  @Test("a row is announced as others see it now, where anybody watches, on storage too")
  func announced() throws {
    let (world, writer, watcher) = try watchedWorld { $0.residentBytesMax = 1 }
    writer.post("team:a", "m1")
    writer.read("team:a", "bob")
    world.loop.endTurn()
    try world.settle()
    writer.assign(user: "bob", version: 1, flags: 1)
    world.loop.endTurn()
    try world.settle()
    try world.checkpoint()
    _ = (watcher.take(), writer.take())
    writer.announce("bob", ["team:a", "team:b"])
    world.loop.endTurn()
    #expect(writer.take() == [])
    try world.settle()
    #expect(writer.take().last?.hasSuffix("announced") == true)
    let told = watcher.take()
    #expect(told.last?.hasSuffix("team:a row bob read 1 unread 0 shown 0, 1-1 sent") == true, "\(told)")
    writer.announce("carol", ["team:b"])
    world.loop.endTurn()
    #expect(writer.take().last?.hasSuffix("announced") == true && watcher.take() == [])
  }

  @Test(
    "whoever was told up to a time between a change of settings and its announcement is told as they come back"
  )
  func announcedInAGap() throws {
    let (world, writer, watcher) = try watchedWorld()
    writer.post("team:a", "m1")
    writer.read("team:a", "bob")
    world.loop.endTurn()
    try world.settle()
    world.pass(100)
    writer.assign(user: "bob", version: 1, flags: 1)
    world.loop.endTurn()
    try world.settle()
    world.pass(100)
    _ = watcher.take()
    writer.announce("bob", ["team:a"])
    world.loop.endTurn()
    try world.settle()
    #expect(watcher.take().contains { $0.contains("row bob read 1 unread 0 shown 0") })
    let back = world.connect(session: 3)
    back.subscribe(["team:a"], since: 1_150)
    world.loop.endTurn()
    #expect(back.take().last?.contains("row bob read 1 unread 0 shown 0") == true)
    world.pass(10)
    back.subscribe(["team:a"], since: 1_201)
    world.loop.endTurn()
    #expect(back.take() == ["2 subscribed through 1210"])
  }

  @Test("until a user's row is announced everywhere, not all is told")
  func announcementHoldsBack() throws {
    let (world, writer, watcher) = try watchedWorld { $0.residentBytesMax = 1 }
    writer.post("team:a", "m1")
    world.loop.endTurn()
    try world.settle()
    writer.assign(user: "bob", version: 1, flags: 1)
    world.loop.endTurn()
    try world.settle()
    try world.checkpoint()
    _ = watcher.take()
    world.pass(10)
    let announcedAt = world.clock
    writer.announce("bob", ["team:a"])
    world.loop.endTurn()
    try world.persistAll()
    world.pass(1_000)
    world.loop.tick()
    world.loop.endTurn()
    let early = watcher.take()
    #expect(early.last == "events through \(announcedAt - 1)" && early.count == 1, "\(early)")
    try world.settle()
    world.pass(1_000)
    world.loop.tick()
    world.loop.endTurn()
    #expect(watcher.take().last == "events through \(announcedAt + 2_000)")
  }

  @Test("who was away between the taking of a setting and its announcement is told when they come back")
  func announcedMeanwhile() throws {
    let (world, writer) = try settledWorld()
    writer.post("team:a", "m1", by: "alice")
    writer.read("team:a", "bob")
    world.loop.endTurn()
    try world.settle()
    world.pass(10)
    writer.assign(user: "bob", version: 1, flags: 1)
    world.loop.endTurn()
    try world.settle()
    // Up to 1,020 all was told to somebody who has gone since: nobody watches any more.
    world.pass(20)
    writer.announce("bob", ["team:a"])
    world.loop.endTurn()
    try world.settle()
    // Announced once more, as after a loss, and settled.
    writer.send(.settle, "bob") { payload in
      payload.writeInteger(UInt8(1))
      payload.writeVarint(UInt64(1))
    }
    writer.announce("bob", ["team:a"])
    world.loop.endTurn()
    try world.settle()
    #expect(
      writer.take().suffix(3).map { $0.drop { $0 != " " } } == [" announced", " settled", " announced"]
    )
    func check(_ world: EngineWorld) throws {
      let watcher = world.connect(session: 2)
      watcher.subscribe(["team:a"], since: 1_020)
      watcher.send(.listUnsettled, nil)
      world.pass(10)
      world.loop.endTurn()
      try world.answerLoads()
      let told = watcher.take()
      #expect(
        told.contains { $0.hasSuffix("team:a row bob read 1 unread 0 shown 0, 1-1 sent") },
        "\(told)"
      )
      #expect(told.contains("2 unsettled types [] users []"))
    }
    world.pass(10)
    try check(world)
    let late = world.connect(session: 3)
    late.subscribe(["team:a"], since: 1_031)
    world.loop.endTurn()
    #expect(late.take().last?.contains("row") == false)
    let again = try EngineWorld(world.storage)
    again.clock = world.clock
    again.pass(0)
    try check(again)
  }
}
