import ReceiptModel
import ReceiptWire
import TestSupport
import Testing

@testable import Gateway

extension EventHubTests {
  /// A hub whose requests are answered in any order, or fail, while streams come and go.
  private struct History {
    var hub: EventHub
    var random: SplitMix64
    var clock: Int64 = 100
    var requests: [EventHub.Action] = []
    var open: [EventHub.Ref] = []
    let users = ["alice", "bob", "carol"]
    let cids = EventHubTests.cids(1, 4) + EventHubTests.cids(2, 4)

    mutating func below(_ limit: Int) -> Int { Int(random.next() % UInt64(limit)) }

    mutating func step() {
      clock += 1
      switch below(16) {
      case 0, 1, 2: openStream()
      case 3: if !open.isEmpty { hub.close(open.remove(at: below(open.count))) }
      case 4: hub.tick()
      case 5, 6: changeMembership()
      case 7: endMembership()
      case 8 where below(8) == 0: hub.lost(ShardID(UInt16(below(EventHubTests.shardCount))))
      case 9 where below(8) == 0: reconnect()
      case 10: hub.completed(ShardID(UInt16(below(EventHubTests.shardCount))), through: now)
      default: if !requests.isEmpty { answer(requests.remove(at: below(requests.count)), fails: below(6) == 0) }
      }
      takeActions()
    }

    private var now: Timestamp { EventHubTests.time(clock) }

    private mutating func openStream() {
      let starts: [EventCursor.Start] = [.live, .since(EventHubTests.time(clock - 50)), .reset]
      let isServer = below(4) == 0
      let request = EventHub.Request(
        user: isServer ? nil : users[below(users.count)],
        isServer: isServer,
        channels: isServer || below(3) == 0 ? [cids[below(cids.count)]] : nil,
        start: starts[below(starts.count)]
      )
      if let ref = try? hub.open(request) { open.append(ref) }
    }

    private mutating func entry() -> ChannelEntryFields {
      let isMember = below(3) > 0
      return ChannelEntryFields(
        cid: cids[below(cids.count)],
        row: 3,
        isMember: isMember,
        joinedAt: EventHubTests.time(clock - Int64(below(80))),
        deletedAt: EventHubTests.time(isMember || below(2) == 0 ? 0 : clock)
      )
    }

    private mutating func changeMembership() {
      guard let index = hub.index(ofUser: users[below(users.count)]) else { return }
      hub.membership(user: index, entry(), at: now, isGone: false)
    }

    private mutating func endMembership() {
      guard let index = hub.index(ofChannel: cids[below(cids.count)]) else { return }
      let user = users[below(users.count)]
      let event: EventFields =
        below(3) == 0 ? .channelDeleted(at: now) : .memberRemoved(user: user, at: now, memberCount: 1)
      hub.detachAfter(event, channel: index, to: hub.refs(ofChannel: index), later: [])
    }

    private mutating func reconnect() {
      if below(2) == 0 {
        // Another node owns some shards, and gets their requests.
        let shards = Set((0..<EventHubTests.shardCount).filter { _ in below(2) == 0 })
        return hub.connected(shardCount: EventHubTests.shardCount, isSame: true, shards: shards)
      }
      for request in requests { answer(request, fails: true) }
      requests = []
      hub.connected(shardCount: EventHubTests.shardCount, isSame: below(3) > 0)
    }

    private mutating func answer(_ request: EventHub.Action, fails: Bool) {
      let problem = Problem(below(2) == 0 ? .storeUnavailable : .limitReached)
      switch request {
      case .subscribeUser(let index, _):
        if fails { hub.userFailed(index, problem) } else { hub.userSubscribed(index, through: now) }
      case .unsubscribeUser(let index, _):
        if fails { hub.userUnsubscribeFailed(index) } else { hub.userUnsubscribed(index) }
      case .list(let ref, _, _, _, _):
        if fails {
          hub.listFailed(ref, problem)
        } else {
          let entries = (0..<below(5)).map { _ in entry() }
          hub.listed(ref, entries, next: below(4) == 0 ? 7 : nil)
        }
      case .subscribe(let frame, _):
        if fails {
          hub.subscribeFailed(frame, problem)
        } else {
          hub.subscribed(frame, through: now, isComplete: below(5) > 0)
        }
      case .unsubscribe(let frame):
        if fails { hub.unsubscribeFailed(frame) } else { hub.unsubscribed(frame) }
      case .begin, .live, .reset, .refuse, .end, .left, .deleted: break
      }
    }

    private mutating func takeActions() {
      for action in hub.takeActions() {
        switch action {
        case .subscribeUser, .unsubscribeUser, .list, .subscribe, .unsubscribe: requests.append(action)
        case .refuse(let ref, _, _), .end(let ref): open.removeAll { $0 == ref }
        case .begin, .live, .reset, .left, .deleted: break
        }
      }
    }

    /// Close all streams, and answer everything.
    mutating func finish() {
      for ref in open { hub.close(ref) }
      for _ in 0..<20 {
        takeActions()
        for request in requests { answer(request, fails: false) }
        requests = []
        hub.tick()
      }
    }
  }

  /// The invariants of the tables hold after each event of a random history, and nothing is left at its end.
  @Test func tablesAgreeAfterEachEvent() {
    let seed = SplitMix64(printingSeedOf: "event hub")
    var history = History(hub: hub(), random: seed)
    for step in 0..<3_000 {
      history.step()
      if let broken = history.hub.brokenInvariant {
        Issue.record("step \(step): \(broken)")
        return
      }
      #expect(history.hub.streamCount == history.open.count)
      // Larger tables are not checked.
      if history.open.count > 40 { history.hub.close(history.open.removeFirst()) }
    }
    history.finish()
    let hub = history.hub
    #expect(hub.streamCount == 0 && hub.channelCount == 0 && hub.userCount == 0 && hub.attachmentCount == 0)
    #expect(hub.openings == 0 && hub.waitingCount == 0 && hub.time == nil)
  }
}
