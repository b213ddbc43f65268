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
  func feeds() throws {
    let world = try IndexWorld()
    #expect(try world.list("user0") == "no channels")
    world.put("team:a", Self.users)
    world.put("team:b", ["user1", "user2"])
    world.change("team:a", add: ["user9"], remove: ["user1"])
    world.post("team:b", "m1", by: "user3")
    try world.settle()
    #expect(try world.differences() == [])
    // In the order in which the changes arrived from the channels' shards.
    func channels(_ user: String) throws -> [String] {
      try world.list(user).split(separator: ", ").map(String.init).sorted()
    }
    #expect(try channels("user1") == ["team:a (left)", "team:b"])
    #expect(try world.list("user1", flags: 0) == "team:b")
    #expect(try channels("user3") == ["team:a", "team:b (sent)"])
    world.change("team:a", add: ["user1"])
    try world.settle()
    #expect(try channels("user1") == ["team:a", "team:b"])
    #expect(world.worlds.flatMap(\.reports) == [])
  }

  @Test("list_channels pages by place, and checks limits, flags and home shards")
  func paging() throws {
    let world = try IndexWorld()
    for number in 0..<7 { world.put("team:c\(number)", ["user0"]) }
    try world.settle()
    world.change("team:c1", remove: ["user0"])
    try world.settle()
    var seen: [String] = []
    var cursor: UInt64?
    var pages = 0
    repeat {
      let page = try world.list("user0", flags: 0, limit: 2, from: cursor)
      let parts = page.split(separator: " + ")
      seen += parts[0].split(separator: ", ").map(String.init)
      cursor = parts.count > 1 ? UInt64(parts[1]) : nil
      pages += 1
    } while cursor != nil
    #expect(seen.sorted() == [0, 2, 3, 4, 5, 6].map { "team:c\($0)" } && pages == 3)
    #expect(try world.list("user0", from: 900) == "no channels")
    for (flags, limit) in [(4, 10), (0, 0), (0, 1_001)] as [(UInt64, UInt64)] {
      #expect(try world.list("user0", flags: flags, limit: limit) == "invalid_field")
    }
    #expect(try world.list("no\u{7}body") == "invalid_field")
    let gateway = world.gateway("user0")
    gateway.list("user0", shard: (IndexWorld.shard("user0") + 2) % 4)
    // An index cannot be read as a channel.
    gateway.send(.getChannel, "user0", shard: IndexWorld.shard("user0"))
    world.worlds.forEach { $0.loop.endTurn() }
    #expect(gateway.take().map { $0.split(separator: " ")[1] } == ["wrong_shard", "invalid_field"])
  }

  // MARK: Held replies

  @Test("a reply waits until its changes are durable in the index; one without changes leaves at once")
  func held() throws {
    let world = try IndexWorld()
    let gateway = world.gateway("team:a")
    world.put("team:a", Self.users)
    var steps = 0
    while gateway.take().isEmpty {
      // Wherever the steps stop, a sent reply implies that the index has the change.
      steps += 1
      guard try world.step() else {
        Issue.record("never answered")
        return
      }
    }
    #expect(steps > 8)
    try world.crash(0)
    try world.crash(1)
    #expect(try world.differences() == [])
    world.put("team:a", ["user1"])
    try world.settle()
    let again = world.gateway("team:a")
    #expect(again.take().last?.hasSuffix("channel of 6") == true)
  }

  @Test("a reply waits a second at most for the index, and never leaves before its own change is durable")
  func heldTooLong() throws {
    let world = try IndexWorld()
    let gateway = world.gateway("team:a")
    let source = world.worlds[Int(IndexWorld.shard("team:a")) % 2]
    world.put("team:a", ["user1"])
    try source.answerLoads()
    world.pass(900)
    #expect(gateway.take() == [])
    world.pass(200)
    // Its commit is still in flight.
    #expect(gateway.take() == [] && !source.commits.isEmpty)
    try source.persist()
    #expect(gateway.take() == ["1 channel of 1 new"])
    #expect(world.pending == 1)
    try world.settleAll()
    #expect(try world.differences() == [] && world.pending == 0)
    #expect(gateway.take() == [])
  }

  // MARK: Faults

  @Test("lost, duplicated and reordered index changes are each applied once, in order")
  func ways() throws {
    let world = try IndexWorld { $0.changesInFlightMax = 2 }
    world.put("team:a", ["user1"])
    world.put("team:b", ["user1"])
    for _ in 0..<3 {
      world.change("team:a", remove: ["user1"])
      world.change("team:a", add: ["user1"])
    }
    world.change("team:b", remove: ["user1"])
    for target in world.worlds {
      try target.answerLoads()
      try target.persistAll()
    }
    let first = world.worlds.flatMap(\.deliveries)
    // The number of changes in flight is limited.
    #expect(!first.isEmpty && first.allSatisfy { $0.changes.count <= 2 })
    for target in world.worlds { target.deliveries = [] }
    // Later changes follow a gap and are ignored.
    for delivery in first {
      let last = delivery.changes.last!.number
      let next = MembershipDelivery(
        from: delivery.from,
        to: delivery.to,
        after: last,
        changes: [Outbox.QueuedChange(number: last + 1, change: delivery.changes[0].change)]
      )
      world.arrive([next])
    }
    #expect(world.worlds.allSatisfy { $0.commits.isEmpty && $0.loads.isEmpty })
    world.arrive(first.reversed())
    world.arrive(first)
    try world.settle()
    world.arrive(first)
    try world.settleAll()
    #expect(try world.differences() == [] && world.pending == 0)
  }

  @Test(
    "a crash of the sending shard, the receiving one or both loses no index change, at any point",
    arguments: 1...3
  )
  func crashes(_ which: Int) throws {
    for point in 0..<60 {
      let world = try IndexWorld()
      world.put("team:a", ["user0", "user1", "user2"])
      world.put("team:b", ["user1"])
      try world.settle()
      world.change("team:a", add: ["user3", "user4"], remove: ["user0"])
      world.post("team:b", "m1", by: "user2")
      // All commits complete first: uncommitted changes may be lost, and no other shard has received them.
      for target in world.worlds { try target.persistAll() }
      var left = point
      while left > 0, try world.step() { left -= 1 }
      if which & 1 != 0 { try world.crash(0) }
      if which & 2 != 0 { try world.crash(1) }
      try world.settleAll()
      #expect(try world.differences() == [], "after \(point) steps")
      #expect(world.pending == 0)
      if left > 0 { break }
    }
  }

  @Test(
    "after random changes, losses and crashes the index agrees with the channels",
    arguments: 1...12
  )
  func random(_ seed: UInt64) throws {
    var state = seed
    func below(_ limit: Int) -> Int {
      state = state &* 6_364_136_223_846_793_005 &+ 1_442_695_040_888_963_407
      return Int(state >> 33) % limit
    }
    let world = try IndexWorld { configuration in
      configuration.changesInFlightMax = [1, 2, 4_096][below(3)]
      configuration.changesPerTurn = [1, 3, 1_024][below(3)]
      configuration.indexLoadsMax = [1, 64][below(2)]
      configuration.checkpointAgeMilliseconds = [0, 500, 5_000][below(3)]
      configuration.residentBytesMax = [.max, 4_000][below(2)]
    }
    for round in 0..<120 {
      let cid = "team:c\(below(5))"
      let user = "user\(below(12))"
      world.put(cid, [])
      switch below(6) {
      case 5:
        // A deletion may take several turns, in which the channel is not found and its cid cannot be reused.
        if below(3) == 0 {
          world.delete(cid)
          try world.settle()
        }
      case 0, 1: world.change(cid, add: [user, "user\(below(12))"])
      case 2: world.change(cid, remove: [user])
      case 3: world.post(cid, "m\(round)", by: user)
      default: world.change(cid, add: [user], remove: [user])
      }
      // A change sent to an index is in storage, although its reply may be in flight.
      for target in world.worlds { try target.answerLoads() }
      for target in world.worlds { try target.persistAll() }
      for _ in 0..<below(6) { _ = try world.step() }
      for target in world.worlds {
        switch below(12) {
        case 0: target.deliveries = []
        case 1: target.acknowledgements = []
        case 2: target.deliveries += target.deliveries
        case 3: target.deliveries.reverse()
        default: break
        }
      }
      if below(15) == 0 {
        let number = below(2)
        try world.worlds[number].answerLoads()
        try world.worlds[number].persistAll()
        try world.crash(number)
      }
      if below(8) == 0 { world.pass(Int64(below(1_500))) }
    }
    try world.settleAll()
    #expect(try world.differences() == [])
    #expect(world.pending == 0 && world.worlds.flatMap(\.reports) == [])
    // Recovery from pages alone.
    for _ in 0..<20 {
      world.pass(10_000)
      try world.settle()
    }
    #expect(world.logLength == 0)
    try world.crash(0)
    try world.crash(1)
    #expect(try world.differences() == [])
  }

  // MARK: Deleted channels

  @Test("a deleted channel leaves a tombstone, which is not listed as a channel and survives a crash")
  func tombstones() throws {
    let world = try IndexWorld()
    world.put("team:a", ["user1", "user2", "user3"])
    try world.settle()
    world.put("team:b", ["user1"])
    world.post("team:a", "m1", by: "user4")
    try world.settle()
    world.pass(10)
    world.change("team:a", remove: ["user2"])
    world.pass(10)
    world.delete("team:a")
    try world.settle()
    world.pass(10)
    #expect(try world.differences() == [])
    for flags in [0, 1] as [UInt64] {
      #expect(try world.list("user1", flags: flags) == "team:b")
      #expect(try world.list("user2", flags: flags) == "no channels")
    }
    func check() throws {
      #expect(try world.list("user1", flags: 2, since: 1_020) == "team:a (deleted 1020), team:b")
      // A former member was a member until they left.
      #expect(try world.list("user2", flags: 3, since: 1_010) == "team:a (deleted 1010)")
      #expect(try world.list("user2", flags: 3, since: 1_011) == "no channels")
      // This user never was a member.
      #expect(try world.list("user4", flags: 3, since: 1_000) == "no channels")
    }
    try check()
    #expect(try world.list("user1", flags: 3, since: 1_021) == "team:b")
    #expect(try world.list("user1", flags: 2, limit: 1, since: 1_000) == "team:a (deleted 1020) + 1")
    #expect(try world.list("user1", flags: 2, limit: 1, from: 1, since: 1_000) == "team:b")
    try world.crash(0)
    try world.crash(1)
    try check()
    // Recovery from pages alone.
    for _ in 0..<20 {
      world.pass(10_000)
      try world.settle()
    }
    #expect(world.logLength == 0)
    try world.crash(0)
    try world.crash(1)
    try check()
  }

  @Test("a new channel replaces the tombstone of its cid, and its entry reports both")
  func madeAnew() throws {
    let world = try IndexWorld()
    world.put("team:a", ["user1", "user2", "user3"])
    try world.settle()
    world.pass(10)
    world.delete("team:a")
    world.pass(10)
    world.put("team:a", ["user1"])
    world.post("team:a", "m1", by: "user2")
    try world.settle()
    #expect(try world.list("user1", flags: 2, since: 1_010) == "team:a (new since deleted 1010)")
    #expect(try world.list("user1", flags: 2, since: 1_011) == "team:a")
    // user2 only sent a message to the new channel, and the new channel does not know the other user.
    #expect(try world.list("user2", flags: 2, since: 1_010) == "team:a (deleted 1010)")
    #expect(try world.list("user2", flags: 1) == "team:a (sent)")
    #expect(try world.list("user3", flags: 3, since: 1_010) == "team:a (deleted 1010)")
    #expect(try world.differences() == [])
    world.pass(10)
    world.delete("team:a")
    try world.settle()
    #expect(try world.list("user1", flags: 3, since: 1_011) == "team:a (deleted 1030)")
    // They were not members of the second channel.
    #expect(try world.list("user2", flags: 3, since: 1_010) == "team:a (deleted 1010)")
    #expect(try world.list("user2", flags: 3, since: 1_011) == "no channels")
  }

  @Test("tombstones are kept for 7 days and removed with later changes; an older `since` is refused")
  func forgotten() throws {
    let day: Int64 = 86_400_000
    let world = try IndexWorld()
    for number in 0..<5 { world.put("team:c\(number)", ["user1"]) }
    world.put("team:stays", ["user1"])
    try world.settle()
    let start = world.clock
    for number in 0..<4 { world.delete("team:c\(number)") }
    try world.settle()
    world.pass(7 * day)
    #expect(try world.list("user1", flags: 3, since: start).contains("team:c3 (deleted \(start))"))
    world.pass(1)
    #expect(try world.list("user1", flags: 3, since: start) == "limit_reached")
    #expect(try world.list("user1", flags: 3, since: world.clock + 1) == "limit_reached")
    let first = try world.list("user1", flags: 3, since: start + 1)
    #expect(first == "team:c4, team:stays" || first == "team:stays, team:c4")
    // Each change removes two tombstones.
    #expect(try deletions(of: "user1", world) == 4)
    world.delete("team:c4")
    try world.settle()
    #expect(try deletions(of: "user1", world) == 3)
    world.put("team:c4", ["user1"])
    try world.settle()
    #expect(try deletions(of: "user1", world) == 1)
    #expect(try world.differences() == [])
    // An empty index leaves nothing behind.
    world.put("team:short", ["user2"])
    try world.settle()
    world.delete("team:short")
    try world.settle()
    world.pass(8 * day)
    world.post("team:stays", "m1", by: "user2")
    try world.settle()
    #expect(try world.list("user2", flags: 1) == "team:stays (sent)")
    world.delete("team:stays")
    try world.settleAll()
    let home = world.worlds[Int(IndexWorld.shard("user2")) % 2]
    let name = Array("user2".utf8)
    #expect(home.loop.shards.allSatisfy { $0.state.index(of: name.span.bytes) == nil })
  }

  /// The number of tombstones in a user's index.
  private func deletions(of user: String, _ world: IndexWorld) throws -> Int {
    let home = world.worlds[Int(IndexWorld.shard(user)) % 2]
    let name = Array(user.utf8)
    let counts = home.loop.shards.compactMap { shard in
      shard.state.index(of: name.span.bytes).map { shard.state[$0].memberships.deletions.count }
    }
    return try #require(counts.first)
  }

  @Test("a user being erased leaves no tombstone, and no index that has nothing else")
  func erasedTombstones() throws {
    let world = try IndexWorld()
    world.put("team:a", ["user1", "user2"])
    world.put("team:b", ["user1"])
    world.put("team:c", ["user1", "user2"])
    try world.settle()
    world.delete("team:a")
    try world.settle()
    let home = IndexWorld.shard("user1")
    world.gateway("user1").assign(user: "user1", version: 1, flags: 4, shard: home)
    world.worlds.forEach { $0.loop.endTurn() }
    try world.settle()
    // A channel deleted during the erasure leaves no tombstone.
    world.delete("team:b")
    try world.settle()
    #expect(try deletions(of: "user1", world) == 1)
    world.gateway("team:c").erase("team:c", "user1", shard: IndexWorld.shard("team:c"))
    world.worlds.forEach { $0.loop.endTurn() }
    try world.settle()
    let index = { (user: String) in
      let name = Array(user.utf8)
      return world.worlds.contains { target in
        target.loop.shards.contains { $0.state.index(of: name.span.bytes) != nil }
      }
    }
    #expect(!index("user1"))
    // Erasure of a user whose index has only tombstones removes the index on request.
    world.delete("team:c")
    try world.settle()
    let other = IndexWorld.shard("user2")
    world.gateway("user2").assign(user: "user2", version: 1, flags: 4, shard: other)
    world.worlds.forEach { $0.loop.endTurn() }
    try world.settle()
    #expect(index("user2"))
    #expect(try world.list("user2") == "no channels")
    #expect(!index("user2"))
    #expect(try world.list("user2", flags: 3, since: 1_000) == "no channels")
  }

  @Test("a rebuild neither removes tombstones nor restores deleted channels")
  func rebuiltTombstones() throws {
    let world = try IndexWorld()
    world.put("team:a", ["user1", "user2"])
    try world.settle()
    world.put("team:b", ["user1"])
    try world.settle()
    world.delete("team:a")
    try world.settle()
    world.put("team:a", ["user2"])
    try world.settle()
    try rebuild(world, epoch: 1)
    #expect(try world.list("user1", flags: 3, since: 1_000) == "team:a (deleted 1000), team:b")
    #expect(try world.list("user2", flags: 3, since: 1_000) == "team:a (new since deleted 1000)")
    #expect(try world.differences() == [])
    world.pass(7 * 86_400_000 + 1)
    try rebuild(world, epoch: 2)
    #expect(try deletions(of: "user1", world) == 0)
    #expect(try world.differences() == [])
  }

  // MARK: Pages and limits

  @Test(
    "pending index changes survive the log's cut; delivered ones are in no page, and numbers are not reused"
  )
  func pages() throws {
    let world = try IndexWorld()
    world.put("team:a", ["user1", "user2", "user3"])
    for target in world.worlds { try target.answerLoads() }
    // No change is delivered, and the log is cut.
    for _ in 0..<20 {
      world.pass(10_000)
      for target in world.worlds {
        target.deliveries = []
        try target.persistAll()
      }
    }
    #expect(world.logLength == 0 && world.pending == 3)
    try world.crash(0)
    try world.crash(1)
    #expect(world.pending == 3)
    try world.settleAll()
    #expect(try world.differences() == [] && world.pending == 0)
    for _ in 0..<20 {
      world.pass(10_000)
      try world.settle()
    }
    let shard = ShardID(IndexWorld.shard("team:a"))
    let key = PageKey(shard: shard, channel: ChannelNumber(0), page: .outbox(0))
    let bytes = try #require(world.storage.pages[key])
    let page = try Page(bytes.readableBytesSpan)
    #expect(page.effects == [])
    #expect(world.logLength == 0)
    try world.crash(0)
    try world.crash(1)
    world.change("team:a", add: ["user4"], remove: ["user1"])
    try world.settleAll()
    #expect(try world.differences() == [] && world.pending == 0)
  }

  @Test("a user is reported as being erased only once their index has all earlier joins")
  func erasingWaits() throws {
    let world = try IndexWorld()
    world.put("team:a", ["user1"])
    let shard = IndexWorld.shard("team:a")
    let source = world.worlds[Int(shard) % 2]
    try source.answerLoads()
    try source.persistAll()
    let gateway = world.gateway("team:a")
    gateway.assign(user: "user1", version: 1, flags: 4, shard: shard)
    source.loop.endTurn()
    try source.persistAll()
    #expect(gateway.take() == [], "the join is in flight, and its own answer waits too")
    try world.settle()
    #expect(gateway.take().count == 2)
    #expect(try world.list("user1") == "team:a")
  }

  @Test("with too many pending index changes further ones are busy, and other commands continue")
  func full() throws {
    let world = try IndexWorld()
    let gateway = world.gateway("team:a")
    let shard = IndexWorld.shard("team:a")
    let source = world.worlds[Int(shard) % 2]
    gateway.put("team:a", (0...Outbox.pendingMax).map { "many\($0)" }, shard: shard)
    try source.answerLoads()
    gateway.change("team:a", add: ["user1"], shard: shard)
    gateway.post("team:a", "m1", by: "user1", shard: shard)
    gateway.put("team:a", ["user1"], shard: shard)
    gateway.post("team:a", "m1", by: "many1", shard: shard)
    gateway.put("team:a", [], shard: shard)
    source.loop.endTurn()
    try source.persist()
    try source.persist()
    let answers = gateway.take()
    #expect(
      answers == ["2 busy", "3 busy", "4 busy", "5 message 1 new", "6 channel of \(Outbox.pendingMax + 1)"]
    )
  }

  @Test("indexes are evicted like channels, and loaded when a change arrives")
  func eviction() throws {
    let world = try IndexWorld { configuration in
      configuration.residentBytesMax = 1
      configuration.checkpointAgeMilliseconds = 0
    }
    for round in 0..<8 {
      world.put("team:c\(round % 3)", ["user\(round % 5)", "user5"])
      try world.settleAll()
    }
    #expect(world.worlds.reduce(0) { $0 + $1.loop.gauges.loadedChannels } == 0)
    #expect(try world.differences() == [])
  }

  // MARK: Damage and rebuilding

  /// Both phases of a rebuild, in all shards.
  private func rebuild(_ world: IndexWorld, epoch: UInt64) throws {
    for phase in [1, 2] as [UInt8] {
      for round in 0... {
        var isDone = true
        for shard in 0..<UInt16(IndexWorld.shardCount) {
          let gateway = world.gateways[Int(shard) % 2]
          _ = gateway.take()
          gateway.rebuild(phase, epoch: epoch, shard: shard)
          world.worlds[Int(shard) % 2].loop.endTurn()
          try world.settle()
          guard gateway.take().last?.contains("rebuild none epoch \(epoch)") == true else {
            isDone = false
            continue
          }
        }
        if isDone { break }
        world.pass(1_000)
        try world.settle()
        if round > 50 {
          Issue.record("the rebuild does not come to its end")
          return
        }
      }
    }
  }

  @Test(
    "a damaged index is recreated empty and reported; a rebuild restores lost entries and removes wrong ones"
  )
  func damage() throws {
    let world = try IndexWorld()
    for cid in ["team:a", "team:b", "team:c"] { world.put(cid, ["user1", "user2"]) }
    world.post("team:c", "m1", by: "user3")
    world.change("team:b", remove: ["user2"])
    try world.settleAll()
    for _ in 0..<20 {
      world.pass(10_000)
      try world.settle()
    }
    let home = ShardID(IndexWorld.shard("user1"))
    let number = world.storage.directory[Array("user1".utf8)]!
    let key = PageKey(shard: home, channel: number, page: .memberships(0))
    world.storage.pages[key] = ByteBuffer(bytes: [1, 2, 3])
    try world.crash(0)
    try world.crash(1)
    // A damaged index is unavailable instead of empty.
    #expect(try world.list("user1") == "unavailable")
    world.put("team:d", ["user1"])
    try world.settleAll()
    #expect(try world.list("user1") == "team:d")
    let reports = world.worlds.flatMap(\.reports).map(\.description)
    #expect(reports.contains { $0.contains("recreated empty") } && !reports.contains { $0.contains("user1") })
    // An entry of a channel that does not exist.
    let stray = Membership(
      cid: "team:stray",
      channel: ChannelNumber(99),
      row: MemberOrdinal(0),
      isMember: true,
      joinedAt: .none,
      epoch: 0
    )
    let queued = Outbox.QueuedChange(number: 1_000, change: MembershipChange(user: "user2", stray))
    // The entry claims a shard that has sent nothing.
    let from = (0..<4 as Range<UInt16>).first { shard in
      ["team:a", "team:b", "team:c", "team:d"].allSatisfy { IndexWorld.shard($0) != shard }
    }
    if let from {
      let to = ShardID(IndexWorld.shard("user2"))
      world.arrive([MembershipDelivery(from: ShardID(from), to: to, after: 0, changes: [queued])])
      try world.settle()
      let found = try world.list("user2")
      #expect(found.contains("team:stray"))
    }
    let lost = try world.differences()
    #expect(!lost.isEmpty)
    try rebuild(world, epoch: 1)
    #expect(try world.differences() == [])
    // Recovery from storage alone, with an empty memory.
    for _ in 0..<20 {
      world.pass(10_000)
      try world.settle()
    }
    try world.crash(0)
    try world.crash(1)
    try rebuild(world, epoch: 2)
    #expect(try world.differences() == [])
  }

  @Test("a rebuild runs in slices between requests, and an older epoch is refused")
  func slices() throws {
    let world = try IndexWorld { $0.changesPerTurn = 10 }
    let shard = IndexWorld.shard("team:a")
    let gateway = world.gateway("team:a")
    world.put("team:a", (0..<95).map { "user\($0)" })
    try world.settleAll()
    _ = gateway.take()
    gateway.rebuild(1, epoch: 5, shard: shard)
    let source = world.worlds[Int(shard) % 2]
    source.loop.endTurn()
    #expect(source.slices == 1)
    source.slice()
    // Members join and leave during the rebuild.
    world.change("team:a", add: ["late"], remove: ["user90", "user1"])
    gateway.rebuild(2, epoch: 5, shard: shard)
    source.loop.endTurn()
    #expect(gateway.take().last?.hasSuffix("busy") == true)
    gateway.rebuild(0, epoch: 0, shard: shard)
    source.loop.endTurn()
    try source.persistAll()
    #expect(gateway.take().contains { $0.contains("rebuild resending epoch 5") })
    try world.settleAll()
    try rebuild(world, epoch: 5)
    #expect(try world.differences() == [])
    gateway.rebuild(1, epoch: 4, shard: shard)
    source.loop.endTurn()
    #expect(gateway.take().last?.hasSuffix("invalid_field") == true)
  }
}
