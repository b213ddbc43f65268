import NIOCore
import ReceiptModel
import ReceiptWire
import TestSupport
import Testing

@testable import StoreEngine

/// Following another loop's log, and promotion, step by step.
@Suite("Following")
struct FollowingTests {
  private let cid = "team:a"

  /// An owner with `team:a` of alice and bob and message m1, all followed.
  private final class Pair {
    let owner: EngineHarness
    let gateway: Gateway
    let follower: EngineHarness
    private(set) var log: SharedLog = []

    init(
      configureOwner: (inout StoreLoopConfiguration) -> Void = { _ in },
      configureFollower: (inout StoreLoopConfiguration) -> Void = { _ in }
    ) throws {
      owner = try EngineHarness(configure: configureOwner)
      gateway = owner.connect()
      follower = try EngineHarness(follows: true, configure: configureFollower)
      gateway.put("team:a", ["alice", "bob"])
      gateway.post("team:a", "m1", by: "alice")
      try end()
      try catchUp()
    }

    /// Ends the owner's turn: its commits go to the shared log and are answered.
    @discardableResult
    func end() throws -> [String] {
      owner.loop.endTurn()
      while !owner.commits.isEmpty || !owner.loads.isEmpty || owner.slices > 0 {
        try owner.completeLoads()
        try persistAll()
        if owner.slices > 0 { owner.slice() }
      }
      return FollowingTests.words(gateway.take())
    }

    func persistAll() throws {
      while let group = owner.commits.first {
        if !group.batches.isEmpty { log.append(group.batches) }
        try owner.persist()
      }
    }

    /// The follower applies the log and commits it.
    func catchUp() throws {
      try followAll()
      try follower.runUntilIdle()
    }

    func followAll() throws { for group in log { try follower.loop.follow(group) } }

    /// The gateway's connection to the follower, with the counters of its session.
    func reconnect() -> Gateway {
      let gateway = follower.connect(serial: 1)
      gateway.counter = self.gateway.counter
      return gateway
    }
  }

  private static func words(_ replies: [String]) -> [String] {
    replies.map { $0.split(separator: " ").dropFirst().joined(separator: " ") }
  }

  /// The replies of a loop that serves, after all pending work.
  private func nextReplies(_ harness: EngineHarness, _ gateway: Gateway) throws -> [String] {
    harness.loop.endTurn()
    try harness.runUntilIdle()
    return Self.words(gateway.take())
  }

  private func isLoaded(_ cid: String, _ harness: EngineHarness) -> Bool {
    let bytes = Array(cid.utf8)
    return harness.loop.isLoaded(ShardID(0), cid: bytes.span.bytes)
  }

  // MARK: Promotion

  @Test("a promoted follower answers what the owner acknowledged, and applies a resent command once")
  func promotedFollowerAnswersAcknowledgedCommands() throws {
    let pair = try Pair()
    pair.gateway.read(cid, "bob")
    #expect(try pair.end() == ["row read 1 unread 0"])
    let marked = pair.gateway.counter
    // The owner dies with a command that reached no log.
    pair.gateway.post(cid, "m2", by: "alice")
    pair.owner.loop.endTurn()
    pair.owner.loop.stop()
    try pair.followAll()
    pair.follower.loop.promote()

    let gateway = pair.reconnect()
    try pair.follower.runUntilIdle()
    gateway.read(cid, "bob", counter: marked)
    pair.follower.loop.endTurn()
    #expect(Self.words(gateway.take()) == ["row read 1 unread 0"])
    #expect(pair.follower.commits.isEmpty, "the resent command was applied again")
    gateway.post(cid, "m2", by: "alice", counter: marked + 1)
    #expect(try nextReplies(pair.follower, gateway) == ["message 2 new"])
    gateway.post(cid, "m2", by: "alice", counter: marked + 1)
    gateway.read(cid, "bob", "m2")
    #expect(try nextReplies(pair.follower, gateway) == ["message 2", "row read 2 unread 0"])
  }

  @Test("a follower refuses requests as unavailable until it is promoted; none counts as applied")
  func followerRefusesRequestsUntilPromoted() throws {
    let pair = try Pair()
    let gateway = pair.reconnect()
    gateway.read(cid, "bob")
    gateway.getChannel(cid)
    gateway.send(.getChannel, cid, shard: 7)
    pair.follower.loop.endTurn()
    #expect(Self.words(gateway.take()) == ["unavailable", "unavailable", "wrong_shard"])
    pair.follower.loop.promote()
    gateway.read(cid, "bob", counter: gateway.counter)
    gateway.getChannel(cid)
    #expect(try nextReplies(pair.follower, gateway) == ["channel of 2", "row read 1 unread 0"].reversed())
  }

  @Test(
    "batches that storage does not have yet go before the promoted loop's own, and no answer waits for them"
  )
  func pendingBatchesAreCommittedFirst() throws {
    let pair = try Pair()
    for user in ["alice", "bob"] {
      pair.gateway.post(cid, "by-\(user)", by: user)
      try pair.end()
      try pair.followAll()
    }
    // The commit of the first message is in flight, the second message waits.
    #expect(pair.follower.commits.map(\.batches.count) == [1])
    #expect(pair.follower.commits[0].followedCount == 1)
    pair.follower.loop.promote()
    let gateway = pair.reconnect()
    gateway.send(.getChannel, cid)
    pair.follower.loop.endTurn()
    #expect(Self.words(gateway.take()) == ["channel of 2"])
    gateway.post(cid, "m2", by: "bob")
    pair.follower.loop.endTurn()
    try pair.follower.persist()
    #expect(gateway.take() == [])
    #expect(pair.follower.commits.map(\.batches.count) == [2])
    #expect(pair.follower.commits[0].followedCount == 1)
    let indices = pair.follower.commits[0].batches.map(\.index.rawValue)
    #expect(indices == [UInt64(pair.log.count), UInt64(pair.log.count) + 1])
    try pair.follower.persist()
    #expect(Self.words(gateway.take()) == ["message 4 new"])
  }

  @Test("a promoted loop's time is the last logged one at least, and it knows where the log ended")
  func promotedLoopContinuesLoggedTime() throws {
    let pair = try Pair()
    pair.owner.advance(1_000_000)
    pair.gateway.read(cid, "bob")
    try pair.end()
    try pair.catchUp()
    // The follower's clock is a thousand seconds behind, and ticks do not move its shards' time.
    pair.follower.advance(5)
    pair.follower.loop.tick()
    #expect(pair.follower.loop.loggedTime == .none)
    pair.follower.loop.promote()
    #expect(pair.follower.loop.loggedTime.milliseconds == 1_001_000)
    #expect(pair.follower.loop.ownShard(ShardID(0)).state.time.milliseconds == 1_001_000)
  }

  @Test("a promoted loop sends the outbox again, and finds the settings that are not settled")
  func promotedLoopSendsOutboxAgain() throws {
    let pair = try Pair()
    pair.gateway.send(.patchUser, "alice") { payload in
      payload.writeVarint(UInt64(1))
      payload.writeVarint(UInt64(0))
      payload.writeTime(.none)
    }
    try pair.end()
    // The owner's changes never arrive anywhere.
    #expect(pair.owner.deliveries.flatMap(\.changes).count == 2)
    try pair.catchUp()
    for _ in 0..<3 {
      pair.follower.advance(2_000)
      pair.follower.loop.tick()
    }
    #expect(pair.follower.deliveries.isEmpty)
    pair.follower.loop.promote()
    pair.follower.loop.tick()
    #expect(pair.follower.deliveries.flatMap(\.changes) == pair.owner.deliveries.flatMap(\.changes))
    try pair.follower.runUntilIdle()
    let gateway = pair.reconnect()
    gateway.send(.listUnsettled, nil)
    gateway.list("alice")
    #expect(
      try nextReplies(pair.follower, gateway).sorted() == ["team:a", "unsettled types [] users [\"alice\"]"]
    )
  }

  @Test("a promoted loop resumes a deletion that the owner had begun", arguments: [false, true])
  func promotedLoopResumesDeletionThatOwnerHadBegun(isInTail: Bool) throws {
    let configure: (inout StoreLoopConfiguration) -> Void = { $0.changesPerTurn = 5 }
    let pair = try Pair(configureOwner: configure) { configuration in
      configure(&configuration)
      if isInTail { configuration.residentBytesMax = 1 }
    }
    pair.gateway.put("team:b", (0..<40).map { "user\($0)" })
    try pair.end()
    try pair.catchUp()
    if isInTail { try pair.follower.writePages() }
    #expect(isLoaded("team:b", pair.follower) != isInTail)
    pair.gateway.deleteChannel("team:b")
    pair.owner.loop.endTurn()
    try pair.persistAll()
    pair.owner.loop.stop()
    try pair.catchUp()
    // The log is kept from the deletion's beginning on.
    try pair.follower.writePages()
    #expect(pair.follower.storage.log[ShardID(0)]?.isEmpty == false)
    pair.follower.loop.promote()
    try pair.follower.runUntilIdle()
    let gateway = pair.reconnect()
    gateway.getChannel("team:b")
    gateway.put("team:b", ["alice"])
    #expect(try nextReplies(pair.follower, gateway) == ["channel_not_found", "channel of 1 new"])
    gateway.list("user7")
    #expect(try nextReplies(pair.follower, gateway) == ["no channels"])
    try pair.follower.writePages()
    #expect(pair.follower.storage.log[ShardID(0)]?.isEmpty == true)
  }

  @Test("a command that waited for its channel at the owner is decided after the promotion")
  func waitingCommandIsDecidedAfterPromotion() throws {
    let pair = try Pair()
    try pair.owner.writePages()
    pair.owner.loop.stop()
    // The owner starts again, with no channel in memory.
    let owner = try EngineHarness(pair.owner.storage)
    let before = owner.connect(serial: 1)
    before.counter = pair.gateway.counter
    before.read(cid, "bob")
    let waiting = before.counter
    before.put("team:b", ["alice"])
    owner.loop.endTurn()
    try owner.completeLoad(.cid(Array("team:b".utf8)))
    let batches = try #require(owner.commits.first).batches
    try owner.persist()
    #expect(Self.words(before.take()) == ["channel of 1 new"])
    owner.loop.stop()
    try pair.follower.loop.follow(batches)
    pair.follower.loop.promote()
    let gateway = pair.follower.connect(serial: 2)
    gateway.read(cid, "bob", counter: waiting)
    gateway.put("team:b", ["alice"], counter: waiting + 1)
    #expect(try nextReplies(pair.follower, gateway).sorted() == ["channel of 1", "row read 1 unread 0"])
  }

  // MARK: The log

  @Test("a gap is refused by name, and nothing of its group is applied")
  func gapIsRefusedByName() throws {
    let pair = try Pair()
    for user in ["alice", "bob"] {
      pair.gateway.post(cid, "by-\(user)", by: user)
      try pair.end()
    }
    let last = UInt64(pair.log.count)
    #expect(
      throws: FollowError.gap(shard: ShardID(0), last: LogIndex(last - 2), found: LogIndex(last))
    ) { try pair.follower.loop.follow(pair.log.last!) }
    #expect(throws: FollowError.foreignShard(ShardID(3))) {
      var foreign = pair.log.last![0]
      foreign.shard = ShardID(3)
      try pair.follower.loop.follow(pair.log[pair.log.count - 2] + [foreign])
    }
    var damaged = pair.log[pair.log.count - 2][0]
    damaged.bytes = ByteBuffer(bytes: [1, 2, 3])
    #expect(throws: FollowError.self) { try pair.follower.loop.follow([damaged]) }
    #expect(pair.follower.commits.isEmpty && !pair.follower.loop.isHalted)
    #expect(pair.follower.loop.followedIndexes.map(\.index.rawValue) == [last - 2])
    // Batches that it has already are skipped.
    try pair.followAll()
    #expect(pair.follower.loop.followedIndexes.map(\.index.rawValue) == [last])
  }

  @Test("a batch that does not fit the state stops the follower")
  func batchThatDoesNotFitStateStopsFollower() throws {
    let pair = try Pair()
    var effects = ByteBuffer()
    effects.writeEffect(.shard(.userSettled(99, version: 1)))
    var batch = LoopCommit.Batch(
      shard: ShardID(0),
      index: LogIndex(UInt64(pair.log.count) + 1),
      bytes: ByteBuffer()
    )
    LogBatch.write(
      index: batch.index,
      time: Timestamp(milliseconds: 9_000),
      sessions: [],
      effectCount: 1,
      effects: effects,
      into: &batch.bytes
    )
    #expect(throws: FollowError.self) { try pair.follower.loop.follow([batch]) }
    #expect(pair.follower.loop.isHalted && pair.follower.halts.isEmpty)
  }

  @Test("a follower has no more room while batches wait for storage")
  func followerHasNoMoreRoomWhileBatchesWaitForStorage() throws {
    let pair = try Pair(configureFollower: { $0.followWaitingBytesMax = 200 })
    #expect(pair.follower.loop.hasRoomToFollow)
    for number in 2..<12 {
      pair.gateway.post(cid, "m\(number)", by: "alice")
      try pair.end()
    }
    try pair.followAll()
    #expect(!pair.follower.loop.hasRoomToFollow)
    try pair.follower.runUntilIdle()
    #expect(pair.follower.loop.hasRoomToFollow)
  }

  @Test("a channel that is not in memory keeps its effects in the tail, and the rest of the log is trimmed")
  func channelThatIsNotInMemoryKeepsEffectsInTail() throws {
    let pair = try Pair(configureFollower: { $0.residentBytesMax = 1 })
    try pair.follower.writePages()
    #expect(!isLoaded(cid, pair.follower))
    pair.gateway.put("team:b", ["bob"])
    try pair.end()
    pair.gateway.read(cid, "bob")
    try pair.end()
    let held = UInt64(pair.log.count)
    pair.gateway.put("team:c", ["bob"])
    try pair.end()
    try pair.followAll()
    #expect(pair.follower.loop.gauges.tailChannels == 1)
    // The read of the channel stays in flight: its effects hold the log.
    for _ in 0..<5 {
      try pair.follower.persistAll()
      pair.follower.advance(10_000)
      pair.follower.loop.tick()
    }
    #expect(pair.follower.storage.log[ShardID(0)].map { $0.keys.sorted() } == [held, held + 1])
    pair.gateway.put("team:b", ["alice"])
    try pair.end()
    try pair.followAll()
    try pair.follower.writePages()
    #expect(pair.follower.storage.log[ShardID(0)]?.isEmpty == true)
    #expect(pair.follower.loop.gauges.tailChannels == 0)
  }

  @Test("a session is kept as long as at the owner, however long the follower has run")
  func sessionIsKeptAsLongAsAtOwner() throws {
    let pair = try Pair()
    pair.follower.loop.tick()
    for _ in 0..<50 { pair.follower.advance(60_000) }
    pair.gateway.read(cid, "bob")
    try pair.end()
    try pair.catchUp()
    try pair.follower.writePages()
    let head = try #require(
      pair.follower.storage.pages[PageKey(shard: ShardID(0), channel: ChannelNumber(0), page: .shardHead)]
    )
    let sessions = try Page(head.readableBytesSpan).effects.filter {
      if case .shard(.sessionAssigned) = $0 { true } else { false }
    }
    #expect(sessions.count == 1)
  }
}
