import NIOCore
import ReceiptModel
import ReceiptWire
import StoreEngine
import Testing

/// Shards purge in numbered rounds (R16; Proto/frames.md, 0x2B).
@Suite("Purges in the store")
struct PurgeTests {
  private func turn(_ harness: EngineHarness) throws {
    harness.loop.endTurn()
    try harness.completeLoads()
    try harness.persistAll()
  }

  /// The replies since the last call, in order.
  private func nextReplies(_ gateway: Gateway) -> [String] {
    gateway.take().map { $0.split(separator: " ").dropFirst().joined(separator: " ") }
  }

  /// The round that a purge has to wait for; 0: it has ended.
  private func ask(_ gateway: Gateway, _ round: UInt64, shard: UInt16 = 0) throws -> UInt64 {
    _ = gateway.take()
    gateway.purge(round, shard: shard)
    gateway.harness.loop.endTurn()
    let reply = try #require(nextReplies(gateway).first)
    return reply == "purged" ? 0 : try #require(UInt64(reply.dropFirst("round ".count)))
  }

  @Test("a purge round writes older pages, trims the log, purges the storage, and then ends")
  func purgeRoundWritesOlderPages() throws {
    let (harness, gateway) = try harnessWithChannel()
    gateway.post("team:a", "m1", by: "bob")
    gateway.erase("team:a", "bob")
    try turn(harness)
    try harness.runUntilIdle()
    #expect(try harness.traces("bob").count > 1)
    #expect(try ask(gateway, 0) == 1 && harness.purges == 0)
    try harness.persistAll()
    #expect(try harness.traces("bob") == [] && harness.purges == 1)
    #expect(harness.storage.log[ShardID(0)]!.isEmpty)
    #expect(try ask(gateway, 1) == 1 && harness.purges == 1)
    try harness.purgeStorage()
    // The reply is the same for every repeat and connection.
    for _ in 0..<2 { #expect(try ask(gateway, 1) == 0) }
    #expect(try ask(harness.connect(session: 2), 1) == 0)
    #expect(harness.commits.isEmpty && harness.purges == 0)
    // A new request waits for another round. Without new log entries only the storage is purged.
    #expect(try ask(gateway, 0) == 2 && harness.purges == 1 && harness.commits.isEmpty)
    try harness.purgeStorage()
    #expect(try ask(gateway, 2) == 0 && harness.purges == 0)
  }

  @Test(
    "a purge round sends pending index changes first, and continues once they arrive, with or without a request"
  )
  func purgeRoundSendsPendingIndexChangesFirst() throws {
    let (harness, gateway) = try harnessWithChannel()
    try harness.runUntilIdle()
    gateway.erase("team:a", "bob")
    try turn(harness)
    #expect(!harness.deliveries.isEmpty)
    #expect(try ask(gateway, 0) == 1)
    try harness.persistAll()
    #expect(harness.purges == 0)
    try harness.runUntilIdle()
    #expect(try harness.purges == 1 && harness.traces("bob") == [])
  }

  @Test("a purge beside continuous deletions ends after two rounds at most")
  func purgeBesideContinuousDeletionsEnds() throws {
    let (harness, gateway) = try harnessWithChannel()
    gateway.post("team:a", "m0", by: "bob")
    gateway.erase("team:a", "bob")
    try turn(harness)
    try harness.runUntilIdle()
    let (deleting, asking) = (harness.connect(session: 2), harness.connect(session: 3))
    // A round of another connection is in progress.
    #expect(try ask(gateway, 0) == 1)
    var round: UInt64 = 0
    var turns = 0
    repeat {
      turns += 1
      deleting.put("team:x\(turns)", ["carol"])
      deleting.deleteChannel("team:x\(turns - 1)")
      harness.loop.endTurn()
      round = try ask(asking, round)
      try harness.completeLoads()
      harness.deliverChanges()
      if harness.slices > 0 { harness.slice() }
      if !harness.commits.isEmpty { try harness.persist() }
      if turns % 3 == 0, harness.purges > 0 { try harness.purgeStorage() }
      harness.advance(20)
    } while round > 0 && turns < 200
    #expect(round == 0 && harness.storage.purges == 2, "\(turns) turns")
    #expect(try harness.traces("bob") == [])
    #expect(nextReplies(deleting).contains("channel deleted"))
  }

  @Test("ten purge requests share one round, or the next one where a round is under way")
  func tenPurgeRequestsShareOneRound() throws {
    let (harness, first) = try harnessWithChannel()
    try harness.runUntilIdle()
    let requesters = (2..<12 as Range<UInt64>).map { harness.connect(session: $0) }
    #expect(try ask(first, 0) == 1)
    try harness.persistAll()
    #expect(harness.purges == 1)
    for gateway in requesters { #expect(try ask(gateway, 0) == 2) }
    for gateway in requesters { #expect(try ask(gateway, 2) == 2) }
    // The requested round starts by itself. It waits only for log entries from before it.
    first.post("team:a", "m1", by: "alice")
    try turn(harness)
    try harness.purgeStorage()
    try harness.persistAll()
    #expect(harness.purges == 1 && harness.storage.log[ShardID(0)]!.isEmpty)
    #expect(try ask(first, 1) == 0)
    for gateway in requesters { #expect(try ask(gateway, 2) == 2) }
    try harness.purgeStorage()
    for gateway in requesters { #expect(try ask(gateway, 2) == 0) }
    // No connection waits any more.
    try harness.writePages()
    #expect(harness.storage.purges == 2 && harness.purges == 0)
  }

  @Test("an erasure during a purge round is covered by the next round, whose number is returned")
  func erasureDuringPurgeRoundIsCoveredByNextRound() throws {
    let (harness, gateway) = try harnessWithChannel()
    gateway.post("team:a", "m0", by: "bob")
    gateway.erase("team:a", "bob")
    harness.loop.endTurn()
    try harness.runUntilIdle()
    #expect(try ask(gateway, 0) == 1)
    var turns = 0
    while harness.purges == 0, turns < 50 {
      turns += 1
      gateway.post("team:a", "m\(turns)", by: "alice")
      harness.loop.endTurn()
      if !harness.commits.isEmpty { try harness.persist() }
    }
    #expect(turns < 10 && harness.purges == 1)
    gateway.erase("team:a", "alice")
    try turn(harness)
    try harness.runUntilIdle()
    let other = harness.connect(session: 2)
    #expect(try ask(other, 0) == 2)
    try harness.purgeStorage()
    #expect(try harness.traces("alice") != [])
    #expect(try ask(gateway, 1) == 0 && ask(other, 2) == 2)
    try turn(harness)
    #expect(try harness.traces("alice") == [] && harness.purges == 1)
    try harness.purgeStorage()
    #expect(try ask(other, 2) == 0)
  }

  @Test("one storage purge serves all waiting shards; a failed one does not count as a round")
  func oneStoragePurgeServesAllWaitingShards() throws {
    let harness = try EngineHarness(shards: [0, 1, 2], of: 3)
    let gateway = harness.connect()
    for shard in 0..<3 as Range<UInt16> { #expect(try ask(gateway, 0, shard: shard) == 1) }
    // The first shard's is in progress; the others share the next.
    #expect(harness.purges == 1)
    try harness.purgeStorage()
    #expect(harness.purges == 1)
    try harness.purgeStorage(failing: true)
    #expect(harness.reports == [.failed("bad sector")] && harness.purges == 0)
    #expect(try ask(gateway, 1, shard: 0) == 0)
    // A repeated request restarts the failed round under its number. Without a request it is not restarted, so a
    // failing storage is not purged in a loop.
    try harness.writePages()
    #expect(harness.purges == 0)
    #expect(try ask(gateway, 1, shard: 1) == 1 && harness.purges == 1)
    // A connection that got the number of the next round before this one failed is covered by this one too, but waits
    // for its own round.
    let other = harness.connect(session: 2)
    #expect(try ask(other, 0, shard: 1) == 2)
    try harness.purgeStorage(failing: true)
    #expect(harness.purges == 1 && harness.reports.count == 2)
    try harness.purgeStorage()
    #expect(try ask(gateway, 1, shard: 1) == 0 && ask(gateway, 1, shard: 2) == 1)
    #expect(try ask(other, 2, shard: 1) == 2)
    try harness.purgeStorage()
    if harness.purges > 0 { try harness.purgeStorage() }
    #expect(try ask(other, 2, shard: 1) == 0 && ask(gateway, 1, shard: 2) == 0)
  }

  @Test("after a restart purge rounds are numbered from 1, and a request for an earlier round gets a new one")
  func afterRestartPurgeRoundsAreNumberedFrom1() throws {
    let (before, _) = try harnessWithChannel()
    try before.runUntilIdle()
    for round in 1...5 as ClosedRange<UInt64> {
      #expect(try ask(before.connect(), 0) == round)
      try before.persistAll()
      try before.purgeStorage()
    }
    let waiting = before.connect(session: 4)
    waiting.erase("team:a", "bob")
    try turn(before)
    #expect(nextReplies(waiting) == ["erased"])
    #expect(try ask(waiting, 0) == 6)
    for overtaken in [false, true] {
      let harness = try EngineHarness(before.storage)
      try harness.runUntilIdle()
      let (gateway, other) = (harness.connect(session: 2), harness.connect(session: 3))
      // Other connections may have completed as many rounds since, each of which covers what was durable at the start.
      for round in 1...6 as ClosedRange<UInt64> where overtaken {
        #expect(try ask(other, 0) == round)
        try harness.writePages()
        try harness.runUntilIdle()
        #expect(harness.purges == 1)
        try harness.purgeStorage()
      }
      if !overtaken {
        #expect(try ask(gateway, 6) == 1)
        try harness.writePages()
        try harness.runUntilIdle()
        #expect(try ask(gateway, 1) == 1 && harness.purges == 1)
        try harness.purgeStorage()
        #expect(try ask(gateway, 1) == 0)
      }
      #expect(try harness.traces("bob") == [])
      #expect(try ask(gateway, 6) == (overtaken ? 0 : 2))
      #expect(try ask(gateway, .max) == (overtaken ? 7 : 3))
    }
  }

  @Test("a purge round after a restart waits for the channels of the log's tail")
  func purgeRoundAfterRestartWaitsForChannelsOfLogTail() throws {
    let (before, _) = try harnessWithChannel()
    try before.runUntilIdle()
    let harness = try EngineHarness(before.storage)
    let gateway = harness.connect(session: 2)
    var round = try ask(gateway, 0)
    try turn(harness)
    #expect(harness.purges == 0)
    harness.loop.tick()
    try harness.completeLoads()
    for _ in 0..<3 {
      harness.loop.tick()
      // Pending index changes are resent first.
      try harness.runUntilIdle()
      round = try ask(gateway, round)
      try turn(harness)
    }
    #expect(round == 1 && harness.purges == 1 && harness.storage.log[ShardID(0)]!.isEmpty)
  }

  @Test("a purge payload that is too short or too long ends the connection")
  func purgePayloadThatIsTooShortOrTooLongEndsConnection() throws {
    for payload in [[], [0, 0], [0x80], [UInt8](repeating: 0xff, count: 11)] as [[UInt8]] {
      let (harness, gateway) = try harnessWithChannel()
      gateway.send(.purge, nil) { $0.writeBytes(payload) }
      #expect(gateway.ended.count == 1, "\(payload)")
      #expect(harness.purges == 0 && harness.commits.isEmpty)
    }
  }
}
