import NIOCore
import ReceiptModel
import ReceiptWire
import TestSupport
import Testing

@testable import StoreEngine

/// The index of a user's channels, updated by their shards over a channel that loses, duplicates and delays changes
/// (R13, R14).
@Suite("Index of users' channels", .computing)
struct IndexTests {
  private static let users = (0..<6).map { "user\($0)" }

  @Test("current members, former members and pure senders are indexed in their home shards")
  func membersAndSendersAreIndexedInHomeShards() throws {
    let harness = try IndexHarness()
    #expect(try harness.list("user0") == "no channels")
    harness.put("team:a", Self.users)
    harness.put("team:b", ["user1", "user2"])
    harness.change("team:a", add: ["user9"], remove: ["user1"])
    harness.post("team:b", "m1", by: "user3")
    try harness.runUntilIdle()
    #expect(try harness.differences() == [])
    // In the order in which the changes arrived from the channels' shards.
    func channels(_ user: String) throws -> [String] {
      try harness.list(user).split(separator: ", ").map(String.init).sorted()
    }
    #expect(try channels("user1") == ["team:a (left)", "team:b"])
    #expect(try harness.list("user1", flags: 0) == "team:b")
    #expect(try channels("user3") == ["team:a", "team:b (sent)"])
    harness.change("team:a", add: ["user1"])
    try harness.runUntilIdle()
    #expect(try channels("user1") == ["team:a", "team:b"])
    #expect(harness.harnesses.flatMap(\.reports) == [])
  }

  @Test("list_channels pages by place, and checks limits, flags and home shards")
  func channelsAreListedInPagesByPlace() throws {
    let harness = try IndexHarness()
    for number in 0..<7 { harness.put("team:c\(number)", ["user0"]) }
    try harness.runUntilIdle()
    harness.change("team:c1", remove: ["user0"])
    try harness.runUntilIdle()
    var seen: [String] = []
    var cursor: UInt64?
    var pages = 0
    repeat {
      let page = try harness.list("user0", flags: 0, limit: 2, from: cursor)
      let parts = page.split(separator: " + ")
      seen += parts[0].split(separator: ", ").map(String.init)
      cursor = parts.count > 1 ? UInt64(parts[1]) : nil
      pages += 1
    } while cursor != nil
    #expect(seen.sorted() == [0, 2, 3, 4, 5, 6].map { "team:c\($0)" } && pages == 3)
    #expect(try harness.list("user0", from: 900) == "no channels")
    for (flags, limit) in [(4, 10), (0, 0), (0, 1_001)] as [(UInt64, UInt64)] {
      #expect(try harness.list("user0", flags: flags, limit: limit) == "invalid_field")
    }
    #expect(try harness.list("no\u{7}body") == "invalid_field")
    let gateway = harness.gateway("user0")
    gateway.list("user0", shard: (IndexHarness.shard("user0") + 2) % 4)
    // An index cannot be read as a channel.
    gateway.send(.getChannel, "user0", shard: IndexHarness.shard("user0"))
    harness.harnesses.forEach { $0.loop.endTurn() }
    #expect(gateway.take().map { $0.split(separator: " ")[1] } == ["wrong_shard", "invalid_field"])
  }

  // MARK: Held replies

  @Test("a reply waits until its changes are durable in the index; one without changes leaves at once")
  func replyWaitsUntilChangesAreDurableInIndex() throws {
    let harness = try IndexHarness()
    let gateway = harness.gateway("team:a")
    harness.put("team:a", Self.users)
    var steps = 0
    while gateway.take().isEmpty {
      // Wherever the steps stop, a sent reply implies that the index has the change.
      steps += 1
      guard try harness.step() else {
        Issue.record("never answered")
        return
      }
    }
    #expect(steps > 8)
    try harness.crash(0)
    try harness.crash(1)
    #expect(try harness.differences() == [])
    harness.put("team:a", ["user1"])
    try harness.runUntilIdle()
    let again = harness.gateway("team:a")
    #expect(again.take().last?.hasSuffix("channel of 6") == true)
  }

  @Test("a reply waits a second at most for the index, and never leaves before its own change is durable")
  func replyWaitsForIndexASecondAtMost() throws {
    let harness = try IndexHarness()
    let gateway = harness.gateway("team:a")
    let source = harness.harnesses[Int(IndexHarness.shard("team:a")) % 2]
    harness.put("team:a", ["user1"])
    try source.completeLoads()
    harness.advance(900)
    #expect(gateway.take() == [])
    harness.advance(200)
    // Its commit is still in flight.
    #expect(gateway.take() == [] && !source.commits.isEmpty)
    try source.persist()
    #expect(gateway.take() == ["1 channel of 1 new"])
    #expect(harness.pending == 1)
    try harness.runUntilResent()
    #expect(try harness.differences() == [] && harness.pending == 0)
    #expect(gateway.take() == [])
  }

  // MARK: Faults

  @Test("lost, duplicated and reordered index changes are each applied once, in order")
  func indexChangesAreAppliedOnceInOrder() throws {
    let harness = try IndexHarness { $0.changesInFlightMax = 2 }
    harness.put("team:a", ["user1"])
    harness.put("team:b", ["user1"])
    for _ in 0..<3 {
      harness.change("team:a", remove: ["user1"])
      harness.change("team:a", add: ["user1"])
    }
    harness.change("team:b", remove: ["user1"])
    for target in harness.harnesses {
      try target.completeLoads()
      try target.persistAll()
    }
    let first = harness.harnesses.flatMap(\.deliveries)
    // The number of changes in flight is limited.
    #expect(!first.isEmpty && first.allSatisfy { $0.changes.count <= 2 })
    for target in harness.harnesses { target.deliveries = [] }
    // Later changes follow a gap and are ignored.
    for delivery in first {
      let last = delivery.changes.last!.number
      let next = MembershipDelivery(
        from: delivery.from,
        to: delivery.to,
        after: last,
        changes: [Outbox.QueuedChange(number: last + 1, change: delivery.changes[0].change)]
      )
      harness.deliver([next])
    }
    #expect(harness.harnesses.allSatisfy { $0.commits.isEmpty && $0.loads.isEmpty })
    harness.deliver(first.reversed())
    harness.deliver(first)
    try harness.runUntilIdle()
    harness.deliver(first)
    try harness.runUntilResent()
    #expect(try harness.differences() == [] && harness.pending == 0)
  }

  @Test(
    "a crash of the sending shard, the receiving one or both loses no index change, at any point",
    arguments: 1...3
  )
  func crashLosesNoIndexChange(_ which: Int) throws {
    for point in 0..<60 {
      let harness = try IndexHarness()
      harness.put("team:a", ["user0", "user1", "user2"])
      harness.put("team:b", ["user1"])
      try harness.runUntilIdle()
      harness.change("team:a", add: ["user3", "user4"], remove: ["user0"])
      harness.post("team:b", "m1", by: "user2")
      // All commits complete first: uncommitted changes may be lost, and no other shard has received them.
      for target in harness.harnesses { try target.persistAll() }
      var left = point
      while left > 0, try harness.step() { left -= 1 }
      if which & 1 != 0 { try harness.crash(0) }
      if which & 2 != 0 { try harness.crash(1) }
      try harness.runUntilResent()
      #expect(try harness.differences() == [], "after \(point) steps")
      #expect(harness.pending == 0)
      if left > 0 { break }
    }
  }

  @Test(
    "after random changes, losses and crashes the index agrees with the channels",
    arguments: TestRun.seeds(6, long: 120)
  )
  func indexAgreesWithChannelsAfterRandomChanges(_ seed: UInt64) throws {
    var random = SplitMix64(printing: seed, of: "index after random changes")
    let entries = random.pick([1, 1_024])
    let harness = try IndexHarness { configuration in
      configuration.entriesPerTurn = entries
      configuration.changesInFlightMax = [1, 2, 4_096][random.below(3)]
      configuration.changesPerTurn = [1, 3, 1_024][random.below(3)]
      configuration.indexLoadsMax = [1, 64][random.below(2)]
      configuration.pageWriteAgeMilliseconds = [0, 500, 5_000][random.below(3)]
      configuration.residentBytesMax = [.max, 4_000][random.below(2)]
    }
    for round in 0..<120 {
      let cid = "team:c\(random.below(5))"
      let user = "user\(random.below(12))"
      harness.put(cid, [])
      switch random.below(6) {
      case 5:
        // A deletion may take several turns, in which the channel is not found and its cid cannot be reused.
        if random.below(3) == 0 {
          harness.delete(cid)
          try harness.runUntilIdle()
        }
      case 0, 1: harness.change(cid, add: [user, "user\(random.below(12))"])
      case 2: harness.change(cid, remove: [user])
      case 3: harness.post(cid, "m\(round)", by: user)
      default: harness.change(cid, add: [user], remove: [user])
      }
      // A change sent to an index is in storage, although its reply may be in flight.
      for target in harness.harnesses {
        if entries == 1 { try target.completeSlices() } else { try target.completeLoads() }
      }
      for target in harness.harnesses { try target.persistAll() }
      for _ in 0..<random.below(6) { _ = try harness.step() }
      for target in harness.harnesses {
        switch random.below(12) {
        case 0: target.deliveries = []
        case 1: target.confirmations = []
        case 2: target.deliveries += target.deliveries
        case 3: target.deliveries.reverse()
        default: break
        }
      }
      if random.below(15) == 0 {
        let number = random.below(2)
        try harness.harnesses[number].completeLoads()
        try harness.harnesses[number].persistAll()
        try harness.crash(number)
      }
      if random.below(8) == 0 { harness.advance(Int64(random.below(1_500))) }
    }
    try harness.runUntilResent()
    #expect(try harness.differences() == [])
    #expect(harness.pending == 0 && harness.harnesses.flatMap(\.reports) == [])
    // Recovery from pages alone.
    for _ in 0..<20 {
      harness.advance(10_000)
      try harness.runUntilIdle()
    }
    #expect(harness.logLength == 0)
    try harness.crash(0)
    try harness.crash(1)
    #expect(try harness.differences() == [])
  }

  // MARK: Pages and limits

  @Test(
    "pending index changes survive the log trim; delivered ones are in no page, and numbers are not reused"
  )
  func pendingIndexChangesSurviveLogCut() throws {
    let harness = try IndexHarness()
    harness.put("team:a", ["user1", "user2", "user3"])
    for target in harness.harnesses { try target.completeLoads() }
    // No change is delivered, and the log is trimmed.
    for _ in 0..<20 {
      harness.advance(10_000)
      for target in harness.harnesses {
        target.deliveries = []
        try target.persistAll()
      }
    }
    #expect(harness.logLength == 0 && harness.pending == 3)
    try harness.crash(0)
    try harness.crash(1)
    #expect(harness.pending == 3)
    try harness.runUntilResent()
    #expect(try harness.differences() == [] && harness.pending == 0)
    for _ in 0..<20 {
      harness.advance(10_000)
      try harness.runUntilIdle()
    }
    let shard = ShardID(IndexHarness.shard("team:a"))
    let key = PageKey(shard: shard, channel: ChannelNumber(0), page: .outbox(0))
    let bytes = try #require(harness.storage.pages[key])
    let page = try Page(bytes.readableBytesSpan)
    #expect(page.effects == [])
    #expect(harness.logLength == 0)
    try harness.crash(0)
    try harness.crash(1)
    harness.change("team:a", add: ["user4"], remove: ["user1"])
    try harness.runUntilResent()
    #expect(try harness.differences() == [] && harness.pending == 0)
  }

  @Test("a user is reported as being erased only once their index has all earlier joins")
  func erasureIsReportedOnceIndexIsComplete() throws {
    let harness = try IndexHarness()
    harness.put("team:a", ["user1"])
    let shard = IndexHarness.shard("team:a")
    let source = harness.harnesses[Int(shard) % 2]
    try source.completeLoads()
    try source.persistAll()
    let gateway = harness.gateway("team:a")
    gateway.assign(user: "user1", version: 1, flags: 4, shard: shard)
    source.loop.endTurn()
    try source.persistAll()
    #expect(gateway.take() == [], "the join is in flight, and its own answer waits too")
    try harness.runUntilIdle()
    #expect(gateway.take().count == 2)
    #expect(try harness.list("user1") == "team:a")
  }

  @Test("with too many pending index changes further ones are busy, and other commands continue")
  func pendingIndexChangesAreLimited() throws {
    let harness = try IndexHarness()
    let gateway = harness.gateway("team:a")
    let shard = IndexHarness.shard("team:a")
    let source = harness.harnesses[Int(shard) % 2]
    gateway.put("team:a", (0...Outbox.pendingMax).map { "many\($0)" }, shard: shard)
    try source.completeLoads()
    gateway.change("team:a", add: ["user1"], shard: shard)
    gateway.post("team:a", "m1", by: "user1", shard: shard)
    gateway.put("team:a", ["user1"], shard: shard)
    gateway.post("team:a", "m1", by: "many1", shard: shard)
    gateway.put("team:a", [], shard: shard)
    source.loop.endTurn()
    try source.persist()
    try source.persist()
    let replies = gateway.take()
    #expect(
      replies == ["2 busy", "3 busy", "4 busy", "5 message 1 new", "6 channel of \(Outbox.pendingMax + 1)"]
    )
  }

  @Test("indexes are evicted like channels, and loaded when a change arrives")
  func indexesAreEvictedLikeChannels() throws {
    let harness = try IndexHarness { configuration in
      configuration.residentBytesMax = 1
      configuration.pageWriteAgeMilliseconds = 0
    }
    for round in 0..<8 {
      harness.put("team:c\(round % 3)", ["user\(round % 5)", "user5"])
      try harness.runUntilResent()
    }
    #expect(harness.harnesses.reduce(0) { $0 + $1.loop.gauges.loadedChannels } == 0)
    #expect(try harness.differences() == [])
  }
}
