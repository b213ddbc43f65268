import NIOCore
import ReceiptModel
import ReceiptWire
import StoreEngine
import StoreTestSupport
import TestSupport
import Testing

/// The feed's records of channels that are deleted before consumers have committed them (R21).
@Suite("Held deletions", .computing)
struct HeldDeletionTests {
  private static let team = "team:a"
  private static let teamRecords = [
    "channel.created team:a", "member.added team:a ann", "member.added team:a bob",
    "message.registered team:a ann m1 1 moves 3", "read team:a bob m1 1", "status team:a ann m1 1 from 1 status 2",
    "channel.deleted team:a",
  ]

  /// Make a channel with a message that was read, for a consumer that has committed nothing, and delete it.
  private static func deleteTeam(_ harness: EngineHarness, _ gateway: Gateway) throws {
    gateway.consumer("crm")
    gateway.put(team, ["ann", "bob"])
    gateway.post(team, "m1", by: "ann")
    gateway.read(team, "bob")
    _ = try FeedTests.replies(harness, gateway)
    gateway.deleteChannel(team)
    #expect(try FeedTests.replies(harness, gateway) == ["channel deleted"])
    gateway.getChannel(team)
    #expect(try FeedTests.replies(harness, gateway) == ["channel_not_found"])
  }

  private static func holds(_ harness: EngineHarness, _ cid: String = team) -> Bool {
    harness.loop.isBeingDeleted(ShardID(0), cid: Array(cid.utf8).span.bytes)
  }

  @Test("a consumer that is behind is told everything of a deleted channel, which then goes")
  func recordsOfDeletedChannelAreTold() throws {
    let (harness, gateway) = try FeedTests.harness()
    try Self.deleteTeam(harness, gateway)
    #expect(try FeedTests.records(harness, gateway) == Self.teamRecords)
    #expect(Self.holds(harness))
    gateway.commit("crm", 6)
    _ = try FeedTests.replies(harness, gateway)
    harness.loop.tick()
    #expect(Self.holds(harness), "the status is not committed")
    gateway.commit("crm", 7)
    _ = try FeedTests.replies(harness, gateway)
    harness.loop.tick()
    #expect(!Self.holds(harness))
    // A range names what it lacks, a stream does not: its consumer has committed that.
    #expect(try FeedTests.records(harness, gateway, from: 1) == ["gap", "channel.deleted team:a"])
    gateway.open("crm", epoch: 5)
    gateway.feed("crm", from: 1, epoch: 5)
    #expect(try FeedTests.replies(harness, gateway).last == "7 channel.deleted team:a; next 8 of 8")
    // Nobody is behind.
    gateway.commit("crm", 8)
    gateway.put("team:b", ["ann"])
    _ = try FeedTests.replies(harness, gateway)
    gateway.commit("crm", 10)
    gateway.deleteChannel("team:b")
    _ = try FeedTests.replies(harness, gateway)
    #expect(!Self.holds(harness, "team:b"))
  }

  @Test("a held channel survives restarts, and goes with the last consumer", arguments: [false, true])
  func heldChannelSurvivesRestart(writesPages: Bool) throws {
    let storage = MemoryStorage()
    var (harness, gateway) = try FeedTests.harness(storage)
    try Self.deleteTeam(harness, gateway)
    for _ in 0..<2 {
      if writesPages { try harness.writePages() }
      (harness, gateway) = try FeedTests.harness(storage)
      let records = try FeedTests.allRecords(harness, gateway).map { $0.drop { $0 != " " }.dropFirst() }
      #expect(records.map(String.init) == Self.teamRecords)
    }
    let other = harness.connect(session: 2)
    other.removeConsumer("crm")
    harness.loop.endTurn()
    try harness.runUntilIdle()
    withExtendedLifetime(other) {}
    harness.loop.tick()
    try harness.runUntilIdle()
    #expect(!Self.holds(harness))
    gateway.getChannel(Self.team)
    harness.loop.endTurn()
    while !harness.loads.isEmpty { try harness.completeLoads() }
    #expect(try FeedTests.replies(harness, gateway) == ["channel_not_found"])
  }

  @Test("the name of a held channel is free at once; who is behind is told a gap")
  func nameOfHeldChannelIsFree() throws {
    let (harness, gateway) = try FeedTests.harness()
    try Self.deleteTeam(harness, gateway)
    harness.advance(1_000)
    gateway.put(Self.team, ["cid"])
    #expect(
      try FeedTests.records(harness, gateway) == [
        "gap", "channel.deleted team:a", "channel.created team:a", "member.added team:a cid",
      ]
    )
    // Records of a channel that is there are told as before.
    gateway.commit("crm", 8)
    gateway.consumer("audit")
    #expect(try FeedTests.records(harness, gateway, from: 8) == ["channel.created team:a", "member.added team:a cid"])
  }

  @Test("an erasure ends holds: no record names the user; who is behind is told a gap")
  func erasureEndsHolds() throws {
    let (harness, gateway) = try FeedTests.harness()
    try Self.deleteTeam(harness, gateway)
    gateway.assign(user: "bob", version: 1, flags: 4)
    gateway.assign(user: "bob", version: 2, flags: 8)
    let records = try FeedTests.records(harness, gateway)
    #expect(records == ["gap", "channel.deleted team:a", "user.erased bob"])
    #expect(!Self.holds(harness))
  }

  @Test("so many deleted channels are held, then the oldest goes")
  func numberOfHeldChannelsIsBounded() throws {
    let (harness, gateway) = try FeedTests.harness()
    gateway.consumer("crm", kinds: [.channelCreated])
    for number in 0...FeedConsumerTable.heldMax {
      gateway.put("team:\(number)")
      gateway.deleteChannel("team:\(number)")
      _ = try FeedTests.replies(harness, gateway)
    }
    let records = try FeedTests.allRecords(harness, gateway).map { $0.drop { $0 != " " } }
    #expect(records.prefix(2) == [" gap", " channel.created team:1"])
  }

  @Test("a channel that is deleted while the feed is off leaves a gap")
  func deletionWithoutFeedLeavesGap() throws {
    let storage = MemoryStorage()
    var (harness, gateway) = try FeedTests.harness(storage)
    gateway.consumer("crm")
    gateway.put("team:a", ["ann"])
    gateway.put("team:b", ["ann"])
    _ = try FeedTests.replies(harness, gateway)
    (harness, gateway) = try FeedTests.harness(storage, retention: nil)
    let other = harness.connect(session: 2)
    other.deleteChannel("team:a")
    harness.loop.endTurn()
    while !harness.loads.isEmpty { try harness.completeLoads() }
    try harness.runUntilIdle()
    #expect(other.take().count == 1)
    (harness, gateway) = try FeedTests.harness(storage)
    gateway = harness.connect(session: 3)
    gateway.open("crm", epoch: 5)
    _ = try FeedTests.replies(harness, gateway)
    gateway.feed("crm", from: 1, epoch: 5)
    harness.loop.endTurn()
    while !harness.feedReads.isEmpty || !harness.loads.isEmpty {
      while !harness.feedReads.isEmpty { try harness.completeFeedRead() }
      try harness.completeLoads()
    }
    let reply = try #require(try FeedTests.replies(harness, gateway).last)
    #expect(reply.hasPrefix("2 gap; "), "\(reply)")
  }

  @Test("a channel that is being deleted when a user is erased is not held", arguments: [false, true])
  func erasureDuringSlicesHoldsNothing(isErased: Bool) throws {
    let (harness, gateway) = try FeedTests.harness {
      $0.changesPerTurn = 10
      $0.sliceEffects = 10
      $0.shortEffects = 10
    }
    gateway.consumer("crm")
    gateway.put(Self.team, (0..<45).map { "user\($0)" })
    func turn() throws {
      harness.loop.endTurn()
      try harness.completeLoads()
      try harness.persistAll()
    }
    for _ in 0..<8 {
      try turn()
      harness.advance(1_000)
      harness.loop.tick()
    }
    gateway.deleteChannel(Self.team)
    try turn()
    #expect(harness.slices > 0)
    gateway.assign(user: "user1", version: 1, flags: 4)
    if isErased { gateway.assign(user: "user1", version: 2, flags: 8) }
    while harness.slices > 0 {
      harness.slice()
      try turn()
    }
    try harness.runUntilIdle()
    #expect(Self.holds(harness) != isErased)
  }

  @Test("a repeated or refused creation does not end a hold")
  func onlyCreationEndsHold() throws {
    let (harness, gateway) = try FeedTests.harness()
    gateway.consumer("crm")
    gateway.put(Self.team, ["ann"])
    _ = try FeedTests.replies(harness, gateway)
    gateway.deleteChannel(Self.team)
    gateway.assign(user: "bob", version: 1, flags: 4)
    _ = try FeedTests.replies(harness, gateway)
    // The second command of the session, which is resent, and another one.
    gateway.put(Self.team, ["ann"], counter: 2)
    gateway.put(Self.team, ["bob"])
    #expect(try FeedTests.replies(harness, gateway) == ["channel_not_found", "user_erased"])
    #expect(Self.holds(harness))
    #expect(
      try FeedTests.records(harness, gateway) == [
        "channel.created team:a", "member.added team:a ann", "channel.deleted team:a",
      ]
    )
  }

  @Test("an event stream is told nothing of a held channel but its deletion")
  func heldChannelHasNoEvents() throws {
    let storage = MemoryStorage()
    var (harness, gateway) = try FeedTests.harness(storage)
    try Self.deleteTeam(harness, gateway)
    (harness, gateway) = try FeedTests.harness(storage)
    gateway.subscribe([Self.team])
    gateway.getChannel(Self.team)
    harness.loop.endTurn()
    while !harness.loads.isEmpty { try harness.completeLoads() }
    _ = try FeedTests.replies(harness, gateway)
    gateway.patch("team", readEvents: false)
    let replies = try FeedTests.replies(harness, gateway)
    #expect(replies.count == 1, "\(replies)")
  }
}
