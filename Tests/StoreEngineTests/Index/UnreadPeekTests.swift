import NIOCore
import ReceiptModel
import ReceiptWire
import StoreEngine
import Testing

/// Unread counts of channels in storage: what is read, and races with loads and writes.
@Suite("Unread counts: peeks")
struct UnreadPeekTests {
  @Test("channels on storage are peeked at with one read, and not loaded")
  func channelsOnStorageArePeekedAtWithOneRead() throws {
    let (harness, gateway) = try storedHarness(100)
    gateway.read("team:7", "alice", "m3")
    harness.loop.endTurn()
    try harness.completeLoads()
    try harness.persistAll()
    let before = harness.loop.gauges
    #expect(before.loadedChannels == 1)
    gateway.unreadCounts(
      (0..<100).map { CountsEntry("team:\($0)", "alice") } + [CountsEntry("team:x", "alice")]
    )
    harness.loop.endTurn()
    #expect(harness.peeks.count == 1)
    #expect(harness.peeks.first?.entries.count == 100)
    harness.completePeek()
    let expected = (0..<100).map { "\($0 == 7 ? 4 : $0)/0" } + ["channel_not_found"]
    #expect(gateway.last == "unread \(expected.joined(separator: " "))")
    #expect(harness.loop.gauges.loadedChannels == 1)
    #expect(harness.loop.gauges.residentBytes == before.residentBytes)
    #expect(harness.loads.isEmpty)
  }

  @Test("a head page without message counts makes a peek read the whole channel")
  func headPageWithoutCountsIsReadWhole() throws {
    let (harness, gateway) = try storedHarness(3)
    for (key, bytes) in harness.storage.pages where key.page == .head {
      var page = try Page(bytes.readableBytesSpan)
      page.effects.removeAll { effect in
        if case .channel(_, .messageCountsAssigned) = effect { return true }
        return false
      }
      var rewritten = ByteBuffer()
      page.write(into: &rewritten)
      harness.storage.pages[key] = rewritten
    }
    gateway.unreadCounts((0..<3).map { CountsEntry("team:\($0)", "alice") })
    harness.loop.endTurn()
    harness.completePeek()
    #expect(gateway.take() == [])
    #expect(harness.loads.count == 2)
    try harness.completeLoads()
    #expect(gateway.last == "unread 0/0 1/0 2/0")
  }

  @Test("a segment written before a crash without its head is followed by its head")
  func headFollowsSegmentWrittenBeforeCrash() throws {
    let (harness, gateway) = try storedHarness(3)
    gateway.post("team:2", "x")
    harness.loop.endTurn()
    try harness.completeLoads()
    try harness.persistAll()
    let (log, pages) = (harness.storage.log, harness.storage.pages)
    try harness.writePages()
    let key = PageKey(shard: ShardID(0), channel: ChannelNumber(3), page: .segment(0))
    let segment = try #require(harness.storage.pages[key])
    #expect(segment != pages[key])
    harness.storage.log = log
    harness.storage.pages = pages
    harness.storage.pages[key] = segment
    let again = try EngineHarness(harness.storage)
    try again.writePages()
    let last = try EngineHarness(again.storage)
    let later = last.connect()
    later.unreadCounts([CountsEntry("team:2", "alice")])
    last.loop.endTurn()
    last.completePeek()
    #expect(later.last == "unread 3/0")
    #expect(last.loads.isEmpty && last.reports == [])
  }

  @Test("mentions, flags and mutes are counted on storage, in threads too, and nothing is loaded")
  func mentionsFlagsAndMutesAreCountedOnStorage() throws {
    let harness = try EngineHarness()
    let gateway = harness.connect()
    gateway.put("team:a", ["alice", "bob", "carol"])
    try harness.completeLoads()
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
    harness.loop.endTurn()
    try harness.writePages()
    let again = try EngineHarness(harness.storage)
    let later = again.connect()
    let users = ["alice", "bob", "carol"]
    later.unreadCounts(users.enumerated().map { CountsEntry("team:a", $0.element, UInt32($0.offset)) })
    again.loop.endTurn()
    again.completePeek()
    #expect(later.last == "unread 0/0 flagged 602/1 mentions 3 601/1 mentions 1 muted")
    #expect(again.loads.isEmpty && again.reports == [])
  }

  // MARK: Races

  @Test("a channel loaded during its peek is answered from memory")
  func channelLoadedDuringPeekIsAnsweredFromMemory() throws {
    let (harness, gateway) = try storedHarness(4)
    gateway.unreadCounts([CountsEntry("team:2", "alice"), CountsEntry("team:3", "alice")])
    gateway.read("team:2", "alice", "m1")
    harness.loop.endTurn()
    try harness.completeLoads()
    harness.completePeek()
    // The reply includes the mark, and waits for its commit.
    #expect(gateway.take() == [])
    try harness.persistAll()
    #expect(gateway.take() == ["2 row read 1 unread 1", "1 unread 1/0 3/0"])
  }

  @Test("a channel evicted during its peek is peeked at again, and read whole when that repeats")
  func channelEvictedDuringPeekIsPeekedAtAgain() throws {
    let (harness, gateway) = try storedHarness(4) { $0.residentBytesMax = 1 }
    gateway.unreadCounts([CountsEntry("team:2", "alice"), CountsEntry("team:3", "alice")])
    harness.loop.endTurn()
    func pass(_ message: String) throws {
      gateway.post("team:2", message)
      harness.loop.endTurn()
      try harness.completeLoads()
      try harness.writePages()
      #expect(harness.loop.gauges.loadedChannels == 0)
    }
    for round in 1...3 {
      try pass("x\(round)")
      harness.completePeek()
      #expect(gateway.take().filter { $0.contains("unread") } == [])
      #expect(harness.peeks.first?.entries.map(\.cid) == [Array("team:2".utf8)])
    }
    try pass("x4")
    harness.completePeek()
    #expect(harness.peeks.isEmpty)
    #expect(harness.loads.count == 1)
    try harness.completeLoads()
    #expect(gateway.last == "unread 6/0 3/0")
    #expect(harness.reports == [])
  }

  @Test("pages read in two states of a channel are discarded, and not reported as damage")
  func pagesOfTwoStatesAreDiscarded() throws {
    let (harness, gateway) = try storedHarness(4) { $0.residentBytesMax = 1 }
    gateway.unreadCounts([CountsEntry("team:3", "bob", 1)])
    gateway.read("team:3", "bob", "m1")
    harness.loop.endTurn()
    try harness.completeLoads()
    try harness.writePages()
    harness.completePeek()
    harness.completePeek()
    #expect(gateway.last == "unread 2/0")
    gateway.unreadCounts([CountsEntry("team:3", "bob", 1)])
    harness.loop.endTurn()
    // Runs between the reads of the head page and of the segment.
    var isFirst = true
    harness.storage.beforePages = { selection in
      guard isFirst, selection == .pages([.segment(0)]) else { return }
      isFirst = false
      gateway.deleteMessage("team:3", "m2")
      harness.loop.endTurn()
      try? harness.completeLoads()
      try? harness.writePages()
    }
    harness.completePeek()
    #expect(!isFirst)
    #expect(harness.reports == [])
    #expect(harness.peeks.count == 1)
    harness.completePeek()
    #expect(gateway.last == "unread 1/0")
    #expect(harness.reports == [])
  }

  @Test("a peek at a loading channel waits behind earlier requests")
  func peekAtLoadingChannelWaitsBehindEarlierRequests() throws {
    let (harness, gateway) = try storedHarness(4)
    gateway.read("team:3", "alice", "m2")
    gateway.unreadCounts([CountsEntry("team:3", "alice"), CountsEntry("team:2", "alice")])
    harness.loop.endTurn()
    #expect(harness.loads.count == 1)
    #expect(harness.peeks.first?.entries.count == 1)
    harness.completePeek()
    #expect(gateway.take() == [])
    try harness.completeLoads()
    try harness.persistAll()
    #expect(gateway.take() == ["1 row read 2 unread 1", "2 unread 1/0 2/0"])
  }

  @Test("tail channels are loaded a few at a time, also those whose head is on storage")
  func tailChannelsAreLoadedFewAtTime() throws {
    let (harness, gateway) = try storedHarness(20)
    for number in 0..<20 { gateway.post("team:\(number)", "x") }
    harness.loop.endTurn()
    try harness.completeLoads()
    try harness.persistAll()
    let again = try EngineHarness(harness.storage) { $0.unreadLoadsMax = 3 }
    let later = again.connect()
    later.unreadCounts((0..<20).map { CountsEntry("team:\($0)", "bob", 1) })
    again.loop.endTurn()
    // The directory in storage has its number in the tail.
    #expect(again.peeks.count == 1)
    again.completePeek()
    #expect(again.loads.count == 3)
    try again.completeLoad()
    #expect(again.loads.count == 3)
    try again.completeLoads()
    #expect(later.last == "unread \((1...20).map { "\($0)/0" }.joined(separator: " "))")
  }

  @Test("a tail channel loaded by number during its peek is answered")
  func tailChannelLoadedDuringPeekIsAnswered() throws {
    let harness = try EngineHarness()
    let gateway = harness.connect()
    gateway.put("team:a", ["alice"])
    try harness.completeLoads()
    gateway.post("team:a", "m1")
    harness.loop.endTurn()
    try harness.persistAll()
    let again = try EngineHarness(harness.storage)
    let later = again.connect()
    later.unreadCounts([CountsEntry("team:a", "alice")])
    again.loop.tick()
    #expect(again.loads.count == 2)
    try again.completeLoad(.number(ChannelNumber(1)))
    #expect(later.last == "unread 1/0")
    try again.completeLoads()
    #expect(later.take().count == 1)
  }

  // MARK: Durability

  @Test("an unread-counts answer leaves once all changes it shows are durable")
  func unreadCountsLeaveOnceChangesAreDurable() throws {
    let (harness, gateway) = try storedHarness(4)
    for number in [2, 3] { gateway.getChannel("team:\(number)") }
    try harness.completeLoads()
    _ = gateway.take()
    gateway.read("team:3", "alice", "m1")
    harness.loop.endTurn()
    gateway.unreadCounts([CountsEntry("team:2", "alice")])
    gateway.unreadCounts([CountsEntry("team:2", "alice"), CountsEntry("team:3", "alice")])
    gateway.read("team:2", "alice", "m1")
    gateway.unreadCounts([
      CountsEntry("team:3", "alice"), CountsEntry("team:1", "bob", 1), CountsEntry("team:2", "bob", 1),
    ])
    harness.loop.endTurn()
    #expect(gateway.take() == ["4 unread 2/0"])
    harness.completePeek()
    #expect(gateway.take() == [])
    try harness.persist()
    #expect(gateway.take() == ["3 row read 1 unread 2", "5 unread 2/0 2/0"])
    try harness.persist()
    #expect(gateway.take() == ["6 row read 1 unread 1", "7 unread 2/0 1/0 2/0"])
  }
}
