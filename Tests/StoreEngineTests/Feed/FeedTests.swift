import Foundation
import NIOCore
import ReceiptModel
import ReceiptWire
import StoreEngine
import StoreTestSupport
import TestSupport
import Testing

/// The change feed of a shard (R21).
@Suite("The feed of a shard", .computing)
struct FeedTests {
  static func harness(
    _ storage: MemoryStorage = MemoryStorage(),
    retention: FeedRetention? = FeedRetention(milliseconds: 0, bytes: 0),
    configure: (inout StoreLoopConfiguration) -> Void = { _ in }
  ) throws -> (harness: EngineHarness, gateway: Gateway) {
    let harness = try EngineHarness(storage) {
      $0.feedRetention = retention
      configure(&$0)
    }
    return (harness, harness.connect())
  }

  /// The replies to what was sent, without their correlations.
  static func replies(_ harness: EngineHarness, _ gateway: Gateway) throws -> [String] {
    harness.loop.endTurn()
    try harness.runUntilIdle()
    return gateway.take().map { String($0.drop { $0 != " " }.dropFirst()) }
  }

  /// The records from a number on.
  static func records(
    _ harness: EngineHarness,
    _ gateway: Gateway,
    from number: UInt64 = 1
  ) throws -> [String] {
    _ = try replies(harness, gateway)
    gateway.feed("crm", from: number)
    let reply = try replies(harness, gateway).joined()
    return reply.split(separator: "; ").dropLast().map { String($0.drop { $0 != " " }.dropFirst()) }
  }

  /// All records, page by page, with what is on storage.
  static func allRecords(_ harness: EngineHarness, _ gateway: Gateway) throws -> [String] {
    var records: [String] = []
    var number: UInt64 = 1
    for _ in 0..<20 {
      gateway.feed("crm", from: number)
      harness.loop.endTurn()
      while !harness.feedReads.isEmpty || !harness.loads.isEmpty {
        while !harness.feedReads.isEmpty { try harness.completeFeedRead() }
        try harness.completeLoads()
      }
      let reply = try #require(try replies(harness, gateway).first)
      let parts = reply.components(separatedBy: "; ")
      records += parts.dropLast()
      let words = parts.last!.split(separator: " ")
      number = UInt64(words[1])!
      if words[1] == words[3] { break }
    }
    return records
  }

  @Test("a conversation is told in order, with names; a send tells its own moves")
  func conversationIsToldInOrder() throws {
    let (harness, gateway) = try Self.harness()
    gateway.consumer("crm")
    gateway.put("team:a", ["ann", "bob"])
    #expect(
      try Self.records(harness, gateway) == [
        "channel.created team:a", "member.added team:a ann", "member.added team:a bob",
      ]
    )
    gateway.post("team:a", "m1", by: "ann")
    gateway.post("team:a", "m2", by: "ann")
    #expect(
      try Self.records(harness, gateway, from: 4) == [
        "message.registered team:a ann m1 1 moves 3", "message.registered team:a ann m2 2 moves 3",
      ]
    )
    // Each mark is told, also two of one batch; the status follows them once.
    gateway.read("team:a", "bob", "m1")
    gateway.read("team:a", "bob", "m2")
    #expect(
      try Self.records(harness, gateway, from: 6) == [
        "read team:a bob m1 1", "read team:a bob m2 2", "status team:a ann m2 2 from 1 status 2",
      ]
    )
    // Moves nothing, tells nothing.
    gateway.read("team:a", "bob", "m1")
    gateway.deleteMessage("team:a", "m1")
    gateway.change("team:a", remove: ["bob"])
    #expect(
      try Self.records(harness, gateway, from: 9) == [
        "message.deleted team:a ann m1 1", "member.removed team:a bob", "status team:a ann m2 2 from 2 status 0",
      ]
    )
  }

  @Test("deliveries by a push ack carry its time; marking unread and reading again are told")
  func deliveriesAndMarkUnreadAreTold() throws {
    let (harness, gateway) = try Self.harness()
    gateway.consumer("crm")
    gateway.put("team:a", ["ann", "bob"])
    gateway.post("team:a", "m1", by: "ann")
    _ = try Self.records(harness, gateway)
    harness.advance(1_000)
    gateway.push("team:a", "bob", "m1", acked: 1_500)
    #expect(
      try Self.records(harness, gateway, from: 5) == [
        "delivered team:a bob m1 1 acked 1500", "status team:a ann m1 1 from 1 status 1",
      ]
    )
    gateway.read("team:a", "bob")
    gateway.send(.markUnread, "team:a") { payload in
      payload.writeField("bob")
      payload.writeField("m1")
      payload.writeVarint(0)
    }
    gateway.read("team:a", "bob")
    #expect(
      try Self.records(harness, gateway, from: 7) == [
        "read team:a bob m1 1", "marked_unread team:a bob epoch 1", "read team:a bob m1 1",
        "status team:a ann m1 1 from 1 status 2",
      ]
    )
    // A send clears the sender's marker, which its own record tells.
    gateway.send(.markUnread, "team:a") { payload in
      payload.writeField("bob")
      payload.writeField("m1")
      payload.writeVarint(0)
    }
    gateway.post("team:a", "m2", by: "bob")
    #expect(
      try Self.records(harness, gateway, from: 11) == [
        "marked_unread team:a bob epoch 2", "message.registered team:a bob m2 2 moves 3",
      ]
    )
  }

  @Test("who hides a kind gives no record of it; hiding and showing change the row")
  func hiddenKindsAreNotTold() throws {
    let (harness, gateway) = try Self.harness()
    gateway.consumer("crm")
    gateway.put("team:a", ["ann", "bob"])
    gateway.post("team:a", "m1", by: "ann")
    gateway.read("team:a", "bob")
    _ = try Self.replies(harness, gateway)
    gateway.assign(user: "bob", version: 1, flags: 1)
    gateway.send(.announceRow, "bob") { $0.writeStrings(["team:a"]) }
    // The record of the read is not told any more.
    #expect(
      try Self.records(harness, gateway, from: 5) == [
        "status team:a ann m1 1 from 1 status 0", "user.updated bob shows 2",
        "row.changed team:a bob read 0 delivered 0", "status team:a ann m1 1 from 1 status 0",
      ]
    )
    gateway.post("team:a", "m2", by: "ann")
    gateway.read("team:a", "bob")
    #expect(
      try Self.records(harness, gateway, from: 10).filter { $0.contains("bob") } == []
    )
  }

  @Test("what a message moved is told as far as others may see it when it is sent")
  func movesOfSenderFollowPrivacy() throws {
    let (harness, gateway) = try Self.harness()
    gateway.consumer("crm")
    gateway.put("team:a", ["ann", "bob"])
    gateway.post("team:a", "m1", by: "ann")
    #expect(try Self.records(harness, gateway, from: 4) == ["message.registered team:a ann m1 1 moves 3"])
    gateway.assign(user: "ann", version: 1, flags: 1)
    #expect(
      try Self.records(harness, gateway, from: 4) == [
        "message.registered team:a ann m1 1 moves 2", "user.updated ann shows 2",
      ]
    )
    gateway.change("team:a", remove: ["ann"])
    let told = try Self.records(harness, gateway, from: 4)
    #expect(told.first == "message.registered team:a ann m1 1 moves 0")
  }

  @Test("an older cursor changes nothing, not even the state")
  func olderCursorChangesNothing() throws {
    let (harness, gateway) = try Self.harness()
    gateway.consumer("crm")
    gateway.put("team:a", ["ann"])
    _ = try Self.replies(harness, gateway)
    gateway.commit("crm", 3, state: "new")
    gateway.commit("crm", 2, state: "older")
    gateway.commit("crm", 3, state: "same")
    gateway.open("crm", epoch: 1)
    #expect(
      try Self.replies(harness, gateway) == ["committed", "committed", "committed", "opened at 3 with 4 bytes"]
    )
    gateway.open("crm", epoch: .max)
    #expect(try Self.replies(harness, gateway) == ["invalid_field"])
    // Cursors that differ in other shards alone.
    gateway.commit("crm", 3, time: 20, state: "newer")
    gateway.commit("crm", 3, time: 10, state: "older than that")
    gateway.open("crm", epoch: 2)
    #expect(try Self.replies(harness, gateway) == ["committed", "committed", "opened at 3 with 5 bytes"])
  }

  @Test("the provider and the device of a push ack that moves nothing are not the next one's")
  func sourceOfPushAckIsItsOwn() throws {
    let (harness, gateway) = try Self.harness()
    gateway.consumer("crm")
    gateway.put("team:a", ["ann", "bob", "carl"])
    gateway.post("team:a", "m1", by: "ann")
    _ = try Self.replies(harness, gateway)
    for _ in 0..<2 {
      gateway.send(.acknowledgePush, "team:a") { payload in
        payload.writeAcknowledgePush(
          user: Array("bob".utf8).span.bytes,
          message: Array("m1".utf8).span.bytes,
          acked: .none,
          wantsNames: false,
          provider: Array("apns".utf8).span.bytes,
          device: Array("tablet".utf8).span.bytes
        )
      }
    }
    gateway.push("team:a", "carl", "m1")
    let records = try Self.records(harness, gateway, from: 6).filter { $0.contains("delivered") }
    #expect(records == ["delivered team:a bob m1 1 apns tablet", "delivered team:a carl m1 1"])
  }

  @Test("a mark-read that acknowledges tells each acknowledgement")
  func readThatAcknowledgesIsTold() throws {
    let (harness, gateway) = try Self.harness()
    gateway.consumer("crm")
    gateway.put("team:a", ["ann", "bob"])
    gateway.post("team:a", "m1", by: "ann", flags: RegisterMessageRequest.requestsAcknowledgement)
    gateway.post("team:a", "m2", by: "ann")
    gateway.post("team:a", "m3", by: "ann", flags: RegisterMessageRequest.requestsAcknowledgement)
    _ = try Self.replies(harness, gateway)
    gateway.read("team:a", "bob", "m3")
    let records = try Self.records(harness, gateway, from: 7)
    #expect(
      records == [
        "read team:a bob m3 3", "acknowledged team:a bob m1 1", "acknowledged team:a bob m3 3",
        "receipt.done team:a ann m1 1", "receipt.done team:a ann m3 3", "status team:a ann m3 3 from 1 status 2",
      ]
    )
  }

  @Test("a reader waits for the next record, and gets it once it is durable")
  func readerWaitsForDurableRecord() throws {
    let (harness, gateway) = try Self.harness()
    gateway.consumer("crm", start: .now)
    gateway.put("team:a", ["ann"])
    _ = try Self.replies(harness, gateway)
    gateway.open("crm", epoch: 5)
    #expect(try Self.replies(harness, gateway) == ["opened at 1"])
    gateway.feed("crm", from: 3, epoch: 5, atOnce: false)
    #expect(try Self.replies(harness, gateway) == [])
    gateway.post("team:a", "m1", by: "ann")
    harness.loop.endTurn()
    #expect(gateway.take() == [])
    #expect(
      try Self.replies(harness, gateway) == [
        "message 1 new", "3 message.registered team:a ann m1 1 moves 3; next 4 of 4",
      ]
    )
    // Without records it is answered from time to time.
    gateway.feed("crm", from: 4, epoch: 5, atOnce: false)
    #expect(try Self.replies(harness, gateway) == [])
    harness.advance(5_000)
    harness.loop.tick()
    #expect(try Self.replies(harness, gateway) == ["next 4 of 4"])
  }

  @Test("a newer stream ends the older one, which may neither read nor commit")
  func newerStreamEndsOlderOne() throws {
    let (harness, gateway) = try Self.harness()
    gateway.consumer("crm")
    gateway.open("crm", epoch: 5)
    _ = try Self.replies(harness, gateway)
    gateway.feed("crm", from: 1, epoch: 5, atOnce: false)
    gateway.open("crm", epoch: 5)
    #expect(try Self.replies(harness, gateway) == ["lease_lost"])
    gateway.open("crm", epoch: 6)
    #expect(try Self.replies(harness, gateway).sorted() == ["lease_lost", "opened at 1"])
    gateway.put("team:a", ["ann"])
    gateway.commit("crm", 2, epoch: 5)
    gateway.commit("crm", 2, epoch: 6)
    _ = try Self.replies(harness, gateway)
    gateway.commit("crm", 2, epoch: 5)
    gateway.commit("crm", 3, epoch: 6, state: "attempt 1")
    gateway.commit("crm", 2, epoch: 6)
    gateway.consumers()
    gateway.open("crm", epoch: 7)
    #expect(
      try Self.replies(harness, gateway) == [
        "lease_lost", "committed", "committed", "consumers crm at 3 end 3", "opened at 3 with 9 bytes",
      ]
    )
  }

  @Test("what is committed, read and numbered survives a restart")
  func feedSurvivesRestart() throws {
    let storage = MemoryStorage()
    var (harness, gateway) = try Self.harness(storage)
    gateway.consumer("crm")
    gateway.put("team:a", ["ann", "bob"])
    _ = try Self.replies(harness, gateway)
    gateway.commit("crm", 3)
    gateway.post("team:a", "m1", by: "ann")
    _ = try Self.replies(harness, gateway)
    for writesPages in [false, true] {
      if writesPages { try harness.writePages() }
      (harness, gateway) = try Self.harness(storage)
      gateway.consumers()
      #expect(try Self.replies(harness, gateway) == ["consumers crm at 3 end 5"])
      // Blocks and channels are read from storage.
      gateway.feed("crm", from: 3)
      harness.loop.endTurn()
      try harness.completeFeedRead()
      while !harness.loads.isEmpty { try harness.completeLoads() }
      #expect(
        try Self.replies(harness, gateway) == [
          "3 member.added team:a bob; 4 message.registered team:a ann m1 1 moves 3; next 5 of 5"
        ]
      )
    }
    // Another session: its counters begin anew.
    let other = harness.connect(session: 2)
    other.read("team:a", "bob")
    let records = try Self.records(harness, gateway, from: 5)
    withExtendedLifetime(other) {}
    #expect(records == ["read team:a bob m1 1", "status team:a ann m1 1 from 1 status 2"])
  }

  @Test("a status names its sender from the message, over reloads and erasures")
  func statusNamesItsSenderAfterReload() throws {
    let storage = MemoryStorage()
    var (harness, gateway) = try Self.harness(storage)
    gateway.consumer("crm", kinds: [.status])
    gateway.put("team:a", ["alice", "bob"])
    gateway.post("team:a", "m1", by: "sys")
    gateway.read("team:a", "alice")
    _ = try Self.replies(harness, gateway)
    gateway.change("team:a", add: ["zed"])
    gateway.post("team:a", "m2", by: "bob")
    gateway.read("team:a", "alice")
    _ = try Self.replies(harness, gateway)
    for isErased in [false, true] {
      if isErased {
        let other = harness.connect(session: 9)
        other.erase("team:a", "bob")
        _ = try Self.replies(harness, gateway)
        withExtendedLifetime(other) {}
      }
      try harness.writePages()
      (harness, gateway) = try Self.harness(storage)
      let reply = try Self.allRecords(harness, gateway).joined(separator: "; ")
      let bob = isErased ? "" : " bob"
      #expect(reply.contains("status team:a sys m1 1 from 1 status 2"), "\(reply)")
      #expect(reply.contains("status team:a\(bob) m2 2 from 2 status 2"), "\(reply)")
    }
  }

  @Test("a status that a hidden read made is told as it is now")
  func statusOfHiddenReadIsToldAsNow() throws {
    let (harness, gateway) = try Self.harness()
    gateway.consumer("crm", kinds: [.status])
    gateway.put("team:a", ["ann", "bob"])
    gateway.post("team:a", "m1", by: "ann")
    gateway.read("team:a", "bob")
    #expect(try Self.records(harness, gateway, from: 5) == ["status team:a ann m1 1 from 1 status 2"])
    gateway.assign(user: "bob", version: 1, flags: 3)
    #expect(try Self.records(harness, gateway, from: 5) == ["status team:a ann m1 1 from 1 status 0"])
  }

  @Test("records are read over evicted and deleted channels, page by page")
  func recordsOfEvictedChannelsAreRead() throws {
    let storage = MemoryStorage()
    var (harness, gateway) = try Self.harness(storage)
    for cid in ["team:a", "team:b", "team:c"] { gateway.put(cid, ["ann"]) }
    _ = try Self.replies(harness, gateway)
    // No consumer needs its names.
    gateway.deleteChannel("team:b")
    _ = try Self.replies(harness, gateway)
    gateway.consumer("crm")
    _ = try Self.replies(harness, gateway)
    try harness.writePages()
    (harness, gateway) = try Self.harness(storage)
    let seen = try Self.allRecords(harness, gateway)
    #expect(
      seen == [
        "1 channel.created team:a", "2 member.added team:a ann", "4 gap", "5 channel.created team:c",
        "6 member.added team:c ann", "7 channel.deleted team:b",
      ]
    )
  }

  @Test("trimmed records leave a gap with its time, and the newest block stays")
  func trimLeavesGap() throws {
    let (harness, gateway) = try Self.harness(retention: FeedRetention(milliseconds: 60_000, bytes: 0))
    gateway.consumer("crm")
    gateway.put("team:a", ["ann"])
    _ = try Self.replies(harness, gateway)
    harness.advance(70_000)
    gateway.post("team:a", "m1", by: "ann")
    _ = try Self.replies(harness, gateway)
    harness.loop.tick()
    try harness.completeFeedTrim()
    gateway.feed("crm", from: 1)
    #expect(
      try Self.replies(harness, gateway) == [
        "gap to 71000; 3 message.registered team:a ann m1 1 moves 3; next 4 of 4"
      ]
    )
    harness.advance(70_000)
    harness.loop.tick()
    for _ in harness.feedTrims { try harness.completeFeedTrim() }
    gateway.feed("crm", from: 3)
    #expect(try Self.replies(harness, gateway) == ["3 message.registered team:a ann m1 1 moves 3; next 4 of 4"])
  }

  @Test("filters by type and channel type let the cursor pass")
  func filtersLetCursorPass() throws {
    let (harness, gateway) = try Self.harness()
    gateway.consumer("crm", kinds: [.read], types: ["team"])
    gateway.put("team:a", ["ann", "bob"])
    gateway.put("dm:b", ["ann", "bob"])
    for cid in ["team:a", "dm:b"] {
      gateway.post(cid, "m1", by: "ann")
      gateway.read(cid, "bob")
    }
    _ = try Self.replies(harness, gateway)
    gateway.feed("crm", from: 1)
    let filtered = try Self.replies(harness, gateway)
    #expect(filtered == ["5 read team:a bob m1 1; next 13 of 13"])
    gateway.consumer("late", start: .time, since: 10_000)
    gateway.feed("late", from: 1)
    let late = try Self.replies(harness, gateway)
    #expect(late == ["next 13 of 13", "consumer made"])
  }

  @Test("a consumer is made once; other filters, too many, and bad names are refused")
  func consumersAreChecked() throws {
    let (harness, gateway) = try Self.harness()
    gateway.consumer("crm", counter: 1)
    gateway.consumer("crm", counter: 1)
    gateway.consumer("crm", counter: 2)
    gateway.consumer("crm", kinds: [.read], counter: 3)
    gateway.consumer("a b", counter: 4)
    gateway.consumer("x", types: ["no:type"], counter: 5)
    gateway.counter = 10
    gateway.feed("nobody", from: 1)
    gateway.commit("nobody", 1)
    gateway.commit("crm", 99)
    gateway.commit("crm", state: String(repeating: "x", count: FeedConsumerTable.stateBytesMax + 1))
    gateway.open("crm", epoch: 1, FeedPartition(index: 0, count: 2))
    #expect(
      try Self.replies(harness, gateway).sorted() == [
        "consumer known", "consumer made", "consumer made", "consumer_conflict", "consumer_not_found",
        "consumer_not_found", "invalid_field", "invalid_field", "invalid_field", "invalid_field", "invalid_field",
      ]
    )
    for number in 0..<FeedConsumerTable.countMax { gateway.consumer("c\(number)") }
    #expect(try Self.replies(harness, gateway).filter { $0 == "limit_reached" }.count == 1)
    gateway.removeConsumer("crm")
    gateway.removeConsumer("crm")
    gateway.consumer("again")
    #expect(try Self.replies(harness, gateway) == ["consumer removed", "consumer removed", "consumer made"])
  }

  @Test("without --feed-retention everything is refused by name, and nothing is stored")
  func feedIsOff() throws {
    let (harness, gateway) = try Self.harness(retention: nil)
    gateway.put("team:a", ["ann"])
    _ = try Self.replies(harness, gateway)
    gateway.consumer("crm")
    gateway.removeConsumer("crm")
    gateway.open("crm", epoch: 1)
    gateway.commit("crm", 1)
    gateway.lease("crm", "w")
    gateway.consumers()
    gateway.feed("crm", from: 1)
    #expect(try Self.replies(harness, gateway) == Array(repeating: "feed_off", count: 7))
    #expect(harness.storage.data.feed.isEmpty)
  }

  @Test("a read of storage that fails is refused; the next one is tried again")
  func failedReadIsRefused() throws {
    let storage = MemoryStorage()
    var (harness, gateway) = try Self.harness(storage)
    gateway.consumer("crm")
    gateway.put("team:a", ["ann"])
    _ = try Self.replies(harness, gateway)
    (harness, gateway) = try Self.harness(storage)
    gateway.feed("crm", from: 1)
    harness.loop.endTurn()
    try harness.completeFeedRead(failing: true)
    #expect(try Self.replies(harness, gateway) == ["unavailable"])
    #expect(harness.reports.count == 1)
    gateway.feed("crm", from: 1)
    harness.loop.endTurn()
    #expect(harness.feedReads.count == 1)
  }

  @Test("workers share partitions, and their leases end by the shard's time, also over a restart")
  func workersSharePartitions() throws {
    let storage = MemoryStorage()
    var (harness, gateway) = try Self.harness(storage)
    gateway.lease("crm", "one")
    gateway.consumer("crm")
    gateway.lease("crm", "one")
    gateway.lease("crm", "two")
    gateway.lease("crm", "", count: 1)
    gateway.lease("crm", "x", count: 2)
    #expect(
      try Self.replies(harness, gateway) == [
        "consumer_not_found", "invalid_field", "invalid_field", "consumer made", "partitions [0] of 1",
        "partitions [] of 2",
      ]
    )
    harness.advance(7_000)
    gateway.lease("crm", "two")
    _ = try Self.replies(harness, gateway)
    (harness, gateway) = try Self.harness(storage)
    harness.advance(9_000)
    gateway.lease("crm", "two")
    #expect(try Self.replies(harness, gateway) == ["partitions [0] of 1"])
  }

  @Test("a consumer has a limited number of workers")
  func workersAreLimited() throws {
    let (harness, gateway) = try Self.harness()
    gateway.consumer("crm")
    for number in 0...FeedLeases.workersMax { gateway.lease("crm", "w\(number)") }
    let replies = try Self.replies(harness, gateway)
    #expect(replies.filter { $0 == "limit_reached" }.count == 1 && replies.last == "limit_reached")
  }
}

extension FeedTests {
  @Test("consumers are told from when on changes were not told because the feed was off")
  func timeWithoutFeedIsToldAsGap() throws {
    let storage = MemoryStorage()
    var (harness, gateway) = try Self.harness(storage)
    gateway.consumer("crm", kinds: [.messageRegistered])
    gateway.put("team:a", ["ann"])
    _ = try Self.replies(harness, gateway)
    for (round, retention) in [nil, FeedRetention(milliseconds: 0, bytes: 0)].enumerated() {
      (harness, gateway) = try Self.harness(storage, retention: retention)
      harness.advance(10_000)
      for _ in 0..<2 {
        harness.loop.tick()
        try harness.runUntilIdle()
      }
      let other = harness.connect(session: UInt64(round) + 2)
      other.post("team:a", "m\(round)", by: "ann")
      _ = try Self.replies(harness, gateway)
      withExtendedLifetime(other) {}
    }
    gateway.feed("crm", from: 1)
    harness.loop.endTurn()
    try harness.completeFeedRead()
    let replies = try Self.replies(harness, gateway)
    #expect(replies == ["3 gap; 4 message.registered team:a ann m1 2 moves 3; next 5 of 5"])
    #expect(harness.loop.shardCount == 1)
  }
}
