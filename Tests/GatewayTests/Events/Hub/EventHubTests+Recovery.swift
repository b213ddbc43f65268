import ReceiptModel
import ReceiptWire
import Testing

@testable import Gateway

/// The time up to which all events have arrived, and recovery from lost events.
extension EventHubTests {
  @Test func hubTimeIsMinimumOverShards() throws {
    var hub = hub()
    let ref = try open(Self.user(0), Self.cids(1, 1) + Self.cids(2, 1) + Self.cids(3, 1), &hub)
    hub.completed(ShardID(0), through: Self.time(900))
    for (shard, through, expected) in [
      (1, 300, 100), (2, 200, 100), (3, 400, 200), (2, 150, 200), (2, 500, 300),
    ] {
      hub.completed(ShardID(UInt16(shard)), through: Self.time(Int64(through)))
      #expect(hub.time == Self.time(Int64(expected)), "\(shard) \(through)")
    }
    #expect(hub.hasID(ref))
  }

  @Test func reconnectResubscribesFromLastTime() throws {
    var hub = hub()
    let cids = Self.cids(1, 2)
    let ref = try open("alice", cids, &hub)
    hub.completed(ShardID(1), through: Self.time(200))
    hub.connected(shardCount: Self.shardCount, isSame: true)
    #expect(text(&hub) == ["subscribe 1: 2 since 200", "subscribe_user alice"])
    #expect(hub.replayRecipients(of: 1) == .allStreams && !hub.hasID(ref))
    // Progress reports before the response do not prove that all events have arrived.
    hub.completed(ShardID(1), through: Self.time(400))
    #expect(hub.progress.through(1) == Self.time(200))
    hub.subscribed(1, through: Self.time(390), isComplete: true)
    #expect(hub.progress.through(1) == Self.time(390))
    hub.userSubscribed(0, through: Self.time(395))
    #expect(text(&hub) == ["list 0 alice"])
    let other = Self.cids(2, 1)[0]
    hub.listed(ref, entries([cids[0], other]), next: nil)
    // The first channel is kept, the other one was joined meanwhile, and the unlisted one was left.
    #expect(text(&hub) == ["subscribe 2: 1 since 5"])
    hub.subscribed(2, through: Self.time(399), isComplete: true)
    #expect(hub.hasID(ref) && hub.openings == 0)
    let index = try #require(hub.index(ofChannel: cids[1]))
    #expect(!hub.receives(.truncated(through: .zero, at: Self.time(1)), ref, channel: index))
  }

  /// In a cluster, another node owns some of the shards now.
  @Test func ownerChangeResubscribesInItsShardsOnly() throws {
    var hub = hub()
    let (alice, bob) = (Self.user(0), Self.user(1))
    let first = try open(alice, Self.cids(1, 2) + Self.cids(2, 1), &hub)
    let second = try open(bob, Self.cids(2, 1), &hub)
    for shard in [0, 1, 2, 3] { hub.completed(ShardID(UInt16(shard)), through: Self.time(200)) }
    hub.connected(shardCount: Self.shardCount, isSame: true, shards: [1])
    let relisting = hub.home(of: bob) == 1 ? ["subscribe_user \(bob)"] : []
    #expect(text(&hub) == ["subscribe 2: 2 since 200"] + relisting)
    #expect(hub.hasID(first) && hub.hasID(second) == relisting.isEmpty)
    // The other shards' events go on, and the time waits for the replay.
    for shard in [0, 1, 2, 3] { hub.completed(ShardID(UInt16(shard)), through: Self.time(300)) }
    #expect(hub.time == Self.time(200) && hub.progress.through(2) == Self.time(300))
    hub.subscribed(2, through: Self.time(310), isComplete: true)
    #expect(hub.progress.through(1) == Self.time(310))
  }

  @Test func lostEventsAreReplayed() throws {
    var hub = hub()
    let cids = Self.cids(1, 3)
    let user = Self.user(0)
    let ref = try open(user, cids, &hub)
    hub.lost(ShardID(1))
    #expect(text(&hub) == ["subscribe 1: 3 since 100"])
    // A failed subscribe is retried.
    hub.subscribeFailed(1, Problem(.storeUnavailable))
    hub.tick()
    #expect(text(&hub) == ["subscribe 2: 3 since 100"])
    // An incomplete answer is split into smaller requests.
    hub.subscribed(2, through: Self.time(500), isComplete: false)
    #expect(text(&hub) == ["subscribe 3: 1 since 100", "subscribe 4: 2 since 100"])
    hub.subscribed(4, through: Self.time(500), isComplete: true)
    hub.subscribed(3, through: Self.time(510), isComplete: false)
    #expect(text(&hub) == ["reset 0", "list 0 \(user)"])
    #expect(hub.progress.through(1) == Self.time(500))
    hub.listed(ref, entries(cids), next: nil)
    #expect(hub.hasID(ref))
  }

  @Test func differentStoreEndsAllStreams() throws {
    var hub = hub()
    try open("alice", Self.cids(1, 3), &hub)
    _ = try hub.open(EventHub.Request(user: "bob"))
    _ = hub.takeActions()
    hub.connected(shardCount: 2, isSame: false)
    #expect(text(&hub) == ["reset 0", "end 0", "refuse 1 store_unavailable"])
    #expect(hub.streamCount == 0 && hub.channelCount == 0 && hub.time == nil && hub.shardCount == 2)
    // Answers from before the change are ignored.
    hub.userSubscribed(1, through: Self.time(1))
    hub.subscribed(0, through: Self.time(1), isComplete: true)
    #expect(text(&hub) == [])
  }

  @Test func channelsPerStreamAreLimited() throws {
    var limits = EventHub.Limits()
    limits.channelsPerStream = 2
    limits.channels = 3
    var hub = hub(limits)
    let ref = try hub.open(EventHub.Request(user: "alice"))
    _ = hub.takeActions()
    hub.userSubscribed(0, through: Self.time(1))
    hub.listed(ref, entries(Self.cids(1, 3)), next: nil)
    #expect(text(&hub).last == "refuse 0 limit_reached")
    try open("bob", Self.cids(1, 2), &hub)
    let third = try hub.open(EventHub.Request(user: "carol"))
    _ = hub.takeActions()
    hub.userSubscribed(2, through: Self.time(1))
    hub.listed(third, entries(Self.cids(2, 2)), next: nil)
    #expect(text(&hub).last == "refuse 1 store_busy")
    #expect(hub.channelCount <= 3)
  }
}

/// Unsubscribing, and the margin before a cursor for membership changes.
extension EventHubTests {
  @Test func failedSubscriptionsAreUnsubscribed() throws {
    var hub = hub()
    let cids = Self.cids(1, 2)
    // Neither request is answered in time: the store may have subscribed both.
    _ = try hub.open(EventHub.Request(user: "alice"))
    _ = hub.takeActions()
    hub.userFailed(0, Problem(.storeUnavailable))
    let server = try hub.open(EventHub.Request(user: nil, isServer: true, channels: cids))
    _ = hub.takeActions()
    hub.subscribeFailed(0, Problem(.storeUnavailable))
    #expect(hub[server] == nil)
    _ = hub.takeActions()
    hub.tick()
    #expect(text(&hub) == ["unsubscribe 2", "unsubscribe_user alice"])
    // A refused unsubscribe is retried without limit.
    for frame in 1...2 {
      hub.unsubscribeFailed(frame)
      hub.userUnsubscribeFailed(0)
      hub.tick()
      #expect(text(&hub) == ["unsubscribe 2", "unsubscribe_user alice"])
    }
    #expect(hub.channelCount == 2 && hub.userCount == 1)
    hub.unsubscribed(3)
    hub.userUnsubscribed(0)
    #expect(hub.channelCount == 0 && hub.userCount == 0)
    #expect(tickAndConfirmUnsubscribes(&hub) == [])
  }

  @Test func resubscribingDuringUnsubscribeSubscribesAgain() throws {
    var hub = hub()
    let cids = Self.cids(1, 1)
    hub.close(try open("alice", cids, &hub))
    hub.tick()
    #expect(text(&hub) == ["unsubscribe 1", "unsubscribe_user alice"] && hub.time == nil)
    let again = try hub.open(EventHub.Request(user: "alice"))
    #expect(text(&hub) == ["subscribe_user alice"])
    hub.userUnsubscribed(0)
    hub.userSubscribed(0, through: Self.time(100))
    hub.listed(again, entries(cids), next: nil)
    #expect(text(&hub) == ["list 0 alice", "subscribe 2: 1"])
    // A late response has no effect.
    hub.unsubscribeFailed(1)
    hub.subscribed(2, through: Self.time(100), isComplete: true)
    #expect(text(&hub) == ["begin 0", "live 0"] && hub.hasID(again))
    hub.close(again)
    #expect(tickAndConfirmUnsubscribes(&hub) == ["unsubscribe 1", "unsubscribe_user alice"])
    #expect(hub.channelCount == 0 && hub.userCount == 0)
  }

  @Test func reconnectDropsPendingUnsubscribes() throws {
    var hub = hub()
    hub.close(try open("alice", Self.cids(1, 1), &hub))
    hub.connected(shardCount: Self.shardCount, isSame: true)
    #expect(tickAndConfirmUnsubscribes(&hub) == [] && hub.channelCount == 0 && hub.userCount == 0)
  }

  /// The user's index lags: it can list a join after the event id has passed it.
  @Test func resumeReplaysMembershipsFromBeforeCursor() throws {
    var hub = hub(EventHub.Limits())
    let cids = Self.cids(1, 3)
    let ref = try hub.open(EventHub.Request(user: "alice", start: .since(Self.time(100_000))))
    hub.userSubscribed(0, through: Self.time(200_000))
    let listed =
      entries([cids[0]], joined: 40_000) + entries([cids[1]], joined: 99_000)
      + entries([cids[2]], isMember: false)
    hub.listed(ref, listed, next: nil)
    #expect(
      text(&hub) == [
        "subscribe_user alice", "list 0 alice gone since 40000", "begin 0", "subscribe 0: 1 since 100000",
        "subscribe 1: 1 since 99000", "subscribe 2: 1 since 40000",
      ]
    )
    #expect(
      hub.replayRecipients(of: 1) == .newMembers([ref]) && hub.replayRecipients(of: 2) == .formerMember(ref)
    )
    // `channel.deleted` is about an earlier channel of that name if the user left the present one later.
    let deleted = EventFields.channelDeleted(at: Self.time(60_000))
    func left(_ user: String) -> EventFields {
      .memberRemoved(user: user, at: Self.time(101_000), memberCount: 1)
    }
    #expect(
      hub.eventsToDeliver([deleted, left("alice")], to: .formerMember(ref)).map { $0 } == [left("alice")]
    )
    #expect(hub.eventsToDeliver([deleted, left("bob")], to: .formerMember(ref)).count == 2)
    #expect(hub.eventsToDeliver([deleted], to: .formerMember(ref)).count == 1)
  }
}
