import ReceiptModel
import ReceiptWire
import StoreEngine
import Testing

/// Subscribing with `since`: the changes that a resumed client gets.
extension EventTests {
  @Test("subscribe with `since` is answered with the changes since then, once they are durable")
  func subscribeWithSinceIsAnsweredWithChangesSinceThen() throws {
    let (harness, writer) = try harnessWithChannel()
    let watcher = harness.connect(session: 2)
    writer.post("team:a", "m1")
    harness.loop.endTurn()
    try harness.persistAll()
    harness.advance(100)
    writer.post("team:a", "m2", by: "bob")
    harness.loop.endTurn()
    watcher.subscribe(["team:a"], since: 1_100)
    harness.loop.endTurn()
    #expect(watcher.take() == [])
    try harness.persist()
    #expect(
      watcher.take() == [
        "1 subscribed through 1000: team:a new m2 2 moving, 1-1 read, 2-2 sent"
      ]
    )
    harness.advance(10)
    watcher.subscribe(["team:a"], since: 1_101)
    harness.loop.endTurn()
    #expect(watcher.take() == ["2 subscribed through 1110"])
  }

  @Test(
    "subscribe with `since` reads channels on storage, reports missing ones as gone, and sends moved rows once"
  )
  func subscribingSinceReadsStoredChannels() throws {
    let harness = try EngineHarness { $0.residentBytesMax = 1 }
    let writer = harness.connect()
    writer.put("team:a", ["alice"])
    writer.put("team:b", ["alice"])
    harness.loop.endTurn()
    try harness.runUntilIdle()
    writer.post("team:a", "m1")
    writer.post("team:b", "n1")
    harness.loop.endTurn()
    try harness.runUntilIdle()
    try harness.writePages()
    let watcher = harness.connect(session: 2)
    watcher.subscribe(["team:a", "team:b", "team:never"], since: 1_000)
    harness.loop.endTurn()
    #expect(!harness.loads.isEmpty && watcher.take() == [])
    try harness.completeLoad(.cid(Array("team:a".utf8)))
    writer.post("team:a", "m2")
    harness.loop.endTurn()
    try harness.completeLoads()
    try harness.runUntilIdle()
    let events = watcher.take()
    #expect(
      events.contains {
        $0.hasSuffix(
          """
          team:b gone, updated of 1, new n1 1, +alice of 1 at 0; team:never gone; team:a gone, updated of 1, new m1 \
          1, +alice of 1 at 0, new m2 2
          """
        )
      },
      "\(events)"
    )
  }

  @Test("a channel that was created again is reported as deleted, then in its current state")
  func recreatedChannelIsReportedAsDeletedFirst() throws {
    let (harness, writer) = try harnessWithChannel()
    writer.post("team:a", "m1")
    harness.advance(10)
    writer.deleteChannel("team:a")
    harness.advance(10)
    writer.put("team:a", ["bob"])
    writer.post("team:a", "n1")
    writer.put("team:empty")
    harness.loop.endTurn()
    try harness.runUntilIdle()
    let watcher = harness.connect(session: 2)
    for since in [1_010, 1_020, 1_021] as [Int64] {
      watcher.subscribe(["team:a", "team:empty"], since: since)
      harness.loop.endTurn()
    }
    let events = "team:a gone, updated of 1, new n1 1, +bob of 1 at 0; team:empty gone, updated of 0"
    harness.advance(1)
    watcher.subscribe(["team:a", "team:empty"], since: 1_021)
    harness.loop.endTurn()
    #expect(
      watcher.take() == [
        "1 subscribed through 1020: \(events)", "2 subscribed through 1020: \(events)",
        "3 subscribed through 1020 not complete", "4 subscribed through 1021",
      ]
    )
  }

  @Test("a sliced deletion is reported when it begins, and to clients that subscribe while it continues")
  func slicedDeletionIsReportedWhenItBegins() throws {
    let harness = try EngineHarness { $0.changesPerTurn = 10 }
    let writer = harness.connect()
    writer.put("team:a", (0..<45).map { "user\($0)" })
    harness.loop.endTurn()
    try harness.runUntilIdle()
    let watcher = harness.connect(session: 2)
    watcher.subscribe(["team:a"])
    harness.advance(10)
    harness.loop.endTurn()
    _ = watcher.take()
    writer.deleteChannel("team:a")
    harness.loop.endTurn()
    try harness.persistAll()
    #expect(watcher.take() == ["events through 1010: team:a gone"] && harness.slices == 1)
    let late = harness.connect(session: 3)
    harness.advance(10)
    late.subscribe(["team:a"], since: 1_011)
    harness.loop.endTurn()
    #expect(late.take().last?.hasSuffix(": team:a gone") == true)
    try harness.runUntilIdle()
    #expect(watcher.take().allSatisfy { !$0.contains("gone") })
    // All tombstones have the time of the deletion's start. A client that did not receive one then gets it from the
    // list.
    writer.list("user44", flags: 2, since: 1_010)
    writer.list("user0", flags: 2, since: 1_010)
    harness.loop.endTurn()
    #expect(writer.take().suffix(2).allSatisfy { $0.contains("team:a (deleted 10") })
  }

  @Test(
    "a `since` with too many changes, too old or ahead of the shard's time is incomplete, and still subscribes"
  )
  func sinceBeyondLimitsIsIncomplete() throws {
    let (harness, writer) = try harnessWithChannel()
    let watcher = harness.connect(session: 2)
    for number in 1...1_025 { writer.post("team:a", "m\(number)") }
    harness.loop.endTurn()
    try harness.persistAll()
    harness.advance(8 * 86_400_000)
    for since in [harness.clock - 7 * 86_400_000 - 1, harness.clock + 1] {
      watcher.subscribe(["team:a"], since: since)
      harness.loop.endTurn()
      try harness.persistAll()
      #expect(watcher.take().last?.hasSuffix("not complete") == true)
    }
    writer.post("team:a", "late")
    harness.loop.endTurn()
    try harness.persistAll()
    _ = watcher.take()
    watcher.subscribe(["team:a"], since: harness.clock - 7 * 86_400_000)
    harness.loop.endTurn()
    #expect(
      watcher.take().last?.hasSuffix("subscribed through \(harness.clock): team:a new late 1026") == true
    )
    harness.advance(-86_400_000 * 2)
    #expect(harness.loop.gauges.subscriptions == 1)
    let (other, many) = try harnessWithChannel()
    for number in 1...1_025 { many.post("team:a", "m\(number)") }
    other.loop.endTurn()
    try other.persistAll()
    _ = many.take()
    many.subscribe(["team:a"], since: 1_000)
    other.loop.endTurn()
    #expect(many.take().last?.hasSuffix("not complete") == true)
  }

  @Test(
    "subscribe with `since` checks many channels over several turns, and sends changes made in between"
  )
  func subscribeWithSinceChecksManyChannelsOverSeveralTurns() throws {
    let harness = try EngineHarness {
      $0.sliceRows = 64
      $0.shortRows = 64
    }
    let writer = harness.connect()
    let cids = (0..<5).map { "team:c\($0)" }
    for cid in cids { writer.put(cid, ["alice"]) }
    harness.loop.endTurn()
    try harness.runUntilIdle()
    harness.advance(10)
    for cid in cids { writer.post(cid, "m1") }
    harness.loop.endTurn()
    try harness.runUntilIdle()
    let watcher = harness.connect(session: 2)
    watcher.subscribe(cids, since: 1_010)
    harness.loop.endTurn()
    #expect(harness.slices == 1 && watcher.take() == [])
    writer.post("team:c0", "m2")
    harness.loop.endTurn()
    try harness.runUntilIdle()
    #expect(
      watcher.take() == [
        "events through 1010: team:c0 new m2 2",
        """
        1 subscribed through 1010: team:c1 new m1 1; team:c2 new m1 1; team:c3 new m1 1; team:c4 new m1 1; team:c0 \
        new m1 1, new m2 2
        """,
      ]
    )
    watcher.subscribe(cids, since: 1_010)
    harness.loop.endTurn()
    harness.loop.close(watcher.lane)
    try harness.runUntilIdle()
    #expect(watcher.take() == [] && !harness.loop.isBusy)
  }

  @Test(
    "a connection's channel and user subscriptions are limited; a request beyond the limit changes nothing"
  )
  func connectionChannelAndUserSubscriptionsAreLimited() throws {
    let harness = try EngineHarness { $0.subscriptionsMax = 3 }
    let gateway = harness.connect()
    gateway.subscribe(["team:a"])
    gateway.subscribe(["team:b", "team:c", "team:d"])
    gateway.subscribe(user: "alice")
    gateway.subscribe(["team:b"])
    gateway.subscribe(user: "bob")
    gateway.unsubscribe(["team:a", "team:a"])
    gateway.subscribe(user: "bob")
    harness.loop.endTurn()
    #expect(
      gateway.take() == [
        "1 subscribed through 1000", "2 limit_reached", "3 user subscribed through 1000",
        "4 subscribed through 1000", "5 limit_reached", "6 unsubscribed", "7 user subscribed through 1000",
      ]
    )
    #expect(harness.loop.gauges.subscriptions == 3)
  }

  @Test(
    "an unreadable channel refuses changes since a time; subscriptions of other requests remain"
  )
  func unreadableChannelRefusesChangesSinceTime() throws {
    let (harness, _) = try harnessWithChannel { $0.residentBytesMax = 1 }
    try harness.writePages()
    let watcher = harness.connect(session: 2)
    watcher.subscribe(["team:a", "team:b"], since: 1_000)
    watcher.subscribe(["team:b"])
    harness.loop.endTurn()
    _ = watcher.take()
    try harness.completeLoad(failing: true)
    #expect(watcher.take() == ["1 unavailable"])
    try harness.completeLoads()
    #expect(watcher.take() == [])
    watcher.put("team:b", ["carol"])
    harness.loop.endTurn()
    try harness.runUntilIdle()
    #expect(watcher.take().last?.hasSuffix("team:b updated of 1, +carol of 1 at 0") == true)
    watcher.unsubscribe(["team:a", "team:b"])
    harness.loop.endTurn()
    #expect(harness.loop.gauges.subscriptions == 0)
  }

  @Test("a channel larger than a turn is checked once, even while it is busy")
  func channelLargerThanTurnIsCheckedOnce() throws {
    let (harness, writer) = try harnessWithChannel {
      $0.sliceRows = 64
      $0.shortRows = 64
    }
    let watcher = harness.connect(session: 2)
    writer.post("team:a", "m1")
    watcher.subscribe(["team:a"], since: 1_000)
    harness.loop.endTurn()
    try harness.persist()
    #expect(watcher.take().contains { $0.hasPrefix("1 subscribed") } && harness.slices == 0)
  }

  @Test(
    "messages with possibly changed statuses count towards a turn like rows, and too many make the answer incomplete"
  )
  func possiblyChangedStatusesCountTowardsTurn() throws {
    let harness = try EngineHarness {
      $0.sliceRows = 360
      $0.shortRows = 360
      $0.scanStatusesMax = 300
    }
    let writer = harness.connect()
    let cids = ["team:a", "team:b"]
    for cid in cids {
      writer.put(cid, ["alice", "bob"])
      for number in 1...300 { writer.post(cid, "m\(number)") }
    }
    harness.loop.endTurn()
    try harness.runUntilIdle()
    harness.advance(10)
    for cid in cids { writer.read(cid, "bob", "m300") }
    harness.loop.endTurn()
    try harness.runUntilIdle()
    let watcher = harness.connect(session: 2)
    watcher.subscribe(cids, since: 1_010)
    harness.loop.endTurn()
    #expect(watcher.take() == [] && harness.slices == 1)
    try harness.runUntilIdle()
    let events = cids.map { "\($0) row bob read 300 unread 0 shown 300, 1-300 read" }.joined(separator: "; ")
    #expect(watcher.take() == ["1 subscribed through 1010: \(events)"])
    harness.advance(10)
    writer.post("team:a", "m301")
    writer.read("team:a", "bob", "m301")
    writer.post("team:b", "m301")
    harness.loop.endTurn()
    try harness.runUntilIdle()
    watcher.subscribe(["team:a"], since: 1_020)
    watcher.subscribe(["team:a"], since: 1_010)
    harness.loop.endTurn()
    try harness.runUntilIdle()
    let after = watcher.take()
    #expect(
      after.contains { $0.hasPrefix("2 subscribed") && $0.hasSuffix("shown 301, 301-301 read") },
      "\(after)"
    )
    #expect(after.contains { $0.hasPrefix("3 subscribed") && $0.hasSuffix("not complete") })
  }

  @Test("subscribe with `since` gives up when the channels keep changing in every turn")
  func sinceGivesUpWhileChannelsKeepChanging() throws {
    let harness = try EngineHarness {
      $0.sliceRows = 64
      $0.shortRows = 64
    }
    let writer = harness.connect()
    let cids = ["team:a", "team:b"]
    for cid in cids { writer.put(cid, ["alice"]) }
    harness.loop.endTurn()
    try harness.runUntilIdle()
    let watcher = harness.connect(session: 2)
    watcher.subscribe(cids, since: 1_000)
    harness.loop.endTurn()
    for number in 1...11 {
      #expect(harness.slices == 1 && !watcher.take().contains { $0.hasPrefix("1 ") })
      harness.advance(1_000)
      for cid in cids { writer.post(cid, "m\(number)") }
      harness.loop.endTurn()
      try harness.persistAll()
      harness.slice()
    }
    #expect(watcher.take().contains("1 busy") && harness.slices == 0)
    writer.post("team:b", "n1")
    harness.loop.endTurn()
    try harness.persistAll()
    #expect(watcher.take().last?.contains("team:b new n1") == true)
  }

  @Test("a subscribe request beyond a limit is refused by name, and changes nothing")
  func subscribeRequestBeyondLimitIsRefusedByName() throws {
    let harness = try EngineHarness(shards: [0, 1], of: 2)
    let gateway = harness.connect()
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
    gateway.announce("no\u{7}user", [mine])
    gateway.subscribe(user: "no\u{7}user")
    gateway.subscribe(user: "alice", on: 2)
    let users = ["alice", "bob", "carol", "dave"]
    gateway.subscribe(user: users.first { home($0) == 1 }!)
    harness.loop.endTurn()
    #expect(
      gateway.take() == [
        "1 invalid_field", "2 wrong_shard", "3 invalid_field", "4 invalid_field", "5 wrong_shard",
        "6 wrong_shard", "7 invalid_field", "8 invalid_field", "9 invalid_field", "10 wrong_shard",
      ]
    )
    #expect(harness.loop.gauges.subscriptions == 0)
  }
}
