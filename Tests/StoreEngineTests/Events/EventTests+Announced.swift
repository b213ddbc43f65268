import NIOCore
import ReceiptModel
import ReceiptWire
import StoreEngine
import Testing

/// Announced rows: row events after a change of the settings that hide a user's receipts.
extension EventTests {
  @Test("announce_row sends a row as others see it now, to every subscribed channel, also one on storage")
  func announceRowSendsRowAsOthersSeeItNow() throws {
    let (harness, writer, watcher) = try watchedHarness { $0.residentBytesMax = 1 }
    writer.post("team:a", "m1")
    writer.read("team:a", "bob")
    harness.loop.endTurn()
    try harness.runUntilIdle()
    writer.assign(user: "bob", version: 1, flags: 1)
    harness.loop.endTurn()
    try harness.runUntilIdle()
    try harness.writePages()
    _ = (watcher.take(), writer.take())
    writer.announce("bob", ["team:a", "team:b"])
    harness.loop.endTurn()
    #expect(writer.take() == [])
    try harness.runUntilIdle()
    #expect(writer.take().last?.hasSuffix("announced") == true)
    let events = watcher.take()
    #expect(events.last?.hasSuffix("team:a row bob read 1 unread 0 shown 0, 1-1 sent") == true, "\(events)")
    writer.announce("carol", ["team:b"])
    harness.loop.endTurn()
    #expect(writer.take().last?.hasSuffix("announced") == true && watcher.take() == [])
  }

  @Test(
    "a client that resumes from between a settings change and its announcement gets the announced row"
  )
  func clientResumingFromGapGetsAnnouncedRow() throws {
    let (harness, writer, watcher) = try watchedHarness()
    writer.post("team:a", "m1")
    writer.read("team:a", "bob")
    harness.loop.endTurn()
    try harness.runUntilIdle()
    harness.advance(100)
    writer.assign(user: "bob", version: 1, flags: 1)
    harness.loop.endTurn()
    try harness.runUntilIdle()
    harness.advance(100)
    _ = watcher.take()
    writer.announce("bob", ["team:a"])
    harness.loop.endTurn()
    try harness.runUntilIdle()
    #expect(watcher.take().contains { $0.contains("row bob read 1 unread 0 shown 0") })
    let back = harness.connect(session: 3)
    back.subscribe(["team:a"], since: 1_150)
    harness.loop.endTurn()
    #expect(back.take().last?.contains("row bob read 1 unread 0 shown 0") == true)
    harness.advance(10)
    back.subscribe(["team:a"], since: 1_201)
    harness.loop.endTurn()
    #expect(back.take() == ["2 subscribed through 1210"])
  }

  /// Announce bob's row in `team:a` while the channel is in storage only and not read. Return the time of the
  /// announcement.
  private func announceFromStorage(
    _ harness: EngineHarness,
    _ writer: Gateway,
    _ watcher: Gateway
  ) throws -> Int64 {
    try harness.writePages()
    _ = watcher.take()
    harness.advance(10)
    writer.announce("bob", ["team:a"])
    harness.loop.endTurn()
    let time = harness.clock
    try harness.persistAll()
    return time
  }

  @Test("complete-through does not advance until a user's row is announced in every channel")
  func announcementHoldsBack() throws {
    let (harness, writer, watcher) = try watchedHarness { $0.residentBytesMax = 1 }
    writer.post("team:a", "m1")
    harness.loop.endTurn()
    try harness.runUntilIdle()
    writer.assign(user: "bob", version: 1, flags: 1)
    harness.loop.endTurn()
    try harness.runUntilIdle()
    let announcedAt = try announceFromStorage(harness, writer, watcher)
    harness.advance(1_000)
    harness.loop.tick()
    harness.loop.endTurn()
    let early = watcher.take()
    #expect(early.last == "events through \(announcedAt - 1)" && early.count == 1, "\(early)")
    try harness.runUntilIdle()
    harness.advance(1_000)
    harness.loop.tick()
    harness.loop.endTurn()
    #expect(watcher.take().last == "events through \(announcedAt + 2_000)")
  }

  @Test("an announcement that waits in a large channel keeps the announcement's time")
  func announcementWaits() throws {
    let (harness, writer, watcher) = try watchedHarness {
      $0.residentBytesMax = 1
      $0.eventIntervalMembers = 1
      $0.eventIntervalMilliseconds = 1_000_000
    }
    watcher.subscribe(["team:b"])
    writer.put("team:b")
    writer.post("team:a", "m1")
    writer.read("team:a", "bob")
    writer.assign(user: "bob", version: 1, flags: 1)
    harness.loop.endTurn()
    try harness.runUntilIdle()
    let announcedAt = try announceFromStorage(harness, writer, watcher)
    #expect(!harness.loads.isEmpty)
    harness.advance(300)
    try harness.runUntilIdle()
    writer.post("team:b", "x")
    harness.loop.endTurn()
    try harness.runUntilIdle()
    let events = watcher.take()
    #expect(events.last == "events through \(announcedAt - 1): team:b new x 1", "\(events)")
  }

  @Test("a client that is away between a settings change and its announcement gets the row when it resumes")
  func resumingClientGetsRowAnnouncedMeanwhile() throws {
    let (harness, writer) = try harnessWithChannel()
    writer.post("team:a", "m1", by: "alice")
    writer.read("team:a", "bob")
    harness.loop.endTurn()
    try harness.runUntilIdle()
    harness.advance(10)
    writer.assign(user: "bob", version: 1, flags: 1)
    harness.loop.endTurn()
    try harness.runUntilIdle()
    // A former subscriber has received everything through 1,020. There is no subscription now.
    harness.advance(20)
    writer.announce("bob", ["team:a"])
    harness.loop.endTurn()
    try harness.runUntilIdle()
    // Another announcement, as after a lost reply, and the settings are settled.
    writer.send(.settle, "bob") { payload in
      payload.writeInteger(UInt8(1))
      payload.writeVarint(UInt64(1))
    }
    writer.announce("bob", ["team:a"])
    harness.loop.endTurn()
    try harness.runUntilIdle()
    #expect(
      writer.take().suffix(3).map { $0.drop { $0 != " " } } == [" announced", " settled", " announced"]
    )
    func check(_ harness: EngineHarness) throws {
      let watcher = harness.connect(session: 2)
      watcher.subscribe(["team:a"], since: 1_020)
      watcher.send(.listUnsettled, nil)
      harness.advance(10)
      harness.loop.endTurn()
      try harness.completeLoads()
      let events = watcher.take()
      #expect(
        events.contains { $0.hasSuffix("team:a row bob read 1 unread 0 shown 0, 1-1 sent") },
        "\(events)"
      )
      #expect(events.contains("2 unsettled types [] users []"))
    }
    harness.advance(10)
    try check(harness)
    let late = harness.connect(session: 3)
    late.subscribe(["team:a"], since: 1_031)
    harness.loop.endTurn()
    #expect(late.take().last?.contains("row") == false)
    let again = try EngineHarness(harness.storage)
    again.clock = harness.clock
    again.advance(0)
    try check(again)
  }
}
