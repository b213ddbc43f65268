import ReceiptModel
import ReceiptWire
import Testing

@testable import Gateway

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
