import ReceiptModel
import ReceiptWire
import Testing

@testable import Gateway

/// Membership changes concurrent with other requests, transient failures, and limits.
extension EventHubTests {
  private func entry(_ cid: String, joined: Int64) -> ChannelEntryFields {
    entries([cid], joined: joined)[0]
  }

  private func removed(_ user: String, at time: Int64) -> EventFields {
    .memberRemoved(user: user, at: Self.time(time), memberCount: 1)
  }

  @Test func removalBeforeRejoinDoesNotDetach() throws {
    var hub = hub()
    let cids = Self.cids(1, 2)
    let alice = try open("alice", cids, &hub)
    let indexes = try cids.map { try #require(hub.index(ofChannel: $0)) }
    // The index reports both changes before the channel reports either.
    hub.membership(user: 0, membership(cids[0], isMember: false), at: Self.time(80), isGone: true)
    hub.membership(user: 0, entry(cids[0], joined: 90), at: Self.time(90), isGone: false)
    #expect(text(&hub) == ["subscribe 1: 1 since 90"])
    // For the other channel the index reports only the final state.
    hub.membership(user: 0, entry(cids[1], joined: 90), at: Self.time(90), isGone: false)
    for index in indexes {
      hub.detachAfter(removed("alice", at: 80), channel: index, to: [alice], later: [])
      #expect(hub.refs(ofChannel: index) == [alice])
      hub.detachAfter(removed("alice", at: 95), channel: index, to: [alice], later: [])
      #expect(hub.refs(ofChannel: index) == [])
    }
    hub.tick()
    for _ in 0..<LeaveQueue.waitTicks { hub.tick() }
    #expect(!text(&hub).contains { $0.hasPrefix("left") })
  }

  @Test func channelJoinedDuringListingIsSubscribedAfterIt() throws {
    var hub = hub()
    let cids = Self.cids(1, 3)
    let ref = try hub.open(EventHub.Request(user: "alice", start: .since(Self.time(50))))
    hub.userSubscribed(0, through: Self.time(100))
    hub.listed(ref, entries([cids[0]]), next: 7)
    _ = hub.takeActions()
    // One entry is before the list's cursor, the other after it.
    hub.membership(user: 0, entry(cids[1], joined: 70), at: Self.time(70), isGone: false)
    hub.membership(user: 0, entry(cids[2], joined: 71), at: Self.time(71), isGone: false)
    #expect(text(&hub) == [])
    hub.listed(ref, [entry(cids[2], joined: 71)], next: nil)
    let actions = text(&hub)
    #expect(actions.prefix(2) == ["begin 0", "subscribe 0: 1 since 50"])
    #expect(
      Set(actions.suffix(2)) == ["subscribe 1: 1 since 70", "subscribe 2: 1 since 71"] && actions.count == 4
    )
    #expect(cids.allSatisfy { hub.isAttached(ref, $0) })
  }

  @Test func channelJoinedDuringRelistingIsKept() throws {
    var hub = hub()
    let cids = Self.cids(1, 2)
    let user = Self.user(0)
    let ref = try open(user, [cids[0]], &hub)
    hub.lost(ShardID(0))
    #expect(text(&hub) == ["list 0 \(user)"])
    hub.membership(user: 0, entry(cids[1], joined: 70), at: Self.time(70), isGone: false)
    hub.listed(ref, entries([cids[0]]), next: nil)
    let index = try #require(hub.index(ofChannel: cids[1]))
    #expect(!hub.attachments.isLeaving(ref, index))
    // A leaving member who is listed again has rejoined.
    hub.membership(user: 0, membership(cids[0], isMember: false), at: Self.time(80), isGone: true)
    _ = hub.takeActions()
    hub.lost(ShardID(0))
    hub.listed(ref, entries(cids, joined: 90), next: nil)
    #expect(text(&hub) == ["list 0 \(user)", "subscribe 2: 1 since 90"])
    #expect(!hub.attachments.isLeaving(ref, try #require(hub.index(ofChannel: cids[0]))))
  }

  // MARK: Failures

  @Test func liveStreamSurvivesTransientFailures() throws {
    var hub = hub()
    let cids = Self.cids(1, 2)
    let ref = try open("alice", [cids[0]], &hub)
    hub.connected(shardCount: Self.shardCount, isSame: true)
    #expect(text(&hub) == ["subscribe 1: 1 since 100", "subscribe_user alice"])
    hub.subscribed(1, through: Self.time(100), isComplete: true)
    hub.userFailed(0, Problem(.storeBusy))
    #expect(text(&hub) == [] && hub.openings == 0 && !hub.hasID(ref))
    hub.tick()
    #expect(text(&hub) == ["subscribe_user alice"])
    hub.userSubscribed(0, through: Self.time(100))
    hub.listFailed(ref, Problem(.storeUnavailable))
    #expect(text(&hub) == ["list 0 alice"] && hub.openings == 0)
    hub.tick()
    #expect(text(&hub) == ["list 0 alice"])
    hub.listed(ref, entries([cids[0]]) + entries([cids[1]], joined: 90), next: nil)
    #expect(text(&hub) == ["subscribe 2: 1 since 90"])
    hub.subscribeFailed(2, Problem(.outcomeUnknown))
    hub.tick()
    #expect(text(&hub) == ["subscribe 3: 1 since 90"] && !hub.hasID(ref))
    hub.subscribed(3, through: Self.time(100), isComplete: true)
    #expect(hub.hasID(ref) && hub.openings == 0)
    // A permanent failure ends the stream.
    hub.lost(ShardID(UInt16(Self.shard("alice"))))
    _ = hub.takeActions()
    hub.listFailed(ref, Problem(.tokenRevoked))
    #expect(text(&hub) == ["end 0"] && hub.openings == 0)
  }

  @Test func closedWaitingStreamFreesItsQueueSlot() throws {
    var limits = Self.limits
    limits.openings = 1
    var hub = hub(limits, openingsWaiting: 2)
    _ = try hub.open(EventHub.Request(user: "alice"))
    for _ in 0..<5_000 {
      let ref = try hub.open(EventHub.Request(user: "bob"))
      #expect(hub.waitingCount == 1)
      hub.close(ref)
    }
    #expect(hub.waitingCount == 0)
    _ = try hub.open(EventHub.Request(user: "bob"))
    _ = try hub.open(EventHub.Request(user: "carol"))
    #expect(throws: Problem.self) { _ = try hub.open(EventHub.Request(user: "dave")) }
    _ = hub.takeActions()
    hub.userFailed(0, Problem(.storeBusy))
    #expect(text(&hub) == ["refuse 0 store_busy", "subscribe_user bob"] && hub.waitingCount == 1)
  }

  // MARK: Bounds

  @Test func streamsPerUserAreLimited() throws {
    var limits = Self.limits
    limits.streamsPerUser = 2
    var hub = hub(limits)
    let first = try open("alice", [], &hub)
    try open("alice", [], &hub)
    let problem = try #require(throws: Problem.self) { _ = try hub.open(EventHub.Request(user: "alice")) }
    #expect(problem.code == .limitReached && problem.status == 409 && hub.streamCount == 2)
    try open("bob", [], &hub)
    hub.close(first)
    try open("alice", [], &hub)
  }

  @Test func attachmentsOverAllStreamsAreLimited() throws {
    var limits = Self.limits
    limits.attachments = 3
    var hub = hub(limits)
    let cids = Self.cids(1, 3)
    let alice = try open("alice", Array(cids.prefix(2)), &hub)
    let bob = try hub.open(EventHub.Request(user: "bob"))
    hub.userSubscribed(1, through: Self.time(1))
    hub.listed(bob, entries(Array(cids.prefix(2))), next: nil)
    #expect(text(&hub).last == "refuse 1 store_busy" && hub.attachmentCount == 2)
    // A live stream whose user joins too many channels is ended.
    let carol = try open("carol", [cids[0]], &hub)
    hub.membership(user: 0, entry(cids[2], joined: 70), at: Self.time(70), isGone: false)
    #expect(text(&hub) == ["end 0"] && hub[alice] == nil && hub.attachmentCount == 1)
    hub.close(carol)
    #expect(hub.attachmentCount == 0)
  }
}
