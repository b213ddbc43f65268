import NIOCore
import ReceiptModel
import ReceiptWire
import StoreEngine
import Testing

/// Unread counts of channels in storage: what is read, and races with loads and writes.
@Suite("Unread counts: peeks")
struct UnreadPeekTests {
  @Test("channels on storage are peeked at with one read, and not loaded")
  func memory() throws {
    let (world, gateway) = try storedWorld(100)
    gateway.read("team:7", "alice", "m3")
    world.loop.endTurn()
    try world.answerLoads()
    try world.persistAll()
    let before = world.loop.gauges
    #expect(before.loadedChannels == 1)
    gateway.unreadCounts(
      (0..<100).map { CountsEntry("team:\($0)", "alice") } + [CountsEntry("team:x", "alice")]
    )
    world.loop.endTurn()
    #expect(world.peeks.count == 1)
    #expect(world.peeks.first?.entries.count == 100)
    world.answerPeek()
    let expected = (0..<100).map { "\($0 == 7 ? 4 : $0)/0" } + ["channel_not_found"]
    #expect(gateway.last == "unread \(expected.joined(separator: " "))")
    #expect(world.loop.gauges.loadedChannels == 1)
    #expect(world.loop.gauges.residentBytes == before.residentBytes)
    #expect(world.loads.isEmpty)
  }

  @Test("a head page without message counts makes a peek read the whole channel")
  func withoutCounts() throws {
    let (world, gateway) = try storedWorld(3)
    for (key, bytes) in world.storage.pages where key.page == .head {
      var page = try Page(bytes.readableBytesSpan)
      page.effects.removeAll { effect in
        if case .channel(_, .messageCountsAssigned) = effect { return true }
        return false
      }
      var rewritten = ByteBuffer()
      page.write(into: &rewritten)
      world.storage.pages[key] = rewritten
    }
    gateway.unreadCounts((0..<3).map { CountsEntry("team:\($0)", "alice") })
    world.loop.endTurn()
    world.answerPeek()
    #expect(gateway.take() == [])
    #expect(world.loads.count == 2)
    try world.answerLoads()
    #expect(gateway.last == "unread 0/0 1/0 2/0")
  }

  @Test("a segment written before a crash without its head is followed by its head")
  func headBehind() throws {
    let (world, gateway) = try storedWorld(3)
    gateway.post("team:2", "x")
    world.loop.endTurn()
    try world.answerLoads()
    try world.persistAll()
    let (log, pages) = (world.storage.log, world.storage.pages)
    try world.checkpoint()
    let key = PageKey(shard: ShardID(0), channel: ChannelNumber(3), page: .segment(0))
    let segment = try #require(world.storage.pages[key])
    #expect(segment != pages[key])
    world.storage.log = log
    world.storage.pages = pages
    world.storage.pages[key] = segment
    let again = try EngineWorld(world.storage)
    try again.checkpoint()
    let last = try EngineWorld(again.storage)
    let later = last.connect()
    later.unreadCounts([CountsEntry("team:2", "alice")])
    last.loop.endTurn()
    last.answerPeek()
    #expect(later.last == "unread 3/0")
    #expect(last.loads.isEmpty && last.reports == [])
  }

  @Test("mentions, flags and mutes are counted on storage, in threads too, and nothing is loaded")
  func mentions() throws {
    let world = try EngineWorld()
    let gateway = world.connect()
    gateway.put("team:a", ["alice", "bob", "carol"])
    try world.answerLoads()
    for number in 1...300 { gateway.post("team:a", "m\(number)", by: "alice") }
    gateway.post("team:a", "x1", by: "alice", flags: 16, mentions: ["bob", "alice"])
    gateway.post("team:a", "x2", by: "carol", flags: 8 | 4)
    for number in 301...600 { gateway.post("team:a", "m\(number)", by: "alice") }
    for (id, mentioned) in [("r1", "bob"), ("r2", "carol")] {
      gateway.send(.registerMessage, "team:a", thread: "m7") { payload in
        payload.writeField(id)
        payload.writeField("alice")
        payload.writeTime(.none)
        payload.writeVarint(16)
        payload.writeVarint(1)
        payload.writeField(mentioned)
      }
    }
    gateway.send(.markUnread, "team:a") { payload in
      payload.writeField("alice")
      payload.writeEmptyField()
      payload.writeVarint(0)
    }
    gateway.send(.setMember, "team:a") { payload in
      payload.writeField("carol")
      payload.writeEmptyField()
      payload.writeVarint(3)
    }
    world.loop.endTurn()
    try world.checkpoint()
    let again = try EngineWorld(world.storage)
    let later = again.connect()
    let users = ["alice", "bob", "carol"]
    later.unreadCounts(users.enumerated().map { CountsEntry("team:a", $0.element, UInt32($0.offset)) })
    again.loop.endTurn()
    again.answerPeek()
    #expect(later.last == "unread 0/0 flagged 602/1 mentions 3 601/1 mentions 1 muted")
    #expect(again.loads.isEmpty && again.reports == [])
  }

  // MARK: Races

  @Test("a channel loaded during its peek is answered from memory")
  func loadedMeanwhile() throws {
    let (world, gateway) = try storedWorld(4)
    gateway.unreadCounts([CountsEntry("team:2", "alice"), CountsEntry("team:3", "alice")])
    gateway.read("team:2", "alice", "m1")
    world.loop.endTurn()
    try world.answerLoads()
    world.answerPeek()
    // The answer includes the mark, and waits for its commit.
    #expect(gateway.take() == [])
    try world.persistAll()
    #expect(gateway.take() == ["2 row read 1 unread 1", "1 unread 1/0 3/0"])
  }

  @Test("a channel evicted during its peek is peeked at again, and read whole when that repeats")
  func gone() throws {
    let (world, gateway) = try storedWorld(4) { $0.residentBytesMax = 1 }
    gateway.unreadCounts([CountsEntry("team:2", "alice"), CountsEntry("team:3", "alice")])
    world.loop.endTurn()
    func pass(_ message: String) throws {
      gateway.post("team:2", message)
      world.loop.endTurn()
      try world.answerLoads()
      try world.checkpoint()
      #expect(world.loop.gauges.loadedChannels == 0)
    }
    for round in 1...3 {
      try pass("x\(round)")
      world.answerPeek()
      #expect(gateway.take().filter { $0.contains("unread") } == [])
      #expect(world.peeks.first?.entries.map(\.cid) == [Array("team:2".utf8)])
    }
    try pass("x4")
    world.answerPeek()
    #expect(world.peeks.isEmpty)
    #expect(world.loads.count == 1)
    try world.answerLoads()
    #expect(gateway.last == "unread 6/0 3/0")
    #expect(world.reports == [])
  }

  @Test("pages read in two states of a channel are discarded, and not reported as damage")
  func torn() throws {
    let (world, gateway) = try storedWorld(4) { $0.residentBytesMax = 1 }
    gateway.unreadCounts([CountsEntry("team:3", "bob", 1)])
    gateway.read("team:3", "bob", "m1")
    world.loop.endTurn()
    try world.answerLoads()
    try world.checkpoint()
    world.answerPeek()
    world.answerPeek()
    #expect(gateway.last == "unread 2/0")
    gateway.unreadCounts([CountsEntry("team:3", "bob", 1)])
    world.loop.endTurn()
    // Runs between the reads of the head page and of the segment.
    var isFirst = true
    world.storage.beforePages = { selection in
      guard isFirst, selection == .pages([.segment(0)]) else { return }
      isFirst = false
      gateway.deleteMessage("team:3", "m2")
      world.loop.endTurn()
      try? world.answerLoads()
      try? world.checkpoint()
    }
    world.answerPeek()
    #expect(!isFirst)
    #expect(world.reports == [])
    #expect(world.peeks.count == 1)
    world.answerPeek()
    #expect(gateway.last == "unread 1/0")
    #expect(world.reports == [])
  }

  @Test("a peek at a loading channel waits behind earlier requests")
  func loading() throws {
    let (world, gateway) = try storedWorld(4)
    gateway.read("team:3", "alice", "m2")
    gateway.unreadCounts([CountsEntry("team:3", "alice"), CountsEntry("team:2", "alice")])
    world.loop.endTurn()
    #expect(world.loads.count == 1)
    #expect(world.peeks.first?.entries.count == 1)
    world.answerPeek()
    #expect(gateway.take() == [])
    try world.answerLoads()
    try world.persistAll()
    #expect(gateway.take() == ["1 row read 2 unread 1", "2 unread 1/0 2/0"])
  }

  @Test("tail channels are loaded a few at a time, also those whose head is on storage")
  func tail() throws {
    let (world, gateway) = try storedWorld(20)
    for number in 0..<20 { gateway.post("team:\(number)", "x") }
    world.loop.endTurn()
    try world.answerLoads()
    try world.persistAll()
    let again = try EngineWorld(world.storage) { $0.unreadLoadsMax = 3 }
    let later = again.connect()
    later.unreadCounts((0..<20).map { CountsEntry("team:\($0)", "bob", 1) })
    again.loop.endTurn()
    // The directory in storage has its number in the tail.
    #expect(again.peeks.count == 1)
    again.answerPeek()
    #expect(again.loads.count == 3)
    try again.answerLoad()
    #expect(again.loads.count == 3)
    try again.answerLoads()
    #expect(later.last == "unread \((1...20).map { "\($0)/0" }.joined(separator: " "))")
  }

  @Test("a tail channel loaded by number during its peek is answered")
  func tailByNumber() throws {
    let world = try EngineWorld()
    let gateway = world.connect()
    gateway.put("team:a", ["alice"])
    try world.answerLoads()
    gateway.post("team:a", "m1")
    world.loop.endTurn()
    try world.persistAll()
    let again = try EngineWorld(world.storage)
    let later = again.connect()
    later.unreadCounts([CountsEntry("team:a", "alice")])
    again.loop.tick()
    #expect(again.loads.count == 2)
    try again.answerLoad(.number(ChannelNumber(1)))
    #expect(later.last == "unread 1/0")
    try again.answerLoads()
    #expect(later.take().count == 1)
  }

  // MARK: Durability

  @Test("an unread-counts answer leaves once all changes it shows are durable")
  func replyTiming() throws {
    let (world, gateway) = try storedWorld(4)
    for number in [2, 3] { gateway.getChannel("team:\(number)") }
    try world.answerLoads()
    _ = gateway.take()
    gateway.read("team:3", "alice", "m1")
    world.loop.endTurn()
    gateway.unreadCounts([CountsEntry("team:2", "alice")])
    gateway.unreadCounts([CountsEntry("team:2", "alice"), CountsEntry("team:3", "alice")])
    gateway.read("team:2", "alice", "m1")
    gateway.unreadCounts([
      CountsEntry("team:3", "alice"), CountsEntry("team:1", "bob", 1), CountsEntry("team:2", "bob", 1),
    ])
    world.loop.endTurn()
    #expect(gateway.take() == ["4 unread 2/0"])
    world.answerPeek()
    #expect(gateway.take() == [])
    try world.persist()
    #expect(gateway.take() == ["3 row read 1 unread 2", "5 unread 2/0 2/0"])
    try world.persist()
    #expect(gateway.take() == ["6 row read 1 unread 1", "7 unread 2/0 1/0 2/0"])
  }
}
