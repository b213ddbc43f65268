import Foundation
import NIOCore
import ReceiptModel
import ReceiptWire
import StoreTestSupport
import TestSupport
import Testing

@testable import Gateway

/// The order and times in which ``TotalsQueue`` counts users.
@Suite struct TotalsQueueTests {
  private func ref(_ slot: UInt32) -> EventHub.Ref { EventHub.Ref(slot: slot, generation: 1) }

  private func queue(_ users: [String]) -> TotalsQueue {
    var queue = TotalsQueue()
    for (slot, user) in users.enumerated() { queue.add(ref(UInt32(slot)), of: user) }
    return queue
  }

  @Test func usersAreCountedInOrderOfChange() {
    var queue = queue(["alice", "bob", "zoe"])
    #expect(queue.next(at: 0) == nil)
    for user in ["zoe", "alice", "zoe", "nobody"] { queue.changed(user) }
    #expect(queue.next(at: 0) == "zoe" && queue.next(at: 10) == "alice" && queue.next(at: 10) == nil)
    #expect(queue.countingCount == 2)
    // A user who changes constantly does not overtake waiting users.
    queue.counted("zoe", isDone: true)
    queue.changed("zoe")
    queue.changed("bob")
    #expect(queue.next(at: 999) == "bob" && queue.next(at: 999) == nil)
    #expect(queue.next(at: 1_000) == "zoe")
  }

  @Test func userIsCountedAtMostOncePerSecond() {
    var queue = queue(["alice"])
    queue.changed("alice")
    #expect(queue.next(at: 5) == "alice")
    // A change during the count makes the user count again.
    queue.changed("alice")
    #expect(queue.next(at: 2_000) == nil)
    queue.counted("alice", isDone: true)
    #expect(queue.next(at: 2_000) == "alice")
    queue.counted("alice", isDone: true)
    #expect(queue.next(at: 9_000) == nil && queue.countingCount == 0)
    // A failed count is repeated later.
    queue.changed("alice")
    #expect(queue.next(at: 9_000) == "alice")
    queue.counted("alice", isDone: false)
    #expect(queue.next(at: 9_999) == nil && queue.next(at: 10_000) == "alice")
  }

  @Test func removedUserIsNotCounted() {
    var queue = queue(["alice", "bob"])
    queue.changed("alice")
    queue.changed("bob")
    queue.remove(ref(0), of: "alice")
    #expect(queue.next(at: 0) == "bob" && queue.next(at: 0) == nil && queue.userCount == 1)
    queue.remove(ref(1), of: "bob")
    #expect(queue.streams(of: "bob").isEmpty)
    // A user who returns within the second is still counted only once in it.
    queue.add(ref(2), of: "bob")
    queue.changed("bob")
    queue.counted("bob", isDone: true)
    #expect(queue.next(at: 999) == nil && queue.next(at: 1_000) == "bob")
    queue.remove(ref(2), of: "bob")
    queue.counted("bob", isDone: true)
    #expect(queue.next(at: 5_000) == nil && queue.userCount == 0 && queue.countingCount == 0)
  }
}

/// `notification.totals`, and the events of a privacy change.
extension EventRouteTests {
  @Test func totalsFollowUnreadCountChanges() async throws {
    var limits = GatewayLimits()
    limits.heartbeat = .milliseconds(50)
    try await run(limits: limits) { gateway in
      let client = gateway.client
      let stream = try await client.events("?totals=true", token: bob)
      let without = try await client.events(token: bob)
      #expect(await stream.live())
      #expect(await without.live())
      try await gateway.store.publish(Self.general, Self.message("m2"))
      #expect(await stream.types(1) == ["message.new alice"])
      let totals = try #require(await stream.event())
      #expect(totals["type"] as? String == "notification.totals" && totals["cid"] == nil)
      #expect(totals["total_unread_count"] as? Int == 2 && totals["unread_channels"] as? Int == 1)
      #expect(totals["unread_threads"] as? Int == 0)
      // Reads by others do not change bob's totals. His own do, an interval after the last totals.
      try await gateway.store.publish(Self.general, Self.read("alice", 2))
      try await gateway.store.publish(Self.general, Self.read("bob", 2))
      let types = await stream.types(4)
      #expect(
        types == [
          "message.read alice", "message.read bob", "notification.mark_read bob", "notification.totals bob",
        ]
      )
      #expect(
        await without.types(4)
          == ["message.new alice", "message.read alice", "message.read bob", "notification.mark_read bob"]
      )
    }
  }

  /// The stream waits for its turn during several ticks.
  @Test func resumedStreamGetsTotalsOnceBegun() async throws {
    var limits = GatewayLimits()
    limits.heartbeat = .milliseconds(20)
    limits.events.openings = 1
    try await run(limits: limits, deadline: TestGateway.shortDeadline) { gateway in
      // The channels' own changes are older than the id, and than the memberships that a resume looks at.
      try await gateway.store.advance(milliseconds: 3_000)
      try await gateway.store.set(.ignoringKind(.subscribeUser))
      _ = try await gateway.store.takeLog()
      let first = try await gateway.client.events(token: carol)
      // Before that, the mode set below would answer the request.
      var log: [FrameKind] = []
      try await eventually("the store has the first stream's request") {
        log += try await gateway.store.takeLog()
        return log.contains(.subscribeUser)
      }
      let id = "00000000000000010000000000000002-\(gateway.store.startTime.milliseconds + 3_000)"
      let stream = try await gateway.client.events("?totals=true&since=\(id)", token: alice)
      try await eventually("five ticks of the event streams") {
        try await gateway.eventLoop.submit({ gateway.loop.value.events.ticks }).get() >= 5
      }
      #expect(stream.status == 0)
      try await gateway.store.set(.normal)
      #expect(await first.event() == nil && first.status == 503)
      #expect(await stream.types(1) == ["notification.totals alice"])
    }
  }

  @Test func totalsDoNotBlockRequests() async throws {
    var limits = GatewayLimits()
    limits.heartbeat = .milliseconds(20)
    limits.userJobs = 2
    limits.totalsJobs = 1
    try await run(limits: limits) { gateway in
      let streams = [
        try await gateway.client.events("?totals=true", token: alice),
        try await gateway.client.events("?totals=true", token: bob),
      ]
      for stream in streams { #expect(await stream.live()) }
      try await gateway.store.set(.ignoringKind(.unreadCounts))
      try await gateway.store.publish(Self.general, Self.message("m3"))
      for stream in streams { #expect(await stream.types(1) == ["message.new alice"]) }
      let loop = gateway.loop
      let counts = try await gateway.eventLoop.submit {
        [loop.value.totals.countingCount, loop.value.userScans.count]
      }.get()
      #expect(counts == [1, 1])
      try await gateway.store.set(.normal)
      #expect(try await gateway.client.get("/v1/users/carol/unread").status == 200)
    }
  }

  @Test func privacyChangeIsAnnouncedBeforeSettled() async throws {
    try await run { gateway in
      let client = gateway.client
      try await gateway.setUp("messaging:third", members: ["alice"])
      _ = try await gateway.store.takeLog()
      let hide = #"{"privacy_settings":{"read_receipts":{"enabled":false}}}"#
      #expect(try await client.put("/v1/users/alice", hide).status == 200)
      let requests = try await gateway.store.takeRequests()
      let log = requests.map(\.kind)
      #expect(log.first == .patchUser && log.last == .settle)
      #expect(log.filter { $0 == .assignUser }.count == 3)
      let last = log.lastIndex(of: .assignUser) ?? 0
      #expect(log.firstIndex(of: .announceRow).map { $0 > last } == true)
      #expect(try requests.announcedRows == ["alice \(Self.general)", "alice messaging:third"])
      // Others do not see a revocation.
      _ = try await client.put("/v1/users/alice", #"{"revoke_tokens_before":"2024-01-01T01:00:00Z"}"#)
      #expect(try await !gateway.store.takeLog().contains(.announceRow))
      // A change that could not be announced stays unsettled, and is retried.
      try await gateway.store.set(.refusingKind(.announceRow, .busy))
      let show = #"{"privacy_settings":{"read_receipts":{"enabled":true}}}"#
      #expect(try await client.put("/v1/users/alice", show).verdict == "503 outcome_unknown")
      #expect(try await gateway.store.unsettled() == ["alice"])
    }
  }
}
