import ReceiptModel
import ReceiptWire
import Testing

@testable import Gateway

/// ``EventHub`` without a store and without streams: tests call it and compare the actions that it returns.
@Suite struct EventHubTests {
  /// The number of shards in these tests.
  static let shardCount = 4

  static func shard(_ name: String) -> Int {
    let bytes = Array(name.utf8)
    return Int(ShardID.owning(bytes.span.bytes, count: shardCount).rawValue)
  }

  /// The name of a user whose home is `shard`.
  static func user(_ shard: Int) -> String {
    var number = 0
    while Self.shard("user\(number)") != shard { number += 1 }
    return "user\(number)"
  }

  /// `count` channels that `shard` owns.
  static func cids(_ shard: Int, _ count: Int) -> [String] {
    var cids: [String] = []
    var number = 0
    while cids.count < count {
      let cid = "messaging:c\(number)"
      if Self.shard(cid) == shard { cids.append(cid) }
      number += 1
    }
    return cids
  }

  static func time(_ milliseconds: Int64) -> Timestamp { Timestamp(milliseconds: milliseconds) }

  static func added(_ user: String, at time: Timestamp) -> EventFields {
    .memberAdded(
      MemberEventFields(
        user: user,
        role: "",
        at: time,
        memberCount: 2,
        readSequence: .zero,
        readMessage: ""
      )
    )
  }

  /// Limits without a margin before the cursor for membership changes.
  static var limits: EventHub.Limits {
    var limits = EventHub.Limits()
    limits.membershipMargin = 0
    return limits
  }

  func hub(_ limits: EventHub.Limits = Self.limits, openingsWaiting: Int = 10_000) -> EventHub {
    var waiting = WaitingLimits()
    waiting.openings = openingsWaiting
    var hub = EventHub(limits: limits, waiting: waiting)
    hub.connected(shardCount: Self.shardCount, isSame: true)
    return hub
  }

  func text(_ hub: inout EventHub) -> [String] { text(hub.takeActions(), hub) }

  /// Run a tick, confirm its unsubscribe requests, and return its actions.
  func tickAndConfirmUnsubscribes(_ hub: inout EventHub) -> [String] {
    hub.tick()
    let actions = hub.takeActions()
    let text = text(actions, hub)
    for action in actions {
      switch action {
      case .unsubscribe(let frame): hub.unsubscribed(frame)
      case .unsubscribeUser(let index, _): hub.userUnsubscribed(index)
      default: break
      }
    }
    return text
  }

  func text(_ actions: [EventHub.Action], _ hub: EventHub) -> [String] {
    actions.map { action in
      switch action {
      case .subscribeUser(_, let name): "subscribe_user \(name)"
      case .unsubscribeUser(_, let name): "unsubscribe_user \(name)"
      case .list(let ref, let user, _, let cursor, let since):
        """
        list \(ref.slot) \
        \(user)\(cursor.map { " from \($0)" } ?? "")\(since.map { " gone since \($0.milliseconds)" } ?? "")
        """
      case .subscribe(let frame, let since):
        "subscribe \(frame): \(hub.cids(of: frame).count)\(since.map { " since \($0.milliseconds)" } ?? "")"
      case .unsubscribe(let frame): "unsubscribe \(hub.cids(of: frame).count)"
      case .begin(let ref): "begin \(ref.slot)"
      case .live(let ref): "live \(ref.slot)"
      case .reset(let ref): "reset \(ref.slot)"
      case .refuse(let ref, let code, _): "refuse \(ref.slot) \(code.rawValue)"
      case .end(let ref): "end \(ref.slot)"
      case .left(let ref, let cid, _): "left \(ref.slot) \(cid)"
      case .deleted(let ref, let cid, let time): "deleted \(ref.slot) \(cid) at \(time.milliseconds)"
      }
    }
  }

  func entries(_ cids: [String], isMember: Bool = true, joined: Int64 = 5, deleted: Int64 = 0)
    -> [ChannelEntryFields]
  {
    cids.map { cid in
      ChannelEntryFields(
        cid: cid,
        row: deleted > 0 && !isMember ? nil : 3,
        isMember: isMember,
        joinedAt: Self.time(joined),
        deletedAt: Self.time(deleted)
      )
    }
  }

  /// Open a stream for a user with these channels, all of one shard, and answer its requests.
  @discardableResult
  func open(_ user: String, _ cids: [String], _ hub: inout EventHub, through: Int64 = 100) throws
    -> EventHub.Ref
  {
    let ref = try hub.open(EventHub.Request(user: user))
    for _ in 0..<5 {
      for action in hub.takeActions() {
        switch action {
        case .subscribeUser(let index, _): hub.userSubscribed(index, through: Self.time(through))
        case .list(let ref, _, _, _, _): hub.listed(ref, entries(cids), next: nil)
        case .subscribe(let frame, _): hub.subscribed(frame, through: Self.time(through), isComplete: true)
        default: break
        }
      }
    }
    #expect(hub.hasID(ref))
    return ref
  }

  @Test func streamOpensInSteps() throws {
    var hub = hub()
    let cids = Self.cids(1, 2) + Self.cids(2, 1)
    let ref = try hub.open(EventHub.Request(user: "alice"))
    #expect(text(&hub) == ["subscribe_user alice"])
    hub.userSubscribed(0, through: Self.time(90))
    #expect(text(&hub) == ["list 0 alice"])
    hub.listed(ref, entries(Array(cids.prefix(1))), next: 7)
    #expect(text(&hub) == ["list 0 alice from 7"])
    hub.listed(ref, entries(Array(cids.suffix(2))), next: nil)
    #expect(text(&hub) == ["subscribe 0: 2", "subscribe 1: 1"])
    #expect(!hub.hasID(ref))
    hub.subscribed(0, through: Self.time(120), isComplete: true)
    #expect(text(&hub) == [] && !hub.hasID(ref))
    hub.subscribed(1, through: Self.time(110), isComplete: true)
    #expect(text(&hub) == ["begin 0", "live 0"])
    // The minimum over the times of the three shards.
    #expect(hub.hasID(ref) && hub.time == Self.time(90))
    #expect(hub.channelCount == 3 && hub.userCount == 1)
  }

  @Test func streamWithoutChannelsIsLiveImmediately() throws {
    var hub = hub()
    let ref = try hub.open(EventHub.Request(user: "alice"))
    _ = hub.takeActions()
    hub.userSubscribed(0, through: Self.time(90))
    _ = hub.takeActions()
    hub.listed(ref, [], next: nil)
    #expect(text(&hub) == ["begin 0", "live 0"])
    #expect(hub.hasID(ref) && hub.time == Self.time(90))
  }

  @Test func streamsShareSubscriptions() throws {
    var hub = hub()
    let cids = Self.cids(1, 3)
    try open("alice", cids, &hub)
    let bob = try hub.open(EventHub.Request(user: "bob"))
    #expect(text(&hub) == ["subscribe_user bob"])
    hub.userSubscribed(1, through: Self.time(100))
    #expect(text(&hub) == ["list 1 bob"])
    hub.listed(bob, entries(Self.cids(1, 4)), next: nil)
    #expect(text(&hub) == ["subscribe 1: 1"])
    hub.subscribed(1, through: Self.time(100), isComplete: true)
    #expect(text(&hub) == ["begin 1", "live 1"])
    // A second stream of the same user needs only the list, which checks the token.
    let second = try hub.open(EventHub.Request(user: "alice"))
    #expect(text(&hub) == ["list 2 alice"])
    hub.listed(second, entries(cids), next: nil)
    #expect(text(&hub) == ["begin 2", "live 2"])
    let index = hub.index(ofChannel: cids[0])!
    #expect(hub.refs(ofChannel: index).map(\.slot) == [0, 1, 2])
    // Channels of closed streams are unsubscribed with the next tick, if no other stream has them.
    hub.close(bob)
    #expect(hub.refs(ofChannel: index).map(\.slot) == [0, 2])
    #expect(Set(tickAndConfirmUnsubscribes(&hub)) == ["unsubscribe 1", "unsubscribe_user bob"])
    #expect(hub.channelCount == 3 && hub.userCount == 1)
    hub.close(second)
    hub.tick()
    #expect(text(&hub) == [])
  }

  @Test func reopeningBeforeTickReusesSubscriptions() throws {
    var hub = hub()
    let cids = Self.cids(1, 3)
    let first = try open("alice", cids, &hub)
    hub.close(first)
    let again = try hub.open(EventHub.Request(user: "alice"))
    #expect(again != first && hub[first] == nil)
    #expect(text(&hub) == ["list 0 alice"])
    hub.listed(first, entries([]), next: nil)
    hub.listed(again, entries(cids), next: nil)
    #expect(text(&hub) == ["begin 0", "live 0"])
    hub.tick()
    #expect(text(&hub) == [])
    hub.close(again)
    #expect(tickAndConfirmUnsubscribes(&hub) == ["unsubscribe 3", "unsubscribe_user alice"])
    #expect(hub.time == nil && hub.channelCount == 0 && hub.userCount == 0)
  }

  @Test func streamResumesFromCursor() throws {
    var hub = hub()
    let cids = Self.cids(1, 3)
    let ref = try hub.open(EventHub.Request(user: "alice", start: .since(Self.time(50))))
    _ = hub.takeActions()
    hub.userSubscribed(0, through: Self.time(100))
    #expect(text(&hub) == ["list 0 alice gone since 50"])
    hub.listed(ref, entries(Array(cids.prefix(2))) + entries([cids[2]], isMember: false), next: nil)
    // The stream has begun: replayed events are delivered as they arrive.
    #expect(text(&hub) == ["begin 0", "subscribe 0: 2 since 50", "subscribe 1: 1 since 50"])
    #expect(
      hub.replayRecipients(of: 0) == .streams([ref]) && hub.replayRecipients(of: 1) == .formerMember(ref)
    )
    let gone = hub.index(ofChannel: cids[2])!
    let others = Self.added("bob", at: Self.time(60))
    #expect(!hub.receives(others, ref, channel: gone, isFormer: true))
    let own = EventFields.memberRemoved(user: "alice", at: Self.time(60), memberCount: 1)
    #expect(hub.receives(own, ref, channel: gone, isFormer: true))
    #expect(hub.receives(.channelDeleted(at: Self.time(60)), ref, channel: gone, isFormer: true))
    hub.subscribed(0, through: Self.time(100), isComplete: true)
    hub.subscribed(1, through: Self.time(100), isComplete: true)
    #expect(text(&hub) == ["live 0"])
    // No stream has the channel that was left.
    hub.tick()
    #expect(text(&hub) == ["unsubscribe 1"])
  }

  /// R6: members receive nothing from before their join.
  @Test func resumeReplaysJoinedChannelsFromTheJoin() throws {
    var hub = hub()
    let cids = Self.cids(1, 2)
    let ref = try hub.open(EventHub.Request(user: "alice", start: .since(Self.time(3))))
    _ = hub.takeActions()
    hub.userSubscribed(0, through: Self.time(100))
    hub.listed(ref, entries([cids[0]], joined: 2) + entries([cids[1]]), next: nil)
    #expect(
      text(&hub) == [
        "list 0 alice gone since 3", "begin 0", "subscribe 0: 1 since 3", "subscribe 1: 1 since 5",
      ]
    )
    hub.subscribed(1, through: Self.time(100), isComplete: true)
    #expect(text(&hub) == [])
    hub.subscribed(0, through: Self.time(100), isComplete: true)
    #expect(text(&hub) == ["live 0"])
  }

  @Test func resumeReportsDeletedChannelsFirst() throws {
    var hub = hub()
    let cids = Self.cids(1, 4)
    let ref = try hub.open(EventHub.Request(user: "alice", start: .since(Self.time(50))))
    _ = hub.takeActions()
    hub.userSubscribed(0, through: Self.time(100))
    _ = hub.takeActions()
    // The channels: deleted; recreated with the user; recreated without the user or left; and an ordinary one.
    hub.listed(
      ref,
      entries([cids[0]], isMember: false, deleted: 60) + entries([cids[1]], joined: 71, deleted: 70),
      next: 9
    )
    #expect(text(&hub) == ["list 0 alice from 9 gone since 50"])
    hub.listed(ref, entries([cids[2]], isMember: false, deleted: 80) + entries([cids[3]]), next: nil)
    #expect(
      text(&hub) == [
        "begin 0", "deleted 0 \(cids[0]) at 60", "deleted 0 \(cids[1]) at 70", "deleted 0 \(cids[2]) at 80",
        "subscribe 0: 1 since 50", "subscribe 1: 1 since 71",
      ]
    )
    // A new member does not receive the deletion of the earlier channel of that name again.
    let deleted = EventFields.channelDeleted(at: Self.time(71))
    let added = Self.added("alice", at: Self.time(71))
    #expect(hub.replayRecipients(of: 1) == .newMembers([ref]))
    #expect(hub.eventsToDeliver([deleted, added], to: hub.replayRecipients(of: 1)).count == 1)
    #expect(hub.eventsToDeliver([deleted], to: hub.replayRecipients(of: 1)).count == 1)
    #expect(hub.eventsToDeliver([deleted, added], to: hub.replayRecipients(of: 0)).count == 2)
    hub.subscribed(0, through: Self.time(100), isComplete: true)
    hub.subscribed(1, through: Self.time(100), isComplete: true)
    #expect(text(&hub) == ["live 0"] && hub.hasID(ref))
  }

  @Test func resumeFromBeforeKeptTombstonesResets() throws {
    var hub = hub()
    let ref = try hub.open(EventHub.Request(user: "alice", start: .since(Self.time(50))))
    _ = hub.takeActions()
    hub.userSubscribed(0, through: Self.time(100))
    hub.listed(ref, entries(Self.cids(1, 2), joined: 60), next: 4)
    _ = hub.takeActions()
    hub.listFailed(ref, Problem(.limitReached))
    #expect(text(&hub) == ["list 0 alice"])
    hub.listed(ref, entries(Self.cids(1, 1)), next: nil)
    #expect(text(&hub) == ["subscribe 0: 1"])
    hub.subscribed(0, through: Self.time(100), isComplete: true)
    #expect(text(&hub) == ["begin 0", "reset 0", "live 0"] && hub.hasID(ref))
    // For a stream that does not resume, the failure is returned.
    let other = try hub.open(EventHub.Request(user: "alice"))
    _ = hub.takeActions()
    hub.listFailed(other, Problem(.limitReached))
    #expect(text(&hub) == ["refuse 1 limit_reached"])
  }

  @Test func channelRecreatedDuringStoreLossIsRelisted() throws {
    var hub = hub()
    let cid = Self.cids(1, 1)[0]
    let ref = try open("alice", [cid], &hub)
    let server = try hub.open(EventHub.Request(user: nil, isServer: true, channels: [cid]))
    _ = hub.takeActions()
    hub.connected(shardCount: Self.shardCount, isSame: true)
    #expect(text(&hub) == ["subscribe 1: 1 since 100", "subscribe_user alice"])
    // The list arrives first. It does not show that the channel was recreated.
    hub.userSubscribed(0, through: Self.time(200))
    hub.listed(ref, entries([cid], joined: 150), next: nil)
    _ = hub.takeActions()
    let index = try #require(hub.index(ofChannel: cid))
    let deleted = EventFields.channelDeleted(at: Self.time(150))
    let added = Self.added("alice", at: Self.time(150))
    #expect(hub.eventsToDeliver([deleted, added], to: hub.replayRecipients(of: 1)).count == 2)
    hub.detachAfter(deleted, channel: index, to: [ref, server], later: [added])
    #expect(hub.refs(ofChannel: index) == [server] && !hub.hasID(ref))
    hub.subscribed(1, through: Self.time(200), isComplete: true)
    #expect(text(&hub) == ["list 0 alice"])
    hub.listed(ref, entries([cid], joined: 150), next: nil)
    #expect(text(&hub) == ["subscribe 2: 1 since 150"])
    hub.subscribed(2, through: Self.time(200), isComplete: true)
    #expect(Set(hub.refs(ofChannel: index)) == [ref, server] && hub.hasID(ref))
  }

  @Test func incompleteReplayResetsStream() throws {
    var hub = hub()
    let ref = try hub.open(EventHub.Request(user: "alice", start: .since(Self.time(50))))
    _ = hub.takeActions()
    hub.userSubscribed(0, through: Self.time(100))
    hub.listed(ref, entries(Self.cids(1, 1)), next: nil)
    _ = hub.takeActions()
    hub.subscribed(0, through: Self.time(100), isComplete: false)
    #expect(text(&hub) == ["reset 0", "live 0"])
    // An unusable cursor: channels are subscribed before the reset, so that the client misses nothing when it queries.
    let reset = try hub.open(EventHub.Request(user: "alice", start: .reset))
    _ = hub.takeActions()
    hub.listed(reset, entries(Self.cids(1, 1)), next: nil)
    #expect(text(&hub) == ["begin 1", "reset 1", "live 1"])
  }

  @Test func foreignNamedChannelsAreRefused() throws {
    var hub = hub()
    let cids = Self.cids(1, 2)
    for (isServer, code) in [(false, "channel_not_found"), (true, "member_not_found")] {
      let request = EventHub.Request(user: "alice", isServer: isServer, channels: cids)
      let ref = try hub.open(request)
      _ = hub.takeActions()
      hub.userSubscribed(0, through: Self.time(100))
      hub.listed(ref, entries([cids[0], Self.cids(2, 1)[0]]), next: nil)
      #expect(text(&hub).last == "refuse 0 \(code)")
      #expect(hub.streamCount == 0)
    }
    let ref = try hub.open(EventHub.Request(user: "alice", channels: [cids[0]]))
    hub.listed(ref, entries(cids), next: nil)
    #expect(text(&hub) == ["list 0 alice", "subscribe 0: 1"])
  }

  @Test func serverStreamSubscribesToNamedChannels() throws {
    var hub = hub()
    let cids = Self.cids(1, 2)
    let ref = try hub.open(EventHub.Request(user: nil, isServer: true, channels: cids))
    #expect(text(&hub) == ["subscribe 0: 2"])
    hub.subscribed(0, through: Self.time(100), isComplete: true)
    #expect(text(&hub) == ["begin 0", "live 0"])
    #expect(hub.viewer(ref, subject: nil) == .server)
    // The channel may be created again.
    let index = hub.index(ofChannel: cids[0])!
    hub.detachAfter(.channelDeleted(at: Self.time(3)), channel: index, to: [ref], later: [])
    #expect(hub.refs(ofChannel: index) == [ref])
  }

  @Test func subscribeFramesAreBounded() throws {
    var limits = EventHub.Limits()
    limits.frames = 2
    var hub = hub(limits)
    let cids = Self.cids(1, 2_500)
    let ref = try hub.open(EventHub.Request(user: nil, isServer: true, channels: cids))
    #expect(text(&hub) == ["subscribe 0: 1024", "subscribe 1: 1024"])
    hub.subscribed(0, through: Self.time(1), isComplete: true)
    #expect(text(&hub) == ["subscribe 2: 452"])
    hub.subscribed(1, through: Self.time(1), isComplete: true)
    hub.subscribed(2, through: Self.time(1), isComplete: true)
    #expect(text(&hub) == ["begin 0", "live 0"] && hub.hasID(ref))
  }

  @Test func excessOpeningsWaitInOrder() throws {
    var limits = EventHub.Limits()
    limits.openings = 1
    limits.streams = 4
    var hub = hub(limits, openingsWaiting: 2)
    let first = try hub.open(EventHub.Request(user: "alice"))
    let second = try hub.open(EventHub.Request(user: "bob"))
    _ = try hub.open(EventHub.Request(user: "carol"))
    #expect(text(&hub) == ["subscribe_user alice"] && hub.waitingCount == 2)
    #expect(throws: Problem.self) { _ = try hub.open(EventHub.Request(user: "dave")) }
    #expect(hub.streamCount == 3)
    hub.userSubscribed(0, through: Self.time(1))
    hub.listed(first, [], next: nil)
    #expect(text(&hub) == ["list 0 alice", "begin 0", "live 0", "subscribe_user bob"])
    // A closed stream passes its turn to the next one.
    hub.close(second)
    #expect(text(&hub) == ["subscribe_user carol"] && hub.waitingCount == 0)
    _ = try hub.open(EventHub.Request(user: "dave"))
    _ = try hub.open(EventHub.Request(user: "dave"))
    #expect(throws: Problem.self) { _ = try hub.open(EventHub.Request(user: "dave")) }
  }

  @Test func failureDuringOpeningEndsStream() throws {
    var hub = hub()
    let busy = Problem(.storeBusy)
    _ = try hub.open(EventHub.Request(user: "alice"))
    _ = hub.takeActions()
    hub.userFailed(0, busy)
    #expect(text(&hub) == ["refuse 0 store_busy"])
    var ref = try hub.open(EventHub.Request(user: "alice"))
    #expect(text(&hub) == ["subscribe_user alice"])
    hub.userSubscribed(0, through: Self.time(1))
    hub.listFailed(ref, Problem(.tokenRevoked))
    #expect(text(&hub) == ["list 0 alice", "refuse 0 token_revoked"])
    ref = try hub.open(EventHub.Request(user: "alice"))
    hub.listed(ref, entries(Self.cids(1, 1)), next: nil)
    _ = hub.takeActions()
    hub.subscribeFailed(0, busy)
    #expect(text(&hub) == ["refuse 0 store_busy"])
    // A stream that has begun is ended: its client has an id to resume from.
    ref = try hub.open(EventHub.Request(user: "alice", start: .since(Self.time(1))))
    hub.listed(ref, entries(Self.cids(1, 1)), next: nil)
    _ = hub.takeActions()
    hub.subscribeFailed(1, busy)
    #expect(text(&hub) == ["end 0"])
    // The store may have subscribed in spite of the failure.
    #expect(tickAndConfirmUnsubscribes(&hub) == ["unsubscribe 1", "unsubscribe_user alice"])
    #expect(hub.channelCount == 0 && hub.openings == 0)
  }

  // MARK: Memberships

  func membership(_ cid: String, isMember: Bool) -> ChannelEntryFields {
    ChannelEntryFields(cid: cid, row: 3, isMember: isMember, joinedAt: Self.time(70))
  }

  @Test func joinSubscribesLiveStreamsFromTheJoin() throws {
    var hub = hub()
    let cids = Self.cids(1, 3)
    let first = try open("alice", [cids[0]], &hub)
    let second = try open("alice", [cids[0]], &hub)
    let index = try #require(hub.index(ofUser: "alice"))
    hub.membership(user: index, membership(cids[1], isMember: true), at: Self.time(71), isGone: false)
    #expect(text(&hub) == ["subscribe 1: 1 since 70"])
    #expect(hub.replayRecipients(of: 1) == .newMembers([first, second]))
    #expect(!hub.hasID(first) && !hub.hasID(second))
    hub.subscribed(1, through: Self.time(100), isComplete: true)
    #expect(text(&hub) == [] && hub.hasID(first) && hub.hasID(second))
    // A membership that is known already has no effect.
    hub.membership(user: index, membership(cids[1], isMember: true), at: Self.time(71), isGone: false)
    #expect(text(&hub) == [])
  }

  @Test func removedMemberReceivesOwnRemovalLast() throws {
    var hub = hub()
    let cid = Self.cids(1, 1)[0]
    let alice = try open("alice", [cid], &hub)
    let bob = try open("bob", [cid], &hub)
    let index = try #require(hub.index(ofChannel: cid))
    let removed = EventFields.memberRemoved(user: "alice", at: Self.time(80), memberCount: 1)
    #expect(hub.receives(removed, alice, channel: index))
    hub.detachAfter(removed, channel: index, to: [alice, bob], later: [])
    #expect(hub.refs(ofChannel: index) == [bob])
    // The index reports the removal later.
    hub.membership(user: 0, membership(cid, isMember: false), at: Self.time(80), isGone: true)
    #expect(text(&hub) == [])
    // Removed and added again, in one batch of events.
    let added = Self.added("bob", at: Self.time(81))
    let bobRemoved = EventFields.memberRemoved(user: "bob", at: Self.time(81), memberCount: 0)
    hub.detachAfter(bobRemoved, channel: index, to: [bob], later: [added])
    #expect(hub.refs(ofChannel: index) == [bob])
    hub.detachAfter(.channelDeleted(at: Self.time(90)), channel: index, to: [bob], later: [])
    #expect(hub.refs(ofChannel: index) == [])
  }

  @Test func leavingMemberReceivesOnlyOwnRemoval() throws {
    var hub = hub()
    let cid = Self.cids(1, 1)[0]
    let alice = try open("alice", [cid], &hub)
    let index = try #require(hub.index(ofChannel: cid))
    hub.membership(user: 0, membership(cid, isMember: false), at: Self.time(80), isGone: false)
    let message = EventFields.messageDeleted(thread: "", SequenceNumber(1), message: "m1", at: Self.time(81))
    #expect(!hub.receives(message, alice, channel: index))
    #expect(
      hub.receives(.memberRemoved(user: "alice", at: Self.time(80), memberCount: 1), alice, channel: index)
    )
    #expect(
      !hub.receives(.memberRemoved(user: "bob", at: Self.time(80), memberCount: 1), alice, channel: index)
    )
    // The channel's own event does not arrive.
    for _ in 1..<LeaveQueue.waitTicks {
      hub.tick()
      #expect(text(&hub) == [])
    }
    hub.tick()
    #expect(text(&hub) == ["left 0 \(cid)", "unsubscribe 1"])
    // Left and rejoined within that time.
    hub.membership(user: 0, membership(cid, isMember: true), at: Self.time(90), isGone: false)
    let frame = hub.frames.nextNumber - 1
    hub.subscribed(frame, through: Self.time(100), isComplete: true)
    hub.membership(user: 0, membership(cid, isMember: false), at: Self.time(91), isGone: false)
    _ = hub.takeActions()
    hub.membership(user: 0, membership(cid, isMember: true), at: Self.time(92), isGone: false)
    #expect(text(&hub) == ["subscribe \(frame + 1): 1 since 70"])
    let again = try #require(hub.index(ofChannel: cid))
    #expect(hub.receives(message, alice, channel: again))
  }

  @Test func revokedTokensEndStreams() throws {
    var hub = hub()
    for issued: UInt32? in [100, 200, nil] {
      let ref = try hub.open(EventHub.Request(user: "alice", isServer: issued == nil, issued: issued))
      hub.userSubscribed(0, through: Self.time(1))
      hub.listed(ref, [], next: nil)
    }
    _ = hub.takeActions()
    hub.tokensRevoked(user: 0, before: Self.time(200_000))
    #expect(text(&hub) == ["end 0"] && hub.streamCount == 2)
  }

  /// Each waiting stream fails as it begins, since it needs one channel more than the limit allows. They fail in order,
  /// without recursion.
  @Test func thousandsOfWaitingStreamsFailInOrder() throws {
    var limits = Self.limits
    limits.attachments = limits.openings
    var hub = hub(limits)
    let cids = Self.cids(1, 2)
    func open(channels count: Int) throws -> EventHub.Ref {
      try hub.open(EventHub.Request(user: nil, isServer: true, channels: Array(cids.prefix(count))))
    }
    let opening = try (0..<limits.openings).map { _ in try open(channels: 1) }
    let waiting = try (0..<5_000).map { _ in try open(channels: 2) }
    _ = hub.takeActions()
    #expect(hub.openings == opening.count && hub.waitingCount == waiting.count)
    hub.close(opening[0])
    #expect(text(&hub) == waiting.map { "refuse \($0.slot) store_busy" })
    #expect(hub.streamCount == opening.count - 1 && hub.waitingCount == 0)
  }
}
